//! Where the turns of a caller begin and end.
//!
//! In: the caller's PCM at one rate, its arrival time, and whether the bot is heard. Out: a
//! [`TurnBoundary`] at both ends of a turn, and the audio of the turn with a short lead. A turn
//! ends at a pause, at its longest length, and when audio stops arriving. Speech is measured in
//! samples, so that late audio changes nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::audio::vad::Vad;

/// Detects speech in PCM.
pub trait SpeechDetector {
    /// Takes the next samples, and returns whether they contain speech.
    fn is_speech(&mut self, pcm: &[i16]) -> bool;
}

impl SpeechDetector for Vad {
    fn is_speech(&mut self, pcm: &[i16]) -> bool {
        self.hears_speech(pcm)
    }
}

/// The times of turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRules {
    /// Consecutive speech that begins a turn; a click is shorter.
    pub onset: Duration,
    /// Consecutive speech that begins a turn while the bot is heard; the echo of the bot is
    /// shorter.
    pub barge_in: Duration,
    /// Audio before the onset that belongs to the turn, so that its first syllable is complete.
    pub lead: Duration,
    /// Silence that ends a turn.
    pub pause: Duration,
    /// Time without audio that ends a turn.
    pub gap: Duration,
    /// The longest turn.
    pub length_max: Duration,
}

impl Default for TurnRules {
    /// 100 ms of speech, 300 ms while the bot is heard, 300 ms of lead, 700 ms of pause, 1 s
    /// without audio, 30 s at most.
    fn default() -> Self {
        TurnRules {
            onset: Duration::from_millis(100),
            barge_in: Duration::from_millis(300),
            lead: Duration::from_millis(300),
            pause: Duration::from_millis(700),
            gap: Duration::from_secs(1),
            length_max: Duration::from_secs(30),
        }
    }
}

/// An end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnBoundary {
    /// The caller has begun to speak.
    Started,
    /// The caller has finished.
    Ended(EndedTurn),
}

/// A turn that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedTurn {
    /// The length from the first sound of speech to the last.
    pub spoken: Duration,
    /// When the last sound of speech arrived.
    pub spoken_until: Instant,
    /// Samples at the end of the turn without speech.
    pub silence: usize,
    /// Whether the turn reached the longest length. What is spoken on belongs to no turn.
    pub is_cut: bool,
}

/// The turns of one caller.
///
/// ```
/// use std::time::Instant;
/// # use edge_runner_proto::kit::{TurnBoundary, TurnDetector, TurnRules};
///
/// # let now = Instant::now();
/// let mut turns = TurnDetector::new(TurnRules::default(), 16_000);
/// let mut turn = Vec::new();
/// let silence = [0; 320];
/// let boundary = turns.handle_audio(&silence, false, now, &mut turn);
/// assert_eq!((boundary, turn.len()), (None, 0));
/// ```
pub struct TurnDetector<D = Vad> {
    detector: D,
    rules: TurnRules,
    rate_hz: u32,
    /// The audio before a turn.
    lead: VecDeque<i16>,
    /// Consecutive samples of speech at the end of `lead`.
    onset: usize,
    /// Whether the rest of a cut turn is skipped.
    is_skipping: bool,
    turn: Option<OpenTurn>,
    received_at: Option<Instant>,
}

/// A turn that has not ended, in samples.
#[derive(Debug)]
struct OpenTurn {
    lead: usize,
    length: usize,
    silence: usize,
    spoken_until: Instant,
}

impl TurnDetector {
    /// Creates a detector for PCM at `rate_hz`, which finds speech by its energy.
    pub fn new(rules: TurnRules, rate_hz: u32) -> Self {
        TurnDetector::with_detector(rules, rate_hz, Vad::new(rate_hz))
    }
}

impl<D: SpeechDetector> TurnDetector<D> {
    /// Creates a detector for PCM at `rate_hz` with another way to find speech.
    pub fn with_detector(rules: TurnRules, rate_hz: u32, detector: D) -> Self {
        TurnDetector {
            detector,
            rules,
            rate_hz,
            lead: VecDeque::new(),
            onset: 0,
            is_skipping: false,
            turn: None,
            received_at: None,
        }
    }

