//! RTVI messages of the client: text becomes a typed request, or an error with its reply.
//!
//! In: any text of the channel. Out: a [`Message`]; PCM of `raw-audio` as `i16` mono at its own
//! rate, files as bytes. Rejected, each with the reference's reply: an envelope without `id` or
//! `type`, an unknown type (`append-to-context` was removed from the protocol), and data of the
//! wrong shape. Source: `docs/spec/rtvi.md` 3.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::{Map, Value};

use super::{LABEL, ToClient, base64, clip};
use crate::limits::{RATES_HZ, RTVI_DTMF_KEYS_MAX, RTVI_ECHO_CHARS_MAX, RTVI_ID_BYTES_MAX, RTVI_REASON_CHARS_MAX};

/// One message of a client.
#[derive(Debug, PartialEq)]
pub struct Message {
    /// The client's name for the message; an answer carries the same.
    pub id: String,
    pub request: Request,
}

/// What a client asks for or reports.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// The client can be talked to. A missing or malformed version is `None`, and so is no reason
    /// to refuse it.
    ClientReady { version: Option<String>, about: Value },
    /// The bot shall end.
    DisconnectBot,
    /// A message of the application.
    ClientMessage(ClientMessage),
    /// Text that the user typed.
    SendText { content: String, options: TextOptions },
    /// Keys of a telephone keypad, in order: each one of `0`-`9`, `*`, `#`.
    Dtmf(Vec<char>),
    /// The result of a function that the client ran for the model.
    FunctionResult(FunctionResult),
    /// Speech of the user that came as a message.
    RawAudio(RawAudio),
    /// Something happened on the client's page.
    UiEvent { event: String, payload: Value },
    /// What the client's page shows.
    UiSnapshot { tree: Map<String, Value> },
    /// A group of jobs shall be given up.
    UiCancelJobGroup { job_id: String, reason: Option<String> },
    /// A file, with text to go with it.
    SendFile {
        content: String,
        file: ClientFile,
        options: TextOptions,
    },
}

/// A message of the application, which may be answered.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientMessage {
    /// The name that the answer must carry.
    pub id: String,
    /// The application's name for this kind of message.
    pub t: String,
    /// What came with it; null when there was nothing.
    pub d: Value,
}

/// How typed text and files are to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TextOptions {
    /// Interrupt the bot and answer at once.
    pub run_immediately: bool,
    /// Answer aloud.
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
    pub function_name: String,
    pub tool_call_id: String,
    pub arguments: Map<String, Value>,
    /// An object or a string.
    #[serde(deserialize_with = "object_or_string")]
    pub result: Value,
}

/// Speech that came as a message: `i16` mono.
#[derive(Clone, PartialEq, Eq)]
pub struct RawAudio {
    pub samples: Vec<i16>,
    pub rate_hz: u32,
}

impl fmt::Debug for RawAudio {
    /// Speech never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawAudio({} samples at {} Hz)", self.samples.len(), self.rate_hz)
    }
}

/// A file of the client.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ClientFile {
    /// Its media type.
    pub format: String,
    pub name: Option<String>,
    pub source: FileSource,
}

/// Where the content of a file is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum FileSource {
    Bytes {
        #[serde(deserialize_with = "from_base64")]
        bytes: Vec<u8>,
    },
    /// As the client states it; not verified.
    Url { url: String },
}

/// Why a text is no message that a bot gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RtviError {
    /// Something else than RTVI.
    NotRtvi,
    /// It has the label, but what is named here is missing or wrong.
    Envelope(&'static str),
    /// The type is none that this runner knows.
    Unsupported { id: String, kind: String },
    /// The type is known, and its data is wrong.
    Data { id: String, reason: String },
}

impl RtviError {
    /// Returns the reply that the client gets; none for what is not RTVI.
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

/// Reads the text of one message.
///
/// # Errors
/// [`RtviError`] for every text that no bot should see; [`RtviError::reply`] is what to send back.
pub fn parse(text: &str) -> Result<Message, RtviError> {
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

/// Reads the data of a message by its type; `None` for a type that is not known.
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

/// Checks the keys of a keypad, in order.
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
    /// Decodes the pieces in order and mixes their channels into one.
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
