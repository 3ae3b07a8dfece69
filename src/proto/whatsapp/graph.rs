//! Requests to the Graph API, and their answers.
//!
//! In: an action on a call; later status and body of the answer. Out: a [`RestRequest`] and a
//! [`GraphOutcome`], judged by status and by `success`. Numbers and ids are removed from texts of
//! the provider before they are repeated. Source: `docs/spec/whatsapp.md` 4.

use std::fmt;

use serde_json::{Value, json};

use crate::server::rest::{RestBody, RestMethod, RestRequest, bearer, redact_reason};
use crate::whatsapp::config::Messaging;

/// Characters of `fbtrace_id` that are logged.
const TRACE_CHARS_MAX: usize = 64;

/// An action on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAction {
    /// Sends the answer, so that ICE and DTLS run while the phone rings.
    PreAccept,
    /// Picks up.
    Accept,
    /// Declines a call that was not accepted.
    Reject,
    /// Ends an accepted call.
    Terminate,
}

impl CallAction {
    /// Returns the name of the action in the API.
    pub fn name(self) -> &'static str {
        match self {
            CallAction::PreAccept => "pre_accept",
            CallAction::Accept => "accept",
            CallAction::Reject => "reject",
            CallAction::Terminate => "terminate",
        }
    }

    fn has_session(self) -> bool {
        matches!(self, CallAction::PreAccept | CallAction::Accept)
    }
}

/// Creates the request for an action. `pre_accept` and `accept` carry the same SDP text.
pub fn request(config: &Messaging, action: CallAction, call_id: &str, sdp: &str) -> RestRequest {
    let mut body = json!({"messaging_product": "whatsapp", "call_id": call_id, "action": action.name()});
    if action.has_session() {
        body["session"] = json!({"sdp_type": "answer", "sdp": sdp});
    }
    RestRequest {
        method: RestMethod::Post,
        url: format!("{}/{}/calls", config.url, config.phone_number_id),
        authorization: Some(bearer(&config.token)),
        body: Some(RestBody::json(&body)),
    }
}

/// Creates the request for the settings of the number, which changes nothing.
pub fn settings(config: &Messaging) -> RestRequest {
    RestRequest {
        method: RestMethod::Get,
        url: format!("{}/{}/settings", config.url, config.phone_number_id),
        authorization: Some(bearer(&config.token)),
        body: None,
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GraphOutcome {
    Done,
    /// It was not done.
    Refused(GraphError),
    /// Whether it was done is unknown, and the same request may succeed a moment later.
    Unclear(GraphError),
}

/// Why a request failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphError {
    /// The HTTP status; `None` without an answer.
    pub status: Option<u16>,
    /// The provider's error code.
    pub code: Option<i64>,
    /// The provider's text or the transport error, safe for the log.
    pub words: String,
    /// The provider's id of the request.
    pub trace: String,
}

impl GraphError {
    /// Creates the error of a request without an answer.
    pub fn unanswered(words: String) -> Self {
        GraphError {
            words,
            ..GraphError::default()
        }
    }

    /// Tells whether another runner or app of the account has the call, which is not a fault.
    pub fn is_duplicate(&self) -> bool {
        self.code == Some(CODE_DUPLICATE)
    }

    /// Returns advice for the operator.
    fn advice(&self) -> Option<&'static str> {
        Some(match self.code? {
            100 => "the provider takes no such parameter or SDP",
            CODE_TOKEN => "MESSAGING_TOKEN is wrong or has expired: calls cannot be answered until there is a new one",
            131_044 => "the account has no payment method",
            131_055 => "the number is in SIP mode, in which calls do not come here",
            138_000 => "calling is not switched on for this number",
            138_002 => "the number has as many calls as it may have",
            CODE_DUPLICATE => "the call is known or was answered already, perhaps by another app of the account",
            138_006 => "the user has not permitted calls",
            138_021 => "no media reached the provider",
            _ => return None,
        })
    }
}

const CODE_TOKEN: i64 = 190;
const CODE_DUPLICATE: i64 = 138_003;
/// Connection trouble at the provider, and too many requests.
const CODES_RETRYABLE: [i64; 2] = [138_004, 138_005];

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separate = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let result = write!(f, "{separate}{text}");
            separate = ", ";
            result
        };
        if let Some(code) = self.code {
            part(f, format_args!("code {code}"))?;
        }
        if let Some(status) = self.status {
            part(f, format_args!("status {status}"))?;
        }
        if let Some(advice) = self.advice() {
            part(f, format_args!("{advice}"))?;
        }
        if !self.words.is_empty() {
            part(f, format_args!("{}", self.words))?;
        }
        if !self.trace.is_empty() {
            part(f, format_args!("fbtrace_id {}", self.trace))?;
        }
        Ok(())
    }
}

