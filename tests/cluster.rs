//! Replicas behind a balancer (`--cluster-key-file`): what one replica made is good at another.
//!
//! Each test runs two or three runners with one key, and plays the balancer: it sends each request
//! to the replica that it chooses. A real balancer is in `tests/peers/cluster`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use edge_runner_proto::limits::SEALED_BODY_BYTES_MAX;
use serde_json::{Value, json};
use str0m::media::Direction;

use crate::support::client::Client;
use crate::support::http::{self, Reply};
use crate::support::provider::{Caller, Provider};
use crate::support::runner::TestRunner;
use crate::support::socket::{ConnectOptions, HandshakeError, Socket};
use crate::support::whip::{Offers, Poster};

const KEY: &str = "cluster-0123456789abcdef0123456789abcdef\nnot the key\n";
const OTHER_KEY: &str = "cluster-fedcba9876543210fedcba9876543210\n";
const JSON: &str = "Content-Type: application/json";

fn replica_with(key: &str, name: &str, options: &[&str]) -> TestRunner {
    let own = ["--cluster-key-file", "cluster.key", "--replica-name", name];
    TestRunner::start_among(&[("cluster.key", key)], &[&own[..], options].concat(), &[])
}

fn replica(name: &str, options: &[&str]) -> TestRunner {
    replica_with(KEY, name, options)
}

fn ask(runner: &TestRunner, method: &str, target: &str, headers: &[&str], body: &str) -> Reply {
    let headers = [&[JSON], headers].concat();
    http::request(runner.addr, method, target, &headers, body.as_bytes()).expect("an answer")
}

