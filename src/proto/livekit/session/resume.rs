//! Resuming a connection to a room: a new WebSocket for the same participant.
//!
//! In: the end of a connection whose participant the server may still hold, and the results of
//! dials. Out: the next dial, or the end of the attempt, after which the room is joined anew. The
//! bot, its queued speech, its track and its subscribers go on; while media arrives, callers notice
//! nothing. A job of an agent survives a resume and ends with a new join. Source:
//! `docs/spec/livekit.md` 4.1.

use std::time::Instant;

use super::disconnect::DisconnectCause;
use super::{DialRequest, RoomCommand, RoomPhase, RoomSession, SignalState};
use crate::limits::{ROOM_REJOIN_WITHIN, ROOM_RESUME_PAUSES, ROOM_SETTLED};
use crate::livekit::signal::LeaveAction;
use crate::livekit::wire::SignalTarget;

/// A series of attempts to resume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resume {
    since: Instant,
    tries: usize,
    reason: ResumeReason,
    pub socket: ResumeSocket,
}

/// The socket of the current attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResumeSocket {
    /// The next attempt starts at this time.
    Backoff(Instant),
    Connecting,
    Open,
}

/// Why a client resumes. The server chooses other ways for the media after a failure of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResumeReason {
    Unknown = 0,
    SignalDisconnected = 1,
    PublisherFailed = 2,
    SubscriberFailed = 3,
}

impl ResumeReason {
    /// Returns the reason for the server, or `None` if a resume cannot help.
    fn new(cause: &DisconnectCause) -> Option<ResumeReason> {
        match cause {
            DisconnectCause::SocketClosed | DisconnectCause::PingTimeout => Some(ResumeReason::SignalDisconnected),
            DisconnectCause::NoMedia {
                target: SignalTarget::Publisher,
                ..
            } => Some(ResumeReason::PublisherFailed),
            DisconnectCause::NoMedia {
                target: SignalTarget::Subscriber,
                ..
            } => Some(ResumeReason::SubscriberFailed),
            DisconnectCause::Ended {
                action: LeaveAction::Resume,
                ..
            } => Some(ResumeReason::Unknown),
            _ => None,
        }
    }
}

/// A resumed connection, whose series of attempts continues if it is lost soon.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastResume {
    since: Instant,
    tries: usize,
    restored_at: Instant,
}

impl RoomSession {
    /// Resumes a connection that has ended, if that can help. Returns whether it does.
    pub(super) fn try_resume(&mut self, cause: &DisconnectCause, now: Instant) -> bool {
        ResumeReason::new(cause).is_some_and(|reason| self.schedule_resume(reason, cause, now))
    }

    fn schedule_resume(&mut self, reason: ResumeReason, cause: &DisconnectCause, now: Instant) -> bool {
        let (RoomPhase::Live { .. } | RoomPhase::Finishing { .. }, SignalState::Open(connection)) =
            (self.phase, &mut self.signal)
        else {
            return false;
        };
        if !connection.can_resume() {
            return false;
        }
        let has_lasted = |last: &LastResume| now >= last.restored_at + ROOM_SETTLED;
        let earlier = self.last_resume.take().filter(|last| !has_lasted(last));
        let (since, tries) = match (&self.resume, earlier) {
            (Some(resume), _) => (resume.since, resume.tries),
            (None, Some(last)) => (last.since, last.tries),
            (None, None) => (now, 0),
        };
        if self.resume.is_none() {
            log::info!("the connection to the room is lost: {cause}; resuming");
        } else {
            log::debug!("resuming, attempt {tries}: {cause}");
        }
        connection.suspend(now);
        let has_media = connection.has_media();
        self.commands.push_back(RoomCommand::CloseSocket);
        let pause = ROOM_RESUME_PAUSES[tries.min(ROOM_RESUME_PAUSES.len() - 1)];
        // While media arrives, callers notice nothing, so there is no hurry to give up.
        if now + pause > since + ROOM_REJOIN_WITHIN && !has_media {
            log::warn!("resuming the room failed: {cause}");
            return false;
        }
        self.resume = Some(Resume {
            since,
            tries,
            reason,
            socket: ResumeSocket::Backoff(now + pause),
        });
        true
    }

