//! What may come from anybody: noise, mutilated and repeated datagrams, floods, and sessions that are thrown away.

use std::net::SocketAddr;

use super::super::*;
use super::client::Client;
use super::pair::{Pair, Rng, ms, runner, secs};
use crate::limits::{AUDIO_SOURCES_MAX, CHECKED_ADDRESSES_MAX};
use crate::proto::rtc::Common;

/// A running call, and everything that its client has sent so far.
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

/// Asserts that sound and messages pass both ways from here on.
fn assert_talks(pair: &mut Pair) {
    let (frames, heard, texts) = (pair.bot.frames, pair.client.heard.len(), pair.texts().len());
    let read = pair.client.read.len();
    pair.client.send("still there?");
    pair.send("yes");
    pair.run(secs(1));
    assert!(pair.bot.frames - frames >= 45, "{} frames", pair.bot.frames - frames);
    assert!(
        pair.client.heard.len() - heard >= 48,
        "{} packets",
        pair.client.heard.len() - heard
    );
    assert_eq!((pair.texts().len() - texts, pair.client.read.len() - read), (1, 1));
    assert_eq!(pair.left(), None);
}

fn noise(rng: &mut Rng) -> Vec<u8> {
    let mut noise: Vec<u8> = (0..rng.below(1_300)).map(|_| rng.next() as u8).collect();
    // Mostly with a first byte that means something: STUN, DTLS, RTP.
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

/// Tens of thousands of datagrams that are noise, mutilated, or repeated, from the client's own address and from others: none
/// of them ends the talk or is heard in it.
#[test]
fn no_datagram_of_a_stranger_ends_a_talk() {
    let (mut pair, sent) = call();
    let strangers: [SocketAddr; 3] = [
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
            let source = strangers[rng.below(3)];
            pair.act(|session, now| session.handle_datagram(source, runner(), &datagram, now));
        }
        pair.run(ms(100));
        assert_eq!(pair.left(), None, "round {round}: {:?}", pair.bot.events);
    }
    assert_eq!(pair.texts(), ["hello"]);
    assert_talks(&mut pair);
    assert_eq!(pair.times(&Event::Joined).len(), 1);
}

/// The same while the connection is being made: whatever comes between the client's own datagrams, it connects, and without
/// the wait that a handshake takes which has to be sent again.
#[test]
fn no_datagram_of_a_stranger_keeps_a_client_out() {
    let (_, sent) = call();
    for seed in 1..=20 {
        let mut rng = Rng(seed);
        let mut pair = Pair::new();
        let stranger: SocketAddr = "198.51.100.66:6666".parse().expect("an address");
        for _ in 0..60 {
            for _ in 0..10 {
                let datagram = match rng.below(2) {
                    0 => noise(&mut rng),
                    _ => mutilated(&mut rng, &sent),
                };
                pair.act(|session, now| session.handle_datagram(stranger, runner(), &datagram, now));
            }
            pair.run(ms(2));
        }
        pair.connect();
        let joined = pair.times(&Event::Joined)[0];
        assert!(joined < ms(200), "{joined:?}");
    }
}

/// Goodbyes that nobody signed: alerts of DTLS in the clear, and RTCP BYE without its tag.
#[test]
fn an_unsigned_goodbye_is_none() {
    let (mut pair, _) = call();
    let close_notify = [21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 1, 0];
    let fatal = [21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 10, 0, 2, 2, 40];
    let bye = [0x81, 203, 0, 1, 0, 0, 0, 6];
    let source = pair.client.address;
    for datagram in [&close_notify[..], &fatal, &bye] {
        pair.act(|session, now| session.handle_datagram(source, runner(), datagram, now));
    }
    pair.run(secs(1));
    assert_talks(&mut pair);
}

/// The first packets of a stream name their section, the later ones only their source. A forged packet that names the section
/// and another source must not take the section away from the client: str0m looks at the names before it looks at the tag.
#[test]
fn a_forged_source_does_not_silence_the_caller() {
    let (mut pair, sent) = call();
    pair.run(secs(10));
    let is_rtp = |datagram: &&Vec<u8>| (128..192).contains(&datagram[0]) && !(192..224).contains(&datagram[1]);
    let mut forged = sent.iter().find(is_rtp).expect("a packet of sound").clone();
    let source = pair.client.address;
    for number in 0..10u32 {
        forged[8..12].copy_from_slice(&(0xdead_0000 + number).to_be_bytes());
        pair.act(|session, now| session.handle_datagram(source, runner(), &forged, now));
        assert_talks(&mut pair);
    }
    // Nor while the client is silent.
    pair.client.mute();
    pair.run(secs(5));
    pair.act(|session, now| session.handle_datagram(source, runner(), &forged, now));
    pair.client.speak(440.0, pair.now);
    assert_talks(&mut pair);
}

/// A client may change its source a few times, as one that starts its microphone anew does, and is heard all the same. One
/// that does it for every packet is not followed for ever.
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
    let frames = pair.bot.frames;
    pair.run(secs(1));
    assert_eq!(pair.bot.frames, frames);
    assert_eq!(pair.left(), None);
}

/// Nobody but the client keeps a session alive: one that has gone is freed in time, whoever goes on sending.
#[test]
fn strangers_do_not_keep_a_session_alive() {
    let (mut pair, sent) = call();
    pair.up.cut = true;
    let stranger: SocketAddr = "198.51.100.66:6666".parse().expect("an address");
    let mut rng = Rng(9);
    let vanished = pair.time();
    for _ in 0..400 {
        let datagram = mutilated(&mut rng, &sent);
        pair.act(|session, now| session.handle_datagram(stranger, runner(), &datagram, now));
        pair.run(ms(100));
    }
    let lost = pair.times(&Event::Lost);
    assert!(lost.len() == 1 && lost[0] - vanished < secs(7), "{:?}", pair.bot.events);
    assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::Vanished));
}

/// A client that checks from one port after the other is answered for as many as networks make of one; the rest is ignored,
/// and the talk goes on.
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
            pair.act(|session, now| session.handle_datagram(source, runner(), &check, now));
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

/// Two hundred sessions, thrown away in whatever state they were, leave nothing behind: each connection holds its provider.
#[test]
fn sessions_that_are_dropped_leave_nothing() {
    let common = Common::new();
    for number in 0..200 {
        let mut client = Client::new("192.0.2.9:5000");
        let offer = client.offer();
        let setup = Setup {
            common: &common,
            local: &[runner()],
            gathered: &crate::proto::gather::NOTHING,
            embedded: None,
            seed: number,
        };
        let (session, answer) = Session::accept(&offer, &setup, client.start).expect("an answer");
        assert!(common.held() > 0);
        client.accept(&answer);
        let mut pair = Pair::joined(client, session);
        pair.run(ms(number % 150));
        if number % 3 == 0 {
            pair.act(|session, now| session.handle_end(LeaveReason::Shutdown, now));
        }
    }
    assert_eq!(common.held(), 0);
}
