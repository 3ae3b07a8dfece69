//! Keys, wake words and lists of the sound card. The checks are in `entries/local.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::local::local, bytes));
