//! One call: parses messages of the provider, and encodes messages to it.
//!
//! In: messages as text; PCM (`i16` mono at the rate of [`TelephonyCall::tx`]) and names of marks.
//! Out: [`ProviderInput`], PCM at the rate of [`TelephonyCall::rx`], and messages as text, each in
//! one allocation. Differences between providers are in their files. Text that is not a JSON object
//! is rejected and counted. Audio that is not base64, is too long, or belongs to another track is
//! skipped and counted.

use std::fmt;

use data_encoding::BASE64;
use log::{debug, warn};
use serde_json::Value;

use super::byte_order::ByteOrder;
use super::message::{self, MediaMessage, ProviderMessage};
use super::provider::{Provider, Report};
use super::reorder::ReorderBuffer;
use super::{ChunkLimits, Malformed, MediaFormat, ProviderInput, TelephonyCodec};
use crate::audio::g711::LineLaws;
use crate::base64;
use crate::limits::{MARK_BYTES_MAX, TELEPHONY_PAYLOAD_BYTES_MAX};

/// A call with a recognised handshake.
pub struct TelephonyCall {
    pub provider: &'static Provider,
    /// The format of inbound audio.
    pub rx: MediaFormat,
    /// The format of outbound audio.
    pub tx: MediaFormat,
    pub stream_id: String,
    /// The id of the call at the provider; if empty, the call is not hung up.
    pub call_id: String,
    /// The normalised data for the bot's `call_data`: an object.
    pub data: Value,
    /// Unreadable messages, and invalid parts of messages, including audio of another track.
    pub malformed: u64,
    state: StreamState,
}

/// The stream of a call, from the handshake.
pub struct StreamStart {
    pub stream_id: String,
    pub call_id: String,
    pub rx: MediaFormat,
    pub tx: MediaFormat,
    /// See [`TelephonyCall::data`].
    pub data: Value,
    /// The start of a message with audio, up to the base64.
    pub media_head: String,
    /// Whether the provider sends audio in order; otherwise, its messages are numbered.
    pub in_order: bool,
    /// Whether the provider documents the byte order of linear PCM, which is little-endian then.
    pub has_byte_order: bool,
}

/// The state of a call between messages.
struct StreamState {
    /// See [`StreamStart::media_head`]; fifty messages a second start with it.
    media_head: String,
    /// Reorders audio, if the provider does not order it.
    order: Option<ReorderBuffer>,
    /// Finds the byte order of inbound linear PCM, if the provider does not document it.
    byte_order: Option<ByteOrder>,
    /// Decoded base64 of a message, before PCM; a field to reuse the memory.
    decoded: Vec<u8>,
    reports: u64,
    /// Those of [`TelephonyCall::malformed`] that are faults of the peer.
    flaws: u64,
    /// Whether audio was invalid, which is logged.
    has_invalid_audio: bool,
}

/// The end of a message that starts with [`StreamStart::media_head`].
const MEDIA_TAIL: &str = r#""}}"#;
/// Samples that are encoded at once: whole base64 groups for one and two bytes per sample, so that
/// no padding occurs within.
const BLOCK_SAMPLES: usize = 240;

impl TelephonyCall {
    /// Returns the laws of G.711; `None` if either direction has another codec.
    pub fn line_laws(&self) -> Option<LineLaws> {
        Some(LineLaws {
            inbound: self.rx.codec.law()?,
            outbound: self.tx.codec.law()?,
        })
    }

    /// Creates the call of a stream.
    pub fn new(provider: &'static Provider, stream: StreamStart) -> Self {
        TelephonyCall {
            provider,
            rx: stream.rx,
            tx: stream.tx,
            stream_id: stream.stream_id,
            call_id: stream.call_id,
            data: stream.data,
            malformed: 0,
            state: StreamState {
                media_head: stream.media_head,
                order: (!stream.in_order).then(ReorderBuffer::default),
                byte_order: (!stream.has_byte_order && stream.rx.codec == TelephonyCodec::L16).then(ByteOrder::default),
                decoded: Vec::new(),
                reports: 0,
                flaws: 0,
                has_invalid_audio: false,
            },
        }
    }

