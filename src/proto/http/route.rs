//! Maps method and path to an endpoint.
//!
//! In: the method and the path of the request line, percent-encoded and without its query. Out: a
//! [`Route`], or a [`RouteError`] that becomes 404 or 405. HEAD is accepted wherever GET is.
//! Aliases of paths are equivalent, and one trailing slash is ignored. Rejected: unknown paths,
//! methods that a path does not support, percent-encoding that is not UTF-8, and `.` or `..`
//! segments, encoded or not. Source.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Value, json};

use crate::aliases::{self, Area};
use crate::features::Feature;
use crate::http::endpoint::{EndpointKind, ModuleEndpoint};
use crate::http::token::SocketKind;
use crate::http::uploads;
use crate::modules;
use crate::webrtc::whip::call::error_body as call_error_body;
use crate::webrtc::whip::path as whip;

/// An endpoint with the parameters of its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'p> {
    /// `/` and `/client`, which redirect to `/client/`.
    PageRedirect,
    /// A file of the page, by its name below `/client/`; an empty name is the page itself.
    Page(Cow<'p, str>),
    /// A file of the downloads folder, by its path below `/files/`.
    Download(Cow<'p, str>),
    /// A file for the bot (POST), with or without the session that it belongs to.
    Upload(Option<String>),
    /// The certificate of the authority of `--tls auto`, for devices to install.
    CaCertificate,
    /// The rules for crawlers.
    Robots,
    /// The description of these routes for programs.
    OpenApi,
    Start,
    Status,
    /// Whether the process serves.
    Live,
    /// Whether the runner takes new sessions.
    Ready,
    Metrics,
    /// The list of live sessions (GET).
    Sessions,
    /// The records of calls (GET).
    Calls,
    /// A call to be dialled (POST).
    Dial,
    /// What happens in calls, as server-sent events (GET).
    CallEvents,
    /// The record of the call with this id (GET).
    Call(String),
    /// The sound of the call with this id (GET).
    CallRecording(String),
    /// An offer of one that listens to the live call with this id (POST).
    Listen(String),
    /// The end of what a listener hears (DELETE): the id of the call, and that of the listener.
    EndListening(String, String),
    /// The end of a live session with this id (DELETE).
    EndSession(String),
    /// The settings that the page can change (GET).
    Settings,
    /// A change of the settings (POST).
    ChangeSettings,
    /// A check of the services that settings name (POST).
    CheckServices,
    /// A test of the sound card (POST).
    TestSound,
    /// An offer (POST), with or without a session that `/start` created.
    Offer(Option<String>),
    /// Candidates of the client (PATCH).
    Candidates(Option<String>),
    /// An offer by WHIP, WHEP or a call, or a session that one created.
    Whip(whip::WhipRoute),
    /// A WebSocket, with the token of its path.
    Socket(SocketKind, Option<String>),
    /// The call webhook of a telephony provider (POST `/`).
    Webhook,
    /// An endpoint of a module.
    Module(&'static ModuleEndpoint),
    /// OPTIONS without the headers of a preflight; the methods of the path.
    Methods(&'static str),
}

impl Route<'_> {
    /// Returns the cargo feature of this endpoint.
    pub fn feature(&self) -> Option<Feature> {
        match self {
            Route::PageRedirect | Route::Page(_) | Route::Download(_) | Route::Upload(_) => Some(Feature::Page),
            Route::OpenApi => Some(Feature::Page),
            Route::Calls | Route::CallEvents | Route::Call(_) | Route::CallRecording(_) => Some(Feature::Calls),
            Route::Listen(_) | Route::EndListening(..) => Some(Feature::Calls),
            Route::Settings | Route::ChangeSettings | Route::CheckServices | Route::TestSound => Some(Feature::Setup),
            Route::CaCertificate => Some(Feature::Tls),
            Route::Offer(_) | Route::Candidates(_) | Route::Whip(_) => Some(Feature::WebRtc),
            Route::Socket(family, _) => Some(family.feature()),
            Route::Webhook | Route::Dial => Some(Feature::Telephony),
            Route::Module(endpoint) => Some(endpoint.feature),
            Route::Metrics
            | Route::Sessions
            | Route::EndSession(_)
            | Route::Robots
            | Route::Start
            | Route::Status
            | Route::Live
            | Route::Ready
            | Route::Methods(_) => None,
        }
    }

    /// Returns what a request of a module's endpoint is; `None` for another route.
    pub fn endpoint_kind(&self) -> Option<EndpointKind> {
        match self {
            Route::Module(endpoint) => Some(endpoint.kind),
            _ => None,
        }
    }

    /// Returns what makes the JSON of an error at this endpoint.
    pub fn error_body(&self) -> ErrorBody {
        match self {
            Route::Whip(request) if request.is_call() => call_error_body,
            _ => error_body,
        }
    }

    /// Returns whether only the operator may send a request: with the key, and from no foreign
    /// page.
    pub fn is_for_operator(&self) -> bool {
        matches!(self, Route::Sessions | Route::EndSession(_) | Route::Dial) || self.feature() == Some(Feature::Calls)
    }

    /// Returns whether a request reads or changes settings, for which it needs the key and comes
    /// from the runner's own page or from no page.
    pub fn is_of_settings(&self) -> bool {
        self.feature() == Some(Feature::Setup)
    }

    /// Returns whether a request carries an offer. Rejections of offers are logged for the
    /// operator, since many clients hide the response and retry indefinitely.
    pub fn accepts_offer(&self) -> bool {
        matches!(self, Route::Offer(_) | Route::Whip(whip::WhipRoute::Create(..)))
    }
}

/// Makes the JSON of an error from its `detail`.
pub type ErrorBody = fn(&Value) -> Value;

/// Returns the JSON of an error, as most endpoints have it.
pub fn error_body(detail: &Value) -> Value {
    json!({"detail": detail})
}

/// A request without an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// No endpoint has this path.
    NotFound,
    /// The path does not support the method; it supports these.
    Method(&'static str),
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteError::NotFound => f.write_str("nothing is at this path"),
            RouteError::Method(allowed) => write!(f, "this path takes {allowed} only"),
        }
    }
}

