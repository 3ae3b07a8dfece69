//! The receiver in virtual time: packets with their arrival times in, frames with their times out.

use std::f64::consts::TAU;
use std::time::Duration;

use super::*;
use crate::audio::codec::Codec;
use crate::audio::opus::{Encoder, EncoderSettings};
use crate::audio::receiver::AudioReceiver;
use crate::audio::tone::share;
use crate::limits::{MIX_BACKLOG_MAX, OPUS_PACKET_BYTES_MAX};

const RATE_HZ: u32 = 16_000;
const FRAME: usize = RATE_HZ as usize / 50;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A deterministic random generator (xorshift64*).
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

/// Returns the level of a frequency, as the peak of its sine.
fn peak(pcm: &[i16], hz: f64) -> f64 {
    let energy: f64 = pcm.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    (2.0 * share(pcm, hz, RATE_HZ) * energy / pcm.len() as f64).sqrt()
}

/// A packet with its arrival time, track and sequence number.
struct Arrival {
    at: Duration,
    track: &'static str,
    sequence: u64,
    payload: Vec<u8>,
}

/// Packets every 20 ms from a given time.
fn steady(track: &'static str, from: Duration, packets: &[Vec<u8>]) -> Vec<Arrival> {
    let arrival = |(nth, payload): (usize, &Vec<u8>)| Arrival {
        at: from + ms(20) * nth as u32,
        track,
        sequence: 100 + nth as u64,
        payload: payload.clone(),
    };
    packets.iter().enumerate().map(arrival).collect()
}

/// A frame of the receiver.
#[derive(Clone, Debug, PartialEq)]
struct ReceivedFrame {
    at: Duration,
    whose: Option<String>,
    pcm: Vec<i16>,
}

struct Playout {
    start: Instant,
    receiver: RoomAudioReceiver,
    received: Vec<ReceivedFrame>,
    keep: bool,
    frames: usize,
    held_max: usize,
}

impl Playout {
    fn new(mixed: bool) -> Self {
        let start = Instant::now();
        let mut receiver = RoomAudioReceiver::new();
        receiver.configure(RATE_HZ, mixed, start);
        Playout {
            start,
            receiver,
            received: Vec::new(),
            keep: true,
            frames: 0,
            held_max: 0,
        }
    }

