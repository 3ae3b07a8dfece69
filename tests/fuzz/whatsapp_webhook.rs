//! Webhooks of the messaging app whose signature holds. What must hold is in
//! `entries/whatsapp.rs`.

#![no_main]

#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::whatsapp::webhook(bytes));
