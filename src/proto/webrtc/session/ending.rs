//! Ends a session: says goodbye and closes the connection.

use std::time::Instant;

use super::{WebRtcPhase, WebRtcSession};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{CLOSE_WITHIN, GOODBYE_WITHIN};
use crate::webrtc::connection::ChannelLabel;

/// Returns the message that tells the client that the bot left. Otherwise it reports a network
/// failure. Clients ignore the member `reason`, which the built-in page shows where the bot did not
/// end by itself.
fn peer_left(reason: LeaveReason) -> String {
    let why = match reason {
        LeaveReason::BotFailed => r#","reason":"bot failed""#,
        LeaveReason::Shutdown => r#","reason":"the runner is stopping""#,
        LeaveReason::Operator => r#","reason":"the operator ended the call""#,
        LeaveReason::Limit => r#","reason":"the call has lasted as long as the bot may talk""#,
        LeaveReason::Left
        | LeaveReason::Vanished
        | LeaveReason::NeverConnected
        | LeaveReason::Replaced
        | LeaveReason::BotEnded
        | LeaveReason::Failed
        | LeaveReason::Stalled
        | LeaveReason::Protocol => "",
    };
    format!(r#"{{"type":"signalling","message":{{"type":"peerLeft"{why}}}}}"#)
}

impl WebRtcSession {
    /// Handles a peer that is gone: closes the connection without a goodbye.
    pub(super) fn handle_peer_gone(&mut self, reason: LeaveReason, now: Instant) {
        if matches!(self.phase, WebRtcPhase::Closing { .. } | WebRtcPhase::Gone) {
            return;
        }
        if !matches!(self.phase, WebRtcPhase::Goodbye { .. }) {
            self.pending_event = Some(SessionEvent::Left(reason));
        }
        self.close(now);
    }

    /// Returns whether the client has yet to open the channel of its offer. It is told there that
    /// the bot left.
    pub(super) fn awaits_channel(&self) -> bool {
        self.connection.offers_channel() && !self.connection.has_channel() && !self.connection.is_device()
    }

    pub(super) fn end(&mut self, reason: LeaveReason, now: Instant) {
        self.pending_event = Some(SessionEvent::Left(reason));
        let listens = self.connection.has_channel() && !self.is_lost && !self.connection.is_device();
        if !listens {
            return self.close(now);
        }
        // Other clients do not know `peerLeft`, but waiting messages are still sent.
        if matches!(
            self.connection.message_channel(),
            Some(ChannelLabel::Chat | ChannelLabel::Rtvi)
        ) {
            self.outbox.push(peer_left(reason));
        }
        self.phase = WebRtcPhase::Goodbye {
            until: now + GOODBYE_WITHIN,
        };
    }

    pub(super) fn close(&mut self, now: Instant) {
        self.connection.close();
        self.phase = WebRtcPhase::Closing {
            until: now + CLOSE_WITHIN,
        };
    }
}
