//! Upgrades, tokens and telephony webhooks, byte for byte over loopback.

use serde_json::json;

use super::*;
use crate::config::{Settings, Telephony, Transport};
use crate::proto::telephony::{PROVIDERS, Provider};

const UPGRADE: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";

impl Runner {
    /// Requests an upgrade and closes; returns the error, if any.
    async fn upgrade(&self, target: &str, more: &str) -> Result<(), (u16, String)> {
        self.upgraded(target, more, &[]).await.map(drop)
    }

    /// Requests an upgrade, sends these bytes with it, and keeps the connection.
    async fn upgraded(&self, target: &str, more: &str, early: &[u8]) -> Result<Client, (u16, String)> {
        let mut client = self.client().await;
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n{more}\r\n");
        client.send([request.as_bytes(), early].concat()).await;
        let reply = client.head().await;
        if reply.status != 101 {
            let length = reply
                .header("content-length")
                .expect("a length")
                .parse()
                .expect("a number");
            while client.read.len() < length {
                assert!(client.more().await, "the body ended early");
            }
            let body: Value = serde_json::from_slice(&client.read[..length]).expect("a body in JSON");
            return Err((reply.status, body["detail"].as_str().expect("a detail").to_owned()));
        }
        assert_eq!(
            reply.header("upgrade").map(str::to_lowercase).as_deref(),
            Some("websocket")
        );
        // RFC 6455 section 1.3.
        assert_eq!(
            reply.header("sec-websocket-accept"),
            Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        );
        Ok(client)
    }
}

fn with_tokens() -> Config {
    crate::proto::config! {
        ws_tokens: true,
        ..config()
    }
}

/// R-048, R-051, R-066: an upgrade starts a session, and bytes sent with the request reach it.
#[tokio::test]
async fn an_upgrade_starts_a_session_and_keeps_early_bytes() {
    let runner = Runner::start().await;
    // A client's frame with a zero mask.
    let message = crate::proto::sockets::frames::message("early");
    let length = u8::try_from(message.len()).expect("a short message");
    let early = [&[0x82, 0x80 | length, 0, 0, 0, 0][..], &message].concat();
    for target in ["/ws-client", "/ws-client/", "/ws-client/x?token=y"] {
        let _client = runner.upgraded(target, "", &early).await.expect("an upgrade");
        let mut begun = runner.begun().await;
        assert_eq!(begun.body, json!({}));
        assert_eq!(begun.said.recv().await.as_deref(), Some("early"));
    }
    for target in ["/ws", "/ws/any-token"] {
        runner.upgrade(target, "").await.expect("an upgrade");
    }
}

/// R-065: the bot of the session that `/start` returned gets the body; without its id the session
/// is a new one.
#[tokio::test]
async fn a_session_id_selects_the_body() {
    let runner = Runner::start().await;
    let started = runner
        .post("/start", json!({"transport": "websocket", "body": {"a": 1}}))
        .await
        .json();
    assert_eq!(started["wsUrl"], json!("ws://localhost/ws-client"));
    assert_eq!(started.get("token"), None, "clients refuse a null");
    let id = started["sessionId"].as_str().expect("an id");
    runner
        .upgrade(&format!("/ws-client?sessionId={id}"), "")
        .await
        .expect("an upgrade");
    assert_eq!(runner.begun().await.given(), (id.to_owned(), json!({"a": 1})));
    let unknown = runner
        .upgrade("/ws-client?sessionId=unknown", "")
        .await
        .expect_err("unknown");
    assert_eq!(unknown.0, 404);
    // A call's data comes from its provider.
    runner.upgrade("/ws?sessionId=unknown", "").await.expect("an upgrade");
}

