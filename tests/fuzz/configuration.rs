//! Options, variables and files. The checks are in `entries.rs`.

#![no_main]

#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::configuration::configuration(bytes));
