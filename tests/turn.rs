//! STUN and TURN servers, including coturn: what callers gain, and what a failing server costs.
//!
//! The caller here uses relays alone, as if behind a firewall.

mod caller;
mod coturn;

use std::net::UdpSocket;

use serde_json::json;

use self::caller::{Caller, IceTransportPolicy};
use self::coturn::{Coturn, SECRET, USER};
use crate::support::http;
use crate::support::runner::{PATIENCE, TestRunner};

/// Formats a server for the option.
fn server(url: &str, credential: &str) -> String {
    json!({"urls": url, "username": USER, "credential": credential}).to_string()
}

fn runner(servers: &[&str], options: &[&str]) -> TestRunner {
    let args = [&["--bot", "echo", "--ice-servers"], servers, options].concat();
    // The credential must not appear at the highest log level.
    TestRunner::start_with(&args, &[("RUST_LOG", "trace,edge_runner=trace")])
}

/// Asserts that no log line contains the credential.
fn assert_discreet(runner: &TestRunner) {
    let log = runner.log();
    assert!(
        log.len() > 1000 && !log.contains(SECRET),
        "the credential is in the log"
    );
}

/// A caller that only the relay reaches hears its echo, over UDP, TCP and TLS.
#[test]
fn a_caller_behind_a_relay_talks() {
    let Some(coturn) = Coturn::start() else {
        return;
    };
    for url in [
        coturn.url("turn", "udp"),
        coturn.url("turn", "tcp"),
        coturn.url("turns", "tcp"),
    ] {
        let trust = [("SSL_CERT_FILE", coturn.authority()), ("RUST_LOG", "trace")];
        let args = ["--bot", "echo", "--ice-servers", &server(&url, SECRET)];
        let mut runner = TestRunner::start_with(&args, &trust);
        runner.wait_for_log("relayed at");
        let mut caller = Caller::offer(runner.addr, IceTransportPolicy::Relay);
        caller.talk(100);
        assert!(
            caller.relayed() >= 100,
            "{url}: {} packets by the relay",
            caller.relayed()
        );
        caller.leave();
        runner.wait_for_sessions(0);
        assert_discreet(&runner);
        // The allocation is released.
        runner.signal("TERM");
        assert!(runner.wait().success());
        coturn.wait_for_log("delete: realm=<example>");
    }
}

/// Two callers of one relay do not hear each other, and a direct caller is unaffected.
#[test]
fn callers_of_one_relay_have_separate_sessions() {
    let Some(coturn) = Coturn::start() else {
        return;
    };
    let runner = runner(&[&server(&coturn.url("turn", "udp"), SECRET)], &[]);
    runner.wait_for_log("relayed at");
    let mut callers = [
        IceTransportPolicy::Relay,
        IceTransportPolicy::Relay,
        IceTransportPolicy::All,
    ]
    .map(|policy| Caller::offer(runner.addr, policy));
    for caller in &mut callers {
        caller.talk(50);
    }
    assert_eq!(runner.sessions(), 3);
    let [one, two, direct] = callers.map(|caller| caller.relayed());
    assert!(one >= 50 && two >= 50, "{one}, {two}");
    assert_eq!(direct, 0, "who can come directly does");
}

/// A restarted server is detected, and a later caller is relayed again.
#[test]
fn uses_a_relay_again_after_its_restart() {
    let Some(mut coturn) = Coturn::start() else {
        return;
    };
    let runner = runner(&[&server(&coturn.url("turn", "udp"), SECRET)], &[]);
    runner.wait_for_log("relayed at");
    Caller::offer(runner.addr, IceTransportPolicy::Relay).talk(10);
    coturn.restart();
    // An earlier caller makes it noticed: the relay rejects the permission.
    let _early = Caller::offer(runner.addr, IceTransportPolicy::All);
    runner.wait_for_logs("relayed at", 2);
    Caller::offer(runner.addr, IceTransportPolicy::Relay).talk(10);
}

/// A stopping runner says goodbye through the relay before it releases the allocation.
#[test]
fn closes_are_sent_through_the_relay() {
    let Some(coturn) = Coturn::start() else {
        return;
    };
    let mut runner = runner(&[&server(&coturn.url("turn", "udp"), SECRET)], &[]);
    runner.wait_for_log("relayed at");
    let mut caller = Caller::offer(runner.addr, IceTransportPolicy::Relay);
    caller.talk(10);
    runner.signal("TERM");
    caller.wait_for_end();
    assert!(runner.wait().success());
}

/// Wrong credentials are reported and cost a caller nothing; neither they nor the server's address
/// are offered.
#[test]
fn wrong_credentials_are_logged_and_delay_no_call() {
    let Some(coturn) = Coturn::start() else {
        return;
    };
    let runner = runner(&[&server(&coturn.url("turn", "udp"), "wrong-canary-secret")], &[]);
    let line = runner.wait_for_log("wrong username or credential");
    assert!(line.contains("WARN") && line.contains("401"), "{line}");
    let mut caller = Caller::offer(runner.addr, IceTransportPolicy::All);
    assert!(!caller.answer().contains("typ relay"));
    caller.talk(10);
    assert!(!runner.log().contains("wrong-canary-secret"));
}

