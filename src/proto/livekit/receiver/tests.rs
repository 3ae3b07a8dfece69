//! Voices in virtual time: packets with their arrival in, frames out, and when.

use std::f64::consts::TAU;
use std::time::Duration;

use super::*;
use crate::audio::codec::Codec;
use crate::audio::listener::Listener;
use crate::audio::opus::{Encoder, EncoderSettings};
use crate::audio::tone::share;
use crate::limits::{MIX_HELD_MAX, OPUS_PACKET_BYTES_MAX};

const RATE_HZ: u32 = 16_000;
const FRAME: usize = RATE_HZ as usize / 50;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Random numbers that are the same in every run (xorshift64*).
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
    }
}

/// Returns a sine as packets of 20 ms.
fn tone(hz: f64, peak: f64, packets: usize) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(RATE_HZ, EncoderSettings::default()).expect("an encoder");
    let sample = |at: usize| (peak * (TAU * hz * at as f64 / f64::from(RATE_HZ)).sin()) as i16;
    let packet = |nth: usize| {
        let pcm: Vec<i16> = (nth * FRAME..(nth + 1) * FRAME).map(sample).collect();
        let mut out = [0; OPUS_PACKET_BYTES_MAX];
        let bytes = encoder.encode(&pcm, &mut out).expect("a packet");
        out[..bytes].to_vec()
    };
    (0..packets).map(packet).collect()
}

/// How loud a frequency is, as the peak of its sine.
fn peak(pcm: &[i16], hz: f64) -> f64 {
    let energy: f64 = pcm.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    (2.0 * share(pcm, hz, RATE_HZ) * energy / pcm.len() as f64).sqrt()
}

/// A packet on its way: when it comes, whose it is, and its number.
struct Arrival {
    at: Duration,
    track: &'static str,
    sequence: u64,
    payload: Vec<u8>,
}

/// Packets every 20 ms from a time on.
fn steady(track: &'static str, from: Duration, packets: &[Vec<u8>]) -> Vec<Arrival> {
    let arrival = |(nth, payload): (usize, &Vec<u8>)| Arrival {
        at: from + ms(20) * nth as u32,
        track,
        sequence: 100 + nth as u64,
        payload: payload.clone(),
    };
    packets.iter().enumerate().map(arrival).collect()
}

/// One frame that came out.
#[derive(Clone, Debug, PartialEq)]
struct Heard {
    at: Duration,
    whose: Option<String>,
    pcm: Vec<i16>,
}

struct Stage {
    start: Instant,
    receiver: RoomAudioReceiver,
    heard: Vec<Heard>,
    keep: bool,
    frames: usize,
    held_max: usize,
}

impl Stage {
    fn new(mixed: bool) -> Self {
        let start = Instant::now();
        let mut receiver = RoomAudioReceiver::new();
        receiver.configure(RATE_HZ, mixed, start);
        Stage {
            start,
            receiver,
            heard: Vec::new(),
            keep: true,
            frames: 0,
            held_max: 0,
        }
    }

    /// Lets packets arrive, and everything be heard that is due until then and a second after.
    fn play(&mut self, arrivals: Vec<Vec<Arrival>>) {
        let mut arrivals: Vec<Arrival> = arrivals.into_iter().flatten().collect();
        arrivals.sort_by_key(|arrival| arrival.at);
        let end = arrivals.last().map_or(Duration::ZERO, |last| last.at) + ms(1_000);
        for arrival in arrivals {
            self.run(arrival.at);
            let packet = AudioPacket {
                sequence: arrival.sequence,
                timestamp: arrival.sequence * 960,
                payload: arrival.payload.into(),
            };
            // `ann` and `ann's screen` are tracks of one participant.
            let identity = Arc::from(arrival.track.split('/').next().expect("a word"));
            let now = self.start + arrival.at;
            self.receiver
                .handle_packet(&Arc::from(arrival.track), &identity, &packet, now);
            self.drain(arrival.at);
        }
        self.run(end);
    }

