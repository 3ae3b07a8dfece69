//! Who may ask: the order in which a request is judged before its endpoint sees it.
//!
//! In: the head of a request with its route, and the configuration. Out: [`Admitted`], or
//! [`Denied`] with words for the caller. First the name of the server, then preflights, the list of
//! origins, forged posts, and what only a provider or a person may ask for. The rules themselves
//! are in `host`, `origin`, `visit` and `key`. A list of origins does not hold for three requests
//! that name none: the webhooks of dialled numbers and of the messaging app, since no provider
//! sends an `Origin` (one that does is refused, listed or not), and `/videoroom` when the browser
//! says that its address was typed. The webhooks need no key either: their signature proves them.

use std::fmt;

use crate::config::Config;
use crate::http::host::Hosts;
use crate::http::origin::{Origins, Post, Preflight, Standing};
use crate::http::route::{self, Route};
use crate::http::visit::Visit;
use crate::server::key::ApiKey;

/// What access is judged by.
#[derive(Debug)]
pub struct Access {
    hosts: Hosts,
    origins: Origins,
    /// What `/start` and offers need; `None` when everybody may ask.
    key: Option<ApiKey>,
}

/// The head of a request.
#[derive(Clone, Copy)]
pub struct Head<'r> {
    pub method: &'r str,
    pub path: &'r str,
    /// Where it leads.
    pub route: &'r Result<Route<'r>, route::Refusal>,
    /// The authority of its target, which few requests have.
    pub authority: Option<&'r [u8]>,
    /// Whether it has one `Host`, or needs none.
    pub has_host: bool,
    /// Finds the first header of a name in lower case.
    pub header: &'r dyn Fn(&'static str) -> Option<&'r [u8]>,
}

/// How a request is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted<'r> {
    /// To its endpoint.
    Request,
    /// It is a preflight, which is answered for any path.
    Preflight(Preflight<'r>),
}

/// Why a request is refused before its endpoint sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// HTTP/1.1 without `Host`, or with two.
    Host,
    /// The name is not one of this server's.
    Misdirected,
    /// A preflight of an origin that is not on the list.
    Preflight,
    /// A request of an origin that is not on the list.
    Origin,
    /// A browser sends it for the page of a stranger without asking the server first.
    Forged,
    /// A page sent what only a provider sends.
    Page,
    /// It makes a room, and no person asked for it.
    Uninvited,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Denied::Host => "HTTP/1.1 wants one Host header",
            Denied::Misdirected => {
                "this is not the name of this runner: ask by its address or host name, or see --allowed-hosts"
            }
            Denied::Preflight => "Disallowed CORS origin",
            Denied::Origin => "this origin is not allowed; see --allowed-origins",
            Denied::Forged => {
                "a page of another origin has to send its body as application/json, or with an Authorization header"
            }
            Denied::Page => "this webhook is for the provider of the number, which is no page and names no origin",
            Denied::Uninvited => {
                "this makes a room and starts a bot: type the address, or follow a link; other pages, browsers that load ahead, \
                 and crawlers may not"
            }
        })
    }
}

impl std::error::Error for Denied {}

impl Access {
    /// Makes it for a runner of this configuration; `random` is new for every runner.
    pub fn new(config: &Config, random: [u8; 32]) -> Self {
        Access {
            hosts: Hosts::new(config),
            origins: Origins::new(&config.allowed_origins),
            key: config.api_key.as_ref().map(|key| ApiKey::new(key, random)),
        }
    }

