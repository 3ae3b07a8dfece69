//! The runner's HTTP service: reads, plans and answers the request of each [`Route`].
//!
//! In: hyper's requests. Out: responses with `Content-Length`, never chunked, with CORS headers on
//! errors too, so that pages can read them. The rules are in `proto`: endpoints, access, and the
//! meaning of bodies. `body` collects bodies, `error` gives every error its status, and
//! `refusal_log` logs it.

mod access;
mod body;
pub mod custom_routes;
#[cfg(feature = "videoroom")]
mod daily;
mod error;
#[cfg(feature = "page")]
pub mod folder;
mod lease;
mod live;
#[cfg(feature = "mediaroom")]
mod livekit;
#[cfg(feature = "moq")]
mod moq;
#[cfg(feature = "webrtc")]
mod offer;
#[cfg(feature = "page")]
pub mod page;
mod refusal_log;
#[cfg(any(feature = "telephony", feature = "websocket"))]
mod socket;
#[cfg(feature = "telephony")]
mod webhook;
#[cfg(feature = "messaging")]
mod whatsapp;
#[cfg(feature = "webrtc")]
mod whip;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use self::access::{admit, authorizations, put, values};
use self::body::{AcceptedBody, read};
pub use self::error::HttpError;
use self::refusal_log::log_refusal;
use crate::bot::SessionId;
use crate::config::{Config, ListenAddresses, MetricsAccess};
use crate::features::{Feature, MissingFeature};
use crate::io::admission::SessionPermit;
#[cfg(feature = "mediaroom")]
use crate::io::livekit::worker::WorkerHandle;
use crate::io::metrics;
use crate::io::moq::Moq;
#[cfg(feature = "moq")]
use crate::io::moq::arrivals::ConnectionRules;
use crate::io::server::{ConnState, HttpService};
use crate::io::sessions::Sessions;
#[cfg(feature = "mediaroom")]
use crate::io::tasks::SlotPool;
use crate::io::tasks::request_time;
use crate::io::tls::ServerTls;
use crate::io::webrtc::WebRtc;
use crate::limits::PROCESS_BODY_BYTES_MAX;
#[cfg(feature = "mediaroom")]
use crate::limits::WATCHES_MAX;
use crate::proto::daily::recent_calls::RecentCalls;
use crate::proto::http::access::AccessPolicy;
#[cfg(feature = "page")]
use crate::proto::http::folder::FolderUse;
use crate::proto::http::host;
#[cfg(feature = "moq")]
use crate::proto::http::origin::AllowedOrigins;
use crate::proto::http::origin::{self, CorsDecision};
use crate::proto::http::registry;
use crate::proto::http::route::{self, Route};
use crate::proto::http::start::{self, RequestBase, StartPlan, StatusReplies, WorkerMember};
use crate::proto::http::started::{CreateError, StartedSessions};
use crate::proto::http::token::{Issuer, SocketKind, SocketTokens};
use crate::proto::metrics::{MetricsDenied, check_access, is_forwarding};
use crate::proto::server::admission::{PendingKind, Requester};
use crate::proto::server::forwarded::TrustedProxies;
use crate::proto::server::log_limit::LogLimit;
use crate::proto::server::request_framing;
use crate::proto::telephony::{PROVIDERS, proof};
use crate::proto::webrtc::offer::OfferError;
use edge_runner_http::common::{
    ConnLimits, PeerInfo, Reply, UpgradeSlot, json_reply, lock, random, request_base, whole,
};

