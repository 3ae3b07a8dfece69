//! The connection: registration, pings, load reports, silence, and the way back.

use super::*;

#[test]
fn registers_at_once_and_reports_its_state() {
    let mut rig = Rig::new();
    let (at, request) = &rig.dials[0];
    assert_eq!((*at, &*request.url), (Duration::ZERO, "http://a.example.net/agent"));
    assert_eq!(rig.worker.report().word(), "connecting");
    rig.register();
    assert!(matches!(&rig.sent[0], WorkerRequestKind::Register(register)
        if register.agent_name == "bot" && register.job_type == 0));
    assert_eq!(rig.last_status(), (0, 0.0, 0));
    let report = rig.worker.report();
    assert!(report.is_ready());
    assert_eq!(
        (&*report.id, &*report.server_version, &*report.node),
        ("AW_1", "1.13.5", "ND_1")
    );
    assert_eq!(report.since_s, 1_795_252_753);
}

#[test]
fn reports_its_load_every_two_and_a_half_seconds_and_pings() {
    let mut rig = Rig::registered();
    rig.sent.clear();
    rig.pass_with_pings(10 * SECOND);
    let statuses = rig
        .sent
        .iter()
        .filter(|sent| matches!(sent, WorkerRequestKind::UpdateWorker(_)));
    assert_eq!(statuses.count(), 4);
    let pings = rig
        .sent
        .iter()
        .filter(|sent| matches!(sent, WorkerRequestKind::Ping(_)));
    assert_eq!(pings.count(), 1);
}

/// Without a registration it is told since when: from the start, by a clock that was set meanwhile,
/// and from a loss.
#[test]
fn tells_since_when_it_is_not_registered() {
    const START: u64 = 1_795_252_753;
    let mut rig = Rig::new();
    let since = |rig: &mut Rig| rig.worker.report().status_json()["not_registered_since"].clone();
    assert_eq!(since(&mut rig), START);
    rig.worker.handle_refused(401, rig.now);
    rig.pass(Duration::from_mins(1));
    assert_eq!(since(&mut rig), START, "an attempt that fails changes nothing");
    let set = Duration::from_secs(START) + Duration::from_hours(1) + (rig.now - rig.start);
    rig.worker.set_clock(set, rig.now);
    assert_eq!(since(&mut rig), START + 3600, "the clock was an hour behind");
    rig.register();
    assert_eq!(since(&mut rig), serde_json::Value::Null);
    rig.pass(WORKER_SILENCE_MAX);
    let lost = rig.now;
    rig.pass(Duration::from_mins(1));
    let expected = START + 3600 + (lost - rig.start).as_secs();
    assert_eq!(since(&mut rig), expected);
}

/// A server that is silent for 25 s is gone; one that pings is not. Jobs go on.
#[test]
fn a_silent_server_is_gone() {
    let mut rig = Rig::registered();
    rig.pass_with_pings(60 * SECOND);
    assert_eq!(rig.dials.len(), 1);
    rig.offer("AJ_1", "r");
    rig.assign("AJ_1", "r");
    rig.pass(WORKER_SILENCE_MAX - Duration::from_millis(1));
    assert_eq!((rig.closes, rig.dials.len()), (0, 1));
    rig.pass(Duration::from_millis(1));
    assert_eq!((rig.closes, rig.worker.report().word()), (1, "connecting"));
    rig.pass(SECOND);
    assert_eq!(rig.dials.len(), 2, "the first attempt follows at once");
    assert!(rig.terminated.is_empty());
    rig.sent.clear();
    rig.register();
    assert!(
        rig.sent
            .iter()
            .any(|sent| matches!(sent, WorkerRequestKind::Migrate(jobs) if jobs.job_ids == ["AJ_1"])),
        "the server is told of the jobs that live on"
    );
    assert_eq!(rig.last_status().2, 1);
}

/// 0, 1, 2, 4, 8, 10 s, each with jitter, and 10 s for ever.
#[test]
fn attempts_go_on_for_ever_with_growing_pauses() {
    let mut rig = Rig::registered();
    rig.pass_with_pings(WORKER_SETTLED);
    rig.worker.handle_socket_closed(rig.now);
    let mut last = rig.now;
    for at in 0..60_usize {
        rig.pass(20 * SECOND);
        let (dialled, _) = rig.dials.last().expect("a dial");
        let pause = rig.start + *dialled - last;
        let least = WORKER_PAUSES[at.min(5)];
        assert!(
            pause >= least && pause <= least + least / 4 + WORKER_JITTER,
            "attempt {at}: {pause:?}"
        );
        assert_eq!(rig.dials.len(), 2 + at);
        last = rig.now;
        rig.worker.handle_unreachable("refused", rig.now);
    }
}

/// A registration that is lost soon does not begin the pauses anew.
#[test]
fn a_registration_that_never_settles_keeps_the_pauses() {
    let mut rig = Rig::registered();
    for _ in 0..5 {
        rig.worker.handle_socket_closed(rig.now);
        rig.pass(20 * SECOND);
        rig.register();
    }
    rig.worker.handle_socket_closed(rig.now);
    let dials = rig.dials.len();
    rig.pass(9 * SECOND);
    assert_eq!(rig.dials.len(), dials);
}

