//! The media WebSocket of a telephony provider, from the provider's side: the caller is the
//! provider, and the runner is called.
//!
//! In: outputs of a [`CallConversation`], and texts of the runner. Out: the provider's messages to
//! send, and inputs of the conversation. Audio is G.711 mu-law or PCM at 8000 Hz, in base64, in
//! messages of the provider's length. A mark is returned once the audio before it was played, and
//! at once after a clear. Source: `docs/spec/telephony.md` 2 to 6, and [`StreamDialect`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::conversation::{CallConversation, ConversationOutput};
use super::{FRAME, RATE_HZ};
use crate::audio::g711::{ulaw_decode, ulaw_encode};
use crate::audio::rate_converter::RateConverter;
use crate::telephony::provider::{Provider, StreamDialect};

/// The rate on a telephone's line, in Hz.
const LINE_RATE_HZ: u32 = 8_000;
/// Marks that wait for the audio before them.
const WAITING_MARKS_MAX: usize = 1_000;

/// The provider's side of one stream.
pub struct TelephoneStream {
    dialect: &'static StreamDialect,
    mark_event: &'static str,
    stream_id: String,
    call_id: String,
    /// Of the caller and of the called; empty if the call has none.
    numbers: [String; 2],
    parameters: Value,
    converter: RateConverter,
    /// Samples that do not fill a message yet.
    voice: Vec<i16>,
    sequence: u64,
    chunk: u64,
    /// When all audio of the runner is played.
    played_at: Option<Instant>,
    marks: VecDeque<(Instant, String)>,
    /// Messages that answer the runner's.
    replies: VecDeque<String>,
}

impl TelephoneStream {
    /// Creates a stream whose ids begin with `id`, which is random.
    pub fn new(provider: &'static Provider, id: &str) -> TelephoneStream {
        TelephoneStream {
            dialect: &provider.dialect,
            mark_event: provider.mark_events.first().copied().unwrap_or("mark"),
            stream_id: format!("{}{id}", provider.dialect.stream_prefix),
            call_id: format!("{}{id}", provider.dialect.call_prefix),
            numbers: Default::default(),
            parameters: json!({}),
            converter: RateConverter::new(RATE_HZ, LINE_RATE_HZ),
            voice: Vec::new(),
            sequence: 0,
            chunk: 0,
            played_at: None,
            marks: VecDeque::new(),
            replies: VecDeque::new(),
        }
    }

    /// Returns the id of the call, which its webhook has as well.
    pub fn call_id(&self) -> &str {
        &self.call_id
    }

    /// Sets the numbers of the caller and of the called, which are valid ones, and the parameters
    /// of the markup.
    pub fn set_call(&mut self, numbers: [String; 2], parameters: Value) {
        (self.numbers, self.parameters) = (numbers, parameters);
    }

    /// Returns the messages that open the stream.
    pub fn opening(&mut self) -> Vec<String> {
        let opening = self.dialect.opening;
        self.sequence = opening.len() as u64;
        let filled = opening.iter().map(|message| {
            let message = message.replace("{stream}", &self.stream_id);
            let message = message.replace("{call}", &self.call_id);
            let message = message.replace("{from}", &self.numbers[0]);
            let message = message.replace("{to}", &self.numbers[1]);
            let message = message.replace("{pairs}", &self.pairs());
            message.replace("{parameters}", &self.parameters.to_string())
        });
        filled.collect()
    }

    /// Returns the parameters of the markup as one text, which is JSON.
    fn pairs(&self) -> String {
        let parameters = self.parameters.as_object().into_iter().flatten();
        let pairs = parameters.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
        let pairs: Vec<String> = pairs.collect();
        let text = match pairs.is_empty() {
            true => "{}".to_owned(),
            false => pairs.join(";"),
        };
        Value::from(text).to_string()
    }

