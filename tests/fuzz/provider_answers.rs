//! Answers of the services of numbers and rooms. The checks are in `entries/providers.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::providers::answers, bytes));
