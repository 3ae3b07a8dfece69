//! Who may ask: the names of the server, the pages of strangers, preflights and the key, before any request has an endpoint.
//!
//! In: the heads of requests. Out: leave, the answer to a preflight, or a refusal: 400 and 421 for a `Host` that is missing or
//! not ours, 403 for pages, 401 without the key. The rules are in `proto::{host, origin, key}`.
//! A list of origins does not hold for three requests that name none: the webhooks of dialled numbers and of the messaging app,
//! since no provider sends an `Origin` (whatever posts there with one is refused, listed or not), and `/videoroom` when the browser says that its address was
//! typed. The key is not asked of the webhooks either: their signature is.

use hyper::Method;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;

use super::Refusal;
use super::floor::{Reply, has_host};
use crate::config::Config;
use crate::proto::host::Hosts;
use crate::proto::key::ApiKey;
use crate::proto::origin::{self, Origins, Post, Preflight, Standing};
use crate::proto::route::{self, Route};
use crate::proto::visit::Visit;

/// What the configuration says of that.
pub(super) struct Gate {
    hosts: Hosts,
    origins: Origins,
    /// What `/start` and offers need; nothing when everybody may ask.
    key: Option<ApiKey>,
}

impl Gate {
    /// Makes it for a runner of this configuration; `random` is new for every process.
    pub fn new(config: &Config, random: [u8; 32]) -> Self {
        Gate {
            hosts: Hosts::new(config),
            origins: Origins::new(&config.allowed_origins),
            key: config.api_key.as_ref().map(|key| ApiKey::new(key, random)),
        }
    }

    /// Judges the origin of a request.
    pub fn judge<'h>(&self, headers: &'h HeaderMap) -> Standing<'h> {
        self.origins
            .judge(headers.get_all(header::ORIGIN).iter().map(HeaderValue::as_bytes))
    }

    /// Gives leave with `None`, or answers a preflight.
    pub fn admit(&self, head: &Parts, standing: Standing<'_>) -> Result<Option<Reply>, Refusal> {
        if !has_host(head) {
            return Err(Refusal::Host);
        }
        if !self.is_ours(head) {
            return Err(Refusal::Misdirected);
        }
        if is_preflight(&head.method, &head.headers) {
            return preflight(&self.origins, standing, &head.headers).map(Some);
        }
        let route = route::route(head.method.as_str(), head.uri.path());
        if standing == Standing::Refused
            && !route::is_navigation(head.method.as_str(), head.uri.path())
            && !needs_no_origin(&route, head)
        {
            return Err(Refusal::Origin);
        }
        if self.is_forged(head) {
            return Err(Refusal::Forged);
        }
        if matches!(route, Ok(Route::DialIn | Route::Messaging))
            && head.method == Method::POST
            && head.headers.contains_key(header::ORIGIN)
        {
            return Err(Refusal::Page);
        }
        if route == Ok(Route::Videoroom) && self.is_uninvited(head) {
            return Err(Refusal::Uninvited);
        }
        Ok(None)
    }

    /// Tells whether a request carries the key, or none is needed.
    pub fn has_key(&self, headers: &HeaderMap) -> bool {
        let authorizations = || headers.get_all(header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
        self.key.as_ref().is_none_or(|key| key.is_in(authorizations()))
    }

    /// Tells whether a request needs no key, or has it, where it can come in other ways than by `Bearer`.
    pub fn is_key(&self, shown: Option<&[u8]>) -> bool {
        self.key
            .as_ref()
            .is_none_or(|key| shown.is_some_and(|shown| key.is(shown)))
    }

    /// Tells whether this runner has a key.
    pub fn wants_key(&self) -> bool {
        self.key.is_some()
    }

    /// Tells whether a request carries the key that this runner has.
    pub fn is_authorised(&self, headers: &HeaderMap) -> bool {
        self.key.is_some() && self.has_key(headers)
    }

    /// Tells whether a request is for this server: by its `Host`, and by the authority of its target where that has one. The two
    /// may not differ, or a proxy on the way and this server could mean two hosts by one request.
    fn is_ours(&self, head: &Parts) -> bool {
        let host = head.headers.get(header::HOST).map(HeaderValue::as_bytes);
        let target = head.uri.authority().map(|authority| authority.as_str().as_bytes());
        let alike = match (host, target) {
            (Some(host), Some(target)) => host.eq_ignore_ascii_case(target),
            _ => true,
        };
        alike && host.into_iter().chain(target).all(|name| self.hosts.accepts(name))
    }

    /// Tells whether a browser may have sent this for a page that it should have asked us about. A list of origins decides by
    /// itself.
    fn is_forged(&self, head: &Parts) -> bool {
        if head.method != Method::POST || !self.origins.is_open() {
            return false;
        }
        let value = |name: HeaderName| head.headers.get(name).map(HeaderValue::as_bytes);
        let post = Post {
            origin: value(header::ORIGIN),
            site: value(HeaderName::from_static("sec-fetch-site")),
            host: value(header::HOST),
            content_type: value(header::CONTENT_TYPE),
            authorized: head.headers.contains_key(header::AUTHORIZATION),
        };
        post.is_forged(&self.hosts)
    }

    /// Tells whether nobody asked for the room that this request would make. A list of origins says by itself whose pages may
    /// ask; what a browser loads ahead nobody has asked for yet.
    fn is_uninvited(&self, head: &Parts) -> bool {
        let visit = visit(&head.headers);
        head.method == Method::GET
            && (visit.is_guess() || visit.is_crawler() || self.origins.is_open() && visit.is_of_a_stranger(&self.hosts))
    }
}

