//! A fifth provider, of one file and one line in one list, works like the others: handshake, audio,
//! hang-up, signatures, webhooks, settings and doctor.

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{PROVIDERS, SCRIPTS};
use crate::call_control::HangUpOutcome;
use crate::config::Config;
use crate::doctor::FindingLevel as Judged;
use crate::server::rest::RestMethod;
use crate::telephony::doctor as providers;
use crate::telephony::hangup;
use crate::telephony::invented::{INVENTED, WITH_EXAMPLE};
use crate::telephony::proof::{CallKey, Proof, ProofError, is_protected, protects_any};
use crate::telephony::settings::{Settings, Telephony};
use crate::telephony::signature::{SignatureError, SignatureStatus, WebhookRequest};
use crate::telephony::verify;
use crate::telephony::{Malformed, ProviderInput, TelephonyCall, TelephonyCodec, detect};
use crate::transport::Transport;

const START: &str = r#"{"event":"begin","line":"L-1","leg":"leg 7","codec":"alaw16"}"#;

fn call() -> TelephonyCall {
    detect(&WITH_EXAMPLE, START).expect("served").expect("a handshake")
}

fn configured() -> Telephony {
    Telephony {
        settings: Settings::from([("QUINTEL_KEY", "hunter2")]),
        ..Telephony::default()
    }
}

/// The list decides: without the line, the handshake is not recognised, and other calls are
/// unaffected.
#[test]
fn its_handshake_is_recognised_if_the_list_contains_it() {
    let call = call();
    assert_eq!((call.provider, call.call_id.as_str()), (&INVENTED, "leg 7"));
    assert!(detect(&PROVIDERS, START).expect("no refusal").is_none());
    assert!(detect(&WITH_EXAMPLE, &START.replace("alaw16", "opus")).is_err());
    for (provider, script) in SCRIPTS {
        let claimed = script
            .lines()
            .find_map(|line| detect(&WITH_EXAMPLE, line).expect("served"))
            .expect("a handshake");
        assert_eq!(claimed.provider, provider);
    }
}

#[test]
fn its_media_uses_its_own_codec() {
    let mut call = call();
    assert_eq!(
        (call.rx, call.tx.codec, call.tx.rate_hz),
        (call.tx, TelephonyCodec::Alaw, 16_000)
    );
    assert_eq!(call.chunk().length.as_millis(), 40);
    // 0xd5 and 0x55 are the two zeros of A-law, 0xaa is its loudest sample.
    let said = call.media(&[8, -8, 32_256]);
    let message: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&message["event"], &message["line"]), (&json!("voice"), &json!("L-1")));
    assert_eq!(message["media"]["payload"], BASE64.encode(&[0xd5, 0x55, 0xaa]));
    let mut pcm = Vec::new();
    let received = json!({"event": "media", "media": {"payload": BASE64.encode(&[0xd5, 0x55, 0xaa])}});
    assert_eq!(call.read(&received.to_string(), &mut pcm), Ok(ProviderInput::Audio));
    assert_eq!(pcm, [8, -8, 32_256]);
    assert_eq!(call.read("[]", &mut pcm), Err(Malformed));
}