/// A WebSocket path without a valid upgrade is answered with what it expects.
#[tokio::test]
async fn a_plain_request_has_to_upgrade() {
    let runner = Runner::start().await;
    for head in [
        "GET /ws HTTP/1.1".to_owned(),
        format!(
            "GET /ws-client HTTP/1.1\r\n{}",
            UPGRADE.replace("Version: 13", "Version: 8")
        ),
        format!("GET /ws HTTP/1.1\r\n{}", UPGRADE.replace("Sec-WebSocket-Key", "X-Key")),
    ] {
        let reply = runner.ask(&head, "").await;
        assert_eq!(reply.refusal().0, 426, "{head}");
        assert_eq!(reply.header("sec-websocket-version"), Some("13"));
    }
}

/// R-085: with a list, an upgrade without an allowed origin is rejected.
#[tokio::test]
async fn an_upgrade_with_a_foreign_origin_is_rejected() {
    let listed = crate::proto::config! {
        allowed_origins: vec!["https://app.example.net".into()],
        ..config()
    };
    let runner = Runner::with(listed, ConnLimits::default()).await;
    assert_eq!(runner.upgrade("/ws", "").await.expect_err("no origin").0, 403);
    let foreign = runner.upgrade("/ws-client", "Origin: https://evil.example\r\n").await;
    assert_eq!(foreign.expect_err("a foreign origin").0, 403);
    let own = runner
        .upgrade("/ws-client", "Origin: https://app.example.net\r\n")
        .await;
    assert!(own.is_ok());
}

/// A token opens one socket of its kind, once, by path, header or query, and selects the body of
/// `/start`.
#[tokio::test]
async fn tokens_open_one_socket_each() {
    let runner = Runner::with(with_tokens(), ConnLimits::default()).await;
    for target in ["/ws", "/ws-client", "/ws-client?token=", "/ws-client/abc.def"] {
        assert_eq!(
            runner.upgrade(target, "").await.expect_err("no token").0,
            403,
            "{target}"
        );
    }
    for (form, header) in [
        ("/ws-client/TOKEN", ""),
        ("/ws-client?token=TOKEN", ""),
        ("/ws-client", "Authorization: Bearer TOKEN\r\n"),
    ] {
        let started = runner
            .post("/start", json!({"transport": "websocket", "body": [form]}))
            .await
            .json();
        let token = started["token"].as_str().expect("a token");
        let (target, more) = (form.replace("TOKEN", token), header.replace("TOKEN", token));
        let elsewhere = target.replace("/ws-client", "/ws");
        assert_eq!(
            runner.upgrade(&elsewhere, &more).await.expect_err("another family").0,
            403
        );
        runner.upgrade(&target, &more).await.expect("an upgrade");
        let id = started["sessionId"].as_str().expect("an id");
        assert_eq!(runner.begun().await.given(), (id.to_owned(), json!([form])));
        assert_eq!(runner.upgrade(&target, &more).await.expect_err("used").0, 403);
    }
    let call = runner.post("/start", json!({"transport": "twilio"})).await.json();
    assert_eq!(call["wsUrl"], json!("ws://localhost/ws"));
    assert_eq!(call.get("sessionId"), None);
    let token = call["token"].as_str().expect("a token");
    runner.upgrade(&format!("/ws/{token}"), "").await.expect("an upgrade");
}

/// An invalid token or session id takes no slot and evicts no session. Without a free slot, token
/// and session stay valid for another attempt.
#[tokio::test]
async fn a_slot_is_taken_before_a_token_is_consumed() {
    let runner = Runner::with(with_tokens(), ConnLimits::default()).await;
    let started = runner
        .post("/start", json!({"transport": "websocket", "body": "kept"}))
        .await
        .json();
    let token = started["token"].as_str().expect("a token");
    let altered = format!("{token}0");
    let full = runner.fill();
    for target in [
        "/ws-client",
        "/ws",
        &format!("/ws/{token}"),
        &format!("/ws-client/{altered}"),
    ] {
        assert_eq!(
            runner.upgrade(target, "").await.expect_err("refused").0,
            403,
            "{target}"
        );
    }
    let target = format!("/ws-client?token={token}");
    for _ in 0..2 {
        assert_eq!(runner.upgrade(&target, "").await.expect_err("no place").0, 503);
    }
    drop(full);
    let _client = runner
        .upgraded(&target, "", &[])
        .await
        .expect("the token is still good");
    let begun = runner.begun().await;
    assert_eq!(begun.body, json!("kept"));
    let _full = runner.fill();
    assert_eq!(runner.upgrade(&target, "").await.expect_err("used").0, 403);

    let runner = Runner::start().await;
    let _full = runner.fill();
    let unknown = runner.upgrade("/ws-client?sessionId=unknown", "").await;
    assert_eq!(unknown.expect_err("unknown").0, 404);
}

