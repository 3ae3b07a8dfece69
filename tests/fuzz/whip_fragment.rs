//! The bodies of PATCH on the session of a WHIP client. What must hold is in `entries/whip.rs`.

#![no_main]

#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::whip::fragment(bytes));
