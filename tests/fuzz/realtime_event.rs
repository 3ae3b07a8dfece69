//! Events of a speech-to-speech service, one in each line.
//! The checks are in `entries/assistants.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::assistants::realtime_event, bytes));
