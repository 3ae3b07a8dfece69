//! Why a service of the bot `cascade` did not do what it was asked for.
//!
//! In: the status and body of an answer, or an error within it. Out: a [`ServiceFailure`], in words
//! of the runner and never in those of the service, which may quote what was said. `code` is a
//! name, a number or `null` by the server.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::assistant::realtime::classify;
use crate::assistant::report::ErrorClass;

/// Names of refusals of what was said, or of what the model wrote.
const CONTENT: [&str; 5] = [
    "content_filter",
    "content_policy_violation",
    "responsible_ai_policy_violation",
    "moderation_blocked",
    "tool_use_failed",
];
/// Names of refusals of a long conversation.
const LENGTH: [&str; 4] = [
    "context_length_exceeded",
    "exceed_context_size_error",
    "string_above_max_length",
    "request_too_large",
];

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
    /// The key does not allow the request, or a moderation forbids it.
    Forbidden,
    /// What was said, or what the model made of it, is refused: a filter, a spoiled call of a
    /// function.
    RefusedContent,
    /// The conversation is longer than the model, or its limit of the minute, takes.
    TooLong,
    /// Too many requests, or a fault of the service.
    Fault,
    /// The same, and the service names the time after which to ask again.
    Busy(Duration),
    /// The answer has neither words nor calls of functions, or speech has no sound.
    Empty,
    /// Speech at this rate in hertz cannot be used.
    UnsupportedRate(u32),
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

