//! Which endpoint a request is for.
//!
//! In: the method and the path as they stand in the request line, the path still percent-encoded and without its query.
//! Out: a [`Route`], or a [`Refusal`] that becomes 404 or 405. HEAD goes wherever GET goes. Paths that other clients know
//! by an alias mean the same. One slash too many at the end is forgiven.
//! Refuses: unknown paths, methods that a path does not know, percent-encoding that is no UTF-8, and `.` or `..` segments,
//! encoded or not. Source: checklist.

use std::borrow::Cow;
use std::fmt;

use crate::aliases::{self, Area};
use crate::features::Feature;
use crate::http::token::Family;
use crate::webrtc::whip::path as whip;

/// An endpoint, with what its path says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'p> {
    /// `/` and `/client`: the page is at `/client/`.
    ToPage,
    /// A file of the page, by its name below `/client/`; an empty name is the page itself.
    Page(Cow<'p, str>),
    /// The certificate of the authority that devices are to trust.
    Authority,
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
    Socket(Family, Option<String>),
    /// A telephony provider asks what to do with a call (POST `/`).
    Webhook,
    /// A new video room, and a bot in it (GET).
    Videoroom,
    /// The provider of video rooms has a call (POST). By any method: whether it is there at all, the configuration says.
    DialIn,
    /// The provider of the messaging app checks this address (GET), or has news of calls (POST). By any method, as before.
    Messaging,
    /// OPTIONS without a preflight's headers; the methods of the path.
    Methods(&'static str),
}

impl Route<'_> {
    /// Returns the ability without which nothing is at this endpoint.
    pub fn feature(&self) -> Option<Feature> {
        match self {
            Route::ToPage | Route::Page(_) => Some(Feature::Page),
            Route::Authority => Some(Feature::Tls),
            Route::Offer(_) | Route::Candidates(_) | Route::Whip(_) => Some(Feature::WebRtc),
            Route::Socket(Family::Client, _) => Some(Feature::WebSocket),
            Route::Socket(Family::Call, _) | Route::Webhook => Some(Feature::Telephony),
            Route::Videoroom | Route::DialIn => Some(Feature::Videoroom),
            Route::Messaging => Some(Feature::Messaging),
            Route::Metrics | Route::Robots | Route::Start | Route::Status | Route::Methods(_) => None,
        }
    }

    /// Tells whether a request brings an offer, whose refusal the operator is told of: many clients
    /// show nobody what they were answered, and ask again for ever.
    pub fn takes_offer(&self) -> bool {
        matches!(self, Route::Offer(_) | Route::Whip(whip::WhipRoute::Open(..)))
    }
}

/// Why a request has no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing is at this path.
    NotFound,
    /// The path knows other methods only: these.
    Method(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotFound => f.write_str("nothing is at this path"),
            Refusal::Method(allowed) => write!(f, "this path takes {allowed} only"),
        }
    }
}

impl std::error::Error for Refusal {}

const READ: &str = "GET, HEAD, OPTIONS";
/// The methods of what only takes bodies.
pub const WRITE: &str = "POST, OPTIONS";
/// The methods of a webhook whose address is checked.
pub const CHECKED_WEBHOOK: &str = "GET, HEAD, POST, OPTIONS";
const OFFER: &str = "POST, PATCH, OPTIONS";
const SOCKET: &str = "GET, OPTIONS";
/// The methods of `/` without a telephony provider of `-t`.
pub const ROOT: &str = READ;

/// Where devices find the authority to trust.
pub const AUTHORITY: &str = "/ca.crt";

/// Where crawlers ask what they may look at.
pub const ROBOTS: &str = "/robots.txt";

/// Tells whether a request is exempt from the list of origins: a browser that navigates to the page, or to the certificate
/// that it is to trust, names no origin, nor does a crawler that asks what it may do.
pub fn is_navigation(method: &str, path: &str) -> bool {
    matches!(method, "GET" | "HEAD")
        && (matches!(path, "/" | "/client" | AUTHORITY | ROBOTS) || path.starts_with("/client/"))
}

