//! Requests and replies: what a [`Route`] needs is read, planned and done here.
//!
//! In: hyper's requests. Out: replies with `Content-Length`, never chunked, with CORS headers on errors too, or a page could
//! not read them. The rules are in `proto`: which endpoint, which origin, what a body means; `read` collects bodies, and
//! `refusal` gives every error its status. A refusal is one DEBUG line; a body of the wrong shape is one WARN line as well,
//! since it is a client's bug.
#![allow(
    clippy::disallowed_methods,
    reason = "this room is the shell: it stamps the time and draws random numbers"
)]

mod read;
mod refusal;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Version};
use log::{debug, warn};
use serde_json::json;

use self::read::read;
use self::refusal::{Refusal, json_reply};
use crate::bot::SessionId;
use crate::config::Config;
use crate::io::webrtc::{Start, WebRtc};
use crate::limits;
use crate::page;
use crate::proto::body::{self, LogBudget};
use crate::proto::offer::{Answer, Candidates, Offer, OfferRefusal};
use crate::proto::origin::{self, Origins, Preflight, Standing};
use crate::proto::route::{self, Route};
use crate::proto::start::{self, Plan, Status};
use crate::proto::table::{self, Claim, Table};

type Reply = Response<Full<Bytes>>;

/// What answers offers. [`WebRtc`] does; the tests of this room bring their own.
pub trait Engine: Send + Sync + 'static {
    /// Answers an offer. `start` is called for a new connection only.
    fn offer(
        &self,
        offer: Offer,
        start: impl FnOnce() -> Start + Send,
    ) -> impl Future<Output = Result<Answer, OfferRefusal>> + Send;
    /// Takes further candidates of a client.
    fn candidates(&self, candidates: Candidates) -> impl Future<Output = Result<(), OfferRefusal>> + Send;
    /// Counts the live sessions.
    fn sessions(&self) -> usize;
}

impl Engine for WebRtc {
    fn offer(
        &self,
        offer: Offer,
        start: impl FnOnce() -> Start + Send,
    ) -> impl Future<Output = Result<Answer, OfferRefusal>> + Send {
        WebRtc::offer(self, offer, start)
    }

    fn candidates(&self, candidates: Candidates) -> impl Future<Output = Result<(), OfferRefusal>> + Send {
        WebRtc::candidates(self, candidates)
    }

    fn sessions(&self) -> usize {
        WebRtc::sessions(self)
    }
}

/// The time limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub idle: Duration,
    pub head: Duration,
    pub body: Duration,
    pub answer: Duration,
    pub stall: Duration,
    pub linger: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            idle: limits::HTTP_IDLE,
            head: limits::HTTP_HEAD,
            body: limits::HTTP_BODY,
            answer: limits::HTTP_ANSWER,
            stall: limits::HTTP_STALL,
            linger: limits::HTTP_LINGER,
        }
    }
}

/// What every request is answered from.
pub struct App<E = WebRtc> {
    config: Arc<Config>,
    engine: E,
    origins: Origins,
    status: Status,
    table: Arc<Mutex<Table>>,
    log_budget: Mutex<LogBudget>,
    pub(super) times: Times,
}

impl<E: Engine> App<E> {
    /// Makes it for a runner of this configuration.
    pub fn new(config: Arc<Config>, engine: E) -> Self {
        App {
            origins: Origins::new(&config.allowed_origins),
            status: Status::new(&config),
            table: Arc::default(),
            log_budget: Mutex::default(),
            times: Times::default(),
            engine,
            config,
        }
    }
}

/// Takes a lock. Whoever panicked while holding it left the value whole: no change to it is made in two steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers one request.
pub(super) async fn answer<E: Engine>(app: &App<E>, request: Request<Incoming>, peer: SocketAddr) -> Reply {
    let (head, body) = request.into_parts();
    let standing = app
        .origins
        .judge(head.headers.get_all(header::ORIGIN).iter().map(HeaderValue::as_bytes));
    let answered = match standing {
        _ if !has_host(&head) => Err(Refusal::Host),
        _ if is_preflight(&head.method, &head.headers) => preflight(standing, &head.headers),
        Standing::Refused if !route::is_navigation(head.method.as_str(), head.uri.path()) => Err(Refusal::Origin),
        _ => match route::route(head.method.as_str(), head.uri.path()) {
            Ok(route) => dispatch(app, route, &head.headers, body).await,
            Err(refusal) => Err(Refusal::Route(refusal)),
        },
    };
    let mut reply = answered.unwrap_or_else(|refusal| {
        log_refusal(app, &refusal, &head, peer);
        refusal.reply()
    });
    if let Standing::Allowed(origin) = standing {
        put(reply.headers_mut(), origin::headers(origin));
    }
    reply
}

