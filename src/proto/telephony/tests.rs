//! Tests the handshakes of the four providers with the calls of `tests/data/telephony`, and
//! messages that are no handshake. Running calls are tested in the submodules.

use serde_json::{Value, json};

use super::named::{EXOTEL, PLIVO, TELNYX, TWILIO};
use super::settings::Holds;
use super::*;
use crate::audio::g711::LineLaws;
use crate::limits::{TELEPHONY_ID_BYTES_MAX, TELEPHONY_START_BYTES_MAX};

mod inbound;
mod new_provider;
mod outbound;
mod reports;

const SCRIPTS: [(&Provider, &str); 4] = [
    (TWILIO, include_str!("../../../tests/data/telephony/twilio.jsonl")),
    (TELNYX, include_str!("../../../tests/data/telephony/telnyx.jsonl")),
    (PLIVO, include_str!("../../../tests/data/telephony/plivo.jsonl")),
    (EXOTEL, include_str!("../../../tests/data/telephony/exotel.jsonl")),
];

fn call(text: &str) -> TelephonyCall {
    detect(&PROVIDERS, text)
        .expect("a stream that is served")
        .expect("a handshake")
}

fn script_call(provider: &Provider) -> TelephonyCall {
    let (_, script) = SCRIPTS.iter().find(|(of, _)| *of == provider).expect("a script");
    script
        .lines()
        .find_map(|line| detect(&PROVIDERS, line).expect("served"))
        .expect("a handshake")
}

/// A Telnyx call whose inbound audio has this format.
fn b_call(codec: &str, rate_hz: u32) -> TelephonyCall {
    call(
        &json!({"event": "start", "stream_id": "s", "start": {"call_control_id": "c",
            "media_format": {"encoding": codec, "sample_rate": rate_hz}}})
        .to_string(),
    )
}

