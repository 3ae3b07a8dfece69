//! The bot `realtime` against a scripted speech-to-speech service: what callers hear, what the
//! service gets, and failures.

mod device;
mod doctor;
mod options;
mod tools;

use edge_runner_proto::audio::g711::{alaw_decode, ulaw_decode, ulaw_encode};
use edge_runner_proto::kit::{dtmf_tone, tones};
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::http;
use crate::support::provider::{Caller, Codec, Line, Provider};
use crate::support::realtime::{RealtimeServer, RealtimeSession};
use crate::support::rest::Rest;
use crate::support::runner::TestRunner;

/// A key that must not be logged.
const KEY: &str = "hunter2-key";

fn runner_with(server: &RealtimeServer, files: &[(&str, &str)], variables: &[(&str, &str)]) -> TestRunner {
    let url = server.url();
    let own = [
        ("REALTIME_URL", url.as_str()),
        ("REALTIME_MODEL", "m"),
        ("REALTIME_API_KEY", KEY),
        ("RUNNER_BOT_GREETING", ""),
    ];
    TestRunner::start_among(files, &["--bot", "realtime", "-vvv"], &[&own[..], variables].concat())
}

fn runner(server: &RealtimeServer) -> TestRunner {
    runner_with(server, &[], &[])
}

/// Connects a plain client whose handshake is done, and its service.
fn connect(runner: &TestRunner, server: &RealtimeServer) -> (Client, RealtimeSession) {
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    client.hear_message("bot-ready", |message| message["type"] == "bot-ready");
    let mut service = server.accept();
    service.open();
    (client, service)
}

/// Samples that no codec would leave as they are.
fn pcm(samples: usize) -> Vec<i16> {
    (0..samples).map(|at| (at as i16).wrapping_mul(1_103) | 1).collect()
}

