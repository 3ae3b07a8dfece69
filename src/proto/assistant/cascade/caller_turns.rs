//! Where the caller's turns begin and end.
//!
//! In: the caller's PCM at [`RECOGNIZER_RATE_HZ`], its arrival time, and whether the bot is heard.
//! Out: a [`TurnBoundary`] at both ends of a turn, and the audio of the turn with a short lead. A
//! turn ends at a pause, at the cap, and when audio stops arriving.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::RECOGNIZER_RATE_HZ;
use crate::audio::vad::Vad;

/// Speech that begins a turn, and that begins one while the bot is heard.
const ONSET: Duration = Duration::from_millis(100);
const BARGE_IN: Duration = Duration::from_millis(300);
/// Audio before the onset that belongs to the turn.
const LEAD: Duration = Duration::from_millis(300);
/// Time without audio that ends a turn.
const GAP: Duration = Duration::from_secs(1);
/// Length of a turn.
const TURN_MAX: Duration = Duration::from_secs(30);

/// An end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnBoundary {
    Started,
    Ended {
        /// When the last speech arrived.
        spoken_until: Instant,
    },
}

/// A turn that has not ended, in samples.
#[derive(Debug)]
struct OpenTurn {
    length: usize,
    silence: usize,
    spoken_until: Instant,
}

/// The turns of one caller.
pub struct CallerTurns {
    vad: Vad,
    end: usize,
    lead: VecDeque<i16>,
    /// Consecutive samples of speech at the end of `lead`.
    onset: usize,
    turn: Option<OpenTurn>,
    heard_at: Option<Instant>,
}

impl CallerTurns {
    /// `end` is the pause that ends a turn.
    pub fn new(end: Duration) -> Self {
        CallerTurns {
            vad: Vad::new(RECOGNIZER_RATE_HZ),
            end: samples(end),
            lead: VecDeque::new(),
            onset: 0,
            turn: None,
            heard_at: None,
        }
    }

    pub fn is_in_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Handles audio. Appends what belongs to a turn to `heard`.
    pub fn handle_audio(
        &mut self,
        pcm: &[i16],
        is_bot_heard: bool,
        now: Instant,
        heard: &mut Vec<i16>,
    ) -> Option<TurnBoundary> {
        let before = self.heard_at.replace(now);
        let is_speech = self.vad.hears_speech(pcm);
        if before.is_some_and(|before| now.saturating_duration_since(before) >= GAP) {
            self.lead.clear();
            self.onset = 0;
            if let Some(turn) = self.turn.take() {
                let spoken_until = turn.spoken_until;
                return Some(TurnBoundary::Ended { spoken_until });
            }
        }
        let Some(turn) = &mut self.turn else {
            return self.handle_pause(pcm, is_speech, is_bot_heard, now, heard);
        };
        heard.extend_from_slice(pcm);
        turn.length += pcm.len();
        turn.silence = if is_speech { 0 } else { turn.silence + pcm.len() };
        if is_speech {
            turn.spoken_until = now;
        }
        let is_over = turn.silence >= self.end || turn.length >= samples(TURN_MAX);
        let spoken_until = turn.spoken_until;
        is_over.then(|| {
            self.turn = None;
            TurnBoundary::Ended { spoken_until }
        })
    }

    fn handle_pause(
        &mut self,
        pcm: &[i16],
        is_speech: bool,
        is_bot_heard: bool,
        now: Instant,
        heard: &mut Vec<i16>,
    ) -> Option<TurnBoundary> {
        self.lead.extend(pcm);
        let lead_max = samples(LEAD + BARGE_IN).max(pcm.len());
        self.lead.drain(..self.lead.len().saturating_sub(lead_max));
        self.onset = if is_speech { self.onset + pcm.len() } else { 0 };
        if self.onset < samples(if is_bot_heard { BARGE_IN } else { ONSET }) {
            return None;
        }
        let before = self.lead.len().saturating_sub(self.onset + samples(LEAD));
        heard.extend(self.lead.drain(..).skip(before));
        self.turn = Some(OpenTurn {
            length: self.onset,
            silence: 0,
            spoken_until: now,
        });
        self.onset = 0;
        Some(TurnBoundary::Started)
    }

    /// Returns when to call [`CallerTurns::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.turn.as_ref().and(self.heard_at).map(|heard_at| heard_at + GAP)
    }

    /// Ends a turn whose audio stopped arriving.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<TurnBoundary> {
        self.poll_timeout().filter(|at| now >= *at)?;
        let turn = self.turn.take()?;
        Some(TurnBoundary::Ended {
            spoken_until: turn.spoken_until,
        })
    }

    /// Forgets the turn and the lead.
    pub fn reset(&mut self) {
        self.lead.clear();
        self.onset = 0;
        self.turn = None;
    }
}

fn samples(time: Duration) -> usize {
    (time.as_millis() as u64 * u64::from(RECOGNIZER_RATE_HZ) / 1_000) as usize
}
