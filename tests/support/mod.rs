//! What the tests stand on: the real binary on free ports, a strict microcontroller, sound, and a small HTTP client.

pub mod device;
pub mod http;
pub mod runner;
pub mod sound;
