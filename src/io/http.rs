//! Requests and replies: what a [`Route`] needs is read, planned and done here.
//!
//! In: hyper's requests. Out: replies with `Content-Length`, never chunked, with CORS headers on errors too, or a page could
//! not read them. The rules are in `proto`: which endpoint, what a body means; `gate` says who may ask, `read` collects bodies,
//! `refusal` gives every error its status, and `note` its line in the log.

pub use edge_runner_http::common as floor;

#[cfg_attr(not(feature = "page"), path = "http/file/absent.rs")]
mod file;
mod gate;
#[cfg_attr(not(feature = "messaging"), path = "http/messaging/absent.rs")]
mod messaging;
mod note;
mod read;
mod refusal;
#[cfg_attr(not(feature = "mediaroom"), path = "http/rooms/absent.rs")]
mod rooms;
#[cfg_attr(
    not(any(feature = "telephony", feature = "websocket")),
    path = "http/socket/absent.rs"
)]
mod socket;
#[cfg_attr(not(feature = "videoroom"), path = "http/videoroom/absent.rs")]
mod videoroom;
#[cfg_attr(not(feature = "telephony"), path = "http/webhook/absent.rs")]
mod webhook;
#[cfg_attr(not(feature = "webrtc"), path = "http/whip/absent.rs")]
mod whip;

use std::future::Future;
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

use self::file::{file, to_page};
use self::gate::{Gate, put};
use self::note::{caller, log_refusal};
use self::read::{Takes, read};
pub use self::refusal::Refusal;
use crate::abilities::Ability;
use crate::bot::SessionId;
use crate::config::Config;
use crate::io::http::floor::{Becomes, Peer, Reply, Times, asked, json_reply, lock, random, whole};
use crate::io::messaging::Registry;
use crate::io::metrics;
use crate::io::room::{self, Begin};
use crate::io::server::{ConnState, Service};
use crate::io::sessions::Start;
use crate::io::socket::{Endpoint, Entry, Upgrade, upgrade};
use crate::io::tasks::Place;
use crate::io::tls::Tls;
use crate::io::webrtc::WebRtc;
use crate::logging;
use crate::proto::admission::{Kind, Requester};
use crate::proto::forwarded::TrustedProxies;
use crate::proto::host;
use crate::proto::lines::Lines;
use crate::proto::messaging::webhook::News;
use crate::proto::metrics::{Metrics, Seen, is_forwarding, judge};
use crate::proto::offer::{Answer, Candidates, Offer, OfferRefusal};
use crate::proto::origin::{self, Standing};
use crate::proto::request_framing;
use crate::proto::route::{self, Route};
use crate::proto::start::{self, Asked, Plan, Status};
use crate::proto::table::{self, Claim, Table};
use crate::proto::telephony::proof;
use crate::proto::token::{Family, Issuer, Tokens};
use crate::proto::videoroom::taken::Taken;
use crate::proto::whip::{Asked as AskedOfSession, Done, Opening, Refusal as WhipRefusal};

/// The content type of the text format of Prometheus.
const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// What answers offers. [`WebRtc`] does; the tests of this room bring their own.
pub trait Engine: Send + Sync + 'static {
    /// Takes a connection that brings packets of a session instead of requests, once its first packet has come.
    fn framed(&self, stream: TcpStream, peer: SocketAddr) -> impl Future<Output = io::Result<()>> + Send;
    /// Answers an offer. `start` is called for a new connection only.
    fn offer(
        &self,
        offer: Offer,
        requester: Requester,
        start: impl FnOnce() -> Start + Send,
    ) -> impl Future<Output = Result<Answer, OfferRefusal>> + Send;
    /// Answers an offer that makes a session with a resource.
    fn open(
        &self,
        opening: Opening,
        requester: Requester,
        start: impl FnOnce() -> Start + Send,
    ) -> impl Future<Output = Result<Answer, OfferRefusal>> + Send;
    /// Does what is asked of the resource of a session.
    fn resource(&self, id: &str, asked: AskedOfSession) -> impl Future<Output = Result<Done, WhipRefusal>> + Send;
    /// Takes further candidates of a client.
    fn candidates(&self, candidates: Candidates) -> impl Future<Output = Result<(), OfferRefusal>> + Send;
    /// Counts the live sessions.
    fn sessions(&self) -> usize;
    /// Tells whether new sessions are refused since the runner is on its way to its end.
    fn is_closed(&self) -> bool;
    /// Returns where answers and refusals are counted.
    fn metrics(&self) -> Arc<Metrics> {
        Arc::default()
    }
    /// Returns what `/metrics` answers.
    fn metrics_text(&self) -> String {
        self.metrics().render(&Seen::default())
    }
    /// Makes what the connection becomes that asks for a WebSocket and may have one. `start` is
    /// called when there is a place for its session, and what it uses up is used for good.
    fn socket(
        &self,
        endpoint: Endpoint,
        requester: Requester,
        start: impl FnOnce() -> Start,
    ) -> Result<Upgrade, Refusal>;
    /// Takes a place for a session in a room, which begins when what is returned is called.
    fn room(&self, requester: Requester, kind: Kind) -> Result<Begin, Refusal>;
    /// Takes a place beside the sessions, which the end of the runner waits for; nothing when all are taken.
    fn aside(&self) -> Option<Place> {
        None
    }
    /// Takes news of calls, and does what follows from them by itself. `start` is called for each call that begins.
    fn calls(&self, _registry: &Registry, _news: Vec<News>, _requester: Requester, _start: &dyn Fn(Value) -> Start) {}
}

