//! Connecting the call that a bot was started for: a number was dialled, its provider holds the caller, and the bot's room has
//! an address of SIP.
//!
//! In: the arguments of a bot that the dial-in webhook started, and that address. Out: the caller is in the room, or why not.
//! The `body` names the call; provider and key are those of the runner's configuration, since clients write bodies too.
//! The provider takes the call only once the room's address is registered: its library tells a bot so (*dial-in ready*), with
//! the address; for bots without that library the provider sends a webhook of that name.
//!
//! ```no_run
//! # async fn bot(args: edge_runner::RunnerArguments) -> Result<(), edge_runner::BotError> {
//! if let Some(call) = edge_runner::dialin::DialinCall::from_args(&args) {
//!     // After the library said that dial-in is ready:
//!     call.connect("sip:room@sip.example.net").await?;
//! }
//! # Ok(())
//! # }
//! ```

use std::fmt;

use crate::bot::{Kind, RunnerArguments};
use crate::io::rest;
use crate::proto::daily::dialin::{HeldCall, held_call};

/// A call that waits to be connected.
#[derive(Clone, Debug)]
pub struct DialinCall(HeldCall);

/// Why a call is not connected. It holds neither the caller's number nor the key.
#[derive(Debug)]
pub struct ConnectError(String);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConnectError {}

impl DialinCall {
    /// Finds the call in a session's arguments; `None` when no dialled number began the session.
    pub fn from_args(args: &RunnerArguments) -> Option<DialinCall> {
        match args.kind {
            Kind::Videoroom(_) => held_call(&args.body, &args.cli_args.videoroom).map(DialinCall),
            _ => None,
        }
    }

    /// Connects the caller to the room at `sip_uri`, within 10 s. The caller hears music until then. Called before the address
    /// is registered, it fails, and may be called again.
    ///
    /// # Errors
    /// [`ConnectError`], in the provider's words.
    pub async fn connect(&self, sip_uri: &str) -> Result<(), ConnectError> {
        let answer = rest::send(&self.0.connect_request(sip_uri)).await;
        let answer = answer.map_err(|error| ConnectError(format!("connecting the call to its room: {error}")))?;
        let connected = self.0.parse_connect_answer(answer.status, &answer.body);
        connected.map_err(|failure| ConnectError(failure.to_string()))
    }
}
