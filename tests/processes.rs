//! Tests of bots that are programs, against the real binary: their arguments, their media, and
//! their ends.
//!
//! Most of these bots are a shell script that keeps running while the test connects to its media.
//! One is this test binary itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use edge_runner_proto::limits::PROCESS_MESSAGE_BYTES_MAX;
use edge_runner_proto::sockets::frames::{self, ProtobufFrame};
use serde_json::{Value, json};

use crate::support::cascade::ServiceServer;
use crate::support::client::{CLIENT_RATE_HZ, Client};
use crate::support::device::{Device, Options};
use crate::support::http;
use crate::support::program::{BOT_RATE_HZ, BotProcess, Program, SLEEPING_COMMAND, SLOW_EXIT_COMMAND, wait_for_end};
use crate::support::provider::{Caller, FROM, Provider, TO, assert_echo_of_each_provider, digits, each_at_once};
use crate::support::rest::{Rest, SILENCE};
use crate::support::runner::{PATIENCE, TestRunner};
use crate::support::socket::{ConnectOptions, Socket, SocketEvent};
use crate::support::sound::Speech;
use crate::support::sweep::Sweep;

/// Starts a runner whose bot is this script.
fn shell(script: &str) -> TestRunner {
    TestRunner::start(&["--", "/bin/sh", "-c", script])
}

/// Returns the process that serves the call of this provider.
fn of_call(runner: &TestRunner, provider: Provider) -> BotProcess {
    BotProcess::of(runner, |arguments| arguments["transport_type"] == provider.transport())
}

/// Connects a plain client and its program.
fn talk(runner: &TestRunner) -> (Client, Program) {
    let client = Client::connect(runner.addr, "/ws-client");
    let program = BotProcess::of(runner, |_| true).connect_media();
    (client, program)
}

/// R-016 to R-024: `RUNNER_ARGUMENTS` of a call, complete, for every provider.
#[test]
fn a_program_finds_the_call_in_its_arguments() {
    let runner = &shell(SLEEPING_COMMAND);
    each_at_once(|provider| {
        let caller = Caller::dial(runner.addr, provider);
        let started = of_call(runner, provider);
        let (stream_id, call_id) = (&caller.stream_id, &caller.call_id);
        let body = match provider {
            Provider::Twilio => json!({"from_number": FROM, "to_number": TO}),
            Provider::Telnyx => json!({"customer": "42"}),
            Provider::Plivo => json!({"from": digits(FROM), "to": digits(TO)}),
            Provider::Exotel => json!({"k": "v"}),
        };
        let mut call_data = json!({"stream_id": stream_id, "call_id": call_id, "from": FROM, "to": TO, "body": body});
        match provider {
            Provider::Twilio | Provider::Plivo => {}
            Provider::Telnyx => call_data["outbound_encoding"] = json!("PCMU"),
            Provider::Exotel => {
                call_data["account_sid"] = json!("acct1");
                call_data["custom_parameters"] = body.clone();
            }
        }
        let wanted = json!({
            "kind": "websocket",
            "session_id": started.arguments["session_id"],
            "body": body,
            "handle_sigint": false,
            "handle_sigterm": true,
            "idle_timeout": 300,
            "websocket": {"path": "/ws"},
            "transport_type": provider.transport(),
            "call_data": call_data,
            "media_url": started.arguments["media_url"],
        });
        assert_eq!(started.arguments, wanted);
        assert!(started.arguments["session_id"].as_str().is_some_and(|id| id.len() >= 8));
    });
}

#[test]
fn a_program_finds_the_body_of_start_in_its_arguments() {
    let runner = shell(SLEEPING_COMMAND);
    let body = json!({"who": "Zo\u{eb} \"'$HOME`\n\u{0}", "n": [1, null]});
    let asked = json!({"transport": "websocket", "body": body}).to_string();
    let kind = ["Content-Type: application/json"];
    let reply = http::request(runner.addr, "POST", "/start", &kind, asked.as_bytes()).expect("an answer");
    let id = reply.json()["sessionId"].as_str().expect("a name").to_owned();
    let _client = Client::connect(runner.addr, &format!("/ws-client?sessionId={id}"));
    let started = BotProcess::of(&runner, |_| true);
    let wanted = json!({
        "kind": "websocket", "session_id": id, "body": body, "handle_sigint": false, "handle_sigterm": true,
        "idle_timeout": 300, "websocket": {"path": "/ws-client"}, "transport_type": "websocket",
        "media_url": started.arguments["media_url"],
    });
    assert_eq!(started.arguments, wanted);
}

