//! Tests of turn detection, with frames of 20 ms on a clock of their own.

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

/// A caller whose frames each contain one value: speech above 100, silence below.
struct Call {
    detector: UtteranceDetector<Loud>,
    now: Instant,
    speaking: bool,
}

impl Call {
    fn new() -> Self {
        Call {
            detector: UtteranceDetector::new(Loud, RATE_HZ),
            now: Instant::now(),
            speaking: false,
        }
    }

    /// Passes frames to the detector and returns the turn events, each with its time in
    /// milliseconds.
    fn hears(&mut self, sample: i16, ms: u64) -> Vec<(u64, UtteranceEvent)> {
        let mut turns = Vec::new();
        for at in 1..=ms / FRAME_MS {
            self.now += Duration::from_millis(FRAME_MS);
            let turn = self.detector.handle_audio(&[sample; FRAME], self.speaking, self.now);
            turns.extend(turn.map(|turn| (at * FRAME_MS, turn)));
        }
        turns
    }

    /// Passes a whole utterance to the detector and returns it.
    fn utterance(&mut self, speech_ms: u64) -> Utterance {
        self.hears(0, 1_000);
        assert_eq!(self.hears(1_000, speech_ms)[0].1, UtteranceEvent::Started);
        match self.hears(0, 1_000).pop() {
            Some((_, UtteranceEvent::Ended(utterance))) => utterance,
            other => panic!("{other:?}"),
        }
    }
}

fn samples(ms: usize) -> usize {
    ms * 16
}

#[test]
fn an_utterance_includes_its_lead_and_ends_at_a_pause() {
    let mut call = Call::new();
    assert_eq!(call.hears(7, 5_000), []);
    assert_eq!(call.detector.poll_timeout(), None);
    assert_eq!(call.hears(1_000, 400), [(60, UtteranceEvent::Started)]);
    assert_eq!(call.hears(8, 680), [], "a pause between words");
    assert_eq!(call.hears(2_000, 200), []);
    let spoken_until = call.now;
    let mut turns = call.hears(9, 700);
    let Some((700, UtteranceEvent::Ended(utterance))) = turns.pop() else {
        panic!("{turns:?}");
    };
    assert_eq!(utterance.spoken, Duration::from_millis(400 + 680 + 200));
    assert_eq!(utterance.spoken_until, spoken_until);
    assert!(!utterance.cut);
    let parts = [(7, 300), (1_000, 400), (8, 680), (2_000, 200), (9, 200)];
    let expected: Vec<i16> = parts
        .iter()
        .flat_map(|(sample, ms)| vec![*sample; samples(*ms)])
        .collect();
    assert!(utterance.samples == expected, "{} samples", utterance.samples.len());
    assert!(!call.detector.is_in_turn());
}

#[test]
fn a_click_starts_no_turn() {
    let mut call = Call::new();
    for _ in 0..20 {
        assert_eq!(call.hears(1_000, 40), []);
        assert_eq!(call.hears(0, 20), []);
    }
}

/// During the bot's speech, a turn starts after 250 ms of speech, none of which is lost.
#[test]
fn a_barge_in_needs_more_speech_and_keeps_all_of_it() {
    let mut call = Call::new();
    call.speaking = true;
    call.hears(7, 1_000);
    assert_eq!(call.hears(1_000, 220), []);
    assert_eq!(call.hears(0, 20), []);
    assert_eq!(call.hears(2_000, 300), [(240, UtteranceEvent::Started)]);
    call.speaking = false;
    let turns = call.hears(0, 700);
    let [(700, UtteranceEvent::Ended(utterance))] = &turns[..] else {
        panic!("{turns:?}");
    };
    assert_eq!(utterance.spoken, Duration::from_millis(300));
    let at = utterance.samples.iter().position(|sample| *sample == 2_000);
    assert_eq!(at, Some(samples(300)));
}

