//! Hang-ups at the providers' REST APIs: the request, the retries, and the secrecy of credentials.
//!
//! The APIs are those of `support::rest`, which fails on an unexpected request.

use std::thread;

use serde_json::{Value, json};

use crate::support::provider::{ALL, Caller, FROM, Provider, TO};
use crate::support::rest::{RecordedRequest, Rest, SILENCE};
use crate::support::runner::TestRunner;
use crate::support::signed::{self, API_KEY};
use crate::support::socket::{ConnectOptions, Socket};

const ACCOUNT: &str = "AC0000000000000000000000000000cafe";
const AUTH_ID: &str = "MAFEFEFEFEFEFEFEFEFE";
const A_TOKEN: &str = "a-secret-4711";
const B_KEY: &str = "b-secret-4712";
const C_TOKEN: &str = "c-secret-4713";

/// The REST APIs of three providers, and the variables that lead a runner to them.
struct Apis {
    a: Rest,
    b: Rest,
    c: Rest,
    urls: [String; 3],
}

impl Apis {
    fn start(answers: &[(u16, &str)]) -> Self {
        let [a, b, c] = std::array::from_fn(|_| Rest::start(answers));
        let urls = [format!("{}/", a.url()), b.url(), format!("{}/gateway/", c.url())];
        Self { a, b, c, urls }
    }

    fn bases(&self) -> [(&str, &str); 3] {
        let [a, b, c] = &self.urls;
        [("TELCO_A_API_URL", a), ("TELCO_B_API_URL", b), ("TELCO_C_API_URL", c)]
    }

    fn runner(&self, options: &[&str], credentials: &[(&str, &str)]) -> TestRunner {
        let variables = [&self.bases()[..], credentials].concat();
        TestRunner::start_with(
            &[&["--bot", "echo", "--api-key", API_KEY], options].concat(),
            &variables,
        )
    }

    fn asked(&self) -> Vec<RecordedRequest> {
        [&self.a, &self.b, &self.c].into_iter().flat_map(Rest::asked).collect()
    }

    /// Fails unless each was asked exactly once to end the call of [`Caller::dial`], with the right
    /// credentials.
    fn assert_each_asked_once(&self) {
        let once = |rest: &Rest| match <[RecordedRequest; 1]>::try_from(rest.asked()) {
            Ok([asked]) => asked,
            Err(asked) => panic!("asked {} times: {asked:#?}", asked.len()),
        };
        let (a, b, c) = (once(&self.a), once(&self.b), once(&self.c));
        assert_eq!(
            (a.method.as_str(), a.target.as_str()),
            (
                "POST",
                "/2010-04-01/Accounts/AC0000000000000000000000000000cafe/Calls/CA00000000000000000000000000000001.json"
            )
        );
        // Made with Python's `base64`.
        assert_eq!(
            a.header("authorization"),
            Some("Basic QUMwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwY2FmZTphLXNlY3JldC00NzEx")
        );
        assert_eq!(a.header("content-type"), Some("application/x-www-form-urlencoded"));
        assert_eq!(a.body, "Status=completed");
        assert_eq!(
            (b.method.as_str(), b.target.as_str()),
            ("POST", "/v2/calls/v3:abcDEF123-_/actions/hangup")
        );
        assert_eq!(b.header("authorization"), Some("Bearer b-secret-4712"));
        assert_eq!(b.header("content-type"), Some("application/json"));
        assert_eq!(serde_json::from_str::<Value>(&b.body).expect("JSON"), json!({}));
        assert_eq!(
            (c.method.as_str(), c.target.as_str()),
            (
                "DELETE",
                "/gateway/v1/Account/MAFEFEFEFEFEFEFEFEFE/Call/0f0e0d0c-0b0a-4000-8000-000000000001/"
            )
        );
        assert_eq!(
            c.header("authorization"),
            Some("Basic TUFGRUZFRkVGRUZFRkVGRUZFRkU6Yy1zZWNyZXQtNDcxMw==")
        );
        assert_eq!(c.body, "");
    }
}

fn credentials() -> [(&'static str, &'static str); 5] {
    [
        ("TELCO_A_ACCOUNT_SID", ACCOUNT),
        ("TELCO_A_AUTH_TOKEN", A_TOKEN),
        ("TELCO_B_API_KEY", B_KEY),
        ("TELCO_C_AUTH_ID", AUTH_ID),
        ("TELCO_C_AUTH_TOKEN", C_TOKEN),
    ]
}

/// A call of each provider, whose bots are at work. Each has a token, which two of them need.
fn calls(runner: &TestRunner) -> Vec<Caller> {
    let mut callers: Vec<Caller> = ALL
        .into_iter()
        .map(|provider| Caller::dial_at(runner.addr, &path(runner, provider), provider))
        .collect();
    for caller in &mut callers {
        caller.say(&vec![0; caller.line.rate_hz as usize / 2]);
        caller.hear_ms(100);
    }
    callers
}

