//! Tests cadence, order, interruption and the speech events in virtual time, by cases and with
//! random sources.

use super::*;

const HZ: u32 = 16_000;
const FRAME: usize = 320;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// An output and its time after the start. Sound is identified by its first sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Silence,
    Sound(i16),
    Started,
    Stopped,
}

struct Line {
    pacer: Pacer,
    start: Instant,
    log: Vec<(Duration, Left)>,
    /// PCM and timestamps of all frames.
    pcm: Vec<i16>,
    ticks: Vec<u64>,
}

impl Line {
    fn new() -> Self {
        let mut line = Self {
            pacer: Pacer::new(HZ),
            start: Instant::now(),
            log: Vec::new(),
            pcm: Vec::new(),
            ticks: Vec::new(),
        };
        line.pacer.start(line.start);
        line.drain(Duration::ZERO);
        line
    }

    fn drain(&mut self, at: Duration) {
        while let Some(output) = self.pacer.poll_output() {
            self.log.push((
                at,
                match output {
                    PacerOutput::SpeechStarted => Left::Started,
                    PacerOutput::SpeechStopped => Left::Stopped,
                    PacerOutput::Frame(frame) => {
                        assert_eq!(frame.pcm.len(), FRAME);
                        assert_eq!(frame.is_silent, frame.pcm.iter().all(|sample| *sample == 0));
                        self.pcm.extend_from_slice(frame.pcm);
                        self.ticks.push(frame.rtp_ticks);
                        if frame.is_silent {
                            Left::Silence
                        } else {
                            Left::Sound(frame.pcm[0])
                        }
                    }
                },
            ));
        }
    }

    /// Advances the time until just before `until`; each wake-up is late by `late`.
    fn run(&mut self, until: Duration, mut late: impl FnMut() -> Duration) {
        loop {
            let at = self.pacer.poll_timeout().unwrap().0 - self.start + late();
            if at >= until {
                return;
            }
            self.pacer.handle_timeout(self.start + at);
            self.drain(at);
        }
    }

    fn run_to(&mut self, until_ms: u64) {
        self.run(ms(until_ms), || Duration::ZERO);
    }

    fn audio(&mut self, pcm: &[i16], at: Duration) -> usize {
        let taken = self.pacer.handle_audio(pcm, self.start + at);
        self.drain(at);
        taken
    }

    /// Returns the outputs from `from_ms` on, in milliseconds.
    fn since(&self, from_ms: u64) -> Vec<(u64, Left)> {
        let log = self.log.iter().filter(|(at, _)| *at >= ms(from_ms));
        log.map(|(at, left)| (at.as_millis() as u64, *left)).collect()
    }

    fn departures(&self) -> Vec<Duration> {
        let frames = self
            .log
            .iter()
            .filter(|(_, left)| matches!(left, Left::Silence | Left::Sound(_)));
        frames.map(|(at, _)| *at).collect()
    }

    fn assert_cadence(&self, gap_max: Duration) {
        let departures = self.departures();
        for window in departures.windows(3) {
            assert!(window[2] >= window[0] + PTIME, "three frames within 20 ms: {window:?}");
        }
        for window in departures.windows(2) {
            assert!(
                window[1] - window[0] <= gap_max,
                "a gap of {:?} after {:?}",
                window[1] - window[0],
                window[0]
            );
        }
    }
}

fn sound(value: i16, samples: usize) -> Vec<i16> {
    vec![value; samples]
}

use Left::{Silence, Sound, Started, Stopped};

#[test]
fn silence_leaves_every_20_ms_from_the_start() {
    let mut line = Line::new();
    line.run_to(101);
    assert_eq!(line.since(0), [0, 20, 40, 60, 80, 100].map(|at| (at, Silence)));
    assert_eq!(line.ticks, [0, 960, 1_920, 2_880, 3_840, 4_800]);
}

#[test]
fn nothing_leaves_before_the_start() {
    let mut pacer = Pacer::new(HZ);
    let now = Instant::now();
    assert_eq!(pacer.handle_audio(&sound(1, FRAME), now), FRAME);
    pacer.handle_timeout(now + ms(500));
    assert_eq!(pacer.poll_output(), None);
    assert_eq!(pacer.poll_timeout(), None);
    pacer.start(now + ms(500));
    assert_eq!(pacer.poll_output(), Some(PacerOutput::SpeechStarted));
}

