//! Why a service of the bot `cascade` did not do what it was asked for.
//!
//! In: the status and body of an answer, or an error within it. Out: a [`ServiceFailure`], in words
//! of the runner and never in those of the service, which may quote what was said. `code` is a
//! name, a number or `null` by the server.

use std::fmt;

use serde_json::Value;

use crate::assistant::realtime::classify;
use crate::assistant::report::ErrorClass;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceFailure {
    /// The service does not accept the key.
    RefusedKey,
    /// The account cannot pay.
    NoQuota,
    UnknownModel,
    /// The service does not understand the request; its status.
    Rejected(u16),
    /// Too many requests, or a fault of the service.
    Fault,
    /// No connection: where it failed, in words of the runner.
    NoRoute(String),
    /// The certificate is invalid, or there are none to trust.
    Certificate(String),
    TimedOut(ServiceStep),
    /// The answer ended early.
    CutShort,
    /// The answer is not in the protocol of the service.
    Malformed(&'static str),
    /// The request cannot be sent.
    Unsendable(&'static str),
}

/// What a service did not do in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceStep {
    Connect,
    /// Begin its answer.
    Begin,
    /// Go on with its answer.
    Continue,
}

impl fmt::Display for ServiceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceFailure::RefusedKey => f.write_str("it does not accept the key"),
            ServiceFailure::NoQuota => f.write_str("the account has no credit or has reached its limit"),
            ServiceFailure::UnknownModel => f.write_str("it does not know the model, or the path of its URL is wrong"),
            ServiceFailure::Rejected(status) => {
                write!(
                    f,
                    "it rejects the request with status {status}: check model, voice and URL"
                )
            }
            ServiceFailure::Fault => f.write_str("it has a temporary fault or too many requests"),
            ServiceFailure::NoRoute(why) | ServiceFailure::Certificate(why) => f.write_str(why),
            ServiceFailure::TimedOut(ServiceStep::Connect) => f.write_str("no connection within the time limit"),
            ServiceFailure::TimedOut(ServiceStep::Begin) => f.write_str("no answer within the time limit"),
            ServiceFailure::TimedOut(ServiceStep::Continue) => f.write_str("it stopped in the middle of an answer"),
            ServiceFailure::CutShort => f.write_str("its answer ended early"),
            ServiceFailure::Malformed(what) => write!(f, "it does not speak the protocol of its URL: {what}"),
            ServiceFailure::Unsendable(what) => write!(f, "the request cannot be sent: {what}"),
        }
    }
}

impl ServiceFailure {
    /// Returns the class, for metrics and for whether another try may succeed.
    pub fn class(&self) -> ErrorClass {
        match self {
            ServiceFailure::RefusedKey => ErrorClass::Auth,
            ServiceFailure::NoQuota => ErrorClass::Quota,
            ServiceFailure::UnknownModel
            | ServiceFailure::Rejected(_)
            | ServiceFailure::Certificate(_)
            | ServiceFailure::Unsendable(_) => ErrorClass::Protocol,
            ServiceFailure::Fault
            | ServiceFailure::NoRoute(_)
            | ServiceFailure::TimedOut(_)
            | ServiceFailure::CutShort
            | ServiceFailure::Malformed(_) => ErrorClass::Transient,
        }
    }

    /// Classifies an answer with an error status.
    pub fn of_status(status: u16, body: &[u8]) -> Self {
        let error = serde_json::from_slice::<Value>(body).unwrap_or_default();
        match (Self::of_error(error.get("error").unwrap_or(&error)), status) {
            (named @ (ServiceFailure::RefusedKey | ServiceFailure::NoQuota | ServiceFailure::UnknownModel), _) => named,
            (_, 401 | 403) => ServiceFailure::RefusedKey,
            (_, 402) => ServiceFailure::NoQuota,
            (_, 404) => ServiceFailure::UnknownModel,
            (_, 408 | 429 | 500..=599) => ServiceFailure::Fault,
            _ => ServiceFailure::Rejected(status),
        }
    }

    /// Classifies an error object, by its names and its number.
    pub fn of_error(error: &Value) -> Self {
        let name = |field: &str| error.get(field).and_then(Value::as_str);
        let (code, kind) = (name("code"), name("type"));
        let number = error.get("code").and_then(|code| match code {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        });
        let is_named = |known: &str| code == Some(known) || kind == Some(known);
        if ["model_not_found", "model_load_error", "invalid_model"]
            .into_iter()
            .any(is_named)
        {
            return ServiceFailure::UnknownModel;
        }
        match (classify(code, kind, false), number) {
            (ErrorClass::Auth, _) | (_, Some(401 | 403)) => ServiceFailure::RefusedKey,
            (ErrorClass::Quota, _) | (_, Some(402)) => ServiceFailure::NoQuota,
            (_, Some(404)) => ServiceFailure::UnknownModel,
            _ => ServiceFailure::Fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_classified_by_names_first_and_by_status() {
        for (status, body, failure) in [
            (
                401,
                json!({"error": {"message": "no", "type": "invalid_request_error", "code": "invalid_api_key"}}),
                ServiceFailure::RefusedKey,
            ),
            (403, json!({"detail": "Forbidden"}), ServiceFailure::RefusedKey),
            (
                429,
                json!({"error": {"type": "insufficient_quota", "code": null}}),
                ServiceFailure::NoQuota,
            ),
            (
                429,
                json!({"error": {"message": "slow", "code": "429"}}),
                ServiceFailure::Fault,
            ),
            (402, json!(null), ServiceFailure::NoQuota),
            (
                404,
                json!({"error": {"message": "model x not found", "type": "api_error"}}),
                ServiceFailure::UnknownModel,
            ),
            (
                400,
                json!({"error": {"code": "model_not_found"}}),
                ServiceFailure::UnknownModel,
            ),
            (400, json!({"error": "a text"}), ServiceFailure::Rejected(400)),
            (
                422,
                json!({"detail": [{"loc": ["body"]}]}),
                ServiceFailure::Rejected(422),
            ),
            (500, json!({"error": {"code": 500}}), ServiceFailure::Fault),
            (503, json!("loading"), ServiceFailure::Fault),
            (301, json!(null), ServiceFailure::Rejected(301)),
        ] {
            assert_eq!(
                ServiceFailure::of_status(status, body.to_string().as_bytes()),
                failure,
                "{status} {body}"
            );
        }
        assert_eq!(ServiceFailure::of_status(502, b"<html>"), ServiceFailure::Fault);
    }

    #[test]
    fn errors_within_a_stream_are_classified_by_name_or_number() {
        for (error, failure) in [
            (json!({"code": 401}), ServiceFailure::RefusedKey),
            (json!({"code": "insufficient_quota"}), ServiceFailure::NoQuota),
            (json!({"code": "404"}), ServiceFailure::UnknownModel),
            (json!({"message": "the key sk-1 said"}), ServiceFailure::Fault),
            (json!("a text"), ServiceFailure::Fault),
        ] {
            assert_eq!(ServiceFailure::of_error(&error), failure, "{error}");
        }
    }

    #[test]
    fn only_faults_that_may_pass_are_transient() {
        assert_eq!(ServiceFailure::RefusedKey.class(), ErrorClass::Auth);
        assert_eq!(ServiceFailure::UnknownModel.class(), ErrorClass::Protocol);
        assert_eq!(ServiceFailure::CutShort.class(), ErrorClass::Transient);
        assert!(!ServiceFailure::NoRoute("connecting".into()).class().is_final());
        assert!(ServiceFailure::Certificate("expired".into()).class().is_final());
    }
}
