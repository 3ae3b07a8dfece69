//! Server-sent events, and what chat models and recognisers say in them.
//! The checks are in `entries/assistants.rs`.

#![no_main]

#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::assistants::sse(bytes));
