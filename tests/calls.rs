//! `/calls` of the real binary: what is recorded of calls, who may read it, and how it is turned
//! off.

use std::time::{Duration, Instant};

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::support::follower::Follower;
use crate::support::http::{self, Reply};
use crate::support::program::wait_until;
use crate::support::provider::{Caller, Provider};
use crate::support::rest::{RecordedRequest, Rest};
use crate::support::runner::{PATIENCE, TestRunner, folder};
use crate::support::socket::{ConnectOptions, Socket};

fn ask(runner: &TestRunner, target: &str, headers: &[&str]) -> Reply {
    http::request(runner.addr, "GET", target, headers, b"").expect("an answer")
}

fn calls(runner: &TestRunner, query: &str) -> Vec<Value> {
    let reply = ask(runner, &format!("/calls{query}"), &[]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["calls"].as_array().expect("a list").clone()
}

/// A call is in the list while it lives and afterwards, with the reason of its end.
#[test]
fn a_call_is_recorded_from_its_start_to_its_end() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    assert_eq!(calls(&runner, ""), Vec::<Value>::new());
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    caller.say(&[0; 160]);
    runner.wait_for_log("session started: twilio");
    let live = &calls(&runner, "")[0];
    assert_eq!(
        (&live["state"], &live["transport"], &live["outcome"]),
        (&json!("live"), &json!("telephony_a"), &Value::Null)
    );
    caller.stop();
    runner.wait_for_sessions(0);
    let ended = &calls(&runner, "?outcome=left")[0];
    assert_eq!(
        (&ended["id"], &ended["state"], &ended["endedBy"], &ended["reason"]),
        (&live["id"], &json!("ended"), &json!("caller"), &json!("caller left"))
    );
    let path = format!("/calls/{}", ended["id"].as_str().expect("an id"));
    let call = ask(&runner, &path, &[]).json();
    assert_eq!((&call["turns"], &call["keys"]), (&json!([]), &json!(0)));
    assert!(
        call["counts"]["frames_in"].as_u64().is_some_and(|frames| frames > 0),
        "{call}"
    );
    assert_eq!(calls(&runner, "?transport=webrtc"), Vec::<Value>::new());
    assert_eq!(ask(&runner, "/calls/none", &[]).status, 404);
    let wrong = ask(&runner, "/calls?since=noon", &[]);
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("`since` takes a time"), "{}", wrong.text());
    let unknown = ask(&runner, "/calls?reason=left", &[]);
    assert_eq!(unknown.status, 400);
    assert!(unknown.text().contains("`reason` is no field"), "{}", unknown.text());
}

/// A call that finds no place is recorded, on each transport and with what is known of it.
#[test]
fn calls_that_find_no_place_are_recorded() {
    let folder = folder().join("calls");
    let path = folder.to_str().expect("a path");
    let arguments = [
        "--bot",
        "echo",
        "--max-sessions",
        "1",
        "-t",
        "twilio",
        "-x",
        "localhost",
    ];
    let kept = ["--calls-dir", path, "--drain", "60"];
    let runner = TestRunner::start(&[&arguments[..], &kept[..]].concat());
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    caller.say(&[0; 160]);
    runner.wait_for_sessions(1);
    let no_place = |target: &str| {
        let refused = Socket::try_connect(runner.addr, target, ConnectOptions::default());
        assert_eq!(refused.err().map(|refused| refused.status), Some(503), "{target}");
    };
    no_place("/ws");
    runner.signal("TERM");
    runner.wait_for_log("waiting up to 60 s");
    no_place("/ws");
    let form = "CallSid=CA1&From=%2B4366012345&To=%2B431";
    let headers = ["Content-Type: application/x-www-form-urlencoded"];
    for _ in 0..2 {
        let reply = http::request(runner.addr, "POST", "/", &headers, form.as_bytes()).expect("an answer");
        assert_eq!(reply.status, 503);
    }
    let members = |call: &Value| {
        ["transport", "provider", "caller", "callee", "endedBy", "state"].map(|member| call[member].clone())
    };
    let [telephony, twilio] = ["telephony_a", "twilio"].map(Value::from);
    let (runner_ended, ended) = (json!("runner"), json!("ended"));
    let of = |from: Value, to: Value| [&telephony, &twilio, &from, &to, &runner_ended, &ended].map(Value::clone);
    let full = http::calls_of(runner.addr, "full");
    assert_eq!(
        full.iter().map(members).collect::<Vec<_>>(),
        [of(Value::Null, Value::Null)]
    );
    assert_eq!(full[0]["reason"], "every session of the runner was taken");
    // What its provider asks for twice is one call.
    let stopping = http::calls_of(runner.addr, "stopping");
    assert_eq!(
        stopping.iter().map(members).collect::<Vec<_>>(),
        [of(json!("+4366012345"), json!("+431")), of(Value::Null, Value::Null)]
    );
    let metrics = http::get(runner.addr, "/metrics").text();
    for line in [
        "edge_runner_calls_refused_total{outcome=\"full\"} 1\n",
        "edge_runner_calls_refused_total{outcome=\"stopping\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    caller.stop();
    let mut runner = runner;
    assert!(runner.wait().success());
    let lines = |prefix: &str| {
        let files = std::fs::read_dir(&folder).expect("a folder");
        let paths = files.map(|entry| entry.expect("readable").path());
        let ours = paths.filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        });
        ours.map(|path| std::fs::read_to_string(path).expect("readable").lines().count())
            .sum::<usize>()
    };
    assert_eq!((lines("calls-"), lines("refused-")), (1, 3));
}

