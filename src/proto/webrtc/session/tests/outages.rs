//! Network outages: audio, messages and checks resume, up to the limit.

use std::time::Duration;

use super::super::*;
use super::device::{as_device, device};
use super::pair::{Pair, Tone, ms, secs};
use crate::limits::{CHECK_INTERVAL_MAX, PEER_FREED_AFTER};

/// Durations in milliseconds.
const OUTAGES: [u64; 7] = [500, 1_000, 2_000, 5_000, 8_000, 20_000, 28_000];

/// Passes a device's packets, which are only answers to checks.
fn answers_only(up: bool, contents: &[u8]) -> bool {
    !(up && contents.starts_with(&[0, 1]))
}

fn call(talks: bool) -> Pair {
    let embedded = Some(std::net::Ipv4Addr::new(192, 0, 2, 1));
    let client = device("192.0.2.57:49152", std::time::Instant::now());
    let mut pair = Pair::embedded(client, embedded, as_device);
    pair.keep_sent = true;
    pair.connect();
    pair.pass = answers_only;
    pair.open_audio(16_000, 16_000);
    if talks {
        pair.client.speak(440.0, pair.now);
    }
    pair.run(ms(3_210));
    pair
}

fn message(number: usize) -> String {
    format!(r#"{{"label":"rtvi-ai","type":"bot-transcription","data":{{"text":"{number}"}}}}"#)
}

fn cut(pair: &mut Pair, is_cut: bool) {
    (pair.up.cut, pair.down.cut) = (is_cut, is_cut);
}

/// Returns when checks were sent in a span.
fn checks(pair: &Pair, from: Duration) -> Vec<Duration> {
    let sent = pair
        .sent
        .iter()
        .filter(|(at, contents)| *at >= from && contents.starts_with(&[0, 1]));
    sent.map(|(at, _)| *at).collect()
}

/// Asserts that audio passes both ways from now on, and that the session continues.
fn assert_sound(pair: &mut Pair, talks: bool, what: &str) {
    let (frames, from) = (pair.bot.frames, pair.time());
    pair.bot.speech.extend(Tone::new(1_000.0, 16_000).take(16_000));
    pair.run(secs(1));
    let received = pair.client.received_between(from, pair.time());
    assert!(received >= 48, "{what}: {received} packets");
    let frames = pair.bot.frames - frames;
    assert!(!talks || frames >= 45, "{what}: {frames} frames");
    assert_eq!(pair.left(), None, "{what}");
}

/// Audio resumes at once, and messages from before, during and after the outage within 2 s, for
/// talking and for push-to-talk devices.
#[test]
fn outages_up_to_the_limit_are_survived() {
    for talks in [true, false] {
        for outage in OUTAGES {
            let what = format!("{outage} ms, talks: {talks}");
            let mut pair = call(talks);
            pair.run(ms(700));
            cut(&mut pair, true);
            pair.send(&message(1));
            pair.run(ms(outage / 2));
            pair.send(&message(2));
            pair.run(ms(outage - outage / 2));
            cut(&mut pair, false);
            let back = pair.time();
            pair.send(&message(3));
            pair.run(ms(600));
            assert_sound(&mut pair, talks, &what);
            pair.run(ms(500));
            assert_eq!(pair.client.texts(), [message(1), message(2), message(3)], "{what}");
            let last = pair.client.read.last().expect("three").0;
            println!("{what}: the last message {:?} after the end of it", last - back);
            let lost = pair.times(&SessionEvent::Lost).len();
            assert_eq!(
                (lost, pair.times(&SessionEvent::Restored).len()),
                (lost, lost),
                "{what}"
            );
            // Checks are sent during and after the outage.
            let from = pair.time();
            pair.run(secs(40));
            let mut last = from - CHECK_INTERVAL_MAX;
            for check in checks(&pair, last).into_iter().chain([pair.time()]) {
                assert!(
                    check - last <= CHECK_INTERVAL_MAX + ms(20),
                    "{what}: none from {last:?} to {check:?}"
                );
                last = check;
            }
            assert_sound(&mut pair, talks, &what);
        }
    }
}

/// Only the device's audio passes, for minutes: that keeps the session alive, and checks continue,
/// because builds with keep-alive would close.
#[test]
fn checks_never_stop() {
    let mut pair = call(true);
    pair.pass = |up, contents| !up || contents[0] >= 4;
    let mut last = pair.time();
    let from = last;
    pair.run(secs(120));
    for check in checks(&pair, from).into_iter().chain([pair.time()]) {
        assert!(
            check - last <= CHECK_INTERVAL_MAX + ms(20),
            "none from {last:?} to {check:?}"
        );
        last = check;
    }
    assert_sound(&mut pair, true, "sound alone");
    // It stops talking, and answers again.
    pair.client.mute();
    pair.pass = answers_only;
    pair.run(secs(100));
    assert_sound(&mut pair, false, "answers alone");
    assert!(!pair.saw(&SessionEvent::Lost));
}

/// Builds with keep-alive count from the last check: after an outage the next one is sent with the
/// first audio, whenever the outage began.
#[test]
fn the_end_of_an_outage_is_followed_by_a_check() {
    for began in [0, 700, 1_500, 2_300] {
        let mut pair = call(true);
        pair.run(ms(began));
        cut(&mut pair, true);
        pair.run(secs(8));
        cut(&mut pair, false);
        let back = pair.time();
        pair.run(ms(100));
        assert!(!checks(&pair, back).is_empty(), "{began} ms");
    }
}

/// The end of a device is detected at the limit, whatever it did before, and not earlier.
#[test]
fn a_longer_outage_ends_the_session_at_the_limit() {
    for talks in [true, false] {
        let mut pair = call(talks);
        let from = pair.time();
        cut(&mut pair, true);
        pair.run(secs(40));
        let (reason, at) = pair.left().expect("the end");
        assert_eq!(reason, LeaveReason::Vanished);
        let took = at - from;
        assert!(
            took <= PEER_FREED_AFTER + ms(20) && took >= PEER_FREED_AFTER - ms(1_050),
            "{took:?}"
        );
    }
}

/// A machine that slept for an hour in a call, whose monotonic clock went on: nothing is made up
/// for, and the device, which has gone long ago, counts as gone within the usual limit. To a
/// session whose clock stood still, the sleep is an outage as above.
#[test]
fn a_call_of_a_machine_that_slept_ends_without_a_burst() {
    for talks in [true, false] {
        let mut pair = call(talks);
        pair.bot.speech.extend(Tone::new(1_000.0, 16_000).take(5 * 16_000));
        pair.run(secs(1));
        cut(&mut pair, true);
        pair.now += secs(3_600);
        let (sent, frames, woke) = (pair.sent.len(), pair.bot.frames, pair.time());
        // No longer: the client of the test makes up for its own hour.
        pair.run_until(PEER_FREED_AFTER + secs(1), |pair| pair.left().is_some());
        let (reason, at) = pair.left().expect("the end");
        assert_eq!(reason, LeaveReason::Vanished);
        assert!(at - woke <= PEER_FREED_AFTER + ms(20), "{:?}", at - woke);
        // A packet of sound each 20 ms, and some for checks and reports.
        let most = usize::try_from(PEER_FREED_AFTER.as_secs()).expect("few") * 60;
        assert!(pair.sent.len() - sent <= most, "{} datagrams", pair.sent.len() - sent);
        assert!(
            pair.bot.frames - frames <= most as u64,
            "{} frames",
            pair.bot.frames - frames
        );
    }
}

/// A silent device is checked once per second while it answers, and twice otherwise.
#[test]
fn checks_are_few() {
    let mut pair = call(false);
    let from = pair.time();
    pair.run(secs(30));
    let asked = checks(&pair, from).len();
    assert!((25..=41).contains(&asked), "{asked}");
    let from = pair.time();
    cut(&mut pair, true);
    pair.run(secs(20));
    let asked = checks(&pair, from).len();
    assert!((36..=60).contains(&asked), "{asked}");
    // A talking one is left to str0m.
    let mut pair = call(true);
    let from = pair.time();
    pair.run(secs(30));
    let asked = checks(&pair, from).len();
    assert!((8..=11).contains(&asked), "{asked}");
}

/// An answer counts once, and only if the device signed it.
#[test]
fn an_unsigned_answer_does_not_count() {
    let mut pair = call(false);
    pair.rewrite = Some(Box::new(|mut contents| {
        if contents.starts_with(&[1, 1]) {
            // A bit of the signature, which the checksum follows.
            let at = contents.len() - 12;
            contents[at] ^= 1;
        }
        vec![contents]
    }));
    let from = pair.time();
    pair.run(secs(40));
    let (reason, at) = pair.left().expect("the end");
    assert_eq!(reason, LeaveReason::Vanished);
    assert!(at - from <= PEER_FREED_AFTER + ms(20));
}
