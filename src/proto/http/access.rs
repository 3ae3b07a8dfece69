//! Access control: the checks that a request passes before its endpoint sees it.
//!
//! In: the head of a request with its route, and the configuration. Out: [`AllowedRequest`], or
//! [`AccessError`] with a message for the caller. The order of checks: the server's name,
//! preflights, the list of origins, CSRF, and endpoints that only a provider or a person may call.
//! The rules are in `host`, `origin`, `fetch_metadata` and `key`.
//! With a list of allowed origins, four requests are exempt when they have no `Origin`: the
//! webhooks of dial-in, WhatsApp and LiveKit, since no provider sends that header, and `/videoroom`
//! when the browser states that a person typed the address. The webhooks need no key, since their
//! signature authenticates them, or LiveKit's token.

use std::fmt;

use crate::config::Config;
use crate::http::endpoint::EndpointKind;
use crate::http::fetch_metadata::FetchMetadata;
use crate::http::host::AllowedHosts;
use crate::http::origin::{self, AllowedOrigins, CorsDecision, PostHeaders, Preflight};
use crate::http::route::{self, Route};
use crate::metrics::MetricsAccess;
use crate::server::key::ApiKey;

/// The configuration of access control.
#[derive(Debug)]
pub struct AccessPolicy {
    hosts: AllowedHosts,
    origins: AllowedOrigins,
    /// The key that `/start` and offers require; `None` requires none.
    key: Option<ApiKey>,
    /// Whether `/metrics` requires it too.
    metrics_need_key: bool,
}

/// The head of a request.
#[derive(Clone, Copy)]
pub struct RequestHead<'r> {
    pub method: &'r str,
    pub path: &'r str,
    /// The route of the request.
    pub route: &'r Result<Route<'r>, route::RouteError>,
    /// The authority of the request target, which few requests have.
    pub authority: Option<&'r [u8]>,
    /// Whether it has exactly one `Host`, or needs none.
    pub has_host: bool,
    /// Returns the first header with a name in lower case.
    pub header: &'r dyn Fn(&'static str) -> Option<&'r [u8]>,
}

/// A request that passed the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedRequest<'r> {
    /// A request for its endpoint.
    Request,
    /// A preflight, which is answered for any path.
    Preflight(Preflight<'r>),
}

/// A rejection before the request reaches its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// HTTP/1.1 without `Host`, or with several.
    Host,
    /// The host name is not one of this server.
    Misdirected,
    /// A preflight from an origin that is not allowed.
    Preflight,
    /// A request from an origin that is not allowed.
    Origin,
    /// A request without an origin, while there is a list.
    OriginMissing,
    /// A cross-site request that a browser sends without a preflight (CSRF).
    Csrf,
    /// A webhook request that a web page sent.
    WebhookFromPage,
    /// A request that creates a room without an action of a person.
    NotUserInitiated,
    /// A page of another origin asks for the live sessions, or ends one.
    OperatorPage,
    /// A page of another origin asks for the settings, or changes them.
    SettingsPage,
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessError::Host => "HTTP/1.1 wants one Host header",
            AccessError::Misdirected => {
                "unknown host name: use the runner's address or host name, or add the name with --allowed-hosts"
            }
            AccessError::Preflight => "Disallowed CORS origin",
            AccessError::Origin => "this origin is not allowed; see --allowed-origins",
            AccessError::OriginMissing => "the request has no Origin header, and --allowed-origins is set",
            AccessError::Csrf => {
                "a page of another origin has to send its body as application/json, or with an Authorization header"
            }
            AccessError::WebhookFromPage => "this webhook is for the provider of the number, which is no page and names no origin",
            AccessError::NotUserInitiated => {
                "this makes a room and starts a bot: type the address, or follow a link; other pages, browsers that load ahead, \
                 and crawlers may not"
            }
            AccessError::OperatorPage => {
                "live sessions are for the runner's own page, for origins of --allowed-origins, and for programs that name no origin"
            }
            AccessError::SettingsPage => "settings are for the runner's own page, and for programs that name no origin",
        })
    }
}

impl std::error::Error for AccessError {}