/// Finds the endpoint of a request.
///
/// # Errors
/// [`Refusal`] when there is none.
pub fn route<'p>(method: &str, path: &'p str) -> Result<Route<'p>, Refusal> {
    let path = decoded(path).ok_or(Refusal::NotFound)?;
    if path.split(['/', '\\']).any(|segment| matches!(segment, "." | "..")) {
        return Err(Refusal::NotFound);
    }
    if path == "/" && method == "POST" {
        return Ok(Route::Webhook);
    }
    if path == "/" || path == "/client" {
        return read(method, Route::ToPage);
    }
    if path.starts_with("/client/") {
        let name = match path {
            Cow::Borrowed(path) => Cow::Borrowed(&path["/client/".len()..]),
            Cow::Owned(path) => Cow::Owned(path["/client/".len()..].to_owned()),
        };
        return read(method, Route::Page(name));
    }
    let path = path.strip_suffix('/').unwrap_or(&path);
    match path {
        "/status" => read(method, Route::Status),
        "/metrics" => read(method, Route::Metrics),
        AUTHORITY => read(method, Route::Authority),
        ROBOTS => read(method, Route::Robots),
        "/start" => match method {
            "POST" => Ok(Route::Start),
            "OPTIONS" => Ok(Route::Methods(WRITE)),
            _ => Err(Refusal::Method(WRITE)),
        },
        "/api/offer" => offer(method, None),
        _ => {
            if let Some((family, token)) = socket(path) {
                return match method {
                    "GET" => Ok(Route::Socket(family, token)),
                    "OPTIONS" => Ok(Route::Methods(SOCKET)),
                    _ => Err(Refusal::Method(SOCKET)),
                };
            }
            if let Some(found) = whip::find(method, path) {
                return found.map(Route::Whip).map_err(Refusal::Method);
            }
            match session(path) {
                Some(id) => offer(method, Some(id.to_owned())),
                None => match aliases::canonical(Area::Path, path) {
                    "/videoroom" => read(method, Route::Videoroom),
                    "/videoroom-dialin-webhook" => Ok(Route::DialIn),
                    "/messaging" => Ok(Route::Messaging),
                    _ => Err(Refusal::NotFound),
                },
            }
        }
    }
}

/// Returns the path of a WebSocket, without a token.
pub fn socket_path(family: Family) -> &'static str {
    match family {
        Family::Call => "/ws",
        Family::Client => "/ws-client",
    }
}

/// Returns what of a path may stand in a log: no token, and no session that others could speak for.
pub fn for_log(path: &str) -> &str {
    let end = path.match_indices('/').nth(1).map_or(path.len(), |(at, _)| at);
    if let Some(shown) = decoded(path).and_then(|path| whip::for_log(&path)) {
        return shown;
    }
    match decoded(path) {
        // However the path is spelled, it leads to a socket, or a session.
        Some(Cow::Owned(plain)) if plain.starts_with("/ws") => "/ws...",
        Some(Cow::Owned(plain)) if plain.starts_with("/sessions") => "/sessions...",
        _ if path.starts_with("/ws") || path.starts_with("/sessions/") => &path[..end],
        _ => path,
    }
}

/// Finds the WebSocket of a path, and the token behind it.
fn socket(path: &str) -> Option<(Family, Option<String>)> {
    let path = path.strip_prefix('/')?;
    let (root, token) = match path.split_once('/') {
        Some((root, token)) => (root, Some(token)),
        None => (path, None),
    };
    let family = match root {
        "ws" => Family::Call,
        "ws-client" => Family::Client,
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
        decoded(value).filter(|value| !value.is_empty()).map(Cow::into_owned)
    }
}

