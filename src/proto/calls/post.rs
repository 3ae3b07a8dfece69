//! Events of calls for the receiver of `--events`: their form, their signatures, and when each is
//! posted.
//!
//! In: what happens in calls, the outcome of each attempt, the time and random numbers. Out: what
//! to post and when. An event is posted until it is accepted, has waited for too long, or is the
//! oldest of too many, so a receiver may get one twice: it has an id. Its age is counted from the
//! time at which it was queued, by a clock that is never set: an event of a day that the clock was
//! wrong is not lost once it is right. One that is not accepted lets the others pass, and each
//! failure makes the next pause longer. Source: <https://www.standardwebhooks.com>, 1.0.0.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::metrics::CallEventCounts;
use crate::event::LeaveReason;
use crate::limits::{CALL_EVENT_AGE_MAX, CALL_EVENT_PAUSE, CALL_EVENT_PAUSE_MAX, CALL_EVENTS_BYTES_MAX};
use crate::secret::SecretBytes;
use crate::time::iso_ms;

/// Events that wait; with more of them the oldest is dropped.
const WAITING_MAX: usize = 1024;
/// The longest pause that a receiver can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
const PREFIX: &str = "evt_";
const SUFFIX: &str = ".json";

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Started,
    Ended,
    /// The bot or the transport failed.
    Failed,
}

impl EventKind {
    /// Returns the event of the end of a call.
    pub fn of_end(reason: LeaveReason) -> Self {
        match reason {
            LeaveReason::BotFailed | LeaveReason::Failed => EventKind::Failed,
            _ => EventKind::Ended,
        }
    }

    fn name(self) -> &'static str {
        match self {
            EventKind::Started => "call.started",
            EventKind::Ended => "call.ended",
            EventKind::Failed => "call.failed",
        }
    }
}

/// An event, as it is posted.
#[derive(Clone, PartialEq, Eq)]
pub struct PostedEvent {
    /// The same for each attempt. It begins with the time, so names of files sort by it.
    pub id: String,
    pub body: String,
}

impl std::fmt::Debug for PostedEvent {
    /// Omits the body, which has texts and numbers.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PostedEvent").field(&self.id).finish()
    }
}

impl PostedEvent {
    pub fn new(kind: EventKind, data: &Value, unix_ms: u64, random: u64) -> Self {
        let body = json!({"type": kind.name(), "timestamp": iso_ms(unix_ms), "data": data});
        PostedEvent {
            id: format!("{PREFIX}{unix_ms:013}_{random:016x}"),
            body: body.to_string(),
        }
    }

    /// Reads an event from its file; `None` for a file that has none.
    pub fn from_file(name: &str, body: String) -> Option<Self> {
        let event = PostedEvent {
            id: name.strip_suffix(SUFFIX)?.to_owned(),
            body,
        };
        event.has_id().then_some(event)
    }

    /// Returns the name of the file that keeps an event.
    pub fn file_name(id: &str) -> String {
        format!("{id}{SUFFIX}")
    }

    /// Returns whether its id has the form of ours.
    fn has_id(&self) -> bool {
        let rest = self.id.strip_prefix(PREFIX);
        rest.and_then(|rest| rest.split_once('_'))
            .is_some_and(|(time, random)| {
                let is_random = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
                is_random && time.parse::<u64>().is_ok()
            })
    }

    fn bytes(&self) -> usize {
        self.id.len() + self.body.len()
    }

    /// Returns the headers of an attempt at this time.
    pub fn headers(&self, secret: &SecretBytes, unix_s: u64) -> [(&'static str, String); 3] {
        let keyed = Hmac::<Sha256>::new_from_slice(secret.expose()).expect("HMAC takes a key of any length");
        let signed = format!("{}.{unix_s}.{}", self.id, self.body);
        let tag = keyed.chain_update(signed).finalize().into_bytes();
        [
            ("webhook-id", self.id.clone()),
            ("webhook-timestamp", unix_s.to_string()),
            ("webhook-signature", format!("v1,{}", BASE64.encode(&tag))),
        ]
    }
}

/// An event in the queue.
#[derive(Debug)]
struct WaitingEvent {
    event: PostedEvent,
    /// Counts the events of the queue; ids sort by a clock that may be set back.
    serial: u64,
    /// When it has waited for too long.
    until: Instant,
}

/// The events that wait for their receiver.
#[derive(Debug, Default)]
pub struct EventQueue {
    waiting: VecDeque<WaitingEvent>,
    bytes: usize,
    /// Events that were queued so far.
    queued: u64,
    /// Attempts in a row that failed.
    failures: u32,
    /// Nothing is posted before.
    paused_until: Option<Instant>,
    /// Events that were accepted, and dropped.
    accepted: u64,
    dropped: u64,
    is_gone: bool,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum PostStep {
    Post(PostedEvent),
    Wait(Instant),
    /// Nothing waits.
    Idle,
    /// The receiver wants no more.
    Gone,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    Answered { status: u16, retry_after: Option<Duration> },
    Unanswered,
}

/// What an outcome means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostResult {
    /// The event was accepted, after this many failures in a row.
    Accepted { failures: u32 },
    /// The next attempt is after a pause.
    Again { failures: u32, pause: Duration },
    /// The receiver wants no more events.
    Gone,
}

impl EventQueue {
    /// Adds an event, and returns the ids of those that are dropped for it.
    pub fn push(&mut self, event: PostedEvent, now: Instant) -> Vec<String> {
        if self.is_gone {
            return Vec::new();
        }
        self.bytes += event.bytes();
        self.queued += 1;
        self.waiting.push_back(WaitingEvent {
            event,
            serial: self.queued,
            until: now + CALL_EVENT_AGE_MAX,
        });
        let mut dropped = Vec::new();
        while self.waiting.len() > 1 && (self.waiting.len() > WAITING_MAX || self.bytes > CALL_EVENTS_BYTES_MAX) {
            // A failure moves an event back, so the oldest is not always the first one.
            let oldest = self.waiting.iter().min_by_key(|waiting| waiting.serial);
            let id = oldest.map(|waiting| waiting.event.id.clone());
            dropped.extend(id.and_then(|id| self.drop_event(&id)));
        }
        dropped
    }

