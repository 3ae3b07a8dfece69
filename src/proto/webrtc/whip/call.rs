//! Bodies and single-use keys of the calls endpoint.
//!
//! In: POST bodies with their type, and headers with a key. Out: an offer and session settings,
//! which are passed to the bot unchanged, and the reply with a key. A key is the id of a registered
//! session with the prefix that the browser library expects. Rejected: other types, forms without
//! an offer, and JSON that is not an object. Sources: `docs/spec/whip.md` 5, RFC 7578, RFC 7617
//! (Basic).

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use super::{SDP, WhipError, media_type, sdp_text};
use crate::bots;
use crate::limits::{OFFER_SDP_BYTES_MAX, REGISTERED_UNUSED};
use crate::server::multipart::{MultipartError, MultipartEvent, MultipartParser, boundary};
use crate::server::{body, key};
use crate::uuid::Uuid;

/// The prefix of a key.
const PREFIX: &str = "ek_";

/// The content types of the calls endpoint.
const TYPES: &str = "application/sdp, or multipart/form-data with the parts `sdp` and `session`";

/// The body of a POST.
#[derive(Clone, Debug, PartialEq)]
pub struct CallsRequest {
    pub sdp: String,
    /// The session settings.
    pub session: Option<Value>,
}

impl CallsRequest {
    /// Parses a body of SDP alone.
    ///
    /// # Errors
    /// [`WhipError`].
    pub fn from_sdp(content_type: &[u8], body: &[u8]) -> Result<CallsRequest, WhipError> {
        if !media_type(content_type).eq_ignore_ascii_case(SDP.as_bytes()) {
            return Err(WhipError::UnsupportedType(SDP));
        }
        Ok(CallsRequest {
            sdp: sdp_text(body)?.to_owned(),
            session: None,
        })
    }

    /// Parses a body that may be a form.
    ///
    /// # Errors
    /// [`WhipError`].
    pub fn from_sdp_or_form(content_type: &[u8], body: &[u8]) -> Result<CallsRequest, WhipError> {
        if media_type(content_type).eq_ignore_ascii_case(SDP.as_bytes()) {
            return CallsRequest::from_sdp(content_type, body);
        }
        let boundary = boundary(content_type).ok_or(WhipError::UnsupportedType(TYPES))?;
        // The offer, and settings of the same size.
        let mut parser = MultipartParser::for_fields(&boundary, 2 * OFFER_SDP_BYTES_MAX);
        let (mut sdp, mut session) = (None, None);
        let pushed = parser.push::<MultipartError>(body, &mut |event| {
            match event {
                MultipartEvent::Field { name: "sdp", value } => sdp = Some(value.to_vec()),
                MultipartEvent::Field { name: "session", value } => session = Some(value.to_vec()),
                _ => {}
            }
            Ok(())
        });
        pushed.and_then(|()| parser.finish()).map_err(|broken| match broken {
            MultipartError::Malformed(why) | MultipartError::Files(why) => WhipError::BadForm(why),
            MultipartError::FieldsTooLong => WhipError::TooLong,
        })?;
        let sdp = sdp.ok_or(WhipError::BadForm("the form has no part named `sdp`"))?;
        Ok(CallsRequest {
            sdp: sdp_text(&sdp)?.to_owned(),
            session: session.map(|session| parse_settings(&session)).transpose()?,
        })
    }
}

/// Parses the session settings.
fn parse_settings(json: &[u8]) -> Result<Value, WhipError> {
    match serde_json::from_slice(json) {
        Ok(settings @ Value::Object(_)) => Ok(settings),
        _ => Err(WhipError::BadForm("the part `session` is no JSON object")),
    }
}

/// Parses a request for a key. Returns the bot's `body`, and the name of one of several bots if it
/// has one.
///
/// # Errors
/// [`body::ValidationError`].
pub fn client_secret(request: &[u8], has_bots: bool) -> Result<(Value, Option<String>), body::ValidationError> {
    let map = match request.trim_ascii().is_empty() {
        true => Map::new(),
        false => body::parse_object(request)?,
    };
    let mut fields = body::ObjectReader::new(map, Vec::new());
    let session = fields.object("session");
    // A runner with one bot ignores what it does not know.
    let bot = match has_bots {
        true => fields.string("bot", bots::BYTES_MAX),
        false => None,
    };
    fields.finish()?;
    let body = match session {
        Some(session) => json!({"session": session}),
        None => json!({}),
    };
    Ok((body, bot))
}

