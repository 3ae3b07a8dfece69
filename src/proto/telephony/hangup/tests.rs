//! Tests of the hang-up of calls.

use super::*;
use crate::limits::{REST_REASON_CHARS_MAX, REST_REASON_WORD_CHARS_MAX};
use crate::telephony::accounts;
use crate::telephony::named::{EXOTEL, PLIVO, TELNYX, TWILIO};

fn parts(provider: &Provider, id: &str) -> (&'static str, String, String, Option<(&'static str, String)>) {
    let request = request(provider, id, &accounts()).expect("something to hang up");
    let authorization = request.authorization.expect("a credential").expose().to_owned();
    let body = request.body.map(|body| {
        let text = String::from_utf8(body.bytes).expect("text");
        (body.content_type, text)
    });
    (request.method.name(), request.url, authorization, body)
}

/// R-033, R-034, R-035, R-038, R-087: one request per provider, in the form of its API.
#[test]
fn hangs_up_by_the_api_of_each_provider() {
    assert_eq!(
        parts(TWILIO, "CA01"),
        (
            "POST",
            "https://api.twilio.com/2010-04-01/Accounts/AC01/Calls/CA01.json".into(),
            "Basic QUMwMTphLXRva2Vu".into(),
            Some(("application/x-www-form-urlencoded", "Status=completed".into())),
        )
    );
    assert_eq!(
        parts(TELNYX, "v3:abcDEF123-_"),
        (
            "POST",
            "https://api.telnyx.com/v2/calls/v3:abcDEF123-_/actions/hangup".into(),
            "Bearer b-key".into(),
            Some(("application/json", "{}".into())),
        )
    );
    assert_eq!(
        parts(PLIVO, "0f0e-01"),
        (
            "DELETE",
            "https://api.plivo.com/v1/Account/MA01/Call/0f0e-01/".into(),
            "Basic TUEwMTpjLXRva2Vu".into(),
            None,
        )
    );
}

/// A call that rings is ended as a running one, but at Plivo, where it is a request.
#[test]
fn a_call_that_rings_is_ended_by_its_provider() {
    for provider in [TWILIO, TELNYX] {
        let (ringing, running) = [cancel, request].map(|end| end(provider, "CA01", &accounts())).into();
        assert!(ringing.is_some());
        assert_eq!(ringing, running);
    }
    let ringing = cancel(PLIVO, "0f0e-01", &accounts()).expect("something to end");
    assert_eq!(
        (ringing.method.name(), ringing.url.as_str()),
        ("DELETE", "https://api.plivo.com/v1/Account/MA01/Request/0f0e-01/")
    );
    for id in ["", "..", "x/.."] {
        assert_eq!(cancel(PLIVO, id, &accounts()), None, "{id:?}");
    }
    assert_eq!(cancel(EXOTEL, "c-0001", &accounts()), None);
}

/// R-036, R-038: Exotel has no hang-up API, and the others need credentials.
#[test]
fn does_not_hang_up_without_credentials() {
    assert_eq!(request(EXOTEL, "c-0001", &accounts()), None);
    for provider in [TWILIO, TELNYX, PLIVO, EXOTEL] {
        assert_eq!(request(provider, "CA01", &Settings::default()), None);
    }
    let mut nameless = accounts();
    for id in ["TELCO_A_ACCOUNT_SID", "TELCO_C_AUTH_ID"] {
        nameless.set(id, "");
    }
    assert_eq!(request(TWILIO, "CA01", &nameless), None);
    assert_eq!(request(PLIVO, "CA01", &nameless), None);
}

/// Plivo would hang up every call of the account if the id were missing in the path. A peer
/// chooses the id.
#[test]
fn an_id_cannot_change_the_path() {
    let long = "x".repeat(HANG_UP_ID_BYTES_MAX + 1);
    let refused = [
        "", " ", "\t\r\n", ".", "..", " .. ", "/", "x/..", "x/../", "../x", "x\\..", "x//y", &long,
    ];
    for provider in [TWILIO, TELNYX, PLIVO] {
        for id in refused {
            assert_eq!(request(provider, id, &accounts()), None, "{id:?}");
        }
        assert!(request(provider, &long[1..], &accounts()).is_some());
    }
    assert!(parts(PLIVO, "a/b?c#d e").1.ends_with("/Call/a%2Fb%3Fc%23d%20e/"));
    assert!(parts(PLIVO, "%2e%2e").1.ends_with("/Call/%252e%252e/"));
    assert!(parts(PLIVO, "1\r\nHost: x").1.ends_with("/Call/1%0D%0AHost:%20x/"));
}

