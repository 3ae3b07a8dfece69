//! Maps method and path to an endpoint.
//!
//! In: the method and the path of the request line, percent-encoded and without its query. Out: a
//! [`Route`], or a [`RouteError`] that becomes 404 or 405. HEAD is accepted wherever GET is.
//! Aliases of paths are equivalent, and one trailing slash is ignored. Rejected: unknown paths,
//! methods that a path does not support, percent-encoding that is not UTF-8, and `.` or `..`
//! segments, encoded or not. Source.

use std::borrow::Cow;
use std::fmt;

use crate::aliases::{self, Area};
use crate::features::Feature;
use crate::http::token::SocketKind;
use crate::webrtc::whip::path as whip;

/// An endpoint, with what its path says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'p> {
    /// `/` and `/client`: the page is at `/client/`.
    PageRedirect,
    /// A file of the page, by its name below `/client/`; an empty name is the page itself.
    Page(Cow<'p, str>),
    /// The certificate of the authority that devices are to trust.
    CaCertificate,
    /// What crawlers are to leave alone.
    Robots,
    Start,
    Status,
    Metrics,
    /// An offer (POST), of a session that `/start` made or of none.
    Offer(Option<String>),
    /// The client's candidates (PATCH).
    Candidates(Option<String>),
    /// An offer by WHIP, WHEP or a call, or the session that came of one.
    Whip(whip::WhipRoute),
    /// A WebSocket, and the token that its path carries.
    Socket(SocketKind, Option<String>),
    /// A telephony provider asks what to do with a call (POST `/`).
    Webhook,
    /// A new video room, and a bot in it (GET).
    Videoroom,
    /// The provider of video rooms has a call (POST). By any method: whether it is there at all,
    /// the configuration says.
    DialIn,
    /// The provider of the messaging app checks this address (GET), or has news of calls (POST). By
    /// any method, as before.
    Messaging,
    /// OPTIONS without a preflight's headers; the methods of the path.
    Methods(&'static str),
}

impl Route<'_> {
    /// Returns the feature that this endpoint needs.
    pub fn feature(&self) -> Option<Feature> {
        match self {
            Route::PageRedirect | Route::Page(_) => Some(Feature::Page),
            Route::CaCertificate => Some(Feature::Tls),
            Route::Offer(_) | Route::Candidates(_) | Route::Whip(_) => Some(Feature::WebRtc),
            Route::Socket(SocketKind::Client, _) => Some(Feature::WebSocket),
            Route::Socket(SocketKind::Call, _) | Route::Webhook => Some(Feature::Telephony),
            Route::Videoroom | Route::DialIn => Some(Feature::Videoroom),
            Route::Messaging => Some(Feature::Messaging),
            Route::Metrics | Route::Robots | Route::Start | Route::Status | Route::Methods(_) => None,
        }
    }

    /// Tells whether a request carries an offer. Its rejection is logged for the operator, since
    /// many clients hide the response and retry for ever.
    pub fn accepts_offer(&self) -> bool {
        matches!(self, Route::Offer(_) | Route::Whip(whip::WhipRoute::Create(..)))
    }
}

/// Why a request has no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// Nothing is at this path.
    NotFound,
    /// The path knows other methods only: these.
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
/// The methods of what only takes bodies.
pub const POST_METHODS: &str = "POST, OPTIONS";
/// The methods of a webhook whose address is checked.
pub const WEBHOOK_METHODS: &str = "GET, HEAD, POST, OPTIONS";
const OFFER_METHODS: &str = "POST, PATCH, OPTIONS";
const SOCKET_METHODS: &str = "GET, OPTIONS";
/// The methods of `/` without a telephony provider of `-t`.
pub const ROOT_METHODS: &str = GET_METHODS;

/// Where devices find the authority to trust.
pub const CA_CERTIFICATE_PATH: &str = "/ca.crt";

/// Where crawlers ask what they may look at.
pub const ROBOTS_PATH: &str = "/robots.txt";

/// Tells whether a request is exempt from the list of origins: a browser that navigates to the
/// page, or to the certificate that it is to trust, names no origin, nor does a crawler that asks
/// what it may do.
pub fn is_navigation(method: &str, path: &str) -> bool {
    matches!(method, "GET" | "HEAD")
        && (matches!(path, "/" | "/client" | CA_CERTIFICATE_PATH | ROBOTS_PATH) || path.starts_with("/client/"))
}

