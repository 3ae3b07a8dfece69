//! One address against all others: whatever it holds, opens or repeats, other callers get in. The
//! real binary over loopback: 127.0.0.2 floods, and 127.0.0.1 is the honest client.

use std::net::Ipv4Addr;

use edge_runner_proto::limits::{PENDING_OFFERS_MAX, REGISTERED_MAX};
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::http::{KeepAlive, Reply};
use crate::support::runner::TestRunner;
use crate::support::socket::{ConnectOptions, HandshakeError, Socket, SocketEvent};

const FLOOD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const HONEST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const KEY: &str = "shares-0123456789abcdef";

fn connect(runner: &TestRunner, from: Ipv4Addr) -> KeepAlive {
    KeepAlive::from(from, runner.addr).expect("the runner listens")
}

fn socket(runner: &TestRunner, from: Ipv4Addr, target: &str) -> Result<Socket, HandshakeError> {
    let habits = ConnectOptions {
        from: Some(from),
        ..ConnectOptions::default()
    };
    Socket::try_connect(runner.addr, target, habits)
}

fn offer() -> Value {
    let sdp = include_str!("data/sdp/chrome.offer.sdp")
        .replace('\n', "\r\n")
        .replace("\r\r", "\r");
    json!({"sdp": sdp, "type": "offer"})
}

/// Checks the form of a rejection: 503, `Retry-After`, and the reason.
fn assert_share(status: u16, retry_after: Option<&str>, detail: &str) {
    assert_eq!((status, retry_after), (503, Some("5")), "{detail}");
    assert!(detail.contains("this address has its share"), "{detail}");
}

fn assert_share_of(reply: &Reply) {
    assert_share(reply.status, reply.header("retry-after"), &reply.text());
}

fn assert_share_of_socket(refused: Option<HandshakeError>) {
    let HandshakeError { status, headers, body } = refused.expect("one past the share");
    let retry_after = headers.iter().find(|(name, _)| name == "retry-after");
    assert_share(status, retry_after.map(|(_, value)| value.as_str()), &body);
}

/// Sockets without a frame hold at most a share, and are evicted for an address that holds fewer.
/// Those that have sent a frame stay.
#[test]
fn silent_client_sockets_do_not_block_other_addresses() {
    let runner = TestRunner::start(&["--bot", "echo", "--max-sessions", "8"]);
    let mut silent: Vec<Socket> = (0..6)
        .map(|_| socket(&runner, FLOOD, "/ws-client").expect("within the share"))
        .collect();
    assert_share_of_socket(socket(&runner, FLOOD, "/ws-client").err());
    let mut honest: Vec<Client> = (0..2).map(|_| Client::connect(runner.addr, "/ws-client")).collect();
    assert_eq!(runner.sessions(), 8);
    honest.push(Client::connect(runner.addr, "/ws-client"));
    match silent.remove(0).next("a close").event {
        SocketEvent::Close(code, why) => assert_eq!((code, why.as_str()), (1013, "it gave way to newer connections")),
        other => panic!("{other:?} and no close"),
    }
    for client in &mut honest {
        assert_eq!(client.ask("1", &json!(1))["data"]["d"], 1, "it talks");
    }
    let mut spoken: Vec<Client> = (0..5)
        .map(|_| {
            drop(silent.pop());
            runner.wait_for_sessions(7);
            let habits = ConnectOptions {
                from: Some(FLOOD),
                ..ConnectOptions::default()
            };
            let mut client = Client::try_connect(runner.addr, "/ws-client", habits).expect("within the share");
            client.ask("1", &json!(1));
            client
        })
        .collect();
    let refused = socket(&runner, HONEST, "/ws-client").err().expect("all speak");
    assert_eq!(refused.status, 503);
    assert!(refused.body.contains("every session"), "{}", refused.body);
    for client in spoken.iter_mut().chain(&mut honest) {
        assert_eq!(client.ask("2", &json!(2))["data"]["d"], 2, "no session was evicted");
    }
}

/// Offers that never complete, as fast as they can be made, do not affect an honest caller.
#[test]
fn unconnected_offers_do_not_block_other_addresses() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let (mut flood, mut honest) = (connect(&runner, FLOOD), connect(&runner, HONEST));
    let mut answered = 0;
    for _ in 0..4 {
        flood
            .flood("/api/offer", &offer(), 25, |reply| {
                answered += usize::from(reply.status == 200)
            })
            .expect("answers");
        let reply = honest.post("/api/offer", &[], &offer()).expect("an answer");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert!(answered < 50, "{answered} of 100 offers of one address were answered");
    assert!(runner.sessions() <= PENDING_OFFERS_MAX as u64);
}

/// A flood of `/start` evicts only its own registrations.
#[test]
fn a_flood_of_starts_does_not_block_other_addresses() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let (mut flood, mut honest) = (connect(&runner, FLOOD), connect(&runner, HONEST));
    let start = |honest: &mut KeepAlive| {
        let reply = honest
            .post("/start", &[], &json!({"transport": "webrtc"}))
            .expect("an answer");
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["sessionId"].as_str().expect("a name").to_owned()
    };
    let mut names = vec![start(&mut honest)];
    let mut first = None;
    for _ in 0..6 {
        flood
            .flood("/start", &json!({"transport": "webrtc"}), REGISTERED_MAX / 4, |reply| {
                assert_eq!(reply.status, 200, "{}", reply.text());
                first.get_or_insert_with(|| reply.json()["sessionId"].as_str().expect("a name").to_owned());
            })
            .expect("answers");
        names.push(start(&mut honest));
    }
    for name in names {
        let reply = honest
            .post(&format!("/sessions/{name}/api/offer"), &[], &offer())
            .expect("an answer");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let gone = first.expect("an answer");
    let reply = flood
        .post(&format!("/sessions/{gone}/api/offer"), &[], &offer())
        .expect("an answer");
    assert_eq!(reply.status, 404, "its own oldest have given way");
}

