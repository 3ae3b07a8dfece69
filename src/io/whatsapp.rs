//! WhatsApp calls: one task per call, which sends Graph API requests and runs the session.
//!
//! In: events of verified webhooks. Out: requests, sessions, log lines. `proto::whatsapp::call`
//! decides what follows from what, and `proto::whatsapp::call_table` which calls are known. Log
//! lines contain the call id and the masked number, but no name, secret or SDP. Source:
//! `docs/spec/whatsapp.md` 6.

pub mod doctor;
pub mod routes;
mod webrtc_call;

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use edge_runner_http::common::{lock, random};
use log::Level;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::sleep_until;

pub use self::routes::MODULE;
use self::webrtc_call::{AnsweredCall, RunningCall, call_data};
use crate::config::{Messaging, Transport};
use crate::io::admission::SessionPermit;
use crate::io::rest;
use crate::io::sessions::{CallAttempt, SessionStart};
use crate::io::tasks::{self, Slot};
use crate::io::webrtc::WebRtc;
use crate::io::webrtc::progress::CallEvent;
use crate::io::webrtc::shared::refusal;
use crate::logging;
use crate::proto::calls::CallOutcome;
use crate::proto::event::LeaveReason;
use crate::proto::http::registry;
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::admission::{PendingKind, Requester};
use crate::proto::whatsapp::call::{CallOutput, WhatsAppCall};
use crate::proto::whatsapp::call_table::CallTable;
use crate::proto::whatsapp::graph::{self, CallAction, GraphError, GraphOutcome};
use crate::proto::whatsapp::webhook::{CallEnd, IncomingCall, WebhookEvent};

/// The number of other numbers' ids that are logged, one line each.
const OTHER_NUMBERS_MAX: usize = 32;

/// The calls of a runner.
#[derive(Clone, Default)]
pub struct WhatsAppCalls(Arc<Mutex<CallsState>>);

#[derive(Default)]
struct CallsState {
    calls: CallTable<oneshot::Sender<CallEnd>>,
    /// Ids of other numbers of the same app.
    other_numbers: Vec<String>,
}

impl WhatsAppCalls {
    fn lock(&self) -> MutexGuard<'_, CallsState> {
        // The state is consistent after every statement.
        lock(&self.0)
    }
}

/// Handles the events of a webhook. Slow work continues in tasks. `start` creates the start of a
/// session from the bot's `body`.
pub fn handle_events(
    engine: &WebRtc,
    registry: &WhatsAppCalls,
    events: Vec<WebhookEvent>,
    requester: Requester,
    start: &dyn Fn(Value) -> Result<SessionStart, SessionRefusal>,
) {
    let now = tasks::now();
    for event in events {
        match event {
            WebhookEvent::Connect(connect) => begin(engine, registry, *connect, requester, start),
            WebhookEvent::Terminate(terminate) => {
                let handle = registry.lock().calls.handle_terminate(&terminate.call_id, now);
                match handle {
                    // The call may be ending at the same moment.
                    Some(handle) => drop(handle.send(terminate)),
                    None => log::debug!("messaging: end of a call that is not live: {}", terminate.call_id),
                }
            }
            WebhookEvent::OtherNumber(number) => {
                let mut known = registry.lock();
                if known.other_numbers.len() < OTHER_NUMBERS_MAX && !known.other_numbers.contains(&number) {
                    log::info!(
                        "messaging: calls of the number with the id {number} are ignored; MESSAGING_PHONE_NUMBER_ID is another"
                    );
                    known.other_numbers.push(number);
                }
            }
            WebhookEvent::Ignored(why) => log::debug!("messaging: event ignored: {why}"),
        }
    }
}

