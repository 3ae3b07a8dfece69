//! Tests inbound messages of a running call: whole calls, frames out of order, and invalid
//! messages.

use std::f64::consts::TAU;

use data_encoding::BASE64;
use serde_json::json;

use super::super::named::{EXOTEL, PLIVO, TELNYX, TWILIO};
use super::{SCRIPTS, b_call, script_call};
use crate::limits::{MARK_BYTES_MAX, TELEPHONY_PAYLOAD_BYTES_MAX, TELEPHONY_REORDERED_MAX};
use crate::telephony::{Malformed, ProviderInput};

fn media(payload: &str) -> String {
    json!({"event": "media", "media": {"payload": payload}}).to_string()
}

fn numbered(chunk: u64, sample: i16) -> String {
    let payload = BASE64.encode(&sample.to_le_bytes());
    json!({"event": "media", "media": {"track": "inbound", "chunk": chunk.to_string(), "payload": payload}}).to_string()
}

/// Asserts the samples of the tone of 437 Hz in the scripts; `indexes` are the expected ones. A
/// step of G.711 is 256 at this level.
fn assert_tone(pcm: &[i16], indexes: &[usize]) {
    assert_eq!(pcm.len(), indexes.len());
    for (sample, index) in pcm.iter().zip(indexes) {
        let exact = 8_000.0 * (TAU * 437.0 * *index as f64 / 8_000.0).sin();
        assert!(
            (f64::from(*sample) - exact).abs() <= 140.0,
            "sample {index}: {sample}, not {exact}"
        );
    }
}

/// Telnyx does not document the order of the bytes of L16: both are heard.
#[test]
fn l16_of_telnyx_is_heard_in_either_byte_order() {
    let tone = |at: usize| (8_000.0 * (TAU * 437.0 * at as f64 / 16_000.0).sin()) as i16;
    for to_bytes in [i16::to_le_bytes, i16::to_be_bytes] {
        let start = json!({"event": "start", "stream_id": "s", "start": {"call_control_id": "c",
            "media_format": {"encoding": "L16", "sample_rate": 16_000, "channels": 1}}});
        let mut call = super::call(&start.to_string());
        let mut pcm = Vec::new();
        for frame in 0..10 {
            let bytes: Vec<u8> = (320 * frame..320 * (frame + 1))
                .flat_map(|at| to_bytes(tone(at)))
                .collect();
            let chunk = (frame + 1).to_string();
            let payload = BASE64.encode(&bytes);
            let media = json!({"event": "media", "media": {"track": "inbound", "chunk": chunk, "payload": payload}});
            call.read(&media.to_string(), &mut pcm).expect("an object");
        }
        assert!(pcm.len() >= 9 * 320, "{}", pcm.len());
        assert!(pcm.iter().enumerate().all(|(at, sample)| *sample == tone(at)));
    }
}

/// A whole call of each provider. The frames of Telnyx arrive out of order, one repeated, one late,
/// and the last one with the end of the stream.
#[test]
fn parses_whole_calls() {
    let mark = |name: &str| ProviderInput::Mark(name.into());
    let marks = || vec![mark("utt-7"), mark("utt-8")];
    for (provider, keys, marks, frames, frame, malformed) in [
        (TWILIO, "5#", marks(), &[0, 1, 2, 3, 4, 6][..], 160, 2),
        (
            TELNYX,
            "7*",
            vec![mark("utt-7")],
            &[0, 1, 2, 3, 4, 5, 6, 7, 9, 11],
            160,
            1,
        ),
        (PLIVO, "90", marks(), &[0, 1, 2, 4], 160, 1),
        (EXOTEL, "5*", vec![mark("utt-7")], &[0, 1, 2, 4], 800, 3),
    ] {
        let (_, script) = SCRIPTS.iter().find(|(of, _)| *of == provider).expect("a script");
        let mut call = script_call(provider);
        let (mut pcm, mut received) = (Vec::new(), Vec::new());
        for line in script.lines() {
            let before = pcm.len();
            let meaning = call.read(line, &mut pcm).expect("an object");
            let grown = pcm.len() > before;
            assert!(
                grown == (meaning == ProviderInput::Audio) || meaning == ProviderInput::Stop,
                "{line}"
            );
            received.push(meaning);
        }
        assert_eq!(received.last(), Some(&ProviderInput::Stop));
        let dialled: String = received
            .iter()
            .filter_map(|received| match received {
                ProviderInput::Dtmf(key) => Some(*key),
                _ => None,
            })
            .collect();
        assert_eq!(dialled, keys);
        received.retain(|received| matches!(received, ProviderInput::Mark(_)));
        assert_eq!(received, marks);
        assert_eq!(call.malformed, malformed, "{provider:?}");
        let mut indexes: Vec<usize> = frames.iter().flat_map(|at| at * frame..(at + 1) * frame).collect();
        if provider == EXOTEL {
            // The third frame ends with half a sample.
            indexes.remove(3 * 800 - 1);
        }
        assert_tone(&pcm, &indexes);
    }
}