/// With 300 incomplete requests and 300 idle connections open, `/start` still works, and the oldest
/// of them are closed.
#[test]
fn idle_connections_do_not_block_other_addresses() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let mut held = Vec::new();
    for nth in 0..600 {
        let mut connection = connect(&runner, FLOOD);
        match nth % 2 {
            0 => connection
                .write(b"POST /start HTTP/1.1\r\nHost: lo")
                .expect("the runner listens"),
            // A connection that was closed for a newer one gets no response.
            _ => drop(connection.post("/start", &[], &json!({}))),
        }
        held.push(connection);
        if nth % 30 == 29 {
            let reply = connect(&runner, HONEST)
                .post("/start", &[], &json!({}))
                .expect("an answer");
            assert_eq!(reply.status, 200, "after {nth} connections");
        }
    }
    let mut kept = connect(&runner, HONEST);
    for _ in 0..100 {
        assert_eq!(kept.post("/start", &[], &json!({})).expect("an answer").status, 200);
        held.push(connect(&runner, FLOOD));
    }
}

/// Behind a trusted proxy each client has a share of its own; an untrusted peer's headers are
/// ignored.
#[test]
fn clients_behind_a_proxy_are_distinguished() {
    fn ask(runner: &TestRunner, proxy: Ipv4Addr, header: &str) -> Reply {
        let reply = connect(runner, proxy).post("/api/offer", &[header], &offer());
        reply.expect("an answer")
    }
    let sessions = ["--bot", "echo", "--max-sessions", "4"];
    let public = ["--proxy", "bots.example.net"];
    let trusting = TestRunner::start(&[&sessions[..], &public].concat());
    for header in [
        "X-Forwarded-For: 203.0.113.9, 192.0.2.1",
        "X-Forwarded-For: 192.0.2.1",
        "Forwarded: for=\"192.0.2.1:4711\";proto=https",
    ] {
        assert_eq!(ask(&trusting, HONEST, header).status, 200, "{header}");
    }
    assert_share_of(&ask(&trusting, FLOOD, "X-Forwarded-For: 192.0.2.1"));
    assert_eq!(ask(&trusting, HONEST, "X-Forwarded-For: 192.0.2.2").status, 200);
    // All slots are held: the heaviest source, here a whole IPv6 network, loses one.
    assert_eq!(ask(&trusting, HONEST, "X-Forwarded-For: 2001:db8::1").status, 200);
    let full = ask(&trusting, HONEST, "X-Forwarded-For: 2001:db8::2");
    assert_eq!(full.status, 503, "its network holds one, and the heaviest two");

    let doubting = TestRunner::start(&sessions);
    for host in 1..=3 {
        assert_eq!(
            ask(&doubting, FLOOD, &format!("X-Forwarded-For: 192.0.2.{host}")).status,
            200
        );
    }
    assert_share_of(&ask(&doubting, FLOOD, "X-Forwarded-For: 192.0.2.4"));
    let named = TestRunner::start(&[&sessions[..], &["--trusted-proxies", "127.0.0.2/32"]].concat());
    for host in 1..=4 {
        assert_eq!(
            ask(&named, FLOOD, &format!("X-Forwarded-For: 192.0.2.{host}")).status,
            200
        );
    }
}

/// The key, and the id of a session started with it, evict anonymous sockets and are never evicted
/// by them, at any address.
#[test]
fn anonymous_clients_never_evict_authorised_ones() {
    let runner = TestRunner::start(&["--bot", "echo", "--max-sessions", "4", "--api-key", KEY]);
    let key = format!("Authorization: Bearer {KEY}");
    let silent: Vec<Socket> = (0..3)
        .map(|_| socket(&runner, FLOOD, "/ws-client").expect("within the share"))
        .collect();
    assert_share_of_socket(socket(&runner, FLOOD, "/ws-client").err());
    // All come from the address of the anonymous ones: only the key differs.
    let mut authorised = connect(&runner, FLOOD);
    for _ in 0..3 {
        let reply = authorised.post("/api/offer", &[&key], &offer()).expect("an answer");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let started = authorised.post("/start", &[&key], &json!({"transport": "websocket"}));
    let started = started.expect("an answer").json();
    let target = format!(
        "/ws-client?sessionId={}",
        started["sessionId"].as_str().expect("a name")
    );
    let _named = socket(&runner, HONEST, &target).expect("authorised as well");
    for mut gone in silent {
        assert!(matches!(gone.next("a close").event, SocketEvent::Close(1013, _)));
    }
    for from in [FLOOD, HONEST] {
        let refused = socket(&runner, from, "/ws-client").err().expect("all are authorised");
        assert_eq!(refused.status, 503);
    }
    assert_eq!(runner.sessions(), 4);
}