/// The content type of Prometheus' text format.
const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// The state behind every request: the sessions of one runner, the transports, and access control.
pub struct RunnerApp {
    config: Arc<Config>,
    sessions: Sessions,
    /// `None` in a build without it.
    webrtc: Option<WebRtc>,
    /// `None` unless `-t moq` is given.
    moq: Option<Moq>,
    /// `None` without `--register`.
    #[cfg(feature = "mediaroom")]
    worker: Option<WorkerHandle>,
    /// Lost bots that are looked for.
    #[cfg(feature = "mediaroom")]
    watches: SlotPool,
    /// Bots that the server was asked for.
    #[cfg(feature = "mediaroom")]
    awaited_bots: SlotPool,
    access: AccessPolicy,
    status: StatusReplies,
    table: Arc<Mutex<StartedSessions>>,
    /// Tokens of WebSockets and of Media over QUIC.
    tokens: Arc<Mutex<SocketTokens>>,
    /// Dial-in calls that have a bot.
    calls: Mutex<RecentCalls>,
    #[cfg(feature = "messaging")]
    messaging: crate::io::whatsapp::WhatsAppCalls,
    /// The log lines caused by clients.
    log_limit: Arc<Mutex<LogLimit>>,
    proxies: TrustedProxies,
    pub(super) conn_limits: ConnLimits,
    /// `None` when TLS is off.
    tls: Option<Arc<ServerTls>>,
    /// Routes of the embedding program.
    routes: custom_routes::CustomRoutes,
}

impl RunnerApp {
    /// Creates the service for the runner of these sessions.
    pub fn new(
        sessions: Sessions,
        webrtc: Option<WebRtc>,
        tls: Option<Arc<ServerTls>>,
        routes: custom_routes::CustomRoutes,
    ) -> Self {
        let config = sessions.config().clone();
        let key = config.cluster.as_ref().map(|cluster| &cluster.key);
        let tokens = match (key, sessions.replica()) {
            (Some(key), Some(replica)) => SocketTokens::of_replica(key, replica.process()),
            _ => SocketTokens::new(random(), Instant::now()),
        };
        RunnerApp {
            access: AccessPolicy::new(&config, random()),
            status: StatusReplies::new(&config, sessions.replica()),
            table: Arc::new(Mutex::new(StartedSessions::new(key))),
            tokens: Arc::new(Mutex::new(tokens)),
            calls: Mutex::default(),
            #[cfg(feature = "messaging")]
            messaging: crate::io::whatsapp::WhatsAppCalls::default(),
            log_limit: Arc::default(),
            conn_limits: ConnLimits::default(),
            proxies: TrustedProxies::new(&config.trusted_proxies, config.proxy.is_some()),
            tls,
            routes,
            sessions,
            webrtc,
            moq: None,
            #[cfg(feature = "mediaroom")]
            worker: None,
            #[cfg(feature = "mediaroom")]
            watches: SlotPool::new(WATCHES_MAX),
            #[cfg(feature = "mediaroom")]
            awaited_bots: SlotPool::new(WATCHES_MAX),
            config,
        }
    }

    /// Serves Media over QUIC, too.
    #[cfg(feature = "moq")]
    pub fn with_moq(self, moq: Option<Moq>) -> Self {
        RunnerApp { moq, ..self }
    }

    /// Serves the URL that phones can open, too.
    pub fn with_addresses(mut self, listening: &ListenAddresses) -> Self {
        self.status.set_addresses(&self.config, listening);
        self
    }

    /// Serves the state of the worker, too.
    #[cfg(feature = "mediaroom")]
    pub fn with_worker(self, worker: Option<WorkerHandle>) -> Self {
        RunnerApp { worker, ..self }
    }

    /// Returns the rules for connections of Media over QUIC: those of WebSockets.
    #[cfg(feature = "moq")]
    pub fn connection_rules(&self) -> ConnectionRules {
        ConnectionRules {
            origins: AllowedOrigins::new(&self.config.allowed_origins),
            needs_token: self.config.ws_tokens,
            tokens: self.tokens.clone(),
            log_limit: self.log_limit.clone(),
        }
    }

    /// Returns the counters of the log lines that clients cause.
    pub fn log_limit(&self) -> Arc<Mutex<LogLimit>> {
        self.log_limit.clone()
    }

    /// Returns the WebRTC driver.
    fn webrtc(&self) -> Result<&WebRtc, HttpError> {
        self.webrtc
            .as_ref()
            .ok_or(HttpError::MissingFeature(MissingFeature(Feature::WebRtc)))
    }

    /// Rejects a new session while the runner drains or stops.
    fn check_open(&self) -> Result<(), HttpError> {
        match self.sessions.is_closed() {
            true => Err(HttpError::Offer(OfferError::Stopping)),
            false => Ok(()),
        }
    }

