//! Tests of access to routes.

use super::*;
use crate::secret::Secret;

/// Checks a request with these headers; `host` is added if missing.
fn judged(access: &AccessPolicy, request: &str, headers: &[(&'static str, &'static str)]) -> Result<bool, AccessError> {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    let found = |name: &str| {
        headers
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.as_bytes())
    };
    let header = |name: &'static str| found(name).or((name == "host").then_some(&b"localhost"[..]));
    let head = RequestHead {
        method,
        path,
        route: &route::route(method, path),
        authority: None,
        has_host: true,
        header: &header,
    };
    let cors = access.check_origin(found("origin").into_iter());
    let admitted = access.check(&head, cors);
    admitted.map(|admitted| admitted != AllowedRequest::Request)
}

fn access(allowed_origins: &[&str]) -> AccessPolicy {
    let config = Config {
        allowed_origins: allowed_origins.iter().map(|origin| (*origin).to_owned()).collect(),
        api_key: Some(Secret::new("a key")),
        ..Config::default()
    };
    AccessPolicy::new(&config, [7; 32])
}

const FOREIGN: (&str, &str) = ("origin", "https://evil.example");

/// The reasons have a fixed order: the first one rejects the request.
#[test]
fn rejects_a_request_for_the_first_reason() {
    let (open, listed) = (access(&[]), access(&["https://a.example"]));
    let misdirected = ("host", "evil.example");
    let asks = ("access-control-request-method", "POST");
    assert_eq!(
        judged(&open, "POST /start", &[misdirected, FOREIGN]),
        Err(AccessError::Misdirected)
    );
    assert_eq!(
        judged(&listed, "OPTIONS /start", &[FOREIGN, asks]),
        Err(AccessError::Preflight)
    );
    assert_eq!(judged(&open, "OPTIONS /any", &[FOREIGN, asks]), Ok(true));
    assert_eq!(judged(&listed, "POST /start", &[FOREIGN]), Err(AccessError::Origin));
    assert_eq!(judged(&listed, "GET /client/", &[FOREIGN]), Ok(false));
    assert_eq!(judged(&open, "POST /start", &[FOREIGN]), Err(AccessError::Csrf));
    let json = ("content-type", "application/json");
    assert_eq!(judged(&open, "POST /start", &[FOREIGN, json]), Ok(false));
    assert_eq!(
        judged(&open, "POST /messaging", &[FOREIGN, json]),
        Err(AccessError::WebhookFromPage)
    );
    assert_eq!(judged(&listed, "POST /messaging", &[json]), Ok(false));
    assert_eq!(
        judged(&open, "GET /videoroom", &[FOREIGN]),
        Err(AccessError::NotUserInitiated)
    );
    assert_eq!(judged(&listed, "GET /videoroom", &[]), Err(AccessError::OriginMissing));
}

/// A form needs no preflight, so a foreign page has to know the id of a session.
#[test]
fn foreign_pages_upload_to_their_session_alone() {
    let (open, listed) = (access(&[]), access(&["https://a.example"]));
    let form = ("content-type", "multipart/form-data; boundary=B");
    assert_eq!(judged(&open, "POST /files", &[FOREIGN, form]), Err(AccessError::Csrf));
    assert_eq!(judged(&open, "POST /files", &[form]), Ok(false));
    assert_eq!(judged(&open, "POST /sessions/S/files", &[FOREIGN, form]), Ok(false));
    assert_eq!(
        judged(&listed, "POST /sessions/S/files", &[FOREIGN, form]),
        Err(AccessError::Origin)
    );
}

/// A page of any origin may call, but only the runner's own page, listed ones and programs see
/// and end sessions.
#[test]
fn live_sessions_are_not_for_foreign_pages() {
    let (open, listed) = (access(&[]), access(&["https://a.example"]));
    let own = ("origin", "https://localhost");
    let a = ("origin", "https://a.example");
    for request in ["GET /sessions", "DELETE /sessions/S"] {
        for headers in [&[][..], &[own]] {
            assert_eq!(judged(&open, request, headers), Ok(false), "{request}");
        }
        for foreign in [FOREIGN, a, ("origin", "null"), ("origin", "http://192.168.1.9")] {
            assert_eq!(
                judged(&open, request, &[foreign]),
                Err(AccessError::OperatorPage),
                "{request}"
            );
        }
        assert_eq!(judged(&listed, request, &[a]), Ok(false), "{request}");
        let route = request.split_once(' ').expect("a method and a path");
        let route = route::route(route.0, route.1).expect("a route");
        let mut key = [&b"Bearer a key"[..]].into_iter();
        assert!(open.authorize(&route, [].into_iter(), |_| true).is_err());
        assert!(open.authorize(&route, key.by_ref(), |_| false).is_ok());
    }
}

/// A page that may call, and see sessions, does not change settings.
#[test]
fn settings_are_for_no_other_page() {
    let listed = access(&["https://a.example", "https://localhost"]);
    let (own, a) = (("origin", "https://localhost"), ("origin", "https://a.example"));
    for request in [
        "GET /settings",
        "POST /settings",
        "POST /settings/check",
        "POST /settings/sound-test",
    ] {
        for (headers, judgement) in [
            (&[own][..], Ok(false)),
            (&[a], Err(AccessError::SettingsPage)),
            (&[FOREIGN], Err(AccessError::Origin)),
        ] {
            let headers = [headers, &[("authorization", "Bearer a key")]].concat();
            assert_eq!(judged(&listed, request, &headers), judgement, "{request} {headers:?}");
        }
        let route = request.split_once(' ').expect("a method and a path");
        let route = route::route(route.0, route.1).expect("a route");
        assert_eq!(
            listed.authorize(&route, [].into_iter(), |_| true),
            Err(KeyError::Missing)
        );
        let wrong = [&b"Bearer x"[..]].into_iter();
        assert_eq!(listed.authorize(&route, wrong, |_| true), Err(KeyError::Wrong));
    }
}

#[test]
fn metrics_need_the_key_where_the_option_says_so() {
    let asks = |metrics, key: Option<&'static [u8]>| {
        let config = Config {
            metrics,
            api_key: Some(Secret::new("a key")),
            ..Config::default()
        };
        let access = AccessPolicy::new(&config, [7; 32]);
        access.authorize(&Route::Metrics, key.into_iter(), |_| false)
    };
    assert_eq!(asks(MetricsAccess::Local, None), Ok(()));
    assert_eq!(asks(MetricsAccess::Key, None), Err(KeyError::Missing));
    assert_eq!(asks(MetricsAccess::Key, Some(b"Bearer x")), Err(KeyError::Wrong));
    assert_eq!(asks(MetricsAccess::Key, Some(b"Bearer a key")), Ok(()));
}

#[test]
fn offers_and_uploads_of_a_registered_session_need_no_key() {
    let access = access(&[]);
    let asks = |path: &str, key: Option<&'static [u8]>| {
        let route = route::route("POST", path).expect("a route");
        access.authorize(&route, key.into_iter(), |id| id == "known").is_ok()
    };
    assert!(asks("/start", Some(b"Bearer a key")) && !asks("/start", Some(b"Bearer x")) && !asks("/start", None));
    for what in ["api/offer", "files"] {
        let of = |id: &str| asks(&format!("/sessions/{id}/{what}"), None);
        assert!(of("known") && !of("other"), "{what}");
    }
    assert!(asks("/files", Some(b"Bearer a key")) && !asks("/files", None));
    assert!(
        !asks("/api/offer", None) && asks("/", None),
        "a webhook has its signature"
    );
}
