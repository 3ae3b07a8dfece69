//! Responses of a runner to `edge-runner call`. The checks are in `entries/caller.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::caller::response, bytes));