impl Engine for WebRtc {
    fn framed(&self, stream: TcpStream, peer: SocketAddr) -> impl Future<Output = io::Result<()>> + Send {
        WebRtc::framed(self, stream, peer)
    }

    fn offer(
        &self,
        offer: Offer,
        requester: Requester,
        start: impl FnOnce() -> Start + Send,
    ) -> impl Future<Output = Result<Answer, OfferRefusal>> + Send {
        WebRtc::offer(self, offer, requester, start)
    }

    fn open(
        &self,
        opening: Opening,
        requester: Requester,
        start: impl FnOnce() -> Start + Send,
    ) -> impl Future<Output = Result<Answer, OfferRefusal>> + Send {
        WebRtc::open(self, opening, requester, start)
    }

    fn resource(&self, id: &str, asked: AskedOfSession) -> impl Future<Output = Result<Done, WhipRefusal>> + Send {
        WebRtc::resource(self, id, asked)
    }

    fn candidates(&self, candidates: Candidates) -> impl Future<Output = Result<(), OfferRefusal>> + Send {
        WebRtc::candidates(self, candidates)
    }

    fn sessions(&self) -> usize {
        WebRtc::sessions(self).count()
    }

    fn is_closed(&self) -> bool {
        WebRtc::sessions(self).is_closed()
    }

    fn metrics(&self) -> Arc<Metrics> {
        WebRtc::sessions(self).metrics().clone()
    }

    fn metrics_text(&self) -> String {
        metrics::text(self)
    }

    fn socket(
        &self,
        endpoint: Endpoint,
        requester: Requester,
        start: impl FnOnce() -> Start,
    ) -> Result<Upgrade, Refusal> {
        let sessions = WebRtc::sessions(self);
        if sessions.is_closed() {
            return Err(Refusal::Offer(OfferRefusal::Stopping));
        }
        let entry = match endpoint {
            Endpoint::Client => sessions
                .admission()
                .session(requester, Kind::Silent)
                .map(Entry::Session),
            Endpoint::Call(_) => sessions.admission().handshake(requester).map(Entry::Handshake),
        };
        let entry = entry.map_err(|refused| Refusal::Offer(refused.into()))?;
        Ok(upgrade(sessions.clone(), endpoint, start(), entry))
    }

    fn room(&self, requester: Requester, kind: Kind) -> Result<Begin, Refusal> {
        let sessions = WebRtc::sessions(self);
        if sessions.is_closed() {
            return Err(Refusal::Offer(OfferRefusal::Stopping));
        }
        let permit = sessions.admission().session(requester, kind);
        let permit = permit.map_err(|refused| Refusal::Offer(refused.into()))?;
        Ok(room::begin(sessions.clone(), permit, self.common().clone()))
    }

    fn aside(&self) -> Option<Place> {
        WebRtc::sessions(self).hang_ups().enter()
    }

    fn calls(&self, registry: &Registry, news: Vec<News>, requester: Requester, start: &dyn Fn(Value) -> Start) {
        crate::io::messaging::take(self, registry, news, requester, start);
    }
}

/// What every request is answered from.
pub struct App<E = WebRtc> {
    config: Arc<Config>,
    engine: E,
    gate: Gate,
    status: Status,
    table: Arc<Mutex<Table>>,
    /// Tokens of WebSockets.
    tokens: Mutex<Tokens>,
    /// Calls to video rooms that have a bot.
    calls: Mutex<Taken>,
    /// Calls of the messaging app.
    messaging: Registry,
    /// The log lines that callers cause.
    lines: Arc<Mutex<Lines>>,
    metrics: Arc<Metrics>,
    proxies: TrustedProxies,
    pub(super) times: Times,
    /// What takes TLS; nothing when TLS is off.
    pub(super) tls: Option<Arc<Tls>>,
}

