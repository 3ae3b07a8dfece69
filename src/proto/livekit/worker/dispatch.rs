//! `/start` on a registered runner: the server chooses which runner serves the room.
//!
//! In: the answers of the server's API, and `now`. Out: the requests, pauses, and the reply to the
//! caller. The room is created together with a dispatch. [`DispatchAttempt`] watches the dispatch
//! and the participants until a runner has taken the job: the bot is in the room, or the job is
//! listed, which may take the server 5 s. A room that no runner takes is deleted. A job of a
//! participant waits for the participant, so nothing is watched there. Source:
//! `docs/spec/livekit.md` 6.6.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::tokens::{caller_token, service_token};
use super::watcher::participants;
use crate::config::{JobType, Mediaroom, MediaroomWorker, Secret, StartNames};
use crate::limits::{DISPATCH_POLL, DISPATCH_WITHIN, JOB_METADATA_BYTES_MAX, ROOM_FIRST_CALLER_WITHIN};
use crate::livekit::connection_details::{MissingVariables, caller_reply};
use crate::livekit::{http_base, missing_variables, socket_base, token};
use crate::server::rest::{RestBody, RestMethod, RestRequest, bearer};

/// The attribute of a dispatch that names its session.
pub const SESSION_ID_ATTRIBUTE: &str = "edge.session_id";

/// The request for a bot, in a room's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentDispatch {
    agent_name: String,
    metadata: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    deployment: String,
    attributes: BTreeMap<&'static str, String>,
}

impl AgentDispatch {
    /// Returns the request for a session with this body.
    pub(super) fn new(agent_name: &str, deployment: &str, body: &Value, session_id: &str) -> Self {
        AgentDispatch {
            agent_name: agent_name.to_owned(),
            metadata: body.to_string(),
            deployment: deployment.to_owned(),
            attributes: [(SESSION_ID_ATTRIBUTE, session_id.to_owned())].into(),
        }
    }
}

/// Why `/start` gave no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DispatchError {
    /// The configuration has no server.
    Missing(MissingVariables),
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
    fn method(self) -> &'static str {
        match self {
            DispatchPhase::Create => "CreateRoom",
            DispatchPhase::List | DispatchPhase::Listing | DispatchPhase::Taken => "ListDispatch",
            DispatchPhase::Looking => "ListParticipants",
            DispatchPhase::Dispatch => "CreateDispatch",
            DispatchPhase::Delete => "DeleteRoom",
        }
    }
}

