//! Untrusted requests: with foreign host names, from foreign pages, without the key, and with text
//! meant for the log. The real binary, over loopback.

use std::net::SocketAddr;

use edge_runner_proto::limits;
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::http::{self, Reply};
use crate::support::runner::TestRunner;
use crate::support::socket::{ConnectOptions, Socket, SocketEvent};

/// One request for every endpoint and for some unknown paths; method and target.
const EVERYWHERE: [(&str, &str); 14] = [
    ("GET", "/"),
    ("GET", "/client/"),
    ("HEAD", "/client/app.js"),
    ("GET", "/status"),
    ("POST", "/start"),
    ("POST", "/api/offer"),
    ("PATCH", "/api/offer"),
    ("POST", "/sessions/x/api/offer"),
    ("POST", "/"),
    ("GET", "/ws"),
    ("GET", "/ws-client/token"),
    ("GET", "/metrics"),
    ("BREW", "/none"),
    ("OPTIONS", "*"),
];

/// Sends a request with exactly these header lines, `Host` included.
fn send(addr: SocketAddr, line: &str, headers: &[&str], body: &str) -> Reply {
    let mut request = format!("{line}\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        request.push_str(header);
        request.push_str("\r\n");
    }
    http::exchange(addr, format!("{request}\r\n{body}").as_bytes()).expect("the runner answers")
}

fn post(addr: SocketAddr, target: &str, headers: &[&str], body: &Value) -> Reply {
    http::request(addr, "POST", target, headers, body.to_string().as_bytes()).expect("the runner answers")
}

const JSON: &str = "Content-Type: application/json";

