//! The allocator of the GNU C library. Both calls are hints, which it may ignore.

use std::ffi::c_int;

/// The [`mallopt`] parameter for the number of arenas.
const M_ARENA_MAX: c_int = -8;

// SAFETY: the declarations match `malloc.h`. Both functions take plain numbers, use the allocator's
// own locks, and leave allocated memory unchanged.
unsafe extern "C" {
    safe fn mallopt(parameter: c_int, value: c_int) -> c_int;
    safe fn malloc_trim(kept: usize) -> c_int;
}

/// Makes all threads share one arena.
pub fn use_one_arena() {
    mallopt(M_ARENA_MAX, 1);
}

/// Returns free pages to the system; takes about a millisecond per 10 MiB.
pub fn trim() {
    malloc_trim(0);
}
