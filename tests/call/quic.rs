//! Calls over Media over QUIC, at a port of the runner.

use std::fs;
use std::thread;

use edge_runner_proto::kit::write_wav;

use super::{call, event, events, wait_for_event};
use crate::support::runner::TestRunner;
use crate::support::sweep::Sweep;

const SERVE: [&str; 6] = ["--bot", "echo", "-t", "moq", "--moq-bind", "127.0.0.1:0"];

fn base(runner: &TestRunner) -> String {
    format!("http://{}", runner.addr)
}

/// Texts and sound pass in both directions, with all that a call keeps and expects; then the caller
/// says goodbye. The certificate is that whose hash the runner names, and the path has a token.
#[test]
fn a_runner_is_called_over_quic() {
    let runner = TestRunner::start(&[&SERVE[..], &["--ws-auth", "token"]].concat());
    let (said, record) = (runner.path("said.wav"), runner.path("record.wav"));
    fs::write(&said, write_wav(&Sweep { ms: 800 }.pcm(24_000), 24_000)).expect("a file");
    let options = [
        "-t",
        "moq",
        "--text",
        "Good morning",
        "--expect-text",
        "good morning",
        "--wav",
        said.to_str().expect("a text"),
        "--expect-speech",
        "--expect-latency",
        "2",
        "--record",
        record.to_str().expect("a text"),
        "--json",
    ];
    let ended = call(&base(&runner), &options);
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
}

#[test]
fn several_callers_call_over_quic() {
    let runner = TestRunner::start(&SERVE);
    let options = ["-t", "moq", "--calls", "3", "--text", "hi", "--expect-text", "hi"];
    let ended = call(&base(&runner), &options);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("calls: 3, answered: 3, failed: 0"), "{ended:?}");
    runner.wait_for_sessions(0);
}

/// A stopped runner says goodbye, which the caller takes for a bot that hung up.
#[test]
fn a_runner_that_says_goodbye_hangs_up() {
    let mut runner = TestRunner::start(&SERVE);
    let (url, log) = (base(&runner), runner.path("events.jsonl"));
    let file = log.to_str().expect("a text").to_owned();
    let calling = thread::spawn(move || call(&url, &["-t", "moq", "--silence", "48", "--events", &file]));
    wait_for_event(&log, "connected");
    runner.signal("TERM");
    runner.wait();
    let ended = calling.join().expect("the call ends");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("ended: the bot hung up"), "{ended:?}");
}

#[test]
fn a_runner_without_the_transport_is_named() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    for (url, words) in [
        (base(&runner), "started with -t moq"),
        (format!("https://{}/moq", runner.addr), "takes the address of a runner"),
    ] {
        let ended = call(&url, &["-t", "moq"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
}
