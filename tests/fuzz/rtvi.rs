//! Messages of RTVI clients. The checks are in `entries/rtvi.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::rtvi::message, bytes));