fn begin(
    engine: &WebRtc,
    registry: &WhatsAppCalls,
    mut connect: IncomingCall,
    requester: Requester,
    start: &dyn Fn(Value) -> Result<SessionStart, SessionRefusal>,
) {
    let sessions = engine.sessions();
    let Some(config) = sessions.config().messaging.clone() else {
        return;
    };
    let (handle, terminated) = oneshot::channel();
    let call_id = connect.call_id.clone();
    if !registry.lock().calls.handle_connect(&call_id, handle, tasks::now()) {
        log::debug!("messaging: call {call_id} is known already");
        return;
    }
    let from = std::mem::take(&mut connect.from);
    let call_data = call_data(&connect.body);
    let attempt = || CallAttempt {
        id: registry::session_id(random()),
        transport: Some(Transport::WebRtc),
        source: requester.source,
        call_data: &call_data,
        trace: None,
    };
    if let Some(age_s) = connect.stale_age_s(unix_time_s()) {
        log::warn!(
            "messaging: call {call_id} from {from} was missed: its offer is {age_s} s old by this machine's clock"
        );
        let why = format!("its webhook came {age_s} s late, by this machine's clock");
        sessions.note_turned_away(attempt(), None, CallOutcome::ProviderFailed, Some(&why));
        registry.lock().calls.handle_end(&call_id, tasks::now());
        return;
    }
    let mut task = CallTask {
        config,
        call_id,
        sdp: String::new(),
        timings: CallTimings::new(tasks::now()),
        registry: registry.clone(),
        ending: None,
    };
    let accepted = accept_offer(engine, connect.sdp.as_deref(), requester);
    let started = accepted.and_then(|(answered, permit)| {
        let start = start(connect.body)?;
        Ok((answered, permit, start))
    });
    let (answered, permit, start) = match started {
        Ok(all) => all,
        Err(why) => {
            let level = match why {
                SessionRefusal::Stopping | SessionRefusal::Full | SessionRefusal::SourceQuota => Level::Info,
                _ => Level::Warn,
            };
            log::log!(level, "messaging: call {} from {from} is declined: {why}", task.call_id);
            let (outcome, error) = outcome_of(&why);
            sessions.note_turned_away(attempt(), why.bot(), outcome, error.as_deref());
            let slot = sessions.hang_ups().try_acquire();
            tasks::spawn(run(
                task,
                WhatsAppCall::decline(),
                terminated,
                CallSession::Never { _slot: slot },
            ));
            return;
        }
    };
    task.sdp.clone_from(&answered.sdp);
    let session_id = start.session_id.clone();
    logging::in_session_sync(session_id.clone(), || {
        log::info!("messaging: call {} from {from}", task.call_id);
    });
    let session = CallSession::Waiting(Box::new(PendingCallSession {
        engine: engine.clone(),
        answered,
        start,
        permit,
        call_data,
    }));
    let task = run(task, WhatsAppCall::answer(), terminated, session);
    tasks::spawn(logging::in_session(session_id, task));
}

/// Returns how a call ends that is declined, and what was wrong with what its provider sent.
fn outcome_of(refusal: &SessionRefusal) -> (CallOutcome, Option<String>) {
    match (CallOutcome::of_refusal(refusal), refusal) {
        (Some(outcome), _) => (outcome, None),
        (None, SessionRefusal::BadSdp(_)) => (CallOutcome::ProviderFailed, Some(refusal.to_string())),
        (None, _) => (LeaveReason::Failed.into(), None),
    }
}

/// Takes a permit for the session and answers the offer, or returns the reason for declining the
/// call.
fn accept_offer(
    engine: &WebRtc,
    offer: Option<&str>,
    requester: Requester,
) -> Result<(AnsweredCall, SessionPermit), SessionRefusal> {
    let sessions = engine.sessions();
    if sessions.is_closed() {
        return Err(SessionRefusal::Stopping);
    }
    let permit = sessions
        .admission()
        .newcomer(|admission| admission.session(requester, PendingKind::Caller))?;
    let offer = offer.ok_or_else(|| SessionRefusal::BadSdp("the webhook has none".to_owned()))?;
    let answered = engine.answer_call(offer).map_err(refusal)?;
    Ok((answered, permit))
}

/// What the requests and log lines of a call need.
struct CallTask {
    config: Messaging,
    call_id: String,
    /// The answer, sent twice unchanged.
    sdp: String,
    timings: CallTimings,
    registry: WhatsAppCalls,
    /// How the call ends if it becomes no session, and why its provider did not connect it.
    ending: Option<(CallOutcome, Option<String>)>,
}

