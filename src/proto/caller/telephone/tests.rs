//! The messages of each provider, read by the code of the runner.

use super::*;
use crate::caller::FRAME_SAMPLES;
use crate::caller::plan::{CallExpectations, CallPlan};
use crate::telephony::{PROVIDERS, detect};

fn conversation(now: Instant) -> CallConversation {
    let plan = CallPlan {
        steps: Vec::new(),
        expect: CallExpectations::default(),
        longest: Duration::from_secs(10),
        hang_up_after: Duration::from_secs(1),
        records: false,
    };
    CallConversation::new(plan, now, now, false)
}

/// The runner recognises the provider by the opening, and by no other.
#[test]
fn the_runner_recognises_the_opening_of_each_provider() {
    for provider in PROVIDERS {
        let opening = TelephoneStream::new(provider, "0123456789abcdef0123456789abcdef").opening();
        let call = opening
            .iter()
            .find_map(|text| detect(&PROVIDERS, text).expect("a stream"));
        let call = call.expect("a handshake");
        assert_eq!(call.provider, provider);
    }
}

#[test]
fn messages_have_the_length_and_the_numbers_of_the_provider() {
    for provider in PROVIDERS {
        let mut stream = TelephoneStream::new(provider, "7");
        stream.opening();
        let mut audio: Vec<Value> = Vec::new();
        for _ in 0..20 {
            let frame = ConversationOutput::Audio(vec![900; FRAME_SAMPLES]);
            let messages = stream.encode(&frame);
            audio.extend(
                messages
                    .iter()
                    .map(|text| serde_json::from_str::<Value>(text).expect("JSON")),
            );
        }
        let dialect = &provider.dialect;
        let expected = 400 / dialect.message_ms as usize;
        assert!(
            (expected - 1..=expected).contains(&audio.len()),
            "{provider:?}: {}",
            audio.len()
        );
        let last = audio.last().expect("audio");
        let payload = last["media"]["payload"].as_str().expect("a payload");
        let width = if dialect.is_pcm { 2 } else { 1 };
        let bytes = BASE64.decode(payload.as_bytes()).expect("base64").len();
        assert_eq!(bytes, 8 * dialect.message_ms as usize * width);
        assert_eq!(last["media"]["chunk"], stream.number(audio.len() as u64));
        assert!(last[dialect.stream_member].as_str().is_some_and(|id| id.ends_with('7')));
        let key: Value = serde_json::from_str(&stream.encode(&ConversationOutput::Key('#'))[0]).expect("JSON");
        assert_eq!((&key["event"], &key["dtmf"]["digit"]), (&json!("dtmf"), &json!("#")));
        let stop: Value = serde_json::from_str(&stream.stop()).expect("JSON");
        assert_eq!(stop["event"], "stop");
    }
}

#[test]
fn marks_are_returned_when_the_audio_is_played_or_cleared() {
    let now = Instant::now();
    for provider in PROVIDERS {
        let (mut stream, mut call) = (TelephoneStream::new(provider, "7"), conversation(now));
        let bytes = vec![if provider.dialect.is_pcm { 1 } else { 255 }; 800];
        let length = Duration::from_millis(if provider.dialect.is_pcm { 50 } else { 100 });
        let media = json!({"event": "media", "media": {"payload": BASE64.encode(&bytes)}}).to_string();
        let mark = provider.protocol.mark("\"7\"", "\"a\"");
        let mut handle = |stream: &mut TelephoneStream, text: &str| stream.handle_message(&mut call, text, now);
        assert_eq!(handle(&mut stream, &media), Ok(()));
        assert_eq!(handle(&mut stream, &mark), Ok(()));
        assert_eq!(stream.poll_reply(now + length), None);
        let reply = stream.poll_reply(now + length + FRAME).expect("a mark");
        assert!(reply.contains(stream.mark_event) && reply.contains("\"a\""), "{reply}");
        assert_eq!(stream.poll_reply(now + length + FRAME), None);

        assert_eq!(handle(&mut stream, &media), Ok(()));
        assert_eq!(handle(&mut stream, &mark), Ok(()));
        assert_eq!(handle(&mut stream, &provider.protocol.clear("\"7\"")), Ok(()));
        assert!(stream.poll_reply(now).is_some());
    }
}

#[test]
fn marks_are_bounded_and_unreadable_messages_are_named() {
    let now = Instant::now();
    let (mut stream, mut call) = (TelephoneStream::new(PROVIDERS[0], "7"), conversation(now));
    let mark = PROVIDERS[0].protocol.mark("\"7\"", "\"a\"");
    for _ in 0..=WAITING_MARKS_MAX {
        assert_eq!(stream.handle_message(&mut call, &mark, now), Ok(()));
    }
    assert_eq!(stream.marks.len(), WAITING_MARKS_MAX);
    let mut error = |text: &str| stream.handle_message(&mut call, text, now).expect_err(text);
    assert!(error("hi").contains("not JSON"));
    assert!(error(r#"{"event":"media","media":{"payload":"*"}}"#).contains("base64"));
    assert_eq!(stream.handle_message(&mut call, r#"{"event":"new"}"#, now), Ok(()));
}
