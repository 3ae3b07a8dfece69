//! Listening in (`--listen-in`): who may listen to a live call, what comes of it, and that the call
//! goes on as before.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use edge_runner_proto::limits::LISTENERS_OF_CALL_MAX;
use serde_json::{Value, json};
use str0m::media::Direction;

use crate::support::http::{self, Reply};
use crate::support::provider::{Caller, Provider};
use crate::support::runner::{PATIENCE, TestRunner, folder, wait_for_file};
use crate::support::socket::Socket;
use crate::support::sound::{RATE_HZ, Speech, tone_share};
use crate::support::whip::{Offers, Poster};

const KEY: &str = "listener-0123456789abcdef";
const CALLER_HZ: f64 = 440.0;
const BOT_HZ: f64 = 1_000.0;
const LISTENER: Offers = Offers::audio(Direction::RecvOnly);
const FRAME: Duration = Duration::from_millis(20);

fn authorization() -> String {
    format!("Authorization: Bearer {KEY}")
}

fn ask(runner: &TestRunner, method: &str, target: &str) -> Reply {
    http::request(runner.addr, method, target, &[&authorization()], b"").expect("an answer")
}

/// Starts a runner that lets operators listen, whose bot says a tone for two minutes and writes its
/// arguments to a file. Returns it with that file.
fn with_tone() -> (TestRunner, std::path::PathBuf) {
    let folder = folder();
    let (tone, arguments) = (folder.join("tone.pcm"), folder.join("arguments"));
    let speech = Speech::Tone { hz: BOT_HZ };
    let samples = (0..120 * 50).flat_map(|nth| speech.frame(nth * RATE_HZ as usize / 50));
    let bytes: Vec<u8> = samples.flat_map(i16::to_le_bytes).collect();
    std::fs::write(&tone, bytes).expect("writable");
    let script = format!(
        "printenv RUNNER_ARGUMENTS > {arguments}.part; mv {arguments}.part {arguments}; cat {tone}; exec cat > /dev/null",
        arguments = arguments.display(),
        tone = tone.display()
    );
    let rate = RATE_HZ.to_string();
    let bot = ["--bot-audio", "pcm", "--bot-rate", &rate, "--", "sh", "-c", &script];
    let args = [&["--api-key", KEY, "--listen-in"][..], &bot].concat();
    (TestRunner::start(&args), arguments)
}