/// A foreign host name gets 421 with a message on every route, upgrades and preflights included.
#[test]
fn every_endpoint_rejects_a_foreign_host() {
    let runner = TestRunner::start(&["--allowed-hosts", "bots.example.org"]);
    let upgrade = [
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let preflight = ["Origin: https://a.example", "Access-Control-Request-Method: POST"];
    for (method, target) in EVERYWHERE {
        for host in [
            "evil.example",
            "evil.example:7860",
            "",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "u@localhost",
        ] {
            for more in [&[][..], &upgrade, &preflight] {
                let host = format!("Host: {host}");
                let headers: Vec<&str> = more.iter().copied().chain([host.as_str()]).collect();
                let reply = send(runner.addr, &format!("{method} {target} HTTP/1.1"), &headers, "");
                assert_eq!(reply.status, 421, "{method} {target} {headers:?}");
                if method != "HEAD" {
                    let detail = reply.json()["detail"].as_str().map(str::to_owned);
                    assert!(
                        detail.is_some_and(|detail| detail.contains("--allowed-hosts")),
                        "{method} {target}"
                    );
                }
            }
        }
        if target != "*" {
            let line = format!("{method} http://evil.example{target} HTTP/1.1");
            assert_eq!(send(runner.addr, &line, &["Host: localhost"], "").status, 421, "{line}");
        }
    }
    for host in [
        "localhost",
        "Localhost.:1",
        "a.localhost",
        "127.0.0.1:9",
        "[::1]",
        "pi.local",
        "bots.example.org:443",
    ] {
        let reply = send(runner.addr, "GET /status HTTP/1.1", &[&format!("Host: {host}")], "");
        assert_eq!(reply.status, 200, "{host}");
    }
    assert_eq!(send(runner.addr, "GET /status HTTP/1.0", &[], "").status, 200);
    assert_eq!(
        send(
            runner.addr,
            "GET /status HTTP/1.1",
            &["Host: localhost", "Host: evil.example"],
            ""
        )
        .status,
        400
    );
    // The accepted name is used for the redirect, unchanged.
    let reply = send(
        runner.addr,
        "POST /start HTTP/1.1",
        &["Host: Pi.LOCAL:99", JSON],
        r#"{"transport":"websocket"}"#,
    );
    assert_eq!(reply.json()["wsUrl"], "ws://Pi.LOCAL:99/ws-client");
}

/// Providers use the public name, which `--proxy` sets.
#[test]
fn the_public_name_is_accepted() {
    let runner = TestRunner::start(&["-t", "twilio", "--proxy", "Bots.example.net:8443"]);
    let form = "Content-Type: application/x-www-form-urlencoded";
    for (host, status) in [
        ("bots.example.net", 200),
        ("bots.example.net:8443", 200),
        ("other.example.net", 421),
    ] {
        let reply = send(
            runner.addr,
            "POST / HTTP/1.1",
            &[&format!("Host: {host}"), form],
            "CallSid=CA1",
        );
        assert_eq!(reply.status, status, "{host}");
    }
}

/// R-086: a cross-site request that needs no preflight is rejected with a message for the
/// developer; one that has a preflight is accepted. Programs, devices and same-origin pages need
/// none.
#[test]
fn a_cross_site_page_cannot_start_a_session() {
    let runner = TestRunner::start(&["-t", "telephony_d"]);
    let evil = "Origin: https://evil.example";
    let form = "Content-Type: application/x-www-form-urlencoded";
    for target in [
        "/start",
        "/start?x",
        "/api/offer",
        "/sessions/x/api/offer",
        "/",
        "/none",
    ] {
        for headers in [
            &[evil][..],
            &[evil, "Content-Type: text/plain;charset=UTF-8"],
            &[evil, form],
            &["Origin: null"],
            &["Sec-Fetch-Site: cross-site"],
        ] {
            let reply = post(runner.addr, target, headers, &json!({}));
            assert_eq!(reply.status, 403, "{target} {headers:?}");
            let detail = reply.json()["detail"].as_str().map(str::to_owned);
            assert!(detail.is_some_and(|detail| detail.contains("application/json")));
            let origin = headers[0].strip_prefix("Origin: ");
            assert_eq!(
                reply.header("access-control-allow-origin"),
                origin,
                "a developer can read it"
            );
        }
    }
    for headers in [
        &[][..],
        &[form],
        &[evil, JSON],
        &["Origin: null", JSON],
        &[evil, "Authorization: Bearer x"],
        &["Origin: http://localhost:5173"],
        &["Origin: http://192.168.1.2:3000", "Sec-Fetch-Site: cross-site"],
        &["Sec-Fetch-Site: same-origin"],
    ] {
        let reply = post(runner.addr, "/", headers, &json!({}));
        assert_eq!(reply.status, 200, "{headers:?}");
    }
    let start = post(
        runner.addr,
        "/start",
        &[evil, JSON, "Sec-Fetch-Site: cross-site"],
        &json!({}),
    );
    assert_eq!(
        (start.status, start.header("access-control-allow-origin")),
        (200, Some("https://evil.example"))
    );
    // Without a list, sockets of every origin are accepted.
    let habits = ConnectOptions {
        headers: &[("origin", "https://any.example")],
        ..ConnectOptions::default()
    };
    assert!(Socket::try_connect(runner.addr, "/ws-client", habits).is_ok());
}

/// Silent sockets hold no session slot, so any number of them blocks no caller. Above their cap the
/// oldest is closed with a message. A call whose slot was taken meanwhile is told to retry, and the
/// next one is told before its upgrade.
#[test]
fn silent_sockets_do_not_block_callers() {
    let runner = TestRunner::start(&["--bot", "echo", "--max-sessions", "1"]);
    let mut silent: Vec<Socket> = (0..limits::HANDSHAKES_MAX)
        .map(|_| Socket::connect(runner.addr, "/ws"))
        .collect();
    assert_eq!(runner.sessions(), 0);
    let newest = Socket::connect(runner.addr, "/ws");
    let (code, why) = closed(&mut silent[0]);
    assert_eq!((code, why.as_str()), (1013, "it gave way to newer connections"));
    let opening = json!({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": {
        "accountSid": "AC1", "streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"], "customParameters": {},
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}}});
    let connected = json!({"event": "connected", "protocol": "Call", "version": "1.0.0"});
    let call = |socket: &Socket| {
        socket.text(connected.to_string());
        socket.text(opening.to_string());
    };
    call(&newest);
    runner.wait_for_sessions(1);
    call(&silent[1]);
    let (code, why) = closed(&mut silent[1]);
    assert_eq!((code, why.as_str()), (1013, "all places are taken; try again later"));
    let refused = Socket::try_connect(runner.addr, "/ws", ConnectOptions::default())
        .err()
        .expect("it is full");
    assert_eq!(refused.status, 503);
    assert!(
        refused.headers.iter().any(|(name, _)| name == "retry-after"),
        "{refused:?}"
    );
    newest.close(1000);
    runner.wait_for_sessions(0);
    call(&silent[2]);
    runner.wait_for_sessions(1);
}

