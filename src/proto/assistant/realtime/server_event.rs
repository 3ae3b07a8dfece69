//! Events of a speech-to-speech service.
//!
//! In: one text frame. Out: a [`ServerEvent`]; `None` for text that is no event, and for events
//! that change nothing here, which servers add at will. Names of the generally available protocol
//! and of the older one are understood alike.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::assistant::report::{ResponseStatus, TokenUsage};
use crate::base64;

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
    fn of(value: Option<&RawValue>) -> Option<Self> {
        let [call_id, name, arguments] = fields(value, ["call_id", "name", "arguments"]);
        Some(CalledFunction {
            call_id: string(call_id)?,
            name: string(name).unwrap_or_default(),
            arguments: match arguments {
                // Some servers send an object.
                Some(object) if object.get().starts_with('{') => object.get().to_owned(),
                arguments => string(arguments).unwrap_or_default(),
            },
        })
    }

    /// Reads an item, unless it is another one or its call was cut off.
    fn of_item(item: &RawValue) -> Option<Self> {
        let [kind, status] = fields(Some(item), ["type", "status"]);
        let is_call = string(kind)? == "function_call" && string(status).as_deref() != Some("incomplete");
        is_call.then(|| Self::of(Some(item))).flatten()
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
    /// Reads an error; anything but an object has no names.
    fn of(error: Option<&RawValue>) -> Self {
        let [code, kind, event_id] = fields(error, ["code", "type", "event_id"]);
        let name = |field| {
            // A name and no sentence: it may reach the log.
            string(field).filter(|text| {
                text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
            })
        };
        ErrorNames {
            code: name(code),
            kind: name(kind),
            event_id: name(event_id),
        }
    }
}

/// Reads fields of an object, as text of the frame: an event of any shape takes no memory beyond
/// what is kept of it. Those of another type than an object are absent.
fn fields<'a, const N: usize>(value: Option<&'a RawValue>, names: [&'static str; N]) -> [Option<&'a RawValue>; N] {
    let mut found = [None; N];
    if let Some(value) = value {
        read_fields(value.get(), &names, &mut found);
    }
    found
}

/// Not generic, so that its code exists once.
fn read_fields<'a>(text: &'a str, names: &[&'static str], found: &mut [Option<&'a RawValue>]) {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // The text is valid JSON, so this fails for anything but an object.
    let _ = deserializer.deserialize_map(FieldsVisitor { names, found });
}

struct FieldsVisitor<'n, 'f, 'a> {
    names: &'n [&'static str],
    found: &'f mut [Option<&'a RawValue>],
}

impl<'a> Visitor<'a> for FieldsVisitor<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<Cow<'a, str>>()? {
            match self.names.iter().position(|wanted| *wanted == name) {
                Some(at) => self.found[at] = Some(members.next_value()?),
                None => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Reads a string; `None` for another type.
fn string(value: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(value?.get()).ok()
}

/// Reads a count; 0 for anything else.
fn count(value: Option<&RawValue>) -> u64 {
    value
        .and_then(|value| serde_json::from_str(value.get()).ok())
        .unwrap_or_default()
}

/// The calls among the items of a response. Other items are not kept.
#[derive(Default)]
struct OutputCalls(Vec<CalledFunction>);

impl<'de> Deserialize<'de> for OutputCalls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(OutputVisitor)
    }
}

struct OutputVisitor;

impl<'de> Visitor<'de> for OutputVisitor {
    type Value = OutputCalls;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a response")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OutputCalls, A::Error> {
        let mut calls = Vec::new();
        while let Some(item) = items.next_element::<&RawValue>()? {
            calls.extend(CalledFunction::of_item(item));
        }
        Ok(OutputCalls(calls))
    }
}

/// Returns the code in the body of a refused upgrade.
pub fn refusal_code(body: &[u8]) -> Option<String> {
    let body: &RawValue = serde_json::from_slice(body).ok()?;
    let [error] = fields(Some(body), ["error"]);
    let names = ErrorNames::of(error.or(Some(body)));
    names.code.or(names.kind)
}

