//! The watcher: a room whose bot is lost gets a new one, since the server sends none.
//!
//! In: the room, random bits, the answers of the server's API, and `now`. Out: requests and pauses.
//! Every runner may be told of the same loss: each waits for a random time and looks at the room
//! before it asks for a bot, with what the lost bot was given. Source: `docs/spec/livekit.md` 6.7.

use std::time::{Duration, Instant};

use super::room_api::{AgentDispatch, ListedDispatch, ListedParticipant, RoomApi, RoomMethod};
use super::room_api::{dispatches, participants};
use crate::config::{Mediaroom, MediaroomWorker};
use crate::limits::WATCH_WAIT_MAX;
use crate::server::rest::RestRequest;

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
    api: RoomApi,
    room: String,
    /// The bot to ask for: what the lost one was given, once it is known.
    agent: AgentDispatch,
    phase: WatchPhase,
    words: String,
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
            words: String::new(),
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
        match (self.phase, status) {
            (WatchPhase::Looking, 404) => self.end("the room whose bot was lost is closed"),
            (WatchPhase::Looking, 200) => self.handle_participants(body),
            (WatchPhase::Reading, 200) => self.handle_dispatches(body),
            (WatchPhase::Dispatching, 200) => self.end("a bot was lost: the server is asked for a new one"),
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

    fn handle_participants(&mut self, body: &[u8]) {
        match participants(body) {
            None => self.end("a bot was lost, and the server answered with no list of participants"),
            Some(present) if present.iter().any(|who| who.is_named(&self.agent.agent_name)) => {
                self.end("a bot was lost, and the room has another one");
            }
            Some(present) if !present.iter().any(ListedParticipant::is_caller) => {
                self.end("a bot was lost, and no caller is left in its room");
            }
            Some(_) => self.phase = WatchPhase::Reading,
        }
    }

    fn handle_dispatches(&mut self, body: &[u8]) {
        let Some(dispatches) = dispatches(body) else {
            return self.end("a bot was lost, and the server answered with no list of dispatches");
        };
        let ours = |dispatch: &ListedDispatch| dispatch.agent_name == self.agent.agent_name;
        let ours = dispatches.into_iter().find(ours).unwrap_or_default();
        (self.agent.metadata, self.agent.attributes) = (ours.metadata, ours.attributes);
        self.phase = WatchPhase::Dispatching;
    }

    fn request(&self, now: Instant) -> RestRequest {
        match self.phase {
            WatchPhase::Reading => self.api.room_request(RoomMethod::ListDispatch, &self.room, now),
            WatchPhase::Dispatching => self.api.dispatch_request(&self.agent, &self.room, now),
            WatchPhase::Waiting(_) | WatchPhase::Looking | WatchPhase::Done => {
                self.api.room_request(RoomMethod::ListParticipants, &self.room, now)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{JobType, Secret};

    const NOW_S: u64 = 1_795_252_753;

    /// A watch and its clock.
    struct Run {
        watch: Watch,
        now: Instant,
    }

    impl Run {
        fn new(random: u64) -> Self {
            let config = Mediaroom {
                url: Some("ws://a".into()),
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
            json!({"agentName": "bot", "room": "talk", "metadata": "{\"lang\":\"en\"}", "attributes": {"edge.session_id": "1"}})
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
            (200, json!(["x"]), "no list of participants"),
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
