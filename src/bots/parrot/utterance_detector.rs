//! Collects the utterances of the caller.
//!
//! In: the caller's `i16` mono PCM at one rate, its arrival time, and whether the parrot is
//! speaking. Out: an [`UtteranceEvent`] when the caller starts to speak, and one at the end of the
//! turn, with the utterance and a short lead before its first sound.

use std::time::{Duration, Instant};

use crate::kit::{EndedTurn, SpeechDetector, TurnBoundary, TurnDetector, TurnRules};
use crate::limits::PARROT_UTTERANCE_MAX;

/// Audio before the onset that the parrot includes, so that the first syllable is complete.
const PARROT_LEAD: Duration = Duration::from_millis(300);
/// Consecutive speech that starts an utterance; a click is shorter.
const PARROT_ONSET: Duration = Duration::from_millis(60);
/// Consecutive speech that interrupts the parrot; the echo of its own speech is shorter.
const PARROT_BARGE_IN: Duration = Duration::from_millis(240);
/// Pause that ends an utterance: longer than a pause between words, short enough for a
/// conversation.
const PARROT_PAUSE: Duration = Duration::from_millis(700);
/// Part of that pause that is repeated, so that the last sound fades out.
const PARROT_TAIL: Duration = Duration::from_millis(200);
/// Time without audio that ends an utterance: the caller muted or left.
const PARROT_GAP: Duration = Duration::from_secs(1);

/// The start or end of the caller's utterance.
#[derive(Debug, PartialEq, Eq)]
pub enum UtteranceEvent {
    Started,
    Ended(Utterance),
}

/// A turn of the caller, as audio.
#[derive(PartialEq, Eq)]
pub struct Utterance {
    pub samples: Vec<i16>,
    /// The duration from the first sound of speech to the last.
    pub spoken: Duration,
    /// When the last sound of speech arrived.
    pub spoken_until: Instant,
    /// Whether the utterance reached the cap and was cut.
    pub cut: bool,
}

impl std::fmt::Debug for Utterance {
    /// Omits the samples: speech must never reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Utterance({} samples, {:?} spoken)", self.samples.len(), self.spoken)
    }
}

/// Collects the utterances of one caller.
pub struct UtteranceDetector<D> {
    turns: TurnDetector<D>,
    /// What was heard of the turn.
    samples: Vec<i16>,
    /// Samples after the last sound that are kept.
    tail: usize,
}

impl<D: SpeechDetector> UtteranceDetector<D> {
    pub fn new(detector: D, rate_hz: u32) -> Self {
        let rules = TurnRules {
            onset: PARROT_ONSET,
            barge_in: PARROT_BARGE_IN,
            lead: PARROT_LEAD,
            pause: PARROT_PAUSE,
            gap: PARROT_GAP,
            length_max: PARROT_UTTERANCE_MAX,
        };
        UtteranceDetector {
            turns: TurnDetector::with_detector(rules, rate_hz, detector),
            samples: Vec::new(),
            tail: (PARROT_TAIL.as_millis() as u64 * u64::from(rate_hz) / 1000) as usize,
        }
    }

    /// Handles a frame of the caller. During the parrot's own speech, a turn needs more speech to
    /// start.
    pub fn handle_audio(&mut self, pcm: &[i16], speaking: bool, now: Instant) -> Option<UtteranceEvent> {
        let boundary = self.turns.handle_audio(pcm, speaking, now, &mut self.samples)?;
        Some(self.event(boundary))
    }

    /// Returns whether the caller is in a turn.
    pub fn is_in_turn(&self) -> bool {
        self.turns.is_in_turn()
    }

    /// Returns when to call [`UtteranceDetector::handle_timeout`], which ends an utterance whose
    /// audio stopped arriving.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.turns.poll_timeout()
    }

    pub fn handle_timeout(&mut self, now: Instant) -> Option<UtteranceEvent> {
        let boundary = self.turns.handle_timeout(now)?;
        Some(self.event(boundary))
    }

    /// Discards all audio and returns whether the caller was in a turn.
    pub fn reset(&mut self) -> bool {
        self.samples = Vec::new();
        self.turns.reset()
    }

    fn event(&mut self, boundary: TurnBoundary) -> UtteranceEvent {
        match boundary {
            TurnBoundary::Started => UtteranceEvent::Started,
            TurnBoundary::Ended(turn) => UtteranceEvent::Ended(self.utterance(&turn)),
        }
    }

    fn utterance(&mut self, turn: &EndedTurn) -> Utterance {
        let mut samples = std::mem::take(&mut self.samples);
        let end = samples.len() - turn.silence + self.tail;
        samples.truncate(end);
        Utterance {
            samples,
            spoken: turn.spoken,
            spoken_until: turn.spoken_until,
            cut: turn.is_cut,
        }
    }
}

#[cfg(test)]
mod tests;
