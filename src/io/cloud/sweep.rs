//! Deletes what is due.
