//! `/start` for LiveKit rooms, `/worker`, and the webhook of the server.
//!
//! Out: the reply with the caller's token. Rejects a runner without a configured server, then one
//! without a free session. Tokens are created only for a session that has its permit. On a
//! registered runner, the server chooses the runner, so this one needs no free session.

use std::sync::Arc;

use futures_util::future::join_all;
use hyper::body::Incoming;
use hyper::header;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::Value;
use tokio::time::{sleep_until, timeout_at};

use crate::config::MediaroomWorker;
use crate::features::Feature;
use crate::io::RunError;
use crate::io::bots::SessionBot;
use crate::io::http::app::{RunnerApp, check_program_body, methods, new_session_id};
use crate::io::http::body::{AcceptedBody, read};
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::http::refusal_log::log_client;
use crate::io::http::requested_call::RequestedCall;
use crate::io::livekit::worker::{self, WorkerHandle};
use crate::io::livekit::{banner, doctor};
use crate::io::module::{DoctorCheck, Module, ModuleStartup, RouteRequest, StartRequest};
use crate::io::running::{ModuleFuture, RunningModule};
use crate::io::sessions::SessionStart;
use crate::io::tasks::{Slot, SlotPool};
use crate::io::webrtc::WebRtc;
use crate::io::{livekit, rest, tasks};
use crate::limits::DISPATCH_POLL;
use crate::limits::WATCHES_MAX;
use crate::logging;
use crate::proto::calls::CallOutcome;
use crate::proto::http::route::Route;
use crate::proto::http::route::{POST_METHODS, RouteError};
use crate::proto::http::status::WorkerMember;
use crate::proto::livekit::connection_details::LiveKitCredentials;
use crate::proto::livekit::worker::dispatch::{DispatchAttempt, DispatchError, DispatchStep};
use crate::proto::livekit::worker::metrics;
use crate::proto::livekit::worker::report::WorkerReport;
use crate::proto::livekit::worker::watcher::{Watch, WatchStep};
use crate::proto::livekit::worker::webhook::{self, WebhookDenied};
use crate::proto::livekit::{endpoints, registrations};
use crate::proto::metrics::text::MetricsText;
use crate::proto::server::admission::PendingKind;
use edge_runner_http::common::{PeerInfo, Reply, json_reply, random, unix_time_s};

pub const MODULE: Option<&Module> = Some(
    &Module {
        run: Some(run),
        answer: Some(|request| Box::pin(answer(request))),
        start: Some(|request| Box::pin(begin_session(request))),
        banner: Some(banner::rows),
        hosts: Some(doctor::hosts),
        ..Module::new(Feature::Mediaroom)
    }
    .with_checks(&[
        DoctorCheck {
            what: "rooms",
            examine: |config| Box::pin(doctor::server(config)),
        },
        DoctorCheck {
            what: "worker",
            examine: |config| Box::pin(doctor::worker(config)),
        },
    ]),
);

/// The registrations at a LiveKit server, and bots that it has lost.
struct LiveKit {
    /// One for each agent name; none without `--register`.
    workers: Vec<WorkerHandle>,
    /// Lost bots that are looked for.
    watches: SlotPool,
    /// Bots that the server was asked for.
    awaited_bots: SlotPool,
}

fn run(startup: &ModuleStartup<'_>) -> Result<Option<Arc<dyn RunningModule>>, RunError> {
    let app = startup.app;
    let webrtc = app.modules.get::<WebRtc>();
    let start = |webrtc: &WebRtc| worker::start(&app.sessions, webrtc.common(), &app.log_limit(), startup.services);
    Ok(Some(Arc::new(LiveKit {
        workers: webrtc.map(start).unwrap_or_default(),
        watches: SlotPool::new(WATCHES_MAX),
        awaited_bots: SlotPool::new(WATCHES_MAX),
    })))
}

impl RunningModule for LiveKit {
    fn render_metrics(&self, text: &mut MetricsText) {
        metrics::render(text, &self.reports());
    }

    fn worker_member(&self) -> Option<WorkerMember> {
        let reports = self.reports();
        let report = WorkerReport::of_runner(&reports)?;
        Some(WorkerMember {
            is_ready: report.is_ready(),
            word: report.word(),
            json: WorkerReport::status_of(&reports)?,
        })
    }

    fn drain(&self) -> ModuleFuture<'_, ()> {
        Box::pin(async {
            join_all(self.workers.iter().map(WorkerHandle::drain)).await;
        })
    }

    fn stop(&self) -> Option<(&'static str, ModuleFuture<'_, ()>)> {
        self.workers.first()?;
        let stopped = join_all(self.workers.iter().map(WorkerHandle::stop));
        Some((
            "the connection to the LiveKit server",
            Box::pin(async {
                stopped.await;
            }),
        ))
    }
}

impl LiveKit {
    fn reports(&self) -> Vec<WorkerReport> {
        self.workers.iter().map(WorkerHandle::report).collect()
    }

    /// Returns the URL of the server that answered last.
    fn url(&self) -> Option<String> {
        self.workers.first().map(|worker| worker.report().url)
    }
}

