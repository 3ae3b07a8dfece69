//! The audio of a voice, with and without a WAV header.
//! The checks are in `entries/assistants.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::assistants::wav_header, bytes));
