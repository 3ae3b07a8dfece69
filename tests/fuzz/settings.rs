//! Files of settings. The checks are in `entries/settings.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::settings::settings, bytes));