    fn run(&mut self, until: Duration) {
        let until = self.start + until;
        while let Some(at) = self.receiver.poll_timeout().filter(|at| *at <= until) {
            self.receiver.handle_timeout(at);
            self.drain(at - self.start);
            assert!(
                self.receiver.poll_timeout().is_none_or(|next| next > at),
                "the receiver spins"
            );
        }
    }

    fn drain(&mut self, at: Duration) {
        while self.receiver.poll_frame() {
            let frame = self.receiver.take_frame();
            assert_eq!((frame.pcm.len(), frame.rate_hz), (FRAME, RATE_HZ));
            self.frames += 1;
            if self.keep {
                self.heard.push(Heard {
                    at,
                    whose: frame.identity.map(|identity| identity.to_string()),
                    pcm: frame.pcm.to_vec(),
                });
            }
        }
        let held = self.receiver.tracks().map(Track::held).max().unwrap_or(0);
        self.held_max = self.held_max.max(held);
    }

    fn pcm(&self) -> Vec<i16> {
        self.heard.iter().flat_map(|heard| heard.pcm.clone()).collect()
    }

    fn of(&self, whose: &str) -> Vec<i16> {
        let theirs = self.heard.iter().filter(|heard| heard.whose.as_deref() == Some(whose));
        theirs.flat_map(|heard| heard.pcm.clone()).collect()
    }
}

/// What a caller's listener makes of the same packets, and when.
fn alone(arrivals: &[Arrival]) -> Vec<(Duration, Vec<i16>)> {
    let start = Instant::now();
    let mut listener = Listener::new(Codec::Opus);
    listener.set_rate(RATE_HZ);
    let mut frames = Vec::new();
    let mut sorted: Vec<&Arrival> = arrivals.iter().collect();
    sorted.sort_by_key(|arrival| arrival.at);
    let end = ms(1_000_000);
    let mut drain = |listener: &mut Listener, at: Duration| {
        while listener.poll_frame() {
            frames.push((at, listener.take_frame().0.to_vec()));
        }
    };
    for (nth, arrival) in sorted.iter().enumerate() {
        let packet = AudioPacket {
            sequence: arrival.sequence,
            timestamp: arrival.sequence * 960,
            payload: arrival.payload.clone().into(),
        };
        listener.handle_packet(&packet, start + arrival.at);
        drain(&mut listener, arrival.at);
        let next = sorted.get(nth + 1).map_or(end, |next| next.at);
        while let Some(at) = listener.poll_timeout().filter(|at| *at <= start + next) {
            listener.handle_timeout(at);
            drain(&mut listener, at - start);
        }
    }
    frames
}

#[test]
fn one_talker_alone_comes_through_sample_for_sample_and_at_once() {
    let mut rng = Rng(3);
    let packets = tone(440.0, 8_000.0, 300);
    let mut rough = steady("ann", ms(0), &packets);
    for arrival in &mut rough {
        arrival.at += ms(rng.below(70));
    }
    rough.retain(|_| rng.below(20) > 0);
    for arrivals in [steady("ann", ms(0), &packets), rough] {
        let expected = alone(&arrivals);
        for mixed in [true, false] {
            let mut stage = Stage::new(mixed);
            let again = arrivals.iter().map(|arrival| Arrival {
                payload: arrival.payload.clone(),
                ..*arrival
            });
            stage.play(vec![again.collect()]);
            let heard: Vec<(Duration, Vec<i16>)> =
                stage.heard.iter().map(|heard| (heard.at, heard.pcm.clone())).collect();
            assert!(heard == expected, "mixed: {mixed}");
            let whose = (!mixed).then(|| "ann".to_owned());
            assert!(stage.heard.iter().all(|heard| heard.whose == whose));
            assert_eq!(stage.receiver.mix_stats(), MixStats::default());
            assert_eq!(stage.receiver.tally().counters.received, arrivals.len() as u64);
        }
    }
}