/// R-049: only the `start` of a call is a handshake, of exactly one provider; so a socket may begin
/// with any message.
#[test]
fn only_the_start_of_a_call_is_a_handshake_of_its_provider() {
    for (provider, script) in SCRIPTS {
        for line in script.lines() {
            let claimed = detect(&PROVIDERS, line).expect("served").map(|call| call.provider);
            let is_start = line.contains(r#""event":"start""#);
            assert_eq!(claimed, is_start.then_some(provider), "{line}");
        }
    }
}

/// A provider is shown by its name, and its settings are found by what they hold.
#[test]
fn a_provider_has_a_name_and_settings_by_kind() {
    let names = [TWILIO, TELNYX, PLIVO, EXOTEL].map(|provider| format!("{provider:?}"));
    assert_eq!(names, ["twilio", "telnyx", "plivo", "exotel"]);
    let named = |provider: &Provider, holds: Holds| provider.setting(|held| held == holds).map(|found| found.name);
    assert_eq!(named(TWILIO, Holds::AccountId), Some("TELCO_A_ACCOUNT_SID"));
    assert_eq!(named(TWILIO, Holds::Secret), Some("TELCO_A_AUTH_TOKEN"));
    assert_eq!(named(TELNYX, Holds::PublicKey), Some("TELCO_B_PUBLIC_KEY"));
    assert_eq!(named(PLIVO, Holds::PublicKey), None);
    assert_eq!(named(EXOTEL, Holds::Secret), None);
}

#[test]
fn the_data_of_a_call_has_one_shape() {
    let data = |provider| script_call(provider).data;
    assert_eq!(
        data(TWILIO),
        json!({"stream_id": "MZ5f0c1d2e3b4a59687786958493a2b1c0", "call_id": "CA00d1e2f3a4b5c6d7e8f90a1b2c3d4e5f",
            "from": "+15550001111", "to": "+15550002222",
            "body": {"from_number": "+15550001111", "to_number": "+15550002222", "campaign": "spring \"26\""}})
    );
    assert_eq!(
        data(TELNYX),
        json!({"stream_id": "7d1a3c52-0b61-4f4e-9f0e-3a8f0c9b2a11",
            "call_id": "v3:kq2Yt0m4WcZ8sHn1RvXe7uJfLd3bGi6oPaTz9-_EwMxC5hNQyVrKB4",
            "from": "", "to": "+15550002222", "body": {"customer": "42"}, "outbound_encoding": "PCMA"})
    );
    assert_eq!(
        data(PLIVO),
        json!({"stream_id": "a1a2a3a4-0000-4000-8000-000000000002", "call_id": "0f0e0d0c-0b0a-4000-8000-000000000001",
            "from": null, "to": null, "body": {"campaign": "spring26", "lang": "en"}})
    );
    assert_eq!(
        data(EXOTEL),
        json!({"stream_id": "s-7f3a90b1c2d34e5f", "call_id": "c-19fb5a3de0c84711", "account_sid": "acct1",
            "from": "+919800000000", "to": "", "body": {"k": "v"}, "custom_parameters": {"k": "v"}})
    );
    for (provider, _) in SCRIPTS {
        let call = script_call(provider);
        assert_eq!(call.data["stream_id"], *call.stream_id);
        assert_eq!(call.data["call_id"], *call.call_id);
    }
}

/// The data of a minimal handshake; the first one is that of mock clients.
#[test]
fn a_minimal_start_is_enough() {
    let a = call(r#"{"event":"start","start":{"streamSid":"mock","callSid":"mock"}}"#);
    assert_eq!(
        (a.provider, a.rx, a.tx),
        (TWILIO, MediaFormat::ULAW_8000, MediaFormat::ULAW_8000)
    );
    assert_eq!(
        a.data,
        json!({"stream_id": "mock", "call_id": "mock", "from": null, "to": null, "body": {}})
    );
    let b =
        call(r#"{"stream_id":1,"start":{"call_control_id":"","from":15550001111,"to":null,"custom_parameters":[]}}"#);
    assert_eq!((b.provider, b.rx), (TELNYX, MediaFormat::ULAW_8000));
    assert_eq!(
        b.data,
        json!({"stream_id": "1", "call_id": "", "from": "15550001111", "to": "", "body": {}, "outbound_encoding": "PCMU"})
    );
    let c = call(r#"{"start":{"streamId":"s","callId":"c"}}"#);
    assert_eq!((c.provider, c.rx), (PLIVO, MediaFormat::ULAW_8000));
    assert_eq!(
        c.data,
        json!({"stream_id": "s", "call_id": "c", "from": null, "to": null, "body": {}})
    );
    let d = call(
        r#"{"event":"start","start":{"stream_sid":"s","call_sid":"c","account_sid":"a","custom_parameters":"k=v"}}"#,
    );
    assert_eq!(
        (d.provider, d.rx.codec, d.rx.rate_hz, d.tx),
        (EXOTEL, TelephonyCodec::L16, 8_000, d.rx)
    );
    assert_eq!(
        d.data,
        json!({"stream_id": "s", "call_id": "c", "account_sid": "a", "from": "", "to": "", "body": {},
            "custom_parameters": "k=v"})
    );
}

/// Each condition of detection with one member missing, and messages that start no call.
#[test]
fn incomplete_messages_are_no_handshake() {
    for text in [
        "",
        "hello",
        "[]",
        "null",
        r#"["start"]"#,
        r#"{"event":"start"}"#,
        r#"{"event":"start","start":null}"#,
        r#"{"event":"start","start":["MZ","CA"]}"#,
        r#"{"event":"start","start":{"streamSid":"s"}}"#,
        r#"{"event":"start","start":{"callSid":"c"}}"#,
        r#"{"event":"start","start":{"streamSid":"s","callSid":null}}"#,
        r#"{"event":"media","start":{"streamSid":"s","callSid":"c"}}"#,
        r#"{"start":{"streamSid":"s","callSid":"c"}}"#,
        r#"{"event":"start","start":{"stream_id":"s","call_control_id":"c"}}"#,
        r#"{"event":"start","stream_id":"s","start":{"call_id":"c"}}"#,
        r#"{"event":"start","streamId":"s","start":{"callId":"c"}}"#,
        r#"{"event":"start","start":{"stream_sid":"s","call_sid":"c"}}"#,
        r#"{"event":"start","start":{"stream_sid":"s","call_sid":"c","account_sid":{}}}"#,
        r#"{"start":{"stream_sid":"s","call_sid":"c","account_sid":"a"}}"#,
        r#"{"event":"connected","stream_id":"s","start":{"call_control_id":"c"}}"#,
        r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#,
        r#"{"event":"start","start":{"streamSid":"s","callSid":"c"}"#,
    ] {
        assert!(detect(&PROVIDERS, text).expect("no refusal").is_none(), "{text}");
    }
}

/// A handshake with the members of two providers belongs to the first in Pipecat's order.
#[test]
fn the_order_of_providers_decides_ambiguous_handshakes() {
    let both = r#"{"event":"start","stream_id":"b","start":{"streamSid":"a","callSid":"a","call_control_id":"b"}}"#;
    assert_eq!(call(both).provider, TWILIO);
    let both = r#"{"event":"start","stream_id":"b","start":{"streamId":"c","callId":"c","call_control_id":"b"}}"#;
    assert_eq!(call(both).provider, TELNYX);
}

#[test]
fn handshakes_and_ids_are_limited() {
    let start = |id: &str, more: &str| {
        json!({"event": "start", "start": {"streamSid": id, "callSid": "c", "customParameters": {"k": more}}})
            .to_string()
    };
    let longest = "s".repeat(TELEPHONY_ID_BYTES_MAX);
    assert_eq!(call(&start(&longest, "")).stream_id, longest);
    assert!(
        detect(&PROVIDERS, &start(&format!("{longest}s"), ""))
            .expect("no refusal")
            .is_none()
    );
    let room = TELEPHONY_START_BYTES_MAX - start("s", "").len();
    assert_eq!(call(&start("s", &"m".repeat(room))).stream_id, "s");
    assert!(
        detect(&PROVIDERS, &start("s", &"m".repeat(room + 1)))
            .expect("no refusal")
            .is_none()
    );
}

#[test]
fn accepts_supported_formats_and_rejects_others() {
    let start = |provider: &Provider, encoding: &str, rate: Value| match provider.name {
        "twilio" => json!({"event": "start", "start": {"streamSid": "s", "callSid": "c",
            "mediaFormat": {"encoding": encoding, "sampleRate": rate}}}),
        "telnyx" => json!({"event": "start", "stream_id": "s", "start": {"call_control_id": "c",
            "media_format": {"encoding": encoding, "sample_rate": rate}}}),
        "plivo" => json!({"event": "start", "start": {"streamId": "s", "callId": "c",
            "mediaFormat": {"encoding": encoding, "sampleRate": rate}}}),
        _ => json!({"event": "start", "start": {"stream_sid": "s", "call_sid": "c", "account_sid": "a",
            "media_format": {"encoding": encoding, "sample_rate": rate}}}),
    };
    for (provider, encoding, rate, codec, rate_hz) in [
        (TWILIO, "audio/x-mulaw", json!("8000"), TelephonyCodec::Ulaw, 8_000),
        (
            TWILIO,
            "audio/x-mulaw;rate=8000",
            json!(null),
            TelephonyCodec::Ulaw,
            8_000,
        ),
        (TELNYX, "PCMU", json!(8000), TelephonyCodec::Ulaw, 8_000),
        (TELNYX, "pcma", json!("8000"), TelephonyCodec::Alaw, 8_000),
        (TELNYX, "L16", json!(16000), TelephonyCodec::L16, 16_000),
        (TELNYX, "L16", json!("22050"), TelephonyCodec::L16, 22_050),
        (TELNYX, "L16", json!(48000), TelephonyCodec::L16, 48_000),
        (PLIVO, "audio/x-mulaw", json!(8000), TelephonyCodec::Ulaw, 8_000),
        (PLIVO, "audio/x-l16", json!(8000), TelephonyCodec::L16, 8_000),
        (PLIVO, "audio/x-l16", json!("16000"), TelephonyCodec::L16, 16_000),
        (EXOTEL, "audio/x-raw", json!("16000"), TelephonyCodec::L16, 16_000),
        (EXOTEL, "base64", json!(24000), TelephonyCodec::L16, 24_000),
        (EXOTEL, "audio/x-mulaw", json!("8000"), TelephonyCodec::Ulaw, 8_000),
        (EXOTEL, "audio/x-raw", json!("usual"), TelephonyCodec::L16, 8_000),
    ] {
        let call = call(&start(provider, encoding, rate).to_string());
        assert_eq!(
            (call.provider, call.rx),
            (provider, MediaFormat { codec, rate_hz }),
            "{encoding}"
        );
        let tx = if provider == EXOTEL {
            call.rx
        } else {
            MediaFormat::ULAW_8000
        };
        assert_eq!(call.tx, tx, "{encoding}");
        let inbound = match codec {
            TelephonyCodec::Ulaw => Some(Law::Mu),
            TelephonyCodec::Alaw => Some(Law::A),
            TelephonyCodec::L16 => None,
        };
        let laws = inbound.map(|inbound| LineLaws {
            inbound,
            outbound: Law::Mu,
        });
        assert_eq!(call.line_laws(), laws, "{encoding}");
    }
    for (provider, encoding, rate, why) in [
        (TWILIO, "audio/x-l16", json!(16000), "audio/x-l16 at 16000 Hz"),
        (TWILIO, "audio/x-mulaw", json!(16000), "audio/x-mulaw at 16000 Hz"),
        (TELNYX, "G722", json!(8000), "g722 at 8000 Hz"),
        (TELNYX, "OPUS", json!("48000"), "opus at 48000 Hz"),
        (TELNYX, "L16", json!(7999), "l16 at 7999 Hz"),
        (TELNYX, "L16", json!(48001), "l16 at 48001 Hz"),
        (TELNYX, "L16", json!(4_294_975_296_u64), "l16 at 4294975296 Hz"),
        (PLIVO, "audio/x-l16", json!(24000), "audio/x-l16 at 24000 Hz"),
        (PLIVO, "audio/x-alaw", json!(8000), "audio/x-alaw at 8000 Hz"),
        (EXOTEL, "audio/x-raw", json!("44100"), "audio/x-raw at 44100 Hz"),
        (EXOTEL, "audio/x-raw", json!(0), "audio/x-raw at 0 Hz"),
    ] {
        let refused = detect(&PROVIDERS, &start(provider, encoding, rate).to_string()).expect_err("a refusal");
        assert_eq!(refused, StreamError::Encoding(why.into()));
    }
    let odd = "\u{1f4de}\n".repeat(100);
    let refused = detect(&PROVIDERS, &start(TELNYX, &odd, json!(u64::MAX)).to_string()).expect_err("a refusal");
    // The text fits into a close frame.
    assert!(refused.to_string().len() <= 123 && refused.to_string().is_ascii());
    assert_eq!(
        StreamError::Encoding("g722 at 8000 Hz".into()).to_string(),
        "audio encoding g722 at 8000 Hz is not supported"
    );
}

#[test]
fn parses_all_forms_of_plivo_parameters() {
    for (given, body) in [
        (json!("{}"), json!({})),
        (json!(r#" {"k":"v","n":1}"#), json!({"k": "v", "n": 1})),
        (json!("k=v,k2=v2"), json!({"k": "v", "k2": "v2"})),
        (json!("k=v; k2 = v2=v3;;lone"), json!({"k": "v", "k2": "v2=v3"})),
        (json!({"k": "v"}), json!({"k": "v"})),
        (json!("{broken"), json!({})),
        (json!(""), json!({})),
        (json!(null), json!({})),
        (json!(7), json!({})),
    ] {
        let start = json!({"event": "start", "start": {"streamId": "s", "callId": "c"}, "extra_headers": given});
        assert_eq!(call(&start.to_string()).data["body"], body, "{given}");
    }
}

/// The numbers of a call of Plivo are those that the markup passed on: digits, which lack a `+`.
#[test]
fn the_numbers_of_a_plivo_call_are_parameters_of_its_stream() {
    for (given, from, to) in [
        (
            "from=15550001111;to=15550002222",
            json!("+15550001111"),
            json!("+15550002222"),
        ),
        ("from=anonymous,to=4312", json!("anonymous"), json!("4312")),
        (
            r#"{"from":"+15550001111","to":15550002222}"#,
            json!("+15550001111"),
            json!("+15550002222"),
        ),
        ("campaign=spring", json!(null), json!(null)),
    ] {
        let start = json!({"event": "start", "start": {"streamId": "s", "callId": "c"}, "extra_headers": given});
        let data = call(&start.to_string()).data;
        assert_eq!((&data["from"], &data["to"]), (&from, &to), "{given}");
    }
}

/// A call's debug form omits the phone numbers.
#[test]
fn the_debug_form_of_a_call_omits_numbers() {
    let shown = format!("{:?}", script_call(TWILIO));
    assert!(
        shown.contains("CA00d1e2f3a4b5c6d7e8f90a1b2c3d4e5f") && !shown.contains("1555000"),
        "{shown}"
    );
}
