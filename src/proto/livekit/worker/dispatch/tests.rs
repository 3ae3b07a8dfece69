//! `/start` on a registered runner, in virtual time.

use std::net::IpAddr;

use super::*;
use crate::secret::Secret;

const SESSION_ID: &str = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed";

fn config(room_name: Option<&str>) -> Mediaroom {
    Mediaroom {
        url: Some("wss://a.example.net".into()),
        key: Some("devkey".into()),
        secret: Some(Secret::new("secret")),
        room_name: room_name.map(str::to_owned),
        other_urls: vec!["http://b.example.net/sfu".into()],
        worker: None,
    }
}

fn worker() -> MediaroomWorker {
    MediaroomWorker {
        job_type: JobType::Room,
        agent_name: "bot".into(),
        deployment: String::new(),
        target_load_percent: 70,
    }
}

/// An attempt and its clock.
struct Try {
    attempt: DispatchAttempt,
    now: Instant,
    start: Instant,
}

impl Try {
    fn new(config: &Mediaroom, worker: &MediaroomWorker) -> Self {
        let start = Instant::now();
        let body = json!({"lang": "en"});
        let attempt = DispatchAttempt::new(
            config,
            worker,
            None,
            (SESSION_ID, &body),
            [1, 2, 3, 4],
            (start, 1_795_252_753),
        );
        Try {
            attempt: attempt.expect("a configuration"),
            now: start,
            start,
        }
    }

    /// Returns the next request: the end of its URL, and its body.
    fn sent(&mut self) -> (String, Value) {
        loop {
            match self.attempt.poll(self.now) {
                DispatchStep::Send(request) => {
                    let method = request.url.rsplit('/').next().expect("a path").to_owned();
                    let body = request.body.expect("a body").bytes;
                    return (method, serde_json::from_slice(&body).expect("JSON"));
                }
                DispatchStep::Wait(until) => self.now = until,
                other => panic!("{other:?}"),
            }
        }
    }

    fn answer(&mut self, status: u16, body: &Value) {
        self.attempt
            .handle_answer(status, body.to_string().as_bytes(), self.now);
    }

    fn reply(&mut self) -> Value {
        match self.attempt.poll(self.now) {
            DispatchStep::Reply(reply) => serde_json::from_slice(&reply).expect("JSON"),
            other => panic!("{other:?}"),
        }
    }
}

fn listed(jobs: usize) -> Value {
    let jobs: Vec<Value> = (0..jobs).map(|at| json!({"id": at.to_string()})).collect();
    json!({"agent_dispatches": [
        {"id": "AD_0", "agent_name": "other", "state": {"jobs": [{}]}},
        {"id": "AD_1", "agent_name": "bot", "state": {"jobs": jobs}},
    ]})
}

#[test]
fn a_taken_job_gives_the_caller_a_room() {
    let mut run = Try::new(&config(None), &worker());
    let (method, body) = run.sent();
    assert_eq!(method, "CreateRoom");
    assert_eq!(
        body,
        json!({"name": "room-01020304", "empty_timeout": 300, "agents": [{
            "agentName": "bot", "metadata": r#"{"lang":"en"}"#,
            "attributes": {"edge.session_id": SESSION_ID},
        }]})
    );
    run.answer(200, &json!({"sid": "RM_1"}));
    for _ in 0..3 {
        for (asked, answer) in [("ListDispatch", listed(0)), ("ListParticipants", json!({}))] {
            assert_eq!(run.sent(), (asked.to_owned(), json!({"room": "room-01020304"})));
            run.answer(200, &answer);
        }
    }
    assert_eq!(run.sent().0, "ListDispatch");
    assert_eq!(run.now - run.start, 3 * DISPATCH_POLL);
    run.answer(200, &listed(1));
    let reply = run.reply();
    assert_eq!(
        (&reply["url"], &reply["roomName"], &reply["sessionId"]),
        (
            &json!("wss://a.example.net"),
            &json!("room-01020304"),
            &json!(SESSION_ID)
        )
    );
}

/// The runner that takes the job counts it to the source that asked; the key needs no quota.
#[test]
fn the_runner_that_takes_an_anonymous_request_learns_so() {
    for is_authorised in [false, true] {
        let mut run = Try::new(&config(None), &worker());
        run.attempt = run.attempt.with_requester(Requester {
            source: IpAddr::from([192, 0, 2, 1]).into(),
            is_authorised,
            local_address: None,
        });
        let (_, body) = run.sent();
        let attributes = body["agents"][0]["attributes"].as_object().expect("attributes");
        assert_eq!(attributes.len(), if is_authorised { 1 } else { 2 });
        assert!(!body.to_string().contains("192.0.2.1"));
    }
}

