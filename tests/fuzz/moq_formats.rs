//! The catalog, records and audio frames of Media over QUIC. The checks are in `entries/moq.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::moq::formats, bytes));
