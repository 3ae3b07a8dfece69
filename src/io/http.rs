//! The runner's HTTP service: reads, plans and answers the request of each [`Route`].
//!
//! In: hyper's requests. Out: responses with `Content-Length`, never chunked except for a stream of
//! events, with CORS headers on errors too, so that pages can read them. The rules are in `proto`:
//! endpoints, access, and the meaning of bodies. `body` collects bodies, `error` gives every error
//! its status, and `refusal_log` logs it.

pub mod access;
pub mod app;
pub mod body;
pub mod custom_routes;
pub mod error;
pub mod lease;
pub mod live_access;
pub(crate) mod operator;
pub mod refusal_log;
pub mod requested_call;

cfg_if::cfg_if! {
    if #[cfg(feature = "page")] {
        mod folder;
        pub mod page;
        mod uploads;
    } else {
        #[path = "absent.rs"]
        pub mod page;
    }
}

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use serde_json::json;
use tokio::net::TcpStream;

use self::access::{admit, authorizations, put, values};
use self::app::{RunnerApp, methods};
use self::body::{AcceptedBody, read};
use self::error::HttpError;
use self::refusal_log::log_refusal;
use self::requested_call::{CallFacts, RequestedCall};
use crate::features::Feature;
use crate::io::bots::BotRow;
use crate::io::module::{RouteRequest, StartRequest};
use crate::io::modules;
use crate::io::running::RunningModule;
use crate::io::server::{ConnState, HttpService};
use crate::io::tasks::request_time;
use crate::io::tls::ServerTls;
use crate::proto::http::origin::{self, CorsDecision};
use crate::proto::http::route::{self, ErrorBody, Route};
use crate::proto::http::start::{self, RequestBase};
use crate::proto::http::status::{BotMember, readiness};
use crate::proto::http::traceparent::{TRACEPARENT, Traceparent};
use crate::proto::http::uploads::advertise;
use crate::proto::metrics::is_forwarding;
use crate::proto::modules::unserved_framing;
use crate::proto::server::request_framing;
use edge_runner_http::common::{ConnLimits, PeerInfo, Reply, UpgradeSlot, json_reply, lock, request_base, whole};
use edge_runner_http::metrics::METRICS_TYPE;

impl HttpService for RunnerApp {
    fn conn_limits(&self) -> ConnLimits {
        self.conn_limits
    }

    fn is_trusted_proxy(&self, address: IpAddr) -> bool {
        self.proxies.trusts(address)
    }

    fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_deref()
    }

    async fn serve_framed(&self, mut stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        for module in self.modules.iter() {
            stream = match module.serve_framed(stream, peer) {
                Ok(served) => return served.await,
                Err(stream) => stream,
            };
        }
        Err(io::Error::other(unserved_framing()))
    }

    fn reject_framing(&self, refusal: request_framing::FramingError) -> Reply {
        let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST);
        self.sessions.metrics().responded(status.as_u16());
        json_reply(status, json!({"detail": refusal.to_string()}).to_string())
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: PeerInfo,
        conn_state: &Arc<ConnState>,
        upgrade_slot: &UpgradeSlot,
    ) -> Reply {
        answer(self, request, peer, conn_state, upgrade_slot).await
    }
}

/// Answers one request.
async fn answer(
    app: &RunnerApp,
    request: Request<Incoming>,
    peer: PeerInfo,
    conn_state: &Arc<ConnState>,
    upgrade_slot: &UpgradeSlot,
) -> Reply {
    let (head, body) = request.into_parts();
    let current = app.access.current();
    let access = &current.policy;
    let peer = PeerInfo {
        source: app.client(&head.headers, peer),
        is_authorised: access.requires_key() && access.has_key(authorizations(&head.headers)),
        is_forwarded: head.headers.keys().any(|name| is_forwarding(name.as_str())),
        ..peer
    };
    let cors = access.check_origin(values(&head.headers, header::ORIGIN));
    let route = route::route(head.method.as_str(), head.uri.path());
    let takes_offer = route.as_ref().is_ok_and(Route::accepts_offer);
    let mut error_body: ErrorBody = route::error_body;
    let answered = match admit(access, &head, &route, cors) {
        Ok(Some(preflight)) => Ok(preflight),
        Ok(None) => match route {
            Ok(route) => {
                let call = RequestedCall::of(app, &route);
                error_body = route.error_body();
                let answered = dispatch(app, route, &head, body, (peer, &call), (conn_state, upgrade_slot)).await;
                answered.inspect_err(|error| call.note(app, peer, error))
            }
            Err(refusal) => app.routes.answer(app.conn_limits, refusal, &head, body, peer).await,
        },
        Err(refusal) => Err(refusal),
    };
    let mut reply = answered.unwrap_or_else(|refusal| {
        log_refusal(app, &refusal, &head, takes_offer, peer);
        refusal.reply(error_body)
    });
    // Access to the metrics is granted per machine, so a page in a browser there must not read
    // them.
    let is_metrics = reply.headers().get(header::CONTENT_TYPE) == Some(&METRICS_TYPE);
    if let CorsDecision::Allowed(origin) = cors
        && !is_metrics
    {
        put(
            reply.headers_mut(),
            origin::response_headers(origin, access.lists_origins()),
        );
    }
    app.sessions.metrics().responded(reply.status().as_u16());
    reply
}

