//! The watcher: a room whose bot is lost gets a new one, since the server sends none.
//!
//! In: webhooks of the server, random bits, the answers of its API, and `now`. Out: whether a
//! webhook is genuine and tells of a lost bot, then requests and pauses. Every runner may be told
//! of the same loss: each waits for a random time and looks at the room before it asks for a bot,
//! with what the lost bot was given. Source: `docs/spec/livekit.md` 6.7; RFC 7515.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use data_encoding::{BASE64, BASE64URL_NOPAD};
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::tokens::service_token;
use crate::config::{Mediaroom, MediaroomWorker, Secret};
use crate::limits::{ROOM_CLOCK_LEEWAY, WATCH_WAIT_MAX};
use crate::livekit::http_base;
use crate::livekit::roster::is_valid_id;
use crate::server::rest::{RestBody, RestMethod, RestRequest, bearer};

/// Why a webhook is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchDenied {
    /// There is no token, or it is none.
    Malformed,
    /// The token is not signed with the API secret, or expired.
    BadSignature,
    /// The token belongs to another body.
    OtherBody,
    /// The body is no event.
    NoEvent,
}

impl fmt::Display for WatchDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WatchDenied::Malformed => "a webhook of LiveKit needs its token in the Authorization header",
            WatchDenied::BadSignature => {
                "the token is not signed with MEDIAROOM_API_SECRET for MEDIAROOM_API_KEY, or it has expired; `webhook.api_key` \
                 of the server must be that key"
            }
            WatchDenied::OtherBody => "the token belongs to another body",
            WatchDenied::NoEvent => "the body is no event of LiveKit",
        })
    }
}

impl std::error::Error for WatchDenied {}

#[derive(Deserialize)]
struct WebhookClaims {
    #[serde(default)]
    iss: String,
    exp: u64,
    #[serde(default)]
    nbf: u64,
    #[serde(default)]
    sha256: String,
}

