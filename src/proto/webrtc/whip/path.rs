//! The routes of the WHIP, WHEP and calls endpoints.
//!
//! In: the method and the decoded path. Out: a [`WhipRoute`], the allowed methods, or `None`. An
//! endpoint may be followed by a name for the bot. Every session is at `/whip/s/`; those of the
//! calls endpoint also have the path that its clients expect.

use crate::http::cluster;

/// Bytes of an endpoint name, and of a session id in a path; valid ones are shorter.
const ENDPOINT_NAME_BYTES_MAX: usize = 64;

/// The endpoint that opened a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhipEndpoint {
    Whip,
    Whep,
    Calls,
}

impl WhipEndpoint {
    /// Returns the name for the bot.
    pub fn name(self) -> &'static str {
        match self {
            WhipEndpoint::Whip => "whip",
            WhipEndpoint::Whep => "whep",
            WhipEndpoint::Calls => "calls",
        }
    }

    /// Returns the path of a session.
    pub fn resource_path(self, id: &str) -> String {
        match self {
            WhipEndpoint::Whip | WhipEndpoint::Whep => format!("{SESSIONS}{id}"),
            WhipEndpoint::Calls => format!("{CALLS}/{CALL}{id}"),
        }
    }
}

/// What a request addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhipRoute {
    /// POST of an offer, with the name for the bot.
    Create(WhipEndpoint, Option<String>),
    /// GET or HEAD of an endpoint.
    Endpoint(WhipEndpoint),
    /// A session, by its unguessable id.
    Session(WhipEndpoint, String, ResourceMethod),
    /// POST of a `/start` body in another format.
    ClientSecrets,
    /// OPTIONS, with the methods of the path.
    Options { via: WhipEndpoint, methods: &'static str },
}

impl WhipRoute {
    /// Returns whether errors use the format of the calls endpoint.
    pub fn is_call(&self) -> bool {
        match self {
            WhipRoute::Create(via, _) | WhipRoute::Endpoint(via) | WhipRoute::Session(via, ..) => {
                *via == WhipEndpoint::Calls
            }
            WhipRoute::Options { via, .. } => *via == WhipEndpoint::Calls,
            WhipRoute::ClientSecrets => true,
        }
    }
}

/// The method of a request to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceMethod {
    Get,
    Patch,
    Delete,
}

const ENDPOINT: &str = "GET, HEAD, POST, OPTIONS";
const SESSION: &str = "GET, HEAD, PATCH, DELETE, OPTIONS";
const WRITE: &str = "POST, OPTIONS";

const SESSIONS: &str = "/whip/s/";
const CALLS: &str = "/v1/realtime/calls";
const CLIENT_SECRETS: &str = "/v1/realtime/client_secrets";
/// The prefix that other hosts of this API use.
const HOSTED: &str = "/openai";
/// The prefix of a call id.
const CALL: &str = "rtc_";
const HANG_UP: &str = "/hangup";

/// Returns the route of a request; `Err` holds the allowed methods of a known path.
pub fn find(method: &str, path: &str) -> Option<Result<WhipRoute, &'static str>> {
    if let Some(id) = path.strip_prefix(SESSIONS) {
        return is_id(id).then(|| resource_route(method, WhipEndpoint::Whip, id));
    }
    for via in [WhipEndpoint::Whip, WhipEndpoint::Whep] {
        let rest = path.strip_prefix('/').and_then(|path| path.strip_prefix(via.name()));
        match rest.map(|rest| rest.strip_prefix('/').map_or((rest, false), |name| (name, true))) {
            Some(("", false)) => return Some(endpoint_route(method, via, None)),
            Some((name, true)) if is_name(name) => return Some(endpoint_route(method, via, Some(name))),
            _ => {}
        }
    }
    let path = path.strip_prefix(HOSTED).unwrap_or(path);
    if path == CLIENT_SECRETS {
        return Some(match method {
            "POST" => Ok(WhipRoute::ClientSecrets),
            "OPTIONS" => Ok(WhipRoute::Options {
                via: WhipEndpoint::Calls,
                methods: WRITE,
            }),
            _ => Err(WRITE),
        });
    }
    let rest = path.strip_prefix(CALLS)?;
    if rest.is_empty() {
        return Some(endpoint_route(method, WhipEndpoint::Calls, None));
    }
    let id = rest.strip_prefix('/')?.strip_prefix(CALL)?;
    let (id, hangs_up) = id.strip_suffix(HANG_UP).map_or((id, false), |id| (id, true));
    if !is_id(id) {
        return None;
    }
    Some(match (hangs_up, method) {
        (false, _) => resource_route(method, WhipEndpoint::Calls, id),
        (true, "POST") => Ok(WhipRoute::Session(
            WhipEndpoint::Calls,
            id.to_owned(),
            ResourceMethod::Delete,
        )),
        (true, "OPTIONS") => Ok(WhipRoute::Options {
            via: WhipEndpoint::Calls,
            methods: WRITE,
        }),
        (true, _) => Err(WRITE),
    })
}

/// Returns the loggable form of a session's path. The id must not be logged, because it authorizes
/// requests.
pub fn redact(path: &str) -> Option<&'static str> {
    if path.starts_with(SESSIONS) {
        return Some("/whip/s/...");
    }
    let path = path.strip_prefix(HOSTED).unwrap_or(path);
    let rest = path.strip_prefix(CALLS)?;
    (!rest.is_empty()).then_some("/v1/realtime/calls/...")
}

fn endpoint_route(method: &str, via: WhipEndpoint, name: Option<&str>) -> Result<WhipRoute, &'static str> {
    match method {
        "POST" => Ok(WhipRoute::Create(via, name.map(str::to_owned))),
        "GET" | "HEAD" => Ok(WhipRoute::Endpoint(via)),
        "OPTIONS" => Ok(WhipRoute::Options { via, methods: ENDPOINT }),
        _ => Err(ENDPOINT),
    }
}

