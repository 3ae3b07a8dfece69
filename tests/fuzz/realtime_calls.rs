//! Requests and events of clients of realtime calls. What must hold is in `entries/whip.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::whip::realtime_calls, bytes));
