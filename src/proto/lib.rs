//! The pure protocol cores of edge-runner. Bytes, values and `now: Instant` come in; values come
//! out. There are no sockets, tasks, files or environment variables here.
//!
//! A core has `handle_*` methods that take an input, `poll_*` methods that return what follows from
//! it, and `poll_timeout` for the next deadline. After each input, the outputs are drained.
//!
//! - [`webrtc`]: offers, peer connections, their sessions, and the network below them
//! - [`telephony`] and [`sockets`]: telephone calls and plain clients on WebSockets;
//!   [`call_control`], [`hang_up`]: what telephone calls and calls in rooms have in common
//! - [`local`]: the sound card of this machine as a caller
//! - [`livekit`] and [`daily`]: media rooms; [`whatsapp`]: calls of a messaging app
//! - [`moq`]: Media over QUIC
//! - [`assistant`]: bots that talk by the services of others
//! - [`session`]: the contract of every session with its driver; [`event`], [`answered_by`]: what a
//!   session tells a bot
//! - [`audio`], [`rtvi`], [`process`] (bots that are programs)
//! - [`http`]: routes, access control, `/start`; [`server`]: what any HTTP server needs
//! - [`options`]: arguments and variables; [`modules`]: the rows of each module; [`config`],
//!   [`transport`], [`built_in_bot`], [`limits`], [`aliases`], [`features`]
//! - [`job`] and [`participant`]: what bots learn about a room
//! - [`calls`]: records of calls; `caller`: a caller for tests, in a build with the feature `call`
//! - [`bots`]: several bots in one runner, and which of them answers a call
//! - [`counts`], [`doctor`], [`metrics`], [`stall`]: observation of the runner
//! - [`reload`]: what a change of settings needs
//! - `settings`: the file of settings, in a build with the feature `config`
//! - `setup`: the setup page of a board and the settings page of a runner, in a build with that
//!   feature
//! - [`time`], [`uuid`], [`secret`], [`address_scope`], [`xml`]

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
pub mod answered_by;
pub mod assistant;
pub mod audio;
pub(crate) mod base64;
pub mod bot_message;
pub mod bots;
pub mod built_in_bot;
pub mod call_control;
#[cfg(feature = "call")]
pub mod caller;
pub mod calls;
pub mod config;
pub mod counts;
pub mod daily;
pub mod doctor;
pub mod event;
pub mod features;
pub mod hang_up;
pub mod http;
pub mod job;
pub mod kit;
pub mod limits;
pub mod livekit;
pub mod local;
pub mod local_addresses;
pub mod metrics;
pub mod modules;
pub mod moq;
pub mod options;
pub mod participant;
pub mod process;
pub mod read_backoff;
pub mod refusal;
pub mod reload;
pub mod rtvi;
pub mod secret;
pub mod server;
pub mod session;
#[cfg(feature = "config")]
pub mod settings;
#[cfg(feature = "setup")]
pub mod setup;
pub mod silent_bot;
pub mod sockets;
pub mod sorting;
pub mod stall;
pub mod telephony;
#[cfg(all(any(test, feature = "testing"), feature = "webrtc"))]
pub mod testing;
pub mod text;
pub mod time;
#[cfg(any(feature = "config", feature = "call"))]
mod toml_text;
pub mod transport;
#[cfg(feature = "update")]
pub mod update;
pub mod uuid;
pub mod webrtc;
pub mod whatsapp;
pub mod xml;

/// The name of a session: a UUID, or what a test calls it.
pub type SessionId = std::sync::Arc<str>;
