//! Canaries in runs that do not serve: rejected options and variables, and the doctor.

use serde_json::json;

use super::{
    A_TOKEN, ACCOUNT, API_KEY, B_KEY, ENV_FILE, TURN_CREDENTIAL, TURN_USER, answers, assert_silent, secrets,
    turn_that_refuses,
};
use crate::support::runner::TestRunner;

/// Errors about options and variables do not repeat possible secrets.
#[test]
fn misuse_is_reported_without_the_secret() {
    let ice = format!(r#"{{"urls": "turn:a", "username": "{TURN_USER}", "credential": "{TURN_CREDENTIAL}""#);
    let short = "canary-short";
    type Wrong<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);
    let wrong: [Wrong<'_>; 11] = [
        (&["--api-key", short], &[]),
        (&[&format!("--api-kee={API_KEY}")], &[]),
        (&["--api-key-file", "torn"], &[]),
        (&["--api-key", API_KEY, "--api-key-file", "key"], &[]),
        (&[], &[("RUNNER_API_KEY", short)]),
        (&["--ice-servers", &ice], &[]),
        (
            &[
                "--ice-servers",
                "turn:canary-user-of-turn-28c4:canary-credential-of-turn-17b3@a",
            ],
            &[],
        ),
        (&[], &[("RUNNER_ICE_SERVERS", &ice)]),
        (&[], &[("TELCO_B_PUBLIC_KEY", B_KEY)]),
        (
            &[],
            &[(
                "TELCO_A_API_URL",
                "ftp://canary-user-of-turn-28c4:canary-credential-of-turn-17b3@a",
            )],
        ),
        (
            &[],
            &[(
                "TELCO_A_ACCOUNT_SID",
                "ACcanary00account00of00telco00a0:canary-token-of-telco-a-9f3b",
            )],
        ),
    ];
    let secrets: Vec<String> = secrets().into_iter().chain([short.to_owned()]).collect();
    for (options, variables) in wrong {
        let files = [(".env", ENV_FILE), ("key", API_KEY), ("torn", short)];
        let ended = TestRunner::run_among(&files, options, variables);
        assert_eq!(ended.code, Some(2), "{options:?} {variables:?}: {ended:?}");
        assert_silent(&format!("{}\n{}", ended.stdout, ended.stderr), &secrets);
    }
}

/// The doctor reads every credential and shows none.
#[test]
fn the_doctor_keeps_secrets() {
    let turn = format!("turn:127.0.0.1:{}", turn_that_refuses());
    let ice = json!({"urls": [turn], "username": TURN_USER, "credential": TURN_CREDENTIAL}).to_string();
    let url =
        answers("HTTP/1.1 401 canary-token-of-telco-a-9f3b\r\nContent-Length: 28\r\n\r\ncanary-token-of-telco-a-9f3b");
    let variables = [
        ("TELCO_A_ACCOUNT_SID", ACCOUNT),
        ("TELCO_A_AUTH_TOKEN", A_TOKEN),
        ("TELCO_A_API_URL", &url),
        ("TELCO_B_API_URL", &url),
        ("TELCO_C_API_URL", &url),
        ("RUNNER_API_KEY", API_KEY),
    ];
    for level in [&["-v"][..], &["-vv"], &["-vvv"]] {
        let options = [&["doctor", "--port", "0", "--ice-servers", &ice][..], level].concat();
        let ended = TestRunner::run_among(&[(".env", ENV_FILE)], &options, &variables);
        assert!(ended.code.is_some(), "{ended:?}");
        assert_silent(&format!("{}\n{}", ended.stdout, ended.stderr), &secrets());
    }
}
