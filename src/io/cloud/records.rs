//! Where uploads and builds are recorded.
