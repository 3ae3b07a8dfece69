//! One run of the builder command.
