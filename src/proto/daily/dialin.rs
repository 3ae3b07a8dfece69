//! Daily's dial-in webhook, and the request by which a bot connects its held call.
//!
//! In: the raw body of a webhook, its two headers, the Unix time. Out: a [`DialinWebhook`] and the
//! bot's `body`, or an error in the words that Daily's set-up expects; later the request that
//! connects the call. Debug output contains neither the caller's number nor the key, which is part
//! of the bot's `body`. Rejects bodies that are not JSON objects, calls with missing fields, and
//! signatures that are missing, malformed, wrong or old. Source: `docs/spec/daily.md` 6; R-090 to
//!

use std::fmt;

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::error::{self, ApiStep, DailyError};
use crate::SessionId;
use crate::aliases::{self, Area};
use crate::daily::config::Videoroom;
use crate::http::registry;
use crate::limits::{DIALIN_HEADERS_BYTES_MAX, SIGNATURE_AGE_MAX_S};
use crate::secret::Secret;
use crate::server::rest::{RestBody, RestMethod, RestRequest, bearer};

/// Bytes of a number or an id of a dial-in call: ids have 36, and a SIP address is longer than a
/// number.
const DIALIN_FIELD_BYTES_MAX: usize = 256;

pub const SIGNATURE: &str = "x-pinless-signature";
pub const TIMESTAMP: &str = "x-pinless-timestamp";

/// A call that Daily holds for a bot.
pub struct DialinWebhook {
    pub from: String,
    /// The number that was dialled.
    pub to: String,
    pub call_id: String,
    call_domain: String,
    sip_headers: Option<Map<String, Value>>,
    /// Whether the SIP headers were too long to be passed on.
    pub headers_left_out: bool,
}

/// Why a webhook is not a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialinError {
    NotJson,
    Fields,
}

impl fmt::Display for DialinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DialinError::NotJson => "Invalid JSON payload",
            DialinError::Fields => "Missing required fields: From, To, callId, callDomain",
        })
    }
}

impl std::error::Error for DialinError {}

/// Why the signature of a webhook is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialinSignatureError {
    Missing(&'static str),
    Malformed(&'static str),
    Foreign,
    Stale { off_s: u64 },
}

impl fmt::Display for DialinSignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialinSignatureError::Missing(header) => write!(f, "no {header} header"),
            DialinSignatureError::Malformed(header) => write!(f, "the {header} header cannot be read"),
            DialinSignatureError::Foreign => write!(
                f,
                "{SIGNATURE} is not the signature of this body; is VIDEOROOM_DIALIN_HMAC that of the number?"
            ),
            DialinSignatureError::Stale { off_s } => write!(
                f,
                "signed {off_s} s away from this machine's clock, {SIGNATURE_AGE_MAX_S} s are allowed"
            ),
        }
    }
}

impl std::error::Error for DialinSignatureError {}

/// Parses the body of a webhook. [`parse_call`] reads the call.
///
/// # Errors
/// [`DialinError::NotJson`] if the body is not a JSON object.
pub fn parse_object(body: &[u8]) -> Result<Map<String, Value>, DialinError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => Ok(map),
        _ => Err(DialinError::NotJson),
    }
}

/// Tells whether a webhook is the one that Daily sends when its address is configured.
pub fn is_test(map: &Map<String, Value>) -> bool {
    ["test", "Test"].iter().filter_map(|name| map.get(*name)).any(is_truthy)
}

/// Reads the call of a webhook.
///
/// # Errors
/// [`DialinError::Fields`] if a field is missing, empty or too long.
pub fn parse_call(mut map: Map<String, Value>) -> Result<DialinWebhook, DialinError> {
    let mut field = |name: &str| match map.remove(name) {
        Some(Value::String(text)) if (1..=DIALIN_FIELD_BYTES_MAX).contains(&text.len()) => Ok(text),
        _ => Err(DialinError::Fields),
    };
    let mut call = DialinWebhook {
        from: field("From")?,
        to: field("To")?,
        call_id: field("callId")?,
        call_domain: field("callDomain")?,
        sip_headers: None,
        headers_left_out: false,
    };
    if let Some(Value::Object(headers)) = map.remove("sipHeaders") {
        call.headers_left_out = json!(headers).to_string().len() > DIALIN_HEADERS_BYTES_MAX;
        call.sip_headers = Some(headers).filter(|_| !call.headers_left_out);
    }
    Ok(call)
}

fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

impl DialinWebhook {
    /// Returns the id of the record of a refused call: the same whenever the call is reported.
    pub fn record_id(&self) -> SessionId {
        let hash = Sha256::digest(&self.call_id);
        let mut id = [0; 16];
        id.copy_from_slice(&hash[..16]);
        registry::session_id(id)
    }

