//! Telnyx: snake_case members, `stream_id` beside `start`, numbers as strings, the call's own
//! codec.
//!
//! In: the provider's `start`, later its `media`, whose order it does not promise, and its `error`.
//! Out: the text of `media`, `mark` and `clear`, without an id. The provider sends the codec of the
//! far end, and is sent its default, mu-law at 8000 Hz. Webhooks are signed with Ed25519 over time
//! and body. Codecs other than G.711 and headerless PCM are rejected. Source:
//! `docs/spec/telephony.md` 4, 7, 8 and 9.

use data_encoding::BASE64;
use log::{debug, warn};
use serde_json::{Value, json};

use super::call::StreamStart;
use super::hangup;
use super::message;
use super::number_webhook::{self, NumberWebhook, SetUpStep};
use super::outgoing::OutgoingCall;
use super::provider::{Object, Protocol, Provider, Report, StreamDialect, built};
use super::settings::Settings;
use super::settings::{Holds, Setting};
use super::signature::keyed::is_ed25519;
use super::signature::{SignatureError, SignatureStatus, WebhookRequest, base64, verified};
use super::webhook::{WebhookReply, markup};
use super::{MediaFormat, StreamError, TelephonyCall, TelephonyCodec};
use crate::answered_by::AnsweredBy;
use crate::call_control::TransferTarget;
use crate::limits::{RATES_HZ, SIGNATURE_AGE_MAX_S, TELEPHONY_LOGGED_CHARS_MAX, TELEPHONY_WORD_CHARS_MAX};
use crate::server::form;
use crate::server::rest::{RestBody, RestMethod, RestRequest, bearer};
use crate::xml::escaped;

const KEY: &str = "TELCO_B_API_KEY";
const PUBLIC_KEY: &str = "TELCO_B_PUBLIC_KEY";
const API: Setting = Setting::base("TELCO_B_API_URL", "https://api.telnyx.com");

pub(super) const SIGNATURE: &str = "telnyx-signature-ed25519";
pub(super) const TIMESTAMP: &str = "telnyx-timestamp";

pub static TELNYX: Provider = Provider {
    name: "telnyx",
    settings: &[
        Setting {
            name: KEY,
            holds: Holds::Secret,
            help: "API key of {}, to hang calls up.",
        },
        Setting {
            name: PUBLIC_KEY,
            holds: Holds::PublicKey,
            help: "Public key of {}, 32 bytes in base64, to verify webhooks.",
        },
        API,
    ],
    hangs_up_with: &[KEY],
    verifies_with: &[PUBLIC_KEY],
    signs_upgrades: false,
    takes_markup: true,
    url_names_bot: false,
    // The form's name for the `call_control_id` of the stream.
    call_field: "CallSid",
    mark_events: &["mark"],
    returns_cleared: true,
    call_over_codes: &[(422, "90018")],
    dialect: StreamDialect {
        opening: &[
            r#"{"event":"connected","version":"1.0.0"}"#,
            r#"{"event":"start","sequence_number":"1","stream_id":"{stream}","start":{"user_id":"00000000-0000-4000-8000-000000000000","call_control_id":"{call}","call_session_id":"{call}","from":"{from}","to":"{to}","tags":[],"custom_parameters":{},"media_format":{"encoding":"PCMU","sample_rate":8000,"channels":1}}}"#,
        ],
        stream_prefix: "",
        call_prefix: "v3:",
        stream_member: "stream_id",
        call_member: "call_control_id",
        sequence_member: "sequence_number",
        has_numbers: false,
        is_pcm: false,
        message_ms: 20,
    },
    protocol: built(&Telnyx),
};

struct Telnyx;

impl Protocol for Telnyx {
    fn claim(&self, opening: &Object) -> Result<Option<TelephonyCall>, StreamError> {
        let Some(start) = message::object(opening, "start") else {
            return Ok(None);
        };
        let (Some(stream_id), Some(call_id)) =
            (message::id(opening, "stream_id"), message::id(start, "call_control_id"))
        else {
            return Ok(None);
        };
        let encoding = message::object(start, "media_format").and_then(|format| message::text(format, "encoding"));
        Ok(Some(TelephonyCall::new(
            &TELNYX,
            StreamStart {
                rx: inbound_format(start)?,
                tx: MediaFormat::ULAW_8000,
                data: json!({
                    "stream_id": stream_id,
                    "call_id": call_id,
                    "from": message::text(start, "from").unwrap_or_default(),
                    "to": message::text(start, "to").unwrap_or_default(),
                    "body": message::object(start, "custom_parameters").cloned().unwrap_or_default(),
                    "outbound_encoding": encoding.as_deref().unwrap_or("PCMU"),
                }),
                media_head: MEDIA_HEAD.to_string(),
                in_order: false,
                has_byte_order: false,
                stream_id,
                call_id,
            },
        )))
    }

    fn clear(&self, _stream_id: &str) -> String {
        r#"{"event":"clear"}"#.to_string()
    }

