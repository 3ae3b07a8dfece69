//! Media over QUIC of the real binary: here what HTTP and the command line show of it, in `calls`
//! whole calls, in `certificates` whom each end trusts, in `programs` bots that are programs, in
//! `hostile` what other peers do. Published clients are in `tests/peers/moq`.

mod calls;
mod certificates;
mod hostile;
mod programs;

use std::collections::BTreeSet;
use std::net::UdpSocket;

use serde_json::{Value, json};

use crate::support::http::{self, Reply};
use crate::support::moq::MoqInvitation;
use crate::support::runner::TestRunner;

const SERVE: [&str; 4] = ["-t", "moq", "--moq-bind", "127.0.0.1:0"];

fn serve(more: &[&str]) -> TestRunner {
    TestRunner::start(&[&SERVE[..], more].concat())
}

fn start(runner: &TestRunner, body: &Value) -> Reply {
    let json = "Content-Type: application/json";
    http::request(runner.addr, "POST", "/start", &[json], body.to_string().as_bytes()).expect("an answer")
}

/// Begins a session.
fn invite(runner: &TestRunner, body: &Value) -> MoqInvitation {
    let reply = start(runner, body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    MoqInvitation::read(&reply.json())
}

/// every `/start` works, each with a namespace of its own unless one is named.
#[test]
fn start_answers_with_all_that_a_client_needs() {
    let runner = serve(&[]);
    let mut namespaces = BTreeSet::new();
    for n in 0..3 {
        let reply = start(&runner, &json!({"transport": "moq", "body": {"n": n}}));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let mut reply = reply.json();
        let id = reply["sessionId"].as_str().expect("an id").to_owned();
        assert_eq!(id.len(), 36, "{id}");
        let moq = reply["moq"].as_object_mut().expect("an object");
        let text = |value: Option<Value>| {
            value
                .and_then(|value| value.as_str().map(str::to_owned))
                .expect("a text")
        };
        let url = text(moq.remove("relayUrl"));
        let port = url
            .strip_prefix("https://127.0.0.1:")
            .and_then(|rest| rest.strip_suffix("/moq"));
        assert!(
            port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port != 0)),
            "{url}"
        );
        assert_eq!(text(moq.remove("certHash")).len(), 44, "32 bytes in Base64");
        let namespace = text(moq.remove("namespace"));
        assert!(
            namespace.starts_with("pipecat-") && namespace.len() == 24,
            "{namespace}"
        );
        assert!(namespaces.insert(namespace), "it is new");
        let rest = json!({"serve": true, "clientId": "request", "botId": "response",
            "transcriptTrack": "transcript.json.z"});
        assert_eq!(json!(moq), rest);
    }
    runner.wait_for_sessions(3);
    let named = start(&runner, &json!({"namespace": "rooms/kitchen"})).json();
    assert_eq!(named["moq"]["namespace"], "rooms/kitchen");
    for bad in [json!(7), json!(""), json!("a//b")] {
        let reply = start(&runner, &json!({"namespace": bad}));
        assert_eq!(reply.status, 422, "{}", reply.text());
        assert_eq!(reply.json()["detail"][0]["loc"], json!(["body", "namespace"]));
    }
    assert_eq!(start(&runner, &json!({"transport": "webrtc"})).status, 400);
    assert_eq!(http::get(runner.addr, "/status").json()["transports"], json!(["moq"]));
}

/// without `-t moq` it is refused.
#[test]
fn start_accepts_it_only_with_its_option() {
    let runner = TestRunner::start(&["--moq-bind", "127.0.0.1:0"]);
    let refused = start(&runner, &json!({"transport": "moq"}));
    assert_eq!(refused.status, 400);
    let detail = refused.json()["detail"].as_str().expect("a text").to_owned();
    assert!(detail.contains("started with -t moq"), "{detail}");
    let transports = http::get(runner.addr, "/status").json()["transports"].take();
    assert!(!transports.as_array().expect("a list").contains(&json!("moq")));
    runner.wait_for_log("have no effect without `-t moq`");
}

/// The names and the URL follow the options; with `--ws-auth token` the path ends with a token.
#[test]
fn options_name_the_participants_and_the_host() {
    let runner = serve(&[
        "--moq-namespace",
        "fixed",
        "--moq-bot-id",
        "bot0",
        "--moq-client-id",
        "client0",
        "--moq-tls-generate",
        "robot.lan",
        "--ws-auth",
        "token",
    ]);
    let moq = |body: Value| start(&runner, &body).json()["moq"].take();
    let (first, second) = (moq(json!({})), moq(json!({"namespace": "mine"})));
    assert_eq!(
        (&first["namespace"], &second["namespace"]),
        (&json!("fixed"), &json!("mine"))
    );
    assert_eq!(
        (&first["botId"], &first["clientId"]),
        (&json!("bot0"), &json!("client0"))
    );
    let token = |moq: &Value| {
        let url = moq["relayUrl"].as_str().expect("a URL").to_owned();
        let rest = url
            .strip_prefix("https://robot.lan:")
            .expect("the host of the option")
            .to_owned();
        let (_, token) = rest.split_once("/moq/").expect("a token");
        assert!(token.contains('.'), "{url}");
        token.to_owned()
    };
    assert_ne!(token(&first), token(&second));
}

/// Start-up fails with exit code 1 for what the machine lacks, and 2 for misuse.
#[test]
fn start_up_fails_with_words() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("it is bound").to_string();
    for (options, code, words) in [
        (&["--moq-bind", &taken][..], 1, "`--moq-bind` takes another address"),
        (
            &["--moq-tls-cert", "./none.pem", "--moq-tls-key", "./none.pem"],
            1,
            "./none.pem",
        ),
        (&["--moq-tls-cert", "./none.pem"], 2, "needs `--moq-tls-key`"),
        (&["--moq-connect", "moqt://relay"], 2, "with a port"),
        (&["--moq-bot-id", "request"], 2, "must differ"),
    ] {
        let ended = TestRunner::run(&[&SERVE[..2], &["--port", "0", "--rtc-port", "0"], options].concat());
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.contains(words), "{ended:?}");
    }
}

/// The doctor examines the UDP port, its certificate, and the relay.
#[test]
fn the_doctor_examines_quic() {
    let doctor = |more: &[&str]| {
        let ended = TestRunner::run(&[&["doctor", "--port", "0", "--rtc-port", "0", "-t", "moq"], more].concat());
        ended.stdout
    };
    let text = doctor(&["--moq-bind", "127.0.0.1:0"]);
    assert!(text.contains("ok    quic port   any free port"), "{text}");
    assert!(
        text.contains("ok    quic tls    the runner makes a certificate"),
        "{text}"
    );
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let text = doctor(&["--moq-bind", &taken.local_addr().expect("it is bound").to_string()]);
    assert!(text.contains("FAIL  quic port"), "{text}");
    // A runner in the role of the relay.
    let runner = serve(&[]);
    let url = start(&runner, &json!({})).json()["moq"]["relayUrl"].take();
    let url = url.as_str().expect("a URL");
    let text = doctor(&["--moq-connect", url]);
    assert!(
        text.contains(&format!("FAIL  relay       {url}: its certificate is not trusted")),
        "{text}"
    );
    assert!(!text.contains("quic port"), "{text}");
    let text = doctor(&["--moq-connect", url, "--moq-tls-insecure"]);
    assert!(
        text.contains(&format!("warn  relay       {url} accepts connections")),
        "{text}"
    );
}
