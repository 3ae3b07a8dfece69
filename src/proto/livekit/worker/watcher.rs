//! The watcher: a room whose bot is lost gets a new one, since the server sends none.
//!
//! In: the room, random bits, the answers of the server's API, and `now`. Out: requests and pauses.
//! Every runner may be told of the same loss: each waits for a random time and looks at the room
//! before it asks for a bot, with what the lost bot was given. The server may offer the job to a
//! runner that is gone as well, which it notices late, so the room is looked at once more. A server
//! that does not answer, or is in trouble, is asked again at its next URL, and after a pause.
//! Source: `docs/spec/livekit.md` 6.7.

use std::fmt;
use std::time::{Duration, Instant};

use super::agent_dispatch::AgentDispatch;
use super::room_api::{ListedDispatch, ListedParticipant, RoomApi, RoomMethod};
use super::room_api::{dispatch_id, dispatches, participants};
use crate::job::JobType;
use crate::livekit::config::{Mediaroom, MediaroomWorker};
use crate::server::rest::RestRequest;

/// Longest random pause of a runner before it looks for a bot that was lost: runners that were all
/// told of it look one after the other.
const WATCH_WAIT_MAX: Duration = Duration::from_secs(2);
/// Pauses before a server that failed at all of its URLs is asked about a lost bot again: as long
/// as the restart of a node or of Redis may take.
const WATCH_PAUSES: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(10)];
/// Time for a new bot to be in its room, after which it is asked for again: the server gives a
/// runner that is gone some seconds to answer, and takes it for alive longer than its participants.
const WATCH_CONFIRM_AFTER: Duration = Duration::from_secs(10);
/// Times that a runner asks for a new bot.
const WATCH_DISPATCHES_MAX: usize = 3;

/// What the driver does next.
#[derive(Debug, PartialEq)]
pub enum WatchStep {
    Wait(Instant),
    /// Waits as well. The server has been asked for a bot.
    WaitForBot(Instant),
    Send(RestRequest),
    /// It is over.
    Done(WatchEnd),
}

/// What became of a room that lost its bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    Closed,
    NoCaller,
    HasAnother,
    Dispatched,
    /// A runner has accepted the job that the server was asked for.
    Taken,
    /// It stays without a bot, for this reason.
    Failed(String),
}

impl WatchEnd {
    /// Returns the level at which it is logged.
    pub fn level(&self) -> log::Level {
        match self {
            WatchEnd::Failed(_) => log::Level::Warn,
            _ => log::Level::Info,
        }
    }
}

impl fmt::Display for WatchEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchEnd::Closed => f.write_str("the room whose bot was lost is closed"),
            WatchEnd::NoCaller => f.write_str("a bot was lost, and no caller is left in its room"),
            WatchEnd::HasAnother => f.write_str("a bot was lost, and the room has another one"),
            WatchEnd::Dispatched => f.write_str("a bot was lost: the server is asked for a new one"),
            WatchEnd::Taken => f.write_str("a bot was lost, and a runner has taken its room"),
            WatchEnd::Failed(why) => write!(f, "a bot was lost, and its room gets no new one: {why}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WatchPhase {
    /// Waits until then.
    Waiting(Instant),
    /// Looks at the participants.
    Looking,
    /// Looks at what the lost bot was given.
    Reading,
    Dispatching,
    Done(WatchEnd),
}

/// One lost bot, from the webhook to a new one.
pub struct Watch {
    api: RoomApi,
    room: String,
    /// The bot to ask for: what the lost one was given, once it is known.
    agent: AgentDispatch,
    phase: WatchPhase,
    /// Rounds through all URLs that failed.
    failed_rounds: usize,
    /// Times that the server was asked for a bot.
    dispatches: usize,
    /// The last dispatch, if the room is looked at again.
    dispatch_id: Option<String>,
    job_type: JobType,
}

impl Watch {
    /// Begins to watch a room. `url` is the one that answered last; `now_s` is `now` as Unix time.
    /// `None` without a server.
    pub fn new(
        config: &Mediaroom,
        worker: &MediaroomWorker,
        url: &str,
        room: String,
        random: u64,
        (now, now_s): (Instant, u64),
    ) -> Option<Self> {
        let most_ms = u64::try_from(WATCH_WAIT_MAX.as_millis()).unwrap_or(u64::MAX).max(1);
        let wait = Duration::from_millis(random % most_ms);
        Some(Watch {
            api: RoomApi::new(config, Some(url), (now, now_s))?,
            room,
            agent: AgentDispatch {
                agent_name: worker.agent_name.clone(),
                deployment: worker.deployment.clone(),
                ..AgentDispatch::default()
            },
            phase: WatchPhase::Waiting(now + wait),
            failed_rounds: 0,
            dispatches: 0,
            dispatch_id: None,
            job_type: worker.job_type,
        })
    }

