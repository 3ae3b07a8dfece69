//! The messages of a LiveKit server to an agent worker. The checks are in `entries/worker.rs`.

#![no_main]

#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::worker::worker(bytes));