/// Returns the reply with a key, in the current and the previous format.
pub fn client_secret_reply(session_id: &str, body: &Value, now_s: u64) -> Vec<u8> {
    let value = format!("{PREFIX}{session_id}");
    let expires_at = now_s + REGISTERED_UNUSED.as_secs();
    let session = body.get("session").cloned().unwrap_or_else(|| json!({}));
    let reply = json!({
        "value": value,
        "expires_at": expires_at,
        "session": session,
        "client_secret": {"value": value, "expires_at": expires_at},
    });
    reply.to_string().into_bytes()
}

/// The key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentedKey(Vec<u8>);

impl PresentedKey {
    /// Finds the key: a bearer token, the Basic password if `is_taken`, or the query's token.
    pub fn from_request<'h>(
        mut authorizations: impl Iterator<Item = &'h [u8]>,
        is_taken: bool,
        token: Option<String>,
    ) -> Option<Self> {
        match (authorizations.next(), authorizations.next()) {
            (Some(only), None) => match key::bearer(only) {
                Some(bearer) => Some(PresentedKey(bearer.to_vec())),
                None => basic_password(only).filter(|_| is_taken).map(PresentedKey),
            },
            (None, _) => token.map(|token| PresentedKey(token.into_bytes())),
            _ => None,
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the session id in the key, if it is text.
    pub fn session_id(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.0).ok()?;
        Some(text.strip_prefix(PREFIX).unwrap_or(text))
    }

    /// Returns whether the key has the format of [`client_secret_reply`].
    pub fn is_client_secret(&self) -> bool {
        let text = std::str::from_utf8(&self.0).ok();
        // The id of a replica's session goes on after its UUID.
        text.and_then(|text| text.strip_prefix(PREFIX)?.split('.').next())
            .is_some_and(|id| Uuid::parse(id).is_some())
    }
}