    /// Returns the state of the worker; `None` without `--register`.
    fn worker_member(&self) -> Option<WorkerMember> {
        #[cfg(feature = "mediaroom")]
        if let Some(worker) = &self.worker {
            let report = worker.report();
            return Some(WorkerMember {
                is_ready: report.is_ready(),
                word: report.word(),
                json: report.status_json(),
            });
        }
        None
    }

    /// Admits a session.
    fn permit(&self, requester: Requester, kind: PendingKind) -> Result<SessionPermit, HttpError> {
        self.check_open()?;
        let permit = self.sessions.admission().session(requester, kind);
        permit.map_err(|refused| HttpError::Offer(refused.into()))
    }

    /// Returns the address of a client, behind any trusted proxies.
    fn client(&self, headers: &HeaderMap, peer: PeerInfo) -> IpAddr {
        let x_forwarded_for = values(headers, HeaderName::from_static("x-forwarded-for"));
        self.proxies
            .client_address(peer.ip(), x_forwarded_for, values(headers, header::FORWARDED))
    }
}

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

    async fn serve_ice_tcp(&self, tcp: TcpStream, peer: SocketAddr) -> io::Result<()> {
        match &self.webrtc {
            Some(webrtc) => webrtc.serve_ice_tcp(tcp, peer).await,
            None => Err(io::Error::other(format!("WebRTC {}", MissingFeature(Feature::WebRtc)))),
        }
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
    let peer = PeerInfo {
        source: app.client(&head.headers, peer),
        is_authorised: app.access.requires_key() && app.access.has_key(authorizations(&head.headers)),
        is_forwarded: head.headers.keys().any(|name| is_forwarding(name.as_str())),
        ..peer
    };
    let standing = app.access.check_origin(values(&head.headers, header::ORIGIN));
    let route = route::route(head.method.as_str(), head.uri.path());
    let takes_offer = route.as_ref().is_ok_and(Route::accepts_offer);
    let mut is_call = false;
    let answered = match admit(&app.access, &head, &route, standing) {
        Ok(Some(preflight)) => Ok(preflight),
        Ok(None) => match route {
            Ok(route) => {
                is_call = matches!(&route, Route::Whip(request) if request.is_call());
                dispatch(app, route, &head, body, peer, (conn_state, upgrade_slot)).await
            }
            Err(refusal) => custom_routes::answer(app, refusal, &head, body, peer).await,
        },
        Err(refusal) => Err(refusal),
    };
    let mut reply = answered.unwrap_or_else(|refusal| {
        log_refusal(app, &refusal, &head, takes_offer, peer);
        refusal.reply(is_call)
    });
    // Access to the metrics is granted per machine, so a page in a browser there must not read
    // them.
    let is_metrics = reply.headers().get(header::CONTENT_TYPE) == Some(&METRICS_TYPE);
    if let CorsDecision::Allowed(origin) = standing
        && !is_metrics
    {
        put(
            reply.headers_mut(),
            origin::response_headers(origin, app.access.lists_origins()),
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
    peer: PeerInfo,
    (_conn_state, _becomes): (&Arc<ConnState>, &UpgradeSlot),
) -> Result<Reply, HttpError> {
    let headers = &head.headers;
    if let Some(absent) = route.feature().and_then(Feature::missing) {
        return Err(HttpError::MissingFeature(absent));
    }
    let is_session = |id: &str| lock(&app.table).may_restart(id, request_time());
    let authorized = app.access.authorize(&route, authorizations(headers), is_session);
    authorized.map_err(HttpError::Key)?;
    match route {
        Route::Status => {
            let is_draining = app.sessions.is_closed();
            let worker = app.worker_member();
            let status = app.status.reply(app.sessions.count(), is_draining, worker.as_ref());
            let code = StatusCode::from_u16(app.status.code(is_draining)).unwrap_or(StatusCode::OK);
            Ok(json_reply(code, status))
        }
        #[cfg(feature = "mediaroom")]
        Route::Worker => livekit::worker(app),
        #[cfg(feature = "mediaroom")]
        Route::RoomEvents => livekit::handle_webhook(app, head, body, peer).await,
        Route::Robots => Ok(robots()),
        Route::Start => {
            let body = read(app.conn_limits, headers, AcceptedBody::Json, body).await?;
            app.check_open()?;
            let base = request_base(headers, peer, app.config.proxy.is_some());
            start(app, &body, base, peer).await
        }
        Route::Methods(allowed) => Ok(methods(allowed)),
        Route::CaCertificate => authority(app),
        Route::Metrics => metrics_reply(app, headers, peer),
        Route::Sessions => live::list(app, headers, peer),
        Route::EndSession(id) => live::end(app, &id, headers, peer),
        #[cfg(feature = "page")]
        Route::PageRedirect => {
            #[cfg(feature = "telephony")]
            webhook::reject_get(app, head)?;
            Ok(page::to_page())
        }
        #[cfg(feature = "page")]
        Route::Download(name) => match &app.config.downloads_dir {
            Some(folder) => folder::serve(folder, &name, FolderUse::Downloads, head, _conn_state).await,
            None => Err(HttpError::Route(route::RouteError::NotFound)),
        },
        #[cfg(feature = "page")]
        Route::Page(name) => {
            if let Some(folder) = &app.config.page_dir {
                return folder::serve(folder, &name, FolderUse::Page, head, _conn_state).await;
            }
            let source = app.moq.as_ref().map(Moq::page_source);
            page::file(&name, headers, source.as_deref()).ok_or(HttpError::Route(route::RouteError::NotFound))
        }
        #[cfg(feature = "webrtc")]
        Route::Offer(session) => offer::take_offer(app, session.as_deref(), headers, body, peer).await,
        #[cfg(feature = "webrtc")]
        Route::Candidates(session) => offer::take_candidates(app, session.as_deref(), headers, body).await,
        #[cfg(feature = "webrtc")]
        Route::Whip(request) => whip::serve(app, request, head, body, peer).await,
        #[cfg(any(feature = "telephony", feature = "websocket"))]
        Route::Socket(family, token) => socket::socket(app, family, token, head, peer, _becomes),
        #[cfg(feature = "telephony")]
        Route::Webhook => webhook::webhook(app, head, body).await,
        #[cfg(feature = "videoroom")]
        Route::Videoroom => daily::redirect(app, head, peer).await,
        #[cfg(feature = "videoroom")]
        Route::DialIn => daily::handle_dialin(app, head, body, peer).await,
        #[cfg(feature = "messaging")]
        Route::Messaging => whatsapp::handle_webhook(app, head, body, peer).await,
        #[allow(
            unreachable_patterns,
            reason = "a build of every feature has an arm for each endpoint"
        )]
        _ => Err(HttpError::Route(route::RouteError::NotFound)),
    }
}

