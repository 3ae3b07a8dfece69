//! What a builder command is given, and what its end means.
