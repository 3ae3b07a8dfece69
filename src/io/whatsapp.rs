//! Calls of the messaging app: a task for each, which asks the Graph API and carries the session.
//!
//! In: news of webhooks whose signature holds. Out: requests, sessions, lines in the log. What follows from what, and when,
//! says `proto::whatsapp::call`; which calls are known, `proto::whatsapp::table`. Lines have the id of the call and the last
//! digits of the caller's number; no name, no secret, no SDP.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use edge_runner_http::common::lock;
use log::Level;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use crate::config::Messaging;
use crate::io::admission::SessionPermit;
use crate::io::rest;
use crate::io::sessions::SessionStart;
use crate::io::tasks::{self, Slot};
use crate::io::webrtc::{AnsweredCall, CallEvent, RunningCall, WebRtc};
use crate::logging;
use crate::proto::server::admission::{Kind, Requester};
use crate::proto::whatsapp::call::{Call, Output};
use crate::proto::whatsapp::graph::{self, Action, Failure, Verdict};
use crate::proto::whatsapp::table::Calls;
use crate::proto::whatsapp::webhook::{Connect, News, Terminate};

/// Ids of other numbers that the log tells of, one line each.
const FOREIGN_MAX: usize = 32;

/// The calls of a runner.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    calls: Calls<oneshot::Sender<Terminate>>,
    /// Numbers of the same app that are none of ours.
    foreign: Vec<String>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Both parts are whole after every statement.
        lock(&self.0)
    }
}

/// Does what the news of a webhook ask for; what takes time goes on by itself. `start` makes a session's beginning from the
/// `body` of its bot.
pub fn take(
    engine: &WebRtc,
    registry: &Registry,
    news: Vec<News>,
    requester: Requester,
    start: &dyn Fn(Value) -> SessionStart,
) {
    let now = tasks::now();
    for news in news {
        match news {
            News::Connect(connect) => begin(engine, registry, *connect, requester, start),
            News::Terminate(terminate) => {
                let handle = registry.lock().calls.handle_terminate(&terminate.call_id, now);
                match handle {
                    // A call that ends by itself at this moment has nobody to tell.
                    Some(handle) => drop(handle.send(terminate)),
                    None => log::debug!("messaging: the end of a call that is not live: {}", terminate.call_id),
                }
            }
            News::Foreign(number) => {
                let mut known = registry.lock();
                if known.foreign.len() < FOREIGN_MAX && !known.foreign.contains(&number) {
                    log::info!(
                        "messaging: calls of the number with the id {number} are left alone; MESSAGING_PHONE_NUMBER_ID is another"
                    );
                    known.foreign.push(number);
                }
            }
            News::Ignored(why) => log::debug!("messaging: news ignored: {why}"),
        }
    }
}

fn begin(
    engine: &WebRtc,
    registry: &Registry,
    mut connect: Connect,
    requester: Requester,
    start: &dyn Fn(Value) -> SessionStart,
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
    if let Some(age_s) = connect.stale_s(unix_time_s()) {
        log::info!("messaging: call {call_id} from {from} was missed: its offer is {age_s} s old");
        registry.lock().calls.handle_end(&call_id, tasks::now());
        return;
    }
    let mut line = Line {
        config,
        call_id,
        sdp: String::new(),
        times: Times::new(tasks::now()),
        registry: registry.clone(),
    };
    let (answered, permit) = match place_and_answer(engine, connect.sdp.as_deref(), requester) {
        Ok(both) => both,
        Err((level, why)) => {
            log::log!(level, "messaging: call {} from {from} is declined: {why}", line.call_id);
            let place = sessions.hang_ups().try_acquire();
            tasks::spawn(run(line, Call::decline(), terminated, Session::Never { _place: place }));
            return;
        }
    };
    line.sdp.clone_from(&answered.sdp);
    let start = start(connect.body);
    let session_id = start.session_id.clone();
    logging::in_session_sync(session_id.clone(), || {
        log::info!("messaging: call {} from {from}", line.call_id);
    });
    let session = Session::Waiting(Box::new(Waiting {
        engine: engine.clone(),
        answered,
        start,
        permit,
    }));
    let task = run(line, Call::answer(), terminated, session);
    tasks::spawn(logging::in_session(session_id, task));
}

/// Takes a place for a call's session, and answers the offer; or says why the call is declined, and how loud.
fn place_and_answer(
    engine: &WebRtc,
    offer: Option<&str>,
    requester: Requester,
) -> Result<(AnsweredCall, SessionPermit), (Level, String)> {
    let sessions = engine.sessions();
    if sessions.is_closed() {
        return Err((Level::Info, "the runner is stopping".to_owned()));
    }
    let permit = sessions.admission().session(requester, Kind::Caller);
    let permit = permit.map_err(|_| (Level::Info, "every session of this runner is taken".to_owned()))?;
    let offer = offer.ok_or((Level::Warn, "the webhook has no SDP offer".to_owned()))?;
    let answered = engine.answer_call(offer);
    let answered = answered.map_err(|error| (Level::Warn, error.to_string()))?;
    Ok((answered, permit))
}

/// What the requests of a call need, and what is told of it.
struct Line {
    config: Messaging,
    call_id: String,
    /// The answer, which goes out twice and is the same.
    sdp: String,
    times: Times,
    registry: Registry,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.registry.lock().calls.handle_end(&self.call_id, tasks::now());
    }
}

/// The session of a call, as far as it has come.
enum Session {
    /// There is none; the place holds the end of the runner back.
    Never {
        _place: Option<Slot>,
    },
    Waiting(Box<Waiting>),
    Running(RunningCall),
    /// Over, with the place that it left.
    Over {
        _place: Option<Slot>,
    },
}