/// Why a request does not pass the API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    Missing,
    Wrong,
    /// The request has no key, and its session is not one that `/start` registered.
    UnknownSession,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyError::Missing => "no API key: send `Authorization: Bearer KEY`",
            KeyError::Wrong => "the API key is wrong: send `Authorization: Bearer KEY`",
            KeyError::UnknownSession => "unknown or expired session, and no API key: send `Authorization: Bearer KEY`",
        })
    }
}

impl std::error::Error for KeyError {}

impl AccessPolicy {
    /// Creates the policy for a configuration; `random` must differ for every runner.
    pub fn new(config: &Config, random: [u8; 32]) -> Self {
        AccessPolicy {
            hosts: AllowedHosts::new(config),
            origins: AllowedOrigins::new(&config.allowed_origins),
            key: config.api_key.as_ref().map(|key| ApiKey::new(key, random)),
            metrics_need_key: config.metrics == MetricsAccess::Key,
        }
    }

    /// Returns whether there is a list of origins.
    pub fn lists_origins(&self) -> bool {
        !self.origins.allows_any()
    }

    /// Checks the `Origin` headers of a request.
    pub fn check_origin<'o>(&self, origins: impl Iterator<Item = &'o [u8]>) -> CorsDecision<'o> {
        self.origins.check(origins)
    }

    /// Checks a request.
    ///
    /// # Errors
    /// Returns the first [`AccessError`] that applies.
    pub fn check<'r>(&self, head: &RequestHead<'r>, cors: CorsDecision<'_>) -> Result<AllowedRequest<'r>, AccessError> {
        if !head.has_host {
            return Err(AccessError::Host);
        }
        if !self.is_for_this_server(head) {
            return Err(AccessError::Misdirected);
        }
        if head.is_preflight() {
            return self.preflight(head, cors).map(AllowedRequest::Preflight);
        }
        if cors == CorsDecision::Refused
            && !route::is_navigation(head.method, head.path)
            && !head.is_exempt_from_origin_list()
        {
            return Err(match head.has("origin") {
                true => AccessError::Origin,
                false => AccessError::OriginMissing,
            });
        }
        if self.is_csrf(head) {
            return Err(AccessError::Csrf);
        }
        let endpoint_kind = head.endpoint_kind();
        if endpoint_kind.is_some_and(EndpointKind::is_webhook) && head.method == "POST" && head.has("origin") {
            return Err(AccessError::WebhookFromPage);
        }
        if head.route.as_ref().is_ok_and(Route::is_for_operator) && self.is_of_another_page(head) {
            return Err(AccessError::OperatorPage);
        }
        let is_own = |origin| origin::is_own(origin, head.value("host"));
        if head.route.as_ref().is_ok_and(Route::is_of_settings) && !head.value("origin").is_none_or(is_own) {
            return Err(AccessError::SettingsPage);
        }
        if endpoint_kind == Some(EndpointKind::Visit) && self.is_not_user_initiated(head) {
            return Err(AccessError::NotUserInitiated);
        }
        Ok(AllowedRequest::Request)
    }

    /// Returns whether the `Authorization` headers contain the key, or none is required.
    pub fn has_key<'h>(&self, authorizations: impl Iterator<Item = &'h [u8]>) -> bool {
        self.key.as_ref().is_none_or(|key| key.matches_header(authorizations))
    }

    /// Returns whether `shown` is the key, or none is required; for keys that are not sent as
    /// `Bearer`.
    pub fn is_key(&self, shown: Option<&[u8]>) -> bool {
        self.key
            .as_ref()
            .is_none_or(|key| shown.is_some_and(|shown| key.matches(shown)))
    }

    /// Returns whether this runner requires a key.
    pub fn requires_key(&self) -> bool {
        self.key.is_some()
    }

    /// Accepts a request whose route needs no key, or that has it. The id of a session that
    /// `/start` made is as good: only callers with the key are told it, so a server can keep the
    /// key to itself while its pages connect.
    ///
    /// # Errors
    /// [`KeyError`] if the request has neither.
    pub fn authorize<'h>(
        &self,
        route: &Route<'_>,
        authorizations: impl Iterator<Item = &'h [u8]>,
        is_session: impl FnOnce(&str) -> bool,
    ) -> Result<(), KeyError> {
        let session = match route {
            Route::Metrics if self.metrics_need_key => None,
            route if route.endpoint_kind() == Some(EndpointKind::Visit) => None,
            Route::Start | Route::Download(_) | Route::Upload(None) => None,
            route if route.is_for_operator() || route.is_of_settings() => None,
            Route::Offer(session) | Route::Candidates(session) | Route::Upload(session) => session.as_deref(),
            _ => return Ok(()),
        };
        let mut authorizations = authorizations.peekable();
        let is_shown = authorizations.peek().is_some();
        if self.has_key(authorizations) || session.is_some_and(is_session) {
            return Ok(());
        }
        Err(match session {
            _ if is_shown => KeyError::Wrong,
            Some(_) => KeyError::UnknownSession,
            None => KeyError::Missing,
        })
    }

    /// Returns whether a request is for this server, by its `Host` and by the authority of its
    /// target, if any. Both must agree; otherwise a proxy and this server could take the request
    /// for different hosts.
    fn is_for_this_server(&self, head: &RequestHead<'_>) -> bool {
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

    fn preflight<'r>(&self, head: &RequestHead<'r>, cors: CorsDecision<'_>) -> Result<Preflight<'r>, AccessError> {
        let granted = match cors {
            CorsDecision::Refused => return Err(AccessError::Preflight),
            CorsDecision::NotCors => false,
            CorsDecision::Allowed(origin) => self.origins.grants_private_network(origin, head.value("host")),
        };
        Ok(Preflight {
            headers: head.value("access-control-request-headers"),
            private_network: granted && head.value("access-control-request-private-network") == Some(b"true"),
        })
    }

    /// Returns whether a browser may have sent this request for a page without a preflight. A list
    /// of allowed origins replaces this check.
    fn is_csrf(&self, head: &RequestHead<'_>) -> bool {
        // No other page knows the id of a session.
        let has_id = matches!(head.route, Ok(Route::Upload(Some(_))));
        if head.method != "POST" || !self.origins.allows_any() || has_id {
            return false;
        }
        let post = PostHeaders {
            origin: head.value("origin"),
            site: head.value("sec-fetch-site"),
            host: head.value("host"),
            content_type: head.value("content-type"),
            authorized: head.has("authorization"),
        };
        post.is_csrf(&self.hosts)
    }

    /// Returns whether a page sent this request that is neither the runner's own nor of a listed
    /// origin. Access by machine does not protect against such a page in a browser there.
    fn is_of_another_page(&self, head: &RequestHead<'_>) -> bool {
        let is_known = |origin| self.origins.grants_private_network(origin, head.value("host"));
        head.value("origin").is_some_and(|origin| !is_known(origin))
    }

    /// Returns whether this request creates a room without an action of a person. A list of allowed
    /// origins replaces this check, except for prefetches.
    fn is_not_user_initiated(&self, head: &RequestHead<'_>) -> bool {
        let fetch_metadata = head.visit();
        head.method == "GET"
            && (fetch_metadata.is_prefetch()
                || fetch_metadata.is_crawler()
                || self.origins.allows_any() && fetch_metadata.is_cross_site(&self.hosts))
    }
}

impl<'r> RequestHead<'r> {
    fn value(&self, name: &'static str) -> Option<&'r [u8]> {
        (self.header)(name)
    }

    fn has(&self, name: &'static str) -> bool {
        self.value(name).is_some()
    }

    fn is_preflight(&self) -> bool {
        self.method == "OPTIONS" && self.has("origin") && self.has("access-control-request-method")
    }

    fn endpoint_kind(&self) -> Option<EndpointKind> {
        self.route.as_ref().ok().and_then(Route::endpoint_kind)
    }

    /// Returns whether a request without `Origin` is exempt from the list of allowed origins: a
    /// webhook of a provider, which browsers do not send that way, or a room that a person
    /// requested by typing its address.
    fn is_exempt_from_origin_list(&self) -> bool {
        let meant = match self.endpoint_kind() {
            Some(EndpointKind::Webhook) => self.method == "POST",
            Some(EndpointKind::VerifiedWebhook) => true,
            Some(EndpointKind::Visit) => self.visit().is_user_initiated(),
            Some(EndpointKind::State) | None => false,
        };
        meant && !self.has("origin")
    }

    fn visit(&self) -> FetchMetadata<'r> {
        FetchMetadata {
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
mod tests;
