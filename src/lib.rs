//! The runner that puts a voice bot on a small computer.
//!
//! One HTTP server spawns a bot for every session and connects it to whoever talks: a browser or a microcontroller over
//! WebRTC, a plain client or a telephone over a WebSocket. A developer writes `async fn bot(RunnerArguments) -> Result<(), BotError>` and hands it to [`main`].
//!
//! # The house
//!
//! - [`bot`]: the entry contract, arguments and the media handle; [`rtvi`]: the conversation protocol of the clients, in one
//!   line; [`dialin`]: what connects a dialled call; [`bots`]: the two built-in bots.
//! - [`abilities`]: what this build can do.
//! - `cli`: arguments and environment become a [`config::Config`]; `logging`: one line per record, with the session at its
//!   head; [`limits`]: every cap and time limit.
//! - `proto`: pure cores. Bytes, values and `now` come in, values come out: routes, bodies, SDP, one peer connection, one
//!   life over WebRTC or on a socket, the messages of telephony providers, audio.
//! - `io`: sockets, tasks, the clock. It stamps the time, moves bytes, and does what `proto` answers.
//! - `page`: the built-in page, embedded.
//!
//! # Features
//!
//! One cargo feature is one ability, and the default is all of them; [`abilities`] has the table. Callers: `webrtc`, `turn`
//! (the runner's own side), `telephony`, `websocket`, `mediaroom`, `videoroom`, `messaging`. The server: `tls`, `page`, `metrics`, `systemd`,
//! `doctor`. Bots: `process`, `bots`; a bot of your own needs neither. `cloud` is another program in the same binary: the cloud
//! agent service. `full`, `runner`, `browser`, `telephone` and `smallest` are selections of them. A module that is not built has a twin, `absent.rs` in its folder, so `cfg` stands on `mod` lines alone, and what
//! a build lacks is refused by the name of its feature.
//!
//! # Three laws
//!
//! 1. `proto` is pure: no sockets, tasks, files, environment; time and randomness enter as values.
//! 2. `io` decides nothing about a protocol.
//! 3. Everything has a cap, and every cap has a name in [`limits`].

// What only absent abilities use falls out when the binary is linked.
#![cfg_attr(not(feature = "full"), allow(dead_code))]
// A test may take the clock once, as the origin of its own time.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

#[cfg(test)]
#[path = "../tests/support/allocations.rs"]
mod allocations;
pub mod bot;
#[doc(hidden)]
pub mod bots;
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "videoroom")]
pub mod dialin;
#[doc(hidden)]
pub mod io;
#[cfg(feature = "page")]
mod page;
pub mod rtvi;
pub mod runner;
pub mod testing;

#[doc(hidden)]
pub use edge_runner_http::logging;
#[doc(inline)]
pub use edge_runner_proto::config;
#[doc(hidden)]
pub use edge_runner_proto::{self as proto, abilities, aliases, limits};

pub use bot::{Audio, BotError, Event, Media, RunnerArguments};
pub use cli::start::main;
#[doc(inline)]
pub use config::Config;
#[doc(inline)]
pub use runner::Runner;

pub mod http {
    //! What a route of one's own takes and gives. See [`RunnerBuilder::route`](crate::runner::RunnerBuilder::route).

    pub use bytes::Bytes;
    pub use hyper::{HeaderMap, Method, StatusCode, Uri, header};

    /// A request, with its whole body.
    pub type Request = hyper::Request<Bytes>;
    /// An answer, whose body is whole.
    pub type Response = hyper::Response<Bytes>;
}