/// Does what an endpoint is for.
async fn dispatch<E: Engine>(
    app: &App<E>,
    route: Route<'_>,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Reply, Refusal> {
    match route {
        Route::Status => Ok(json_reply(StatusCode::OK, app.status.reply(app.engine.sessions()))),
        Route::ToPage => Ok(to_page()),
        Route::Page(name) => file(&name, headers).ok_or(Refusal::Route(route::Refusal::NotFound)),
        Route::Start => start(app, &read(app.times, headers, body).await?),
        Route::Offer(session) => {
            let body = read(app.times, headers, body).await?;
            let offer = Offer::parse(&body).map_err(|invalid| Refusal::Invalid { invalid, body })?;
            take_offer(app, session.as_deref(), offer).await
        }
        Route::Candidates(session) => {
            let body = read(app.times, headers, body).await?;
            let candidates = Candidates::parse(&body).map_err(|invalid| Refusal::Invalid { invalid, body })?;
            if let Some(id) = session
                && !lock(&app.table).contains(&id, Instant::now())
            {
                return Err(Refusal::Unknown(table::Unknown));
            }
            app.engine.candidates(candidates).await.map_err(Refusal::Offer)?;
            Ok(json_reply(StatusCode::OK, r#"{"status":"success"}"#))
        }
        Route::Methods(allowed) => {
            let mut reply = Reply::default();
            *reply.status_mut() = StatusCode::NO_CONTENT;
            reply
                .headers_mut()
                .insert(header::ALLOW, HeaderValue::from_static(allowed));
            Ok(reply)
        }
    }
}

fn start<E: Engine>(app: &App<E>, body: &Bytes) -> Result<Reply, Refusal> {
    let plan = start::plan(&app.config, body).map_err(|refusal| match refusal {
        start::Refusal::Invalid(invalid) => Refusal::Invalid {
            invalid,
            body: body.clone(),
        },
        other => Refusal::Start(other),
    })?;
    let Plan::Register { body, ice_servers } = plan;
    let id = fresh_id();
    lock(&app.table)
        .register(id.clone(), &body, Instant::now())
        .map_err(Refusal::Full)?;
    Ok(json_reply(StatusCode::OK, start::webrtc_reply(&id, &ice_servers)))
}

async fn take_offer<E: Engine>(app: &App<E>, session: Option<&str>, mut offer: Offer) -> Result<Reply, Refusal> {
    let lease = match session {
        Some(id) => Some(Lease::claim(&app.table, id).map_err(Refusal::Unknown)?),
        None => None,
    };
    // The engine hands the bot what `start` gives; data of the offer goes before that of `/start`.
    let sent = offer.request_data.take();
    let begin = move || match lease {
        Some(mut lease) => {
            lease.used = true;
            let session_id = lease.claim.session_id.clone();
            let body = sent.unwrap_or_else(|| lease.claim.body.take());
            Start {
                session_id,
                body,
                lease: Some(Box::new(lease)),
            }
        }
        None => Start {
            session_id: fresh_id(),
            body: sent.unwrap_or_else(|| json!({})),
            lease: None,
        },
    };
    let answer = app.engine.offer(offer, begin).await.map_err(Refusal::Offer)?;
    Ok(json_reply(StatusCode::OK, answer.to_json()))
}

/// A claim on a registered session; dropped, it goes back to the table.
struct Lease {
    table: Arc<Mutex<Table>>,
    claim: Claim,
    /// Whether a session came of it.
    used: bool,
}

impl Lease {
    fn claim(table: &Arc<Mutex<Table>>, id: &str) -> Result<Lease, table::Unknown> {
        let claim = lock(table).claim(id, fresh_id(), Instant::now())?;
        Ok(Lease {
            table: table.clone(),
            claim,
            used: false,
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&self.table).release(&self.claim, self.used);
    }
}

fn fresh_id() -> SessionId {
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the system has random numbers once it is up");
    table::session_id(random)
}

fn has_host(head: &Parts) -> bool {
    let hosts = head.headers.get_all(header::HOST).iter().take(2).count();
    hosts == 1 || hosts == 0 && head.version < Version::HTTP_11
}

fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight(standing: Standing<'_>, headers: &HeaderMap) -> Result<Reply, Refusal> {
    if standing == Standing::Refused {
        return Err(Refusal::Preflight);
    }
    let asked = Preflight {
        headers: headers
            .get(header::ACCESS_CONTROL_REQUEST_HEADERS)
            .map(HeaderValue::as_bytes),
        private_network: headers
            .get("access-control-request-private-network")
            .is_some_and(|value| value == "true"),
    };
    let mut reply = Reply::default();
    put(reply.headers_mut(), origin::preflight_headers(asked));
    Ok(reply)
}

fn put<'h>(headers: &mut HeaderMap, more: impl IntoIterator<Item = origin::Header<'h>>) {
    for (name, value) in more {
        // Values that came from a request are valid header values, or hyper had not taken them.
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
}

fn to_page() -> Reply {
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    reply
        .headers_mut()
        .insert(header::LOCATION, HeaderValue::from_static("/client/"));
    reply
}

/// Finds a file of the page; a client that has it already gets no bytes.
fn file(name: &str, headers: &HeaderMap) -> Option<Reply> {
    let asset = page::asset(name)?;
    let asked = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
            .unwrap_or_default()
    };
    let mut reply = Reply::default();
    let put = [
        (header::ETAG, asset.etag),
        // A page of another version must not stay behind in a browser: it asks, and mostly hears 304.
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "Accept-Encoding"),
        (header::CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // `no-referrer` would also hide the origin of some requests, which a list of origins needs.
        (header::REFERRER_POLICY, "same-origin"),
    ];
    for (name, value) in put {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if asset.is_in(asked(header::IF_NONE_MATCH)) {
        *reply.status_mut() = StatusCode::NOT_MODIFIED;
        return Some(reply);
    }
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    *reply.body_mut() = if page::accepts_gzip(asked(header::ACCEPT_ENCODING)) {
        reply
            .headers_mut()
            .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        Full::new(Bytes::from_static(asset.gzip))
    } else {
        Full::new(asset.identity().into())
    };
    Some(reply)
}

fn log_refusal<E: Engine>(app: &App<E>, refusal: &Refusal, head: &Parts, peer: SocketAddr) {
    let (method, path, status) = (&head.method, head.uri.path(), refusal.status().as_u16());
    if let Refusal::Invalid { invalid, body } = refusal
        && lock(&app.log_budget).take(Instant::now())
    {
        warn!("{status} {method} {path}: {invalid}; body: {}", body::for_log(body));
    }
    debug!("{peer} {method} {path}: {status} {}", refusal.detail());
}
