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
    /// The bot is ready to talk.
    BotReady {
        /// The version of RTVI that it speaks.
        version: &'a str,
        /// The library behind it.
        about: About,
    },
    /// An error; after a fatal one, the client disconnects.
    Error {
        /// What went wrong.
        error: &'a str,
        /// Whether the session ends.
        fatal: bool,
    },
    /// A request of the client failed.
    ErrorResponse {
        /// What went wrong.
        error: &'a str,
    },
    /// The answer to a client's message.
    ServerResponse {
        /// The type of the message.
        t: &'a str,
        /// The answer.
        d: &'a Value,
    },
    /// A message of any form to the client.
    ServerMessage(&'a Value),
    /// Measurements of the bot.
    Metrics(&'a Metrics<'a>),
    /// The user began to speak.
    UserStartedSpeaking,
    /// The user finished speaking.
    UserStoppedSpeaking,
    /// The bot ignores the user from now on.
    UserMuteStarted,
    /// The bot hears the user again.
    UserMuteStopped,
    /// What the user said.
    UserTranscription {
        /// The words.
        text: &'a str,
        /// Who said them; empty if there is one user.
        user_id: &'a str,
        /// Formatted by `proto::rtvi::timestamp`.
        timestamp: &'a str,
        /// Whether the words will not change any more.
        r#final: bool,
    },
    /// The text of the user that was sent to the model.
    UserLlmText {
        /// The text.
        text: &'a str,
    },
    /// How loud the user is.
    UserAudioLevel {
        /// From 0 to 1.
        value: f32,
    },
    /// The bot began to speak.
    BotStartedSpeaking,
    /// The bot finished speaking.
    BotStoppedSpeaking,
    /// The user interrupted the bot.
    BotInterrupted,
    /// The model began its answer.
    BotLlmStarted,
    /// A piece of the model's answer, with its spacing.
    BotLlmText {
        /// The piece.
        text: &'a str,
    },
    /// The model finished its answer.
    BotLlmStopped,
    /// The synthesis of speech began.
    BotTtsStarted,
    /// Words as they are spoken.
    BotTtsText {
        /// The words.
        text: &'a str,
    },
    /// The synthesis of speech finished.
    BotTtsStopped,
    /// The model's answer in whole sentences, for clients without `bot-output`.
    BotTranscription {
        /// The sentences.
        text: &'a str,
    },
    /// A segment of the answer, and how much of it was said.
    BotOutput(BotOutput<'a>),
    /// How loud the bot is.
    BotAudioLevel {
        /// From 0 to 1.
        value: f32,
    },
    /// What a search of the model found.
    BotLlmSearchResponse {
        /// The result as text.
        #[serde(skip_serializing_if = "Option::is_none")]
        search_result: Option<&'a str>,
        /// The result as the search service wants it to be shown.
        #[serde(skip_serializing_if = "Option::is_none")]
        rendered_content: Option<&'a str>,
        /// The pages that it comes from.
        origins: &'a [Value],
    },
    /// The model calls a function.
    LlmFunctionCallStarted {
        /// The name of the function, where clients may know it.
        #[serde(skip_serializing_if = "Option::is_none")]
        function_name: Option<&'a str>,
    },
    /// With a name, a client that has the function runs it and returns the result.
    LlmFunctionCallInProgress {
        /// The model's id of the call.
        tool_call_id: &'a str,
        /// The name of the function.
        #[serde(skip_serializing_if = "Option::is_none")]
        function_name: Option<&'a str>,
        /// The arguments of the call.
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<&'a Map<String, Value>>,
    },
    /// The call of a function ended.
    LlmFunctionCallStopped {
        /// The model's id of the call.
        tool_call_id: &'a str,
        /// Whether it has no result because it was cancelled.
        cancelled: bool,
        /// The name of the function, where clients may know it.
        #[serde(skip_serializing_if = "Option::is_none")]
        function_name: Option<&'a str>,
        /// The result, where clients may know it.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a Value>,
    },
    /// A command to the user interface of the client.
    UiCommand {
        /// Its name.
        command: &'a str,
        /// Its arguments.
        payload: &'a Value,
    },
    /// The state of a group of jobs, for the user interface.
    UiJobGroup(&'a Value),
    /// A line of the log.
    SystemLog {
        /// The line.
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

    /// Returns whether the record of a call has what the message says, though it may be a detail.
    pub fn is_recorded(&self) -> bool {
        matches!(self, ToClient::Metrics(_) | ToClient::BotOutput(_)) || !self.is_detail()
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
    /// The name of the library.
    pub library: &'static str,
    /// Its version.
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
    /// Characters that were made into speech.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub characters: &'a [Measure<'a, u64>],
    /// Tokens of models.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tokens: &'a [Tokens],
    /// How long the caller waited for an answer. It is an extension of this runner: the record of
    /// the call has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerTime<'a>>,
}

/// How long a caller waited for an answer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AnswerTime<'a> {
    /// Seconds from the end of the caller's speech, not from the end of the pause behind it, to the
    /// first sound of the answer that left.
    pub latency: f64,
    /// Its parts, in order.
    pub stages: &'a [AnswerStage<'a>],
}

/// A part of the time of an answer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AnswerStage<'a> {
    /// What ended it.
    pub name: &'a str,
    /// Seconds from the end of the part before.
    pub value: f64,
}

/// One measurement of one part of a bot.
#[derive(Clone, Debug, Serialize)]
pub struct Measure<'a, T> {
    /// The displayed name of the part.
    pub processor: &'a str,
    /// The model behind the part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'a str>,
    /// The measured value.
    pub value: T,
}

/// Token usage of a model.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Tokens {
    /// Tokens of the request.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
    /// The sum of both.
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
    /// Nothing of it was said.
    New,
    /// It is being said.
    InProgress,
    /// All of it was said.
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
    /// Creates a segment.
    pub fn new(id: u32, text: impl Into<String>) -> Self {
        let text = text.into();
        Segment { id, text }
    }

    /// Returns the whole text.
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
