//! CORS: the origins that may use the runner, and the response headers for browsers.
//!
//! In: the values of `Origin` as bytes, and the configured list of origins; an empty list allows
//! every origin. Out: a [`CorsDecision`], and the headers of responses and preflights. Origins are
//! compared whole and without case.
//!
//! With a list, a missing, foreign or repeated `Origin` is rejected. A browser omits it from a GET
//! to its own origin, so such requests are rejected except for the page itself; `Sec-Fetch-Site`
//! would tell them apart, but is not sent to plain-HTTP addresses of a LAN.
//!
//! Without a list, POSTs that need no preflight are rejected when another site sends them
//! ([`PostHeaders::is_csrf`]). JSON needs a preflight, so every origin can use the runner.
//! WebSockets of every origin are accepted: a page that may call `/start` would gain
//! nothing from a rule for the socket alone. Credentials, such as the cookies of a proxy that asks
//! for a login, are for listed origins only: with those of a visitor, any other page could pass the
//! proxy in the visitor's name.
//!
//! Source: the Fetch standard (CORS protocol), Private Network Access (draft).

use crate::http::host::{self, AllowedHosts};

/// A response header.
pub type CorsHeader<'h> = (&'static str, &'h [u8]);

/// All methods that a preflight response may list.
pub const ALLOWED_METHODS: &str = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";
/// Response headers that pages may read: a WHIP client finds its session and the ICE servers there,
/// and checks the methods for PATCH.
const EXPOSED_HEADERS: &[u8] = b"Location, ETag, Link, Accept-Post, Access-Control-Allow-Methods";
const PREFLIGHT_AGE_S: &[u8] = b"600";
/// Content types that need no preflight.
const SAFELISTED_TYPES: [&[u8]; 3] = [
    b"text/plain",
    b"application/x-www-form-urlencoded",
    b"multipart/form-data",
];

/// The result of checking the `Origin` of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorsDecision<'o> {
    /// Neither origin nor list: served without CORS headers.
    NotCors,
    /// An allowed origin: served, and the page may read the response.
    Allowed(&'o [u8]),
    /// A missing or foreign origin while there is a list.
    Refused,
}

/// The origins that may use the runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedOrigins(Vec<String>);

impl AllowedOrigins {
    /// Creates the list of origins; an empty one allows all.
    pub fn new(allowed: &[String]) -> Self {
        AllowedOrigins(
            allowed
                .iter()
                .map(|origin| origin.trim_end_matches('/').to_owned())
                .collect(),
        )
    }

    /// Checks the `Origin` headers of a request.
    pub fn check<'o>(&self, mut origins: impl Iterator<Item = &'o [u8]>) -> CorsDecision<'o> {
        let (first, second) = (origins.next(), origins.next());
        match (first, second) {
            (Some(origin), None) if self.contains(origin) => CorsDecision::Allowed(origin),
            _ if self.0.is_empty() => CorsDecision::NotCors,
            _ => CorsDecision::Refused,
        }
    }

    /// Returns whether a page of this origin may access the private network of `host`: listed
    /// origins and the origin of the host itself. An empty list allows every origin by CORS, but
    /// does not grant access to the private network.
    pub fn grants_private_network(&self, origin: &[u8], host: Option<&[u8]>) -> bool {
        is_own(origin, host) || !self.allows_any() && self.contains(origin)
    }

    /// Returns whether there is no list.
    pub fn allows_any(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, origin: &[u8]) -> bool {
        let listed = |allowed: &String| allowed.as_bytes().eq_ignore_ascii_case(origin);
        // Browsers send ASCII origins only; others are not repeated in a response.
        origin.is_ascii() && (self.0.is_empty() || self.0.iter().any(listed))
    }
}

/// Returns whether an origin is that of a page of `host` itself.
pub fn is_own(origin: &[u8], host: Option<&[u8]>) -> bool {
    let scheme = origin.windows(3).position(|three| three == b"://");
    let page = scheme.map(|at| &origin[at + 3..]);
    page.is_some_and(|page| host.is_some_and(|host| host::is_same_host(page, host)))
}

