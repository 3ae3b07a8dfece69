//! `edge-runner doctor` of the real binary: exit codes and messages, without secrets.

use std::net::TcpListener;

use crate::support::rest::Rest;
use crate::support::runner::{RunOutput, TestRunner};

const CANARY: &str = "canary-of-a-token-0123456789";

fn doctor(args: &[&str], variables: &[(&str, &str)]) -> RunOutput {
    let all = [&["doctor", "--rtc-port", "0"], args].concat();
    let ended = TestRunner::run_with(&all, variables);
    let words = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!words.contains(CANARY), "{words}");
    ended
}

fn line<'t>(ended: &'t RunOutput, what: &str) -> &'t str {
    let mut lines = ended.stdout.lines();
    let found = lines.find(|line| line.get(6..).is_some_and(|rest| rest.starts_with(what)));
    found.unwrap_or_else(|| panic!("no line of {what}: {ended:?}"))
}

#[test]
fn a_machine_that_serves_gets_a_line_per_check() {
    let ended = doctor(&["--port", "0"], &[]);
    for what in ["http port", "udp port", "addresses", "clock", "memory", "bot"] {
        assert!(!line(&ended, what).starts_with("FAIL"), "{ended:?}");
    }
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// A runner without a key that is reachable from the network is reported in one line.
#[test]
fn a_runner_that_is_open_to_the_network_warns() {
    for (options, words) in [
        (
            &["--host", "0.0.0.0"][..],
            "warn  access      anyone who reaches this machine",
        ),
        (
            &["--host", "0.0.0.0", "--api-key", CANARY, "--ws-auth", "token"],
            "ok    access      callers need the key",
        ),
        (
            &["--host", "0.0.0.0", "--api-key", CANARY],
            "warn  access      HTTP requests need the key, but /ws and /ws-client are open",
        ),
        (
            // A proxy on this machine lets no one else in.
            &["--proxy", "localhost"],
            "ok    access      HTTP and WebSockets are open to programs on this machine only",
        ),
        (
            &[],
            "ok    access      HTTP and WebSockets are open to programs on this machine only",
        ),
    ] {
        let ended = doctor(&[&["--port", "0"], options].concat(), &[]);
        assert!(line(&ended, "access").starts_with(words), "{ended:?}");
        assert!(!ended.stderr.contains("anyone who reaches"), "{ended:?}");
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

/// Room providers are asked a read-only question, and a missing half of a configuration is named.
#[test]
fn rooms_that_cannot_be_had_fail() {
    let rest = Rest::start(&[(401, "{}")]);
    let url = rest.url();
    let variables = [
        ("DAILY_API_KEY", CANARY),
        ("DAILY_API_URL", &*url),
        ("LIVEKIT_API_SECRET", CANARY),
    ];
    let ended = doctor(&["--port", "0", "-vv"], &variables);
    assert!(line(&ended, "daily").starts_with("FAIL"), "{ended:?}");
    let half = line(&ended, "livekit");
    assert!(
        half.starts_with("warn") && half.contains("MEDIAROOM_API_KEY (or LIVEKIT_API_KEY)"),
        "{half}"
    );
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let asked = rest.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].method.as_str(), asked[0].target.as_str()),
        ("GET", "/rooms?limit=1")
    );
}

/// A fault that blocks callers is exit code 1, with advice.
#[test]
fn a_taken_port_and_a_missing_bot_fail() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let args = ["--host", "127.0.0.1", "--port", &port, "--", "./no-such-bot"];
    let ended = doctor(&args, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(line(&ended, "http port").starts_with("FAIL"));
    assert!(line(&ended, "http port").contains("--port"), "{ended:?}");
    assert!(line(&ended, "bot").contains("no-such-bot"), "{ended:?}");
    assert!(ended.stderr.contains("2 checks failed"), "{ended:?}");
}

/// Credentials are tested by reading, and a wrong one is reported without its value.
#[test]
fn wrong_credentials_fail_and_are_not_repeated() {
    for (status, verdict, code) in [(200, "ok", 0), (401, "FAIL", 1)] {
        let rest = Rest::start(&[(status, "{}")]);
        let url = rest.url();
        let variables = [
            ("TELCO_A_ACCOUNT_SID", "AC0123"),
            ("TELCO_A_AUTH_TOKEN", CANARY),
            ("TELCO_A_API_URL", &url),
        ];
        let ended = doctor(&["--port", "0", "-vv"], &variables);
        assert!(line(&ended, "twilio").starts_with(verdict), "{ended:?}");
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let asked = rest.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(
            (asked[0].method.as_str(), asked[0].target.as_str()),
            ("GET", "/2010-04-01/Accounts/AC0123.json")
        );
    }
}

/// R-020: WhatsApp is asked for the settings of the number, and for nothing else.
#[test]
fn a_number_that_takes_no_calls_fails() {
    for (status, body, words, code) in [
        (
            200,
            r#"{"calling":{"status":"ENABLED"}}"#,
            "ok    messaging   WhatsApp accepts",
            0,
        ),
        (
            200,
            r#"{"calling":{"status":"DISABLED"}}"#,
            "FAIL  messaging   calling is not enabled",
            1,
        ),
        (
            401,
            r#"{"error":{"code":190}}"#,
            "FAIL  messaging   WhatsApp rejects the token",
            1,
        ),
    ] {
        let rest = Rest::start(&[(status, body)]);
        let url = format!("{}/v23.0", rest.url());
        let variables = [
            ("WHATSAPP_TOKEN", CANARY),
            ("WHATSAPP_PHONE_NUMBER_ID", "1060000001"),
            ("WHATSAPP_APP_SECRET", CANARY),
            ("WHATSAPP_WEBHOOK_VERIFICATION_TOKEN", CANARY),
            ("MESSAGING_API_URL", &*url),
        ];
        let ended = doctor(&["--port", "0", "--messaging"], &variables);
        assert!(line(&ended, "messaging").starts_with(words), "{ended:?}");
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let asked = rest.asked();
        let target = asked.iter().map(|asked| (asked.method.as_str(), asked.target.as_str()));
        assert_eq!(target.collect::<Vec<_>>(), [("GET", "/v23.0/1060000001/settings")]);
    }
}