    /// Starts the attempt that is due.
    pub(super) fn dial_resume(&mut self, now: Instant) {
        let (Some(resume), SignalState::Open(connection)) = (&mut self.resume, &self.signal) else {
            return;
        };
        if !matches!(resume.socket, ResumeSocket::Backoff(until) if now >= until) {
            return;
        }
        resume.tries += 1;
        resume.socket = ResumeSocket::Connecting;
        let (sid, reason) = (connection.sid().to_owned(), resume.reason as i32);
        let url = self.join_url();
        self.commands.push_back(RoomCommand::Dial(DialRequest {
            url: format!("{url}&reconnect=1&sid={sid}&reconnect_reason={reason}"),
            token: self.token.clone(),
        }));
    }

    /// Handles the open WebSocket of an attempt. Returns whether there is one.
    pub(super) fn handle_resume_open(&mut self, now: Instant) -> bool {
        let (Some(resume), SignalState::Open(connection)) = (&mut self.resume, &mut self.signal) else {
            return false;
        };
        if resume.socket != ResumeSocket::Connecting {
            return false;
        }
        resume.socket = ResumeSocket::Open;
        connection.resume(now);
        true
    }

    /// Handles a failed dial of an attempt. Returns whether there is one.
    pub(super) fn handle_resume_failure(&mut self, cause: &DisconnectCause, now: Instant) -> bool {
        let Some(resume) = self.resume else { return false };
        if resume.socket != ResumeSocket::Connecting {
            return true;
        }
        let is_transient = match cause {
            DisconnectCause::Refused { status, .. } => *status == 429 || *status >= 500,
            _ => true,
        };
        // A server that is away may come back with the participant.
        if !is_transient || !self.schedule_resume(resume.reason, cause, now) {
            self.handle_connection_end(cause, now);
        }
        true
    }

    /// Returns whether the open socket belongs to the connection. One that is replaced may still
    /// deliver messages and its end.
    pub(super) fn has_socket(&self) -> bool {
        self.resume.is_none_or(|resume| resume.socket == ResumeSocket::Open)
    }

    /// Gives up the attempts to resume. Returns since when the room counts as lost.
    pub(super) fn take_failed_resume(&mut self, now: Instant) -> Option<Instant> {
        let resume = self.resume.take()?;
        let has_media = matches!(&self.signal, SignalState::Open(connection) if connection.has_media());
        Some(if has_media { now } else { resume.since })
    }

    /// Handles the end of a resume.
    pub(super) fn handle_restored(&mut self, now: Instant) {
        if let Some(resume) = self.resume.take() {
            let after = now.saturating_duration_since(resume.since).as_secs_f64();
            log::info!("resumed the room after {after:.1} s");
            self.last_resume = Some(LastResume {
                since: resume.since,
                tries: resume.tries,
                restored_at: now,
            });
        }
        self.update_callers(now);
    }

    /// Handles media that has stopped to arrive. The bot's speech waits.
    pub(super) fn handle_media_lost(&mut self, now: Instant) {
        if let RoomPhase::Finishing { reason, .. } = self.phase {
            return self.end(reason, now);
        }
        self.audio_sender.handle_pause();
        self.update_callers(now);
    }

    /// Handles media that arrives again.
    pub(super) fn handle_media_back(&mut self, now: Instant) {
        if let RoomPhase::Live { .. } = self.phase {
            self.audio_sender.start(now);
            self.send_speech(now);
            self.update_callers(now);
        }
    }

    /// Returns when the next attempt is due.
    pub(super) fn resume_deadline(&self) -> Option<Instant> {
        match self.resume?.socket {
            ResumeSocket::Backoff(until) => Some(until),
            _ => None,
        }
    }
}
