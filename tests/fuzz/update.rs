//! What `edge-runner update` reads. The checks are in `entries/update.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::update::update, bytes));
