//! Plivo: camelCase members, ids that end in `Id`, numbers as numbers, `start` as the first
//! message.
//! In: the provider's `start`, whose format the markup selected, with the call's parameters as one
//! text, among them the numbers that the markup passes on. Out: the text of `playAudio`,
//! `checkpoint` and `clearAudio`; audio is mu-law at 8000 Hz, as the runner's markup requests. A
//! checkpoint is answered by `playedStream`, or `played`. Webhooks are signed with HMAC-SHA256 over
//! URL, form and a nonce. Formats that the markup cannot select are rejected. Source:
//! `docs/spec/telephony.md` 5, 7, 8 and 9.

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::call::StreamStart;
use super::dial::is_number;
use super::message;
use super::number_webhook::{self, NumberWebhook, SetUpStep};
use super::outgoing::OutgoingCall;
use super::provider::{Object, Protocol, Provider, StreamDialect, built};
use super::settings::Setting;
use super::settings::Settings;
use super::signature::{
    SignatureError, SignatureStatus, WebhookRequest, base64, concatenated, hmac_sha256, is_hmac_sha256, split_query,
    verified,
};
use super::webhook::{WebhookReply, markup};
use super::{MediaFormat, StreamError, TelephonyCall, TelephonyCodec, hangup};
use crate::answered_by::AnsweredBy;
use crate::call_control::TransferTarget;
use crate::limits::SIGNATURES_MAX;
use crate::secret::Secret;
use crate::server::form;
use crate::server::rest::{RestBody, RestMethod, RestRequest, basic};
use crate::sorting;
use crate::xml::escaped;

const ACCOUNT: &str = "TELCO_C_AUTH_ID";
const TOKEN: &str = "TELCO_C_AUTH_TOKEN";
const API: Setting = Setting::base("TELCO_C_API_URL", "https://api.plivo.com");

/// The parameters of the stream with the numbers of the caller and of the called.
const NUMBERS: [&str; 2] = ["from", "to"];
/// Characters of a number in the markup; all parameters of a stream have at most 512 bytes.
const NUMBER_CHARS_MAX: usize = 64;

pub(super) const SIGNATURE: &str = "x-plivo-signature-v3";
pub(super) const MAIN_SIGNATURE: &str = "x-plivo-signature-ma-v3";
pub(super) const NONCE: &str = "x-plivo-signature-v3-nonce";

pub static PLIVO: Provider = Provider {
    name: "plivo",
    settings: &[Setting::account_id(ACCOUNT), Setting::account_token(TOKEN), API],
    hangs_up_with: &[ACCOUNT, TOKEN],
    verifies_with: &[ACCOUNT, TOKEN],
    signs_upgrades: false,
    takes_markup: true,
    url_names_bot: true,
    call_field: "CallUUID",
    mark_events: &["playedStream", "played"],
    returns_cleared: false,
    call_over_codes: &[],
    dialect: StreamDialect {
        opening: &[
            r#"{"event":"start","sequenceNumber":1,"start":{"callId":"{call}","streamId":"{stream}","accountId":"MA000000000000000000","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000}},"extra_headers":{pairs}}"#,
        ],
        stream_prefix: "s-",
        call_prefix: "c-",
        stream_member: "streamId",
        call_member: "callId",
        sequence_member: "sequenceNumber",
        has_numbers: true,
        is_pcm: false,
        message_ms: 20,
    },
    protocol: built(&Plivo),
};

struct Plivo;

impl Protocol for Plivo {
    fn claim(&self, opening: &Object) -> Result<Option<TelephonyCall>, StreamError> {
        let Some(start) = message::object(opening, "start") else {
            return Ok(None);
        };
        let (Some(stream_id), Some(call_id)) = (message::id(start, "streamId"), message::id(start, "callId")) else {
            return Ok(None);
        };
        let body = opening.get("extra_headers").map(parameters).unwrap_or_default();
        let number = |key| message::text(&body, key).map(international);
        Ok(Some(TelephonyCall::new(
            &PLIVO,
            StreamStart {
                rx: inbound_format(start)?,
                tx: MediaFormat::ULAW_8000,
                data: json!({
                    "stream_id": stream_id,
                    "call_id": call_id,
                    "from": number(NUMBERS[0]),
                    "to": number(NUMBERS[1]),
                    "body": body,
                }),
                media_head: media_head(&message::quoted(&stream_id)),
                in_order: true,
                has_byte_order: true,
                stream_id,
                call_id,
            },
        )))
    }

