//! Sessions that never connect report why, for each kind of network, in virtual time.

use super::super::*;
use super::pair::{Pair, ms, secs, setup};
use crate::testing::client::{TestClient, config};
use crate::webrtc::crypto::{self, HandshakeError};
use crate::webrtc::ice_diagnosis::IceFailure;

const CLIENT: &str = "192.0.2.9:5000";

/// Runs until the session gives up. Returns the failure and its description.
fn give_up(mut pair: Pair) -> (IceFailure, String) {
    pair.run(secs(20));
    let (reason, _) = pair.left().expect("the end");
    assert_eq!(reason, LeaveReason::NeverConnected);
    let tried = pair.session.failed_attempt().expect("it was never connected");
    (tried.cause(), tried.to_string())
}

/// Replaces the client's candidates.
fn with_candidates(lines: &'static str) -> Pair {
    Pair::with(TestClient::new(CLIENT), move |offer| {
        let kept: Vec<&str> = offer
            .lines()
            .filter(|line| !line.starts_with("a=candidate") && !line.starts_with("a=end-of-candidates"))
            .collect();
        let (first, rest) = kept
            .iter()
            .position(|line| line.starts_with("a=mid"))
            .map(|at| kept.split_at(at))
            .expect("a section");
        let lines = lines.lines();
        let all = first.iter().copied().chain(lines).chain(rest.iter().copied());
        all.flat_map(|line| [line, "\r\n"]).collect()
    })
}

fn is_check(contents: &[u8]) -> bool {
    contents.starts_with(&[0, 1])
}

/// A firewall blocks both directions: checks are sent, and nothing arrives.
#[test]
fn a_blocked_network_is_reported() {
    let mut pair = Pair::new();
    pair.up.cut = true;
    let (cause, words) = give_up(pair);
    assert_eq!(cause, IceFailure::Unanswered, "{words}");
    assert!(words.contains("from 192.0.2.1, 0 answered, 0 received"), "{words}");
    assert!(
        words.contains("UDP port 7860") && !words.contains("192.0.2.9"),
        "{words}"
    );
}

#[test]
fn a_client_without_candidates_and_packets_is_reported() {
    let mut pair = with_candidates("");
    pair.up.cut = true;
    let (cause, words) = give_up(pair);
    assert_eq!(cause, IceFailure::NothingReceived, "{words}");
}

#[test]
fn blocked_mdns_candidates_are_reported() {
    let mut pair =
        with_candidates("a=candidate:1 1 udp 2122260223 4f1c2e3a-0000-4000-8000-123456789abc.local 50000 typ host");
    pair.up.cut = true;
    let (cause, words) = give_up(pair);
    assert_eq!(cause, IceFailure::OnlyMdns, "{words}");
    assert!(
        words.contains("1 mDNS name ignored") && !words.contains("4f1c2e3a"),
        "{words}"
    );
}

/// A client with IPv6 alone, and a runner with IPv4 alone.
#[test]
fn missing_address_families_are_reported() {
    let mut pair = with_candidates("a=candidate:1 1 udp 2122260223 2001:db8::9 50000 typ host");
    pair.up.cut = true;
    let (cause, words) = give_up(pair);
    assert_eq!(cause, IceFailure::NoPair, "{words}");
}

/// The client's checks arrive, but nothing reaches the client.
#[test]
fn a_one_way_firewall_is_reported() {
    let mut pair = Pair::new();
    pair.down.cut = true;
    let (cause, words) = give_up(pair);
    assert_eq!(cause, IceFailure::OneWay, "{words}");
}

/// ICE passes, but handshake records of one end do not.
#[test]
fn an_unfinished_handshake_is_reported() {
    let mut pair = Pair::new();
    pair.pass = |up, contents| !up || contents[0] < 20;
    let (cause, words) = give_up(pair);
    assert_eq!(cause, IceFailure::NoHandshake, "{words}");
    let mut pair = Pair::new();
    pair.pass = |up, contents| up || contents[0] < 20;
    let (cause, words) = give_up(pair);
    assert_eq!(cause, IceFailure::HandshakeIncomplete, "{words}");
}

/// Unsupported certificates are named, as are those that the SDP does not announce.
#[test]
fn a_rejected_certificate_is_reported() {
    let mut cert = crypto::certificate().expect("a certificate").clone();
    cert.certificate = include_bytes!("../../../../../tests/data/dtls/rsa1024.der").to_vec();
    let client = TestClient::with_certificate(config(), cert, CLIENT, Instant::now());
    let (cause, words) = give_up(Pair::with(client, |offer| offer.to_owned()));
    assert_eq!(
        cause,
        IceFailure::HandshakeFailed(HandshakeError::UnsupportedKey("an RSA key of 1024 bits".to_owned()))
    );
    assert!(words.contains("P-256, P-384 and"), "{words}");

    let mut pair = Pair::with(TestClient::new(CLIENT), |offer| {
        let at = offer.find("a=fingerprint:sha-256 ").expect("a fingerprint") + 22;
        let other = if &offer[at..at + 2] == "00" { "11" } else { "00" };
        [&offer[..at], other, &offer[at + 2..]].concat()
    });
    pair.run(secs(20));
    let (reason, _) = pair.left().expect("the end");
    assert_eq!(reason, LeaveReason::Failed);
    let tried = pair.session.failed_attempt().expect("it was never connected");
    assert_eq!(
        tried.cause(),
        IceFailure::HandshakeFailed(HandshakeError::FingerprintMismatch),
        "{tried}"
    );
}

/// A client that answers checks but sends none never nominates a pair.
#[test]
fn a_missing_nomination_is_reported() {
    let mut pair = Pair::new();
    pair.pass = |up, contents| !(up && is_check(contents));
    let (cause, words) = give_up(pair);
    assert_eq!(cause, IceFailure::NotNominated, "{words}");
}

/// A successful connection has no diagnosis; a later restart has its own.
#[test]
fn a_failed_restart_is_reported_by_itself() {
    let mut pair = Pair::connected();
    assert!(pair.session.failed_attempt().is_none());
    let mut client = TestClient::at(CLIENT, pair.now);
    let offer = client.offer();
    let now = pair.now;
    pair.act(|session, _| session.restart(&offer, &setup(None, &[super::pair::runner()]), now))
        .expect("an answer");
    pair.up.cut = true;
    pair.run(secs(20));
    assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::Vanished));
    let tried = pair.session.failed_attempt().expect("the new one was never connected");
    assert_eq!(tried.cause(), IceFailure::Unanswered, "{tried}");
    pair.run(ms(1));
}