/// D-30: a kind has its own fields and none of another kind's.
#[test]
fn a_program_finds_the_connection_in_its_arguments() {
    let runner = TestRunner::start(&[
        "--embedded",
        "--host",
        "127.0.0.1",
        "--",
        "/bin/sh",
        "-c",
        SLEEPING_COMMAND,
    ]);
    let mut device = Device::join(runner.addr, Options::new(Speech::Silence));
    let started = BotProcess::of(&runner, |_| true);
    let arguments = &started.arguments;
    assert!(
        arguments["webrtc_connection"]["pc_id"]
            .as_str()
            .is_some_and(|id| !id.is_empty())
    );
    let wanted = json!({
        "kind": "webrtc", "session_id": arguments["session_id"], "body": {}, "handle_sigint": false,
        "handle_sigterm": true, "idle_timeout": 300, "webrtc_connection": arguments["webrtc_connection"],
        "media_url": arguments["media_url"],
    });
    assert_eq!(*arguments, wanted);
    device.vanish();
}

/// Speech from before the program connected is not lost, and all speech passes both ways.
#[test]
fn caller_and_program_hear_each_other() {
    let runner = &shell(SLOW_EXIT_COMMAND);
    each_at_once(|provider| {
        let mut caller = Caller::dial(runner.addr, provider);
        let sweep = Sweep { ms: 1_200 };
        caller.say(&sweep.pcm(caller.line.rate_hz));
        let mut program = of_call(runner, provider).connect_media();
        let samples = (sweep.received_ms() * BOT_RATE_HZ / 1_000) as usize;
        program.hear_until("the caller", |program| program.samples() >= samples);
        let clear_db = if provider == Provider::Exotel { 50.0 } else { 30.0 };
        sweep.assert_received(program.received.iter().map(Vec::as_slice), BOT_RATE_HZ, clear_db);

        // Sent in one piece at another rate, and played in real time.
        caller.said = Some(std::time::Instant::now());
        program.say(&sweep.pcm(24_000), 24_000);
        let rate_hz = caller.back().rate_hz;
        let samples = (sweep.received_ms() * rate_hz / 1_000) as usize;
        caller.hear_until("the program", |caller| caller.received.len() >= samples);
        sweep.assert_received(caller.received_from(0), rate_hz, clear_db);
        caller.assert_cut();
        caller.assert_paced(0.2);
        caller.stop();
        assert_eq!(caller.end(), Some((1000, String::new())));
        assert_eq!(program.end().map(|(code, _)| code), Some(1000));
        wait_for_end(program.process);
    });
    runner.wait_for_logs("session ended: caller left", 4);
}

