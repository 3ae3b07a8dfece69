//! The files of keys and of the signing secret.
