//! Sessions in LiveKit rooms: the real binary, the server in `tests/support/livekit`, and a
//! participant as the caller.
//!
//! `tests/peers/room` runs the published LiveKit client against the same server.

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::http;
use crate::support::livekit::{Options, Order, Server};
use crate::support::participant::TestParticipant;
use crate::support::program::{BotProcess, SLEEPING_COMMAND};
use crate::support::runner::TestRunner;
use crate::support::sound::{FRAME, RATE_HZ, Speech, tone_share};

/// A server and its runtime.
pub struct TestServer {
    runtime: Runtime,
    server: Option<Server>,
}

impl TestServer {
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("a thread");
        let server = runtime.block_on(Server::start(options)).expect("free ports");
        TestServer {
            runtime,
            server: Some(server),
        }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it is there but in a restart")
    }

    /// A runner that is configured for the server.
    pub fn runner(&self, args: &[&str]) -> TestRunner {
        let options = Options::default();
        let url = self.server().url();
        TestRunner::start_with(
            args,
            &[
                ("MEDIAROOM_URL", &url),
                ("MEDIAROOM_API_KEY", &options.key),
                ("MEDIAROOM_API_SECRET", &options.secret),
            ],
        )
    }

    fn join(&self, answer: &Value) -> TestParticipant {
        let text = |name: &str| answer[name].as_str().expect("a text").to_owned();
        TestParticipant::join(self.runtime.handle(), &text("url"), &text("token"))
    }

    /// Returns the identities of the participants in the room.
    pub fn identities(&self, answer: &Value) -> Vec<String> {
        let stats = self.runtime.block_on(self.server().stats());
        let room = stats.rooms.get(answer["roomName"].as_str().expect("a name"));
        room.into_iter().flat_map(|present| present.keys().cloned()).collect()
    }

    fn restart(&mut self) {
        let server = self.server.take().expect("it is there");
        self.server = Some(self.runtime.block_on(server.restart(false)).expect("the same ports"));
    }
}