/// A program transfers its call and sends keys by the provider's API, whose key it does not get. A
/// transferred call is not hung up.
#[test]
fn a_program_asks_the_provider_of_its_call() {
    let api = Rest::start(&[(202, "{}"), (422, r#"{"errors":[{"code":"10015"}]}"#), (202, "{}")]);
    let url = api.url();
    let runner = TestRunner::start_with(
        &["--", "/bin/sh", "-c", SLEEPING_COMMAND],
        &[("TELCO_B_API_KEY", "b-secret"), ("TELCO_B_API_URL", &url)],
    );
    let mut caller = Caller::dial(runner.addr, Provider::Telnyx);
    let mut program = of_call(&runner, Provider::Telnyx).connect_media();
    program.tell(&json!({"type": "keys", "keys": "12#"}));
    let sent = program.hear_message("the keys", |message| message["type"] == "keys");
    assert_eq!(sent, json!({"type": "keys", "done": true}));
    program.tell(&json!({"type": "transfer", "to": "+15550001111"}));
    let refused = program.hear_message("the refusal", |message| message["type"] == "transfer");
    assert_eq!(refused["done"], false, "{refused}");
    for wrong in [
        json!({"type": "transfer", "to": "the desk"}),
        json!({"type": "keys", "keys": "x"}),
    ] {
        let before = program.messages.len();
        program.tell(&wrong);
        program.hear_until("an error", |program| program.messages.len() > before);
        assert!(program.messages[before]["error"].is_string());
    }
    program.tell(&json!({"type": "transfer", "to": "sip:desk@example.net"}));
    program.hear_message("the transfer", |message| {
        message["type"] == "transfer" && message["done"] == true
    });
    program.socket.close(1000);
    caller.hear_until("the end of the stream", |caller| caller.gone);
    runner.wait_for_sessions(0);
    let targets: Vec<String> = api.asked().into_iter().map(|request| request.target).collect();
    let action = |name: &str| format!("/v2/calls/v3:abcDEF123-_/actions/{name}");
    assert_eq!(targets, [action("send_dtmf"), action("transfer"), action("transfer")]);
    let call = http::last_call(runner.addr, &[]);
    assert_eq!(
        (&call["transferred_to"], &call["outcome"]),
        (&json!("sip:desk@example.net"), &json!("bot_ended"))
    );
    let log = runner.log();
    for secret in ["b-secret", "15550001111", "desk@"] {
        assert!(!log.contains(secret), "{log}");
    }
}

/// A program that closes its media behind a transfer, without its answer, has transferred the call.
#[test]
fn a_transfer_goes_on_when_its_program_closes() {
    let api = Rest::start(&[(200, "{}")]);
    let url = api.url();
    let runner = TestRunner::start_with(
        &["--", "/bin/sh", "-c", SLEEPING_COMMAND],
        &[("TELCO_B_API_KEY", "b-secret"), ("TELCO_B_API_URL", &url)],
    );
    let mut caller = Caller::dial(runner.addr, Provider::Telnyx);
    let program = of_call(&runner, Provider::Telnyx).connect_media();
    program.tell(&json!({"type": "transfer", "to": "+15550001111"}));
    program.socket.close(1000);
    caller.hear_until("the end of the stream", |caller| caller.gone);
    runner.wait_for_sessions(0);
    let targets: Vec<String> = api.asked().into_iter().map(|request| request.target).collect();
    assert_eq!(targets, ["/v2/calls/v3:abcDEF123-_/actions/transfer"]);
    assert_eq!(http::last_call(runner.addr, &[])["transferred_to"], "+15550001111");
}

/// A transfer that does not wait for the speech before it drops that speech.
#[test]
fn a_transfer_can_cut_the_speech_before_it() {
    let api = Rest::start(&[(200, "{}")]);
    let url = api.url();
    let runner = TestRunner::start_with(
        &["--", "/bin/sh", "-c", SLEEPING_COMMAND],
        &[("TELCO_B_API_KEY", "b-secret"), ("TELCO_B_API_URL", &url)],
    );
    let mut caller = Caller::dial(runner.addr, Provider::Telnyx);
    let mut program = of_call(&runner, Provider::Telnyx).connect_media();
    program.say(&vec![1_000; 20 * 24_000], 24_000);
    program.tell(&json!({"type": "mark", "name": "said"}));
    // Nothing can be dialled here, so nothing is dropped.
    program.tell(&json!({"type": "transfer", "to": "the desk", "after_speech": false}));
    let refused = program.hear_message("the refusal", |message| message["type"] == "transfer");
    assert_eq!(refused["done"], false, "{refused}");
    assert!(!program.messages.iter().any(|message| message["type"] == "mark"));
    program.tell(&json!({"type": "transfer", "to": "+15550001111", "after_speech": false}));
    let mark = program.hear_message("the mark", |message| message["type"] == "mark");
    assert_eq!(mark, json!({"type": "mark", "name": "said", "played": false}));
    program.hear_message("the transfer", |message| message["done"] == true);
    program.socket.close(1000);
    caller.hear_until("the end of the stream", |caller| caller.gone);
    assert!(caller.received.len() < 20 * 8_000, "the speech was cut");
    assert_eq!(api.asked().len(), 1);
}

#[test]
fn a_program_waits_for_one_answer_of_its_provider_at_a_time() {
    let api = Rest::start(&[SILENCE]);
    let url = api.url();
    let runner = TestRunner::start_with(
        &["--", "/bin/sh", "-c", SLEEPING_COMMAND],
        &[("TELCO_B_API_KEY", "b-secret"), ("TELCO_B_API_URL", &url)],
    );
    let _caller = Caller::dial(runner.addr, Provider::Telnyx);
    let mut program = of_call(&runner, Provider::Telnyx).connect_media();
    program.tell(&json!({"type": "keys", "keys": "1"}));
    program.tell(&json!({"type": "keys", "keys": "2"}));
    let busy = program.hear_message("a refusal", |message| message["type"] == "keys");
    assert!(
        busy["error"]
            .as_str()
            .is_some_and(|why| why.contains("another request")),
        "{busy}"
    );
}

/// A program hangs up with a reason once its speech was played; without a call, it is told that
/// nothing is transferred.
#[test]
fn a_program_hangs_up_with_a_reason() {
    let runner = shell(SLEEPING_COMMAND);
    let (mut client, mut program) = talk(&runner);
    program.tell(&json!({"type": "transfer", "to": "+15550001111"}));
    let refused = program.hear_message("the refusal", |message| message["type"] == "transfer");
    assert_eq!(refused["error"], "the session is not a telephone call");
    let speech = vec![1_000; 24_000];
    program.say(&speech, 24_000);
    program.tell(&json!({"type": "hang-up", "reason": "the caller is done"}));
    client.end();
    assert!(client.received.iter().filter(|sample| **sample == 1_000).count() >= 24_000);
    assert!(client.messages.is_empty(), "requests are not for the client");
    runner.wait_for_log("the caller is done");
    runner.wait_for_sessions(0);
    let call = http::last_call(runner.addr, &[]);
    assert_eq!(
        (&call["hang_up_reason"], &call["transferred_to"]),
        (&json!("the caller is done"), &Value::Null)
    );
}

/// A telephone caller hears a text that the program lets the runner speak, in its place among the
/// program's speech. The voice is asked once for a text, in all calls.
#[test]
fn a_program_lets_the_runner_speak() {
    let voice = ServiceServer::start();
    let url = voice.wyoming_url();
    let runner = TestRunner::start_with(&["--", "/bin/sh", "-c", SLEEPING_COMMAND], &[("CASCADE_TTS_URL", &url)]);
    let mut earlier = Value::Null;
    for call in 0..2 {
        let mut caller = Caller::dial(runner.addr, Provider::Twilio);
        let started = BotProcess::of(&runner, |arguments| arguments["session_id"] != earlier);
        earlier = started.arguments["session_id"].clone();
        let mut program = started.connect_media();
        program.tell(&json!({"type": "speak", "text": "Press 1."}));
        program.say(&[-2_000; 12_000], 24_000);
        if call == 0 {
            assert_eq!(voice.speak(16_000, &[2_000; 8_000]), "Press 1.");
        }
        let answer = program.hear_message("the answer", |message| message["type"] == "speak");
        assert_eq!(answer, json!({"type": "speak", "done": true}));
        let is_own = |sample: &&i16| **sample < -1_000;
        caller.hear_until("all speech", |caller| {
            caller.received.iter().filter(is_own).count() >= 3_900
        });
        let own = caller
            .received
            .iter()
            .position(|sample| *sample < -1_000)
            .expect("it is heard");
        let prompt = caller.received[..own].iter().filter(|sample| **sample > 1_000);
        assert!(prompt.count() >= 3_900, "the prompt is before it");
        caller.stop();
        caller.end();
        runner.wait_for_sessions(0);
        let texts = &http::last_call(runner.addr, &[])["turns"];
        assert_eq!(
            (&texts[0]["by"], &texts[0]["text"], &texts[1]),
            (&json!("bot"), &json!("Press 1."), &Value::Null)
        );
    }
    assert!(voice.waiting().is_none(), "the second prompt was kept");
    assert!(!runner.log().contains("Press 1"));
}

/// Keys and marks reach the program as messages. A mark comes back only once the caller has heard
/// everything before it.
#[test]
fn keys_and_marks_reach_the_program_as_messages() {
    let runner = &shell(SLEEPING_COMMAND);
    each_at_once(|provider| {
        let mut caller = Caller::dial(runner.addr, provider);
        let mut program = of_call(runner, provider).connect_media();
        for digit in ["0", "9", "*", "#", "A", "10", ""] {
            caller.press(digit);
        }
        caller.press("7");
        program.hear_message("the last key", |message| message["digit"] == "7");
        let keys: Vec<_> = ["0", "9", "*", "#", "7"]
            .map(|key| json!({"type": "dtmf", "digit": key}))
            .into();
        assert_eq!(program.messages, keys);

        let began = std::time::Instant::now();
        program.mark("before anything");
        program.say(&vec![500; 9_600], 16_000);
        program.mark("after 600 \"ms\"");
        caller.hear_until("both marks back", |caller| caller.given_back.len() == 2);
        program.hear_message("the second mark", |message| message["name"] == "after 600 \"ms\"");
        assert_eq!(caller.marks, ["before anything", "after 600 \"ms\""]);
        assert!(
            began.elapsed() >= Duration::from_millis(600),
            "a mark came back before its speech was played"
        );
        let marks = [("before anything", true), ("after 600 \"ms\"", true)];
        let reported = marks.map(|(name, played)| json!({"type": "mark", "name": name, "played": played}));
        assert_eq!(program.messages[keys.len()..], reported);
    });
}

/// An interruption drops queued speech and clears the speech that the provider holds. Its marks
/// come back once each, as not played.
#[test]
fn an_interruption_of_the_program_clears_the_call() {
    let runner = &shell(SLEEPING_COMMAND);
    each_at_once(|provider| {
        let mut caller = Caller::dial(runner.addr, provider);
        let mut program = of_call(runner, provider).connect_media();
        program.say(&vec![500; 1_600], 16_000);
        program.mark("heard");
        program.say(&vec![700; 160_000], 16_000);
        program.mark("never heard");
        caller.hear_until("the first mark back", |caller| caller.given_back.len() == 1);
        program.hear_message("the first mark", |message| message["name"] == "heard");
        program.interrupt();
        caller.hear_until("a clear", |caller| !caller.clears.is_empty());
        // Speech after the interruption follows at once, without any of the old speech.
        program.say(&vec![-900; 8_000], 16_000);
        program.mark("after");
        caller.hear_until("all marks back", |caller| {
            caller.marks.last().is_some_and(|mark| mark == "after") && caller.given_back.len() == caller.marks.len()
        });
        program.hear_message("the last mark", |message| message["name"] == "after");
        let reported = [("heard", true), ("never heard", false), ("after", true)];
        let reported = reported.map(|(name, played)| json!({"type": "mark", "name": name, "played": played}));
        assert_eq!(program.messages, reported, "{provider:?}");
        assert_eq!(caller.clears.len(), 1);
        let old: usize = caller.chunks[..caller.clears[0]]
            .iter()
            .map(|chunk| chunk.samples)
            .sum();
        // Resamplers overshoot slightly where the level jumps.
        let stale = caller.received[old..].iter().filter(|sample| **sample > 100).count();
        assert_eq!(stale, 0, "{provider:?} was sent old speech behind the clear");
    });
}

/// Messages for the provider pass unchanged; messages for a screen are dropped.
#[test]
fn messages_for_the_provider_pass_and_messages_for_a_screen_are_dropped() {
    let runner = shell(SLEEPING_COMMAND);
    let mut caller = Caller::dial(runner.addr, Provider::Plivo);
    caller.others = Some(Vec::new());
    let program = of_call(&runner, Provider::Plivo).connect_media();
    let digits = json!({"event": "sendDTMF", "dtmf": "12#"});
    program.tell(&json!({"label": "rtvi-ai", "type": "bot-ready", "id": "1", "data": {}}));
    program.socket.message("no JSON");
    program.socket.message("[1]");
    program.tell(&digits);
    caller.hear_until("the digits", |caller| {
        caller.others.as_ref().is_some_and(|others| !others.is_empty())
    });
    assert_eq!(caller.others, Some(vec![digits]));
}

/// The program of a plain client answers `client-ready`; the runner does not.
#[test]
fn a_plain_client_talks_to_the_program_alone() {
    let runner = shell(SLEEPING_COMMAND);
    let (mut client, mut program) = talk(&runner);
    let ready = json!({"label": "rtvi-ai", "type": "client-ready", "id": "7", "data": {"version": "2.1.0"}});
    client.socket.message(&ready.to_string());
    assert_eq!(program.hear_message("client-ready", |_| true), ready);
    let answer = json!({"label": "rtvi-ai", "type": "bot-ready", "id": "7", "data": {"version": "2.1.0"}});
    program.tell(&answer);
    assert_eq!(client.hear_message("bot-ready", |_| true), answer);
    assert_eq!(client.messages.len(), 1);
    let sweep = Sweep { ms: 800 };
    for rate_hz in [8_000, 48_000] {
        let before = client.received.len();
        program.say(&sweep.pcm(rate_hz), rate_hz);
        let samples = (sweep.received_ms() * CLIENT_RATE_HZ / 1_000) as usize;
        client.hear_until("the program", |client| client.received.len() - before >= samples);
        sweep.assert_received(client.received_from(before), CLIENT_RATE_HZ, 50.0);
    }
    program.interrupt();
    client.hear_until("the interruption", |client| client.interruptions == 1);
    // A program that closes its media hangs up.
    program.socket.close(1000);
    assert_eq!(client.end(), Some((1000, String::new())));
    wait_for_end(program.process);
    runner.wait_for_log("session ended: bot ended");
}

/// The listener of the media accepts one connection, on the secret path.
#[test]
fn the_media_listener_accepts_one_connection_on_the_secret_path() {
    let runner = shell(SLOW_EXIT_COMMAND);
    let _client = Client::connect(runner.addr, "/ws-client");
    let started = BotProcess::of(&runner, |_| true);
    let (address, path) = started.media();
    for wrong in ["/", "/ws-client", &path[..path.len() - 1], &format!("{path}0")] {
        let refused = Socket::try_connect(address, wrong, ConnectOptions::default());
        assert_eq!(refused.err().map(|refused| refused.status), Some(403), "{wrong}");
    }
    let mut program = started.connect_media();
    // The listener is closed, or about to close.
    let upgrade = [
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let second = http::request(address, "GET", &path, &upgrade, b"");
    assert!(second.as_ref().map_or(true, |reply| reply.status == 403), "{second:?}");
    program.socket.message("{}");
    let process = program.process;
    let log = runner.log();
    assert!(
        !log.contains(path.trim_start_matches('/')),
        "the path was logged: {log}"
    );
    program.socket.text("text is no frame");
    assert_eq!(program.end().map(|(code, _)| code), Some(1003));
    wait_for_end(process);
}

/// The end of a program ends its session; the close code and the log tell how.
#[test]
fn the_end_of_the_program_ends_its_session() {
    let ends = [
        ("exit 0", 1000, "INFO", "session ended: bot ended"),
        (
            "exit 3",
            1011,
            "WARN",
            "the bot failed: exit status: 3, before it opened media_url",
        ),
        ("kill -KILL $$", 1011, "WARN", "the bot failed: signal: 9"),
        ("kill -SEGV $$", 1011, "WARN", "the bot failed: signal: 11"),
    ];
    for (script, code, level, words) in ends {
        let runner = shell(&format!("echo to stdout; echo 'to stderr' >&2; {script}"));
        let mut client = Client::connect(runner.addr, "/ws-client");
        assert_eq!(client.end().map(|(code, _)| code), Some(code), "{script}");
        let line = runner.wait_for_log(words);
        assert!(line.contains(level), "{line}");
        let id = line
            .split(['[', ']'])
            .nth(1)
            .expect("the name of the session")
            .to_owned();
        for (word, from) in [("to stdout", "bot stdout: "), ("to stderr", "bot stderr: ")] {
            let line = runner.wait_for_log(word);
            assert!(line.contains(&format!("[{id}]")) && line.contains(from), "{line}");
        }
        runner.wait_for_sessions(0);
    }
}

/// A call is hung up once when its program ends, for any exit status.
#[test]
fn a_call_whose_program_ends_is_hung_up() {
    for script in ["exit 0", "exit 1", "kill -KILL $$"] {
        let api = Rest::start(&[(200, "{}")]);
        let variables = [
            ("TELCO_B_API_URL", api.url()),
            ("TELCO_B_API_KEY", "b-secret".to_owned()),
        ];
        let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
        let mut runner = TestRunner::start_with(&["--", "/bin/sh", "-c", script], &variables);
        let mut caller = Caller::dial(runner.addr, Provider::Telnyx);
        caller.end();
        runner.wait_for_sessions(0);
        runner.signal("TERM");
        runner.wait();
        let asked = api.asked();
        assert_eq!(asked.len(), 1, "{script}: {asked:#?}");
        assert_eq!(asked[0].target, "/v2/calls/v3:abcDEF123-_/actions/hangup");
    }
}

/// The crash of one program leaves other sessions alone.
#[test]
fn a_crash_ends_its_own_session_alone() {
    let runner = shell(SLEEPING_COMMAND);
    let mut first = Caller::dial(runner.addr, Provider::Twilio);
    let mut second = Caller::dial(runner.addr, Provider::Telnyx);
    let doomed = of_call(&runner, Provider::Twilio);
    let program = of_call(&runner, Provider::Telnyx).connect_media();
    signal("KILL", doomed.process);
    assert_eq!(first.end(), Some((1011, "the bot failed".into())));
    runner.wait_for_sessions(1);
    program.say(&vec![1_000; 16_000], 16_000);
    second.hear_ms(900);
    second.stop();
    second.end();
    runner.wait_for_sessions(0);
}

fn signal(name: &str, process: u32) {
    let command = format!("kill -{name} {process}");
    let status = Command::new("/bin/sh")
        .args(["-c", &command])
        .status()
        .expect("a shell");
    assert!(status.success(), "{command}");
}

/// SIGTERM reaches the whole group with time to clean up. A process that ignores it is killed, and
/// the runner exits with 0. The kill and the end of its session are due 0.25 s apart, so either may
/// be what the log names.
#[test]
fn the_end_of_the_runner_ends_its_programs() {
    let polite = "trap 'echo polite goodbye; exit 0' TERM; echo the bot is up; while :; do sleep 0.05; done";
    let stubborn = "trap '' TERM; (trap '' TERM; echo the bot is up; while :; do sleep 0.05; done) & wait";
    for (script, words) in [(polite, "polite goodbye"), (stubborn, "did not end in time")] {
        let script = format!("echo $$ > process; {script}");
        let mut runner = shell(&script);
        let mut client = Client::connect(runner.addr, "/ws-client");
        runner.wait_for_log("the bot is up");
        let process = fs::read_to_string(runner.path("process")).expect("it is up");
        runner.signal("TERM");
        assert_eq!(client.end(), Some((1001, "the runner is stopping".into())));
        assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
        runner.wait_for_log(words);
        wait_for_end(process.trim().parse().expect("a number"));
    }
}

/// A zombie in the group, which its parent outside the group does not reap, does not delay the end
/// of the session.
#[test]
fn a_zombie_does_not_delay_the_end_of_the_session() {
    let script = "import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.write(1, b'the child is up\\n')
        time.sleep(60)
    os.setpgid(0, 0)
    os.write(1, b'parent %d\\n' % os.getpid())
    time.sleep(60)
time.sleep(60)";
    let runner = TestRunner::start(&["--", "python3", "-c", script]);
    let mut client = Client::connect(runner.addr, "/ws-client");
    runner.wait_for_log("the child is up");
    let line = runner.wait_for_log("parent ");
    let parent: u32 = line
        .rsplit(' ')
        .next()
        .and_then(|id| id.parse().ok())
        .expect("a number");
    client.socket.close(1000);
    client.end();
    let end = runner.wait_for_log("session ended: caller left");
    signal("KILL", parent);
    assert!(end.contains("INFO") && !end.contains("the bot failed"), "{end}");
}

/// A runner that inherits orphans, as the first process of a container does, reaps those that its
/// programs leave behind, and still learns how each program ended.
#[test]
fn orphans_of_programs_are_reaped() {
    const SUBREAPER: &str = "import ctypes, os, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])";
    // The orphan is in a session of its own, so the end of the group does not reap it.
    let script = "setsid sh -c 'echo $$ > orphan.$0; exec sleep 0.2' $$ &
while [ ! -s orphan.$$ ]; do sleep 0.01; done
exit 3";
    let runner = TestRunner::start_through(&["python3", "-c", SUBREAPER], &["--", "/bin/sh", "-c", script], &[]);
    for _ in 0..3 {
        Client::connect(runner.addr, "/ws-client").end();
    }
    runner.wait_for_logs("exit status: 3", 3);
    let files = fs::read_dir(runner.path(".")).expect("a folder").flatten();
    let orphans: Vec<_> = files
        .filter(|file| file.file_name().to_string_lossy().starts_with("orphan."))
        .map(|file| fs::read_to_string(file.path()).expect("its process id"))
        .collect();
    assert_eq!(orphans.len(), 3);
    let began = Instant::now();
    while orphans
        .iter()
        .any(|id| fs::exists(format!("/proc/{}", id.trim())).expect("procfs"))
    {
        assert!(began.elapsed() < PATIENCE, "zombies are left: {orphans:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A program that never opens or never reads its media buffers a bounded amount of the caller's
/// messages.
#[test]
fn memory_is_bounded_when_the_program_does_not_read() {
    let runner = shell(SLEEPING_COMMAND);
    let mut client = Client::connect(runner.addr, "/ws-client");
    let started = BotProcess::of(&runner, |_| true);
    let before_kib = runner.peak_kib();
    let long = "x".repeat(100_000);
    let flood = |client: &mut Client| {
        for n in 0..200 {
            client.tell("client-message", &n.to_string(), &json!({"t": "x", "d": long}));
            client.say(&[1_000; 320], 16_000);
        }
    };
    flood(&mut client);
    let (address, path) = started.media();
    let media = Socket::try_connect(
        address,
        &path,
        ConnectOptions {
            reads_nothing: true,
            ..ConnectOptions::default()
        },
    );
    let media = media.unwrap_or_else(|refused| panic!("{refused:?}"));
    flood(&mut client);
    // It does not read, and can still send.
    media.message(r#"{"label":"rtvi-ai","type":"server-message","data":"done"}"#);
    client.hear_message("the program", |message| message["data"] == "done");
    // An answer means that everything before it was taken.
    client.socket.close(1000);
    client.end();
    let grown_kib = runner.peak_kib() - before_kib;
    println!("grown by {grown_kib} KiB");
    // The caller sends 40 MB.
    assert!(grown_kib < 12 * 1024, "grown by {grown_kib} KiB");
    runner.wait_for_sessions(0);
}

/// A program that sends minutes of speech at once is read in real time, and can be interrupted.
#[test]
fn memory_is_bounded_when_the_program_sends_faster_than_real_time() {
    let runner = shell(SLEEPING_COMMAND);
    let (mut client, program) = talk(&runner);
    client.say(&[0; 320], 16_000);
    let before_kib = runner.peak_kib();
    // Ten minutes: 29 MB.
    for _ in 0..60 {
        program.say(&vec![800; 240_000], 24_000);
    }
    client.hear_until("a second", |client| client.received.len() >= 24_000);
    client.assert_paced(0.04);
    let grown_kib = runner.peak_kib() - before_kib;
    println!("grown by {grown_kib} KiB");
    assert!(grown_kib < 8 * 1024, "grown by {grown_kib} KiB");
    client.socket.close(1000);
    client.end();
    wait_for_end(program.process);
}

/// Data that is no frame ends the program and its session, with the code of the reason.
#[test]
fn a_protocol_error_ends_the_program_and_its_session() {
    let offences: [(&str, SocketEvent, u16); 3] = [
        ("a text message", SocketEvent::Text("{}".into()), 1003),
        ("a bad frame", SocketEvent::Binary(vec![0xff; 9].into()), 1007),
        (
            "audio at 7999 Hz",
            SocketEvent::Binary(frames::audio(&[0; 160], 7_999).into()),
            1008,
        ),
    ];
    for (words, what, code) in offences {
        let runner = shell(SLOW_EXIT_COMMAND);
        let (mut client, mut program) = talk(&runner);
        match what {
            SocketEvent::Text(text) => program.socket.text(text),
            SocketEvent::Binary(bytes) => program.socket.binary(bytes),
            _ => unreachable!("neither is sent"),
        }
        assert_eq!(program.end().map(|(code, _)| code), Some(code), "{words}");
        assert_eq!(client.end(), Some((1011, "the bot failed".into())), "{words}");
        wait_for_end(program.process);
        runner.wait_for_log(words);
    }
    let runner = shell(SLOW_EXIT_COMMAND);
    let (mut client, mut program) = talk(&runner);
    program.socket.message(&"x".repeat(PROCESS_MESSAGE_BYTES_MAX));
    assert_eq!(program.end().map(|(code, _)| code), Some(1009));
    assert_eq!(client.end(), Some((1011, "the bot failed".into())));
}

/// D-33: an error names a command that cannot be run, before the first session.
#[test]
fn a_command_that_cannot_be_run_is_refused_at_start() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let script = folder.join(format!("plain-{}", std::process::id()));
    fs::write(&script, "#!/bin/sh\n").expect("the build's folder is writable");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).expect("it is the test's");
    let plain = script.to_str().expect("text");
    for command in ["no-such-program-4f1c", "/nonexistent/bot", plain, "/"] {
        let ended = TestRunner::run(&["--port", "0", "--rtc-port", "0", "--", command, "--option"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(command), "{ended:?}");
        assert!(!ended.stdout.contains("listening"), "{ended:?}");
    }
    fs::remove_file(&script).expect("it is the test's");
    let ended = TestRunner::run(&["--port", "0", "--rtc-port", "0", "--"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

/// A complete program: it finds its media through its environment, echoes, and ends with the
/// session.
#[test]
fn a_complete_program_echoes() {
    let own = std::env::current_exe().expect("this is a program");
    let own = own.to_str().expect("text");
    let name = "processes::the_program_that_echoes";
    let runner = &TestRunner::start(&["--", own, "--exact", name, "--ignored", "--nocapture"]);
    assert_echo_of_each_provider(runner.addr);
    runner.wait_for_sessions(0);
}

/// The program of the test above, which runs it in processes of its own.
#[test]
#[ignore = "it is the bot of another test"]
fn the_program_that_echoes() {
    let Ok(arguments) = std::env::var("RUNNER_ARGUMENTS") else {
        return;
    };
    let started = BotProcess {
        process: std::process::id(),
        arguments: serde_json::from_str(&arguments).expect("JSON"),
    };
    let (address, path) = started.media();
    let mut media = Socket::connect(address, &path);
    loop {
        match media.next("a frame").event {
            SocketEvent::Binary(bytes) => {
                if let ProtobufFrame::Audio { pcm, rate_hz, channels } = frames::decode(bytes).expect("a frame") {
                    let mut samples = Vec::new();
                    frames::samples(&pcm, channels, &mut samples).expect("whole samples");
                    media.audio(&samples, rate_hz);
                }
            }
            SocketEvent::Gone(_) => return,
            SocketEvent::Text(_) | SocketEvent::Close(..) => {}
        }
    }
}