/// Waits for the runner's close frame.
fn closed(socket: &mut Socket) -> (u16, String) {
    match socket.next("a close").event {
        SocketEvent::Close(code, why) => (code, why),
        other => panic!("{other:?} and no close"),
    }
}

/// A client's log lines are limited per minute, and its sessions go on.
#[test]
fn log_lines_of_a_client_are_capped() {
    const CALLS: usize = 2 * limits::LINES_PER_CALLER_MAX as usize;
    let runner = TestRunner::start(&["--bot", "echo"]);
    for _ in 0..CALLS {
        let mut client = Client::connect(runner.addr, "/ws-client");
        assert_eq!(client.ask("1", &json!(1))["data"]["d"], 1);
        client.socket.close(1000);
        client.end();
    }
    runner.wait_for_sessions(0);
    let log = runner.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("session started") || line.contains("session ended"));
    // On a slow machine the test may take three minutes and see three times as many.
    let (written, share) = (lines.count(), limits::LINES_PER_CALLER_MAX as usize);
    assert!(
        (share..=3 * share).contains(&written),
        "{written} lines of {}",
        2 * CALLS
    );
}

/// Control characters and escape sequences that could deceive a terminal or a log reader.
const EVIL: &str = "\u{1b}[2J\u{7}\r\n2026-11-21T00:00:00.000Z ERROR forged: line\u{0}\u{85}\u{2028}\u{202e}\u{9b}31m";

/// Hostile text in every field that takes text, at TRACE level: every log line has its prefix, and
/// none contains a control character.
#[test]
fn request_text_cannot_forge_a_log_line() {
    let runner = TestRunner::start(&["-v", "-v", "-v", "--bot", "echo"]);
    let addr = runner.addr;
    let escaped = "%1b[2J%0d%0aforged%00%c2%85%e2%80%a8";
    for target in [
        format!("/{escaped}"),
        format!("/client/{escaped}"),
        format!("/client/..%2f..%2f{escaped}"),
        format!("/sessions/{escaped}/api/offer"),
        format!("/ws/{escaped}"),
        format!("/status?{escaped}"),
        format!("/ws-client?sessionId={escaped}"),
    ] {
        for method in ["GET", "POST"] {
            http::request(addr, method, &target, &[JSON], b"{}").expect("an answer");
        }
        drop(Socket::try_connect(addr, &target, ConnectOptions::default()));
    }
    // Raw bytes in a target and in headers are rejected or escaped.
    for request in [
        &b"GET /\x1b[2J HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"[..],
        b"GET /\xc2\x85\xe2\x80\xa8 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"BR\x1bEW / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: local\x1bhost\r\nConnection: close\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: \xe2\x80\xae.local\r\nConnection: close\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: localhost\r\nOrigin: \xe2\x80\xae\r\nConnection: close\r\n\r\n",
    ] {
        let _ = http::exchange(addr, request);
    }
    for body in [
        json!({"transport": EVIL}),
        json!({"transport": 1, EVIL: EVIL}),
        json!({"body": EVIL, "transport": "webrtc"}),
        json!(EVIL),
    ] {
        post(addr, "/start", &[JSON], &body);
    }
    http::request(addr, "POST", "/start", &[JSON], EVIL.as_bytes()).expect("an answer");
    offers(addr);
    calls(addr);
    for target in ["/ws-client", "/ws"] {
        let socket = Socket::connect(addr, target);
        socket.message(EVIL);
        socket.message(&json!({"label": "rtvi-ai", "type": EVIL, "id": EVIL, "data": {"t": EVIL}}).to_string());
        socket.text(EVIL);
        socket.binary(EVIL.as_bytes().to_vec());
    }
    runner.wait_for_sessions(0);
    let log = runner.log();
    let is_forged = |line: &&str| {
        let begins = line
            .get(..25)
            .is_some_and(|time| time.ends_with("Z ") && time.as_bytes()[10] == b'T');
        let level = line.get(25..31).unwrap_or_default().trim_end();
        !begins
            || !["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level)
            || line.starts_with("2026-11-21T00:00:00.000Z")
            || line
                .chars()
                .any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}'))
    };
    let forged: Vec<&str> = log.lines().filter(is_forged).collect();
    assert!(forged.is_empty(), "{forged:?}");
    assert!(log.contains("forged"), "something of it was logged");
}

