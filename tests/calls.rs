//! `/calls` of the real binary: what is recorded of calls, who may read it, and how it is turned
//! off.

use serde_json::{Value, json};

use crate::support::http::{self, Reply};
use crate::support::provider::{Caller, Provider};
use crate::support::runner::{TestRunner, folder};

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
        (&ended["id"], &ended["state"], &ended["ended_by"], &ended["reason"]),
        (&live["id"], &json!("ended"), &json!("caller"), &json!("caller left"))
    );
    let path = format!("/calls/{}", ended["id"].as_str().expect("an id"));
    let call = ask(&runner, &path, &[]).json();
    assert_eq!((&call["texts"], &call["keys"]), (&json!([]), &json!(0)));
    assert!(
        call["counts"]["frames_in"].as_u64().is_some_and(|frames| frames > 0),
        "{call}"
    );
    assert_eq!(calls(&runner, "?transport=webrtc"), Vec::<Value>::new());
    assert_eq!(ask(&runner, "/calls/none", &[]).status, 404);
    let wrong = ask(&runner, "/calls?since=noon", &[]);
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("`since` takes a time"), "{}", wrong.text());
}

/// What is kept of calls is for those that may list live sessions.
#[test]
fn records_of_calls_are_guarded_as_live_sessions_are() {
    let key = "key-of-the-tests-0123456789";
    let open = TestRunner::start(&[]);
    let keyed = TestRunner::start(&["--api-key", key]);
    let shared = TestRunner::start(&["--metrics", "any"]);
    let authorization = format!("Authorization: Bearer {key}");
    for (target, found) in [("/calls", 200), ("/calls/none", 404)] {
        let status = |runner, headers: &[&str]| ask(runner, target, headers).status;
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
