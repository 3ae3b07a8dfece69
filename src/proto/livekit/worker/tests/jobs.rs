//! Jobs: offers, assignments, outcomes and terminations, of a server that may lie.

use super::*;

#[test]
fn an_accepted_job_becomes_a_session() {
    let mut bench = Bench::registered();
    let offered = JobInfo {
        dispatch_id: "AD_1".into(),
        metadata: r#"{"lang":"en"}"#.into(),
        attributes: [
            (
                "edge.session_id".to_owned(),
                "1B9D6BCD-BBFD-4B2D-9B5D-AB8DFBBD4BED".to_owned(),
            ),
            ("tier".to_owned(), "gold".to_owned()),
        ]
        .into(),
        room: Some(RoomInfo {
            sid: "RM_1".into(),
            name: "r".into(),
            metadata: "of the room".into(),
            empty_timeout: 60,
            departure_timeout: 5,
            ..RoomInfo::default()
        }),
        ..job("AJ_1", "r")
    };
    let answer = bench.offer_job(offered.clone());
    assert!(answer.available);
    assert_eq!(answer.participant_identity, "agent-AJ_1");
    assert_eq!(answer.participant_name, "bot");
    assert_eq!(answer.participant_attributes["lk.agent.name"], "bot");
    assert_eq!(answer.participant_attributes["lk.agent.state"], "initializing");
    let (status, load, jobs) = bench.last_status();
    assert_eq!((status, jobs), (0, 0), "the place counts at once, the job not yet");
    assert!((load - 0.0875).abs() < 0.001, "{load}");
    bench.assign_job(offered);
    assert_eq!(bench.job_reports(), [("AJ_1", 1, "")]);
    assert_eq!(bench.last_status().2, 1);
    let started = bench.started.pop().expect("a session");
    assert_eq!((&*started.room_name, started.token.expose()), ("r", "t.t.t"));
    assert_eq!(
        started.session_id.as_deref(),
        Some("1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed")
    );
    assert_eq!(
        (started.rules.empty_timeout, started.rules.departure_timeout),
        (60 * SECOND, 5 * SECOND)
    );
    assert_eq!(started.rules.mark, Some(("lk.agent.name", "bot".to_owned())));
    let job = &started.job;
    assert_eq!(
        (&*job.dispatch_id, &*job.room_sid, &*job.worker_id),
        ("AD_1", "RM_1", "AW_1")
    );
    assert_eq!((&*job.room_metadata, &*job.attributes["tier"]), ("of the room", "gold"));
    assert_eq!(job.body()["lang"], "en");
    bench
        .worker
        .handle_joined("AJ_1", bench.now + Duration::from_millis(120));
    assert_eq!(bench.counts().joins[2], 1);
    bench.sent.clear();
    bench
        .worker
        .handle_job_end("AJ_1", JobOutcome::Failed("bot failed".into()), bench.now);
    bench.drain();
    assert_eq!(bench.job_reports(), [("AJ_1", 3, "bot failed")]);
    drop(started);
    bench.worker.handle_session_gone("AJ_1", bench.now);
    bench.drain();
    assert_eq!(bench.job_reports().len(), 1, "once");
    assert_eq!((bench.worker.report().jobs, bench.places.used()), (0, 0));
}

/// The server hears at once that a full worker has a place again, and of no further one.
#[test]
fn a_released_place_is_reported_at_once() {
    let mut bench = Bench::registered();
    let mut calls: Vec<_> = (0..7).map(|_| bench.places.reserve(None).expect("a place")).collect();
    assert!(bench.offer("AJ_1", "r1").available);
    bench.assign("AJ_1", "r1");
    assert_eq!(bench.last_status().0, 1);
    for (place, statuses) in calls.drain(..2).zip([1, 0]) {
        drop(place);
        bench.sent.clear();
        bench.worker.handle_places(bench.now);
        bench.drain();
        assert_eq!(bench.sent.len(), statuses);
    }
    bench.worker.handle_cpu(Duration::ZERO, bench.now);
    bench.drain();
    assert_eq!(bench.last_status().0, 0);
}

