//! Minutes of calls over bad networks, and over links with a small MTU.
//!
//! A caller beeps every two seconds, the bot echoes it, and each sends a message per second. The
//! link is seeded and counts its losses, which the session's own statistics must match.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::super::*;
use super::link::{Bursts, Carried, Link};
use super::pair::{Pair, ms, secs};
use crate::audio::opus::Decoder;
use crate::limits::{AUDIO_OUT_QUEUE, JITTER_WAIT_MAX};
use crate::testing::client::TestClient;

const RATE_HZ: u32 = 16_000;
const FRAME: usize = RATE_HZ as usize / 50;
const BEEP_HZ: f64 = 1_000.0;
/// The interval between beeps, in packets of 20 ms and as time.
const BEEP_PACKETS: usize = 100;
const BEEPS_APART: Duration = Duration::from_secs(2);
const BEEPS_A_MINUTE: u32 = 30;

/// A call with an echo.
struct Call {
    pair: Pair,
    /// When the first audio packet was sent, and what the link had carried by then.
    began: Duration,
    before: Carried,
    /// When each message was sent, in both directions.
    messages: Vec<Duration>,
}

impl Call {
    /// Runs a call over two such links, after connecting over a good one.
    fn make(minutes: u64, link: Link) -> Call {
        let mut pair = Pair::connected();
        (pair.up, pair.down) = (link, link);
        pair.open_audio(RATE_HZ, RATE_HZ);
        pair.bot.echoes = true;
        pair.run(secs(2));
        pair.client.received.clear();
        pair.client.beep(BEEP_HZ, BEEP_PACKETS, pair.now);
        let mut call = Call {
            began: pair.time(),
            before: pair.up.carried,
            messages: Vec::new(),
            pair,
        };
        for number in 0..minutes * 60 {
            call.messages.push(call.pair.time());
            call.pair.send(&format!("down {number}"));
            call.pair.client.send(&format!("up {number}"));
            call.pair.run(secs(1));
            let waits = Duration::from_secs(call.pair.bot.speech.len() as u64) / RATE_HZ;
            assert!(waits <= AUDIO_OUT_QUEUE, "{waits:?} of speech wait in second {number}");
        }
        assert_eq!(call.pair.left(), None);
        assert!(
            !call.pair.saw(&SessionEvent::Lost),
            "{:?}",
            call.pair.times(&SessionEvent::Lost)
        );
        call
    }

    /// Returns the link's loss, and the share of concealed or recovered frames.
    ///
    /// The session's own loss count must equal the link's: every packet that arrived is used.
    /// Packets still in transit are not counted.
    fn loss_and_filled(&self) -> (f64, f64) {
        let link = self.pair.up.carried;
        let lost = link.audio_lost - self.before.audio_lost;
        let under_way = (self.pair.up.delay + JITTER_WAIT_MAX + ms(100)).as_millis() as u64 / 20;
        let received = self.pair.session.audio_receiver.stats().counters;
        let possible = lost.saturating_sub(under_way)..=lost;
        assert!(
            possible.contains(&(received.lost - received.late)),
            "the link lost {lost}: {received:?}"
        );
        let filled = received.concealed + received.recovered;
        (
            lost as f64 / (link.audio - self.before.audio) as f64,
            filled as f64 / self.pair.bot.frames as f64,
        )
    }

    /// Returns the delay from the caller to the bot in a minute, counted from 0.
    fn to_bot(&self, minute: u64) -> Duration {
        let bot = &self.pair.bot;
        let frames = bot.received_at.iter().copied().zip(bot.pcm.chunks(FRAME));
        self.delay_of(onsets(frames.map(|(at, pcm)| (at, is_loud(pcm)))), minute)
    }

    /// Returns the round-trip delay in a minute. Playout follows the RTP timestamps, aligned to the
    /// earliest packet.
    fn echo(&self, minute: u64) -> Duration {
        let (from, to) = (self.began + secs(60 * minute), self.began + secs(60 * minute + 65));
        let received = self.pair.client.received.iter();
        let mut packets: Vec<_> = received.filter(|packet| (from..to).contains(&packet.at)).collect();
        packets.sort_by_key(|packet| packet.sequence);
        let first = packets[0].timestamp;
        let place = |timestamp: u64| Duration::from_micros((timestamp - first) * 1_000 / 48);
        let soonest = packets.iter().map(|packet| packet.at - place(packet.timestamp)).min();
        let soonest = soonest.expect("packets");
        let mut decoder = Decoder::new(RATE_HZ).expect("a decoder");
        let loud = packets.iter().map(|packet| {
            let pcm = decoder.decode(&packet.payload).expect("an Opus packet");
            (soonest + place(packet.timestamp), is_loud(pcm))
        });
        let onsets = onsets(loud);
        self.delay_of(onsets, minute)
    }