impl std::error::Error for RouteError {}

const GET_METHODS: &str = "GET, HEAD, OPTIONS";
/// The methods of endpoints that only accept bodies.
pub const POST_METHODS: &str = "POST, OPTIONS";
/// The methods of a webhook whose URL is verified.
pub const WEBHOOK_METHODS: &str = GET_AND_POST_METHODS;
const GET_AND_POST_METHODS: &str = "GET, HEAD, POST, OPTIONS";
const OFFER_METHODS: &str = "POST, PATCH, OPTIONS";
const END_METHODS: &str = "DELETE, OPTIONS";
const CALL_METHODS: &str = "GET, HEAD, DELETE, OPTIONS";
const SOCKET_METHODS: &str = "GET, OPTIONS";
/// The methods of `/` if `-t` selects no telephony provider.
pub const ROOT_METHODS: &str = GET_METHODS;

/// Path of the certificate of the authority.
pub const CA_CERTIFICATE_PATH: &str = "/ca.crt";

/// Path of the rules for crawlers.
pub const ROBOTS_PATH: &str = "/robots.txt";

/// Returns whether a request is exempt from the list of allowed origins: browsers send no origin
/// when they navigate to the page or download a file, nor do crawlers that read their
/// rules.
pub fn is_navigation(method: &str, path: &str) -> bool {
    matches!(method, "GET" | "HEAD")
        && (matches!(path, "/" | "/client" | CA_CERTIFICATE_PATH | ROBOTS_PATH)
            || path.starts_with("/client/")
            || path.starts_with("/files/"))
}