/// The place of a job without a caller yet counts to the source that asked for it.
#[test]
fn a_place_is_reserved_for_the_source_of_an_anonymous_request() {
    let mut bench = Bench::registered();
    let mut anonymous = job("AJ_1", "r1");
    anonymous
        .attributes
        .insert("edge.source".into(), "00000000000000ff".into());
    assert!(bench.offer_job(anonymous).available);
    assert!(bench.offer("AJ_2", "r2").available);
    assert_eq!(*bench.places.1.borrow(), [Some(SourceKey::Remote(255)), None]);
}

/// Each yes takes a place at once, so a burst never exceeds them. The rest is declined at once, and
/// free for other runners.
#[test]
fn a_burst_of_a_thousand_offers_takes_no_more_than_the_places() {
    let mut bench = Bench::registered();
    let answers: Vec<_> = (0..1_000)
        .map(|at| bench.offer(&format!("AJ_{at}"), &format!("r{at}")))
        .collect();
    assert_eq!(answers.iter().filter(|answer| answer.available).count(), 8);
    assert!(answers.iter().all(|answer| !answer.terminate));
    bench.pass(WORKER_STATUS_INTERVAL);
    assert_eq!(bench.last_status().0, 1);
    assert_eq!((bench.counts().offers.yes, bench.counts().offers.full), (8, 992));
    for at in 0..8 {
        bench.assign(&format!("AJ_{at}"), &format!("r{at}"));
    }
    assert_eq!((bench.started.len(), bench.places.used()), (8, 8));
}

#[test]
fn waiting_promises_are_capped() {
    let mut bench = Bench::registered();
    bench.places.0.borrow_mut()[1] = 1_000;
    let yes = (0..100).filter(|at| bench.offer(&format!("AJ_{at}"), &format!("r{at}")).available);
    assert_eq!(yes.count(), JOB_OFFERS_MAX);
    bench.assign("AJ_0", "r0");
    assert!(bench.offer("AJ_100", "r100").available);
}

/// A promise without an assignment is released after 5 s. An assignment that comes later still gets
/// a place if there is one, and is reported as failed if not.
#[test]
fn a_promise_is_kept_for_five_seconds() {
    let mut bench = Bench::registered();
    bench.places.0.borrow_mut()[1] = 1;
    bench.offer("AJ_1", "r");
    bench.pass_with_pings(JOB_PROMISE_KEPT - Duration::from_millis(1));
    assert_eq!(bench.places.used(), 1);
    bench.pass(Duration::from_millis(1));
    assert_eq!((bench.places.used(), bench.counts().assignments.lost), (0, 1));
    bench.assign("AJ_1", "r");
    assert_eq!((bench.started.len(), bench.counts().assignments.late), (1, 1));
    bench.started.clear();
    bench.worker.handle_session_gone("AJ_1", bench.now);
    bench.offer("AJ_2", "s");
    bench.pass_with_pings(JOB_PROMISE_KEPT);
    assert!(bench.offer("AJ_3", "t").available);
    bench.sent.clear();
    bench.assign("AJ_2", "s");
    assert_eq!(bench.job_reports(), [("AJ_2", 3, "assigned too late")]);
    assert!(bench.started.is_empty());
}

/// A room that was promised to another job since has its session by that one alone.
#[test]
fn a_late_assignment_makes_no_second_session_of_a_room() {
    for is_assigned_before in [false, true] {
        let mut bench = Bench::registered();
        bench.offer("AJ_1", "r");
        bench.pass_with_pings(JOB_PROMISE_KEPT);
        assert!(bench.offer("AJ_2", "r").available);
        if is_assigned_before {
            bench.assign("AJ_2", "r");
        }
        bench.sent.clear();
        bench.assign("AJ_1", "r");
        assert_eq!(bench.job_reports(), [("AJ_1", 3, "assigned too late")]);
        if !is_assigned_before {
            bench.assign("AJ_2", "r");
        }
        let started: Vec<&str> = bench.started.iter().map(|started| &*started.job.id).collect();
        assert_eq!((started, bench.places.used()), (vec!["AJ_2"], 1));
    }
}

