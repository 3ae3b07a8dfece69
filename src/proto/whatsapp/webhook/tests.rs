//! One sample per shape of `tests/data/whatsapp`, and the limits.

use super::*;

const OURS: &str = "1060000001";
const CALL: &str = "wacid.HBgLMTU1NTAwMDExMTEVAgASGCA1RjQ";

macro_rules! sample {
    ($name:literal) => {
        include_bytes!(concat!("../../../../tests/data/whatsapp/", $name, ".json"))
    };
}

fn one(body: &[u8]) -> WebhookEvent {
    let mut events = parse(body, OURS).expect("a webhook");
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0)
}

fn connect(body: &[u8]) -> IncomingCall {
    match one(body) {
        WebhookEvent::Connect(connect) => *connect,
        other => panic!("{other:?}"),
    }
}

/// R-020: the caller's metadata is the bot's `body`, under the webhook's names, without the offer.
#[test]
fn a_call_that_begins_is_read() {
    let read = connect(sample!("connect"));
    assert_eq!(read.call_id, CALL);
    assert_eq!(
        (read.from.as_str(), read.timestamp_s),
        ("\u{2026}111", Some(1_795_252_753))
    );
    assert!(read.sdp.as_deref().is_some_and(|sdp| sdp.starts_with("v=0\r\n")));
    let expected = json!({
        "id": CALL, "from": "15550001111", "from_": "15550001111", "to": "15550002222", "event": "connect",
        "direction": "USER_INITIATED", "timestamp": "1795252753", "name": "Ada", "phone_number_id": OURS,
    });
    assert_eq!(read.body, expected);
    let shown = format!("{read:?}");
    assert!(
        !shown.contains("Ada") && !shown.contains("1111") && !shown.contains("v=0"),
        "{shown}"
    );
}

#[test]
fn what_a_webhook_lacks_the_body_lacks() {
    let nameless = connect(sample!("connect-no-contacts")).body;
    assert_eq!((nameless.get("name"), &nameless["from"]), (None, &json!("15550001111")));
    let hidden = connect(sample!("connect-no-from"));
    assert_eq!(hidden.from, "\u{2026}");
    assert_eq!((hidden.body.get("from"), hidden.body.get("from_")), (None, None));
    assert_eq!(hidden.body["from_user_id"], "US.13491208655302741918");
    assert_eq!(hidden.body["name"], "Ada");
    assert_eq!(connect(sample!("connect-no-wa-id")).body["name"], "Ada");
    assert_eq!(connect(sample!("connect-no-direction")).body.get("direction"), None);
    let payloads = connect(sample!("connect-payloads")).body;
    assert_eq!(
        (&payloads["cta_payload"], &payloads["deeplink_payload"]),
        (&json!("order-17"), &json!("spring"))
    );
}

#[test]
fn names_are_the_same_escaped_and_raw() {
    for body in [&sample!("connect-name-escaped")[..], &sample!("connect-name-raw")[..]] {
        assert_eq!(connect(body).body["name"], "Zo\u{eb} \u{1f4de}");
    }
}