    /// Returns the median delay from a beep to the next onset.
    fn delay_of(&self, onsets: Vec<Duration>, minute: u64) -> Duration {
        let first = self.began + secs(60 * minute);
        let delays = (0..BEEPS_A_MINUTE).filter_map(|beep| {
            let beep = first + BEEPS_APART * beep;
            let onset = onsets.iter().find(|onset| **onset >= beep)?;
            Some(*onset - beep).filter(|delay| *delay < BEEPS_APART)
        });
        let mut delays: Vec<Duration> = delays.collect();
        assert!(
            delays.len() > 20,
            "{} of {BEEPS_A_MINUTE} beeps were heard",
            delays.len()
        );
        delays.sort();
        delays[delays.len() / 2]
    }

    /// Restores the network; everything in transit arrives in order. Returns the delay of the
    /// slowest message.
    fn finish(&mut self) -> Duration {
        (self.pair.up, self.pair.down) = (Link::new(ms(20)), Link::new(ms(20)));
        self.pair.run(secs(30));
        let read = self.pair.client.read.iter();
        let downs = read.map(|(at, text)| (*at, String::from_utf8_lossy(text).into_owned()));
        let ups = self.pair.bot.events.iter().filter_map(|(at, event)| match event {
            SessionEvent::Message(text) => Some((*at, text.clone())),
            _ => None,
        });
        let mut slowest = Duration::ZERO;
        for (direction, texts) in [("down", downs.collect::<Vec<_>>()), ("up", ups.collect())] {
            assert_eq!(texts.len(), self.messages.len(), "{direction}");
            for ((number, sent), (at, text)) in self.messages.iter().enumerate().zip(&texts) {
                assert_eq!(*text, format!("{direction} {number}"));
                slowest = slowest.max(*at - *sent);
            }
        }
        assert!(self.pair.session.outbox.is_empty());
        assert_eq!(self.pair.session.connection.messages_in_flight(), 0);
        slowest
    }
}

fn is_loud(pcm: &[i16]) -> bool {
    pcm.iter().any(|sample| sample.unsigned_abs() > 2_000)
}

/// Returns when audio became loud after a silent second.
fn onsets(frames: impl Iterator<Item = (Duration, bool)>) -> Vec<Duration> {
    let mut onsets = Vec::new();
    let mut last: Option<Duration> = None;
    for (at, _) in frames.filter(|(_, loud)| *loud) {
        if last.is_none_or(|last| at.saturating_sub(last) > secs(1)) {
            onsets.push(at);
        }
        last = Some(at);
    }
    onsets
}

/// Runs a call and asserts what holds for every call.
///
/// `loss` is the expected range of the seeded loss, within five standard deviations. `filled` is
/// the range of concealed or recovered audio.
fn assert_call(minutes: u64, link: Link, loss: RangeInclusive<f64>, filled: RangeInclusive<f64>) {
    let mut call = Call::make(minutes, link);
    let (lost, made_up) = call.loss_and_filled();
    let last = minutes - 1;
    let (to_bot, echo) = ([call.to_bot(0), call.to_bot(last)], [call.echo(0), call.echo(last)]);
    let slowest = call.finish();
    println!("lost {lost:.4}, filled {made_up:.4}, to the bot {to_bot:?}, echo {echo:?}, slowest message {slowest:?}");
    assert!(loss.contains(&lost), "{lost}");
    assert!(filled.contains(&(made_up / lost)), "lost {lost}, filled {made_up}");
    // The bot hears the next packet at once, and waits for a missing one up to the cap.
    let longest = link.delay + link.jitter.max(link.spread);
    assert!(to_bot[0] <= longest + JITTER_WAIT_MAX, "{to_bot:?}");
    // The median beep was reordered, or it was not.
    assert!(to_bot[0].abs_diff(to_bot[1]) <= ms(20).max(link.spread), "{to_bot:?}");
    // The echo is delayed by the jitter of both directions. Rare conditions add a frame or two in
    // later minutes; a leak of a frame per minute would be twice that.
    assert!(echo[0] <= 2 * longest + 2 * JITTER_WAIT_MAX, "{echo:?}");
    assert!(echo[0].abs_diff(echo[1]) <= ms(40), "{echo:?}");
}

/// Nothing is concealed without losses.
#[test]
fn a_good_network_loses_nothing() {
    let mut call = Call::make(1, Link::new(ms(20)));
    assert_eq!(call.loss_and_filled(), (0.0, 0.0));
    assert_eq!(call.to_bot(0), ms(20));
    assert!(call.echo(0) <= ms(40 + 20), "{:?}", call.echo(0));
    assert!(call.finish() <= ms(40));
}

