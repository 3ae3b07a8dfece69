//! The contract between a session and the loop that drives it, for every transport.
//!
//! In: the bot's requests, its speech (`i16` mono at the rate it chose), deadlines, and the end of
//! the session. Input from the transport goes to methods of each session type. Out, by
//! [`Session::poll_output`]: the caller's speech, events for the bot, commands for the transport,
//! and the next deadline with its reason. A new transport implements [`Session`] here and a driver
//! in `io`.

use std::sync::Arc;
use std::time::Instant;

use crate::counts::{Counts, NetworkTimes};
use crate::event::{LeaveReason, SessionEvent};

/// One call between a bot and its callers.
///
/// After each input, call [`Session::poll_output`] until it returns [`SessionOutput::Timeout`] or
/// [`SessionOutput::Closed`].
pub trait Session {
    /// The type of commands for the transport.
    type Command;

    /// Returns the name of the session for the log.
    fn name(&self) -> String;

    /// Sets the rates that the bot asks for, in Hz, and whether several callers are mixed into one
    /// stream.
    fn set_audio(&mut self, in_rate_hz: u32, out_rate_hz: u32, mixed: bool, now: Instant);

    /// Returns how many samples of the bot's audio the session accepts, at the bot's rate. `None`
    /// means: do not take speech or marks from the bot's queue now.
    fn bot_audio_capacity(&self) -> Option<usize>;

    /// Takes the bot's next audio, at most [`Session::bot_audio_capacity`] samples. An empty slice
    /// means that the bot's queue is empty.
    fn handle_bot_audio(&mut self, pcm: &[i16], now: Instant);

    /// Queues a mark after all speech so far. If the remote end cannot report playback, returns the
    /// mark event at once.
    fn handle_mark(&mut self, name: String) -> Option<SessionEvent> {
        Some(SessionEvent::Mark { name, played: true })
    }

    /// Drops all speech that has not been sent.
    fn handle_interruption(&mut self, now: Instant);

    /// Takes a text message of the bot.
    fn handle_message(&mut self, text: String);

    /// Sends keys to the telephones in a room: `0`-`9`, `*`, `#`, `A`-`D`.
    fn handle_keys(&mut self, _keys: &str) {}

    /// Leaves the call to its provider: the session does not hang it up when it ends.
    fn handle_transferred(&mut self) {}

    /// Ends the session after the bot's last speech has been sent.
    fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant);

    /// Handles a bot that has failed, and tells whether it is started once more in this session.
    fn handle_bot_failure(&mut self, _now: Instant) -> bool {
        false
    }

    /// Ends the session now, with a goodbye if a peer is connected.
    fn handle_end(&mut self, reason: LeaveReason, now: Instant);

    /// Ends the session because its permit was reassigned.
    fn handle_eviction(&mut self, now: Instant);

    /// Handles the deadline of [`SessionOutput::Timeout`]. Calling it before the deadline has no
    /// effect.
    fn handle_timeout(&mut self, now: Instant);

    /// Returns the next output.
    fn poll_output(&mut self, now: Instant) -> SessionOutput<'_, Self::Command>;

    /// Returns whether a caller has connected, which protects the session from eviction.
    fn has_caller(&self) -> bool;

    /// Returns the negotiated codec for the metrics, if the transport negotiates one.
    fn codec_name(&self) -> Option<&'static str> {
        None
    }

    /// Writes the totals that the session keeps itself.
    fn update_counts(&self, counts: &mut Counts);

    /// Returns what the session knows of its network beside the counts.
    fn network(&self) -> NetworkTimes {
        NetworkTimes::default()
    }

    /// Returns the media summary for the last log line.
    fn summary(&self, counts: &Counts) -> String;

    /// Logs a diagnosis of why the session ended, if there is one.
    fn log_diagnosis(&self, _reason: LeaveReason) {}
}

/// An output of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionOutput<'a, C> {
    /// No output is left. Call [`Session::handle_timeout`] at this deadline.
    Timeout(Deadline),
    /// A command for the transport.
    Command(C),
    /// Audio of a caller.
    Audio(CallerFrame<'a>),
    Event(SessionEvent),
    /// [`Session::bot_audio_capacity`] has grown.
    BotAudioWanted,
    /// The session is over; inputs have no effect.
    Closed,
}

/// The next deadline of a session, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    pub at: Instant,
    /// The reason, for the log.
    pub why: &'static str,
}

impl Deadline {
    pub fn new(at: Instant, why: &'static str) -> Self {
        Deadline { at, why }
    }

    /// Returns the earlier of this deadline and `at`, if there is one.
    #[must_use]
    pub fn earlier_of(self, at: Option<Instant>, why: &'static str) -> Self {
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
    /// The participant, where each is received separately.
    pub identity: Option<&'a Arc<str>>,
}

/// A frame of PCM and its rate, of a session with one caller.
impl<'a> From<(&'a [i16], u32)> for CallerFrame<'a> {
    fn from((pcm, rate_hz): (&'a [i16], u32)) -> Self {
        CallerFrame {
            pcm,
            rate_hz,
            identity: None,
        }
    }
}