    /// Returns whether the caller is in a turn.
    pub fn is_in_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Returns when the last sound of speech of the turn arrived; `None` between turns.
    pub fn spoken_until(&self) -> Option<Instant> {
        self.turn.as_ref().map(|open| open.spoken_until)
    }

    /// Handles audio. Appends what belongs to a turn to `turn`, from its lead on.
    pub fn handle_audio(
        &mut self,
        pcm: &[i16],
        is_bot_audible: bool,
        now: Instant,
        turn: &mut Vec<i16>,
    ) -> Option<TurnBoundary> {
        if pcm.is_empty() {
            return None;
        }
        let before = self.received_at.replace(now);
        let is_speech = self.detector.is_speech(pcm);
        // Audio before a gap does not belong to a turn after it.
        if before.is_some_and(|before| now.saturating_duration_since(before) >= self.rules.gap)
            && let Some(ended) = self.handle_gap()
        {
            return Some(ended);
        }
        let Some(open) = &mut self.turn else {
            return self.find_start(pcm, is_speech, is_bot_audible, now, turn);
        };
        turn.extend_from_slice(pcm);
        open.length += pcm.len();
        open.silence += pcm.len();
        if is_speech {
            (open.silence, open.spoken_until) = (0, now);
        }
        let is_cut = open.length >= samples(self.rules.length_max, self.rate_hz);
        if !is_cut && open.silence < samples(self.rules.pause, self.rate_hz) {
            return None;
        }
        self.is_skipping = is_cut && is_speech;
        self.turn.take().map(|open| self.ended(&open, is_cut))
    }

    /// Begins a turn after enough speech.
    fn find_start(
        &mut self,
        pcm: &[i16],
        is_speech: bool,
        is_bot_audible: bool,
        now: Instant,
        turn: &mut Vec<i16>,
    ) -> Option<TurnBoundary> {
        let rules = &self.rules;
        let in_samples = |time| samples(time, self.rate_hz);
        self.lead.extend(pcm);
        let lead_max = in_samples(rules.lead + rules.barge_in.max(rules.onset)).max(pcm.len());
        self.lead.drain(..self.lead.len().saturating_sub(lead_max));
        self.onset = if is_speech { self.onset + pcm.len() } else { 0 };
        self.is_skipping &= is_speech;
        let wanted = in_samples(if is_bot_audible { rules.barge_in } else { rules.onset });
        if self.is_skipping || self.onset == 0 || self.onset < wanted {
            return None;
        }
        let onset = std::mem::take(&mut self.onset).min(self.lead.len());
        let lead = (self.lead.len() - onset).min(in_samples(rules.lead));
        let skipped = self.lead.len() - onset - lead;
        turn.extend(self.lead.drain(..).skip(skipped));
        self.turn = Some(OpenTurn {
            lead,
            length: lead + onset,
            silence: 0,
            spoken_until: now,
        });
        Some(TurnBoundary::Started)
    }

    /// Returns when to call [`TurnDetector::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.turn
            .as_ref()
            .and(self.received_at)
            .map(|received_at| received_at + self.rules.gap)
    }

    /// Ends a turn whose audio stopped arriving.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<TurnBoundary> {
        self.poll_timeout().filter(|at| now >= *at)?;
        self.handle_gap()
    }

    /// Forgets the turn and the lead. Returns whether the caller was in a turn.
    pub fn reset(&mut self) -> bool {
        self.handle_gap().is_some()
    }

    fn handle_gap(&mut self) -> Option<TurnBoundary> {
        self.lead.clear();
        self.onset = 0;
        self.is_skipping = false;
        self.turn.take().map(|open| self.ended(&open, false))
    }

    fn ended(&self, open: &OpenTurn, is_cut: bool) -> TurnBoundary {
        let spoken = open.length - open.silence - open.lead;
        TurnBoundary::Ended(EndedTurn {
            spoken: Duration::from_secs_f64(spoken as f64 / f64::from(self.rate_hz)),
            spoken_until: open.spoken_until,
            silence: open.silence,
            is_cut,
        })
    }
}

fn samples(time: Duration, rate_hz: u32) -> usize {
    (time.as_millis() as u64 * u64::from(rate_hz) / 1_000) as usize
}

#[cfg(test)]
mod tests;
