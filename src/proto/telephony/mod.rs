//! Telephone calls over a provider's media WebSocket: who is calling, what they say, and what they are told.
//!
//! In: text messages of a provider, each one JSON object with an `event`. Out: a [`Call`] once a handshake is recognised, then
//! what was [`Heard`], and the text of the messages that the provider wants: audio, clear, marks. One file per provider; they
//! do not know each other. Audio is bytes of a [`Codec`] here; `audio::g711` makes PCM of them.
//! Refuses: encodings that nobody here can decode. Numbers are read as strings and as numbers everywhere, unknown events and
//! keys are ignored. Source: the fact sheet on telephony.

mod a;
mod b;
mod c;
mod d;
pub mod hangup;
pub mod signature;
pub mod webhook;

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::config::Transport;

/// A telephony provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    A,
    B,
    C,
    D,
}

impl Provider {
    pub fn transport(self) -> Transport {
        match self {
            Provider::A => Transport::TelephonyA,
            Provider::B => Transport::TelephonyB,
            Provider::C => Transport::TelephonyC,
            Provider::D => Transport::TelephonyD,
        }
    }

    /// Returns the provider of a transport; `None` when it is not a telephony provider's.
    pub fn of(transport: Transport) -> Option<Provider> {
        match transport {
            Transport::TelephonyA => Some(Provider::A),
            Transport::TelephonyB => Some(Provider::B),
            Transport::TelephonyC => Some(Provider::C),
            Transport::TelephonyD => Some(Provider::D),
            _ => None,
        }
    }
}

/// How audio is written on the wire, mono.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// G.711 mu-law, one byte per sample.
    Ulaw,
    /// G.711 A-law, one byte per sample.
    Alaw,
    /// 16-bit signed little-endian.
    L16,
}

/// Codec and rate of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    pub codec: Codec,
    pub rate_hz: u32,
}

/// A call whose handshake was recognised.
#[derive(Debug)]
pub struct Call {
    pub provider: Provider,
    /// What the provider sends.
    pub rx: Format,
    /// What the provider is sent.
    pub tx: Format,
    pub stream_id: String,
    /// By this the provider knows the call; may be empty, and then nothing is hung up.
    pub call_id: String,
    /// The normalised data that the bot gets as `call_data`: an object.
    pub data: Value,
    pub malformed: u64,
}

/// What a message of a call means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// PCM was appended, at the rate of [`Call::rx`].
    Audio,
    /// A key of the telephone: one of `0`-`9`, `*`, `#`.
    Dtmf(char),
    /// A mark came back: what was sent before it was played, or cleared.
    Mark(String),
    /// The provider ends the stream.
    Stop,
    /// Nothing that concerns a bot.
    Nothing,
}

/// Why a handshake cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The stream's encoding cannot be decoded.
    Encoding(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Encoding(encoding) => write!(f, "audio encoding {encoding} is not supported"),
        }
    }
}

impl std::error::Error for Refusal {}

/// How audio is cut into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The length of a message's audio.
    pub length: Duration,
    /// The last message of an utterance is filled up with silence to a multiple of this.
    pub multiple: Duration,
}

#[derive(Debug)]
pub struct Malformed;
pub fn detect(_: &str) -> Result<Option<Call>, Refusal> {
    Ok(None)
}
impl Call {
    pub fn read(&mut self, _: &str, _: &mut Vec<i16>) -> Result<Heard, Malformed> {
        Err(Malformed)
    }
    pub fn chunk(&self) -> Chunk {
        unimplemented!()
    }
    pub fn media(&self, _: &[i16]) -> String {
        String::new()
    }
    pub fn clear(&self) -> String {
        String::new()
    }
    pub fn mark(&self, _: &str) -> String {
        String::new()
    }
}
