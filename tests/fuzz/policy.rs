//! Fuzzes policies of upload grants; `entries.rs` has the properties.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::policy, bytes));
