//! The classes of errors that services report.
//!
//! In: `code` and `type` of an `error` event, or the status of a refused upgrade. Out: an
//! [`ErrorClass`]. Servers put the name into either field. Messages are not read: they quote what
//! was said.

use crate::assistant::report::{ConnectFailure, ErrorClass};

const HARMLESS: [&str; 4] = [
    "response_cancel_not_active",
    "conversation_already_has_active_response",
    "input_audio_buffer_commit_empty",
    "item_create_duplicate_item_id",
];
const AUTH: [&str; 4] = [
    "invalid_api_key",
    "account_deactivated",
    "authentication_error",
    "unauthorized",
];
const QUOTA: [&str; 3] = [
    "insufficient_quota",
    "credit_balance_exhausted",
    "billing_hard_limit_reached",
];
const PROTOCOL: [&str; 5] = [
    "beta_api_shape_disabled",
    "model_not_found",
    "model_load_error",
    "unknown_parameter",
    "invalid_model",
];

/// Names of faults of the service. Others are about one event.
const OUTAGE: [&str; 8] = [
    "rate_limit_exceeded",
    "rate_limit_error",
    "server_error",
    "internal_error",
    "service_unavailable",
    "server_overloaded",
    "overloaded_error",
    "engine_overloaded",
];

/// Returns whether an error costs the caller an answer, whatever event it is about.
pub fn is_outage(code: Option<&str>, kind: Option<&str>) -> bool {
    [code, kind].into_iter().flatten().any(|name| OUTAGE.contains(&name))
}

/// Classifies an error by its names. `is_of_session` is true for the answer to `session.update`,
/// whose rejection is final, unless it is a fault of the service.
pub fn classify(code: Option<&str>, kind: Option<&str>, is_of_session: bool) -> ErrorClass {
    let is_in = |list: &[&str]| [code, kind].into_iter().flatten().any(|name| list.contains(&name));
    if is_in(&HARMLESS) {
        ErrorClass::Harmless
    } else if is_in(&AUTH) {
        ErrorClass::Auth
    } else if is_in(&QUOTA) {
        ErrorClass::Quota
    } else if is_in(&["session_expired"]) {
        ErrorClass::Expired
    } else if is_in(&PROTOCOL) || is_of_session && !is_outage(code, kind) {
        ErrorClass::Protocol
    } else {
        ErrorClass::Transient
    }
}

/// Classifies a failed connection; `None` if the service was not reached.
pub fn of_failure(failure: &ConnectFailure) -> Option<ErrorClass> {
    match failure {
        ConnectFailure::Refused { status, code } => Some(match (status, classify(code.as_deref(), None, false)) {
            (_, class @ (ErrorClass::Auth | ErrorClass::Quota | ErrorClass::Protocol)) => class,
            (401 | 403, _) => ErrorClass::Auth,
            (402, _) => ErrorClass::Quota,
            (429 | 500..=599, _) => ErrorClass::Transient,
            _ => ErrorClass::Protocol,
        }),
        ConnectFailure::Unreachable(_) | ConnectFailure::TimedOut => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_classified_by_either_name() {
        for (code, kind, of_session, class) in [
            (Some("response_cancel_not_active"), None, true, ErrorClass::Harmless),
            (
                Some("invalid_api_key"),
                Some("invalid_request_error"),
                false,
                ErrorClass::Auth,
            ),
            (None, Some("invalid_api_key"), false, ErrorClass::Auth),
            (Some("insufficient_quota"), None, false, ErrorClass::Quota),
            (Some("session_expired"), None, false, ErrorClass::Expired),
            (Some("invalid_value"), None, true, ErrorClass::Protocol),
            (
                Some("model_not_found"),
                Some("server_error"),
                true,
                ErrorClass::Protocol,
            ),
            (Some("rate_limit_exceeded"), None, true, ErrorClass::Transient),
            (None, Some("server_error"), true, ErrorClass::Transient),
            (Some("rate_limit_exceeded"), None, false, ErrorClass::Transient),
            (None, Some("server_error"), false, ErrorClass::Transient),
        ] {
            assert_eq!(classify(code, kind, of_session), class, "{code:?} {kind:?}");
        }
    }

    #[test]
    fn faults_of_the_service_differ_from_errors_about_an_event() {
        for (code, kind, outage) in [
            (Some("rate_limit_exceeded"), Some("invalid_request_error"), true),
            (None, Some("server_error"), true),
            (Some("invalid_value"), Some("invalid_request_error"), false),
            (None, None, false),
        ] {
            assert_eq!(is_outage(code, kind), outage, "{code:?} {kind:?}");
        }
    }

    #[test]
    fn refusals_are_classified_by_status_and_code() {
        let refused = |status, code: Option<&str>| {
            of_failure(&ConnectFailure::Refused {
                status,
                code: code.map(str::to_owned),
            })
        };
        assert_eq!(refused(401, None), Some(ErrorClass::Auth));
        assert_eq!(refused(403, None), Some(ErrorClass::Auth));
        assert_eq!(refused(404, None), Some(ErrorClass::Protocol));
        assert_eq!(refused(429, Some("insufficient_quota")), Some(ErrorClass::Quota));
        assert_eq!(refused(503, None), Some(ErrorClass::Transient));
        assert_eq!(of_failure(&ConnectFailure::TimedOut), None);
    }
}
