//! Hostile input: noise, damaged and repeated datagrams, floods, and abandoned sessions.

use crate::webrtc::connection::ConnectionSetup;
use crate::webrtc::connection::ReceivedPacket;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::super::*;
use super::pair::{Pair, Rng, ms, runner, secs, setup};
use crate::limits::{AUDIO_SOURCES_MAX, CHECKED_ADDRESSES_MAX, REMOTE_CANDIDATES_MAX};
use crate::testing::client::TestClient;
use crate::webrtc::connection::{ConnectionContext, IceSecret};
use crate::webrtc::crypto;
use crate::webrtc::gather::GatheredAddresses;

/// A running call, and everything that its client has sent.
fn call() -> (Pair, Vec<Vec<u8>>) {
    let mut pair = Pair::new();
    pair.keep_launched = true;
    pair.connect();
    pair.open_audio(16_000, 16_000);
    pair.client.speak(440.0, pair.now);
    pair.client.send("hello");
    pair.run(secs(4));
    let launched = std::mem::take(&mut pair.launched);
    pair.keep_launched = false;
    (pair, launched)
}

/// Asserts that audio and messages pass both ways from now on.
fn assert_talks(pair: &mut Pair) {
    let (frames, received, texts) = (pair.bot.frames, pair.client.received.len(), pair.texts().len());
    let read = pair.client.read.len();
    pair.client.send("still there?");
    pair.send("yes");
    pair.run(secs(1));
    assert!(pair.bot.frames - frames >= 45, "{} frames", pair.bot.frames - frames);
    assert!(
        pair.client.received.len() - received >= 48,
        "{} packets",
        pair.client.received.len() - received
    );
    assert_eq!((pair.texts().len() - texts, pair.client.read.len() - read), (1, 1));
    assert_eq!(pair.left(), None);
}

fn noise(rng: &mut Rng) -> Vec<u8> {
    let mut noise: Vec<u8> = (0..rng.below(1_300)).map(|_| rng.next() as u8).collect();
    // Mostly with a first byte of STUN, DTLS or RTP.
    if let Some(first) = noise.first_mut()
        && rng.below(4) > 0
    {
        *first = [0, 1, 20, 21, 22, 23, 26, 128, 144, 160][rng.below(10)];
    }
    noise
}

