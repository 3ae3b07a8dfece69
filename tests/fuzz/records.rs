//! Headers, queries and files around the records of calls. The checks are in `entries/records.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::records::records, bytes));
