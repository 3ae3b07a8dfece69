//! One call: reads what its provider sends, and writes what the provider is to be told.
//!
//! In: messages as text; PCM (`i16` mono at the rate of [`Call::tx`]) and names of marks. Out: [`Heard`], PCM at the rate of
//! [`Call::rx`], and messages as text, each in one allocation that fits. What providers have in common stands here, what one
//! alone says or is told in its file.
//! Refuses: text that is no JSON object. Audio that is no base64, too long, or not the caller's is skipped and counted.

use std::fmt;

use data_encoding::{BASE64, BASE64_NOPAD};
use log::debug;
use serde_json::Value;

use super::message::{self, Media, Message};
use super::{Chunk, Format, Heard, Malformed, Provider, exotel, plivo, telnyx, twilio};
use crate::limits::{MARK_BYTES_MAX, TELEPHONY_PAYLOAD_BYTES_MAX};

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
    pub(super) state: State,
}

/// What a call remembers between messages.
pub(super) struct State {
    /// A message with audio, up to the audio: made once, since fifty a second begin with it.
    media_head: String,
    /// Provider b alone needs it.
    order: telnyx::Order,
    /// Audio of one message on its way from base64 to PCM; its memory is used again.
    decoded: Vec<u8>,
    complaints: u64,
}

impl State {
    pub(super) fn new(media_head: String) -> Self {
        State {
            media_head,
            order: telnyx::Order::default(),
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
                    telnyx::complain(&self.stream_id, &message.payload.0, text);
                }
                Heard::Nothing
            }
            event if self.provider.played().contains(&event) => {
                // Provider c has the name beside the event, the others in an object of its own.
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
            Provider::D => exotel::chunk(self.tx),
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

    /// Tells whether the provider promises to give back the marks that a clear overtakes, before any later one.
    pub fn returns_cleared(&self) -> bool {
        matches!(self.provider, Provider::A | Provider::B)
    }

    /// Returns the message that drops what was sent and is not played yet.
    pub fn clear(&self) -> String {
        let stream_id = message::quoted(&self.stream_id);
        match self.provider {
            Provider::A => twilio::clear(&stream_id),
            Provider::B => telnyx::clear(),
            Provider::C => plivo::clear(&stream_id),
            Provider::D => exotel::clear(&stream_id),
        }
    }

    /// Returns the message that comes back as [`Heard::Mark`] once all that was sent before it is played, or cleared.
    pub fn mark(&self, name: &str) -> String {
        let (stream_id, name) = (message::quoted(&self.stream_id), message::quoted(name));
        match self.provider {
            Provider::A => twilio::mark(&stream_id, &name),
            Provider::B => telnyx::mark(&name),
            Provider::C => plivo::mark(&stream_id, &name),
            Provider::D => exotel::mark(&stream_id, &name),
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