impl<E: Engine> App<E> {
    /// Makes it for a runner of this configuration.
    pub fn new(config: Arc<Config>, engine: E) -> Self {
        App {
            gate: Gate::new(&config, random()),
            status: Status::new(&config),
            table: Arc::default(),
            tokens: Mutex::new(Tokens::new(random(), Instant::now())),
            calls: Mutex::default(),
            messaging: Registry::default(),
            lines: Arc::default(),
            times: Times::default(),
            metrics: engine.metrics(),
            proxies: TrustedProxies::new(&config.trusted_proxies, config.proxy.is_some()),
            tls: None,
            engine,
            config,
        }
    }
}

impl<E> App<E> {
    /// Returns where a request came from, before any trusted proxy.
    fn client(&self, headers: &HeaderMap, peer: Peer) -> IpAddr {
        let lines = |name: HeaderName| headers.get_all(name).iter().map(HeaderValue::as_bytes);
        let x_forwarded_for = lines(HeaderName::from_static("x-forwarded-for"));
        self.proxies
            .client(peer.ip(), x_forwarded_for, lines(header::FORWARDED))
    }
}

impl<E: Engine> Service for App<E> {
    fn times(&self) -> Times {
        self.times
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.proxies.trusts(address)
    }

    fn tls(&self) -> Option<&Tls> {
        self.tls.as_deref()
    }

    fn framed(&self, tcp: TcpStream, peer: SocketAddr) -> impl Future<Output = io::Result<()>> + Send {
        self.engine.framed(tcp, peer)
    }

    fn misframed(&self, refusal: request_framing::Refusal) -> Reply {
        let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST);
        self.metrics.responded(status.as_u16());
        json_reply(status, json!({"detail": refusal.to_string()}).to_string())
    }

    fn answer(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        _doing: &Arc<ConnState>,
        becomes: &Becomes,
    ) -> impl Future<Output = Reply> + Send {
        answer(self, request, peer, becomes)
    }
}

/// Answers one request.
async fn answer<E: Engine>(app: &App<E>, request: Request<Incoming>, peer: Peer, becomes: &Becomes) -> Reply {
    let (head, body) = request.into_parts();
    let peer = Peer {
        source: app.client(&head.headers, peer),
        is_authorised: app.gate.is_authorised(&head.headers),
        is_forwarded: head.headers.keys().any(|name| is_forwarding(name.as_str())),
        ..peer
    };
    let standing = app.gate.judge(&head.headers);
    let mut is_call = false;
    let answered = match app.gate.admit(&head, standing) {
        Ok(Some(preflight)) => Ok(preflight),
        Ok(None) => match route::route(head.method.as_str(), head.uri.path()) {
            Ok(route) => {
                is_call = matches!(&route, Route::Whip(request) if request.is_call());
                match (route.ability().and_then(Ability::absent), route) {
                    (Some(absent), _) => Err(Refusal::Absent(absent)),
                    (None, Route::Socket(family, token)) => {
                        self::socket::socket(app, family, token, &head, peer, becomes)
                    }
                    (None, route) => dispatch(app, route, &head, body, peer).await,
                }
            }
            Err(refusal) => Err(Refusal::Route(refusal)),
        },
        Err(refusal) => Err(refusal),
    };
    let mut reply = answered.unwrap_or_else(|refusal| {
        log_refusal(app, &refusal, &head, peer);
        refusal.reply(is_call)
    });
    // Who may read the metrics is judged by machine, so no page of somebody else's may read them from its visitor's.
    let is_metrics = reply.headers().get(header::CONTENT_TYPE) == Some(&METRICS_TYPE);
    if let Standing::Allowed(origin) = standing
        && !is_metrics
    {
        put(reply.headers_mut(), origin::headers(origin));
    }
    app.metrics.responded(reply.status().as_u16());
    reply
}