    /// Parses a message of the provider. Its audio is appended to `pcm`, at the rate of
    /// [`TelephonyCall::rx`].
    ///
    /// If the provider does not order its audio, a few early frames are held and appended with a
    /// later message, including [`ProviderInput::Stop`]. Invalid parts are skipped and counted.
    ///
    /// # Errors
    /// Returns [`Malformed`] if the text is not a JSON object, which is counted too. A peer that
    /// sends many in a row is no provider, and its socket should be closed.
    pub fn read(&mut self, text: &str, pcm: &mut Vec<i16>) -> Result<ProviderInput, Malformed> {
        let message = match ProviderMessage::parse(text) {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(self.skip(MessageFlaw::Members)),
            Err(malformed) => {
                self.skip(MessageFlaw::NoObject);
                return Err(malformed);
            }
        };
        let Some(event) = message.event.as_str() else {
            return Ok(self.skip(MessageFlaw::Event));
        };
        let input = match event {
            "media" => self.handle_media(&message.media.0, pcm),
            "dtmf" => match message.dtmf.0.digit.as_str().map(str::as_bytes) {
                Some([key @ (b'0'..=b'9' | b'*' | b'#')]) => ProviderInput::Dtmf(char::from(*key)),
                Some(_) => ProviderInput::Nothing,
                None => self.skip(MessageFlaw::Digit),
            },
            "stop" => {
                if let Some(order) = &mut self.state.order {
                    order.release_all(pcm);
                }
                ProviderInput::Stop
            }
            "error" => {
                self.report(&message, text);
                ProviderInput::Nothing
            }
            event if self.provider.mark_events.contains(&event) => {
                // The name is in an object of its own, or beside the event.
                match message.mark.0.name.as_str().or(message.name.as_str()) {
                    Some(name) if name.len() <= MARK_BYTES_MAX => ProviderInput::Mark(name.to_string()),
                    _ => self.skip(MessageFlaw::Name),
                }
            }
            _ => ProviderInput::Nothing,
        };
        Ok(input)
    }

    /// Counts a binary message, which has no meaning with any provider.
    pub fn skip_binary(&mut self) {
        self.skip(MessageFlaw::Binary);
    }

    /// Returns the chunk size of outbound audio.
    pub fn chunk(&self) -> ChunkLimits {
        self.provider.protocol.chunk(self.tx)
    }

    /// Returns a message with the audio of `pcm`, at the rate of [`TelephonyCall::tx`].
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

