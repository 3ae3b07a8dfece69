//! The endpoints, their responses and their errors, for well-formed requests.

use serde_json::json;

use super::*;
use crate::config::Transport;

/// R-043, R-044, R-059, R-062: `/start` registers a session, and the bot starts with the offer.
#[tokio::test]
async fn a_start_registers_a_session() {
    let runner = Runner::start().await;
    let started = runner
        .post("/start", json!({"transport": "webrtc", "body": {"lang": "en"}}))
        .await;
    assert_eq!(started.status, 200);
    let reply = started.json();
    assert_eq!(reply.as_object().map(|map| map.len()), Some(1), "a session id alone");
    let id = reply["sessionId"].as_str().expect("a session id").to_owned();
    assert_eq!(id.len(), 36);
    assert_eq!(runner.ask("GET /status HTTP/1.1", "").await.json()["sessions"], 0);

    let offer = json!({"sdp": OFFER, "type": "offer", "pc_id": null, "restart_pc": false});
    let path = format!("/sessions/{id}/api/offer");
    let answered = runner.post(&path, offer.clone()).await;
    assert_eq!(answered.status, 200);
    let answer = answered.json();
    assert_eq!(
        (&answer["type"], answer.as_object().map(|map| map.len())),
        (&json!("answer"), Some(3))
    );
    assert!(answer["sdp"].as_str().is_some_and(|sdp| sdp.starts_with("v=0\r\n")) && answer["pc_id"].is_string());
    let first = runner.begun().await;
    assert_eq!(first.given(), (id.clone(), json!({"lang": "en"})));
    assert_eq!(runner.ask("GET /status HTTP/1.1", "").await.json()["sessions"], 1);

    // A second connection with the same id is a session of its own.
    assert_eq!(runner.post(&path, offer.clone()).await.status, 200);
    let second = runner.begun().await;
    assert_ne!(second.session_id, id);
    assert_eq!(second.body, json!({"lang": "en"}));
    runner.end(first).await;
    assert_eq!(runner.post(&path, offer.clone()).await.status, 200, "one still lives");
    let third = runner.begun().await;
    runner.end(second).await;
    runner.end(third).await;
    let gone = runner.post(&path, offer).await.refusal();
    assert_eq!(
        gone,
        (404, "Invalid or not-yet-ready session_id".into()),
        "a bot that hung up does not come back"
    );
}

