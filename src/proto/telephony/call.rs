//! One call: parses the provider's messages and writes the runner's.
//!
//! In: messages as text; PCM (`i16` mono at the rate of [`TelephonyCall::tx`]) and names of marks.
//! Out: [`ProviderInput`], PCM at the rate of [`TelephonyCall::rx`], and messages as text, each in
//! one allocation. What differs between providers is in their files. Rejected: text that is not a
//! JSON object. Audio that is not base64, is too long, or belongs to another track is skipped and
//! counted.

use std::fmt;

use data_encoding::{BASE64, BASE64_NOPAD};
use log::debug;
use serde_json::Value;

use super::message::{self, MediaMessage, ProviderMessage};
use super::provider::{Provider, Report};
use super::reorder::ReorderBuffer;
use super::{ChunkLimits, Malformed, MediaFormat, ProviderInput};
use crate::limits::{MARK_BYTES_MAX, TELEPHONY_PAYLOAD_BYTES_MAX};

/// A call whose handshake was recognised.
pub struct TelephonyCall {
    pub provider: &'static Provider,
    /// What the provider sends.
    pub rx: MediaFormat,
    /// What the provider is sent.
    pub tx: MediaFormat,
    pub stream_id: String,
    /// By this the provider knows the call; may be empty, and then nothing is hung up.
    pub call_id: String,
    /// The normalised data that the bot gets as `call_data`: an object.
    pub data: Value,
    /// Messages, or parts of them, that made no sense; audio that is not the caller's is one of
    /// them.
    pub malformed: u64,
    state: StreamState,
}

/// The stream of a call, as a provider's handshake tells it.
pub struct StreamStart {
    pub stream_id: String,
    pub call_id: String,
    pub rx: MediaFormat,
    pub tx: MediaFormat,
    /// See [`TelephonyCall::data`].
    pub data: Value,
    /// A message with audio, up to the base64 of the audio.
    pub media_head: String,
    /// Whether the provider sends audio in order. Where it does not, its messages have numbers.
    pub in_order: bool,
}

/// What a call remembers between messages.
struct StreamState {
    /// See [`StreamStart::media_head`]: made once, since fifty messages a second begin with it.
    media_head: String,
    /// Puts audio in order, where the provider does not.
    order: Option<ReorderBuffer>,
    /// Audio of one message on its way from base64 to PCM; its memory is used again.
    decoded: Vec<u8>,
    reports: u64,
}

/// What a message ends with that begins with [`StreamStart::media_head`].
const MEDIA_TAIL: &str = r#""}}"#;
/// Samples that are encoded in one go: whole groups of base64 at one byte a sample and at two, so
/// no padding comes between.
const BLOCK_SAMPLES: usize = 240;

impl TelephonyCall {
    /// Makes the call of a stream.
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
                decoded: Vec::new(),
                reports: 0,
            },
        }
    }

    /// Reads a message of the provider. The caller's voice in it is appended to `pcm`, at the rate
    /// of [`TelephonyCall::rx`].
    ///
    /// Where the provider promises no order, frames that come early are held back, a few at most,
    /// and appended with a later message, be it [`ProviderInput::Stop`]. What makes no sense is
    /// skipped and counted.
    ///
    /// # Errors
    /// [`Malformed`] when the text is no JSON object: this is not a provider, and the socket is
    /// best closed.
    pub fn read(&mut self, text: &str, pcm: &mut Vec<i16>) -> Result<ProviderInput, Malformed> {
        let Some(message) = ProviderMessage::parse(text)? else {
            return Ok(self.skip(MessageFlaw::Members));
        };
        let Some(event) = message.event.as_str() else {
            return Ok(self.skip(MessageFlaw::Event));
        };
        let heard = match event {
            "media" => self.hear(&message.media.0, pcm),
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
                // The name stands in an object of its own, or beside the event.
                match message.mark.0.name.as_str().or(message.name.as_str()) {
                    Some(name) if name.len() <= MARK_BYTES_MAX => ProviderInput::Mark(name.to_string()),
                    _ => self.skip(MessageFlaw::Name),
                }
            }
            _ => ProviderInput::Nothing,
        };
        Ok(heard)
    }

    /// Says how the bot's voice is cut into messages.
    pub fn chunk(&self) -> ChunkLimits {
        self.provider.protocol.chunk(self.tx)
    }

    /// Returns the message that says `pcm`, which is at the rate of [`TelephonyCall::tx`].
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

    /// Tells whether the provider promises to give back the marks that a clear overtakes, before
    /// any later one.
    pub fn returns_cleared(&self) -> bool {
        self.provider.returns_cleared
    }

    /// Returns the message that drops what was sent and is not played yet.
    pub fn clear(&self) -> String {
        self.provider.protocol.clear(&message::quoted(&self.stream_id))
    }

    /// Returns the message that comes back as [`ProviderInput::Mark`] once all that was sent before
    /// it is played, or cleared.
    pub fn mark(&self, name: &str) -> String {
        let (stream_id, name) = (message::quoted(&self.stream_id), message::quoted(name));
        self.provider.protocol.mark(&stream_id, &name)
    }

    /// Has a report of the provider logged, ever more rarely: a peer can send any number.
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

    fn hear(&mut self, media: &MediaMessage, pcm: &mut Vec<i16>) -> ProviderInput {
        if media.track.as_str().is_some_and(|track| track.starts_with("outbound")) {
            return self.skip(MessageFlaw::Track);
        }
        let before = pcm.len();
        if let Err(flaw) = self.decode(media.payload.as_str(), pcm) {
            self.skip(flaw);
        }
        // A frame that could not be read takes its place all the same: no other waits for it.
        if let (Some(order), Some(chunk)) = (&mut self.state.order, media.chunk.whole()) {
            order.place(chunk, before, pcm);
        }
        if pcm.len() > before {
            ProviderInput::Audio
        } else {
            ProviderInput::Nothing
        }
    }

    /// Appends the samples of a payload; those before a flaw are good.
    fn decode(&mut self, payload: Option<&str>, pcm: &mut Vec<i16>) -> Result<(), MessageFlaw> {
        let payload = payload.ok_or(MessageFlaw::Payload)?;
        if payload.len() > TELEPHONY_PAYLOAD_BYTES_MAX {
            return Err(MessageFlaw::Payload);
        }
        let digits = payload.trim_end_matches('=').as_bytes();
        if payload.len() - digits.len() > 2 {
            return Err(MessageFlaw::Payload);
        }
        let decoded = &mut self.state.decoded;
        let length = BASE64_NOPAD
            .decode_len(digits.len())
            .map_err(|_| MessageFlaw::Payload)?;
        decoded.resize(length, 0);
        BASE64_NOPAD
            .decode_mut(digits, decoded)
            .map_err(|_| MessageFlaw::Payload)?;
        let codec = self.rx.codec;
        codec.decode(decoded, pcm);
        if length.is_multiple_of(codec.width()) {
            Ok(())
        } else {
            Err(MessageFlaw::Length)
        }
    }

    /// Counts what makes no sense. The log hears of it ever more rarely: a peer can send any
    /// number.
    fn skip(&mut self, flaw: MessageFlaw) -> ProviderInput {
        self.malformed += 1;
        if self.malformed.is_power_of_two() {
            debug!(
                "skipped in messages of the provider so far: {}, the last for its {flaw:?}",
                self.malformed
            );
        }
        ProviderInput::Nothing
    }
}

impl fmt::Debug for TelephonyCall {
    /// Omits the phone numbers, so that a call may be logged.
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
enum MessageFlaw {
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
