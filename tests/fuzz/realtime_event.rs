//! Events of a speech-to-speech service, one in each line.
//! The checks are in `entries/assistants.rs`.

#![no_main]

#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::assistants::realtime_event(bytes));
