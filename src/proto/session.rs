//! The contract between a session and the loop that drives it, for every transport.
//!
//! In: the bot's requests, its speech (`i16` mono at the rate it chose), deadlines, and the end of
//! the session. Input from the transport goes to methods of each session type. Out, by
//! [`Session::poll_output`]: the caller's speech, events for the bot, commands for the transport,
//! and the next deadline with its reason. A new transport implements [`Session`] here and a driver
//! in `io`.

use std::sync::Arc;
use std::time::Instant;

use crate::counts::Counts;
use crate::event::{LeaveReason, SessionEvent};

/// One call between a bot and its callers.
///
/// One input, then [`Session::poll_output`] until it answers [`SessionOutput::Timeout`] or
/// [`SessionOutput::Closed`].
pub trait Session {
    /// What the session asks of its transport.
    type Command;

    /// Returns what the log calls the session when its bot starts.
    fn name(&self) -> String;

    /// Takes the rates that the bot asks for, in Hz, and whether it hears several callers as one
    /// sound.
    fn set_audio(&mut self, in_rate_hz: u32, out_rate_hz: u32, mixed: bool, now: Instant);

    /// Returns how many samples of speech there is room for, at the bot's rate; `None` while
    /// speech, and the marks in it, wait with the bot.
    fn speech_capacity(&self) -> Option<usize>;

    /// Takes the bot's next speech, at most [`Session::speech_capacity`] of it. None at all says that
    /// the bot has no more.
    fn handle_speech(&mut self, pcm: &[i16], now: Instant);

    /// Takes a mark behind all speech so far. Returns the event that it is, where the far end does
    /// not say what it played: the speech before it is as good as gone.
    fn handle_mark(&mut self, name: String) -> Option<SessionEvent> {
        Some(SessionEvent::Mark { name, played: true })
    }

    /// Drops all speech that has not left.
    fn handle_interruption(&mut self, now: Instant);

    /// Takes a text of the bot.
    fn handle_message(&mut self, text: String);

    /// The bot has ended: what it said last still leaves, then the session ends.
    fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant);

    /// The session ends now, with a goodbye where somebody listens.
    fn handle_end(&mut self, reason: LeaveReason, now: Instant);

    /// The permit of this session is another's.
    fn handle_eviction(&mut self, now: Instant);

    /// Serves the deadline of [`SessionOutput::Timeout`]; nothing happens before its time.
    fn handle_timeout(&mut self, now: Instant);

    /// Returns the next thing to do.
    fn poll_output(&mut self, now: Instant) -> SessionOutput<'_, Self::Command>;

    /// Tells whether a caller has shown up, so that a newcomer does not evict the session.
    fn has_caller(&self) -> bool;

    /// Returns the codec that was negotiated, for the metrics, where there is a choice.
    fn codec_name(&self) -> Option<&'static str> {
        None
    }

    /// Puts the totals that the session keeps by itself.
    fn update_counts(&self, counts: &mut Counts);

    /// Returns what was heard and sent, for the last line of the log.
    fn summary(&self, counts: &Counts) -> String;

    /// Writes to the log what helps to understand why the session ended for this reason.
    fn log_diagnosis(&self, _reason: LeaveReason) {}
}

/// What a session answers to an input.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionOutput<'a, C> {
    /// Nothing more; the session wants [`Session::handle_timeout`] then.
    Timeout(Deadline),
    /// For the transport.
    Command(C),
    /// Speech of a caller.
    Audio(CallerFrame<'a>),
    Event(SessionEvent),
    /// There is more [`Session::speech_capacity`] than before, and what comes now may leave at once.
    SpeechWanted,
    /// Nothing is left; no input has any effect.
    Closed,
}

/// When a session wants to be woken, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    pub at: Instant,
    /// A word or two for the log.
    pub why: &'static str,
}

impl Deadline {
    pub fn new(at: Instant, why: &'static str) -> Self {
        Deadline { at, why }
    }

    /// Returns the earlier one.
    #[must_use]
    pub fn or(self, at: Option<Instant>, why: &'static str) -> Self {
        match at {
            Some(at) if at < self.at => Deadline { at, why },
            _ => self,
        }
    }
}

/// One frame of PCM on its way to the bot: `i16` mono, usually 20 ms.
#[derive(Debug, PartialEq, Eq)]
pub struct CallerFrame<'a> {
    pub pcm: &'a [i16],
    pub rate_hz: u32,
    /// Whose voice it is, where each participant is heard alone.
    pub identity: Option<&'a Arc<str>>,
}