/// R-069: a renegotiation, and an offer that fails, leave a live session as it was.
#[tokio::test]
async fn only_a_new_connection_uses_up_a_registration() {
    let runner = Runner::start().await;
    let id = runner.post("/start", json!({})).await.json()["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    let path = format!("/sessions/{id}/api/offer");
    let full = runner.fill();
    assert_eq!(runner.post(&path, json!({"sdp": OFFER})).await.status, 503);
    drop(full);
    assert_eq!(runner.post(&path, json!({"sdp": "bad"})).await.status, 400);
    assert_eq!(runner.post(&path, json!({"nothing": 1})).await.status, 422);
    let answered = runner.post(&path, json!({"sdp": OFFER})).await.json();
    let begun = runner.begun().await;
    assert_eq!(begun.session_id, id, "the session has its own name after all");
    let again = json!({"sdp": OFFER, "pc_id": answered["pc_id"]});
    assert_eq!(
        runner.post(&path, again.clone()).await.json()["pc_id"],
        answered["pc_id"]
    );
    assert_eq!(runner.live.count(), 1);
    runner.end(begun).await;
    assert_eq!(runner.post(&path, again).await.status, 404);
}

/// The bot's data is the offer's, else that of `/start`, else empty.
#[tokio::test]
async fn data_of_the_offer_overrides_data_of_the_start() {
    let runner = Runner::start().await;
    let id = runner.post("/start", json!({"body": {"from": "start"}})).await.json()["sessionId"].clone();
    let path = format!("/sessions/{}/api/offer", id.as_str().expect("an id"));
    // The id stays valid while a session of it is live.
    let mut begun = Vec::new();
    for (offer, body) in [
        (
            json!({"sdp": OFFER, "requestData": {"from": "offer"}}),
            json!({"from": "offer"}),
        ),
        (
            json!({"sdp": OFFER, "request_data": [1], "requestData": {}}),
            json!([1]),
        ),
        (json!({"sdp": OFFER, "requestData": {}}), json!({"from": "start"})),
    ] {
        assert_eq!(runner.post(&path, offer).await.status, 200);
        begun.push(runner.begun().await);
        assert_eq!(begun.last().map(|begun| &begun.body), Some(&body));
    }
    for (offer, body) in [
        (json!({"sdp": OFFER, "request_data": "x"}), json!("x")),
        (json!({"sdp": OFFER}), json!({})),
    ] {
        assert_eq!(runner.post("/api/offer", offer).await.status, 200);
        assert_eq!(runner.begun().await.body, body);
    }
}

/// R-069: candidates reach their connection, with and without a session, and errors the client.
#[tokio::test]
async fn candidates_reach_their_connection() {
    let runner = Runner::start().await;
    let patch = async |path: &str, body: Value| {
        let head = format!("PATCH {path} HTTP/1.1\r\nContent-Type: application/json");
        runner.ask(&head, &body.to_string()).await
    };
    let connection = runner.post("/api/offer", json!({"sdp": OFFER})).await.json()["pc_id"].clone();
    let batch = json!({"pc_id": connection, "candidates": [{"candidate": "", "sdp_mid": "0", "sdp_mline_index": 0}]});
    let taken = patch("/api/offer", batch.clone()).await;
    assert_eq!((taken.status, taken.json()), (200, json!({"status": "success"})));

    let id = runner.post("/start", json!({})).await.json()["sessionId"].clone();
    let path = format!("/sessions/{}/api/offer", id.as_str().expect("an id"));
    assert_eq!(patch(&path, batch.clone()).await.status, 200);
    assert_eq!(patch("/sessions/none/api/offer", batch).await.status, 404);
    let unknown = patch("/api/offer", json!({"pc_id": "unknown", "candidates": []})).await;
    assert_eq!(unknown.refusal(), (404, "Peer connection not found".into()));
    let invalid = patch("/api/offer", json!({"pc_id": 1, "candidates": []})).await;
    assert_eq!(invalid.status, 422);
    assert_eq!(
        invalid.json(),
        json!({"detail": [
            {"loc": ["body", "pc_id"], "msg": "Input should be a valid string", "type": "string_type"}
        ]})
    );
}

/// A draining runner says so in `/status`, rejects new sessions with `Retry-After`, and serves the
/// rest.
#[tokio::test]
async fn a_draining_runner_starts_no_session() {
    let config = crate::proto::config! {
        transport: Some(Transport::Telephony(crate::proto::telephony::PROVIDERS[3])),
        ..config()
    };
    let calls = Runner::with(config, ConnLimits::default()).await;
    let clients = Runner::start().await;
    let answered = clients.post("/api/offer", json!({"sdp": OFFER})).await.json();
    for runner in [&calls, &clients] {
        runner.sessions.close();
    }
    let start = clients.post("/start", json!({})).await;
    let webhook = calls.ask("POST / HTTP/1.1", "").await;
    for reply in [start, webhook] {
        assert_eq!(reply.refusal(), (503, "this runner is stopping".into()));
        assert_eq!(reply.header("retry-after"), Some("5"));
    }
    let status = clients.ask("GET /status HTTP/1.1", "").await;
    assert_eq!((status.status, &status.json()["status"]), (200, &json!("draining")));
    assert_eq!(clients.ask("GET /client/ HTTP/1.1", "").await.status, 200);
    let again = json!({"sdp": OFFER, "pc_id": answered["pc_id"]});
    assert_eq!(
        clients.post("/api/offer", again).await.status,
        200,
        "its connection lives"
    );
    assert_eq!(clients.post("/api/offer", json!({"sdp": OFFER})).await.status, 503);
}

/// R-067, R-096: errors of `/start`.
#[tokio::test]
async fn an_invalid_start_is_rejected() {
    let runner = Runner::start().await;
    let unknown = runner.post("/start", json!({"transport": "pigeon"})).await.refusal();
    assert_eq!(unknown.0, 400);
    assert!(
        unknown
            .1
            .starts_with("transport `pigeon` is unknown; allowed: webrtc, daily, livekit, twilio, ")
    );
    let by_option = runner.post("/start", json!({"transport": "moq"})).await.refusal();
    assert_eq!(by_option.0, 400);
    let invalid = runner.post("/start", json!({"transport": 7})).await;
    assert_eq!(invalid.status, 422);
    assert_eq!(invalid.json()["detail"][0]["loc"], json!(["body", "transport"]));
    assert_eq!(runner.ask("POST /start HTTP/1.1", "{").await.status, 422);
    assert_eq!(
        runner.ask("POST /start HTTP/1.1", "").await.status,
        200,
        "no body at all"
    );
    assert_eq!(
        runner.ask("POST /start?x=1 HTTP/1.1", "{}").await.status,
        200,
        "a query is ignored"
    );
}

/// R-059: unused registrations are capped per address; above the cap the oldest is dropped.
#[tokio::test]
async fn unused_registrations_are_capped() {
    let runner = Runner::start().await;
    let mut client = runner.client().await;
    let mut names = Vec::new();
    for _ in 0..=limits::REGISTERED_SHARE_MAX {
        let reply = client.ask("POST /start HTTP/1.1", "{}").await;
        assert_eq!(reply.status, 200);
        names.push(reply.json()["sessionId"].as_str().expect("a name").to_owned());
    }
    for (nth, status) in [(0, 404), (1, 200), (names.len() - 1, 200)] {
        let line = format!("POST /sessions/{}/api/offer HTTP/1.1", names[nth]);
        let offer = json!({"sdp": OFFER}).to_string();
        assert_eq!(client.ask(&line, &offer).await.status, status, "{nth}");
    }
}

/// R-040, R-101: HEAD answers like GET, without the body.
#[tokio::test]
async fn redirects_and_heads() {
    let runner = Runner::start().await;
    for path in ["/", "/client", "/?x=1"] {
        for method in ["GET", "HEAD"] {
            let reply = runner.ask(&format!("{method} {path} HTTP/1.1"), "").await;
            assert_eq!(
                (reply.status, reply.header("location")),
                (307, Some("/client/")),
                "{method} {path}"
            );
        }
    }
    for path in ["/status", "/client/"] {
        let mut client = runner.client().await;
        let get = client.ask(&format!("GET {path} HTTP/1.1"), "").await;
        let head = client.ask(&format!("HEAD {path} HTTP/1.1"), "").await;
        assert_eq!(
            (head.status, head.header("content-length")),
            (200, get.header("content-length"))
        );
        assert_eq!(
            client.ask("GET /status HTTP/1.1", "").await.status,
            200,
            "no body follows a HEAD"
        );
    }
}

/// R-041: the page is compressed on request, validated by ETag, and has security headers.
#[tokio::test]
async fn the_page_is_served() {
    let runner = Runner::start().await;
    let plain = runner.ask("GET /client/ HTTP/1.1", "").await;
    assert_eq!(
        (plain.status, plain.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    assert_eq!(plain.header("content-encoding"), None);
    assert!(String::from_utf8_lossy(&plain.body).contains("<!doctype html>"));
    for (name, value) in [
        (
            "content-security-policy",
            crate::page::content_security_policy(None).as_str(),
        ),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-cache"),
        ("vary", "Accept-Encoding"),
    ] {
        assert_eq!(plain.header(name), Some(value));
    }
    let packed = runner
        .ask("GET /client/ HTTP/1.1\r\nAccept-Encoding: gzip, br", "")
        .await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(packed.body[..3], [0x1f, 0x8b, 8]);

    let tag = packed.header("etag").expect("a tag").to_owned();
    let known = runner
        .ask(&format!("GET /client/ HTTP/1.1\r\nIf-None-Match: {tag}"), "")
        .await;
    assert_eq!(
        (known.status, known.header("etag"), known.body.len()),
        (304, Some(tag.as_str()), 0)
    );
    for path in [
        "/client/none.js",
        "/client/../status",
        "/client/%2e%2e/status",
        "/client/mod.rs",
    ] {
        assert_eq!(
            runner.ask(&format!("GET {path} HTTP/1.1"), "").await.refusal().0,
            404,
            "{path}"
        );
    }
}

#[tokio::test]
async fn wrong_methods_and_unknown_paths_are_distinguished() {
    let runner = Runner::start().await;
    for (request, allow) in [
        ("GET /start", "POST, OPTIONS"),
        ("POST /", "GET, HEAD, OPTIONS"),
        ("PUT /status", "GET, HEAD, OPTIONS"),
        ("GET /api/offer", "POST, PATCH, OPTIONS"),
        ("DELETE /sessions/x/api/offer", "POST, PATCH, OPTIONS"),
    ] {
        let reply = runner.ask(&format!("{request} HTTP/1.1"), "").await;
        assert_eq!(
            (reply.refusal().0, reply.header("allow")),
            (405, Some(allow)),
            "{request}"
        );
    }
    let options = runner.ask("OPTIONS /start HTTP/1.1", "").await;
    assert_eq!((options.status, options.header("allow")), (204, Some("POST, OPTIONS")));
    assert_eq!(runner.ask("GET /none HTTP/1.1", "").await.refusal().0, 404);
}

/// R-086: without a list, every origin may read every response, errors included.
#[tokio::test]
async fn every_origin_may_read_responses_without_a_list() {
    let runner = Runner::start().await;
    for request in ["GET /status", "GET /none", "GET /start", "POST /start"] {
        let reply = runner
            .ask(&format!("{request} HTTP/1.1\r\nOrigin: https://a.example"), "")
            .await;
        assert_eq!(
            reply.header("access-control-allow-origin"),
            Some("https://a.example"),
            "{request}"
        );
        assert_eq!(reply.header("access-control-allow-credentials"), None);
        assert_eq!(reply.header("vary"), Some("Origin"));
    }
    let unnamed = runner.ask("GET /status HTTP/1.1", "").await;
    assert_eq!(unnamed.header("access-control-allow-origin"), None);
}

const PREFLIGHT: &str = "OPTIONS /sessions/x/api/offer HTTP/1.1\r\nAccess-Control-Request-Method: PATCH";

/// A preflight is answered for any path, with what it asked for.
#[tokio::test]
async fn preflights_are_answered() {
    let runner = Runner::start().await;
    let asked = format!(
        "{PREFLIGHT}\r\nOrigin: https://a.example\r\nAccess-Control-Request-Headers: authorization,content-type\r\n\
         Access-Control-Request-Private-Network: true"
    );
    let reply = runner.ask(&asked, "").await;
    assert_eq!(reply.status, 200);
    for (name, value) in [
        ("access-control-allow-origin", "https://a.example"),
        ("access-control-allow-headers", "authorization,content-type"),
        ("access-control-max-age", "600"),
        ("vary", "Origin"),
    ] {
        assert_eq!(reply.header(name), Some(value));
    }
    // An unlisted page gets no access to the private network.
    assert_eq!(reply.header("access-control-allow-private-network"), None);
    let own = format!("{PREFLIGHT}\r\nOrigin: http://localhost:1\r\nAccess-Control-Request-Private-Network: true");
    let own = runner.ask(&own, "").await;
    assert_eq!(own.header("access-control-allow-private-network"), Some("true"));
    let methods = reply.header("access-control-allow-methods").expect("methods");
    for method in ["GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "HEAD"] {
        assert!(methods.split(", ").any(|allowed| allowed == method), "{method}");
    }
    let plain = runner
        .ask(&format!("{PREFLIGHT}\r\nOrigin: https://a.example"), "")
        .await;
    assert_eq!(plain.header("access-control-allow-headers"), None);
    assert_eq!(plain.header("access-control-allow-private-network"), None);
}

/// R-085: with a list, a missing or foreign origin is rejected everywhere but on the page.
#[tokio::test]
async fn a_list_of_origins_restricts_everything_but_the_page() {
    let config = crate::proto::config! {
        allowed_origins: vec!["https://a.example".into()],
        ..config()
    };
    let runner = Runner::with(config, ConnLimits::default()).await;
    for origin in [
        "",
        "\r\nOrigin: https://b.example",
        "\r\nOrigin: https://a.example\r\nOrigin: https://a.example",
    ] {
        for request in [
            "GET /status",
            "POST /start",
            "POST /api/offer",
            "PATCH /api/offer",
            "GET /none",
            "OPTIONS /start",
        ] {
            let reply = runner.ask(&format!("{request} HTTP/1.1{origin}"), "").await;
            assert_eq!(reply.refusal().0, 403, "{request}{origin}");
            assert_eq!(reply.header("access-control-allow-origin"), None);
        }
        for (request, status) in [
            ("GET /", 307),
            ("GET /client/", 200),
            ("HEAD /", 307),
            ("GET /client/none", 404),
        ] {
            let reply = runner.ask(&format!("{request} HTTP/1.1{origin}"), "").await;
            assert_eq!(reply.status, status, "{request}{origin}");
            assert_eq!(reply.header("access-control-allow-origin"), None);
        }
    }
    assert_eq!(runner.ask("HEAD /status HTTP/1.1", "").await.status, 403);
    let allowed = runner
        .ask("POST /start HTTP/1.1\r\nOrigin: HTTPS://A.example", "{}")
        .await;
    assert_eq!(
        (allowed.status, allowed.header("access-control-allow-origin")),
        (200, Some("HTTPS://A.example"))
    );

    let preflight = runner
        .ask(&format!("{PREFLIGHT}\r\nOrigin: https://b.example"), "")
        .await;
    assert_eq!(preflight.refusal(), (400, "Disallowed CORS origin".into()));
    assert_eq!(preflight.header("access-control-allow-origin"), None);
    assert_eq!(
        runner
            .ask(&format!("{PREFLIGHT}\r\nOrigin: https://a.example"), "")
            .await
            .status,
        200
    );
}

/// JSON is accepted under any content type but a form's, and not compressed.
#[tokio::test]
async fn content_types_of_bodies() {
    let runner = Runner::start().await;
    for kind in [
        "application/json",
        "text/plain",
        "",
        "x/y; charset=utf-8",
        "application/json; charset=\"form\"",
    ] {
        let reply = runner
            .ask(&format!("POST /start HTTP/1.1\r\nContent-Type: {kind}"), "{}")
            .await;
        assert_eq!(reply.status, 200, "{kind}");
    }
    for kind in ["application/x-www-form-urlencoded", "Multipart/Form-Data; boundary=x"] {
        for path in ["/start", "/api/offer"] {
            let reply = runner
                .ask(&format!("POST {path} HTTP/1.1\r\nContent-Type: {kind}"), "a=b")
                .await;
            assert_eq!(reply.refusal().0, 415, "{kind}");
        }
    }
    // ESP-IDF's HTTP client declares this type by default. It is accepted for offers only.
    let urlencoded = "Content-Type: application/x-www-form-urlencoded";
    for (path, status) in [("/api/offer", 400), ("/start", 415)] {
        let reply = runner
            .ask(&format!("POST {path} HTTP/1.1\r\n{urlencoded}"), " {\"sdp\":\"v=0\"}")
            .await;
        assert_eq!(reply.status, status, "{path}");
    }
    assert_eq!(
        runner
            .ask("POST /start HTTP/1.1\r\nContent-Encoding: gzip", "{}")
            .await
            .refusal()
            .0,
        415
    );
    assert_eq!(
        runner
            .ask("POST /start HTTP/1.1\r\nContent-Encoding: identity", "{}")
            .await
            .status,
        200
    );
}

/// Old clients and single requests: no keep-alive unless requested.
#[tokio::test]
async fn connections_close_on_request() {
    let runner = Runner::start().await;
    for request in [
        "GET /status HTTP/1.0\r\n\r\n",
        "GET /status HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ] {
        let mut client = runner.client().await;
        client.send(request).await;
        assert_eq!(client.reply().await.status, 200);
        assert_eq!(client.rest().await, b"");
    }
    let mut client = runner.client().await;
    for _ in 0..3 {
        assert_eq!(client.ask("GET /status HTTP/1.1", "").await.status, 200);
    }
}

/// The request of a microcontroller, byte for byte.
#[tokio::test]
async fn the_request_of_a_device_is_answered() {
    let runner = Runner::start().await;
    let sdp = json!(include_str!("../../../../tests/data/sdp/device.offer.sdp"));
    let body = format!("{{\n\t\"sdp\":\t{sdp},\n\t\"type\":\t\"offer\"\n}}");
    let head = "POST /api/offer HTTP/1.1\r\nUser-Agent: ESP32 HTTP Client/1.0\r\nContent-Type: application/json";
    let reply = runner.ask(head, &body).await;
    assert_eq!((reply.status, &reply.json()["type"]), (200, &json!("answer")));
}
