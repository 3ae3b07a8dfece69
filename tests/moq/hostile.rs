//! Peers without a right to a session, and datagrams that are no QUIC.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use edge_runner_proto::moq::limits::{MOQ_RETRY_FROM, MOQ_UNBOUND_MAX, MOQ_UNBOUND_PER_SOURCE};
use edge_runner_proto::moq::link::LinkClosed;
use serde_json::json;

use super::{invite, serve};
use crate::support::http;
use crate::support::moq::MoqClient;
use crate::support::runner::{PATIENCE, TestRunner};

/// a caller of a namespace without a session is closed with the reason. Those of others are
/// not affected.
#[test]
fn a_foreign_namespace_is_rejected_with_its_reason() {
    let runner = serve(&["--bot", "echo"]);
    let right = invite(&runner, &json!({}));
    let mut wrong = right.clone();
    wrong.namespace = "pipecat-0000000000000000".to_owned();
    let client = MoqClient::connect(&wrong);
    let closed = client.wait_for_end();
    let reason = "no session waits for the announced broadcast `pipecat-0000000000000000/request`";
    assert_eq!(
        closed,
        LinkClosed::ByPeer {
            code: 0,
            reason: reason.to_owned()
        }
    );
    assert!(client.observed().announced.is_empty());
    runner.wait_for_log(reason);
    let caller = MoqClient::connect(&right);
    caller.hum(440.0);
    caller.wait_for_tone(440.0);
    // A second one of the same namespace finds the session taken.
    let late = MoqClient::connect(&right).wait_for_end();
    assert!(
        matches!(&late, LinkClosed::ByPeer { reason, .. } if reason.contains("no session waits")),
        "{late:?}"
    );
    caller.wait_for_tone(440.0);
}

/// with `--ws-auth token` the URL of `/start` opens one connection.
#[test]
fn a_token_opens_one_connection() {
    let runner = serve(&["--bot", "echo", "--ws-auth", "token"]);
    let invitation = invite(&runner, &json!({}));
    let mut without = invitation.clone();
    without.path = "/moq".to_owned();
    assert_eq!(MoqClient::connect(&without).wait_for_end(), LinkClosed::Rejected(401));
    let mut forged = invitation.clone();
    forged.path = format!("{}x", invitation.path);
    assert_eq!(MoqClient::connect(&forged).wait_for_end(), LinkClosed::Rejected(401));
    let client = MoqClient::connect(&invitation);
    client.hum(440.0);
    client.wait_for_tone(440.0);
    assert_eq!(
        MoqClient::connect(&invitation).wait_for_end(),
        LinkClosed::Rejected(401)
    );
    client.wait_for_tone(440.0);
    // A token of another session does not open this one.
    let mut swapped = invite(&runner, &json!({}));
    swapped.path = invite(&runner, &json!({})).path;
    let closed = MoqClient::connect(&swapped).wait_for_end();
    assert!(
        matches!(&closed, LinkClosed::ByPeer { reason, .. } if reason.contains("no session waits")),
        "{closed:?}"
    );
}

/// random bytes, truncated handshakes, packets of other versions and changed packets of the
/// call itself, from another address, do not disturb a call.
#[test]
fn rubbish_does_not_disturb_a_call() {
    let runner = serve(&["--bot", "echo"]);
    let client = MoqClient::connect(&invite(&runner, &json!({})));
    // The first flight of a client whose handshake stays unanswered.
    let nowhere = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    nowhere.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    let mut unanswered = client.invitation.clone();
    unanswered.address = nowhere.local_addr().expect("it is bound");
    let mut initial = vec![0; 2_048];
    let unanswered = MoqClient::connect(&unanswered);
    let length = nowhere.recv(&mut initial).expect("a datagram");
    unanswered.vanish();
    initial.truncate(length);
    assert!(initial.len() >= 1_200 && initial[0] & 0xf0 == 0xc0, "an Initial packet");
    client.hum(440.0);
    client.wait_for_tone(440.0);

    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.connect(client.invitation.address).expect("loopback is there");
    socket
        .set_read_timeout(Some(Duration::from_millis(1)))
        .expect("it is not zero");
    let mut state = 1_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut answer = [0; 2_048];
    for round in 0..300_usize {
        let noise: Vec<u8> = (0..1 + round * 5).map(|_| random()).collect();
        let truncated = &initial[..1 + round * (initial.len() - 2) / 300];
        // The packet's protection covers what was changed.
        let mut changed = client.observed().datagram.clone();
        let place = 1 + usize::from(random()) % (changed.len() - 1);
        changed[place] ^= 1 + random() % 255;
        let cut = &changed[..changed.len() / 2];
        // Version negotiation, which a server has no use for, and a short header alone.
        let mut negotiation = initial.clone();
        negotiation[1..5].fill(0);
        for datagram in [&noise, truncated, &changed, cut, &negotiation, &[0x40]] {
            // An ICMP error of an earlier one shows here.
            let _ = socket.send(datagram);
        }
        let _ = socket.recv(&mut answer);
    }
    // The port still answers: an unknown version with the versions that it has.
    let mut unknown = initial.clone();
    unknown[1..5].copy_from_slice(&[0x1a, 0x2a, 0x3a, 0x4a]);
    let fresh = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    fresh.connect(client.invitation.address).expect("loopback is there");
    fresh
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("it is not zero");
    let answered = (0..PATIENCE.as_secs()).find_map(|_| {
        fresh.send(&unknown).expect("the port is there");
        fresh.recv(&mut answer).ok()
    });
    let length = answered.expect("an answer");
    assert_eq!(
        (answer[0] & 0x80, &answer[1..5]),
        (0x80, &[0; 4][..]),
        "version negotiation"
    );
    let versions: Vec<&[u8]> = answer[..length].rchunks(4).collect();
    assert!(versions.contains(&&[0, 0, 0, 1][..]), "version 1 is among them");

    client.wait_for_tone(440.0);
    assert_eq!(runner.sessions(), 1);
    assert_eq!(client.observed().closed, None);
}

