//! Dials calls: `POST /calls` with `--dial-out`, and the requests of the provider about them.
//!
//! In: requests of the operator's clients, and webhooks with the id of a dialled call. Out: the
//! provider's answer as JSON. A client that closes its connection does not end a request to the
//! provider: its retry gets the outcome. What is dialled, and what of it is remembered, is decided
//! in `proto::telephony::dial`.

use std::future::ready;
use std::sync::{Arc, Mutex};

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use serde_json::Value;
use tokio::sync::Notify;

use crate::bot::SessionId;
use crate::config::{Config, Transport};
use crate::io::http::app::{RunnerApp, check_program_body, new_session_id};
use crate::io::http::body::{AcceptedBody, read};
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::module::ModuleStartup;
use crate::io::rest::{self, RestError, RestResponse};
use crate::io::running::{ModuleFuture, RunningModule};
use crate::io::tasks;
use crate::io::websocket::dialled::DialledCalls;
use crate::io::{RunError, tasks::request_time};
use crate::proto::bots::BotChoice;
use crate::proto::http::access::KeyError;
use crate::proto::metrics::text::MetricsText;
use crate::proto::refusal::SessionRefusal;
use crate::proto::telephony::Provider;
use crate::proto::telephony::dial::ledger::{DialAdmission, DialLedger, DialRefusal, DialReply, DialledWebhook};
use crate::proto::telephony::dial::{self, DialOutcome, Dialling, OutboundRequest, metrics};
use crate::proto::telephony::proof::CallKey;
use edge_runner_http::common::{PeerInfo, Reply, json_reply, lock};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Tells that the reply is that of an earlier request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// What dials calls, with `--dial-out`.
pub struct DialOut {
    pub calls: Arc<DialledCalls>,
    provider: &'static Provider,
    from: String,
    host: String,
}

impl RunningModule for DialOut {
    fn render_metrics(&self, text: &mut MetricsText) {
        let counts = lock(&self.calls.ledger).counts();
        metrics::render(text, self.provider.name, &counts);
    }

    fn drain(&self) -> ModuleFuture<'_, ()> {
        let unanswered = lock(&self.calls.ledger).handle_stop(tasks::now());
        self.calls.note_unanswered(unanswered);
        Box::pin(ready(()))
    }

    fn end_call(&self, id: &str) -> bool {
        let unanswered = lock(&self.calls.ledger).handle_operator_end(id, tasks::now());
        let is_known = unanswered.is_some();
        self.calls.note_unanswered(unanswered);
        is_known
    }
}

/// Starts to dial, if that is wanted.
pub fn run(startup: &ModuleStartup<'_>) -> Result<Option<Arc<dyn RunningModule>>, RunError> {
    let config = &startup.app.config;
    let provider = config.transport.and_then(Transport::provider);
    let (Some(from), Some(provider), Some(host)) = (&config.telephony.dial_from, provider, &config.proxy) else {
        return Ok(None);
    };
    let calls = DialledCalls {
        ledger: Mutex::new(DialLedger::new(provider.name)),
        reported: Notify::new(),
        sessions: startup.app.sessions.clone(),
        provider,
    };
    Ok(Some(Arc::new(DialOut {
        calls: Arc::new(calls),
        provider,
        from: from.clone(),
        host: host.clone(),
    })))
}

/// Dials a call.
pub async fn answer(app: &RunnerApp, head: &Parts, peer: PeerInfo, body: Incoming) -> Result<Reply, HttpError> {
    let Some(dial_out) = app.modules.get::<DialOut>() else {
        let detail = "this runner does not dial: it was started without --dial-out";
        return Err(ModuleRefusal::new(StatusCode::NOT_FOUND, detail).into());
    };
    if !peer.is_authorised {
        return Err(HttpError::Key(KeyError::Missing));
    }
    let json = read(app.conn_limits, &head.headers, AcceptedBody::Json, body).await?;
    app.check_open()?;
    if app.sessions.count() >= app.config.sessions_max {
        return Err(HttpError::Offer(SessionRefusal::Full));
    }
    let invalid = |wrong| ModuleRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, wrong);
    let request = OutboundRequest::parse(&json, &dial_out.from).map_err(invalid)?;
    let bot = app.choose(BotChoice::named(request.bot.as_deref()), peer)?;
    if let Some(body) = request.body.clone() {
        check_program_body(&bot, &Value::Object(body))?;
    }
    let key = head.headers.get(IDEMPOTENCY_KEY).map(HeaderValue::as_bytes);
    let id = new_session_id();
    let (now, asked) = (tasks::now(), request.clone());
    let admitted = {
        let mut ledger = lock(&dial_out.calls.ledger);
        // A stop takes the same lock once new calls are refused, so it finds what is admitted here.
        app.check_open()?;
        ledger.admit(key, &json, asked, id.clone(), now)
    };
    if let DialAdmission::Repeated(reply) = admitted.map_err(refused)? {
        let mut reply = respond(&reply);
        reply.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        return Ok(reply);
    }
    let (calls, config) = (dial_out.calls.clone(), app.config.clone());
    let (provider, host) = (dial_out.provider, dial_out.host.clone());
    // A stop waits for the answer, since the call is then to be ended.
    let slot = app.sessions.hang_ups().try_acquire();
    let placing = tokio::spawn(async move {
        let _slot = slot;
        let outcome = place(provider, &config, &request, &host, &id).await;
        if !matches!(outcome, DialOutcome::Refused(_)) {
            tokio::spawn(calls.clone().wait_for_answer());
        }
        finish(&calls, provider, &id, &outcome)
    });
    // The task ends early only with the runtime.
    let reply = placing.await.map_err(|_| HttpError::Offer(SessionRefusal::Stopping))?;
    Ok(respond(&reply))
}

