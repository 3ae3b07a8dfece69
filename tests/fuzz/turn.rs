//! Messages of a TURN server, answers to requests among them. The checks are in
//! `entries/turn.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::turn::turn, bytes));
