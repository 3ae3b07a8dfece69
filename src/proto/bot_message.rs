//! The RTVI messages of a bot that the runner reads on their way to the client: transcripts, turns,
//! answers and figures. Rooms show them, and records of calls keep them.
//!
//! In: the text of a message of the bot. Out: a [`BotMessage`]; anything else is
//! [`BotMessage::Other`]. Source: `docs/spec/rtvi.md` 4, `docs/spec/livekit.md` 5.4 to 5.6.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::rtvi::LABEL;

/// The topic of transcripts: of the text streams in a room, and the label of the messages in which
/// a caller gets those of the bot.
pub const TRANSCRIPTION_TOPIC: &str = "lk.transcription";

/// A message of the bot, as far as the runner reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum BotMessage {
    /// What a caller said.
    UserTranscription {
        text: String,
        /// The identity of the caller, if the bot knows it.
        user_id: String,
        is_final: bool,
    },
    UserStartedSpeaking,
    UserStoppedSpeaking,
    /// What the bot says or shows.
    BotOutput(BotText),
    /// A sentence of the model, for clients without `bot-output`.
    BotTranscription(String),
    /// A word or sentence of the voice.
    VoiceText(String),
    BotInterrupted,
    /// A failure after which the session goes on, or the last.
    Error(String),
    ModelStarted,
    ModelStopped,
    /// The model calls a function of this name.
    FunctionCall(String),
    Metrics(ReportedTimes),
    /// The answer to a message of the application.
    Response {
        id: String,
        data: Value,
    },
    /// The rejection of a message of the application.
    Rejection {
        id: String,
        error: String,
    },
    Other,
}

/// The times that a bot reports, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedTimes {
    /// Until the first result, by the processor that measured them.
    pub first_results: Vec<(String, f64)>,
    pub answer: Option<ReportedAnswer>,
}

/// How long a caller waited for an answer, as the bot measured it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedAnswer {
    /// From the end of the caller's speech to the first sound.
    pub latency: Duration,
    /// Its parts in seconds, in order.
    pub stages: Vec<(String, f64)>,
}

/// A segment of the bot's speech or text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BotText {
    pub text: String,
    pub segment_id: Option<u64>,
    pub will_be_spoken: Option<bool>,
    pub spoken_status: Option<String>,
    pub spoken_progress: Option<SpokenText>,
}

impl BotText {
    /// Returns the part that was spoken so far, or the whole text if it is only shown. `None` for a
    /// segment that is yet to be spoken.
    pub fn delivered(&self) -> Option<&str> {
        match self.spoken_status.as_deref() {
            Some("new") if self.will_be_spoken.unwrap_or(true) => None,
            Some("in-progress") => {
                let progress = self.spoken_progress.as_ref();
                Some(progress.map_or("", |progress| &progress.accumulated_text))
            }
            _ => Some(&self.text),
        }
    }
}

/// The spoken part of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SpokenText {
    pub accumulated_text: String,
}

#[derive(Deserialize)]
struct SentMessage<'a> {
    #[serde(borrow)]
    label: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(default)]
    data: Value,
}

/// Reads a message of the bot.
pub fn read(text: &str) -> BotMessage {
    // Messages of other protocols need no parsing.
    if !text.contains(LABEL) {
        return BotMessage::Other;
    }
    match serde_json::from_str::<SentMessage<'_>>(text) {
        Ok(message) if message.label.as_deref() == Some(LABEL) => rtvi_message(message),
        _ => BotMessage::Other,
    }
}

fn rtvi_message(message: SentMessage<'_>) -> BotMessage {
    let id = message.id.unwrap_or_default().into_owned();
    let mut data = message.data;
    let text = |data: &Value, name: &str| data[name].as_str().unwrap_or_default().to_owned();
    match &*message.kind {
        "user-transcription" => BotMessage::UserTranscription {
            text: text(&data, "text"),
            user_id: text(&data, "user_id"),
            is_final: data["final"] == true,
        },
        "user-started-speaking" => BotMessage::UserStartedSpeaking,
        "user-stopped-speaking" => BotMessage::UserStoppedSpeaking,
        "bot-output" => serde_json::from_value(data).map_or(BotMessage::Other, BotMessage::BotOutput),
        "bot-transcription" => BotMessage::BotTranscription(text(&data, "text")),
        "bot-tts-text" => BotMessage::VoiceText(text(&data, "text")),
        "bot-interrupted" => BotMessage::BotInterrupted,
        "error" => BotMessage::Error(text(&data, "error")),
        "bot-llm-started" => BotMessage::ModelStarted,
        "bot-llm-stopped" => BotMessage::ModelStopped,
        "llm-function-call-in-progress" | "llm-function-call" => BotMessage::FunctionCall(text(&data, "function_name")),
        "metrics" => BotMessage::Metrics(ReportedTimes {
            first_results: times(&data["ttfb"], "processor"),
            answer: answer(&data["answer"]),
        }),
        "server-response" => BotMessage::Response {
            id,
            data: data.get_mut("d").map(Value::take).unwrap_or_default(),
        },
        "error-response" => BotMessage::Rejection {
            id,
            error: text(&data, "error"),
        },
        _ => BotMessage::Other,
    }
}

/// Returns the time of an answer; `None` without one that can be read.
fn answer(value: &Value) -> Option<ReportedAnswer> {
    Some(ReportedAnswer {
        latency: Duration::try_from_secs_f64(value["latency"].as_f64()?).ok()?,
        stages: times(&value["stages"], "name"),
    })
}

/// Returns the names and seconds of a list of `metrics`. Pipecat reports zero for processors that
/// measured nothing.
fn times(list: &Value, name: &str) -> Vec<(String, f64)> {
    let entries = list.as_array().into_iter().flatten();
    entries
        .filter_map(|entry| {
            let seconds = entry["value"].as_f64().filter(|seconds| *seconds > 0.0)?;
            Some((entry[name].as_str()?.to_owned(), seconds))
        })
        .collect()
}