#[test]
fn it_is_cleared_and_marked_by_its_own_messages() {
    let mut call = call();
    assert_eq!(call.clear(), r#"{"event":"hush","line":"L-1"}"#);
    assert_eq!(call.mark("m1"), r#"{"event":"echo","line":"L-1","name":"m1"}"#);
    let returned = call.mark("m1");
    assert_eq!(
        call.read(&returned, &mut Vec::new()),
        Ok(ProviderInput::Mark("m1".into()))
    );
    // The mark event of another provider has no meaning here.
    assert_eq!(
        call.read(r#"{"event":"mark","name":"m1"}"#, &mut Vec::new()),
        Ok(ProviderInput::Nothing)
    );
    assert!(call.returns_cleared());
}

#[test]
fn it_is_hung_up_and_its_responses_are_understood() {
    let telephony = configured();
    let request = hangup::request(&INVENTED, &call().call_id, &telephony.settings).expect("a request");
    assert_eq!(request.method, RestMethod::Delete);
    assert_eq!(request.url, "https://api.quintel.example/legs/leg%207");
    assert_eq!(request.authorization.expect("a credential").expose(), "Bearer hunter2");
    assert_eq!(hangup::request(&INVENTED, "..", &telephony.settings), None);
    assert_eq!(hangup::request(&INVENTED, "1", &Settings::default()), None);
    let over = |provider| hangup::outcome(provider, 410, br#"{"code":7}"#);
    assert_eq!(over(&INVENTED), HangUpOutcome::AlreadyOver);
    assert!(matches!(over(PROVIDERS[0]), HangUpOutcome::Refused(_)));
}

/// Its webhooks have its own signature, its markup contains a token for the call, and its calls
/// need that token.
#[test]
fn its_webhook_is_verified_and_protects_its_calls() {
    let telephony = configured();
    let body = b"leg=leg+7&from=1";
    let mut mac = Hmac::<Sha256>::new_from_slice(b"hunter2").expect("a key");
    mac.update(body);
    let good = BASE64.encode(&mac.finalize().into_bytes());
    let verify = |signature: Option<&str>, telephony: &Telephony| {
        let header = |name: &str| signature.filter(|_| name == "x-quintel-signature");
        let webhook = WebhookRequest {
            url: "https://bots.example.net/",
            header: &header,
            body,
        };
        verify::verify(&INVENTED, telephony, &webhook, 0)
    };
    assert!(matches!(
        verify(Some(&good), &telephony),
        Ok(SignatureStatus::Verified(_))
    ));
    let foreign = good.replace(&good[..1], if good.starts_with('A') { "B" } else { "A" });
    assert!(matches!(
        verify(Some(&foreign), &telephony),
        Err(SignatureError::ForeignBody { .. })
    ));
    assert!(matches!(verify(None, &telephony), Err(SignatureError::Missing { .. })));
    assert_eq!(verify(None, &Telephony::default()), Ok(SignatureStatus::NotChecked));

    assert_eq!(INVENTED.call_id(body), "leg 7");
    let reply = INVENTED.protocol.reply("wss://h/ws/t&", body);
    assert!(
        reply.body.contains("  <Line to=\"wss://h/ws/t&amp;\"/>\n"),
        "{}",
        reply.body
    );

    assert!(is_protected(&INVENTED, &telephony) && protects_any(&WITH_EXAMPLE, &telephony));
    assert!(!protects_any(&PROVIDERS, &telephony));
    let (call, key) = (call(), CallKey::of(&INVENTED, "leg 7").to_string());
    assert_eq!(
        Proof::Missing.admit(&call, &telephony),
        Err(ProofError::Missing(&INVENTED))
    );
    assert_eq!(Proof::Webhook(key).admit(&call, &telephony), Ok(()));
}

#[test]
fn it_is_a_transport_with_its_name() {
    let all: [Transport; Transport::ALL.len() + 1] = Transport::all(WITH_EXAMPLE);
    let found = Transport::named(&all, "quintel");
    assert_eq!(found, Some(Transport::Telephony(&INVENTED)));
    assert_eq!(found.map(Transport::name), Some("quintel"));
    assert_eq!(Transport::from_name("quintel"), None, "the product has four");
    for transport in Transport::ALL {
        assert_eq!(Transport::named(&all, transport.name()), Some(transport));
    }
}

#[test]
fn the_doctor_examines_it() {
    let of = |telephony| Config {
        transport: Some(Transport::Telephony(&INVENTED)),
        telephony,
        ..Config::default()
    };
    let request = providers::request(&INVENTED, &configured().settings).expect("a request");
    assert_eq!(
        (request.method, request.url.as_str()),
        (RestMethod::Get, "https://api.quintel.example/me")
    );
    assert_eq!(providers::request(&INVENTED, &Settings::default()), None);
    assert_eq!(providers::answer(&INVENTED, 401).level, Judged::Error);
    assert_eq!(providers::what(&INVENTED), "quintel");
    assert_eq!(providers::missing(&INVENTED, &of(configured())), None);
    let missing = providers::missing(&INVENTED, &of(Telephony::default())).expect("words");
    assert!(missing.text.starts_with("no credentials"), "{}", missing.text);
}
