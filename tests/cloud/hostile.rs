//! Archives that try to lead out.
