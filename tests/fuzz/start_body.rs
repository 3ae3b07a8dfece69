//! Bodies of `/start` with variables, functions and all else that an assistant takes from them.
//! The checks are in `entries/start.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::start::body, bytes));
