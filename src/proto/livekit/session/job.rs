//! What a job of a LiveKit server adds to the session in its room.
//!
//! In: the job's rules, the server's taking the job back, a failure of the bot. Out: the outcome of
//! the job, before the bot leaves, and the bot's second start. Without a job nothing here has an
//! effect. Source: `docs/spec/livekit.md` 6.5.

use std::time::{Duration, Instant};

use super::{RoomCommand, RoomPhase, RoomSession, SignalState};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{JOB_REPORT_WITHIN, JOB_STAY_MARGIN, ROOM_FIRST_CALLER_WITHIN, ROOM_LEAVE_AFTER};
use crate::livekit::worker::JobOutcome;

/// The rules that a job's room has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRules {
    /// Time after which the server closes a room that no one entered.
    pub empty_timeout: Duration,
    /// Time after which the server closes a room whose last caller left.
    pub departure_timeout: Duration,
    /// The attribute by which a second bot of the same name is recognised; `None` for jobs of
    /// participants, of which a room may have several.
    pub mark: Option<(&'static str, String)>,
}

/// What a session reports about its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// The bot is in the room.
    Joined,
    /// [`RoomSession::handle_job_reported`] follows once the server has it.
    Ended(JobOutcome),
    /// What became of a termination: whether it has ended the session.
    Terminated { was_live: bool },
}

/// The state of the job.
pub(super) struct JobState {
    rules: JobRules,
    has_joined: bool,
    has_ended: bool,
    /// The leave waits for the report of the outcome, until then.
    leave_at: Option<Instant>,
    has_restarted: bool,
}

impl JobState {
    pub fn new(rules: JobRules) -> Self {
        JobState {
            rules,
            has_joined: false,
            has_ended: false,
            leave_at: None,
            has_restarted: false,
        }
    }
}

impl RoomSession {
    /// Returns how long the bot waits for the first caller. The server closes the room of a job.
    pub(super) fn first_caller_within(&self) -> Duration {
        self.job.as_ref().map_or(ROOM_FIRST_CALLER_WITHIN, |job| {
            job.rules.empty_timeout + JOB_STAY_MARGIN
        })
    }

    /// Returns how long the bot stays without callers. A room that lives on gets no second bot, so
    /// the bot of a job stays until the server closes the room.
    pub(super) fn stays_without_callers(&self) -> Duration {
        self.job
            .as_ref()
            .map_or(ROOM_LEAVE_AFTER, |job| job.rules.departure_timeout + JOB_STAY_MARGIN)
    }

    /// Reports that the bot is in the room.
    pub(super) fn report_joined(&mut self) {
        if let Some(job) = &mut self.job
            && !std::mem::replace(&mut job.has_joined, true)
        {
            self.commands.push_back(RoomCommand::Job(JobEvent::Joined));
        }
    }

    /// Leaves a room that has an older bot of the same name. A server that makes a room anew asks
    /// for bots anew, while the old ones come back by themselves.
    pub(super) fn check_second_bot(&mut self, now: Instant) {
        let (Some(job), SignalState::Open(connection)) = (&self.job, &self.signal) else {
            return;
        };
        let Some((key, value)) = &job.rules.mark else {
            return;
        };
        if !self.is_ending() && connection.has_earlier_agent(key, value) {
            log::info!("another bot of this name is in the room: leaving");
            self.end(LeaveReason::Replaced, now);
        }
    }

    /// Reports the outcome of the job, when the session ends.
    pub(super) fn report_job(&mut self, reason: LeaveReason, now: Instant) {
        let has_entered = !matches!(self.phase, RoomPhase::Joining { .. });
        let Some(job) = &mut self.job else { return };
        if std::mem::replace(&mut job.has_ended, true) {
            return;
        }
        job.leave_at = Some(now + JOB_REPORT_WITHIN);
        let outcome = job_outcome(reason, has_entered);
        self.commands.push_back(RoomCommand::Job(JobEvent::Ended(outcome)));
    }