/// Dead servers, an unknown name and a broken IPv6 path: the answer comes without them, the caller
/// is served, and each is one log line.
#[test]
fn dead_servers_delay_no_call() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let port = silent.local_addr().expect("a bound socket has an address").port();
    let (stun, turn) = (format!("stun:127.0.0.1:{port}"), format!("turn:127.0.0.1:{port}"));
    let servers = [
        stun.clone(),
        server(&turn, SECRET),
        server("turn:no-such-name.invalid?transport=tcp", SECRET),
        // The documentation network, where no server is.
        "stun:[2001:db8::1]:3478".to_owned(),
    ];
    let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    let runner = runner(&servers, &[]);
    let mut caller = Caller::offer(runner.addr, IceTransportPolicy::All);
    assert!(!caller.answer().contains("typ relay") && !caller.answer().contains("typ srflx"));
    assert!(
        !runner.log().contains("no answer"),
        "the answer came before they were given up"
    );
    caller.talk(10);
    for name in [&stun, &turn, "no-such-name.invalid"] {
        let reported = runner.wait_for_log(&format!("WARN  {name}").replace("no-such", "turn:no-such"));
        assert!(
            reported.contains("no answer") || reported.contains("cannot look up"),
            "{reported}"
        );
    }
    assert_discreet(&runner);
}

/// The reflexive address is in the next answer, and maps to the port of the sessions.
#[test]
fn offers_the_address_seen_by_a_stun_server() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let url = format!("stun:{}", socket.local_addr().expect("a bound socket has an address"));
    let runner = runner(&[&url], &[]);
    let mut request = [0; 1500];
    let (length, from) = socket.recv_from(&mut request).expect("a binding request");
    assert_eq!((length, &request[..2]), (20, &[0, 1][..]));
    // RFC 8489 section 14.2: XOR-MAPPED-ADDRESS of 203.0.113.9:40000.
    let mut answer = vec![1, 1, 0, 12];
    answer.extend(&request[4..20]);
    answer.extend([0, 0x20, 0, 8, 0, 1]);
    answer.extend((40_000u16 ^ 0x2112).to_be_bytes());
    answer.extend((u32::from_be_bytes([203, 0, 113, 9]) ^ 0x2112_a442).to_be_bytes());
    socket.send_to(&answer, from).expect("sent");
    runner.wait_for_log("seen as 203.0.113.9:40000");
    let mut caller = Caller::offer(runner.addr, IceTransportPolicy::All);
    let line = caller
        .answer()
        .lines()
        .find(|line| line.contains("typ srflx"))
        .expect("a candidate")
        .to_owned();
    assert!(line.contains(" 203.0.113.9 40000 "), "{line}");
    let host = format!(" 127.0.0.1 {} typ host", from.port());
    assert!(
        caller.answer().contains(&host),
        "asked from another port: {}",
        caller.answer()
    );
    caller.talk(10);
}

/// coturn on this machine sees the runner's own address, which is offered once, as a host
/// candidate.
#[test]
fn an_address_without_a_nat_is_offered_once() {
    let Some(coturn) = Coturn::start() else {
        return;
    };
    let runner = runner(&[&coturn.url("stun", "")], &[]);
    runner.wait_for_log("seen as 127.0.0.1:");
    let caller = Caller::offer(runner.addr, IceTransportPolicy::All);
    assert!(!caller.answer().contains("typ srflx"), "{}", caller.answer());
}

/// With `--embedded` no server is queried, and the log says so once.
#[test]
fn devices_use_no_ice_server() {
    let Some(coturn) = Coturn::start() else {
        return;
    };
    let server = server(&coturn.url("turn", "udp"), SECRET);
    let runner = TestRunner::start(&["--embedded", "--host", "127.0.0.1", "--ice-servers", &server]);
    runner.wait_for_log("the ICE servers are for clients alone");
    let config = http::request(
        runner.addr,
        "POST",
        "/start",
        &[],
        br#"{"enableDefaultIceServers":true}"#,
    );
    assert!(config.expect("an answer").text().contains(&coturn.url("turn", "udp")));
    assert!(!runner.log().contains("relayed at"));
}

/// A runner with an allocation stops in order, even if its server is gone.
#[test]
fn a_dead_relay_does_not_delay_shutdown() {
    let Some(mut coturn) = Coturn::start() else {
        return;
    };
    let mut runner = runner(&[&server(&coturn.url("turn", "udp"), SECRET)], &[]);
    runner.wait_for_log("relayed at");
    coturn.stop();
    runner.signal("TERM");
    assert!(runner.wait().success());
    assert!(!runner.log().contains("did not end in time"));
}
