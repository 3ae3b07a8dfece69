//! RTVI messages of the bot: values that become the text of one message each.
//!
//! In: borrowed values; times in seconds, levels from 0 to 1. Out: JSON text with label and type,
//! and with an `id` in responses. A [`Segment`] is one sentence of the bot from new to spoken;
//! clients of protocol 1 get one message per sentence instead. Encoding cannot fail: every value
//! has a JSON form.

use serde::Serialize;
use serde_json::{Map, Value};

use super::LABEL;
use crate::kit::whole_words;

/// A message to the client, by its type.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", content = "data", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ToClient<'a> {
    BotReady {
        version: &'a str,
        about: About,
    },
    /// An error; after a fatal one, the client disconnects.
    Error {
        error: &'a str,
        fatal: bool,
    },
    ErrorResponse {
        error: &'a str,
    },
    ServerResponse {
        t: &'a str,
        d: &'a Value,
    },
    ServerMessage(&'a Value),
    Metrics(&'a Metrics<'a>),
    UserStartedSpeaking,
    UserStoppedSpeaking,
    UserMuteStarted,
    UserMuteStopped,
    UserTranscription {
        text: &'a str,
        user_id: &'a str,
        /// Formatted by `proto::rtvi::timestamp`.
        timestamp: &'a str,
        r#final: bool,
    },
    /// The text of the user that was sent to the model.
    UserLlmText {
        text: &'a str,
    },
    UserAudioLevel {
        value: f32,
    },
    BotStartedSpeaking,
    BotStoppedSpeaking,
    BotInterrupted,
    BotLlmStarted,
    /// A piece of the model's answer, with its spacing.
    BotLlmText {
        text: &'a str,
    },
    BotLlmStopped,
    BotTtsStarted,
    /// Words as they are spoken.
    BotTtsText {
        text: &'a str,
    },
    BotTtsStopped,
    /// The model's answer in whole sentences, for clients without `bot-output`.
    BotTranscription {
        text: &'a str,
    },
    BotOutput(BotOutput<'a>),
    BotAudioLevel {
        value: f32,
    },
    BotLlmSearchResponse {
        #[serde(skip_serializing_if = "Option::is_none")]
        search_result: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        rendered_content: Option<&'a str>,
        origins: &'a [Value],
    },
    LlmFunctionCallStarted {
        #[serde(skip_serializing_if = "Option::is_none")]
        function_name: Option<&'a str>,
    },
    /// With a name, a client that has the function runs it and returns the result.
    LlmFunctionCallInProgress {
        tool_call_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        function_name: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<&'a Map<String, Value>>,
    },
    LlmFunctionCallStopped {
        tool_call_id: &'a str,
        cancelled: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        function_name: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a Value>,
    },
    UiCommand {
        command: &'a str,
        payload: &'a Value,
    },
    UiJobGroup(&'a Value),
    SystemLog {
        text: &'a str,
    },
}

impl ToClient<'_> {
    /// Returns whether only clients with a large screen and a fast connection use the message.
    pub fn is_detail(&self) -> bool {
        match self {
            ToClient::Metrics(_)
            | ToClient::UserAudioLevel { .. }
            | ToClient::BotAudioLevel { .. }
            | ToClient::UserTranscription { r#final: false, .. }
            | ToClient::BotLlmText { .. }
            | ToClient::SystemLog { .. } => true,
            ToClient::BotOutput(output) => output.spoken_progress.is_some(),
            _ => false,
        }
    }

    /// Returns the text of a message that is not a response.
    pub fn text(&self) -> String {
        self.envelope(None)
    }

    /// Returns the text of a response to the client's message `id`.
    pub fn answer(&self, id: &str) -> String {
        self.envelope(Some(id))
    }

    fn envelope(&self, id: Option<&str>) -> String {
        let envelope = Envelope {
            label: LABEL,
            id,
            message: self,
        };
        serde_json::to_string(&envelope).expect("only text is a key, so every message has a form in JSON")
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    label: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(flatten)]
    message: &'a ToClient<'a>,
}

/// The description of a bot in `bot-ready`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct About {
    pub library: &'static str,
    pub library_version: &'static str,
}

impl About {
    /// The description of this library.
    pub const SELF: About = About {
        library: "edge-runner",
        library_version: env!("CARGO_PKG_VERSION"),
    };
}

/// Measurements of a bot; empty lists are omitted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Metrics<'a> {
    /// Times to the first byte of a response, in seconds.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub ttfb: &'a [Measure<'a, f64>],
    /// Total processing times, in seconds.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub processing: &'a [Measure<'a, f64>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub characters: &'a [Measure<'a, u64>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tokens: &'a [Tokens],
}

