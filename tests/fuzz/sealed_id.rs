//! Session ids, tokens and connection ids of replicas. The checks are in `entries/cluster.rs`.

#![no_main]

mod harness;

use harness::{entries, oracle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::run(entries::cluster::sealed_id, bytes));
