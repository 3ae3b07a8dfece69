//! What a program or an endpoint of `--tools` declares and answers. The checks are in
//! `entries/tools.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::tools::tools, bytes));
