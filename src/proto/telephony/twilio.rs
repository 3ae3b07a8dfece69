//! Twilio: camelCase members, ids that end in `Sid`, numbers as strings, mu-law at 8000 Hz both
//! ways.
//!
//! In: the provider's `start`. Out: the text of `media`, `mark` and `clear`, each with the stream's
//! id. The numbers of caller and callee are stream parameters, which the webhook's markup sets.
//! Webhooks and upgrades are signed with HMAC-SHA1 of the URL. Streams in another audio format are
//! rejected. Source: `docs/spec/telephony.md` 3, 7, 8 and 9.

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::call::StreamStart;
use super::message;
use super::number_webhook::{self, NumberWebhook, SetUpStep};
use super::outgoing::OutgoingCall;
use super::provider::{Object, Protocol, Provider, StreamDialect, built};
use super::settings::Setting;
use super::settings::Settings;
use super::signature::keyed::{hmac_sha1, is_hmac_sha1};
use super::signature::{
    SignatureError, SignatureStatus, WebhookRequest, base64, concatenated, is_form, split_query, verified,
};
use super::webhook::{WebhookReply, markup};
use super::{MediaFormat, StreamError, TelephonyCall, hangup};
use crate::answered_by::AnsweredBy;
use crate::call_control::TransferTarget;
use crate::limits::CALLER_BYTES_MAX;
use crate::secret::Secret;
use crate::server::form;
use crate::server::rest::{RestBody, RestMethod, RestRequest, basic, encode_path_segment};
use crate::sorting;
use crate::xml::escaped;

const ACCOUNT: &str = "TELCO_A_ACCOUNT_SID";
const TOKEN: &str = "TELCO_A_AUTH_TOKEN";
const API: Setting = Setting::base("TELCO_A_API_URL", "https://api.twilio.com");

pub(super) const SIGNATURE: &str = "x-twilio-signature";
pub(super) const SIGNATURE_SETTINGS: &str = "x-twilio-webhooks-signature-settings";

pub static TWILIO: Provider = Provider {
    name: "twilio",
    settings: &[Setting::account_id(ACCOUNT), Setting::account_token(TOKEN), API],
    hangs_up_with: &[ACCOUNT, TOKEN],
    verifies_with: &[ACCOUNT, TOKEN],
    signs_upgrades: true,
    takes_markup: true,
    url_names_bot: false,
    call_field: "CallSid",
    mark_events: &["mark"],
    returns_cleared: true,
    call_over_codes: &[(400, "21220")],
    dialect: StreamDialect {
        opening: &[
            r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#,
            r#"{"event":"start","sequenceNumber":"1","streamSid":"{stream}","start":{"accountSid":"AC00000000000000000000000000000000","streamSid":"{stream}","callSid":"{call}","tracks":["inbound"],"customParameters":{parameters},"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1}}}"#,
        ],
        stream_prefix: "MZ",
        call_prefix: "CA",
        stream_member: "streamSid",
        call_member: "callSid",
        sequence_member: "sequenceNumber",
        has_numbers: false,
        is_pcm: false,
        message_ms: 20,
    },
    protocol: built(&Twilio),
};

struct Twilio;

