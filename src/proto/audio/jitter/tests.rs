//! Tests order of release, waits, fills and counters in virtual time.

use super::*;

/// A 20 ms packet that contains its sequence number, with or without an FEC copy.
fn packet(sequence: u64, fec: bool) -> Vec<u8> {
    let mut payload = vec![9 << 3, if fec { 0x40 } else { 0 }];
    payload.extend(sequence.to_be_bytes());
    payload
}

/// A step of the decoder: the number of the packet, or its replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Packet(u64),
    Fec(u64),
    Conceal,
    Gap(u32),
}

struct Line {
    jitter: JitterBuffer,
    start: Instant,
    fec: bool,
}

impl Line {
    fn new() -> Self {
        Self {
            jitter: JitterBuffer::new(Codec::Opus),
            start: Instant::now(),
            fec: false,
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn drain(&mut self) -> Vec<Step> {
        let number = |payload: &[u8]| u64::from_be_bytes(payload[2..10].try_into().unwrap());
        let mut steps = Vec::new();
        while let Some(output) = self.jitter.poll_output() {
            steps.push(match output {
                JitterOutput::Decode(payload) => Step::Packet(number(payload)),
                JitterOutput::DecodeFec(payload) => Step::Fec(number(payload)),
                JitterOutput::Conceal => Step::Conceal,
                JitterOutput::Gap { ticks } => Step::Gap(ticks),
            });
        }
        steps
    }

    /// Passes a packet of the steady sender that arrives at `ms`.
    fn packet(&mut self, sequence: u64, ms: u64) -> Vec<Step> {
        self.packet_at_time(sequence, sequence * 960, ms)
    }

    fn packet_at_time(&mut self, sequence: u64, timestamp: u64, ms: u64) -> Vec<Step> {
        let now = self.at(ms);
        self.jitter
            .handle_packet(sequence, timestamp, &packet(sequence, self.fec), now);
        self.drain()
    }

    fn timeout(&mut self) -> (u64, Vec<Step>) {
        let at = self.jitter.poll_timeout().expect("a wait is under way");
        self.jitter.handle_timeout(at);
        ((at - self.start).as_millis() as u64, self.drain())
    }
}

use Step::{Conceal, Fec, Gap, Packet};

#[test]
fn releases_packets_in_order_at_once() {
    let mut line = Line::new();
    for (sequence, ms) in [(7, 0), (8, 95), (9, 96), (10, 97), (11, 140)] {
        assert_eq!(line.packet(sequence, ms), [Packet(sequence)]);
        assert_eq!(line.jitter.poll_timeout(), None);
    }
}

#[test]
fn reorders_swapped_packets() {
    let mut line = Line::new();
    assert_eq!(line.packet(1, 0), [Packet(1)]);
    assert_eq!(line.packet(3, 25), []);
    assert_eq!(line.packet(2, 30), [Packet(2), Packet(3)]);
    assert_eq!(line.jitter.counters().lost, 0);
}

#[test]
fn recovers_a_lost_packet_from_the_next_one_or_conceals_it() {
    for (fec, stand_in) in [(true, Fec(3)), (false, Conceal)] {
        let mut line = Line::new();
        line.fec = fec;
        line.packet(1, 0);
        assert_eq!(line.packet(3, 40), []);
        assert_eq!(
            line.timeout(),
            (60, vec![stand_in, Packet(3)]),
            "after the shortest wait"
        );
        assert_eq!(line.packet(4, 61), [Packet(4)]);
        let counters = line.jitter.counters();
        assert_eq!(
            (counters.lost, counters.recovered, counters.concealed),
            (1, u64::from(fec), u64::from(!fec))
        );
    }
}

#[test]
fn recovers_only_the_last_of_several_lost_packets() {
    let mut line = Line::new();
    line.fec = true;
    line.packet(1, 0);
    line.packet(5, 80);
    assert_eq!(line.packet(6, 99), [], "all behind the gap wait");
    assert_eq!(line.timeout().1, [Conceal, Conceal, Fec(5), Packet(5), Packet(6)]);
}

#[test]
fn reports_a_long_gap_without_concealment() {
    let frames = u64::from(CONCEALED_FRAMES_MAX);
    for (lost, fec) in [
        (frames, false),
        (frames + 1, false),
        (frames, true),
        (frames + 30, true),
    ] {
        let mut line = Line::new();
        line.fec = fec;
        line.packet(1, 0);
        line.packet(2 + lost, 20 * (lost + 1));
        let steps = line.timeout().1;
        let mut wanted = vec![Conceal; CONCEALED_FRAMES_MAX as usize - usize::from(fec)];
        if lost > frames {
            wanted.push(Gap(960 * (lost - frames) as u32));
        }
        wanted.extend(fec.then_some(Fec(2 + lost)));
        wanted.push(Packet(2 + lost));
        assert_eq!(steps, wanted, "{lost} lost");
        assert_eq!(line.jitter.counters().lost, lost);
    }
}

#[test]
fn the_wait_follows_the_jitter_within_its_limits() {
    let wait_after_jitter_of = |ms: u64| {
        let mut line = Line::new();
        for n in 0..400 {
            line.packet(n, 100 + n * 20 + if n % 2 == 0 { ms } else { 0 });
        }
        line.packet(401, 100 + 401 * 20);
        line.jitter.poll_timeout().unwrap() - line.at(100 + 401 * 20)
    };
    assert_eq!(wait_after_jitter_of(0), JITTER_WAIT_MIN);
    let middle = wait_after_jitter_of(13);
    assert!(
        middle > Duration::from_millis(35) && middle < Duration::from_millis(42),
        "{middle:?}"
    );
    assert_eq!(wait_after_jitter_of(60), JITTER_WAIT_MAX);
}

#[test]
fn late_packets_lengthen_the_wait_for_a_while() {
    let mut line = Line::new();
    line.packet(0, 0);
    line.packet(2, 40);
    line.timeout();
    assert_eq!(line.packet(1, 61), [], "late");
    line.packet(4, 80);
    assert_eq!(line.timeout().0, 120, "one packet's time more");
    for n in 5..1_000 {
        line.packet(n, n * 20 + 40);
    }
    line.packet(1_001, 1_001 * 20 + 40);
    assert_eq!(line.timeout().0, 1_001 * 20 + 60, "forgotten");
}

/// The wait shrinks with each packet in order, over seconds and not at once.
#[test]
fn one_packet_in_order_does_not_forget_the_late_ones() {
    let mut line = Line::new();
    line.packet(0, 0);
    line.packet(2, 40);
    line.timeout();
    line.packet(1, 61);
    assert_eq!(line.packet(3, 80), [Packet(3)]);
    line.packet(5, 120);
    assert!((150..=160).contains(&line.timeout().0), "longer than the shortest wait");
}

#[test]
fn counts_late_and_duplicate_packets_separately() {
    let mut line = Line::new();
    line.packet(1, 0);
    line.packet(2, 20);
    assert_eq!(line.packet(2, 21), [], "duplicate of a released packet");
    line.packet(4, 60);
    assert_eq!(line.packet(4, 61), [], "duplicate of a held packet");
    line.timeout();
    assert_eq!(line.packet(3, 90), [], "late");
    assert_eq!(line.packet(1, 91), [], "an old duplicate");
    let counters = line.jitter.counters();
    assert_eq!(
        (counters.received, counters.duplicate, counters.late, counters.lost),
        (7, 3, 1, 1)
    );
}

/// Of the last 64 numbers it is known whether the packet came; an older one counts as late.
#[test]
fn duplicates_are_known_among_the_last_64_numbers() {
    let mut line = Line::new();
    for n in 1..=64 {
        line.packet(n, n * 20);
    }
    line.packet(1, 1_281);
    let counters = *line.jitter.counters();
    assert_eq!((counters.duplicate, counters.late), (1, 0));
    line.packet(65, 1_300);
    line.packet(1, 1_301);
    let counters = *line.jitter.counters();
    assert_eq!((counters.duplicate, counters.late), (1, 1));
}

#[test]
fn a_clock_jump_without_loss_is_a_gap() {
    let mut line = Line::new();
    line.packet_at_time(1, 0, 0);
    assert_eq!(
        line.packet_at_time(2, 960 + 19_200, 420),
        [Gap(19_200), Packet(2)],
        "a muted sender"
    );
    assert_eq!(line.packet_at_time(3, 21_120, 440), [Packet(3)]);
    assert_eq!(line.packet_at_time(4, 5, 460), [Packet(4)], "a clock set back");
    assert_eq!(line.packet_at_time(5, 965, 480), [Packet(5)]);
    assert_eq!(line.packet_at_time(6, u64::MAX, 500), [Packet(6)]);
    assert_eq!(line.jitter.counters().concealed, 0);
}

#[test]
fn conceals_no_more_than_the_elapsed_time_after_loss_in_a_pause() {
    let mut line = Line::new();
    line.packet_at_time(1, 0, 0);
    line.packet_at_time(4, 960, 60);
    assert_eq!(
        line.timeout().1,
        [Packet(4)],
        "the clock stood still: nothing is missing"
    );
    line.packet_at_time(6, 960 * 12, 300);
    assert_eq!(line.timeout().1, [Conceal, Gap(960 * 9), Packet(6)]);
    line.packet_at_time(10, 960 * 14, 380);
    assert_eq!(line.timeout().1, [Conceal, Packet(10)], "three lost within 20 ms");
    line.fec = true;
    line.packet_at_time(12, 960 * 15, 460);
    assert_eq!(line.timeout().1, [Packet(12)], "nor is a copy decoded");
}

#[test]
fn follows_a_restarted_sender_from_its_second_packet() {
    let mut line = Line::new();
    line.packet(5_000, 0);
    assert_eq!(line.packet(10, 20), []);
    assert_eq!(line.packet(11, 40), [Packet(11)]);
    assert_eq!(line.packet(12, 60), [Packet(12)]);
    // Two consecutive numbers that are near are only late.
    line.packet(15, 120);
    line.timeout();
    assert_eq!([line.packet(13, 170), line.packet(14, 171)], [vec![], vec![]]);
    assert_eq!(line.packet(16, 180), [Packet(16)]);
}

/// Two consecutive numbers are a restart only if both are further back than packets are reordered.
#[test]
fn a_restart_is_further_back_than_a_late_packet() {
    let after = |first: u64| {
        let mut line = Line::new();
        line.packet(1_000, 0);
        line.packet(first, 20);
        line.packet(first + 1, 21)
    };
    assert_eq!(after(1_000 - RTP_MISORDER_MAX), []);
    let restarted = 1_000 - RTP_MISORDER_MAX - 1;
    assert_eq!(after(restarted), [Packet(restarted + 1)]);
}

/// A jump further ahead than packets are lost is a restart, from which nothing was lost.
#[test]
fn a_jump_ahead_is_a_loss_or_a_restart() {
    let lost_after = |missing: u64| {
        let mut line = Line::new();
        line.packet(5, 0);
        let released = line.packet(6 + missing, 20);
        if line.jitter.poll_timeout().is_some() {
            line.timeout();
        }
        (released, line.jitter.counters().lost)
    };
    assert_eq!(lost_after(RTP_DROPOUT_MAX), (vec![], RTP_DROPOUT_MAX));
    let missing = RTP_DROPOUT_MAX + 1;
    assert_eq!(lost_after(missing), (vec![Packet(6 + missing)], 0));
}

/// An extended number beyond the range of SRTP lies before the first packet. It neither counts as
/// loss nor moves the order.
#[test]
fn a_number_before_the_first_one_is_late() {
    for (first, far) in [(Some(5), u64::MAX), (Some(5), SEQUENCE_END), (None, u64::MAX - 100)] {
        let mut line = Line::new();
        if let Some(first) = first {
            line.packet(first, 0);
        }
        assert_eq!(line.packet_at_time(far, 0, 20), []);
        assert_eq!(line.jitter.poll_timeout(), None, "{far}");
        assert_eq!(line.packet(6, 40), [Packet(6)]);
        let counters = line.jitter.counters();
        assert_eq!((counters.lost, counters.concealed, counters.late), (0, 0, 1), "{far}");
    }
}

/// Another codec comes from another sender, with a clock of its own.
#[test]
fn another_codec_starts_anew_on_its_own_clock() {
    let mut line = Line::new();
    line.packet(5_000, 0);
    line.packet(5_002, 40);
    line.jitter.set_codec(Codec::G711(crate::audio::g711::Law::Mu));
    let mut send = |sequence: u64, ms: u64| {
        let mut payload = packet(sequence, false);
        payload.resize(160, 0xff);
        let now = line.at(ms);
        line.jitter.handle_packet(sequence, sequence * 160, &payload, now);
        line.drain()
    };
    assert_eq!(send(1, 60), [Packet(1)], "packets of the former codec are gone");
    assert_eq!(send(3, 100), []);
    assert_eq!(line.timeout().1, [Conceal, Packet(3)], "one packet of 160 ticks");
    assert_eq!(line.jitter.counters().jitter, Duration::ZERO, "in ticks of 8 kHz");
}

#[test]
fn another_sender_may_start_at_any_number() {
    let mut line = Line::new();
    line.packet(100, 0);
    line.packet(102, 40);
    line.jitter.handle_restart();
    assert_eq!(line.packet(3, 60), [Packet(3)]);
    assert_eq!(line.jitter.counters().received, 3);
}

#[test]
fn a_full_queue_ends_the_wait() {
    let mut line = Line::new();
    line.packet(0, 0);
    let cap = JITTER_HELD_MAX as u64;
    for n in 2..1 + cap {
        assert_eq!(line.packet(n, 40), []);
    }
    assert_eq!(
        line.packet(1 + cap, 40).len(),
        JITTER_HELD_MAX + 1,
        "all of them and one concealment"
    );
}

/// A caller that does not drain holds no more than a full queue.
#[test]
fn packets_beyond_a_full_queue_are_refused() {
    let mut line = Line::new();
    let (now, cap) = (line.at(0), JITTER_HELD_MAX as u64);
    for n in 0..cap + 2 {
        line.jitter.handle_packet(n, n * 960, &packet(n, false), now);
    }
    assert_eq!(line.drain(), (0..cap).map(Packet).collect::<Vec<_>>());
    assert_eq!(line.jitter.counters().refused, 2);
}

/// A packet in order waits for nothing, even before it is drained.
#[test]
fn only_a_missing_packet_has_a_deadline() {
    let mut line = Line::new();
    line.packet(1, 0);
    let now = line.at(20);
    line.jitter.handle_packet(2, 2 * 960, &packet(2, false), now);
    assert_eq!(line.jitter.poll_timeout(), None);
    assert_eq!(line.drain(), [Packet(2)]);
    line.packet(4, 60);
    assert!(line.jitter.poll_timeout().is_some());
}

#[test]
fn a_packet_of_the_largest_size_is_decoded() {
    let mut line = Line::new();
    let mut payload = packet(1, false);
    payload.resize(OPUS_RECEIVED_BYTES_MAX, 0);
    let now = line.at(0);
    line.jitter.handle_packet(1, 960, &payload, now);
    assert_eq!(line.drain(), [Packet(1)]);
    assert_eq!(line.jitter.counters().refused, 0);
}

/// Before any packet was decoded, a lost one counts as 20 ms.
#[test]
fn a_loss_after_padding_alone_is_concealed() {
    let mut line = Line::new();
    let now = line.at(0);
    line.jitter.handle_packet(1, 0, &[], now);
    assert_eq!(line.drain(), []);
    line.packet_at_time(3, 960, 40);
    assert_eq!(line.timeout().1, [Conceal, Packet(3)]);
}

#[test]
fn padding_and_oversized_packets_only_take_a_number() {
    let mut line = Line::new();
    line.packet_at_time(1, 0, 0);
    let now = line.at(10);
    line.jitter.handle_packet(2, 0, &[], now);
    line.jitter.handle_packet(3, 0, &[0; OPUS_RECEIVED_BYTES_MAX + 1], now);
    assert_eq!(line.drain(), []);
    assert_eq!(line.packet_at_time(4, 960, 20), [Packet(4)]);
    assert_eq!(line.jitter.counters().refused, 1);
}

#[test]
fn measures_jitter_as_in_rfc_3550() {
    let mut line = Line::new();
    for n in 0..500 {
        line.packet(n, n * 20 + if n % 2 == 0 { 8 } else { 0 });
    }
    let jitter = line.jitter.counters().jitter;
    assert!(
        jitter > Duration::from_micros(7_900) && jitter <= Duration::from_millis(8),
        "{jitter:?}"
    );
    line.packet_at_time(500, 500 * 960, 60_000);
    assert!(
        line.jitter.counters().jitter < Duration::from_millis(9),
        "a pause is not jitter"
    );
}

#[test]
fn a_difference_of_a_second_is_a_pause() {
    for (ms, is_jitter) in [(1_019, true), (1_020, false)] {
        let mut line = Line::new();
        line.packet(0, 0);
        line.packet(1, ms);
        assert_eq!(line.jitter.counters().jitter > Duration::ZERO, is_jitter, "{ms} ms");
    }
}

/// For any network behaviour, the outputs are in order, cover the caller's time exactly, and stay
/// within the limits on waiting and concealment.
#[test]
fn any_network_yields_an_ordered_and_complete_timeline() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |n: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    for round in 0..300 {
        let (loss, delay, doubled) = (random(40), 1 + random(120), random(10));
        let mut arrivals = vec![(0, 1_000)];
        for n in 1..200 {
            if random(100) >= loss {
                arrivals.push((n * 20 + random(delay), 1_000 + n));
            }
            if random(100) < doubled {
                arrivals.push((n * 20 + random(delay), 1_000 + n));
            }
        }
        arrivals.push((200 * 20 + delay, 1_200));
        arrivals.sort();
        let mut line = Line::new();
        line.fec = round % 2 == 0;
        let mut steps = Vec::new();
        for (ms, sequence) in arrivals {
            while line.jitter.poll_timeout().is_some_and(|at| at <= line.at(ms)) {
                steps.extend(line.timeout().1);
            }
            steps.extend(line.packet(sequence, ms));
            if let Some(at) = line.jitter.poll_timeout() {
                assert!(at > line.at(ms) && at <= line.at(ms) + JITTER_WAIT_MAX);
            }
        }
        while line.jitter.poll_timeout().is_some() {
            steps.extend(line.timeout().1);
        }
        let (mut next, mut run, mut fills) = (1_000, 0, 0);
        for step in &steps {
            match *step {
                Packet(sequence) => assert_eq!(sequence, next, "in order, none twice: {steps:?}"),
                Fec(sequence) => assert_eq!(sequence, next + 1, "of the packet right before"),
                Conceal => {}
                Gap(ticks) => {
                    assert_eq!(ticks % 960, 0);
                    next += u64::from(ticks / 960) - 1;
                }
            }
            next += 1;
            fills += u64::from(matches!(step, Fec(_) | Conceal));
            run = if matches!(step, Packet(_)) {
                0
            } else {
                run + u32::from(!matches!(step, Gap(_)))
            };
            assert!(run <= CONCEALED_FRAMES_MAX);
        }
        assert_eq!(next, 1_201, "the whole time is covered");
        let counters = *line.jitter.counters();
        assert_eq!(fills, counters.concealed + counters.recovered);
        let packets = steps.iter().filter(|step| matches!(step, Packet(_))).count() as u64;
        assert_eq!(packets + counters.lost, 201);
        assert_eq!(packets + counters.late + counters.duplicate, counters.received);
        assert!(line.jitter.spare.len() <= JITTER_HELD_MAX + 1);
    }
}
