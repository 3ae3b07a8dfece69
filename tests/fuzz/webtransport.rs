//! The parsers of WebTransport over HTTP/3. The checks are in `entries/moq.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::moq::webtransport, bytes));
