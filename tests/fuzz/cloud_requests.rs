//! Requests and files of the cloud service. The checks are in `entries/cloud.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::cloud::requests, bytes));