/// Callers who connect to the runner have an address in their records, refused ones too.
#[test]
fn a_record_has_the_address_of_who_connects() {
    for (texts, address) in [("on", json!("127.0.0.1")), ("off", Value::Null)] {
        let runner = TestRunner::start(&["--bot", "echo", "--max-sessions", "1", "--calls-texts", texts]);
        let client = Socket::connect(runner.addr, "/ws-client");
        client.audio(&[0; 320], 16_000);
        runner.wait_for_sessions(1);
        let refused = Socket::try_connect(runner.addr, "/ws-client", ConnectOptions::default());
        assert!(refused.is_err());
        let rows = calls(&runner, "?transport=websocket");
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!((&row["address"], &row["provider"]), (&address, &Value::Null));
        }
    }
}

/// A program that ends with other words than its error is recorded with both, uncut, and without
/// advice about other programs.
#[test]
fn a_bot_that_fails_at_its_start_is_recorded_with_its_error() {
    let error = format!("Error: no model{}", ", nor another".repeat(12));
    let script = format!("printf '%s\n    at load (a.js:1:2)\n\nNode.js v20.20.2\n' '{error}' >&2; exit 1");
    let runner = TestRunner::start(&["--", "/bin/sh", "-c", &script]);
    let _caller = Caller::dial(runner.addr, Provider::Twilio);
    wait_until(|| !calls(&runner, "?outcome=bot_failed").is_empty(), || runner.log());
    let call = http::last_call(runner.addr, &[]);
    let expected = format!("(its last lines: {error} / Node.js v20.20.2)");
    let said = call["bot_error"].as_str().expect("an error");
    assert!(said.ends_with(&expected), "{said}");
}

/// What a bot reports is in the record although its caller gets no messages.
#[test]
fn a_telephone_call_has_the_texts_of_its_bot() {
    let runner = TestRunner::start(&["--bot", "parrot"]);
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    runner.wait_for_log("session started: twilio");
    // A quiet room, a loud voice of half a second, and the pause that ends a turn, at 8 kHz.
    let pcm = |ms: usize, loud: f64| -> Vec<i16> {
        let sample = |at: usize| (loud * (at as f64 * 0.7).sin()) as i16;
        (0..8 * ms).map(sample).collect()
    };
    caller.say(&[pcm(600, 30.0), pcm(500, 8_000.0), pcm(800, 30.0)].concat());
    let texts = |runner: &TestRunner| -> Vec<Value> {
        let live = &calls(runner, "")[0];
        let path = format!("/calls/{}", live["id"].as_str().expect("an id"));
        let call = ask(runner, &path, &[]).json();
        call["turns"].as_array().expect("a list").clone()
    };
    let deadline = Instant::now() + PATIENCE;
    let is_complete = |text: &Value| {
        let words = text["text"].as_str().expect("a text");
        text["by"] == "bot" && words.contains("You spoke for 0.")
    };
    while !texts(&runner).iter().any(is_complete) {
        assert!(Instant::now() < deadline, "{:?}", texts(&runner));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        texts(&runner)[0]["text"].to_string().contains("Say something"),
        "{:?}",
        texts(&runner)
    );
    caller.press("7");
    caller.stop();
    runner.wait_for_sessions(0);
    let ended = &calls(&runner, "?outcome=left")[0];
    let path = format!("/calls/{}", ended["id"].as_str().expect("an id"));
    let call = ask(&runner, &path, &[]).json();
    assert_eq!(call["keys"], 1);
    assert!(
        !call["turns"].to_string().contains("You pressed"),
        "a key may be a part of a PIN: {call}"
    );
}

