//! The API of a LiveKit server for one room: its requests, and the lists that it answers with.
//!
//! In: the configuration, a method with the members of its request, the body of an answer. Out: a
//! [`RestRequest`] to the current URL of the server, who is in the room, and which bots were asked
//! for. Servers write names of members in either form, and absent members as `null` or not at all;
//! whatever else an answer contains is ignored. Source: `docs/spec/livekit.md` 6.6.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};
use serde_json::{Value, json};

use super::agent_dispatch::{AgentDispatch, SESSION_ID_ATTRIBUTE};
use super::tokens::service_token;
use crate::livekit::config::Mediaroom;
use crate::livekit::http_base;
use crate::secret::Secret;
use crate::server::rest::{RestBody, RestMethod, RestRequest, bearer};

/// A method of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomMethod {
    CreateRoom,
    DeleteRoom,
    ListParticipants,
    CreateDispatch,
    ListDispatch,
}

impl RoomMethod {
    /// Returns the name of the method.
    pub(super) fn name(self) -> &'static str {
        match self {
            RoomMethod::CreateRoom => "CreateRoom",
            RoomMethod::DeleteRoom => "DeleteRoom",
            RoomMethod::ListParticipants => "ListParticipants",
            RoomMethod::CreateDispatch => "CreateDispatch",
            RoomMethod::ListDispatch => "ListDispatch",
        }
    }

    fn service(self) -> &'static str {
        match self {
            RoomMethod::CreateRoom | RoomMethod::DeleteRoom | RoomMethod::ListParticipants => "RoomService",
            RoomMethod::CreateDispatch | RoomMethod::ListDispatch => "AgentDispatchService",
        }
    }
}

/// Access to the API of one server, which may have several URLs.
pub(super) struct RoomApi {
    pub key: String,
    pub secret: Secret,
    /// At least one.
    urls: Vec<String>,
    /// The current one.
    at: usize,
    /// The same moment by the monotonic and by the Unix clock, in seconds.
    clock: (Instant, u64),
}

impl RoomApi {
    /// Returns access by this configuration; `None` if it names no server. `preferred` is the URL
    /// that answered last; `clock` is the same moment by the monotonic clock and as Unix time.
    pub(super) fn new(config: &Mediaroom, preferred: Option<&str>, clock: (Instant, u64)) -> Option<Self> {
        let mut urls: Vec<String> = config.urls().map(str::to_owned).collect();
        if let Some(at) = urls.iter().position(|url| Some(&**url) == preferred) {
            urls.rotate_left(at);
        }
        Some(RoomApi {
            key: config.key.clone()?,
            secret: config.secret.clone()?,
            urls: (!urls.is_empty()).then_some(urls)?,
            at: 0,
            clock,
        })
    }

    /// Returns the current URL.
    pub(super) fn url(&self) -> &str {
        &self.urls[self.at]
    }

    /// Turns to the next URL, since the current one failed. Tells whether all were tried.
    pub(super) fn next_url(&mut self) -> bool {
        self.at = (self.at + 1) % self.urls.len();
        self.at == 0
    }

    /// Begins another round through the URLs with the current one, which has answered.
    pub(super) fn begin_round(&mut self) {
        self.urls.rotate_left(self.at);
        self.at = 0;
    }

    /// Returns a request that names the room alone.
    pub(super) fn room_request(&self, method: RoomMethod, room: &str, now: Instant) -> RestRequest {
        self.request(method, room, &json!({"room": room}), now)
    }

    /// Returns the request for a bot in a room that exists.
    pub(super) fn dispatch_request(&self, agent: &AgentDispatch, room: &str, now: Instant) -> RestRequest {
        let mut body = json!(agent);
        body["room"] = room.into();
        self.request(RoomMethod::CreateDispatch, room, &body, now)
    }

    /// Returns a request to the current URL.
    pub(super) fn request(&self, method: RoomMethod, room: &str, body: &Value, now: Instant) -> RestRequest {
        let token = service_token(&self.key, &self.secret, room, self.unix_s(now));
        let base = http_base(self.url());
        RestRequest {
            method: RestMethod::Post,
            url: format!("{base}/twirp/livekit.{}/{}", method.service(), method.name()),
            authorization: Some(bearer(&token)),
            body: Some(RestBody::json(body)),
        }
    }

    /// Returns `now` as Unix time.
    pub(super) fn unix_s(&self, now: Instant) -> u64 {
        let (then, unix_s) = self.clock;
        unix_s + now.saturating_duration_since(then).as_secs()
    }
}

/// A participant, in lists and in events.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::livekit) struct ListedParticipant {
    kind: Value,
    state: Value,
    #[serde(deserialize_with = "or_default")]
    attributes: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    permission: ListedPermission,
    #[serde(alias = "disconnectReason")]
    disconnect_reason: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListedPermission {
    agent: bool,
    hidden: bool,
    recorder: bool,
}

impl ListedParticipant {
    /// Tells whether it is a bot.
    pub(in crate::livekit) fn is_agent(&self) -> bool {
        self.permission.agent || self.kind == "AGENT" || self.kind == 4
    }

    /// Tells whether it is somebody who talks with a bot.
    pub(in crate::livekit) fn is_caller(&self) -> bool {
        let is_service = ["EGRESS", "INGRESS"].iter().any(|kind| self.kind == *kind) || self.kind == 2;
        let is_gone = self.state == "DISCONNECTED" || self.state == 3;
        !self.is_agent() && !is_service && !is_gone && !self.permission.hidden && !self.permission.recorder
    }