/// Parses an event, and returns it with its type.
pub fn parse(text: &str) -> Option<ServerEvent> {
    let frame: &RawValue = serde_json::from_str(text).ok()?;
    let names = [
        "type",
        "item_id",
        "response_id",
        "content_index",
        "delta",
        "transcript",
        "response",
        "item",
        "error",
    ];
    let [
        kind,
        item_id,
        response_id,
        content_index,
        delta,
        transcript,
        response,
        item,
        error,
    ] = fields(Some(frame), names);
    let text = |field| string(field).unwrap_or_default();
    Some(match &*string(kind)? {
        "session.created" => ServerEvent::SessionCreated,
        "session.updated" => ServerEvent::SessionUpdated,
        "input_audio_buffer.speech_started" => ServerEvent::SpeechStarted,
        "input_audio_buffer.speech_stopped" => ServerEvent::SpeechStopped,
        "conversation.item.input_audio_transcription.delta" => ServerEvent::Transcript {
            item_id: text(item_id),
            text: text(delta),
            is_final: false,
        },
        "conversation.item.input_audio_transcription.completed" => ServerEvent::Transcript {
            item_id: text(item_id),
            text: text(transcript),
            is_final: true,
        },
        "response.created" => ServerEvent::ResponseCreated {
            id: string(fields(response, ["id"])[0])?,
        },
        "response.output_audio.delta" | "response.audio.delta" => ServerEvent::Audio {
            response_id: text(response_id),
            item_id: text(item_id),
            content_index: count(content_index),
            bytes: base64::decode(&string(delta)?)?,
        },
        "response.output_audio.done" | "response.audio.done" => ServerEvent::AudioDone { item_id: text(item_id) },
        "response.output_audio_transcript.delta" | "response.audio_transcript.delta" => ServerEvent::SpokenText {
            response_id: text(response_id),
            item_id: text(item_id),
            text: text(delta),
        },
        "response.output_text.delta" | "response.text.delta" => ServerEvent::WrittenText {
            response_id: text(response_id),
            text: text(delta),
        },
        "response.function_call_arguments.done" => ServerEvent::FunctionCalled {
            response_id: text(response_id),
            call: CalledFunction::of(Some(frame))?,
        },
        "response.output_item.added" | "response.output_item.done" => ServerEvent::FunctionCalled {
            response_id: text(response_id),
            call: CalledFunction::of_item(item?)?,
        },
        "response.done" => {
            let names = ["id", "status", "usage", "output", "status_details"];
            let [id, status, used, output, details] = fields(response, names);
            ServerEvent::ResponseDone {
                id: string(id)?,
                status: ResponseStatus::parse(&text(status)),
                usage: usage(used),
                calls: output
                    .and_then(|items| serde_json::from_str::<OutputCalls>(items.get()).ok())
                    .unwrap_or_default()
                    .0,
                error: ErrorNames::of(fields(details, ["error"])[0]),
            }
        }
        "error" => ServerEvent::Failed(ErrorNames::of(error)),
        _ => return None,
    })
}

fn usage(usage: Option<&RawValue>) -> TokenUsage {
    let names = ["input_tokens", "output_tokens", "total_tokens", "input_token_details"];
    let [input, output, total, details] = fields(usage, names);
    TokenUsage {
        input: count(input),
        output: count(output),
        cached: count(fields(details, ["cached_tokens"])[0]),
        total: count(total),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
    fn fields_of_other_types_count_as_absent() {
        let delta = json!({"type": "response.text.delta", "response_id": 5, "delta": null, "other": [{}]});
        let expected = ServerEvent::WrittenText {
            response_id: String::new(),
            text: String::new(),
        };
        assert_eq!(event(delta), Some(expected));
        let done = json!({"type": "response.done", "response": {"id": "r", "usage": [1], "output": {}, "status_details": 1,
            "status": 0}});
        let expected = ServerEvent::ResponseDone {
            id: "r".into(),
            status: ResponseStatus::parse(""),
            usage: TokenUsage::default(),
            calls: Vec::new(),
            error: ErrorNames::default(),
        };
        assert_eq!(event(done), Some(expected));
        let usage = json!({"input_tokens": 7, "output_tokens": -1, "input_token_details": {"cached_tokens": 3}});
        let done = json!({"type": "response.done", "response": {"id": "r", "usage": usage}});
        let Some(ServerEvent::ResponseDone { usage, .. }) = event(done) else {
            panic!("the end of a response")
        };
        assert_eq!((usage.input, usage.output, usage.cached), (7, 0, 3));
    }

    #[test]
    fn what_is_no_event_is_ignored() {
        for text in [
            r#"["error"]"#,
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