fn mutilated(rng: &mut Rng, from: &[Vec<u8>]) -> Vec<u8> {
    let mut datagram = from[rng.below(from.len())].clone();
    match rng.below(4) {
        0 => datagram.truncate(rng.below(datagram.len() + 1)),
        1 => datagram.extend((0..rng.below(64)).map(|_| 0xaa)),
        _ => {
            for _ in 0..=rng.below(4) {
                let at = rng.below(datagram.len().max(1));
                if let Some(byte) = datagram.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
    }
    datagram
}

/// Tens of thousands of random, damaged or repeated datagrams, from the client's address and
/// others, neither end the call nor are heard in it.
#[test]
fn foreign_datagrams_end_no_call() {
    let (mut pair, sent) = call();
    let outsiders: [SocketAddr; 3] = [
        pair.client.address,
        "198.51.100.66:6666".parse().expect("an address"),
        "[2001:db8::66]:6666".parse().expect("an address"),
    ];
    let mut rng = Rng(0x5eed);
    for round in 0..20 {
        for _ in 0..1_500 {
            let datagram = match rng.below(3) {
                0 => noise(&mut rng),
                1 => mutilated(&mut rng, &sent),
                _ => sent[rng.below(sent.len())].clone(),
            };
            let source = outsiders[rng.below(3)];
            pair.act(|session, now| {
                session.handle_packet(&ReceivedPacket::from_datagram(source, runner(), &datagram), now)
            });
        }
        pair.run(ms(100));
        assert_eq!(pair.left(), None, "round {round}: {:?}", pair.bot.events);
    }
    assert_eq!(pair.texts(), ["hello"]);
    assert_talks(&mut pair);
    assert_eq!(pair.times(&SessionEvent::Joined).len(), 1);
}

/// The same during setup: the client still connects, and without the delay of a retransmitted
/// handshake.
#[test]
fn foreign_datagrams_keep_no_client_out() {
    let (_, sent) = call();
    for seed in 1..=20 {
        let mut rng = Rng(seed);
        let mut pair = Pair::new();
        let outsider: SocketAddr = "198.51.100.66:6666".parse().expect("an address");
        for _ in 0..60 {
            for _ in 0..10 {
                let datagram = match rng.below(2) {
                    0 => noise(&mut rng),
                    _ => mutilated(&mut rng, &sent),
                };
                pair.act(|session, now| {
                    session.handle_packet(&ReceivedPacket::from_datagram(outsider, runner(), &datagram), now)
                });
            }
            pair.run(ms(2));
        }
        pair.connect();
        let joined = pair.times(&SessionEvent::Joined)[0];
        assert!(joined < ms(200), "{joined:?}");
    }
}

/// Unsigned goodbyes: unencrypted DTLS alerts, and RTCP BYE without a tag.
#[test]
fn an_unsigned_goodbye_is_ignored() {
    let (mut pair, _) = call();
    let close_notify = [21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 1, 0];
    let fatal = [21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 10, 0, 2, 2, 40];
    let bye = [0x81, 203, 0, 1, 0, 0, 0, 6];
    let source = pair.client.address;
    for datagram in [&close_notify[..], &fatal, &bye] {
        pair.act(|session, now| session.handle_packet(&ReceivedPacket::from_datagram(source, runner(), datagram), now));
    }
    pair.run(secs(1));
    assert_talks(&mut pair);
}

/// Only the first packets of a stream carry the mid. A forged packet with the mid and another SSRC
/// must not take the section, although str0m reads both before it verifies the tag.
#[test]
fn a_forged_source_does_not_silence_the_caller() {
    let (mut pair, sent) = call();
    pair.run(secs(10));
    let is_rtp = |datagram: &&Vec<u8>| (128..192).contains(&datagram[0]) && !(192..224).contains(&datagram[1]);
    let mut forged = sent.iter().find(is_rtp).expect("a packet of sound").clone();
    let source = pair.client.address;
    for number in 0..10u32 {
        forged[8..12].copy_from_slice(&(0xdead_0000 + number).to_be_bytes());
        pair.act(|session, now| session.handle_packet(&ReceivedPacket::from_datagram(source, runner(), &forged), now));
        assert_talks(&mut pair);
    }
    // Nor while the client is muted.
    pair.client.mute();
    pair.run(secs(5));
    pair.act(|session, now| session.handle_packet(&ReceivedPacket::from_datagram(source, runner(), &forged), now));
    pair.client.speak(440.0, pair.now);
    assert_talks(&mut pair);
}

/// A client may change its SSRC with each press of a button. Only the last ones are kept.
#[test]
fn sources_of_one_client_are_bounded() {
    let (mut pair, _) = call();
    for _ in 0..3 {
        pair.client.change_source();
        pair.run(ms(500));
        assert_talks(&mut pair);
    }
    for _ in 0..2 * AUDIO_SOURCES_MAX {
        pair.client.change_source();
        pair.run(ms(100));
    }
    assert_eq!(pair.session.kept_sources(), AUDIO_SOURCES_MAX);
    pair.run(ms(500));
    assert_talks(&mut pair);
    assert_eq!(pair.left(), None);
    // Each source has numbers of its own, from which nothing is lost.
    let counters = pair.session.audio_receiver.stats().counters;
    assert_eq!((counters.lost, counters.concealed), (0, 0), "{counters:?}");
}

/// str0m remembers each source, so a client has a limited number of them in all. The last one is
/// received until the end.
#[test]
fn all_sources_of_one_client_are_bounded() {
    let (mut pair, _) = call();
    pair.session.skip_sources();
    pair.client.change_source();
    pair.run(ms(500));
    assert_talks(&mut pair);
    let frames = pair.bot.frames;
    for _ in 0..3 {
        pair.client.change_source();
        pair.run(ms(500));
    }
    assert!(pair.bot.frames - frames < 10, "{} frames", pair.bot.frames - frames);
    assert_eq!(pair.left(), None);
}

/// Only the client keeps its session alive: packets of others do not.
#[test]
fn foreign_packets_keep_no_session_alive() {
    let (mut pair, sent) = call();
    pair.up.cut = true;
    let outsider: SocketAddr = "198.51.100.66:6666".parse().expect("an address");
    let mut rng = Rng(9);
    let vanished = pair.time();
    for _ in 0..400 {
        let datagram = mutilated(&mut rng, &sent);
        pair.act(|session, now| {
            session.handle_packet(&ReceivedPacket::from_datagram(outsider, runner(), &datagram), now)
        });
        pair.run(ms(100));
    }
    let lost = pair.times(&SessionEvent::Lost);
    assert!(lost.len() == 1 && lost[0] - vanished < secs(7), "{:?}", pair.bot.events);
    assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::Vanished));
}

