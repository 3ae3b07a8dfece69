//! Tests of rooms whose bot is lost.

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
