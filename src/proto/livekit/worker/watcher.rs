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
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::job::JobType;
    use crate::secret::Secret;

    const NOW_S: u64 = 1_795_252_753;

    /// A watch and its clock.
    struct Run {
        watch: Watch,
        now: Instant,
    }

    impl Run {
        fn new(random: u64) -> Self {
            Self::with(random, JobType::Room)
        }

        fn with(random: u64, job_type: JobType) -> Self {
            let config = Mediaroom {
                url: Some("ws://a".into()),
                other_urls: vec!["ws://b".into()],
                key: Some("devkey".into()),
                secret: Some(Secret::new("secret")),
                ..Mediaroom::default()
            };
            let worker = MediaroomWorker {
                job_type,
                agent_name: "bot".into(),
                deployment: String::new(),
                target_load_percent: 70,
            };
            let now = Instant::now();
            let watch = Watch::new(&config, &worker, "ws://b", "talk".into(), random, (now, NOW_S));
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
                    WatchStep::Wait(until) | WatchStep::WaitForBot(until) => self.now = until,
                    WatchStep::Done(end) => return (end.to_string(), Value::Null),
                }
            }
        }

        fn answer(&mut self, status: u16, body: &Value) {
            self.watch.handle_answer(status, body.to_string().as_bytes(), self.now);
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
        assert_eq!(run.sent().0, "ListParticipants");
        assert_eq!(run.now - start, Duration::from_millis(1_500) + WATCH_CONFIRM_AFTER);
        run.answer(
            200,
            &json!({"participants": [{}, {"kind": "AGENT", "attributes": {"lk.agent.name": "bot"}}]}),
        );
        assert!(run.sent().0.contains("has another one"));
    }

    /// Looks at a room with a caller and these dispatches, and asks for a bot.
    fn dispatch(run: &mut Run, dispatches: &Value, answer: &Value) {
        for (method, answer) in [
            ("ListParticipants", &json!({"participants": [{"identity": "ann"}]})),
            ("ListDispatch", dispatches),
            ("CreateDispatch", answer),
        ] {
            assert_eq!(run.sent().0, method);
            run.answer(200, answer);
        }
    }

    /// A bot that no runner starts is asked for again, but not for ever.
    #[test]
    fn a_bot_that_does_not_come_is_asked_for_again() {
        let mut run = Run::new(0);
        for at in 0..WATCH_DISPATCHES_MAX {
            let made = (1..=at).map(|at| json!({"id": format!("AD_{at}"), "agent_name": "bot"}));
            let listed = json!({"agent_dispatches": made.collect::<Vec<_>>()});
            dispatch(&mut run, &listed, &json!({"id": format!("AD_{}", at + 1)}));
            assert!(matches!(run.watch.poll(run.now), WatchStep::WaitForBot(_)));
        }
        run.sent();
        run.answer(200, &json!({"participants": [{"identity": "ann"}]}));
        run.sent();
        run.answer(200, &json!({}));
        assert!(run.sent().0.contains("gets no new one: no runner took it"));
    }

    /// A bot that came and has ended its talk does not begin anew.
    #[test]
    fn a_bot_that_came_and_left_is_not_asked_for_again() {
        let mut run = Run::new(0);
        dispatch(&mut run, &json!({}), &json!({"id": "AD_2"}));
        assert_eq!(run.sent().0, "ListParticipants");
        run.answer(200, &json!({"participants": [{"identity": "ann"}]}));
        assert_eq!(run.sent().0, "ListDispatch");
        let taken = |id: &str| json!({"id": id, "agent_name": "bot", "state": {"jobs": [{"id": "AJ_1"}]}});
        run.answer(200, &json!({"agent_dispatches": [taken("AD_1"), taken("AD_2")]}));
        assert!(run.sent().0.contains("a runner has taken its room"));
    }

    /// The dispatches of jobs for participants would each serve those that come later.
    #[test]
    fn bots_of_participants_are_asked_for_once() {
        for job_type in [JobType::Participant, JobType::Publisher] {
            let mut run = Run::with(0, job_type);
            dispatch(&mut run, &json!({}), &json!({"id": "AD_2"}));
            assert!(run.sent().0.contains("is asked for a new one"));
        }
    }

    /// A server that was in trouble before it was asked for a bot gets the same patience
    /// afterwards, beginning with the URL that answered.
    #[test]
    fn each_request_for_a_bot_has_all_attempts() {
        let mut run = Run::new(0);
        for _ in 0..5 {
            run.sent();
            run.watch.handle_unreachable("refused", run.now);
        }
        dispatch(&mut run, &json!({}), &json!({"id": "AD_2"}));
        let start = run.now;
        for _ in 0..8 {
            run.sent();
            run.watch.handle_unreachable("refused", run.now);
        }
        assert!(run.sent().0.contains("gets no new one"));
        assert_eq!(
            run.now - start,
            WATCH_CONFIRM_AFTER + WATCH_PAUSES.iter().sum::<Duration>()
        );
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
            (401, json!({}), "status 401"),
        ] {
            let mut run = Run::new(0);
            run.sent();
            run.answer(status, &answer);
            assert!(run.sent().0.contains(words), "{words}");
        }
    }

    /// One failure does not leave the callers alone: the next URL is asked at once, both again
    /// after pauses, and only then is it over, with a warning.
    #[test]
    fn a_server_in_trouble_is_asked_again() {
        let mut run = Run::new(0);
        let start = run.now;
        let mut asked = Vec::new();
        let end = loop {
            match run.watch.poll(run.now) {
                WatchStep::Wait(until) | WatchStep::WaitForBot(until) => run.now = until,
                WatchStep::Done(end) => break end,
                WatchStep::Send(request) => {
                    asked.push(((run.now - start).as_secs(), request.url[..8].to_owned()));
                    match asked.len() % 3 {
                        0 => run.answer(503, &json!({})),
                        1 => run.watch.handle_unreachable("refused", run.now),
                        _ => run.answer(200, &json!(["x"])),
                    }
                }
            }
        };
        let [a, b] = ["http://a", "http://b"].map(str::to_owned);
        let expected = [0, 2, 7, 17].map(|at| [(at, b.clone()), (at, a.clone())]).concat();
        assert_eq!(asked, expected);
        assert_eq!(end.level(), log::Level::Warn);
        assert!(
            end.to_string().contains("gets no new one: the server answered"),
            "{end}"
        );
    }

    /// A failure after the first look begins anew: another runner may have asked for a bot since.
    #[test]
    fn a_room_is_looked_at_again_after_a_failure() {
        let mut run = Run::new(0);
        let callers = json!({"participants": [{"identity": "ann"}]});
        for failing in ["ListDispatch", "CreateDispatch"] {
            assert_eq!(run.sent().0, "ListParticipants");
            run.answer(200, &callers);
            if failing == "CreateDispatch" {
                run.sent();
                run.answer(200, &json!({}));
            }
            assert_eq!(run.sent().0, failing);
            run.watch.handle_unreachable("reset", run.now);
        }
        assert_eq!(run.sent().0, "ListParticipants");
        run.answer(
            200,
            &json!({"participants": [{"kind": 4, "attributes": {"lk.agent_name": "bot"}}]}),
        );
        let end = match run.watch.poll(run.now) {
            WatchStep::Done(end) => end,
            other => panic!("{other:?}"),
        };
        assert_eq!((end.level(), &end), (log::Level::Info, &WatchEnd::HasAnother));
    }
}
