//! The end of a session in a room: the bot's last words, the goodbye to the server, and what is closed after it.

use std::time::Instant;

use super::{Command, Phase, RoomSession, Way};
use crate::event::{Event, LeaveReason};
use crate::limits::{FINISH_WITHIN, ROOM_CLOSE_WITHIN};

impl RoomSession {
    /// The bot has ended: what it said last still leaves where somebody hears it, then the session ends.
    pub(super) fn finish(&mut self, reason: LeaveReason, now: Instant) {
        match self.phase {
            Phase::Live { .. } if self.joined && !self.lost => {
                self.source_dry = false;
                self.phase = Phase::Finishing {
                    until: now + FINISH_WITHIN,
                    reason,
                };
            }
            Phase::Waiting | Phase::Entering { .. } | Phase::Live { .. } | Phase::Away(_) => self.end(reason, now),
            Phase::Finishing { .. } | Phase::Closing { .. } | Phase::Gone => {}
        }
    }

    /// Tells whether goodbye is being said.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. } | Phase::Gone)
    }

    /// Ends the session now, with a goodbye to a server that is there.
    pub(super) fn end(&mut self, reason: LeaveReason, now: Instant) {
        self.events.push_back(Event::Left(reason));
        match &mut self.way {
            Way::Open(stay) => {
                stay.leave();
                self.phase = Phase::Closing {
                    until: now + ROOM_CLOSE_WITHIN,
                };
            }
            Way::Dialing => {
                self.commands.push_back(Command::CloseSocket);
                self.phase = Phase::Gone;
            }
            Way::None | Way::Pause(_) => self.phase = Phase::Gone,
        }
    }
}
