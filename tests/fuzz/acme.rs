//! Answers of an ACME directory. The checks are in
//! `entries/acme.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::acme::acme, bytes));
