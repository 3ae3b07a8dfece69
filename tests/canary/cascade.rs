//! Canaries of the bot `cascade`: the keys of its services and of its functions, arguments, and the
//! words of all sides. Services and endpoint repeat what they got, also where they fail.

use serde_json::{Value, json};

use super::{ARGUMENT, FROM, SAID, Watched};
use crate::cascade::{question, send};
use crate::support::cascade::ServiceServer;
use crate::support::client::Client;
use crate::support::rest::Rest;
use crate::support::runner::TestRunner;
use edge_runner_proto::kit::write_wav;

const STT_KEY: &str = "canary-key-of-a-recogniser-5c21";
const LLM_KEY: &str = "canary-key-of-a-chat-model-6d32";
const TTS_KEY: &str = "canary-key-of-a-voice-7e43";
const TOOLS_KEY: &str = "canary-key-of-functions-8f54";

/// An error in the shape of the services, with the canaries in each place.
fn error(key: &str) -> String {
    json!({"error": {"code": key, "type": SAID, "message": format!("{key} {SAID}"), "param": key}}).to_string()
}

fn speaks(voice: &ServiceServer) {
    let (request, connection) = voice.accept_request();
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {TTS_KEY}")));
    let wav = write_wav(&[500; 4_800], 24_000);
    connection.respond("200 OK", "audio/wav", &wav);
}

fn hear_error(client: &mut Client, before: usize) {
    client.hear_until("an error", |client| {
        client.messages[before..]
            .iter()
            .any(|message| message["type"] == "error")
    });
}

/// A call with three HTTP services, a function of an endpoint, and each service failing once.
#[test]
fn no_canary_leaks_from_three_services() {
    let [recognizer, model, voice] = [(); 3].map(|()| ServiceServer::start());
    let declared = json!({"functions": [{"name": "note"}]}).to_string();
    let echoed = json!({"output": {"key": TOOLS_KEY, "text": SAID}}).to_string();
    let rest = Rest::start(&[(200, &declared), (200, &declared), (200, &echoed)]);
    let endpoint = format!("{}/{ARGUMENT}?key={ARGUMENT}", rest.url());
    let (stt, llm, tts) = (recognizer.http_url(), model.http_url(), voice.http_url());
    let variables = [
        ("CASCADE_STT_URL", stt.as_str()),
        ("CASCADE_STT_MODEL", "s"),
        ("CASCADE_STT_API_KEY", STT_KEY),
        ("CASCADE_LLM_URL", llm.as_str()),
        ("CASCADE_LLM_MODEL", "m"),
        ("CASCADE_LLM_API_KEY", LLM_KEY),
        ("CASCADE_TTS_URL", tts.as_str()),
        ("CASCADE_TTS_MODEL", "t"),
        ("CASCADE_TTS_API_KEY", TTS_KEY),
        ("CASCADE_INSTRUCTIONS", SAID),
        ("RUNNER_BOT_GREETING", SAID),
        ("RUNNER_TOOLS", endpoint.as_str()),
        ("TOOLS_API_KEY", TOOLS_KEY),
    ];
    let mut watched = Watched {
        runner: TestRunner::start_with(&["--bot", "cascade", "-vvv"], &variables),
        secrets: super::secrets(),
        key: None,
    };
    watched
        .secrets
        .extend([STT_KEY, LLM_KEY, TTS_KEY, TOOLS_KEY].map(str::to_owned));
    let status = watched.ask("GET", "/status", &[], "", &[]);
    assert_eq!(status.json()["bot"], "cascade");
    let mut client = Client::connect(watched.addr(), "/ws-client");
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    speaks(&voice);
    client.hear_until("the greeting", |client| client.received.contains(&500));
    // Before the end of the first 2 s of speech, which cannot be interrupted, a typed text.
    client.tell("send-text", "2", &json!({"content": SAID, "options": {}}));
    let (request, mut answer) = model.accept_request();
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {LLM_KEY}")));
    answer.begin("200 OK", "text/event-stream");
    let arguments = json!({"text": SAID, "number": FROM}).to_string();
    answer.send_delta(&json!({"tool_calls": [{"index": 0, "id": "c", "type": "function",
        "function": {"name": "note", "arguments": arguments}}]}));
    answer.end_chat("tool_calls");
    drop(answer);
    model.answer_chat(&[SAID, ". "]);
    speaks(&voice);
    client.hear_until("the answer", |client| {
        client.messages.iter().any(|message| {
            message["type"] == "bot-output"
                && message["data"]["spoken_status"] == "completed"
                && message["data"]["text"] == format!("{SAID}.")
        })
    });

    send(&mut client, &question());
    let before = client.messages.len();
    let (request, connection) = recognizer.accept_request();
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {STT_KEY}")));
    connection.respond(
        "500 Internal Server Error",
        "application/json",
        error(STT_KEY).as_bytes(),
    );
    hear_error(&mut client, before);
    send(&mut client, &question());
    let (_, connection) = recognizer.accept_request();
    let text = json!({"text": SAID}).to_string();
    connection.respond("200 OK", "application/json", text.as_bytes());
    let (_, mut answer) = model.accept_request();
    answer.begin("200 OK", "text/event-stream");
    answer.send_delta(&json!({"content": SAID, "reasoning": SAID}));
    let failed: Value = serde_json::from_str(&error(LLM_KEY)).expect("JSON");
    answer.send_chunk(&failed);
    drop(answer);
    let (_, connection) = voice.accept_request();
    connection.respond("401 Unauthorized", "application/json", error(TTS_KEY).as_bytes());
    client.end();
    watched.end(&[
        "functions of ",
        "session started",
        "the recogniser: ",
        "the chat model: ",
        "the voice: it does not accept the key",
    ]);
}

/// Wyoming servers whose events quote everything, and that break the protocol.
#[test]
fn no_canary_leaks_from_wyoming_servers() {
    let [recognizer, model, voice] = [(); 3].map(|()| ServiceServer::start());
    let (stt, llm, tts) = (recognizer.wyoming_url(), model.wyoming_url(), voice.wyoming_url());
    let variables = [
        ("CASCADE_STT_URL", stt.as_str()),
        ("CASCADE_LLM_URL", llm.as_str()),
        ("CASCADE_TTS_URL", tts.as_str()),
        ("RUNNER_BOT_GREETING", ""),
    ];
    let watched = Watched {
        runner: TestRunner::start_with(&["--bot", "cascade", "-vvv"], &variables),
        secrets: super::secrets(),
        key: None,
    };
    let mut client = Client::connect(watched.addr(), "/ws-client");
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    send(&mut client, &question());
    recognizer.recognize(SAID);
    let mut answers = model.accept();
    answers.expect("transcript");
    answers.send(SAID, &json!({"text": SAID}), SAID.as_bytes());
    answers.send("handled", &json!({"text": SAID}), &[]);
    let mut speaks = voice.accept();
    speaks.expect("synthesize");
    speaks.send("error", &json!({"text": SAID, "code": SAID}), &[]);
    let mut speaks = voice.accept();
    speaks.expect("synthesize");
    speaks.send_bytes(format!("{SAID}\n").as_bytes());
    let mut speaks = voice.accept();
    speaks.expect("synthesize");
    speaks.send_bytes(format!("{{\"type\":\"{SAID}\",\"data_length\":-1}}\n").as_bytes());
    drop(speaks);
    client.end();
    watched.end(&["the voice: "]);
}