    fn clear(&self, stream_id: &str) -> String {
        format!(r#"{{"event":"clearAudio","streamId":{stream_id}}}"#)
    }

    fn mark(&self, stream_id: &str, name: &str) -> String {
        format!(r#"{{"event":"checkpoint","streamId":{stream_id},"name":{name}}}"#)
    }

    fn hang_up(&self, call: &str, settings: &Settings) -> Option<RestRequest> {
        delete(&format!("Call/{call}/"), settings)
    }

    /// A call that rings is known by its request alone.
    fn cancel(&self, call: &str, settings: &Settings) -> Option<RestRequest> {
        delete(&format!("Request/{call}/"), settings)
    }

    fn transfer_alternative(&self, target: &TransferTarget) -> Option<&'static str> {
        let is_markup = matches!(target, TransferTarget::Markup(_));
        (!is_markup).then_some("it takes the URL of markup that dials")
    }

    fn transfer(&self, call: &str, target: &TransferTarget, settings: &Settings) -> Option<RestRequest> {
        let TransferTarget::Markup(url) = target else {
            return None;
        };
        let parameters = json!({"legs": "aleg", "aleg_url": url, "aleg_method": "GET"});
        post(&format!("Call/{call}/"), &parameters, settings)
    }

    fn takes_keys(&self) -> bool {
        true
    }

    fn send_keys(&self, call: &str, keys: &str, settings: &Settings) -> Option<RestRequest> {
        let parameters = json!({"digits": keys, "leg": "aleg"});
        post(&format!("Call/{call}/DTMF/"), &parameters, settings)
    }

    fn dials(&self) -> bool {
        true
    }

    fn dial(&self, call: &OutgoingCall<'_>, settings: &Settings) -> Option<RestRequest> {
        let mut parameters = json!({
            "to": call.to,
            "from": call.from,
            "answer_url": call.answer_url,
            "answer_method": "POST",
            "hangup_url": call.end_url,
            "hangup_method": "POST",
        });
        if let Some(url) = call.report_url {
            parameters["machine_detection"] = "true".into();
            parameters["machine_detection_url"] = url.into();
            parameters["machine_detection_method"] = "POST".into();
        }
        post("Call/", &parameters, settings)
    }

    fn dialled_id(&self, body: &Value) -> Option<String> {
        Some(body["request_uuid"].as_str()?.to_owned())
    }

    fn answered_by(&self, form: &[(String, String)]) -> AnsweredBy {
        match form::find(form, "Machine") {
            Some("true") => AnsweredBy::Machine,
            Some("false") => AnsweredBy::Human,
            _ => AnsweredBy::Unknown,
        }
    }

    /// The webhook is that of the number's application, which is made for a number without one.
    fn set_up(&self, target: NumberWebhook<'_>, found: &[Option<Value>], settings: &Settings) -> Option<SetUpStep> {
        let (path, authorization) = account(settings)?;
        let ask = |below: String| SetUpStep::Ask(RestRequest::get(format!("{path}/{below}"), authorization.clone()));
        let own = format!("Number/{}/", target.digits());
        let Some(number) = found.first() else {
            return Some(ask(own));
        };
        let Some(number) = number else {
            return Some(number_webhook::no_number());
        };
        // A path, such as `/v1/Account/MA01/Application/4711/`.
        let place = number["application"].as_str().unwrap_or_default().trim_end_matches('/');
        let application = place.rsplit('/').next().unwrap_or_default();
        let its_path = hangup::segment_of(application).map(|segment| format!("Application/{segment}/"));
        let mut webhook = json!({"answer_url": target.url, "answer_method": "POST"});
        let missing = |what: &str| Some(SetUpStep::Failed(format!("the {what} of the number is not there")));
        Some(match (its_path, found) {
            (None, _) if !application.is_empty() => return missing("application"),
            (None, [_]) => {
                webhook["app_name"] = number_webhook::APPLICATION.into();
                SetUpStep::Change {
                    what: format!(
                        "an application `{}` with the webhook {} is made",
                        number_webhook::APPLICATION,
                        target.url
                    ),
                    request: post("Application/", &webhook, settings)?,
                }
            }
            (None, [_, made]) => {
                let Some(application) = made.as_ref().and_then(|made| made["app_id"].as_str()) else {
                    return missing("application");
                };
                let parameters = json!({ "app_id": application });
                SetUpStep::Change {
                    what: "the number is assigned to it".to_owned(),
                    request: post(&own, &parameters, settings)?,
                }
            }
            (Some(its_path), [_]) => ask(its_path),
            (Some(_), [_, None]) => return missing("application"),
            (Some(its_path), [_, Some(known)]) => {
                let (url, method) = (&known["answer_url"], &known["answer_method"]);
                if target.is(url, method) {
                    return Some(SetUpStep::Done);
                }
                let name = known["app_name"].as_str().unwrap_or(application);
                SetUpStep::Change {
                    what: target.change(&format!("the application `{name}`"), url, method),
                    request: post(&its_path, &webhook, settings)?,
                }
            }
            _ => SetUpStep::Done,
        })
    }

    fn sign(
        &self,
        settings: &Settings,
        url: &str,
        form: &[(String, String)],
        nonce: &str,
    ) -> Option<Vec<(&'static str, String)>> {
        let (_, token) = settings.account(ACCOUNT, TOKEN)?;
        let (place, query) = split_query(url);
        let message = format!("{}.{nonce}", signed(place, query, form));
        let signature = hmac_sha256(token, message.as_bytes());
        Some(vec![(NONCE, nonce.to_owned()), (SIGNATURE, BASE64.encode(&signature))])
    }

    fn probe(&self, settings: &Settings) -> Option<RestRequest> {
        let (path, authorization) = account(settings)?;
        Some(RestRequest::get(format!("{path}/"), authorization))
    }

    /// Verifies an HMAC-SHA256 over the URL with its query sorted, the sorted parameters of the
    /// form, and a nonce. Each header is a list of signatures.
    fn verify(
        &self,
        settings: &Settings,
        webhook: &WebhookRequest<'_>,
        _now_unix_s: u64,
    ) -> Result<SignatureStatus, SignatureError> {
        let Some((_, token)) = settings.account(ACCOUNT, TOKEN) else {
            return Ok(SignatureStatus::NotChecked);
        };
        let nonce = (webhook.header)(NONCE).ok_or(SignatureError::Missing { header: NONCE })?;
        let lists = [SIGNATURE, MAIN_SIGNATURE].map(webhook.header);
        if lists == [None, None] {
            return Err(SignatureError::Missing { header: SIGNATURE });
        }
        let (place, query) = split_query(webhook.url);
        let message = format!("{}.{nonce}", signed(place, query, &form::parse(webhook.body)));
        let fitting = |text: &str| {
            let signature = base64(SIGNATURE, text).ok()?;
            is_hmac_sha256(token, message.as_bytes(), &signature).then_some(signature)
        };
        let mut signatures = lists
            .into_iter()
            .flatten()
            .flat_map(|list| list.split(',').take(SIGNATURES_MAX));
        if let Some(signature) = signatures.find_map(fitting) {
            return Ok(verified(&signature));
        }
        Err(SignatureError::Foreign {
            header: SIGNATURE,
            url: place.to_owned(),
        })
    }

    fn reply(&self, socket_url: &str, body: &[u8]) -> WebhookReply {
        let (url, numbers) = (escaped(socket_url), numbers(body));
        markup(&format!(
            "  <Stream bidirectional=\"true\" keepCallAlive=\"true\" \
             contentType=\"audio/x-mulaw;rate=8000\"{numbers}>{url}</Stream>\n"
        ))
    }
}

fn inbound_format(start: &Object) -> Result<MediaFormat, StreamError> {
    let (encoding, rate_hz) = message::encoding(start, "mediaFormat", "sampleRate", "audio/x-mulaw");
    let l16 = |rate_hz| MediaFormat {
        codec: TelephonyCodec::L16,
        rate_hz,
    };
    match (encoding.as_str(), rate_hz) {
        ("audio/x-mulaw", 8_000) => Ok(MediaFormat::ULAW_8000),
        ("audio/x-l16", 8_000) => Ok(l16(8_000)),
        ("audio/x-l16", 16_000) => Ok(l16(16_000)),
        _ => Err(StreamError::encoding(&encoding, rate_hz)),
    }
}

/// Parses the stream parameters of the markup: an object, its JSON text, or `k=v` pairs separated
/// by `,` or `;`.
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

/// Returns the attribute that passes caller and callee to the stream, where `start` repeats it;
/// empty if the form lacks them. The provider accepts letters and digits alone in a value, so a
/// number has no `+` there, and an address is omitted.
fn numbers(body: &[u8]) -> String {
    let pairs = PLIVO
        .numbers(body)
        .into_iter()
        .zip(NUMBERS)
        .filter_map(|(number, name)| {
            let number = number?;
            let value = number.strip_prefix('+').unwrap_or(&number);
            let is_plain = (1..=NUMBER_CHARS_MAX).contains(&value.len());
            (is_plain && value.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| format!("{name}={value}"))
        });
    let pairs: Vec<String> = pairs.collect();
    match pairs.is_empty() {
        true => String::new(),
        false => format!(" extraHeaders=\"{}\"", pairs.join(",")),
    }
}

/// Returns a number with its `+`, and any other text unchanged.
fn international(text: String) -> String {
    let number = format!("+{text}");
    match is_number(&number) {
        true => number,
        false => text,
    }
}

/// Returns the start of a message with audio. The id is JSON already.
fn media_head(stream_id: &str) -> String {
    format!(
        r#"{{"event":"playAudio","streamId":{stream_id},"media":{{"contentType":"audio/x-mulaw","sampleRate":8000,"payload":""#
    )
}

/// Returns a request with a JSON body to a path below the account.
fn post(path: &str, parameters: &Value, settings: &Settings) -> Option<RestRequest> {
    let (account, authorization) = account(settings)?;
    Some(RestRequest {
        method: RestMethod::Post,
        url: format!("{account}/{path}"),
        authorization: Some(authorization),
        body: Some(RestBody::json(parameters)),
    })
}

fn delete(path: &str, settings: &Settings) -> Option<RestRequest> {
    let (account, authorization) = account(settings)?;
    Some(RestRequest {
        method: RestMethod::Delete,
        url: format!("{account}/{path}"),
        authorization: Some(authorization),
        body: None,
    })
}

/// Returns the URL of the account, without a trailing slash, and its credential.
fn account(settings: &Settings) -> Option<(String, Secret)> {
    let (id, token) = settings.account(ACCOUNT, TOKEN)?;
    let (base, segment) = (settings.base(&API), hangup::segment_of(id)?);
    Some((format!("{base}/v1/Account/{segment}"), basic(id, token)))
}

/// Returns the signed text of a POST, without the nonce. `?` precedes a query or parameters; `.`
/// separates both.
pub(super) fn signed(place: &str, query: Option<&str>, form: &[(String, String)]) -> String {
    let mut base = place.to_owned();
    let mut query = form::parse(query.unwrap_or_default().as_bytes());
    let mut parameters = form.to_vec();
    sorting::sort(&mut query);
    sorting::sort(&mut parameters);
    if !query.is_empty() || !parameters.is_empty() {
        base.push('?');
    }
    let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    base += &pairs.join("&");
    if !query.is_empty() && !parameters.is_empty() {
        base.push('.');
    }
    base + &concatenated(&parameters)
}
