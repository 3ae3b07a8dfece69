//! Session ids, tokens and connection ids of replicas. The checks are in `entries/cluster.rs`.

#![no_main]

#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::cluster::sealed_id(bytes));
