//! The steps of each provider, and the test of a webhook.

use serde_json::{Value, json};

use super::*;
use crate::telephony::accounts;
use crate::telephony::named::{EXOTEL, PLIVO, TELNYX, TWILIO};
use crate::telephony::number_webhook::no_number;
use crate::telephony::settings::Telephony;
use crate::telephony::signature::{SignatureStatus, WebhookRequest};
use crate::telephony::verify::verify;

const NUMBER: &str = "+15550002222";
const URL: &str = "https://bots.example.net/";
const TARGET: NumberWebhook<'static> = NumberWebhook {
    number: NUMBER,
    url: URL,
};

/// Plays these answers, and returns the requests as method, path and body, and what was changed.
fn play(provider: &Provider, answers: &[(u16, Value)]) -> (Vec<String>, Vec<String>, SetUpStep) {
    let (mut asked, mut changes, mut given) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let step = next_step(provider, TARGET, &given, &accounts());
        let request = match step {
            SetUpStep::Ask(request) => request,
            SetUpStep::Change { what, request } => {
                changes.push(what);
                request
            }
            end => return (asked, changes, end),
        };
        assert!(request.authorization.is_some());
        let body = request.body.map(|body| String::from_utf8(body.bytes).expect("text"));
        let path = request.url.splitn(4, '/').nth(3).expect("a path").to_owned();
        asked.push(format!(
            "{} /{path} {}",
            request.method.name(),
            body.unwrap_or_default()
        ));
        let (status, body) = answers.get(given.len()).expect("it asks no more").clone();
        given.push((status, body.to_string().into_bytes()));
    }
}

#[test]
fn a_number_of_twilio_gets_the_webhook() {
    let number = |url: &str, method: &str| {
        json!({"incoming_phone_numbers": [
            {"sid": "PN00", "phone_number": "+155500022229", "voice_url": ""},
            {"sid": "PN01", "phone_number": NUMBER, "voice_url": url, "voice_method": method, "trunk_sid": null},
        ]})
    };
    let (asked, changes, end) = play(
        TWILIO,
        &[(200, number("https://old.example/", "GET")), (200, json!({}))],
    );
    assert_eq!(
        asked,
        [
            "GET /2010-04-01/Accounts/AC01/IncomingPhoneNumbers.json?PhoneNumber=%2B15550002222 ",
            "POST /2010-04-01/Accounts/AC01/IncomingPhoneNumbers/PN01.json VoiceUrl=https:%2F%2Fbots.example.net%2F&\
             VoiceMethod=POST",
        ]
    );
    let change = "the webhook of the number: https://old.example/ (GET) becomes https://bots.example.net/ (POST)";
    assert_eq!((changes, end), (vec![change.to_owned()], SetUpStep::Done));
    let (_, changes, end) = play(TWILIO, &[(200, number(URL, "POST"))]);
    assert_eq!((changes, end), (vec![], SetUpStep::Done), "it has it already");
    for (member, word) in [("trunk_sid", "trunk"), ("voice_application_sid", "application")] {
        let mut number = number(URL, "POST");
        number["incoming_phone_numbers"][1][member] = "TK01".into();
        let (.., end) = play(TWILIO, &[(200, number)]);
        assert!(matches!(&end, SetUpStep::Failed(why) if why.contains(word)), "{end:?}");
    }
    assert_eq!(
        play(TWILIO, &[(200, json!({"incoming_phone_numbers": []}))]).2,
        no_number()
    );
    let (.., end) = play(TWILIO, &[(401, json!({"code": 20003}))]);
    assert!(
        matches!(&end, SetUpStep::Failed(why) if why.contains("credentials")),
        "{end:?}"
    );
}

