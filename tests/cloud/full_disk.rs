//! No space, and what goes on without it.
