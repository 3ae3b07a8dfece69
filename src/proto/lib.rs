//! The pure cores. Bytes, values and `now: Instant` come in; values come out. No sockets, tasks, files or environment.
//!
//! The grammar of a core: `handle_*` takes an input, `poll_*` gives what follows from it, `poll_timeout` the next deadline.
//! One input, then a drain of the outputs.
//!
//! - Connections: [`opening`] (HTTP or TLS), [`request_framing`] (where a request ends), [`tls`] (the certificate of `--tls auto`)
//! - Requests: [`route`], [`host`], [`origin`], [`visit`], [`key`], [`access`] (who may ask), [`body`], [`form`], [`start`], [`offer`], [`table`]
//!   (sessions that `/start` made), [`token`], [`lines`] (what the log may say of them)
//! - WebRTC: [`sdp`], [`candidate`], [`ice`] (server lists), [`gather`] (what STUN servers see), [`relay`] (one allocation at
//!   a TURN server), [`packet_kind`], [`stun`] and [`routes`] (whose datagram), [`backoff`] (errors in a row), [`framing`] and
//!   [`connections`] (packets on a connection), [`crypto`], [`sctp`] (devices' data channels), [`connection`] (one peer connection),
//!   [`webrtc_session`] (one session), [`outbox`] (messages to the client)
//! - Sockets: [`socket`] (one session), [`frames`] (plain clients), [`telephony`] (calls, webhooks, hang-up), [`rest`] (requests
//!   to providers)
//! - Calls of the messaging app: [`messaging`] (webhooks, requests, one call)
//! - Rooms: [`videoroom`] (the provider's rooms, tokens, dial-in), [`mediaroom`] (access tokens, signalling, one life in a room)
//! - What is told of it: [`doctor`], [`metrics`], [`why`] (a connection did not come to be)
//! - Talk: [`audio`], [`rtvi`], [`process`] (what a bot that is a program is given)
//! - Sessions of every transport: [`session`] (what the loop in `io` runs), [`event`]
//! - Everywhere: [`time`] (dates as text), [`uuid`]
//! - Callers: [`source`] (whom an address stands for), [`forwarded`] (whom a trusted proxy speaks for), [`admission`] (who
//!   gets a place, and who loses one)
//! - The runner itself: [`stall`] (what stands still), [`few`] (short lists in order)

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "a test may take the clock once, as the origin of its time"
    )
)]

pub mod abilities;
pub mod access;
pub mod address_scope;
pub mod admission;
pub mod aliases;
#[cfg(test)]
#[path = "../../tests/support/allocations.rs"]
mod allocations;
pub mod audio;
#[cfg(feature = "webrtc")]
pub mod backoff;
pub mod body;
pub mod candidate;
pub mod config;
#[cfg(feature = "webrtc")]
pub mod connection;
#[cfg(feature = "webrtc")]
pub mod connections;
#[cfg(feature = "webrtc")]
pub mod crypto;
pub mod doctor;
pub mod event;
pub mod form;
pub mod forwarded;
pub mod frames;
pub mod framing;
pub mod gather;
pub mod host;
pub mod ice;
pub mod key;
pub mod limits;
pub mod lines;
pub mod mediaroom;
pub mod messaging;
pub mod metrics;
pub mod multipart;
pub mod offer;
pub mod opening;
pub mod options;
pub mod origin;
#[cfg(feature = "webrtc")]
pub mod outbox;
pub mod packet_kind;
pub mod process;
#[cfg(feature = "turn")]
pub mod relay;
pub mod request_framing;
pub mod rest;
pub mod route;
#[cfg(feature = "webrtc")]
pub mod routes;
pub mod rtvi;
#[cfg(feature = "webrtc")]
pub mod sctp;
#[cfg(feature = "webrtc")]
pub mod sdp;
pub mod secret;
pub mod session;
pub mod socket;
pub mod source;
pub mod stall;
pub mod start;
pub mod stun;
pub mod table;
pub mod telephony;
#[cfg(all(any(test, feature = "testing"), feature = "webrtc"))]
pub mod testing;
pub mod time;
#[cfg(feature = "tls")]
pub mod tls;
pub mod token;
pub mod uuid;
pub mod videoroom;
pub mod visit;
#[cfg(feature = "webrtc")]
pub mod webrtc_session;
pub mod whip;
#[cfg(feature = "webrtc")]
pub mod why;

/// The name of a session: a UUID, or what a test calls it.
pub type SessionId = std::sync::Arc<str>;
