//! The end of a session: what the client is told of it, and the closing handshakes.

use std::time::Instant;

use super::{WebRtcPhase, WebRtcSession};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{CLOSE_WITHIN, GOODBYE_WITHIN};
use crate::webrtc::connection::ChannelLabel;

/// Tells the client that the bot has left; without it, it would take the closed connection for a
/// network failure.
const PEER_LEFT: &str = r#"{"type":"signalling","message":{"type":"peerLeft"}}"#;

impl WebRtcSession {
    /// The peer is not there any more: no goodbye, only what its end of the connection still
    /// expects.
    pub(super) fn handle_peer_gone(&mut self, reason: LeaveReason, now: Instant) {
        if matches!(self.phase, WebRtcPhase::Closing { .. } | WebRtcPhase::Gone) {
            return;
        }
        if !matches!(self.phase, WebRtcPhase::Goodbye { .. }) {
            self.pending_event = Some(SessionEvent::Left(reason));
        }
        self.close(now);
    }

    pub(super) fn end(&mut self, reason: LeaveReason, now: Instant) {
        self.pending_event = Some(SessionEvent::Left(reason));
        let listens = self.connection.has_channel() && !self.is_lost && !self.connection.is_device();
        if !listens {
            return self.close(now);
        }
        // Only the clients of some channels know what that means; to others what waits is still
        // sent.
        if matches!(
            self.connection.message_channel(),
            Some(ChannelLabel::Chat | ChannelLabel::Rtvi)
        ) {
            self.outbox.push(PEER_LEFT.to_owned());
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