#[test]
fn a_call_survives_1_percent_loss_and_jitter() {
    let link = Link {
        loss_percent: 1,
        jitter: ms(10),
        ..Link::new(ms(40))
    };
    assert_call(2, link, 0.004..=0.017, 0.95..=1.05);
}

#[test]
fn a_call_survives_5_minutes_of_5_percent_loss_reordering_and_duplicates() {
    let link = Link {
        loss_percent: 5,
        spread: ms(25),
        twice_percent: 5,
        ..Link::new(ms(20))
    };
    assert_call(5, link, 0.041..=0.059, 0.97..=1.03);
}

#[test]
fn a_call_survives_10_percent_loss_and_heavy_jitter() {
    let link = Link {
        loss_percent: 10,
        jitter: ms(60),
        twice_percent: 10,
        ..Link::new(ms(100))
    };
    assert_call(2, link, 0.08..=0.12, 0.97..=1.03);
}

/// A second between question and answer, and a fifth of everything lost.
#[test]
fn a_call_survives_5_minutes_of_20_percent_loss_500_ms_delay_and_jitter() {
    let link = Link {
        loss_percent: 20,
        jitter: ms(40),
        twice_percent: 3,
        ..Link::new(ms(500))
    };
    assert_call(5, link, 0.184..=0.216, 0.97..=1.03);
}

/// One packet in ten is lost, in bursts of four. Of a long gap 100 ms are concealed: five sevenths
/// to four fifths of such bursts.
#[test]
fn a_call_survives_bursts_of_loss() {
    let bursts = Bursts {
        begin_permille: 28,
        end_permille: 250,
    };
    let link = Link {
        bursts: Some(bursts),
        ..Link::new(ms(20))
    };
    assert_call(2, link, 0.053..=0.149, 0.65..=0.95);
}

/// Lost handshake packets delay audio by less than the connection timeout. Channels take longer,
/// because SCTP repeats its first packet after 3 s.
#[test]
fn callers_connect_in_time_at_5_percent_loss() {
    for delay in [ms(20), ms(500)] {
        let mut slowest = Duration::ZERO;
        for seed in 1..=12 {
            let mut pair = Pair::with(TestClient::new("192.0.2.9:5000"), |offer| offer);
            pair.rng.0 = seed;
            let link = Link {
                loss_percent: 5,
                ..Link::new(delay)
            };
            (pair.up, pair.down) = (link, link);
            let joined = pair.run_until(secs(15), |pair| {
                pair.client.connected && pair.saw(&SessionEvent::Joined)
            });
            assert!(joined, "seed {seed}, {delay:?}: {:?}", pair.bot.events);
            slowest = slowest.max(pair.time());
        }
        println!("{delay:?} each way: the slowest of 12 connected after {slowest:?}");
    }
}

/// The longest datagram at the minimum IPv6 MTU of 1280 bytes (RFC 8200 section 5), without
/// headers.
const SHORT: usize = 1280 - 40 - 8;
/// The overhead of a Send indication with an IPv6 address (RFC 8656 section 11.4).
const RELAYED: usize = 20 + 24 + 4 + 3;

/// 60 kB pass both ways, whichever direction has the small MTU, after the handshake. The runner's
/// datagrams fit behind a relay.
#[test]
fn long_messages_pass_a_small_mtu() {
    for (up, down) in [(SHORT, SHORT), (SHORT, usize::MAX), (usize::MAX, SHORT)] {
        let mut pair = Pair::new();
        (pair.up.bytes_max, pair.down.bytes_max) = (up, down);
        pair.keep_sent = true;
        pair.connect();
        let long = "m".repeat(60_000);
        pair.send(&long);
        pair.client.send(&long);
        pair.run(secs(5));
        assert_eq!(pair.texts(), [long.as_str()]);
        assert_eq!(pair.client.texts(), [long.as_str()]);
        let longest = pair
            .sent
            .iter()
            .map(|(_, contents)| contents.len())
            .max()
            .expect("datagrams");
        assert!((1_000..=SHORT - RELAYED).contains(&longest), "{longest} bytes");
    }
}

/// The round trip is that of the link, in both directions together, also after it has changed.
#[test]
fn the_round_trip_of_the_link_is_known() {
    let mut pair = Pair::connected();
    for (up, down) in [(ms(0), ms(0)), (ms(30), ms(50)), (ms(200), ms(5))] {
        (pair.up.delay, pair.down.delay) = (up, down);
        pair.run(secs(10));
        let known = pair.session.network().round_trip.expect("a round trip");
        assert!(
            (up + down..=up + down + ms(5)).contains(&known),
            "{known:?} of {up:?} and {down:?}"
        );
    }
}
