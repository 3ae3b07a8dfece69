//! Access tokens, as the server verifies and refreshes them: JWT, HS256.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value, json};
use sha2::Sha256;

/// The leeway for clocks, in seconds.
const LEEWAY_S: u64 = 60;
/// The lifetime of a refreshed token.
const RENEWED_S: u64 = 600;
const LENGTH_MAX: usize = 256;

/// The claims of a valid token.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    pub identity: String,
    pub name: String,
    pub room: String,
    pub metadata: String,
    pub attributes: BTreeMap<String, String>,
    /// 0 standard, 1 ingress, 2 egress, 3 SIP, 4 agent.
    pub kind: i32,
    pub can_publish: bool,
    pub can_subscribe: bool,
    pub can_publish_data: bool,
    pub hidden: bool,
    pub agent: bool,
    /// The original claims, for the refresh.
    whole: Map<String, Value>,
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs()
}

fn seal(secret: &str, signed: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
    mac.update(signed.as_bytes());
    mac
}

/// Verifies a token and its permission to join, or returns the status and the text of the refusal.
pub fn verify(token: &str, key: &str, secret: &str) -> Result<Claims, (u16, String)> {
    let invalid = |why: &str| (401, format!("invalid authorization token: {why}"));
    let parts: Vec<&str> = token.split('.').collect();
    let [head, body, tag] = parts[..] else {
        return Err((401, "invalid authorization token".into()));
    };
    let read =
        |part: &str| -> Option<Value> { serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).ok()?).ok() };
    let (Some(header), Some(Value::Object(whole))) = (read(head), read(body)) else {
        return Err((401, "invalid authorization token".into()));
    };
    if header["alg"] != "HS256" {
        return Err((401, "invalid authorization token".into()));
    }
    if whole.get("iss").and_then(Value::as_str) != Some(key) {
        // Older servers repeat what they refuse, here and below.
        let named = whole.get("iss").and_then(Value::as_str).unwrap_or_default();
        return Err((401, format!("invalid API key: {named}")));
    }
    let tag = BASE64URL_NOPAD
        .decode(tag.as_bytes())
        .map_err(|_| invalid("the signature is no base64"))?;
    let mac = seal(secret, &format!("{head}.{body}"));
    mac.verify_slice(&tag).map_err(|_| {
        (
            401,
            format!("invalid token: {token}, error: error in cryptographic primitive"),
        )
    })?;
    let seconds = |name: &str| whole.get(name).and_then(Value::as_u64);
    let expires = seconds("exp").ok_or_else(|| invalid("it never expires"))?;
    if expires + LEEWAY_S < now_s() {
        return Err(invalid("validation failed, token is expired (exp)"));
    }
    if seconds("nbf").is_some_and(|begins| begins > now_s() + LEEWAY_S) {
        return Err(invalid("validation failed, token not valid yet (nbf)"));
    }
    let grants = whole.get("video").cloned().unwrap_or(Value::Null);
    if grants["roomJoin"] != true {
        return Err((401, "no permissions to access the room".into()));
    }
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let identity = text(whole.get("sub").or_else(|| whole.get("jti")));
    let room = text(grants.get("room"));
    for (value, empty, what) in [
        (&identity, "identity cannot be empty", "participant identity"),
        (&room, "no room name", "room name"),
    ] {
        if value.is_empty() {
            return Err((400, empty.into()));
        }
        if value.len() > LENGTH_MAX {
            return Err((400, format!("{what} length exceeds limits: max length {LENGTH_MAX}")));
        }
    }
    // An absent flag allows.
    let may = |name: &str| grants[name] != false;
    let attributes = whole.get("attributes").and_then(Value::as_object);
    let attributes = attributes
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), text(Some(value))));
    let kind = match whole.get("kind").and_then(Value::as_str) {
        Some("ingress") => 1,
        Some("egress") => 2,
        Some("sip") => 3,
        Some("agent") => 4,
        // The grant `agent` is a permission and does not set the kind.
        _ => 0,
    };
    Ok(Claims {
        identity,
        name: text(whole.get("name")),
        room,
        metadata: text(whole.get("metadata")),
        attributes: attributes.collect(),
        kind,
        can_publish: may("canPublish"),
        can_subscribe: may("canSubscribe"),
        can_publish_data: may("canPublishData"),
        hidden: grants["hidden"] == true,
        agent: grants["agent"] == true,
        whole,
    })
}

/// Creates a token with the same claims from now on.
pub fn renew(claims: &Claims, secret: &str) -> String {
    let mut whole = claims.whole.clone();
    let kept = whole.get("exp").and_then(Value::as_u64).unwrap_or_default();
    whole.insert("nbf".into(), now_s().into());
    whole.insert("exp".into(), kept.max(now_s() + RENEWED_S).into());
    let part = |value: Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let signed = format!(
        "{}.{}",
        part(json!({"alg": "HS256", "typ": "JWT"})),
        part(Value::Object(whole))
    );
    let tag = seal(secret, &signed).finalize().into_bytes();
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&tag))
}