/// Checks from a bounded number of ports are answered; the rest is ignored, and the call continues.
#[test]
fn addresses_of_one_client_are_bounded() {
    let (mut pair, _) = call();
    let ours = |pair: &mut Pair| {
        let before = pair.answers;
        let checks: Vec<Vec<u8>> = std::mem::take(&mut pair.launched);
        let check = checks
            .iter()
            .find(|datagram| datagram.starts_with(&[0, 1]))
            .expect("a check")
            .clone();
        for port in 10_000..12_000 {
            let source = SocketAddr::new(pair.client.address.ip(), port);
            pair.act(|session, now| {
                session.handle_packet(&ReceivedPacket::from_datagram(source, runner(), &check), now)
            });
        }
        pair.answers - before
    };
    pair.keep_launched = true;
    pair.run(secs(4));
    pair.keep_launched = false;
    let answers = ours(&mut pair);
    assert!(
        (CHECKED_ADDRESSES_MAX - 2..=CHECKED_ADDRESSES_MAX).contains(&answers),
        "{answers} answers"
    );
    pair.run(secs(5));
    assert_talks(&mut pair);
}

/// Two hundred sessions dropped in any state leak nothing: each connection holds its provider.
#[test]
fn dropped_sessions_leak_nothing() {
    let common = ConnectionContext::default();
    for number in 0..200 {
        let mut client = TestClient::new("192.0.2.9:5000");
        let offer = client.offer();
        let setup = ConnectionSetup {
            context: &common,
            local: &[runner()],
            tcp: &[],
            gathered: &crate::webrtc::gather::NOTHING,
            embedded: None,
            device: None,
            seed: number,
            secret: IceSecret([number as u8; 32]),
        };
        let (session, answer) = WebRtcSession::accept(&offer, &setup, client.start).expect("an answer");
        assert!(common.providers_in_use() > 0);
        client.accept(&answer);
        let mut pair = Pair::joined(client, session);
        pair.run(ms(number % 150));
        if number % 3 == 0 {
            pair.act(|session, now| session.handle_end(LeaveReason::Shutdown, now));
        }
    }
    assert_eq!(common.providers_in_use(), 0);
}

const OUTSIDER: &str = "198.51.100.66:6666";

fn outsider() -> SocketAddr {
    OUTSIDER.parse().expect("an address")
}

fn is_check(datagram: &[u8]) -> bool {
    datagram.starts_with(&[0, 1])
}

fn is_record(first: u8) -> bool {
    (20..64).contains(&first)
}

/// A ClientHello in a DTLS 1.2 record, RFC 6347 section 4.
fn is_client_hello(datagram: &[u8]) -> bool {
    datagram.first() == Some(&22) && datagram.get(13) == Some(&1)
}

/// Recomputes the FINGERPRINT of RFC 8489 section 14.7, as any sender can.
fn fingerprinted(mut check: Vec<u8>) -> Vec<u8> {
    let end = check.len() - 8;
    assert_eq!(check[end..end + 4], [0x80, 0x28, 0, 4], "the fingerprint comes last");
    let crc = !check[..end].iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    });
    check[end + 4..].copy_from_slice(&(crc ^ 0x5354_554e).to_be_bytes());
    check
}

