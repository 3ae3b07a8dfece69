//! The end of a session on a WebSocket: the close code and reason for each cause.
//!
//! In: read errors, rejections, the close of the peer. Out: the close frame of RFC 6455, after the
//! hang-up of a live call.

use std::time::Instant;

use super::{SocketMessage, SocketPhase, SocketSession};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{HANG_UP_BEFORE_CLOSE, SOCKET_CLOSE_WITHIN};
use crate::refusal::SessionRefusal;

/// A read error of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketReadError {
    /// A message is longer than the peer may send.
    TooLong,
    NotUtf8,
    Malformed,
    /// The connection has ended. Telephony providers may omit the close frame.
    Ended,
    /// The connection failed.
    Broken,
}

const STOPPING: &str = "the runner is stopping";
/// The close reason of a socket without the handshake of a provider.
pub(super) const UNRECOGNISED: &str = "unrecognised telephony handshake";
/// The close reason of an evicted socket.
pub(super) const EVICTED: &str = "it gave way to newer connections";

impl SocketSession {
    /// Handles a close frame of the peer, which the transport answers.
    pub fn handle_close(&mut self, now: Instant) {
        self.leave(LeaveReason::Left);
        self.outgoing.clear();
        self.outgoing_bytes = 0;
        if self.phase != SocketPhase::Closed {
            self.phase = SocketPhase::Closing {
                until: now + SOCKET_CLOSE_WITHIN,
            };
        }
    }

    /// Handles a read error. An invalid message closes the socket with the code of RFC 6455 section
    /// 7.4.1.
    pub fn handle_read_error(&mut self, error: SocketReadError, now: Instant) {
        let (code, why) = match error {
            SocketReadError::TooLong => (1009, "the message is too long"),
            SocketReadError::NotUtf8 => (1007, "the text is not UTF-8"),
            SocketReadError::Malformed => (1002, "the frame is malformed"),
            SocketReadError::Ended => return self.gone(LeaveReason::Left),
            SocketReadError::Broken => return self.gone(LeaveReason::Failed),
        };
        match self.phase {
            SocketPhase::Handshake { .. } => self.refuse(code, why, now),
            SocketPhase::Live | SocketPhase::Finishing { .. } => self.end(LeaveReason::Protocol, code, why, now),
            SocketPhase::HangingUp { .. } | SocketPhase::Closing { .. } | SocketPhase::Closed => {}
        }
    }

    fn gone(&mut self, reason: LeaveReason) {
        self.leave(reason);
        self.phase = SocketPhase::Closed;
    }

    /// Rejects a call that gets no permit, before its bot starts.
    pub fn handle_refused(&mut self, refusal: &SessionRefusal, now: Instant) {
        let (code, why) = match refusal {
            SessionRefusal::Stopping => (1001, STOPPING),
            SessionRefusal::BotFull(_) => (1013, "all places of the bot are taken; try again later"),
            SessionRefusal::CallerNotAllowed(_) => (1008, "this number may not call the bot"),
            SessionRefusal::SourceQuota => (1013, "this address has its share of the places; try again later"),
            // An admission has no other errors.
            _ => (1013, "all places are taken; try again later"),
        };
        self.drop_out(code, why, now);
    }

    /// Closes a socket whose bot has not started.
    pub(super) fn drop_out(&mut self, code: u16, why: &'static str, now: Instant) {
        if matches!(self.phase, SocketPhase::Handshake { .. } | SocketPhase::Live) {
            // The queued events may contain more than the handshake.
            self.events.clear();
            self.begin = false;
            self.refuse(code, why, now);
        }
    }

    /// Ends an unsuccessful handshake; there is no bot to notify.
    pub(super) fn refuse(&mut self, code: u16, why: &'static str, now: Instant) {
        self.refused = Some(why);
        self.close(code, why, now);
    }

    /// Ends the session: notifies the bot, hangs up at the provider, then closes the socket.
    pub(super) fn end(&mut self, reason: LeaveReason, code: u16, why: &'static str, now: Instant) {
        if reason == LeaveReason::Protocol {
            log::warn!("closing with code {code}: {why}");
        }
        self.leave(reason);
        if self.telephone().is_some() && self.can_send_audio() && !self.is_transferred {
            self.hang_up = true;
            self.phase = SocketPhase::HangingUp {
                until: now + HANG_UP_BEFORE_CLOSE,
                code,
                why,
            };
        } else {
            self.close(code, why, now);
        }
    }

    /// Notifies the bot of the end, once.
    pub(super) fn leave(&mut self, reason: LeaveReason) {
        if self.can_send_audio() {
            self.events.push_back(SessionEvent::Left(reason));
        }
    }

    pub(super) fn close(&mut self, code: u16, why: &'static str, now: Instant) {
        // Queued messages would delay the close.
        self.outgoing.clear();
        self.outgoing_bytes = 0;
        self.send(SocketMessage::Close(code, why));
        self.phase = SocketPhase::Closing {
            until: now + SOCKET_CLOSE_WITHIN,
        };
    }
}

/// Returns the close code and reason for the end of a session.
pub(super) fn close_frame(reason: LeaveReason) -> (u16, &'static str) {
    match reason {
        LeaveReason::Shutdown => (1001, STOPPING),
        LeaveReason::BotFailed => (1011, "the bot failed"),
        LeaveReason::Operator => (1000, "the operator ended the call"),
        LeaveReason::Limit => (1000, "the call has lasted as long as the bot may talk"),
        // A socket is connected; it never sent a first frame.
        LeaveReason::NeverConnected => (1013, EVICTED),
        LeaveReason::Left
        | LeaveReason::Vanished
        | LeaveReason::Replaced
        | LeaveReason::BotEnded
        | LeaveReason::Failed
        | LeaveReason::Stalled
        | LeaveReason::Protocol => (1000, ""),
    }
}
