//! Telephone calls on a provider's media WebSocket.
//!
//! In: text messages of a provider, each one JSON object with an `event`. Out: a [`TelephonyCall`]
//! once a handshake is recognised, then [`ProviderInput`] and PCM, and the provider's messages for
//! audio, clear and marks. A provider is one file with one static [`Provider`] and one line in
//! [`PROVIDERS`]; providers do not know each other. Audio is base64 of a [`TelephonyCodec`] on the
//! wire and `i16` mono PCM here. Rejected: encodings that cannot be decoded, and text that is not a
//! JSON object. Numbers are read as strings and as numbers; unknown events and members are ignored.
//! Source: `docs/spec/telephony.md` 2.

mod byte_order;
mod call;
#[cfg(feature = "call")]
pub mod call_options;
pub mod control;
pub mod dial;
pub mod doctor;
mod exotel;
pub mod hangup;
#[cfg(any(test, feature = "testing"))]
pub mod invented;
mod message;
mod number_webhook;
pub mod options;
mod outgoing;
mod plivo;
pub mod proof;
pub mod provider;
mod reorder;
pub mod set_up;
pub mod settings;
pub mod signature;
mod telnyx;
mod twilio;
pub mod variables;
pub mod verify;
pub mod webhook;

use std::fmt;
use std::time::Duration;

use crate::audio::g711::Law;
use crate::limits::TELEPHONY_WORD_CHARS_MAX;
pub use call::{StreamStart, TelephonyCall};
pub use provider::Provider;

/// The providers, in the order of their wire names.
pub const PROVIDERS: [&Provider; 4] = [&twilio::TWILIO, &telnyx::TELNYX, &plivo::PLIVO, &exotel::EXOTEL];

/// Returns the call of a message if it is a handshake of one of these providers; `None` for
/// everything else, including text that is not JSON.
///
/// No state is kept: the caller limits the messages before a handshake.
///
/// # Errors
/// Returns a [`StreamError`] for a handshake of a stream that is not supported.
pub fn detect(providers: &[&'static Provider], text: &str) -> Result<Option<TelephonyCall>, StreamError> {
    let Some(opening) = message::parse_object(text) else {
        return Ok(None);
    };
    // Messages before a handshake do not identify a provider: those of several start alike.
    if opening.get("event").is_some_and(|event| event == "connected") {
        return Ok(None);
    }
    // The order matters only for a handshake with the members of two providers.
    for provider in providers {
        if let Some(call) = provider.protocol.claim(&opening)? {
            return Ok(Some(call));
        }
    }
    Ok(None)
}

/// The encoding of audio on the wire, mono.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TelephonyCodec {
    /// G.711 mu-law, one byte per sample.
    Ulaw,
    /// G.711 A-law, one byte per sample.
    Alaw,
    /// 16-bit signed little-endian.
    L16,
}

impl TelephonyCodec {
    /// Returns the bytes of a sample.
    fn width(self) -> usize {
        match self {
            TelephonyCodec::Ulaw | TelephonyCodec::Alaw => 1,
            TelephonyCodec::L16 => 2,
        }
    }

    /// Returns the law, if the codec is G.711.
    fn law(self) -> Option<Law> {
        match self {
            TelephonyCodec::Ulaw => Some(Law::Mu),
            TelephonyCodec::Alaw => Some(Law::A),
            TelephonyCodec::L16 => None,
        }
    }

    /// Appends the samples of `bytes`; half a sample at the end is ignored.
    fn decode(self, bytes: &[u8], pcm: &mut Vec<i16>) {
        match self {
            TelephonyCodec::Ulaw => Law::Mu.decode(bytes, pcm),
            TelephonyCodec::Alaw => Law::A.decode(bytes, pcm),
            TelephonyCodec::L16 => {
                let (samples, _) = bytes.as_chunks::<2>();
                pcm.extend(samples.iter().map(|sample| i16::from_le_bytes(*sample)));
            }
        }
    }

    /// Encodes `pcm` into the front of `block`, and returns the number of bytes.
    fn encode(self, pcm: &[i16], block: &mut [u8]) -> usize {
        match self {
            TelephonyCodec::Ulaw => Law::Mu.encode(pcm, block),
            TelephonyCodec::Alaw => Law::A.encode(pcm, block),
            TelephonyCodec::L16 => {
                let (pairs, _) = block.as_chunks_mut::<2>();
                pairs
                    .iter_mut()
                    .zip(pcm)
                    .for_each(|(pair, sample)| *pair = sample.to_le_bytes());
            }
        }
        pcm.len() * self.width()
    }
}

/// Codec and rate of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaFormat {
    pub codec: TelephonyCodec,
    pub rate_hz: u32,
}

impl MediaFormat {
    /// The format of the telephone network, in which most providers receive audio.
    const ULAW_8000: MediaFormat = MediaFormat {
        codec: TelephonyCodec::Ulaw,
        rate_hz: 8_000,
    };
}

/// The meaning of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderInput {
    /// PCM was appended, at the rate of [`TelephonyCall::rx`].
    Audio,
    /// A DTMF key: one of `0`-`9`, `*`, `#`.
    Dtmf(char),
    /// A mark returned: everything before it was played, or cleared.
    Mark(String),
    /// The provider ends the stream.
    Stop,
    /// A message without meaning for the bot.
    Nothing,
}

/// A handshake that is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The encoding of the stream is not supported.
    Encoding(String),
}

impl StreamError {
    /// Returns an error with a text short enough for the reason of a close frame.
    fn encoding(encoding: &str, rate_hz: u64) -> StreamError {
        let plain = |letter: char| if letter.is_ascii_graphic() { letter } else { '?' };
        let encoding: String = encoding.chars().take(TELEPHONY_WORD_CHARS_MAX).map(plain).collect();
        StreamError::Encoding(format!("{encoding} at {rate_hz} Hz"))
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Encoding(encoding) => write!(f, "audio encoding {encoding} is not supported"),
        }
    }
}

impl std::error::Error for StreamError {}

/// The text is not a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message of the provider is no JSON object")
    }
}

impl std::error::Error for Malformed {}

/// The sizes into which outbound audio is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// The duration of the audio of one message.
    pub length: Duration,
    /// The last message of an utterance is padded with silence to a multiple of this.
    pub multiple: Duration,
}

impl ChunkLimits {
    /// One packet of the telephone network.
    const PLAIN: ChunkLimits = ChunkLimits {
        length: Duration::from_millis(20),
        multiple: Duration::from_millis(20),
    };
}

/// The providers by name, for tests.
#[cfg(test)]
pub(crate) mod named {
    use super::Provider;

    pub const TWILIO: &Provider = &super::twilio::TWILIO;
    pub const TELNYX: &Provider = &super::telnyx::TELNYX;
    pub const PLIVO: &Provider = &super::plivo::PLIVO;
    pub const EXOTEL: &Provider = &super::exotel::EXOTEL;
}

/// Accounts at every provider with an API, for tests.
#[cfg(test)]
pub(crate) fn accounts() -> settings::Settings {
    settings::Settings::from([
        ("TELCO_A_ACCOUNT_SID", "AC01"),
        ("TELCO_A_AUTH_TOKEN", "a-token"),
        ("TELCO_B_API_KEY", "b-key"),
        ("TELCO_C_AUTH_ID", "MA01"),
        ("TELCO_C_AUTH_TOKEN", "c-token"),
    ])
}

#[cfg(test)]
mod tests;
