//! What `edge-runner doctor` says of a service and of functions, without a response of the model.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::KEY;
use crate::support::certificate::CertificateFiles;
use crate::support::ports::free_port;
use crate::support::realtime::RealtimeServer;
use crate::support::rest::Rest;
use crate::support::runner::TestRunner;

/// Returns the lines of the doctor that begin with `what`.
fn lines(what: &str, files: &[(&str, &str)], variables: &[(&str, &str)]) -> String {
    let options = ["doctor", "--port", "0", "--rtc-port", "0", "--bot", "realtime", "-vv"];
    let own = [("REALTIME_MODEL", "m"), ("REALTIME_API_KEY", KEY)];
    let ended = TestRunner::run_among(files, &options, &[&own[..], variables].concat());
    assert!(!format!("{ended:?}").contains(KEY), "{ended:?}");
    let lines = ended.stdout.lines();
    let found: Vec<&str> = lines
        .filter(|line| line.get(6..).is_some_and(|rest| rest.starts_with(what)))
        .collect();
    found.join("\n")
}

fn of_service(url: &str) -> String {
    lines("realtime", &[], &[("REALTIME_URL", url)])
}

/// A refusal whose words quote the key.
fn refusal(code: &str) -> Value {
    json!({"error": {"code": code, "type": "invalid_request_error", "message": format!("{KEY} is wrong")}})
}

#[test]
fn a_service_that_opens_a_session_is_left_at_once() {
    let server = RealtimeServer::start();
    let url = server.url();
    let examined = std::thread::spawn(move || of_service(&url));
    let mut service = server.accept();
    service.send(&json!({"type": "session.created", "event_id": "s1", "session": {"type": "realtime"}}));
    assert_eq!(service.end(), "1000");
    let said = examined.join().expect("the doctor ends");
    assert!(
        said.starts_with("ok    realtime") && said.contains("127.0.0.1 opens sessions with the model m"),
        "{said}"
    );
}

#[test]
fn refusals_are_reported_in_words() {
    for (status, code, words) in [
        (401, "invalid_api_key", "it does not accept the key"),
        (429, "insufficient_quota", "credit"),
        (404, "model_not_found", "check model"),
        (503, "", "status 503"),
    ] {
        let server = RealtimeServer::refusing(status, &refusal(code));
        let said = of_service(&server.url());
        assert!(
            said.starts_with("FAIL  realtime") && said.contains(words),
            "{code}: {said}"
        );
    }
}

/// Some services accept the connection, and then tell what is wrong.
#[test]
fn errors_behind_the_upgrade_are_reported_in_the_same_words() {
    for (code, words) in [
        ("invalid_api_key", "it does not accept the key"),
        ("insufficient_quota", "credit"),
        ("model_not_found", "check model"),
    ] {
        let server = RealtimeServer::start();
        let url = server.url();
        let examined = std::thread::spawn(move || of_service(&url));
        let mut event = refusal(code);
        event["type"] = "error".into();
        let service = server.accept();
        service.send(&event);
        let said = examined.join().expect("the doctor ends");
        assert!(
            said.starts_with("FAIL  realtime") && said.contains(words),
            "{code}: {said}"
        );
    }
}

#[test]
fn what_prevents_a_connection_is_reported() {
    let said = of_service(&format!("ws://127.0.0.1:{}/v1", free_port()));
    assert!(said.contains("connecting to 127.0.0.1: Connection refused"), "{said}");

    let said = of_service("wss://service.invalid/v1");
    assert!(said.contains("looking up service.invalid"), "{said}");

    let files = CertificateFiles::new();
    let pem = [("tls.crt", files.certificate.as_str()), ("tls.key", &files.key)];
    let runner = TestRunner::start_among(&pem, &["--tls", "tls.crt:tls.key"], &[]);
    let said = of_service(&format!("wss://localhost:{}/v1", runner.addr.port()));
    assert!(said.contains("the certificate of localhost is invalid"), "{said}");

    // It accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let said = of_service(&format!("ws://{}/v1", silent.local_addr().expect("it is bound")));
    assert!(said.contains("no answer; check the address"), "{said}");
}

#[test]
fn functions_are_declared_and_not_called() {
    let server = RealtimeServer::refusing(401, &json!({}));
    let url = server.url();
    let tools = |files: &[(&str, &str)], value: &str| {
        lines(
            "tools",
            files,
            &[("REALTIME_URL", &url), ("RUNNER_TOOLS", value), ("TOOLS_API_KEY", KEY)],
        )
    };
    let program = [(
        "tools.sh",
        "echo '{\"functions\": [{\"name\": \"a\"}, {\"name\": \"b\"}]}'; read line",
    )];
    let said = tools(&program, "sh tools.sh");
    assert!(
        said.starts_with("ok    tools") && said.contains("sh declares a, b"),
        "{said}"
    );
    let said = tools(&[], "sh absent.sh");
    assert!(said.starts_with("FAIL  tools") && said.contains("it ended"), "{said}");
    let rest = Rest::start(&[(401, KEY)]);
    let said = tools(&[], &rest.url());
    assert!(
        said.starts_with("FAIL  tools") && said.contains("status 401; check TOOLS_API_KEY"),
        "{said}"
    );
    assert!(rest.asked().iter().all(|request| request.method == "GET"));
}

/// The sound of a failure is read, and told by its length; a file that cannot be played is an
/// error.
#[test]
fn the_sound_of_a_failure_is_examined() {
    let folder = crate::support::runner::folder();
    let path = folder.join("sorry.wav");
    let sound = edge_runner_proto::kit::write_wav(&[1_000; 12_000], 8_000);
    std::fs::write(&path, sound).expect("the folder is the test's");
    let path = path.to_str().expect("a path in UTF-8");
    let variables = [
        ("REALTIME_URL", "ws://127.0.0.1:9/v1"),
        ("RUNNER_BOT_FAILURE_WAV", path),
    ];
    let said = lines("failure sound", &[], &variables);
    assert!(
        said.starts_with("ok    failure sound") && said.contains("1.5 s"),
        "{said}"
    );
    drop(std::fs::remove_dir_all(folder));
    let options = ["doctor", "--bot", "realtime"];
    let ended = TestRunner::run_with(&options, &[&variables[..], &[("REALTIME_MODEL", "m")]].concat());
    assert!(ended.stderr.contains("RUNNER_BOT_FAILURE_WAV"), "{ended:?}");
}
