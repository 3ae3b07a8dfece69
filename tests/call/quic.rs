//! Calls over Media over QUIC, at a port of the runner.

use super::{base, call, make_full_call, make_three_calls, stop_during_call};
use crate::support::runner::TestRunner;

const SERVE: [&str; 6] = ["--bot", "echo", "-t", "moq", "--moq-bind", "127.0.0.1:0"];

/// The certificate is that whose hash the runner names, and the path has a token.
#[test]
fn a_runner_is_called_over_quic() {
    let runner = TestRunner::start(&[&SERVE[..], &["--ws-auth", "token"]].concat());
    make_full_call(&runner, "moq");
}

#[test]
fn several_callers_call_over_quic() {
    make_three_calls(&TestRunner::start(&SERVE), "moq");
}

/// A stopped runner says goodbye, which the caller takes for a bot that hung up.
#[test]
fn a_runner_that_says_goodbye_hangs_up() {
    stop_during_call(TestRunner::start(&SERVE), "moq");
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
