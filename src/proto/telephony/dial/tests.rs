//! Requests of clients, and those to each provider.

use serde_json::json;

use super::*;
use crate::telephony::accounts;
use crate::telephony::named::{EXOTEL, PLIVO, TELNYX, TWILIO};

const FROM: &str = "+15550002222";
const TO: &str = "+15550001111";

fn parse(json: &Value) -> Result<OutboundRequest, OutboundRequestError> {
    OutboundRequest::parse(json.to_string().as_bytes(), FROM)
}

#[test]
fn numbers_are_those_of_e164() {
    for good in ["+15550001111", "+1234567", "+123456789012345"] {
        assert!(is_number(good), "{good}");
    }
    for bad in [
        "",
        "+",
        "15550001111",
        "+123456",
        "+1234567890123456",
        "+05550001111",
        "+1 5550001111",
        "+1555000111a",
        "++15550001111",
        "+\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}",
        "sip:a@b",
    ] {
        assert!(!is_number(bad), "{bad}");
    }
}

#[test]
fn a_request_has_a_number_and_may_have_more() {
    let least = parse(&json!({"to": TO})).expect("a request");
    assert_eq!((least.to.as_str(), least.from.as_str()), (TO, FROM));
    assert!(!least.detects_machine && least.body.is_none());
    let most = json!({"to": TO, "from": "+15550003333", "machine_detection": true, "body": {"customer": 42}});
    let most = parse(&most).expect("a request");
    assert_eq!(most.from, "+15550003333");
    assert!(most.detects_machine);
    assert_eq!(most.body.expect("a body")["customer"], 42);
    let length = |size: usize| json!({"to": TO, "body": {"a": "x".repeat(size - r#"{"a":""}"#.len())}});
    let to_shop = parse(&json!({"to": TO, "bot": "shop"})).expect("a request");
    assert_eq!(to_shop.bot.as_deref(), Some("shop"));
    assert!(parse(&length(DIALLED_BODY_BYTES_MAX)).is_ok());
    assert_eq!(
        parse(&length(DIALLED_BODY_BYTES_MAX + 1)),
        Err(OutboundRequestError::Body)
    );
}

/// A mistake in a name would call with other settings than meant, so it is an error.
#[test]
fn other_requests_are_rejected_without_their_numbers() {
    for (wrong, error) in [
        (json!({}), OutboundRequestError::Json),
        (json!([TO]), OutboundRequestError::Json),
        (json!({"to": 15_550_001_111_u64}), OutboundRequestError::Json),
        (json!({"to": TO, "machine-detection": true}), OutboundRequestError::Json),
        (
            json!({"to": TO, "machine_detection": "yes"}),
            OutboundRequestError::Json,
        ),
        (json!({"to": TO, "body": "a"}), OutboundRequestError::Json),
        (json!({"to": "5550001111"}), OutboundRequestError::Number("to")),
        (
            json!({"to": TO, "from": "the shop"}),
            OutboundRequestError::Number("from"),
        ),
        (json!({"to": FROM}), OutboundRequestError::SameNumber),
    ] {
        let refused = parse(&wrong).expect_err("a wrong request");
        assert_eq!(refused, error, "{wrong}");
        assert!(!refused.to_string().contains("555000111 "), "{refused}");
    }
    assert_eq!(OutboundRequest::parse(b"\xff", FROM), Err(OutboundRequestError::Json));
    let shown = format!("{:?}", parse(&json!({"to": TO})).expect("a request"));
    assert_eq!(shown, "OutboundRequest { detects_machine: false, .. }");
}

/// Returns method, URL, content type and body of what a provider is asked.
fn asked(provider: &Provider, detects_machine: bool) -> (&'static str, String, &'static str, String) {
    let request = OutboundRequest {
        to: TO.to_owned(),
        from: FROM.to_owned(),
        detects_machine,
        bot: None,
        body: None,
    };
    let settings = accounts();
    let dialling = Dialling {
        provider,
        settings: &settings,
        request: &request,
        host: "bots.example.net",
        id: "1b9d",
    };
    let application = dialling.lookup().map(|_| "177");
    let asked = dialling.request(application).expect("it dials");
    assert!(asked.authorization.is_some());
    let body = asked.body.expect("a body");
    let text = String::from_utf8(body.bytes).expect("text");
    (asked.method.name(), asked.url, body.content_type, text)
}

/// A call with the id "1" of a runner that callers reach as "h".
fn dialling_to<'a>(provider: &'static Provider, settings: &'a Settings, request: &'a OutboundRequest) -> Dialling<'a> {
    Dialling {
        provider,
        settings,
        request,
        host: "h",
        id: "1",
    }
}

/// The members are those of the providers' own client libraries.
#[test]
fn calls_are_dialled_by_the_api_of_each_provider() {
    const FORM: &str = "application/x-www-form-urlencoded";
    const JSON: &str = "application/json";
    assert_eq!(
        asked(TWILIO, false),
        (
            "POST",
            "https://api.twilio.com/2010-04-01/Accounts/AC01/Calls.json".into(),
            FORM,
            "To=%2B15550001111&From=%2B15550002222&Url=https:%2F%2Fbots.example.net%2F%3Fdialled%3D1b9d&Method=POST\
             &StatusCallback=https:%2F%2Fbots.example.net%2F%3Fended%3D1b9d&StatusCallbackMethod=POST"
                .into(),
        )
    );
    assert!(asked(TWILIO, true).3.ends_with(
        "&MachineDetection=Enable&AsyncAmd=true&AsyncAmdStatusCallbackMethod=POST&AsyncAmdStatusCallback=https:%2F%2F\
         bots.example.net%2F%3Fanswered%3D1b9d"
    ));
    let (method, url, kind, body) = asked(TELNYX, false);
    assert_eq!(
        (method, url.as_str(), kind),
        ("POST", "https://api.telnyx.com/v2/texml/calls/177", JSON)
    );
    let body: Value = serde_json::from_str(&body).expect("JSON");
    let least = json!({
        "To": TO,
        "From": FROM,
        "Url": "https://bots.example.net/?dialled=1b9d",
        "Method": "POST",
        "StatusCallback": "https://bots.example.net/?ended=1b9d",
        "StatusCallbackMethod": "POST",
    });
    assert_eq!(body, least);
    let body: Value = serde_json::from_str(&asked(TELNYX, true).3).expect("JSON");
    assert_eq!(body["MachineDetection"], "Enable");
    assert_eq!(
        (&body["AsyncAmd"], &body["AsyncAmdStatusCallbackMethod"]),
        (&json!(true), &json!("POST"))
    );
    assert_eq!(
        body["AsyncAmdStatusCallback"],
        "https://bots.example.net/?answered=1b9d"
    );
    let (method, url, kind, body) = asked(PLIVO, false);
    assert_eq!(
        (method, url.as_str(), kind),
        ("POST", "https://api.plivo.com/v1/Account/MA01/Call/", JSON)
    );
    let body: Value = serde_json::from_str(&body).expect("JSON");
    let answer_url = "https://bots.example.net/?dialled=1b9d";
    // Its library sends numbers as they are given; the API takes them with or without `+`.
    let least = json!({
        "to": TO,
        "from": FROM,
        "answer_url": answer_url,
        "answer_method": "POST",
        "hangup_url": "https://bots.example.net/?ended=1b9d",
        "hangup_method": "POST",
    });
    assert_eq!(body, least);
    let body: Value = serde_json::from_str(&asked(PLIVO, true).3).expect("JSON");
    assert_eq!(
        (&body["machine_detection"], &body["machine_detection_method"]),
        (&json!("true"), &json!("POST"))
    );
    assert_eq!(body["machine_detection_url"], "https://bots.example.net/?answered=1b9d");
}

#[test]
fn exotel_and_accounts_without_credentials_do_not_dial() {
    let request = parse(&json!({"to": TO})).expect("a request");
    for (provider, settings) in [
        (EXOTEL, accounts()),
        (TWILIO, Settings::default()),
        (TELNYX, Settings::default()),
        (PLIVO, Settings::default()),
    ] {
        let dialling = dialling_to(provider, &settings, &request);
        assert!(dialling.request(Some("1")).is_none(), "{provider:?}");
        assert!(dialling.lookup().is_none());
    }
    assert!(!EXOTEL.protocol.dials());
}

/// Telnyx dials for an application, that of the caller's number.
#[test]
fn the_application_of_a_number_is_looked_up() {
    let request = parse(&json!({"to": TO})).expect("a request");
    let settings = accounts();
    let dialling = dialling_to(TELNYX, &settings, &request);
    let lookup = dialling.lookup().expect("a request");
    assert_eq!(
        (lookup.method.name(), lookup.url.as_str()),
        (
            "GET",
            "https://api.telnyx.com/v2/phone_numbers?filter%5Bphone_number%5D=15550002222"
        )
    );
    let listed = |numbers: Value| dialling.application(200, json!({"data": numbers}).to_string().as_bytes());
    let own = json!({"id": "9", "phone_number": FROM, "connection_id": "177"});
    let other = json!({"id": "8", "phone_number": "+115550002222", "connection_id": "1"});
    assert_eq!(listed(json!([other, own])), Ok("177".to_owned()));
    for without in [
        json!([]),
        json!([other]),
        json!([{"phone_number": FROM, "connection_id": null}]),
        json!([{"phone_number": FROM, "connection_id": ""}]),
        json!([{"phone_number": FROM, "connection_id": "a/../b"}]),
        json!(7),
    ] {
        let why = listed(without).expect_err("no application");
        assert!(why.contains("`from`"), "{why}");
    }
    let why = dialling.application(401, b"{}").expect_err("no key");
    assert!(why.contains("status 401"), "{why}");
}

#[test]
fn responses_of_providers_have_a_meaning() {
    let request = parse(&json!({"to": TO})).expect("a request");
    let settings = accounts();
    let of = |provider, status, body: &str| {
        let dialling = dialling_to(provider, &settings, &request);
        dialling.outcome(status, body.as_bytes())
    };
    let placed = |id: &str| DialOutcome::Placed(id.to_owned());
    assert_eq!(of(TWILIO, 201, r#"{"sid":"CA01","status":"queued"}"#), placed("CA01"));
    assert_eq!(
        of(TELNYX, 200, r#"{"call_sid":"v3:a","status":"queued"}"#),
        placed("v3:a")
    );
    let fired = r#"{"api_id":"a","message":"call fired","request_uuid":"9834"}"#;
    assert_eq!(of(PLIVO, 201, fired), placed("9834"));
    // It dials, whatever it says.
    let long = format!(r#"{{"sid":"{}"}}"#, "x".repeat(HANG_UP_ID_BYTES_MAX + 1));
    for odd in ["", "[]", r#"{"sid":7}"#, long.as_str()] {
        assert_eq!(of(TWILIO, 201, odd), placed(""), "{odd}");
    }
    for (status, is_known) in [
        (400, true),
        (401, true),
        (404, true),
        (429, true),
        (302, true),
        (408, false),
        (503, false),
    ] {
        let outcome = of(
            TWILIO,
            status,
            r#"{"code":21211,"message":"invalid 'To' +15550001111"}"#,
        );
        let (DialOutcome::Refused(why) | DialOutcome::Unknown(why)) = &outcome else {
            panic!("{status}");
        };
        assert!(why.contains("invalid") && !why.contains("1555"), "{why}");
        assert_eq!(matches!(outcome, DialOutcome::Refused(_)), is_known, "{status}");
    }
}

#[test]
fn reports_say_who_answered() {
    for (word, by) in [
        ("human", AnsweredBy::Human),
        ("machine", AnsweredBy::Machine),
        ("machine_start", AnsweredBy::Machine),
        ("machine_end_beep", AnsweredBy::Machine),
        ("fax", AnsweredBy::Fax),
        ("unknown", AnsweredBy::Unknown),
        ("", AnsweredBy::Unknown),
    ] {
        let form = format!("CallSid=1&AnsweredBy={word}");
        for provider in [TWILIO, TELNYX] {
            assert_eq!(answered_by(provider, form.as_bytes()), by, "{word}");
        }
    }
    assert_eq!(
        answered_by(PLIVO, b"Event=MachineDetection&Machine=true"),
        AnsweredBy::Machine
    );
    assert_eq!(
        answered_by(PLIVO, b"Event=MachineDetection&Machine=false"),
        AnsweredBy::Human
    );
    assert_eq!(answered_by(PLIVO, b"Machine="), AnsweredBy::Unknown);
    assert_eq!(answered_by(EXOTEL, b"AnsweredBy=human"), AnsweredBy::Unknown);
}

#[test]
fn reports_say_how_a_call_ended() {
    let outcome = |form: &str| outcome_of(form.as_bytes()).map(CallOutcome::label);
    assert_eq!(outcome("CallSid=1&CallStatus=no-answer&From=%2B1"), Some("no_answer"));
    assert_eq!(outcome("CallUUID=1&CallStatus=ringing"), None);
    assert_eq!(outcome("CallUUID=1"), Some("unreachable"));
}