/// Text that is not an object is [`Malformed`], and an invalid object is skipped; both are counted.
#[test]
fn skips_and_counts_invalid_objects() {
    let mut call = script_call(TWILIO);
    let mut pcm = Vec::new();
    let unreadable = [
        "",
        "stop",
        "[]",
        r#"["media"]"#,
        "7",
        "{",
        r#"{"event":"stop"} x"#,
        r#"{"event":"stop""#,
    ];
    for text in unreadable {
        assert_eq!(call.read(text, &mut pcm), Err(Malformed), "{text}");
    }
    assert_eq!(call.malformed, unreadable.len() as u64);
    let skipped = [
        "{}".to_string(),
        r#"{"event":null}"#.into(),
        r#"{"event":["media"]}"#.into(),
        r#"{"event":"media","event":"media"}"#.into(),
        r#"{"event":"media"}"#.into(),
        r#"{"event":"media","media":"AAAA"}"#.into(),
        r#"{"event":"media","media":["inbound",1,"AAAA"]}"#.into(),
        r#"{"event":"media","media":{"payload":{}}}"#.into(),
        r#"{"event":"media","media":{"track":"outbound","payload":"AAAA"}}"#.into(),
        r#"{"event":"media","media":{"track":"outbound_track","payload":"AAAA"}}"#.into(),
        r#"{"event":"media","media":{"chunk":1e999,"payload":"AAAA"}}"#.into(),
        media("A"),
        media("AAAA==="),
        media("AA=A"),
        media("AAAB*"),
        r#"{"event":"dtmf","dtmf":{}}"#.into(),
        r#"{"event":"mark","mark":{}}"#.into(),
    ];
    let counted = (unreadable.len() + skipped.len()) as u64;
    for text in &skipped {
        assert_eq!(call.read(text, &mut pcm), Ok(ProviderInput::Nothing), "{text}");
    }
    assert_eq!((call.malformed, pcm.len()), (counted, 0));
    for text in [
        r#"{"event":"later","media":{"payload":"AAAA"}}"#.to_string(),
        r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#.into(),
        r#"{"event":"playedStream","name":"utt-7"}"#.into(),
        r#"{"event":"error","payload":{"code":1}}"#.into(),
        r#"{"event":"dtmf","dtmf":{"digit":"D"}}"#.into(),
        r#"{"event":"dtmf","dtmf":{"digit":"12"}}"#.into(),
        r#"{"event":"dtmf","dtmf":{"digit":"\u0665"}}"#.into(),
        media(""),
    ] {
        assert_eq!(call.read(&text, &mut pcm), Ok(ProviderInput::Nothing), "{text}");
    }
    assert_eq!((call.malformed, pcm.len()), (counted, 0));
    // Escapes, missing padding, line breaks and the URL-safe alphabet are valid base64.
    for (payload, samples) in [
        (r"\/\/\/\u002f", 3),
        ("AA", 1),
        ("AA==", 1),
        ("AAA", 2),
        ("AAA=", 2),
        (r"AAAA\n", 3),
        (r"AA\r\nAA", 3),
        (r"AA=\n=", 1),
        ("AA-_", 3),
    ] {
        pcm.clear();
        let text = format!("  {{\"event\":\"media\",\"media\":{{\"payload\":\"{payload}\"}}}}");
        assert_eq!(
            (call.read(&text, &mut pcm), pcm.len()),
            (Ok(ProviderInput::Audio), samples),
            "{payload}"
        );
    }
}

