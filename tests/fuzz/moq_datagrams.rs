//! Datagrams at the port of Media over QUIC. The checks are in `entries/quic.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::quic::datagrams, bytes));
