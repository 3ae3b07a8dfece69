//! Parses webhooks: calls that begin, calls that end, and events that are ignored.
//!
//! In: the body of a webhook with a verified signature, and the id of our number. Out:
//! [`WebhookEvent`]s in the order of the body. Unknown, missing or mistyped members never cost a
//! call; what cannot be read becomes [`WebhookEvent::Ignored`]. Rejects bodies that are not JSON
//! objects or not about a business account. Source: `docs/spec/whatsapp.md` 3.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::limits::OFFER_SDP_BYTES_MAX;

/// The value of `object` in every webhook for us.
const OBJECT: &str = "whatsapp_business_account";
/// The longest call id in bytes. Known ones have about 70.
const CALL_ID_BYTES_MAX: usize = 256;
/// The longest text in bytes that reaches the bot. Longer ones are left out.
const TEXT_BYTES_MAX: usize = 1_024;
/// The number of events read from one webhook. The provider sends one call in each.
pub const EVENTS_MAX: usize = 64;
/// The age of an offer beyond which no accept can succeed: the app gives up after 30 to 60 s.
pub const OFFER_AGE_MAX_S: u64 = 60;

/// Why a webhook with a valid signature is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhatsAppWebhookError {
    NotJson,
    Object,
}

impl fmt::Display for WhatsAppWebhookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhatsAppWebhookError::NotJson => f.write_str("the body is no JSON object"),
            WhatsAppWebhookError::Object => write!(f, "Invalid object type: `{OBJECT}` is taken here"),
        }
    }
}

impl std::error::Error for WhatsAppWebhookError {}

