//! Requests and replies: what a [`Route`] needs is read, planned and done here.
//!
//! In: hyper's requests. Out: replies with `Content-Length`, never chunked, with CORS headers on
//! errors too, or a page could not read them. The rules are in `proto`: which endpoint, who may
//! ask, what a body means; `read` collects bodies, `refusal` gives every error its status, and
//! `note` its line in the log.

mod access;
mod body;
pub mod custom_routes;
#[cfg(feature = "videoroom")]
mod daily;
mod error;
mod lease;
#[cfg(feature = "mediaroom")]
mod livekit;
#[cfg(feature = "webrtc")]
mod offer;
#[cfg(feature = "page")]
mod page;
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
use crate::config::Config;
use crate::features::{Feature, MissingFeature};
use crate::io::admission::SessionPermit;
use crate::io::metrics;
use crate::io::server::{ConnState, HttpService};
use crate::io::sessions::Sessions;
use crate::io::tls::ServerTls;
use crate::io::webrtc::WebRtc;
use crate::proto::daily::recent_calls::RecentCalls;
use crate::proto::http::access::AccessPolicy;
use crate::proto::http::host;
use crate::proto::http::origin::{self, CorsDecision};
use crate::proto::http::registry::{self, SessionRegistry};
use crate::proto::http::route::{self, Route};
use crate::proto::http::start::{self, RequestBase, StartPlan, StatusReplies};
use crate::proto::http::token::{Issuer, SocketKind, SocketTokens};
use crate::proto::metrics::{check_access, is_forwarding};
use crate::proto::server::admission::{PendingKind, Requester};
use crate::proto::server::forwarded::TrustedProxies;
use crate::proto::server::log_limit::LogLimit;
use crate::proto::server::request_framing;
use crate::proto::telephony::{PROVIDERS, proof};
use crate::proto::webrtc::offer::OfferError;
use edge_runner_http::common::{ConnLimits, PeerInfo, Reply, UpgradeSlot, asked, json_reply, lock, random, whole};

/// The content type of the text format of Prometheus.
const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// What every request is answered from: the sessions of one runner, the ways to them, and who may
/// come.
pub struct RunnerApp {
    config: Arc<Config>,
    sessions: Sessions,
    /// Nothing in a build without it.
    webrtc: Option<WebRtc>,
    access: AccessPolicy,
    status: StatusReplies,
    table: Arc<Mutex<SessionRegistry>>,
    /// Tokens of WebSockets.
    tokens: Mutex<SocketTokens>,
    /// Calls to video rooms that have a bot.
    calls: Mutex<RecentCalls>,
    #[cfg(feature = "messaging")]
    messaging: crate::io::whatsapp::WhatsAppCalls,
    /// The log lines that callers cause.
    lines: Arc<Mutex<LogLimit>>,
    proxies: TrustedProxies,
    pub(super) times: ConnLimits,
    /// What takes TLS; nothing when TLS is off.
    tls: Option<Arc<ServerTls>>,
    /// Those of a developer's own.
    routes: custom_routes::CustomRoutes,
}

impl RunnerApp {
    /// Makes it for the runner of these sessions.
    pub fn new(
        sessions: Sessions,
        webrtc: Option<WebRtc>,
        tls: Option<Arc<ServerTls>>,
        routes: custom_routes::CustomRoutes,
    ) -> Self {
        let config = sessions.config().clone();
        RunnerApp {
            access: AccessPolicy::new(&config, random()),
            status: StatusReplies::new(&config),
            table: Arc::default(),
            tokens: Mutex::new(SocketTokens::new(random(), Instant::now())),
            calls: Mutex::default(),
            #[cfg(feature = "messaging")]
            messaging: crate::io::whatsapp::WhatsAppCalls::default(),
            lines: Arc::default(),
            times: ConnLimits::default(),
            proxies: TrustedProxies::new(&config.trusted_proxies, config.proxy.is_some()),
            tls,
            routes,
            sessions,
            webrtc,
            config,
        }
    }

