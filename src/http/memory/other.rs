//! Allocators that need no tuning: musl's, and those of other systems.

/// Does nothing: there is one heap already.
pub fn use_one_arena() {}

/// Does nothing: free pages are returned at once.
pub fn trim() {}