fn read<'p>(method: &str, route: Route<'p>) -> Result<Route<'p>, Refusal> {
    match method {
        "GET" | "HEAD" => Ok(route),
        "OPTIONS" => Ok(Route::Methods(READ)),
        _ => Err(Refusal::Method(READ)),
    }
}

fn offer<'p>(method: &str, session: Option<String>) -> Result<Route<'p>, Refusal> {
    match method {
        "POST" => Ok(Route::Offer(session)),
        "PATCH" => Ok(Route::Candidates(session)),
        "OPTIONS" => Ok(Route::Methods(OFFER)),
        _ => Err(Refusal::Method(OFFER)),
    }
}

/// Finds the session of `/sessions/{id}/{anything}api/offer`; the reference peer takes any such path, and clients below a
/// path prefix make use of it.
fn session(path: &str) -> Option<&str> {
    let (id, rest) = path.strip_prefix("/sessions/")?.split_once('/')?;
    (!id.is_empty() && rest.ends_with("api/offer")).then_some(id)
}

/// Decodes `%41`; `None` when an escape is cut off or the bytes are no UTF-8, or hold a NUL.
pub fn decoded(path: &str) -> Option<Cow<'_, str>> {
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

    fn get(path: &str) -> Result<Route<'_>, Refusal> {
        route("GET", path)
    }

    /// `/` leads to the page, whatever the transport.
    #[test]
    fn the_page_is_at_client() {
        assert_eq!(get("/"), Ok(Route::ToPage));
        assert_eq!(get("/client"), Ok(Route::ToPage));
        assert_eq!(get("/client/"), Ok(Route::Page("".into())));
        assert_eq!(get("/client/app.js"), Ok(Route::Page("app.js".into())));
        assert_eq!(route("HEAD", "/client/app.js"), Ok(Route::Page("app.js".into())));
        assert_eq!(get("/client/a%2Ejs"), Ok(Route::Page("a.js".into())));
    }

    /// one start endpoint for every transport, and the offers with and without a session.
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
        assert_eq!(get("/start"), Err(Refusal::Method("POST, OPTIONS")));
        assert_eq!(route("PUT", "/"), Err(Refusal::Method("GET, HEAD, OPTIONS")));
        assert_eq!(route("POST", "/ws"), Err(Refusal::Method("GET, OPTIONS")));
        assert_eq!(route("DELETE", "/status"), Err(Refusal::Method("GET, HEAD, OPTIONS")));
        assert_eq!(get("/api/offer"), Err(Refusal::Method("POST, PATCH, OPTIONS")));
        assert_eq!(
            route("PUT", "/sessions/S/api/offer"),
            Err(Refusal::Method("POST, PATCH, OPTIONS"))
        );
        assert_eq!(route("post", "/start"), Err(Refusal::Method("POST, OPTIONS")));
    }

    /// sockets with and without a token, and the provider's webhook beside the page's redirect.
    #[test]
    fn sockets_and_the_webhook_have_their_paths() {
        assert_eq!(get("/ws"), Ok(Route::Socket(Family::Call, None)));
        assert_eq!(get("/ws/"), Ok(Route::Socket(Family::Call, None)));
        assert_eq!(get("/ws/a.b"), Ok(Route::Socket(Family::Call, Some("a.b".into()))));
        assert_eq!(get("/ws-client"), Ok(Route::Socket(Family::Client, None)));
        assert_eq!(
            get("/ws-client/a.b/"),
            Ok(Route::Socket(Family::Client, Some("a.b".into())))
        );
        for path in ["/ws/a/b", "/wsx", "/ws-client-x", "/ws//"] {
            assert_eq!(get(path), Err(Refusal::NotFound), "{path}");
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
                Err(Refusal::Method("GET, HEAD, OPTIONS")),
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
            assert_eq!(get(path), Err(Refusal::NotFound), "{path}");
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
            assert_eq!(for_log(path), logged, "{path}");
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