#[test]
fn every_call_of_a_webhook_is_read() {
    let events = parse(sample!("connect-two"), OURS).expect("a webhook");
    let ids: Vec<&str> = events
        .iter()
        .map(|events| match events {
            WebhookEvent::Connect(connect) => connect.call_id.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, [CALL, "wacid.SECOND"]);
    let WebhookEvent::Connect(second) = &events[1] else {
        unreachable!()
    };
    assert_eq!(second.body.get("name"), None, "the contact is the first one's");
}

#[test]
fn a_call_that_is_over_is_read_in_every_casing() {
    for (body, status, error) in [
        (&sample!("terminate-completed")[..], "COMPLETED", None),
        (&sample!("terminate-lower")[..], "COMPLETED", None),
        (&sample!("terminate-rejected")[..], "REJECTED", None),
        (&sample!("terminate-failed")[..], "FAILED", Some(138_021)),
    ] {
        let call_id = CALL.to_owned();
        assert_eq!(one(body), WebhookEvent::Terminate(CallEnd { call_id, status, error }));
    }
}

#[test]
fn what_is_not_ours_is_ignored_in_words() {
    assert_eq!(
        one(sample!("connect-foreign")),
        WebhookEvent::OtherNumber("1060000099".into())
    );
    for body in [
        &sample!("statuses")[..],
        sample!("messages"),
        sample!("event-unknown"),
        sample!("connect-business"),
    ] {
        assert!(matches!(one(body), WebhookEvent::Ignored(_)), "{:?}", one(body));
    }
    assert_eq!(connect(sample!("connect-no-sdp")).sdp, None);
    for body in [
        r#"{"object":"whatsapp_business_account"}"#,
        r#"{"object":"whatsapp_business_account","entry":{}}"#,
        r#"{"object":"whatsapp_business_account","entry":[1,[],{"changes":7}]}"#,
    ] {
        assert_eq!(parse(body.as_bytes(), OURS), Ok(vec![]));
    }
}

#[test]
fn another_object_is_refused() {
    for body in [
        r#"{"object":"page","entry":[]}"#,
        "{}",
        r#"{"object":["whatsapp_business_account"]}"#,
    ] {
        assert_eq!(parse(body.as_bytes(), OURS), Err(WhatsAppWebhookError::Object));
    }
    for body in ["", "[]", "1", "{", "\u{feff}{}"] {
        assert_eq!(parse(body.as_bytes(), OURS), Err(WhatsAppWebhookError::NotJson));
    }
}

fn with(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut value: Value = serde_json::from_slice(sample!("connect")).expect("JSON");
    change(&mut value["entry"][0]["changes"][0]["value"]["calls"][0]);
    value.to_string().into_bytes()
}

/// Accepted at each cap; above it the text is left out, or the call is ignored.
#[test]
fn texts_are_capped() {
    let id = |bytes: usize| one(&with(|call| call["id"] = json!("i".repeat(bytes))));
    assert!(matches!(id(CALL_ID_BYTES_MAX), WebhookEvent::Connect(_)));
    assert!(matches!(id(CALL_ID_BYTES_MAX + 1), WebhookEvent::Ignored(_)));
    assert!(matches!(
        one(&with(|call| call["id"] = json!("a\nb"))),
        WebhookEvent::Ignored(_)
    ));
    let payload = |bytes: usize| connect(&with(|call| call["cta_payload"] = json!("x".repeat(bytes)))).body;
    assert!(payload(TEXT_BYTES_MAX).get("cta_payload").is_some());
    assert!(payload(TEXT_BYTES_MAX + 1).get("cta_payload").is_none());
    let sdp = |bytes: usize| connect(&with(|call| call["session"]["sdp"] = json!("x".repeat(bytes)))).sdp;
    assert!(sdp(OFFER_SDP_BYTES_MAX).is_some());
    assert!(sdp(OFFER_SDP_BYTES_MAX + 1).is_none());
    let mut many: Value = serde_json::from_slice(sample!("connect")).expect("JSON");
    let change = many["entry"][0]["changes"][0].clone();
    many["entry"][0]["changes"] = json!(vec![change; EVENTS_MAX + 1]);
    assert_eq!(
        parse(many.to_string().as_bytes(), OURS).map(|events| events.len()),
        Ok(EVENTS_MAX)
    );
}

#[test]
fn an_offer_is_stale_after_a_minute() {
    let at = |timestamp: Value| connect(&with(|call| call["timestamp"] = timestamp));
    let fresh = at(json!("1000"));
    assert_eq!(fresh.stale_age_s(1_000 + OFFER_AGE_MAX_S), None);
    assert_eq!(fresh.stale_age_s(1_001 + OFFER_AGE_MAX_S), Some(61));
    assert_eq!(fresh.stale_age_s(0), None, "this machine's clock is behind");
    assert_eq!(at(json!(1_000)).timestamp_s, Some(1_000));
    for unreadable in [json!("2026-11-22T10:00:00Z"), json!(null), json!("-1"), json!("")] {
        assert_eq!(at(unreadable).stale_age_s(u64::MAX), None);
    }
}