/// Asks the provider.
async fn place(
    provider: &Provider,
    config: &Config,
    request: &OutboundRequest,
    host: &str,
    id: &SessionId,
) -> DialOutcome {
    let dialling = Dialling {
        provider,
        settings: &config.telephony.settings,
        request,
        host,
        id,
    };
    let application = match dialling.lookup() {
        Some(lookup) => match rest::send(&lookup).await {
            Ok(found) => match dialling.application(found.status, &found.body) {
                Ok(application) => Some(application),
                Err(why) => return DialOutcome::Refused(why),
            },
            Err(error) => return DialOutcome::Refused(error.to_string()),
        },
        None => None,
    };
    let Some(asked) = dialling.request(application.as_deref()) else {
        return DialOutcome::Refused("its credentials are not set".to_owned());
    };
    match rest::send(&asked).await {
        Ok(RestResponse { status, body, .. }) => dialling.outcome(status, &body),
        Err(error) if was_not_sent(&error) => DialOutcome::Refused(error.to_string()),
        Err(error) => DialOutcome::Unknown(error.to_string()),
    }
}

/// Returns whether a request failed before it reached the provider.
fn was_not_sent(error: &RestError) -> bool {
    match error {
        RestError::Request(_)
        | RestError::NoCertificates { .. }
        | RestError::Resolve { .. }
        | RestError::Connect { .. }
        | RestError::Certificate { .. }
        | RestError::Tls { .. }
        | RestError::Body(_) => true,
        RestError::Exchange { .. } | RestError::TooLong { .. } | RestError::Timeout { .. } => false,
    }
}

fn finish(calls: &DialledCalls, provider: &Provider, id: &SessionId, outcome: &DialOutcome) -> DialReply {
    let (reply, refused, ended) = {
        let mut ledger = lock(&calls.ledger);
        let (reply, refused) = ledger.finish(id, outcome, tasks::now());
        (reply, refused, ledger.ended_early(id))
    };
    match &reply.warning {
        Some(why) => log::warn!("POST /calls: {why}"),
        None => log::info!("{} dials; the call will be session {id}", provider.name),
    }
    calls.note_unanswered(refused);
    if let Some(ongoing) = ended {
        calls.hang_up(&ongoing);
    }
    reply
}

fn respond(reply: &DialReply) -> Reply {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::BAD_GATEWAY);
    json_reply(status, reply.body.clone())
}

fn refused(refusal: DialRefusal) -> HttpError {
    let status = match refusal {
        DialRefusal::Key => StatusCode::BAD_REQUEST,
        DialRefusal::Running => StatusCode::CONFLICT,
        DialRefusal::OtherRequest => StatusCode::UNPROCESSABLE_ENTITY,
        DialRefusal::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
    };
    let header = match &refusal {
        DialRefusal::TooMany(wait) => Some((header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1))),
        DialRefusal::Running => Some((header::RETRY_AFTER, HeaderValue::from(1))),
        DialRefusal::Key | DialRefusal::OtherRequest => None,
    };
    let rejected = ModuleRefusal {
        header,
        ..ModuleRefusal::new(status, refusal)
    };
    rejected.into()
}

/// Notes that a dialled call was answered, if the query of its webhook names one.
pub fn handle_webhook(app: &RunnerApp, query: &str, call: (CallKey, &str)) -> DialledWebhook {
    let (Some(dial_out), Some(id)) = (app.modules.get::<DialOut>(), value(query, dial::DIALLED)) else {
        return DialledWebhook::Unknown;
    };
    lock(&dial_out.calls.ledger).handle_webhook(&id, call, request_time().now)
}

/// Notes who answered a dialled call. Returns whether the request was such a report.
pub fn handle_report(app: &RunnerApp, query: &str, form: &[u8]) -> bool {
    let (Some(dial_out), Some(id)) = (app.modules.get::<DialOut>(), value(query, dial::ANSWERED)) else {
        return false;
    };
    let by = dial::answered_by(dial_out.provider, form);
    if lock(&dial_out.calls.ledger).handle_report(&id, by, request_time().now) {
        dial_out.calls.reported.notify_waiters();
    }
    true
}

/// Records a dialled call that became no session. Returns whether the request was the report of an
/// end.
pub fn handle_end(app: &RunnerApp, query: &str, form: &[u8]) -> bool {
    let (Some(dial_out), Some(id)) = (app.modules.get::<DialOut>(), value(query, dial::ENDED)) else {
        return false;
    };
    let Some(outcome) = dial::outcome_of(form) else {
        return true;
    };
    let unanswered = lock(&dial_out.calls.ledger).handle_end(&id, outcome, tasks::now());
    dial_out.calls.note_unanswered(unanswered);
    true
}

fn value(query: &str, name: &str) -> Option<String> {
    crate::proto::http::route::Query::new(query).value(name)
}
