//! The end of a session in a room: the bot's last words, the goodbye to the server, and what is closed after it.

use std::time::Instant;

use super::{Event, Order, Phase, RoomSession, Way};
use crate::event::LeaveReason;
use crate::limits::{FINISH_WITHIN, ROOM_CLOSE_WITHIN};

impl RoomSession {
    /// The bot has ended: what it said last still leaves where somebody hears it, then the session ends.
    pub fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant) {
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

    /// The runner stops: the session ends now, with a goodbye.
    pub fn handle_end(&mut self, reason: LeaveReason, now: Instant) {
        if !self.is_ending() {
            self.end(reason, now);
        }
    }

    /// Tells whether goodbye is being said.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. } | Phase::Gone)
    }

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
                self.orders.push_back(Order::CloseSocket);
                self.phase = Phase::Gone;
            }
            Way::None | Way::Pause(_) => self.phase = Phase::Gone,
        }
    }
}
