//! The interface of a bot that is a program: its arguments, and the messages that are not the
//! caller's.
//!
//! In: the arguments of a session, telephone keys, marks, and events of a room. Out: the JSON of
//! `RUNNER_ARGUMENTS`, and the JSON of messages beside those of the caller. Arguments that do not
//! fit into an environment variable are rejected. The queues in both directions are
//! [`inbound_queue`] and [`playout_queue`]; [`output_lines`] splits the program's output into log
//! lines, [`last_lines`] keeps those that say why it failed, and [`last_line`] makes them fit to be
//! shown; [`first_line`] finds the interpreter of a script; [`media_query`] is what a program asks
//! of its media; [`warm`] is what one says that is started before its call. Source: Pipecat's
//! runner arguments for the names; the other messages are our own.

pub mod first_line;
pub mod inbound_queue;
pub mod last_line;
pub mod last_lines;
pub mod media_query;
pub mod output_lines;
pub mod playout_queue;
pub mod warm;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::call_control::TransferTarget;
use crate::event::SessionEvent;
use crate::limits::PROCESS_ARGUMENTS_BYTES_MAX;
use crate::participant::Participant;

/// How a bot that is a program exchanges audio with the runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BotAudio {
    /// Protobuf frames over the WebSocket at `media_url`, with texts, keys and marks.
    #[default]
    Protobuf,
    /// 16-bit signed little-endian mono PCM on the program's standard input and output.
    Pcm {
        /// The sample rate of both directions, in Hz.
        rate_hz: u32,
    },
}

/// A bot that is a file in Python.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PythonBot {
    /// The given interpreter; `None` means the one of the nearest environment.
    pub interpreter: Option<PathBuf>,
}

/// Arguments of every kind of session.
pub struct CommonArguments<'a> {
    pub session_id: &'a str,
    pub body: &'a Value,
    pub handle_sigint: bool,
    pub handle_sigterm: bool,
    pub idle_timeout_s: u64,
    /// Whether the sound of the session is recorded.
    pub is_recorded: bool,
    /// Whether operators may listen to the session.
    pub allows_listening: bool,
    /// The media WebSocket of the program; `None` for a kind without media.
    pub media_url: Option<&'a str>,
    /// The folder of what clients upload, and the most files that it has (0: all are kept); `None`
    /// without uploads.
    pub uploads: Option<(&'a Path, usize)>,
}

/// What one kind of session adds to the arguments.
pub struct KindArguments {
    /// The name of the kind.
    pub name: &'static str,
    /// Its members; one without a value is absent.
    pub fields: Vec<(&'static str, Option<Value>)>,
}

impl KindArguments {
    /// A session without a transport.
    pub const BASE: KindArguments = KindArguments {
        name: "base",
        fields: Vec::new(),
    };
}

/// The arguments do not fit into an environment variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentsTooLong {
    bytes: usize,
}

impl fmt::Display for ArgumentsTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "its arguments are {} bytes of JSON, and a program can be given {PROCESS_ARGUMENTS_BYTES_MAX}: send a smaller `body`",
            self.bytes
        )
    }
}

impl std::error::Error for ArgumentsTooLong {}

/// Returns the value of `RUNNER_ARGUMENTS`. Members of other kinds are absent, not null.
///
/// # Errors
/// Returns [`ArgumentsTooLong`], caused by a large request body.
pub fn arguments(common: &CommonArguments<'_>, kind: KindArguments) -> Result<String, ArgumentsTooLong> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("kind", kind.name.into());
    put("session_id", common.session_id.into());
    put("body", common.body.clone());
    put("handle_sigint", common.handle_sigint.into());
    put("handle_sigterm", common.handle_sigterm.into());
    put("idle_timeout", common.idle_timeout_s.into());
    if common.is_recorded {
        put("recorded", true.into());
    }
    if common.allows_listening {
        put("listen_in", true.into());
    }
    for (name, value) in kind.fields {
        if let Some(value) = value {
            put(name, value);
        }
    }
    if let Some(url) = common.media_url {
        put("media_url", url.into());
    }
    if let Some((folder, max_files)) = common.uploads {
        let folder = folder.display().to_string();
        put("uploads", json!({"folder": folder, "max_files": max_files}));
    }
    let text = Value::Object(fields).to_string();
    if text.len() > PROCESS_ARGUMENTS_BYTES_MAX {
        return Err(ArgumentsTooLong { bytes: text.len() });
    }
    Ok(text)
}

/// Returns the message for a mark that was played or dropped.
pub fn mark(name: &str, played: bool) -> String {
    json!({"type": "mark", "name": name, "played": played}).to_string()
}

