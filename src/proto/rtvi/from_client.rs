//! RTVI messages of the client: parses text into a typed request, or an error with its reply.
//!
//! In: any text of the channel. Out: a [`Message`]; PCM of `raw-audio` as `i16` mono at its own
//! rate, files as bytes. Rejected, each with Pipecat's reply: an envelope without `id` or `type`,
//! an unknown type (`append-to-context` was removed from the protocol), and invalid data. Source:
//! `docs/spec/rtvi.md` 3.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::{Map, Value};

use super::{LABEL, ToClient, clip};
use crate::base64;
use crate::limits::{
    MESSAGE_BYTES_MAX, RATES_HZ, RTVI_DTMF_KEYS_MAX, RTVI_ECHO_CHARS_MAX, RTVI_ID_BYTES_MAX, RTVI_REASON_CHARS_MAX,
};

/// A message of a client.
#[derive(Debug, PartialEq)]
pub struct Message {
    /// The id of the message; a response has the same.
    pub id: String,
    /// What the client asks for.
    pub request: Request,
}

/// The content of a message.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// The client is ready. A missing or invalid version is `None`, and accepted.
    ClientReady {
        /// Its protocol version, unparsed.
        version: Option<String>,
        /// Its `about`, or null.
        about: Value,
    },
    /// Requests that the bot ends.
    DisconnectBot,
    /// A message of the application.
    ClientMessage(ClientMessage),
    /// Text that the user typed.
    SendText {
        /// The text.
        content: String,
        /// How it is answered.
        options: TextOptions,
    },
    /// Keys of a telephone keypad, in order: `0`-`9`, `*`, `#`.
    Dtmf(Vec<char>),
    /// The result of a function that the client ran for the model.
    FunctionResult(FunctionResult),
    /// Speech of the user in a message.
    RawAudio(RawAudio),
    /// An event on the client's page.
    UiEvent {
        /// The name of the event, defined by the application.
        event: String,
        /// Its data; null if absent.
        payload: Value,
    },
    /// The content of the client's page.
    UiSnapshot {
        /// The elements of the page.
        tree: Map<String, Value>,
    },
    /// Requests the cancellation of a group of jobs.
    UiCancelJobGroup {
        /// The id of the group.
        job_id: String,
        /// Why it is cancelled, if the client says.
        reason: Option<String>,
    },
    /// A file, with text.
    SendFile {
        /// The text.
        content: String,
        /// The file.
        file: ClientFile,
        /// How it is answered.
        options: TextOptions,
    },
}

/// A message of the application, which may be answered.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientMessage {
    /// The id for the response.
    pub id: String,
    /// The type, defined by the application.
    pub t: String,
    /// The data; null if absent.
    pub d: Value,
}

/// Options of typed text and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TextOptions {
    /// Whether to interrupt the bot and answer at once.
    pub run_immediately: bool,
    /// Whether to answer with speech.
    pub audio_response: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions {
            run_immediately: true,
            audio_response: true,
        }
    }
}

/// The result of a function that the client ran.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct FunctionResult {
    /// The name of the function.
    pub function_name: String,
    /// The model's id of the call.
    pub tool_call_id: String,
    /// The arguments of the call.
    pub arguments: Map<String, Value>,
    /// An object or a string.
    #[serde(deserialize_with = "object_or_string")]
    pub result: Value,
}

/// Speech in a message: `i16` mono.
#[derive(Clone, PartialEq, Eq)]
pub struct RawAudio {
    /// The samples.
    pub samples: Vec<i16>,
    /// Samples per second.
    pub rate_hz: u32,
}

impl fmt::Debug for RawAudio {
    /// Omits the samples: speech must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawAudio({} samples at {} Hz)", self.samples.len(), self.rate_hz)
    }
}

/// A file of the client.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ClientFile {
    /// Its media type.
    pub format: String,
    /// Its name, if the client states one.
    pub name: Option<String>,
    /// Its content, or where it is.
    pub source: FileSource,
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum FileSource {
    /// The content itself.
    Bytes {
        /// The bytes of the file.
        #[serde(deserialize_with = "from_base64")]
        bytes: Vec<u8>,
    },
    /// Stated by the client, and not verified.
    Url {
        /// The URL.
        url: String,
    },
}

