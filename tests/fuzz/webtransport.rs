//! The parsers of WebTransport over HTTP/3. The checks are in `entries/moq.rs`.

#![no_main]

#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::moq::webtransport(bytes));
