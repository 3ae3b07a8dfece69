//! Jobs: offers, assignments, outcomes and terminations, of a server that may lie.

use super::*;

#[test]
fn an_accepted_job_becomes_a_session() {
    let mut rig = Rig::registered();
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
    let answer = rig.offer_job(offered.clone());
    assert!(answer.available);
    assert_eq!(answer.participant_identity, "agent-AJ_1");
    assert_eq!(answer.participant_name, "bot");
    assert_eq!(answer.participant_attributes["lk.agent.name"], "bot");
    assert_eq!(answer.participant_attributes["lk.agent.state"], "initializing");
    let (status, load, jobs) = rig.last_status();
    assert_eq!((status, jobs), (0, 0), "the place counts at once, the job not yet");
    assert!((load - 0.0875).abs() < 0.001, "{load}");
    rig.assign_job(offered);
    assert_eq!(rig.job_reports(), [("AJ_1", 1, "")]);
    assert_eq!(rig.last_status().2, 1);
    let started = rig.started.pop().expect("a session");
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
    rig.worker.handle_joined("AJ_1", rig.now + Duration::from_millis(120));
    assert_eq!(rig.counts().joins[2], 1);
    rig.sent.clear();
    rig.worker
        .handle_job_end("AJ_1", JobOutcome::Failed("bot failed".into()), rig.now);
    rig.drain();
    assert_eq!(rig.job_reports(), [("AJ_1", 3, "bot failed")]);
    drop(started);
    rig.worker.handle_session_gone("AJ_1", rig.now);
    rig.drain();
    assert_eq!(rig.job_reports().len(), 1, "once");
    assert_eq!((rig.worker.report().jobs, rig.places.used()), (0, 0));
}

/// The server hears at once that a full worker has a place again, and of no further one.
#[test]
fn a_released_place_is_reported_at_once() {
    let mut rig = Rig::registered();
    let mut calls: Vec<_> = (0..7).map(|_| rig.places.reserve(None).expect("a place")).collect();
    assert!(rig.offer("AJ_1", "r1").available);
    rig.assign("AJ_1", "r1");
    assert_eq!(rig.last_status().0, 1);
    for (place, statuses) in calls.drain(..2).zip([1, 0]) {
        drop(place);
        rig.sent.clear();
        rig.worker.handle_places(rig.now);
        rig.drain();
        assert_eq!(rig.sent.len(), statuses);
    }
    rig.worker.handle_cpu(Duration::ZERO, rig.now);
    rig.drain();
    assert_eq!(rig.last_status().0, 0);
}

/// The place of a job without a caller yet counts to the source that asked for it.
#[test]
fn a_place_is_reserved_for_the_source_of_an_anonymous_request() {
    let mut rig = Rig::registered();
    let mut anonymous = job("AJ_1", "r1");
    anonymous
        .attributes
        .insert("edge.source".into(), "00000000000000ff".into());
    assert!(rig.offer_job(anonymous).available);
    assert!(rig.offer("AJ_2", "r2").available);
    assert_eq!(*rig.places.1.borrow(), [Some(SourceKey::Remote(255)), None]);
}

/// Each yes takes a place at once, so a burst never exceeds them. The rest is declined at once, and
/// free for other runners.
#[test]
fn a_burst_of_a_thousand_offers_takes_no_more_than_the_places() {
    let mut rig = Rig::registered();
    let answers: Vec<_> = (0..1_000)
        .map(|at| rig.offer(&format!("AJ_{at}"), &format!("r{at}")))
        .collect();
    assert_eq!(answers.iter().filter(|answer| answer.available).count(), 8);
    assert!(answers.iter().all(|answer| !answer.terminate));
    rig.pass(WORKER_STATUS_INTERVAL);
    assert_eq!(rig.last_status().0, 1);
    assert_eq!((rig.counts().offers.yes, rig.counts().offers.full), (8, 992));
    for at in 0..8 {
        rig.assign(&format!("AJ_{at}"), &format!("r{at}"));
    }
    assert_eq!((rig.started.len(), rig.places.used()), (8, 8));
}