impl Drop for CallTask {
    fn drop(&mut self) {
        self.registry.lock().calls.handle_end(&self.call_id, tasks::now());
    }
}

/// The session of a call.
enum CallSession {
    /// There is none. The slot delays the shutdown of the runner.
    Never {
        _slot: Option<Slot>,
    },
    Waiting(Box<PendingCallSession>),
    Running(RunningCall),
    /// Over, with the slot that it held.
    Over {
        _slot: Option<Slot>,
    },
}

struct PendingCallSession {
    engine: WebRtc,
    answered: AnsweredCall,
    start: SessionStart,
    permit: SessionPermit,
    /// Its numbers.
    call_data: Value,
}

/// An input of a call.
enum CallInput {
    Answered(GraphOutcome),
    Due,
    Progress(CallEvent),
    /// A webhook ended the call; `None` if the table has forgotten it.
    Terminated(Option<CallEnd>),
    /// The runner stops before the session began.
    Stop,
}

impl CallSession {
    /// Waits for the next event of the session or, before it begins, for the shutdown.
    async fn next(&mut self) -> CallInput {
        match self {
            CallSession::Running(running) => CallInput::Progress(match running.progress.recv().await {
                Some(progress) => progress,
                // Its task ended without an event, by a panic.
                None => CallEvent::Ended(None),
            }),
            CallSession::Waiting(waiting) => {
                waiting.engine.sessions().shutdown().clone().wait().await;
                CallInput::Stop
            }
            CallSession::Never { .. } | CallSession::Over { .. } => std::future::pending().await,
        }
    }

    /// Reports a call whose session has not begun.
    fn note_missed(&self, outcome: CallOutcome, provider_error: Option<&str>) {
        let CallSession::Waiting(waiting) = self else { return };
        let PendingCallSession { start, permit, .. } = &**waiting;
        let call = CallAttempt {
            id: start.session_id.clone(),
            transport: Some(Transport::WebRtc),
            source: permit.requester().source,
            call_data: &waiting.call_data,
            trace: None,
        };
        let bot = start.bot.row().name().map(|name| &**name);
        let sessions = waiting.engine.sessions();
        sessions.note_turned_away(call, bot, outcome, provider_error);
    }

    /// Drops a session that has not begun. Its slot is kept, so that the shutdown waits for the
    /// call.
    fn give_up(self) -> CallSession {
        match self {
            CallSession::Waiting(waiting) => CallSession::Never {
                _slot: waiting.engine.sessions().hang_ups().try_acquire(),
            },
            other => other,
        }
    }

    /// Begins the session with its bot.
    fn begin(self) -> CallSession {
        match self {
            CallSession::Waiting(waiting) => {
                let PendingCallSession {
                    engine,
                    answered,
                    start,
                    permit,
                    call_data: _,
                } = *waiting;
                CallSession::Running(engine.begin_call(answered, start, permit))
            }
            other => other,
        }
    }
}

type PendingRequest = Pin<Box<dyn Future<Output = GraphOutcome> + Send>>;

