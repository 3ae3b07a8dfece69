//! Tests of routes.

use super::*;
use crate::{daily, livekit};

fn get(path: &str) -> Result<Route<'_>, RouteError> {
    route("GET", path)
}

/// `/` redirects to the page for every transport.
#[test]
fn serves_the_page_at_client() {
    assert_eq!(get("/"), Ok(Route::PageRedirect));
    assert_eq!(get("/client"), Ok(Route::PageRedirect));
    assert_eq!(get("/client/"), Ok(Route::Page("".into())));
    assert_eq!(get("/client/app.js"), Ok(Route::Page("app.js".into())));
    assert_eq!(route("HEAD", "/client/app.js"), Ok(Route::Page("app.js".into())));
    assert_eq!(get("/client/a%2Ejs"), Ok(Route::Page("a.js".into())));
    assert_eq!(get("/files/a%20b/c.wav"), Ok(Route::Download("a b/c.wav".into())));
    assert_eq!(get("/files/"), Ok(Route::Download("".into())));
    assert_eq!(get("/files"), Err(RouteError::Method("POST, OPTIONS")));
    assert_eq!(route("POST", "/files/a"), Err(RouteError::Method(GET_METHODS)));
}

/// one start endpoint for all transports, and offers with and
/// without a session.
#[test]
fn routes_by_method_and_path() {
    assert_eq!(route("POST", "/start"), Ok(Route::Start));
    assert_eq!(route("POST", "/start/"), Ok(Route::Start));
    assert_eq!(route("POST", "/st%61rt"), Ok(Route::Start));
    assert_eq!(get("/status"), Ok(Route::Status));
    assert_eq!(get("/worker"), Ok(Route::Module(&livekit::endpoints::WORKER)));
    assert_eq!(get("/robots.txt"), Ok(Route::Robots));
    assert_eq!(get("/openapi.json"), Ok(Route::OpenApi));
    assert_eq!(get("/sessions"), Ok(Route::Sessions));
    assert_eq!(get("/sessions/"), Ok(Route::Sessions));
    assert_eq!(get("/calls"), Ok(Route::Calls));
    assert_eq!(get("/calls/events"), Ok(Route::CallEvents));
    assert_eq!(get("/calls/a"), Ok(Route::Call("a".into())));
    assert_eq!(get("/calls/a/recording"), Ok(Route::CallRecording("a".into())));
    assert_eq!(route("POST", "/calls/a/listen"), Ok(Route::Listen("a".into())));
    assert_eq!(get("/calls/a/listen"), Err(RouteError::Method("POST, OPTIONS")));
    let listener = Route::EndListening("a".into(), "b".into());
    assert_eq!(route("DELETE", "/calls/a/listen/b"), Ok(listener));
    assert_eq!(get("/calls/a/listen/b"), Err(RouteError::Method("DELETE, OPTIONS")));
    assert_eq!(route("DELETE", "/calls/a/listen/b/c"), Err(RouteError::NotFound));
    assert_eq!(get("/calls/a/b"), Err(RouteError::NotFound));
    assert_eq!(get("/calls/a/b/recording"), Err(RouteError::NotFound));
    assert_eq!(route("DELETE", "/sessions/S"), Ok(Route::EndSession("S".into())));
    assert_eq!(route("DELETE", "/calls/S"), Ok(Route::EndSession("S".into())));
    assert_eq!(get("/sessions/S"), Err(RouteError::Method("DELETE, OPTIONS")));
    assert_eq!(route("OPTIONS", "/sessions/S"), Ok(Route::Methods("DELETE, OPTIONS")));
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
fn routes_uploads() {
    for path in ["/files", "/files/"] {
        assert_eq!(route("POST", path), Ok(Route::Upload(None)), "{path}");
    }
    let of_session = Ok(Route::Upload(Some("S".into())));
    assert_eq!(route("POST", "/sessions/S/files"), of_session);
    assert_eq!(route("OPTIONS", "/files"), Ok(Route::Methods("POST, OPTIONS")));
    for path in ["/files", "/sessions/S/files"] {
        assert_eq!(get(path), Err(RouteError::Method("POST, OPTIONS")), "{path}");
    }
    assert_eq!(route("POST", "/files/x"), Err(RouteError::Method("GET, HEAD, OPTIONS")));
    assert_eq!(route("POST", "/sessions/S/x/files"), Err(RouteError::NotFound));
}

#[test]
fn an_unsupported_method_names_the_supported_ones() {
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

/// WebSockets with and without a token, and the call webhook beside the
/// redirect to the page.
#[test]
fn routes_websockets_and_the_call_webhook() {
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

/// both under the paths of existing pages and provider configurations.
#[test]
fn routes_daily_rooms() {
    for path in ["/videoroom", "/daily", "/daily/", "/d%61ily"] {
        assert_eq!(get(path), Ok(Route::Module(&daily::endpoints::ROOM)), "{path}");
        assert_eq!(
            route("POST", path),
            Err(RouteError::Method("GET, HEAD, OPTIONS")),
            "{path}"
        );
    }
    for path in ["/videoroom-dialin-webhook", "/daily-dialin-webhook"] {
        for method in ["POST", "GET", "OPTIONS"] {
            assert_eq!(
                route(method, path),
                Ok(Route::Module(&daily::endpoints::DIALIN)),
                "{method} {path}"
            );
        }
    }
}

/// Path traversal: no encoding of it reaches a file, and none panics.
#[test]
fn rejects_malformed_paths() {
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
        "/sessions//",
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
fn paths_for_the_log_contain_no_token() {
    for (path, logged) in [
        ("/ws", "/ws"),
        ("/ws/TOKEN", "/ws"),
        ("/ws-client/TOKEN/", "/ws-client"),
        ("/%77s/TOKEN", "/ws..."),
        ("/ws%2FTOKEN", "/ws..."),
        ("/sessions/S/api/offer", "/sessions/.../api/offer"),
        ("/sessions/S", "/sessions/..."),
        ("/sessions", "/sessions"),
        ("/%73essions/S/api/offer", "/sessions..."),
        ("/client/%ff", "/client/%ff"),
    ] {
        assert_eq!(path_for_log(path), logged, "{path}");
    }
}

/// the list of allowed origins does not apply to navigation to the page.
#[test]
fn only_the_page_counts_as_navigation() {
    for path in ["/", "/client", "/client/", "/client/app.js"] {
        assert!(is_navigation("GET", path) && is_navigation("HEAD", path));
        assert!(!is_navigation("POST", path) && !is_navigation("OPTIONS", path));
    }
    for path in ["/status", "/start", "/clientx", "//", ""] {
        assert!(!is_navigation("GET", path));
    }
}

#[test]
fn errors_of_the_calls_endpoint_have_a_message() {
    let detail = json!("no");
    let of = |path| route("POST", path).expect("an endpoint").error_body()(&detail);
    assert_eq!(of("/start"), json!({"detail": "no"}));
    assert_eq!(of("/whip"), json!({"detail": "no"}));
    assert_eq!(of("/v1/realtime/calls")["error"]["message"], "no");
}
