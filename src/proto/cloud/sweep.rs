//! What is due to be deleted.