    /// Returns what carries WebRTC.
    fn webrtc(&self) -> Result<&WebRtc, HttpError> {
        self.webrtc
            .as_ref()
            .ok_or(HttpError::MissingFeature(MissingFeature(Feature::WebRtc)))
    }

    /// Refuses what would become a session that is not let in any more.
    fn check_open(&self) -> Result<(), HttpError> {
        match self.sessions.is_closed() {
            true => Err(HttpError::Offer(OfferError::Stopping)),
            false => Ok(()),
        }
    }

    /// Takes a place for a session.
    fn permit(&self, requester: Requester, kind: PendingKind) -> Result<SessionPermit, HttpError> {
        self.check_open()?;
        let permit = self.sessions.admission().session(requester, kind);
        permit.map_err(|refused| HttpError::Offer(refused.into()))
    }

    /// Returns where a request came from, before any trusted proxy.
    fn client(&self, headers: &HeaderMap, peer: PeerInfo) -> IpAddr {
        let x_forwarded_for = values(headers, HeaderName::from_static("x-forwarded-for"));
        self.proxies
            .client_address(peer.ip(), x_forwarded_for, values(headers, header::FORWARDED))
    }
}

impl HttpService for RunnerApp {
    fn times(&self) -> ConnLimits {
        self.times
    }

    fn is_trusted_proxy(&self, address: IpAddr) -> bool {
        self.proxies.trusts(address)
    }

    fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_deref()
    }

    async fn framed(&self, tcp: TcpStream, peer: SocketAddr) -> io::Result<()> {
        match &self.webrtc {
            Some(webrtc) => webrtc.framed(tcp, peer).await,
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
        _doing: &Arc<ConnState>,
        upgrade_slot: &UpgradeSlot,
    ) -> Reply {
        answer(self, request, peer, upgrade_slot).await
    }
}

/// Answers one request.
async fn answer(app: &RunnerApp, request: Request<Incoming>, peer: PeerInfo, upgrade_slot: &UpgradeSlot) -> Reply {
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
                dispatch(app, route, &head, body, peer, upgrade_slot).await
            }
            Err(refusal) => custom_routes::answer(app, refusal, &head, body, peer).await,
        },
        Err(refusal) => Err(refusal),
    };
    let mut reply = answered.unwrap_or_else(|refusal| {
        log_refusal(app, &refusal, &head, takes_offer, peer);
        refusal.reply(is_call)
    });
    // Who may read the metrics is judged by machine, so no page of somebody else's may read them
    // from its visitor's.
    let is_metrics = reply.headers().get(header::CONTENT_TYPE) == Some(&METRICS_TYPE);
    if let CorsDecision::Allowed(origin) = standing
        && !is_metrics
    {
        put(reply.headers_mut(), origin::response_headers(origin));
    }
    app.sessions.metrics().responded(reply.status().as_u16());
    reply
}

/// Does what an endpoint is for: the one table of endpoints. What this build lacks is refused by
/// the name of its feature.
async fn dispatch(
    app: &RunnerApp,
    route: Route<'_>,
    head: &Parts,
    body: Incoming,
    peer: PeerInfo,
    _becomes: &UpgradeSlot,
) -> Result<Reply, HttpError> {
    let headers = &head.headers;
    if let Some(absent) = route.feature().and_then(Feature::missing) {
        return Err(HttpError::MissingFeature(absent));
    }
    let is_session = |id: &str| lock(&app.table).contains(id, Instant::now());
    if !app.access.is_authorized(&route, authorizations(headers), is_session) {
        return Err(HttpError::NoKey);
    }
    match route {
        Route::Status => {
            let status = app.status.reply(app.sessions.count(), app.sessions.is_closed());
            Ok(json_reply(StatusCode::OK, status))
        }
        Route::Robots => Ok(robots()),
        Route::Start => {
            let body = read(app.times, headers, AcceptedBody::Json, body).await?;
            app.check_open()?;
            let asked = asked(headers, peer, app.config.proxy.is_some());
            start(app, &body, asked, peer).await
        }
        Route::Methods(allowed) => Ok(methods(allowed)),
        Route::CaCertificate => authority(app),
        Route::Metrics => metrics_reply(app, headers, peer),
        #[cfg(feature = "page")]
        Route::PageRedirect => Ok(page::to_page()),
        #[cfg(feature = "page")]
        Route::Page(name) => page::file(&name, headers).ok_or(HttpError::Route(route::RouteError::NotFound)),
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

/// Tells crawlers to stay away: nothing here is to be found by a search, and one path makes rooms.
fn robots() -> Reply {
    let mut reply = Reply::new(whole("User-agent: *\nDisallow: /\n"));
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(header::CONTENT_TYPE, text);
    reply
}

/// Tells the methods of a path.
fn methods(allowed: &'static str) -> Reply {
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allowed));
    reply
}