/// Waits for the one live call, and returns its record.
fn live_call(runner: &TestRunner) -> Value {
    let start = Instant::now();
    loop {
        let calls = ask(runner, "GET", "/calls").json();
        if calls["calls"][0]["state"] == "live" {
            return calls["calls"][0].clone();
        }
        assert!(start.elapsed() < PATIENCE, "no call is live: {calls}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn path_of(call: &Value) -> String {
    format!("/calls/{}/listen", call["id"].as_str().expect("an id"))
}

/// Offers to listen, and returns the answer.
fn offer(runner: &TestRunner, path: &str) -> (Poster, Reply) {
    let listener = Poster::new(LISTENER);
    let reply = listener.post(runner, path, &[&authorization()]);
    (listener, reply)
}

fn listen(runner: &TestRunner, path: &str) -> Poster {
    let (mut listener, reply) = offer(runner, path);
    listener.take(&reply);
    listener.until("the connection", |listener| listener.connected);
    listener
}

/// Listens until the last second has both sides.
fn hear_both(listener: &mut Poster) {
    listener.until("both sides", |listener| {
        let second = RATE_HZ as usize;
        let Some(from) = listener.pcm.len().checked_sub(second) else {
            return false;
        };
        [CALLER_HZ, BOT_HZ]
            .iter()
            .all(|hz| tone_share(&listener.pcm[from..], *hz) > 0.2)
    });
}

/// A caller that says its tone in a thread until it has to hang up.
struct Talking {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Talking {
    fn start(mut turn: impl FnMut(Option<Duration>) + Send + 'static) -> Self {
        let (end, ended) = channel();
        let thread = thread::spawn(move || {
            while ended.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Timeout) {
                turn(Some(FRAME));
            }
            turn(None);
        });
        Talking {
            end: Some(end),
            thread: Some(thread),
        }
    }

    fn hang_up(mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the caller is well");
        }
    }
}

/// A telephone call. Both sides come, the listener is no session, the record and the log have
/// it, and it ends with the call.
#[test]
fn an_operator_hears_both_sides_of_a_telephone_call() {
    let (runner, arguments) = with_tone();
    assert_eq!(ask(&runner, "GET", "/status").json()["listen_in"], true);
    let mut caller = Caller::dial_at(runner.addr, "/ws", Provider::Twilio);
    let mut said = 0;
    let talking = Talking::start(move |frame| match frame {
        Some(frame) => {
            let pcm: [i16; 160] = std::array::from_fn(|at| {
                let seconds = (said + at) as f64 / 8_000.0;
                (8_000.0 * (std::f64::consts::TAU * CALLER_HZ * seconds).sin()) as i16
            });
            said += pcm.len();
            caller.say(&pcm);
            thread::sleep(frame);
        }
        None => caller.stop(),
    });
    let call = live_call(&runner);
    assert_eq!((&call["listen_in"], &call["listeners"]), (&json!(true), &json!(0)));
    let given: Value = serde_json::from_str(&wait_for_file(&arguments)).expect("JSON");
    assert_eq!((&given["listen_in"], &given["recorded"]), (&json!(true), &Value::Null));
    let path = path_of(&call);
    let mut listener = listen(&runner, &path);
    assert!(
        listener.location.starts_with(&format!("{path}/")),
        "{}",
        listener.location
    );
    assert!(listener.answer.contains("a=sendonly"), "{}", listener.answer);
    hear_both(&mut listener);
    runner.wait_for_log("a listener joined this call");
    assert_eq!(live_call(&runner)["listeners"], 1);
    assert_eq!(runner.sessions(), 1);
    talking.hang_up();
    listener.until("the end of the call", |listener| listener.gone);
    runner.wait_for_log("a listener left this call");
    runner.wait_for_sessions(0);
    let log = runner.log();
    let id = call["id"].as_str().expect("an id");
    let joined = log
        .lines()
        .find(|line| line.contains("a listener joined"))
        .expect("a line");
    assert!(joined.contains(&id[..8]), "{joined}");
    assert_eq!(log.matches("session ended").count(), 1, "{log}");
    assert_eq!(ask(&runner, "GET", &format!("/calls/{id}")).json()["listeners"], 1);
    let (_, over) = offer(&runner, &path);
    assert_eq!(
        (over.status, over.text().contains("no live call")),
        (404, true),
        "{}",
        over.text()
    );
}

/// A WebRTC call, which goes on when its listener is gone.
#[test]
fn a_listener_leaves_a_webrtc_call_as_it_was() {
    let (runner, _) = with_tone();
    let mut caller = Poster::new(Offers::audio(Direction::SendRecv));
    let reply = caller.post(&runner, "/whip", &[&authorization()]);
    caller.take(&reply);
    caller.say(Speech::Tone { hz: CALLER_HZ });
    caller.until("the connection", |caller| caller.connected);
    let talking = Talking::start(move |frame| match frame {
        Some(_) => caller.hear(1),
        None => assert!(tone_share(&caller.pcm, BOT_HZ) > 0.8, "the call itself is disturbed"),
    });
    let path = path_of(&live_call(&runner));
    let mut listener = listen(&runner, &path);
    hear_both(&mut listener);
    let other = listen(&runner, &path);
    let ended = ask(&runner, "DELETE", &listener.location);
    assert_eq!(ended.status, 200, "{}", ended.text());
    listener.until("the end", |listener| listener.gone);
    runner.wait_for_log("a listener left this call");
    assert_eq!(ask(&runner, "DELETE", &listener.location).status, 404);
    // Its id is good for nothing else.
    let id = other.location.rsplit('/').next().expect("an id").to_owned();
    assert_eq!(ask(&runner, "DELETE", &format!("/whip/s/{id}")).status, 404);
    assert_eq!(
        ask(&runner, "DELETE", &format!("/calls/another/listen/{id}")).status,
        404
    );
    let call = live_call(&runner);
    assert_eq!((&call["state"], &call["listeners"]), (&json!("live"), &json!(2)));
    talking.hang_up();
}

/// A call takes a number of listeners; those that were answered count, connected or not.
#[test]
fn listeners_of_a_call_are_limited() {
    let (runner, _) = with_tone();
    let _caller = Caller::dial_at(runner.addr, "/ws", Provider::Twilio);
    let path = path_of(&live_call(&runner));
    for _ in 0..LISTENERS_OF_CALL_MAX {
        assert_eq!(offer(&runner, &path).1.status, 201);
    }
    let full = offer(&runner, &path).1;
    assert_eq!(full.status, 503);
    assert!(full.text().contains("as many as may"), "{}", full.text());
    assert!(full.header("retry-after").is_some());
    assert_eq!(runner.sessions(), 1);
}

#[test]
fn only_the_key_opens_a_call_to_listeners() {
    let (runner, _) = with_tone();
    let _caller = Caller::dial_at(runner.addr, "/ws", Provider::Twilio);
    let path = path_of(&live_call(&runner));
    let listener = Poster::new(LISTENER);
    assert_eq!(listener.post(&runner, &path, &[]).status, 401);
    assert_eq!(
        listener.post(&runner, &path, &["Authorization: Bearer wrong"]).status,
        401
    );
    let foreign = listener.post(&runner, &path, &[&authorization(), "Origin: https://evil.example"]);
    assert_eq!(foreign.status, 403);
    let target = format!("{path}/0123");
    assert_eq!(
        http::request(runner.addr, "DELETE", &target, &[], b"")
            .expect("an answer")
            .status,
        401
    );
    assert_eq!(runner.log().matches("a listener").count(), 0);
}

/// What is no offer of a listener is refused with the reason.
#[test]
fn offers_that_hear_nothing_are_refused() {
    let (runner, _) = with_tone();
    let _caller = Caller::dial_at(runner.addr, "/ws", Provider::Twilio);
    let path = path_of(&live_call(&runner));
    let post = |path: &str, kind: &str, body: &str| {
        let authorization = authorization();
        let headers = [&*authorization, kind];
        http::request(runner.addr, "POST", path, &headers, body.as_bytes()).expect("an answer")
    };
    let sdp = "Content-Type: application/sdp";
    let good = Poster::new(LISTENER).bare_offer();
    let sending = Poster::new(Offers::audio(Direction::SendOnly)).bare_offer();
    for (path, kind, body, status, words) in [
        ("/calls/none/listen", sdp, &*good, 404, "no live call"),
        (&path, "Content-Type: application/json", &good, 415, "application/sdp"),
        (&path, sdp, &sending, 422, "recvonly"),
        (&path, sdp, "v=0", 400, ""),
    ] {
        let reply = post(path, kind, body);
        assert_eq!(reply.status, status, "{}", reply.text());
        assert!(reply.text().contains(words), "{}", reply.text());
    }
    assert_eq!(post(&path, sdp, &good).status, 201);
}

/// A call can decline listeners; none has any without the option, which needs a key.
#[test]
fn listening_in_can_be_declined_and_is_off() {
    let runner = TestRunner::start(&["--bot", "echo", "--api-key", KEY, "--listen-in"]);
    let authorization = authorization();
    let headers = [&*authorization, "Content-Type: application/json"];
    let body = json!({"transport": "websocket", "record": false}).to_string();
    let reply = http::request(runner.addr, "POST", "/start", &headers, body.as_bytes()).expect("an answer");
    let id = reply.json()["sessionId"].as_str().expect("an id").to_owned();
    let _socket = Socket::connect(runner.addr, &format!("/ws-client?sessionId={id}"));
    let call = live_call(&runner);
    assert_eq!(call["listen_in"], false);
    let reply = offer(&runner, &path_of(&call)).1;
    assert_eq!(reply.status, 403);
    assert!(reply.text().contains("record"), "{}", reply.text());

    let off = TestRunner::start(&["--bot", "echo", "--api-key", KEY]);
    assert_eq!(ask(&off, "GET", "/status").json()["listen_in"], Value::Null);
    let _caller = Caller::dial_at(off.addr, "/ws", Provider::Twilio);
    let reply = offer(&off, &path_of(&live_call(&off))).1;
    assert_eq!(reply.status, 404);
    assert!(reply.text().contains("--listen-in"), "{}", reply.text());
    let without = TestRunner::run(&["--bot", "echo", "--listen-in"]);
    assert!(
        without.stderr.contains("`--listen-in` needs an API key"),
        "{}",
        without.stderr
    );
}
