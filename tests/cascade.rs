//! The bot `cascade` against a scripted recogniser, chat model and voice: what callers hear, what
//! the services get, and failures.

mod options;
mod tools;

use std::f64::consts::TAU;
use std::thread;

use serde_json::{Value, json};

use crate::support::cascade::ServiceServer;
use crate::support::client::Client;
use crate::support::http;
use crate::support::program;
use crate::support::provider::{Caller, Provider};
use crate::support::runner::TestRunner;
use crate::support::sound::power;

/// A key that must not be logged.
const KEY: &str = "hunter2-key";
/// The rate of the caller.
const RATE_HZ: usize = 16_000;

/// The services of a runner.
struct Services {
    recognizer: ServiceServer,
    model: ServiceServer,
    voice: ServiceServer,
}

impl Services {
    fn start() -> Self {
        Services {
            recognizer: ServiceServer::start(),
            model: ServiceServer::start(),
            voice: ServiceServer::start(),
        }
    }

    fn runner_with(&self, variables: &[(&str, &str)]) -> TestRunner {
        self.runner_among(&[], variables)
    }

    fn runner_among(&self, files: &[(&str, &str)], variables: &[(&str, &str)]) -> TestRunner {
        let (stt, llm, tts) = (
            self.recognizer.wyoming_url(),
            self.model.http_url(),
            self.voice.wyoming_url(),
        );
        let own = [
            ("CASCADE_STT_URL", stt.as_str()),
            ("CASCADE_LLM_URL", llm.as_str()),
            ("CASCADE_LLM_MODEL", "m"),
            ("CASCADE_LLM_API_KEY", KEY),
            ("CASCADE_TTS_URL", tts.as_str()),
            ("CASCADE_INSTRUCTIONS", "Be brief."),
            ("RUNNER_BOT_GREETING", ""),
        ];
        let variables = [&own[..], variables].concat();
        TestRunner::start_among(files, &["--bot", "cascade", "-vvv"], &variables)
    }

    fn runner(&self) -> TestRunner {
        self.runner_with(&[])
    }
}

/// Connects a plain client whose handshake is done.
fn connect(runner: &TestRunner) -> Client {
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    client.hear_message("bot-ready", |message| message["type"] == "bot-ready");
    client
}

/// A quiet room.
fn room(ms: usize) -> Vec<i16> {
    (0..RATE_HZ * ms / 1_000)
        .map(|at| if at % 2 == 0 { 30 } else { -30 })
        .collect()
}

/// A loud voice.
fn voice(ms: usize) -> Vec<i16> {
    let sample = |at: usize| (8_000.0 * (TAU * 900.0 * at as f64 / RATE_HZ as f64).sin()) as i16;
    (0..RATE_HZ * ms / 1_000).map(sample).collect()
}

/// Sends audio in frames of 100 ms, of which no more are sent at once than the runner queues.
pub fn send(client: &mut Client, pcm: &[i16]) {
    for frame in pcm.chunks(RATE_HZ / 10) {
        client.socket.audio(frame, RATE_HZ as u32);
    }
}

/// Something that a caller says, from the quiet before to the quiet that ends it.
pub fn question() -> Vec<i16> {
    [room(600), voice(500), room(800)].concat()
}

fn say(client: &mut Client) {
    send(client, &question());
}

/// Speech of the voice that no resampling hides: a tone.
fn speech(ms: usize) -> Vec<i16> {
    let sample = |at: usize| (6_000.0 * (TAU * 600.0 * at as f64 / 24_000.0).sin()) as i16;
    (0..24 * ms).map(sample).collect()
}

fn of_type(kind: &'static str) -> impl Fn(&Value) -> bool {
    move |message| message["type"] == kind
}

fn messages(request: &Value) -> Vec<(&str, &str)> {
    let list = request["messages"].as_array().expect("messages");
    list.iter()
        .map(|message| {
            (
                message["role"].as_str().expect("a role"),
                message["content"].as_str().unwrap_or_default(),
            )
        })
        .collect()
}

