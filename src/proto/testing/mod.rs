//! Callers for tests: a str0m client with a microphone, as a browser and as a microcontroller, in
//! virtual time.
//!
//! Built for the tests of this crate, and with the feature `testing` for those of dependent crates.

#![allow(
    clippy::disallowed_methods,
    reason = "a test may take the clock once, as the origin of its time"
)]

pub mod client;
pub mod device;
pub mod tap;