/// One `/start` request, from the creation of the room to the reply.
pub struct DispatchAttempt {
    key: String,
    secret: Secret,
    /// The URLs that have not failed, the current one first.
    urls: Vec<String>,
    worker: MediaroomWorker,
    room: String,
    /// The room belongs to all sessions, and is therefore not deleted.
    is_shared: bool,
    session_id: String,
    /// The names of members of the reply.
    names: StartNames,
    agent: AgentDispatch,
    phase: DispatchPhase,
    now_s: u64,
    limit: Instant,
    next_list: Instant,
    has_dispatched: bool,
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
        let (Some(key), Some(secret)) = (&config.key, &config.secret) else {
            return Err(DispatchError::Missing(MissingVariables::new(missing_variables(config))));
        };
        let mut urls: Vec<String> = config.urls().map(str::to_owned).collect();
        if let Some(at) = urls.iter().position(|url| Some(&**url) == preferred) {
            urls.rotate_left(at);
        }
        if urls.is_empty() {
            return Err(DispatchError::Missing(MissingVariables::new(missing_variables(config))));
        }
        let agent = AgentDispatch::new(&worker.agent_name, &worker.deployment, body, session_id);
        if agent.metadata.len() > JOB_METADATA_BYTES_MAX {
            return Err(DispatchError::BodyTooLong);
        }
        Ok(DispatchAttempt {
            key: key.clone(),
            secret: secret.clone(),
            urls,
            worker: worker.clone(),
            room: config.room_name.clone().unwrap_or_else(|| token::room_name(random)),
            is_shared: config.room_name.is_some(),
            session_id: session_id.to_owned(),
            names: StartNames::default(),
            agent,
            phase: DispatchPhase::Create,
            now_s,
            limit: now + DISPATCH_WITHIN,
            next_list: now,
            has_dispatched: false,
            outcome: None,
        })
    }

    /// Sets which names the members of the reply have.
    #[must_use]
    pub fn with_names(self, names: StartNames) -> Self {
        DispatchAttempt { names, ..self }
    }

    /// Returns until when a request may take.
    pub fn limit(&self) -> Instant {
        self.limit
    }

    /// Returns what to do at `now`.
    pub fn poll(&mut self, now: Instant) -> DispatchStep {
        match (&self.outcome, self.phase) {
            (Some(Ok(())), _) => DispatchStep::Reply(self.reply()),
            (Some(Err(error)), phase) if phase != DispatchPhase::Delete => DispatchStep::Failed(error.clone()),
            (_, DispatchPhase::List) if now < self.next_list => DispatchStep::Wait(self.next_list),
            (_, DispatchPhase::List) => {
                self.phase = DispatchPhase::Listing;
                DispatchStep::Send(self.request())
            }
            _ => DispatchStep::Send(self.request()),
        }
    }

    /// Handles the answer to the last request.
    pub fn handle_answer(&mut self, status: u16, body: &[u8], now: Instant) {
        let phase = self.phase;
        let method = phase.method();
        match (phase, status) {
            (DispatchPhase::Delete, _) => {
                if status != 200 {
                    log::debug!("a room that no runner took was not deleted: status {status}");
                }
                self.phase = DispatchPhase::Taken;
            }
            (_, 401 | 403) => self.fail(DispatchError::Refused(status)),
            (DispatchPhase::Create, 200) if self.worker.job_type != JobType::Room => self.outcome = Some(Ok(())),
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
        if self.urls.len() > 1 && now < self.limit {
            self.urls.remove(0);
        } else {
            self.outcome = Some(Err(DispatchError::Unreachable(why)));
        }
    }

    fn handle_list(&mut self, body: &[u8]) {
        let Ok(list) = serde_json::from_slice::<DispatchList>(body) else {
            return self.fail(DispatchError::Malformed("ListDispatch"));
        };
        let mut ours = list
            .agent_dispatches
            .iter()
            .filter(|dispatch| dispatch.agent_name == self.worker.agent_name)
            .peekable();
        let is_new = ours.peek().is_none() && self.is_shared && !self.has_dispatched;
        let is_taken = |dispatch: &ListedDispatch| dispatch.state.as_ref().is_some_and(|state| !state.jobs.is_empty());
        if ours.any(is_taken) {
            self.outcome = Some(Ok(()));
        } else if is_new {
            // The room existed before, and then its configuration is ignored.
            self.has_dispatched = true;
            self.phase = DispatchPhase::Dispatch;
        } else {
            self.phase = DispatchPhase::Looking;
        }
    }

    fn handle_participants(&mut self, body: &[u8], now: Instant) {
        let Ok(answer) = serde_json::from_slice(body) else {
            return self.fail(DispatchError::Malformed("ListParticipants"));
        };
        let present = participants(answer);
        match present.iter().any(|who| who.is_named(&self.worker.agent_name)) {
            true => self.outcome = Some(Ok(())),
            false => self.again(now),
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
                agent_name: self.worker.agent_name.clone(),
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

    fn request(&self) -> RestRequest {
        let (service, body) = match self.phase {
            DispatchPhase::Create => (
                "RoomService",
                json!({
                    "name": self.room,
                    "empty_timeout": ROOM_FIRST_CALLER_WITHIN.as_secs(),
                    "agents": [self.agent],
                }),
            ),
            DispatchPhase::Dispatch => (
                "AgentDispatchService",
                json!({
                    "agent_name": self.agent.agent_name,
                    "room": self.room,
                    "metadata": self.agent.metadata,
                    "deployment": self.agent.deployment,
                    "attributes": self.agent.attributes,
                }),
            ),
            DispatchPhase::Delete | DispatchPhase::Looking => ("RoomService", json!({"room": self.room})),
            DispatchPhase::List | DispatchPhase::Listing | DispatchPhase::Taken => {
                ("AgentDispatchService", json!({"room": self.room}))
            }
        };
        let base = http_base(self.urls.first().map(String::as_str).unwrap_or_default());
        let token = service_token(&self.key, &self.secret, &self.room, self.now_s);
        RestRequest {
            method: RestMethod::Post,
            url: format!("{base}/twirp/livekit.{service}/{}", self.phase.method()),
            authorization: Some(bearer(&token)),
            body: Some(RestBody::json(&body)),
        }
    }

    fn reply(&self) -> Vec<u8> {
        let identity = token::user_identity(&self.session_id);
        let token = caller_token(
            (&self.key, &self.secret),
            &identity,
            &self.room,
            &self.agent,
            self.now_s,
        );
        let url = socket_base(self.urls.first().map(String::as_str).unwrap_or_default());
        caller_reply(self.names, &url, &token, &self.room, &self.session_id)
    }
}

/// The answer of `ListDispatch`. Servers write either form of a name.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DispatchList {
    #[serde(alias = "agentDispatches")]
    agent_dispatches: Vec<ListedDispatch>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListedDispatch {
    #[serde(alias = "agentName")]
    agent_name: String,
    state: Option<ListedState>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListedState {
    /// A job is listed once a worker has accepted it.
    jobs: Vec<serde::de::IgnoredAny>,
}

#[cfg(test)]
mod tests;