/// Of many concurrent upgrades with one token, one succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_concurrent_uses_of_a_token_succeeds() {
    let runner = Arc::new(Runner::with(with_tokens(), ConnLimits::default()).await);
    for transport in ["websocket", "twilio"] {
        let started = runner.post("/start", json!({"transport": transport})).await.json();
        let path = if transport == "twilio" { "/ws" } else { "/ws-client" };
        let target = format!("{path}/{}", started["token"].as_str().expect("a token"));
        let tries: Vec<_> = (0..16)
            .map(|_| {
                let (runner, target) = (runner.clone(), target.clone());
                tokio::spawn(async move { runner.upgrade(&target, "").await })
            })
            .collect();
        let mut opened = 0;
        for tried in tries {
            match tried.await.expect("no panic") {
                Ok(_) => opened += 1,
                Err((status, detail)) => assert!(status == 403 && detail.contains("used before"), "{status} {detail}"),
            }
        }
        assert_eq!(opened, 1);
    }
}

/// Forwarded headers count when the proxy is on this machine.
#[tokio::test]
async fn a_secure_client_gets_a_secure_url() {
    let runner = Runner::start().await;
    let head = "POST /start HTTP/1.1\r\nX-Forwarded-Proto: https";
    let reply = runner.ask(head, r#"{"transport":"websocket"}"#).await.json();
    assert_eq!(reply["wsUrl"], json!("wss://localhost/ws-client"));
}

fn telephony(provider: &'static Provider) -> Config {
    crate::proto::config! {
        transport: Some(Transport::Telephony(provider)),
        proxy: Some("bots.example.net".into()),
        ..config()
    }
}

/// R-046, R-047: the webhook exists with exactly one telephony provider, accepts forms, and names
/// the public socket.
#[tokio::test]
async fn the_webhook_names_the_public_socket() {
    let head = "POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded";
    let none = Runner::start().await.ask(head, "CallSid=CA1").await;
    assert_eq!(
        (none.refusal().0, none.header("allow")),
        (405, Some("GET, HEAD, OPTIONS"))
    );
    let [of_markup @ .., of_json] = PROVIDERS;
    for provider in of_markup {
        let runner = Runner::with(telephony(provider), ConnLimits::default()).await;
        let reply = runner.ask(head, "CallSid=CA1").await;
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (200, Some("application/xml"))
        );
        let text = String::from_utf8(reply.body).expect("text");
        assert!(text.contains("wss://bots.example.net/ws"), "{text}");
    }
    let runner = Runner::with(telephony(of_json), ConnLimits::default()).await;
    let reply = runner.ask("POST / HTTP/1.1", "").await.json();
    assert_eq!(reply["url"], json!("wss://bots.example.net/ws"));
}

/// A webhook as GET is not answered with the page, which no provider can use.
#[tokio::test]
async fn a_webhook_as_get_is_rejected_with_advice() {
    for provider in PROVIDERS.iter().filter(|provider| provider.takes_markup) {
        let runner = Runner::with(telephony(provider), ConnLimits::default()).await;
        let head = format!("GET /?AccountSid=AC1&{}=CA1 HTTP/1.1", provider.call_field);
        let reply = runner.ask(&head, "").await;
        let (status, detail) = reply.refusal();
        assert_eq!((status, reply.header("allow")), (405, Some("POST, OPTIONS")));
        assert!(
            detail.contains(provider.name) && detail.contains("choose POST"),
            "{detail}"
        );
        for page in ["GET / HTTP/1.1", "GET /?x=1 HTTP/1.1"] {
            assert_eq!(runner.ask(page, "").await.status, 307, "{page}");
        }
    }
    let runner = Runner::start().await;
    assert_eq!(runner.ask("GET /?CallSid=CA1 HTTP/1.1", "").await.status, 307);
}