/// Runs a call to its end.
async fn run(
    mut task: CallTask,
    mut call: WhatsAppCall,
    mut terminated: oneshot::Receiver<CallEnd>,
    mut session: CallSession,
) {
    let mut pending: Option<(CallAction, PendingRequest)> = None;
    let mut may_be_terminated = true;
    loop {
        while let Some(output) = call.poll_output() {
            match (output, &session) {
                (CallOutput::Ask(action), _) => pending = Some((action, task.send(action))),
                (CallOutput::Begin, _) => session = session.begin(),
                (CallOutput::Open, CallSession::Running(running)) => running.open(),
                (CallOutput::End(reason), CallSession::Running(running)) => running.end(reason),
                (CallOutput::Open | CallOutput::End(_), _) => {}
                (CallOutput::Over, _) => {
                    task.note_missed(&session);
                    // A call that is over holds no place: the log says it after.
                    drop(session);
                    return task.log_timings();
                }
            }
        }
        if call.is_ending() {
            task.note_missed(&session);
            session = session.give_up();
        }
        let timeout = call.poll_timeout();
        let due = async {
            match timeout {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let answer = async {
            match &mut pending {
                Some((_, answer)) => answer.await,
                None => std::future::pending().await,
            }
        };
        let input = tokio::select! {
            outcome = answer => CallInput::Answered(outcome),
            () = due => CallInput::Due,
            ended = &mut terminated, if may_be_terminated => CallInput::Terminated(ended.ok()),
            input = session.next() => input,
        };
        match input {
            CallInput::Answered(outcome) => {
                if let Some((action, _)) = pending.take() {
                    task.log_outcome(action, &outcome);
                }
                call.handle_answer(&outcome, tasks::now());
            }
            CallInput::Due => call.handle_timeout(tasks::now()),
            CallInput::Progress(CallEvent::Secured) => {
                task.timings.add("secured");
                call.handle_secured();
            }
            CallInput::Progress(CallEvent::Audible) => task.timings.add("first audio of the caller"),
            CallInput::Progress(CallEvent::Ended(slot)) => {
                task.timings.add("end");
                session = CallSession::Over { _slot: slot };
                call.handle_session_end();
            }
            CallInput::Terminated(ended) => {
                may_be_terminated = false;
                if let Some(ended) = ended {
                    task.log_call_end(&ended);
                    task.ending = Some((LeaveReason::NeverConnected.into(), None));
                    call.handle_terminated();
                }
            }
            CallInput::Stop => {
                task.ending = Some((LeaveReason::Shutdown.into(), None));
                call.handle_stop();
            }
        }
    }
}

impl CallTask {
    fn send(&self, action: CallAction) -> PendingRequest {
        let request = graph::request(&self.config, action, &self.call_id, &self.sdp);
        Box::pin(async move {
            match rest::send(&request).await {
                Ok(answer) => graph::parse_answer(answer.status, &answer.body),
                Err(error) if error.is_transient() => GraphOutcome::Unclear(GraphError::unanswered(error.to_string())),
                Err(error) => GraphOutcome::Refused(GraphError::unanswered(error.to_string())),
            }
        })
    }

    /// Logs the outcome of a request.
    fn log_outcome(&mut self, action: CallAction, outcome: &GraphOutcome) {
        let (name, call_id) = (action.name(), &self.call_id);
        match outcome {
            GraphOutcome::Done => {
                log::debug!("messaging: {name} of call {call_id} is done");
                self.timings.add(name);
            }
            GraphOutcome::Refused(failure) if failure.is_duplicate() => {
                log::info!("messaging: {name} of call {call_id}: {failure}");
            }
            GraphOutcome::Refused(failure) | GraphOutcome::Unclear(failure) => {
                log::warn!("messaging: {name} of call {call_id} failed: {failure}");
                self.ending = Some((CallOutcome::ProviderFailed, Some(failure.to_string())));
            }
        }
    }

    /// Reports the call if its session has not begun. One that another app answers is not ours.
    fn note_missed(&self, session: &CallSession) {
        if let Some((outcome, provider_error)) = &self.ending {
            session.note_missed(*outcome, provider_error.as_deref());
        }
    }

    /// Logs how the other side ended the call.
    fn log_call_end(&mut self, ended: &CallEnd) {
        self.timings.add("terminate");
        match ended.error {
            Some(code) => log::warn!(
                "messaging: call {} ended: {} with code {code}",
                self.call_id,
                ended.status
            ),
            None => log::debug!("messaging: call {} ended: {}", self.call_id, ended.status),
        }
    }

    fn log_timings(&self) {
        log::info!("messaging: call {} is over: webhook{}", self.call_id, self.timings.0);
    }
}

/// The times of a call's events, as text.
struct CallTimings(String, Instant);

impl CallTimings {
    fn new(now: Instant) -> Self {
        CallTimings(String::new(), now)
    }

    fn add(&mut self, what: &str) {
        let after: Duration = tasks::now().saturating_duration_since(self.1);
        let _ = write!(self.0, ", {what} after {:.2} s", after.as_secs_f64());
    }
}

fn unix_time_s() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
