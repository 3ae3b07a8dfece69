//! `/start` on a registered runner: the server chooses which runner serves the room.
//!
//! In: the answers of the server's API, and `now`. Out: the requests, pauses, and the reply to the
//! caller. The room is created together with a dispatch. [`DispatchAttempt`] watches the dispatch
//! and the participants until a runner has taken the job: the bot is in the room, or the job is
//! listed, which may take the server 5 s. A room that no runner takes is deleted. A room that all
//! sessions share may exist, and its list has the jobs of earlier sessions: only the dispatch of
//! this session counts, and it is made if the room is without a bot. A job of a participant waits
//! for the participant, so nothing is watched there. Source: `docs/spec/livekit.md` 6.6.

use std::fmt;
use std::time::Instant;

use serde_json::{Value, json};

use super::agent_dispatch::{AgentDispatch, BOT_ATTRIBUTE};
use super::requester;
use super::room_api::{ListedDispatch, RoomApi, RoomMethod};
use super::room_api::{dispatches, participants};
use super::tokens::caller_token;
use crate::aliases::StartNames;
use crate::job::JobType;
use crate::limits::{DISPATCH_POLL, DISPATCH_WITHIN, DISPATCHES_MAX, JOB_METADATA_BYTES_MAX, ROOM_FIRST_CALLER_WITHIN};
use crate::livekit::config::{Mediaroom, MediaroomWorker};
use crate::livekit::connection_details::{MissingVariables, caller_reply};
use crate::livekit::{missing_variables, socket_base, token};
use crate::server::admission::{AdmissionError, Requester};
use crate::server::rest::RestRequest;

/// Why `/start` gave no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DispatchError {
    /// The configuration has no server.
    Missing(MissingVariables),
    /// Too many requests wait for a runner, of this source or in all.
    TooMany(AdmissionError),
    /// The body is longer than the metadata of a job may be.
    BodyTooLong,
    /// The server rejects the API key.
    Refused(u16),
    /// The server's answer to a request was no success.
    Status { method: &'static str, status: u16 },
    /// The server's answer to a request is not what it should be.
    Malformed(&'static str),
    /// No URL of the server answers.
    Unreachable(String),
    /// No runner has taken the job.
    NotTaken { agent_name: String },
}

impl fmt::Display for DispatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DispatchError::Missing(missing) => missing.fmt(f),
            DispatchError::TooMany(AdmissionError::Full) => write!(
                f,
                "{DISPATCHES_MAX} requests wait for a runner to take their room; try again later"
            ),
            DispatchError::TooMany(AdmissionError::SourceShare) => f.write_str(
                "this address has its share of the requests that wait for a runner; try again later (a server that asks for \
                 many callers needs the key, see --api-key-file)",
            ),
            DispatchError::BodyTooLong => write!(
                f,
                "the body of a room may have {JOB_METADATA_BYTES_MAX} bytes as JSON: send a smaller `body`"
            ),
            DispatchError::Refused(status) => write!(
                f,
                "the LiveKit server refused to create a room ({status}): MEDIAROOM_API_KEY or MEDIAROOM_API_SECRET is wrong, \
                 or the clocks differ"
            ),
            DispatchError::Status { method, status } => {
                write!(f, "the LiveKit server answered {method} with status {status}")
            }
            DispatchError::Malformed(method) => {
                write!(
                    f,
                    "the LiveKit server answered {method} with something else than expected"
                )
            }
            DispatchError::Unreachable(why) => write!(f, "the LiveKit server was not reached: {why}"),
            DispatchError::NotTaken { agent_name } => write!(
                f,
                "no runner took the call within {} s: all are full, draining, or not registered as `{agent_name}`; try again later",
                DISPATCH_WITHIN.as_secs()
            ),
        }
    }
}

impl std::error::Error for DispatchError {}

/// What the driver does next.
#[derive(Debug, PartialEq)]
pub enum DispatchStep {
    /// Sends a request, and reports its answer.
    Send(RestRequest),
    /// Waits until then, and asks again.
    Wait(Instant),
    /// Replies with this JSON.
    Reply(Vec<u8>),
    Failed(DispatchError),
}

/// The request that is being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DispatchPhase {
    Create,
    /// The next list is due at this time, and the last at the limit.
    List,
    Listing,
    /// Looks for the bot among the participants.
    Looking,
    /// A room that existed before has no bot, so one is asked for.
    Dispatch,
    Delete,
    Taken,
}

