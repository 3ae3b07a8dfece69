//! An answer, on its way to a microcontroller or a browser. The checks are in `entries.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::sdp_answer, bytes));