#[test]
fn real_time_speech_keeps_its_phase() {
    for phase in 0..20 {
        let mut line = Line::new();
        for n in 5..60 {
            line.run_to(20 * n + phase);
            line.audio(&sound(n as i16, FRAME), ms(20 * n + phase));
        }
        let spoken: Vec<_> = line
            .since(100)
            .into_iter()
            .filter(|(_, left)| matches!(left, Sound(_)))
            .collect();
        let wanted: Vec<_> = (5..60).map(|n| (20 * n + phase, Sound(n as i16))).collect();
        assert_eq!(spoken, wanted, "phase {phase}");
        line.assert_cadence(ms(20));
    }
}

#[test]
fn a_burst_leaves_on_the_clock_and_is_bounded() {
    let mut line = Line::new();
    line.run_to(47);
    let burst: Vec<i16> = (1..=12).flat_map(|n| sound(n, FRAME)).collect();
    let taken = line.audio(&burst, ms(47));
    assert_eq!(taken, FRAME * 5, "the queue holds 100 ms");
    assert_eq!(line.pacer.free_capacity(), FRAME, "a frame left at once");
    assert_eq!(line.pacer.queued(), ms(80));
    line.run_to(200);
    let wanted = [
        (47, Started),
        (47, Sound(1)),
        (60, Sound(2)),
        (80, Sound(3)),
        (100, Sound(4)),
        (120, Sound(5)),
    ];
    assert_eq!(line.since(47)[..6], wanted);
    assert_eq!(
        line.since(121)[..2],
        [(160, Silence), (180, Silence)],
        "one slot of grace"
    );
    line.assert_cadence(ms(40));
}

#[test]
fn pads_the_rest_of_a_frame_when_speech_ends() {
    let mut line = Line::new();
    line.run_to(10);
    line.audio(&sound(1, FRAME + 100), ms(10));
    line.run_to(100);
    assert_eq!(
        line.since(10)[..4],
        [(10, Started), (10, Sound(1)), (50, Sound(1)), (70, Silence)]
    );
    assert_eq!(
        line.pcm[2 * FRAME..3 * FRAME],
        [sound(1, 100), sound(0, FRAME - 100)].concat()
    );
}

#[test]
fn sends_a_clip_shorter_than_a_frame() {
    let mut line = Line::new();
    line.run_to(50);
    line.audio(&sound(1, 7), ms(50));
    line.run_to(101);
    // At 60 ms, the rest of its frame might still arrive.
    assert_eq!(
        line.since(50)[..4],
        [(60, Silence), (80, Started), (80, Sound(1)), (100, Silence)]
    );
}

/// Speech has ended when nothing follows for as long as a frame takes, and not a slot later.
#[test]
fn a_clip_that_comes_at_its_slot_leaves_at_the_next() {
    let mut line = Line::new();
    line.run_to(60);
    line.audio(&sound(1, 7), ms(60));
    line.run_to(81);
    assert_eq!(line.since(60), [(60, Silence), (80, Started), (80, Sound(1))]);
}

/// Audio without a sample says nothing about the end of speech.
#[test]
fn empty_audio_does_not_delay_the_end_of_speech() {
    let mut line = Line::new();
    line.run_to(50);
    line.audio(&sound(1, 7), ms(50));
    line.run_to(75);
    assert_eq!(line.audio(&[], ms(75)), 0);
    line.run_to(81);
    assert_eq!(line.since(61), [(80, Started), (80, Sound(1))]);
}

#[test]
fn joins_small_pieces_into_frames() {
    let mut line = Line::new();
    for n in 0..40_u64 {
        line.run_to(103 + 10 * n);
        line.audio(&sound(1, FRAME / 2), ms(103 + 10 * n));
    }
    line.run_to(503);
    let sounds: Vec<u64> = line
        .since(0)
        .iter()
        .filter(|(_, left)| *left == Sound(1))
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(sounds, (0..20).map(|n| 113 + 20 * n).collect::<Vec<_>>());
    assert_eq!(
        line.pcm.iter().filter(|sample| **sample == 1).count(),
        20 * FRAME,
        "no padding inside"
    );
}

