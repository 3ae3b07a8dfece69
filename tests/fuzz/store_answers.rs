//! Answers of an object store. The checks are in `entries/cloud.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::cloud::store, bytes));
