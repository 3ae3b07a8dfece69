//! Where an utterance begins and where it ends: the parrot's detector for turns.
//!
//! In: the caller's PCM, `i16` mono at one rate, with the time of its arrival, and whether the parrot itself is heard. Out:
//! a [`TurnEvent`] when the caller starts to speak and when they have finished, then with everything they said, a little from
//! before the first sound included. It ends an utterance at a pause, at its cap, and when audio stops coming.
//! It measures speech in samples and never asks the clock.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::limits::{
    PARROT_BARGE_IN, PARROT_GAP, PARROT_LEAD, PARROT_ONSET, PARROT_PAUSE, PARROT_TAIL, PARROT_UTTERANCE_MAX,
};

/// Tells speech from everything else.
pub trait SpeechDetector {
    /// Takes the next samples, and tells whether there is speech in them.
    fn is_speech(&mut self, pcm: &[i16]) -> bool;
}

/// What became of the caller's turn.
#[derive(Debug, PartialEq, Eq)]
pub enum TurnEvent {
    Started,
    Ended(Utterance),
}

/// What the caller said.
#[derive(PartialEq, Eq)]
pub struct Utterance {
    pub samples: Vec<i16>,
    /// From the first sound of speech to the last.
    pub spoken: Duration,
    /// When the last sound of speech arrived.
    pub spoken_until: Instant,
    /// Whether it went on beyond what is kept.
    pub cut: bool,
}

impl std::fmt::Debug for Utterance {
    /// Speech never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Utterance({} samples, {:?} spoken)", self.samples.len(), self.spoken)
    }
}

/// Listens to one caller.
pub struct TurnDetector<E> {
    detector: E,
    rate_hz: u32,
    /// The last of what was heard before speech.
    lead: VecDeque<i16>,
    /// Samples of speech in a row, at the end of `lead`.
    onset: usize,
    /// An utterance was cut, and what follows of it is no new one.
    ignoring: bool,
    utterance: Option<PartialUtterance>,
    /// When audio last arrived.
    heard: Option<Instant>,
}

/// An utterance that goes on.
struct PartialUtterance {
    samples: Vec<i16>,
    /// Where speech was first heard and last heard.
    spoken_from: usize,
    spoken_to: usize,
    spoken_until: Instant,
}

impl<E: SpeechDetector> TurnDetector<E> {
    pub fn new(detector: E, rate_hz: u32) -> Self {
        TurnDetector {
            detector,
            rate_hz,
            lead: VecDeque::new(),
            onset: 0,
            ignoring: false,
            utterance: None,
            heard: None,
        }
    }

    /// Takes what the caller said. While the parrot itself is heard, it takes more speech to start a turn.
    pub fn handle_audio(&mut self, pcm: &[i16], speaking: bool, now: Instant) -> Option<TurnEvent> {
        if pcm.is_empty() {
            return None;
        }
        let before = self.heard.replace(now);
        let speech = self.detector.is_speech(pcm);
        // What was heard before a gap belongs to nothing that comes after it.
        if before.is_some_and(|before| now.saturating_duration_since(before) >= PARROT_GAP)
            && let Some(ended) = self.handle_gap()
        {
            return Some(ended);
        }
        match &mut self.utterance {
            Some(partial) => {
                partial.samples.extend_from_slice(pcm);
                if speech {
                    partial.spoken_to = partial.samples.len();
                    partial.spoken_until = now;
                }
                self.detect_end(speech)
            }
            None => self.detect_start(pcm, speech, speaking, now),
        }
    }

    /// Tells whether the caller is in a turn.
    pub fn is_in_turn(&self) -> bool {
        self.utterance.is_some()
    }

    /// Returns when to call [`TurnDetector::handle_timeout`]: audio that does not come ends an utterance too.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.utterance.as_ref().and(self.heard).map(|heard| heard + PARROT_GAP)
    }

    pub fn handle_timeout(&mut self, now: Instant) -> Option<TurnEvent> {
        let due = self.poll_timeout().is_some_and(|at| now >= at);
        if due { self.handle_gap() } else { None }
    }

    /// Forgets what was heard, and tells whether the caller was in a turn.
    pub fn reset(&mut self) -> bool {
        self.handle_gap().is_some()
    }

    fn handle_gap(&mut self) -> Option<TurnEvent> {
        self.lead.clear();
        self.onset = 0;
        self.ignoring = false;
        self.utterance.take().map(|partial| self.finish(partial, false))
    }

    /// Listens for the beginning of speech.
    fn detect_start(&mut self, pcm: &[i16], speech: bool, speaking: bool, now: Instant) -> Option<TurnEvent> {
        self.lead.extend(pcm);
        let lead_max = self.samples(PARROT_LEAD + PARROT_BARGE_IN).max(pcm.len());
        self.lead.drain(..self.lead.len().saturating_sub(lead_max));
        self.onset = if speech { self.onset + pcm.len() } else { 0 };
        self.ignoring &= speech;
        let wanted = self.samples(if speaking { PARROT_BARGE_IN } else { PARROT_ONSET });
        if self.ignoring || self.onset < wanted {
            return None;
        }
        let onset = self.onset.min(self.lead.len());
        let lead = (self.lead.len() - onset).min(self.samples(PARROT_LEAD));
        self.lead.drain(..self.lead.len() - onset - lead);
        self.onset = 0;
        self.utterance = Some(PartialUtterance {
            samples: std::mem::take(&mut self.lead).into(),
            spoken_from: lead,
            spoken_to: lead + onset,
            spoken_until: now,
        });
        Some(TurnEvent::Started)
    }

    /// Ends the utterance when it is time.
    fn detect_end(&mut self, speech: bool) -> Option<TurnEvent> {
        let samples_max = self.samples(PARROT_UTTERANCE_MAX);
        let pause = self.samples(PARROT_PAUSE);
        let partial = self.utterance.as_ref()?;
        let full = partial.samples.len() >= samples_max;
        if !full && partial.samples.len() - partial.spoken_to < pause {
            return None;
        }
        self.ignoring = full && speech;
        self.utterance.take().map(|partial| self.finish(partial, full))
    }

    fn finish(&self, mut partial: PartialUtterance, cut: bool) -> TurnEvent {
        let end = partial.spoken_to + self.samples(PARROT_TAIL);
        partial.samples.truncate(end.min(self.samples(PARROT_UTTERANCE_MAX)));
        let spoken = partial.spoken_to - partial.spoken_from;
        TurnEvent::Ended(Utterance {
            samples: partial.samples,
            spoken: Duration::from_secs_f64(spoken as f64 / f64::from(self.rate_hz)),
            spoken_until: partial.spoken_until,
            cut,
        })
    }

    fn samples(&self, time: Duration) -> usize {
        (time.as_millis() as u64 * u64::from(self.rate_hz) / 1000) as usize
    }
}

#[cfg(test)]
mod tests;