#[test]
fn waits_one_slot_for_late_speech() {
    let mut line = Line::new();
    line.run_to(60);
    line.audio(&sound(1, FRAME), ms(60));
    line.run_to(99);
    line.audio(&sound(2, FRAME), ms(99));
    line.run_to(145);
    line.audio(&sound(3, FRAME), ms(145));
    let wanted = [
        (60, Started),
        (60, Sound(1)),
        (99, Sound(2)),
        (139, Silence),
        (145, Sound(3)),
    ];
    assert_eq!(line.since(60), wanted);
}

#[test]
fn an_interruption_empties_the_queue_at_once() {
    let mut line = Line::new();
    line.run_to(30);
    line.audio(&sound(1, FRAME * 5), ms(30));
    line.run_to(70);
    line.pacer.handle_interruption(line.start + ms(70));
    line.drain(ms(70));
    assert_eq!(line.pacer.queued(), Duration::ZERO);
    line.run_to(120);
    assert_eq!(
        line.since(61),
        [(70, Stopped), (100, Silence)],
        "the slot at 80 was used at 60"
    );
    line.audio(&sound(2, FRAME), ms(120));
    assert_eq!(
        line.since(120),
        [(120, Started), (120, Sound(2))],
        "the next speech starts anew"
    );
    line.run_to(600);
    line.pacer.handle_interruption(line.start + ms(600));
    line.drain(ms(600));
    let stops = line.log.iter().filter(|(_, left)| *left == Stopped).count();
    assert_eq!(stops, 2, "an interruption of silence says nothing");
}

/// A pause ends the speech at once; what is queued is new speech after the next start.
#[test]
fn a_pause_ends_the_speech_and_keeps_the_queue() {
    let mut line = Line::new();
    line.run_to(30);
    assert!(!line.pacer.is_speaking());
    line.audio(&sound(1, FRAME * 3), ms(30));
    line.run_to(41);
    assert!(line.pacer.is_speaking());
    assert!(line.pacer.handle_pause(), "the bot was speaking");
    assert!(!line.pacer.is_speaking());
    assert!(!line.pacer.handle_pause(), "its speech has ended");
    line.pacer.start(line.start + ms(500));
    line.drain(ms(500));
    assert_eq!(line.since(41), [(500, Started), (500, Sound(1))]);
}

/// The last frame remains for those that need it once more, and the counters are those of the
/// session.
#[test]
fn keeps_the_last_frame_and_counts_all() {
    let mut line = Line::new();
    line.run_to(30);
    line.audio(&sound(7, FRAME), ms(30));
    assert_eq!(line.pacer.last_frame(), sound(7, FRAME));
    // The slots at 130, 150 and 170 ms pass before the wake-up.
    line.run_to(100);
    line.pacer.handle_timeout(line.start + ms(175));
    line.drain(ms(175));
    assert_eq!(line.since(31), [70, 90, 175].map(|at| (at, Silence)));
    assert_eq!(line.pacer.last_frame(), sound(0, FRAME));
    let counters = *line.pacer.counters();
    assert_eq!((counters.frames, counters.silent, counters.skipped), (6, 5, 3));
    let mut counts = Counts::default();
    counters.write_to(&mut counts);
    assert_eq!(counts.get(Count::FramesOut), counters.frames);
    assert_eq!(counts.get(Count::FramesSkipped), counters.skipped);
}

#[test]
fn speech_events_follow_the_sound() {
    let mut line = Line::new();
    line.run_to(50);
    // Digital silence at both ends of the bot's audio is not speech.
    line.audio(&sound(0, FRAME), ms(50));
    line.run_to(70);
    line.audio(&sound(5, FRAME), ms(70));
    line.run_to(90);
    line.audio(&sound(0, FRAME), ms(90));
    line.run_to(300);
    line.audio(&sound(6, FRAME), ms(300));
    line.run_to(1_000);
    let events: Vec<_> = line
        .since(0)
        .into_iter()
        .filter(|(_, left)| matches!(left, Started | Stopped))
        .collect();
    assert_eq!(
        events,
        [(70, Started), (300 + SPEECH_HANGOVER.as_millis() as u64, Stopped)]
    );
    assert!(!line.pacer.is_speaking());
}

