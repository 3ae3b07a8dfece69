//! Uploads an archive.