#[test]
fn two_talkers_are_both_there_at_their_own_level() {
    for phase in [0, 1, 10, 19] {
        let mut stage = Stage::new(true);
        stage.play(vec![
            steady("ann", ms(0), &tone(440.0, 8_000.0, 100)),
            steady("bob", ms(phase), &tone(1_000.0, 4_000.0, 100)),
        ]);
        let count = stage.heard.len();
        assert!((100..=102).contains(&count), "{count} frames at {phase} ms");
        let pcm = stage.pcm();
        let pcm = &pcm[10 * FRAME..90 * FRAME];
        assert!((peak(pcm, 440.0) - 8_000.0).abs() < 400.0, "{}", peak(pcm, 440.0));
        assert!((peak(pcm, 1_000.0) - 4_000.0).abs() < 200.0, "{}", peak(pcm, 1_000.0));
        assert!(share(pcm, 440.0, RATE_HZ) + share(pcm, 1_000.0, RATE_HZ) > 0.99);
    }
}

#[test]
fn what_is_too_loud_is_cut_and_does_not_wrap() {
    let packets = tone(400.0, 28_000.0, 50);
    let mut one = Stage::new(true);
    one.play(vec![steady("ann", ms(0), &packets)]);
    let mut two = Stage::new(true);
    two.play(vec![steady("ann", ms(0), &packets), steady("bob", ms(0), &packets)]);
    // The first frame of the second one comes with the second of the first one.
    let (one, two) = (one.pcm(), two.pcm());
    let mut loud = 0;
    for at in FRAME..one.len() {
        let sum = i32::from(one[at]) + i32::from(one[at - FRAME]);
        loud += usize::from(sum > 32_767);
        assert_eq!(i32::from(two[at]), sum.clamp(-32_768, 32_767));
    }
    assert!(loud > 1_000, "the case did not occur");
}

#[test]
fn a_talk_goes_on_while_others_join_and_leave() {
    let mut stage = Stage::new(true);
    stage.play(vec![
        steady("ann", ms(0), &tone(440.0, 8_000.0, 250)),
        steady("bob", ms(1_013), &tone(1_000.0, 8_000.0, 100)),
    ]);
    let between = |from: u64, to: u64| -> Vec<i16> {
        let within = stage
            .heard
            .iter()
            .filter(|heard| (ms(from)..ms(to)).contains(&heard.at));
        within.flat_map(|heard| heard.pcm.clone()).collect()
    };
    assert!(share(&between(200, 1_000), 440.0, RATE_HZ) > 0.99);
    let both = between(1_200, 2_900);
    assert!((0.45..0.55).contains(&share(&both, 440.0, RATE_HZ)));
    assert!((0.45..0.55).contains(&share(&both, 1_000.0, RATE_HZ)));
    assert!(share(&between(3_200, 4_900), 440.0, RATE_HZ) > 0.99);
    assert!((250..=252).contains(&stage.heard.len()), "{}", stage.heard.len());
    let gaps = stage.heard.windows(2).map(|two| two[1].at - two[0].at);
    assert!(
        gaps.max().is_some_and(|gap| gap <= ms(40)),
        "nobody's frame waits for longer than 20 ms"
    );
}

#[test]
fn nothing_is_heard_while_nobody_sends() {
    let mut stage = Stage::new(true);
    stage.play(vec![
        steady("ann", ms(0), &tone(440.0, 8_000.0, 10)),
        steady("bob", ms(60_000), &tone(1_000.0, 8_000.0, 10)),
    ]);
    assert_eq!(stage.heard.len(), 20);
    assert_eq!(stage.receiver.poll_timeout(), None);
}

#[test]
fn single_packets_of_a_silent_one_are_heard_and_not_waited_for() {
    let mut stage = Stage::new(true);
    let mut rare = steady("bob", ms(0), &tone(1_000.0, 4_000.0, 10));
    for (nth, arrival) in rare.iter_mut().enumerate() {
        arrival.at = ms(407) * nth as u32;
        arrival.sequence = 100 + nth as u64;
    }
    stage.play(vec![steady("ann", ms(0), &tone(440.0, 8_000.0, 200)), rare]);
    let latest = stage.heard.iter().map(|heard| heard.at.as_millis() % 20).max();
    assert!(latest.is_some_and(|late| late <= 10), "ann is heard when she speaks");
    assert_eq!(stage.receiver.mix_stats(), MixStats::default());
    assert_eq!(stage.heard.len(), 200);
}