/// A provider without markup asks for the address of the socket by GET, with a token if it needs
/// one; the page is where it was.
#[tokio::test]
async fn a_provider_without_markup_asks_by_get() {
    let [.., of_json] = PROVIDERS;
    let tokens = crate::proto::config! {
        ws_tokens: true,
        ..telephony(of_json)
    };
    let runner = Runner::with(tokens, ConnLimits::default()).await;
    let reply = runner
        .ask("GET /?CallSid=c-1&CallFrom=%2B15550001111 HTTP/1.1", "")
        .await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/json"))
    );
    let json = reply.json();
    let url = json["url"].as_str().expect("a URL");
    let path = url.strip_prefix("wss://bots.example.net").expect("the public host");
    runner.upgrade(path, "").await.expect("an upgrade");
    assert_eq!(runner.upgrade(path, "").await.expect_err("used").0, 403);
    for page in ["GET / HTTP/1.1", "GET /?x=1 HTTP/1.1", "GET /client?CallSid= HTTP/1.1"] {
        assert_eq!(runner.ask(page, "").await.status, 307, "{page}");
    }
}

/// With tokens, the markup carries one that opens the socket of the call.
#[tokio::test]
async fn the_markup_carries_a_token_if_required() {
    let tokens = crate::proto::config! {
        ws_tokens: true,
        ..telephony(PROVIDERS[0])
    };
    let runner = Runner::with(tokens, ConnLimits::default()).await;
    let reply = runner.ask("POST / HTTP/1.1", "").await;
    let text = String::from_utf8(reply.body).expect("text");
    let url = text.split('"').find(|part| part.starts_with("wss://")).expect("a URL");
    let path = url.strip_prefix("wss://bots.example.net").expect("the public host");
    runner.upgrade(path, "").await.expect("an upgrade");
    assert_eq!(runner.upgrade(path, "").await.expect_err("used").0, 403);
}

/// With a credential to verify, a webhook needs its signature over the public URL.
#[tokio::test]
async fn an_unsigned_webhook_is_rejected() {
    let verifying = crate::proto::config! {
        telephony: Telephony {
            settings: Settings::from([("TELCO_A_ACCOUNT_SID", "AC1"), ("TELCO_A_AUTH_TOKEN", "12345")]),
            ..Telephony::default()
        },
        ..telephony(PROVIDERS[0])
    };
    let runner = Runner::with(verifying, ConnLimits::default()).await;
    let form = "CallSid=CA0123456789abcdef0123456789abcdef&CallStatus=ringing&From=%2B15550001111&To=%2B15550002222";
    let head = "POST /?x=1 HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded";
    let unsigned = runner.ask(head, form).await;
    assert_eq!(unsigned.refusal(), (403, "invalid signature".into()));
    let signed = format!("{head}\r\nX-Twilio-Signature: Je6A1DWCb/yHrzlhDUI00JGnKx8=");
    assert_eq!(runner.ask(&signed, form).await.status, 200);
    assert_eq!(runner.ask(&signed, &form.replace("1111", "1112")).await.status, 403);
    // This provider signs the upgrade as well; others use the same path unsigned.
    let call = runner
        .upgrade("/ws", "X-Twilio-Signature: lSY1FtgclpU49kSp82uKi0xxgCg=\r\n")
        .await;
    assert!(call.is_ok());
    let forged = runner
        .upgrade("/ws", "X-Twilio-Signature: lSY1FtgclpU49kSp82uKi0xxgCA=\r\n")
        .await;
    assert_eq!(forged.expect_err("forged").0, 403);
    assert!(runner.upgrade("/ws", "").await.is_ok());
}