/// Tells whether a list of origins does not cover a request that names none: a provider's webhook, which no browser sends that
/// way, and a browser that says that somebody typed the address of a new room.
fn needs_no_origin(route: &Result<Route<'_>, route::Refusal>, head: &Parts) -> bool {
    let meant = match route {
        Ok(Route::DialIn) => head.method == Method::POST,
        Ok(Route::Messaging) => true,
        Ok(Route::Videoroom) => visit(&head.headers).is_own(),
        _ => false,
    };
    meant && !head.headers.contains_key(header::ORIGIN)
}

fn visit(headers: &HeaderMap) -> Visit<'_> {
    let value = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    Visit {
        origin: value("origin"),
        host: value("host"),
        site: value("sec-fetch-site"),
        mode: value("sec-fetch-mode"),
        dest: value("sec-fetch-dest"),
        user: value("sec-fetch-user"),
        purpose: ["sec-purpose", "purpose", "x-moz", "x-purpose"]
            .into_iter()
            .find_map(value),
        accept: value("accept"),
        agent: value("user-agent"),
    }
}

fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight(origins: &Origins, standing: Standing<'_>, headers: &HeaderMap) -> Result<Reply, Refusal> {
    let granted = match standing {
        Standing::Refused => return Err(Refusal::Preflight),
        Standing::Unnamed => false,
        Standing::Allowed(origin) => {
            let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
            origins.grants_private_network(origin, host)
        }
    };
    let asked = Preflight {
        headers: headers
            .get(header::ACCESS_CONTROL_REQUEST_HEADERS)
            .map(HeaderValue::as_bytes),
        private_network: granted
            && headers
                .get("access-control-request-private-network")
                .is_some_and(|value| value == "true"),
    };
    let mut reply = Reply::default();
    put(reply.headers_mut(), origin::preflight_headers(asked));
    Ok(reply)
}

/// Adds headers.
pub(super) fn put<'h>(headers: &mut HeaderMap, more: impl IntoIterator<Item = origin::Header<'h>>) {
    for (name, value) in more {
        // Values that came from a request are valid header values, or hyper had not taken them.
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
}
