//! The runner that puts a voice bot on a small computer.
//!
//! One HTTP server spawns a bot for every session and connects it to whoever talks: a browser or a
//! microcontroller over WebRTC, a plain client or a telephone over a WebSocket. A developer writes
//! `async fn bot(RunnerArguments) -> Result<(), BotError>` and hands it to [`main`], which makes a
//! process of it, or to a [`Runner`] inside another program. [`testing`] plays the callers of its
//! tests.
//!
//! # Crates
//!
//! - This crate: [`bot`], the entry contract, arguments and the media handle; [`rtvi`], the
//!   conversation protocol of the clients, in one line; [`dialin`], what connects a dialled call;
//!   [`runner`], embedding; [`testing`], callers for tests; two built-in bots. Inside, `cli` makes
//!   a [`config::Config`] of arguments and environment, and `io` drives: it stamps the time, moves
//!   bytes, and does what the cores answer. `io::session` is the one loop that every session runs
//!   in.
//! - `edge-runner-proto`: the pure cores. Bytes, values and `now` come in, values come out.
//! - `edge-runner-http`: listening, connections, TLS, bodies, requests to others; what both servers
//!   stand on.
//! - `edge-runner-cloud`: the cloud agent service and its client, with cores, drivers and options
//!   of its own.
//!
//! Uses run one way: `cli`, then `io`, then [`bot`], then the cores.
//!
//! # Features
//!
//! One cargo feature is one ability, and the default is all of them; `proto::features` has the
//! table. Callers: `webrtc`, `turn` (the runner's own side), `telephony`, `websocket`, `mediaroom`,
//! `videoroom`, `messaging`. The server: `tls`, `page`, `doctor`. `cloud` is another program in the
//! same binary: the cloud agent service. `full`, `runner`, `browser`, `telephone` and `smallest`
//! are selections of them. The built-in bots, programs as bots, `/metrics` and systemd are in every
//! build. A module that is not built has a twin, `absent.rs` in its folder, so `cfg` stands on
//! `mod` lines alone, and what a build lacks is refused by the name of its feature.
//!
//! # Three laws
//!
//! 1. `proto` is pure: no sockets, tasks, files, environment; time and randomness enter as values.
//! 2. `io` decides nothing about a protocol.
//! 3. Everything has a cap, and every cap has a name, those of an operator in `proto::limits`.

// What only absent abilities use falls out when the binary is linked.
#![cfg_attr(not(feature = "full"), allow(dead_code, unused_imports))]
// A test may take the clock once, as the origin of its own time.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

#[cfg(test)]
#[path = "../tests/support/allocations.rs"]
mod allocations;
pub mod bot;
mod bots;
mod cli;
#[cfg(feature = "videoroom")]
pub mod dialin;
mod io;
#[cfg(feature = "page")]
mod page;
pub mod rtvi;
pub mod runner;
pub mod testing;

#[doc(inline)]
pub use edge_runner_proto::config;

use edge_runner_http::logging;
use edge_runner_proto::{self as proto, aliases, features, limits};

pub use bot::{Audio, BotError, Event, Media, RunnerArguments};
pub use cli::start::main;
#[doc(inline)]
pub use config::Config;
#[doc(inline)]
pub use runner::Runner;

pub mod http {
    //! What a route of one's own takes and gives. See
    //! [`RunnerBuilder::route`](crate::runner::RunnerBuilder::route).

    pub use bytes::Bytes;
    pub use hyper::{HeaderMap, Method, StatusCode, Uri, header};

    /// A request, with its whole body.
    pub type Request = hyper::Request<Bytes>;
    /// An answer, whose body is whole.
    pub type Response = hyper::Response<Bytes>;
}

#[doc(hidden)]
pub mod inside {
    //! What this repository's own binary and tests reach inside for; it may change with every
    //! commit.

    pub use crate::cli::start::built_in;
    pub use crate::cli::{CliCommand, Env, UsageError, parse};
    #[cfg(any(feature = "telephony", feature = "websocket"))]
    pub use crate::io::socket::config as socket_config;
    pub use crate::io::{run, run_with};
}