#[test]
fn success_and_ended_calls_have_the_same_outcome() {
    let is = |provider, status, body: &str, wanted: HangUpOutcome| {
        assert_eq!(outcome(provider, status, body.as_bytes()), wanted, "{status} {body}");
    };
    is(TWILIO, 200, r#"{"status":"completed"}"#, HangUpOutcome::Done);
    is(TELNYX, 200, r#"{"data":{"result":"ok"}}"#, HangUpOutcome::Done);
    is(PLIVO, 204, "", HangUpOutcome::Done);
    is(
        TWILIO,
        404,
        r#"{"code":20404,"status":404}"#,
        HangUpOutcome::AlreadyOver,
    );
    is(
        TWILIO,
        400,
        r#"{"code":21220,"status":400}"#,
        HangUpOutcome::AlreadyOver,
    );
    is(
        TELNYX,
        422,
        r#"{"errors":[{"code":"10015"},{"code":"90018"}]}"#,
        HangUpOutcome::AlreadyOver,
    );
    is(TELNYX, 404, "", HangUpOutcome::AlreadyOver);
    is(PLIVO, 404, "not found", HangUpOutcome::AlreadyOver);
}

/// Error codes have a meaning at their own provider only.
#[test]
fn other_answers_are_refusals_or_temporary_failures() {
    for (provider, status, body) in [
        (TWILIO, 400, r#"{"code":20001}"#),
        (TELNYX, 400, r#"{"code":21220}"#),
        (TWILIO, 422, r#"{"errors":[{"code":"90018"}]}"#),
        (TELNYX, 422, r#"{"errors":[{"code":"90015"}]}"#),
        (TELNYX, 422, "<html>"),
        (TWILIO, 401, ""),
        (PLIVO, 403, "[]"),
        (PLIVO, 302, ""),
    ] {
        let verdict = outcome(provider, status, body.as_bytes());
        assert!(
            matches!(verdict, HangUpOutcome::Refused(_)),
            "{status} {body}: {verdict:?}"
        );
    }
    for status in [408, 429, 500, 502, 503, 599] {
        for provider in [TWILIO, TELNYX, PLIVO] {
            let verdict = outcome(provider, status, b"\xff{");
            assert!(matches!(verdict, HangUpOutcome::Retry(_)), "{status}: {verdict:?}");
        }
    }
}

/// Codes have up to six digits; anything longer could be a telephone number.
#[test]
fn a_code_has_up_to_six_digits() {
    assert_eq!(words(400, r#"{"code":123456}"#), "status 400, code 123456");
    for other in [
        r#"{"code":1234567}"#,
        r#"{"code":"12a"}"#,
        r#"{"code":""}"#,
        r#"{"code":[1]}"#,
    ] {
        assert_eq!(words(400, other), "status 400", "{other}");
    }
}

/// A request without effects that needs the credentials of the account.
#[test]
fn credentials_are_tested_by_a_request_without_effects() {
    for (provider, url, authorization) in [
        (
            TWILIO,
            "https://api.twilio.com/2010-04-01/Accounts/AC01.json",
            "Basic QUMwMTphLXRva2Vu",
        ),
        (TELNYX, "https://api.telnyx.com/v2/balance", "Bearer b-key"),
        (
            PLIVO,
            "https://api.plivo.com/v1/Account/MA01/",
            "Basic TUEwMTpjLXRva2Vu",
        ),
    ] {
        let probe = provider.protocol.probe(&accounts()).expect("a request");
        assert_eq!((probe.method.name(), probe.url.as_str()), ("GET", url));
        assert_eq!(probe.authorization.expect("a credential").expose(), authorization);
        assert!(probe.body.is_none());
        assert!(provider.protocol.probe(&Settings::default()).is_none());
    }
    assert!(EXOTEL.protocol.probe(&accounts()).is_none());
}

fn words(status: u16, body: &str) -> String {
    match outcome(TWILIO, status, body.as_bytes()) {
        HangUpOutcome::Refused(words) | HangUpOutcome::Retry(words) => words,
        other => panic!("{other:?}"),
    }
}

#[test]
fn failures_name_the_likely_cause() {
    assert_eq!(
        words(401, r#"{"code":20003,"message":"Authenticate","status":401}"#),
        "status 401, the provider does not take the credentials, code 20003: Authenticate"
    );
    assert_eq!(
        words(
            422,
            r#"{"errors":[{"code":"90015","title":"Invalid Call Control ID"}]}"#
        ),
        "status 422, code 90015: Invalid Call Control ID"
    );
    assert_eq!(
        words(400, r#"{"api_id":"x","error":"bad request"}"#),
        "status 400: bad request"
    );
    assert_eq!(words(429, "slow down"), "status 429, too many requests");
    assert_eq!(words(307, ""), "status 307, a redirect, which is not followed");
}

/// R-087: keys, ids and telephone numbers do not reach the log, even if a provider repeats
/// them.
#[test]
fn failures_omit_numbers_and_keys() {
    let message = words(
        400,
        r#"{"code":15550001111,"message":"Call CA00000000000000000000000000000001 from +1 (555) 000-1111 with\nBasic QUMwMTphLXRva2VuYS10b2tlbg== failed\u0007"}"#,
    );
    assert_eq!(
        message,
        "status 400: Call \u{2026} from +# (###) ###-#### with Basic \u{2026} failed"
    );
    let long = format!(r#"{{"message":"{}"}}"#, "word ".repeat(1000));
    assert_eq!(
        words(400, &long).chars().count(),
        "status 400: ".len() + REST_REASON_CHARS_MAX
    );
    let limit = "w".repeat(REST_REASON_WORD_CHARS_MAX);
    assert_eq!(
        words(400, &format!(r#"{{"message":"{limit}"}}"#)),
        format!("status 400: {limit}")
    );
    assert_eq!(
        words(400, &format!(r#"{{"message":"{limit}w"}}"#)),
        "status 400: \u{2026}"
    );
}
