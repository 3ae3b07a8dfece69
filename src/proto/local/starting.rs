//! When a session of the local caller begins.
//!
//! In: the microphone's PCM, lines of the terminal, detections of a wake word, ends of sessions,
//! and `now`. Out: the start of a session, with the audio that led to it, so that the first words
//! are not cut. Speech is found by its energy ([`SpeechWindow`]).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::config::LocalStart;
use super::speech::SpeechWindow;
use crate::event::LeaveReason;

/// Audio before a start by speech that the bot hears, and most of that after a wake word.
const PRE_ROLL: Duration = Duration::from_secs(1);
/// Audio before a detection that the bot hears: services detect a word up to 130 ms after its end.
const BEFORE_DETECTION: Duration = Duration::from_millis(200);
/// Pause after a session, for the echo of its last words.
const AFTER_SESSION: Duration = Duration::from_secs(1);
/// A session that fails within this time delays the next one. Where each begins by itself, any end
/// within it does: a program that ends at once is not started every second.
const SHORT_SESSION: Duration = Duration::from_secs(10);
/// Pauses after such sessions, one after the other; the last one stays.
const PAUSES: [Duration; 5] = [
    AFTER_SESSION,
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
];

/// How a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// By the terminal, a key or a stop word.
    User,
    Left(LeaveReason),
}

impl SessionEnd {
    /// Returns whether the next session is likely to fail as this one did.
    fn is_failure(self) -> bool {
        match self {
            SessionEnd::Left(
                LeaveReason::BotFailed
                | LeaveReason::Failed
                | LeaveReason::Vanished
                | LeaveReason::NeverConnected
                | LeaveReason::Stalled,
            ) => true,
            SessionEnd::User | SessionEnd::Left(_) => false,
        }
    }
}

/// Decides when the next session begins.
pub struct StartGate {
    start: LocalStart,
    rate_hz: u32,
    detector: SpeechWindow,
    pre_roll: VecDeque<i16>,
    /// No session begins earlier.
    not_before: Option<Instant>,
    short_sessions: usize,
    /// A line on the terminal, or a key, asks for a session.
    is_asked: bool,
    /// The user has ended the last session: the next one begins with a line.
    is_paused: bool,
    hears_speech: bool,
    has_audio: bool,
    /// Samples of the microphone so far.
    samples: u64,
    /// Where in them a wake word ended.
    woken: Option<Duration>,
}

impl StartGate {
    pub fn new(start: LocalStart, rate_hz: u32) -> Self {
        StartGate {
            start,
            rate_hz,
            detector: SpeechWindow::new(rate_hz),
            pre_roll: VecDeque::new(),
            not_before: None,
            short_sessions: 0,
            is_asked: false,
            is_paused: false,
            hears_speech: false,
            has_audio: false,
            samples: 0,
            woken: None,
        }
    }

    /// Returns the length of the microphone's audio so far.
    pub fn position(&self) -> Duration {
        Duration::from_secs(self.samples) / self.rate_hz
    }

    /// Handles a wake word that ended at a position of the microphone's audio.
    pub fn handle_wake_word(&mut self, position: Duration) {
        self.woken = Some(position);
    }

    /// Returns whether a session can begin only with a line on the terminal, so that the microphone
    /// need not run.
    pub fn waits_for_line(&self) -> bool {
        (self.start == LocalStart::Key || self.is_paused) && !self.is_asked
    }

    /// Handles audio of the microphone between sessions.
    pub fn handle_audio(&mut self, pcm: &[i16]) {
        self.has_audio |= !pcm.is_empty();
        self.samples += pcm.len() as u64;
        self.pre_roll.extend(pcm);
        let kept = PRE_ROLL.as_secs() as usize * self.rate_hz as usize;
        let surplus = self.pre_roll.len().saturating_sub(kept);
        self.pre_roll.drain(..surplus);
        if self.start == LocalStart::Speech {
            self.hears_speech |= self.detector.hears_speech(pcm);
        }
    }

    /// Handles a line on the terminal.
    pub fn handle_line(&mut self) {
        self.is_asked |= match self.start {
            LocalStart::Key | LocalStart::Wake => true,
            // It ends a pause.
            LocalStart::Always => self.is_paused || self.not_before.is_some(),
            LocalStart::Speech => self.is_paused,
        };
    }

    /// Handles a key that begins a session, whatever else does.
    pub fn handle_key(&mut self) {
        self.is_asked = true;
    }

    /// Handles a microphone that has failed: what it said before is no beginning.
    pub fn handle_silence(&mut self) {
        self.detector.reset();
        self.pre_roll.clear();
        self.hears_speech = false;
        self.has_audio = false;
        self.woken = None;
    }

    /// Handles the end of a session that began at `began`.
    pub fn handle_session_end(&mut self, began: Instant, end: SessionEnd, now: Instant) {
        self.handle_silence();
        self.is_paused = end == SessionEnd::User && self.start == LocalStart::Always;
        let delays_next = match self.start {
            LocalStart::Always => end != SessionEnd::User,
            LocalStart::Speech | LocalStart::Key | LocalStart::Wake => end.is_failure(),
        };
        let is_short = now.saturating_duration_since(began) < SHORT_SESSION;
        self.short_sessions = match is_short && delays_next {
            true => self.short_sessions + 1,
            false => 0,
        };
        let pause = PAUSES[self.short_sessions.min(PAUSES.len() - 1)];
        // A person at a terminal decides alone, and knows what came before.
        let pause = if self.start == LocalStart::Key {
            Duration::ZERO
        } else {
            pause
        };
        self.not_before = Some(now + pause);
    }

    /// Handles a user who has ended a session, and has neither terminal nor keys to begin another.
    pub fn handle_absent_user(&mut self) {
        self.is_paused = false;
    }

    /// Returns when a pause ends.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.not_before
    }

    /// Returns the audio that comes before a session which begins now.
    pub fn poll_start(&mut self, now: Instant) -> Option<Vec<i16>> {
        // A line or a key is no echo, and does not wait.
        if !self.is_asked && self.not_before.is_some_and(|at| now < at) {
            // What is said in the pause does not count.
            (self.hears_speech, self.woken) = (false, None);
            return None;
        }
        self.not_before = None;
        let begins = match self.start {
            _ if self.is_asked => true,
            _ if self.is_paused => false,
            LocalStart::Always => self.has_audio,
            LocalStart::Speech => self.hears_speech,
            LocalStart::Wake => self.woken.is_some(),
            LocalStart::Key => false,
        };
        if !begins {
            return None;
        }
        let preroll = match self.start {
            LocalStart::Speech => self.pre_roll.iter().copied().collect(),
            LocalStart::Wake => self.woken.map(|position| self.since(position)).unwrap_or_default(),
            LocalStart::Always | LocalStart::Key => Vec::new(),
        };
        self.handle_silence();
        (self.is_asked, self.is_paused) = (false, false);
        Some(preroll)
    }

    /// Returns the audio since a wake word.
    fn since(&self, position: Duration) -> Vec<i16> {
        let length = self.position().saturating_sub(position) + BEFORE_DETECTION;
        let samples = (length.as_secs_f64() * f64::from(self.rate_hz)) as usize;
        let skipped = self.pre_roll.len().saturating_sub(samples);
        self.pre_roll.iter().skip(skipped).copied().collect()
    }
}

#[cfg(test)]
mod tests;