/// Offers and candidates with such text in the SDP and in the fields beside it.
fn offers(addr: SocketAddr) {
    let sdp = include_str!("data/sdp/chrome.offer.sdp")
        .replace('\n', "\r\n")
        .replace("\r\r", "\r");
    let line = EVIL.replace(['\r', '\n', '\0'], " ");
    let ufrag = sdp
        .lines()
        .find_map(|line| line.strip_prefix("a=ice-ufrag:"))
        .expect("it has one")
        .to_owned();
    for bad in [
        sdp.replace("s=-", &format!("s={line}")),
        sdp.replace("s=-", &format!("s={EVIL}")),
        sdp.replace(&format!("ice-ufrag:{ufrag}"), &format!("ice-ufrag:{line}")),
        sdp.replace("a=mid:0", &format!("a=mid:{line}")),
        sdp.replace("a=setup:actpass", &format!("a=setup:{line}")),
        sdp.replace("a=sendrecv", &format!("a={line}:{line}")),
        format!("{sdp}a=candidate:{line} 1 udp 1 192.0.2.1 9 typ {line}\r\n"),
        EVIL.to_owned(),
    ] {
        assert_ne!(bad, sdp);
        let reply = post(
            addr,
            "/api/offer",
            &[JSON],
            &json!({"sdp": bad, "request_data": EVIL, "pc_id": EVIL}),
        );
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(!text.chars().any(|c| c.is_control()), "{text:?}");
        let Some(pc_id) = reply.json()["pc_id"].as_str().map(str::to_owned) else {
            continue;
        };
        for candidate in [
            format!("candidate:{line} 1 udp 1 192.0.2.1 9 typ host"),
            EVIL.to_owned(),
        ] {
            let body = json!({"pc_id": pc_id, "candidates": [{"candidate": candidate, "sdp_mid": line, "sdp_mline_index": 0}]});
            http::request(addr, "PATCH", "/api/offer", &[JSON], body.to_string().as_bytes()).expect("an answer");
        }
    }
    let body = json!({"pc_id": EVIL, "candidates": []});
    http::request(addr, "PATCH", "/api/offer", &[JSON], body.to_string().as_bytes()).expect("an answer");
}

/// Calls with such text in their messages.
fn calls(addr: SocketAddr) {
    for text in [
        include_str!("data/telephony/twilio.jsonl"),
        include_str!("data/telephony/telnyx.jsonl"),
        include_str!("data/telephony/plivo.jsonl"),
        include_str!("data/telephony/exotel.jsonl"),
    ] {
        let opening: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        for spoil in ["encoding", "", "event"] {
            let socket = Socket::connect(addr, "/ws");
            for message in &opening {
                let mut message = message.clone();
                inject_into_strings(&mut message, spoil);
                socket.text(message.to_string());
            }
            let error =
                json!({"event": "error", "stream_id": EVIL, "payload": {"code": EVIL, "title": EVIL, "detail": EVIL}});
            socket.text(error.to_string());
            socket.text(json!({"event": EVIL, "dtmf": {"digit": EVIL}, "mark": {"name": EVIL}}).to_string());
        }
    }
}