/// A rejected message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RtviError {
    /// The text is not RTVI.
    NotRtvi,
    /// It has the label, but this member is missing or invalid.
    Envelope(&'static str),
    /// The type is unknown.
    Unsupported {
        /// The id of the message.
        id: String,
        /// Its type.
        kind: String,
    },
    /// The type is known, and its data is invalid.
    Data {
        /// The id of the message.
        id: String,
        /// What is invalid.
        reason: String,
    },
}

impl RtviError {
    /// Returns the reply for the client; `None` if the text is not RTVI.
    pub fn reply(&self) -> Option<String> {
        let error = &self.to_string();
        match self {
            RtviError::NotRtvi => None,
            RtviError::Envelope(_) => Some(ToClient::Error { error, fatal: false }.text()),
            RtviError::Unsupported { id, .. } | RtviError::Data { id, .. } => {
                Some(ToClient::ErrorResponse { error }.answer(id))
            }
        }
    }
}

impl fmt::Display for RtviError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RtviError::NotRtvi => write!(f, "not an RTVI message: no label `{LABEL}`"),
            RtviError::Envelope(reason) => write!(f, "Invalid RTVI transport message: {reason}"),
            RtviError::Unsupported { kind, .. } => write!(f, "Unsupported type {kind}"),
            RtviError::Data { reason, .. } => write!(f, "Invalid message: {reason}"),
        }
    }
}

impl std::error::Error for RtviError {}

/// Parses the text of one message.
///
/// # Errors
/// Returns an [`RtviError`] for every invalid message; [`RtviError::reply`] is its reply.
pub fn parse(text: &str) -> Result<Message, RtviError> {
    // An evaluation may send longer ones, to bots that take them.
    if text.len() > MESSAGE_BYTES_MAX {
        return Err(RtviError::Envelope("the message is too long"));
    }
    let Ok(Value::Object(mut envelope)) = serde_json::from_str(text) else {
        return Err(RtviError::NotRtvi);
    };
    if envelope.get("label").and_then(Value::as_str) != Some(LABEL) {
        return Err(RtviError::NotRtvi);
    }
    let Some(Value::String(id)) = envelope.remove("id") else {
        return Err(RtviError::Envelope("`id` must be a string"));
    };
    if id.len() > RTVI_ID_BYTES_MAX {
        return Err(RtviError::Envelope("`id` is too long"));
    }
    let Some(Value::String(kind)) = envelope.remove("type") else {
        return Err(RtviError::Envelope("`type` must be a string"));
    };
    let data = match envelope.remove("data") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(data)) => data,
        Some(_) => return Err(RtviError::Envelope("`data` must be an object")),
    };
    match request(&id, &kind, data) {
        Some(Ok(request)) => Ok(Message { id, request }),
        Some(Err(error)) => Err(RtviError::Data {
            id,
            reason: clip(&error.to_string(), RTVI_REASON_CHARS_MAX),
        }),
        None => Err(RtviError::Unsupported {
            id,
            kind: clip(&kind, RTVI_ECHO_CHARS_MAX),
        }),
    }
}

/// Parses the data of a message by its type; `None` for an unknown type.
fn request(id: &str, kind: &str, mut data: Map<String, Value>) -> Option<Result<Request, serde_json::Error>> {
    let request = match kind {
        "client-ready" => {
            let version = match data.remove("version") {
                Some(Value::String(version)) => Some(version),
                _ => None,
            };
            let about = data.remove("about").unwrap_or_default();
            Ok(Request::ClientReady { version, about })
        }
        "disconnect-bot" => Ok(Request::DisconnectBot),
        "client-message" => read(data).map(|ApplicationData { t, d }| {
            let id = id.to_owned();
            Request::ClientMessage(ClientMessage { id, t, d })
        }),
        "send-text" => read(data).map(|TextData { content, options }| Request::SendText {
            content,
            options: options.unwrap_or_default(),
        }),
        "dtmf" => read(data).and_then(|DtmfData { buttons }| keys(&buttons).map(Request::Dtmf)),
        "llm-function-call-result" => read(data).map(Request::FunctionResult),
        "raw-audio" | "raw-audio-batch" => read(data)
            .and_then(|audio: AudioData| audio.pcm())
            .map(Request::RawAudio),
        "ui-event" => read(data).map(|UiEventData { event, payload }| Request::UiEvent { event, payload }),
        "ui-snapshot" => read(data).map(|UiSnapshotData { tree }| Request::UiSnapshot { tree }),
        "ui-cancel-job-group" => {
            read(data).map(|UiCancelData { job_id, reason }| Request::UiCancelJobGroup { job_id, reason })
        }
        "send-file" => read(data).map(|FileData { content, file, options }| Request::SendFile {
            content,
            file,
            options: options.unwrap_or_default(),
        }),
        _ => return None,
    };
    Some(request)
}