#[test]
fn losses_of_one_voice_are_made_up_and_the_other_does_not_wait() {
    let mut stage = Stage::new(true);
    let mut lossy = steady("bob", ms(7), &tone(1_000.0, 8_000.0, 500));
    lossy.retain(|arrival| arrival.sequence % 10 != 5);
    stage.play(vec![steady("ann", ms(0), &tone(440.0, 8_000.0, 500)), lossy]);
    let tally = stage.receiver.tally();
    assert_eq!(tally.counters.lost, 50);
    assert!((500..=503).contains(&stage.heard.len()), "{}", stage.heard.len());
    let gaps = stage.heard.windows(2).map(|two| two[1].at - two[0].at);
    assert!(gaps.max().is_some_and(|gap| gap <= ms(30)));
    let pcm = stage.pcm();
    assert!(share(&pcm, 440.0, RATE_HZ) > 0.45);
    // What is made up has a phase of its own, so in pieces.
    let pieces = pcm.chunks_exact(5 * FRAME).skip(4);
    let shares: Vec<f64> = pieces.map(|piece| share(piece, 1_000.0, RATE_HZ)).collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!(mean > 0.33, "{mean}");
    assert!(stage.held_max <= 4 * FRAME, "{}", stage.held_max);
}

/// The packets of one whose clock is off by so many millionths, with this much jitter, over a time.
fn drifting(track: &'static str, ppm: f64, jitter_ms: u64, over: Duration, rng: &mut Rng) -> Vec<Arrival> {
    // Four fifths of speech, and a pause.
    let mut packets = tone(300.0, 3_000.0, 40);
    packets.extend(tone(300.0, 0.0, 10));
    let step = Duration::from_secs_f64(0.02 * (1.0 + ppm / 1e6));
    let count = (over.as_secs_f64() / step.as_secs_f64()) as u32;
    let arrival = |nth: u32| Arrival {
        at: step * nth + Duration::from_micros(rng.below(jitter_ms * 1_000 + 1)),
        track,
        sequence: 100 + u64::from(nth),
        payload: packets[nth as usize % 50].clone(),
    };
    (0..count).map(arrival).collect()
}

#[test]
fn clocks_that_drift_for_ten_minutes_cost_a_frame_now_and_then() {
    let over = Duration::from_secs(600);
    for (jitter_ms, inserted_max, held_max) in [(0, 8, 2), (15, 8, 3)] {
        let mut rng = Rng(5);
        let mut stage = Stage::new(true);
        stage.keep = false;
        stage.play(vec![
            drifting("ann", -100.0, jitter_ms, over, &mut rng),
            drifting("bob", 100.0, jitter_ms, over, &mut rng),
        ]);
        let mixed = stage.receiver.mix_stats();
        assert!((29_995..30_010).contains(&stage.frames), "{} frames", stage.frames);
        assert!(
            mixed.inserted <= inserted_max && mixed.dropped <= inserted_max,
            "{mixed:?}"
        );
        assert!(stage.held_max <= held_max * FRAME, "{}", stage.held_max);
    }
}

#[test]
fn a_voice_that_comes_in_bursts_lags_by_no_more_than_the_cap() {
    let mut stage = Stage::new(true);
    let mut bursts = steady("bob", ms(0), &tone(1_000.0, 8_000.0, 500));
    for (nth, arrival) in bursts.iter_mut().enumerate() {
        // A network that stalls for 300 ms every 2 s.
        let into = arrival.at.as_millis() as u64 % 2_000;
        if into < 300 {
            arrival.at += ms(300 - into) + Duration::from_micros(nth as u64);
        }
    }
    stage.play(vec![steady("ann", ms(0), &tone(440.0, 8_000.0, 500)), bursts]);
    assert!(
        stage.receiver.mix_stats().dropped > 20,
        "{:?}",
        stage.receiver.mix_stats()
    );
    // What a burst brings is there until the next frame of the other.
    let cap = (MIX_HELD_MAX.as_millis() / 20) as usize;
    assert!(stage.held_max <= (cap + 1) * FRAME, "{}", stage.held_max);
    assert!((500..=510).contains(&stage.heard.len()), "{}", stage.heard.len());
}

