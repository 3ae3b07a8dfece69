//! Events that a session reports to its bot besides audio, and the reasons why a session ends. Both
//! are the same for every transport.

use std::fmt;
use std::sync::Arc;

use crate::participant::Participant;

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaveReason {
    /// The caller left in good order.
    Left,
    /// The caller vanished without a word.
    Vanished,
    /// The connection was never completed.
    NeverConnected,
    /// Another session of the same device took its place.
    Replaced,
    /// The bot returned.
    BotEnded,
    /// The bot failed or panicked.
    BotFailed,
    /// The runner is stopping.
    Shutdown,
    /// The transport broke.
    Failed,
    /// The caller did not read what was sent.
    Stalled,
    /// The caller sent what its protocol does not know.
    Protocol,
}

impl fmt::Display for LeaveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeaveReason::Left => "caller left",
            LeaveReason::Vanished => "caller vanished",
            LeaveReason::NeverConnected => "never connected",
            LeaveReason::Replaced => "replaced by a new session of the same device",
            LeaveReason::BotEnded => "bot ended",
            LeaveReason::BotFailed => "bot failed",
            LeaveReason::Shutdown => "runner stopped",
            LeaveReason::Failed => "transport failed",
            LeaveReason::Stalled => "caller stopped reading",
            LeaveReason::Protocol => "caller broke the protocol",
        })
    }
}

/// What a session tells its bot, beside audio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    Joined,
    Message(String),
    /// A key of the telephone: one of `0`-`9`, `*`, `#`, `A`-`D`.
    Dtmf(char),
    /// All speech before this mark was played, or was dropped.
    Mark {
        name: String,
        played: bool,
    },
    SpeechStarted,
    SpeechStopped,
    /// A participant is in the room, or joined it.
    ParticipantJoined(Participant),
    ParticipantLeft(Participant),
    Speaking {
        identity: Arc<str>,
        speaking: bool,
    },
    /// The room could not be entered: why, in words that help who runs the bot.
    /// [`SessionEvent::Left`] follows.
    JoinFailed(String),
    Lost,
    Resumed,
    /// The bot hears nothing after this; the session may still say goodbye.
    Left(LeaveReason),
}
