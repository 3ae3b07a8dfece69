//! Connecting a dial-in call to a Daily room.
//!
//! Daily holds the caller until the bot's room has a SIP address; the bot's library reports that
//! address as *dial-in ready*. [`DialinCall::from_args`] finds the call in the arguments of a bot
//! that the dial-in webhook started, and [`DialinCall::connect`] connects it. The URL and the key
//! of the API are those of the runner's configuration, since any client may write a `body`. Source:
//! `docs/spec/daily.md` 6.
//!
//! ```no_run
//! # async fn bot(args: edge_runner::RunnerArguments) -> Result<(), edge_runner::BotError> {
//! if let Some(call) = edge_runner::dialin::DialinCall::from_args(&args) {
//!     // After *dial-in ready*:
//!     call.connect("sip:room@sip.example.net").await?;
//! }
//! # Ok(())
//! # }
//! ```

#![cfg(feature = "videoroom")]

use std::fmt;

use crate::bot::{Kind, RunnerArguments};
use crate::io::rest;
use crate::proto::daily::dialin::{HeldCall, held_call};

/// A call that waits to be connected.
#[derive(Clone, Debug)]
pub struct DialinCall(HeldCall);

/// The error of a call that was not connected. It contains neither the caller's number nor the key.
#[derive(Debug)]
pub struct ConnectError(String);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConnectError {}

impl DialinCall {
    /// Returns the call in a session's arguments, or `None` if the session was not started by one.
    pub fn from_args(args: &RunnerArguments) -> Option<DialinCall> {
        match args.kind {
            Kind::Videoroom(_) => held_call(&args.body, &args.cli_args.videoroom).map(DialinCall),
            _ => None,
        }
    }

    /// Connects the caller to the room at `sip_uri`, within 10 s. The caller hears music until
    /// then. It fails while the address is not registered, and may be called again.
    ///
    /// # Errors
    /// [`ConnectError`] with the provider's reason.
    pub async fn connect(&self, sip_uri: &str) -> Result<(), ConnectError> {
        let answer = rest::send(&self.0.connect_request(sip_uri)).await;
        let answer = answer.map_err(|error| ConnectError(format!("connecting the call to its room: {error}")))?;
        let connected = self.0.parse_connect_answer(answer.status, &answer.body);
        connected.map_err(|failure| ConnectError(failure.to_string()))
    }
}