fn resource_route(method: &str, via: WhipEndpoint, id: &str) -> Result<WhipRoute, &'static str> {
    let verb = match method {
        "GET" | "HEAD" => ResourceMethod::Get,
        "PATCH" => ResourceMethod::Patch,
        "DELETE" => ResourceMethod::Delete,
        "OPTIONS" => return Ok(WhipRoute::Options { via, methods: SESSION }),
        _ => return Err(SESSION),
    };
    Ok(WhipRoute::Session(via, id.to_owned(), verb))
}

/// Returns whether a word is a valid name for the bot.
fn is_name(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=ENDPOINT_NAME_BYTES_MAX).contains(&word.len()) && word.bytes().all(is_plain)
}

/// Returns whether a word can be a session id: hexadecimal digits, or the id of a connection that a
/// replica made.
fn is_id(word: &str) -> bool {
    if cluster::parse_connection_id(word).is_some() {
        return true;
    }
    (1..=ENDPOINT_NAME_BYTES_MAX).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    fn open(via: WhipEndpoint, name: Option<&str>) -> Option<Result<WhipRoute, &'static str>> {
        Some(Ok(WhipRoute::Create(via, name.map(str::to_owned))))
    }

    fn of(via: WhipEndpoint, verb: ResourceMethod) -> Option<Result<WhipRoute, &'static str>> {
        Some(Ok(WhipRoute::Session(via, ID.to_owned(), verb)))
    }

    #[test]
    fn every_endpoint_takes_offers_with_and_without_a_name() {
        assert_eq!(find("POST", "/whip"), open(WhipEndpoint::Whip, None));
        assert_eq!(
            find("POST", "/whip/door-2_B"),
            open(WhipEndpoint::Whip, Some("door-2_B"))
        );
        assert_eq!(find("POST", "/whip/s"), open(WhipEndpoint::Whip, Some("s")));
        assert_eq!(find("POST", "/whep"), open(WhipEndpoint::Whep, None));
        assert_eq!(find("POST", "/whep/door"), open(WhipEndpoint::Whep, Some("door")));
        for path in ["/v1/realtime/calls", "/openai/v1/realtime/calls"] {
            assert_eq!(find("POST", path), open(WhipEndpoint::Calls, None));
        }
        for path in ["/v1/realtime/client_secrets", "/openai/v1/realtime/client_secrets"] {
            assert_eq!(find("POST", path), Some(Ok(WhipRoute::ClientSecrets)));
            assert_eq!(find("GET", path), Some(Err("POST, OPTIONS")));
        }
        assert_eq!(find("HEAD", "/whep"), Some(Ok(WhipRoute::Endpoint(WhipEndpoint::Whep))));
        assert_eq!(find("PUT", "/whip"), Some(Err("GET, HEAD, POST, OPTIONS")));
        assert_eq!(find("PATCH", "/whep/door"), Some(Err("GET, HEAD, POST, OPTIONS")));
    }

    #[test]
    fn a_session_has_one_path_and_that_of_a_call() {
        let path = WhipEndpoint::Whip.resource_path(ID);
        assert_eq!(WhipEndpoint::Whep.resource_path(ID), path);
        assert_eq!(find("PATCH", &path), of(WhipEndpoint::Whip, ResourceMethod::Patch));
        assert_eq!(find("DELETE", &path), of(WhipEndpoint::Whip, ResourceMethod::Delete));
        assert_eq!(find("GET", &path), of(WhipEndpoint::Whip, ResourceMethod::Get));
        assert_eq!(find("POST", &path), Some(Err(SESSION)));
        let call = WhipEndpoint::Calls.resource_path(ID);
        assert_eq!(call, format!("/v1/realtime/calls/rtc_{ID}"));
        assert_eq!(find("DELETE", &call), of(WhipEndpoint::Calls, ResourceMethod::Delete));
        assert_eq!(
            find("POST", &format!("{call}/hangup")),
            of(WhipEndpoint::Calls, ResourceMethod::Delete)
        );
        assert_eq!(
            find("POST", &format!("/openai{call}/hangup")),
            of(WhipEndpoint::Calls, ResourceMethod::Delete)
        );
        assert_eq!(find("GET", &format!("{call}/hangup")), Some(Err(WRITE)));
        for path in [path.as_str(), &call, &format!("/openai{call}/hangup")] {
            let shown = redact(path).expect("hidden");
            assert!(!shown.contains(ID), "{shown}");
        }
        assert_eq!(redact("/whip/door"), None);
    }

    #[test]
    fn names_and_ids_are_short_and_plain() {
        let longest = "n".repeat(ENDPOINT_NAME_BYTES_MAX);
        assert_eq!(
            find("POST", &format!("/whip/{longest}")),
            open(WhipEndpoint::Whip, Some(&longest))
        );
        for path in [
            &format!("/whip/{longest}n"),
            "/whip/",
            "/whip/a.b",
            "/whip/a b",
            "/whip/ä",
            "/whip/a/b",
            "/whip/s/",
            "/whip/s/xyz",
            "/whip/s/0/0",
            "/whep/s/0123",
            "/whipx",
            "/v1/realtime",
            "/v1/realtime/calls/",
            "/v1/realtime/calls/0123",
            "/v1/realtime/calls/rtc_",
            "/v1/realtime/calls/rtc_/hangup",
            "/openai/whip",
            "/openai/openai/v1/realtime/calls",
        ] {
            assert_eq!(find("POST", path), None, "{path}");
        }
    }
}