impl Protocol for Twilio {
    fn claim(&self, opening: &Object) -> Result<Option<TelephonyCall>, StreamError> {
        let Some(start) = message::started(opening) else {
            return Ok(None);
        };
        let (Some(stream_id), Some(call_id)) = (message::id(start, "streamSid"), message::id(start, "callSid")) else {
            return Ok(None);
        };
        let parameters = message::object(start, "customParameters");
        let number = |key| parameters.and_then(|parameters| message::text(parameters, key));
        Ok(Some(TelephonyCall::new(
            &TWILIO,
            StreamStart {
                rx: inbound_format(start)?,
                tx: MediaFormat::ULAW_8000,
                data: json!({
                    "stream_id": stream_id,
                    "call_id": call_id,
                    "from": number("from_number"),
                    "to": number("to_number"),
                    "body": parameters.cloned().unwrap_or_default(),
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
        format!(r#"{{"event":"clear","streamSid":{stream_id}}}"#)
    }

    fn mark(&self, stream_id: &str, name: &str) -> String {
        format!(r#"{{"event":"mark","streamSid":{stream_id},"mark":{{"name":{name}}}}}"#)
    }

    fn hang_up(&self, call: &str, settings: &Settings) -> Option<RestRequest> {
        let (path, authorization) = account(settings)?;
        Some(RestRequest {
            method: RestMethod::Post,
            url: format!("{path}/Calls/{call}.json"),
            authorization: Some(authorization),
            body: Some(RestBody::form("Status=completed")),
        })
    }

    fn transfer_alternative(&self, _target: &TransferTarget) -> Option<&'static str> {
        None
    }

    /// Replaces the markup of the call, which ends its stream.
    fn transfer(&self, call: &str, target: &TransferTarget, settings: &Settings) -> Option<RestRequest> {
        let (path, authorization) = account(settings)?;
        let form = match target {
            TransferTarget::Number(number) => dialled(number),
            TransferTarget::Sip(address) => dialled(&format!("<Sip>{}</Sip>", escaped(address))),
            TransferTarget::Markup(url) => format!("Url={}", encode_path_segment(url)),
        };
        Some(RestRequest {
            method: RestMethod::Post,
            url: format!("{path}/Calls/{call}.json"),
            authorization: Some(authorization),
            body: Some(RestBody::form(&form)),
        })
    }

    fn dials(&self) -> bool {
        true
    }

    fn dial(&self, call: &OutgoingCall<'_>, settings: &Settings) -> Option<RestRequest> {
        let (path, authorization) = account(settings)?;
        let mut members = vec![
            ("To", call.to),
            ("From", call.from),
            ("Url", call.answer_url),
            ("Method", "POST"),
            ("StatusCallback", call.end_url),
            ("StatusCallbackMethod", "POST"),
        ];
        if let Some(url) = call.report_url {
            members.extend([
                ("MachineDetection", "Enable"),
                ("AsyncAmd", "true"),
                ("AsyncAmdStatusCallbackMethod", "POST"),
                ("AsyncAmdStatusCallback", url),
            ]);
        }
        let pairs: Vec<String> = members
            .iter()
            .map(|(name, value)| format!("{name}={}", encode_path_segment(value)))
            .collect();
        Some(RestRequest {
            method: RestMethod::Post,
            url: format!("{path}/Calls.json"),
            authorization: Some(authorization),
            body: Some(RestBody::form(&pairs.join("&"))),
        })
    }

    fn dialled_id(&self, body: &Value) -> Option<String> {
        Some(body["sid"].as_str()?.to_owned())
    }

    fn answered_by(&self, form: &[(String, String)]) -> AnsweredBy {
        AnsweredBy::of_word(form::find(form, "AnsweredBy").unwrap_or_default())
    }

    fn set_up(&self, target: NumberWebhook<'_>, found: &[Option<Value>], settings: &Settings) -> Option<SetUpStep> {
        let (path, authorization) = account(settings)?;
        let Some(numbers) = found.first() else {
            let number = encode_path_segment(target.number);
            let url = format!("{path}/IncomingPhoneNumbers.json?PhoneNumber={number}");
            return Some(SetUpStep::Ask(RestRequest::get(url, authorization)));
        };
        let numbers = numbers
            .as_ref()
            .and_then(|body| body["incoming_phone_numbers"].as_array());
        let number = numbers.and_then(|numbers| numbers.iter().find(|number| number["phone_number"] == target.number));
        let sid = number.and_then(|number| hangup::segment_of(number["sid"].as_str()?));
        let (Some(number), Some(sid)) = (number, sid) else {
            return Some(number_webhook::no_number());
        };
        for (member, what) in [
            ("trunk_sid", "a SIP trunk"),
            ("voice_application_sid", "a TwiML application"),
        ] {
            if number[member].as_str().is_some_and(|sid| !sid.is_empty()) {
                let why = format!(
                    "the number belongs to {what}, which decides where its calls go; remove it from there first"
                );
                return Some(SetUpStep::Failed(why));
            }
        }
        let (url, method) = (&number["voice_url"], &number["voice_method"]);
        if found.len() > 1 || target.is(url, method) {
            return Some(SetUpStep::Done);
        }
        let form = format!("VoiceUrl={}&VoiceMethod=POST", encode_path_segment(target.url));
        Some(SetUpStep::Change {
            what: target.change("the number", url, method),
            request: RestRequest {
                method: RestMethod::Post,
                url: format!("{path}/IncomingPhoneNumbers/{sid}.json"),
                authorization: Some(authorization),
                body: Some(RestBody::form(&form)),
            },
        })
    }

    fn sign(
        &self,
        settings: &Settings,
        url: &str,
        form: &[(String, String)],
        _nonce: &str,
    ) -> Option<Vec<(&'static str, String)>> {
        let (_, token) = settings.account(ACCOUNT, TOKEN)?;
        let parameters = concatenated(form);
        let signature = hmac_sha1(token.expose(), [url.as_bytes(), parameters.as_bytes()]);
        Some(vec![(SIGNATURE, BASE64.encode(&signature))])
    }

    fn probe(&self, settings: &Settings) -> Option<RestRequest> {
        let (path, authorization) = account(settings)?;
        Some(RestRequest::get(format!("{path}.json"), authorization))
    }

    /// Verifies an HMAC-SHA1 over the URL and the sorted parameters of a form, or over the URL
    /// alone if its query contains the hash of the body.
    fn verify(
        &self,
        settings: &Settings,
        webhook: &WebhookRequest<'_>,
        _now_unix_s: u64,
    ) -> Result<SignatureStatus, SignatureError> {
        let Some((_, token)) = settings.account(ACCOUNT, TOKEN) else {
            return Ok(SignatureStatus::NotChecked);
        };
        let (place, query) = split_query(webhook.url);
        let hash = form::parse(query.unwrap_or_default().as_bytes());
        let parameters = match form::find(&hash, "bodySHA256") {
            Some(hash) if !is_form(webhook) => {
                let signed_digest = HEXLOWER_PERMISSIVE.decode(hash.as_bytes()).unwrap_or_default();
                if signed_digest != Sha256::digest(webhook.body).as_slice() {
                    return Err(SignatureError::ForeignBody { header: SIGNATURE });
                }
                String::new()
            }
            _ => {
                // Distinct pairs, sorted by name, then by value.
                let mut pairs = form::parse(webhook.body);
                sorting::sort(&mut pairs);
                pairs.dedup();
                concatenated(&pairs)
            }
        };
        let urls = with_and_without_port(webhook.url);
        signed(token, &urls, &parameters, webhook.header).map_err(|wrong| wrong.at(place))
    }

    fn verify_upgrade<'r>(
        &self,
        settings: &Settings,
        url: &str,
        header: &dyn Fn(&str) -> Option<&'r str>,
    ) -> Result<SignatureStatus, SignatureError> {
        let (Some((_, token)), Some(_)) = (settings.account(ACCOUNT, TOKEN), header(SIGNATURE)) else {
            return Ok(SignatureStatus::NotChecked);
        };
        let bare = url.trim_end_matches('/');
        signed(token, &[bare.to_owned(), format!("{bare}/")], "", header).map_err(|wrong| {
            // The path may contain a token, which must not be logged.
            let host = url.match_indices('/').nth(2).map_or(url, |(end, _)| &url[..end]);
            wrong.at(&format!("{host}/ws"))
        })
    }

    fn reply(&self, socket_url: &str, body: &[u8]) -> WebhookReply {
        let (url, parameters) = (escaped(socket_url), parameters(body));
        markup(&format!(
            "  <Connect>\n    <Stream url=\"{url}\">{parameters}</Stream>\n  </Connect>\n"
        ))
    }
}

fn inbound_format(start: &Object) -> Result<MediaFormat, StreamError> {
    let (encoding, rate_hz) = message::encoding(start, "mediaFormat", "sampleRate", "audio/x-mulaw");
    match (encoding.as_str(), rate_hz) {
        ("audio/x-mulaw", 8_000) => Ok(MediaFormat::ULAW_8000),
        _ => Err(StreamError::encoding(&encoding, rate_hz)),
    }
}

/// Returns the start of a message with audio. The id is JSON already.
fn media_head(stream_id: &str) -> String {
    format!(r#"{{"event":"media","streamSid":{stream_id},"media":{{"payload":""#)
}

/// Returns the form with markup that dials.
fn dialled(content: &str) -> String {
    let markup = format!("<Response><Dial>{content}</Dial></Response>");
    format!("Twiml={}", encode_path_segment(&markup))
}

/// Returns the URL of the account, and its credential.
fn account(settings: &Settings) -> Option<(String, Secret)> {
    let (id, token) = settings.account(ACCOUNT, TOKEN)?;
    let (base, segment) = (settings.base(&API), hangup::segment_of(id)?);
    let url = format!("{base}/2010-04-01/Accounts/{segment}");
    Some((url, basic(id, token)))
}

fn signed<'r>(
    token: &Secret,
    urls: &[String],
    parameters: &str,
    header: &dyn Fn(&str) -> Option<&'r str>,
) -> Result<SignatureStatus, SignatureError> {
    let text = header(SIGNATURE).ok_or(SignatureError::Missing { header: SIGNATURE })?;
    let signature = base64(SIGNATURE, text)?;
    let fits = |url: &String| is_hmac_sha1(token.expose(), [url.as_bytes(), parameters.as_bytes()], &signature);
    if urls.iter().any(fits) {
        return Ok(verified(&signature));
    }
    if header(SIGNATURE_SETTINGS).is_some() {
        return Err(SignatureError::OtherKey {
            header: SIGNATURE_SETTINGS,
        });
    }
    Err(SignatureError::Foreign {
        header: SIGNATURE,
        url: String::new(),
    })
}

/// Returns a URL unchanged, without a port, and with the default port: the provider may sign any of
/// them.
pub(super) fn with_and_without_port(url: &str) -> [String; 3] {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = match authority.rsplit_once(':') {
        // The colons of an IPv6 address are within brackets.
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let port = if matches!(scheme, "http" | "ws") { 80 } else { 443 };
    [
        url.to_owned(),
        format!("{scheme}://{host}{path}"),
        format!("{scheme}://{host}:{port}{path}"),
    ]
}

/// Returns caller and callee as stream parameters, which `start` repeats; empty if the form lacks
/// them.
fn parameters(body: &[u8]) -> String {
    let pairs = form::parse(body);
    let mut lines = String::new();
    for (field, name) in [("From", "from_number"), ("To", "to_number")] {
        let value = form::find(&pairs, field).unwrap_or_default();
        if !value.is_empty() && value.len() <= CALLER_BYTES_MAX {
            lines += &format!("\n      <Parameter name=\"{name}\" value=\"{}\"/>", escaped(value));
        }
    }
    if !lines.is_empty() {
        lines += "\n    ";
    }
    lines
}
