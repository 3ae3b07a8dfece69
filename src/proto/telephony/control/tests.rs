//! What bots ask of calls, as each provider takes it.

use super::*;
use crate::telephony::accounts;
use crate::telephony::invented::INVENTED;
use crate::telephony::named::{EXOTEL, PLIVO, TELNYX, TWILIO};

const NUMBER: &str = "+15550003333";
const SIP: &str = "sip:desk@pbx.example.net;transport=tls";
const MARKUP: &str = "https://bot.example.net/next?a=1&b=2";

fn target(text: &str) -> TransferTarget {
    TransferTarget::parse(text).expect("a target")
}

/// Returns method, URL, content type and body of a request.
fn parts(request: RestRequest) -> (&'static str, String, &'static str, String) {
    let body = request.body.expect("a body");
    let text = String::from_utf8(body.bytes).expect("text");
    assert!(request.authorization.is_some());
    (request.method.name(), request.url, body.content_type, text)
}

fn transferred(provider: &Provider, to: &str) -> (&'static str, String, &'static str, String) {
    parts(transfer(provider, "C:1", &target(to), &accounts()).expect("it transfers"))
}

#[test]
fn calls_are_transferred_by_the_api_of_each_provider() {
    let twilio = |body: &str| {
        (
            "POST",
            "https://api.twilio.com/2010-04-01/Accounts/AC01/Calls/C:1.json".to_owned(),
            "application/x-www-form-urlencoded",
            body.to_owned(),
        )
    };
    assert_eq!(
        transferred(TWILIO, NUMBER),
        twilio("Twiml=%3CResponse%3E%3CDial%3E%2B15550003333%3C%2FDial%3E%3C%2FResponse%3E")
    );
    assert_eq!(
        transferred(TWILIO, SIP),
        twilio(
            "Twiml=%3CResponse%3E%3CDial%3E%3CSip%3Esip:desk%40pbx.example.net%3Btransport%3Dtls%3C%2FSip%3E%3C%2FDial%3E%3C%2FResponse%3E"
        )
    );
    assert_eq!(
        transferred(TWILIO, MARKUP),
        twilio("Url=https:%2F%2Fbot.example.net%2Fnext%3Fa%3D1%26b%3D2")
    );
    for to in [NUMBER, SIP] {
        assert_eq!(
            transferred(TELNYX, to),
            (
                "POST",
                "https://api.telnyx.com/v2/calls/C:1/actions/transfer".into(),
                "application/json",
                format!(r#"{{"to":"{to}"}}"#),
            )
        );
    }
    assert_eq!(
        transferred(PLIVO, MARKUP),
        (
            "POST",
            "https://api.plivo.com/v1/Account/MA01/Call/C:1/".into(),
            "application/json",
            format!(r#"{{"aleg_method":"GET","aleg_url":"{MARKUP}","legs":"aleg"}}"#),
        )
    );
}

#[test]
fn keys_are_sent_by_the_api_of_two_providers() {
    let sent = |provider| parts(send_keys(provider, "C:1", "12#A", &accounts()).expect("it sends them"));
    assert_eq!(
        sent(TELNYX),
        (
            "POST",
            "https://api.telnyx.com/v2/calls/C:1/actions/send_dtmf".into(),
            "application/json",
            r#"{"digits":"12#A"}"#.into(),
        )
    );
    assert_eq!(
        sent(PLIVO),
        (
            "POST",
            "https://api.plivo.com/v1/Account/MA01/Call/C:1/DTMF/".into(),
            "application/json",
            r##"{"digits":"12#A","leg":"aleg"}"##.into(),
        )
    );
    for provider in [TWILIO, EXOTEL, &INVENTED] {
        let error = send_keys(provider, "C:1", "1", &accounts()).expect_err("it has no API");
        assert_eq!(
            error.to_string(),
            format!(
                "{} has no API for this; play the tones of the keys as audio",
                provider.name
            )
        );
    }
}

/// The error names what a provider cannot do before what is missing.
#[test]
fn a_target_that_a_provider_does_not_take_is_refused_with_what_it_takes() {
    for (provider, to, why) in [
        (
            TELNYX,
            MARKUP,
            "telnyx has no API for this; it takes a number or a sip: address",
        ),
        (
            PLIVO,
            NUMBER,
            "plivo has no API for this; it takes the URL of markup that dials",
        ),
        (
            PLIVO,
            SIP,
            "plivo has no API for this; it takes the URL of markup that dials",
        ),
        (
            EXOTEL,
            NUMBER,
            "exotel has no API for this; end the session, and its flow goes on",
        ),
        (&INVENTED, NUMBER, "quintel has no API for this; end the session"),
    ] {
        let refused = transfer(provider, "", &target(to), &Settings::default()).expect_err("refused");
        assert_eq!(refused.to_string(), why);
    }
}

#[test]
fn missing_credentials_and_ids_are_named() {
    let without = transfer(TWILIO, "C:1", &target(NUMBER), &Settings::default()).expect_err("refused");
    assert_eq!(
        without.to_string(),
        "it needs TELCO_A_ACCOUNT_SID (or TWILIO_ACCOUNT_SID) and TELCO_A_AUTH_TOKEN (or TWILIO_AUTH_TOKEN)"
    );
    let long = "x".repeat(HANG_UP_ID_BYTES_MAX + 1);
    for id in ["", " ", "..", "a/../b", &long] {
        for provider in [TWILIO, TELNYX] {
            let refused = transfer(provider, id, &target(NUMBER), &accounts());
            assert_eq!(refused, Err(CallControlError::CallId), "{id:?}");
        }
        assert_eq!(send_keys(PLIVO, id, "1", &accounts()), Err(CallControlError::CallId));
    }
    assert!(send_keys(PLIVO, &long[1..], "1", &accounts()).is_ok());
}

#[test]
fn keys_are_of_a_keypad_and_few() {
    let most = "1".repeat(KEYS_SENT_MAX);
    for good in ["0", "*#", "ABCD", &most] {
        assert!(send_keys(TELNYX, "C:1", good, &accounts()).is_ok(), "{good}");
    }
    let more = format!("{most}1");
    for bad in ["", " ", "a", "1w2", "\u{661}", &more] {
        assert_eq!(
            send_keys(TELNYX, "C:1", bad, &accounts()),
            Err(CallControlError::Keys),
            "{bad}"
        );
    }
}