/// Judges an answer.
pub fn parse_answer(status: u16, body: &[u8]) -> GraphOutcome {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let at = |pointer: &str| parsed.as_ref().and_then(|value| value.pointer(pointer));
    let text = |pointer: &str| at(pointer).and_then(Value::as_str).unwrap_or_default();
    let is_ok = (200..=299).contains(&status);
    let success = at("/success").and_then(Value::as_bool);
    if is_ok && success == Some(true) {
        return GraphOutcome::Done;
    }
    let code = at("/error/code").and_then(Value::as_i64);
    let details = match text("/error/error_data/details") {
        "" => text("/error/message"),
        details => details,
    };
    let words = match (is_ok, success, details) {
        (true, Some(false), "") => "the answer says `success` is false".to_owned(),
        (true, None, "") => "the answer does not say whether it was done".to_owned(),
        (.., details) => redact_reason(details),
    };
    let trace = text("/error/fbtrace_id").chars().filter(char::is_ascii_alphanumeric);
    let failure = GraphError {
        status: Some(status),
        code,
        words,
        trace: trace.take(TRACE_CHARS_MAX).collect(),
    };
    let is_retryable = match code {
        Some(code) if CODES_RETRYABLE.contains(&code) => true,
        // A refusal with an error code is final, whatever the status.
        Some(_) => false,
        None => status == 429 || status >= 500 || (is_ok && success.is_none()),
    };
    match is_retryable {
        true => GraphOutcome::Unclear(failure),
        false => GraphOutcome::Refused(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Messaging {
        Messaging::for_tests("http://127.0.0.1:9/v23.0")
    }

    /// R-020: URL, bearer token and body match `docs/spec/whatsapp.md` 4.
    #[test]
    fn builds_the_documented_requests() {
        let sdp = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\n";
        for (action, has_session) in [
            (CallAction::PreAccept, true),
            (CallAction::Accept, true),
            (CallAction::Reject, false),
            (CallAction::Terminate, false),
        ] {
            let request = request(&config(), action, "wacid.A+/=", sdp);
            assert_eq!(request.url, "http://127.0.0.1:9/v23.0/1060000001/calls");
            assert_eq!(request.method, RestMethod::Post);
            let authorization = request.authorization.expect("a bearer");
            assert_eq!(authorization.expose(), "Bearer token-of-the-tests");
            let body: Value = serde_json::from_slice(&request.body.expect("a body").bytes).expect("JSON");
            let mut expected =
                json!({"messaging_product": "whatsapp", "call_id": "wacid.A+/=", "action": action.name()});
            if has_session {
                expected["session"] = json!({"sdp_type": "answer", "sdp": sdp});
            }
            assert_eq!(body, expected);
        }
    }

    #[test]
    fn judges_answers_by_status_and_success() {
        let done = br#"{"messaging_product":"whatsapp","success":true}"#;
        assert_eq!(parse_answer(200, done), GraphOutcome::Done);
        let refused = |status, body: &str| matches!(parse_answer(status, body.as_bytes()), GraphOutcome::Refused(_));
        let unclear = |status, body: &str| matches!(parse_answer(status, body.as_bytes()), GraphOutcome::Unclear(_));
        assert!(refused(200, r#"{"success":false}"#));
        assert!(unclear(200, "OK") && unclear(200, "") && unclear(200, r#"{"success":"true"}"#));
        assert!(unclear(500, "") && unclear(429, "{}") && unclear(503, "<html>"));
        assert!(refused(400, "") && refused(401, "{}") && refused(302, ""));
        assert!(unclear(500, r#"{"error":{"code":138004}}"#) && unclear(400, r#"{"error":{"code":138005}}"#));
        assert!(refused(500, r#"{"error":{"code":100}}"#));
        assert!(refused(400, r#"{"success":true}"#));
    }

    #[test]
    fn errors_give_advice_and_hide_numbers() {
        let body = br#"{"error":{"message":"(#190) x","type":"OAuthException","code":190,"fbtrace_id":"AbC-9\n",
            "error_data":{"details":"Session of 15550001111 has expired"}}}"#;
        let GraphOutcome::Refused(failure) = parse_answer(401, body) else {
            panic!("refused");
        };
        let words = failure.to_string();
        assert!(
            words.contains("code 190, status 401") && words.contains("MESSAGING_TOKEN"),
            "{words}"
        );
        assert!(
            words.contains("has expired, fbtrace_id AbC9") && !words.contains("1555"),
            "{words}"
        );
        assert!(!failure.is_duplicate());
        let GraphOutcome::Refused(twin) = parse_answer(400, br#"{"error":{"code":138003}}"#) else {
            panic!("refused");
        };
        assert!(twin.is_duplicate());
    }
}