    /// Returns the `body` of the bot, with the key under every name that bots use.
    pub fn bot_body(&self, config: &Videoroom) -> Value {
        let mut settings = Map::new();
        let mut put = |name: &str, value: Value| settings.insert(name.to_owned(), value);
        put("call_id", json!(self.call_id));
        put("call_domain", json!(self.call_domain));
        put("To", json!(self.to));
        put("From", json!(self.from));
        if let Some(headers) = &self.sip_headers {
            put("sip_headers", json!(headers));
        }
        let mut body = Map::from_iter([("dialin_settings".to_owned(), Value::Object(settings))]);
        let key = config.key.as_ref().map_or("", Secret::expose);
        for (name, value) in [("videoroom_api_key", key), ("videoroom_api_url", &config.url)] {
            for name in [&[name], aliases::aliases(Area::JsonKey, name)].into_iter().flatten() {
                body.insert((*name).to_owned(), value.into());
            }
        }
        Value::Object(body)
    }
}

/// Verifies the signature of a webhook with the key of the number. `header` looks up a header by
/// its lower-case name.
///
/// # Errors
/// [`DialinSignatureError`]. The answer is 403.
pub fn verify<'r>(
    key: &[u8],
    header: &dyn Fn(&str) -> Option<&'r str>,
    body: &[u8],
    now_unix_s: u64,
) -> Result<(), DialinSignatureError> {
    let signature = header(SIGNATURE).ok_or(DialinSignatureError::Missing(SIGNATURE))?;
    let timestamp = header(TIMESTAMP).ok_or(DialinSignatureError::Missing(TIMESTAMP))?;
    let signature = BASE64.decode(signature.trim().as_bytes());
    let signature = signature.map_err(|_| DialinSignatureError::Malformed(SIGNATURE))?;
    let signed_s = parse_unix_s(timestamp).ok_or(DialinSignatureError::Malformed(TIMESTAMP))?;
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    let mac = mac.chain_update(timestamp).chain_update(".").chain_update(body);
    mac.verify_slice(&signature)
        .map_err(|_| DialinSignatureError::Foreign)?;
    match signed_s.abs_diff(now_unix_s) {
        off_s if off_s > SIGNATURE_AGE_MAX_S => Err(DialinSignatureError::Stale { off_s }),
        _ => Ok(()),
    }
}

/// Parses a timestamp in seconds or, as in real traffic, milliseconds.
fn parse_unix_s(text: &str) -> Option<u64> {
    /// As seconds this is the year 5138; as milliseconds, 1973.
    const SECONDS_MAX: u64 = 100_000_000_000;
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number: u64 = plain.then(|| text.parse().ok()).flatten()?;
    Some(if number < SECONDS_MAX { number } else { number / 1000 })
}

/// What a bot needs to connect its held call.
#[derive(Clone, PartialEq, Eq)]
pub struct HeldCall {
    call_id: String,
    call_domain: String,
    key: Secret,
    url: String,
}

impl fmt::Debug for HeldCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldCall").finish_non_exhaustive()
    }
}

/// Reads the held call from a bot's `body`; `None` if the session was not started by a call. Key
/// and URL come from the configuration only: any client can write a `body`, and could choose where
/// the bot sends its requests.
pub fn held_call(body: &Value, config: &Videoroom) -> Option<HeldCall> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(HeldCall {
        call_id: text(&body["dialin_settings"]["call_id"])?,
        call_domain: text(&body["dialin_settings"]["call_domain"])?,
        key: config.key.clone()?,
        url: config.url.clone(),
    })
}

impl HeldCall {
    /// Returns the request that connects the call to the room at `sip_uri`.
    pub fn connect_request(&self, sip_uri: &str) -> RestRequest {
        let body =
            json!({"callId": self.call_id, "callDomain": self.call_domain, "sipUri": super::with_sip_scheme(sip_uri)});
        RestRequest {
            method: RestMethod::Post,
            url: format!("{}/dialin/pinlessCallUpdate", self.url),
            authorization: Some(bearer(&self.key)),
            body: Some(RestBody::json(&body)),
        }
    }

    /// Parses the answer to that request.
    ///
    /// # Errors
    /// [`DailyError::Refused`] if the status is not 2xx.
    pub fn parse_connect_answer(&self, status: u16, body: &[u8]) -> Result<(), DailyError> {
        match status {
            200..=299 => Ok(()),
            _ => error::parse_answer(ApiStep::Connect, status, body, &self.key).map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests;
