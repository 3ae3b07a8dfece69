//! Fuzzes build contexts; `entries.rs` has the properties.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::tar_entries, bytes));
