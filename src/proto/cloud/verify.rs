//! The order in which the form of an upload is verified.
