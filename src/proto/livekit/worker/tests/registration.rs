//! The connection: registration, pings, load reports, silence, and the way back.

use super::*;

#[test]
fn registers_at_once_and_reports_its_state() {
    let mut bench = Bench::new();
    let (at, request) = &bench.dials[0];
    assert_eq!((*at, &*request.url), (Duration::ZERO, "http://a.example.net/agent"));
    assert_eq!(bench.worker.report().word(), "connecting");
    bench.register();
    assert!(matches!(&bench.sent[0], WorkerRequestKind::Register(register)
        if register.agent_name == "bot" && register.job_type == 0));
    assert_eq!(bench.last_status(), (0, 0.0, 0));
    let report = bench.worker.report();
    assert!(report.is_ready());
    assert_eq!(
        (&*report.id, &*report.server_version, &*report.node),
        ("AW_1", "1.13.5", "ND_1")
    );
    assert_eq!(report.since_s, 1_795_252_753);
}

#[test]
fn reports_its_load_every_two_and_a_half_seconds_and_pings() {
    let mut bench = Bench::registered();
    bench.sent.clear();
    bench.pass_with_pings(10 * SECOND);
    let statuses = bench
        .sent
        .iter()
        .filter(|sent| matches!(sent, WorkerRequestKind::UpdateWorker(_)));
    assert_eq!(statuses.count(), 4);
    let pings = bench
        .sent
        .iter()
        .filter(|sent| matches!(sent, WorkerRequestKind::Ping(_)));
    assert_eq!(pings.count(), 1);
}

/// A server that is silent for 25 s is gone; one that pings is not. Jobs go on.
#[test]
fn a_silent_server_is_gone() {
    let mut bench = Bench::registered();
    bench.pass_with_pings(60 * SECOND);
    assert_eq!(bench.dials.len(), 1);
    bench.offer("AJ_1", "r");
    bench.assign("AJ_1", "r");
    bench.pass(WORKER_SILENCE_MAX - Duration::from_millis(1));
    assert_eq!((bench.closes, bench.dials.len()), (0, 1));
    bench.pass(Duration::from_millis(1));
    assert_eq!((bench.closes, bench.worker.report().word()), (1, "connecting"));
    bench.pass(SECOND);
    assert_eq!(bench.dials.len(), 2, "the first attempt follows at once");
    assert!(bench.terminated.is_empty());
    bench.sent.clear();
    bench.register();
    assert!(
        bench
            .sent
            .iter()
            .any(|sent| matches!(sent, WorkerRequestKind::Migrate(jobs) if jobs.job_ids == ["AJ_1"])),
        "the server is told of the jobs that live on"
    );
    assert_eq!(bench.last_status().2, 1);
}

/// 0, 1, 2, 4, 8, 10 s, each with jitter, and 10 s for ever.
#[test]
fn attempts_go_on_for_ever_with_growing_pauses() {
    let mut bench = Bench::registered();
    bench.pass_with_pings(WORKER_SETTLED);
    bench.worker.handle_socket_closed(bench.now);
    let mut last = bench.now;
    for at in 0..60_usize {
        bench.pass(20 * SECOND);
        let (dialled, _) = bench.dials.last().expect("a dial");
        let pause = bench.start + *dialled - last;
        let least = WORKER_PAUSES[at.min(5)];
        assert!(
            pause >= least && pause <= least + least / 4 + WORKER_JITTER,
            "attempt {at}: {pause:?}"
        );
        assert_eq!(bench.dials.len(), 2 + at);
        last = bench.now;
        bench.worker.handle_unreachable("refused", bench.now);
    }
}

/// A registration that is lost soon does not begin the pauses anew.
#[test]
fn a_registration_that_never_settles_keeps_the_pauses() {
    let mut bench = Bench::registered();
    for _ in 0..5 {
        bench.worker.handle_socket_closed(bench.now);
        bench.pass(20 * SECOND);
        bench.register();
    }
    bench.worker.handle_socket_closed(bench.now);
    let dials = bench.dials.len();
    bench.pass(9 * SECOND);
    assert_eq!(bench.dials.len(), dials);
}

/// All URLs are tried without a pause; the first one that answers is kept.
#[test]
fn several_urls_are_tried_in_turn() {
    let mut bench = Bench::with(|settings| {
        settings.urls = ["ws://a", "wss://b/path", "http://c"].map(str::to_owned).to_vec();
    });
    bench.worker.handle_unreachable("refused", bench.now);
    bench.pass(WORKER_JITTER);
    bench.register();
    let urls: Vec<&str> = bench.dials.iter().map(|(_, request)| &*request.url).collect();
    assert_eq!(urls, ["http://a/agent", "https://b/path/agent"]);
    assert_eq!(bench.worker.report().url, "wss://b/path");
    bench.offer("AJ_1", "r");
    bench.assign("AJ_1", "r");
    assert_eq!(bench.started[0].urls, ["wss://b/path", "ws://a", "http://c"]);
}

