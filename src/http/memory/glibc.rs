//! The heap of the GNU C library.
//!
//! Nothing enters; what is asked of the allocator it may refuse, and then keeps to its own ways.

/// Has all threads share one heap.
pub fn share() {
    // SAFETY: the call takes two numbers, and changes what the allocator does when a further thread first allocates.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Gives all pages back that nothing is kept in; takes about a millisecond per 10 MiB.
pub fn give_back() {
    // SAFETY: the call takes a number and the allocator's own lock, and moves nothing that is in use.
    unsafe { libc::malloc_trim(0) };
}
