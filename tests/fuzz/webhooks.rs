//! Webhooks of providers and of LiveKit servers. What must hold is in `entries/webhooks.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::webhooks::webhooks, bytes));
