//! An offer, from its text to an answer. The checks are in `entries.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::sdp_offer, bytes));
