//! Events of a speech-to-speech service.
//!
//! In: one text frame. Out: a [`ServerEvent`]; `None` for text that is no event, and for events
//! that change nothing here, which servers add at will. Names of the generally available protocol
//! and of the older one are understood alike.

use serde_json::Value;

use crate::assistant::report::{ResponseStatus, TokenUsage};
use crate::rtvi::base64;

/// An event of the service.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerEvent {
    SessionCreated,
    SessionUpdated,
    SpeechStarted,
    SpeechStopped,
    /// A part of what the caller said, or all of it.
    Transcript {
        item_id: String,
        text: String,
        is_final: bool,
    },
    ResponseCreated {
        id: String,
    },
    Audio {
        response_id: String,
        item_id: String,
        content_index: u64,
        bytes: Vec<u8>,
    },
    AudioDone {
        item_id: String,
    },
    /// A part of the words of the speech.
    SpokenText {
        response_id: String,
        item_id: String,
        text: String,
    },
    /// A part of an answer without speech.
    WrittenText {
        response_id: String,
        text: String,
    },
    /// What is known of a call of a function.
    FunctionCalled {
        response_id: String,
        call: CalledFunction,
    },
    ResponseDone {
        id: String,
        status: ResponseStatus,
        usage: TokenUsage,
        /// All calls of functions, where the service repeats them.
        calls: Vec<CalledFunction>,
        /// Names of the error of a failed response.
        error: ErrorNames,
    },
    Failed(ErrorNames),
}

/// A call of a function. What an event does not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalledFunction {
    pub call_id: String,
    pub name: String,
    /// A JSON object as text.
    pub arguments: String,
}

impl CalledFunction {
    /// Reads the fields of an event, or of an item.
    fn of(fields: &Value) -> Option<Self> {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(CalledFunction {
            call_id: fields.get("call_id")?.as_str()?.to_owned(),
            name: text("name"),
            arguments: match fields.get("arguments") {
                // Some servers send an object.
                Some(arguments @ Value::Object(_)) => arguments.to_string(),
                _ => text("arguments"),
            },
        })
    }

    /// Reads an item, unless it is another one or its call was cut off.
    fn of_item(item: &Value) -> Option<Self> {
        let is_call = item["type"] == "function_call" && item["status"] != "incomplete";
        is_call.then(|| Self::of(item)).flatten()
    }
}

/// The names in an error. Its message is not kept: it quotes what was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorNames {
    pub code: Option<String>,
    pub kind: Option<String>,
    /// The id of our event that the error is about.
    pub event_id: Option<String>,
}

impl ErrorNames {
    fn of(error: &Value) -> Self {
        let name = |name: &str| {
            let text = error.get(name)?.as_str()?;
            // A name and no sentence: it may reach the log.
            let is_name = text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
            is_name.then(|| text.to_owned())
        };
        ErrorNames {
            code: name("code"),
            kind: name("type"),
            event_id: name("event_id"),
        }
    }
}

/// Returns the code in the body of a refused upgrade.
pub fn refusal_code(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let names = ErrorNames::of(body.get("error").unwrap_or(&body));
    names.code.or(names.kind)
}

/// Parses an event, and returns it with its type.
pub fn parse(text: &str) -> Option<ServerEvent> {
    let event: Value = serde_json::from_str(text).ok()?;
    let kind = event.get("type")?.as_str()?;
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(match kind {
        "session.created" => ServerEvent::SessionCreated,
        "session.updated" => ServerEvent::SessionUpdated,
        "input_audio_buffer.speech_started" => ServerEvent::SpeechStarted,
        "input_audio_buffer.speech_stopped" => ServerEvent::SpeechStopped,
        "conversation.item.input_audio_transcription.delta" => ServerEvent::Transcript {
            item_id: text("item_id"),
            text: text("delta"),
            is_final: false,
        },
        "conversation.item.input_audio_transcription.completed" => ServerEvent::Transcript {
            item_id: text("item_id"),
            text: text("transcript"),
            is_final: true,
        },
        "response.created" => ServerEvent::ResponseCreated {
            id: event.pointer("/response/id")?.as_str()?.to_owned(),
        },
        "response.output_audio.delta" | "response.audio.delta" => ServerEvent::Audio {
            response_id: text("response_id"),
            item_id: text("item_id"),
            content_index: event.get("content_index").and_then(Value::as_u64).unwrap_or_default(),
            bytes: base64::decode(event.get("delta")?.as_str()?)?,
        },
        "response.output_audio.done" | "response.audio.done" => ServerEvent::AudioDone {
            item_id: text("item_id"),
        },
        "response.output_audio_transcript.delta" | "response.audio_transcript.delta" => ServerEvent::SpokenText {
            response_id: text("response_id"),
            item_id: text("item_id"),
            text: text("delta"),
        },
        "response.output_text.delta" | "response.text.delta" => ServerEvent::WrittenText {
            response_id: text("response_id"),
            text: text("delta"),
        },
        "response.function_call_arguments.done" => ServerEvent::FunctionCalled {
            response_id: text("response_id"),
            call: CalledFunction::of(&event)?,
        },
        "response.output_item.added" | "response.output_item.done" => ServerEvent::FunctionCalled {
            response_id: text("response_id"),
            call: CalledFunction::of_item(event.get("item")?)?,
        },
        "response.done" => {
            let response = event.get("response")?;
            ServerEvent::ResponseDone {
                id: response.get("id")?.as_str()?.to_owned(),
                status: ResponseStatus::parse(response["status"].as_str().unwrap_or_default()),
                usage: usage(&response["usage"]),
                calls: response["output"].as_array().map_or_else(Vec::new, |items| {
                    items.iter().filter_map(CalledFunction::of_item).collect()
                }),
                error: ErrorNames::of(&response["status_details"]["error"]),
            }
        }
        "error" => ServerEvent::Failed(ErrorNames::of(event.get("error").unwrap_or(&Value::Null))),
        _ => return None,
    })
}