impl DispatchPhase {
    fn method(self) -> RoomMethod {
        match self {
            DispatchPhase::Create => RoomMethod::CreateRoom,
            DispatchPhase::List | DispatchPhase::Listing | DispatchPhase::Taken => RoomMethod::ListDispatch,
            DispatchPhase::Looking => RoomMethod::ListParticipants,
            DispatchPhase::Dispatch => RoomMethod::CreateDispatch,
            DispatchPhase::Delete => RoomMethod::DeleteRoom,
        }
    }
}

/// One `/start` request, from the creation of the room to the reply.
pub struct DispatchAttempt {
    api: RoomApi,
    job_type: JobType,
    room: String,
    /// The room belongs to all sessions, and is therefore not deleted.
    is_shared: bool,
    session_id: String,
    /// The names of members of the reply.
    names: StartNames,
    agent: AgentDispatch,
    phase: DispatchPhase,
    limit: Instant,
    next_list: Instant,
    /// The server was asked for the bot of this session: a room that is made is made with it.
    is_dispatched: bool,
    outcome: Option<Result<(), DispatchError>>,
}

impl DispatchAttempt {
    /// Begins an attempt. `preferred` is the URL that answered last; `random` names the room if the
    /// configuration does not; `now_s` is `now` as Unix time.
    ///
    /// # Errors
    /// [`DispatchError`] if the configuration or the body does not permit it.
    pub fn new(
        config: &Mediaroom,
        worker: &MediaroomWorker,
        preferred: Option<&str>,
        (session_id, body): (&str, &Value),
        random: [u8; 4],
        (now, now_s): (Instant, u64),
    ) -> Result<Self, DispatchError> {
        let Some(api) = RoomApi::new(config, preferred, (now, now_s)) else {
            return Err(DispatchError::Missing(MissingVariables::new(missing_variables(config))));
        };
        let agent = AgentDispatch::new(&worker.agent_name, &worker.deployment, body, session_id);
        if agent.metadata.len() > JOB_METADATA_BYTES_MAX {
            return Err(DispatchError::BodyTooLong);
        }
        Ok(DispatchAttempt {
            api,
            job_type: worker.job_type,
            room: config.room_name.clone().unwrap_or_else(|| token::room_name(random)),
            is_shared: config.room_name.is_some(),
            session_id: session_id.to_owned(),
            names: StartNames::default(),
            agent,
            phase: DispatchPhase::Create,
            limit: now + DISPATCH_WITHIN,
            next_list: now,
            is_dispatched: config.room_name.is_none(),
            outcome: None,
        })
    }

    /// Sets which names the members of the reply have.
    #[must_use]
    pub fn with_names(self, names: StartNames) -> Self {
        DispatchAttempt { names, ..self }
    }

    /// Sets who asks, for the quotas of the runner that takes the job.
    #[must_use]
    pub fn with_requester(mut self, requester: Requester) -> Self {
        requester::write(&mut self.agent.attributes, requester, &self.api.secret);
        self
    }

    /// Sets which of several bots the job is for.
    #[must_use]
    pub fn with_bot(mut self, bot: Option<&str>) -> Self {
        let attribute = bot.map(|bot| (BOT_ATTRIBUTE.to_owned(), bot.to_owned()));
        self.agent.attributes.extend(attribute);
        self
    }

    /// Returns until when a request may take.
    pub fn limit(&self) -> Instant {
        self.limit
    }

    /// Returns what to do at `now`.
    pub fn poll(&mut self, now: Instant) -> DispatchStep {
        match (&self.outcome, self.phase) {
            (Some(Ok(())), _) => DispatchStep::Reply(self.reply(now)),
            (Some(Err(error)), phase) if phase != DispatchPhase::Delete => DispatchStep::Failed(error.clone()),
            (_, DispatchPhase::List) if now < self.next_list => DispatchStep::Wait(self.next_list),
            (_, DispatchPhase::List) => {
                self.phase = DispatchPhase::Listing;
                DispatchStep::Send(self.request(now))
            }
            _ => DispatchStep::Send(self.request(now)),
        }
    }