/// Nothing that the server sends makes a second session of a job, or one without a promise.
#[test]
fn only_promised_jobs_start_and_only_once() {
    let mut bench = Bench::registered();
    bench.assign("AJ_9", "r");
    assert_eq!((bench.started.len(), bench.counts().assignments.unpromised), (0, 1));
    bench.offer("AJ_1", "r");
    assert!(bench.offer("AJ_1", "r").available, "the same offer has the same answer");
    assert_eq!(bench.places.used(), 1, "and the same place");
    bench.assign("AJ_1", "r");
    bench.assign("AJ_1", "r");
    assert_eq!((bench.started.len(), bench.counts().assignments.doubled), (1, 1));
    // An assignment to another room than the promised one.
    bench.offer("AJ_2", "s");
    bench.sent.clear();
    bench.assign("AJ_2", "elsewhere");
    assert_eq!(bench.started.len(), 1);
    assert!(matches!(bench.job_reports()[..], [("AJ_2", 3, _)]));
    assert_eq!(bench.places.used(), 1);
    // Tokens and ids that are none.
    bench.offer("AJ_3", "u");
    bench.hear(WorkerResponseKind::Assignment(Box::new(JobAssignment {
        job: Some(job("AJ_3", "u")),
        url: None,
        token: "line\nbreak".into(),
    })));
    bench.assign("", "u");
    bench.assign("A J\u{1b}[31m", "u");
    assert_eq!((bench.started.len(), bench.places.used()), (1, 1));
}

/// A room that this runner serves gets no second bot, from any runner; one whose bot has ended
/// does.
#[test]
fn a_served_room_is_declined_for_everybody() {
    let mut bench = Bench::registered();
    bench.offer("AJ_1", "r");
    let second = bench.offer("AJ_2", "r");
    assert!(!second.available && second.terminate, "promised already");
    bench.assign("AJ_1", "r");
    let third = bench.offer("AJ_3", "r");
    assert!(!third.available && third.terminate);
    bench.worker.handle_socket_closed(bench.now);
    bench.pass(2 * SECOND);
    bench.register();
    let again = bench.offer("AJ_4", "r");
    assert!(again.terminate, "after the way back, too");
    assert_eq!(bench.counts().offers.own_room, 3);
    bench.worker.handle_job_end("AJ_1", JobOutcome::Success, bench.now);
    assert!(bench.offer("AJ_5", "r").available);
}

/// Jobs of participants are told apart by participant, and need one.
#[test]
fn participants_of_one_room_have_a_job_each() {
    let mut bench = Bench::with(|settings| settings.worker.job_type = JobType::Participant);
    bench.register();
    let of = |id: &str, identity: &str| JobInfo {
        job_type: 2,
        participant: Some(ParticipantInfo {
            identity: identity.into(),
            kind: 3,
            ..ParticipantInfo::default()
        }),
        ..job(id, "r")
    };
    assert!(bench.offer_job(of("AJ_1", "ann")).available);
    assert!(bench.offer_job(of("AJ_2", "ben")).available);
    assert!(bench.offer_job(of("AJ_3", "ann")).terminate);
    let unnamed = bench.offer_job(of("AJ_4", ""));
    assert!(!unnamed.available && !unnamed.terminate);
    bench.assign_job(of("AJ_1", "ann"));
    let started = &bench.started[0];
    assert_eq!(started.job.participant.as_ref().map(|who| who.kind), Some("sip"));
    assert_eq!(started.rules.mark, None);
}

