//! Provider a: camelCase members, ids that end in `Sid`, numbers as strings, mu-law at 8000 Hz both ways.
//!
//! In: the provider's `start`. Out: the text of `media`, `mark` and `clear`, which are all it takes; each names the stream.
//! The numbers of caller and callee come as parameters of the stream, if the webhook's markup put them there.
//! Refuses: streams in another audio format, which newer markup can ask for.
//! Source: the fact sheet on telephony, section 3.

use serde_json::json;

use super::call::State;
use super::message::{self, Object};
use super::{Call, Format, Provider, Refusal};

/// Events that bring a mark back.
pub(super) const PLAYED: &[&str] = &["mark"];

/// Takes the message if it is this provider's handshake.
pub(super) fn claim(opening: &Object) -> Result<Option<Call>, Refusal> {
    let Some(start) = message::started(opening) else {
        return Ok(None);
    };
    let (Some(stream_id), Some(call_id)) = (message::id(start, "streamSid"), message::id(start, "callSid")) else {
        return Ok(None);
    };
    let parameters = message::object(start, "customParameters");
    let number = |key| parameters.and_then(|parameters| message::text(parameters, key));
    Ok(Some(Call {
        provider: Provider::A,
        rx: heard(start)?,
        tx: Format::ULAW_8000,
        data: json!({
            "stream_id": stream_id,
            "call_id": call_id,
            "from": number("from_number"),
            "to": number("to_number"),
            "body": parameters.cloned().unwrap_or_default(),
        }),
        malformed: 0,
        state: State::new(media_head(&message::quoted(&stream_id))),
        stream_id,
        call_id,
    }))
}

fn heard(start: &Object) -> Result<Format, Refusal> {
    let (encoding, rate_hz) = message::encoding(start, "mediaFormat", "sampleRate", "audio/x-mulaw");
    match (encoding.as_str(), rate_hz) {
        ("audio/x-mulaw", 8_000) => Ok(Format::ULAW_8000),
        _ => Err(Refusal::encoding(&encoding, rate_hz)),
    }
}

// What stands in the texts below is JSON already.

fn media_head(stream_id: &str) -> String {
    format!(r#"{{"event":"media","streamSid":{stream_id},"media":{{"payload":""#)
}

pub(super) fn clear(stream_id: &str) -> String {
    format!(r#"{{"event":"clear","streamSid":{stream_id}}}"#)
}

pub(super) fn mark(stream_id: &str, name: &str) -> String {
    format!(r#"{{"event":"mark","streamSid":{stream_id},"mark":{{"name":{name}}}}}"#)
}
