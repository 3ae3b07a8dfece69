//! Tests of the dial-in webhook of Daily.

use super::*;

const BODY: &[u8] = br#"{"From":"+15550001111","To":"+15550002222","callId":"c1","callDomain":"d1"}"#;
const SIGNED: &str = "G1FaVIFOqB3TIxxliYYZsac4kkqWAJVynugekq98Kww=";
const SIGNED_MS: &str = "1795252753000";
const SIGNED_S: u64 = 1_795_252_753;

fn call_of(text: &str) -> Result<DialinWebhook, DialinError> {
    parse_call(parse_object(text.as_bytes())?)
}

fn config() -> Videoroom {
    Videoroom {
        key: Some(Secret::new("canary-key")),
        url: "https://api.example.net/v1".into(),
        ..Videoroom::default()
    }
}

/// R-090: a body that is not a JSON object is rejected.
#[test]
fn rejects_a_body_that_is_not_an_object() {
    for body in ["", "x", "[]", "7", "null", "{", "\u{feff}{}"] {
        assert_eq!(
            parse_object(body.as_bytes()).map(|_| ()),
            Err(DialinError::NotJson),
            "{body}"
        );
    }
    assert_eq!(DialinError::NotJson.to_string(), "Invalid JSON payload");
}

#[test]
fn tells_the_test_request_from_a_call() {
    for (body, ping) in [
        (r#"{"Test":"test"}"#, true),
        (r#"{"test":"test"}"#, true),
        (r#"{"test":true}"#, true),
        (r#"{"test":1}"#, true),
        (r#"{"test":[0]}"#, true),
        (r#"{"test":{"a":0}}"#, true),
        (r#"{"test":null,"Test":"x"}"#, true),
        (r#"{"test":false}"#, false),
        (r#"{"Test":""}"#, false),
        (r#"{"Test":0}"#, false),
        (r#"{"Test":0.0}"#, false),
        (r#"{"Test":[]}"#, false),
        (r#"{"Test":{}}"#, false),
        (r#"{"TEST":"test"}"#, false),
        (r#"{"To":"+15550002222"}"#, false),
        ("{}", false),
    ] {
        let map = parse_object(body.as_bytes()).expect("an object");
        assert_eq!(is_test(&map), ping, "{body}");
    }
}

/// R-090: the four field names are exact, and none may be empty.
#[test]
fn rejects_a_call_with_missing_fields() {
    let whole = json!({"From": "f", "To": "t", "callId": "c", "callDomain": "d"});
    assert!(call_of(&whole.to_string()).is_ok());
    for name in ["From", "To", "callId", "callDomain"] {
        for wrong in [
            json!(null),
            json!(""),
            json!(7),
            json!("x".repeat(DIALIN_FIELD_BYTES_MAX + 1)),
        ] {
            let mut call = whole.clone();
            call[name] = wrong;
            assert_eq!(
                call_of(&call.to_string()).map(|_| ()),
                Err(DialinError::Fields),
                "{call}"
            );
        }
        let mut longest = whole.clone();
        longest[name] = json!("x".repeat(DIALIN_FIELD_BYTES_MAX));
        assert!(call_of(&longest.to_string()).is_ok());
        let mut other_case = whole.as_object().expect("an object").clone();
        let value = other_case.remove(name).expect("it is there");
        other_case.insert(name.to_lowercase() + "_", value);
        assert_eq!(parse_call(other_case).map(|_| ()), Err(DialinError::Fields));
    }
    assert_eq!(
        DialinError::Fields.to_string(),
        "Missing required fields: From, To, callId, callDomain"
    );
}

/// R-092: the body contains the call, and the key under every name.
#[test]
fn bot_body_carries_the_call() {
    let text = r#"{"To":"+15550002222","From":"+15550001111","callId":"c1","callDomain":"d1",
            "sipHeaders":{"X-Campaign":"spring"},"more":1}"#;
    let body = call_of(text).map(|call| call.bot_body(&config())).expect("a call");
    let mut wanted = json!({
        "dialin_settings": {"call_id": "c1", "call_domain": "d1", "To": "+15550002222", "From": "+15550001111",
            "sip_headers": {"X-Campaign": "spring"}},
        "videoroom_api_key": "canary-key", "videoroom_api_url": "https://api.example.net/v1",
        "daily_api_key": "canary-key", "daily_api_url": "https://api.example.net/v1",
    });
    assert_eq!(body, wanted);
    wanted["dialin_settings"]
        .as_object_mut()
        .expect("an object")
        .remove("sip_headers");
    for headers in ["", r#","sipHeaders":null"#, r#","sipHeaders":"x""#] {
        let text = format!(r#"{{"To":"+15550002222","From":"+15550001111","callId":"c1","callDomain":"d1"{headers}}}"#);
        let body = call_of(&text).map(|call| call.bot_body(&config())).expect("a call");
        assert_eq!(body, wanted);
    }
}

fn verified(
    signature: Option<&str>,
    timestamp: Option<&str>,
    body: &[u8],
    now_s: u64,
) -> Result<(), DialinSignatureError> {
    let header = |name: &str| match name {
        SIGNATURE => signature,
        TIMESTAMP => timestamp,
        other => panic!("{other} is not looked at"),
    };
    let key = BASE64
        .decode(b"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
        .expect("base64");
    verify(&key, &header, body, now_s)
}

/// The vector of `docs/spec/daily.md` 6.2, at the limits of its time window.
#[test]
fn accepts_a_signature_for_five_minutes() {
    for now_s in [SIGNED_S, SIGNED_S - 300, SIGNED_S + 300] {
        assert_eq!(verified(Some(SIGNED), Some(SIGNED_MS), BODY, now_s), Ok(()));
    }
    for now_s in [SIGNED_S - 301, SIGNED_S + 301] {
        assert_eq!(
            verified(Some(SIGNED), Some(SIGNED_MS), BODY, now_s),
            Err(DialinSignatureError::Stale { off_s: 301 })
        );
    }
}

/// The same key, body and time, in seconds; computed with Python's `hmac`.
#[test]
fn accepts_timestamps_in_seconds() {
    let key = b"0123456789abcdef0123456789abcdef";
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("a key");
    let mac = mac.chain_update("1795252753.").chain_update(BODY).finalize();
    let signature = BASE64.encode(&mac.into_bytes());
    assert_eq!(signature, "Q0z2TNbGEJ8LZmlcSmvZ3rLdYSIEOSvHoHZIKyk+3gM=");
    assert_eq!(verified(Some(&signature), Some("1795252753"), BODY, SIGNED_S), Ok(()));
}

#[test]
fn rejects_every_other_signature() {
    let mut tampered = BODY.to_vec();
    tampered[10] ^= 1;
    for (signature, timestamp, body, wrong) in [
        (None, Some(SIGNED_MS), BODY, DialinSignatureError::Missing(SIGNATURE)),
        (Some(SIGNED), None, BODY, DialinSignatureError::Missing(TIMESTAMP)),
        (
            Some("?"),
            Some(SIGNED_MS),
            BODY,
            DialinSignatureError::Malformed(SIGNATURE),
        ),
        (Some(""), Some(SIGNED_MS), BODY, DialinSignatureError::Foreign),
        (Some(&SIGNED[..4]), Some(SIGNED_MS), BODY, DialinSignatureError::Foreign),
        (
            Some(SIGNED),
            Some(SIGNED_MS),
            &tampered[..],
            DialinSignatureError::Foreign,
        ),
        (Some(SIGNED), Some(SIGNED_MS), b"", DialinSignatureError::Foreign),
        // The same moment in another notation is not what was signed.
        (Some(SIGNED), Some("1795252753"), BODY, DialinSignatureError::Foreign),
        (Some(SIGNED), Some("1795252753001"), BODY, DialinSignatureError::Foreign),
        (Some(SIGNED), Some(""), BODY, DialinSignatureError::Malformed(TIMESTAMP)),
        (
            Some(SIGNED),
            Some("+1795252753000"),
            BODY,
            DialinSignatureError::Malformed(TIMESTAMP),
        ),
        (
            Some(SIGNED),
            Some("-1"),
            BODY,
            DialinSignatureError::Malformed(TIMESTAMP),
        ),
        (
            Some(SIGNED),
            Some("99999999999999999999999"),
            BODY,
            DialinSignatureError::Malformed(TIMESTAMP),
        ),
    ] {
        assert_eq!(
            verified(signature, timestamp, body, SIGNED_S),
            Err(wrong),
            "{signature:?} {timestamp:?}"
        );
    }
}

/// R-093: the body names the call; the key and the URL come from the configuration.
#[test]
fn connects_a_held_call_with_the_configured_key() {
    let whole = call_of(std::str::from_utf8(BODY).expect("text"))
        .expect("a call")
        .bot_body(&config());
    let mut forged = whole.clone();
    for prefix in ["videoroom", "daily"] {
        forged[format!("{prefix}_api_key")] = json!("other");
        forged[format!("{prefix}_api_url")] = json!("http://127.0.0.1:1");
    }
    for body in [&whole, &forged] {
        let held = held_call(body, &config()).expect("a call is held");
        assert_eq!(format!("{held:?}"), "HeldCall { .. }");
        for uri in ["sip:r@sip.example.net", "r@sip.example.net"] {
            let request = held.connect_request(uri);
            assert_eq!(request.method, RestMethod::Post);
            assert_eq!(request.url, "https://api.example.net/v1/dialin/pinlessCallUpdate");
            assert_eq!(request.authorization, Some(Secret::new("Bearer canary-key")));
            let body = request.body.expect("a body");
            assert_eq!(
                serde_json::from_slice::<Value>(&body.bytes).expect("JSON"),
                json!({"callId": "c1", "callDomain": "d1", "sipUri": "sip:r@sip.example.net"})
            );
        }
        assert_eq!(held.parse_connect_answer(200, b""), Ok(()));
        let refused = held.parse_connect_answer(404, br#"{"error":"not-found","info":"no such call"}"#);
        assert_eq!(
            refused.expect_err("404").to_string(),
            "connecting the call to its room: the provider answered 404 (not-found: no such call); the call is over, or was \
             never held"
        );
    }
    for none in [json!({}), json!([]), json!({"dialin_settings": {"call_id": "c"}})] {
        assert_eq!(held_call(&none, &config()), None);
    }
    assert_eq!(held_call(&whole, &Videoroom::default()), None, "without a key");
}