    /// Handles the answer to the last request.
    pub fn handle_answer(&mut self, status: u16, body: &[u8], now: Instant) {
        let phase = self.phase;
        let method = phase.method().name();
        match (phase, status) {
            (DispatchPhase::Delete, _) => {
                if status != 200 {
                    log::debug!("a room that no runner took was not deleted: status {status}");
                }
                self.phase = DispatchPhase::Taken;
            }
            (_, 401 | 403) => self.fail(DispatchError::Refused(status)),
            (DispatchPhase::Create, 200) if self.job_type != JobType::Room => self.outcome = Some(Ok(())),
            (DispatchPhase::Create | DispatchPhase::Dispatch, 200) => {
                self.phase = DispatchPhase::List;
                self.next_list = now;
            }
            (DispatchPhase::Listing, 200) => self.handle_list(body),
            // A room that was made this moment may be unknown to the node that is asked.
            (DispatchPhase::Listing | DispatchPhase::Looking, 404) => self.again(now),
            (DispatchPhase::Looking, 200) => self.handle_participants(body, now),
            _ => self.fail(DispatchError::Status { method, status }),
        }
    }

    /// Handles a request without an answer. The next URL is tried.
    pub fn handle_unreachable(&mut self, why: String, now: Instant) {
        if self.phase == DispatchPhase::Delete {
            log::debug!("a room that no runner took was not deleted: {why}");
            self.phase = DispatchPhase::Taken;
            return;
        }
        if matches!(self.phase, DispatchPhase::Listing | DispatchPhase::Looking) {
            self.phase = DispatchPhase::List;
        }
        if self.api.next_url() || now >= self.limit {
            self.fail(DispatchError::Unreachable(why));
        }
    }

    fn handle_list(&mut self, body: &[u8]) {
        let Some(list) = dispatches(body) else {
            return self.fail(DispatchError::Malformed("ListDispatch"));
        };
        // Other sessions have used a shared room, and the list keeps their dispatches and jobs.
        let ours = list
            .iter()
            .filter(|dispatch| dispatch.agent_name == self.agent.agent_name)
            .filter(|dispatch| !self.is_shared || dispatch.is_of(&self.session_id));
        let jobs: Vec<bool> = ours.map(ListedDispatch::has_job).collect();
        self.is_dispatched |= !jobs.is_empty();
        match jobs.contains(&true) {
            true => self.outcome = Some(Ok(())),
            false => self.phase = DispatchPhase::Looking,
        }
    }

    fn handle_participants(&mut self, body: &[u8], now: Instant) {
        let Some(present) = participants(body) else {
            return self.fail(DispatchError::Malformed("ListParticipants"));
        };
        if present.iter().any(|who| who.is_named(&self.agent.agent_name)) {
            self.outcome = Some(Ok(()));
        } else if self.is_dispatched {
            self.again(now);
        } else {
            // The room existed before, and then its configuration is ignored.
            self.is_dispatched = true;
            self.phase = DispatchPhase::Dispatch;
        }
    }

    /// Handles the news that this runner has taken the job.
    pub fn handle_taken(&mut self) {
        self.outcome.get_or_insert(Ok(()));
    }

    fn again(&mut self, now: Instant) {
        self.phase = DispatchPhase::List;
        self.next_list = now + DISPATCH_POLL;
        if self.next_list > self.limit {
            self.fail(DispatchError::NotTaken {
                agent_name: self.agent.agent_name.clone(),
            });
        }
    }

    /// Gives up. A room of this session alone is deleted first.
    fn fail(&mut self, error: DispatchError) {
        let exists = self.phase != DispatchPhase::Create;
        self.outcome = Some(Err(error));
        self.phase = match exists && !self.is_shared {
            true => DispatchPhase::Delete,
            false => DispatchPhase::Taken,
        };
    }

    fn request(&self, now: Instant) -> RestRequest {
        let (api, room) = (&self.api, &self.room);
        match self.phase.method() {
            RoomMethod::CreateRoom => {
                let body = json!({
                    "name": room,
                    "empty_timeout": ROOM_FIRST_CALLER_WITHIN.as_secs(),
                    "agents": [self.agent],
                });
                api.request(RoomMethod::CreateRoom, room, &body, now)
            }
            RoomMethod::CreateDispatch => api.dispatch_request(&self.agent, room, now),
            method => api.room_request(method, room, now),
        }
    }

    fn reply(&self, now: Instant) -> Vec<u8> {
        let identity = token::user_identity(&self.session_id);
        let token = caller_token(
            (&self.api.key, &self.api.secret),
            &identity,
            &self.room,
            &self.agent,
            self.api.unix_s(now),
        );
        let url = socket_base(self.api.url());
        caller_reply(self.names, &url, &token, &self.room, &self.session_id)
    }
}

#[cfg(test)]
mod tests;
