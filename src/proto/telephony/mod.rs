//! Telephone calls over a provider's media WebSocket: who is calling, what they say, and what they are told.
//!
//! In: text messages of a provider, each one JSON object with an `event`. Out: a [`Call`] once a handshake is recognised, then
//! what was [`Heard`] and PCM, and the text of the messages that the provider wants: audio, clear, marks. One file per
//! provider; they do not know each other. On the wire audio is base64 of a [`Codec`], mono; here it is `i16` mono PCM.
//! Refuses: encodings that nobody here can decode; text that is no JSON object. Numbers are read as strings and as numbers
//! everywhere, unknown events and keys are ignored. Source: the fact sheet on telephony, sections 1 to 6.

mod a;
mod b;
mod c;
mod d;
pub mod hangup;
mod message;
pub mod signature;
pub mod webhook;

use std::fmt;
use std::time::Duration;

use data_encoding::{BASE64, BASE64_NOPAD};
use log::debug;
use serde_json::Value;

use crate::config::Transport;
use crate::limits::{MARK_BYTES_MAX, TELEPHONY_PAYLOAD_BYTES_MAX, TELEPHONY_WORD_CHARS_MAX};
use crate::proto::audio::g711;
use message::{Media, Message};

/// Looks at one message: is it the handshake of a call? `None` for everything else, text that is no JSON included.
///
/// Nothing is remembered: the caller decides how many messages a socket may send before its handshake.
///
/// # Errors
/// [`Refusal`] when it is a handshake, of a stream that cannot be served.
pub fn detect(text: &str) -> Result<Option<Call>, Refusal> {
    let Some(opening) = message::opening(text) else {
        return Ok(None);
    };
    // What comes before a handshake names no provider, whatever else it holds: a and b greet alike.
    if opening.get("event").is_some_and(|event| event == "connected") {
        return Ok(None);
    }
    // The order is the reference's. It matters to nobody but a carrier that fills in the members of two providers.
    for claim in [a::claim, b::claim, c::claim, d::claim] {
        if let Some(call) = claim(&opening)? {
            return Ok(Some(call));
        }
    }
    Ok(None)
}

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

    /// Returns the events that bring a mark back.
    fn played(self) -> &'static [&'static str] {
        match self {
            Provider::A => a::PLAYED,
            Provider::B => b::PLAYED,
            Provider::C => c::PLAYED,
            Provider::D => d::PLAYED,
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

impl Codec {
    /// Returns how many bytes a sample takes.
    fn width(self) -> usize {
        match self {
            Codec::Ulaw | Codec::Alaw => 1,
            Codec::L16 => 2,
        }
    }

    /// Appends the samples of `bytes`; half a sample at the end is no sample.
    fn decode(self, bytes: &[u8], pcm: &mut Vec<i16>) {
        match self {
            Codec::Ulaw => g711::ulaw_decode_into(bytes, pcm),
            Codec::Alaw => g711::alaw_decode_into(bytes, pcm),
            Codec::L16 => {
                let (samples, _) = bytes.as_chunks::<2>();
                pcm.extend(samples.iter().map(|sample| i16::from_le_bytes(*sample)));
            }
        }
    }

    /// Writes the bytes of `pcm` to the front of `block`, and returns how many they are.
    fn encode(self, pcm: &[i16], block: &mut [u8]) -> usize {
        match self {
            Codec::Ulaw => block
                .iter_mut()
                .zip(pcm)
                .for_each(|(byte, sample)| *byte = g711::ulaw_encode(*sample)),
            Codec::Alaw => block
                .iter_mut()
                .zip(pcm)
                .for_each(|(byte, sample)| *byte = g711::alaw_encode(*sample)),
            Codec::L16 => {
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
pub struct Format {
    pub codec: Codec,
    pub rate_hz: u32,
}

impl Format {
    /// The format of the telephone network, which three of the four are sent.
    const ULAW_8000: Format = Format {
        codec: Codec::Ulaw,
        rate_hz: 8_000,
    };
}

/// A call whose handshake was recognised.
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
    /// Messages, or parts of them, that made no sense; audio that is not the caller's is one of them.
    pub malformed: u64,
    state: State,
}

/// What a call remembers between messages.
struct State {
    /// A message with audio, up to the audio: made once, since fifty a second begin with it.
    media_head: String,
    /// Provider b alone needs it.
    order: b::Order,
    /// Audio of one message on its way from base64 to PCM; its memory is used again.
    decoded: Vec<u8>,
    complaints: u64,
}

impl State {
    fn new(media_head: String) -> Self {
        State {
            media_head,
            order: b::Order::default(),
            decoded: Vec::new(),
            complaints: 0,
        }
    }
}

/// What a message ends with that begins with [`State::media_head`].
const MEDIA_TAIL: &str = r#""}}"#;
/// Samples that are encoded in one go: whole groups of base64 at one byte a sample and at two, so no padding comes between.
const BLOCK_SAMPLES: usize = 240;

impl Call {
    /// Reads a message of the provider. What it says of the caller's voice is appended to `pcm`, at the rate of [`Call::rx`].
    ///
    /// Provider b promises no order: frames that come early are held back, a few at most, and appended with a later message,
    /// be it [`Heard::Stop`]. What makes no sense is skipped and counted.
    ///
    /// # Errors
    /// [`Malformed`] when the text is no JSON object: this is not a provider, and the socket is best closed.
    pub fn read(&mut self, text: &str, pcm: &mut Vec<i16>) -> Result<Heard, Malformed> {
        let Some(message) = Message::parse(text)? else {
            return Ok(self.skip(Flaw::Members));
        };
        let Some(event) = message.event.as_str() else {
            return Ok(self.skip(Flaw::Event));
        };
        let heard = match event {
            "media" => self.hear(&message.media.0, pcm),
            "dtmf" => match message.dtmf.0.digit.as_str().map(str::as_bytes) {
                Some([key @ (b'0'..=b'9' | b'*' | b'#')]) => Heard::Dtmf(char::from(*key)),
                Some(_) => Heard::Nothing,
                None => self.skip(Flaw::Digit),
            },
            "stop" => {
                self.state.order.release_all(pcm);
                Heard::Stop
            }
            "error" if self.provider == Provider::B => {
                self.state.complaints += 1;
                if self.state.complaints.is_power_of_two() {
                    b::complain(&self.stream_id, &message.payload.0, text);
                }
                Heard::Nothing
            }
            event if self.provider.played().contains(&event) => {
                match message.mark.0.name.as_str().or(message.name.as_str()) {
                    Some(name) if name.len() <= MARK_BYTES_MAX => Heard::Mark(name.to_string()),
                    _ => self.skip(Flaw::Name),
                }
            }
            _ => Heard::Nothing,
        };
        Ok(heard)
    }

    /// Says how the bot's voice is cut into messages.
    pub fn chunk(&self) -> Chunk {
        match self.provider {
            Provider::A | Provider::B | Provider::C => Chunk::PLAIN,
            Provider::D => d::chunk(self.tx),
        }
    }

    /// Returns the message that says `pcm`, which is at the rate of [`Call::tx`].
    pub fn media(&self, pcm: &[i16]) -> String {
        let (head, codec) = (&self.state.media_head, self.tx.codec);
        let base64_bytes = BASE64.encode_len(pcm.len() * codec.width());
        let mut text = String::with_capacity(head.len() + base64_bytes + MEDIA_TAIL.len());
        text.push_str(head);
        let mut block = [0; 2 * BLOCK_SAMPLES];
        for samples in pcm.chunks(BLOCK_SAMPLES) {
            let used = codec.encode(samples, &mut block);
            BASE64.encode_append(&block[..used], &mut text);
        }
        text.push_str(MEDIA_TAIL);
        text
    }

    /// Returns the message that drops what was sent and is not played yet.
    pub fn clear(&self) -> String {
        let stream_id = message::quoted(&self.stream_id);
        match self.provider {
            Provider::A => a::clear(&stream_id),
            Provider::B => b::clear(),
            Provider::C => c::clear(&stream_id),
            Provider::D => d::clear(&stream_id),
        }
    }

    /// Returns the message that comes back as [`Heard::Mark`] once all that was sent before it is played, or cleared.
    pub fn mark(&self, name: &str) -> String {
        let (stream_id, name) = (message::quoted(&self.stream_id), message::quoted(name));
        match self.provider {
            Provider::A => a::mark(&stream_id, &name),
            Provider::B => b::mark(&name),
            Provider::C => c::mark(&stream_id, &name),
            Provider::D => d::mark(&stream_id, &name),
        }
    }

    fn hear(&mut self, media: &Media, pcm: &mut Vec<i16>) -> Heard {
        if media.track.as_str().is_some_and(|track| track.starts_with("outbound")) {
            return self.skip(Flaw::Track);
        }
        let before = pcm.len();
        if let Err(flaw) = self.decode(media.payload.as_str(), pcm) {
            self.skip(flaw);
        }
        // A frame that could not be read takes its place all the same: nobody has to wait for it.
        if let (Provider::B, Some(chunk)) = (self.provider, media.chunk.whole()) {
            self.state.order.place(chunk, before, pcm);
        }
        if pcm.len() > before {
            Heard::Audio
        } else {
            Heard::Nothing
        }
    }

    /// Appends the samples of a payload; those before a flaw are good.
    fn decode(&mut self, payload: Option<&str>, pcm: &mut Vec<i16>) -> Result<(), Flaw> {
        let payload = payload.ok_or(Flaw::Payload)?;
        if payload.len() > TELEPHONY_PAYLOAD_BYTES_MAX {
            return Err(Flaw::Payload);
        }
        let digits = payload.trim_end_matches('=').as_bytes();
        if payload.len() - digits.len() > 2 {
            return Err(Flaw::Payload);
        }
        let decoded = &mut self.state.decoded;
        let length = BASE64_NOPAD.decode_len(digits.len()).map_err(|_| Flaw::Payload)?;
        decoded.resize(length, 0);
        BASE64_NOPAD.decode_mut(digits, decoded).map_err(|_| Flaw::Payload)?;
        let codec = self.rx.codec;
        codec.decode(decoded, pcm);
        if length.is_multiple_of(codec.width()) {
            Ok(())
        } else {
            Err(Flaw::Length)
        }
    }

    /// Counts what makes no sense. The log hears of it ever more rarely: a peer can send any number.
    fn skip(&mut self, flaw: Flaw) -> Heard {
        self.malformed += 1;
        if self.malformed.is_power_of_two() {
            debug!(
                "skipped in messages of the provider so far: {}, the last for its {flaw:?}",
                self.malformed
            );
        }
        Heard::Nothing
    }
}

impl fmt::Debug for Call {
    /// Leaves out who is calling whom: a call may be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("provider", &self.provider)
            .field("rx", &self.rx)
            .field("tx", &self.tx)
            .field("stream_id", &self.stream_id)
            .field("call_id", &self.call_id)
            .finish_non_exhaustive()
    }
}

/// What a message, or a part of it, is skipped for.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    /// Members that stand twice, or numbers that no number type holds.
    Members,
    Event,
    Track,
    Payload,
    /// A payload that ends within a sample.
    Length,
    Digit,
    Name,
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

impl Refusal {
    /// Names what was asked for in few enough words for the reason of a close.
    fn encoding(encoding: &str, rate_hz: u64) -> Refusal {
        let plain = |letter: char| if letter.is_ascii_graphic() { letter } else { '?' };
        let encoding: String = encoding.chars().take(TELEPHONY_WORD_CHARS_MAX).map(plain).collect();
        Refusal::Encoding(format!("{encoding} at {rate_hz} Hz"))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Encoding(encoding) => write!(f, "audio encoding {encoding} is not supported"),
        }
    }
}

impl std::error::Error for Refusal {}

/// The text is no JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message of the provider is no JSON object")
    }
}

impl std::error::Error for Malformed {}

/// How audio is cut into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The length of a message's audio.
    pub length: Duration,
    /// The last message of an utterance is filled up with silence to a multiple of this.
    pub multiple: Duration,
}

impl Chunk {
    /// One packet of the telephone network, which is also the least that provider b takes.
    const PLAIN: Chunk = Chunk {
        length: Duration::from_millis(20),
        multiple: Duration::from_millis(20),
    };
}
