//! The heap of the GNU C library.
//!
//! Nothing enters; what is asked of the allocator it may refuse, and then keeps to its own ways.

use std::ffi::c_int;

/// The parameter of [`mallopt`] for how many heaps threads may share.
const M_ARENA_MAX: c_int = -8;

// SAFETY: the declarations are those of `malloc.h`. Both calls take numbers and the allocator's own
// locks, and leave what is in use where it is.
unsafe extern "C" {
    safe fn mallopt(parameter: c_int, value: c_int) -> c_int;
    safe fn malloc_trim(kept: usize) -> c_int;
}

/// Has all threads share one heap.
pub fn share() {
    mallopt(M_ARENA_MAX, 1);
}

/// Gives all pages back that nothing is kept in; takes about a millisecond per 10 MiB.
pub fn give_back() {
    malloc_trim(0);
}