    /// Feeds packets, and plays everything that is due until a second after the last.
    fn play(&mut self, arrivals: Vec<Vec<Arrival>>) {
        let mut arrivals: Vec<Arrival> = arrivals.into_iter().flatten().collect();
        arrivals.sort_by_key(|arrival| arrival.at);
        let end = arrivals.last().map_or(Duration::ZERO, |last| last.at) + ms(1_000);
        for arrival in arrivals {
            self.run(arrival.at);
            let packet = AudioPacket {
                is_new_source: false,
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
                self.received.push(ReceivedFrame {
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
        self.received.iter().flat_map(|frame| frame.pcm.clone()).collect()
    }

    fn of(&self, whose: &str) -> Vec<i16> {
        let theirs = self
            .received
            .iter()
            .filter(|frame| frame.whose.as_deref() == Some(whose));
        theirs.flat_map(|frame| frame.pcm.clone()).collect()
    }
}

/// Returns what a single receiver plays for the same packets, and when.
fn alone(arrivals: &[Arrival]) -> Vec<(Duration, Vec<i16>)> {
    let start = Instant::now();
    let mut listener = AudioReceiver::new(Codec::Opus);
    listener.set_rate(RATE_HZ);
    let mut frames = Vec::new();
    let mut sorted: Vec<&Arrival> = arrivals.iter().collect();
    sorted.sort_by_key(|arrival| arrival.at);
    let end = ms(1_000_000);
    let mut drain = |listener: &mut AudioReceiver, at: Duration| {
        while listener.poll_frame() {
            frames.push((at, listener.take_frame().0.to_vec()));
        }
    };
    for (nth, arrival) in sorted.iter().enumerate() {
        let packet = AudioPacket {
            is_new_source: false,
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
fn passes_a_single_speaker_through_unchanged() {
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
            let mut playout = Playout::new(mixed);
            let again = arrivals.iter().map(|arrival| Arrival {
                payload: arrival.payload.clone(),
                ..*arrival
            });
            playout.play(vec![again.collect()]);
            let frames: Vec<(Duration, Vec<i16>)> = playout
                .received
                .iter()
                .map(|frame| (frame.at, frame.pcm.clone()))
                .collect();
            assert!(frames == expected, "mixed: {mixed}");
            let whose = (!mixed).then(|| "ann".to_owned());
            assert!(playout.received.iter().all(|frame| frame.whose == whose));
            assert_eq!(playout.receiver.mix_stats(), MixStats::default());
            assert_eq!(playout.receiver.stats().counters.received, arrivals.len() as u64);
        }
    }
}

#[test]
fn mixes_two_speakers_at_their_own_level() {
    for phase in [0, 1, 10, 19] {
        let mut playout = Playout::new(true);
        playout.play(vec![
            steady("ann", ms(0), &tone(440.0, 8_000.0, 100)),
            steady("bob", ms(phase), &tone(1_000.0, 4_000.0, 100)),
        ]);
        let count = playout.received.len();
        assert!((100..=102).contains(&count), "{count} frames at {phase} ms");
        let pcm = playout.pcm();
        let pcm = &pcm[10 * FRAME..90 * FRAME];
        assert!((peak(pcm, 440.0) - 8_000.0).abs() < 400.0, "{}", peak(pcm, 440.0));
        assert!((peak(pcm, 1_000.0) - 4_000.0).abs() < 200.0, "{}", peak(pcm, 1_000.0));
        assert!(share(pcm, 440.0, RATE_HZ) + share(pcm, 1_000.0, RATE_HZ) > 0.99);
    }
}

#[test]
fn clips_sums_at_full_scale() {
    let packets = tone(400.0, 28_000.0, 50);
    let mut one = Playout::new(true);
    one.play(vec![steady("ann", ms(0), &packets)]);
    let mut two = Playout::new(true);
    two.play(vec![steady("ann", ms(0), &packets), steady("bob", ms(0), &packets)]);
    // The first frame of the second track comes with the second frame of the first track.
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
fn is_continuous_while_others_join_and_leave() {
    let mut playout = Playout::new(true);
    playout.play(vec![
        steady("ann", ms(0), &tone(440.0, 8_000.0, 250)),
        steady("bob", ms(1_013), &tone(1_000.0, 8_000.0, 100)),
    ]);
    let between = |from: u64, to: u64| -> Vec<i16> {
        let within = playout
            .received
            .iter()
            .filter(|frame| (ms(from)..ms(to)).contains(&frame.at));
        within.flat_map(|frame| frame.pcm.clone()).collect()
    };
    assert!(share(&between(200, 1_000), 440.0, RATE_HZ) > 0.99);
    let both = between(1_200, 2_900);
    assert!((0.45..0.55).contains(&share(&both, 440.0, RATE_HZ)));
    assert!((0.45..0.55).contains(&share(&both, 1_000.0, RATE_HZ)));
    assert!(share(&between(3_200, 4_900), 440.0, RATE_HZ) > 0.99);
    assert!(
        (250..=252).contains(&playout.received.len()),
        "{}",
        playout.received.len()
    );
    let gaps = playout.received.windows(2).map(|two| two[1].at - two[0].at);
    assert!(
        gaps.max().is_some_and(|gap| gap <= ms(40)),
        "no frame waits for longer than 20 ms"
    );
}

#[test]
fn emits_nothing_without_input() {
    let mut playout = Playout::new(true);
    playout.play(vec![
        steady("ann", ms(0), &tone(440.0, 8_000.0, 10)),
        steady("bob", ms(60_000), &tone(1_000.0, 8_000.0, 10)),
    ]);
    assert_eq!(playout.received.len(), 20);
    assert_eq!(playout.receiver.poll_timeout(), None);
}

#[test]
fn does_not_wait_for_isolated_packets() {
    let mut playout = Playout::new(true);
    let mut rare = steady("bob", ms(0), &tone(1_000.0, 4_000.0, 10));
    for (nth, arrival) in rare.iter_mut().enumerate() {
        arrival.at = ms(407) * nth as u32;
        arrival.sequence = 100 + nth as u64;
    }
    playout.play(vec![steady("ann", ms(0), &tone(440.0, 8_000.0, 200)), rare]);
    let latest = playout.received.iter().map(|frame| frame.at.as_millis() % 20).max();
    assert!(latest.is_some_and(|late| late <= 10), "ann is heard when she speaks");
    assert_eq!(playout.receiver.mix_stats(), MixStats::default());
    assert_eq!(playout.received.len(), 200);
}

#[test]
fn conceals_losses_of_one_speaker_without_delaying_the_other() {
    let mut playout = Playout::new(true);
    let mut lossy = steady("bob", ms(7), &tone(1_000.0, 8_000.0, 500));
    lossy.retain(|arrival| arrival.sequence % 10 != 5);
    playout.play(vec![steady("ann", ms(0), &tone(440.0, 8_000.0, 500)), lossy]);
    let stats = playout.receiver.stats();
    assert_eq!(stats.counters.lost, 50);
    assert!(
        (500..=503).contains(&playout.received.len()),
        "{}",
        playout.received.len()
    );
    let gaps = playout.received.windows(2).map(|two| two[1].at - two[0].at);
    assert!(gaps.max().is_some_and(|gap| gap <= ms(30)));
    let pcm = playout.pcm();
    assert!(share(&pcm, 440.0, RATE_HZ) > 0.45);
    // Concealed audio has a phase of its own, so it is measured in pieces.
    let pieces = pcm.chunks_exact(5 * FRAME).skip(4);
    let shares: Vec<f64> = pieces.map(|piece| share(piece, 1_000.0, RATE_HZ)).collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!(mean > 0.33, "{mean}");
    assert!(playout.held_max <= 4 * FRAME, "{}", playout.held_max);
}

/// Packets with a clock error in parts per million and some jitter, over a time.
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
fn compensates_clock_drift() {
    let over = Duration::from_secs(600);
    for (jitter_ms, inserted_max, held_max) in [(0, 8, 2), (15, 8, 3)] {
        let mut rng = Rng(5);
        let mut playout = Playout::new(true);
        playout.keep = false;
        playout.play(vec![
            drifting("ann", -100.0, jitter_ms, over, &mut rng),
            drifting("bob", 100.0, jitter_ms, over, &mut rng),
        ]);
        let mixed = playout.receiver.mix_stats();
        assert!((29_995..30_010).contains(&playout.frames), "{} frames", playout.frames);
        assert!(
            mixed.inserted <= inserted_max && mixed.dropped <= inserted_max,
            "{mixed:?}"
        );
        assert!(playout.held_max <= held_max * FRAME, "{}", playout.held_max);
    }
}

#[test]
fn bounds_the_lag_of_bursty_tracks() {
    let mut playout = Playout::new(true);
    let mut bursts = steady("bob", ms(0), &tone(1_000.0, 8_000.0, 500));
    for (nth, arrival) in bursts.iter_mut().enumerate() {
        // A network that stalls for 300 ms every 2 s.
        let into = arrival.at.as_millis() as u64 % 2_000;
        if into < 300 {
            arrival.at += ms(300 - into) + Duration::from_micros(nth as u64);
        }
    }
    playout.play(vec![steady("ann", ms(0), &tone(440.0, 8_000.0, 500)), bursts]);
    assert!(
        playout.receiver.mix_stats().dropped > 20,
        "{:?}",
        playout.receiver.mix_stats()
    );
    // A burst is available until the next frame of the other track.
    let cap = (MIX_BACKLOG_MAX.as_millis() / 20) as usize;
    assert!(playout.held_max <= (cap + 1) * FRAME, "{}", playout.held_max);
    assert!(
        (500..=510).contains(&playout.received.len()),
        "{}",
        playout.received.len()
    );
}

#[test]
fn drops_excess_backlog_during_silence() {
    let mut playout = Playout::new(true);
    let quiet = tone(1_000.0, 0.0, 600);
    let mut bob = steady("bob", ms(0), &quiet);
    // Three packets are late once, and are ahead of their need from then on.
    for arrival in &mut bob[10..13] {
        arrival.at = ms(20 * 13);
    }
    playout.play(vec![steady("ann", ms(3), &tone(440.0, 8_000.0, 600)), bob]);
    let mixed = playout.receiver.mix_stats();
    assert!(mixed.inserted >= 2 && mixed.dropped >= 2, "{mixed:?}");
    assert!(mixed.dropped <= mixed.inserted + 1, "{mixed:?}");
    let last = playout.receiver.tracks().map(Track::held).max();
    assert_eq!(last, Some(0));
}

#[test]
fn mixes_two_tracks_of_one_participant() {
    for mixed in [false, true] {
        let mut playout = Playout::new(mixed);
        playout.play(vec![
            steady("ann", ms(0), &tone(440.0, 8_000.0, 100)),
            steady("ann/screen", ms(5), &tone(1_000.0, 8_000.0, 100)),
            steady("bob", ms(9), &tone(1_700.0, 8_000.0, 100)),
        ]);
        if mixed {
            let pcm = playout.pcm();
            assert!(
                [440.0, 1_000.0, 1_700.0]
                    .iter()
                    .all(|hz| share(&pcm, *hz, RATE_HZ) > 0.3)
            );
            continue;
        }
        let (ann, bob) = (playout.of("ann"), playout.of("bob"));
        assert!((100..=102).contains(&(ann.len() / FRAME)));
        assert_eq!(bob.len() / FRAME, 100);
        assert!(share(&ann, 440.0, RATE_HZ) > 0.45 && share(&ann, 1_000.0, RATE_HZ) > 0.45);
        assert!(share(&bob, 1_700.0, RATE_HZ) > 0.98);
    }
}

#[test]
fn changes_rate_and_mixing_at_run_time() {
    let mut playout = Playout::new(false);
    let (ann, bob) = (tone(440.0, 8_000.0, 50), tone(1_000.0, 8_000.0, 50));
    playout.play(vec![steady("ann", ms(0), &ann), steady("bob", ms(3), &bob)]);
    assert_eq!(playout.received.len(), 100);
    playout.received.clear();
    let now = playout.start + ms(5_000);
    playout.receiver.configure(RATE_HZ, true, now);
    let later = |mut arrivals: Vec<Arrival>| {
        for arrival in &mut arrivals {
            arrival.at += ms(6_000);
            arrival.sequence += 50;
        }
        arrivals
    };
    playout.play(vec![
        later(steady("ann", ms(0), &ann)),
        later(steady("bob", ms(3), &bob)),
    ]);
    assert!(playout.received.iter().all(|frame| frame.whose.is_none()));
    assert!((50..=52).contains(&playout.received.len()));
    assert_eq!(playout.receiver.stats().counters.received, 200, "the counts go on");

    let now = playout.start + ms(20_000);
    playout.receiver.configure(24_000, false, now);
    let packet = AudioPacket {
        is_new_source: false,
        sequence: 200,
        timestamp: 200 * 960,
        payload: ann[10].clone().into(),
    };
    playout
        .receiver
        .handle_packet(&"ann".into(), &"ann".into(), &packet, now);
    assert!(playout.receiver.poll_frame());
    let frame = playout.receiver.take_frame();
    assert_eq!((frame.pcm.len(), frame.rate_hz), (480, 24_000));
    assert_eq!(frame.identity.map(|identity| &**identity), Some("ann"));
}

#[test]
fn keeps_nothing_before_configuration() {
    let mut receiver = RoomAudioReceiver::new();
    let now = Instant::now();
    let packet = AudioPacket {
        is_new_source: false,
        sequence: 1,
        timestamp: 0,
        payload: tone(440.0, 8_000.0, 1)[0].clone().into(),
    };
    receiver.handle_packet(&"ann".into(), &"ann".into(), &packet, now);
    assert!(!receiver.poll_frame());
    assert_eq!(receiver.poll_timeout(), None);
    assert_eq!(receiver.tracks().count(), 0);
}

/// At the cap, one above it, and again after a track has ended.
#[test]
fn caps_tracks_and_reuses_ended_ones() {
    let mut receiver = RoomAudioReceiver::new();
    let now = Instant::now();
    receiver.configure(RATE_HZ, true, now);
    let packet = AudioPacket {
        is_new_source: false,
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
        receiver.stats().counters.received,
        ROOM_VOICES_MAX as u64 + 1,
        "the gone ones count"
    );
}

#[test]
fn plays_the_rest_of_an_ended_track() {
    let mut playout = Playout::new(true);
    let packets = tone(440.0, 8_000.0, 20);
    // The last packet waits for one that is lost.
    let mut arrivals = steady("ann", ms(0), &packets);
    arrivals.remove(18);
    let last = arrivals.pop().expect("a packet");
    playout.play(vec![arrivals]);
    assert_eq!(playout.received.len(), 18);
    let now = playout.start + ms(1_400);
    let packet = AudioPacket {
        is_new_source: false,
        sequence: last.sequence,
        timestamp: last.sequence * 960,
        payload: last.payload.into(),
    };
    playout
        .receiver
        .handle_packet(&"ann".into(), &"ann".into(), &packet, now);
    playout.receiver.handle_track_ended("ann");
    playout.drain(ms(1_400));
    playout.run(ms(3_000));
    assert_eq!(playout.received.len(), 20);
    assert_eq!(playout.receiver.tracks().count(), 0);
    let mut again = steady("ann", ms(4_000), &packets);
    again.iter_mut().for_each(|arrival| arrival.sequence -= 90);
    playout.play(vec![again]);
    assert_eq!(playout.received.len(), 40);
}

/// Packets of another length than a frame are played in whole frames, the last one padded with
/// silence.
#[test]
fn joins_short_packets_into_frames() {
    let mut playout = Playout::new(true);
    // Silence in CELT, 10 ms each: configuration 30, one frame.
    let arrivals = (0..11).map(|nth| Arrival {
        at: ms(10 * nth),
        track: "ann",
        sequence: 100 + nth,
        payload: vec![0xf0, 0xff, 0xfe],
    });
    playout.play(vec![arrivals.collect()]);
    assert_eq!(playout.received.len(), 6);
    assert_eq!(playout.receiver.poll_timeout(), None);
}

/// Publishers use discontinuous transmission: a packet per 400 ms without speech.
fn sparse(track: &'static str, from: Duration, packets: usize) -> Vec<(Duration, &'static str, u64)> {
    let packet = |nth| (from + ms(400) * nth as u32, track, 20 * nth as u64);
    (0..packets).map(packet).collect()
}

fn listen_to(mixed: bool, mut arrivals: Vec<(Duration, &'static str, u64)>) -> Playout {
    let mut playout = Playout::new(mixed);
    arrivals.sort_unstable();
    let payload = &silence_packet();
    for (at, track, frames) in arrivals {
        playout.run(at);
        let packet = AudioPacket {
            is_new_source: false,
            sequence: frames / 20,
            timestamp: frames * 960,
            payload: payload.clone().into(),
        };
        let now = playout.start + at;
        playout
            .receiver
            .handle_packet(&Arc::from(track), &Arc::from(track), &packet, now);
        playout.drain(at);
    }
    playout
}

fn silence_packet() -> Vec<u8> {
    tone(440.0, 0.0, 1).remove(0)
}

#[test]
fn a_pause_of_a_participant_is_as_long_as_it_was() {
    for mixed in [true, false] {
        let playout = listen_to(mixed, sparse("ann", ms(0), 11));
        assert_eq!(playout.frames, 201, "4 s and the first packet");
    }
}

/// The pauses of two participants are one pause of the mix.
#[test]
fn the_pauses_of_two_participants_are_mixed_into_one() {
    let both = || [sparse("ann", ms(0), 11), sparse("bob", ms(170), 11)].concat();
    let mixed = listen_to(true, both()).frames;
    assert!((190..=210).contains(&mixed), "{mixed} frames in 4.2 s");
    let each = listen_to(false, both());
    assert_eq!((each.of("ann").len(), each.of("bob").len()), (201 * FRAME, 201 * FRAME));
}

/// The silence of one participant does not delay the speech that follows it, while another speaks.
#[test]
fn a_pause_adds_no_delay_while_others_speak() {
    let mut playout = Playout::new(true);
    playout.play(vec![steady("bob", ms(0), &tone(440.0, 8_000.0, 100)), {
        let mut late = steady("ann", ms(0), &tone(880.0, 8_000.0, 100));
        late.retain(|arrival| !(ms(400)..ms(1_600)).contains(&arrival.at));
        for arrival in late.iter_mut().filter(|arrival| arrival.at >= ms(1_600)) {
            arrival.sequence -= 60;
        }
        late
    }]);
    assert!(playout.held_max <= 4 * FRAME, "{} samples wait", playout.held_max);
    assert!(playout.frames <= 160, "{} frames in 3 s", playout.frames);
}
