//! Tests of wake words.

use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::assistant::services::failure::ServiceStep;
use crate::assistant::services::wyoming::WyomingReader;

fn event(kind: &str, data: &Value) -> WyomingEvent {
    WyomingEvent {
        kind: kind.to_owned(),
        data: data.as_object().expect("an object").clone(),
        payload: Bytes::new(),
    }
}

fn micro() -> WyomingEvent {
    let models = ["okay_nabu", "alexa"].map(|name| json!({"name": name}));
    event(
        "info",
        &json!({"wake": [{"name": "micro", "version": "2.5", "models": models}]}),
    )
}

fn old(models: &[&str]) -> WyomingEvent {
    let models: Vec<Value> = models.iter().map(|name| json!({"name": name})).collect();
    event(
        "info",
        &json!({"asr": [], "wake": [{"name": "openwakeword", "models": models}]}),
    )
}

fn begin(names: &[&str]) -> (WakeClient, Vec<u8>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut unsent = Vec::new();
    let client = WakeClient::begin(&names, 48_000, &mut unsent, Instant::now());
    (client, unsent)
}

/// Reads what is unsent, as the service does.
fn sent(unsent: &mut Vec<u8>) -> Vec<WyomingEvent> {
    let mut reader = WyomingReader::default();
    reader.push(unsent);
    unsent.clear();
    std::iter::from_fn(|| reader.next_event().expect("Wyoming")).collect()
}

/// The service is asked what it offers, then for the wake words, and gets chunks of 64 ms with
/// the position of their end.
#[test]
fn audio_goes_to_a_service_that_has_the_word() {
    let (mut client, mut unsent) = begin(&["okay_nabu"]);
    let second = vec![1_000; 48_000];
    client
        .handle_audio(&second, Duration::from_secs(1), &mut unsent)
        .expect("nothing is sent yet");
    assert_eq!(
        sent(&mut unsent).iter().map(|event| &*event.kind).collect::<Vec<_>>(),
        ["describe"]
    );
    let listening = client.handle_event(&micro(), &mut unsent).expect("it has the word");
    assert_eq!(
        listening,
        Some(WakeEvent::Listening {
            words: "okay_nabu".into(),
            warning: None
        })
    );
    assert_eq!(client.poll_timeout(), None);
    client
        .handle_audio(&second, Duration::from_secs(2), &mut unsent)
        .expect("room");
    let events = sent(&mut unsent);
    assert_eq!(
        (&*events[0].kind, &events[0].data["names"]),
        ("detect", &json!(["okay_nabu"]))
    );
    assert_eq!(
        (&*events[1].kind, events[1].number("rate")),
        ("audio-start", Some(16_000))
    );
    let chunks = &events[2..];
    assert_eq!(chunks.len(), 15);
    for chunk in chunks {
        assert_eq!((chunk.payload.len(), chunk.number("timestamp")), (2_048, Some(2_000)));
    }
}

/// A detection names the chunk that it was in; a service with a clock of its own means the last
/// one.
#[test]
fn a_detection_has_a_position_in_the_audio() {
    let (mut client, mut unsent) = begin(&[]);
    client.handle_event(&micro(), &mut unsent).expect("words");
    let detected = event("detection", &json!({"name": "alexa", "timestamp": 64}));
    assert_eq!(
        client.handle_event(&detected, &mut unsent),
        Ok(None),
        "before any audio"
    );
    for nth in 1..=10 {
        let end = Duration::from_millis(64 * nth);
        client.handle_audio(&[0; 3_072], end, &mut unsent).expect("room");
    }
    for (timestamp, position_ms) in [(json!(128), 128), (json!(987_654_321), 640), (json!(null), 640)] {
        let detected = event("detection", &json!({"name": "alexa", "timestamp": timestamp}));
        assert_eq!(
            client.handle_event(&detected, &mut unsent),
            Ok(Some(WakeEvent::Detected(Duration::from_millis(position_ms))))
        );
    }
}

