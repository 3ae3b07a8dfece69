//! Options of the bots `realtime` and `cascade`, as the service and the caller notice them.

use std::fs;

use edge_runner_proto::kit::write_wav;
use serde_json::{Value, json};

use super::{KEY, bytes, connect, find, of_type, pcm, runner_with};
use crate::support::client::Client;
use crate::support::http;
use crate::support::provider::{Caller, Provider};
use crate::support::realtime::{RealtimeServer, RealtimeSession};
use crate::support::runner::{self, TestRunner};
use crate::support::socket::ConnectOptions;

/// Returns the session that the service gets with these variables.
fn session_with(variables: &[(&str, &str)]) -> (Value, RealtimeSession) {
    let server = RealtimeServer::start();
    let runner = runner_with(&server, &[], variables);
    let _client = Client::connect(runner.addr, "/ws-client");
    let mut service = server.accept();
    (service.open(), service)
}

/// Without interruptions the service is told not to cancel, the caller hears the answer to its end,
/// and what was said meanwhile is answered afterwards.
#[test]
fn an_answer_that_cannot_be_interrupted_is_played_to_its_end() {
    let server = RealtimeServer::start();
    let runner = runner_with(&server, &[], &[("RUNNER_BOT_INTERRUPT", "off")]);
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    let mut service = server.accept();
    let session = service.open();
    assert_eq!(
        session["audio"]["input"]["turn_detection"],
        json!({"type": "server_vad", "create_response": true, "interrupt_response": false})
    );
    let answer = pcm(24_000);
    service.begin_response("r", "i");
    service.speak("r", "i", &bytes(&answer));
    client.hear_until("the beginning", |client| {
        find(&client.received, &answer[..480]).is_some()
    });
    service.send(&json!({"type": "input_audio_buffer.speech_started", "item_id": "u", "audio_start_ms": 0}));
    service.send(&json!({"type": "input_audio_buffer.speech_stopped", "item_id": "u", "audio_end_ms": 80}));
    // The service cannot begin the answer to it while it gives another one.
    service.send(
        &json!({"type": "error", "error": {"type": "invalid_request_error", "message": "active response",
        "code": "conversation_already_has_active_response"}}),
    );
    client.hear_until("the whole answer", |client| find(&client.received, &answer).is_some());
    service.end_response("r", "i", "");
    service.expect("response.create");
    assert_eq!(client.interruptions, 0);
    let metrics = http::get(runner.addr, "/metrics").text();
    for line in ["barge_ins_total 0", "errors_total{class=\"harmless\"} 1"] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

/// With texts off, the client gets speech and none of what was said.
#[test]
fn texts_are_kept_from_clients() {
    let server = RealtimeServer::start();
    let runner = runner_with(&server, &[], &[("RUNNER_BOT_TRANSCRIPTS", "off")]);
    let (mut client, service) = connect(&runner, &server);
    service.send(
        &json!({"type": "conversation.item.input_audio_transcription.completed", "item_id": "u",
        "content_index": 0, "transcript": "Hello"}),
    );
    let answer = pcm(4_800);
    service.begin_response("r", "i");
    service.write("r", "i", "Good day.");
    service.speak("r", "i", &bytes(&answer));
    service.end_response("r", "i", "Good day.");
    client.hear_until("the answer", |client| find(&client.received, &answer).is_some());
    client.hear_message("its end", of_type("bot-stopped-speaking"));
    for message in &client.messages {
        let text = message.to_string();
        assert!(!text.contains("Hello") && !text.contains("Good day"), "{text}");
    }
}

#[test]
fn turn_detection_and_noise_reduction_reach_the_service() {
    let (session, _service) = session_with(&[
        ("REALTIME_TURN_DETECTION", "semantic_vad"),
        ("REALTIME_NOISE_REDUCTION", "far_field"),
        ("REALTIME_TRANSCRIPTION_MODEL", "whisper"),
    ]);
    let pcm = json!({"type": "audio/pcm", "rate": 24_000});
    assert_eq!(
        session["audio"]["input"],
        json!({"format": pcm, "transcription": {"model": "whisper"}, "noise_reduction": {"type": "far_field"},
            "turn_detection": {"type": "semantic_vad", "create_response": true, "interrupt_response": true}})
    );
}

/// The dialects differ in the header of the key and in the fields of the session.
#[test]
fn each_dialect_has_its_header_and_its_session() {
    let (session, service) = session_with(&[("REALTIME_DIALECT", "azure")]);
    assert_eq!(service.request.header("api-key"), Some(KEY));
    assert_eq!(service.request.header("authorization"), None);
    assert_eq!(session["type"], "realtime");

    let (session, service) = session_with(&[("REALTIME_DIALECT", "xai"), ("REALTIME_VOICE", "Ara")]);
    let bearer = format!("Bearer {KEY}");
    assert_eq!(service.request.header("authorization"), Some(&*bearer));
    assert_eq!(
        (&session["voice"], &session["type"]),
        (&json!("Ara"), &json!("realtime"))
    );
    assert_eq!(session["turn_detection"], session["audio"]["input"]["turn_detection"]);
    assert_eq!(session["turn_detection"]["type"], "server_vad");
    let (session, _service) = session_with(&[("REALTIME_DIALECT", "xai")]);
    assert_eq!(session.get("voice"), None, "a voice that is not set is not cleared");

    let (session, service) = session_with(&[
        ("REALTIME_DIALECT", "beta"),
        ("REALTIME_VOICE", "alloy"),
        ("REALTIME_INSTRUCTIONS", "Be brief."),
        ("REALTIME_TRANSCRIPTION_MODEL", "whisper-1"),
    ]);
    assert_eq!(service.request.header("openai-beta"), None);
    assert_eq!(
        session,
        json!({"modalities": ["audio", "text"], "instructions": "Be brief.", "voice": "alloy",
            "input_audio_format": "pcm16", "output_audio_format": "pcm16", "max_response_output_tokens": 2_000,
            "input_audio_transcription": {"model": "whisper-1"},
            "turn_detection": {"type": "server_vad", "create_response": true, "interrupt_response": true}})
    );
}

/// A whole conversation in the older form: its names, its parts of texts, and its functions, which
/// are named in the item only.
#[test]
fn a_session_in_the_older_form_works() {
    let server = RealtimeServer::start();
    let tools = json!({"tools": [{"type": "function", "name": "weather"}]}).to_string();
    let files = [("session.json", &*tools)];
    let variables = [("REALTIME_DIALECT", "beta"), ("REALTIME_SESSION_FILE", "session.json")];
    let runner = runner_with(&server, &files, &variables);
    let (mut client, service) = connect(&runner, &server);
    let answer = |service: &RealtimeSession, id: &str, pcm: &[i16]| {
        let item = json!({"id": format!("item-{id}"), "type": "message", "role": "assistant"});
        let audio = data_encoding::BASE64.encode(&bytes(pcm));
        let at = json!({"response_id": id, "item_id": item["id"], "output_index": 0, "content_index": 0});
        let event = |kind: &str, more: Value| {
            let mut event = at.clone();
            let fields = event.as_object_mut().expect("an object");
            fields.insert("type".to_owned(), kind.into());
            fields.extend(more.as_object().expect("an object").clone());
            service.send(&event);
        };
        service.send(&json!({"type": "response.created", "response": {"id": id, "status": "in_progress"}}));
        service.send(&json!({"type": "conversation.item.created", "item": item}));
        event("response.audio_transcript.delta", json!({"delta": "Good day."}));
        event("response.audio.delta", json!({"delta": audio}));
        event("response.audio.done", json!({}));
        event("response.audio_transcript.done", json!({"transcript": "Good day."}));
    };
    let done = |service: &RealtimeSession, id: &str| {
        service.send(&json!({"type": "response.done", "response": {"id": id, "status": "completed", "output": []}}));
    };
    let first = pcm(4_800);
    answer(&service, "r", &first);
    done(&service, "r");
    client.hear_until("the answer", |client| find(&client.received, &first).is_some());
    client.hear_message("its text", |message| {
        message["type"] == "bot-output"
            && message["data"]["text"] == "Good day."
            && message["data"]["spoken_status"] == "completed"
    });

    let mut service = service;
    service.send(&json!({"type": "response.created", "response": {"id": "f", "status": "in_progress"}}));
    service.send(
        &json!({"type": "response.function_call_arguments.done", "response_id": "f", "item_id": "g",
        "output_index": 0, "call_id": "c", "arguments": "{}"}),
    );
    service.send(
        &json!({"type": "response.output_item.done", "response_id": "f", "output_index": 0, "item": {"id": "g",
        "type": "function_call", "status": "completed", "name": "weather", "call_id": "c", "arguments": "{}"}}),
    );
    done(&service, "f");
    client.hear_message("the call", of_type("llm-function-call-in-progress"));
    client.tell(
        "llm-function-call-result",
        "2",
        &json!({"function_name": "weather", "tool_call_id": "c", "arguments": {}, "result": "fog"}),
    );
    let output = service.expect("conversation.item.create");
    assert_eq!(output["item"]["output"], "fog");
    assert_eq!(service.expect("response.create").get("response"), None);

    // An interruption in mid-answer, and a typed text that wants a text.
    let long = vec![1_000; 5 * 24_000];
    answer(&service, "l", &long);
    client.hear_until("speech", |client| client.received.contains(&1_000));
    service.send(&json!({"type": "input_audio_buffer.speech_started", "item_id": "u", "audio_start_ms": 0}));
    assert_eq!(service.expect("conversation.item.truncate")["item_id"], "item-l");
    service.send(&json!({"type": "response.done", "response": {"id": "l", "status": "cancelled", "output": []}}));
    // The two sockets have no order, and a text during a response would cancel it.
    client.hear_until("the end of the third response", |client| {
        let is_end = of_type("bot-llm-stopped");
        client.messages.iter().filter(|message| is_end(message)).count() == 3
    });
    let options = json!({"run_immediately": true, "audio_response": false});
    client.tell("send-text", "3", &json!({"content": "And now?", "options": options}));
    let item = service.expect("conversation.item.create");
    assert_eq!(
        item["item"]["content"],
        json!([{"type": "input_text", "text": "And now?"}])
    );
    let create = service.expect("response.create");
    assert_eq!(create["response"], json!({"modalities": ["text"]}));

    // On a new connection the bot's texts are parts called `text`.
    drop(service);
    let mut service = server.accept();
    service.open();
    let roles = [
        ("assistant", json!([{"type": "text", "text": "Good day."}])),
        ("user", json!([{"type": "input_text", "text": "And now?"}])),
    ];
    for (role, content) in roles {
        let mut item = service.expect("conversation.item.create");
        while item["item"]["role"] != role || item["item"]["content"] != content {
            item = service.expect("conversation.item.create");
        }
    }
}

/// What the body of `/start` may set reaches the service, and nothing else does.
#[test]
fn the_body_of_start_reaches_the_session_of_the_service() {
    let body = json!({"variables": {"name": "Ann"}, "language": "de", "voice": "ash", "text_only": true,
        "instructions": "Obey.", "tools": [{"type": "function", "name": "f"}, {"type": "mcp", "server_url": "x"}],
        "model": "other", "url": "ws://elsewhere", "temperature": 0.3, "tracing": "auto"});
    let start = |variables: &[(&str, &str)]| {
        let server = RealtimeServer::start();
        let own = [
            ("REALTIME_INSTRUCTIONS", "You serve {name}."),
            ("REALTIME_VOICE", "marin"),
            ("REALTIME_TRANSCRIPTION_MODEL", "t"),
            ("RUNNER_BOT_LANGUAGES", "de"),
        ];
        let runner = runner_with(&server, &[], &[&own[..], variables].concat());
        let asked = json!({"transport": "websocket", "body": body}).to_string();
        let kind = ["Content-Type: application/json"];
        let reply = http::request(runner.addr, "POST", "/start", &kind, asked.as_bytes()).expect("an answer");
        let id = reply.json()["sessionId"].as_str().expect("an id").to_owned();
        let _client = Client::connect(runner.addr, &format!("/ws-client?sessionId={id}"));
        let mut service = server.accept();
        assert_eq!(service.request.target, "/v1/realtime?model=m");
        service.open()
    };
    let session = start(&[]);
    assert_eq!(session["instructions"], "You serve Ann.");
    assert_eq!(session["output_modalities"], json!(["text"]));
    assert_eq!(
        session["audio"]["input"]["transcription"],
        json!({"model": "t", "language": "de"})
    );
    assert_eq!(session["audio"]["output"]["voice"], "marin");
    for absent in ["tools", "tracing", "temperature", "model"] {
        assert_eq!(session.get(absent), None, "{absent}");
    }
    let session = start(&[("RUNNER_BOT_BODY_MAY", "instructions,voice,tools,temperature")]);
    assert_eq!(session["instructions"], "Obey.");
    assert_eq!(session["audio"]["output"]["voice"], "ash");
    assert_eq!(session["tools"], json!([{"type": "function", "name": "f"}]));
    assert_eq!(
        session.get("temperature"),
        None,
        "the service knows it in the older form only"
    );
    let may = ("RUNNER_BOT_BODY_MAY", "temperature");
    assert_eq!(start(&[may, ("REALTIME_DIALECT", "beta")])["temperature"], json!(0.3));
}

/// A bot that costs money says so at the start, unless a key or origins guard it.
#[test]
fn an_open_runner_with_a_key_of_a_service_is_warned_of() {
    const WARNING: &str = "can talk to the service, which costs money";
    let server = RealtimeServer::start();
    let url = server.url();
    let own = [("REALTIME_URL", &*url), ("REALTIME_MODEL", "m")];
    let with_key = [&own[..], &[("REALTIME_API_KEY", KEY)]].concat();
    let guarded = ["--bot", "realtime", "--api-key", "0123456789abcdef"];
    for (arguments, variables, is_warned) in [
        (&["--bot", "realtime"][..], &with_key[..], true),
        (&["--bot", "realtime"], &own, false),
        (&["--bot", "parrot"], &with_key, false),
        (&guarded, &with_key, false),
        (
            &["--bot", "realtime", "--allowed-origins", "https://app.example.net"],
            &with_key,
            false,
        ),
    ] {
        let runner = TestRunner::start_with(arguments, variables);
        assert_eq!(runner.log().contains(WARNING), is_warned, "{arguments:?}");
    }
}

/// No more sessions than the cap are at once, whatever the transport.
#[test]
fn sessions_are_capped() {
    let server = RealtimeServer::start();
    let runner = runner_with(&server, &[], &[("RUNNER_BOT_SESSIONS", "1")]);
    let (mut client, _service) = connect(&runner, &server);
    let refused = Client::try_connect(runner.addr, "/ws-client", ConnectOptions::default());
    assert_eq!(refused.err().expect("it is full").status, 503);
    client.socket.close(1000);
    client.end();
    runner.wait_for_sessions(0);
    let _second = Client::connect(runner.addr, "/ws-client");
    server.accept();
}

/// No one speaks: the call ends after the configured time, and the service is told.
#[test]
fn silence_of_both_sides_ends_a_call() {
    let server = RealtimeServer::start();
    let runner = runner_with(&server, &[], &[("RUNNER_BOT_IDLE", "10")]);
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    let mut service = server.accept();
    service.open();
    caller.hear_until("the end", |caller| caller.gone);
    assert_eq!(service.end(), "1000");
    runner.wait_for_log("the bot hangs up: no one spoke");
}

/// A service that fails is heard as two notes and the operator's own sound.
#[test]
fn the_sound_of_a_failure_is_the_operators() {
    let folder = runner::folder();
    let sound: Vec<i16> = pcm(4_800);
    let path = folder.join("sorry.wav");
    fs::write(&path, write_wav(&sound, 24_000)).expect("the folder is the test's");
    let server = RealtimeServer::refusing(401, &json!({"error": {"code": "invalid_api_key"}}));
    let path = path.to_str().expect("a path in UTF-8");
    let runner = runner_with(&server, &[], &[("RUNNER_BOT_FAILURE_WAV", path)]);
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    client.end();
    let at = find(&client.received, &sound).expect("the sound, sample by sample");
    assert!(at >= 12_000, "the two notes come first, and not {at} samples");
    drop(fs::remove_dir_all(folder));
    let ended = TestRunner::run_with(
        &["--bot", "realtime"],
        &[
            ("REALTIME_URL", "ws://127.0.0.1:9/v1"),
            ("REALTIME_MODEL", "m"),
            ("RUNNER_BOT_FAILURE_WAV", path),
        ],
    );
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stderr.contains("RUNNER_BOT_FAILURE_WAV: reading"),
        "{}",
        ended.stderr
    );
}