#[test]
fn a_number_of_telnyx_gets_the_webhook_by_its_application() {
    let number =
        |connection: Value| json!({"data": [{"id": "9", "phone_number": NUMBER, "connection_id": connection}]});
    let application = |url: &str, method: &str| json!({"data": {"id": "177", "friendly_name": "shop", "voice_url": url, "voice_method": method}});
    let lookup = "GET /v2/phone_numbers?filter%5Bphone_number%5D=15550002222 ";
    let answers = [
        (200, number("177".into())),
        (200, application("https://old.example/", "get")),
        (200, json!({})),
    ];
    let (asked, changes, end) = play(TELNYX, &answers);
    assert_eq!(
        asked,
        [
            lookup,
            "GET /v2/texml_applications/177 ",
            r#"PATCH /v2/texml_applications/177 {"friendly_name":"shop","voice_method":"post","voice_url":"https://bots.example.net/"}"#,
        ]
    );
    assert_eq!((changes.len(), end), (1, SetUpStep::Done));
    assert!(changes[0].contains("application `shop`") && changes[0].contains("https://old.example/ (GET)"));
    let (_, changes, end) = play(TELNYX, &[(200, number("177".into())), (200, application(URL, "post"))]);
    assert_eq!((changes, end), (vec![], SetUpStep::Done));
    let (.., end) = play(TELNYX, &[(200, number("177".into())), (404, json!({}))]);
    assert!(
        matches!(&end, SetUpStep::Failed(why) if why.contains("TeXML")),
        "{end:?}"
    );

    for without in [Value::Null, "".into()] {
        let answers = [
            (200, number(without)),
            (201, json!({"data": {"id": "178"}})),
            (200, json!({})),
        ];
        let (asked, changes, end) = play(TELNYX, &answers);
        assert_eq!(
            asked,
            [
                lookup,
                r#"POST /v2/texml_applications {"friendly_name":"edge-runner","voice_method":"post","voice_url":"https://bots.example.net/"}"#,
                r#"PATCH /v2/phone_numbers/9 {"connection_id":"178"}"#,
            ]
        );
        assert_eq!((changes.len(), end), (2, SetUpStep::Done));
    }
    assert_eq!(play(TELNYX, &[(200, json!({"data": []}))]).2, no_number());
}

#[test]
fn a_number_of_plivo_gets_the_webhook_by_its_application() {
    let number = |application: Value| json!({"number": "15550002222", "application": application});
    let uri = "/v1/Account/MA01/Application/4711/";
    let application = |url: &str, method: &str| json!({"app_name": "shop", "answer_url": url, "answer_method": method});
    let answers = [
        (200, number(uri.into())),
        (200, application("https://old.example/", "GET")),
        (202, json!({})),
    ];
    let (asked, changes, end) = play(PLIVO, &answers);
    assert_eq!(
        asked,
        [
            "GET /v1/Account/MA01/Number/15550002222/ ",
            "GET /v1/Account/MA01/Application/4711/ ",
            r#"POST /v1/Account/MA01/Application/4711/ {"answer_method":"POST","answer_url":"https://bots.example.net/"}"#,
        ]
    );
    assert_eq!((changes.len(), end), (1, SetUpStep::Done));
    assert!(changes[0].contains("application `shop`"), "{}", changes[0]);
    let (_, changes, end) = play(PLIVO, &[(200, number(uri.into())), (200, application(URL, "POST"))]);
    assert_eq!((changes, end), (vec![], SetUpStep::Done));

    let answers = [
        (200, number(Value::Null)),
        (201, json!({"app_id": "4712"})),
        (202, json!({})),
    ];
    let (asked, changes, end) = play(PLIVO, &answers);
    assert_eq!(
        asked[1..],
        [
            r#"POST /v1/Account/MA01/Application/ {"answer_method":"POST","answer_url":"https://bots.example.net/","app_name":"edge-runner"}"#,
            r#"POST /v1/Account/MA01/Number/15550002222/ {"app_id":"4712"}"#,
        ]
    );
    assert_eq!((changes.len(), end), (2, SetUpStep::Done));
    assert_eq!(play(PLIVO, &[(404, json!({}))]).2, no_number());
    let (.., end) = play(PLIVO, &[(200, number(uri.into())), (404, json!({}))]);
    assert!(matches!(end, SetUpStep::Failed(_)));
}

