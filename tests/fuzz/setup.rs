//! Forms and confirmations of the setup page of a board. The checks are in
//! `entries/setup.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::setup::setup, bytes));
