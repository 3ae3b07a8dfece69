//! A provider that does not exist: what adding one takes, for the tests that prove it.
//!
//! It is one file with one [`Provider`], and one line in a list, [`FIVE`]. It differs from the
//! others in its handshake, its codec (A-law at 16000 Hz both ways), its messages, its API, its
//! signature (HMAC-SHA256 of the body) and its settings.

use serde_json::json;

use super::call::Stream;
use super::message;
use super::provider::{Object, Protocol, Provider, built};
use super::settings::Settings;
use super::settings::{Holds, Setting};
use super::signature::{Standing, Webhook, Wrong, base64, is_hmac_sha256, verified};
use super::webhook::{Reply, escaped, markup};
use super::{Call, Chunk, Codec, Format, PROVIDERS, Refusal};
use crate::server::rest::{RestMethod, RestRequest, bearer};

/// The list of a build that has it.
pub const FIVE: [&Provider; 5] = [PROVIDERS[0], PROVIDERS[1], PROVIDERS[2], PROVIDERS[3], &INVENTED];

const KEY: &str = "QUINTEL_KEY";
const API: Setting = Setting::base("QUINTEL_API_URL", "https://api.quintel.example");
const SIGNATURE: &str = "x-quintel-signature";
const FORMAT: Format = Format {
    codec: Codec::Alaw,
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
    call_field: "leg",
    mark_events: &["echo"],
    returns_cleared: true,
    over: &[(410, "7")],
    protocol: built(&Quintel),
};

struct Quintel;

impl Protocol for Quintel {
    fn claim(&self, opening: &Object) -> Result<Option<Call>, Refusal> {
        let (Some(stream_id), Some(call_id)) = (message::id(opening, "line"), message::id(opening, "leg")) else {
            return Ok(None);
        };
        if message::text(opening, "codec").is_some_and(|codec| codec != "alaw16") {
            return Err(Refusal::encoding("of the line", 16_000));
        }
        Ok(Some(Call::new(
            &INVENTED,
            Stream {
                rx: FORMAT,
                tx: FORMAT,
                data: json!({"stream_id": stream_id, "call_id": call_id, "from": null, "to": null, "body": {}}),
                media_head: format!(
                    r#"{{"event":"voice","line":{},"media":{{"payload":""#,
                    message::quoted(&stream_id)
                ),
                in_order: true,
                stream_id,
                call_id,
            },
        )))
    }

    fn chunk(&self, _format: Format) -> Chunk {
        Chunk {
            length: Chunk::PLAIN.length * 2,
            multiple: Chunk::PLAIN.multiple,
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

    fn verify(&self, settings: &Settings, webhook: &Webhook<'_>, _now_unix_s: u64) -> Result<Standing, Wrong> {
        let Some(key) = settings.get(KEY) else {
            return Ok(Standing::NotChecked);
        };
        let text = (webhook.header)(SIGNATURE).ok_or(Wrong::Missing { header: SIGNATURE })?;
        let signature = base64(SIGNATURE, text)?;
        match is_hmac_sha256(key, webhook.body, &signature) {
            true => Ok(verified(&signature)),
            false => Err(Wrong::ForeignBody { header: SIGNATURE }),
        }
    }

    fn reply(&self, socket_url: &str, _body: &[u8]) -> Reply {
        markup(&format!("  <Line to=\"{}\"/>\n", escaped(socket_url)))
    }
}