/// Does what an endpoint is for.
async fn dispatch<E: Engine>(
    app: &App<E>,
    route: Route<'_>,
    head: &Parts,
    body: Incoming,
    peer: Peer,
) -> Result<Reply, Refusal> {
    let headers = &head.headers;
    if !may_ask(app, &route, headers) {
        return Err(Refusal::NoKey);
    }
    match route {
        Route::Status => {
            let status = app.status.reply(app.engine.sessions(), app.engine.is_closed());
            Ok(json_reply(StatusCode::OK, status))
        }
        Route::Metrics => metrics_reply(app, headers, peer),
        Route::ToPage => Ok(to_page()),
        Route::Page(name) => file(&name, headers).ok_or(Refusal::Route(route::Refusal::NotFound)),
        Route::Authority => authority(app),
        Route::Robots => Ok(robots()),
        Route::Start => {
            let body = read(app.times, headers, Takes::Json, body).await?;
            still_open(app)?;
            let asked = asked(headers, peer, app.config.proxy.is_some());
            start(app, &body, asked, peer).await
        }
        Route::Webhook => webhook::webhook(app, head, body).await,
        Route::Videoroom => videoroom::visit(app, head, peer).await,
        Route::DialIn => videoroom::dialled(app, head, body, peer).await,
        Route::Messaging => messaging::messaging(app, head, body, peer).await,
        Route::Socket(..) => unreachable!("a socket is answered before"),
        Route::Offer(session) => {
            let body = read(app.times, headers, Takes::Offer, body).await?;
            let offer = Offer::parse(&body).map_err(|invalid| Refusal::Invalid { invalid, body })?;
            take_offer(app, session.as_deref(), offer, peer).await
        }
        Route::Whip(request) => whip::serve(app, request, head, body, peer).await,
        Route::Candidates(session) => {
            let body = read(app.times, headers, Takes::Json, body).await?;
            let candidates = Candidates::parse(&body).map_err(|invalid| Refusal::Invalid { invalid, body })?;
            if let Some(id) = session
                && !lock(&app.table).contains(&id, Instant::now())
            {
                return Err(Refusal::Unknown(table::Unknown));
            }
            app.engine.candidates(candidates).await.map_err(Refusal::Offer)?;
            Ok(json_reply(StatusCode::OK, r#"{"status":"success"}"#))
        }
        Route::Methods(allowed) => Ok(methods(allowed)),
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

/// Refuses what would become a session that is not let in any more.
fn still_open<E: Engine>(app: &App<E>) -> Result<(), Refusal> {
    match app.engine.is_closed() {
        true => Err(Refusal::Offer(OfferRefusal::Stopping)),
        false => Ok(()),
    }
}

async fn start<E: Engine>(app: &App<E>, body: &Bytes, asked: Asked<'_>, peer: Peer) -> Result<Reply, Refusal> {
    let plan = start::plan(&app.config, body).map_err(|refusal| match refusal {
        start::Refusal::Invalid(invalid) => Refusal::Invalid {
            invalid,
            body: body.clone(),
        },
        other => Refusal::Start(other),
    })?;
    let reply = match plan {
        Plan::Register { body, ice_servers } => {
            let id = register(app, &body, peer)?;
            start::webrtc_reply(&id, &ice_servers)
        }
        Plan::Socket { family, body } => {
            // A telephone's data comes from its provider, so there is nothing to keep.
            let id = match family {
                Family::Client => Some(register(app, &body, peer)?),
                Family::Call => None,
            };
            let url = start::socket_url(&app.config, asked, family);
            let token = mint(app, family, id.as_deref(), peer.is_authorised);
            start::socket_reply(&url, id.as_deref(), token.as_deref())
        }
        Plan::Videoroom { room, body } => videoroom::start(app, room, body, peer).await?,
        Plan::Mediaroom { body } => rooms::mediaroom(app, body, peer)?,
    };
    Ok(json_reply(StatusCode::OK, reply))
}

/// Keeps a body for the connection to come, under a new name.
fn register<E: Engine>(app: &App<E>, body: &Value, peer: Peer) -> Result<SessionId, Refusal> {
    let id = fresh_id();
    lock(&app.table)
        .register(id.clone(), body, peer.requester(), Instant::now())
        .map_err(Refusal::Full)?;
    Ok(id)
}

/// Makes a token for a socket, where one is asked for. A registered session's name in it leads to
/// that session. Who has the API key gets one for calls too that need proof otherwise.
fn mint<E>(app: &App<E>, family: Family, session: Option<&str>, is_authorised: bool) -> Option<String> {
    let proves = family == Family::Call && is_authorised && proof::protects_any(&app.config.telephony);
    if !app.config.ws_tokens && !proves {
        return None;
    }
    let id = session.map_or_else(fresh_id, SessionId::from);
    let issuer = if is_authorised { Issuer::ApiKey } else { Issuer::Anybody };
    Some(lock(&app.tokens).mint(family, &id, issuer, Instant::now()))
}

async fn take_offer<E: Engine>(
    app: &App<E>,
    session: Option<&str>,
    mut offer: Offer,
    peer: Peer,
) -> Result<Reply, Refusal> {
    let lease = match session {
        Some(id) => Some(Lease::claim(&app.table, id).map_err(Refusal::Unknown)?),
        None => None,
    };
    // The engine hands the bot what `start` gives; data of the offer goes before that of `/start`.
    let sent = offer.request_data.take();
    let requester = requester(peer, lease.as_ref());
    let caller = caller(app, peer);
    let begin = starting(lease, caller.clone(), move |registered| {
        sent.or(registered).unwrap_or_else(|| json!({}))
    });
    let began = Instant::now();
    let answer = logging::of_caller(caller, app.engine.offer(offer, requester, begin)).await;
    let answer = answer.map_err(Refusal::Offer)?;
    app.metrics.answered(began.elapsed());
    Ok(json_reply(StatusCode::OK, answer.to_json()))
}

/// Makes what a session starts from, once there is one; `body` gets what was registered for it.
fn starting(
    lease: Option<Lease>,
    caller: logging::Caller,
    body: impl FnOnce(Option<Value>) -> Value + Send,
) -> impl FnOnce() -> Start + Send {
    move || match lease {
        Some(mut lease) => {
            lease.used = true;
            let session_id = lease.claim.session_id.clone();
            let body = body(Some(lease.claim.body.take()));
            Start {
                session_id,
                body,
                caller,
                lease: Some(Box::new(lease)),
            }
        }
        None => Start {
            session_id: fresh_id(),
            body: body(None),
            caller,
            lease: None,
        },
    }
}

/// A claim on a registered session; dropped, it goes back to the table.
struct Lease {
    table: Arc<Mutex<Table>>,
    claim: Claim,
    /// Whether a session came of it.
    used: bool,
}

impl Lease {
    /// Takes a name that is good for one session.
    fn claim_once(table: &Arc<Mutex<Table>>, id: &str) -> Result<Lease, table::Unknown> {
        let claim = lock(table).claim_once(id, Instant::now())?;
        Ok(Lease {
            table: table.clone(),
            claim,
            used: false,
        })
    }

    fn claim(table: &Arc<Mutex<Table>>, id: &str) -> Result<Lease, table::Unknown> {
        let claim = lock(table).claim(id, fresh_id(), Instant::now())?;
        Ok(Lease {
            table: table.clone(),
            claim,
            used: false,
        })
    }
}

/// Tells who asks for a session: who has the name of one that an authorised request registered is
/// authorised as well.
fn requester(peer: Peer, lease: Option<&Lease>) -> Requester {
    let requester = peer.requester();
    Requester {
        is_authorised: requester.is_authorised || lease.is_some_and(|lease| lease.claim.is_authorised),
        ..requester
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&self.table).release(&self.claim, self.used);
    }
}

/// Shows what was counted, to those for whom it is.
fn metrics_reply<E: Engine>(app: &App<E>, headers: &HeaderMap, peer: Peer) -> Result<Reply, Refusal> {
    let on_this_machine = peer.ip().to_canonical().is_loopback();
    // Not every proxy tells of itself, but what it is called by from outside is not `localhost`.
    let named_otherwise = headers
        .get(header::HOST)
        .is_some_and(|host| !host::is_loopback(host.as_bytes()));
    let forwarded = named_otherwise || headers.keys().any(|name| is_forwarding(name.as_str()));
    judge(app.config.metrics, on_this_machine, forwarded).map_err(Refusal::Metrics)?;
    let mut reply = Reply::new(whole(app.engine.metrics_text()));
    let put = reply.headers_mut();
    put.insert(header::CONTENT_TYPE, METRICS_TYPE);
    put.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

fn fresh_id() -> SessionId {
    table::session_id(random())
}

/// Tells whether a request needs no key, or has it. The name of a session that `/start` made is as good: only who had the key
/// was told it, and it lets a server keep the key to itself and its pages connect.
fn may_ask<E>(app: &App<E>, route: &Route<'_>, headers: &HeaderMap) -> bool {
    let session = match route {
        Route::Start | Route::Videoroom => None,
        Route::Offer(session) | Route::Candidates(session) => session.as_deref(),
        _ => return true,
    };
    app.gate.has_key(headers) || session.is_some_and(|id| lock(&app.table).contains(id, Instant::now()))
}

/// Gives devices the certificate to trust. It has no name of a file with it: phones then offer to install it.
fn authority<E>(app: &App<E>) -> Result<Reply, Refusal> {
    let pem = app.tls.as_ref().and_then(|tls| tls.authority());
    let mut reply = Reply::new(whole(pem.ok_or(Refusal::NoAuthority)?));
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
