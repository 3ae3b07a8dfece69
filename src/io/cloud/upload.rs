//! An upload: from the body of a request to an archive.
