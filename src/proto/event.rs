//! Events that a session reports to its bot beside audio, and the reasons for the end of a session.
//! Both are common to all transports.

use std::fmt;
use std::sync::Arc;

use crate::answered_by::AnsweredBy;
use crate::participant::Participant;

/// The reason for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaveReason {
    /// The caller left orderly.
    Left,
    /// The caller's connection was lost.
    Vanished,
    /// The connection was never established.
    NeverConnected,
    /// Another session of the same device replaced it.
    Replaced,
    /// The bot returned.
    BotEnded,
    /// The bot failed or panicked.
    BotFailed,
    /// The runner shuts down.
    Shutdown,
    /// The transport failed.
    Failed,
    /// The caller did not read the sent data.
    Stalled,
    /// The caller violated the protocol.
    Protocol,
    /// The operator ended the session with `DELETE /sessions/ID`.
    Operator,
    /// The session has lasted as long as its bot may talk.
    Limit,
}

impl LeaveReason {
    /// All reasons, in the order of their definition.
    pub const ALL: [LeaveReason; 12] = [
        LeaveReason::Left,
        LeaveReason::Vanished,
        LeaveReason::NeverConnected,
        LeaveReason::Replaced,
        LeaveReason::BotEnded,
        LeaveReason::BotFailed,
        LeaveReason::Shutdown,
        LeaveReason::Failed,
        LeaveReason::Stalled,
        LeaveReason::Protocol,
        LeaveReason::Operator,
        LeaveReason::Limit,
    ];

    /// Returns the name of the reason in metrics and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            LeaveReason::Left => "left",
            LeaveReason::Vanished => "vanished",
            LeaveReason::NeverConnected => "never_connected",
            LeaveReason::Replaced => "replaced",
            LeaveReason::BotEnded => "bot_ended",
            LeaveReason::BotFailed => "bot_failed",
            LeaveReason::Shutdown => "shutdown",
            LeaveReason::Failed => "failed",
            LeaveReason::Stalled => "stalled",
            LeaveReason::Protocol => "protocol",
            LeaveReason::Operator => "operator",
            LeaveReason::Limit => "limit",
        }
    }

    /// Returns whether this side ends the session while its caller is there.
    pub fn is_by_runner(self) -> bool {
        match self {
            LeaveReason::BotEnded
            | LeaveReason::BotFailed
            | LeaveReason::Shutdown
            | LeaveReason::Operator
            | LeaveReason::Limit => true,
            LeaveReason::Left
            | LeaveReason::Vanished
            | LeaveReason::NeverConnected
            | LeaveReason::Replaced
            | LeaveReason::Failed
            | LeaveReason::Stalled
            | LeaveReason::Protocol => false,
        }
    }
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
            LeaveReason::Operator => "ended by the operator",
            LeaveReason::Limit => "longest time of the bot reached",
        })
    }
}

/// An event for the bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    Joined,
    Message(String),
    /// A telephone key: one of `0`-`9`, `*`, `#`, `A`-`D`.
    Dtmf(char),
    /// All speech before this mark was played or dropped.
    Mark {
        name: String,
        played: bool,
    },
    /// Speech of the bot begins to be played.
    SpeechStarted,
    /// The speech of the bot was played to its end, or the rest was dropped.
    SpeechStopped,
    /// A participant is in the room, or joined it.
    ParticipantJoined(Participant),
    ParticipantLeft(Participant),
    /// The name, the kind or the attributes of a participant changed.
    ParticipantChanged(Participant),
    /// An administrator of the room has muted the bot, or unmuted it.
    Muted(bool),
    /// The caller of a WebRTC call holds the call.
    Held,
    /// The caller takes the call up again after [`SessionEvent::Held`].
    Resumed,
    Speaking {
        identity: Arc<str>,
        speaking: bool,
    },
    /// Who answered a call that the runner dialled, once the provider has detected it.
    AnsweredBy(AnsweredBy),
    /// The room could not be joined, with a reason for the operator. [`SessionEvent::Left`]
    /// follows.
    JoinFailed(String),
    Lost,
    /// The caller is back after [`SessionEvent::Lost`].
    Restored,
    /// The session is over for the bot; it may still send a goodbye.
    Left(LeaveReason),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metrics count the reasons by their position.
    #[test]
    fn all_reasons_are_in_their_order() {
        for (position, reason) in LeaveReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, position, "{reason}");
        }
    }
}