    /// Judges the `Origin` headers of a request.
    pub fn judge<'o>(&self, origins: impl Iterator<Item = &'o [u8]>) -> Standing<'o> {
        self.origins.judge(origins)
    }

    /// Lets a request in, or says why it is refused.
    ///
    /// # Errors
    /// [`Denied`], the first reason of several.
    pub fn admit<'r>(&self, head: &Head<'r>, standing: Standing<'_>) -> Result<Admitted<'r>, Denied> {
        if !head.has_host {
            return Err(Denied::Host);
        }
        if !self.is_ours(head) {
            return Err(Denied::Misdirected);
        }
        if head.is_preflight() {
            return self.preflight(head, standing).map(Admitted::Preflight);
        }
        if standing == Standing::Refused && !route::is_navigation(head.method, head.path) && !head.needs_no_origin() {
            return Err(Denied::Origin);
        }
        if self.is_forged(head) {
            return Err(Denied::Forged);
        }
        let is_webhook = matches!(head.route, Ok(Route::DialIn | Route::Messaging));
        if is_webhook && head.method == "POST" && head.has("origin") {
            return Err(Denied::Page);
        }
        if *head.route == Ok(Route::Videoroom) && self.is_uninvited(head) {
            return Err(Denied::Uninvited);
        }
        Ok(Admitted::Request)
    }

    /// Tells whether the `Authorization` headers of a request carry the key, or none is needed.
    pub fn has_key<'h>(&self, authorizations: impl Iterator<Item = &'h [u8]>) -> bool {
        self.key.as_ref().is_none_or(|key| key.is_in(authorizations))
    }

    /// Tells whether this is the key, or none is needed; for keys that come in other ways than by
    /// `Bearer`.
    pub fn is_key(&self, shown: Option<&[u8]>) -> bool {
        self.key
            .as_ref()
            .is_none_or(|key| shown.is_some_and(|shown| key.is(shown)))
    }

    /// Tells whether this runner has a key.
    pub fn wants_key(&self) -> bool {
        self.key.is_some()
    }

    /// Tells whether a route needs no key, or its request has it. The name of a session that
    /// `/start` made is as good: only who had the key was told it, and it lets a server keep the
    /// key to itself and its pages connect.
    pub fn may_ask<'h>(
        &self,
        route: &Route<'_>,
        authorizations: impl Iterator<Item = &'h [u8]>,
        is_session: impl FnOnce(&str) -> bool,
    ) -> bool {
        let session = match route {
            Route::Start | Route::Videoroom => None,
            Route::Offer(session) | Route::Candidates(session) => session.as_deref(),
            _ => return true,
        };
        self.has_key(authorizations) || session.is_some_and(is_session)
    }

    /// Tells whether a request is for this server: by its `Host`, and by the authority of its
    /// target where that has one. The two may not differ, or a proxy on the way and this server
    /// could mean two hosts by one request.
    fn is_ours(&self, head: &Head<'_>) -> bool {
        let host = head.value("host");
        let alike = match (host, head.authority) {
            (Some(host), Some(target)) => host.eq_ignore_ascii_case(target),
            _ => true,
        };
        alike
            && host
                .into_iter()
                .chain(head.authority)
                .all(|name| self.hosts.accepts(name))
    }

    fn preflight<'r>(&self, head: &Head<'r>, standing: Standing<'_>) -> Result<Preflight<'r>, Denied> {
        let granted = match standing {
            Standing::Refused => return Err(Denied::Preflight),
            Standing::Unnamed => false,
            Standing::Allowed(origin) => self.origins.grants_private_network(origin, head.value("host")),
        };
        Ok(Preflight {
            headers: head.value("access-control-request-headers"),
            private_network: granted && head.value("access-control-request-private-network") == Some(b"true"),
        })
    }

    /// Tells whether a browser may have sent this for a page that it should have asked us about. A
    /// list of origins decides by itself.
    fn is_forged(&self, head: &Head<'_>) -> bool {
        if head.method != "POST" || !self.origins.is_open() {
            return false;
        }
        let post = Post {
            origin: head.value("origin"),
            site: head.value("sec-fetch-site"),
            host: head.value("host"),
            content_type: head.value("content-type"),
            authorized: head.has("authorization"),
        };
        post.is_forged(&self.hosts)
    }

    /// Tells whether no person asked for the room that this request would make. A list of origins
    /// says by itself whose pages may ask; a page that a browser loads ahead was not asked for yet.
    fn is_uninvited(&self, head: &Head<'_>) -> bool {
        let visit = head.visit();
        head.method == "GET"
            && (visit.is_guess() || visit.is_crawler() || self.origins.is_open() && visit.is_of_a_stranger(&self.hosts))
    }
}