#[test]
fn what_was_left_waiting_is_dropped_in_a_quiet_moment() {
    let mut stage = Stage::new(true);
    let quiet = tone(1_000.0, 0.0, 600);
    let mut bob = steady("bob", ms(0), &quiet);
    // Three packets come late once, and are ahead of their need from then on.
    for arrival in &mut bob[10..13] {
        arrival.at = ms(20 * 13);
    }
    stage.play(vec![steady("ann", ms(3), &tone(440.0, 8_000.0, 600)), bob]);
    let mixed = stage.receiver.mix_stats();
    assert!(mixed.inserted >= 2 && mixed.dropped >= 2, "{mixed:?}");
    assert!(mixed.dropped <= mixed.inserted + 1, "{mixed:?}");
    let last = stage.receiver.tracks().map(Track::held).max();
    assert_eq!(last, Some(0));
}

#[test]
fn two_tracks_of_one_participant_are_one_voice() {
    for mixed in [false, true] {
        let mut stage = Stage::new(mixed);
        stage.play(vec![
            steady("ann", ms(0), &tone(440.0, 8_000.0, 100)),
            steady("ann/screen", ms(5), &tone(1_000.0, 8_000.0, 100)),
            steady("bob", ms(9), &tone(1_700.0, 8_000.0, 100)),
        ]);
        if mixed {
            let pcm = stage.pcm();
            assert!(
                [440.0, 1_000.0, 1_700.0]
                    .iter()
                    .all(|hz| share(&pcm, *hz, RATE_HZ) > 0.3)
            );
            continue;
        }
        let (ann, bob) = (stage.of("ann"), stage.of("bob"));
        assert!((100..=102).contains(&(ann.len() / FRAME)));
        assert_eq!(bob.len() / FRAME, 100);
        assert!(share(&ann, 440.0, RATE_HZ) > 0.45 && share(&ann, 1_000.0, RATE_HZ) > 0.45);
        assert!(share(&bob, 1_700.0, RATE_HZ) > 0.98);
    }
}

#[test]
fn the_bot_may_change_its_mind_and_its_rate() {
    let mut stage = Stage::new(false);
    let (ann, bob) = (tone(440.0, 8_000.0, 50), tone(1_000.0, 8_000.0, 50));
    stage.play(vec![steady("ann", ms(0), &ann), steady("bob", ms(3), &bob)]);
    assert_eq!(stage.heard.len(), 100);
    stage.heard.clear();
    let now = stage.start + ms(5_000);
    stage.receiver.configure(RATE_HZ, true, now);
    let later = |mut arrivals: Vec<Arrival>| {
        for arrival in &mut arrivals {
            arrival.at += ms(6_000);
            arrival.sequence += 50;
        }
        arrivals
    };
    stage.play(vec![
        later(steady("ann", ms(0), &ann)),
        later(steady("bob", ms(3), &bob)),
    ]);
    assert!(stage.heard.iter().all(|heard| heard.whose.is_none()));
    assert!((50..=52).contains(&stage.heard.len()));
    assert_eq!(stage.receiver.tally().counters.received, 200, "the counts go on");

    let now = stage.start + ms(20_000);
    stage.receiver.configure(24_000, false, now);
    let packet = AudioPacket {
        sequence: 200,
        timestamp: 200 * 960,
        payload: ann[10].clone().into(),
    };
    stage.receiver.handle_packet(&"ann".into(), &"ann".into(), &packet, now);
    assert!(stage.receiver.poll_frame());
    let frame = stage.receiver.take_frame();
    assert_eq!((frame.pcm.len(), frame.rate_hz), (480, 24_000));
    assert_eq!(frame.identity.map(|identity| &**identity), Some("ann"));
}

