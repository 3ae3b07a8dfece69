//! What an input may cost, whatever it is. Shared by the fuzz targets and `tests/cost.rs`.

use std::fs;
use std::time::{Duration, Instant};

use super::allocations;

/// Bytes that an input may make a thread hold at a time.
pub const HELD_BYTES_MAX: u64 = 64 << 20;
/// Time of the processor that an input may take, where the build is optimised, in nanoseconds.
pub const CPU_NS_MAX: u64 = 1_000_000_000;
/// How much slower the instrumented build of the fuzz targets is, which also checks for overflows.
const INSTRUMENTED: u64 = 2;

/// Returns the time that the processor has spent on this thread, in nanoseconds; `None` where the
/// system does not tell it.
pub fn cpu_ns() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns what an input made the thread hold and take, in bytes and nanoseconds.
pub fn cost_of(run: impl FnOnce()) -> (u64, u64) {
    let began = cpu_ns();
    let ((), held) = allocations::peak_of(run);
    let took = began.zip(cpu_ns()).map_or(0, |(began, ended)| ended - began);
    (held, took)
}

/// Runs the entry of a fuzz target on an input, and panics if the input is too expensive.
pub fn run(entry: fn(&[u8]), bytes: &[u8]) {
    let limit_ns = INSTRUMENTED * CPU_NS_MAX;
    let began = Instant::now();
    let ((), held) = allocations::peak_of(|| entry(bytes));
    assert!(
        held <= HELD_BYTES_MAX,
        "{} bytes made the thread hold {held} bytes",
        bytes.len()
    );
    // No clock of the processor is ahead of the wall clock. A wait for the processor, and what is
    // done only once, do not count: the input runs again.
    if began.elapsed() > Duration::from_nanos(limit_ns) {
        let (_, took) = cost_of(|| entry(bytes));
        assert!(took <= limit_ns, "{} bytes took {} ms", bytes.len(), took / 1_000_000);
    }
}