    /// Returns the ids of the events that have waited for too long, which are dropped.
    pub fn take_expired(&mut self, now: Instant) -> Vec<String> {
        let expired: Vec<String> = self
            .waiting
            .iter()
            .filter(|waiting| waiting.until < now)
            .map(|waiting| waiting.event.id.clone())
            .collect();
        expired.into_iter().filter_map(|id| self.drop_event(&id)).collect()
    }

    /// Returns whether the receiver wants no more events.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Returns how many events were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the counts for the metrics.
    pub fn counts(&self) -> CallEventCounts {
        CallEventCounts {
            accepted: self.accepted,
            dropped: self.dropped,
        }
    }

    /// Returns whether nothing is to be posted now.
    pub fn is_settled(&self, now: Instant) -> bool {
        self.waiting.is_empty() || self.is_gone || self.paused_until.is_some_and(|until| now < until)
    }

    /// Returns what to do next.
    pub fn next(&self, now: Instant) -> PostStep {
        match (self.waiting.front(), self.paused_until) {
            _ if self.is_gone => PostStep::Gone,
            (None, _) => PostStep::Idle,
            (Some(_), Some(until)) if now < until => PostStep::Wait(until),
            (Some(first), _) => PostStep::Post(first.event.clone()),
        }
    }

    /// Handles the outcome of an attempt for the event with this id. `random` is any number.
    pub fn handle_outcome(&mut self, id: &str, outcome: PostOutcome, now: Instant, random: u32) -> PostResult {
        let retry_after = match outcome {
            PostOutcome::Answered { status: 200..=299, .. } => {
                self.remove(id);
                self.accepted += 1;
                self.paused_until = None;
                return PostResult::Accepted {
                    failures: std::mem::take(&mut self.failures),
                };
            }
            PostOutcome::Answered { status: 410, .. } => {
                self.is_gone = true;
                self.waiting.clear();
                self.bytes = 0;
                return PostResult::Gone;
            }
            PostOutcome::Answered { retry_after, .. } => retry_after.unwrap_or_default(),
            PostOutcome::Unanswered => Duration::ZERO,
        };
        let doubled = 1 << self.failures.min(16);
        let longest = (CALL_EVENT_PAUSE * doubled).min(CALL_EVENT_PAUSE_MAX);
        // Several runners that lost their receiver at once must not come back at once.
        let by_chance = longest.mul_f64(f64::from(random) / f64::from(u32::MAX) / 2.0);
        let pause = (longest - by_chance).max(retry_after.min(RETRY_AFTER_MAX));
        self.failures = self.failures.saturating_add(1);
        self.paused_until = Some(now + pause);
        if let Some(waiting) = self.remove(id) {
            self.bytes += waiting.event.bytes();
            self.waiting.push_back(waiting);
        }
        PostResult::Again {
            failures: self.failures,
            pause,
        }
    }

    fn remove(&mut self, id: &str) -> Option<WaitingEvent> {
        let at = self.waiting.iter().position(|waiting| waiting.event.id == id)?;
        let waiting = self.waiting.remove(at)?;
        self.bytes -= waiting.event.bytes();
        Some(waiting)
    }

    fn drop_event(&mut self, id: &str) -> Option<String> {
        let waiting = self.remove(id)?;
        self.dropped += 1;
        Some(waiting.event.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            EventKind::of_end(LeaveReason::BotFailed),
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
        assert_eq!(EventKind::of_end(LeaveReason::Left), EventKind::Ended);
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
}