/// Calls the handler of an endpoint. An endpoint that this build lacks is rejected by the name of
/// its feature.
async fn dispatch(
    app: &RunnerApp,
    route: Route<'_>,
    head: &Parts,
    body: Incoming,
    (peer, call): (PeerInfo, &RequestedCall),
    (conn_state, upgrade_slot): (&Arc<ConnState>, &UpgradeSlot),
) -> Result<Reply, HttpError> {
    let headers = &head.headers;
    // Before the feature of the page, which a build for telephones lacks.
    if route == Route::PageRedirect
        && let Some(reply) = modules::answer_page(app, head)?
    {
        return Ok(reply);
    }
    if let Some(absent) = route.feature().and_then(Feature::missing) {
        return Err(HttpError::MissingFeature(absent));
    }
    let is_session = |id: &str| {
        let takes_files = matches!(route, Route::Upload(_)) && app.sessions.is_live(id);
        takes_files || lock(&app.table).may_restart(id, request_time())
    };
    let authorized = app
        .access
        .current()
        .policy
        .authorize(&route, authorizations(headers), is_session);
    authorized.map_err(HttpError::Key)?;
    match route {
        Route::Status => {
            let is_draining = app.sessions.is_closed();
            let worker = app.modules.iter().find_map(RunningModule::worker_member);
            let has_key = app.access.current().policy.has_key(authorizations(headers));
            let sees_errors = has_key && operator::check_sessions_access(app, headers, peer).is_ok();
            let process = |bot: &BotRow| {
                let mut process = bot.processes.as_ref()?.bot_process()?;
                process.error = process.error.filter(|_| sees_errors);
                Some(process)
            };
            let member = |bot: &Arc<BotRow>| {
                let name = bot.name().filter(|_| has_key)?.to_string();
                let process = process(bot);
                Some(BotMember { name, process })
            };
            let new_version = app.modules.iter().find_map(RunningModule::new_version);
            let bots: Vec<BotMember> = app.sessions.bots().iter().filter_map(member).collect();
            let status = app.status.reply(
                app.sessions.count(),
                is_draining,
                worker.as_ref(),
                process(app.sessions.bots().default().row()).as_ref(),
                &bots,
                new_version.as_deref().filter(|_| sees_errors),
            );
            let code = StatusCode::from_u16(app.status.code(is_draining)).unwrap_or(StatusCode::OK);
            Ok(json_reply(code, status))
        }
        Route::Live => Ok(json_reply(StatusCode::OK, r#"{"live":true}"#)),
        Route::Ready => {
            let worker = app.modules.iter().find_map(RunningModule::worker_member);
            let has_room = app.sessions.count() < app.config.sessions_max;
            let (code, body) = readiness(has_room, app.sessions.is_closed(), worker.as_ref());
            let code = StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            Ok(json_reply(code, body))
        }
        Route::Robots => Ok(robots()),
        Route::Start => {
            let body = read(app.conn_limits, headers, AcceptedBody::Json, body).await?;
            let base = request_base(headers, peer, app.config.proxy.is_some());
            let trace = Traceparent::of_headers(values(headers, HeaderName::from_static(TRACEPARENT)));
            start(app, &body, base, (peer, trace), call).await
        }
        Route::Methods(allowed) => Ok(methods(allowed)),
        Route::CaCertificate => authority(app),
        Route::Metrics => operator::metrics_reply(app, headers, peer),
        Route::Sessions => operator::list(app, headers, peer),
        Route::EndSession(id) => operator::end(app, &id, headers, peer),
        route => {
            modules::answer(RouteRequest {
                app,
                route,
                head,
                body,
                peer,
                call,
                conn_state,
                upgrade_slot,
            })
            .await
        }
    }
}

/// Keeps crawlers away: nothing is worth indexing, and a GET of one path creates rooms.
fn robots() -> Reply {
    let mut reply = Reply::new(whole("User-agent: *\nDisallow: /\n"));
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(header::CONTENT_TYPE, text);
    reply
}

async fn start(
    app: &RunnerApp,
    body: &Bytes,
    base: RequestBase<'_>,
    (peer, trace): (PeerInfo, Option<Traceparent>),
    call: &RequestedCall,
) -> Result<Reply, HttpError> {
    let mut planned = start::plan(&app.config, body);
    if let Ok((plan, bot)) = &mut planned {
        if let Some(trace) = trace {
            plan.put_trace(&trace);
        }
        call.set(CallFacts {
            transport: plan.call_transport(&app.config),
            bot: bot.map(str::to_owned),
            trace: Traceparent::of_body(&plan.body),
            ..CallFacts::default()
        });
    }
    app.check_open()?;
    let planned = planned.map_err(|refusal| match refusal {
        start::StartRequestError::Invalid(invalid) => HttpError::Invalid {
            invalid,
            body: body.clone(),
        },
        start::StartRequestError::UnknownBot => app.unknown_bot(peer),
        other => HttpError::Start(other),
    });
    let (plan, bot) = planned?;
    let upload_scope = start::upload_scope(&plan, &app.config);
    let request = StartRequest {
        app,
        plan,
        bot,
        base,
        peer,
        call,
    };
    let reply = modules::start(request).await?;
    let reply = match upload_scope {
        Some(scope) => advertise(reply, scope),
        None => reply,
    };
    Ok(json_reply(StatusCode::OK, reply))
}

/// Serves the authority certificate to devices. Without a file name, phones offer to install it.
fn authority(app: &RunnerApp) -> Result<Reply, HttpError> {
    let pem = app.tls.as_ref().and_then(|tls| tls.authority());
    let mut reply = Reply::new(whole(pem.ok_or(HttpError::NoAuthority)?));
    let headers = reply.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-x509-ca-cert"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(reply)
}

#[cfg(test)]
mod tests;