async fn answer(request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    let RouteRequest {
        app, head, body, peer, ..
    } = request;
    match request.route {
        Route::Module(&endpoints::WORKER) => worker_state(app),
        Route::Module(&endpoints::ROOM_EVENTS) => handle_webhook(app, head, body, peer).await,
        _ => Err(HttpError::Route(RouteError::NotFound)),
    }
}

fn livekit(app: &RunnerApp) -> Result<&LiveKit, HttpError> {
    app.module(Feature::Mediaroom)
}

async fn begin_session(request: StartRequest<'_>) -> Result<Vec<u8>, HttpError> {
    let bot = request.choose_bot()?;
    start(request.app, bot, request.plan.body, (request.peer, request.call)).await
}

/// Starts a session in a room. Returns the JSON of the reply.
async fn start(
    app: &RunnerApp,
    bot: SessionBot,
    body: Value,
    (peer, call): (PeerInfo, &RequestedCall),
) -> Result<Vec<u8>, HttpError> {
    let config = bot.row().config.clone();
    match &config.mediaroom.worker {
        Some(worker) => dispatch(app, worker, (&bot, &body), (peer, call)).await,
        None => start_here(app, bot, body, peer),
    }
}

/// Answers with the state of the workers: status 503 unless the server may send jobs.
fn worker_state(app: &RunnerApp) -> Result<Reply, HttpError> {
    let reports = livekit(app)?.reports();
    let report = WorkerReport::of_runner(&reports);
    let report = report.ok_or(HttpError::Route(RouteError::NotFound))?;
    let status = match report.is_ready() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok(json_reply(status, report.worker_json(&reports).to_string()))
}