/// Returns the endpoint of a request.
///
/// # Errors
/// Returns a [`RouteError`] if there is none.
pub fn route<'p>(method: &str, path: &'p str) -> Result<Route<'p>, RouteError> {
    let path = percent_decode(path).ok_or(RouteError::NotFound)?;
    if path.split(['/', '\\']).any(|segment| matches!(segment, "." | "..")) {
        return Err(RouteError::NotFound);
    }
    if path == "/" && method == "POST" {
        return Ok(Route::Webhook);
    }
    if path == "/" || path == "/client" {
        return read_only(method, Route::PageRedirect);
    }
    let below = |folder: &str| match &path {
        Cow::Borrowed(path) => path.strip_prefix(folder).map(Cow::Borrowed),
        Cow::Owned(path) => path.strip_prefix(folder).map(|name| Cow::Owned(name.to_owned())),
    };
    if let Some(name) = below("/client/") {
        return read_only(method, Route::Page(name));
    }
    if let Some(name) = below("/files/").filter(|name| method != "POST" || !name.is_empty()) {
        return read_only(method, Route::Download(name));
    }
    let path = path.strip_suffix('/').unwrap_or(&path);
    match path {
        "/status" => read_only(method, Route::Status),
        "/openapi.json" => read_only(method, Route::OpenApi),
        "/livez" => read_only(method, Route::Live),
        "/readyz" => read_only(method, Route::Ready),
        "/metrics" => read_only(method, Route::Metrics),
        "/sessions" => read_only(method, Route::Sessions),
        "/calls" => match method {
            "GET" | "HEAD" => Ok(Route::Calls),
            "POST" => Ok(Route::Dial),
            "OPTIONS" => Ok(Route::Methods(GET_AND_POST_METHODS)),
            _ => Err(RouteError::Method(GET_AND_POST_METHODS)),
        },
        "/calls/events" => read_only(method, Route::CallEvents),
        "/settings" => match method {
            "GET" | "HEAD" => Ok(Route::Settings),
            "POST" => Ok(Route::ChangeSettings),
            "OPTIONS" => Ok(Route::Methods(GET_AND_POST_METHODS)),
            _ => Err(RouteError::Method(GET_AND_POST_METHODS)),
        },
        "/settings/check" => post(method, Route::CheckServices),
        "/settings/sound-test" => post(method, Route::TestSound),
        CA_CERTIFICATE_PATH => read_only(method, Route::CaCertificate),
        ROBOTS_PATH => read_only(method, Route::Robots),
        "/start" => post(method, Route::Start),
        "/api/offer" => offer(method, None),
        uploads::PATH => upload(method, None),
        _ => {
            if let Some((family, token)) = socket(path) {
                return match method {
                    "GET" => Ok(Route::Socket(family, token)),
                    "OPTIONS" => Ok(Route::Methods(SOCKET_METHODS)),
                    _ => Err(RouteError::Method(SOCKET_METHODS)),
                };
            }
            if let Some(found) = whip::find(method, path) {
                return found.map(Route::Whip).map_err(RouteError::Method);
            }
            if let Some(id) = live_session(path) {
                return end(method, Route::EndSession(id.to_owned()));
            }
            if let Some(id) = path.strip_prefix("/calls/") {
                match id.split_once('/') {
                    None => return call(method, id),
                    Some((id, "recording")) => return read_only(method, Route::CallRecording(id.to_owned())),
                    Some((id, "listen")) => return post(method, Route::Listen(id.to_owned())),
                    Some((id, rest)) => {
                        if let Some(listener) = rest.strip_prefix("listen/").filter(|id| !id.contains('/')) {
                            return end(method, Route::EndListening(id.to_owned(), listener.to_owned()));
                        }
                    }
                }
            }
            if let Some(id) = session(path, |rest| rest == "files") {
                return upload(method, Some(id.to_owned()));
            }
            match session(path, |rest| rest.ends_with("api/offer")) {
                Some(id) => offer(method, Some(id.to_owned())),
                None => of_module(method, path),
            }
        }
    }
}

/// Returns the endpoint of a module at a path.
fn of_module<'p>(method: &str, path: &str) -> Result<Route<'p>, RouteError> {
    let path = aliases::canonical(Area::Path, path);
    match modules::ENDPOINTS.iter().find(|row| row.path == path) {
        Some(row) if row.kind.is_webhook() => Ok(Route::Module(row)),
        Some(row) => read_only(method, Route::Module(row)),
        None => Err(RouteError::NotFound),
    }
}

/// Returns a path for the log, without tokens and session ids.
pub fn path_for_log(path: &str) -> &str {
    let end = path.match_indices('/').nth(1).map_or(path.len(), |(at, _)| at);
    if let Some(shown) = percent_decode(path).and_then(|path| whip::redact(&path)) {
        return shown;
    }
    match percent_decode(path) {
        // The decoded path leads to a WebSocket or a session, whatever its encoding.
        Some(Cow::Owned(plain)) if plain.starts_with("/ws") => "/ws...",
        Some(Cow::Owned(plain)) if plain.starts_with("/sessions") => "/sessions...",
        Some(Cow::Owned(plain)) if plain.starts_with("/calls") => "/calls...",
        _ if path.starts_with("/sessions/") && path.ends_with("/api/offer") => "/sessions/.../api/offer",
        _ if path.starts_with("/sessions/") => "/sessions/...",
        _ if path.starts_with("/calls/") => "/calls/...",
        _ if path.starts_with("/ws") => &path[..end],
        _ => path,
    }
}

