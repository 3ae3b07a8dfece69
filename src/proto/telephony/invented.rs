//! An invented provider, for tests that show how a provider is added.
//!
//! It is one file with one [`Provider`], and one line in a list, [`WITH_EXAMPLE`]. It differs from
//! the others in its handshake, its codec (A-law at 16000 Hz both ways), its messages, its API, its
//! signature (HMAC-SHA256 of the body) and its settings.

use serde_json::json;

use super::call::StreamStart;
use super::message;
use super::provider::{Object, Protocol, Provider, StreamDialect, built};
use super::settings::Settings;
use super::settings::{Holds, Setting};
use super::signature::{SignatureError, SignatureStatus, WebhookRequest, base64, is_hmac_sha256, verified};
use super::webhook::{WebhookReply, markup};
use super::{ChunkLimits, MediaFormat, PROVIDERS, StreamError, TelephonyCall, TelephonyCodec};
use crate::server::rest::{RestMethod, RestRequest, bearer};
use crate::xml::escaped;

/// The providers of a build that includes it.
pub const WITH_EXAMPLE: [&Provider; 5] = [PROVIDERS[0], PROVIDERS[1], PROVIDERS[2], PROVIDERS[3], &INVENTED];

const KEY: &str = "QUINTEL_KEY";
const API: Setting = Setting::base("QUINTEL_API_URL", "https://api.quintel.example");
const SIGNATURE: &str = "x-quintel-signature";
const FORMAT: MediaFormat = MediaFormat {
    codec: TelephonyCodec::Alaw,
    rate_hz: 16_000,
};

pub static INVENTED: Provider = Provider {
    name: "quintel",
    settings: &[
        Setting {
            name: KEY,
            holds: Holds::Secret,
            help: "Key of {}, to hang calls up and verify webhooks.",
        },
        API,
    ],
    hangs_up_with: &[KEY],
    verifies_with: &[KEY],
    signs_upgrades: false,
    takes_markup: true,
    url_names_bot: false,
    call_field: "leg",
    mark_events: &["echo"],
    returns_cleared: true,
    call_over_codes: &[(410, "7")],
    dialect: StreamDialect {
        opening: &[r#"{"event":"line","line":"{stream}","leg":"{call}"}"#],
        stream_prefix: "",
        call_prefix: "",
        stream_member: "line",
        call_member: "leg",
        sequence_member: "count",
        has_numbers: true,
        is_pcm: false,
        message_ms: 20,
    },
    protocol: built(&Quintel),
};

struct Quintel;

impl Protocol for Quintel {
    fn claim(&self, opening: &Object) -> Result<Option<TelephonyCall>, StreamError> {
        let (Some(stream_id), Some(call_id)) = (message::id(opening, "line"), message::id(opening, "leg")) else {
            return Ok(None);
        };
        if message::text(opening, "codec").is_some_and(|codec| codec != "alaw16") {
            return Err(StreamError::encoding("of the line", 16_000));
        }
        Ok(Some(TelephonyCall::new(
            &INVENTED,
            StreamStart {
                rx: FORMAT,
                tx: FORMAT,
                data: json!({"stream_id": stream_id, "call_id": call_id, "from": null, "to": null, "body": {}}),
                media_head: format!(
                    r#"{{"event":"voice","line":{},"media":{{"payload":""#,
                    message::quoted(&stream_id)
                ),
                in_order: true,
                has_byte_order: true,
                stream_id,
                call_id,
            },
        )))
    }

    fn chunk(&self, _format: MediaFormat) -> ChunkLimits {
        ChunkLimits {
            length: ChunkLimits::PLAIN.length * 2,
            multiple: ChunkLimits::PLAIN.multiple,
        }
    }

    fn clear(&self, stream_id: &str) -> String {
        format!(r#"{{"event":"hush","line":{stream_id}}}"#)
    }

    fn mark(&self, stream_id: &str, name: &str) -> String {
        format!(r#"{{"event":"echo","line":{stream_id},"name":{name}}}"#)
    }

    fn hang_up(&self, call: &str, settings: &Settings) -> Option<RestRequest> {
        Some(RestRequest {
            method: RestMethod::Delete,
            url: format!("{}/legs/{call}", settings.base(&API)),
            authorization: Some(bearer(settings.get(KEY)?)),
            body: None,
        })
    }

    fn probe(&self, settings: &Settings) -> Option<RestRequest> {
        let url = format!("{}/me", settings.base(&API));
        Some(RestRequest::get(url, bearer(settings.get(KEY)?)))
    }

    fn verify(
        &self,
        settings: &Settings,
        webhook: &WebhookRequest<'_>,
        _now_unix_s: u64,
    ) -> Result<SignatureStatus, SignatureError> {
        let Some(key) = settings.get(KEY) else {
            return Ok(SignatureStatus::NotChecked);
        };
        let text = (webhook.header)(SIGNATURE).ok_or(SignatureError::Missing { header: SIGNATURE })?;
        let signature = base64(SIGNATURE, text)?;
        match is_hmac_sha256(key, webhook.body, &signature) {
            true => Ok(verified(&signature)),
            false => Err(SignatureError::ForeignBody { header: SIGNATURE }),
        }
    }

    fn reply(&self, socket_url: &str, _body: &[u8]) -> WebhookReply {
        markup(&format!("  <Line to=\"{}\"/>\n", escaped(socket_url)))
    }
}
