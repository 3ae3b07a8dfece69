//! The messages of a LiveKit server to an agent worker. The checks are in `entries/worker.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::worker::worker, bytes));