/// Returns the key of a telephone that a text of one character names.
pub fn key(text: &str) -> Option<char> {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => KEYS.chars().find(|key| *key == letter.to_ascii_uppercase()),
        _ => None,
    }
}

/// The keys of a telephone, in the order of their codes (RFC 4733 section 3.2).
pub const KEYS: &str = "0123456789*#ABCD";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rtvi::{AnswerStage, AnswerTime, Measure, Metrics, Segment, ToClient};

    #[test]
    fn reads_what_rtvi_bots_send() {
        let said = |message: ToClient<'_>| read(&message.text());
        assert_eq!(said(ToClient::BotLlmStarted), BotMessage::ModelStarted);
        assert_eq!(said(ToClient::BotLlmStopped), BotMessage::ModelStopped);
        assert_eq!(said(ToClient::BotInterrupted), BotMessage::BotInterrupted);
        assert_eq!(said(ToClient::UserStartedSpeaking), BotMessage::UserStartedSpeaking);
        assert_eq!(said(ToClient::UserStoppedSpeaking), BotMessage::UserStoppedSpeaking);
        assert_eq!(said(ToClient::BotStartedSpeaking), BotMessage::Other);
        let error = ToClient::Error {
            error: "no model",
            fatal: true,
        };
        assert_eq!(said(error), BotMessage::Error("no model".into()));
        let transcription = ToClient::UserTranscription {
            text: "hi",
            user_id: "ann",
            timestamp: "2026-11-21T09:20:06.429+00:00",
            r#final: true,
        };
        assert_eq!(
            said(transcription),
            BotMessage::UserTranscription {
                text: "hi".into(),
                user_id: "ann".into(),
                is_final: true
            }
        );
        let segment = Segment::new(7, "Hello there.");
        let BotMessage::BotOutput(output) = said(ToClient::BotOutput(segment.spoken_to(5, false).expect("progress")))
        else {
            panic!("bot-output")
        };
        assert_eq!(
            (output.segment_id, output.spoken_status.as_deref()),
            (Some(7), Some("in-progress"))
        );
        assert_eq!(output.spoken_progress.expect("progress").accumulated_text, "Hello");
        let d = json!({"n": 1});
        assert_eq!(
            read(&ToClient::ServerResponse { t: "t", d: &d }.answer("rpc-1")),
            BotMessage::Response {
                id: "rpc-1".into(),
                data: d
            }
        );
        assert_eq!(
            read(&ToClient::ErrorResponse { error: "no" }.answer("rpc-2")),
            BotMessage::Rejection {
                id: "rpc-2".into(),
                error: "no".into()
            }
        );
    }

    #[test]
    fn reads_the_time_of_an_answer() {
        let metrics = Metrics {
            ttfb: &[Measure {
                processor: "llm",
                model: None,
                value: 0.25,
            }],
            answer: Some(AnswerTime {
                latency: 1.5,
                stages: &[AnswerStage {
                    name: "first_sound",
                    value: 1.5,
                }],
            }),
            ..Metrics::default()
        };
        let answer = ReportedAnswer {
            latency: Duration::from_millis(1_500),
            stages: vec![("first_sound".to_owned(), 1.5)],
        };
        assert_eq!(
            read(&ToClient::Metrics(&metrics).text()),
            BotMessage::Metrics(ReportedTimes {
                first_results: vec![("llm".to_owned(), 0.25)],
                answer: Some(answer),
            })
        );
        for latency in ["-1", "1e300", "null", r#""1""#] {
            let text = format!(r#"{{"label":"rtvi-ai","type":"metrics","data":{{"answer":{{"latency":{latency}}}}}}}"#);
            assert_eq!(read(&text), BotMessage::Metrics(ReportedTimes::default()), "{latency}");
        }
    }

    /// Words count once they are spoken, and a text that is only shown counts at once.
    #[test]
    fn the_delivered_part_of_a_segment_is_what_was_spoken() {
        for (data, delivered) in [
            (json!({"text": "Hello there."}), Some("Hello there.")),
            (json!({"text": "Hello there.", "spoken_status": "new"}), None),
            (
                json!({"text": "1 + 1", "spoken_status": "new", "will_be_spoken": false}),
                Some("1 + 1"),
            ),
            (
                json!({"text": "Hello there.", "spoken_status": "in-progress"}),
                Some(""),
            ),
            (
                json!({
                    "text": "Hello there.",
                    "spoken_status": "in-progress",
                    "spoken_progress": {"accumulated_text": "Hello"},
                }),
                Some("Hello"),
            ),
            (
                json!({"text": "Hello there.", "spoken_status": "completed"}),
                Some("Hello there."),
            ),
        ] {
            let text: BotText = serde_json::from_value(data.clone()).expect("a segment");
            assert_eq!(text.delivered(), delivered, "{data}");
        }
    }

    #[test]
    fn leaves_everything_else_alone() {
        for text in [
            "",
            "rtvi-ai",
            "[\"rtvi-ai\"]",
            r#"{"label":"rtvi-ai"}"#,
            r#"{"label":7,"type":"bot-llm-started"}"#,
            r#"{"label":"other","type":"bot-llm-started","x":"rtvi-ai"}"#,
            r#"{"type":"bot-llm-started","x":"rtvi-ai"}"#,
            r#"{"label":"rtvi-ai","type":"bot-output","data":7}"#,
            r#"{"label":"rtvi-ai","type":"dtmf","data":{"buttons":["1"]}}"#,
        ] {
            assert_eq!(read(text), BotMessage::Other, "{text}");
        }
    }
}