/// A path of `/ws` with a token where the runner hands one out.
fn path(runner: &TestRunner, provider: Provider) -> String {
    signed::started(runner, provider).unwrap_or_else(|| "/ws".into())
}

/// Tells the runner to end, and waits until it has: what it has not asked by then, it never asks.
fn stop(mut runner: TestRunner) {
    runner.signal("TERM");
    let status = runner.wait();
    assert_eq!(status.code(), Some(0), "{}", runner.log());
}

/// R-033 to R-038: when the runner stops, three providers get one hang-up request each, the fourth
/// has no API, and every socket is closed with the reason.
#[test]
fn a_stopping_runner_hangs_up_its_calls() {
    let apis = Apis::start(&[(200, r#"{"status":"completed"}"#)]);
    let runner = apis.runner(&[], &credentials());
    let mut callers = calls(&runner);
    stop(runner);
    apis.assert_each_asked_once();
    for caller in &mut callers {
        assert_eq!(
            caller.end(),
            Some((1001, "the runner is stopping".into())),
            "{:?}",
            caller.provider
        );
    }
}

/// A provider that takes a request and does not answer keeps neither the runner nor the socket from
/// ending.
#[test]
fn a_runner_stops_although_its_providers_do_not_answer() {
    let apis = Apis::start(&[SILENCE]);
    let runner = apis.runner(&[], &credentials());
    let mut callers = calls(&runner);
    stop(runner);
    apis.assert_each_asked_once();
    for caller in &mut callers {
        let close = caller.end();
        assert_eq!(
            close,
            Some((1001, "the runner is stopping".into())),
            "{:?}",
            caller.provider
        );
    }
}

/// The variables of existing `.env` files do as well, and lose against the canonical ones.
#[test]
fn credentials_are_read_under_both_of_their_names() {
    let apis = Apis::start(&[(204, "")]);
    let aliases = [
        ("TWILIO_ACCOUNT_SID", ACCOUNT),
        ("TWILIO_AUTH_TOKEN", A_TOKEN),
        ("TELNYX_API_KEY", "not-this-one"),
        ("TELCO_B_API_KEY", B_KEY),
        ("PLIVO_AUTH_ID", AUTH_ID),
        ("PLIVO_AUTH_TOKEN", "not-this-one"),
        ("TELCO_C_AUTH_TOKEN", C_TOKEN),
    ];
    let runner = apis.runner(&[], &aliases);
    let _callers = calls(&runner);
    stop(runner);
    apis.assert_each_asked_once();
}

#[test]
fn sends_no_hang_up_without_credentials() {
    let apis = Apis::start(&[(200, "{}")]);
    // Half an account is none.
    let runner = apis.runner(
        &[],
        &[("TELCO_A_ACCOUNT_SID", ACCOUNT), ("TELCO_C_AUTH_TOKEN", C_TOKEN)],
    );
    let mut callers = calls(&runner);
    stop(runner);
    for caller in &mut callers {
        assert_eq!(
            caller.end(),
            Some((1001, "the runner is stopping".into())),
            "{:?}",
            caller.provider
        );
    }
    assert_eq!(apis.asked(), []);
}

/// A hang-up of the caller ends the call, in every form in which providers report it.
#[test]
fn sends_no_hang_up_for_a_call_that_its_caller_ended() {
    let apis = Apis::start(&[(200, "{}")]);
    let runner = apis.runner(&[], &credentials());
    let mut stopped = calls(&runner);
    let mut closed = calls(&runner);
    let vanished = calls(&runner);
    stopped.iter_mut().for_each(Caller::stop);
    stopped
        .iter_mut()
        .for_each(|caller| assert_eq!(caller.end(), Some((1000, String::new()))));
    closed.iter_mut().for_each(|caller| caller.socket.close(1000));
    closed.iter_mut().for_each(|caller| drop(caller.end()));
    vanished.into_iter().for_each(|caller| caller.socket.vanish());
    runner.wait_for_sessions(0);
    let ends = runner.wait_for_logs("session ended: ", 12);
    // A connection that broke with something unread looks broken.
    let by_caller = ["session ended: caller left", "session ended: transport failed"];
    assert!(
        ends.iter().all(|line| by_caller.iter().any(|end| line.contains(end))),
        "{ends:#?}"
    );
    stop(runner);
    assert_eq!(apis.asked(), []);
}

/// What the provider answers decides whether it is asked again; a refusal is a warning, and never
/// the end of anything.
#[test]
fn retries_a_failed_hang_up_but_not_for_an_unknown_call() {
    let stumbles = Apis::start(&[(500, "oops"), (429, "{}"), (200, "{}")]);
    let over = Apis::start(&[(404, r#"{"code":20404,"message":"not found","status":404}"#)]);
    let refuses = Apis::start(&[(401, r#"{"code":20003,"message":"Authenticate"}"#)]);
    let runners = [&stumbles, &over, &refuses].map(|apis| apis.runner(&[], &credentials()));
    thread::scope(|scope| {
        for runner in &runners {
            scope.spawn(|| {
                // The calls end on this side, since the peer does not keep to the protocol; the
                // runner goes on.
                for mut caller in calls(runner) {
                    caller.send_garbage();
                    assert_eq!(caller.end().map(|(code, _)| code), Some(1003));
                }
                runner.wait_for_sessions(0);
            });
        }
    });
    let [first, second, third] = &runners;
    first.wait_for_logs("the call was hung up", 3);
    second.wait_for_logs("the provider knows of no such call", 3);
    let warnings = third.wait_for_logs("the call was not hung up: status 401", 3);
    assert!(warnings.iter().all(|line| line.contains(" WARN ")), "{warnings:#?}");
    for (rest, wanted) in [(&stumbles, 9), (&over, 3), (&refuses, 3)] {
        assert_eq!(rest.asked().len(), wanted, "{:#?}", rest.asked());
    }
    over.assert_each_asked_once();
    refuses.assert_each_asked_once();
    runners.into_iter().for_each(stop);
}

/// Who has the key may say any id: it never leaves its place in the path.
#[test]
fn ids_that_would_change_the_path_are_not_sent() {
    let apis = Apis::start(&[(200, "{}")]);
    let runner = apis.runner(&[], &credentials());
    let ids = ["..", "../..", " ", "a/../b", "x/", "/", "\\..\\", "."];
    for provider in [Provider::Twilio, Provider::Telnyx, Provider::Plivo] {
        for id in ids {
            let target = path(&runner, provider);
            let mut caller = Caller::connect(runner.addr, &target, provider, provider.lines()[0]);
            caller.call_id = id.into();
            caller.greet();
            caller.start();
            // Enough to end the handshake too, if this id opens no call.
            caller.send_garbage();
            let code = caller.end().map(|(code, _)| code);
            assert!(matches!(code, Some(1003 | 1008)), "{provider:?} `{id}`: {code:?}");
        }
        let target = path(&runner, provider);
        let mut caller = Caller::connect(runner.addr, &target, provider, provider.lines()[0]);
        caller.call_id = "a b/c?d#e%2e".into();
        caller.greet();
        caller.start();
        caller.send_garbage();
        caller.end();
    }
    stop(runner);
    let asked = apis.asked();
    assert_eq!(asked.len(), 3, "{asked:#?}");
    for one in &asked {
        assert!(one.target.contains("/a%20b%2Fc%3Fd%23e%252e"), "{}", one.target);
    }
}

/// Credentials are never logged, and no phone number above DEBUG.
#[test]
fn neither_secrets_nor_numbers_reach_the_log() {
    let refusal = format!(r#"{{"code":20003,"message":"no {FROM} for {A_TOKEN}{B_KEY}{C_TOKEN}"}}"#);
    let apis = Apis::start(&[(401, &refusal)]);
    let runner = apis.runner(&["-vv", "--ws-auth", "token"], &credentials());
    let mut tokens = Vec::new();
    for provider in ALL {
        let target = path(&runner, provider);
        let token = target.strip_prefix("/ws/").expect("a token").to_owned();
        let mut caller = Caller::connect(
            runner.addr,
            &format!("/ws?token={token}"),
            provider,
            provider.lines()[0],
        );
        caller.greet();
        caller.start();
        caller
            .send(&json!({"event": "error", "payload": {"code": 1, "title": FROM, "detail": format!("{FROM} {TO}")}}));
        caller.press("5");
        caller.say(&vec![0; caller.line.rate_hz as usize / 5]);
        caller.hear_ms(100);
        caller.send_garbage();
        caller.end();
        // A token that is not taken is not logged either.
        let again = Socket::try_connect(runner.addr, &format!("/ws/{token}"), ConnectOptions::default());
        assert_eq!(again.err().map(|refused| refused.status), Some(403));
        tokens.push(token);
    }
    runner.wait_for_logs("the call was not hung up", 3);
    runner.wait_for_logs("session ended: ", ALL.len());
    let log = runner.log();
    assert_eq!(apis.asked().len(), 3, "{log}");
    assert!(log.contains(" DEBUG "), "nothing of what could tell was logged: {log}");
    let tokens = tokens.iter().flat_map(|token| token.split('.'));
    for secret in [A_TOKEN, B_KEY, C_TOKEN].into_iter().chain(tokens) {
        assert!(!log.contains(secret), "{secret} was logged: {log}");
    }
    for encoded in ["QUMwMDAwMDAw", "TUFGRUZFRkVG"] {
        assert!(!log.contains(encoded), "credentials were logged: {log}");
    }
    let numbers = [FROM, TO].map(|number| number.trim_start_matches("+1").to_owned());
    for line in log
        .lines()
        .filter(|line| !line.contains(" DEBUG ") && !line.contains(" TRACE "))
    {
        assert!(!numbers.iter().any(|number| line.contains(number)), "{line}");
    }
}
