//! Posts events of calls to the receiver of `--events`.
//!
//! One task posts one event at a time, in the order and with the pauses of `proto::calls`. The log
//! names the host of the receiver, and neither its path nor what is posted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::{lock, random, unix_time_ms, unix_time_s};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

use super::writer::CallWriter;
use crate::io::rest::{self, RestError, RestResponse};
use crate::io::tasks;
use crate::proto::calls::config::EventsConfig;
use crate::proto::calls::metrics::CallEventCounts;
use crate::proto::calls::{EventKind, EventQueue, PostOutcome, PostResult, PostStep, PostedEvent};
use crate::proto::server::rest::{RestBody, RestMethod, RestRequest};
use crate::proto::time::ClockDifference;

/// Time for the last events when the runner ends.
const POSTED_WITHIN: Duration = Duration::from_secs(2);

/// Posts events.
pub struct EventPoster {
    config: EventsConfig,
    /// The host of the receiver, for the log.
    host: String,
    queue: Mutex<EventQueue>,
    /// Notified when an event is added, and after each attempt.
    changed: Notify,
    /// Keeps the events that wait; `None` without `--calls-dir`.
    writer: Option<Arc<CallWriter>>,
    task: Mutex<Option<AbortHandle>>,
}

impl EventPoster {
    /// Starts the task. `kept` are events that waited when the runner ended.
    pub fn start(config: EventsConfig, kept: Vec<PostedEvent>, writer: Option<Arc<CallWriter>>) -> Arc<Self> {
        let poster = Arc::new(EventPoster {
            host: host(&config).unwrap_or_default(),
            config,
            queue: Mutex::default(),
            changed: Notify::new(),
            writer,
            task: Mutex::default(),
        });
        if !kept.is_empty() {
            log::info!("{} events of calls from before the start are posted", kept.len());
        }
        for event in kept {
            poster.push(event);
        }
        let task = tasks::spawn(post_all(poster.clone()));
        *lock(&poster.task) = Some(task.abort_handle());
        poster
    }

    /// Posts an event, without waiting for that.
    pub fn post(&self, kind: EventKind, data: &Value) {
        // The folder would grow with each call until the runner starts again.
        if lock(&self.queue).is_gone() {
            return;
        }
        let event = PostedEvent::new(kind, data, unix_time_ms(), u64::from_be_bytes(random()));
        if let Some(writer) = &self.writer {
            writer.keep(event.clone());
        }
        self.push(event);
        self.changed.notify_waiters();
    }

    /// Returns the counts for the metrics.
    pub fn counts(&self) -> CallEventCounts {
        lock(&self.queue).counts()
    }

    /// Waits for a moment until all events are accepted, and ends the task. Not for those whose
    /// receiver does not accept them.
    pub async fn finish(&self) {
        let settled = async {
            loop {
                let changed = self.changed.notified();
                if lock(&self.queue).is_settled(tasks::now()) {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(POSTED_WITHIN, settled).await;
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }

    fn push(&self, event: PostedEvent) {
        let (dropped, count) = {
            let mut queue = lock(&self.queue);
            (queue.push(event, tasks::now()), queue.dropped())
        };
        self.note_dropped(dropped, count, "too many wait");
    }

    fn note_dropped(&self, ids: Vec<String>, count: u64, why: &str) {
        // Each is a line as long as they are few.
        if !ids.is_empty() && (count < 10 || count.is_multiple_of(100)) {
            log::warn!(
                "events of calls for {} are dropped: {why} ({count} since the start)",
                self.host
            );
        }
        self.forget(ids);
    }

    fn forget(&self, ids: impl IntoIterator<Item = String>) {
        if let Some(writer) = &self.writer {
            for id in ids {
                writer.forget(id);
            }
        }
    }

    /// Posts one event, and handles its outcome.
    async fn attempt(&self, event: PostedEvent) {
        let request = RestRequest {
            method: RestMethod::Post,
            url: self.config.url.clone(),
            authorization: None,
            body: Some(RestBody {
                content_type: "application/json",
                bytes: event.body.as_bytes().to_vec(),
            }),
        };
        let headers = event.headers(&self.config.secret, unix_time_s());
        let answer = rest::send_with(&request, &headers, rest::STANDARD).await;
        let outcome = match &answer {
            Ok(answer) => PostOutcome::Answered {
                status: answer.status,
                retry_after: answer.retry_after,
            },
            Err(_) => PostOutcome::Unanswered,
        };
        let chance = u32::from_be_bytes(random());
        let result = lock(&self.queue).handle_outcome(&event.id, outcome, tasks::now(), chance);
        self.log(&result, &answer);
        if matches!(result, PostResult::Accepted { .. }) {
            self.forget([event.id]);
        }
        self.changed.notify_waiters();
    }

    fn log(&self, result: &PostResult, answer: &Result<RestResponse, RestError>) {
        let host = &self.host;
        let why = match answer {
            Ok(answer) => {
                let differs = answer
                    .unix_s
                    .and_then(|date_s| ClockDifference::of(unix_time_s(), date_s));
                let clock = differs.map_or_else(String::new, |differs| format!(", and {differs} its own"));
                format!("{host} answers with status {}{clock}", answer.status)
            }
            Err(error) => error.to_string(),
        };
        match result {
            PostResult::Accepted { failures: 0 } => {}
            PostResult::Accepted { failures } => {
                let attempts = if *failures == 1 { "attempt" } else { "attempts" };
                log::info!("{host} accepts events of calls again, after {failures} {attempts} that failed");
            }
            PostResult::Again { failures: 1, .. } => {
                log::warn!("an event of a call was not accepted: {why}; it is posted again until it is");
            }
            PostResult::Again { failures, pause } => {
                log::debug!("attempt {failures} to post events of calls: {why}; once more in {pause:?}");
            }
            PostResult::Gone => {
                log::warn!(
                    "{host} wants no more events of calls (status 410): none is posted until the runner starts again; \
                     remove --events, or name another receiver"
                );
            }
        }
    }
}

/// Returns the host of the receiver.
pub fn host(config: &EventsConfig) -> Option<String> {
    let uri: hyper::Uri = config.url.parse().ok()?;
    Some(uri.host()?.to_owned())
}

async fn post_all(poster: Arc<EventPoster>) {
    loop {
        let changed = poster.changed.notified();
        let (expired, count) = {
            let mut queue = lock(&poster.queue);
            (queue.take_expired(tasks::now()), queue.dropped())
        };
        poster.note_dropped(expired, count, "no one accepted them for days");
        let step = lock(&poster.queue).next(tasks::now());
        match step {
            PostStep::Post(event) => poster.attempt(event).await,
            PostStep::Wait(until) => sleep_until(until.into()).await,
            PostStep::Idle => changed.await,
            PostStep::Gone => return,
        }
    }
}