/// A client is sent the start of a call, its texts and its end, and the stream ends with the
/// runner.
#[test]
fn calls_are_followed() {
    let mut runner = TestRunner::start(&["--bot", "echo"]);
    let mut follower = Follower::connect(runner.addr, &[]);
    assert_eq!(follower.line("HTTP/1.").as_deref(), Some("0 200 OK"));
    assert_eq!(follower.line("content-type: ").as_deref(), Some("text/event-stream"));
    assert_eq!(follower.line("retry: ").as_deref(), Some("3000"));
    let socket = Socket::connect(runner.addr, "/ws-client");
    let (name, row) = follower.event();
    assert_eq!(
        (&*name, &row["state"], &row["transport"]),
        ("started", &json!("live"), &json!("websocket"))
    );
    let typed = json!({"label": "rtvi-ai", "type": "send-text", "id": "1", "data": {"content": "Open the door"}});
    socket.message(&typed.to_string());
    let (name, text) = follower.event();
    assert_eq!((&*name, &text["id"], &text["nth"]), ("text", &row["id"], &json!(0)));
    assert_eq!(
        (&text["by"], &text["text"]),
        (&json!("caller"), &json!("Open the door"))
    );
    socket.close(1000);
    // The bot may answer first.
    let mut events = std::iter::repeat_with(|| follower.event());
    let (name, record) = events.find(|(name, _)| name != "text").expect("an end");
    assert_eq!(
        (&*name, &record["id"], &record["outcome"]),
        ("ended", &row["id"], &json!("left"))
    );
    assert_eq!(record["turns"][0]["text"], "Open the door");
    // The end of the runner does not wait for a client that follows.
    runner.signal("TERM");
    assert_eq!(follower.line("event: "), None);
    assert!(runner.wait().success());
}

/// What is kept of calls is for those that may list live sessions.
#[test]
fn records_of_calls_are_guarded_as_live_sessions_are() {
    let key = "key-of-the-tests-0123456789";
    let open = TestRunner::start(&[]);
    let keyed = TestRunner::start(&["--api-key", key]);
    let shared = TestRunner::start(&["--metrics", "any"]);
    let authorization = format!("Authorization: Bearer {key}");
    // The head of a stream is all that is asked for.
    for (method, target, found) in [
        ("GET", "/calls", 200),
        ("GET", "/calls/none", 404),
        ("HEAD", "/calls/events", 200),
    ] {
        let status = |runner: &TestRunner, headers: &[&str]| {
            let reply = http::request(runner.addr, method, target, headers, b"");
            reply.expect("an answer").status
        };
        assert_eq!(status(&open, &[]), found);
        assert_eq!(status(&open, &["X-Forwarded-For: 203.0.113.7"]), 403);
        assert_eq!(status(&open, &["Origin: https://evil.example"]), 403);
        assert_eq!(status(&keyed, &[]), 401);
        assert_eq!(status(&keyed, &[&authorization]), found);
        assert_eq!(status(&shared, &[]), 403);
    }
}

#[test]
fn without_kept_calls_there_are_no_records() {
    let runner = TestRunner::start(&["--calls-kept", "0"]);
    let reply = ask(&runner, "/calls", &[]);
    assert_eq!(reply.status, 404);
    assert!(reply.text().contains("--calls-kept 0"), "{}", reply.text());
}