/// Returns the message for an event; `None` for one that programs do not get.
pub fn event_message(event: SessionEvent) -> Option<String> {
    let message = match event {
        SessionEvent::Message(text) => return Some(text),
        SessionEvent::Mark { name, played } => return Some(mark(&name, played)),
        SessionEvent::Dtmf(digit) => json!({"type": "dtmf", "digit": digit}),
        SessionEvent::ParticipantJoined(who) => participant("participant-joined", &who),
        SessionEvent::ParticipantLeft(who) => participant("participant-left", &who),
        SessionEvent::ParticipantChanged(who) => participant("participant-changed", &who),
        SessionEvent::Muted(muted) => json!({"type": "muted", "muted": muted}),
        SessionEvent::Held => json!({"type": "held"}),
        SessionEvent::Resumed => json!({"type": "resumed"}),
        SessionEvent::Speaking { identity, speaking } => {
            json!({"type": "speaking", "identity": &*identity, "speaking": speaking})
        }
        SessionEvent::AnsweredBy(by) => json!({"type": "answered-by", "by": by.label()}),
        SessionEvent::JoinFailed(why) => json!({"type": "join-failed", "error": why}),
        // A program finds turns itself, and its WebSocket stays open through an outage.
        SessionEvent::Joined
        | SessionEvent::SpeechStarted
        | SessionEvent::SpeechStopped
        | SessionEvent::Lost
        | SessionEvent::Restored
        | SessionEvent::Left(_) => return None,
    };
    Some(message.to_string())
}

fn participant(kind: &str, who: &Participant) -> Value {
    let mut message = json!({
        "type": kind,
        "identity": &*who.identity,
        "name": who.name,
        "agent": who.is_agent,
        "telephone": who.is_telephone,
        "attributes": who.attributes,
    });
    if let Some(call_data) = who.call_data() {
        message["call_data"] = call_data;
    }
    message
}

/// Returns the message for what became of a request about the call.
pub fn call_answer(request: &CallRequest, result: &Result<(), String>) -> String {
    let kind = match request {
        CallRequest::Transfer { .. } => "transfer",
        CallRequest::Keys(_) => "keys",
    };
    answer(kind, result)
}

/// Returns the message for what became of a prompt.
pub fn speak_answer(result: &Result<(), String>) -> String {
    answer("speak", result)
}

fn answer(kind: &str, result: &Result<(), String>) -> String {
    match result {
        Ok(()) => json!({"type": kind, "done": true}),
        Err(why) => json!({"type": kind, "done": false, "error": why}),
    }
    .to_string()
}

/// What a message of the bot asks of the runner.
#[derive(Clone, PartialEq, Eq)]
pub enum ProgramRequest {
    /// Set a mark of this name.
    Mark(String),
    /// End the session for this reason, once all speech was played.
    HangUp(String),
    /// Speak this text, behind the speech so far.
    Speak(String),
    Call(CallRequest),
}

/// What a bot asks of the provider of its telephone call.
#[derive(Clone, PartialEq, Eq)]
pub enum CallRequest {
    /// Transfer the call to a number, a SIP address or a URL.
    Transfer {
        to: String,
        /// Whether it waits for the speech before it; otherwise it cuts that speech.
        after_speech: bool,
    },
    /// Send keys to the caller's end.
    Keys(String),
}

impl CallRequest {
    /// Returns whether the speech before the request is dropped: it transfers the call at once, to
    /// a target that can be dialled.
    pub fn cuts_speech(&self) -> bool {
        matches!(self, CallRequest::Transfer { to, after_speech: false } if TransferTarget::parse(to).is_ok())
    }
}

/// Returns the request in a message of the bot; `None` for a message to the caller.
///
/// A message with a label belongs to another protocol, even with the same type.
pub fn parse_request(text: &str) -> Option<ProgramRequest> {
    #[derive(Deserialize)]
    struct Asked<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        name: Option<String>,
        text: Option<String>,
        reason: Option<String>,
        to: Option<String>,
        after_speech: Option<bool>,
        keys: Option<String>,
        label: Option<IgnoredAny>,
    }
    // Most messages need no parsing.
    if !["mark", "hang-up", "transfer", "keys", "speak"]
        .into_iter()
        .any(|kind| text.contains(kind))
    {
        return None;
    }
    let asked: Asked<'_> = serde_json::from_str(text).ok()?;
    if asked.label.is_some() {
        return None;
    }
    match &*asked.kind {
        "mark" => asked.name.map(ProgramRequest::Mark),
        "hang-up" => Some(ProgramRequest::HangUp(asked.reason.unwrap_or_default())),
        "transfer" => asked.to.map(|to| {
            ProgramRequest::Call(CallRequest::Transfer {
                to,
                after_speech: asked.after_speech.unwrap_or(true),
            })
        }),
        "speak" => asked.text.map(ProgramRequest::Speak),
        "keys" => asked.keys.map(|keys| ProgramRequest::Call(CallRequest::Keys(keys))),
        _ => None,
    }
}

/// Returns the script among the arguments of an interpreter: the first argument, if its name says
/// so.
pub fn script(arguments: &[OsString]) -> Option<&OsStr> {
    let first = arguments.first()?;
    let extension = Path::new(first).extension()?.to_str()?;
    let is_option = first.as_encoded_bytes().starts_with(b"-");
    (!is_option && ["py", "js", "mjs", "cjs", "ts", "rb", "pl", "sh"].contains(&extension)).then_some(first)
}

#[cfg(test)]
mod tests;
