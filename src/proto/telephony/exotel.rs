//! Exotel: snake_case members, ids that end in `_sid`, numbers as strings, PCM in large chunks.
//!
//! In: the provider's `start`, whose rate the URL selected. Out: the text of `media`, `mark` and
//! `clear`, each with the stream's id; audio has the format of the inbound side. The provider
//! accepts chunks of 3200 bytes to 100 kB in steps of 320 bytes. It signs nothing, uses no markup,
//! and ends a call when the socket closes. Rates that the provider does not offer are rejected.
//! Source: `docs/spec/telephony.md` 6.

use std::time::Duration;

use serde_json::{Value, json};

use super::call::StreamStart;
use super::message;
use super::provider::{Object, Protocol, Provider, StreamDialect, built};
use super::webhook::WebhookReply;
use super::{ChunkLimits, MediaFormat, StreamError, TelephonyCall, TelephonyCodec};
use crate::call_control::TransferTarget;

const STEP_BYTES: u32 = 320;
const CHUNK_BYTES_MIN: u32 = 3_200;
const CHUNK_MS_MIN: u32 = 100;

pub static EXOTEL: Provider = Provider {
    name: "exotel",
    settings: &[],
    hangs_up_with: &[],
    verifies_with: &[],
    signs_upgrades: false,
    takes_markup: false,
    url_names_bot: false,
    call_field: "CallSid",
    mark_events: &["mark"],
    returns_cleared: false,
    call_over_codes: &[],
    dialect: StreamDialect {
        opening: &[
            r#"{"event":"connected"}"#,
            r#"{"event":"start","sequence_number":"1","stream_sid":"{stream}","start":{"stream_sid":"{stream}","call_sid":"{call}","account_sid":"account","from":"{from}","to":"{to}","custom_parameters":{},"media_format":{"encoding":"audio/x-raw","sample_rate":"8000","bit_rate":"16"}}}"#,
        ],
        stream_prefix: "s-",
        call_prefix: "c-",
        stream_member: "stream_sid",
        call_member: "call_sid",
        sequence_member: "sequence_number",
        has_numbers: false,
        is_pcm: true,
        message_ms: 100,
    },
    protocol: built(&Exotel),
};

struct Exotel;

impl Protocol for Exotel {
    fn claim(&self, opening: &Object) -> Result<Option<TelephonyCall>, StreamError> {
        let Some(start) = message::started(opening) else {
            return Ok(None);
        };
        let (Some(stream_id), Some(call_id), Some(account_sid)) = (
            message::id(start, "stream_sid"),
            message::id(start, "call_sid"),
            message::id(start, "account_sid"),
        ) else {
            return Ok(None);
        };
        let format = inbound_format(start)?;
        Ok(Some(TelephonyCall::new(
            &EXOTEL,
            StreamStart {
                rx: format,
                tx: format,
                data: json!({
                    "stream_id": stream_id,
                    "call_id": call_id,
                    "account_sid": account_sid,
                    "from": message::text(start, "from").unwrap_or_default(),
                    "to": message::text(start, "to").unwrap_or_default(),
                    "body": message::object(start, "custom_parameters").cloned().unwrap_or_default(),
                    "custom_parameters": match start.get("custom_parameters") {
                        Some(given @ (Value::Object(_) | Value::String(_))) => given.clone(),
                        _ => Value::from(""),
                    },
                }),
                media_head: media_head(&message::quoted(&stream_id)),
                in_order: true,
                has_byte_order: true,
                stream_id,
                call_id,
            },
        )))
    }

    /// Whole milliseconds, so that a step is a whole number of bytes at every rate.
    fn chunk(&self, format: MediaFormat) -> ChunkLimits {
        let bytes_per_ms = format.rate_hz / 1_000 * format.codec.width() as u32;
        let multiple_ms = [20, 40]
            .into_iter()
            .find(|ms: &u32| (ms * bytes_per_ms).is_multiple_of(STEP_BYTES))
            .expect("40 ms are whole steps at 8000, 16000 and 24000 Hz, one byte or two per sample");
        let length_ms = CHUNK_BYTES_MIN
            .div_ceil(bytes_per_ms)
            .max(CHUNK_MS_MIN)
            .next_multiple_of(multiple_ms);
        ChunkLimits {
            length: Duration::from_millis(length_ms.into()),
            multiple: Duration::from_millis(multiple_ms.into()),
        }
    }

    fn transfer_alternative(&self, _target: &TransferTarget) -> Option<&'static str> {
        Some("end the session, and its flow goes on")
    }

    fn clear(&self, stream_id: &str) -> String {
        format!(r#"{{"event":"clear","stream_sid":{stream_id}}}"#)
    }

    fn mark(&self, stream_id: &str, name: &str) -> String {
        format!(r#"{{"event":"mark","stream_sid":{stream_id},"mark":{{"name":{name}}}}}"#)
    }

    /// Returns the URL for a provider that calls the runner by `https`, and a hint for the person
    /// who configures it.
    fn reply(&self, socket_url: &str, _body: &[u8]) -> WebhookReply {
        let body = json!({
            "error": format!("{} does not use this webhook", EXOTEL.wire_name()),
            "websocket_url": socket_url,
            "note": "Set websocket_url as the address of the Voicebot applet in the provider's flow editor.",
            "url": socket_url,
        });
        WebhookReply {
            content_type: "application/json",
            body: body.to_string(),
        }
    }
}

fn inbound_format(start: &Object) -> Result<MediaFormat, StreamError> {
    let (encoding, rate_hz) = message::encoding(start, "media_format", "sample_rate", "audio/x-raw");
    // The provider has several names for PCM.
    let codec = match encoding.as_str() {
        "audio/x-mulaw" => TelephonyCodec::Ulaw,
        _ => TelephonyCodec::L16,
    };
    match rate_hz {
        8_000 => Ok(MediaFormat { codec, rate_hz: 8_000 }),
        16_000 => Ok(MediaFormat { codec, rate_hz: 16_000 }),
        24_000 => Ok(MediaFormat { codec, rate_hz: 24_000 }),
        _ => Err(StreamError::encoding(&encoding, rate_hz)),
    }
}

/// Returns the start of a message with audio. The id is JSON already.
fn media_head(stream_id: &str) -> String {
    format!(r#"{{"event":"media","stream_sid":{stream_id},"media":{{"payload":""#)
}