fn usage(usage: &Value) -> TokenUsage {
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    TokenUsage {
        input: count("/input_tokens"),
        output: count("/output_tokens"),
        cached: count("/input_token_details/cached_tokens"),
        total: count("/total_tokens"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(value: Value) -> Option<ServerEvent> {
        parse(&value.to_string())
    }

    #[test]
    fn both_generations_of_names_are_understood() {
        for kind in ["response.output_audio.delta", "response.audio.delta"] {
            let delta = json!({"type": kind, "response_id": "r", "item_id": "i", "content_index": 1, "delta": "AAE="});
            let expected = ServerEvent::Audio {
                response_id: "r".into(),
                item_id: "i".into(),
                content_index: 1,
                bytes: vec![0, 1],
            };
            assert_eq!(event(delta), Some(expected));
        }
    }

    #[test]
    fn a_function_call_is_read_from_any_event() {
        let call = |name: &str, arguments: &str| CalledFunction {
            call_id: "c".into(),
            name: name.into(),
            arguments: arguments.into(),
        };
        let called = |name, arguments| {
            Some(ServerEvent::FunctionCalled {
                response_id: "r".into(),
                call: call(name, arguments),
            })
        };
        let by_arguments = |arguments: Value| {
            event(
                json!({"type": "response.function_call_arguments.done", "response_id": "r", "call_id": "c",
                "arguments": arguments}),
            )
        };
        assert_eq!(by_arguments(json!("{}")), called("", "{}"));
        assert_eq!(by_arguments(json!({"x": 1})), called("", r#"{"x":1}"#));
        let item = |status: &str, arguments: &str| json!({"type": "function_call", "status": status, "call_id": "c", "name": "f", "arguments": arguments});
        let by_item = |kind: &str, item: Value| event(json!({"type": kind, "response_id": "r", "item": item}));
        let (added, done) = ("response.output_item.added", "response.output_item.done");
        assert_eq!(by_item(added, item("in_progress", "")), called("f", ""));
        assert_eq!(by_item(done, item("completed", "{}")), called("f", "{}"));
        assert_eq!(by_item(done, item("incomplete", "{")), None);
        assert_eq!(by_item(added, json!({"type": "message"})), None);
        let output = json!([item("completed", "{}"), item("incomplete", ""), {"type": "message"}, 5]);
        let by_response = event(json!({"type": "response.done", "response": {"id": "r", "output": output}}));
        let Some(ServerEvent::ResponseDone { calls, .. }) = by_response else {
            panic!("the end of a response")
        };
        assert_eq!(calls, [call("f", "{}")]);
    }

    #[test]
    fn an_error_keeps_names_and_no_message() {
        let error = json!({"type": "error", "error": {"type": "invalid_request_error", "code": "invalid_api_key",
            "message": "Incorrect key: sk-1", "event_id": "u1"}});
        let Some(ServerEvent::Failed(names)) = event(error) else {
            panic!("an error")
        };
        assert_eq!(names.code.as_deref(), Some("invalid_api_key"));
        assert_eq!(names.event_id.as_deref(), Some("u1"));
        let sentence = json!({"type": "error", "error": {"code": "what was said: hello"}});
        assert_eq!(event(sentence), Some(ServerEvent::Failed(ErrorNames::default())));
        assert_eq!(
            refusal_code(br#"{"error":{"code":"insufficient_quota"}}"#).as_deref(),
            Some("insufficient_quota")
        );
        assert_eq!(refusal_code(b"no JSON"), None);
    }

    #[test]
    fn what_is_no_event_is_ignored() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"type":1}"#,
            r#"{"type":"response.done"}"#,
            r#"{"type":"rate_limits.updated"}"#,
            r#"{"type":"response.audio.delta","delta":"?"}"#,
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