fn start(runner: &TestRunner, body: &Value) -> Value {
    let reply = ask(runner, "POST", "/start", &[], &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn text(reply: &Value, key: &str) -> String {
    reply[key]
        .as_str()
        .unwrap_or_else(|| panic!("no {key} in {reply}"))
        .to_owned()
}

fn detail(reply: &Reply) -> String {
    text(&reply.json(), "detail")
}

fn status(refused: Result<Client, HandshakeError>) -> u16 {
    match refused {
        Ok(_) => 101,
        Err(refused) => refused.status,
    }
}

fn connect(runner: &TestRunner, target: &str) -> u16 {
    status(Client::try_connect(runner.addr, target, ConnectOptions::default()))
}

fn offer(more: &Value) -> String {
    let sdp = include_str!("data/sdp/device.offer.sdp").replace('\n', "\r\n");
    let mut offer = json!({"sdp": sdp.replace("\r\r", "\r"), "type": "offer"});
    for (key, value) in more.as_object().expect("an object") {
        offer[key] = value.clone();
    }
    offer.to_string()
}

/// Asserts that the parrot does not greet: the body reached it.
fn assert_silent(runner: &TestRunner, target: &str) {
    let mut client = Client::connect(runner.addr, target);
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    // A greeting is on its way before the answer to the second question, since it waits for none.
    (0..3).for_each(|n| drop(client.ask(&format!("q{n}"), &json!(n))));
    client.socket.close(1000);
    client.end();
    assert!(client.received.is_empty(), "the body told the parrot not to greet");
}

/// D-23, D-24: an id made by A opens a session with its body at B, once, and then one at A.
#[test]
fn an_id_made_by_one_replica_is_good_at_another() {
    let bot = ["--bot", "parrot"];
    let (a, b) = (replica("a", &bot), replica("b", &bot));
    let stranger = replica_with(OTHER_KEY, "c", &bot);
    let made = start(&a, &json!({"transport": "websocket", "body": {"greeting": false}}));
    let id = text(&made, "sessionId");
    let target = format!("/ws-client?sessionId={id}");
    assert_eq!(connect(&stranger, &target), 404);
    assert_silent(&b, &target);
    // The session has the name with which the id begins.
    b.wait_for_log(&format!("[{}]", &id[..8]));
    b.wait_for_sessions(0);
    assert_eq!(connect(&b, &target), 404, "used here");
    assert_silent(&a, &target);
    a.wait_for_sessions(0);
    assert_eq!(connect(&a, &target), 404, "used here, too");
    let fresh = text(&start(&a, &json!({"transport": "websocket"})), "sessionId");
    for bad in [
        &fresh[..fresh.len() - 1],
        &fresh[..36],
        &format!("{}{}", &id[..37], &fresh[37..]),
    ] {
        assert_eq!(connect(&b, &format!("/ws-client?sessionId={bad}")), 404, "{bad}");
    }
    assert_eq!(connect(&b, &format!("/ws-client?sessionId={fresh}")), 101);
}

/// D-25: the answer's `pc_id` begins with the name of the replica. Its candidates and its
/// renegotiation are refused elsewhere in clear words; its restart begins a new session there.
#[test]
fn a_connection_names_its_replica() {
    let bot = ["--bot", "echo"];
    let (a, b) = (replica("a", &bot), replica("b", &bot));
    let id = text(&start(&a, &json!({})), "sessionId");
    let path = format!("/sessions/{id}/api/offer");
    let answered = ask(&b, "POST", &path, &[], &offer(&json!({})));
    assert_eq!(answered.status, 200, "{}", answered.text());
    let pc_id = text(&answered.json(), "pc_id");
    assert!(pc_id.starts_with("b."), "{pc_id}");
    let candidates = json!({"pc_id": pc_id, "candidates": []}).to_string();
    for path in [&path[..], "/api/offer"] {
        assert_eq!(ask(&b, "PATCH", path, &[], &candidates).status, 200);
        for (method, body) in [("PATCH", &candidates), ("POST", &offer(&json!({"pc_id": pc_id})))] {
            let refused = ask(&a, method, path, &[], body);
            assert_eq!(refused.status, 421, "{}", refused.text());
            assert!(detail(&refused).contains("replica `b` made it"), "{}", detail(&refused));
        }
    }
    assert_eq!((a.sessions(), b.sessions()), (0, 1));
    let restart = offer(&json!({"pc_id": pc_id, "restart_pc": true}));
    let again = ask(&a, "POST", &path, &[], &restart);
    assert_eq!(again.status, 200, "{}", again.text());
    assert!(text(&again.json(), "pc_id").starts_with("a."));
    a.wait_for_log("a client of replica `b`, which is gone, starts again here");
    a.wait_for_sessions(1);
    // A replica does not resume a connection of its own that has ended.
    let (name_and_process, _) = pc_id.rsplit_once('.').expect("dots");
    let ended = json!({"pc_id": format!("{name_and_process}.{}", "0".repeat(32)), "restart_pc": true});
    assert_eq!(ask(&b, "POST", &path, &[], &offer(&ended)).status, 404);
}

/// D-24: a token made by A opens one socket at B and one at A, of its kind, with the body of its
/// session.
#[test]
fn a_token_made_by_one_replica_is_good_at_another() {
    let options = ["--bot", "parrot", "--ws-auth", "token"];
    let (a, b) = (replica("a", &options), replica("b", &options));
    let stranger = replica_with(OTHER_KEY, "c", &options);
    let token = |transport: &str| {
        let asked = json!({"transport": transport, "body": {"greeting": false}});
        text(&start(&a, &asked), "token")
    };
    let (client, call) = (token("websocket"), token("telephony_a"));
    assert_eq!(connect(&stranger, &format!("/ws-client/{client}")), 403);
    assert_eq!(connect(&b, &format!("/ws/{client}")), 403);
    for runner in [&b, &a] {
        assert_silent(runner, &format!("/ws-client?token={client}"));
        runner.wait_for_sessions(0);
        assert_eq!(connect(runner, &format!("/ws-client/{client}")), 403, "used twice");
        assert_eq!(connect(runner, &format!("/ws/{call}")), 101);
        assert_eq!(connect(runner, &format!("/ws/{call}")), 403, "used twice");
    }
    assert_eq!(connect(&b, "/ws-client"), 403);
}

/// A call of a provider reaches another replica than its webhook did.
#[test]
fn a_call_reaches_another_replica_than_its_webhook() {
    let options = [
        "--bot",
        "echo",
        "-t",
        "telephony_a",
        "--proxy",
        "bots.example.net",
        "--ws-auth",
        "token",
    ];
    let (a, b) = (replica("a", &options), replica("b", &options));
    let form = b"CallSid=CA01&From=%2B15550001111&To=%2B15550002222";
    let kind = ["Content-Type: application/x-www-form-urlencoded"];
    let markup = http::request(a.addr, "POST", "/", &kind, form)
        .expect("an answer")
        .text();
    let url = markup.split_once("wss://bots.example.net").expect("a URL").1;
    let (target, _) = url.split_once('"').expect("a quote");
    let mut caller = Caller::connect(b.addr, target, Provider::Twilio, Provider::Twilio.lines()[0]);
    caller.greet();
    caller.start();
    b.wait_for_sessions(1);
    let again = Socket::try_connect(b.addr, target, ConnectOptions::default());
    assert_eq!(again.err().map(|refused| refused.status), Some(403));
}

/// The longest body travels in an id and in a token; a longer one is refused at `/start`, in words
/// that say what to do.
#[test]
fn a_body_that_no_id_can_carry_is_refused() {
    let options = ["--bot", "parrot", "--ws-auth", "token"];
    let (a, b) = (replica("a", &options), replica("b", &options));
    let body = |bytes: usize| {
        let mut body = json!({"greeting": false, "more": ""});
        body["more"] = "x".repeat(bytes - body.to_string().len()).into();
        json!({"transport": "websocket", "body": body})
    };
    let made = start(&a, &body(SEALED_BODY_BYTES_MAX));
    assert_silent(&b, &format!("/ws-client?token={}", text(&made, "token")));
    let refused = ask(&a, "POST", "/start", &[], &body(SEALED_BODY_BYTES_MAX + 1).to_string());
    assert_eq!(refused.status, 413);
    assert!(detail(&refused).contains("8192 bytes"), "{}", detail(&refused));
    // One runner alone keeps such a body.
    let alone = TestRunner::start(&options);
    start(&alone, &body(SEALED_BODY_BYTES_MAX + 1));
}

/// The id of an authorised `/start` is as good as the key, at every replica; a key for one session
/// opens one at each.
#[test]
fn an_id_carries_the_authorisation_of_its_maker() {
    const API_KEY: &str = "cluster-api-key-0123456789";
    let options = ["--bot", "echo", "--api-key", API_KEY];
    let (a, b) = (replica("a", &options), replica("b", &options));
    let bearer = format!("Authorization: Bearer {API_KEY}");
    let made = ask(&a, "POST", "/start", &[&bearer], "{}").json();
    let path = format!("/sessions/{}/api/offer", text(&made, "sessionId"));
    assert_eq!(ask(&b, "POST", &path, &[], &offer(&json!({}))).status, 200);
    assert_eq!(ask(&b, "POST", "/api/offer", &[], &offer(&json!({}))).status, 401);
    let secret = ask(&a, "POST", "/v1/realtime/client_secrets", &[&bearer], "{}").json();
    let secret = format!("Authorization: Bearer {}", text(&secret, "value"));
    let mut poster = Poster::new(Offers::audio(Direction::SendRecv));
    let opened = poster.post(&b, "/v1/realtime/calls", &[&secret]);
    assert_eq!(opened.status, 201, "{}", opened.text());
    poster.take(&opened);
    assert!(
        poster.location.starts_with("/v1/realtime/calls/rtc_b."),
        "{}",
        poster.location
    );
    let elsewhere = http::request(a.addr, "DELETE", &poster.location, &[], b"").expect("an answer");
    assert_eq!(elsewhere.status, 421, "{}", elsewhere.text());
    poster.until("the connection", |poster| poster.connected);
    let twice = Poster::new(Offers::audio(Direction::SendRecv)).post(&b, "/v1/realtime/calls", &[&secret]);
    assert_eq!(twice.status, 401, "{}", twice.text());
    assert_eq!(poster.delete(&b).status, 200);
}

/// D-26: a replica that drains says so by its status code, and by name; its connections go on.
#[test]
fn a_draining_replica_is_not_healthy() {
    let a = replica("a", &["--bot", "echo", "--drain", "60"]);
    let healthy = http::get(a.addr, "/status");
    assert_eq!(healthy.status, 200);
    let said = healthy.json();
    assert_eq!(
        (text(&said, "replica"), text(&said, "status")),
        ("a".into(), "ready".into())
    );
    let mut client = Client::connect(a.addr, "/ws-client");
    a.wait_for_sessions(1);
    a.signal("TERM");
    a.wait_for_log("waiting up to 60 s");
    let drains = http::get(a.addr, "/status");
    assert_eq!(drains.status, 503);
    assert_eq!(text(&drains.json(), "status"), "draining");
    assert_eq!(ask(&a, "POST", "/start", &[], "{}").status, 503);
    client.say(&[3_000; 3_200], 16_000);
    client.hear_until("the echo", |client| client.received.len() >= 2_400);
    // A runner without the key answers 200, as before.
    let alone = TestRunner::start(&["--bot", "echo", "--drain", "60"]);
    let _stays = Client::connect(alone.addr, "/ws-client");
    alone.wait_for_sessions(1);
    alone.signal("TERM");
    alone.wait_for_log("waiting up to 60 s");
    let drains = http::get(alone.addr, "/status");
    assert_eq!((drains.status, drains.json().get("replica")), (200, None));
    assert_eq!(text(&drains.json(), "status"), "draining");
}

/// D-22: a weak key is wrong usage, and a key that others may read a warning, at start and in
/// `doctor`. The key is in no output.
#[test]
fn the_key_file_is_checked() {
    let file = ["--cluster-key-file", "cluster.key"];
    for short in [
        "",
        "0123456789abcdef0123456789abcde\n",
        "with a space in it, and 32 bytes long\n",
    ] {
        let ended = TestRunner::run_among(&[("cluster.key", short)], &file, &[]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("32 to 512 visible ASCII characters"), "{ended:?}");
    }
    let absent = TestRunner::run(&file);
    assert_eq!(absent.code, Some(2), "{absent:?}");
    let replica = replica("a", &[]);
    let key = replica.path("cluster.key");
    let doctor = |mode: u32| {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).expect("a file of this test");
        let key = key.to_str().expect("UTF-8");
        let options = [
            "doctor",
            "--port",
            "0",
            "--cluster-key-file",
            key,
            "--replica-name",
            "a",
        ];
        let ended = TestRunner::run(&options);
        let line = ended.stdout.lines().find(|line| line.get(6..13) == Some("cluster"));
        line.unwrap_or_else(|| panic!("{ended:?}")).to_owned()
    };
    let (open, closed) = (doctor(0o644), doctor(0o600));
    assert!(
        open.starts_with("warn") && open.contains("every user of this machine may read"),
        "{open}"
    );
    assert!(closed.starts_with("ok") && closed.contains("replica `a`"), "{closed}");
    // The file of this test is readable by everybody, unless the umask says otherwise.
    let is_open = replica
        .log()
        .contains("every user of this machine may read the cluster key");
    assert!(is_open || !replica.log().contains("WARN"), "{}", replica.log());
    assert!(!replica.log().contains("0123456789abcdef"), "{}", replica.log());
}