    /// Tells whether it is a bot of this name. The server adds `lk.agent_name`, workers
    /// `lk.agent.name`.
    pub(super) fn is_named(&self, agent_name: &str) -> bool {
        let names = ["lk.agent.name", "lk.agent_name"];
        let held = names.iter().find_map(|name| self.attributes.get(*name));
        self.is_agent() && held.map_or("", String::as_str) == agent_name
    }

    /// Tells whether it left by itself.
    pub(super) fn has_left(&self) -> bool {
        self.disconnect_reason == "CLIENT_INITIATED" || self.disconnect_reason == 1
    }
}

/// A bot that was asked for.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ListedDispatch {
    #[serde(deserialize_with = "or_default")]
    pub id: String,
    #[serde(alias = "agentName", deserialize_with = "or_default")]
    pub agent_name: String,
    #[serde(deserialize_with = "or_default")]
    pub metadata: String,
    #[serde(deserialize_with = "or_default")]
    pub attributes: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    state: ListedState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListedState {
    #[serde(deserialize_with = "or_default")]
    jobs: Vec<IgnoredAny>,
}

impl ListedDispatch {
    /// Tells whether it was made for this session.
    pub(super) fn is_of(&self, session_id: &str) -> bool {
        self.attributes
            .get(SESSION_ID_ATTRIBUTE)
            .is_some_and(|id| id == session_id)
    }

    /// Tells whether a worker has ever accepted its job: the list keeps the jobs of bots that are
    /// gone.
    pub(super) fn has_job(&self) -> bool {
        !self.state.jobs.is_empty()
    }
}

/// Reads the answer of `ListParticipants`; `None` if it is none.
pub(in crate::livekit) fn participants(answer: &[u8]) -> Option<Vec<ListedParticipant>> {
    #[derive(Deserialize)]
    struct ParticipantList {
        #[serde(default, deserialize_with = "or_default")]
        participants: Vec<ListedParticipant>,
    }
    let list: ParticipantList = serde_json::from_slice(answer).ok()?;
    Some(list.participants)
}

/// Reads the answer of `ListDispatch`; `None` if it is none.
pub(super) fn dispatches(answer: &[u8]) -> Option<Vec<ListedDispatch>> {
    #[derive(Deserialize)]
    struct DispatchList {
        #[serde(default, alias = "agentDispatches", deserialize_with = "or_default")]
        agent_dispatches: Vec<ListedDispatch>,
    }
    let list: DispatchList = serde_json::from_slice(answer).ok()?;
    Some(list.agent_dispatches)
}

/// Reads the answer of `CreateDispatch`, and returns the id of the dispatch; `None` if it has none.
pub(super) fn dispatch_id(answer: &[u8]) -> Option<String> {
    let dispatch: ListedDispatch = serde_json::from_slice(answer).ok()?;
    (!dispatch.id.is_empty()).then_some(dispatch.id)
}

/// Reads a member that may be `null`.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(member: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(member)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server may answer with anything: what is no list is reported as such, and never panics.
    #[test]
    fn an_answer_that_is_no_list_is_not_an_empty_one() {
        for answer in [
            "",
            "1",
            "true",
            "null",
            r#""x""#,
            "[1]",
            "{",
            r#"{"participants": 1, "agent_dispatches": 1}"#,
            r#"{"participants": {}, "agent_dispatches": {}}"#,
            r#"{"participants": [1], "agent_dispatches": ["x"]}"#,
            r#"{"participants": [{"attributes": 1}], "agentDispatches": [{"state": {"jobs": 1}}]}"#,
        ] {
            assert!(participants(answer.as_bytes()).is_none(), "{answer}");
            assert!(dispatches(answer.as_bytes()).is_none(), "{answer}");
            assert!(dispatch_id(answer.as_bytes()).is_none(), "{answer}");
        }
        for answer in [
            "{}",
            "[]",
            r#"{"participants": null, "agent_dispatches": null}"#,
            r#"{"participants": [], "agentDispatches": []}"#,
        ] {
            assert!(
                participants(answer.as_bytes()).is_some_and(|list| list.is_empty()),
                "{answer}"
            );
            assert!(
                dispatches(answer.as_bytes()).is_some_and(|list| list.is_empty()),
                "{answer}"
            );
        }
    }

    #[test]
    fn members_may_be_null_or_absent_and_have_either_form() {
        let listed = participants(
            br#"{"participants": [{}, {"kind": null, "state": null, "attributes": null, "permission": null},
                {"permission": {"agent": true}, "attributes": {"lk.agent_name": "bot"}}]}"#,
        );
        let listed = listed.expect("a list");
        assert!(listed[0].is_caller() && listed[1].is_caller());
        assert!(listed[2].is_named("bot") && !listed[2].is_caller());
        let listed = dispatches(
            br#"{"agentDispatches": [{"agentName": "bot", "state": null, "attributes": null, "metadata": null},
                {"agent_name": "bot", "attributes": {"edge.session_id": "s"}, "state": {"jobs": [{"id": "AJ_1"}]}}]}"#,
        );
        let listed = listed.expect("a list");
        assert!(listed.iter().all(|dispatch| dispatch.agent_name == "bot"));
        assert!(!listed[0].has_job() && !listed[0].is_of("s"));
        assert!(listed[1].has_job() && listed[1].is_of("s") && !listed[1].is_of("t"));
    }
}
