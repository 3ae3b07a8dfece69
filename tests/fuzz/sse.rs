//! Server-sent events, and what chat models and recognisers say in them.
//! The checks are in `entries/assistants.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::assistants::sse, bytes));