/// Returns the WebSocket of a path, and its token.
fn socket(path: &str) -> Option<(SocketKind, Option<String>)> {
    let path = path.strip_prefix('/')?;
    let (root, token) = match path.split_once('/') {
        Some((root, token)) => (root, Some(token)),
        None => (path, None),
    };
    let family = match root {
        "ws" => SocketKind::Call,
        "ws-client" => SocketKind::Client,
        _ => return None,
    };
    // Tokens contain no slash.
    match token {
        Some(token) if token.is_empty() || token.contains('/') => None,
        token => Some((family, token.map(str::to_owned))),
    }
}

/// The query of a request.
#[derive(Clone, Copy, Debug)]
pub struct Query<'q>(&'q str);

impl<'q> Query<'q> {
    /// Wraps the percent-encoded text after the `?`.
    pub fn new(text: &'q str) -> Self {
        Query(text)
    }

    /// Returns the first value of a name; `None` if it is empty or badly encoded.
    pub fn value(self, name: &str) -> Option<String> {
        let mut pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(key, _)| *key == name)?;
        percent_decode(value)
            .filter(|value| !value.is_empty())
            .map(Cow::into_owned)
    }
}

fn read_only<'p>(method: &str, route: Route<'p>) -> Result<Route<'p>, RouteError> {
    match method {
        "GET" | "HEAD" => Ok(route),
        "OPTIONS" => Ok(Route::Methods(GET_METHODS)),
        _ => Err(RouteError::Method(GET_METHODS)),
    }
}

fn end<'p>(method: &str, route: Route<'p>) -> Result<Route<'p>, RouteError> {
    match method {
        "DELETE" => Ok(route),
        "OPTIONS" => Ok(Route::Methods(END_METHODS)),
        _ => Err(RouteError::Method(END_METHODS)),
    }
}

/// A call is read whether it is live or past; a live one is ended as its session is.
fn call<'p>(method: &str, id: &str) -> Result<Route<'p>, RouteError> {
    match method {
        "GET" | "HEAD" => Ok(Route::Call(id.to_owned())),
        "DELETE" => Ok(Route::EndSession(id.to_owned())),
        "OPTIONS" => Ok(Route::Methods(CALL_METHODS)),
        _ => Err(RouteError::Method(CALL_METHODS)),
    }
}

fn upload<'p>(method: &str, session: Option<String>) -> Result<Route<'p>, RouteError> {
    post(method, Route::Upload(session))
}

fn post<'p>(method: &str, route: Route<'p>) -> Result<Route<'p>, RouteError> {
    match method {
        "POST" => Ok(route),
        "OPTIONS" => Ok(Route::Methods(POST_METHODS)),
        _ => Err(RouteError::Method(POST_METHODS)),
    }
}

fn offer<'p>(method: &str, session: Option<String>) -> Result<Route<'p>, RouteError> {
    match method {
        "POST" => Ok(Route::Offer(session)),
        "PATCH" => Ok(Route::Candidates(session)),
        "OPTIONS" => Ok(Route::Methods(OFFER_METHODS)),
        _ => Err(RouteError::Method(OFFER_METHODS)),
    }
}

/// Returns the id of `/sessions/{id}`.
fn live_session(path: &str) -> Option<&str> {
    let id = path.strip_prefix("/sessions/")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// Returns the session of `/sessions/{id}/{rest}`. For offers Pipecat accepts any path that ends
/// with `api/offer`, and clients below a path prefix use it.
fn session(path: &str, is_rest: impl FnOnce(&str) -> bool) -> Option<&str> {
    let (id, rest) = path.strip_prefix("/sessions/")?.split_once('/')?;
    (!id.is_empty() && is_rest(rest)).then_some(id)
}

/// Decodes percent-encoding; `None` if an escape is incomplete, or the bytes are not UTF-8 or
/// contain a NUL.
pub fn percent_decode(path: &str) -> Option<Cow<'_, str>> {
    if !path.contains('%') {
        return Some(Cow::Borrowed(path));
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            let digit = |at: usize| char::from(digits[at]).to_digit(16);
            bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|path| !path.contains('\0'))
        .map(Cow::Owned)
}

#[cfg(test)]
mod tests;
