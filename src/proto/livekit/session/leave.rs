//! The end of a session in a room: the bot's last speech, the leave, and closing.

use std::time::Instant;

use super::resume::ResumeSocket;
use super::{RoomCommand, RoomPhase, RoomSession, SignalState};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{FINISH_WITHIN, JOB_REPORT_WITHIN, ROOM_CLOSE_WITHIN};
use crate::server::rest::RestRequest;

impl RoomSession {
    /// Handles the end of the bot. Its last speech is sent if a caller is present; then the session
    /// ends.
    pub(super) fn finish(&mut self, reason: LeaveReason, now: Instant) {
        match self.phase {
            RoomPhase::Live { .. } if self.joined && !self.lost => {
                self.bot_queue_empty = false;
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

    /// Returns the request that hangs up the telephone for which the session has ended. The server
    /// keeps a telephone in a room without anybody to talk to.
    pub fn hang_up_request(&self, now: Instant) -> Option<RestRequest> {
        let identity = self.hang_up.as_deref()?;
        Some(self.service.as_ref()?.remove(identity, self.unix_ms(now) / 1_000))
    }

    /// Ends the session now, with a leave if the server is connected.
    pub(super) fn end(&mut self, reason: LeaveReason, now: Instant) {
        if reason.is_by_runner() && !self.is_transferred {
            // Others may go on without the bot.
            self.hang_up = self.participants.only_telephone().map(|who| who.identity.clone());
        }
        self.events.push_back(SessionEvent::Left(reason));
        self.report_job(reason, now);
        if self.leave_deadline().is_none() || !matches!(self.signal, SignalState::Open(_)) {
            return self.leave(now);
        }
        self.phase = RoomPhase::Closing {
            until: now + JOB_REPORT_WITHIN + ROOM_CLOSE_WITHIN,
        };
    }

    /// Sends the leave, if the server is connected.
    pub(super) fn leave(&mut self, now: Instant) {
        match &mut self.signal {
            SignalState::Open(connection) => {
                if let Some(resume) = self.resume.take()
                    && resume.socket == ResumeSocket::Connecting
                {
                    self.commands.push_back(RoomCommand::CloseSocket);
                }
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
