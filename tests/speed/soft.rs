//! Hides the cryptographic instructions of the processor, to count for boards without them on a
//! machine that has them.
//!
//! The crates ask the kernel once, through `getauxval`, which this module overrides.

use std::ffi::{c_ulong, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const AT_HWCAP: c_ulong = 16;
/// AES, PMULL, SHA-1 and SHA-2 in the kernel's `asm/hwcap.h`.
const CRYPTOGRAPHY: c_ulong = 0b111_1000;

static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Hides them from later checks.
pub fn hide() {
    HIDDEN.store(true, Relaxed);
}

/// Returns the value of the kernel, without the hidden bits.
#[unsafe(no_mangle)]
extern "C" fn getauxval(kind: c_ulong) -> c_ulong {
    // SAFETY: the name ends with a NUL, and the next library that has it is the C library.
    let real: *mut c_void = unsafe { libc::dlsym(libc::RTLD_NEXT, c"getauxval".as_ptr()) };
    if real.is_null() {
        return 0;
    }
    // SAFETY: the C library's function has this type.
    let real: extern "C" fn(c_ulong) -> c_ulong = unsafe { std::mem::transmute(real) };
    let mask = if kind == AT_HWCAP && HIDDEN.load(Relaxed) {
        CRYPTOGRAPHY
    } else {
        0
    };
    real(kind) & !mask
}
