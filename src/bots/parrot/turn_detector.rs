//! Detects where the caller's turns begin and end.
//!
//! In: the caller's `i16` mono PCM at one rate, its arrival time, and whether the parrot is
//! speaking. Out: a [`TurnEvent`] when the caller starts to speak, and one when the turn ends, with
//! the utterance and a short lead before its first sound. A turn ends at a pause, at the cap, and
//! when audio stops arriving. Speech is measured in samples; time comes in as a value.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::limits::{
    PARROT_BARGE_IN, PARROT_GAP, PARROT_LEAD, PARROT_ONSET, PARROT_PAUSE, PARROT_TAIL, PARROT_UTTERANCE_MAX,
};

/// Detects speech.
pub trait SpeechDetector {
    /// Takes the next samples and returns whether they contain speech.
    fn is_speech(&mut self, pcm: &[i16]) -> bool;
}

/// The start or end of the caller's turn.
#[derive(Debug, PartialEq, Eq)]
pub enum TurnEvent {
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

/// Detects the turns of one caller.
pub struct TurnDetector<E> {
    detector: E,
    rate_hz: u32,
    /// The most recent audio before speech.
    lead: VecDeque<i16>,
    /// The number of consecutive speech samples at the end of `lead`.
    onset: usize,
    /// Whether the rest of a cut utterance is being skipped.
    ignoring: bool,
    utterance: Option<PartialUtterance>,
    /// When audio last arrived.
    heard: Option<Instant>,
}

/// An utterance that has not ended.
struct PartialUtterance {
    samples: Vec<i16>,
    /// The offsets in `samples` of the first and the last speech.
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

    /// Handles a frame of the caller. During the parrot's own speech, a turn needs more speech to
    /// start.
    pub fn handle_audio(&mut self, pcm: &[i16], speaking: bool, now: Instant) -> Option<TurnEvent> {
        if pcm.is_empty() {
            return None;
        }
        let before = self.heard.replace(now);
        let speech = self.detector.is_speech(pcm);
        // Audio before a gap does not belong to an utterance after it.
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

    /// Returns whether the caller is in a turn.
    pub fn is_in_turn(&self) -> bool {
        self.utterance.is_some()
    }

    /// Returns when to call [`TurnDetector::handle_timeout`], which ends an utterance whose audio
    /// stopped arriving.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.utterance.as_ref().and(self.heard).map(|heard| heard + PARROT_GAP)
    }

    pub fn handle_timeout(&mut self, now: Instant) -> Option<TurnEvent> {
        let due = self.poll_timeout().is_some_and(|at| now >= at);
        if due { self.handle_gap() } else { None }
    }

    /// Discards all audio and returns whether the caller was in a turn.
    pub fn reset(&mut self) -> bool {
        self.handle_gap().is_some()
    }

    fn handle_gap(&mut self) -> Option<TurnEvent> {
        self.lead.clear();
        self.onset = 0;
        self.ignoring = false;
        self.utterance.take().map(|partial| self.finish(partial, false))
    }

    /// Starts a turn after enough consecutive speech.
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

    /// Ends the turn after a pause, or at the cap.
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
