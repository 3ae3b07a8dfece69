//! Calls of an ICE-lite server: this end checks, starts the handshake, and sends no audio before
//! the pick-up.

use super::super::offers::{CALL_FREED_AFTER, CALL_HELD_WITHIN};
use crate::limits::CONNECT_WITHIN;
use std::time::Instant;

use super::super::*;
use super::pair::{Pair, Tone, ms, runner, secs, setup};
use crate::testing::client::{TestClient, config};

/// A call whose offer was answered.
fn answered() -> Pair {
    let server = config().set_ice_lite(true);
    let mut server = TestClient::with(server, "192.0.2.9:5000", Instant::now()).labels(&[]);
    let offer = server.offer();
    assert!(offer.contains("a=ice-lite\r\n") && offer.contains("a=setup:actpass\r\n"));
    let accepted = WebRtcSession::accept_call(&offer, &setup(None, &[runner()]), server.start);
    let (session, answer) = accepted.expect("an offer that can be answered");
    assert!(answer.contains("a=setup:active\r\n") && !answer.contains("a=ice-lite"));
    server.accept(&answer);
    let mut pair = Pair::joined(server, session);
    pair.keep_sent = true;
    pair
}

/// A connected call before its pick-up.
fn held() -> Pair {
    let mut pair = answered();
    assert!(pair.run_until(secs(2), |pair| pair.client.connected && !pair.progress.is_empty()));
    assert_eq!(pair.progress, [CallProgress::Secured]);
    pair
}

fn open(pair: &mut Pair) {
    pair.session.open(pair.now);
    pair.run(ms(0));
}

fn is_rtp(packet: &[u8]) -> bool {
    (128..=191).contains(&packet[0]) && !(192..=223).contains(&packet[1])
}

fn is_media(packet: &[u8]) -> bool {
    (128..=191).contains(&packet[0])
}

fn first(pair: &Pair, is_it: fn(&[u8]) -> bool) -> Option<Duration> {
    let mut sent = pair.sent.iter();
    sent.find(|(_, packet)| is_it(packet)).map(|(at, _)| *at)
}

/// The server waits for the first handshake packet, which is sent once a check was answered.
#[test]
fn the_handshake_starts_at_once() {
    let pair = held();
    let is_dtls = |packet: &[u8]| (20..=63).contains(&packet[0]);
    let hello = pair
        .sent
        .iter()
        .find(|(_, packet)| is_dtls(packet))
        .expect("a handshake");
    assert_eq!((hello.1[0], hello.1[13]), (22, 1), "a ClientHello");
    assert!(hello.0 <= ms(100), "{:?}", hello.0);
}

/// Before the pick-up nothing is sent, not even silence, and no caller has joined.
#[test]
fn no_audio_is_sent_before_the_pick_up() {
    let mut pair = held();
    pair.open_audio(16_000, 16_000);
    pair.bot.endless = Some(Tone::new(440.0, 16_000));
    pair.run(secs(30));
    assert_eq!(first(&pair, is_rtp), None);
    assert_eq!(pair.bot.events, []);
    let picked_up = pair.time();
    open(&mut pair);
    pair.run(secs(1));
    assert_eq!(pair.bot.events.first(), Some(&(picked_up, SessionEvent::Joined)));
    let received = first(&pair, is_rtp).expect("audio");
    assert!(received - picked_up <= ms(20), "{received:?} after {picked_up:?}");
    assert!(
        (45..=51).contains(&pair.client.received.len()),
        "{}",
        pair.client.received.len()
    );
}

/// The pick-up may precede the end of the handshake.
#[test]
fn a_call_picked_up_early_joins_once_secured() {
    let mut pair = answered();
    open(&mut pair);
    assert!(pair.progress.is_empty() && pair.bot.events.is_empty());
    pair.run(secs(1));
    assert_eq!(
        pair.bot.events.first().map(|(_, event)| event),
        Some(&SessionEvent::Joined)
    );
    assert!(first(&pair, is_rtp).is_some());
}

#[test]
fn a_call_that_is_never_secured_ends_after_its_time() {
    let mut pair = answered();
    pair.pass = |_, _| false;
    pair.run(secs(3));
    assert_eq!(pair.bot.events, [], "it may still be picked up");
    let picked_up = pair.time();
    open(&mut pair);
    pair.run(secs(20));
    assert_eq!(
        pair.bot.events,
        [(
            picked_up + CONNECT_WITHIN,
            SessionEvent::Left(LeaveReason::NeverConnected)
        )]
    );
    let mut forgotten = held();
    forgotten.run(secs(90));
    let left = SessionEvent::Left(LeaveReason::NeverConnected);
    assert_eq!(forgotten.bot.events, [(CALL_HELD_WITHIN, left)]);
}

/// The provider ends a call without media after 20 to 30 s, so silence is sent.
#[test]
fn a_silent_bot_keeps_the_call() {
    let mut pair = held();
    open(&mut pair);
    let began = pair.time();
    pair.run(secs(35));
    let mut last = began;
    for (at, _) in pair.sent.iter().filter(|(at, packet)| *at >= began && is_media(packet)) {
        assert!(*at - last <= secs(1), "no media from {last:?} to {at:?}");
        last = *at;
    }
    assert!(pair.time() - last <= secs(1), "{last:?}");
    assert_eq!(pair.bot.events.len(), 1, "{:?}", pair.bot.events);
}

/// A server that answers no check for fifteen seconds is gone.
#[test]
fn a_call_whose_server_is_gone_ends() {
    let mut pair = held();
    open(&mut pair);
    pair.client.speak(300.0, pair.now);
    pair.run(secs(60));
    assert_eq!(
        pair.bot.events.len(),
        1,
        "as long as it answers, it lasts: {:?}",
        pair.bot.events
    );
    let gone = pair.time();
    pair.pass = |up, _| !up;
    pair.run(secs(20));
    let events: Vec<_> = pair.bot.events[1..]
        .iter()
        .map(|(at, event)| (*at - gone, event.clone()))
        .collect();
    let [
        (lost, SessionEvent::Lost),
        (left, SessionEvent::Left(LeaveReason::Vanished)),
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert!(
        *lost <= PEER_LOST_AFTER + ms(10) && (CALL_FREED_AFTER - ms(100)..=CALL_FREED_AFTER + ms(10)).contains(left),
        "{events:?}"
    );
}

/// Answers to checks keep the call of a silent server.
#[test]
fn a_silent_caller_keeps_the_call() {
    let mut pair = held();
    open(&mut pair);
    pair.run(secs(120));
    assert_eq!(pair.bot.events.len(), 1, "{:?}", pair.bot.events);
}