fn ends_spoken(text: &'static str) -> impl Fn(&Value) -> bool {
    move |message| {
        message["type"] == "bot-output"
            && message["data"]["text"] == text
            && message["data"]["spoken_status"] == "completed"
    }
}

/// Speech is recognised while it is spoken, the model gets the text, and its first sentence is
/// heard while it still writes. Texts, tokens and the time to the first sound are told, and nothing
/// of them is logged.
#[test]
fn a_caller_hears_the_answer_sentence_by_sentence() {
    let services = Services::start();
    let runner = services.runner();
    let mut client = connect(&runner);
    say(&mut client);
    let received = services.recognizer.recognize("What is it?");
    let ms = received.len() * 1_000 / 2 / RATE_HZ;
    assert!(
        (1_300..=1_700).contains(&ms),
        "{ms} ms: the speech with its lead and its end"
    );

    let (request, mut model) = services.model.accept_request();
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    let asked: Value = serde_json::from_slice(&request.bytes).expect("JSON");
    assert_eq!(messages(&asked), [("system", "Be brief."), ("user", "What is it?")]);
    assert_eq!((&asked["model"], &asked["stream"]), (&json!("m"), &json!(true)));
    model.begin("200 OK", "text/event-stream");
    model.send_delta(&json!({"reasoning": "A secret thought.", "content": ""}));
    model.send_delta(&json!({"content": "It is a bird. It "}));
    let first = speech(300);
    assert_eq!(services.voice.speak(24_000, &first), "It is a bird.");
    client.hear_message(
        "the first sentence, while the model writes",
        ends_spoken("It is a bird."),
    );
    model.send_delta(&json!({"content": "sings."}));
    model.end_chat("stop");
    assert_eq!(services.voice.speak(24_000, &speech(200)), "It sings.");
    client.hear_message("the last sentence, spoken", ends_spoken("It sings."));
    assert!(
        client.received.windows(first.len()).any(|received| received == first),
        "the voice arrives unchanged at the rate of the client"
    );
    let transcript = client.hear_message("the transcript", of_type("user-transcription"));
    assert_eq!(
        (&transcript["data"]["text"], &transcript["data"]["final"]),
        (&json!("What is it?"), &json!(true))
    );
    client.hear_message("the tokens", |message| {
        message["data"]["tokens"][0]["total_tokens"] == 30
    });
    client.hear_message("the first sound", |message| message["data"]["ttfb"][0]["model"] == "m");

    say(&mut client);
    services.recognizer.recognize("Why?");
    let asked = services.model.answer_chat(&["Because. "]);
    assert_eq!(
        messages(&asked)[1..],
        [
            ("user", "What is it?"),
            ("assistant", "It is a bird. It sings."),
            ("user", "Why?")
        ]
    );
    services.voice.speak(22_050, &speech(100));
    client.hear_message("the second answer", ends_spoken("Because."));

    let metrics = http::get(runner.addr, "/metrics").text();
    for line in [
        "edge_runner_assistant_responses_total{status=\"completed\"} 2",
        "edge_runner_assistant_tokens_total{kind=\"output\"} 20",
        "edge_runner_assistant_first_sound_seconds_count 2",
    ] {
        assert!(
            metrics.lines().any(|known| known == line),
            "{line} is not in\n{metrics}"
        );
    }
    client.socket.close(1000);
    client.end();
    let log = runner.log();
    for secret in [KEY, "Be brief", "What is it", "a bird", "secret thought"] {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
}

/// The caller's voice silences the bot, the first recognised word closes the requests of the
/// answer, and the model learns what was heard of it.
#[test]
fn an_interruption_closes_the_requests_of_the_answer() {
    let services = Services::start();
    let runner = services.runner();
    let mut client = connect(&runner);
    say(&mut client);
    services.recognizer.recognize("Tell me a story.");
    let (_, mut model) = services.model.accept_request();
    model.begin("200 OK", "text/event-stream");
    // Reasoning beside the content: the first answer is no reasoning, and spoken at once.
    model.send_delta(&json!({"reasoning_content": "A story."}));
    model.send_delta(&json!({"content": "Once upon a time. There was a king. He had a dog. "}));
    let mut first = services.voice.accept();
    first.expect("synthesize");
    first.send_speech(24_000, &speech(8_000));
    let mut second = services.voice.accept();
    second.expect("synthesize");
    // The first 2 s cannot be interrupted.
    client.hear_until("3 s of the story", |client| client.received.len() > 3 * 24_000);
    send(&mut client, &[room(200), voice(700)].concat());
    client.hear_until("silence", |client| client.interruptions == 1);
    second.expect_end();
    send(&mut client, &room(800));
    services.recognizer.recognize("Stop.");
    model.expect_end();
    let asked = services.model.answer_chat(&[]);
    let received = messages(&asked);
    assert_eq!(received.last(), Some(&("user", "Stop.")));
    let (role, story) = received[received.len() - 2];
    assert!(
        role == "assistant" && "Once upon a time.".starts_with(story),
        "{story:?}"
    );
    assert!(
        !story.is_empty() && story.len() < "Once upon a time.".len(),
        "{story:?}"
    );
    let metrics = http::get(runner.addr, "/metrics").text();
    assert!(metrics.contains("edge_runner_assistant_barge_ins_total 1"), "{metrics}");
}

/// A telephone call is recognised at 16 kHz, and ended by the model's function once its goodbye was
/// heard.
#[test]
fn a_telephone_call_is_answered_and_ended_by_the_model() {
    let services = Services::start();
    let runner = services.runner();
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    let every_second = |pcm: Vec<i16>| -> Vec<i16> { pcm.into_iter().step_by(2).collect() };
    caller.say(&every_second(question()));
    let received = services.recognizer.recognize("Goodbye.");
    assert!(received.len() > RATE_HZ * 2, "{} bytes", received.len());
    let (request, mut model) = services.model.accept_request();
    let asked: Value = serde_json::from_slice(&request.bytes).expect("JSON");
    assert_eq!(asked["tools"][0]["function"]["name"], "end_call");
    model.begin("200 OK", "text/event-stream");
    model.send_delta(&json!({"content": "Goodbye then.", "tool_calls": [
        {"index": 0, "id": "c", "type": "function", "function": {"name": "end_call", "arguments": "{}"}}]}));
    model.end_chat("tool_calls");
    services.voice.speak(22_050, &speech(300));
    caller.hear_until("the end", |caller| caller.gone);
    assert!(power(&caller.received) > 0.0, "the goodbye is heard");
    assert!(services.model.waiting().is_none(), "the model is not asked again");
    runner.wait_for_sessions(0);
    let call = http::last_call(runner.addr, &[]);
    assert_eq!(call["hang_up_reason"], "the model ended the call");
    let texts: Vec<_> = call["turns"].as_array().expect("texts").iter().collect();
    let said: Vec<_> = texts.iter().map(|text| (&text["by"], &text["text"])).collect();
    assert_eq!(
        said,
        [
            (&json!("caller"), &json!("Goodbye.")),
            (&json!("bot"), &json!("Goodbye then."))
        ]
    );
    // The record, the text and its stages have one time.
    assert_eq!(
        (&call["answers"], &call["latency_ms"]),
        (&json!(1), &texts[1]["latency_ms"])
    );
    // Behind them is the arrival, which is no part of that time.
    let (arrival, stages) = texts[1]["stages"]
        .as_array()
        .and_then(|stages| stages.split_last())
        .expect("stages");
    let names: Vec<_> = stages.iter().map(|stage| &stage["name"]).collect();
    assert_eq!(names, ["recognized", "first_token", "first_sound"]);
    assert_eq!(arrival["name"], "arrival");
    let total: u64 = stages
        .iter()
        .map(|stage| stage["ms"].as_u64().expect("milliseconds"))
        .sum();
    let latency = call["latency_ms"].as_u64().expect("milliseconds");
    assert!(total.abs_diff(latency) <= 3, "{call}");
}

/// A configured greeting needs no model, and is part of the conversation.
#[test]
fn a_configured_greeting_is_said_first() {
    let services = Services::start();
    let runner = services.runner_with(&[("RUNNER_BOT_GREETING", "Welcome to the shop.")]);
    let mut client = connect(&runner);
    assert_eq!(services.voice.speak(22_050, &speech(200)), "Welcome to the shop.");
    client.hear_message("the greeting", ends_spoken("Welcome to the shop."));
    client.tell("send-text", "2", &json!({"content": "Open the door", "options": {}}));
    let asked = services.model.answer_chat(&[]);
    assert_eq!(
        messages(&asked)[2..],
        [("assistant", "Welcome to the shop."), ("user", "Open the door")]
    );
    assert!(
        !runner.log().contains("Open the door"),
        "what callers write is not logged"
    );
}

/// A model that refuses the key ends the call, which the client and the log learn in words of the
/// runner.
#[test]
fn a_refused_key_ends_the_session() {
    let services = Services::start();
    let runner = services.runner();
    let mut client = connect(&runner);
    say(&mut client);
    services.recognizer.recognize("Hello.");
    let (_, model) = services.model.accept_request();
    let body = json!({"error": {"message": format!("{KEY} is wrong"), "code": "invalid_api_key"}});
    model.respond("401 Unauthorized", "application/json", body.to_string().as_bytes());
    let error = client.hear_message("the error", of_type("error"));
    assert_eq!(error["data"]["fatal"], json!(true));
    client.end();
    assert!(!client.received.is_empty(), "the sound of the failure");
    runner.wait_for_log("the chat model: it does not accept the key");
    assert!(!runner.log().contains(KEY));
}

/// A service that is not there is tried again as long as the caller has patience.
#[test]
fn an_unreachable_model_ends_the_session_after_the_patience() {
    let services = Services::start();
    let patience = ("RUNNER_BOT_PATIENCE", "1");
    let runner = services.runner_with(&[("CASCADE_LLM_URL", "http://127.0.0.1:1/v1"), patience]);
    let mut client = connect(&runner);
    say(&mut client);
    services.recognizer.recognize("Hello.");
    client.end();
    let log = runner.wait_for_log("the chat model: ");
    assert!(log.contains("127.0.0.1"), "{log}");
    let metrics = http::get(runner.addr, "/metrics").text();
    assert!(
        metrics.contains("edge_runner_assistant_errors_total{class=\"transient\"} 3"),
        "{metrics}"
    );
}

/// Services that break off, and that send 10 MB where a line is expected: the caller is told, what
/// was not begun is asked for again, the call goes on, and nothing is kept.
#[test]
fn a_call_outlives_faults_of_its_services() {
    const LONG: usize = 10 * 1024 * 1024;
    let services = Services::start();
    let runner = services.runner();
    let (descriptors, before_kib) = (program::descriptors(runner.pid()), runner.peak_kib());
    let mut client = connect(&runner);
    let is_error = |words: &'static str| {
        move |message: &Value| message["type"] == "error" && message["data"]["error"].as_str() == Some(words)
    };
    for fault in 0..6 {
        say(&mut client);
        if let 0 | 1 = fault {
            let mut recognizer = services.recognizer.accept();
            recognizer.expect("transcribe");
            if fault == 1 {
                recognizer.send_bytes(&vec![b'x'; LONG]);
            }
            drop(recognizer);
            let before = client.messages.len();
            client.hear_until("that it was not understood", |client| {
                client.messages[before..]
                    .iter()
                    .any(is_error("The assistant could not hear you; please say it again."))
            });
            say(&mut client);
        }
        services.recognizer.recognize("Hello.");
        if let 2 | 3 = fault {
            let (_, mut model) = services.model.accept_request();
            model.begin("200 OK", "text/event-stream");
            if fault == 3 {
                model.send_bytes(b"data: ");
                model.send_bytes(&vec![b'x'; LONG]);
            }
        }
        services.model.answer_chat(&["Good day."]);
        if let 4 | 5 = fault {
            let mut voice = services.voice.accept();
            voice.expect("synthesize");
            if fault == 5 {
                voice.send_bytes(&vec![b'x'; LONG]);
            }
        }
        let (before, spoken) = (client.messages.len(), services.voice.speak(22_050, &speech(200)));
        assert_eq!(spoken, "Good day.", "fault {fault}");
        client.hear_until("the answer", |client| {
            client.messages[before..].iter().any(ends_spoken("Good day."))
        });
    }
    drop(client);
    runner.wait_for_sessions(0);
    program::wait_for_descriptors(runner.pid(), descriptors);
    let grown_kib = runner.peak_kib() - before_kib;
    assert!(grown_kib < 8 * 1024, "{grown_kib} KiB");
    let metrics = http::get(runner.addr, "/metrics").text();
    assert!(
        metrics.contains("edge_runner_assistant_errors_total{class=\"transient\"}"),
        "{metrics}"
    );
}