/// Returns the password of an `Authorization: Basic` header.
fn basic_password(authorization: &[u8]) -> Option<Vec<u8>> {
    const SCHEME: &[u8] = b"basic ";
    let (scheme, pair) = authorization.trim_ascii().split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    let pair = BASE64.decode(pair.trim_ascii()).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Returns the error JSON of this endpoint, which includes the `detail` of other endpoints.
pub fn error_body(detail: &Value) -> Value {
    let message = detail.as_str().map_or_else(|| detail.to_string(), str::to_owned);
    json!({"error": {"message": message}, "detail": detail})
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &[u8] = b"multipart/form-data; boundary=B";

    fn form(parts: &[(&str, &str)]) -> Vec<u8> {
        let part = |(name, value): &(&str, &str)| {
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let parts: String = parts.iter().map(part).collect();
        format!("{parts}--B--\r\n").into_bytes()
    }

    #[test]
    fn an_offer_comes_alone_or_in_a_form() {
        let alone = CallsRequest {
            sdp: "v=0\r\n".into(),
            session: None,
        };
        assert_eq!(
            CallsRequest::from_sdp(b"application/SDP; charset=utf-8", b"v=0\r\n"),
            Ok(alone.clone())
        );
        assert_eq!(
            CallsRequest::from_sdp_or_form(b"application/sdp", b"v=0\r\n"),
            Ok(alone.clone())
        );
        assert_eq!(
            CallsRequest::from_sdp_or_form(FORM, &form(&[("sdp", "v=0\r\n")])),
            Ok(alone)
        );
        let both = CallsRequest::from_sdp_or_form(FORM, &form(&[("session", r#"{"model":"m"}"#), ("sdp", "v=0")]));
        assert_eq!(both.map(|call| call.session), Ok(Some(json!({"model": "m"}))));
    }

    #[test]
    fn other_bodies_are_refused() {
        for kind in [&b""[..], b"text/plain", b"application/json", FORM] {
            assert_eq!(
                CallsRequest::from_sdp(kind, b"v=0"),
                Err(WhipError::UnsupportedType(SDP))
            );
        }
        assert_eq!(
            CallsRequest::from_sdp_or_form(b"text/plain", b""),
            Err(WhipError::UnsupportedType(TYPES))
        );
        assert_eq!(
            CallsRequest::from_sdp_or_form(b"multipart/form-data", b""),
            Err(WhipError::UnsupportedType(TYPES))
        );
        for body in [form(&[]), form(&[("sdp", "v=0"), ("session", "[]")]), b"--B".to_vec()] {
            assert!(matches!(
                CallsRequest::from_sdp_or_form(FORM, &body),
                Err(WhipError::BadForm(_))
            ));
        }
        assert_eq!(
            CallsRequest::from_sdp(b"application/sdp", b"\xff"),
            Err(WhipError::NotUtf8)
        );
        let long = |bytes: usize| CallsRequest::from_sdp(b"application/sdp", &vec![b'v'; bytes]).map(|_| ());
        assert_eq!(long(OFFER_SDP_BYTES_MAX), Ok(()));
        assert_eq!(long(OFFER_SDP_BYTES_MAX + 1), Err(WhipError::TooLong));
    }

    #[test]
    fn a_key_has_both_shapes_and_an_end() {
        let request = br#"{"session":{"type":"realtime"},"expires_after":{"seconds":9},"bot":"sales"}"#;
        assert_eq!(
            client_secret(request, false).expect("read").1,
            None,
            "a runner with one bot"
        );
        let (body, bot) = client_secret(request, true).expect("read");
        assert_eq!(
            (&body, bot.as_deref()),
            (&json!({"session": {"type": "realtime"}}), Some("sales"))
        );
        let reply: Value = serde_json::from_slice(&client_secret_reply("S", &body, 1_000)).expect("JSON");
        assert_eq!(
            reply,
            json!({"value": "ek_S", "expires_at": 1_300, "session": {"type": "realtime"},
                   "client_secret": {"value": "ek_S", "expires_at": 1_300}})
        );
        assert_eq!(client_secret(b" ", false), Ok((json!({}), None)));
        assert!(client_secret(b"[]", true).is_err());
        assert!(client_secret(br#"{"session":1}"#, true).is_err());
    }

    #[test]
    fn keys_come_from_three_places() {
        let of = |headers: &[&str], basic, token: Option<&str>| {
            PresentedKey::from_request(
                headers.iter().map(|text| text.as_bytes()),
                basic,
                token.map(str::to_owned),
            )
        };
        let shown = |text: &str| Some(PresentedKey(text.as_bytes().to_vec()));
        assert_eq!(of(&["Bearer K"], false, Some("T")), shown("K"));
        assert_eq!(of(&["basic dXNlcjpwYTpzcw=="], true, None), shown("pa:ss"));
        assert_eq!(of(&["Basic dXNlcjpwYTpzcw=="], false, None), None);
        assert_eq!(of(&["Basic ?"], true, None), None);
        assert_eq!(of(&["Basic dXNlcg=="], true, None), None);
        assert_eq!(of(&[], true, Some("T")), shown("T"));
        assert_eq!(of(&["Bearer K", "Bearer K"], true, Some("T")), None);
        let id = "056305c4-5f0e-4f3c-9d7e-6c1f0a2b3c4d";
        let key = PresentedKey(format!("ek_{id}").into_bytes());
        assert_eq!((key.session_id(), key.is_client_secret()), (Some(id), true));
        let plain = PresentedKey(id.as_bytes().to_vec());
        assert_eq!((plain.session_id(), plain.is_client_secret()), (Some(id), false));
        assert!(!PresentedKey(b"ek_anything".to_vec()).is_client_secret());
        assert_eq!(PresentedKey(b"\xff".to_vec()).session_id(), None);
    }

    #[test]
    fn errors_have_a_message() {
        assert_eq!(
            error_body(&json!("no")),
            json!({"error": {"message": "no"}, "detail": "no"})
        );
        assert_eq!(error_body(&json!([1]))["error"]["message"], "[1]");
    }
}
