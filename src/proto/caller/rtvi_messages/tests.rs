//! Messages of the caller, read by the code of the runner, and those of bots.

use super::*;
use crate::rtvi::{Request, Segment, ToClient, parse};

#[test]
fn the_runner_reads_the_messages_of_the_caller() {
    let request = |text: &str| parse(text).expect("a message").request;
    let Request::ClientReady { version, .. } = request(&client_ready()) else {
        panic!("client-ready");
    };
    assert_eq!(version.as_deref(), Some(VERSION));
    assert_eq!(request(&key('#')), Request::Dtmf(vec!['#']));
    let Request::SendText { content, options } = request(&text("hi")) else {
        panic!("send-text");
    };
    assert!(content == "hi" && options.run_immediately && options.audio_response);
}

#[test]
fn the_runner_recognises_an_evaluation() {
    let flags = crate::sockets::eval::flags(&eval_connect()).expect("an evaluation");
    assert_eq!(flags["skip_tts"], true);
}

#[test]
fn a_segment_counts_when_it_was_spoken() {
    let mut reader = BotMessageReader::default();
    let segment = Segment::new(7, "Hello there.");
    let mut read = |bytes: usize| {
        let output = segment.spoken_to(bytes, false).expect("progress");
        reader.read(&ToClient::BotOutput(output).text())
    };
    assert_eq!(read(5), []);
    assert_eq!(read(12), [BotSaid::Text("Hello there.".into())]);
    let said = |reader: &mut BotMessageReader, message: ToClient<'_>| reader.read(&message.text());
    let output = segment.spoken_to(5, false).expect("progress");
    assert_eq!(said(&mut reader, ToClient::BotOutput(output)), []);
    assert_eq!(
        said(&mut reader, ToClient::BotInterrupted),
        [BotSaid::Text("Hello".into()), BotSaid::Interrupted]
    );
}

#[test]
fn a_better_source_of_words_silences_the_others() {
    let mut reader = BotMessageReader::default();
    let message = |kind: &str| json!({"label": LABEL, "type": kind, "data": {"text": "hi"}}).to_string();
    let text = [BotSaid::Text("hi".into())];
    assert_eq!(reader.read(&message("bot-tts-text")), text);
    assert_eq!(reader.read(&message("bot-transcription")), text);
    assert_eq!(reader.read(&message("bot-tts-text")), []);
    assert_eq!(reader.read(&message("bot-output")), text);
    assert_eq!(reader.read(&message("bot-transcription")), []);
}

#[test]
fn other_messages_are_kept() {
    let mut reader = BotMessageReader::default();
    let ready = json!({"label": LABEL, "type": "bot-ready", "id": "1", "data": {}});
    assert_eq!(reader.read(&ready.to_string()), [BotSaid::Ready]);
    let response = json!({"label": LABEL, "type": "server-response", "id": "1", "data": {"d": 7}});
    assert_eq!(reader.read(&response.to_string()), [BotSaid::Other(response)]);
    assert_eq!(reader.read("ping"), [BotSaid::Other(Value::from("ping"))]);
    let said = json!({"label": LABEL, "type": "user-transcription", "data": {"text": "yes", "final": true}});
    assert_eq!(reader.read(&said.to_string()), [BotSaid::CallerText("yes".into())]);
}

/// A bot of LiveKit sends transcripts alone; one that speaks RTVI sends both, and its own words
/// count.
#[test]
fn transcripts_of_a_room_count_without_messages_of_rtvi() {
    let transcript = |text: &str| json!({"label": TRANSCRIPTION_TOPIC, "data": {"text": text}}).to_string();
    let mut reader = BotMessageReader::default();
    assert_eq!(reader.read(&transcript("Hello.")), [BotSaid::Text("Hello.".into())]);
    assert_eq!(reader.read(&transcript(" ")), []);
    let spoken = json!({"label": LABEL, "type": "bot-tts-text", "data": {"text": "there"}});
    assert_eq!(reader.read(&spoken.to_string()), [BotSaid::Text("there".into())]);
    assert_eq!(reader.read(&transcript("there")), [], "the same words again");
    assert_eq!(reader.read(r#"{"label": "lk.transcription", "data": 7}"#), []);
}