/// Returns the number of a series of `/metrics`.
fn metric(runner: &TestRunner, series: &str) -> usize {
    let text = http::get(runner.addr, "/metrics").text();
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("no {series} in {text}"))
}

fn outcome(runner: &TestRunner, name: &str) -> usize {
    metric(
        runner,
        &format!("edge_runner_moq_connection_attempts_total{{outcome=\"{name}\"}}"),
    )
}

/// five addresses whose connections name no session, more than each of them and than all
/// may have, keep out no caller of a sixth.
#[test]
fn connections_without_a_session_do_not_block_other_addresses() {
    const ADDRESSES: usize = 5;
    let runner = serve(&["--bot", "echo"]);
    let right = invite(&runner, &json!({}));
    assert_eq!(metric(&runner, "edge_runner_moq_connections"), 0);
    let mut foreign = right.clone();
    foreign.namespace = "pipecat-0000000000000000".to_owned();
    let mut clients = Vec::new();
    for address in 0..ADDRESSES {
        foreign.from = Ipv4Addr::new(127, 0, 0, 2 + address as u8);
        let opened = (0..=MOQ_UNBOUND_PER_SOURCE).map(|_| MoqClient::connect(&foreign));
        let first = clients.len();
        clients.extend(opened);
        for client in &clients[first..] {
            client.wait_for("answer", |observed| observed.is_connected || observed.closed.is_some());
        }
    }
    // One of each address is above its share. Those of the last address are above the cap of all,
    // and are let in, since the others have more.
    let caller = MoqClient::connect(&right);
    caller.hum(440.0);
    caller.wait_for_tone(440.0);
    let (refused, evicted) = (outcome(&runner, "refused"), outcome(&runner, "evicted"));
    let surplus = ADDRESSES * (MOQ_UNBOUND_PER_SOURCE + 1) + 1 - MOQ_UNBOUND_MAX;
    // Those that waited for a session in vain are gone by themselves on a slow machine.
    let gone = outcome(&runner, "unclaimed");
    assert!(
        refused + evicted + gone >= surplus,
        "{refused} refused, {evicted} evicted, {gone} gone"
    );
    assert!(refused + evicted >= ADDRESSES, "{refused} refused, {evicted} evicted");
    let retried = outcome(&runner, "retried");
    assert!(retried >= clients.len() - MOQ_RETRY_FROM, "{retried} asked for a proof");
    assert_eq!(outcome(&runner, "accepted"), 1);

    // The gauge counts connections until they are closed, and only those.
    drop(clients);
    caller.wait_for_tone(440.0);
    caller.leave();
    runner.wait_for_sessions(0);
    let start = std::time::Instant::now();
    while metric(&runner, "edge_runner_moq_connections") != 0 {
        assert!(
            start.elapsed() < PATIENCE,
            "{}",
            metric(&runner, "edge_runner_moq_connections")
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The gauge counts the connections of live calls.
#[test]
fn the_metrics_count_live_connections() {
    let runner = serve(&["--bot", "echo"]);
    let mut callers = Vec::new();
    for count in 1..=2 {
        let client = MoqClient::connect(&invite(&runner, &json!({})));
        client.hum(440.0);
        client.wait_for_tone(440.0);
        callers.push(client);
        assert_eq!(metric(&runner, "edge_runner_moq_connections"), count);
        assert_eq!(outcome(&runner, "accepted"), count);
    }
    assert_eq!(metric(&runner, "edge_runner_moq_datagrams_dropped_total"), 0);
}
