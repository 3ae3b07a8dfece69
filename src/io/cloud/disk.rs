//! How much space is left.