#[test]
fn a_service_that_has_stopped_is_asked_again() {
    let (mut client, mut unsent) = begin(&["alexa"]);
    let stopped = event("not-detected", &json!({}));
    sent(&mut unsent);
    assert_eq!(client.handle_event(&stopped, &mut unsent), Ok(None));
    assert!(
        sent(&mut unsent).is_empty(),
        "it is not asked before it has said what it offers"
    );
    client.handle_event(&micro(), &mut unsent).expect("words");
    sent(&mut unsent);
    client.handle_event(&stopped, &mut unsent).expect("no failure");
    assert_eq!(
        sent(&mut unsent).iter().map(|event| &*event.kind).collect::<Vec<_>>(),
        ["detect", "audio-start"]
    );
}

#[test]
fn a_wrong_service_and_a_missing_word_are_named() {
    let failure = |names: &[&str], info: &WyomingEvent| {
        let (mut client, mut unsent) = begin(names);
        client
            .handle_event(info, &mut unsent)
            .expect_err("a failure")
            .to_string()
    };
    let asr = event("info", &json!({"asr": [{"name": "faster-whisper"}], "wake": []}));
    assert!(failure(&[], &asr).contains("of another kind"));
    assert!(failure(&[], &event("info", &json!({}))).contains("of another kind"));
    assert_eq!(
        failure(&["hey_jarvis"], &micro()),
        "it has no hey_jarvis, but okay_nabu, alexa"
    );
    let many: Vec<String> = (0..12).map(|nth| format!("w{nth}\n{}", "x".repeat(90))).collect();
    let many: Vec<&str> = many.iter().map(|name| &**name).collect();
    let text = failure(&["y"], &old(&many));
    assert!(
        text.len() < 500 && text.ends_with(", 4 more") && !text.contains('\n'),
        "{text}"
    );
    let unreachable = WakeFailure::Service(ServiceFailure::TimedOut(ServiceStep::Connect));
    assert!(unreachable.to_string().contains("correct --local-wake"));
}

/// It answers with or without a fitting numpy, so its version is all that tells.
#[test]
fn an_old_service_is_named() {
    let warning = |names: &[&str], info: &WyomingEvent| {
        let (mut client, mut unsent) = begin(names);
        match client.handle_event(info, &mut unsent).expect("it listens") {
            Some(WakeEvent::Listening { words, warning }) => (words, warning.unwrap_or_default()),
            other => panic!("{other:?}"),
        }
    };
    let (words, text) = warning(&["ok nabu"], &old(&["alexa_v0.1", "ok_nabu_v0.1"]));
    assert_eq!(words, "ok_nabu_v0.1");
    assert!(
        text.contains("numpy<2") && !text.contains("--local-wake-words"),
        "{text}"
    );
    let (_, text) = warning(&[], &old(&["ok_nabu_v0.1"]));
    assert!(
        text.contains("numpy<2") && text.contains("--local-wake-words"),
        "{text}"
    );
    let (words, text) = warning(&["alexa", "computer"], &micro());
    assert_eq!((&*words, &*text), ("alexa", "it has no computer, but okay_nabu, alexa"));
}

#[test]
fn a_service_that_does_not_read_is_given_up() {
    let (mut client, mut unsent) = begin(&[]);
    client.handle_event(&micro(), &mut unsent).expect("words");
    let mut seconds = 0;
    let failure = loop {
        seconds += 1;
        match client.handle_audio(&[0; 48_000], Duration::from_secs(seconds), &mut unsent) {
            Ok(()) => assert!(seconds < 9, "{} bytes", unsent.len()),
            Err(failure) => break failure,
        }
    };
    assert_eq!(failure, WakeFailure::Stuck);
    assert!(unsent.len() < 2 * UNSENT_BYTES_MAX, "{}", unsent.len());
}