/// Changes one byte of an attribute, and keeps the check valid otherwise.
fn forged(check: &[u8], attribute: u16, at: usize) -> Vec<u8> {
    let mut check = check.to_vec();
    let mut offset = 20;
    loop {
        let field = |at: usize| u16::from_be_bytes([check[at], check[at + 1]]);
        let (kind, length) = (field(offset), usize::from(field(offset + 2)));
        if kind == attribute {
            check[offset + 4 + at] ^= 1;
            return fingerprinted(check);
        }
        offset += 4 + length.next_multiple_of(4);
    }
}

/// Packets of a sender that does not know the session: checks with a wrong fragment or signature,
/// unrequested answers, and everything that only a validated address may send.
fn rubbish(sent: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let check = sent.iter().find(|datagram| is_check(datagram)).expect("a check");
    assert_eq!(fingerprinted(check.clone()), *check, "the test's own sum");
    let as_class = |first: u8, second: u8| {
        let mut message = check.clone();
        message[..2].copy_from_slice(&[first, second]);
        fingerprinted(message)
    };
    let mut list = vec![
        // This end's fragment, the peer's fragment, the signature.
        forged(check, 0x0006, 0),
        forged(check, 0x0006, check[23] as usize - 1),
        forged(check, 0x0008, 7),
        // Binding indication, success, failure; a TURN allocation.
        as_class(0x00, 0x11),
        as_class(0x01, 0x01),
        as_class(0x01, 0x11),
        as_class(0x00, 0x03),
        // A plain binding request, as to a STUN server.
        [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12]].concat(),
    ];
    // DTLS with a ClientHello, SCTP in DTLS, SRTP and SRTCP, as the client sent them.
    list.extend(
        sent.iter()
            .filter(|datagram| !is_check(datagram) && datagram[0] >= 20)
            .cloned(),
    );
    // The same types with random content.
    for first in [20, 21, 22, 23, 25, 63, 64, 79, 128, 144, 191, 192, 255] {
        list.push([&[first, 200][..], &[0x5a; 100]].concat());
        list.push(vec![first]);
    }
    list
}

/// Foreign packets of any kind are not answered and change nothing: before the client's first
/// packet, during setup, and in the call.
#[test]
fn foreign_packets_get_no_answer_and_have_no_effect() {
    let (mut pair, _) = call();
    pair.keep_launched = true;
    pair.run(secs(4));
    let mut live = std::mem::take(&mut pair.launched);
    pair.keep_launched = false;
    // The handshake of another call.
    live.extend(call().1.into_iter().filter(|datagram| is_record(datagram[0])).take(20));
    assert!(live.iter().any(|datagram| is_client_hello(datagram)));
    let rubbish_of_call = rubbish(&live);
    for datagram in &rubbish_of_call {
        pair.act(|session, now| {
            session.handle_packet(&ReceivedPacket::from_datagram(outsider(), runner(), datagram), now)
        });
        pair.run(ms(5));
    }
    assert_talks(&mut pair);
    assert_eq!(
        pair.destinations
            .iter()
            .filter(|(_, to, _)| *to != pair.client.address)
            .count(),
        0
    );
    assert_eq!(
        (
            pair.times(&SessionEvent::Joined).len(),
            pair.times(&SessionEvent::Lost).len()
        ),
        (1, 0)
    );

    // Before the client's first packet; checks with this session's fragment have a damaged
    // signature.
    let mut pair = Pair::new();
    pair.keep_launched = true;
    pair.up.cut = true;
    pair.run(ms(500));
    let mut launched = std::mem::take(&mut pair.launched);
    launched.extend(live.into_iter().filter(|datagram| !is_check(datagram)));
    for datagram in rubbish(&launched) {
        pair.act(|session, now| {
            session.handle_packet(&ReceivedPacket::from_datagram(outsider(), runner(), &datagram), now)
        });
        pair.run(ms(5));
    }
    assert_eq!(
        pair.destinations.iter().filter(|(_, to, _)| *to == outsider()).count(),
        0
    );
    assert_eq!(pair.answers, 0);
    pair.up.cut = false;
    pair.connect();
}