/// One measurement of one part of a bot.
#[derive(Clone, Debug, Serialize)]
pub struct Measure<'a, T> {
    /// The displayed name of the part.
    pub processor: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'a str>,
    pub value: T,
}

/// Token usage of a model.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Tokens {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
}

/// Speech or text of the bot, with its progress.
#[derive(Clone, Debug, Serialize)]
pub struct BotOutput<'a> {
    text: &'a str,
    aggregated_by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    segment_id: Option<u32>,
    /// Protocol 1 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    spoken: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    will_be_spoken: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spoken_status: Option<SpokenStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spoken_progress: Option<Progress<'a>>,
}

/// The progress of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpokenStatus {
    New,
    InProgress,
    Completed,
}

/// A segment, split at the current playout position.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Progress<'a> {
    accumulated_text: &'a str,
    remaining_text: &'a str,
}

/// One sentence of the bot, with a sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    id: u32,
    text: String,
}

impl Segment {
    pub fn new(id: u32, text: impl Into<String>) -> Self {
        let text = text.into();
        Segment { id, text }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the first `bytes` of the text, rounded down to whole words.
    pub fn upto(&self, bytes: usize) -> &str {
        whole_words(&self.text, bytes)
    }

    /// Returns the message for a segment that is displayed and not spoken.
    pub fn shown(&self, legacy: bool) -> BotOutput<'_> {
        if legacy {
            return self.legacy(false);
        }
        BotOutput {
            segment_id: Some(self.id),
            spoken: None,
            will_be_spoken: Some(false),
            ..self.legacy(false)
        }
    }

    /// Returns the message for playout up to `bytes` of the text: 0 announces the segment, its
    /// length completes it. Clients join the parts of a text, so a word is never split.
    ///
    /// Clients of protocol 1 get completed segments only.
    pub fn spoken_to(&self, bytes: usize, legacy: bool) -> Option<BotOutput<'_>> {
        let accumulated_text = self.upto(bytes);
        let remaining_text = &self.text[accumulated_text.len()..];
        if legacy {
            return remaining_text.is_empty().then(|| self.legacy(true));
        }
        let status = match (accumulated_text, remaining_text) {
            (_, "") => SpokenStatus::Completed,
            ("", _) => SpokenStatus::New,
            _ => SpokenStatus::InProgress,
        };
        Some(BotOutput {
            segment_id: Some(self.id),
            spoken: None,
            will_be_spoken: Some(true),
            spoken_status: Some(status),
            spoken_progress: Some(Progress {
                accumulated_text,
                remaining_text,
            }),
            ..self.legacy(true)
        })
    }

    fn legacy(&self, spoken: bool) -> BotOutput<'_> {
        BotOutput {
            text: &self.text,
            aggregated_by: "sentence",
            segment_id: None,
            spoken: Some(spoken),
            will_be_spoken: None,
            spoken_status: None,
            spoken_progress: None,
        }
    }
}

/// Splits a text into pieces of at most `bytes_max` in a JSON string, between words if possible.
///
/// A microcontroller reads one chunk per message. The concatenated pieces are the text.
pub fn pieces(text: &str, bytes_max: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (mut end, mut after_word, mut bytes) = (0, None, 0);
        for (at, character) in rest.char_indices() {
            bytes += bytes_in_json(character);
            if end > 0 && bytes > bytes_max {
                let (piece, tail) = rest.split_at(after_word.unwrap_or(end));
                rest = tail;
                return Some(piece);
            }
            end = at + character.len_utf8();
            if character == ' ' {
                after_word = Some(end);
            }
        }
        let piece = std::mem::take(&mut rest);
        (!piece.is_empty()).then_some(piece)
    })
}

/// Returns the bytes of a character in a JSON string.
fn bytes_in_json(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => character.len_utf8(),
    }
}