/// Adds the text to every string with that name, or to any but those that select a message type.
fn inject_into_strings(value: &mut Value, name: &str) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text)
                        if key == name || name.is_empty() && !matches!(key.as_str(), "event" | "encoding") =>
                    {
                        text.push_str(EVIL);
                    }
                    value => inject_into_strings(value, name),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| inject_into_strings(item, name)),
        _ => {}
    }
}

const KEY: &str = "canary-0123456789abcdef";

/// R-085: with `--api-key`, what starts a session needs the key, and nothing else does. The id from
/// `/start` admits the offers of that session.
#[test]
fn only_requests_with_the_key_start_sessions() {
    let runner = TestRunner::start(&["-v", "-v", "--api-key", KEY]);
    let with = format!("Authorization: Bearer {KEY}");
    let offers = ["/api/offer", "/sessions/none/api/offer"];
    for target in ["/start"].iter().chain(&offers) {
        for method in ["POST", "PATCH"] {
            if (method, *target) == ("PATCH", "/start") {
                continue;
            }
            for header in [
                "X-None: 1",
                "Authorization: Bearer",
                "Authorization: Bearer canary-0123456789abcdeX",
                "Authorization: Basic canary-0123456789abcdef",
                &format!("Authorization:{KEY}"),
                &format!("Authorization: Bearer {KEY}x"),
                &format!("Authorization: Bearer{KEY}"),
                &format!("X-Api-Key: {KEY}"),
            ] {
                let reply = http::request(runner.addr, method, target, &[header, JSON], b"{}").expect("an answer");
                assert_eq!(reply.status, 401, "{method} {target} {header}");
                assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
                assert!(
                    reply.json()["detail"]
                        .as_str()
                        .is_some_and(|detail| detail.contains("Bearer"))
                );
            }
            let reply = http::request(runner.addr, method, target, &[&with, JSON], b"{\"sdp\":1}").expect("an answer");
            assert_ne!(reply.status, 401, "{method} {target}");
        }
    }
    // The key as the value of any field, in a path, and in an invalid head.
    for body in [json!({"sdp": 1, "x": KEY}), json!({"sdp": 1, "apiKey": KEY})] {
        assert_eq!(post(runner.addr, "/api/offer", &[&with, JSON], &body).status, 422);
    }
    http::get(runner.addr, &format!("/none/{KEY}?key={KEY}"));
    let _ = http::exchange(
        runner.addr,
        format!("GET /status HTTP/1.1\r\nAuthorization {KEY}\r\n\r\n").as_bytes(),
    );
    let started = post(runner.addr, "/start", &[&with, JSON], &json!({})).json();
    let path = format!("/sessions/{}/api/offer", started["sessionId"].as_str().expect("an id"));
    assert_eq!(
        post(runner.addr, &path, &[JSON], &json!({"sdp": 1})).status,
        422,
        "the name of a session is as good"
    );
    for (method, target, status) in [
        ("GET", "/status", 200),
        ("GET", "/", 307),
        ("GET", "/client/", 200),
        ("GET", "/start", 405),
    ] {
        let reply = http::request(runner.addr, method, target, &[], b"").expect("an answer");
        assert_eq!(reply.status, status, "{target}");
    }
    let preflight = [
        "Origin: https://a.example",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: authorization",
    ];
    let reply = http::request(runner.addr, "OPTIONS", "/start", &preflight, b"").expect("an answer");
    assert_eq!(
        (reply.status, reply.header("access-control-allow-headers")),
        (200, Some("authorization"))
    );
    assert!(!runner.log().contains("canary"), "the key is in the log");
}
