//! Outbound messages, compared with `docs/spec/telephony.md` and with the parsed inbound form.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::named::{EXOTEL, PLIVO, TELNYX, TWILIO};
use super::{SCRIPTS, b_call, call, script_call};
use crate::audio::g711;
use crate::telephony::{ChunkLimits, TelephonyCall, TelephonyCodec};

/// The messages of `docs/spec/telephony.md`, byte for byte.
#[test]
fn writes_each_providers_messages() {
    let ulaw = [0, 0, 0, -8, -8, -8, -8, 0, 0, 0];
    let raw = [0, 1, 2];
    for (start, pcm, media, mark, clear) in [
        (
            r#"{"event":"start","start":{"streamSid":"MZ00000000000000000000000000000001","callSid":"c"}}"#,
            &ulaw[..],
            r#"{"event":"media","streamSid":"MZ00000000000000000000000000000001","media":{"payload":"////fn5+fv///w=="}}"#,
            r#"{"event":"mark","streamSid":"MZ00000000000000000000000000000001","mark":{"name":"utt-7"}}"#,
            r#"{"event":"clear","streamSid":"MZ00000000000000000000000000000001"}"#,
        ),
        (
            r#"{"event":"start","stream_id":"7d1a","start":{"call_control_id":"c"}}"#,
            &ulaw,
            r#"{"event":"media","media":{"payload":"////fn5+fv///w=="}}"#,
            r#"{"event":"mark","mark":{"name":"utt-7"}}"#,
            r#"{"event":"clear"}"#,
        ),
        (
            r#"{"event":"start","start":{"streamId":"a1a2","callId":"c"}}"#,
            &ulaw,
            r#"{"event":"playAudio","streamId":"a1a2","media":{"contentType":"audio/x-mulaw","sampleRate":8000,"payload":"////fn5+fv///w=="}}"#,
            r#"{"event":"checkpoint","streamId":"a1a2","name":"utt-7"}"#,
            r#"{"event":"clearAudio","streamId":"a1a2"}"#,
        ),
        (
            r#"{"event":"start","start":{"stream_sid":"s-0001","call_sid":"c","account_sid":"a"}}"#,
            &raw,
            r#"{"event":"media","stream_sid":"s-0001","media":{"payload":"AAABAAIA"}}"#,
            r#"{"event":"mark","stream_sid":"s-0001","mark":{"name":"utt-7"}}"#,
            r#"{"event":"clear","stream_sid":"s-0001"}"#,
        ),
    ] {
        let call = call(start);
        assert_eq!(call.media(pcm), media);
        assert_eq!(call.mark("utt-7"), mark);
        assert_eq!(call.clear(), clear);
    }
}

/// Two providers return the marks that a clear discards, and two do not.
#[test]
fn some_providers_return_cleared_marks() {
    let returns = [TWILIO, TELNYX, PLIVO, EXOTEL].map(|provider| script_call(provider).returns_cleared());
    assert_eq!(returns, [true, true, false, false]);
}

/// Ids and names are escaped in outbound messages.
#[test]
fn text_of_a_peer_is_escaped() {
    let id = "\"},\"event\":\"\u{7f}\\\n\u{2028}";
    for start in [
        json!({"event": "start", "start": {"streamSid": id, "callSid": "c"}}),
        json!({"event": "start", "stream_id": id, "start": {"call_control_id": "c"}}),
        json!({"event": "start", "start": {"streamId": id, "callId": "c"}}),
        json!({"event": "start", "start": {"stream_sid": id, "call_sid": "c", "account_sid": "a"}}),
    ] {
        let call = call(&start.to_string());
        for text in [call.media(&[0; 160]), call.clear(), call.mark(id)] {
            let message: Value = serde_json::from_str(&text).expect("JSON");
            for key in ["streamSid", "streamId", "stream_sid"] {
                assert!(message.get(key).is_none_or(|said| said == id), "{text}");
            }
            assert_eq!(message.get("streamSid").is_some(), call.provider == TWILIO);
        }
        let mark: Value = serde_json::from_str(&call.mark(id)).expect("JSON");
        let name = if call.provider == PLIVO {
            &mark["name"]
        } else {
            &mark["mark"]["name"]
        };
        assert_eq!(name, id);
    }
}

/// Outbound audio is parsed as inbound: every byte of the codec survives, at every length, in one
/// allocation.
#[test]
fn audio_survives_a_round_trip() {
    let ramp: Vec<i16> = (0..1_000).map(|at| (at * 65 - 32_500) as i16).collect();
    let mut calls: Vec<TelephonyCall> = SCRIPTS.iter().map(|(provider, _)| script_call(provider)).collect();
    calls.extend([b_call("PCMA", 8_000), b_call("L16", 48_000), b_call("PCMU", 16_000)]);
    for mut call in calls {
        call.tx = call.rx;
        for length in [0, 1, 2, 3, 160, 239, 240, 241, 480, 719, 1_000] {
            let said = call.media(&ramp[..length]);
            assert_eq!(said.capacity(), said.len());
            let back = said.replace("playAudio", "media");
            let mut pcm = Vec::new();
            call.read(&back, &mut pcm).expect("an object");
            assert_eq!(pcm.len(), length);
            let coded: Vec<i16> = ramp[..length]
                .iter()
                .map(|sample| match call.rx.codec {
                    TelephonyCodec::Ulaw => g711::ulaw_decode(g711::ulaw_encode(*sample)),
                    TelephonyCodec::Alaw => g711::alaw_decode(g711::alaw_encode(*sample)),
                    TelephonyCodec::L16 => *sample,
                })
                .collect();
            assert_eq!(pcm, coded);
            assert_eq!(call.media(&pcm), said);
        }
    }
}

/// Chunks for Exotel are multiples of 320 bytes, of at least 3200 bytes and 100 ms, at every rate
/// and codec.
#[test]
fn chunks_have_the_sizes_that_providers_accept() {
    for (encoding, rate, length_ms, multiple_ms) in [
        ("audio/x-raw", 8_000, 200, 20),
        ("audio/x-raw", 16_000, 100, 20),
        ("audio/x-raw", 24_000, 100, 20),
        ("audio/x-mulaw", 8_000, 400, 40),
        ("audio/x-mulaw", 16_000, 200, 20),
        ("audio/x-mulaw", 24_000, 160, 40),
    ] {
        let start = json!({"event": "start", "start": {"stream_sid": "s", "call_sid": "c", "account_sid": "a",
            "media_format": {"encoding": encoding, "sample_rate": rate}}});
        let call = call(&start.to_string());
        let chunk = call.chunk();
        let expected = ChunkLimits {
            length: Duration::from_millis(length_ms),
            multiple: Duration::from_millis(multiple_ms),
        };
        assert_eq!(chunk, expected, "{encoding} at {rate}");
        let bytes = |time: Duration| time.as_millis() as usize * rate / 1_000 * call.tx.codec.width();
        assert!(bytes(chunk.length) >= 3_200 && bytes(chunk.length) <= 100_000);
        assert!(bytes(chunk.length).is_multiple_of(320) && bytes(chunk.multiple).is_multiple_of(320));
        assert!(chunk.length.as_millis().is_multiple_of(chunk.multiple.as_millis()));
    }
    for provider in [TWILIO, TELNYX, PLIVO] {
        assert_eq!(script_call(provider).chunk(), ChunkLimits::PLAIN);
    }
}
