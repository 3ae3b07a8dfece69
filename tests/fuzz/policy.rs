//! Fuzzes policies of upload grants; `entries.rs` has the properties.

#![no_main]

#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::policy(bytes));