#[test]
fn nothing_is_kept_before_the_bot_listens() {
    let mut receiver = RoomAudioReceiver::new();
    let now = Instant::now();
    let packet = AudioPacket {
        sequence: 1,
        timestamp: 0,
        payload: tone(440.0, 8_000.0, 1)[0].clone().into(),
    };
    receiver.handle_packet(&"ann".into(), &"ann".into(), &packet, now);
    assert!(!receiver.poll_frame());
    assert_eq!(receiver.poll_timeout(), None);
    assert_eq!(receiver.tracks().count(), 0);
}

/// At the cap and one past it, and again once somebody has left.
#[test]
fn voices_have_an_end_and_make_room_when_they_leave() {
    let mut receiver = RoomAudioReceiver::new();
    let now = Instant::now();
    receiver.configure(RATE_HZ, true, now);
    let packet = AudioPacket {
        sequence: 1,
        timestamp: 0,
        payload: tone(440.0, 8_000.0, 1)[0].clone().into(),
    };
    let say = |receiver: &mut RoomAudioReceiver, nth: usize| {
        let sid = Arc::from(format!("TR_{nth}"));
        receiver.handle_packet(&sid, &sid, &packet, now);
        while receiver.poll_frame() {
            receiver.take_frame();
        }
        receiver.tracks().any(|track| track.sid == sid)
    };
    assert!((0..ROOM_VOICES_MAX).all(|nth| say(&mut receiver, nth)));
    assert!(!say(&mut receiver, ROOM_VOICES_MAX));
    receiver.handle_track_ended("TR_0");
    receiver.handle_track_ended("TR_unknown");
    assert!(!receiver.poll_frame());
    assert_eq!(receiver.tracks().count(), ROOM_VOICES_MAX - 1);
    assert!(say(&mut receiver, ROOM_VOICES_MAX));
    assert_eq!(
        receiver.tally().counters.received,
        ROOM_VOICES_MAX as u64 + 1,
        "the gone ones count"
    );
}

#[test]
fn the_last_words_of_a_track_that_is_gone_are_heard_and_it_may_come_back() {
    let mut stage = Stage::new(true);
    let packets = tone(440.0, 8_000.0, 20);
    // The last packet waits for one that is lost.
    let mut arrivals = steady("ann", ms(0), &packets);
    arrivals.remove(18);
    let last = arrivals.pop().expect("a packet");
    stage.play(vec![arrivals]);
    assert_eq!(stage.heard.len(), 18);
    let now = stage.start + ms(1_400);
    let packet = AudioPacket {
        sequence: last.sequence,
        timestamp: last.sequence * 960,
        payload: last.payload.into(),
    };
    stage.receiver.handle_packet(&"ann".into(), &"ann".into(), &packet, now);
    stage.receiver.handle_track_ended("ann");
    stage.drain(ms(1_400));
    stage.run(ms(3_000));
    assert_eq!(stage.heard.len(), 20);
    assert_eq!(stage.receiver.tracks().count(), 0);
    let mut again = steady("ann", ms(4_000), &packets);
    again.iter_mut().for_each(|arrival| arrival.sequence -= 90);
    stage.play(vec![again]);
    assert_eq!(stage.heard.len(), 40);
}

/// Packets of another length than a frame leave in frames all the same, with silence behind the last words.
#[test]
fn short_packets_are_joined() {
    let mut stage = Stage::new(true);
    // Silence in CELT, 10 ms each: configuration 30, one frame.
    let arrivals = (0..11).map(|nth| Arrival {
        at: ms(10 * nth),
        track: "ann",
        sequence: 100 + nth,
        payload: vec![0xf0, 0xff, 0xfe],
    });
    stage.play(vec![arrivals.collect()]);
    assert_eq!(stage.heard.len(), 6);
    assert_eq!(stage.receiver.poll_timeout(), None);
}
