//! Wrapping counters in both directions: RTP sequence numbers and timestamps, SRTP's roll-over
//! counter. Calls of days reach them; here each is reached within seconds. Sources: RFC 3550
//! section 5.1, RFC 3711 section 3.3.1.

use super::super::*;
use super::pair::{Pair, Tone, ms, runner, secs, setup, share};
use crate::testing::client::TestClient;
use crate::webrtc::connection::ConnectionSetup;

/// The most missing packets at which the roll-over counter is still known: less than half its
/// range.
const LEAP: u64 = 30_000;
const HZ: f64 = 440.0;

/// A call whose bot hears at 16 kHz, with these random bits.
fn call(seed: u64) -> Pair {
    let mut client = TestClient::new("192.0.2.9:5000");
    let offer = client.offer();
    let local = [runner()];
    let setup = ConnectionSetup {
        seed,
        ..setup(None, &local)
    };
    let (session, answer) = WebRtcSession::accept(&offer, &setup, client.start).expect("an offer that can be answered");
    client.accept(&answer);
    let mut pair = Pair::joined(client, session);
    pair.connect();
    pair.open_audio(16_000, 16_000);
    pair
}

/// Asserts that the bot hears a tone for a second without a gap.
fn assert_received(pair: &mut Pair, what: &str) {
    let (frames, samples) = (pair.bot.frames, pair.bot.pcm.len());
    let before = pair.session.audio_receiver.stats().counters;
    pair.run(secs(1));
    let received = pair.bot.frames - frames;
    assert!((49..=51).contains(&received), "{what}: {received} frames");
    let after = pair.session.audio_receiver.stats().counters;
    assert_eq!((after.lost, after.late), (before.lost, before.late), "{what}");
    let part = share(&pair.bot.pcm[samples + 1_600..], HZ, 16_000);
    assert!(part > 0.9, "{what}: {part}");
}

/// The caller's sequence numbers and timestamps wrap, one after the other and together.
#[test]
fn the_callers_rtp_numbers_wrap() {
    for (sequence, ticks) in [
        (0xffff - 100, 48_000),
        (1_000, u32::MAX - 100 * 960),
        (0xffff - 100, u32::MAX - 100 * 960),
        // Half the range, where a difference changes its sign.
        (0x7fff - 100, i32::MAX as u32 - 100 * 960),
    ] {
        let mut pair = call(1);
        pair.client.speak(HZ, pair.now);
        pair.client.set_numbers(sequence, ticks);
        pair.run(secs(1));
        for second in 1..=3 {
            assert_received(&mut pair, &format!("from {sequence} and {ticks}, second {second}"));
        }
        assert_eq!(pair.session.audio_receiver.stats().counters.received, pair.bot.frames);
    }
}

/// The caller's roll-over counter increases several times; skipped packets count as lost.
#[test]
fn the_callers_roll_over_counter_is_tracked() {
    let mut pair = call(1);
    pair.client.speak(HZ, pair.now);
    pair.run(secs(1));
    for leap in 1..=12 {
        pair.client.leap(LEAP);
        // The jitter buffer needs time to accept it.
        pair.run(secs(1));
        assert_received(&mut pair, &format!("leap {leap}"));
    }
}

/// The runner's numbers wrap in the same ways, and its client hears everything.
#[test]
fn the_runners_rtp_numbers_wrap() {
    // The timestamp is in the upper half, the sequence number in the lowest 15 bits.
    let mut pair = call(u64::from(u32::MAX - 100 * 960) << 32 | 0x7fff);
    pair.bot.endless = Some(Tone::new(HZ, 16_000));
    pair.run(secs(5));
    let timestamps: Vec<u64> = pair.client.received.iter().map(|packet| packet.timestamp).collect();
    assert!(
        timestamps.windows(2).all(|two| two[1] == two[0] + 960),
        "the client counts on past the end"
    );
    assert!(timestamps.last() > Some(&u64::from(u32::MAX)), "it was passed");
    for leap in 1..=12 {
        pair.session.skip_packets(LEAP);
        pair.run(ms(100));
        let from = pair.client.received.len();
        let at = pair.time();
        pair.run(secs(1));
        let sequences: Vec<u64> = pair.client.received[from..]
            .iter()
            .map(|packet| packet.sequence)
            .collect();
        assert!(
            (49..=51).contains(&sequences.len()),
            "leap {leap}: {} packets",
            sequences.len()
        );
        assert!(sequences.windows(2).all(|two| two[1] == two[0] + 1), "leap {leap}");
        let part = share(&pair.client.pcm_since(at)[9_600..], HZ, 48_000);
        assert!(part > 0.9, "leap {leap}: {part}");
    }
    let last = pair.client.received.last().expect("packets").sequence;
    assert!(last > 5 << 16, "{last}");
}

/// Calls begin and continue across the wrap of 32-bit counters of milliseconds and microseconds.
#[test]
fn the_millisecond_clock_wraps() {
    let up = std::time::Instant::now();
    for bits in [31, 32] {
        for unit in [std::time::Duration::from_micros(1), ms(1)] {
            let client = TestClient::at("192.0.2.9:5000", up + unit * ((1u64 << bits) - 1) as u32 - secs(5));
            let mut pair = Pair::with(client, |offer| offer);
            pair.connect();
            pair.open_audio(16_000, 16_000);
            pair.client.speak(HZ, pair.now);
            pair.run(secs(2));
            for second in 0..6 {
                assert_received(&mut pair, &format!("{bits} bits of {unit:?}, second {second}"));
            }
        }
    }
}
