//! The end of a session in a room: the bot's last speech, the leave, and closing.

use std::time::Instant;

use super::{RoomCommand, RoomPhase, RoomSession, SignalState};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{FINISH_WITHIN, ROOM_CLOSE_WITHIN};

impl RoomSession {
    /// Handles the end of the bot. Its last speech is sent if a caller is present; then the session
    /// ends.
    pub(super) fn finish(&mut self, reason: LeaveReason, now: Instant) {
        match self.phase {
            RoomPhase::Live { .. } if self.joined && !self.lost => {
                self.speech_ended = false;
                self.phase = RoomPhase::Finishing {
                    until: now + FINISH_WITHIN,
                    reason,
                };
            }
            RoomPhase::Waiting | RoomPhase::Joining { .. } | RoomPhase::Live { .. } | RoomPhase::Reconnecting(_) => {
                self.end(reason, now)
            }
            RoomPhase::Finishing { .. } | RoomPhase::Closing { .. } | RoomPhase::Closed => {}
        }
    }

    /// Tells whether the session is closing or closed.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, RoomPhase::Closing { .. } | RoomPhase::Closed)
    }

    /// Ends the session now, with a leave if the server is connected.
    pub(super) fn end(&mut self, reason: LeaveReason, now: Instant) {
        self.events.push_back(SessionEvent::Left(reason));
        match &mut self.signal {
            SignalState::Open(connection) => {
                connection.leave();
                self.phase = RoomPhase::Closing {
                    until: now + ROOM_CLOSE_WITHIN,
                };
            }
            SignalState::Connecting => {
                self.commands.push_back(RoomCommand::CloseSocket);
                self.phase = RoomPhase::Closed;
            }
            SignalState::Disconnected | SignalState::Backoff(_) => self.phase = RoomPhase::Closed,
        }
    }
}