    /// Returns until when the leave waits for the report.
    pub(super) fn leave_deadline(&self) -> Option<Instant> {
        self.job.as_ref().and_then(|job| job.leave_at)
    }

    /// Handles the report of the outcome, which the server has: the bot may leave.
    pub fn handle_job_reported(&mut self, now: Instant) {
        if let Some(job) = &mut self.job
            && job.leave_at.take().is_some()
        {
            self.leave(now);
        }
    }

    /// Leaves although the server may not have the outcome, if it is time.
    pub(super) fn check_leave(&mut self, now: Instant) {
        if self.leave_deadline().is_some_and(|until| now >= until) {
            log::debug!("leaving before the outcome of the job was reported");
            self.handle_job_reported(now);
        }
    }

    /// Handles a job that the server takes back. While the bot is out of the room, the server takes
    /// its job for lost and is wrong. If it means it, it removes the participant too.
    pub fn handle_job_terminated(&mut self, now: Instant) {
        let is_away = self.resume.is_some() || matches!(self.phase, RoomPhase::Reconnecting(_));
        let was_live = !self.is_ending() && !is_away;
        self.commands
            .push_back(RoomCommand::Job(JobEvent::Terminated { was_live }));
        if was_live {
            log::info!("the server took the job back: leaving the room");
            self.end(LeaveReason::Left, now);
        } else {
            log::debug!("the server took the job back while the bot is on its way into the room, which is ignored");
        }
    }

    /// Tells whether a failed bot is started once more: while callers are there, since the room
    /// would get no other one.
    pub(super) fn restarts_bot(&mut self, now: Instant) -> bool {
        let is_in_room = matches!(
            self.phase,
            RoomPhase::Joining { .. } | RoomPhase::Live { .. } | RoomPhase::Reconnecting(_)
        );
        let has_callers = self.participants.has_callers();
        let Some(job) = &mut self.job else {
            return false;
        };
        if !is_in_room || !has_callers || std::mem::replace(&mut job.has_restarted, true) {
            return false;
        }
        self.audio_sender.handle_interruption(now);
        self.bot_queue_empty = true;
        self.participants.report_all(&mut self.events);
        if self.joined {
            self.events.push_back(SessionEvent::Joined);
        }
        if self.lost {
            self.events.push_back(SessionEvent::Lost);
        }
        if self.is_muted {
            self.events.push_back(SessionEvent::Muted(true));
        }
        true
    }
}

/// Returns the outcome of a job whose session ends for this reason.
fn job_outcome(reason: LeaveReason, has_entered: bool) -> JobOutcome {
    match reason {
        LeaveReason::Left | LeaveReason::BotEnded | LeaveReason::Replaced | LeaveReason::Limit => JobOutcome::Success,
        // No caller came.
        LeaveReason::NeverConnected if has_entered => JobOutcome::Success,
        LeaveReason::NeverConnected => JobOutcome::Failed("the room was not entered".into()),
        LeaveReason::Vanished
        | LeaveReason::BotFailed
        | LeaveReason::Shutdown
        | LeaveReason::Failed
        | LeaveReason::Stalled
        | LeaveReason::Protocol
        | LeaveReason::Operator => JobOutcome::Failed(reason.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_follow_from_reasons() {
        let failed = |why: &str| JobOutcome::Failed(why.into());
        for (reason, has_entered, outcome) in [
            (LeaveReason::Left, true, JobOutcome::Success),
            (LeaveReason::BotEnded, true, JobOutcome::Success),
            (LeaveReason::Replaced, true, JobOutcome::Success),
            (LeaveReason::NeverConnected, true, JobOutcome::Success),
            (LeaveReason::NeverConnected, false, failed("the room was not entered")),
            (LeaveReason::BotFailed, true, failed("bot failed")),
            (LeaveReason::Failed, true, failed("transport failed")),
            (LeaveReason::Shutdown, true, failed("runner stopped")),
        ] {
            assert_eq!(job_outcome(reason, has_entered), outcome, "{reason}");
        }
    }
}