#[test]
fn waiting_promises_are_capped() {
    let mut rig = Rig::registered();
    rig.places.0.borrow_mut()[1] = 1_000;
    let yes = (0..100).filter(|at| rig.offer(&format!("AJ_{at}"), &format!("r{at}")).available);
    assert_eq!(yes.count(), JOB_OFFERS_MAX);
    rig.assign("AJ_0", "r0");
    assert!(rig.offer("AJ_100", "r100").available);
}

/// A promise without an assignment is released after 5 s. An assignment that comes later still gets
/// a place if there is one, and is reported as failed if not.
#[test]
fn a_promise_is_kept_for_five_seconds() {
    let mut rig = Rig::registered();
    rig.places.0.borrow_mut()[1] = 1;
    rig.offer("AJ_1", "r");
    rig.pass_with_pings(JOB_PROMISE_KEPT - Duration::from_millis(1));
    assert_eq!(rig.places.used(), 1);
    rig.pass(Duration::from_millis(1));
    assert_eq!((rig.places.used(), rig.counts().assignments.lost), (0, 1));
    rig.assign("AJ_1", "r");
    assert_eq!((rig.started.len(), rig.counts().assignments.late), (1, 1));
    rig.started.clear();
    rig.worker.handle_session_gone("AJ_1", rig.now);
    rig.offer("AJ_2", "s");
    rig.pass_with_pings(JOB_PROMISE_KEPT);
    assert!(rig.offer("AJ_3", "t").available);
    rig.sent.clear();
    rig.assign("AJ_2", "s");
    assert_eq!(rig.job_reports(), [("AJ_2", 3, "assigned too late")]);
    assert!(rig.started.is_empty());
}

/// A room that was promised to another job since has its session by that one alone.
#[test]
fn a_late_assignment_makes_no_second_session_of_a_room() {
    for is_assigned_before in [false, true] {
        let mut rig = Rig::registered();
        rig.offer("AJ_1", "r");
        rig.pass_with_pings(JOB_PROMISE_KEPT);
        assert!(rig.offer("AJ_2", "r").available);
        if is_assigned_before {
            rig.assign("AJ_2", "r");
        }
        rig.sent.clear();
        rig.assign("AJ_1", "r");
        assert_eq!(rig.job_reports(), [("AJ_1", 3, "assigned too late")]);
        if !is_assigned_before {
            rig.assign("AJ_2", "r");
        }
        let started: Vec<&str> = rig.started.iter().map(|started| &*started.job.id).collect();
        assert_eq!((started, rig.places.used()), (vec!["AJ_2"], 1));
    }
}

/// Nothing that the server sends makes a second session of a job, or one without a promise.
#[test]
fn only_promised_jobs_start_and_only_once() {
    let mut rig = Rig::registered();
    rig.assign("AJ_9", "r");
    assert_eq!((rig.started.len(), rig.counts().assignments.unpromised), (0, 1));
    rig.offer("AJ_1", "r");
    assert!(rig.offer("AJ_1", "r").available, "the same offer has the same answer");
    assert_eq!(rig.places.used(), 1, "and the same place");
    rig.assign("AJ_1", "r");
    rig.assign("AJ_1", "r");
    assert_eq!((rig.started.len(), rig.counts().assignments.doubled), (1, 1));
    // An assignment to another room than the promised one.
    rig.offer("AJ_2", "s");
    rig.sent.clear();
    rig.assign("AJ_2", "elsewhere");
    assert_eq!(rig.started.len(), 1);
    assert!(matches!(rig.job_reports()[..], [("AJ_2", 3, _)]));
    assert_eq!(rig.places.used(), 1);
    // Tokens and ids that are none.
    rig.offer("AJ_3", "u");
    rig.hear(WorkerResponseKind::Assignment(Box::new(JobAssignment {
        job: Some(job("AJ_3", "u")),
        url: None,
        token: "line\nbreak".into(),
    })));
    rig.assign("", "u");
    rig.assign("A J\u{1b}[31m", "u");
    assert_eq!((rig.started.len(), rig.places.used()), (1, 1));
}