/// The doctor asks each service what it offers, and sends it neither speech nor text.
#[test]
fn the_doctor_asks_what_the_services_offer() {
    let services = Services::start();
    let (stt, llm) = (services.recognizer.wyoming_url(), services.model.http_url());
    let own = [
        ("CASCADE_STT_URL", stt),
        ("CASCADE_LLM_URL", llm),
        ("CASCADE_LLM_MODEL", "m".to_owned()),
        ("CASCADE_LLM_API_KEY", KEY.to_owned()),
        ("CASCADE_TTS_URL", "tcp://127.0.0.1:1".to_owned()),
    ];
    let doctor = thread::spawn(move || {
        let own = own.each_ref().map(|(name, value)| (*name, value.as_str()));
        TestRunner::run_with(&["doctor", "--bot", "cascade"], &own)
    });
    let mut recognizer = services.recognizer.accept();
    recognizer.expect("describe");
    recognizer.send("info", &json!({"asr": [{"name": "w", "models": []}]}), &[]);
    let (request, model) = services.model.accept_request();
    assert_eq!((&*request.method, &*request.target), ("GET", "/v1/models"));
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    let list = json!({"object": "list", "data": [{"id": "m:latest"}]});
    model.respond("200 OK", "application/json", list.to_string().as_bytes());
    let findings = doctor.join().expect("the doctor ends").stdout;
    for line in [
        "recogniser",
        " offers it over Wyoming",
        " has the model m",
        // With the port, which is what is most often wrong.
        "recogniser  127.0.0.1:",
        "voice",
    ] {
        assert!(findings.contains(line), "{line} is not in\n{findings}");
    }
    assert!(!findings.contains(KEY), "{findings}");
}

/// Without a URL or a model the runner does not start, and says what is missing.
#[test]
fn missing_settings_end_the_start_with_code_2() {
    let some = [
        ("CASCADE_STT_URL", "tcp://127.0.0.1:1"),
        ("CASCADE_LLM_URL", "http://127.0.0.1:1/v1"),
        ("CASCADE_TTS_URL", "tcp://127.0.0.1:1"),
    ];
    for (variables, words) in [
        (
            &some[1..],
            "CASCADE_STT_URL: the URL of a recogniser, such as tcp://HOST:10300",
        ),
        (&some[..], "CASCADE_LLM_MODEL"),
    ] {
        let ended = TestRunner::run_with(&["--bot", "cascade"], variables);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}