#[test]
fn skips_slots_after_a_stall() {
    let mut line = Line::new();
    line.run_to(110);
    line.audio(&sound(1, FRAME * 5), ms(110));
    let mut stalled = false;
    line.run(ms(900), || {
        if std::mem::replace(&mut stalled, true) {
            Duration::ZERO
        } else {
            ms(400)
        }
    });
    let after: Vec<u64> = line
        .since(130)
        .iter()
        .filter(|(_, left)| *left == Sound(1))
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(after, [520, 520, 540, 560], "the speech is kept");
    line.assert_cadence(ms(420));
    assert!(
        (18..=20).contains(&line.pacer.counters().skipped),
        "{:?}",
        line.pacer.counters()
    );
    // When the speech is over, the timestamps have caught up with the clock.
    let (at, ticks) = (*line.departures().last().unwrap(), *line.ticks.last().unwrap());
    assert_eq!(ticks / 960, at.as_millis() as u64 / 20);
    assert!(line.ticks.windows(2).all(|pair| pair[1] > pair[0]));
}

#[test]
fn timestamps_jump_only_in_silence() {
    let mut line = Line::new();
    line.run_to(60);
    for (n, at) in [(1, 60), (2, 95), (3, 130), (4, 168)] {
        line.run_to(at);
        line.audio(&sound(n, FRAME), ms(at));
    }
    line.run_to(400);
    let frames: Vec<Left> = line
        .log
        .iter()
        .map(|(_, left)| *left)
        .filter(|l| !matches!(l, Started | Stopped))
        .collect();
    for (pair, ticks) in frames.windows(2).zip(line.ticks.windows(2)) {
        if let [Sound(_), Sound(_)] = pair {
            assert_eq!(ticks[1] - ticks[0], 960);
        }
    }
    assert_eq!(
        *line.ticks.last().unwrap(),
        960 * (line.departures().last().unwrap().as_millis() as u64 / 20)
    );
}

/// Ten minutes of speech of a bot whose clock is 500 ppm off: no delay builds up, and no speech is
/// interrupted by silence.
#[test]
fn a_bot_with_a_fast_or_slow_clock_does_not_build_up_delay() {
    for period_us in [19_990, 20_010] {
        let mut line = Line::new();
        let (mut delayed, mut worst) = (Duration::ZERO, Duration::ZERO);
        let count: u32 = 600 * 50;
        for n in 0..count {
            let at = Duration::from_micros(3_000 + u64::from(n) * period_us);
            line.run(at, || Duration::ZERO);
            line.audio(&sound(1 + (n % 30_000) as i16, FRAME), at);
            let waits = line.pacer.queue.len() >= FRAME;
            let wait = if waits {
                line.pacer.poll_timeout().unwrap().0 - (line.start + at)
            } else {
                Duration::ZERO
            };
            delayed += wait;
            worst = worst.max(wait);
            line.pcm.clear();
        }
        let silent = line.log.iter().skip(2).filter(|(_, left)| *left == Silence).count();
        assert_eq!(silent, 0, "period {period_us} us");
        assert!(
            delayed / count < ms(1) && worst < ms(2),
            "period {period_us} us: worst queueing delay {worst:?}, limit 2 ms; mean {:?}, limit 1 ms",
            delayed / count
        );
        line.assert_cadence(ms(21));
    }
}

/// A frame that came alone and had to wait moves the slots, also if the next piece arrives in time
/// for its departure.
#[test]
fn a_frame_that_waited_moves_the_slots() {
    let next_slot = |frame_at: u64, piece: bool| {
        let mut line = Line::new();
        line.audio(&sound(1, FRAME), ms(3));
        line.audio(&sound(2, FRAME), ms(frame_at));
        if piece {
            line.audio(&sound(3, 1), ms(20));
        } else {
            line.run_to(21);
        }
        assert_eq!(line.since(4), [(20, Sound(2))]);
        line.audio(&sound(3, FRAME), ms(25));
        let (next, reason) = line.pacer.poll_timeout().expect("it runs");
        assert_eq!(reason, PacerDeadline::Speech);
        next - line.start
    };
    assert_eq!(next_slot(10, false), ms(40) - PULL);
    assert_eq!(next_slot(10, true), ms(40) - PULL);
    assert_eq!(next_slot(20, false), ms(40), "it did not wait");
}