/// Finds the endpoint of a request.
///
/// # Errors
/// [`RouteError`] when there is none.
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
    if path.starts_with("/client/") {
        let name = match path {
            Cow::Borrowed(path) => Cow::Borrowed(&path["/client/".len()..]),
            Cow::Owned(path) => Cow::Owned(path["/client/".len()..].to_owned()),
        };
        return read_only(method, Route::Page(name));
    }
    let path = path.strip_suffix('/').unwrap_or(&path);
    match path {
        "/status" => read_only(method, Route::Status),
        "/metrics" => read_only(method, Route::Metrics),
        CA_CERTIFICATE_PATH => read_only(method, Route::CaCertificate),
        ROBOTS_PATH => read_only(method, Route::Robots),
        "/start" => match method {
            "POST" => Ok(Route::Start),
            "OPTIONS" => Ok(Route::Methods(POST_METHODS)),
            _ => Err(RouteError::Method(POST_METHODS)),
        },
        "/api/offer" => offer(method, None),
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
            match session(path) {
                Some(id) => offer(method, Some(id.to_owned())),
                None => match aliases::canonical(Area::Path, path) {
                    "/videoroom" => read_only(method, Route::Videoroom),
                    "/videoroom-dialin-webhook" => Ok(Route::DialIn),
                    "/messaging" => Ok(Route::Messaging),
                    _ => Err(RouteError::NotFound),
                },
            }
        }
    }
}

/// Returns the path of a WebSocket, without a token.
pub fn socket_path(family: SocketKind) -> &'static str {
    match family {
        SocketKind::Call => "/ws",
        SocketKind::Client => "/ws-client",
    }
}

/// Returns what of a path may stand in a log: no token, and no session that others could speak for.
pub fn path_for_log(path: &str) -> &str {
    let end = path.match_indices('/').nth(1).map_or(path.len(), |(at, _)| at);
    if let Some(shown) = percent_decode(path).and_then(|path| whip::redact(&path)) {
        return shown;
    }
    match percent_decode(path) {
        // However the path is spelled, it leads to a socket, or a session.
        Some(Cow::Owned(plain)) if plain.starts_with("/ws") => "/ws...",
        Some(Cow::Owned(plain)) if plain.starts_with("/sessions") => "/sessions...",
        _ if path.starts_with("/ws") || path.starts_with("/sessions/") => &path[..end],
        _ => path,
    }
}

/// Finds the WebSocket of a path, and the token behind it.
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
    // A token has no slash; what has one is no path of ours.
    match token {
        Some(token) if token.is_empty() || token.contains('/') => None,
        token => Some((family, token.map(str::to_owned))),
    }
}

/// The query of a request.
#[derive(Clone, Copy, Debug)]
pub struct Query<'q>(&'q str);

impl<'q> Query<'q> {
    /// Takes what stands behind the `?`, percent-encoded.
    pub fn new(text: &'q str) -> Self {
        Query(text)
    }

    /// Returns the first value of that name; nothing when it is empty or badly encoded.
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

fn offer<'p>(method: &str, session: Option<String>) -> Result<Route<'p>, RouteError> {
    match method {
        "POST" => Ok(Route::Offer(session)),
        "PATCH" => Ok(Route::Candidates(session)),
        "OPTIONS" => Ok(Route::Methods(OFFER_METHODS)),
        _ => Err(RouteError::Method(OFFER_METHODS)),
    }
}

/// Finds the session of `/sessions/{id}/{anything}api/offer`; Pipecat accepts any such path, and
/// clients below a path prefix use it.
fn session(path: &str) -> Option<&str> {
    let (id, rest) = path.strip_prefix("/sessions/")?.split_once('/')?;
    (!id.is_empty() && rest.ends_with("api/offer")).then_some(id)
}

/// Decodes `%41`; `None` when an escape is cut off or the bytes are no UTF-8, or hold a NUL.
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
mod tests {
    use super::*;

    fn get(path: &str) -> Result<Route<'_>, RouteError> {
        route("GET", path)
    }

    /// `/` redirects to the page for every transport.
    #[test]
    fn the_page_is_at_client() {
        assert_eq!(get("/"), Ok(Route::PageRedirect));
        assert_eq!(get("/client"), Ok(Route::PageRedirect));
        assert_eq!(get("/client/"), Ok(Route::Page("".into())));
        assert_eq!(get("/client/app.js"), Ok(Route::Page("app.js".into())));
        assert_eq!(route("HEAD", "/client/app.js"), Ok(Route::Page("app.js".into())));
        assert_eq!(get("/client/a%2Ejs"), Ok(Route::Page("a.js".into())));
    }

    /// one start endpoint for every transport, and the offers with and
    /// without a session.
    #[test]
    fn every_endpoint_is_found_by_method_and_path() {
        assert_eq!(route("POST", "/start"), Ok(Route::Start));
        assert_eq!(route("POST", "/start/"), Ok(Route::Start));
        assert_eq!(route("POST", "/st%61rt"), Ok(Route::Start));
        assert_eq!(get("/status"), Ok(Route::Status));
        assert_eq!(get("/robots.txt"), Ok(Route::Robots));
        assert_eq!(route("POST", "/api/offer"), Ok(Route::Offer(None)));
        assert_eq!(route("PATCH", "/api/offer"), Ok(Route::Candidates(None)));
        for path in [
            "/sessions/S/api/offer",
            "/sessions/S/x/y/api/offer",
            "/sessions/S/xapi/offer/",
        ] {
            assert_eq!(route("POST", path), Ok(Route::Offer(Some("S".into()))), "{path}");
            assert_eq!(route("PATCH", path), Ok(Route::Candidates(Some("S".into()))), "{path}");
        }
        assert_eq!(route("OPTIONS", "/start"), Ok(Route::Methods("POST, OPTIONS")));
    }

