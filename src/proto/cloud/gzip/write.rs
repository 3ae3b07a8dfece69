//! The gzip format: members, checksums, written.
