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
mod tests {
    use super::*;

    fn listed() -> AllowedOrigins {
        AllowedOrigins::new(&["https://App.example".to_owned(), "http://localhost:3000/".to_owned()])
    }

    fn judge<'o>(origins: &AllowedOrigins, sent: &[&'o str]) -> CorsDecision<'o> {
        origins.check(sent.iter().map(|origin| origin.as_bytes()))
    }

    /// without a list, every origin is allowed; a request without one gets no CORS headers.
    #[test]
    fn without_a_list_every_origin_is_allowed() {
        let all = AllowedOrigins::default();
        assert_eq!(judge(&all, &[]), CorsDecision::NotCors);
        assert_eq!(
            judge(&all, &["https://any.example"]),
            CorsDecision::Allowed(b"https://any.example")
        );
        assert_eq!(judge(&all, &["null"]), CorsDecision::Allowed(b"null"));
        assert_eq!(judge(&all, &["https://a", "https://b"]), CorsDecision::NotCors);
        assert_eq!(judge(&all, &["https://\u{e9}.example"]), CorsDecision::NotCors);
    }

    /// with a list, a missing, a foreign and a repeated origin are rejected.
    #[test]
    fn with_a_list_only_its_origins_are_allowed() {
        let list = listed();
        assert_eq!(
            judge(&list, &["https://app.EXAMPLE"]),
            CorsDecision::Allowed(b"https://app.EXAMPLE")
        );
        assert_eq!(
            judge(&list, &["http://localhost:3000"]),
            CorsDecision::Allowed(b"http://localhost:3000")
        );
        for refused in [
            &[][..],
            &[""],
            &["null"],
            &["https://evil.example"],
            &["https://app.example.evil.example"],
            &["https://app.example:8443"],
            &["http://app.example"],
            &["app.example"],
            &["https://app.example/"],
            &["https://app.example", "https://app.example"],
        ] {
            assert_eq!(judge(&list, refused), CorsDecision::Refused, "{refused:?}");
        }
    }

    /// Private network access is granted to listed origins and to the host's own.
    #[test]
    fn grants_private_network_access_by_the_list_only() {
        let host = Some(&b"192.168.1.9:7860"[..]);
        let (all, list) = (AllowedOrigins::default(), listed());
        for (origin, open, listed) in [
            ("https://evil.example", false, false),
            ("null", false, false),
            ("", false, false),
            ("https://app.example", false, true),
            ("https://APP.example", false, true),
            ("https://app.example:8443", false, false),
            ("http://192.168.1.9:7860", true, true),
            ("https://192.168.1.9", true, true),
            ("http://192.168.1.10:7860", false, false),
        ] {
            assert_eq!(all.grants_private_network(origin.as_bytes(), host), open, "{origin}");
            assert_eq!(list.grants_private_network(origin.as_bytes(), host), listed, "{origin}");
        }
        assert!(!all.grants_private_network(b"http://192.168.1.9", None));
    }

    fn hosts() -> AllowedHosts {
        AllowedHosts::new(&crate::config::Config {
            proxy: Some("bots.example.net".into()),
            host_names: vec!["board".into()],
            ..Default::default()
        })
    }

    fn post<'r>(origin: &'r str, content_type: Option<&'r str>) -> PostHeaders<'r> {
        PostHeaders {
            origin: Some(origin.as_bytes()),
            host: Some(b"203.0.113.5:7860"),
            content_type: content_type.map(str::as_bytes),
            ..PostHeaders::default()
        }
    }

    /// preflighted requests of every origin are accepted; cross-site requests without a
    /// preflight are rejected.
    #[test]
    fn cross_site_requests_need_a_preflight() {
        for stranger in [
            "https://evil.example",
            "null",
            "",
            "file://",
            "http://203.0.113.6",
            "chrome-extension://abc",
            "://",
            "x",
        ] {
            for simple in [
                None,
                Some(""),
                Some("text/plain"),
                Some("Text/Plain;charset=UTF-8"),
                Some(" application/x-www-form-urlencoded "),
                Some("multipart/form-data; boundary=x"),
            ] {
                assert!(post(stranger, simple).is_csrf(&hosts()), "{stranger} {simple:?}");
                let asked = PostHeaders {
                    authorized: true,
                    ..post(stranger, simple)
                };
                assert!(!asked.is_csrf(&hosts()));
            }
            // Browsers send a preflight for every type other than the three.
            for asked in [
                "application/json",
                "application/json; charset=utf-8",
                "x/y",
                "text/plain, application/json",
                "json",
            ] {
                assert!(!post(stranger, Some(asked)).is_csrf(&hosts()), "{stranger} {asked}");
            }
        }
    }

    /// Own pages, pages of the LAN and of a development server, and programs, which send no origin.
    #[test]
    fn same_site_requests_need_no_preflight() {
        for near in [
            "http://203.0.113.5:7860",
            "https://203.0.113.5",
            "http://localhost:5173",
            "http://192.168.1.9:3000",
            "http://[::1]:5173",
            "https://pi.local",
            "http://board",
            "https://bots.example.net",
            "capacitor://localhost",
        ] {
            assert!(!post(near, None).is_csrf(&hosts()), "{near}");
        }
        let named = PostHeaders {
            host: Some(b"Talk.local:1"),
            ..post("http://talk.local:2", None)
        };
        assert!(!named.is_csrf(&hosts()));
        assert!(!PostHeaders::default().is_csrf(&hosts()));
        for (site, forged) in [
            ("cross-site", true),
            ("Cross-Site", true),
            ("same-site", false),
            ("same-origin", false),
            ("none", false),
        ] {
            let unnamed = PostHeaders {
                site: Some(site.as_bytes()),
                ..PostHeaders::default()
            };
            assert_eq!(unnamed.is_csrf(&hosts()), forged, "{site}");
        }
        // The origin is more precise than the site: two machines of one LAN are different sites.
        let lan = PostHeaders {
            site: Some(b"cross-site"),
            ..post("http://192.168.1.9", None)
        };
        assert!(!lan.is_csrf(&hosts()));
    }

    /// A listed page may read the response with its cookies, and no cache gives it to another
    /// origin.
    #[test]
    fn a_response_names_the_allowed_origin_and_what_its_page_may_read() {
        let headers: Vec<CorsHeader<'_>> = response_headers(b"https://app.example", true).collect();
        let value = |name: &str| {
            let found = headers.iter().find(|(header, _)| *header == name);
            found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        assert_eq!(
            value("access-control-allow-origin").as_deref(),
            Some("https://app.example")
        );
        assert_eq!(value("access-control-allow-credentials").as_deref(), Some("true"));
        assert_eq!(value("vary").as_deref(), Some("Origin"));
        let exposed = value("access-control-expose-headers").expect("a list");
        for header in ["Location", "ETag", "Link", "Accept-Post"] {
            assert!(exposed.split(", ").any(|name| name == header), "{header}: {exposed}");
        }
        // Without a list, every page gets the same but for its cookies.
        let open: Vec<CorsHeader<'_>> = response_headers(b"https://app.example", false).collect();
        assert_eq!(open, headers[..3]);
        assert_eq!(headers[3], ("access-control-allow-credentials", &b"true"[..]));
    }

    #[test]
    fn answers_a_preflight_with_the_requested_headers() {
        let plain: Vec<CorsHeader<'_>> = preflight_headers(Preflight::default()).collect();
        assert_eq!(
            plain,
            [
                ("access-control-allow-methods", ALLOWED_METHODS.as_bytes()),
                ("access-control-max-age", b"600")
            ]
        );
        let asked = Preflight {
            headers: Some(b"content-type,x-a"),
            private_network: true,
        };
        let full: Vec<CorsHeader<'_>> = preflight_headers(asked).collect();
        assert!(full.contains(&("access-control-allow-headers", b"content-type,x-a")));
        assert!(full.contains(&("access-control-allow-private-network", b"true")));
        for method in ["GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "HEAD"] {
            assert!(ALLOWED_METHODS.split(", ").any(|allowed| allowed == method));
        }
    }
}
