//! Options of the bot `cascade`, as the services and the caller notice them.

use std::fs;

use edge_runner_proto::kit::write_wav;
use serde_json::{Value, json};

use super::{Services, connect, messages, of_type, question, room, say, send, speech};
use crate::support::client::Client;
use crate::support::http;
use crate::support::runner;

/// With texts off, the client gets speech and none of what was said.
#[test]
fn texts_are_kept_from_clients() {
    let services = Services::start();
    let runner = services.runner_with(&[("RUNNER_BOT_TRANSCRIPTS", "off")]);
    let mut client = connect(&runner);
    say(&mut client);
    services.recognizer.recognize("Who is there?");
    services.model.answer_chat(&["A friend. "]);
    assert_eq!(services.voice.speak(24_000, &speech(200)), "A friend.");
    client.hear_message("the end of the answer", of_type("bot-stopped-speaking"));
    assert!(!client.received.is_empty());
    for message in &client.messages {
        let text = message.to_string();
        assert!(!text.contains("Who is") && !text.contains("friend"), "{text}");
    }
}

/// Without interruptions the answer is heard to its end, whatever the caller says meanwhile.
#[test]
fn an_answer_that_cannot_be_interrupted_is_played_to_its_end() {
    let services = Services::start();
    let runner = services.runner_with(&[("RUNNER_BOT_INTERRUPT", "off")]);
    let mut client = connect(&runner);
    say(&mut client);
    services.recognizer.recognize("Tell me a story.");
    services.model.answer_chat(&["Once upon a time. "]);
    services.voice.speak(24_000, &speech(4_000));
    client.hear_until("2.5 s of the story", |client| client.received.len() > 60_000);
    send(&mut client, &question());
    client.hear_message("the end of the story", of_type("bot-stopped-speaking"));
    assert!(client.received.len() >= 4 * 24_000, "{} samples", client.received.len());
    assert_eq!(client.interruptions, 0);
    assert!(services.recognizer.waiting().is_none(), "the caller was not heard");
}

/// What the body of `/start` may set reaches the services, and nothing else does.
#[test]
fn the_body_of_start_reaches_the_services() {
    let services = Services::start();
    let may = "instructions,voice,tools,temperature";
    let runner = services.runner_with(&[("RUNNER_BOT_BODY_MAY", may), ("RUNNER_BOT_LANGUAGES", "de")]);
    let body = json!({"instructions": "You serve {name}.", "variables": {"name": "Ann"}, "language": "de", "voice": "v",
        "temperature": 0.3, "tools": [{"type": "function", "name": "f"}, {"type": "mcp", "server_url": "x"}],
        "model": "other", "url": "tcp://elsewhere:1"});
    let asked = json!({"transport": "websocket", "body": body}).to_string();
    let kind = ["Content-Type: application/json"];
    let reply = http::request(runner.addr, "POST", "/start", &kind, asked.as_bytes()).expect("an answer");
    let id = reply.json()["sessionId"].as_str().expect("an id").to_owned();
    let mut client = Client::connect(runner.addr, &format!("/ws-client?sessionId={id}"));
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    say(&mut client);
    let mut recognizer = services.recognizer.accept();
    assert_eq!(recognizer.expect("transcribe").data["language"], "de");
    recognizer.expect("audio-start");
    recognizer.hear_utterance();
    recognizer.send("transcript", &json!({"text": "Hello."}), &[]);
    let asked: Value = services.model.answer_chat(&["Good day. "]);
    assert_eq!((&asked["model"], &asked["temperature"]), (&json!("m"), &json!(0.3)));
    assert_eq!(messages(&asked)[0], ("system", "You serve Ann."));
    assert_eq!(asked["tools"], json!([{"type": "function", "function": {"name": "f"}}]));
    let mut voice = services.voice.accept();
    assert_eq!(voice.expect("synthesize").data["voice"]["name"], "v");
    voice.send_speech(24_000, &speech(100));
    client.hear_until("the answer", |client| !client.received.is_empty());
}

/// The neural detector takes a tone for no speech, and hears sentences.
#[test]
fn the_neural_detector_tells_speech_from_a_tone() {
    let services = Services::start();
    let runner = services.runner_with(&[("CASCADE_VAD", "neural")]);
    let mut client = connect(&runner);
    send(&mut client, &question());
    // Two sentences, 16 kHz; see `tests/data/audio/README.md`.
    let bytes = include_bytes!("../data/audio/speech.raw");
    let (samples, _) = bytes.as_chunks::<2>();
    let sentences: Vec<i16> = samples.iter().map(|sample| i16::from_le_bytes(*sample)).collect();
    send(&mut client, &[sentences.clone(), room(1_000)].concat());
    let received = services.recognizer.recognize("Two sentences.");
    let tone_ms = received.len() / 2 / 16;
    assert!(
        tone_ms <= sentences.len() / 16 + 1_400,
        "{tone_ms} ms, with the tone before"
    );
    services.model.answer_chat(&[]);
    assert!(services.recognizer.waiting().is_none(), "the tone was no turn");
}

/// A service that fails is heard as two notes and the operator's own sound.
#[test]
fn the_sound_of_a_failure_is_the_operators() {
    let folder = runner::folder();
    let sound = speech(200);
    let path = folder.join("sorry.wav");
    fs::write(&path, write_wav(&sound, 24_000)).expect("the folder is the test's");
    let services = Services::start();
    let path = path.to_str().expect("a path in UTF-8");
    let runner = services.runner_with(&[("RUNNER_BOT_FAILURE_WAV", path)]);
    let mut client = connect(&runner);
    say(&mut client);
    services.recognizer.recognize("Hello.");
    let (_, model) = services.model.accept_request();
    model.respond("401 Unauthorized", "application/json", b"{}");
    client.end();
    let at = client
        .received
        .windows(sound.len())
        .position(|received| received == sound);
    assert!(at.is_some_and(|at| at >= 12_000), "the two notes come first: {at:?}");
    drop(fs::remove_dir_all(folder));
}