/// DTLS is accepted only from addresses that passed a check, even if the offer names the address.
/// An early ClientHello is answered after its check.
#[test]
fn dtls_is_answered_only_after_a_check() {
    let (_, sent) = call();
    let hello = sent
        .iter()
        .find(|datagram| is_client_hello(datagram))
        .expect("a ClientHello");
    let mut pair = Pair::new();
    pair.up.cut = true;
    pair.run(ms(300));
    let client = pair.client.address;
    assert!(
        pair.destinations
            .iter()
            .any(|(_, to, first)| (*to, *first) == (client, 0)),
        "it is being checked"
    );
    for source in [client, outsider()] {
        for _ in 0..10 {
            pair.act(|session, now| {
                session.handle_packet(&ReceivedPacket::from_datagram(source, runner(), hello), now)
            });
            pair.run(ms(20));
        }
    }
    assert!(
        !pair.destinations.iter().any(|(_, _, first)| is_record(*first)),
        "nothing was answered"
    );

    // Now the client's checks arrive, and its ClientHello a moment later.
    pair.up.cut = false;
    pair.connect();
    let first = |wanted: fn(u8) -> bool| {
        let found = pair.destinations.iter().find(|(_, _, first)| wanted(*first));
        *found.expect("there was one")
    };
    let (checked_at, checked, _) = first(|first| first == 1);
    let (answered_at, answered, _) = first(is_record);
    assert!(checked_at <= answered_at && (checked, answered) == (client, client));
    assert!(pair.destinations.iter().all(|(_, to, _)| *to == client));
}

/// Runs an unanswered session to its end. Returns how much was sent to whom, and when.
/// `each_100_ms` may act on it.
fn sent_to(
    setup: &ConnectionSetup<'_>,
    lines: &[String],
    mut each_100_ms: impl FnMut(&mut WebRtcSession, &mut TestClient),
) -> BTreeMap<SocketAddr, Vec<(Duration, usize)>> {
    let mut client = TestClient::new("192.0.2.9:5000");
    let offer = client.offer();
    let start = client.start;
    let (mut session, answer) = WebRtcSession::accept(&offer, setup, start).expect("an answer");
    client.accept(&answer);
    for line in lines {
        session.add_remote_candidate(line);
    }
    let mut sent = BTreeMap::<_, Vec<_>>::new();
    let (mut now, mut next) = (start, start);
    loop {
        match session.poll_output(now) {
            SessionOutput::Timeout(Deadline { at, .. }) => {
                if now >= next {
                    next += ms(100);
                    each_100_ms(&mut session, &mut client);
                }
                now = at.clamp(now + ms(1), next.max(now + ms(1)));
                session.handle_timeout(now);
            }
            SessionOutput::Closed => return sent,
            SessionOutput::Command(WebRtcCommand::Transmit(mut transmit)) => {
                let sent = sent.entry(transmit.destination).or_default();
                sent.push((now - start, transmit.contents().len()));
            }
            SessionOutput::Event(_)
            | SessionOutput::Audio(_)
            | SessionOutput::Command(_)
            | SessionOutput::BotAudioWanted => {}
        }
    }
}

fn candidates(count: usize) -> Vec<String> {
    (0..count)
        .map(|nth| format!("candidate:{nth} 1 udp 2122194687 198.51.100.{nth} 36127 typ host"))
        .collect()
}

fn locals(count: u8) -> Vec<SocketAddr> {
    (0..count)
        .map(|nth| SocketAddr::from(([192, 0, 2, 100 + nth], 7860)))
        .collect()
}

/// Asserts the limits on what an offer can cause to be sent.
fn assert_bounded(sent: &BTreeMap<SocketAddr, Vec<(Duration, usize)>>) {
    let mut all: Vec<_> = sent.values().flatten().copied().collect();
    all.sort();
    assert!(all.len() <= 330, "{} checks", all.len());
    assert!(
        all.iter().all(|(_, bytes)| *bytes <= 112),
        "{:?}",
        all.iter().map(|(_, bytes)| bytes).max()
    );
    for (nth, (from, _)) in all.iter().enumerate() {
        let within = all[nth..].iter().filter(|(at, _)| *at < *from + secs(1)).count();
        assert!(within <= 22, "{within} checks in the second from {from:?}");
    }
}