/// Metadata and attributes at their limits are accepted, one byte more is declined for everybody.
/// Foreign names, types and rooms are declined for this worker.
#[test]
fn unfit_offers_are_declined() {
    let mut bench = Bench::registered();
    let with_metadata = |id: &str, bytes| JobInfo {
        metadata: "x".repeat(bytes),
        ..job(id, id)
    };
    assert!(bench.offer_job(with_metadata("AJ_1", JOB_METADATA_BYTES_MAX)).available);
    let long = bench.offer_job(with_metadata("AJ_2", JOB_METADATA_BYTES_MAX + 1));
    assert!(!long.available && long.terminate);
    let with_attributes = |id: &str, bytes| JobInfo {
        attributes: [("k".to_owned(), "x".repeat(bytes - 1))].into(),
        ..job(id, id)
    };
    assert!(
        bench
            .offer_job(with_attributes("AJ_3", JOB_ATTRIBUTES_BYTES_MAX))
            .available
    );
    assert!(
        bench
            .offer_job(with_attributes("AJ_4", JOB_ATTRIBUTES_BYTES_MAX + 1))
            .terminate
    );
    for foreign in [
        JobInfo {
            agent_name: "other".into(),
            ..job("AJ_5", "r")
        },
        JobInfo {
            job_type: 1,
            ..job("AJ_6", "r")
        },
        JobInfo {
            room: None,
            ..job("AJ_7", "r")
        },
        job("AJ_8", ""),
        job("AJ_9", &"x".repeat(257)),
    ] {
        let answer = bench.offer_job(foreign);
        assert!(!answer.available && !answer.terminate);
    }
    assert_eq!((bench.places.used(), bench.counts().offers.unfit), (2, 7));
}

/// A promise that is taken back frees its place; a live job is its session's matter; others are
/// ignored.
#[test]
fn terminations_go_to_their_sessions() {
    let mut bench = Bench::registered();
    bench.offer("AJ_1", "r");
    bench.terminate("AJ_1");
    assert_eq!(bench.places.used(), 0);
    bench.offer("AJ_2", "s");
    bench.assign("AJ_2", "s");
    bench.terminate("AJ_2");
    assert_eq!(bench.terminated, ["AJ_2"]);
    bench.worker.handle_terminated(false);
    bench.worker.handle_terminated(true);
    bench.worker.handle_job_end("AJ_2", JobOutcome::Success, bench.now);
    bench.terminate("AJ_2");
    bench.terminate("AJ_3");
    bench.terminate("\u{1b}");
    assert_eq!(bench.terminated.len(), 1);
    let counts = bench.counts();
    assert_eq!(
        (
            counts.taken_back,
            counts.terminations_ignored,
            counts.terminations_unknown
        ),
        (2, 1, 3)
    );
}

/// The loss of the connection voids promises, since the server forgets the worker, but no session.
/// An outcome from meanwhile is not sent to a connection that does not know the job.
#[test]
fn jobs_outlive_the_connection() {
    let mut bench = Bench::registered();
    bench.offer("AJ_1", "r");
    bench.assign("AJ_1", "r");
    bench.offer("AJ_2", "s");
    assert_eq!(bench.places.used(), 2);
    bench.worker.handle_socket_closed(bench.now);
    bench.drain();
    assert_eq!(bench.places.used(), 1, "the session's own");
    assert!(bench.terminated.is_empty());
    bench.sent.clear();
    bench.worker.handle_job_end("AJ_1", JobOutcome::Success, bench.now);
    bench.drain();
    assert!(bench.sent.is_empty());
    assert_eq!(bench.counts().jobs_succeeded, 1);
    // The assignment of a promise of the old connection is one without a promise.
    bench.pass(2 * SECOND);
    bench.register();
    bench.assign("AJ_2", "s");
    assert_eq!((bench.started.len(), bench.counts().assignments.unpromised), (1, 1));
}

/// A session that ends without a word has failed.
#[test]
fn a_session_without_an_outcome_has_failed() {
    let mut bench = Bench::registered();
    bench.offer("AJ_1", "r");
    bench.assign("AJ_1", "r");
    bench.sent.clear();
    bench.worker.handle_session_gone("AJ_1", bench.now);
    bench.drain();
    assert_eq!(bench.job_reports(), [("AJ_1", 3, "the session failed")]);
    assert_eq!(bench.worker.report().jobs, 0);
}