pub fn start_session(runner: &TestRunner, body: &Value) -> Value {
    let request = json!({"transport": "mediaroom", "body": body}).to_string();
    let headers = ["Content-Type: application/json"];
    let reply = http::request(runner.addr, "POST", "/start", &headers, request.as_bytes()).expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// A session whose room has no caller is evicted by a client address with fewer sessions; one with
/// a caller is not.
#[test]
fn evicts_the_session_of_a_room_without_participants() {
    let livekit = TestServer::new();
    let runner = livekit.runner(&["--bot", "echo", "--max-sessions", "2"]);
    let ask = |from: u8| {
        let connection = http::KeepAlive::from([127, 0, 0, from].into(), runner.addr);
        let request = json!({"transport": "mediaroom"});
        let reply = connection.and_then(|mut connection| connection.post("/start", &[], &request));
        reply.expect("an answer")
    };
    let (first, second) = (ask(2), ask(2));
    assert_eq!((first.status, second.status), (200, 200));
    let participant = livekit.join(&first.json());
    participant.wait_for("the bot", |seen| seen.others.contains(&agent(&first.json())));
    let honest = ask(1);
    assert_eq!(honest.status, 200, "{}", honest.text());
    runner.wait_for_log("session ended: never connected");
    assert_eq!(runner.sessions(), 2);
    assert!(
        livekit.identities(&first.json()).contains(&agent(&first.json())),
        "its participant keeps its bot"
    );
}

fn agent(answer: &Value) -> String {
    format!("Agent-{}", &answer["sessionId"].as_str().expect("a name")[..8])
}

fn tone(hz: f64) -> Speech {
    Speech::Tone { hz }
}

/// Waits until a participant hears this tone.
fn wait_for_tone(participant: &TestParticipant, hz: f64) {
    participant.clear_audio();
    participant.wait_for("tone", |seen| {
        let tail = seen.received.len().saturating_sub(RATE_HZ as usize);
        seen.received.len() > RATE_HZ as usize && tone_share(&seen.received[tail..], hz) > 0.8
    });
}

/// R-011, R-022: a tone and messages pass both ways. An empty room ends the session; the log
/// contains neither names nor tokens.
#[test]
fn a_participant_talks_with_the_bot() {
    let livekit = TestServer::new();
    let runner = livekit.runner(&["--bot", "echo", "-t", "mediaroom"]);
    let answer = start_session(&runner, &json!({}));
    let participant = livekit.join(&answer);
    participant.wait_for("bot", |seen| seen.others.contains(&agent(&answer)));
    participant.talk(Some(tone(440.0)));
    wait_for_tone(&participant, 440.0);
    participant.say(
        r#"{"label":"rtvi-ai","type":"client-ready","id":"7","data":{"version":"2.0.0","about":{"library":"t"}}}"#,
    );
    participant.wait_for("bot-ready", |seen| {
        seen.texts
            .iter()
            .any(|text| text.contains("bot-ready") && text.contains(r#""id":"7""#))
    });
    participant.leave();
    runner.wait_for_log("no caller is connected");
    runner.wait_for_log("session ended: caller left");
    runner.wait_for_sessions(0);
    let log = runner.log();
    for secret in [&answer["token"], &answer["roomName"], &json!("User-")] {
        assert!(!log.contains(secret.as_str().expect("a text")), "{log}");
    }
}

/// The server is killed and restarts on its ports. The same session continues with a caller who
/// returned.
#[test]
fn a_session_survives_a_server_restart() {
    let mut livekit = TestServer::with(Options {
        ice_lite: false,
        udp_port: None,
        ..Options::default()
    });
    let runner = livekit.runner(&["--bot", "echo"]);
    let answer = start_session(&runner, &json!({}));
    let participant = livekit.join(&answer);
    participant.talk(Some(tone(440.0)));
    wait_for_tone(&participant, 440.0);
    livekit.restart();
    participant.wait_for("its end", |seen| seen.is_over);
    let participant = livekit.join(&answer);
    participant.talk(Some(tone(1_000.0)));
    participant.wait_for("bot", |seen| seen.others.contains(&agent(&answer)));
    wait_for_tone(&participant, 1_000.0);
    runner.wait_for_log("a caller is connected again");
    assert_eq!(
        (runner.sessions(), runner.wait_for_logs("session started", 1).len()),
        (1, 1)
    );
    // Another participant with the bot's identity replaces it and ends the session.
    livekit.server().order(Order::Evict {
        identity: agent(&answer),
        reason: 2,
    });
    runner.wait_for_log("session ended: replaced");
    runner.wait_for_sessions(0);
}

/// A program is in the room once it has connected, and not before: one that joins by itself must
/// not be evicted. Then it hears, speaks, reads, writes, and learns who joins and leaves.
#[test]
fn a_program_joins_the_room_once_it_connects() {
    let livekit = TestServer::new();
    let runner = livekit.runner(&["--", "/bin/sh", "-c", SLEEPING_COMMAND]);
    let answer = start_session(&runner, &json!({"lang": "en"}));
    let started = BotProcess::of(&runner, |arguments| arguments["kind"] == "mediaroom");
    assert_eq!(started.arguments["room_name"], answer["roomName"]);
    assert_eq!(started.arguments["body"], json!({"lang": "en"}));
    let participant = livekit.join(&answer);
    participant.wait_for("media", |seen| seen.connected.len() == 2);
    let identity = format!("User-{}", &answer["sessionId"].as_str().expect("a name")[..8]);
    assert_eq!(livekit.identities(&answer), [&*identity], "the runner is not there");

    let mut program = started.connect_media();
    participant.wait_for("bot", |seen| seen.others.contains(&agent(&answer)));
    let joined = program.hear_message("who is there", |message| message["type"] == "participant-joined");
    assert_eq!(
        (&joined["identity"], &joined["agent"]),
        (&json!(identity), &json!(false))
    );
    participant.talk(Some(tone(440.0)));
    program.hear_until("a voice", |program| {
        let voice: Vec<i16> = program.received.concat();
        voice.len() > 16_000 && tone_share(&voice[voice.len() - 16_000..], 440.0) > 0.8
    });
    program.hear_message("who speaks", |message| {
        message["type"] == "speaking" && message["speaking"] == true
    });
    participant.say(r#"{"type":"hello"}"#);
    program.hear_message("a text", |message| message["type"] == "hello");
    program.tell(&json!({"type": "answer"}));
    participant.wait_for("text", |seen| {
        seen.texts.iter().any(|text| text == r#"{"type":"answer"}"#)
    });
    let said: Vec<i16> = (0..300).flat_map(|at| tone(1_000.0).frame(at * FRAME)).collect();
    program.say(&said, RATE_HZ);
    wait_for_tone(&participant, 1_000.0);
    participant.talk(None);
    participant.leave();
    program.hear_message("who left", |message| message["type"] == "participant-left");
    assert_eq!(program.end().map(|(code, _)| code), Some(1000));
    runner.wait_for_sessions(0);
}

/// A program whose room cannot be joined learns the reason, and its session ends. No log level
/// contains a token, even if the server repeats it.
#[test]
fn a_program_gets_the_reason_of_a_failed_join() {
    let livekit = TestServer::new();
    livekit.server().order(Order::Refuse {
        status: 401,
        words: "invalid token: eyJhbGciOiJIUzI1NiJ9.e30.c2lnbmF0dXJl".into(),
    });
    let runner = livekit.runner(&["-vvv", "--", "/bin/sh", "-c", SLEEPING_COMMAND]);
    let answer = start_session(&runner, &json!({}));
    let started = BotProcess::of(&runner, |_| true);
    let tokens = [
        answer["token"].clone(),
        started.arguments["token"].clone(),
        json!("eyJhbGciOiJIUzI1NiJ9"),
    ];
    let mut program = started.connect_media();
    let failed = program.hear_message("the failure", |message| message["type"] == "join-failed");
    assert!(
        failed["error"]
            .as_str()
            .expect("words")
            .contains("MEDIAROOM_API_SECRET"),
        "{failed}"
    );
    program.end();
    runner.wait_for_log("the room was not entered");
    runner.wait_for_sessions(0);
    runner.wait_for_log("the server said: text that is not logged");
    let log = runner.log();
    for token in tokens {
        assert!(!log.contains(token.as_str().expect("a text")), "a token is in the log");
    }
}

/// A stopping runner leaves the room and exits in time.
#[test]
fn a_stopping_runner_leaves_its_rooms() {
    let livekit = TestServer::new();
    let mut runner = livekit.runner(&["--bot", "echo"]);
    let answer = start_session(&runner, &json!({}));
    let participant = livekit.join(&answer);
    participant.wait_for("bot", |seen| seen.others.contains(&agent(&answer)));
    participant.talk(Some(tone(440.0)));
    wait_for_tone(&participant, 440.0);
    runner.signal("TERM");
    // Without a leave the server would keep the bot for 5 s.
    participant.wait_for("the bot's leave", |seen| seen.others.is_empty());
    assert!(runner.wait().success());
    assert!(runner.log().contains("session ended: runner stopped"));
}