    fn mark(&self, _stream_id: &str, name: &str) -> String {
        format!(r#"{{"event":"mark","mark":{{"name":{name}}}}}"#)
    }

    /// Warns with the code and the title without digits, since text and title may contain telephone
    /// numbers.
    fn report(&self, report: &Report<'_>) {
        let word =
            |word: Option<&str>| -> String { word.unwrap_or("?").chars().take(TELEPHONY_WORD_CHARS_MAX).collect() };
        let code = word(report.code.filter(|code| code.len() <= CODE_CHARS_MAX));
        let title = word(report.title).replace(char::is_numeric, "#");
        let stream_id = report.stream_id;
        warn!("the provider of stream {stream_id} reports error {code}, {title}");
        let whole: String = report.text.chars().take(TELEPHONY_LOGGED_CHARS_MAX).collect();
        debug!("the error: {whole}");
    }

    fn hang_up(&self, call: &str, settings: &Settings) -> Option<RestRequest> {
        action(call, "hangup", &json!({}), settings)
    }

    fn transfer_alternative(&self, target: &TransferTarget) -> Option<&'static str> {
        matches!(target, TransferTarget::Markup(_)).then_some("it takes a number or a sip: address")
    }

    fn transfer(&self, call: &str, target: &TransferTarget, settings: &Settings) -> Option<RestRequest> {
        match target {
            TransferTarget::Number(to) | TransferTarget::Sip(to) => {
                action(call, "transfer", &json!({ "to": to }), settings)
            }
            TransferTarget::Markup(_) => None,
        }
    }

    fn takes_keys(&self) -> bool {
        true
    }

    fn send_keys(&self, call: &str, keys: &str, settings: &Settings) -> Option<RestRequest> {
        action(call, "send_dtmf", &json!({ "digits": keys }), settings)
    }

    fn dials(&self) -> bool {
        true
    }

    /// Asks for the numbers with these digits.
    fn dial_lookup(&self, from: &str, settings: &Settings) -> Option<RestRequest> {
        let digits = from.trim_start_matches('+');
        let url = format!(
            "{}/v2/phone_numbers?filter%5Bphone_number%5D={digits}",
            settings.base(&API)
        );
        Some(RestRequest::get(url, bearer(settings.get(KEY)?)))
    }

