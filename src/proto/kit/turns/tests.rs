//! Turns, with frames of 20 ms on a clock of their own.

use super::*;

const RATE_HZ: u32 = 16_000;
const FRAME: usize = 320;
const FRAME_MS: u64 = 20;

/// Takes every loud sample for speech, so that a test controls where speech is.
struct Loud;

impl SpeechDetector for Loud {
    fn is_speech(&mut self, pcm: &[i16]) -> bool {
        pcm.iter().any(|sample| *sample > 100)
    }
}

struct Rig {
    turns: TurnDetector<Loud>,
    turn: Vec<i16>,
    now: Instant,
    is_bot_audible: bool,
}

impl Rig {
    fn new() -> Self {
        Rig {
            turns: TurnDetector::with_detector(TurnRules::default(), RATE_HZ, Loud),
            turn: Vec::new(),
            #[allow(clippy::disallowed_methods, reason = "a base for the times of a test")]
            now: Instant::now(),
            is_bot_audible: false,
        }
    }

    /// Passes frames of one value, and returns each boundary with its time in milliseconds.
    fn hear(&mut self, sample: i16, ms: u64) -> Vec<(u64, TurnBoundary)> {
        let mut boundaries = Vec::new();
        for at in 1..=ms / FRAME_MS {
            self.now += Duration::from_millis(FRAME_MS);
            let frame = [sample; FRAME];
            let boundary = self
                .turns
                .handle_audio(&frame, self.is_bot_audible, self.now, &mut self.turn);
            boundaries.extend(boundary.map(|boundary| (at * FRAME_MS, boundary)));
        }
        boundaries
    }
}

#[test]
fn a_turn_has_a_lead_and_ends_at_a_pause() {
    let mut rig = Rig::new();
    assert_eq!(rig.hear(7, 2_000), []);
    assert!(rig.turn.is_empty());
    assert_eq!(rig.hear(1_000, 400), [(100, TurnBoundary::Started)]);
    assert_eq!(rig.turn.len(), 700 * 16, "its audio is there while it is spoken");
    let spoken_until = rig.now;
    let ended = EndedTurn {
        spoken: Duration::from_millis(400),
        spoken_until,
        silence: 700 * 16,
        is_cut: false,
    };
    assert_eq!(rig.hear(9, 1_000), [(700, TurnBoundary::Ended(ended))]);
    let parts = [(7, 300), (1_000, 400), (9, 700)];
    let expected: Vec<i16> = parts.iter().flat_map(|(sample, ms)| vec![*sample; ms * 16]).collect();
    assert!(rig.turn == expected, "{} samples", rig.turn.len());
}

#[test]
fn a_barge_in_needs_more_speech() {
    let mut rig = Rig::new();
    rig.is_bot_audible = true;
    assert_eq!(rig.hear(1_000, 280), []);
    assert_eq!(rig.hear(0, 20), []);
    assert_eq!(rig.hear(1_000, 400), [(300, TurnBoundary::Started)]);
}

#[test]
fn a_turn_is_cut_at_its_longest_length() {
    let mut rig = Rig::new();
    // The lead is part of the turn; there is none here.
    let boundaries = rig.hear(1_000, 31_000);
    let [(100, TurnBoundary::Started), (30_000, TurnBoundary::Ended(turn))] = boundaries[..] else {
        panic!("{boundaries:?}");
    };
    assert!(turn.is_cut && turn.silence == 0);
    assert_eq!(rig.hear(0, 20), []);
    assert_eq!(rig.hear(1_000, 100), [(100, TurnBoundary::Started)]);
}

#[test]
fn audio_that_stops_arriving_ends_a_turn() {
    let mut rig = Rig::new();
    rig.hear(1_000, 500);
    let due = rig.now + Duration::from_secs(1);
    assert_eq!(rig.turns.poll_timeout(), Some(due));
    assert_eq!(rig.turns.handle_timeout(due - Duration::from_millis(1)), None);
    let Some(TurnBoundary::Ended(turn)) = rig.turns.handle_timeout(due) else {
        panic!("no end");
    };
    assert_eq!(turn.spoken, Duration::from_millis(500));
    assert_eq!(rig.turns.poll_timeout(), None);
}

#[test]
fn silence_keeps_no_more_than_the_lead() {
    let mut rig = Rig::new();
    rig.hear(0, 60_000);
    assert_eq!(rig.turns.lead.len(), 600 * 16);
    assert!(rig.turns.lead.capacity() <= 4 * 600 * 16);
    assert!(!rig.turns.reset());
}
