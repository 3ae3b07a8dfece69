//! Bodies of `/start` with variables, functions and all else that an assistant takes from them.
//! The checks are in `entries/start.rs`.

#![no_main]

#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::start::body(bytes));