/// After 6 s the room is deleted, and the caller is told.
#[test]
fn a_room_that_no_runner_takes_is_deleted() {
    let mut run = Try::new(&config(None), &worker());
    run.sent();
    run.answer(200, &json!({}));
    let mut lists = 0;
    loop {
        let (method, body) = run.sent();
        if method == "DeleteRoom" {
            assert_eq!(body, json!({"room": "room-01020304"}));
            break;
        }
        if method == "ListParticipants" {
            let other = json!({"participants": [{"kind": "AGENT", "attributes": {"lk.agent.name": "other"}}]});
            run.answer(200, &other);
            continue;
        }
        lists += 1;
        // Servers write names in either form, and absent members as null or not at all.
        let empty = [
            listed(0),
            json!({"agentDispatches": [{"agentName": "bot", "state": null}]}),
            json!({}),
        ];
        run.answer(200, &empty[lists % 3]);
    }
    assert_eq!(lists, 31);
    assert!(run.now - run.start <= DISPATCH_WITHIN);
    run.answer(200, &json!({}));
    let expected = DispatchError::NotTaken {
        agent_name: "bot".into(),
    };
    assert_eq!(run.attempt.poll(run.now), DispatchStep::Failed(expected));
}

/// A list of a shared room: jobs of other sessions, and those of this one if it has a dispatch.
fn shared(ours: Option<usize>) -> Value {
    let mut list = listed(1);
    let dispatches = list["agent_dispatches"].as_array_mut().expect("a list");
    let jobs = |jobs: usize| vec![json!({"id": "AJ_1"}); jobs];
    dispatches
        .push(json!({"agentName": "bot", "attributes": {"edge.session_id": "earlier"}, "state": {"jobs": jobs(1)}}));
    dispatches.extend(ours.map(|count| {
        json!({"agent_name": "bot", "attributes": {"edge.session_id": SESSION_ID}, "state": {"jobs": jobs(count)}})
    }));
    list
}

/// A shared room that lasts: jobs of bots that are gone, and dispatches that no runner took, are
/// not those of this session. Without a bot in the room, one is asked for, once.
#[test]
fn a_shared_room_without_a_bot_is_asked_for_one() {
    for earlier in [json!({}), listed(0), listed(1), shared(None)] {
        let mut run = Try::new(&config(Some("shared")), &worker());
        run.sent();
        run.answer(200, &json!({}));
        assert_eq!(run.sent().0, "ListDispatch");
        run.answer(200, &earlier);
        assert_eq!(run.sent().0, "ListParticipants");
        run.answer(200, &json!({"participants": [{"identity": "ann"}]}));
        let (method, body) = run.sent();
        assert_eq!(
            (&*method, &body["agentName"], &body["room"]),
            ("CreateDispatch", &json!("bot"), &json!("shared"))
        );
        assert_eq!(body["attributes"]["edge.session_id"], SESSION_ID);
        run.answer(200, &json!({"id": "AD_2"}));
        run.sent();
        run.answer(200, &shared(Some(0)));
        assert_eq!(run.sent().0, "ListParticipants");
        run.answer(200, &json!({}));
        assert_eq!(run.sent().0, "ListDispatch");
        run.answer(200, &shared(Some(1)));
        assert_eq!(run.reply()["roomName"], "shared");
    }
}

/// A shared room that has its bot needs no other one, and neither does one that was just made.
#[test]
fn a_shared_room_with_a_bot_is_not_asked_for_another() {
    let mut run = Try::new(&config(Some("shared")), &worker());
    run.sent();
    run.answer(200, &json!({}));
    run.sent();
    run.answer(200, &listed(1));
    run.sent();
    run.answer(
        200,
        &json!({"participants": [{"kind": "AGENT", "attributes": {"lk.agent.name": "bot"}}]}),
    );
    assert_eq!(run.reply()["roomName"], "shared");
    let mut run = Try::new(&config(Some("shared")), &worker());
    run.sent();
    run.answer(200, &json!({}));
    for _ in 0..2 {
        assert_eq!(run.sent().0, "ListDispatch");
        run.answer(200, &shared(Some(0)));
        assert_eq!(run.sent().0, "ListParticipants");
        run.answer(200, &json!({}));
    }
}