    /// Returns the messages for an output.
    pub fn encode(&mut self, output: &ConversationOutput) -> Vec<String> {
        match output {
            ConversationOutput::Audio(pcm) => {
                self.voice.extend_from_slice(self.converter.convert(pcm));
                let samples = LINE_RATE_HZ as usize * self.dialect.message_ms as usize / 1_000;
                let mut messages = Vec::new();
                while self.voice.len() >= samples {
                    let piece: Vec<i16> = self.voice.drain(..samples).collect();
                    messages.push(self.media(&piece));
                }
                messages
            }
            ConversationOutput::Key(key) => vec![self.message("dtmf", "dtmf", json!({"digit": key}))],
            // Telephones have no texts; the command line refuses them.
            ConversationOutput::Text(_)
            | ConversationOutput::Message(..)
            | ConversationOutput::Timeout(_)
            | ConversationOutput::Observed(..)
            | ConversationOutput::HangUp => Vec::new(),
        }
    }

    /// Returns the message that ends the stream.
    pub fn stop(&mut self) -> String {
        let call = json!({self.dialect.call_member: self.call_id});
        self.message("stop", "stop", call)
    }

    fn media(&mut self, pcm: &[i16]) -> String {
        let bytes: Vec<u8> = match self.dialect.is_pcm {
            true => pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect(),
            false => pcm.iter().map(|sample| ulaw_encode(*sample)).collect(),
        };
        self.chunk += 1;
        let timestamp = self.chunk * u64::from(self.dialect.message_ms);
        let media = json!({
            "track": "inbound",
            "chunk": self.number(self.chunk),
            "timestamp": timestamp.to_string(),
            "payload": BASE64.encode(&bytes),
        });
        self.message("media", "media", media)
    }

    fn message(&mut self, event: &str, member: &str, content: Value) -> String {
        self.sequence += 1;
        json!({
            "event": event,
            self.dialect.sequence_member: self.number(self.sequence),
            self.dialect.stream_member: self.stream_id,
            member: content,
        })
        .to_string()
    }

    /// Returns a number as the provider writes it.
    fn number(&self, number: u64) -> Value {
        match self.dialect.has_numbers {
            true => number.into(),
            false => number.to_string().into(),
        }
    }

    /// Handles a message of the runner. Unknown ones are ignored.
    ///
    /// # Errors
    /// A sentence about a message that no provider can read.
    pub fn handle_message(
        &mut self,
        conversation: &mut CallConversation,
        text: &str,
        now: Instant,
    ) -> Result<(), String> {
        let message: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        match message["event"].as_str().unwrap_or_default() {
            "media" | "playAudio" => {
                let payload = message["media"]["payload"].as_str().unwrap_or_default();
                let bytes = BASE64.decode(payload.as_bytes());
                let bytes = bytes.map_err(|error| format!("its audio is not base64: {error}"))?;
                let pcm: Vec<i16> = match self.dialect.is_pcm {
                    true => bytes
                        .as_chunks()
                        .0
                        .iter()
                        .map(|sample| i16::from_le_bytes(*sample))
                        .collect(),
                    false => bytes.iter().map(|byte| ulaw_decode(*byte)).collect(),
                };
                let length = Duration::from_secs(pcm.len() as u64) / LINE_RATE_HZ;
                self.played_at = Some(self.played_at.map_or(now, |at| at.max(now)) + length);
                conversation.handle_audio(&pcm, LINE_RATE_HZ, now);
            }
            "clear" | "clearAudio" => {
                conversation.handle_interruption();
                self.played_at = None;
                while let Some((_, name)) = self.marks.pop_front() {
                    self.return_mark(&name);
                }
            }
            "mark" | "checkpoint" => {
                let name = message["mark"]["name"].as_str().or(message["name"].as_str());
                if let Some(name) = name
                    && self.marks.len() < WAITING_MARKS_MAX
                {
                    let at = self.played_at.map_or(now, |at| at.max(now));
                    self.marks.push_back((at, name.to_owned()));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the next message that answers the runner's, if one is due.
    pub fn poll_reply(&mut self, now: Instant) -> Option<String> {
        // A frame is played 20 ms after it was begun.
        while self.marks.front().is_some_and(|(at, _)| *at + FRAME <= now) {
            if let Some((_, name)) = self.marks.pop_front() {
                self.return_mark(&name);
            }
        }
        self.replies.pop_front()
    }

    fn return_mark(&mut self, name: &str) {
        let reply = match self.mark_event {
            "mark" => self.message("mark", "mark", json!({"name": name})),
            event => self.message(event, "name", name.into()),
        };
        self.replies.push_back(reply);
    }
}

#[cfg(test)]
mod tests;
