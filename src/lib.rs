//! A runner for voice bots, small enough for a single-board computer.
//!
//! You write an async function: it hears a caller as PCM and answers with PCM. The runner brings
//! the callers, over WebRTC (browsers and microcontrollers), QUIC, WebSockets, telephone calls
//! (Twilio, Telnyx, Plivo, Exotel), LiveKit rooms and WhatsApp calls, and starts one bot for each.
//! A bot in another language is a program after `--`, without this crate.
//!
//! # Getting started
//!
//! ```toml
//! [dependencies]
//! # A checkout of the repository beside your crate. The default features are those of the program.
//! edge-runner = { path = "../edge-runner", default-features = false, features = ["bot"] }
//! ```
//!
//! A whole bot, which greets on the page and plays back what it hears:
//!
//! ```no_run
//! use edge_runner::rtvi::{Rtvi, RtviEvent};
//! use edge_runner::{Audio, BotError, RunnerArguments};
//!
//! async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
//!     let mut rtvi = Rtvi::open(&mut args, Audio::at(16_000))?;
//!     while let Some(event) = rtvi.recv().await {
//!         match event {
//!             RtviEvent::Ready => rtvi.show("Hello! I play back what you say."),
//!             RtviEvent::Audio(frame) => rtvi.send_audio(&frame).await?,
//!             _ => {}
//!         }
//!     }
//!     Ok(())
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     edge_runner::main(bot)
//! }
//! ```
//!
//! `cargo run` serves it at <http://localhost:7860>, with a page that talks to it; `cargo run --
//! --help` lists the options. `examples/` has a keypad menu, a voicemail that writes WAV files, and
//! a bot for a room with several people.
//!
//! # Writing a bot
//!
//! - [`RunnerArguments`] says who calls and how; [`bot::Kind`] holds what one transport has.
//! - [`rtvi::Rtvi`] speaks RTVI, the protocol of Pipecat's clients and of the page. Most bots use
//!   it.
//! - [`Media`] is the layer below: [`Event`]s in, PCM, texts, marks and interruptions out.
//! - [`kit`] has building blocks: turns of the caller, sentences, collected keys, tones, WAV files.
//! - A bot runs until it returns. It should return when its session is over.
//!
//! # Testing a bot
//!
//! [`testing::Caller`] plays a browser, a device, a telephone or a participant of a room, without a
//! network:
//!
//! ```
//! # use edge_runner::{Audio, BotError, RunnerArguments};
//! use edge_runner::testing::Caller;
//!
//! # async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
//! #     let mut media = args.media(Audio::at(16_000))?;
//! #     while let Some(event) = media.recv().await {
//! #         if let edge_runner::Event::Audio(frame) = event { media.send_audio(&frame).await? }
//! #     }
//! #     Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let mut call = Caller::browser().call(bot);
//! call.join();
//! call.speak(&[1_000; 3_200], 16_000).await;
//! let (heard, _) = call.hear(std::time::Duration::from_millis(200)).await;
//! assert_eq!(heard, [1_000; 3_200]);
//! call.leave();
//! call.ended().await.expect("the bot ends without an error");
//! # });
//! ```
//!
//! # Embedding
//!
//! [`main`] makes a whole program of a bot: options, environment, log and signals. A [`Runner`]
//! serves inside a program of your own, with values for its options and with routes of yours beside
//! its own. [`runner`] has an example.
//!
//! # Features
//!
//! All features are on by default, for the program. A bot turns them off and names what it needs:
//! `default-features = false, features = ["bot"]` is `webrtc`, `websocket` and `page`. An option of
//! an absent feature is refused with the name of that feature.
//!
//! | feature | adds |
//! |---|---|
//! | `webrtc` | browsers and microcontrollers over WebRTC, WHIP and WHEP |
//! | `turn` | the runner's own use of STUN and TURN servers |
//! | `telephony` | calls of Twilio, Telnyx, Plivo and Exotel |
//! | `websocket` | plain clients on a WebSocket |
//! | `mediaroom`, `livekit` | LiveKit rooms |
//! | `videoroom`, `daily` | Daily rooms |
//! | `messaging`, `whatsapp` | WhatsApp calls |
//! | `moq` | Media over QUIC, served or through a relay |
//! | `assistants` | the built-in bots `realtime` and `cascade`, by services of others |
//! | `tls` | HTTPS on the HTTP port |
//! | `acme` | HTTPS certificates for public names, by ACME |
//! | `page` | the page at `/client/` |
//! | `calls` | records of calls: who called, what was said, why it ended |
//! | `doctor` | `edge-runner doctor`, a check of network and credentials |
//! | `local` | the sound card of the machine as a caller |
//! | `aec` | cancels its echo, on processors of 64 bits |
//! | `call` | `edge-runner call`, a caller for tests on the command line |
//! | `update` | `edge-runner update`, which replaces the program by that of a release |
//! | `setup` | `edge-runner setup`, the page that sets a board up |
//! | `cloud` | `edge-runner cloud`, a service that builds and stores agents |
//! | `vad` | [`kit`]'s `NeuralVad`, a detector of speech in noise, for `cascade` too |
//!
//! `full`, `runner`, `browser`, `telephone`, `smallest` and `bot` are selections of them. `docs/`
//! in the repository has the pages for operators, and `docs/architecture.md` the map for
//! contributors.

#![deny(missing_docs)]
// Items that only an absent feature uses are removed when the binary is linked.
// One file takes the place of every module that is absent.
#![cfg_attr(not(feature = "full"), allow(dead_code, unused_imports, clippy::duplicate_mod))]
// A test may read the clock once, as the origin of its own time.
#![cfg_attr(test, allow(clippy::disallowed_methods))]
#[cfg(test)]
#[path = "../tests/support/allocations.rs"]
mod allocations;
pub mod bot;
mod bots;
mod cli;
pub mod dialin;
mod io;
pub mod kit;
#[cfg(feature = "page")]
mod page;
pub mod rtvi;
pub mod runner;
#[cfg(test)]
#[allow(dead_code, reason = "each crate uses a part of it")]
#[path = "../tests/support/skip.rs"]
mod skip;
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
    //! The types of requests and responses of your own routes. See
    //! [`RunnerBuilder::route`](crate::runner::RunnerBuilder::route).

    pub use bytes::Bytes;
    pub use hyper::{HeaderMap, Method, StatusCode, Uri, header};

    /// A request with its whole body.
    pub type Request = hyper::Request<Bytes>;
    /// A response with its whole body.
    pub type Response = hyper::Response<Bytes>;
}

#[doc(hidden)]
pub mod inside {
    //! Internals for this repository's binary and tests. Not part of the public API.

    pub use crate::cli::start::built_in;
    pub use crate::cli::{CliCommand, Env, UsageError, parse};
    pub use crate::io::websocket::config as socket_config;
    pub use crate::io::{run, run_with};
}
