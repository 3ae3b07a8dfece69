//! Calls into rooms of a LiveKit server: those that a runner names, and those that the caller does.

use serde_json::json;

use super::{base, call, make_full_call, make_three_calls, stop_during_call};
use crate::livekit::{TestServer, start_session};
use crate::support::livekit::Options;
use crate::support::ports::free_port;
use crate::support::runner::{RunOutput, TestRunner};

/// Calls with the keys of the test server, by the names of LiveKit.
fn call_with_keys(url: &str, secret: &str, options: &[&str]) -> RunOutput {
    let key = Options::default().key;
    let arguments = [&["call", url, "-t", "livekit", "--timeout", "50"], options].concat();
    TestRunner::run_with(&arguments, &[("LIVEKIT_API_KEY", &key), ("LIVEKIT_API_SECRET", secret)])
}

/// The caller leaves, and so does the bot. No token is printed.
#[test]
fn a_runner_names_the_room() {
    let livekit = TestServer::new();
    let ended = make_full_call(&livekit.runner(&["--bot", "echo"]), "livekit");
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
    make_three_calls(&livekit.runner(&["--bot", "echo"]), "livekit");
}

/// A bot that leaves has hung up.
#[test]
fn a_bot_that_leaves_the_room_hangs_up() {
    let livekit = TestServer::new();
    stop_during_call(livekit.runner(&["--bot", "echo"]), "livekit");
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
    let ended = call(&base(&runner), &["-t", "livekit"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("LiveKit needs MEDIAROOM_URL"), "{ended:?}");
}