fn read<T: for<'de> Deserialize<'de>>(data: Map<String, Value>) -> Result<T, serde_json::Error> {
    T::deserialize(Value::Object(data))
}

#[derive(Deserialize)]
struct ApplicationData {
    t: String,
    #[serde(default)]
    d: Value,
}

#[derive(Deserialize)]
struct TextData {
    content: String,
    options: Option<TextOptions>,
}

#[derive(Deserialize)]
struct DtmfData {
    buttons: Vec<String>,
}

/// Validates the keys of a keypad.
fn keys(buttons: &[String]) -> Result<Vec<char>, serde_json::Error> {
    if buttons.is_empty() || buttons.len() > RTVI_DTMF_KEYS_MAX {
        return Err(serde_json::Error::custom(format!(
            "`buttons` must hold 1 to {RTVI_DTMF_KEYS_MAX} keys"
        )));
    }
    let key = |button: &String| match button.as_bytes() {
        [key @ (b'0'..=b'9' | b'*' | b'#')] => Ok(char::from(*key)),
        _ => Err(serde_json::Error::custom("each of `buttons` must be one of 0-9 * #")),
    };
    buttons.iter().map(key).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AudioData {
    base64_audio: Option<String>,
    #[serde(default)]
    base64_audio_batch: Vec<String>,
    sample_rate: u32,
    num_channels: u16,
}

impl AudioData {
    /// Decodes the pieces in order, and mixes their channels into one.
    fn pcm(self) -> Result<RawAudio, serde_json::Error> {
        if !RATES_HZ.contains(&self.sample_rate) {
            return Err(serde_json::Error::custom("`sampleRate` is out of range"));
        }
        if !matches!(self.num_channels, 1 | 2) {
            return Err(serde_json::Error::custom("`numChannels` must be 1 or 2"));
        }
        let channels = usize::from(self.num_channels);
        let mut samples = Vec::new();
        for piece in self.base64_audio.iter().chain(&self.base64_audio_batch) {
            let bytes = base64::decode(piece).ok_or_else(|| serde_json::Error::custom("audio must be base64"))?;
            if bytes.len() % (2 * channels) != 0 {
                return Err(serde_json::Error::custom("audio must be whole 16-bit samples"));
            }
            samples.extend(bytes.chunks_exact(2 * channels).map(|instant| {
                let sum: i32 = instant
                    .chunks_exact(2)
                    .map(|sample| i32::from(i16::from_le_bytes([sample[0], sample[1]])))
                    .sum();
                (sum / i32::from(self.num_channels)) as i16
            }));
        }
        if samples.is_empty() {
            return Err(serde_json::Error::custom(
                "`base64Audio` or `base64AudioBatch` must hold audio",
            ));
        }
        Ok(RawAudio {
            samples,
            rate_hz: self.sample_rate,
        })
    }
}

#[derive(Deserialize)]
struct UiEventData {
    event: String,
    #[serde(default)]
    payload: Value,
}

#[derive(Deserialize)]
struct UiSnapshotData {
    tree: Map<String, Value>,
}

#[derive(Deserialize)]
struct UiCancelData {
    job_id: String,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct FileData {
    content: String,
    file: ClientFile,
    options: Option<TextOptions>,
}

fn object_or_string<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let value = Value::deserialize(deserializer)?;
    match value {
        Value::Object(_) | Value::String(_) => Ok(value),
        _ => Err(D::Error::custom("`result` must be an object or a string")),
    }
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    base64::decode(&text).ok_or_else(|| D::Error::custom("`bytes` must be base64"))
}
