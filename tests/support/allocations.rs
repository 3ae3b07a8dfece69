//! An allocator that counts the allocations of a thread and the bytes that it holds, so that a test
//! can bound them. Only test programs use it; the shipped binary uses the allocator of the system.
#![allow(dead_code, reason = "each test program uses a part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Has no destructor and exists from the start of the thread, so access does not allocate.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread has taken and not given back, and their maximum. What another thread
    /// gives back stays counted, and the number is negative where this thread gives that back.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(size: usize) {
    // A thread that ends has no counter.
    let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
    hold(size as i64);
}

fn hold(bytes: i64) {
    let held = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        held.get()
    });
    let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.unwrap_or(0))));
}

// SAFETY: every call is forwarded to the system's allocator with unchanged arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        hold(-(layout.size() as i64));
        count(size);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs a function. Returns its value and the number of allocations and growths by this thread.
pub fn of<T>(act: impl FnOnce() -> T) -> (T, u64) {
    let before = TAKEN.get();
    let done = act();
    (done, TAKEN.get() - before)
}

/// Runs a function. Returns its value and the most bytes that this thread held at a time, beyond
/// those before.
pub fn peak_of<T>(act: impl FnOnce() -> T) -> (T, u64) {
    let before = HELD.get();
    PEAK.set(before);
    let done = act();
    (done, PEAK.get().saturating_sub(before).unsigned_abs())
}