async fn start(app: &RunnerApp, body: &Bytes, asked: RequestBase<'_>, peer: PeerInfo) -> Result<Reply, HttpError> {
    let plan = start::plan(&app.config, body).map_err(|refusal| match refusal {
        start::StartError::Invalid(invalid) => HttpError::Invalid {
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
            // A telephone's data comes from its provider, so there is nothing to keep.
            let id = match family {
                SocketKind::Client => Some(register(app, &body, peer)?),
                SocketKind::Call => None,
            };
            let url = start::socket_url(&app.config, asked, family);
            let token = mint_token(app, family, id.as_deref(), peer.is_authorised);
            start::socket_reply(&url, id.as_deref(), token.as_deref())
        }
        #[cfg(feature = "videoroom")]
        StartPlan::Videoroom { room, body } => daily::start(app, room, body, peer).await?,
        #[cfg(feature = "mediaroom")]
        StartPlan::Mediaroom { body } => livekit::start(app, body, peer)?,
        // A plan is made of what this build has.
        #[cfg(not(all(feature = "videoroom", feature = "mediaroom")))]
        _ => return Err(HttpError::Route(route::RouteError::NotFound)),
    };
    Ok(json_reply(StatusCode::OK, reply))
}

/// Keeps a body for the connection to come, under a new name.
fn register(app: &RunnerApp, body: &Value, peer: PeerInfo) -> Result<SessionId, HttpError> {
    let id = new_session_id();
    lock(&app.table)
        .register(id.clone(), body, peer.requester(), Instant::now())
        .map_err(HttpError::Full)?;
    Ok(id)
}

/// Makes a token for a socket, where one is asked for. A registered session's name in it leads to
/// that session. Who has the API key gets one for calls too that need proof otherwise.
fn mint_token(app: &RunnerApp, family: SocketKind, session: Option<&str>, is_authorised: bool) -> Option<String> {
    let proves = family == SocketKind::Call && is_authorised && proof::protects_any(&PROVIDERS, &app.config.telephony);
    if !app.config.ws_tokens && !proves {
        return None;
    }
    let id = session.map_or_else(new_session_id, SessionId::from);
    let issuer = if is_authorised { Issuer::ApiKey } else { Issuer::Anyone };
    Some(lock(&app.tokens).mint(family, &id, issuer, Instant::now()))
}

/// Shows what was counted, to those for whom it is.
fn metrics_reply(app: &RunnerApp, headers: &HeaderMap, peer: PeerInfo) -> Result<Reply, HttpError> {
    let on_this_machine = peer.ip().to_canonical().is_loopback();
    // Not every proxy tells of itself, but what it is called by from outside is not `localhost`.
    let named_otherwise = headers
        .get(header::HOST)
        .is_some_and(|host| !host::is_loopback(host.as_bytes()));
    let forwarded = named_otherwise || headers.keys().any(|name| is_forwarding(name.as_str()));
    check_access(app.config.metrics, on_this_machine, forwarded).map_err(HttpError::Metrics)?;
    let mut reply = Reply::new(whole(metrics::text(&app.sessions, app.webrtc.as_ref())));
    let put = reply.headers_mut();
    put.insert(header::CONTENT_TYPE, METRICS_TYPE);
    put.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

fn new_session_id() -> SessionId {
    registry::session_id(random())
}

/// Gives devices the certificate to trust. It has no name of a file with it: phones then offer to
/// install it.
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