/// The URL of an assignment comes first, if it is one.
#[test]
fn an_assignment_may_name_another_server() {
    let mut bench = Bench::registered();
    for (id, url, expected) in [
        ("AJ_1", Some("wss://node-2.example.net"), "wss://node-2.example.net"),
        ("AJ_2", Some("ftp://x"), "ws://a.example.net"),
        ("AJ_3", Some(""), "ws://a.example.net"),
    ] {
        bench.offer(id, id);
        bench.hear(WorkerResponseKind::Assignment(Box::new(JobAssignment {
            job: Some(job(id, id)),
            url: url.map(str::to_owned),
            token: "t".into(),
        })));
        let started = bench.started.last().expect("a session");
        assert_eq!(started.urls[0], expected);
        assert!(started.urls.contains(&"ws://a.example.net".to_owned()));
    }
}

/// Bots without a name recognise each other, too.
#[test]
fn a_worker_without_a_name_serves_unnamed_jobs() {
    let mut bench = Bench::with(|settings| settings.worker.agent_name.clear());
    bench.register();
    assert!(!bench.offer("AJ_1", "r").available);
    let unnamed = || JobInfo {
        agent_name: String::new(),
        ..job("AJ_2", "r")
    };
    let answer = bench.offer_job(unnamed());
    assert!(answer.available);
    assert_eq!(answer.participant_attributes["edge.agent"], "automatic");
    bench.assign_job(unnamed());
    assert_eq!(
        bench.started[0].rules.mark,
        Some(("edge.agent", "automatic".to_owned()))
    );
}

/// Calls `with` with every order of the numbers below `count`.
fn every_order(count: usize, with: &mut impl FnMut(&[usize])) {
    fn extend(order: &mut Vec<usize>, count: usize, with: &mut impl FnMut(&[usize])) {
        if order.len() == count {
            return with(order);
        }
        for next in 0..count {
            if !order.contains(&next) {
                order.push(next);
                extend(order, count, with);
                order.pop();
            }
        }
    }
    extend(&mut Vec::new(), count, with);
}

/// What can happen to a promised job, in every order: its place belongs to the promise, to the one
/// session of the job, or is free.
#[test]
fn a_promised_place_is_used_or_returned_in_every_order() {
    type Step = fn(&mut Bench, &mut usize);
    const STEPS: [(&str, Step); 7] = [
        ("assigned", |bench, _| bench.assign("AJ_1", "r")),
        ("assigned again", |bench, _| bench.assign("AJ_1", "r")),
        ("time up", |bench, _| bench.pass(JOB_PROMISE_KEPT)),
        ("taken back", |bench, _| bench.terminate("AJ_1")),
        ("connection lost", |bench, _| {
            bench.worker.handle_socket_closed(bench.now);
            bench.drain();
            bench.pass(2 * SECOND);
            bench.register();
        }),
        ("draining", |bench, _| {
            bench.worker.handle_drain(bench.now);
            bench.drain();
        }),
        ("session ended", |bench, ended| {
            *ended += bench.started.len();
            bench.started.clear();
            bench.worker.handle_session_gone("AJ_1", bench.now);
            bench.drain();
        }),
    ];
    every_order(STEPS.len(), &mut |order| {
        let mut bench = Bench::registered();
        let mut ended = 0;
        assert!(bench.offer("AJ_1", "r").available);
        for step in order {
            STEPS[*step].1(&mut bench, &mut ended);
            let named = || order.iter().map(|step| STEPS[*step].0).collect::<Vec<_>>();
            let owned = bench.worker.promises.len() + bench.started.len();
            assert_eq!(bench.places.used(), owned, "{:?}", named());
            assert!(bench.started.len() + ended <= 1, "a second session: {:?}", named());
        }
        bench.started.clear();
        bench.pass(JOB_PROMISE_KEPT);
        assert_eq!(bench.places.used(), 0);
    });
}
