//! The pure cores. Bytes, values and `now: Instant` come in; values come out. No sockets, tasks,
//! files or environment.
//!
//! The grammar of a core: `handle_*` takes an input, `poll_*` gives what follows from it,
//! `poll_timeout` the next deadline. One input, then a drain of the outputs.
//!
//! - [`webrtc`]: offers, one peer connection, its session, and the network below
//! - [`sockets`]: telephone calls and plain clients on WebSockets
//! - [`livekit`] and [`daily`]: rooms; [`whatsapp`]: voice calls of a messaging app
//! - [`session`]: what the loop in `io` runs, whatever the transport; [`event`]: what a bot is told
//! - [`audio`], [`rtvi`], [`process`] (what a bot that is a program is given)
//! - [`http`]: requests, who may ask, admission, `/start`
//! - [`options`]: arguments and variables; [`config`], [`limits`], [`aliases`], [`features`]: what
//!   they mean, every cap, second names, what a build can do
//! - [`counts`], [`doctor`], [`metrics`], [`stall`]: what is told of the runner
//! - [`time`], [`uuid`], [`secret`], [`address_scope`]

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "a test may take the clock once, as the origin of its time"
    )
)]

pub mod address_scope;
pub mod aliases;
#[cfg(test)]
#[path = "../../tests/support/allocations.rs"]
mod allocations;
pub mod audio;
pub mod config;
pub mod counts;
pub mod daily;
pub mod doctor;
pub mod event;
pub mod features;
pub mod http;
pub mod limits;
pub mod livekit;
pub mod metrics;
pub mod options;
pub mod participant;
pub mod process;
pub mod rtvi;
pub mod secret;
pub mod server;
pub mod session;
pub mod sockets;
pub mod stall;
pub mod telephony;
#[cfg(all(any(test, feature = "testing"), feature = "webrtc"))]
pub mod testing;
pub mod time;
pub mod uuid;
pub mod webrtc;
pub mod whatsapp;

/// The name of a session: a UUID, or what a test calls it.
pub type SessionId = std::sync::Arc<str>;