/// A room that this runner serves gets no second bot, from any runner; one whose bot has ended
/// does.
#[test]
fn a_served_room_is_declined_for_everybody() {
    let mut rig = Rig::registered();
    rig.offer("AJ_1", "r");
    let second = rig.offer("AJ_2", "r");
    assert!(!second.available && second.terminate, "promised already");
    rig.assign("AJ_1", "r");
    let third = rig.offer("AJ_3", "r");
    assert!(!third.available && third.terminate);
    rig.worker.handle_socket_closed(rig.now);
    rig.pass(2 * SECOND);
    rig.register();
    let again = rig.offer("AJ_4", "r");
    assert!(again.terminate, "after the way back, too");
    assert_eq!(rig.counts().offers.own_room, 3);
    rig.worker.handle_job_end("AJ_1", JobOutcome::Success, rig.now);
    assert!(rig.offer("AJ_5", "r").available);
}

/// Jobs of participants are told apart by participant, and need one.
#[test]
fn participants_of_one_room_have_a_job_each() {
    let mut rig = Rig::with(|settings| settings.worker.job_type = JobType::Participant);
    rig.register();
    let of = |id: &str, identity: &str| JobInfo {
        job_type: 2,
        participant: Some(ParticipantInfo {
            identity: identity.into(),
            kind: 3,
            ..ParticipantInfo::default()
        }),
        ..job(id, "r")
    };
    assert!(rig.offer_job(of("AJ_1", "ann")).available);
    assert!(rig.offer_job(of("AJ_2", "ben")).available);
    assert!(rig.offer_job(of("AJ_3", "ann")).terminate);
    let unnamed = rig.offer_job(of("AJ_4", ""));
    assert!(!unnamed.available && !unnamed.terminate);
    rig.assign_job(of("AJ_1", "ann"));
    let started = &rig.started[0];
    assert_eq!(started.job.participant.as_ref().map(|who| who.kind), Some("sip"));
    assert_eq!(started.rules.mark, None);
}

/// Metadata and attributes at their limits are accepted, one byte more is declined for everybody.
/// Foreign names, types and rooms are declined for this worker.
#[test]
fn unfit_offers_are_declined() {
    let mut rig = Rig::registered();
    let with_metadata = |id: &str, bytes| JobInfo {
        metadata: "x".repeat(bytes),
        ..job(id, id)
    };
    assert!(rig.offer_job(with_metadata("AJ_1", JOB_METADATA_BYTES_MAX)).available);
    let long = rig.offer_job(with_metadata("AJ_2", JOB_METADATA_BYTES_MAX + 1));
    assert!(!long.available && long.terminate);
    let with_attributes = |id: &str, bytes| JobInfo {
        attributes: [("k".to_owned(), "x".repeat(bytes - 1))].into(),
        ..job(id, id)
    };
    assert!(
        rig.offer_job(with_attributes("AJ_3", JOB_ATTRIBUTES_BYTES_MAX))
            .available
    );
    assert!(
        rig.offer_job(with_attributes("AJ_4", JOB_ATTRIBUTES_BYTES_MAX + 1))
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
        let answer = rig.offer_job(foreign);
        assert!(!answer.available && !answer.terminate);
    }
    assert_eq!((rig.places.used(), rig.counts().offers.unfit), (2, 7));
}

/// A promise that is taken back frees its place; a live job is its session's matter; others are
/// ignored.
#[test]
fn terminations_go_to_their_sessions() {
    let mut rig = Rig::registered();
    rig.offer("AJ_1", "r");
    rig.terminate("AJ_1");
    assert_eq!(rig.places.used(), 0);
    rig.offer("AJ_2", "s");
    rig.assign("AJ_2", "s");
    rig.terminate("AJ_2");
    assert_eq!(rig.terminated, ["AJ_2"]);
    rig.worker.handle_terminated(false);
    rig.worker.handle_terminated(true);
    rig.worker.handle_job_end("AJ_2", JobOutcome::Success, rig.now);
    rig.terminate("AJ_2");
    rig.terminate("AJ_3");
    rig.terminate("\u{1b}");
    assert_eq!(rig.terminated.len(), 1);
    let counts = rig.counts();
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
    let mut rig = Rig::registered();
    rig.offer("AJ_1", "r");
    rig.assign("AJ_1", "r");
    rig.offer("AJ_2", "s");
    assert_eq!(rig.places.used(), 2);
    rig.worker.handle_socket_closed(rig.now);
    rig.drain();
    assert_eq!(rig.places.used(), 1, "the session's own");
    assert!(rig.terminated.is_empty());
    rig.sent.clear();
    rig.worker.handle_job_end("AJ_1", JobOutcome::Success, rig.now);
    rig.drain();
    assert!(rig.sent.is_empty());
    assert_eq!(rig.counts().jobs_succeeded, 1);
    // The assignment of a promise of the old connection is one without a promise.
    rig.pass(2 * SECOND);
    rig.register();
    rig.assign("AJ_2", "s");
    assert_eq!((rig.started.len(), rig.counts().assignments.unpromised), (1, 1));
}

