//! Provider c: camelCase members, ids that end in `Id`, numbers as numbers, `start` as the very first message.
//!
//! In: the provider's `start`, whose format the markup chose, with the parameters of the call as one text. Out: the text of
//! `playAudio`, `checkpoint` and `clearAudio`; audio is mu-law at 8000 Hz, as the runner's markup asks for.
//! The answer to a checkpoint is `playedStream`; one support page of the provider calls it `played`.
//! Refuses: formats that the provider's markup cannot choose. Source: the fact sheet on telephony, section 5.

use serde_json::{Value, json};

use super::call::State;
use super::message::{self, Object};
use super::{Call, Codec, Format, Provider, Refusal};

/// Events that bring a mark back.
pub(super) const PLAYED: &[&str] = &["playedStream", "played"];

/// Takes the message if it is this provider's handshake.
pub(super) fn claim(opening: &Object) -> Result<Option<Call>, Refusal> {
    let Some(start) = message::object(opening, "start") else {
        return Ok(None);
    };
    let (Some(stream_id), Some(call_id)) = (message::id(start, "streamId"), message::id(start, "callId")) else {
        return Ok(None);
    };
    Ok(Some(Call {
        provider: Provider::C,
        rx: heard(start)?,
        tx: Format::ULAW_8000,
        data: json!({
            "stream_id": stream_id,
            "call_id": call_id,
            "from": null,
            "to": null,
            "body": opening.get("extra_headers").map(parameters).unwrap_or_default(),
        }),
        malformed: 0,
        state: State::new(media_head(&message::quoted(&stream_id))),
        stream_id,
        call_id,
    }))
}

fn heard(start: &Object) -> Result<Format, Refusal> {
    let (encoding, rate_hz) = message::encoding(start, "mediaFormat", "sampleRate", "audio/x-mulaw");
    let l16 = |rate_hz| Format {
        codec: Codec::L16,
        rate_hz,
    };
    match (encoding.as_str(), rate_hz) {
        ("audio/x-mulaw", 8_000) => Ok(Format::ULAW_8000),
        ("audio/x-l16", 8_000) => Ok(l16(8_000)),
        ("audio/x-l16", 16_000) => Ok(l16(16_000)),
        _ => Err(Refusal::encoding(&encoding, rate_hz)),
    }
}

/// Reads the parameters that the markup gave the stream: an object, the text of one, or `k=v` pairs between `,` or `;`.
fn parameters(extra_headers: &Value) -> Object {
    let text = match extra_headers {
        Value::Object(object) => return object.clone(),
        Value::String(text) => text.trim(),
        _ => return Object::new(),
    };
    if text.starts_with('{') {
        return serde_json::from_str(text).unwrap_or_default();
    }
    text.split([',', ';'])
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.trim().to_string(), Value::from(value.trim())))
        .collect()
}

// What stands in the texts below is JSON already.

fn media_head(stream_id: &str) -> String {
    format!(
        r#"{{"event":"playAudio","streamId":{stream_id},"media":{{"contentType":"audio/x-mulaw","sampleRate":8000,"payload":""#
    )
}

pub(super) fn clear(stream_id: &str) -> String {
    format!(r#"{{"event":"clearAudio","streamId":{stream_id}}}"#)
}

pub(super) fn mark(stream_id: &str, name: &str) -> String {
    format!(r#"{{"event":"checkpoint","streamId":{stream_id},"name":{name}}}"#)
}
