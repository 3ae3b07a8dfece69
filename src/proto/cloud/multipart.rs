//! The parts of a `multipart/form-data` body, as they come.
