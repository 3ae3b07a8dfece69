//! The messages of a media-room server. The checks are in `entries.rs`.

#![no_main]

#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::livekit_signal(bytes));