struct Waiting {
    engine: WebRtc,
    answered: AnsweredCall,
    start: SessionStart,
    permit: SessionPermit,
}

/// What happens next.
enum Happened {
    Answered(Verdict),
    Due,
    Progress(CallEvent),
    /// A webhook tells the end; nothing when the table has forgotten the call.
    Terminated(Option<Terminate>),
    /// The runner stops before there is a session that would end.
    Stop,
}

impl Session {
    /// Waits for what the session tells, or, as long as it has not begun, for the end of the runner.
    async fn next(&mut self) -> Happened {
        match self {
            Session::Running(running) => Happened::Progress(match running.progress.recv().await {
                Some(progress) => progress,
                // Its task is gone without a word: a panic.
                None => CallEvent::Ended(None),
            }),
            Session::Waiting(waiting) => {
                waiting.engine.sessions().shutdown().clone().wait().await;
                Happened::Stop
            }
            Session::Never { .. } | Session::Over { .. } => std::future::pending().await,
        }
    }

    /// Gives up a session that has not begun. Its place goes last, so that the end of the runner waits for the rest.
    fn give_up(self) -> Session {
        match self {
            Session::Waiting(waiting) => Session::Never {
                _place: waiting.engine.sessions().hang_ups().try_acquire(),
            },
            other => other,
        }
    }

    /// Begins it, with its bot.
    fn begin(self) -> Session {
        match self {
            Session::Waiting(waiting) => {
                let Waiting {
                    engine,
                    answered,
                    start,
                    permit,
                } = *waiting;
                Session::Running(engine.begin_call(answered, start, permit))
            }
            other => other,
        }
    }
}

type Asking = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// Runs a call to its end.
async fn run(mut line: Line, mut call: Call, mut terminated: oneshot::Receiver<Terminate>, mut session: Session) {
    let mut asking: Option<(Action, Asking)> = None;
    let mut may_be_terminated = true;
    loop {
        while let Some(output) = call.poll_output() {
            match (output, &session) {
                (Output::Ask(action), _) => asking = Some((action, line.ask(action))),
                (Output::Begin, _) => session = session.begin(),
                (Output::Open, Session::Running(running)) => running.open(),
                (Output::End(reason), Session::Running(running)) => running.end(reason),
                (Output::Open | Output::End(_), _) => {}
                (Output::Over, _) => return line.tell_times(),
            }
        }
        if call.is_ending() {
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
            match &mut asking {
                Some((_, answer)) => answer.await,
                None => std::future::pending().await,
            }
        };
        let happened = tokio::select! {
            verdict = answer => Happened::Answered(verdict),
            () = due => Happened::Due,
            ended = &mut terminated, if may_be_terminated => Happened::Terminated(ended.ok()),
            happened = session.next() => happened,
        };
        match happened {
            Happened::Answered(verdict) => {
                if let Some((action, _)) = asking.take() {
                    line.note(action, &verdict);
                }
                call.handle_answer(&verdict, tasks::now());
            }
            Happened::Due => call.handle_timeout(tasks::now()),
            Happened::Progress(CallEvent::Secured) => {
                line.times.add("secured");
                call.handle_secured();
            }
            Happened::Progress(CallEvent::Heard) => line.times.add("first audio of the caller"),
            Happened::Progress(CallEvent::Ended(place)) => {
                line.times.add("end");
                session = Session::Over { _place: place };
                call.handle_session_end();
            }
            Happened::Terminated(ended) => {
                may_be_terminated = false;
                if let Some(ended) = ended {
                    line.note_terminate(&ended);
                    call.handle_terminated();
                }
            }
            Happened::Stop => call.handle_stop(),
        }
    }
}

impl Line {
    fn ask(&self, action: Action) -> Asking {
        let request = graph::request(&self.config, action, &self.call_id, &self.sdp);
        Box::pin(async move {
            match rest::send(&request).await {
                Ok(answer) => graph::verdict(answer.status, &answer.body),
                Err(error) if error.is_transient() => Verdict::Unclear(Failure::unanswered(error.to_string())),
                Err(error) => Verdict::Refused(Failure::unanswered(error.to_string())),
            }
        })
    }

    /// Tells what became of a request.
    fn note(&mut self, action: Action, verdict: &Verdict) {
        let (name, call_id) = (action.name(), &self.call_id);
        match verdict {
            Verdict::Done => {
                log::debug!("messaging: {name} of call {call_id} is done");
                self.times.add(name);
            }
            Verdict::Refused(failure) if failure.is_twin() => {
                log::info!("messaging: {name} of call {call_id}: {failure}");
            }
            Verdict::Refused(failure) | Verdict::Unclear(failure) => {
                log::warn!("messaging: {name} of call {call_id} failed: {failure}");
            }
        }
    }

    /// Tells how a call ended on the other side.
    fn note_terminate(&mut self, ended: &Terminate) {
        self.times.add("terminate");
        match ended.error {
            Some(code) => log::warn!(
                "messaging: call {} ended: {} with code {code}",
                self.call_id,
                ended.status
            ),
            None => log::debug!("messaging: call {} ended: {}", self.call_id, ended.status),
        }
    }

    fn tell_times(&self) {
        log::info!("messaging: call {} is over: webhook{}", self.call_id, self.times.0);
    }
}

/// When things happened, as text.
struct Times(String, Instant);

impl Times {
    fn new(now: Instant) -> Self {
        Times(String::new(), now)
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