/// A record is on the disk when the call is over, also of a call that the end of the runner ends.
#[test]
fn records_are_written_to_a_folder() {
    let folder = folder().join("calls");
    let path = folder.to_str().expect("a path");
    let mut runner = TestRunner::start(&["--bot", "echo", "--calls-dir", path]);
    for ends_itself in [true, false] {
        let mut caller = Caller::dial(runner.addr, Provider::Twilio);
        caller.say(&[0; 160]);
        runner.wait_for_sessions(1);
        if ends_itself {
            caller.stop();
            runner.wait_for_sessions(0);
        } else {
            runner.signal("TERM");
            assert!(runner.wait().success());
        }
    }
    let files: Vec<_> = std::fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("readable").path())
        .collect();
    let text = std::fs::read_to_string(&files[0]).expect("readable");
    let outcomes: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["outcome"].clone())
        .collect();
    assert_eq!((files.len(), outcomes), (1, vec![json!("left"), json!("shutdown")]));
    let wrong = TestRunner::run(&["--calls-dir", "/proc/none"]);
    assert!(wrong.stderr.contains("--calls-dir /proc/none:"), "{}", wrong.stderr);
}

/// A folder that is gone for a while, like a disk that was unplugged, loses no record.
#[test]
fn records_wait_for_a_folder_that_is_gone() {
    let folder = folder().join("calls");
    let elsewhere = folder.with_extension("unplugged");
    let mut runner = TestRunner::start(&["--bot", "echo", "--calls-dir", folder.to_str().expect("a path")]);
    call(&runner);
    std::fs::rename(&folder, &elsewhere).expect("renamed");
    call(&runner);
    let warning = runner.wait_for_log("records or events of calls are not written to");
    assert!(warning.contains("they wait until they can be"), "{warning}");
    std::fs::rename(&elsewhere, &folder).expect("renamed");
    call(&runner);
    runner.wait_for_log("again, with those that waited");
    let metrics = http::get(runner.addr, "/metrics").text();
    assert!(
        metrics.contains("edge_runner_call_records_dropped_total 0\n"),
        "{metrics}"
    );
    runner.signal("TERM");
    assert!(runner.wait().success());
    let file = std::fs::read_dir(&folder).expect("a folder").next().expect("a file");
    let text = std::fs::read_to_string(file.expect("readable").path()).expect("readable");
    let ids: std::collections::BTreeSet<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["id"].to_string())
        .collect();
    assert_eq!((text.lines().count(), ids.len()), (3, 3), "{text}");
}

const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// What only the receiver should see.
const PATH: &str = "hooks-8f1c";

/// Starts a runner that posts events.
fn posting(receiver: &Rest, more: &[&str]) -> TestRunner {
    let url = format!("{}/{PATH}", receiver.url());
    let secret = format!("whsec_{SECRET}");
    let args = [&["-v", "--bot", "echo", "--events", &url], more].concat();
    TestRunner::start_with(&args, &[("RUNNER_EVENTS_SECRET", &secret)])
}

/// Has a call, and waits for its end.
fn call(runner: &TestRunner) {
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    caller.say(&[0; 160]);
    runner.wait_for_sessions(1);
    caller.stop();
    runner.wait_for_sessions(0);
}

/// Ends a runner, whose log is neither for secrets nor for what is posted.
fn stop(runner: TestRunner) {
    runner.signal("TERM");
    let (_, log) = runner.last_words();
    for word in [SECRET, PATH, "call.started", "whsec_"] {
        assert!(!log.contains(word), "{word}: {log}");
    }
}

/// Returns the id and the type of an event, after a check of its signature.
fn event(request: &RecordedRequest) -> (String, String, Value) {
    let header = |name: &str| request.header(name).unwrap_or_else(|| panic!("no {name}"));
    let key = BASE64.decode(SECRET.as_bytes()).expect("base64");
    let signed = format!(
        "{}.{}.{}",
        header("webhook-id"),
        header("webhook-timestamp"),
        request.body
    );
    let mac = Hmac::<Sha256>::new_from_slice(&key)
        .expect("a key")
        .chain_update(signed);
    let signature = BASE64.encode(&mac.finalize().into_bytes());
    assert_eq!(header("webhook-signature"), format!("v1,{signature}"));
    assert_eq!((&*request.method, header("content-type")), ("POST", "application/json"));
    let body: Value = serde_json::from_str(&request.body).expect("JSON");
    let kind = body["type"].as_str().expect("a type").to_owned();
    (header("webhook-id").to_owned(), kind, body["data"].clone())
}

