//! Tests of origins.

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
