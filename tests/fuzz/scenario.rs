//! Files of scenarios. The checks are in `entries/scenario.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::scenario::scenario, bytes));
