//! RTVI as a caller speaks it: its own messages, and what those of the bot say.
//!
//! In: keys, texts and messages of the bot. Out: the caller's messages, and per message of the bot
//! what there is to show. A segment of speech counts once it was spoken, or as far as it was spoken
//! when the bot is interrupted. Source: `docs/spec/rtvi.md` 2 to 4.

use serde_json::{Value, json};

use crate::bot_message::{self, BotMessage, BotText, TRANSCRIPTION_TOPIC};
use crate::rtvi::{LABEL, VERSION};
use crate::sockets::eval::CONNECT as EVAL_CONNECT;

/// The name of this client in `client-ready`.
const LIBRARY: &str = "edge-runner call";

/// Returns the first message of a client.
pub fn client_ready() -> String {
    let about = json!({"library": LIBRARY, "library_version": env!("CARGO_PKG_VERSION")});
    message("client-ready", &json!({"version": VERSION, "about": about}))
}

/// Returns the message with which an evaluation begins, as that of `pipecat eval` without speech.
pub fn eval_connect() -> String {
    let flags = json!({"skip_tts": true, "capture_bot_audio": false, "capture_bot_images": false});
    message("client-message", &json!({"t": EVAL_CONNECT, "d": flags}))
}

/// Returns the message for a key. It has the key in the form of each version.
pub fn key(key: char) -> String {
    let key = key.to_string();
    message("dtmf", &json!({"button": &key, "buttons": [&key]}))
}

/// Returns the message for a text that a user typed.
pub fn text(content: &str) -> String {
    let options = json!({"run_immediately": true, "audio_response": true});
    message("send-text", &json!({"content": content, "options": options}))
}

/// Returns a message of this type.
pub fn message(kind: &str, data: &Value) -> String {
    json!({"label": LABEL, "type": kind, "id": "call", "data": data}).to_string()
}

/// What a message of the bot says.
#[derive(Clone, Debug, PartialEq)]
pub enum BotSaid {
    /// The bot is ready.
    Ready,
    /// The bot has said or shown this.
    Text(String),
    /// The bot has understood this from the caller.
    CallerText(String),
    /// The bot was interrupted.
    Interrupted,
    /// Any other message.
    Other(Value),
}

/// Where the texts of the bot are from. A later one is better, and replaces those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WordSource {
    /// Transcripts of a LiveKit room.
    Room,
    Voice,
    Sentence,
    Output,
}

/// Reads the messages of one bot.
#[derive(Debug, Default)]
pub struct BotMessageReader {
    source: Option<WordSource>,
    /// The segment that the bot speaks, and its words so far.
    speaking: Option<(Option<u64>, String)>,
}

impl BotMessageReader {
    /// Reads a message.
    pub fn read(&mut self, text: &str) -> Vec<BotSaid> {
        let mut said = Vec::new();
        match bot_message::read(text) {
            BotMessage::UserTranscription {
                text, is_final: true, ..
            } => said.push(BotSaid::CallerText(text)),
            BotMessage::BotOutput(output) => self.handle_output(output, &mut said),
            BotMessage::BotTranscription(words) => self.handle_words(WordSource::Sentence, words, &mut said),
            BotMessage::VoiceText(words) => self.handle_words(WordSource::Voice, words, &mut said),
            BotMessage::BotInterrupted => {
                self.finish(&mut said);
                said.push(BotSaid::Interrupted);
            }
            _ => match serde_json::from_str::<Value>(text) {
                Ok(value) if value["label"] == TRANSCRIPTION_TOPIC => {
                    let words = value["data"]["text"].as_str().unwrap_or_default();
                    self.handle_words(WordSource::Room, words.to_owned(), &mut said);
                }
                Ok(value) if value["label"] == LABEL && value["type"] == "bot-ready" => said.push(BotSaid::Ready),
                Ok(value) => said.push(BotSaid::Other(value)),
                Err(_) => said.push(BotSaid::Other(Value::from(text))),
            },
        }
        said
    }

    /// Adds the words of the segment that was not spoken to its end.
    pub fn finish(&mut self, said: &mut Vec<BotSaid>) {
        if let Some((_, words)) = self.speaking.take()
            && !words.is_empty()
        {
            said.push(BotSaid::Text(words));
        }
    }

    fn handle_output(&mut self, output: BotText, said: &mut Vec<BotSaid>) {
        if self.speaking.as_ref().is_some_and(|(id, _)| *id != output.segment_id) {
            self.finish(said);
        }
        let is_spoken = output.will_be_spoken.unwrap_or(true);
        match output.spoken_status.as_deref() {
            Some("new") if is_spoken => self.speaking = Some((output.segment_id, String::new())),
            Some("in-progress") => {
                let words = output.spoken_progress.unwrap_or_default().accumulated_text;
                self.speaking = Some((output.segment_id, words));
            }
            _ => {
                self.speaking = None;
                self.handle_words(WordSource::Output, output.text, said);
            }
        }
    }

    fn handle_words(&mut self, source: WordSource, words: String, said: &mut Vec<BotSaid>) {
        if self.source <= Some(source) && !words.trim().is_empty() {
            self.source = Some(source);
            said.push(BotSaid::Text(words));
        }
    }
}

#[cfg(test)]
mod tests;