/// A session that ends without a word has failed.
#[test]
fn a_session_without_an_outcome_has_failed() {
    let mut rig = Rig::registered();
    rig.offer("AJ_1", "r");
    rig.assign("AJ_1", "r");
    rig.sent.clear();
    rig.worker.handle_session_gone("AJ_1", rig.now);
    rig.drain();
    assert_eq!(rig.job_reports(), [("AJ_1", 3, "the session failed")]);
    assert_eq!(rig.worker.report().jobs, 0);
}

/// The URL of an assignment comes first, if it is one.
#[test]
fn an_assignment_may_name_another_server() {
    let mut rig = Rig::registered();
    for (id, url, expected) in [
        ("AJ_1", Some("wss://node-2.example.net"), "wss://node-2.example.net"),
        ("AJ_2", Some("ftp://x"), "ws://a.example.net"),
        ("AJ_3", Some(""), "ws://a.example.net"),
    ] {
        rig.offer(id, id);
        rig.hear(WorkerResponseKind::Assignment(Box::new(JobAssignment {
            job: Some(job(id, id)),
            url: url.map(str::to_owned),
            token: "t".into(),
        })));
        let started = rig.started.last().expect("a session");
        assert_eq!(started.urls[0], expected);
        assert!(started.urls.contains(&"ws://a.example.net".to_owned()));
    }
}

/// Bots without a name recognise each other, too.
#[test]
fn a_worker_without_a_name_serves_unnamed_jobs() {
    let mut rig = Rig::with(|settings| settings.worker.agent_name.clear());
    rig.register();
    assert!(!rig.offer("AJ_1", "r").available);
    let unnamed = || JobInfo {
        agent_name: String::new(),
        ..job("AJ_2", "r")
    };
    let answer = rig.offer_job(unnamed());
    assert!(answer.available);
    assert_eq!(answer.participant_attributes["edge.agent"], "automatic");
    rig.assign_job(unnamed());
    assert_eq!(rig.started[0].rules.mark, Some(("edge.agent", "automatic".to_owned())));
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
    type Step = fn(&mut Rig, &mut usize);
    const STEPS: [(&str, Step); 7] = [
        ("assigned", |rig, _| rig.assign("AJ_1", "r")),
        ("assigned again", |rig, _| rig.assign("AJ_1", "r")),
        ("time up", |rig, _| rig.pass(JOB_PROMISE_KEPT)),
        ("taken back", |rig, _| rig.terminate("AJ_1")),
        ("connection lost", |rig, _| {
            rig.worker.handle_socket_closed(rig.now);
            rig.drain();
            rig.pass(2 * SECOND);
            rig.register();
        }),
        ("draining", |rig, _| {
            rig.worker.handle_drain(rig.now);
            rig.drain();
        }),
        ("session ended", |rig, ended| {
            *ended += rig.started.len();
            rig.started.clear();
            rig.worker.handle_session_gone("AJ_1", rig.now);
            rig.drain();
        }),
    ];
    every_order(STEPS.len(), &mut |order| {
        let mut rig = Rig::registered();
        let mut ended = 0;
        assert!(rig.offer("AJ_1", "r").available);
        for step in order {
            STEPS[*step].1(&mut rig, &mut ended);
            let named = || order.iter().map(|step| STEPS[*step].0).collect::<Vec<_>>();
            let owned = rig.worker.promises.len() + rig.started.len();
            assert_eq!(rig.places.used(), owned, "{:?}", named());
            assert!(rig.started.len() + ended <= 1, "a second session: {:?}", named());
        }
        rig.started.clear();
        rig.pass(JOB_PROMISE_KEPT);
        assert_eq!(rig.places.used(), 0);
    });
}
