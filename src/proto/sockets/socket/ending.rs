//! The end of a session on a socket: the close code and text for each reason.
//!
//! In: read errors, refusals, the peer's close. Out: the close of RFC 6455, after the hang-up of a
//! live call.

use std::time::Instant;

use super::{SocketMessage, SocketPhase, SocketSession};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{HANG_UP_BEFORE_CLOSE, SOCKET_CLOSE_WITHIN};
use crate::server::admission;
use crate::telephony::proof::ProofError;

/// Why a socket becomes no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRefusal {
    /// Nothing shows whose call it is.
    Unproven(ProofError),
    Stopping,
    Admission(admission::AdmissionError),
}

/// Why nothing more can be read from a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketReadError {
    /// A message is longer than [`MESSAGE_BYTES_MAX`](crate::limits::MESSAGE_BYTES_MAX).
    TooLong,
    NotUtf8,
    Malformed,
    /// The connection has ended. A telephone needs no close.
    Ended,
    /// The connection broke.
    Broken,
}

const STOPPING: &str = "the runner is stopping";
/// Why a socket is closed whose place another has.
pub(super) const EVICTED: &str = "it gave way to newer connections";

impl SocketSession {
    /// The peer closes; the answer to that is the socket's own.
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

    /// Nothing more can be read. What is no message is closed with the code of RFC 6455 section
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

    /// There is no session for this socket, of whose caller everything is known: it ends before its
    /// bot begins.
    pub fn handle_refused(&mut self, refused: SocketRefusal, now: Instant) {
        let (code, why) = match refused {
            SocketRefusal::Unproven(unproven) => (1008, unproven.reason()),
            SocketRefusal::Stopping => (1001, STOPPING),
            SocketRefusal::Admission(admission::AdmissionError::Full) => {
                (1013, "all places are taken; try again later")
            }
            SocketRefusal::Admission(admission::AdmissionError::SourceShare) => {
                (1013, "this address has its share of the places; try again later")
            }
        };
        self.drop_out(code, why, now);
    }

    /// Ends what has no bot yet.
    pub(super) fn drop_out(&mut self, code: u16, why: &'static str, now: Instant) {
        if matches!(self.phase, SocketPhase::Handshake { .. } | SocketPhase::Live) {
            // A telephone may have said more than who it is.
            self.events.clear();
            self.refuse(code, why, now);
        }
    }

    /// Ends a handshake that leads nowhere: there is no bot to tell.
    pub(super) fn refuse(&mut self, code: u16, why: &'static str, now: Instant) {
        self.refused = Some(why);
        self.close(code, why, now);
    }

    /// Ends the session from this side: the bot is told, the provider is asked to hang up, then the
    /// socket closes.
    pub(super) fn end(&mut self, reason: LeaveReason, code: u16, why: &'static str, now: Instant) {
        if reason == LeaveReason::Protocol {
            log::warn!("closing with code {code}: {why}");
        }
        self.leave(reason);
        if self.telephone().is_some() && self.speaks() {
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

    /// Tells the bot that nothing more comes, unless it was told before.
    pub(super) fn leave(&mut self, reason: LeaveReason) {
        if self.speaks() {
            self.events.push_back(SessionEvent::Left(reason));
        }
    }

    pub(super) fn close(&mut self, code: u16, why: &'static str, now: Instant) {
        // What still waits would delay the close.
        self.outgoing.clear();
        self.outgoing_bytes = 0;
        self.send(SocketMessage::Close(code, why));
        self.phase = SocketPhase::Closing {
            until: now + SOCKET_CLOSE_WITHIN,
        };
    }
}

/// What a socket is closed with when the session ends for this reason.
pub(super) fn close_frame(reason: LeaveReason) -> (u16, &'static str) {
    match reason {
        LeaveReason::Shutdown => (1001, STOPPING),
        LeaveReason::BotFailed => (1011, "the bot failed"),
        // Sockets are connected; what never came is a first frame.
        LeaveReason::NeverConnected => (1013, EVICTED),
        _ => (1000, ""),
    }
}