#[test]
fn refusals_are_told_apart_and_tried_again() {
    let mut bench = Bench::new();
    for (status, word) in [
        (401, "refused"),
        (404, "refused"),
        (503, "connecting"),
        (429, "connecting"),
    ] {
        bench.worker.handle_refused(status, bench.now);
        assert_eq!(bench.worker.report().word(), word, "{status}");
        let dials = bench.dials.len();
        bench.pass(15 * SECOND);
        assert_eq!(bench.dials.len(), dials + 1);
    }
    // A server that closes instead of answering does not take the registration.
    bench.worker.handle_open(bench.now);
    bench.worker.handle_socket_closed(bench.now);
    assert_eq!(bench.worker.report().word(), "refused");
    assert!(!refusal_words(401).contains("eyJ"));
}

#[test]
fn a_registration_without_an_answer_fails() {
    let mut bench = Bench::new();
    bench.worker.handle_open(bench.now);
    bench.pass(WORKER_REGISTER_WITHIN - Duration::from_millis(1));
    assert_eq!(bench.closes, 0);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.closes, 1);
    bench.pass(2 * SECOND);
    assert_eq!(bench.dials.len(), 2);
}

/// Closes in every state, and rubbish in every state: no panic, and the worker comes back.
#[test]
fn a_close_or_rubbish_in_any_state_is_survived() {
    let rubbish: [&'static [u8]; 4] = [b"", b"\xff\xff\xff", b"\x0a\x7f", b"\x7a\x02\x08\x01"];
    for state in 0..4 {
        let mut bench = Bench::new();
        match state {
            0 => {}
            1 => bench.worker.handle_open(bench.now),
            2 => bench.register(),
            _ => {
                bench.register();
                bench.offer("AJ_1", "r");
                bench.assign("AJ_1", "r");
            }
        }
        for bytes in rubbish {
            bench.worker.handle_message(Bytes::from_static(bytes), bench.now);
        }
        bench.worker.handle_socket_closed(bench.now);
        bench.worker.handle_socket_closed(bench.now);
        bench.worker.handle_refused(500, bench.now);
        bench.worker.handle_unreachable("x", bench.now);
        bench.drain();
        bench.pass(15 * SECOND);
        bench.register();
        assert!(bench.worker.report().is_ready(), "{state}");
        assert_eq!(bench.started.len(), usize::from(state == 3));
    }
}

/// A draining worker is full at once and takes nothing; the jobs go on. Its stop is the last word.
#[test]
fn drains_and_stops() {
    let mut bench = Bench::registered();
    bench.offer("AJ_1", "r");
    bench.assign("AJ_1", "r");
    bench.sent.clear();
    bench.worker.handle_drain(bench.now);
    bench.drain();
    assert_eq!(bench.last_status(), (1, 1.0, 1));
    let answer = bench.offer("AJ_2", "s");
    assert!(!answer.available && !answer.terminate);
    assert!(bench.terminated.is_empty());
    bench.worker.handle_job_end("AJ_1", JobOutcome::Success, bench.now);
    bench.drain();
    assert_eq!(bench.job_reports(), [("AJ_1", 2, "")]);
    bench.worker.handle_stop();
    bench.drain();
    assert_eq!((bench.closes, bench.worker.poll_timeout()), (1, None));
    assert_eq!(bench.counts().offers.draining, 1);
}

/// Late timers for 5 s make the worker full; it recovers with them.
#[test]
fn late_timers_make_it_full() {
    let mut bench = Bench::registered();
    let late = WORKER_LATE + Duration::from_millis(1);
    for _ in 0..=(WORKER_LATE_FOR.as_millis() / WORKER_TICK.as_millis()) {
        bench.now += WORKER_TICK + late;
        bench.worker.handle_timeout(bench.now);
        bench.worker.handle_frame(bench.now);
        bench.drain();
    }
    assert!(!bench.offer("AJ_1", "r").available);
    assert_eq!(bench.counts().offers.full, 1);
    bench.sent.clear();
    bench.pass(3 * SECOND);
    assert_eq!(bench.last_status().0, 0);
    assert!(bench.offer("AJ_1", "r").available);
}
