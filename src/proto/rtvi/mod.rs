//! RTVI: the JSON messages between a voice client and its bot, protocol 2.1.
//!
//! In: the text of one message of the client; [`parse`] returns a [`Message`], or a [`RtviError`]
//! with its reply. Out: [`ToClient`] becomes the text of one message. [`Handshake`] answers the
//! client's version. Absent optional fields are left out; application data passes unchanged, nulls
//! included. Text without the label `rtvi-ai` is not RTVI and gets no reply. Only errors are
//! answered here; order, time and speaking state are [`crate::rtvi`]'s. Source: `docs/spec/rtvi.md`
//! 1 to 5.

// Users of the crate `edge-runner` see these items.
#![deny(missing_docs)]

mod from_client;
mod timestamp;
mod to_client;
mod version;

pub use from_client::{
    ClientFile, ClientMessage, FileSource, FunctionResult, Message, RawAudio, Request, RtviError, TextOptions, parse,
};
pub use timestamp::timestamp;
pub use to_client::{
    About, AnswerStage, AnswerTime, BotOutput, Measure, Metrics, Progress, Segment, SpokenStatus, ToClient, Tokens,
    pieces,
};
pub use version::Handshake;

/// The `label` of every RTVI message.
pub const LABEL: &str = "rtvi-ai";

/// The supported protocol version.
pub const VERSION: &str = "2.1.0";
/// The major version of [`VERSION`].
const MAJOR: u32 = 2;

/// Truncates text of a peer before it is sent back or logged.
fn clip(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