fn bytes(pcm: &[i16]) -> Vec<u8> {
    pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// Returns the position of `part` in `whole`.
fn find<T: PartialEq>(whole: &[T], part: &[T]) -> Option<usize> {
    whole.windows(part.len()).position(|window| window == part)
}

fn of_type(kind: &'static str) -> impl Fn(&Value) -> bool {
    move |message| message["type"] == kind
}

/// The trace of `/start` reaches the services of the bot and the log; what is no trace does not.
#[test]
fn a_trace_reaches_the_services_and_the_log() {
    let server = RealtimeServer::start();
    let tools = Rest::start(&[(200, r#"{"functions": [{"name": "order"}]}"#)]);
    let runner = runner_with(&server, &[], &[("RUNNER_TOOLS", &tools.url())]);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut ended = Vec::new();
    for (header, passed) in [(trace, Some(trace)), ("00-0-0-01", None)] {
        let headers = ["Content-Type: application/json", &format!("Traceparent: {header}")];
        let reply = http::request(
            runner.addr,
            "POST",
            "/start",
            &headers,
            br#"{"transport": "websocket"}"#,
        );
        let id = reply.expect("an answer").json()["sessionId"]
            .as_str()
            .expect("an id")
            .to_owned();
        let client = Client::connect(runner.addr, &format!("/ws-client?sessionId={id}"));
        let mut service = server.accept();
        assert_eq!(service.request.header("traceparent"), passed);
        service.open();
        let asked = tools.asked();
        assert_eq!(asked.last().and_then(|asked| asked.header("traceparent")), passed);
        // A bot whose service goes first connects again: the next call would get that.
        drop(client);
        ended = runner.wait_for_logs("session ended", ended.len() + 1);
    }
    let list = http::get(runner.addr, "/calls").json();
    let traces: Vec<&Value> = list["calls"]
        .as_array()
        .expect("calls")
        .iter()
        .map(|call| &call["trace"])
        .collect();
    // The latest call is first.
    assert_eq!(traces, [&Value::Null, &json!("4bf92f3577b34da6a3ce929d0e0e4736")]);
    let of_trace = |line: &&String| line.ends_with("; trace 4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(ended.iter().filter(of_trace).count(), 1, "{ended:#?}");
    assert_eq!(ended.iter().filter(|line| line.contains("trace")).count(), 1);
}

/// The upgrade has the key and the model and offers no compression, the session is as configured,
/// and the answer reaches the caller sample by sample, with its words and tokens.
#[test]
fn a_caller_hears_the_answer_of_the_service() {
    let server = RealtimeServer::start();
    let runner = runner_with(
        &server,
        &[],
        &[("REALTIME_VOICE", "ash"), ("REALTIME_INSTRUCTIONS", "Be brief.")],
    );
    let mut client = Client::connect(runner.addr, "/ws-client");
    let mut service = server.accept();
    assert_eq!(service.request.target, "/v1/realtime?model=m");
    let bearer = format!("Bearer {KEY}");
    assert_eq!(service.request.header("authorization"), Some(bearer.as_str()));
    assert_eq!(service.request.header("sec-websocket-extensions"), None);
    assert_eq!(service.request.header("openai-beta"), None);
    let session = service.open();
    assert_eq!(session["instructions"], "Be brief.");
    assert_eq!(
        session["audio"]["output"],
        json!({"format": {"type": "audio/pcm", "rate": 24_000}, "voice": "ash"})
    );
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));

    // The samples arrive unchanged, behind the silence of a caller who has not spoken yet.
    client.say(&pcm(1_920), 24_000);
    let received = bytes(&pcm(1_920));
    while find(&service.audio, &received).is_none() {
        service.hear(service.audio.len() + 1);
    }

    service.send(&json!({"type": "input_audio_buffer.speech_started", "item_id": "u", "audio_start_ms": 0}));
    service.send(&json!({"type": "input_audio_buffer.speech_stopped", "item_id": "u", "audio_end_ms": 80}));
    service.send(
        &json!({"type": "conversation.item.input_audio_transcription.completed", "item_id": "u",
        "content_index": 0, "transcript": "Hello"}),
    );
    let answer = pcm(12_000);
    service.begin_response("r", "i");
    service.write("r", "i", "Hello there. I am here.");
    service.speak("r", "i", &bytes(&answer));
    service.end_response("r", "i", "Hello there. I am here.");
    client.hear_until("the answer", |client| find(&client.received, &answer).is_some());
    let transcript = client.hear_message("the transcript", of_type("user-transcription"));
    assert_eq!(
        (&transcript["data"]["text"], &transcript["data"]["final"]),
        (&json!("Hello"), &json!(true))
    );
    client.hear_message("the last sentence, spoken", |message| {
        message["type"] == "bot-output"
            && message["data"]["text"] == "I am here."
            && message["data"]["spoken_status"] == "completed"
    });
    client.hear_message("the tokens", |message| {
        message["data"]["tokens"][0]["total_tokens"] == 30
    });
    client.hear_message("the first sound", |message| message["data"]["ttfb"][0]["model"] == "m");

    let metrics = http::get(runner.addr, "/metrics").text();
    for line in [
        "edge_runner_assistant_connections_total{outcome=\"ok\"} 1",
        "edge_runner_assistant_responses_total{status=\"completed\"} 1",
        "edge_runner_assistant_tokens_total{kind=\"output\"} 10",
        "edge_runner_assistant_audio_seconds_total{direction=\"received\"} 0.5",
        "edge_runner_assistant_first_sound_seconds_count 1",
    ] {
        assert!(
            metrics.lines().any(|known| known == line),
            "{line} is not in\n{metrics}"
        );
    }
    runner.wait_for_log("connected to 127.0.0.1, model m");
    client.socket.close(1000);
    assert_eq!(service.end(), "1000", "the service is told that the session is over");
    let log = runner.log();
    for secret in [KEY, "Be brief", "Hello", "I am here"] {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
}

/// A telephone call is passed on as G.711, byte for byte in both directions.
#[test]
fn a_telephone_call_keeps_its_bytes() {
    let server = RealtimeServer::start();
    let runner = runner_with(&server, &[], &[("REALTIME_G711", "on")]);
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    let mut service = server.accept();
    let session = service.open();
    assert_eq!(session["audio"]["input"]["format"], json!({"type": "audio/pcmu"}));
    assert_eq!(session["tools"][0]["name"], "end_call");
    // Both codes of zero decode to zero, and the other one comes back.
    let codes: Vec<u8> = (0..=255).filter(|code| *code != 0x7f).cycle().take(1_600).collect();
    let samples: Vec<i16> = codes.iter().map(|code| ulaw_decode(*code)).collect();
    caller.say(&samples);
    while find(&service.audio, &codes).is_none() {
        service.hear(service.audio.len() + 1);
    }
    service.begin_response("r", "i");
    service.speak("r", "i", &codes);
    service.end_response("r", "i", "");
    caller.hear_until("the answer", |caller| find(&caller.received, &samples).is_some());
    assert_eq!(caller.line.codec, Codec::Ulaw);
}

/// A provider that sends A-law and receives mu-law: the service gets and gives just that.
#[test]
fn an_a_law_call_keeps_its_bytes() {
    let server = RealtimeServer::start();
    let runner = runner_with(&server, &[], &[("REALTIME_G711", "on")]);
    let line = Line {
        codec: Codec::Alaw,
        rate_hz: 8_000,
    };
    let mut caller = Caller::dial_on(runner.addr, Provider::Telnyx, line);
    let mut service = server.accept();
    let session = service.open();
    assert_eq!(session["audio"]["input"]["format"], json!({"type": "audio/pcma"}));
    assert_eq!(session["audio"]["output"]["format"], json!({"type": "audio/pcmu"}));
    let codes: Vec<u8> = (0..=255).cycle().take(1_600).collect();
    let said: Vec<i16> = codes.iter().map(|code| alaw_decode(*code)).collect();
    caller.say(&said);
    while find(&service.audio, &codes).is_none() {
        service.hear(service.audio.len() + 1);
    }
    let codes: Vec<u8> = codes.into_iter().filter(|code| *code != 0x7f).collect();
    let answer: Vec<i16> = codes.iter().map(|code| ulaw_decode(*code)).collect();
    service.begin_response("r", "i");
    service.speak("r", "i", &codes);
    service.end_response("r", "i", "");
    caller.hear_until("the answer", |caller| find(&caller.received, &answer).is_some());
}

/// The model ends a telephone call by its function, once its goodbye was heard.
#[test]
fn the_model_hangs_up() {
    let server = RealtimeServer::start();
    let runner = runner_with(&server, &[], &[("REALTIME_G711", "on")]);
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    let mut service = server.accept();
    service.open();
    let goodbye = vec![0x12; 4_000];
    service.begin_response("r", "i");
    service.speak("r", "i", &goodbye);
    service.send(&json!({"type": "response.output_item.done", "response_id": "r", "output_index": 1,
        "item": {"type": "function_call", "status": "completed", "call_id": "c", "name": "end_call", "arguments": "{}"}}));
    service.end_response("r", "i", "Bye.");
    let output = service.expect("conversation.item.create");
    assert_eq!(output["item"]["call_id"], "c");
    assert_eq!(service.end(), "1000");
    caller.hear_until("the end", |caller| caller.gone);
    let samples = vec![ulaw_decode(0x12); 4_000];
    assert!(
        find(&caller.received, &samples).is_some(),
        "the goodbye was heard to its end"
    );
}

/// The model presses a key of the telephone, as a tone behind what it says, and goes on.
#[test]
fn the_model_presses_keys() {
    let server = RealtimeServer::start();
    let runner = runner_with(&server, &[], &[("REALTIME_G711", "on")]);
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    let mut service = server.accept();
    service.open();
    service.begin_response("r", "i");
    service.send(
        &json!({"type": "response.output_item.done", "response_id": "r", "output_index": 0,
        "item": {"type": "function_call", "status": "completed", "call_id": "c", "name": "press_keys",
            "arguments": "{\"keys\": \"5\"}"}}),
    );
    service.end_response("r", "i", "");
    let tone = dtmf_tone('5').expect("a key");
    let whole: Vec<i16> = tones(&[tone], 8_000)
        .into_iter()
        .map(|sample| ulaw_decode(ulaw_encode(sample)))
        .collect();
    caller.hear_until("the tone", |caller| find(&caller.received, &whole).is_some());
    // The key and the silence around it are three pieces.
    caller.hear_until("all marks back", |caller| {
        caller.marks.len() >= 3 && caller.given_back.len() == caller.marks.len()
    });
    let output = service.expect("conversation.item.create");
    assert_eq!(
        (&output["item"]["call_id"], &output["item"]["output"]),
        (&json!("c"), &json!(r#"{"ok":true}"#))
    );
    service.expect("response.create");
}

/// An interruption silences the bot, and the service learns how much was heard.
#[test]
fn an_interruption_truncates_the_answer_where_it_was_played() {
    let server = RealtimeServer::start();
    let runner = runner(&server);
    let (mut client, mut service) = connect(&runner, &server);
    service.begin_response("r", "i");
    service.speak("r", "i", &bytes(&vec![1_000; 5 * 24_000]));
    client.hear_until("a second of the answer", |client| client.received.len() >= 24_000);
    service.send(&json!({"type": "input_audio_buffer.speech_started", "item_id": "u", "audio_start_ms": 0}));
    let cut = service.expect("conversation.item.truncate");
    assert_eq!((&cut["item_id"], &cut["content_index"]), (&json!("i"), &json!(0)));
    client.hear_message("the interruption", of_type("bot-interrupted"));
    client.hear_message("its end", of_type("bot-stopped-speaking"));
    let spoken_ms = client.received.iter().filter(|sample| **sample != 0).count() as u64 / 24;
    let cut_ms = cut["audio_end_ms"].as_u64().expect("whole milliseconds");
    // The mark behind the last whole piece, of 100 ms, and what is on its way to the client.
    assert!((700..=spoken_ms).contains(&cut_ms), "{cut_ms} ms of {spoken_ms} ms");
    // What the cancelled response still sends is not heard.
    let count = client.received.len();
    service.speak("r", "i", &bytes(&[2_000; 4_800]));
    service.send(
        &json!({"type": "response.done", "response": {"id": "r", "status": "cancelled",
        "status_details": {"type": "cancelled", "reason": "turn_detected"}, "output": []}}),
    );
    let next = pcm(4_800);
    service.begin_response("r2", "i2");
    service.speak("r2", "i2", &bytes(&next));
    client.hear_until("the next answer", |client| find(&client.received, &next).is_some());
    assert!(!client.received[count..].contains(&2_000), "a delayed delta was played");
}

/// A key that the service refuses ends the session with words of the runner's own.
#[test]
fn a_refused_key_is_reported_and_not_repeated() {
    let body = json!({"error": {"code": "invalid_api_key", "message": format!("Incorrect API key provided: {KEY}")}});
    let server = RealtimeServer::refusing(401, &body);
    let runner = runner(&server);
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    let error = client.hear_message("the error", of_type("error"));
    assert_eq!(
        error["data"],
        json!({"error": "The assistant is not available.", "fatal": true})
    );
    client.end();
    assert!(
        client.received.iter().any(|sample| *sample > 1_000),
        "two notes are heard"
    );
    runner.wait_for_log("status 401: it does not accept the key");
    let log = runner.log();
    assert!(!log.contains(KEY) && !log.contains("Incorrect"), "{log}");
    let metrics = http::get(runner.addr, "/metrics").text();
    assert!(metrics.contains("connections_total{outcome=\"auth\"} 1"), "{metrics}");
}

/// An error event and a close have the same effect as a refusal.
#[test]
fn an_error_in_place_of_a_session_ends_the_session() {
    let server = RealtimeServer::start();
    let runner = runner(&server);
    let mut client = Client::connect(runner.addr, "/ws-client");
    let service = server.accept();
    service.send(
        &json!({"type": "error", "error": {"type": "model_load_error", "code": null, "message": "no such file"}}),
    );
    service.close(1011);
    client.end();
    runner.wait_for_log("check model, voice and REALTIME_DIALECT (model_load_error)");
    assert!(!runner.log().contains("no such file"));
}

/// A lost connection silences the bot and is replaced; the new one learns what was said.
#[test]
fn a_lost_service_is_replaced_with_the_conversation() {
    let server = RealtimeServer::start();
    let runner = runner(&server);
    let (mut client, service) = connect(&runner, &server);
    service.send(
        &json!({"type": "conversation.item.input_audio_transcription.completed", "item_id": "u",
        "content_index": 0, "transcript": "My name is Ann."}),
    );
    service.begin_response("r", "i");
    service.speak("r", "i", &bytes(&vec![1_000; 5 * 24_000]));
    client.hear_until("speech", |client| client.received.contains(&1_000));
    drop(service);
    client.hear_message("silence", of_type("bot-interrupted"));
    let mut service = server.accept();
    service.open();
    let item = service.expect("conversation.item.create");
    assert_eq!(
        (&item["item"]["role"], &item["item"]["content"][0]["text"]),
        (&json!("user"), &json!("My name is Ann."))
    );
    let next = pcm(4_800);
    service.begin_response("r2", "i2");
    service.speak("r2", "i2", &bytes(&next));
    client.hear_until("the next answer", |client| find(&client.received, &next).is_some());
    runner.wait_for_log("the connection to the service was lost");
}

/// A function of the model runs on the page, and its result goes back.
#[test]
fn a_function_runs_on_the_page() {
    let server = RealtimeServer::start();
    let tools = json!({"tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]});
    let files = [("session.json", &*tools.to_string())];
    let runner = runner_with(&server, &files, &[("REALTIME_SESSION_FILE", "session.json")]);
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    let mut service = server.accept();
    assert_eq!(service.open()["tools"], tools["tools"]);
    service.send(&json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}));
    for name in ["weather", "unknown"] {
        service.send(
            &json!({"type": "response.function_call_arguments.done", "response_id": "r", "call_id": name,
            "item_id": "f", "name": name, "arguments": "{\"city\":\"Linz\"}"}),
        );
    }
    service.send(&json!({"type": "response.done", "response": {"id": "r", "status": "completed", "output": []}}));
    let refused = service.expect("conversation.item.create");
    assert_eq!(refused["item"]["call_id"], "unknown");
    let call = client.hear_message("the call", of_type("llm-function-call-in-progress"));
    assert_eq!(
        call["data"],
        json!({"tool_call_id": "weather", "function_name": "weather", "arguments": {"city": "Linz"}})
    );
    client.tell(
        "llm-function-call-result",
        "2",
        &json!({"function_name": "weather", "tool_call_id": "weather", "arguments": {}, "result": {"degrees": 21}}),
    );
    let output = service.expect("conversation.item.create");
    assert_eq!(
        (&output["item"]["type"], &output["item"]["output"]),
        (&json!("function_call_output"), &json!("{\"degrees\":21}"))
    );
    service.expect("response.create");
    client.hear_message("its end", of_type("llm-function-call-stopped"));
}

/// A greeting is asked for once the client is ready.
#[test]
fn a_configured_greeting_is_said_first() {
    let server = RealtimeServer::start();
    let runner = runner_with(&server, &[], &[("RUNNER_BOT_GREETING", "Welcome to the museum.")]);
    let (mut client, mut service) = connect(&runner, &server);
    let create = service.expect("response.create");
    let instructions = create["response"]["instructions"].as_str().expect("instructions");
    assert!(instructions.contains("Welcome to the museum."), "{instructions}");
    service.begin_response("r", "i");
    service.end_response("r", "i", "");
    client.hear_message("the end of the greeting", of_type("bot-llm-stopped"));
    client.tell("send-text", "2", &json!({"content": "Open the door", "options": {}}));
    let item = service.expect("conversation.item.create");
    assert_eq!(
        item["item"]["content"][0],
        json!({"type": "input_text", "text": "Open the door"})
    );
    service.expect("response.create");
    assert!(
        !runner.log().contains("Open the door"),
        "what callers write is not logged"
    );
}

/// Without a key, a URL or a model the runner does not start, and says what is missing.
#[test]
fn missing_settings_end_the_start_with_code_2() {
    for (variables, words) in [
        (&[][..], "REALTIME_API_KEY (or OPENAI_API_KEY)"),
        (&[("REALTIME_URL", "ws://127.0.0.1:1/v1")], "REALTIME_MODEL"),
        (
            &[
                ("REALTIME_URL", "ws://far.example.net/v1"),
                ("REALTIME_MODEL", "m"),
                ("REALTIME_API_KEY", KEY),
            ],
            "not encrypted",
        ),
    ] {
        let ended = TestRunner::run_with(&["--bot", "realtime"], variables);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended.stderr.contains(words) && !ended.stderr.contains(KEY),
            "{}",
            ended.stderr
        );
    }
}