    /// Returns what to do at `now`.
    pub fn poll(&mut self, now: Instant) -> WatchStep {
        if let WatchPhase::Waiting(until) = self.phase {
            if now < until {
                return match self.dispatches {
                    0 => WatchStep::Wait(until),
                    _ => WatchStep::WaitForBot(until),
                };
            }
            self.phase = WatchPhase::Looking;
        }
        match &self.phase {
            WatchPhase::Done(end) => WatchStep::Done(end.clone()),
            _ => WatchStep::Send(self.request(now)),
        }
    }

    /// Handles the answer to the last request.
    pub fn handle_answer(&mut self, status: u16, body: &[u8], now: Instant) {
        match (&self.phase, status) {
            (_, 404) => self.end(WatchEnd::Closed),
            (WatchPhase::Looking, 200) => self.handle_participants(body, now),
            (WatchPhase::Reading, 200) => self.handle_dispatches(body, now),
            (WatchPhase::Dispatching, 200) => self.handle_dispatched(body, now),
            (_, 429 | 500..) => self.try_again(format!("the server answered with status {status}"), now),
            _ => self.end(WatchEnd::Failed(format!("the server answered with status {status}"))),
        }
    }

    /// Handles an accepted dispatch, which the server may have offered to a runner that is gone. It
    /// goes on for participants that come later, unless jobs are for rooms, so only these are asked
    /// for again.
    fn handle_dispatched(&mut self, answer: &[u8], now: Instant) {
        self.dispatches += 1;
        self.dispatch_id = dispatch_id(answer).filter(|_| self.job_type == JobType::Room);
        if self.dispatch_id.is_none() {
            return self.end(WatchEnd::Dispatched);
        }
        log::info!("{}", WatchEnd::Dispatched);
        self.failed_rounds = 0;
        self.api.begin_round();
        self.phase = WatchPhase::Waiting(now + WATCH_CONFIRM_AFTER);
    }

    /// Handles a request without an answer.
    pub fn handle_unreachable(&mut self, why: &str, now: Instant) {
        self.try_again(format!("the server was not reached: {why}"), now);
    }

    /// Begins anew at the next URL, since the room may have changed: at once, or after a pause if
    /// all of them have failed.
    fn try_again(&mut self, why: String, now: Instant) {
        let mut pause = Duration::ZERO;
        if self.api.next_url() {
            let Some(next) = WATCH_PAUSES.get(self.failed_rounds) else {
                return self.end(WatchEnd::Failed(why));
            };
            self.failed_rounds += 1;
            pause = *next;
        }
        log::debug!(
            "a bot was lost: {why}; its room is looked at again in {} s",
            pause.as_secs()
        );
        self.phase = WatchPhase::Waiting(now + pause);
    }

    fn end(&mut self, end: WatchEnd) {
        self.phase = WatchPhase::Done(end);
    }

    fn handle_participants(&mut self, body: &[u8], now: Instant) {
        match participants(body) {
            None => self.try_again("the server answered with no list of participants".to_owned(), now),
            Some(present) if present.iter().any(|who| who.is_named(&self.agent.agent_name)) => {
                self.end(WatchEnd::HasAnother);
            }
            Some(present) if !present.iter().any(ListedParticipant::is_caller) => self.end(WatchEnd::NoCaller),
            Some(_) => self.phase = WatchPhase::Reading,
        }
    }

    fn handle_dispatches(&mut self, body: &[u8], now: Instant) {
        let Some(dispatches) = dispatches(body) else {
            return self.try_again("the server answered with no list of dispatches".to_owned(), now);
        };
        // Its bot may have come and left since, as bots do.
        let is_taken =
            |dispatch: &ListedDispatch| Some(&dispatch.id) == self.dispatch_id.as_ref() && dispatch.has_job();
        if dispatches.iter().any(is_taken) {
            return self.end(WatchEnd::Taken);
        }
        if self.dispatches == WATCH_DISPATCHES_MAX {
            let words = format!("no runner took it, and the server was asked {WATCH_DISPATCHES_MAX} times");
            return self.end(WatchEnd::Failed(words));
        }
        let ours = |dispatch: &ListedDispatch| dispatch.agent_name == self.agent.agent_name;
        let ours = dispatches.into_iter().find(ours).unwrap_or_default();
        (self.agent.metadata, self.agent.attributes) = (ours.metadata, ours.attributes);
        self.phase = WatchPhase::Dispatching;
    }

    fn request(&self, now: Instant) -> RestRequest {
        match self.phase {
            WatchPhase::Reading => self.api.room_request(RoomMethod::ListDispatch, &self.room, now),
            WatchPhase::Dispatching => self.api.dispatch_request(&self.agent, &self.room, now),
            WatchPhase::Waiting(_) | WatchPhase::Looking | WatchPhase::Done(_) => {
                self.api.room_request(RoomMethod::ListParticipants, &self.room, now)
            }
        }
    }
}

#[cfg(test)]
mod tests;
