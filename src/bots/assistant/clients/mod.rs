//! The clients of the services of the bot `cascade`.
//!
//! - [`recognizer`]: speech to text; [`chat_model`]: texts to text; [`synthesizer`]: text to speech
//! - [`examination`]: what they offer; `http_exchange`, [`wyoming_stream`]: their connections
//!
//! Each request is a [`ServiceSession`], which works while its owner waits for the next event.
//! Dropping it closes the connection: that is how a request is cancelled. Formats and classes of
//! failures are in `proto::assistant::services`.

pub mod chat_model;
pub mod examination;
mod http_exchange;
pub mod recognizer;
pub mod synthesizer;
pub mod wyoming_stream;

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::io::rest::RestError;
use crate::limits::{SERVICE_FIRST_BYTE_COLD, SERVICE_FIRST_BYTE_WARM, SERVICE_OUTPUT_WITHIN, SERVICE_SILENCE};
use crate::proto::assistant::services::failure::{ServiceFailure, ServiceStep};
use crate::proto::assistant::services::progress::ServiceProgress;

/// Events that wait for their owner. Beyond them the service is not read.
const EVENTS_MAX: usize = 32;

type RequestFuture<E> = Pin<Box<dyn Future<Output = Result<E, ServiceFailure>> + Send>>;

/// One request to a service.
pub struct ServiceSession<E> {
    /// Until the request is over. Its result is the last event.
    work: Option<RequestFuture<E>>,
    last: Option<Result<E, ServiceFailure>>,
    events: mpsc::Receiver<E>,
}

impl<E: Send + 'static> ServiceSession<E> {
    fn new<F>(work: impl FnOnce(mpsc::Sender<E>) -> F) -> Self
    where
        F: Future<Output = Result<E, ServiceFailure>> + Send + 'static,
    {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        ServiceSession {
            work: Some(Box::pin(work(sender))),
            last: None,
            events,
        }
    }

    /// Returns the next event; after the last one it waits for ever. Loses nothing when dropped.
    ///
    /// # Errors
    /// [`ServiceFailure`] as the last event.
    pub async fn recv(&mut self) -> Result<E, ServiceFailure> {
        loop {
            if let Ok(event) = self.events.try_recv() {
                return Ok(event);
            }
            if let Some(last) = self.last.take() {
                return last;
            }
            let Some(work) = &mut self.work else {
                return pending().await;
            };
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => return Ok(event),
                outcome = work => {
                    self.work = None;
                    self.last = Some(outcome);
                }
            }
        }
    }
}

/// Sends an event. A session without an owner is dropped, and this future with it.
async fn send<E>(events: &mpsc::Sender<E>, event: E) {
    let _ = events.send(event).await;
}

/// Whether a service has answered before: the first time it may load its model.
#[derive(Clone, Debug, Default)]
struct FirstByteTimeout(Arc<AtomicBool>);

impl FirstByteTimeout {
    fn limit(&self) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            true => SERVICE_FIRST_BYTE_WARM,
            false => SERVICE_FIRST_BYTE_COLD,
        }
    }
}

/// The time limits of one answer.
struct AnswerClock {
    first_byte_timeout: FirstByteTimeout,
    started: Instant,
    /// For the next progress.
    deadline: Instant,
    /// For the next output.
    output_deadline: Instant,
    has_begun: bool,
}

impl AnswerClock {
    /// Starts when the request is sent.
    fn start(first_byte_timeout: FirstByteTimeout) -> Self {
        let started = Instant::now();
        AnswerClock {
            started,
            deadline: started + first_byte_timeout.limit(),
            output_deadline: started + SERVICE_OUTPUT_WITHIN,
            first_byte_timeout,
            has_begun: false,
        }
    }

    /// Waits for a step of the answer.
    async fn within<T>(&self, step: impl Future<Output = T>) -> Result<T, ServiceFailure> {
        timeout_at(self.deadline.min(self.output_deadline), step)
            .await
            .map_err(|_| {
                self.first_byte_timeout.0.store(true, Ordering::Relaxed);
                ServiceFailure::TimedOut(match self.has_begun {
                    true => ServiceStep::Continue,
                    false => ServiceStep::Begin,
                })
            })
    }

    /// The service has sent a comment, or another sign that it works on its answer.
    fn handle_sign_of_life(&mut self) {
        if !self.has_begun {
            let latest = self.started + SERVICE_FIRST_BYTE_COLD;
            self.deadline = self.deadline.max(latest.min(Instant::now() + SERVICE_SILENCE));
        }
    }

    /// The service has sent something. Only what belongs to its answer moves a deadline of one that
    /// has begun.
    fn handle_progress(&mut self, progress: ServiceProgress) {
        let now = Instant::now();
        match progress {
            ServiceProgress::None => return self.handle_sign_of_life(),
            ServiceProgress::Working => {}
            ServiceProgress::Output => self.output_deadline = now + SERVICE_OUTPUT_WITHIN,
        }
        self.first_byte_timeout.0.store(true, Ordering::Relaxed);
        self.has_begun = true;
        self.deadline = now + SERVICE_SILENCE;
    }

    /// Sends an event. The time that the owner of the session takes does not count.
    async fn send<E>(&mut self, events: &mpsc::Sender<E>, event: E) {
        let asked = Instant::now();
        send(events, event).await;
        let waited = asked.elapsed();
        self.deadline += waited;
        self.output_deadline += waited;
    }
}

/// Classifies a failure to connect.
fn connect_failure(error: RestError) -> ServiceFailure {
    match error {
        RestError::Request(why) => ServiceFailure::Unsendable(why),
        RestError::NoCertificates { .. } | RestError::Certificate { .. } => {
            ServiceFailure::Certificate(error.to_string())
        }
        _ => ServiceFailure::NoRoute(error.to_string()),
    }
}

/// Classifies a failure to read what stands at the end of a stream: half an event is no JSON.
fn cut_off(failure: ServiceFailure) -> ServiceFailure {
    match failure {
        ServiceFailure::Malformed(_) => ServiceFailure::CutShort,
        other => other,
    }
}

#[cfg(test)]
mod tests;
