//! Caps and time limits of the runner, each with its unit and its reason.
//!
//! A number is here if an operator can meet it, or if several files use it: those are in the
//! sections `internal`, which the reference leaves out. A number that one file uses is in that
//! file, and one that only a module uses in `limits.rs` of its folder. The code that uses a limit
//! has a test at the limit and one past it.

mod assistants;
mod audio;
mod bot;
mod gathering;
mod http;
mod rooms;
mod runner;
mod services;
mod sockets;
mod webrtc;
mod worker;

pub use assistants::*;
pub use audio::*;
pub use bot::*;
pub use gathering::*;
pub use http::*;
pub use rooms::*;
pub use runner::*;
pub use services::*;
pub use sockets::*;
pub use webrtc::*;
pub use worker::*;

/// 2026-11-01, in seconds since 1970: a clock before this date was never set.
pub const RELEASED_S: u64 = 1_793_491_200;