/// The room of all sessions is never deleted, and it is asked for a bot once.
#[test]
fn a_shared_room_that_no_runner_takes_is_kept() {
    let mut run = Try::new(&config(Some("shared")), &worker());
    run.sent();
    run.answer(200, &json!({}));
    let mut asked = 0;
    loop {
        match run.attempt.poll(run.now) {
            DispatchStep::Wait(until) => run.now = until,
            DispatchStep::Send(request) => {
                asked += usize::from(request.url.ends_with("/CreateDispatch"));
                assert!(!request.url.contains("/Delete"), "{}", request.url);
                run.answer(200, &json!({}));
            }
            DispatchStep::Failed(error) => {
                assert!(matches!(error, DispatchError::NotTaken { .. }));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(asked, 1);
}

/// A bot that is in the room counts before its job is listed, and so does a session of this runner.
#[test]
fn a_bot_in_the_room_has_taken_the_job() {
    let mut run = Try::new(&config(None), &worker());
    run.sent();
    run.answer(200, &json!({}));
    run.sent();
    run.answer(200, &listed(0));
    run.sent();
    run.answer(
        200,
        &json!({"participants": [{"kind": "AGENT", "attributes": {"lk.agent.name": "bot"}}]}),
    );
    assert_eq!(run.reply()["roomName"], "room-01020304");
    let mut run = Try::new(&config(None), &worker());
    run.sent();
    run.answer(200, &json!({}));
    run.attempt.handle_taken();
    assert_eq!(run.reply()["roomName"], "room-01020304");
}

#[test]
fn refusals_and_failures_have_their_words() {
    let failed = |status| {
        let mut run = Try::new(&config(None), &worker());
        run.sent();
        run.answer(status, &json!({}));
        match run.attempt.poll(run.now) {
            DispatchStep::Failed(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(failed(401).contains("MEDIAROOM_API_SECRET"));
    assert!(failed(500).contains("CreateRoom with status 500"));
    // A list that is none: the room is deleted first.
    let mut run = Try::new(&config(None), &worker());
    run.sent();
    run.answer(200, &json!({}));
    run.sent();
    run.attempt.handle_answer(200, b"<html>", run.now);
    assert_eq!(run.sent().0, "DeleteRoom");
    run.attempt.handle_unreachable("gone".into(), run.now);
    assert_eq!(
        run.attempt.poll(run.now),
        DispatchStep::Failed(DispatchError::Malformed("ListDispatch"))
    );
}

/// The next URL is tried; the caller gets the one that answers.
#[test]
fn another_url_is_tried() {
    let mut run = Try::new(&config(None), &worker());
    run.sent();
    run.attempt.handle_unreachable("refused".into(), run.now);
    match run.attempt.poll(run.now) {
        DispatchStep::Send(request) => {
            assert_eq!(
                request.url,
                "http://b.example.net/sfu/twirp/livekit.RoomService/CreateRoom"
            );
        }
        other => panic!("{other:?}"),
    }
    run.answer(200, &json!({}));
    run.sent();
    run.answer(200, &listed(1));
    assert_eq!(run.reply()["url"], "ws://b.example.net/sfu");
    let mut run = Try::new(&config(None), &worker());
    for _ in 0..2 {
        run.sent();
        run.attempt.handle_unreachable("refused".into(), run.now);
    }
    assert!(matches!(
        run.attempt.poll(run.now),
        DispatchStep::Failed(DispatchError::Unreachable(_))
    ));
}

/// A room whose server is lost is deleted, if that is still possible: no caller will come, and its
/// bot would wait.
#[test]
fn a_room_whose_server_is_lost_is_deleted() {
    for answers in 0..3 {
        let mut run = Try::new(&config(None), &worker());
        run.sent();
        run.answer(200, &json!({}));
        for _ in 0..answers {
            run.sent();
            run.answer(200, &json!({}));
        }
        for _ in 0..2 {
            assert!(run.sent().0.starts_with("List"));
            run.attempt.handle_unreachable("reset".into(), run.now);
        }
        assert_eq!(run.sent(), ("DeleteRoom".into(), json!({"room": "room-01020304"})));
        run.answer(200, &json!({}));
        assert_eq!(
            run.attempt.poll(run.now),
            DispatchStep::Failed(DispatchError::Unreachable("reset".into()))
        );
    }
}

/// A job of a participant is made by the caller, who has to come first.
#[test]
fn a_participant_s_job_is_not_waited_for() {
    let of_participant = MediaroomWorker {
        job_type: JobType::Participant,
        ..worker()
    };
    let mut run = Try::new(&config(None), &of_participant);
    run.sent();
    run.answer(200, &json!({}));
    assert_eq!(run.reply()["roomName"], "room-01020304");
}

#[test]
fn a_body_fits_into_metadata_or_is_refused() {
    let now = (Instant::now(), 1_795_252_753);
    let make = |bytes| {
        let body = Value::from("x".repeat(bytes - 2));
        DispatchAttempt::new(&config(None), &worker(), None, ("id", &body), [0; 4], now).err()
    };
    assert_eq!(make(JOB_METADATA_BYTES_MAX), None);
    assert_eq!(make(JOB_METADATA_BYTES_MAX + 1), Some(DispatchError::BodyTooLong));
    let nothing = Mediaroom::default();
    let missing = DispatchAttempt::new(&nothing, &worker(), None, ("id", &json!({})), [0; 4], now).err();
    assert!(missing.is_some_and(|error| error.to_string().contains("MEDIAROOM_URL")));
}