/// What else would meet the same failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureScope {
    /// Every request of the call.
    Call,
    /// Every request, if none was answered before. Otherwise this request alone.
    Setup,
    /// This request alone.
    Request,
    /// What is asked at this moment: the service may answer later.
    Moment,
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
            ServiceFailure::Forbidden => {
                f.write_str("it forbids the request with status 403: check what its key and its moderation allow")
            }
            ServiceFailure::RefusedContent => f.write_str("it refuses what was said or written in this request"),
            ServiceFailure::TooLong => f.write_str("the request is too long for it"),
            ServiceFailure::Fault => f.write_str("it has a temporary fault or too many requests"),
            ServiceFailure::Busy(wait) => write!(f, "it is busy and asks to wait {} s", wait.as_secs_f32().ceil()),
            ServiceFailure::Empty => f.write_str("an answer without a word or a sound"),
            ServiceFailure::UnsupportedRate(hz) => write!(f, "it speaks at {hz} Hz, which is not supported"),
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
    /// Returns what else would meet the failure.
    pub fn scope(&self) -> FailureScope {
        match self {
            ServiceFailure::RefusedKey => FailureScope::Call,
            ServiceFailure::NoQuota
            | ServiceFailure::UnknownModel
            | ServiceFailure::Rejected(_)
            | ServiceFailure::Forbidden
            | ServiceFailure::Certificate(_)
            | ServiceFailure::Unsendable(_)
            | ServiceFailure::UnsupportedRate(_) => FailureScope::Setup,
            ServiceFailure::RefusedContent | ServiceFailure::TooLong | ServiceFailure::Empty => FailureScope::Request,
            ServiceFailure::Fault
            | ServiceFailure::Busy(_)
            | ServiceFailure::NoRoute(_)
            | ServiceFailure::TimedOut(_)
            | ServiceFailure::CutShort
            | ServiceFailure::Malformed(_) => FailureScope::Moment,
        }
    }

    /// Returns whether a shorter conversation may be answered. Most servers do not name the reason.
    pub fn may_be_length(&self) -> bool {
        matches!(self, ServiceFailure::TooLong | ServiceFailure::Rejected(_))
    }

    /// Returns whether the newest words of the conversation may be the reason.
    pub fn is_about_words(&self) -> bool {
        let is_refused = matches!(self, ServiceFailure::RefusedContent | ServiceFailure::Forbidden);
        is_refused || self.may_be_length()
    }

    /// Returns the failure with the wait that the service asks for: `Retry-After` in seconds, or
    /// the milliseconds of `retry-after-ms`. Dates are not read.
    pub fn with_wait(self, seconds: Option<&str>, milliseconds: Option<&str>) -> Self {
        let number = |text: Option<&str>| text?.trim().parse::<f64>().ok();
        let wait = number(milliseconds)
            .map(|wait| wait / 1_000.0)
            .or_else(|| number(seconds));
        let wait = wait.and_then(|wait| Duration::try_from_secs_f64(wait).ok());
        match (self, wait) {
            (ServiceFailure::Fault, Some(wait)) if !wait.is_zero() => ServiceFailure::Busy(wait),
            (failure, _) => failure,
        }
    }

    /// Returns the class, for metrics.
    pub fn class(&self) -> ErrorClass {
        match self {
            ServiceFailure::RefusedKey | ServiceFailure::Forbidden => ErrorClass::Auth,
            ServiceFailure::NoQuota => ErrorClass::Quota,
            ServiceFailure::UnknownModel
            | ServiceFailure::Rejected(_)
            | ServiceFailure::Certificate(_)
            | ServiceFailure::UnsupportedRate(_)
            | ServiceFailure::Unsendable(_) => ErrorClass::Protocol,
            ServiceFailure::RefusedContent
            | ServiceFailure::TooLong
            | ServiceFailure::Empty
            | ServiceFailure::Fault
            | ServiceFailure::Busy(_)
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
            (
                named @ (ServiceFailure::RefusedKey
                | ServiceFailure::NoQuota
                | ServiceFailure::UnknownModel
                | ServiceFailure::RefusedContent
                | ServiceFailure::TooLong),
                _,
            ) => named,
            (_, 401) => ServiceFailure::RefusedKey,
            (_, 402) => ServiceFailure::NoQuota,
            (_, 403) => ServiceFailure::Forbidden,
            (_, 404) => ServiceFailure::UnknownModel,
            (_, 413) => ServiceFailure::TooLong,
            (_, 408 | 409 | 425 | 429 | 499 | 500..=599) => ServiceFailure::Fault,
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
        if CONTENT.into_iter().any(is_named) {
            return ServiceFailure::RefusedContent;
        }
        if LENGTH.into_iter().any(is_named) {
            return ServiceFailure::TooLong;
        }
        match (classify(code, kind, false), number) {
            (ErrorClass::Auth, _) | (_, Some(401)) => ServiceFailure::RefusedKey,
            (ErrorClass::Quota, _) | (_, Some(402)) => ServiceFailure::NoQuota,
            (_, Some(403)) => ServiceFailure::Forbidden,
            (_, Some(404)) => ServiceFailure::UnknownModel,
            (_, Some(413)) => ServiceFailure::TooLong,
            // Those of the moment apart, as for a status.
            (_, Some(408 | 409 | 425 | 429 | 499)) => ServiceFailure::Fault,
            (_, Some(number @ 400..=499)) => ServiceFailure::Rejected(u16::try_from(number).unwrap_or(400)),
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
            (403, json!({"detail": "Forbidden"}), ServiceFailure::Forbidden),
            (
                400,
                json!({"error": {"code": "content_filter", "status": 400}}),
                ServiceFailure::RefusedContent,
            ),
            (
                400,
                json!({"error": {"type": "invalid_request_error", "code": "tool_use_failed"}}),
                ServiceFailure::RefusedContent,
            ),
            (
                400,
                json!({"error": {"code": 400, "type": "exceed_context_size_error", "n_ctx": 4096}}),
                ServiceFailure::TooLong,
            ),
            (
                413,
                json!({"error": {"type": "tokens", "code": "rate_limit_exceeded"}}),
                ServiceFailure::TooLong,
            ),
            (499, json!({"error": "client closed"}), ServiceFailure::Fault),
            (
                529,
                json!({"type": "error", "error": {"type": "overloaded_error"}}),
                ServiceFailure::Fault,
            ),
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
            (json!({"code": 400}), ServiceFailure::Rejected(400)),
            (json!({"code": "422"}), ServiceFailure::Rejected(422)),
            (json!({"code": 429}), ServiceFailure::Fault),
            (json!({"code": 503}), ServiceFailure::Fault),
            (json!({"message": "the key sk-1 said"}), ServiceFailure::Fault),
            (json!("a text"), ServiceFailure::Fault),
        ] {
            assert_eq!(ServiceFailure::of_error(&error), failure, "{error}");
        }
    }

    #[test]
    fn a_failure_tells_what_else_would_meet_it() {
        for (failure, scope) in [
            (ServiceFailure::RefusedKey, FailureScope::Call),
            (ServiceFailure::Rejected(400), FailureScope::Setup),
            (ServiceFailure::Forbidden, FailureScope::Setup),
            (ServiceFailure::Certificate("expired".into()), FailureScope::Setup),
            (ServiceFailure::RefusedContent, FailureScope::Request),
            (ServiceFailure::CutShort, FailureScope::Moment),
            (ServiceFailure::NoRoute("connecting".into()), FailureScope::Moment),
        ] {
            assert_eq!(failure.scope(), scope, "{failure}");
        }
        assert_eq!(ServiceFailure::RefusedKey.class(), ErrorClass::Auth);
        assert_eq!(ServiceFailure::UnknownModel.class(), ErrorClass::Protocol);
        assert_eq!(ServiceFailure::TooLong.class(), ErrorClass::Transient);
    }

    #[test]
    fn a_busy_service_names_the_wait() {
        let busy = |seconds, ms| ServiceFailure::Fault.with_wait(seconds, ms);
        assert_eq!(busy(Some(" 2 "), None), ServiceFailure::Busy(Duration::from_secs(2)));
        assert_eq!(
            busy(Some("2"), Some("1500")),
            ServiceFailure::Busy(Duration::from_millis(1_500))
        );
        for odd in ["", "-1", "0", "NaN", "inf", "1e300", "Fri, 31 Dec 1999 23:59:59 GMT"] {
            assert_eq!(busy(Some(odd), None), ServiceFailure::Fault, "{odd}");
        }
        assert_eq!(
            ServiceFailure::RefusedKey.with_wait(Some("2"), None),
            ServiceFailure::RefusedKey
        );
    }
}