/// Keeps crawlers away: nothing is worth indexing, and a GET of one path creates rooms.
fn robots() -> Reply {
    let mut reply = Reply::new(whole("User-agent: *\nDisallow: /\n"));
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(header::CONTENT_TYPE, text);
    reply
}

/// Answers OPTIONS with the methods of a path.
fn methods(allowed: &'static str) -> Reply {
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allowed));
    reply
}

async fn start(app: &RunnerApp, body: &Bytes, base: RequestBase<'_>, peer: PeerInfo) -> Result<Reply, HttpError> {
    let plan = start::plan(&app.config, body).map_err(|refusal| match refusal {
        start::StartRequestError::Invalid(invalid) => HttpError::Invalid {
            invalid,
            body: body.clone(),
        },
        other => HttpError::Start(other),
    })?;
    let reply = match plan {
        StartPlan::Register { body, ice_servers } => {
            let id = register(app, &body, peer)?;
            start::webrtc_reply(&id, &ice_servers)
        }
        StartPlan::Socket { family, body } => {
            // A call's data comes from its provider, so nothing is registered.
            let id = match family {
                SocketKind::Client => Some(register(app, &body, peer)?),
                SocketKind::Call | SocketKind::Moq => None,
            };
            let url = start::socket_url(&app.config, base, family);
            let token = mint_token(app, family, id.as_deref(), peer.is_authorised);
            start::socket_reply(&url, id.as_deref(), token.as_deref())
        }
        #[cfg(feature = "videoroom")]
        StartPlan::Videoroom { room, body } => daily::start(app, room, body, peer).await?,
        #[cfg(feature = "mediaroom")]
        StartPlan::Mediaroom { body } => livekit::start(app, body, peer).await?,
        #[cfg(feature = "moq")]
        StartPlan::Moq { namespace, body } => moq::start(app, namespace, body, base, peer).await?,
        // A plan only uses transports of this build.
        #[cfg(not(all(feature = "videoroom", feature = "mediaroom", feature = "moq")))]
        _ => return Err(HttpError::Route(route::RouteError::NotFound)),
    };
    Ok(json_reply(StatusCode::OK, reply))
}