    /// Returns why no audio of the caller has come; `None` if the log says it already.
    pub fn deaf_cause(&self) -> Option<&'static str> {
        if self.state.has_invalid_audio {
            return None;
        }
        Some(match self.malformed > self.state.flaws {
            true => "all audio of its stream is the bot's own: the stream must have the inbound track",
            false => {
                "its stream has had no `media` message: it must be started in both directions, with the inbound track"
            }
        })
    }

    /// Returns whether the provider returns the marks that a clear discards, before later ones.
    pub fn returns_cleared(&self) -> bool {
        self.provider.returns_cleared
    }

    /// Returns the message that discards audio that was sent and is not yet played.
    pub fn clear(&self) -> String {
        self.provider.protocol.clear(&message::quoted(&self.stream_id))
    }

    /// Returns a mark message. The provider returns it as [`ProviderInput::Mark`] once everything
    /// before it is played or cleared.
    pub fn mark(&self, name: &str) -> String {
        let (stream_id, name) = (message::quoted(&self.stream_id), message::quoted(name));
        self.provider.protocol.mark(&stream_id, &name)
    }

    /// Logs a report of the provider. The intervals grow, since a peer can send any number.
    fn report(&mut self, message: &ProviderMessage<'_>, text: &str) {
        self.state.reports += 1;
        if self.state.reports.is_power_of_two() {
            self.provider.protocol.report(&Report {
                stream_id: &self.stream_id,
                code: message.payload.0.code.as_str(),
                title: message.payload.0.title.as_str(),
                text,
            });
        }
    }

    fn handle_media(&mut self, media: &MediaMessage, pcm: &mut Vec<i16>) -> ProviderInput {
        if media.track.as_str().is_some_and(|track| track.starts_with("outbound")) {
            return self.skip_other_track();
        }
        let before = pcm.len();
        if let Err(flaw) = self.decode(media.payload.as_str(), pcm) {
            self.state.has_invalid_audio = true;
            self.skip(flaw);
        }
        // An invalid frame keeps its place in the order, so that no frame waits for it.
        if let (Some(order), Some(chunk)) = (&mut self.state.order, media.chunk.whole()) {
            order.place(chunk, before, pcm);
        }
        if pcm.len() > before {
            ProviderInput::Audio
        } else {
            ProviderInput::Nothing
        }
    }

    /// Appends the samples of a payload; samples before an error are kept.
    fn decode(&mut self, payload: Option<&str>, pcm: &mut Vec<i16>) -> Result<(), MessageFlaw> {
        let payload = payload.ok_or(MessageFlaw::Payload)?;
        if payload.len() > TELEPHONY_PAYLOAD_BYTES_MAX {
            return Err(MessageFlaw::Payload);
        }
        let decoded = &mut self.state.decoded;
        if !base64::decode_into(payload, decoded) {
            return Err(MessageFlaw::Payload);
        }
        let codec = self.rx.codec;
        let before = pcm.len();
        codec.decode(decoded, pcm);
        if let Some(order) = &mut self.state.byte_order {
            order.correct(&mut pcm[before..]);
        }
        if decoded.len().is_multiple_of(codec.width()) {
            Ok(())
        } else {
            Err(MessageFlaw::Length)
        }
    }

    /// Counts audio of another track, which the configuration of the stream asked for.
    fn skip_other_track(&mut self) -> ProviderInput {
        self.malformed += 1;
        if self.malformed.is_power_of_two() {
            debug!("audio of another track than the caller's is skipped");
        }
        ProviderInput::Nothing
    }

    /// Counts an invalid message, or a part of one. The intervals of log lines grow, since a peer
    /// can send any number.
    fn skip(&mut self, flaw: MessageFlaw) -> ProviderInput {
        self.malformed += 1;
        self.state.flaws += 1;
        if self.state.flaws.is_power_of_two() {
            warn!(
                "a message of the provider was skipped, {} so far: {}",
                self.state.flaws,
                flaw.reason()
            );
        }
        ProviderInput::Nothing
    }
}

impl fmt::Debug for TelephonyCall {
    /// Omits telephone numbers, so that a call can be logged.
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

/// The reason to skip a message, or a part of it.
#[derive(Clone, Copy)]
enum MessageFlaw {
    Binary,
    NoObject,
    /// Members that are repeated, or numbers out of range.
    Members,
    Event,
    Payload,
    /// A payload that ends within a sample.
    Length,
    Digit,
    Name,
}

impl MessageFlaw {
    /// Returns what was wrong, and what was expected.
    fn reason(self) -> &'static str {
        match self {
            MessageFlaw::Binary => "it is binary; every message is a text with one JSON object",
            MessageFlaw::NoObject => "it is no JSON object",
            MessageFlaw::Members => "a member is repeated, or a number is out of range",
            MessageFlaw::Event => "its `event` is missing or no text",
            MessageFlaw::Payload => "its `media.payload` is missing, too long or no base64",
            MessageFlaw::Length => "its audio ends within a sample",
            MessageFlaw::Digit => "its `dtmf.digit` is missing",
            MessageFlaw::Name => "the name of its mark is missing or too long",
        }
    }
}
