//! Detects a bot of which a caller hears nothing.
//!
//! In: the connection of the caller and its sound, how far the bot is, what it sends, and `now`.
//! Out: what to log, once per call. A bot has [`BOT_SILENT_AFTER`] from when it is ready for its
//! first sound or message. One that waits for the caller to speak first says so: by `bot-ready`, by
//! a frame of silence, or by its library. Its time begins when the caller has spoken. Neither of
//! these signs is an answer, nor is what a bot reports of the caller.

use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::audio::vad::Vad;
use crate::rtvi::LABEL;

/// Time that a bot has for its start, from the connection of the caller. Programs that load models
/// need some seconds.
pub const BOT_STARTS_WITHIN: Duration = Duration::from_secs(20);
/// Time without sound or a message, of a bot that is ready, after which its caller waits in vain.
pub const BOT_SILENT_AFTER: Duration = Duration::from_secs(5);
/// Frames with a voice, more than those without one, after which a sound is words of the caller.
const SPOKEN_FRAMES_MIN: u32 = 10;
/// Samples above this are audible: -54 dBFS.
const AUDIBLE: u16 = 64;

/// How far a bot is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BotReadiness {
    /// It has opened its media.
    #[default]
    Ready,
    /// Its program starts.
    Starting,
    /// The same, and the log says so.
    StartReported,
    /// It is ready, and waits for the caller to speak first.
    Listening,
}

/// The head of a message of a bot.
#[derive(Deserialize)]
struct MessageHead<'a> {
    #[serde(borrow, default)]
    label: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, rename = "type", default)]
    kind: Option<std::borrow::Cow<'a, str>>,
}

/// The watch over one bot.
#[derive(Default)]
pub struct SilentBotWatch {
    caller_at: Option<Instant>,
    /// Since when the bot is ready.
    ready_at: Option<Instant>,
    readiness: BotReadiness,
    is_listening: bool,
    /// When the caller last spoke, or the bot last reported something.
    spoken_at: Option<Instant>,
    spoken_frames: u32,
    detector: Option<(u32, Box<Vad>)>,
    /// The bot was audible, or was reported.
    is_done: bool,
}

impl SilentBotWatch {
    /// Returns whether the watch is over.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Handles that there is a caller. Only the first time counts.
    pub fn handle_caller(&mut self, now: Instant) {
        self.caller_at.get_or_insert(now);
    }

    /// Handles how far the bot is, once it has media.
    pub fn handle_readiness(&mut self, readiness: BotReadiness, now: Instant) {
        self.readiness = readiness;
        match readiness {
            BotReadiness::Starting | BotReadiness::StartReported => self.ready_at = None,
            BotReadiness::Ready | BotReadiness::Listening => {
                self.ready_at.get_or_insert(now);
                self.is_listening |= readiness == BotReadiness::Listening;
            }
        }
    }

    /// Handles that the bot is started once more.
    pub fn handle_restart(&mut self) {
        (self.ready_at, self.is_listening) = (None, false);
    }

    /// Handles sound of the caller.
    pub fn handle_caller_sound(&mut self, pcm: &[i16], rate_hz: u32, now: Instant) {
        if self.is_done {
            return;
        }
        let detector = match &mut self.detector {
            Some((rate, detector)) if *rate == rate_hz => detector,
            other => &mut other.insert((rate_hz, Box::new(Vad::new(rate_hz)))).1,
        };
        if !detector.hears_speech(pcm) {
            self.spoken_frames = self.spoken_frames.saturating_sub(1);
        } else if self.spoken_frames < SPOKEN_FRAMES_MIN {
            self.spoken_frames += 1;
        } else {
            self.spoken_at = Some(now);
        }
    }

    /// Handles sound of the bot.
    pub fn handle_sound(&mut self, pcm: &[i16]) {
        if self.is_done || pcm.is_empty() {
            return;
        }
        self.is_listening = true;
        if pcm.iter().any(|sample| sample.unsigned_abs() > AUDIBLE) {
            self.finish();
        }
    }

    /// Handles a message of the bot to the client.
    pub fn handle_message(&mut self, text: &str, now: Instant) {
        if self.is_done {
            return;
        }
        let head = serde_json::from_str(text).unwrap_or(MessageHead {
            label: None,
            kind: None,
        });
        let kind = head.kind.as_deref().filter(|_| head.label.as_deref() == Some(LABEL));
        match kind {
            Some("bot-ready") => self.is_listening = true,
            // It works for the caller, who hears nothing of that.
            Some("metrics" | "error" | "error-response" | "bot-llm-started" | "bot-tts-started") => {
                self.handle_work(now)
            }
            Some(kind) if kind.starts_with("user-") || kind.starts_with("llm-function-call") => self.handle_work(now),
            _ => self.finish(),
        }
    }

    fn handle_work(&mut self, now: Instant) {
        if let Some(spoken_at) = &mut self.spoken_at {
            *spoken_at = now;
        }
    }

    fn finish(&mut self) {
        self.is_done = true;
        self.detector = None;
    }

    /// Returns when to call [`SilentBotWatch::poll_warning`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let caller_at = self.caller_at.filter(|_| !self.is_done)?;
        let Some(ready_at) = self.ready_at else {
            return (self.readiness != BotReadiness::StartReported).then(|| caller_at + BOT_STARTS_WITHIN);
        };
        let since = caller_at.max(ready_at);
        match self.spoken_at {
            Some(spoken_at) => Some(since.max(spoken_at) + BOT_SILENT_AFTER),
            None => (!self.is_listening).then(|| since + BOT_SILENT_AFTER),
        }
    }

    /// Returns why the caller hears nothing, when that is to be said: once.
    pub fn poll_warning(&mut self, now: Instant) -> Option<String> {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return None;
        }
        self.finish();
        let (starts, silent) = (BOT_STARTS_WITHIN.as_secs(), BOT_SILENT_AFTER.as_secs());
        let why = if self.ready_at.is_none() {
            format!("the bot is not ready after {starts} s; is it still starting, or waiting for something?")
        } else if self.spoken_at.is_some() {
            format!(
                "the bot has answered what the caller said neither by sound nor by a message in {silent} s; is one of its \
                 services away, or does it not take the sound?"
            )
        } else {
            format!(
                "the bot is ready and has sent neither sound nor a message in {silent} s; one that waits for the caller to \
                 speak first says so by `bot-ready` or a frame of silence"
            )
        };
        Some(format!("the caller hears nothing: {why}"))
    }
}

#[cfg(test)]
mod tests;
