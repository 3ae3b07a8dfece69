//! Events of calls for the receiver of `--events`: their form, their signatures, and when each is
//! posted.
//!
//! In: what happens in calls, the outcome of each attempt, the time and random numbers. Out: what
//! to post and when. An event is posted until it is accepted, has waited for too long, or is the
//! oldest of too many, so a receiver may get one twice: it has an id. Of too many, those of refused
//! calls go first. The age is counted from the time at which an event was queued, by a clock that
//! is never set: an event of a day that the clock was wrong is not lost once it is right. One that
//! is not accepted lets the others pass, and each failure makes the next pause longer. Source:
//! <https://www.standardwebhooks.com>, 1.0.0.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::Sha256;

use super::metrics::CallEventCounts;
use super::outcome::{CallOutcome, EndedRow};
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
    pub fn of_end(outcome: CallOutcome) -> Self {
        match outcome.is_failure() {
            true => EventKind::Failed,
            false => EventKind::Ended,
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

    /// Returns whether it is the end of a call that the runner turned away.
    fn is_refusal(&self) -> bool {
        #[derive(Deserialize)]
        struct EventBody {
            data: EndedRow,
        }
        let body: Option<EventBody> = serde_json::from_str(&self.body).ok();
        body.is_some_and(|body| body.data.is_refusal())
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
    /// Whether it is dropped before all others.
    is_refusal: bool,
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
            is_refusal: event.is_refusal(),
            event,
            serial: self.queued,
            until: now + CALL_EVENT_AGE_MAX,
        });
        let mut dropped = Vec::new();
        while self.waiting.len() > 1 && (self.waiting.len() > WAITING_MAX || self.bytes > CALL_EVENTS_BYTES_MAX) {
            // A failure moves an event back, so the oldest is not always the first one.
            let oldest = self.waiting.iter();
            let oldest = oldest.min_by_key(|waiting| (!waiting.is_refusal, waiting.serial));
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
mod tests;