/// An event that was not accepted is posted again with its id; others are not held up by it.
#[test]
fn events_are_posted_until_they_are_accepted() {
    let receiver = Rest::start(&[(500, "{}"), (200, "{}")]);
    let runner = posting(&receiver, &[]);
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    caller.say(&[0; 160]);
    let warning = runner.wait_for_log("an event of a call was not accepted");
    assert!(warning.contains("127.0.0.1 answers with status 500"), "{warning}");
    caller.stop();
    runner.wait_for_log("accepts events of calls again");
    let metrics = http::get(runner.addr, "/metrics").text();
    for (outcome, counts) in [("accepted", &["1", "2"][..]), ("dropped", &["0"])] {
        let line = format!("edge_runner_call_events_total{{outcome=\"{outcome}\"}} ");
        let count = metrics.lines().find_map(|text| text.strip_prefix(&line));
        assert!(
            count.is_some_and(|count| counts.contains(&count)),
            "{outcome}: {metrics}"
        );
    }
    assert!(!metrics.contains("edge_runner_call_records"), "there is no --calls-dir");
    stop(runner);
    let asked = receiver.asked();
    let events: Vec<_> = asked.iter().map(event).collect();
    let of_kind = |wanted: &str| events.iter().filter(|(_, kind, _)| kind == wanted).collect::<Vec<_>>();
    let (started, ended) = (of_kind("call.started"), of_kind("call.ended"));
    assert_eq!((events.len(), started.len(), ended.len()), (3, 2, 1), "{events:?}");
    assert_eq!(started[0], started[1]);
    assert_ne!(started[0].0, ended[0].0);
    assert_eq!(
        (&ended[0].2["id"], &ended[0].2["outcome"]),
        (&started[0].2["id"], &json!("left"))
    );
}

/// What was not accepted when the runner ended is posted by the next one, and then not kept.
#[test]
fn events_are_kept_over_a_restart() {
    let folder = folder().join("calls");
    let dir = ["--calls-dir", folder.to_str().expect("a path")];
    let down = Rest::start(&[(503, "{}")]);
    let runner = posting(&down, &dir);
    call(&runner);
    stop(runner);
    let receiver = Rest::start(&[(200, "{}")]);
    let runner = posting(&receiver, &dir);
    runner.wait_for_log("2 events of calls from before the start are posted");
    stop(runner);
    let kinds: Vec<String> = receiver.asked().iter().map(|request| event(request).1).collect();
    assert_eq!(kinds, ["call.started", "call.ended"]);
    let kept = std::fs::read_dir(folder.join("events")).expect("a folder").count();
    assert_eq!(kept, 0);
}

/// Nor does the folder fill with them: those of before wait for the next start.
#[test]
fn a_receiver_that_is_gone_gets_no_more_events() {
    let folder = folder().join("calls");
    let receiver = Rest::start(&[(410, "{}")]);
    let runner = posting(&receiver, &["--calls-dir", folder.to_str().expect("a path")]);
    call(&runner);
    runner.wait_for_log("wants no more events of calls (status 410)");
    call(&runner);
    let ids: Vec<Value> = calls(&runner, "").iter().map(|call| call["id"].clone()).collect();
    stop(runner);
    assert_eq!((receiver.asked().len(), ids.len()), (1, 2));
    let kept = std::fs::read_dir(folder.join("events")).expect("a folder");
    let kept: Vec<Value> = kept
        .map(|event| {
            let text = std::fs::read_to_string(event.expect("readable").path()).expect("readable");
            serde_json::from_str::<Value>(&text).expect("JSON")["data"]["id"].clone()
        })
        .collect();
    assert!(
        !kept.is_empty() && kept.iter().all(|id| *id == ids[1]),
        "{kept:?} of {ids:?}"
    );
}

#[test]
fn events_need_a_url_and_a_secret() {
    let without = TestRunner::run(&["--events", "https://example.com/hook"]);
    assert!(
        without.stderr.contains("RUNNER_EVENTS_SECRET_FILE"),
        "{}",
        without.stderr
    );
    for (url, secret, names) in [
        (
            "https://user@example.com",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "--events",
        ),
        (
            "https://example.com",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "RUNNER_EVENTS_SECRET",
        ),
        ("https://example.com", "whsec_c2hvcnQ=", "RUNNER_EVENTS_SECRET"),
    ] {
        let wrong = TestRunner::run_with(&["--events", url], &[("RUNNER_EVENTS_SECRET", secret)]);
        assert!(wrong.stderr.contains(names), "{}", wrong.stderr);
        assert!(
            !wrong.stderr.contains(secret) && !wrong.stderr.contains("user@"),
            "{}",
            wrong.stderr
        );
    }
}