/// Rejects a body that is too large for a program's arguments, before anything is started.
fn check_program_body(app: &RunnerApp, body: &Value) -> Result<(), HttpError> {
    let fits = app.config.command.is_none() || body.to_string().len() <= PROCESS_BODY_BYTES_MAX;
    fits.then_some(()).ok_or(HttpError::BodyTooLargeForProgram)
}

/// Registers a body for a later connection, and returns the session id for the client.
fn register(app: &RunnerApp, body: &Value, peer: PeerInfo) -> Result<Arc<str>, HttpError> {
    let created = lock(&app.table).create(random(), body, peer.requester(), request_time());
    created.map_err(|refused| match refused {
        CreateError::Full(full) => HttpError::Full(full),
        CreateError::TooLong(too_long) => HttpError::BodyTooLargeForId(too_long),
    })
}

/// Makes a WebSocket token, if one is required. The token of a registered session contains its id.
/// A client with the API key also gets tokens for calls that would otherwise need proof.
fn mint_token(app: &RunnerApp, family: SocketKind, session: Option<&str>, is_authorised: bool) -> Option<String> {
    let proves = family == SocketKind::Call && is_authorised && proof::protects_any(&PROVIDERS, &app.config.telephony);
    if !app.config.ws_tokens && !proves {
        return None;
    }
    let id = session.map_or_else(new_session_id, SessionId::from);
    let issuer = if is_authorised { Issuer::ApiKey } else { Issuer::Anyone };
    Some(lock(&app.tokens).mint(family, &id, issuer, request_time()))
}

/// Checks whether a client may read the metrics.
fn check_metrics_access(app: &RunnerApp, headers: &HeaderMap, peer: PeerInfo) -> Result<(), HttpError> {
    let on_this_machine = peer.ip().to_canonical().is_loopback();
    // Most proxies add a header or pass the name that they were asked for. One that does neither,
    // as nginx without `proxy_set_header`, looks like a client of this machine.
    let named_otherwise = headers
        .get(header::HOST)
        .is_some_and(|host| !host::is_loopback(host.as_bytes()));
    let forwarded = named_otherwise || headers.keys().any(|name| is_forwarding(name.as_str()));
    check_access(app.config.metrics, on_this_machine, forwarded).map_err(HttpError::Metrics)
}

/// Checks whether a client, whose key was checked where there is one, may list and end sessions.
fn check_sessions_access(app: &RunnerApp, headers: &HeaderMap, peer: PeerInfo) -> Result<(), HttpError> {
    check_metrics_access(app, headers, peer)?;
    let config = &app.config;
    let is_public = |name: &String| !host::is_loopback(name.as_bytes());
    let is_proxied = config.proxy.as_ref().is_some_and(is_public) || !config.trusted_proxies.is_empty();
    let is_shared = config.metrics == MetricsAccess::Any || is_proxied;
    match is_shared && config.api_key.is_none() {
        true => Err(HttpError::Metrics(MetricsDenied::NoKey)),
        false => Ok(()),
    }
}

/// Answers with the metrics, if the client may read them.
fn metrics_reply(app: &RunnerApp, headers: &HeaderMap, peer: PeerInfo) -> Result<Reply, HttpError> {
    check_metrics_access(app, headers, peer)?;
    let mut reply = Reply::new(whole(metrics::text(
        &app.sessions,
        app.webrtc.as_ref(),
        app.moq.as_ref(),
        #[cfg(feature = "mediaroom")]
        app.worker.as_ref(),
    )));
    let put = reply.headers_mut();
    put.insert(header::CONTENT_TYPE, METRICS_TYPE);
    put.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

fn new_session_id() -> SessionId {
    registry::session_id(random())
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