/// All URLs are tried without a pause; the first one that answers is kept.
#[test]
fn several_urls_are_tried_in_turn() {
    let mut rig = Rig::with(|settings| {
        settings.urls = ["ws://a", "wss://b/path", "http://c"].map(str::to_owned).to_vec();
    });
    rig.worker.handle_unreachable("refused", rig.now);
    rig.pass(WORKER_JITTER);
    rig.register();
    let urls: Vec<&str> = rig.dials.iter().map(|(_, request)| &*request.url).collect();
    assert_eq!(urls, ["http://a/agent", "https://b/path/agent"]);
    assert_eq!(rig.worker.report().url, "wss://b/path");
    rig.offer("AJ_1", "r");
    rig.assign("AJ_1", "r");
    assert_eq!(rig.started[0].urls, ["wss://b/path", "ws://a", "http://c"]);
}

#[test]
fn refusals_differ_and_are_tried_again() {
    let mut rig = Rig::new();
    for (status, word) in [
        (401, "refused"),
        (404, "refused"),
        (503, "connecting"),
        (429, "connecting"),
    ] {
        rig.worker.handle_refused(status, rig.now);
        assert_eq!(rig.worker.report().word(), word, "{status}");
        let dials = rig.dials.len();
        rig.pass(15 * SECOND);
        assert_eq!(rig.dials.len(), dials + 1);
    }
    // A server that closes instead of answering does not take the registration.
    rig.worker.handle_open(rig.now);
    rig.worker.handle_socket_closed(rig.now);
    assert_eq!(rig.worker.report().word(), "refused");
    assert!(!refusal_words(401).contains("eyJ"));
}

#[test]
fn a_registration_without_an_answer_fails() {
    let mut rig = Rig::new();
    rig.worker.handle_open(rig.now);
    rig.pass(WORKER_REGISTER_WITHIN - Duration::from_millis(1));
    assert_eq!(rig.closes, 0);
    rig.pass(Duration::from_millis(1));
    assert_eq!(rig.closes, 1);
    rig.pass(2 * SECOND);
    assert_eq!(rig.dials.len(), 2);
}

/// Closes in every state, and rubbish in every state: no panic, and the worker comes back.
#[test]
fn a_close_or_rubbish_in_any_state_is_survived() {
    let rubbish: [&'static [u8]; 4] = [b"", b"\xff\xff\xff", b"\x0a\x7f", b"\x7a\x02\x08\x01"];
    for state in 0..4 {
        let mut rig = Rig::new();
        match state {
            0 => {}
            1 => rig.worker.handle_open(rig.now),
            2 => rig.register(),
            _ => {
                rig.register();
                rig.offer("AJ_1", "r");
                rig.assign("AJ_1", "r");
            }
        }
        for bytes in rubbish {
            rig.worker.handle_message(Bytes::from_static(bytes), rig.now);
        }
        rig.worker.handle_socket_closed(rig.now);
        rig.worker.handle_socket_closed(rig.now);
        rig.worker.handle_refused(500, rig.now);
        rig.worker.handle_unreachable("x", rig.now);
        rig.drain();
        rig.pass(15 * SECOND);
        rig.register();
        assert!(rig.worker.report().is_ready(), "{state}");
        assert_eq!(rig.started.len(), usize::from(state == 3));
    }
}

/// A draining worker is full at once and takes nothing; the jobs go on. Its stop is the last word.
#[test]
fn drains_and_stops() {
    let mut rig = Rig::registered();
    rig.offer("AJ_1", "r");
    rig.assign("AJ_1", "r");
    rig.sent.clear();
    rig.worker.handle_drain(rig.now);
    rig.drain();
    assert_eq!(rig.last_status(), (1, 1.0, 1));
    let answer = rig.offer("AJ_2", "s");
    assert!(!answer.available && !answer.terminate);
    assert!(rig.terminated.is_empty());
    rig.worker.handle_job_end("AJ_1", JobOutcome::Success, rig.now);
    rig.drain();
    assert_eq!(rig.job_reports(), [("AJ_1", 2, "")]);
    rig.worker.handle_stop();
    rig.drain();
    assert_eq!((rig.closes, rig.worker.poll_timeout()), (1, None));
    assert_eq!(rig.counts().offers.draining, 1);
}

/// Late timers for 5 s make the worker full; it recovers with them.
#[test]
fn late_timers_make_it_full() {
    let mut rig = Rig::registered();
    let late = WORKER_LATE + Duration::from_millis(1);
    for _ in 0..=(WORKER_LATE_FOR.as_millis() / WORKER_TICK.as_millis()) {
        rig.now += WORKER_TICK + late;
        rig.worker.handle_timeout(rig.now);
        rig.worker.handle_frame(rig.now);
        rig.drain();
    }
    assert!(!rig.offer("AJ_1", "r").available);
    assert_eq!(rig.counts().offers.full, 1);
    rig.sent.clear();
    rig.pass(3 * SECOND);
    assert_eq!(rig.last_status().0, 0);
    assert!(rig.offer("AJ_1", "r").available);
}