/// Frames that were queued wait by design: neither the last of a burst nor the first of two moves
/// the slots.
#[test]
fn queued_frames_do_not_move_the_slots() {
    let next = |line: &Line| line.pacer.poll_timeout().expect("it runs").0 - line.start;
    let mut line = Line::new();
    line.run_to(47);
    line.audio(&sound(1, 3 * FRAME), ms(47));
    line.run_to(81);
    assert_eq!(line.since(47)[1..], [47, 60, 80].map(|at| (at, Sound(1))));
    line.audio(&sound(2, FRAME), ms(85));
    assert_eq!(next(&line), ms(100));

    let mut line = Line::new();
    line.audio(&sound(1, FRAME), ms(3));
    line.audio(&sound(2, 2 * FRAME), ms(10));
    line.run_to(21);
    assert_eq!(line.since(4), [(20, Sound(2))]);
    assert_eq!(next(&line), ms(40));
}

/// The slot that ends as the wake-up comes has passed: one frame leaves, and not two.
#[test]
fn a_wake_up_that_is_late_by_a_whole_slot_skips_it() {
    let mut line = Line::new();
    line.pacer.handle_timeout(line.start + ms(40));
    line.drain(ms(40));
    assert_eq!(line.since(1), [(40, Silence)]);
    assert_eq!(line.pacer.counters().skipped, 1);
    line.run_to(61);
    assert_eq!(line.since(41), [(60, Silence)]);
}

/// Random sources, phases, interruptions and late wake-ups, checked against the invariants.
#[test]
fn any_source_keeps_the_cadence_and_loses_nothing() {
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut random = move |n: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    for round in 0..40 {
        let (piece_max, pause_max, late_max) = (1 + random(2_500), 1 + random(90), 1 + random(5_000));
        let interrupts = round % 3 == 0;
        let mut line = Line::new();
        let (mut at, mut next, mut sent) = (Duration::ZERO, 1_i16, Vec::new());
        while at < ms(6_000) {
            at += Duration::from_micros(random(pause_max * 1_000));
            let mut lateness = || Duration::from_micros(random(late_max));
            line.run(at, &mut lateness);
            let piece: Vec<i16> = (0..random(piece_max))
                .map(|n| (next + n as i16).rem_euclid(30_000) + 1)
                .collect();
            let taken = line.audio(&piece, at);
            assert!(line.pacer.queued() <= PACER_QUEUE);
            next = (next + taken as i16).rem_euclid(30_000);
            sent.extend_from_slice(&piece[..taken]);
            if interrupts && random(50) == 0 {
                sent.truncate(sent.len() - line.pacer.queue.len());
                line.pacer.handle_interruption(line.start + at);
                line.drain(at);
            }
        }
        line.run(at + ms(1_000), || Duration::ZERO);
        // Test speech has no zero samples, so a zero is padding.
        let received: Vec<i16> = line.pcm.iter().copied().filter(|sample| *sample != 0).collect();
        assert_eq!(received, sent, "round {round}");
        line.assert_cadence(ms(40) + Duration::from_micros(2 * late_max));
        let (last, ticks) = (*line.departures().last().unwrap(), *line.ticks.last().unwrap());
        let off = (ticks / 48) as i64 - last.as_millis() as i64;
        assert!(off.abs() <= 40, "round {round}: timestamps are {off} ms off the time");
        let mut speaking = false;
        for (_, left) in &line.log {
            match left {
                Started => assert!(!std::mem::replace(&mut speaking, true)),
                Stopped => assert!(std::mem::replace(&mut speaking, false)),
                Sound(_) => assert!(speaking),
                Silence => {}
            }
        }
        assert!(!speaking);
    }
}