/// A member of another type counts as absent, and the rest of the message has its meaning.
#[test]
fn a_member_of_another_type_is_absent() {
    let mut call = script_call(TWILIO);
    let mut pcm = Vec::new();
    for odd in [
        "null",
        "true",
        "7",
        "-7",
        "1.5",
        "\"x\"",
        "[1,[2]]",
        r#"{"a":[1],"b":{}}"#,
    ] {
        for member in ["media", "mark", "name", "payload"] {
            let text = format!(r#"{{"{member}":{odd},"event":"dtmf","dtmf":{{"digit":"5"}}}}"#);
            assert_eq!(call.read(&text, &mut pcm), Ok(ProviderInput::Dtmf('5')), "{text}");
        }
        let text = format!(r#"{{"event":"dtmf","dtmf":{odd}}}"#);
        assert_eq!(call.read(&text, &mut pcm), Ok(ProviderInput::Nothing), "{text}");
    }
    assert_eq!(pcm, [0; 0]);
}

/// A name or a key may be a number.
#[test]
fn numbers_are_read_as_their_digits() {
    let mut call = script_call(TWILIO);
    let mut pcm = Vec::new();
    for number in ["7", "-7", "1.5"] {
        let mark = format!(r#"{{"event":"mark","mark":{{"name":{number}}}}}"#);
        let name = ProviderInput::Mark(number.to_owned());
        assert_eq!(call.read(&mark, &mut pcm), Ok(name), "{mark}");
    }
    let key = r#"{"event":"dtmf","dtmf":{"digit":5}}"#;
    assert_eq!(call.read(key, &mut pcm), Ok(ProviderInput::Dtmf('5')));
}

/// The reason to close the socket says whose message it was, and what was wrong with it.
#[test]
fn text_that_is_no_object_has_its_reason() {
    let malformed = script_call(TWILIO).read("[]", &mut Vec::new()).expect_err("no object");
    assert_eq!(malformed.to_string(), "a message of the provider is no JSON object");
}

#[test]
fn counts_half_samples_and_decodes_the_others() {
    let mut call = b_call("L16", 16_000);
    let mut pcm = vec![7];
    assert_eq!(
        call.read(&media(&BASE64.encode(&[1, 0, 0xff, 0xff, 9])), &mut pcm),
        Ok(ProviderInput::Audio)
    );
    assert_eq!((pcm, call.malformed), (vec![7, 1, -1], 1));
}

#[test]
fn payloads_and_mark_names_are_limited() {
    let mut call = script_call(TWILIO);
    let mut pcm = Vec::new();
    call.read(&media(&"A".repeat(TELEPHONY_PAYLOAD_BYTES_MAX)), &mut pcm)
        .expect("an object");
    assert_eq!((pcm.len(), call.malformed), (TELEPHONY_PAYLOAD_BYTES_MAX / 4 * 3, 0));
    call.read(&media(&"A".repeat(TELEPHONY_PAYLOAD_BYTES_MAX + 4)), &mut pcm)
        .expect("an object");
    assert_eq!((pcm.len(), call.malformed), (TELEPHONY_PAYLOAD_BYTES_MAX / 4 * 3, 1));
    let mark = |bytes: usize| json!({"event": "mark", "mark": {"name": "m".repeat(bytes)}}).to_string();
    assert_eq!(
        call.read(&mark(MARK_BYTES_MAX), &mut pcm),
        Ok(ProviderInput::Mark("m".repeat(MARK_BYTES_MAX)))
    );
    assert_eq!(
        call.read(&mark(MARK_BYTES_MAX + 1), &mut pcm),
        Ok(ProviderInput::Nothing)
    );
    assert_eq!(call.malformed, 2);
}

/// Passes numbered one-sample frames, whose sample is their number, and returns the output,
/// including that of the stop.
fn ordered(chunks: &[u64]) -> Vec<i16> {
    let mut call = b_call("L16", 8_000);
    let mut pcm = Vec::new();
    for chunk in chunks {
        call.read(&numbered(*chunk, *chunk as i16), &mut pcm)
            .expect("an object");
    }
    call.read(r#"{"event":"stop"}"#, &mut pcm).expect("an object");
    pcm
}

#[test]
fn orders_telnyx_frames() {
    // All orders of five frames within the reordering window.
    let mut orders = vec![Vec::new()];
    for _ in 1..=5 {
        orders = orders
            .iter()
            .flat_map(|order: &Vec<u64>| {
                let left = (1..=5).filter(|chunk| !order.contains(chunk));
                left.map(|chunk| [&order[..], &[chunk]].concat())
            })
            .collect();
    }
    assert_eq!(orders.len(), 120);
    let overtaken = |order: &[u64], at: usize| order[..at].iter().filter(|chunk| **chunk > order[at]).count();
    orders.retain(|order| (0..5).all(|at| overtaken(order, at) <= TELEPHONY_REORDERED_MAX));
    assert_eq!(orders.len(), 96);
    for order in orders {
        assert_eq!(ordered(&order), [1, 2, 3, 4, 5], "{order:?}");
    }
}

#[test]
fn duplicate_late_and_missing_telnyx_frames_delay_nothing() {
    assert_eq!(ordered(&[1, 2, 2, 3, 1, 4, 4]), [1, 2, 3, 4]);
    assert_eq!(ordered(&[1, 3, 3, 2, 4]), [1, 2, 3, 4]);
    // 2 is missing; three frames wait for it, and the fourth releases them.
    assert_eq!(ordered(&[1, 3, 4, 5, 6, 2, 7]), [1, 3, 4, 5, 6, 7]);
    // A stream joined late, and one that counts from 0.
    assert_eq!(ordered(&[500, 501, 503, 502]), [500, 501, 502, 503]);
    assert_eq!(ordered(&[0, 1, 2]), [0, 1, 2]);
    // A provider that restarts its count is followed after a window of frames.
    assert_eq!(
        ordered(&[90, 91, 92, 93, 95, 1, 2, 3, 4, 5, 6]),
        [90, 91, 92, 93, 95, 4, 5, 6]
    );
    assert_eq!(ordered(&[1, u64::MAX, 2, 3]), [1, 2, 3, -1]);

    let mut call = b_call("L16", 8_000);
    let mut pcm = Vec::new();
    call.read(&numbered(1, 1), &mut pcm).expect("an object");
    assert_eq!(call.read(&numbered(3, 3), &mut pcm), Ok(ProviderInput::Nothing));
    // The second frame is invalid, but arrived: the third does not wait.
    let broken = json!({"event": "media", "media": {"chunk": 2, "payload": "%"}}).to_string();
    assert_eq!(call.read(&broken, &mut pcm), Ok(ProviderInput::Audio));
    // A frame without a number keeps its position.
    assert_eq!(
        call.read(&media(&BASE64.encode(&[7, 0])), &mut pcm),
        Ok(ProviderInput::Audio)
    );
    assert_eq!((pcm, call.malformed), (vec![1, 3, 7], 1));
}

/// Other providers send audio in order; numbers are ignored.
#[test]
fn keeps_the_order_of_other_providers() {
    let mut call = script_call(EXOTEL);
    let mut pcm = Vec::new();
    for chunk in [3, 1, 2, 2] {
        assert_eq!(
            call.read(&numbered(chunk, chunk as i16), &mut pcm),
            Ok(ProviderInput::Audio)
        );
    }
    assert_eq!(pcm, [3, 1, 2, 2]);
}

/// A call without audio of the caller names the cause, unless the log has it: invalid audio is
/// logged as it comes.
#[test]
fn a_deaf_call_names_its_cause() {
    let mut pcm = Vec::new();
    let mut call = script_call(TWILIO);
    call.read(r#"{"event":"mark"}"#, &mut pcm).expect("an object");
    assert!(call.deaf_cause().is_some_and(|why| why.contains("no `media` message")));
    let own = json!({"event": "media", "media": {"track": "outbound", "payload": "AAAA"}}).to_string();
    call.read(&own, &mut pcm).expect("an object");
    assert!(call.deaf_cause().is_some_and(|why| why.contains("the bot's own")));
    call.read(&media("?"), &mut pcm).expect("an object");
    assert_eq!((call.deaf_cause(), pcm.len()), (None, 0));
}
