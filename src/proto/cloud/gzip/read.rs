//! The gzip format: members, checksums, read as bytes come.