    #[test]
    fn a_wrong_method_names_the_right_ones() {
        assert_eq!(get("/start"), Err(RouteError::Method("POST, OPTIONS")));
        assert_eq!(route("PUT", "/"), Err(RouteError::Method("GET, HEAD, OPTIONS")));
        assert_eq!(route("POST", "/ws"), Err(RouteError::Method("GET, OPTIONS")));
        assert_eq!(
            route("DELETE", "/status"),
            Err(RouteError::Method("GET, HEAD, OPTIONS"))
        );
        assert_eq!(get("/api/offer"), Err(RouteError::Method("POST, PATCH, OPTIONS")));
        assert_eq!(
            route("PUT", "/sessions/S/api/offer"),
            Err(RouteError::Method("POST, PATCH, OPTIONS"))
        );
        assert_eq!(route("post", "/start"), Err(RouteError::Method("POST, OPTIONS")));
    }

    /// sockets with and without a token, and the provider's webhook beside the
    /// page's redirect.
    #[test]
    fn sockets_and_the_webhook_have_their_paths() {
        assert_eq!(get("/ws"), Ok(Route::Socket(SocketKind::Call, None)));
        assert_eq!(get("/ws/"), Ok(Route::Socket(SocketKind::Call, None)));
        assert_eq!(get("/ws/a.b"), Ok(Route::Socket(SocketKind::Call, Some("a.b".into()))));
        assert_eq!(get("/ws-client"), Ok(Route::Socket(SocketKind::Client, None)));
        assert_eq!(
            get("/ws-client/a.b/"),
            Ok(Route::Socket(SocketKind::Client, Some("a.b".into())))
        );
        for path in ["/ws/a/b", "/wsx", "/ws-client-x", "/ws//"] {
            assert_eq!(get(path), Err(RouteError::NotFound), "{path}");
        }
        assert_eq!(route("POST", "/"), Ok(Route::Webhook));
    }

    /// both under the names that existing pages and providers' set-ups have.
    #[test]
    fn video_rooms_have_their_paths() {
        for path in ["/videoroom", "/daily", "/daily/", "/d%61ily"] {
            assert_eq!(get(path), Ok(Route::Videoroom), "{path}");
            assert_eq!(
                route("POST", path),
                Err(RouteError::Method("GET, HEAD, OPTIONS")),
                "{path}"
            );
        }
        for path in ["/videoroom-dialin-webhook", "/daily-dialin-webhook"] {
            for method in ["POST", "GET", "OPTIONS"] {
                assert_eq!(route(method, path), Ok(Route::DialIn), "{method} {path}");
            }
        }
    }

    /// Path traversal: no spelling of it leaves the routes, and none panics.
    #[test]
    fn strange_paths_are_nowhere() {
        for path in [
            "",
            "*",
            "//",
            "/client/..",
            "/client/../status",
            "/client/%2e%2e/status",
            "/client/..%2fstatus",
            "/client/..%5cstatus",
            "/client/.",
            "/client/%00",
            "/client/%",
            "/client/%2",
            "/client/%zz",
            "/client/%+1",
            "/client/%ff",
            "/client/%c3",
            "/clientx",
            "/starts",
            "/metrics/x",
            "/sessions",
            "/sessions/",
            "/sessions//api/offer",
            "/sessions/api/offer",
            "/sessions/S/api/offers",
            "/videoroom/x",
            "/videorooms",
            "/videoroom-dialin-webhook/x",
        ] {
            assert_eq!(get(path), Err(RouteError::NotFound), "{path}");
        }
    }

    #[test]
    fn no_token_is_for_the_log() {
        for (path, logged) in [
            ("/ws", "/ws"),
            ("/ws/TOKEN", "/ws"),
            ("/ws-client/TOKEN/", "/ws-client"),
            ("/%77s/TOKEN", "/ws..."),
            ("/ws%2FTOKEN", "/ws..."),
            ("/sessions/S/api/offer", "/sessions"),
            ("/%73essions/S/api/offer", "/sessions..."),
            ("/client/%ff", "/client/%ff"),
        ] {
            assert_eq!(path_for_log(path), logged, "{path}");
        }
    }

    /// Decision on R-079: navigation to the page is what a list of origins does not cover.
    #[test]
    fn only_the_page_is_navigation() {
        for path in ["/", "/client", "/client/", "/client/app.js"] {
            assert!(is_navigation("GET", path) && is_navigation("HEAD", path));
            assert!(!is_navigation("POST", path) && !is_navigation("OPTIONS", path));
        }
        for path in ["/status", "/start", "/clientx", "//", ""] {
            assert!(!is_navigation("GET", path));
        }
    }
}