/// Asks for the recording of a call until its file is whole.
fn recording(runner: &TestRunner, id: &str) -> Reply {
    let start = Instant::now();
    loop {
        let reply = ask(runner, &format!("/calls/{id}/recording"), &[]);
        if reply.status == 200 {
            return reply;
        }
        assert!(start.elapsed() < PATIENCE, "{}", reply.text());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Both sides of a call are in one file, which the record of the call names.
#[test]
fn the_sound_of_a_call_is_recorded() {
    let folder = folder().join("sound");
    let runner = TestRunner::start(&["--bot", "echo", "--record", folder.to_str().expect("a path")]);
    assert_eq!(ask(&runner, "/status", &[]).json()["recording"], true);
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    let tone: Vec<i16> = (0..16_000)
        .map(|nth| if nth % 8 < 4 { 8_000 } else { -8_000 })
        .collect();
    caller.say(&tone);
    caller.hear_ms(1_000);
    caller.stop();
    runner.wait_for_sessions(0);
    let call = calls(&runner, "").remove(0);
    let (id, name) = (&call["id"], call["recording"].as_str().expect("a file"));
    let reply = recording(&runner, id.as_str().expect("an id"));
    assert_eq!(reply.header("content-type"), Some("audio/wav"));
    assert_eq!(reply.body, std::fs::read(folder.join(name)).expect("readable"));
    let number = |at: usize, bytes: usize| {
        let bytes = reply.body[at..at + bytes].iter().rev();
        bytes.fold(0, |number, byte| number << 8 | u32::from(*byte))
    };
    assert_eq!((&reply.body[..4], &reply.body[36..40]), (&b"RIFF"[..], &b"data"[..]));
    assert_eq!((number(22, 2), number(24, 4), number(34, 2)), (2, 8_000, 16));
    assert_eq!(number(40, 4) as usize, reply.body.len() - 44);
    let loud = |channel: usize| {
        let samples = reply.body[44..].chunks_exact(4);
        let samples = samples.map(|both| i16::from_le_bytes([both[2 * channel], both[2 * channel + 1]]));
        samples.filter(|sample| sample.unsigned_abs() > 4_000).count()
    };
    assert!(
        loud(0) > 4_000 && loud(1) > 4_000,
        "{} and {} samples",
        loud(0),
        loud(1)
    );
    // A file that a power cut left is completed by the next start.
    let part = folder.join("call-20260101T000000-cut.wav.part");
    std::fs::write(&part, &reply.body[..4_001]).expect("writable");
    drop(runner);
    let _runner = TestRunner::start(&["--record", folder.to_str().expect("a path")]);
    let whole = std::fs::read(part.with_extension("")).expect("it has its name");
    assert_eq!((whole.len(), &whole[40..44]), (4_000, &3_956_u32.to_le_bytes()[..]));
}

/// A caller that declines is not recorded, and one that asks for it in vain learns that.
#[test]
fn a_recording_can_be_declined() {
    let folder = folder().join("sound");
    let runner = TestRunner::start(&["--bot", "echo", "--record", folder.to_str().expect("a path")]);
    let start = |runner: &TestRunner, body: &Value| {
        let headers = ["Content-Type: application/json"];
        http::request(runner.addr, "POST", "/start", &headers, body.to_string().as_bytes()).expect("an answer")
    };
    for (nth, recorded) in [(1, false), (2, true)] {
        let reply = start(&runner, &json!({"transport": "websocket", "record": recorded}));
        let id = reply.json()["sessionId"].as_str().expect("an id").to_owned();
        let socket = Socket::connect(runner.addr, &format!("/ws-client?sessionId={id}"));
        runner.wait_for_logs("session started: websocket", nth);
        socket.close(1000);
        runner.wait_for_logs("session ended: ", nth);
        runner.wait_for_sessions(0);
        let rows = calls(&runner, "");
        assert_eq!((rows.len(), rows[0]["recording"].is_string()), (nth, recorded));
    }
    let silent = TestRunner::start(&["--bot", "echo"]);
    let reply = start(&silent, &json!({"transport": "websocket", "record": true}));
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("--record DIR"), "{}", reply.text());
    assert_eq!(
        start(&silent, &json!({"transport": "websocket", "record": false})).status,
        200
    );
    let wrong = TestRunner::run(&["--record", "/proc/none"]);
    assert!(wrong.stderr.contains("--record /proc/none:"), "{}", wrong.stderr);
}
