//! The tree of an archive: which entries may be made.
