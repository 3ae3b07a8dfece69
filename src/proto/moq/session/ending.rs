//! The end of a session: the caller is told by a record, the tracks are finished, and the
//! connection closes.
//!
//! Source: `docs/spec/moq.md` 6 and 7.

use std::time::{Duration, Instant};

use super::{MoqPhase, MoqSession};
use crate::event::{LeaveReason, SessionEvent};

/// Time that a caller has to read the record before its tracks end: that of Pipecat. A browser then
/// disconnects instead of waiting for the bot to come back.
const GOODBYE_FOR: Duration = Duration::from_millis(250);
/// Time that the ends of the tracks have to arrive before the close, after which a caller reads no
/// more.
const FINISH_FOR: Duration = Duration::from_millis(100);
/// Time until the connection is given up: its close is sent for up to a second, and a lost one
/// times out at the caller.
const CLOSE_FOR: Duration = Duration::from_millis(1_500);

impl MoqSession {
    /// Returns whether the session is over for the bot.
    pub(super) fn is_ending(&self) -> bool {
        matches!(
            self.phase,
            MoqPhase::Goodbye { .. } | MoqPhase::Closing { .. } | MoqPhase::Gone
        )
    }

    /// Tells the bot that the session is over. It happens once.
    fn leave(&mut self, reason: LeaveReason) {
        self.push_event(SessionEvent::Left(reason));
        self.has_left = true;
    }

    /// Ends the session; a connected caller is told.
    pub(super) fn end(&mut self, reason: LeaveReason, now: Instant) {
        self.leave(reason);
        if !self.uplink.is_open() || !self.caller.is_announced {
            return self.close(now);
        }
        self.bot.announce_end(now, &mut self.uplink);
        self.phase = MoqPhase::Goodbye {
            until: now + GOODBYE_FOR,
            is_finished: false,
        };
    }

    /// Ends the tracks and the broadcast, and closes the connection a little later.
    pub(super) fn finish(&mut self, now: Instant) {
        self.bot.finish(&mut self.uplink);
        self.phase = MoqPhase::Goodbye {
            until: now + FINISH_FOR,
            is_finished: true,
        };
    }

    /// Ends the session of a caller that is gone.
    pub(super) fn handle_caller_gone(&mut self, reason: LeaveReason, now: Instant) {
        self.leave(reason);
        self.close(now);
    }

    /// Closes the connection.
    pub(super) fn close(&mut self, now: Instant) {
        if matches!(self.phase, MoqPhase::Closing { .. } | MoqPhase::Gone) {
            return self.uplink.close(0, "", now);
        }
        self.bot.finish(&mut self.uplink);
        self.uplink.close(0, "", now);
        self.phase = MoqPhase::Closing { until: now + CLOSE_FOR };
    }
}
