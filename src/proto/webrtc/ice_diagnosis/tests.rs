//! Failures are distinguished, and the sentence contains no address of a peer.

use super::*;

const CHECK: PacketKind = PacketKind::Check;
const ANSWER: PacketKind = PacketKind::CheckAnswer;
const UNMAPPED: &[u8] = &[
    1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
];
const RECORD: PacketKind = PacketKind::Dtls;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn local() -> SocketAddr {
    address("192.168.1.5:7860")
}

/// Returns the record of a client with one private candidate after `then`.
fn tried(then: impl FnOnce(&mut IceAttempt, SocketAddr)) -> IceAttempt {
    let mut tried = IceAttempt::new(7860);
    let remote = address("10.9.8.7:50000");
    tried.handle_candidate(CandidateKind::Host, remote);
    then(&mut tried, remote);
    tried
}

#[test]
fn every_failure_is_distinguished() {
    let sent = |tried: &mut IceAttempt, remote| {
        for _ in 0..3 {
            tried.handle_outgoing(local(), remote, CHECK);
        }
    };
    let mut hidden = IceAttempt::new(7860);
    hidden.handle_unusable_candidate(CandidateError::Mdns);
    hidden.handle_unusable_candidate(CandidateError::EndOfCandidates);
    let mut unusable = hidden.clone();
    unusable.handle_unusable_candidate(CandidateError::Transport);
    let cases = [
        (IceFailure::NothingReceived, IceAttempt::new(7860)),
        (IceFailure::OnlyMdns, hidden),
        (IceFailure::NoUsableCandidate, unusable),
        (IceFailure::NoPair, tried(|_, _| {})),
        (IceFailure::Unanswered, tried(|tried, remote| sent(tried, remote))),
        (
            IceFailure::OtherCredentials,
            tried(|tried, remote| {
                sent(tried, remote);
                tried.handle_incoming(remote, local(), CHECK, false);
            }),
        ),
        (
            IceFailure::UnmappedAnswers,
            tried(|tried, remote| {
                sent(tried, remote);
                tried.handle_incoming(remote, local(), CHECK, true);
                tried.handle_unreadable(UNMAPPED);
            }),
        ),
        (
            IceFailure::OneWay,
            tried(|tried, remote| {
                sent(tried, remote);
                tried.handle_incoming(remote, local(), CHECK, true);
                tried.handle_outgoing(local(), remote, ANSWER);
            }),
        ),
        (
            IceFailure::NotNominated,
            tried(|tried, remote| {
                sent(tried, remote);
                tried.handle_incoming(remote, local(), ANSWER, true);
            }),
        ),
        (
            IceFailure::NoHandshake,
            tried(|tried, remote| {
                sent(tried, remote);
                tried.handle_ice_connected();
                tried.handle_outgoing(local(), remote, RECORD);
            }),
        ),
        (
            IceFailure::HandshakeIncomplete,
            tried(|tried, remote| {
                tried.handle_ice_connected();
                tried.handle_incoming(remote, local(), RECORD, true);
            }),
        ),
        (
            IceFailure::HandshakeFailed(HandshakeError::NoCommonSuite),
            tried(|tried, remote| {
                tried.handle_ice_connected();
                tried.handle_incoming(remote, local(), RECORD, true);
                tried.handle_handshake_error(HandshakeError::NoCommonSuite);
                // Events after the connection is up.
                tried.handle_handshake_error(HandshakeError::BadSignature);
            }),
        ),
    ];
    let mut sentences = Vec::new();
    for (cause, tried) in &cases {
        assert_eq!(tried.cause(), *cause, "{tried}");
        let sentence = tried.to_string();
        let (_, meaning) = sentence.split_once(": ").expect("a meaning");
        assert!(!sentences.contains(&meaning.to_owned()), "{sentence}");
        sentences.push(meaning.to_owned());
        assert!(!sentence.contains("10.9.8.7"), "{sentence}");
    }
    let (_, unanswered) = &cases[4];
    assert_eq!(
        unanswered.to_string(),
        "1 candidate of the client (1 host on a private network); 3 checks sent to 1 address from 192.168.1.5, 0 answered, 0 \
         received: probably a firewall drops UDP port 7860, or the caller is in another network: set a TURN server with \
         --ice-servers; see docs/operations.md, \"When something is wrong\""
    );
    assert!(
        unanswered
            .pairs()
            .to_string()
            .contains("host 10.9.8.7:50000: 3 sent, 0 answered")
    );
}

/// Candidates are grouped by type and network.
#[test]
fn candidates_are_described_by_type_and_network() {
    let mut tried = IceAttempt::new(7860);
    for (kind, at) in [
        (CandidateKind::Host, "192.168.1.9:1"),
        (CandidateKind::Host, "10.0.0.1:1"),
        (CandidateKind::Host, "[fd00::1]:1"),
        (CandidateKind::Host, "169.254.3.3:1"),
        (CandidateKind::Host, "127.0.0.1:1"),
        (CandidateKind::Host, "[2001:db8::1]:1"),
        (CandidateKind::ServerReflexive, "203.0.113.7:1"),
        (CandidateKind::Relayed, "100.64.0.1:1"),
    ] {
        tried.handle_candidate(kind, address(at));
    }
    tried.handle_unusable_candidate(CandidateError::Mdns);
    tried.handle_unusable_candidate(CandidateError::Mdns);
    tried.handle_unusable_candidate(CandidateError::Transport);
    let words = tried.to_string();
    assert!(
        words.starts_with(
            "11 candidates of the client (3 host on a private network, 1 host on a link without addresses, 1 host on \
             loopback, 1 host on a public network, 1 srflx on a public network, 1 relay on a private network, 2 mDNS names \
             ignored, 1 without a usable UDP address); no check sent"
        ),
        "{words}"
    );
}

/// Pairs beyond the cap are only counted; candidates have their own cap.
#[test]
fn recorded_pairs_and_candidates_are_capped() {
    let mut tried = IceAttempt::new(7860);
    for nth in 0..=TRIED_PAIRS_MAX {
        let remote = SocketAddr::new(IpAddr::from([10, 0, 0, 1]), 1_000 + nth as u16);
        tried.handle_outgoing(local(), remote, CHECK);
        tried.handle_candidate(CandidateKind::Host, remote);
    }
    assert_eq!((tried.pairs.len(), tried.unlisted_checks), (TRIED_PAIRS_MAX, 1));
    assert_eq!(tried.candidates.len(), REMOTE_CANDIDATES_MAX);
}

/// A connected attempt keeps and records nothing.
#[test]
fn a_connected_attempt_records_nothing() {
    let mut tried = tried(|tried, remote| tried.handle_outgoing(local(), remote, CHECK));
    tried.handle_secured();
    assert!(tried.is_secured());
    let remote = address("10.9.8.7:50000");
    tried.handle_incoming(remote, local(), CHECK, true);
    tried.handle_outgoing(local(), remote, CHECK);
    tried.handle_candidate(CandidateKind::Host, remote);
    assert!(tried.pairs.is_empty() && tried.candidates.is_empty());
}

/// Arbitrary bytes never cause a panic.
#[test]
fn arbitrary_packets_cause_no_panic() {
    let mut tried = IceAttempt::new(7860);
    for contents in [&[][..], &[0], &[0, 2], &[128; 12], &[64], &[255, 255]] {
        tried.handle_incoming(local(), local(), PacketKind::from_packet(contents), true);
        tried.handle_outgoing(local(), local(), PacketKind::from_packet(contents));
    }
    assert_eq!(tried.cause(), IceFailure::NothingReceived);
}