/// An id in a response cannot change the path of the next request.
#[test]
fn ids_of_responses_stay_in_their_segment() {
    for (provider, answers) in [
        (
            TWILIO,
            vec![json!({"incoming_phone_numbers": [{"sid": "a/../../b", "phone_number": NUMBER}]})],
        ),
        (
            TELNYX,
            vec![json!({"data": [{"id": "9", "phone_number": NUMBER, "connection_id": ".."}]})],
        ),
        (
            TELNYX,
            vec![
                json!({"data": [{"id": "..", "phone_number": NUMBER}]}),
                json!({"data": {"id": "178"}}),
            ],
        ),
        (PLIVO, vec![json!({"application": "/v1/Application/.."})]),
    ] {
        let answers: Vec<(u16, Value)> = answers.into_iter().map(|body| (200, body)).collect();
        let (.., end) = play(provider, &answers);
        assert!(matches!(&end, SetUpStep::Failed(_)), "{provider:?} {end:?}");
    }
    for odd in [json!([]), json!("x"), json!({"data": {}}), Value::Null] {
        for provider in [TWILIO, TELNYX] {
            let (.., end) = play(provider, &[(200, odd.clone())]);
            assert!(matches!(&end, SetUpStep::Failed(_)), "{provider:?} {end:?}");
        }
    }
}

#[test]
fn numbers_are_not_set_up_without_an_api() {
    let step = next_step(EXOTEL, TARGET, &[], &accounts());
    assert!(
        matches!(&step, SetUpStep::Failed(why) if why.contains("Exotel")),
        "{step:?}"
    );
    for provider in [TWILIO, TELNYX, PLIVO] {
        let step = next_step(provider, TARGET, &[], &Settings::default());
        assert!(matches!(step, SetUpStep::Failed(_)), "{provider:?}");
    }
}

/// The runner accepts the signatures of the test, and no other.
#[test]
fn the_test_of_a_webhook_is_signed_as_the_provider_signs() {
    let telephony = Telephony {
        settings: accounts(),
        ..Telephony::default()
    };
    for provider in [TWILIO, PLIVO] {
        let test = CallWebhook::test(provider, TARGET, &accounts(), "20614");
        let kind = [("content-type", test.body.content_type.to_owned())];
        let headers: Vec<(&str, String)> = kind.into_iter().chain(test.headers.clone()).collect();
        let header = |name: &str| {
            headers
                .iter()
                .find(|(own, _)| *own == name)
                .map(|(_, value)| value.as_str())
        };
        let request = |url| WebhookRequest {
            url,
            header: &header,
            body: &test.body.bytes,
        };
        let verified = verify(provider, &telephony, &request(URL), 0).expect("a signature");
        assert!(matches!(verified, SignatureStatus::Verified(_)));
        assert!(verify(provider, &telephony, &request("https://other.example/"), 0).is_err());
    }
    for provider in [TELNYX, EXOTEL] {
        assert!(CallWebhook::test(provider, TARGET, &accounts(), "1").headers.is_empty());
    }
}

#[test]
fn answers_of_a_webhook_are_judged() {
    let judge = |provider, status, body: &str| {
        let test = CallWebhook::test(provider, TARGET, &accounts(), "1");
        test.judge(provider, "bots.example.net", status, body.as_bytes())
    };
    let markup = r#"<Stream url="wss://bots.example.net/ws/TOKEN"></Stream>"#;
    let rejected = r#"{"detail":"invalid signature"}"#;
    assert!(judge(TWILIO, 200, markup).is_ok_and(|proof| proof.contains("signed")));
    assert!(judge(TELNYX, 200, markup).is_ok_and(|proof| proof.contains("no signatures")));
    assert!(judge(TELNYX, 403, rejected).is_ok());
    for (provider, status, body, why) in [
        (TWILIO, 403, rejected, "same credentials of Twilio"),
        (TWILIO, 403, "<html>", "status 403"),
        (TWILIO, 200, "<html>", "`-t twilio`"),
        (TELNYX, 502, markup, "status 502"),
        (PLIVO, 200, "wss://other.example/ws", "`--proxy bots.example.net`"),
    ] {
        let failed = judge(provider, status, body).expect_err("no proof");
        assert!(failed.contains(why), "{failed}");
    }
}