/// The headers of a POST that describe its origin.
#[derive(Clone, Copy, Debug, Default)]
pub struct PostHeaders<'r> {
    /// The first `Origin`.
    pub origin: Option<&'r [u8]>,
    /// `Sec-Fetch-Site`.
    pub site: Option<&'r [u8]>,
    /// `Host`.
    pub host: Option<&'r [u8]>,
    pub content_type: Option<&'r [u8]>,
    /// Whether it has an `Authorization` header, which needs a preflight.
    pub authorized: bool,
}

impl PostHeaders<'_> {
    /// Returns whether a browser sends this POST for any site without a preflight: forms, plain
    /// text, and bodies without a type. JSON, `Authorization` and other methods need a preflight.
    ///
    /// Pages of this machine and its network are not cross-site; neither are requests without any
    /// origin, which come from programs and devices. `Origin: null` is cross-site, since a foreign
    /// frame can produce it.
    pub fn is_csrf(&self, hosts: &AllowedHosts) -> bool {
        self.is_simple() && self.is_cross_site(hosts)
    }

    fn is_simple(&self) -> bool {
        let kind = self.content_type.unwrap_or_default();
        let kind = kind.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let simple = |known: &&[u8]| kind.eq_ignore_ascii_case(known);
        !self.authorized && (kind.is_empty() || SAFELISTED_TYPES.iter().any(simple))
    }

    fn is_cross_site(&self, hosts: &AllowedHosts) -> bool {
        match self.origin {
            Some(origin) => is_cross_site(origin, self.host, hosts),
            None => self.site.is_some_and(|site| site.eq_ignore_ascii_case(b"cross-site")),
        }
    }
}

/// Returns whether an origin is neither the requested host nor a local or accepted name.
pub fn is_cross_site(origin: &[u8], host: Option<&[u8]>, hosts: &AllowedHosts) -> bool {
    let scheme = origin.windows(3).position(|three| three == b"://");
    let page = scheme.map(|at| &origin[at + 3..]);
    let is_own = |page: &[u8]| host.is_some_and(|host| host::is_same_host(page, host));
    !page.is_some_and(|page| is_own(page) || hosts.is_local(page))
}

/// The requested headers of a preflight; its method is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preflight<'r> {
    /// `Access-Control-Request-Headers`.
    pub headers: Option<&'r [u8]>,
    /// Whether a page with [`AllowedOrigins::grants_private_network`] sent
    /// `Access-Control-Request-Private-Network: true`, to reach this host on a private network.
    pub private_network: bool,
}

/// Returns the CORS headers of a response, also of an error, to an allowed origin. `is_listed`
/// tells whether it is allowed by a list.
pub fn response_headers(origin: &[u8], is_listed: bool) -> impl Iterator<Item = CorsHeader<'_>> {
    let fixed: [CorsHeader<'_>; 3] = [
        ("access-control-allow-origin", origin),
        ("access-control-expose-headers", EXPOSED_HEADERS),
        ("vary", b"Origin"),
    ];
    let credentials: Option<CorsHeader<'_>> = is_listed.then_some(("access-control-allow-credentials", b"true"));
    fixed.into_iter().chain(credentials)
}

/// Returns the additional headers of the response to a preflight.
pub fn preflight_headers<'r>(asked: Preflight<'r>) -> impl Iterator<Item = CorsHeader<'r>> {
    let fixed: [CorsHeader<'r>; 2] = [
        ("access-control-allow-methods", ALLOWED_METHODS.as_bytes()),
        ("access-control-max-age", PREFLIGHT_AGE_S),
    ];
    let headers = asked.headers.map(|headers| ("access-control-allow-headers", headers));
    let private: Option<CorsHeader<'r>> = asked
        .private_network
        .then_some(("access-control-allow-private-network", b"true"));
    fixed.into_iter().chain(headers).chain(private)
}

#[cfg(test)]
mod tests;
