//! Calls into rooms of a LiveKit server: those that a runner names, and those that the caller does.

use std::fs;
use std::thread;

use edge_runner_proto::kit::write_wav;
use serde_json::json;

use super::{call, event, events, wait_for_event};
use crate::livekit::{TestServer, start_session};
use crate::support::livekit::Options;
use crate::support::ports::free_port;
use crate::support::runner::{RunOutput, TestRunner};
use crate::support::sweep::Sweep;

/// Calls with the keys of the test server, by the names of LiveKit.
fn call_with_keys(url: &str, secret: &str, options: &[&str]) -> RunOutput {
    let key = Options::default().key;
    let arguments = [&["call", url, "-t", "livekit", "--timeout", "50"], options].concat();
    TestRunner::run_with(&arguments, &[("LIVEKIT_API_KEY", &key), ("LIVEKIT_API_SECRET", secret)])
}

/// Texts and sound pass in both directions, with all that a call keeps and expects; then the caller
/// leaves, and so does the bot.
#[test]
fn a_runner_names_the_room() {
    let livekit = TestServer::new();
    let runner = livekit.runner(&["--bot", "echo"]);
    let (said, record) = (runner.path("said.wav"), runner.path("record.wav"));
    fs::write(&said, write_wav(&Sweep { ms: 800 }.pcm(24_000), 24_000)).expect("a file");
    let path = |path: &std::path::Path| path.to_str().expect("a text").to_owned();
    let base = format!("http://{}", runner.addr);
    let (said, record) = (path(&said), path(&record));
    let options = [
        "-t",
        "livekit",
        "--text",
        "Good morning",
        "--expect-text",
        "good morning",
        "--wav",
        &said,
        "--expect-speech",
        "--expect-latency",
        "2",
        "--record",
        &record,
        "--json",
    ];
    let ended = call(&base, &options);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let printed = events(&ended);
    for name in [
        "connected",
        "ready",
        "text-sent",
        "bot-text",
        "caller-started",
        "answered",
    ] {
        event(&printed, name);
    }
    assert_eq!(event(&printed, "ended")["reason"], "the caller hung up");
    assert!(
        fs::read(&record).is_ok_and(|wav| wav.len() > 2 * 2 * 16_000),
        "a second at least"
    );
    runner.wait_for_log("session ended: caller left");
    runner.wait_for_sessions(0);
    let output = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!output.contains("eyJ"), "a token: {output}");
}

/// The caller joins the room of a bot by its name, with the keys of the server, or by a token.
#[test]
fn the_caller_names_the_room() {
    let livekit = TestServer::new();
    let runner = livekit.runner(&["--bot", "echo"]);
    let (url, secret) = (livekit.server().url(), Options::default().secret);
    let says = ["--text", "hello", "--expect-text", "hello"];
    let session = start_session(&runner, &json!({}));
    let room = session["roomName"].as_str().expect("a name");
    let ended = call_with_keys(&url, &secret, &[&["--room", room], &says[..]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let token = session["token"].as_str().expect("a text");
    let ended = call(&url, &[&["-t", "livekit", "--token", token], &says[..]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("  bot: hello"), "{ended:?}");
}

/// Each call has a participant of its own.
#[test]
fn several_callers_are_in_rooms_of_their_own() {
    let livekit = TestServer::new();
    let runner = livekit.runner(&["--bot", "echo"]);
    let base = format!("http://{}", runner.addr);
    let options = ["-t", "livekit", "--calls", "3", "--text", "hi", "--expect-text", "hi"];
    let ended = call(&base, &options);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("calls: 3, answered: 3, failed: 0"), "{ended:?}");
    runner.wait_for_sessions(0);
}

/// A bot that leaves has hung up.
#[test]
fn a_bot_that_leaves_the_room_hangs_up() {
    let livekit = TestServer::new();
    let mut runner = livekit.runner(&["--bot", "echo"]);
    let base = format!("http://{}", runner.addr);
    let log = runner.path("events.jsonl");
    let options: Vec<String> = ["-t", "livekit", "--silence", "48", "--events"]
        .into_iter()
        .map(str::to_owned)
        .chain([log.to_str().expect("a text").to_owned()])
        .collect();
    let calling = thread::spawn(move || {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        call(&base, &options)
    });
    wait_for_event(&log, "connected");
    runner.signal("TERM");
    runner.wait();
    let ended = calling.join().expect("the call ends");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("ended: the bot hung up"), "{ended:?}");
    assert!(ended.stderr.contains("the call ended after 0 of 1 steps"), "{ended:?}");
}

#[test]
fn a_room_that_is_not_joined_is_explained() {
    let livekit = TestServer::new();
    let (url, secret) = (livekit.server().url(), Options::default().secret);
    let closed = format!("ws://127.0.0.1:{}", free_port());
    let room = ["--room", "empty"];
    for (url, secret, options, words) in [
        (
            &url,
            "a-wrong-secret-of-thirty-two-characters",
            &room[..],
            "refused the token (401)",
        ),
        (&closed, &secret, &room, "cannot be reached"),
        (
            &url,
            &secret,
            &["--room", "empty", "--timeout", "1"],
            "no bot has joined the room within 1 s",
        ),
        (&url, &secret, &[], "either `--room NAME`"),
    ] {
        let ended = call_with_keys(url, secret, options);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
        assert!(
            !ended.stderr.contains("MEDIAROOM_URL") && !ended.stderr.contains("eyJ"),
            "{ended:?}"
        );
    }
    let runner = TestRunner::start(&["--bot", "echo"]);
    let ended = call(&format!("http://{}", runner.addr), &["-t", "livekit"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("LiveKit needs MEDIAROOM_URL"), "{ended:?}");
}
