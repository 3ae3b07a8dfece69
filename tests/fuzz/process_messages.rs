//! What a bot that is a program sends its runner. The checks are in `entries/process.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::process::messages, bytes));
