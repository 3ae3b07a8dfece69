//! Tests of the queue of events, on a clock of their own.

use super::*;
use crate::event::LeaveReason;

const NOW_MS: u64 = 1_795_904_000_000;

fn event(nth: u64) -> PostedEvent {
    PostedEvent::new(EventKind::Started, &json!({"id": nth}), NOW_MS + nth, nth)
}

fn answered(status: u16) -> PostOutcome {
    PostOutcome::Answered {
        status,
        retry_after: None,
    }
}

fn queue(events: u64) -> EventQueue {
    let mut queue = EventQueue::default();
    for nth in 0..events {
        assert_eq!(queue.push(event(nth), Instant::now()), Vec::<String>::new());
    }
    queue
}

fn posted(queue: &EventQueue, now: Instant) -> String {
    match queue.next(now) {
        PostStep::Post(event) => event.id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_event_is_json_with_an_id_that_sorts_by_time() {
    let event = PostedEvent::new(
        EventKind::of_end(LeaveReason::BotFailed.into()),
        &json!({"id": "c"}),
        NOW_MS,
        7,
    );
    assert_eq!(event.id, "evt_1795904000000_0000000000000007");
    let body: Value = serde_json::from_str(&event.body).expect("JSON");
    assert_eq!(
        body,
        json!({"type": "call.failed", "timestamp": "2026-11-28T22:13:20.000Z", "data": {"id": "c"}})
    );
    assert_eq!(EventKind::of_end(LeaveReason::Left.into()), EventKind::Ended);
    assert_eq!(EventKind::of_end(CallOutcome::Busy), EventKind::Ended);
    assert_eq!(EventKind::of_end(CallOutcome::Unreachable), EventKind::Failed);
    let name = PostedEvent::file_name(&event.id);
    assert_eq!(PostedEvent::from_file(&name, event.body.clone()), Some(event));
    for name in [
        "evt_1.json",
        "evt_x_0000000000000007.json",
        "evt_1_0000000000000007.part",
        "notes.json",
    ] {
        assert_eq!(PostedEvent::from_file(name, String::new()), None, "{name}");
    }
}

/// The example of the specification.
#[test]
fn signatures_are_those_of_the_standard() {
    let key = BASE64.decode(b"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
    let event = PostedEvent {
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek".into(),
        body: r#"{"test": 2432232314}"#.into(),
    };
    let [id, timestamp, signature] = event.headers(&SecretBytes::new(key), 1_614_265_330);
    assert_eq!(id, ("webhook-id", event.id));
    assert_eq!(timestamp, ("webhook-timestamp", "1614265330".into()));
    let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    assert_eq!(signature, ("webhook-signature", expected.into()));
}

#[test]
fn an_accepted_event_is_over_and_the_next_one_follows_at_once() {
    let (mut queue, now) = (queue(2), Instant::now());
    assert!(!queue.is_settled(now));
    for nth in 0..2 {
        assert_eq!(posted(&queue, now), event(nth).id);
        let result = queue.handle_outcome(&event(nth).id, answered(204), now, 0);
        assert_eq!(result, PostResult::Accepted { failures: 0 });
    }
    assert!(queue.next(now) == PostStep::Idle && queue.is_settled(now));
    assert_eq!(queue.bytes, 0);
    let counts = CallEventCounts {
        accepted: 2,
        dropped: 0,
    };
    assert_eq!(queue.counts(), counts);
}

/// Pauses double up to a limit, less up to a half by chance, and another event has its turn.
#[test]
fn a_failure_pauses_longer_each_time() {
    let (mut queue, mut now) = (queue(2), Instant::now());
    let mut pauses = Vec::new();
    for nth in 0..12 {
        let id = posted(&queue, now);
        assert_eq!(id, event(nth % 2).id, "each has its turn");
        let outcome = if nth % 3 == 0 {
            PostOutcome::Unanswered
        } else {
            answered(500)
        };
        let PostResult::Again { failures, pause } = queue.handle_outcome(&id, outcome, now, 0) else {
            panic!("it failed")
        };
        assert_eq!(u64::from(failures), nth + 1);
        assert_eq!(queue.next(now), PostStep::Wait(now + pause));
        assert!(queue.is_settled(now));
        now += pause;
        pauses.push(pause.as_secs());
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    let again = queue.handle_outcome(&event(0).id, answered(400), now, u32::MAX);
    assert!(matches!(again, PostResult::Again { pause, .. } if pause == CALL_EVENT_PAUSE_MAX / 2));
    let accepted = queue.handle_outcome(&event(0).id, answered(200), now, 0);
    assert_eq!(accepted, PostResult::Accepted { failures: 13 });
    assert_eq!(posted(&queue, now), event(1).id);
}

#[test]
fn a_receiver_may_ask_for_a_pause() {
    let (mut queue, now) = (queue(1), Instant::now());
    for (asked, kept) in [(90, 90), (0, 2), (1_000_000, 3600)] {
        let outcome = PostOutcome::Answered {
            status: 503,
            retry_after: Some(Duration::from_secs(asked)),
        };
        let result = queue.handle_outcome(&event(0).id, outcome, now, 0);
        assert!(
            matches!(result, PostResult::Again { pause, .. } if pause.as_secs() == kept),
            "{result:?}"
        );
    }
}

#[test]
fn a_receiver_that_is_gone_gets_nothing_more() {
    let (mut queue, now) = (queue(2), Instant::now());
    assert!(!queue.is_gone());
    assert_eq!(
        queue.handle_outcome(&event(0).id, answered(410), now, 0),
        PostResult::Gone
    );
    assert_eq!(queue.push(event(3), now), Vec::<String>::new());
    assert!(queue.next(now) == PostStep::Gone && queue.is_settled(now));
    assert!(queue.waiting.is_empty() && queue.is_gone());
}

/// The oldest are dropped and counted, at a number and at a sum of bytes, wherever they wait.
#[test]
fn the_oldest_events_are_dropped() {
    let (mut queue, now) = (queue(WAITING_MAX as u64), Instant::now());
    queue.handle_outcome(&event(0).id, answered(500), now, 0);
    assert_eq!(queue.push(event(5000), now), [event(0).id]);
    assert_eq!((queue.waiting.len(), queue.dropped()), (WAITING_MAX, 1));
    let long = json!("x".repeat(CALL_EVENTS_BYTES_MAX - 1000));
    let long = PostedEvent::new(EventKind::Ended, &long, NOW_MS + 6000, 0);
    queue.push(long.clone(), now);
    assert!(queue.bytes <= CALL_EVENTS_BYTES_MAX);
    assert_eq!(queue.waiting.back().map(|last| &last.event), Some(&long));
    let sum: usize = queue.waiting.iter().map(|waiting| waiting.event.bytes()).sum();
    assert_eq!(
        (queue.bytes, queue.dropped() as usize),
        (sum, WAITING_MAX + 2 - queue.waiting.len())
    );
}

/// The events of refused calls make room first, so that a flood of them displaces no others.
#[test]
fn events_of_refused_calls_are_dropped_first() {
    let (mut queue, now) = (queue(WAITING_MAX as u64 - 2), Instant::now());
    let refused = |nth: u64| {
        let call = json!({"id": nth, "outcome": "refused", "turns": []});
        PostedEvent::new(EventKind::of_end(CallOutcome::Refused), &call, NOW_MS + nth, nth)
    };
    let kept = |event: PostedEvent| PostedEvent::from_file(&PostedEvent::file_name(&event.id), event.body);
    // One was kept on the disk by the runner before.
    assert_eq!(
        queue.push(kept(refused(2000)).expect("an event"), now),
        Vec::<String>::new()
    );
    assert_eq!(queue.push(refused(2001), now), Vec::<String>::new());
    for nth in 2002..3000 {
        assert_eq!(queue.push(refused(nth), now), [refused(nth - 2).id]);
    }
    assert_eq!(queue.push(event(4000), now), [refused(2998).id]);
    assert_eq!(queue.push(event(4001), now), [refused(2999).id]);
    assert_eq!(queue.push(event(4002), now), [event(0).id]);
}

/// What counts is how long it has waited: the clock may have been a year behind when it was
/// made, or a day ahead.
#[test]
fn an_event_that_no_one_accepts_is_dropped_in_the_end() {
    let (mut queue, now, second) = (EventQueue::default(), Instant::now(), Duration::from_secs(1));
    const DAY_MS: u64 = 86_400_000;
    let of = |unix_ms| PostedEvent::new(EventKind::Started, &json!({}), unix_ms, 1);
    let (behind, ahead) = (of(NOW_MS - 365 * DAY_MS), of(NOW_MS + DAY_MS));
    queue.push(ahead.clone(), now);
    queue.push(behind.clone(), now + second);
    assert_eq!(queue.take_expired(now + CALL_EVENT_AGE_MAX), Vec::<String>::new());
    assert_eq!(
        queue.take_expired(now + CALL_EVENT_AGE_MAX + second / 2),
        std::slice::from_ref(&ahead.id)
    );
    assert_eq!((queue.waiting.len(), queue.dropped()), (1, 1));
    // Too many: the first that came goes, although its id is of a later time.
    queue.push(ahead.clone(), now + 2 * second);
    let many = (0..WAITING_MAX as u64).map(event);
    let dropped: Vec<String> = many.flat_map(|event| queue.push(event, now + 2 * second)).collect();
    assert_eq!(dropped, [behind.id, ahead.id]);
}