    fn dial_application(&self, from: &str, body: &[u8]) -> Option<String> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let numbers = body["data"].as_array()?;
        let number = numbers.iter().find(|number| number["phone_number"] == from)?;
        hangup::segment_of(number["connection_id"].as_str()?)
    }

    fn dial(&self, call: &OutgoingCall<'_>, settings: &Settings) -> Option<RestRequest> {
        let mut parameters = json!({
            "To": call.to,
            "From": call.from,
            "Url": call.answer_url,
            "Method": "POST",
            "StatusCallback": call.end_url,
            "StatusCallbackMethod": "POST",
        });
        if let Some(url) = call.report_url {
            parameters["MachineDetection"] = "Enable".into();
            parameters["AsyncAmd"] = true.into();
            parameters["AsyncAmdStatusCallback"] = url.into();
            parameters["AsyncAmdStatusCallbackMethod"] = "POST".into();
        }
        Some(RestRequest {
            method: RestMethod::Post,
            url: format!("{}/v2/texml/calls/{}", settings.base(&API), call.application?),
            authorization: Some(bearer(settings.get(KEY)?)),
            body: Some(RestBody::json(&parameters)),
        })
    }

    fn dialled_id(&self, body: &Value) -> Option<String> {
        Some(body["call_sid"].as_str()?.to_owned())
    }

    fn answered_by(&self, form: &[(String, String)]) -> AnsweredBy {
        AnsweredBy::of_word(form::find(form, "AnsweredBy").unwrap_or_default())
    }

    /// The webhook is that of the number's application, which is made for a number without one.
    fn set_up(&self, target: NumberWebhook<'_>, found: &[Option<Value>], settings: &Settings) -> Option<SetUpStep> {
        let key = settings.get(KEY)?;
        let ask = |path: String| RestRequest::get(format!("{}/v2/{path}", settings.base(&API)), bearer(key));
        let send = |method, path: String, parameters: &Value| RestRequest {
            method,
            body: Some(RestBody::json(parameters)),
            ..ask(path)
        };
        let Some(numbers) = found.first() else {
            return Some(SetUpStep::Ask(self.dial_lookup(target.number, settings)?));
        };
        let numbers = numbers.as_ref().and_then(|body| body["data"].as_array());
        let Some(number) = numbers.and_then(|numbers| numbers.iter().find(|it| it["phone_number"] == target.number))
        else {
            return Some(number_webhook::no_number());
        };
        let mut webhook =
            json!({"friendly_name": number_webhook::APPLICATION, "voice_url": target.url, "voice_method": "post"});
        let is_free = number["connection_id"].as_str().is_none_or(str::is_empty);
        let id = |value: &Value| hangup::segment_of(value.as_str()?);
        let unknown =
            || SetUpStep::Failed("the number belongs to a connection that is no TeXML application".to_owned());
        Some(match (is_free, found) {
            (true, [_]) => SetUpStep::Change {
                what: format!(
                    "a TeXML application `{}` with the webhook {} is made",
                    number_webhook::APPLICATION,
                    target.url
                ),
                request: send(RestMethod::Post, "texml_applications".to_owned(), &webhook),
            },
            (true, [_, made]) => {
                let application = made.as_ref().and_then(|made| made["data"]["id"].as_str());
                let (Some(application), Some(number)) = (application, id(&number["id"])) else {
                    return Some(SetUpStep::Failed("the response has no id".to_owned()));
                };
                let parameters = json!({ "connection_id": application });
                SetUpStep::Change {
                    what: "the number is assigned to it".to_owned(),
                    request: send(RestMethod::Patch, format!("phone_numbers/{number}"), &parameters),
                }
            }
            (false, [_]) => match id(&number["connection_id"]) {
                Some(application) => SetUpStep::Ask(ask(format!("texml_applications/{application}"))),
                None => unknown(),
            },
            (false, [_, application]) => {
                let (Some(application), Some(own)) = (application, id(&number["connection_id"])) else {
                    return Some(unknown());
                };
                let application = &application["data"];
                let (url, method) = (&application["voice_url"], &application["voice_method"]);
                if target.is(url, method) {
                    return Some(SetUpStep::Done);
                }
                let name = application["friendly_name"]
                    .as_str()
                    .unwrap_or(number_webhook::APPLICATION);
                webhook["friendly_name"] = name.into();
                SetUpStep::Change {
                    what: target.change(&format!("the TeXML application `{name}`"), url, method),
                    request: send(RestMethod::Patch, format!("texml_applications/{own}"), &webhook),
                }
            }
            _ => SetUpStep::Done,
        })
    }

    fn probe(&self, settings: &Settings) -> Option<RestRequest> {
        let url = format!("{}/v2/balance", settings.base(&API));
        Some(RestRequest::get(url, bearer(settings.get(KEY)?)))
    }

    /// Verifies an Ed25519 signature over time and body.
    fn verify(
        &self,
        settings: &Settings,
        webhook: &WebhookRequest<'_>,
        now_unix_s: u64,
    ) -> Result<SignatureStatus, SignatureError> {
        let Some(key) = settings.get(PUBLIC_KEY) else {
            return Ok(SignatureStatus::NotChecked);
        };
        let text = (webhook.header)(SIGNATURE).ok_or(SignatureError::Missing { header: SIGNATURE })?;
        let signature = base64(SIGNATURE, text)?;
        let timestamp = (webhook.header)(TIMESTAMP).ok_or(SignatureError::Missing { header: TIMESTAMP })?;
        let signed_s: u64 = timestamp
            .parse()
            .map_err(|_| SignatureError::Malformed { header: TIMESTAMP })?;
        let message = [timestamp.as_bytes(), b"|", webhook.body].concat();
        let key = BASE64.decode(key.expose().as_bytes()).unwrap_or_default();
        if !is_ed25519(&key, &message, &signature) {
            return Err(SignatureError::ForeignBody { header: SIGNATURE });
        }
        let off_s = now_unix_s.abs_diff(signed_s);
        if off_s > SIGNATURE_AGE_MAX_S {
            return Err(SignatureError::Stale { off_s });
        }
        Ok(verified(&signature))
    }

    fn reply(&self, socket_url: &str, _body: &[u8]) -> WebhookReply {
        let url = escaped(socket_url);
        markup(&format!(
            "  <Connect>\n    <Stream url=\"{url}\" bidirectionalMode=\"rtp\"></Stream>\n  </Connect>\n"
        ))
    }
}

/// Length of error codes, which have six digits; a longer one could be a telephone number.
const CODE_CHARS_MAX: usize = 6;

const MEDIA_HEAD: &str = r#"{"event":"media","media":{"payload":""#;

/// Returns the request of a command for a call.
fn action(call: &str, name: &str, parameters: &Value, settings: &Settings) -> Option<RestRequest> {
    Some(RestRequest {
        method: RestMethod::Post,
        url: format!("{}/v2/calls/{call}/actions/{name}", settings.base(&API)),
        authorization: Some(bearer(settings.get(KEY)?)),
        body: Some(RestBody::json(parameters)),
    })
}

fn inbound_format(start: &Object) -> Result<MediaFormat, StreamError> {
    let (encoding, rate_hz) = message::encoding(start, "media_format", "sample_rate", "pcmu");
    let codec = match encoding.as_str() {
        "pcmu" => TelephonyCodec::Ulaw,
        "pcma" => TelephonyCodec::Alaw,
        "l16" => TelephonyCodec::L16,
        _ => return Err(StreamError::encoding(&encoding, rate_hz)),
    };
    match u32::try_from(rate_hz) {
        Ok(rate_hz) if RATES_HZ.contains(&rate_hz) => Ok(MediaFormat { codec, rate_hz }),
        _ => Err(StreamError::encoding(&encoding, rate_hz)),
    }
}
