//! RTVI: the JSON messages between a voice client and its bot, protocol 2.1.
//!
//! In: the text of one message of the client; [`parse`] makes a [`Message`] of it, or a [`RtviError`] that knows the one
//! reply it deserves. Out: [`ToClient`] becomes the text of one message. [`Handshake`] says what to answer to the client's
//! version. Absent optional fields are left out; what belongs to the application passes untouched, nulls included.
//! Text without the label `rtvi-ai` belongs to somebody else and gets no answer. Only what is refused is answered here:
//! order, time and who is speaking are [`crate::rtvi`]'s.
//! Source: the RTVI standard 2.1.0 as `@pipecat-ai/client-js` 1.13 and `pipecat-ai` 1.7 speak it.

mod base64;
mod from_client;
mod timestamp;
mod to_client;
mod version;

pub use from_client::{
    ClientFile, ClientMessage, FileSource, FunctionResult, Message, RawAudio, Request, RtviError, TextOptions, parse,
};
pub use timestamp::timestamp;
pub use to_client::{About, BotOutput, Measure, Metrics, Progress, Segment, SpokenStatus, ToClient, Tokens, pieces};
pub use version::Handshake;

/// What every RTVI message carries as `label`.
pub const LABEL: &str = "rtvi-ai";

/// The version that this runner speaks.
pub const VERSION: &str = "2.1.0";
/// The first number of [`VERSION`].
const MAJOR: u32 = 2;

/// Cuts a peer's text before it is sent back or logged.
fn clip(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