/// Handles an event of the server: a bot that was lost is looked for. The answer does not wait for
/// that, since the server repeats what is not answered soon. It also repeats what is refused while
/// too many are looked for.
async fn handle_webhook(app: &RunnerApp, head: &Parts, body: Incoming, peer: PeerInfo) -> Result<Reply, HttpError> {
    let mediaroom = &app.config.mediaroom;
    let (Some(_), Some(key), Some(secret)) = (&mediaroom.worker, &mediaroom.key, &mediaroom.secret) else {
        return Err(HttpError::Route(RouteError::NotFound));
    };
    match head.method {
        Method::POST => {}
        Method::OPTIONS => return Ok(methods(POST_METHODS)),
        _ => return Err(HttpError::Route(RouteError::Method(POST_METHODS))),
    }
    let body = read(app.conn_limits, &head.headers, AcceptedBody::Anything, body).await?;
    let token = head
        .headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    webhook::verify(token.unwrap_or_default(), &body, key, secret, unix_time_s()).map_err(refuse_event)?;
    let lost = webhook::lost_bot(&body, &registrations(&app.config)).map_err(refuse_event)?;
    if let Some((worker, room)) = lost {
        // The server repeats an event that was not taken.
        let livekit = livekit(app)?;
        let slot = livekit.watches.try_acquire().ok_or_else(too_many_watches)?;
        let url = livekit.url().unwrap_or_default();
        let random = u64::from_be_bytes(random());
        let now = (tasks::now(), unix_time_s());
        if let Some(watch) = Watch::new(mediaroom, worker, &url, room, random, now) {
            let client = log_client(app, peer);
            tasks::spawn(logging::for_client(
                client,
                watch_room(watch, slot, livekit.awaited_bots.clone()),
            ));
        }
    }
    Ok(json_reply(StatusCode::OK, r#"{"status":"OK"}"#))
}

/// Performs a watch. Once the server was asked for a bot, the slot is free for another lost one, if
/// there is one among `awaited_bots`.
async fn watch_room(mut watch: Watch, slot: Slot, awaited_bots: SlotPool) {
    let mut slot = Some(slot);
    let mut awaited = None;
    loop {
        match watch.poll(tasks::now()) {
            WatchStep::Done(end) => return log::log!(end.level(), "{end}"),
            WatchStep::Wait(until) => sleep_until(until.into()).await,
            WatchStep::WaitForBot(until) => {
                awaited = awaited.or_else(|| awaited_bots.try_acquire());
                if awaited.is_some() {
                    drop(slot.take());
                }
                sleep_until(until.into()).await;
            }
            WatchStep::Send(request) => match rest::send(&request).await {
                Ok(answer) => watch.handle_answer(answer.status, &answer.body, tasks::now()),
                Err(error) => watch.handle_unreachable(&error.to_string(), tasks::now()),
            },
        }
    }
}

/// Creates the tokens of a room and starts the bot.
fn start_here(app: &RunnerApp, mut bot: SessionBot, body: Value, peer: PeerInfo) -> Result<Vec<u8>, HttpError> {
    let credentials = LiveKitCredentials::new(&app.config.mediaroom)
        .map_err(|missing| ModuleRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, missing))?;
    let common = app.module::<WebRtc>(Feature::WebRtc)?.common().clone();
    let permit = app.permit(peer.requester(), PendingKind::Silent)?;
    bot.take_place().map_err(HttpError::Offer)?;
    let session_id = new_session_id();
    let details = credentials.connection_details(&session_id, random(), unix_time_s());
    let reply = details.reply(app.config.start_names, &session_id);
    let start = SessionStart {
        session_id,
        body,
        bot,
        log_client: log_client(app, peer),
        lease: None,
    };
    livekit::begin(app.sessions.clone(), permit, common, start, details);
    Ok(reply)
}

/// Creates a room that asks for the bot, and waits until a runner has taken the job.
async fn dispatch(
    app: &RunnerApp,
    worker: &MediaroomWorker,
    (bot, body): (&SessionBot, &Value),
    (peer, call): (PeerInfo, &RequestedCall),
) -> Result<Vec<u8>, HttpError> {
    check_program_body(bot, body)?;
    let session_id = new_session_id();
    let refuse = |error: DispatchError| {
        call.update(|facts| facts.id = Some(session_id.clone()));
        match outcome_of(&error) {
            Some(CallOutcome::ProviderFailed) => call.handle_provider_error(error.to_string()),
            outcome => call.update(|facts| facts.outcome = outcome),
        }
        refuse_dispatch(error)
    };
    let waiting = app.sessions.admission().dispatch(peer.requester());
    let _waiting = waiting.map_err(|refused| refuse(DispatchError::TooMany(refused)))?;
    let preferred = livekit(app)?.url();
    let mut attempt = DispatchAttempt::new(
        &app.config.mediaroom,
        worker,
        preferred.as_deref(),
        (&session_id, body),
        random(),
        (tasks::now(), unix_time_s()),
    )
    .map_err(refuse_dispatch)?
    .with_names(app.config.start_names)
    .with_requester(peer.requester())
    .with_bot(bot.row().name().map(|name| &**name));
    loop {
        if app.sessions.is_live(&session_id) {
            attempt.handle_taken();
        }
        match attempt.poll(tasks::now()) {
            DispatchStep::Reply(reply) => return Ok(reply),
            DispatchStep::Failed(error) => return Err(refuse(error)),
            DispatchStep::Wait(until) => sleep_until(until.into()).await,
            DispatchStep::Send(request) => {
                // The last request may take a little longer, such as the one that deletes the room.
                let limit = attempt.limit().max(tasks::now()) + DISPATCH_POLL * 5;
                match timeout_at(limit.into(), rest::send(&request)).await {
                    Ok(Ok(answer)) => attempt.handle_answer(answer.status, &answer.body, tasks::now()),
                    Ok(Err(error)) => attempt.handle_unreachable(error.to_string(), tasks::now()),
                    Err(_) => attempt.handle_unreachable("it did not answer in time".to_owned(), tasks::now()),
                }
            }
        }
    }
}

/// Rejects a webhook that is not of the server.
fn refuse_event(denied: WebhookDenied) -> HttpError {
    let status = match denied {
        WebhookDenied::NoEvent => StatusCode::BAD_REQUEST,
        _ => StatusCode::UNAUTHORIZED,
    };
    ModuleRefusal::logged(status, denied).into()
}

/// Rejects the report of another lost bot while [`WATCHES_MAX`] are looked for.
fn too_many_watches() -> HttpError {
    let detail = format!("{WATCHES_MAX} lost bots are looked for already; the server should report this one again");
    ModuleRefusal::logged(StatusCode::SERVICE_UNAVAILABLE, detail)
        .with_retry()
        .into()
}

/// Returns how the call of a `/start` ends that no runner may take, or takes, or whose room the
/// server did not make; `None` for errors of the request and the configuration.
fn outcome_of(error: &DispatchError) -> Option<CallOutcome> {
    match error {
        DispatchError::TooMany(refused) => CallOutcome::of_refusal(&(*refused).into()),
        DispatchError::NotTaken { .. } => Some(CallOutcome::NotTaken),
        DispatchError::Refused(_)
        | DispatchError::Status { .. }
        | DispatchError::Malformed(_)
        | DispatchError::Unreachable(_) => Some(CallOutcome::ProviderFailed),
        DispatchError::Missing(_) | DispatchError::BodyTooLong => None,
    }
}

/// Rejects a `/start` whose job no runner has taken.
fn refuse_dispatch(error: DispatchError) -> HttpError {
    let (status, is_brief) = match error {
        DispatchError::Missing(_) => (StatusCode::INTERNAL_SERVER_ERROR, false),
        DispatchError::BodyTooLong => (StatusCode::PAYLOAD_TOO_LARGE, false),
        DispatchError::NotTaken { .. } | DispatchError::TooMany(_) => (StatusCode::SERVICE_UNAVAILABLE, true),
        DispatchError::Refused(_)
        | DispatchError::Status { .. }
        | DispatchError::Malformed(_)
        | DispatchError::Unreachable(_) => (StatusCode::BAD_GATEWAY, false),
    };
    let refusal = ModuleRefusal::logged(status, error);
    match is_brief {
        true => refusal.with_retry().into(),
        false => refusal.into(),
    }
}
