//! The gzip format: members, checksums.

pub mod read;
pub mod write;