/// The frame that fills the cap ends the utterance. Speech that continues does not start another
/// one.
#[test]
fn an_utterance_is_cut_at_its_cap() {
    let limit_ms = PARROT_UTTERANCE_MAX.as_millis() as u64;
    let mut call = Call::new();
    assert_eq!(call.hears(1_000, limit_ms - FRAME_MS), [(60, UtteranceEvent::Started)]);
    let turns = call.hears(1_000, FRAME_MS);
    let [(_, UtteranceEvent::Ended(utterance))] = &turns[..] else {
        panic!("{turns:?}");
    };
    assert!(utterance.cut);
    assert_eq!(utterance.samples.len(), samples(30_000));
    assert_eq!(utterance.spoken, PARROT_UTTERANCE_MAX);

    assert_eq!(call.hears(1_000, 60_000), [], "the same breath");
    assert_eq!(call.hears(0, 20), []);
    assert_eq!(call.hears(1_000, 100), [(60, UtteranceEvent::Started)]);
}

#[test]
fn an_utterance_just_below_the_cap_is_whole() {
    let mut call = Call::new();
    let turns = call.hears(1_000, 29_000);
    assert_eq!(turns, [(60, UtteranceEvent::Started)]);
    let turns = call.hears(0, 700);
    let [(700, UtteranceEvent::Ended(utterance))] = &turns[..] else {
        panic!("{turns:?}");
    };
    assert!(!utterance.cut);
    assert_eq!(utterance.samples.len(), samples(29_200));
}

#[test]
fn audio_that_stops_coming_ends_an_utterance() {
    let mut call = Call::new();
    call.hears(1_000, 500);
    let due = call.now + PARROT_GAP;
    assert_eq!(call.detector.poll_timeout(), Some(due));
    assert_eq!(call.detector.handle_timeout(due - Duration::from_millis(1)), None);
    match call.detector.handle_timeout(due) {
        Some(UtteranceEvent::Ended(utterance)) => assert_eq!(utterance.spoken, Duration::from_millis(500)),
        other => panic!("{other:?}"),
    }
    assert_eq!(call.detector.poll_timeout(), None);
    assert_eq!(call.detector.handle_timeout(due), None);

    // A late timer changes nothing: the frame after the gap ends the utterance.
    call.hears(1_000, 500);
    call.now += PARROT_GAP;
    assert!(matches!(call.hears(1_000, 20)[..], [(20, UtteranceEvent::Ended(_))]));
}

#[test]
fn audio_before_a_gap_is_not_part_of_the_lead() {
    let mut call = Call::new();
    call.hears(55, 1_000);
    call.hears(1_000, 40);
    call.now += PARROT_GAP;
    assert_eq!(
        call.hears(1_000, 60),
        [(60, UtteranceEvent::Started)],
        "the onset counts from the gap on"
    );
    let Some((_, UtteranceEvent::Ended(utterance))) = call.hears(0, 700).pop() else {
        panic!("no end");
    };
    assert!(!utterance.samples.contains(&55));
    assert_eq!(utterance.spoken, Duration::from_millis(60));
}

#[test]
fn a_reset_discards_audio_and_returns_whether_there_was_a_turn() {
    let mut call = Call::new();
    assert!(!call.detector.reset());
    call.hears(1_000, 200);
    assert!(call.detector.reset());
    assert!(!call.detector.reset());
    assert_eq!(call.hears(0, 2_000), []);
    assert_eq!(call.utterance(200).spoken, Duration::from_millis(200));
}

#[test]
fn frames_of_any_length_add_up_to_the_same_utterance() {
    let mut said = vec![7; samples(500)];
    said.extend(vec![1_000; samples(600)]);
    said.extend(vec![8; samples(800)]);
    for length in [1, 160, 333, 960, 1_920] {
        let mut call = Call::new();
        let mut ended = None;
        for frame in said.chunks(length) {
            call.now += Duration::from_micros(frame.len() as u64 * 125 / 2);
            assert_eq!(call.detector.handle_audio(&[], false, call.now), None);
            if let Some(UtteranceEvent::Ended(utterance)) = call.detector.handle_audio(frame, false, call.now) {
                ended = Some(utterance);
            }
        }
        let utterance = ended.expect("an end");
        let slack = Duration::from_micros(2 * length as u64 * 125 / 2);
        let spoken = Duration::from_millis(600);
        assert!(
            utterance.spoken.abs_diff(spoken) <= slack,
            "frames of {length}: {utterance:?}"
        );
        assert_eq!(
            utterance.samples.iter().filter(|sample| **sample == 1_000).count(),
            samples(600)
        );
    }
}