/// Verifies the token of a webhook: signature, key, times, and the hash of the body.
///
/// # Errors
/// [`WatchDenied`] with the reason.
pub fn verify(authorization: &str, body: &[u8], key: &str, secret: &Secret, now_s: u64) -> Result<(), WatchDenied> {
    let token = authorization.strip_prefix("Bearer ").unwrap_or(authorization).trim();
    let (signed, tag) = token.rsplit_once('.').ok_or(WatchDenied::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(WatchDenied::Malformed)?;
    let decode = |part: &str| {
        BASE64URL_NOPAD
            .decode(part.as_bytes())
            .map_err(|_| WatchDenied::Malformed)
    };
    let (header, claims, tag) = (decode(header)?, decode(claims)?, decode(tag)?);
    let header: Value = serde_json::from_slice(&header).map_err(|_| WatchDenied::Malformed)?;
    if header["alg"] != "HS256" {
        return Err(WatchDenied::BadSignature);
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).expect("HMAC takes a key of any length");
    mac.update(signed.as_bytes());
    mac.verify_slice(&tag).map_err(|_| WatchDenied::BadSignature)?;
    let claims: WebhookClaims = serde_json::from_slice(&claims).map_err(|_| WatchDenied::Malformed)?;
    let leeway = ROOM_CLOCK_LEEWAY.as_secs();
    let is_current = claims.exp.saturating_add(leeway) > now_s && claims.nbf <= now_s.saturating_add(leeway);
    if claims.iss != key || !is_current {
        return Err(WatchDenied::BadSignature);
    }
    match claims.sha256 == BASE64.encode(&Sha256::digest(body)) {
        true => Ok(()),
        false => Err(WatchDenied::OtherBody),
    }
}

/// An event of the server. Members are written in either form.
#[derive(Deserialize)]
struct RoomWebhook {
    event: String,
    #[serde(default)]
    room: EventRoom,
    #[serde(default)]
    participant: EventParticipant,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EventRoom {
    name: String,
}

/// A participant, in events and in lists.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct EventParticipant {
    kind: Value,
    state: Value,
    attributes: BTreeMap<String, String>,
    permission: EventPermission,
    #[serde(alias = "disconnectReason")]
    disconnect_reason: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EventPermission {
    agent: bool,
    hidden: bool,
    recorder: bool,
}

impl EventParticipant {
    fn is_agent(&self) -> bool {
        self.permission.agent || self.kind == "AGENT" || self.kind == 4
    }

    /// Tells whether it is somebody who talks with a bot.
    fn is_caller(&self) -> bool {
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
}

/// Returns the room whose bot of this name was lost; `None` for other events. A bot that left by
/// itself is not lost.
///
/// # Errors
/// [`WatchDenied::NoEvent`] if the body is no event.
pub fn lost_bot(body: &[u8], agent_name: &str) -> Result<Option<String>, WatchDenied> {
    let event: RoomWebhook = serde_json::from_slice(body).map_err(|_| WatchDenied::NoEvent)?;
    let is_end = matches!(&*event.event, "participant_left" | "participant_connection_aborted");
    let reason = &event.participant.disconnect_reason;
    let has_left = *reason == "CLIENT_INITIATED" || *reason == 1;
    let room = event.room.name;
    let is_lost = is_end && !has_left && event.participant.is_named(agent_name) && is_valid_id(&room);
    Ok(is_lost.then_some(room))
}

/// Returns the participants in the answer of `ListParticipants`.
pub(super) fn participants(mut answer: Value) -> Vec<EventParticipant> {
    serde_json::from_value(answer["participants"].take()).unwrap_or_default()
}

/// What the driver does next.
#[derive(Debug, PartialEq)]
pub enum WatchStep {
    Wait(Instant),
    Send(RestRequest),
    /// It is over, with words for the log.
    Done(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchPhase {
    /// Waits until then.
    Waiting(Instant),
    /// Looks at the participants.
    Looking,
    /// Looks at what the lost bot was given.
    Reading,
    Dispatching,
    Done,
}

/// One lost bot, from the webhook to a new one.
pub struct Watch {
    key: String,
    secret: Secret,
    url: String,
    worker: MediaroomWorker,
    room: String,
    metadata: String,
    attributes: BTreeMap<String, String>,
    phase: WatchPhase,
    words: String,
    clock: (Instant, u64),
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
            key: config.key.clone()?,
            secret: config.secret.clone()?,
            url: url.to_owned(),
            worker: worker.clone(),
            room,
            metadata: String::new(),
            attributes: BTreeMap::new(),
            phase: WatchPhase::Waiting(now + wait),
            words: String::new(),
            clock: (now, now_s),
        })
    }

    /// Returns what to do at `now`.
    pub fn poll(&mut self, now: Instant) -> WatchStep {
        if let WatchPhase::Waiting(until) = self.phase {
            if now < until {
                return WatchStep::Wait(until);
            }
            self.phase = WatchPhase::Looking;
        }
        match self.phase {
            WatchPhase::Done => WatchStep::Done(self.words.clone()),
            _ => WatchStep::Send(self.request(now)),
        }
    }

    /// Handles the answer to the last request.
    pub fn handle_answer(&mut self, status: u16, body: &[u8]) {
        let answer: Option<Value> = serde_json::from_slice(body).ok();
        match (self.phase, status, answer) {
            (WatchPhase::Looking, 404, _) => self.end("the room whose bot was lost is closed"),
            (WatchPhase::Looking, 200, Some(answer)) => self.handle_participants(answer),
            (WatchPhase::Reading, 200, Some(answer)) => self.handle_dispatches(answer),
            (WatchPhase::Dispatching, 200, _) => self.end("a bot was lost: the server is asked for a new one"),
            _ => self.end(&format!("a bot was lost, and the server answered with status {status}")),
        }
    }

    /// Handles a request without an answer.
    pub fn handle_unreachable(&mut self, why: &str) {
        self.end(&format!("a bot was lost, and the server was not reached: {why}"));
    }

    fn end(&mut self, words: &str) {
        self.phase = WatchPhase::Done;
        self.words = words.to_owned();
    }

    fn handle_participants(&mut self, answer: Value) {
        let present = participants(answer);
        if present.iter().any(|who| who.is_named(&self.worker.agent_name)) {
            self.end("a bot was lost, and the room has another one");
        } else if !present.iter().any(EventParticipant::is_caller) {
            self.end("a bot was lost, and no caller is left in its room");
        } else {
            self.phase = WatchPhase::Reading;
        }
    }

    fn handle_dispatches(&mut self, mut answer: Value) {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Dispatched {
            #[serde(alias = "agentName")]
            agent_name: String,
            metadata: String,
            attributes: BTreeMap<String, String>,
        }
        let list = match answer["agent_dispatches"].take() {
            Value::Null => answer["agentDispatches"].take(),
            list => list,
        };
        let dispatches = serde_json::from_value::<Vec<Dispatched>>(list).unwrap_or_default();
        let ours = dispatches
            .into_iter()
            .find(|dispatch| dispatch.agent_name == self.worker.agent_name);
        let ours = ours.unwrap_or_default();
        (self.metadata, self.attributes) = (ours.metadata, ours.attributes);
        self.phase = WatchPhase::Dispatching;
    }

    fn request(&self, now: Instant) -> RestRequest {
        let (service, method, body) = match self.phase {
            WatchPhase::Reading => ("AgentDispatchService", "ListDispatch", json!({"room": self.room})),
            WatchPhase::Dispatching => (
                "AgentDispatchService",
                "CreateDispatch",
                json!({
                    "agent_name": self.worker.agent_name,
                    "room": self.room,
                    "metadata": self.metadata,
                    "deployment": self.worker.deployment,
                    "attributes": self.attributes,
                }),
            ),
            WatchPhase::Waiting(_) | WatchPhase::Looking | WatchPhase::Done => {
                ("RoomService", "ListParticipants", json!({"room": self.room}))
            }
        };
        let (then, now_s) = self.clock;
        let now_s = now_s + now.saturating_duration_since(then).as_secs();
        let token = service_token(&self.key, &self.secret, &self.room, now_s);
        RestRequest {
            method: RestMethod::Post,
            url: format!("{}/twirp/livekit.{service}/{method}", http_base(&self.url)),
            authorization: Some(bearer(&token)),
            body: Some(RestBody::json(&body)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JobType;
    use crate::livekit::token::sign;

    const NOW_S: u64 = 1_795_252_753;

    fn token(body: &[u8], change: impl FnOnce(&mut Value), secret: &str) -> String {
        let mut claims = json!({"iss": "devkey", "nbf": NOW_S, "exp": NOW_S + 300,
            "sha256": BASE64.encode(&Sha256::digest(body))});
        change(&mut claims);
        sign(&claims, &Secret::new(secret)).expose().to_owned()
    }

    #[test]
    fn only_the_server_s_webhooks_are_genuine() {
        let body = br#"{"event":"participant_left"}"#;
        let check = |token: &str| verify(token, body, "devkey", &Secret::new("secret"), NOW_S);
        let good = token(body, |_| (), "secret");
        assert_eq!(check(&good), Ok(()));
        assert_eq!(check(&format!("Bearer {good}")), Ok(()));
        for (denied, token) in [
            (WatchDenied::BadSignature, token(body, |_| (), "other")),
            (
                WatchDenied::BadSignature,
                token(body, |claims| claims["iss"] = json!("x"), "secret"),
            ),
            (
                WatchDenied::BadSignature,
                token(body, |claims| claims["exp"] = json!(NOW_S - 61), "secret"),
            ),
            (
                WatchDenied::BadSignature,
                token(body, |claims| claims["nbf"] = json!(NOW_S + 61), "secret"),
            ),
            (
                WatchDenied::Malformed,
                token(body, |claims| claims["exp"] = Value::Null, "secret"),
            ),
            (WatchDenied::OtherBody, token(b"other", |_| (), "secret")),
            (
                WatchDenied::OtherBody,
                token(body, |claims| claims["sha256"] = json!(""), "secret"),
            ),
            (WatchDenied::Malformed, String::new()),
            (WatchDenied::Malformed, "a.b".into()),
            (WatchDenied::Malformed, "a.b.c.d".into()),
        ] {
            assert_eq!(check(&token), Err(denied), "{token}");
        }
        // A token without a signature.
        let none = BASE64URL_NOPAD.encode(br#"{"alg":"none"}"#);
        let claims = good.split('.').nth(1).expect("claims");
        assert_eq!(check(&format!("{none}.{claims}.")), Err(WatchDenied::BadSignature));
    }

    fn event(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut event = json!({
            "event": "participant_left",
            "room": {"sid": "RM_1", "name": "talk"},
            "participant": {"identity": "agent-AJ_1", "kind": "AGENT", "attributes": {"lk.agent.name": "bot"},
                "disconnectReason": "CONNECTION_TIMEOUT"},
        });
        change(&mut event);
        event.to_string().into_bytes()
    }

    #[test]
    fn a_lost_bot_is_one_that_did_not_leave() {
        let lost = |change: fn(&mut Value)| lost_bot(&event(change), "bot");
        let room = Ok(Some("talk".to_owned()));
        assert_eq!(lost(|_| ()), room);
        assert_eq!(
            lost(|event| event["event"] = json!("participant_connection_aborted")),
            room
        );
        assert_eq!(
            lost(|event| event["participant"]["attributes"] = json!({"lk.agent_name": "bot"})),
            room
        );
        for change in [
            (|event| event["event"] = json!("participant_joined")) as fn(&mut Value),
            |event| event["participant"]["disconnectReason"] = json!("CLIENT_INITIATED"),
            |event| event["participant"]["disconnectReason"] = json!(1),
            |event| event["participant"]["kind"] = json!("STANDARD"),
            |event| event["participant"]["attributes"] = json!({"lk.agent.name": "other"}),
            |event| event["participant"]["attributes"] = json!({}),
            |event| event["room"] = json!({}),
        ] {
            assert_eq!(lost(change), Ok(None));
        }
        assert_eq!(lost_bot(b"[]", "bot"), Err(WatchDenied::NoEvent));
        assert_eq!(lost_bot(b"", "bot"), Err(WatchDenied::NoEvent));
    }

    /// A watch and its clock.
    struct Run {
        watch: Watch,
        now: Instant,
    }

    impl Run {
        fn new(random: u64) -> Self {
            let config = Mediaroom {
                key: Some("devkey".into()),
                secret: Some(Secret::new("secret")),
                ..Mediaroom::default()
            };
            let worker = MediaroomWorker {
                job_type: JobType::Room,
                agent_name: "bot".into(),
                deployment: String::new(),
                target_load_percent: 70,
            };
            let now = Instant::now();
            let watch = Watch::new(&config, &worker, "ws://a", "talk".into(), random, (now, NOW_S));
            Run {
                watch: watch.expect("a server"),
                now,
            }
        }

        fn sent(&mut self) -> (String, Value) {
            loop {
                match self.watch.poll(self.now) {
                    WatchStep::Send(request) => {
                        let body = request.body.expect("a body").bytes;
                        let method = request.url.rsplit('/').next().expect("a path").to_owned();
                        return (method, serde_json::from_slice(&body).expect("JSON"));
                    }
                    WatchStep::Wait(until) => self.now = until,
                    WatchStep::Done(words) => return (words, Value::Null),
                }
            }
        }

        fn answer(&mut self, status: u16, body: &Value) {
            self.watch.handle_answer(status, body.to_string().as_bytes());
        }
    }

    /// It waits for a random time, looks, and asks for a bot with what the lost one was given.
    #[test]
    fn a_room_with_callers_and_without_a_bot_gets_one() {
        let mut run = Run::new(1_500);
        let start = run.now;
        assert_eq!(run.sent(), ("ListParticipants".into(), json!({"room": "talk"})));
        assert_eq!(run.now - start, Duration::from_millis(1_500));
        run.answer(
            200,
            &json!({"participants": [
                {"identity": "ann", "kind": "SIP"},
                {"identity": "x", "kind": "AGENT", "attributes": {"lk.agent.name": "other"}},
            ]}),
        );
        assert_eq!(run.sent().0, "ListDispatch");
        run.answer(
            200,
            &json!({"agent_dispatches": [
                {"agent_name": "other", "metadata": "no"},
                {"agent_name": "bot", "metadata": "{\"lang\":\"en\"}", "attributes": {"edge.session_id": "1"}},
            ]}),
        );
        let (method, body) = run.sent();
        assert_eq!(method, "CreateDispatch");
        assert_eq!(
            body,
            json!({"agent_name": "bot", "room": "talk", "metadata": "{\"lang\":\"en\"}", "deployment": "",
                "attributes": {"edge.session_id": "1"}})
        );
        run.answer(200, &json!({"id": "AD_2"}));
        assert!(run.sent().0.contains("asked for a new one"));
    }

    #[test]
    fn other_rooms_get_none() {
        let callers = |list: Value| json!({"participants": list});
        for (status, answer, words) in [
            (200, callers(json!([])), "no caller is left"),
            (200, json!({}), "no caller is left"),
            (
                200,
                callers(json!([{"kind": "EGRESS"}, {"permission": {"hidden": true}}, {"state": "DISCONNECTED"}])),
                "no caller is left",
            ),
            (
                200,
                callers(json!([{}, {"kind": "AGENT", "attributes": {"lk.agent_name": "bot"}}])),
                "has another one",
            ),
            (404, json!({"code": "not_found"}), "is closed"),
            (500, json!({}), "status 500"),
        ] {
            let mut run = Run::new(0);
            run.sent();
            run.answer(status, &answer);
            assert!(run.sent().0.contains(words), "{words}");
        }
        let mut run = Run::new(0);
        run.sent();
        run.watch.handle_unreachable("refused");
        assert!(run.sent().0.contains("was not reached"));
    }
}
