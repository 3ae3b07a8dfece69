//! What the end of a builder command means.