impl<'r> Head<'r> {
    fn value(&self, name: &'static str) -> Option<&'r [u8]> {
        (self.header)(name)
    }

    fn has(&self, name: &'static str) -> bool {
        self.value(name).is_some()
    }

    fn is_preflight(&self) -> bool {
        self.method == "OPTIONS" && self.has("origin") && self.has("access-control-request-method")
    }

    /// Tells whether a list of origins does not cover a request that names none: a provider's
    /// webhook, which no browser sends that way, and a browser that says that a person typed the
    /// address of a new room.
    fn needs_no_origin(&self) -> bool {
        let meant = match self.route {
            Ok(Route::DialIn) => self.method == "POST",
            Ok(Route::Messaging) => true,
            Ok(Route::Videoroom) => self.visit().is_own(),
            _ => false,
        };
        meant && !self.has("origin")
    }

    fn visit(&self) -> Visit<'r> {
        Visit {
            origin: self.value("origin"),
            host: self.value("host"),
            site: self.value("sec-fetch-site"),
            mode: self.value("sec-fetch-mode"),
            dest: self.value("sec-fetch-dest"),
            user: self.value("sec-fetch-user"),
            purpose: ["sec-purpose", "purpose", "x-moz", "x-purpose"]
                .into_iter()
                .find_map(|name| self.value(name)),
            accept: self.value("accept"),
            agent: self.value("user-agent"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    /// Judges a request with these headers, of which `host` is set where none is given.
    fn judged(access: &Access, request: &str, headers: &[(&'static str, &'static str)]) -> Result<bool, Denied> {
        let (method, path) = request.split_once(' ').expect("a method and a path");
        let found = |name: &str| {
            headers
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.as_bytes())
        };
        let header = |name: &'static str| found(name).or((name == "host").then_some(&b"localhost"[..]));
        let head = Head {
            method,
            path,
            route: &route::route(method, path),
            authority: None,
            has_host: true,
            header: &header,
        };
        let standing = access.judge(found("origin").into_iter());
        let admitted = access.admit(&head, standing);
        admitted.map(|admitted| admitted != Admitted::Request)
    }

    fn access(allowed_origins: &[&str]) -> Access {
        let config = Config {
            allowed_origins: allowed_origins.iter().map(|origin| (*origin).to_owned()).collect(),
            api_key: Some(Secret::new("a key")),
            ..Config::default()
        };
        Access::new(&config, [7; 32])
    }

    const FOREIGN: (&str, &str) = ("origin", "https://evil.example");

    /// The reasons, in their order: a request with several is refused by the first.
    #[test]
    fn a_request_is_refused_by_the_first_reason() {
        let (open, listed) = (access(&[]), access(&["https://a.example"]));
        let misdirected = ("host", "evil.example");
        let asks = ("access-control-request-method", "POST");
        assert_eq!(
            judged(&open, "POST /start", &[misdirected, FOREIGN]),
            Err(Denied::Misdirected)
        );
        assert_eq!(
            judged(&listed, "OPTIONS /start", &[FOREIGN, asks]),
            Err(Denied::Preflight)
        );
        assert_eq!(judged(&open, "OPTIONS /any", &[FOREIGN, asks]), Ok(true));
        assert_eq!(judged(&listed, "POST /start", &[FOREIGN]), Err(Denied::Origin));
        assert_eq!(judged(&listed, "GET /client/", &[FOREIGN]), Ok(false));
        assert_eq!(judged(&open, "POST /start", &[FOREIGN]), Err(Denied::Forged));
        let json = ("content-type", "application/json");
        assert_eq!(judged(&open, "POST /start", &[FOREIGN, json]), Ok(false));
        assert_eq!(judged(&open, "POST /messaging", &[FOREIGN, json]), Err(Denied::Page));
        assert_eq!(judged(&listed, "POST /messaging", &[json]), Ok(false));
        assert_eq!(judged(&open, "GET /videoroom", &[FOREIGN]), Err(Denied::Uninvited));
        assert_eq!(judged(&listed, "GET /videoroom", &[]), Err(Denied::Origin));
    }

    #[test]
    fn offers_of_a_registered_session_need_no_key() {
        let access = access(&[]);
        let asks = |path: &str, key: Option<&'static [u8]>| {
            let route = route::route("POST", path).expect("a route");
            access.may_ask(&route, key.into_iter(), |id| id == "known")
        };
        assert!(asks("/start", Some(b"Bearer a key")) && !asks("/start", Some(b"Bearer x")) && !asks("/start", None));
        assert!(asks("/sessions/known/api/offer", None) && !asks("/sessions/other/api/offer", None));
        assert!(
            !asks("/api/offer", None) && asks("/", None),
            "a webhook has its signature"
        );
    }
}