/// An offer with foreign addresses causes a bounded number of checks, whatever the number of
/// addresses on both sides. None go to addresses beyond the cap.
#[test]
fn checks_to_named_addresses_are_bounded() {
    for (local, remote) in [
        (1, 1),
        (1, REMOTE_CANDIDATES_MAX),
        (4, 20),
        (16, 1),
        (16, 20),
        (16, 100),
    ] {
        let sent = sent_to(&setup(None, &locals(local)), &candidates(remote), |_, _| {});
        assert_bounded(&sent);
        let named = sent
            .keys()
            .filter(|to| to.ip().to_string().starts_with("198.51.100."))
            .count();
        // One place is for the client itself.
        assert!(named < REMOTE_CANDIDATES_MAX, "{named} of {remote}");
        if local == 1 {
            assert_eq!(named, remote.min(REMOTE_CANDIDATES_MAX - 1));
        }
    }
}

/// Ten ICE restarts per second with foreign addresses cause no higher rate of checks.
#[test]
fn ice_restarts_cause_no_more_checks() {
    let mut restarts = 0;
    let sent = sent_to(&setup(None, &locals(4)), &candidates(20), |session, client| {
        let offer = client.change(|api| drop(api.ice_restart(false)));
        if let Ok(answer) = session.renegotiate(&offer) {
            restarts += 1;
            client.accept(&answer);
            candidates(20)
                .iter()
                .for_each(|line| session.add_remote_candidate(line));
        }
    });
    assert!(restarts >= 100, "{restarts} restarts");
    assert_bounded(&sent);
}

/// No check goes to addresses that no peer can have: the runner's own, privileged ports, broadcast.
#[test]
fn impossible_addresses_are_not_checked() {
    let local = [runner(), SocketAddr::from(([127, 0, 0, 1], runner().port()))];
    let at = |address: &str| -> SocketAddr { address.parse().expect("an address") };
    let gathered = GatheredAddresses {
        reflexive: vec![(at("203.0.113.5:40000"), runner())],
        relayed: vec![(at("203.0.113.9:50000"), runner())],
    };
    let setup = ConnectionSetup {
        gathered: &gathered,
        ..setup(None, &local)
    };
    let named = |list: &[&str]| -> BTreeMap<SocketAddr, Vec<(Duration, usize)>> {
        let lines: Vec<String> = list
            .iter()
            .map(|address| format!("candidate:1 1 udp 2122194687 {address} typ host"))
            .collect();
        sent_to(&setup, &lines, |_, _| {})
    };
    let sent = named(&[
        "192.0.2.1 7860",
        "127.0.0.1 7860",
        "127.7.7.7 7860",
        "203.0.113.5 40000",
        "203.0.113.9 50000",
        "192.0.2.77 53",
        "192.0.2.77 1023",
        "224.0.0.251 5353",
        "255.255.255.255 9000",
        "0.0.0.0 9000",
    ]);
    let client = at("192.0.2.9:5000");
    assert_eq!(sent.into_keys().collect::<Vec<_>>(), [client]);
    // Similar but possible addresses are checked.
    let sent = named(&[
        "192.0.2.1 7861",
        "127.0.0.1 7861",
        "203.0.113.5 40001",
        "192.0.2.77 1024",
    ]);
    assert_eq!(sent.len(), 5);
}

/// Creating a certificate takes milliseconds, and it identifies the runner: all sessions share one.
#[test]
fn sessions_share_one_certificate() {
    let fingerprint = || {
        let mut client = TestClient::new("192.0.2.9:5000");
        let (_, answer) =
            WebRtcSession::accept(&client.offer(), &setup(None, &[runner()]), client.start).expect("an answer");
        let line = answer.lines().find(|line| line.starts_with("a=fingerprint:"));
        line.expect("a fingerprint").to_owned()
    };
    assert_eq!(fingerprint(), fingerprint());
    let certificates = [(); 2].map(|()| crypto::certificate().expect("a certificate"));
    assert!(std::ptr::eq(certificates[0], certificates[1]));
}
