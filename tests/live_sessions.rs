//! `/sessions` of the real binary: who sees the live sessions, what is listed, and how one ends.

use serde_json::{Value, json};

use crate::support::http::{self, Reply};
use crate::support::program::wait_until;
use crate::support::provider::{Caller, Provider};
use crate::support::rest::Rest;
use crate::support::runner::TestRunner;

fn ask(runner: &TestRunner, method: &str, target: &str, headers: &[&str]) -> Reply {
    http::request(runner.addr, method, target, headers, b"").expect("an answer")
}

fn sessions(runner: &TestRunner) -> Vec<Value> {
    let reply = ask(runner, "GET", "/sessions", &[]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["sessions"].as_array().expect("a list").clone()
}

/// The path of the only session. It has its place, which `/status` counts, before it is listed.
fn only_path(runner: &TestRunner) -> String {
    wait_until(
        || sessions(runner).len() == 1,
        || format!("not one session: {:?}", sessions(runner)),
    );
    format!("/sessions/{}", sessions(runner)[0]["id"].as_str().expect("an id"))
}

/// The caller hears why, the bot is told, and the provider is asked to hang up.
#[test]
fn the_operator_sees_a_call_and_ends_it() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    assert!(sessions(&runner).is_empty());
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    caller.say(&[0; 160]);
    runner.wait_for_log("session started: twilio");
    let path = only_path(&runner);
    let session = &sessions(&runner)[0];
    assert_eq!(session["transport"], json!("telephony_a"));
    assert_eq!(session["loss_percent"], Value::Null);
    for member in ["age_s", "packets_in", "messages_in", "speech_queued_ms"] {
        assert!(session[member].is_u64(), "{member} in {session}");
    }
    assert_eq!(ask(&runner, "DELETE", "/sessions/none", &[]).status, 404);
    let get = ask(&runner, "GET", &path, &[]);
    assert_eq!((get.status, get.header("allow")), (405, Some("DELETE, OPTIONS")));
    assert_eq!(ask(&runner, "DELETE", &path, &[]).status, 202);
    assert_eq!(caller.end(), Some((1000, "the operator ended the call".into())));
    runner.wait_for_log("session ended: ended by the operator");
    runner.wait_for_sessions(0);
    assert!(sessions(&runner).is_empty());
    assert_eq!(ask(&runner, "DELETE", &path, &[]).status, 404);
}

/// Both routes are for those that may read the metrics, with the key where there is one.
#[test]
fn live_sessions_are_guarded_as_the_metrics_are() {
    let both = [("GET", "/sessions"), ("DELETE", "/sessions/none")];
    let open = TestRunner::start(&[]);
    let keyed = TestRunner::start(&["--api-key", "key-of-the-tests-0123456789"]);
    let off = TestRunner::start(&["--metrics", "off"]);
    for (method, target) in both {
        let found = if method == "GET" { 200 } else { 404 };
        let status = |runner, headers: &[&str]| ask(runner, method, target, headers).status;
        assert_eq!(status(&open, &[]), found);
        assert_eq!(status(&open, &["X-Forwarded-For: 203.0.113.7"]), 403, "{method}");
        assert_eq!(status(&open, &["Origin: https://evil.example"]), 403, "{method}");
        assert_eq!(status(&keyed, &[]), 401, "{method}");
        assert_eq!(status(&keyed, &["Authorization: Bearer wrong"]), 401, "{method}");
        assert_eq!(
            status(&keyed, &["Authorization: Bearer key-of-the-tests-0123456789"]),
            found
        );
        assert_eq!(status(&off, &[]), 404, "{method}");
    }
}

/// Where other machines may ask, perhaps through a proxy that looks like this machine, a key is
/// needed.
#[test]
fn live_sessions_need_a_key_where_other_machines_may_ask() {
    let key = ["--api-key", "key-of-the-tests-0123456789"];
    let authorization = "Authorization: Bearer key-of-the-tests-0123456789";
    for shared in [
        ["--metrics", "any"],
        ["--proxy", "bots.example.net"],
        ["--trusted-proxies", "192.0.2.1"],
    ] {
        let open = TestRunner::start(&shared);
        let keyed = TestRunner::start(&[shared, key].concat());
        for (method, target, found) in [("GET", "/sessions", 200), ("DELETE", "/sessions/none", 404)] {
            let denied = ask(&open, method, target, &[]);
            assert_eq!(denied.status, 403, "{shared:?}");
            assert!(denied.text().contains("--api-key-file"), "{}", denied.text());
            assert_eq!(
                ask(&keyed, method, target, &[authorization]).status,
                found,
                "{shared:?}"
            );
        }
        assert_eq!(ask(&open, "GET", "/metrics", &[]).status, 200, "{shared:?}");
    }
    // For simulated calls.
    let own = TestRunner::start(&["--proxy", "localhost"]);
    assert_eq!(ask(&own, "GET", "/sessions", &[]).status, 200);
}

/// A simulated call is controlled by its page: its provider hears of no call.
#[test]
fn the_provider_of_a_simulated_call_is_asked_for_nothing() {
    let rest = Rest::start(&[(200, "{}"), (200, "{}")]);
    let url = rest.url();
    let runner = TestRunner::start_with(
        &["--bot", "echo", "--unverified-calls"],
        &[
            ("TELCO_A_ACCOUNT_SID", "AC0000000000000000000000000000cafe"),
            ("TELCO_A_AUTH_TOKEN", "a-secret-4711"),
            ("TELCO_A_API_URL", &url),
        ],
    );
    for (call_id, is_asked) in [("simulated-1", false), ("CA1", true)] {
        let mut caller = Caller::connect(runner.addr, "/ws", Provider::Twilio, Provider::Twilio.lines()[0]);
        caller.call_id = call_id.into();
        caller.others = Some(Vec::new());
        caller.greet();
        caller.start();
        caller.say(&[0; 160]);
        runner.wait_for_sessions(1);
        runner.wait_for_log("session started: twilio");
        let path = only_path(&runner);
        assert_eq!(ask(&runner, "DELETE", &path, &[]).status, 202);
        assert!(caller.end().is_some());
        // Its page learns which session it is.
        let id = path.rsplit('/').next();
        let learned = json!({"event": "edge_runner", "session": id});
        let learned = if is_asked { vec![] } else { vec![learned] };
        assert_eq!(caller.others, Some(learned), "{call_id}");
        runner.wait_for_sessions(0);
        assert_eq!(!rest.asked().is_empty(), is_asked, "{call_id}");
    }
}

/// Health checks tell a full runner from a dead one.
#[test]
fn a_full_runner_lives_and_is_not_ready() {
    let runner = TestRunner::start(&["--bot", "echo", "--max-sessions", "1"]);
    let ready = |runner: &TestRunner| {
        let reply = ask(runner, "GET", "/readyz", &[]);
        (reply.status, reply.json()["reason"].clone())
    };
    assert_eq!(ready(&runner), (200, Value::Null));
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    caller.say(&[0; 160]);
    runner.wait_for_log("session started: twilio");
    assert_eq!(ready(&runner), (503, json!("full")));
    assert_eq!(ask(&runner, "GET", "/livez", &[]).status, 200);
    caller.stop();
    runner.wait_for_sessions(0);
    assert_eq!(ready(&runner), (200, Value::Null));
}