/// An event of a webhook.
#[derive(Clone, PartialEq)]
pub enum WebhookEvent {
    /// A user calls.
    Connect(Box<IncomingCall>),
    /// The other side ended a call.
    Terminate(CallEnd),
    /// A call to another number of the same app, by the number's id.
    OtherNumber(String),
    /// Not understood or not for us, with the reason.
    Ignored(&'static str),
}

/// An incoming call.
#[derive(Clone, PartialEq)]
pub struct IncomingCall {
    pub call_id: String,
    /// The masked number of the caller.
    pub from: String,
    /// Unix seconds, if readable.
    pub timestamp_s: Option<u64>,
    /// The offer, if usable.
    pub sdp: Option<String>,
    /// The bot's `body`.
    pub body: Value,
}

impl IncomingCall {
    /// Returns the age of an offer that is too old to be answered.
    pub fn stale_age_s(&self, now_unix_s: u64) -> Option<u64> {
        let age_s = now_unix_s.saturating_sub(self.timestamp_s?);
        (age_s > OFFER_AGE_MAX_S).then_some(age_s)
    }
}

impl fmt::Debug for IncomingCall {
    /// Hides names, numbers and the offer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingCall")
            .field("call_id", &self.call_id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WebhookEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebhookEvent::Connect(connect) => connect.fmt(f),
            WebhookEvent::Terminate(terminate) => terminate.fmt(f),
            WebhookEvent::OtherNumber(_) => f.write_str("OtherNumber"),
            WebhookEvent::Ignored(why) => write!(f, "Ignored({why})"),
        }
    }
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallEnd {
    pub call_id: String,
    /// `COMPLETED`, `FAILED` or `REJECTED`; empty for any other status.
    pub status: &'static str,
    /// The code of the first error.
    pub error: Option<i64>,
}

/// Parses a webhook. `ours` is the id of our number.
///
/// # Errors
/// [`WhatsAppWebhookError`]. The answer is 400.
pub fn parse(body: &[u8], ours: &str) -> Result<Vec<WebhookEvent>, WhatsAppWebhookError> {
    let Ok(Value::Object(webhook)) = serde_json::from_slice(body) else {
        return Err(WhatsAppWebhookError::NotJson);
    };
    if text(&webhook, "object") != Some(OBJECT) {
        return Err(WhatsAppWebhookError::Object);
    }
    let mut events = Vec::new();
    for change in objects(&webhook, "entry").flat_map(|entry| objects(entry, "changes")) {
        read_change(change, ours, &mut events);
    }
    events.truncate(EVENTS_MAX);
    Ok(events)
}

fn read_change(change: &Map<String, Value>, ours: &str, events: &mut Vec<WebhookEvent>) {
    if text(change, "field") != Some("calls") {
        return events.push(WebhookEvent::Ignored("it is not about calls"));
    }
    let Some(Value::Object(value)) = change.get("value") else {
        return events.push(WebhookEvent::Ignored("a change has no value"));
    };
    let number = object(value, "metadata").and_then(|metadata| text(metadata, "phone_number_id"));
    match number {
        Some(number) if number == ours => {}
        Some(number) => return events.push(WebhookEvent::OtherNumber(number.chars().take(32).collect())),
        None => return events.push(WebhookEvent::Ignored("it names no number")),
    }
    let before = events.len();
    events.extend(
        objects(value, "calls")
            .take(EVENTS_MAX)
            .map(|call| read_call(call, value, ours)),
    );
    if events.len() == before {
        events.push(WebhookEvent::Ignored("it has no call, but the state of one"));
    }
}

fn read_call(call: &Map<String, Value>, value: &Map<String, Value>, ours: &str) -> WebhookEvent {
    let Some(call_id) = text(call, "id").filter(|id| is_call_id(id)) else {
        return WebhookEvent::Ignored("a call has no id that can be used");
    };
    match text(call, "event") {
        Some("connect") => read_connect(call_id, call, value, ours),
        Some("terminate") => WebhookEvent::Terminate(CallEnd {
            call_id: call_id.to_owned(),
            status: status(text(call, "status").unwrap_or_default()),
            error: error(call).or_else(|| error(value)),
        }),
        _ => WebhookEvent::Ignored("its event is neither `connect` nor `terminate`"),
    }
}

fn read_connect(call_id: &str, call: &Map<String, Value>, value: &Map<String, Value>, ours: &str) -> WebhookEvent {
    // Some samples lack it, and only users of the app can call.
    if text(call, "direction").is_some_and(|direction| !direction.eq_ignore_ascii_case("USER_INITIATED")) {
        return WebhookEvent::Ignored("the call is not one of a user");
    }
    let offer = object(call, "session")
        .filter(|session| text(session, "sdp_type").is_some_and(|kind| kind.eq_ignore_ascii_case("offer")))
        .and_then(|session| text(session, "sdp"))
        .filter(|sdp| sdp.len() <= OFFER_SDP_BYTES_MAX);
    let timestamp = match call.get("timestamp") {
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => text(call, "timestamp").map(str::to_owned),
    };
    WebhookEvent::Connect(Box::new(IncomingCall {
        call_id: call_id.to_owned(),
        from: super::masked(text(call, "from").unwrap_or_default()),
        timestamp_s: timestamp.and_then(|text| text.trim().parse().ok()),
        sdp: offer.map(str::to_owned),
        body: bot_body(call_id, call, value, ours),
    }))
}

/// Creates the bot's `body` with the webhook's member names. Pipecat bots read `from_`.
fn bot_body(call_id: &str, call: &Map<String, Value>, value: &Map<String, Value>, ours: &str) -> Value {
    let mut body = Map::new();
    let mut put = |name: &str, text: Option<&str>| {
        if let Some(text) = text.filter(|text| text.len() <= TEXT_BYTES_MAX) {
            body.insert(name.to_owned(), json!(text));
        }
    };
    put("id", Some(call_id));
    let from = text(call, "from");
    put("from", from);
    put("from_", from);
    for name in [
        "to",
        "event",
        "direction",
        "timestamp",
        "from_user_id",
        "cta_payload",
        "deeplink_payload",
    ] {
        put(name, text(call, name));
    }
    put("name", name_of_caller(call, value));
    put("phone_number_id", Some(ours));
    Value::Object(body)
}

/// Finds the caller's contact, by number or by the id of users with a hidden number.
fn name_of_caller<'v>(call: &Map<String, Value>, value: &'v Map<String, Value>) -> Option<&'v str> {
    let is_caller = |contact: &&Map<String, Value>| {
        let same = |ours: &str, theirs: &str| {
            let (ours, theirs) = (text(call, ours), text(contact, theirs));
            ours.is_some() && ours == theirs
        };
        same("from", "wa_id") || same("from_user_id", "user_id")
    };
    let contact = objects(value, "contacts").find(is_caller)?;
    object(contact, "profile").and_then(|profile| text(profile, "name"))
}

/// The id is logged, so it must be printable.
fn is_call_id(id: &str) -> bool {
    (1..=CALL_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn status(text: &str) -> &'static str {
    let known = ["COMPLETED", "FAILED", "REJECTED"];
    known
        .into_iter()
        .find(|known| text.eq_ignore_ascii_case(known))
        .unwrap_or_default()
}

fn error(map: &Map<String, Value>) -> Option<i64> {
    objects(map, "errors").find_map(|error| error.get("code")?.as_i64())
}

fn text<'v>(map: &'v Map<String, Value>, name: &str) -> Option<&'v str> {
    map.get(name)?.as_str().filter(|text| !text.is_empty())
}

fn object<'v>(map: &'v Map<String, Value>, name: &str) -> Option<&'v Map<String, Value>> {
    map.get(name)?.as_object()
}

fn objects<'v>(map: &'v Map<String, Value>, name: &str) -> impl Iterator<Item = &'v Map<String, Value>> {
    let list = map.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(Value::as_object)
}

#[cfg(test)]
mod tests;
