//! Hostile and malformed requests: each is rejected or its connection closed, and the server lives.

use serde_json::json;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::config;

async fn assert_alive(runner: &Runner) {
    assert_eq!(runner.ask("GET /status HTTP/1.1", "").await.status, 200);
}

/// Bodies at the cap and one byte above it, with a declared length and without.
#[tokio::test]
async fn bodies_are_capped() {
    let runner = Runner::start().await;
    let body = |bytes: usize| {
        let frame = json!({"x": ""}).to_string().len();
        json!({"x": "x".repeat(bytes - frame)}).to_string()
    };
    let (full, over) = (body(limits::HTTP_BODY_BYTES_MAX), body(limits::HTTP_BODY_BYTES_MAX + 1));
    assert_eq!(full.len(), limits::HTTP_BODY_BYTES_MAX);
    assert_eq!(runner.ask("POST /start HTTP/1.1", &full).await.status, 200);
    assert_eq!(runner.ask("POST /start HTTP/1.1", &over).await.refusal().0, 413);
    let chunked = async |body: &str| {
        let mut client = runner.client().await;
        client
            .send("POST /start HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        for chunk in body.as_bytes().chunks(10_000) {
            client.send(format!("{:x}\r\n", chunk.len())).await;
            client.send(chunk).await;
            client.send("\r\n").await;
        }
        client.send("0\r\n\r\n").await;
        client.reply().await.status
    };
    assert_eq!(chunked(&full).await, 200);
    assert_eq!(chunked(&over).await, 413);
    // A body too large to be read to its end: the connection is closed after the response.
    let mut client = runner.client().await;
    client
        .send("POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n")
        .await;
    assert_eq!(client.reply().await.status, 413);
    assert_eq!(client.rest().await, b"");
}

/// A rejected body is read and discarded up to a limit, and its connection stays open; one byte
/// more closes it.
#[tokio::test]
async fn discarded_bodies_are_capped() {
    let runner = Runner::start().await;
    for (bytes, goes_on) in [
        (limits::HTTP_DISCARD_BYTES_MAX, true),
        (limits::HTTP_DISCARD_BYTES_MAX + 1, false),
    ] {
        let mut client = runner.client().await;
        client
            .send(format!(
                "POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: {bytes}\r\n\r\n"
            ))
            .await;
        if goes_on {
            client.send(vec![b'x'; bytes]).await;
        }
        assert_eq!(client.reply().await.status, 413);
        if goes_on {
            assert_eq!(client.ask("GET /status HTTP/1.1", "").await.status, 200);
        } else {
            assert_eq!(client.rest().await, b"");
        }
    }
}

/// With `Expect: 100-continue` a body that is too large is rejected before it is sent.
#[tokio::test]
async fn expect_continue_is_granted_or_rejected() {
    let runner = Runner::start().await;
    let ask = |bytes: usize| {
        format!("POST /start HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: {bytes}\r\n\r\n")
    };
    let mut client = runner.client().await;
    client.send(ask(2)).await;
    assert_eq!(client.head().await.status, 100);
    client.send("{}").await;
    assert_eq!(client.reply().await.status, 200);
    let mut client = runner.client().await;
    client.send(ask(limits::HTTP_BODY_BYTES_MAX + 1)).await;
    assert_eq!(client.reply().await.status, 413);
}

/// Long heads pass up to the caps and are rejected above them.
#[tokio::test]
async fn heads_are_capped() {
    let runner = Runner::start().await;
    let head = |bytes: usize| {
        let (start, end) = ("GET /status HTTP/1.1\r\nHost: h\r\nCookie: ", "\r\n\r\n");
        format!("{start}{}{end}", "c".repeat(bytes - start.len() - end.len()))
    };
    let status = async |request: String| {
        let mut client = runner.client().await;
        client.send(request).await;
        client.head().await.status
    };
    assert_eq!(status(head(10_000)).await, 200);
    assert_eq!(status(head(limits::HTTP_HEAD_BYTES_MAX)).await, 200);
    assert_eq!(status(head(limits::HTTP_HEAD_BYTES_MAX + 1)).await, 431);
    assert_eq!(status(head(limits::HTTP_HEAD_BYTES_MAX * 4)).await, 431);
    let lines = |n: usize| {
        let lines: String = (0..n).map(|nth| format!("\r\nx-{nth}: 1")).collect();
        format!("GET /status HTTP/1.1\r\nHost: h{lines}\r\n\r\n")
    };
    assert_eq!(status(lines(limits::HTTP_HEADERS_MAX - 1)).await, 200);
    assert_eq!(status(lines(limits::HTTP_HEADERS_MAX)).await, 431);
    assert_alive(&runner).await;
}

/// Bytes that are not HTTP, or almost HTTP.
#[tokio::test]
async fn garbage_is_rejected() {
    let runner = Runner::start().await;
    for rubbish in [
        &b"\xff\0\0\0\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET /status\r\n\r\n",
        b"GET /sta tus HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost : h\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: h\r\nx\0y: 1\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: h\r\nx: a\0b\r\n\r\n",
        b"POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        b"POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 2\r\n\r\n",
        b"POST /start HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: x\r\n\r\n",
    ] {
        let mut client = runner.client().await;
        client.send(rubbish).await;
        client.stream.shutdown().await.expect("it was open");
        let rest = client.rest().await;
        let said = String::from_utf8_lossy(&rest);
        assert!(said.starts_with("HTTP/1.1 4"), "{rubbish:?}: {said}");
    }
    // This looks like a framed packet, but no session has it.
    let mut client = runner.client().await;
    client.send(b"\0\0\0\0\0\0\0\0\r\n\r\n").await;
    assert_eq!(client.rest().await, b"");
    // TLS is off, so a TLS client gets no response.
    let mut client = runner.client().await;
    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await;
    assert_eq!(client.rest().await, b"");
    // An HTTP/2 client gets no response.
    let mut client = runner.client().await;
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert_eq!(client.rest().await, b"");
    assert_alive(&runner).await;
}

/// Unusual but legal: bytes above ASCII in a path and in a header.
#[tokio::test]
async fn non_utf8_bytes_are_rejected_or_ignored() {
    let runner = Runner::start().await;
    for (request, status) in [
        (&b"GET /status HTTP/1.1\r\nHost: h\r\nx: \xff\xfe\r\n\r\n"[..], 200),
        (b"GET /status HTTP/1.1\r\nHost: h\r\nOrigin: \xff\xfe\r\n\r\n", 200),
        (b"GET /client/%ff%fe HTTP/1.1\r\nHost: h\r\n\r\n", 404),
        (
            b"GET /client/ HTTP/1.1\r\nHost: h\r\nIf-None-Match: \xff\r\nAccept-Encoding: \xff\r\n\r\n",
            200,
        ),
        (
            b"POST /start HTTP/1.1\r\nHost: h\r\nContent-Type: \xff\r\nContent-Length: 2\r\n\r\n{}",
            200,
        ),
        (
            b"POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n{\"a\":\xff\xfe}",
            422,
        ),
        (b"GET http://h/status HTTP/1.1\r\nHost: h\r\n\r\n", 200),
        (b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 404),
        (b"BREW /status HTTP/1.1\r\nHost: h\r\n\r\n", 405),
    ] {
        let mut client = runner.client().await;
        client.send(request).await;
        assert_eq!(
            client.reply().await.status,
            status,
            "{}",
            String::from_utf8_lossy(request)
        );
    }
}

/// HTTP/1.1 requires one `Host` of this server, HTTP/1.0 none. An absolute target counts as well.
#[tokio::test]
async fn the_host_header_is_required_once() {
    let runner = Runner::start().await;
    for (request, status) in [
        ("GET /status HTTP/1.1\r\nHost:\r\n\r\n", 421),
        ("GET /status HTTP/1.1\r\nHost: \u{e9}\r\n\r\n", 421),
        ("GET /status HTTP/1.0\r\nHost: evil.example\r\n\r\n", 421),
        ("GET http://evil.example/status HTTP/1.0\r\n\r\n", 421),
        ("GET http://a/status HTTP/1.0\r\n\r\n", 200),
        ("GET http://a/status HTTP/1.1\r\nHost: h\r\n\r\n", 421),
        ("GET http://evil.example/status HTTP/1.1\r\nHost: h\r\n\r\n", 421),
        ("GET http://h/status HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        ("GET http://u@h/status HTTP/1.1\r\nHost: h\r\n\r\n", 421),
        (
            "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
            421,
        ),
        ("GET /status HTTP/1.1\r\n\r\n", 400),
        ("GET /status HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET /status HTTP/1.0\r\n\r\n", 200),
        ("GET /status HTTP/1.0\r\nHost: a\r\n\r\n", 200),
    ] {
        let mut client = runner.client().await;
        client.send(request).await;
        assert_eq!(client.reply().await.status, status, "{request}");
    }
}

/// A response sent before the whole body has arrived still reaches the client.
#[tokio::test]
async fn an_early_response_reaches_a_client_that_is_still_sending() {
    let runner = Runner::start().await;
    for (request, status) in [
        ("POST /none HTTP/1.1", 404),
        ("POST /start HTTP/1.1\r\nContent-Type: multipart/form-data", 415),
    ] {
        let mut client = runner.client().await;
        client
            .send(format!("{request}\r\nHost: h\r\nContent-Length: 500000\r\n\r\n"))
            .await;
        // The response is sent before the first byte of the body.
        client.stream.readable().await.expect("an answer");
        for _ in 0..50 {
            client.send([b'x'; 10_000]).await;
        }
        assert_eq!(client.reply().await.status, status, "{request}");
        assert_eq!(client.rest().await, b"");
    }
}

/// Ambiguous body lengths must not smuggle a request.
#[tokio::test]
async fn a_body_with_two_lengths_smuggles_nothing() {
    let runner = Runner::start().await;
    let mut client = runner.client().await;
    let inner = "GET /none HTTP/1.1\r\nHost: h\r\n\r\n";
    let length = "0\r\n\r\n".len() + inner.len();
    client
        .send(format!(
            "POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"
        ))
        .await;
    client.stream.shutdown().await.expect("it was open");
    let replies = client.rest().await;
    let text = String::from_utf8_lossy(&replies);
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
    assert_eq!(text.matches("HTTP/1.1").count(), 1, "{text}");
    assert_alive(&runner).await;
}

/// Pipelined requests are answered in order, bodies included.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let runner = Runner::start().await;
    let mut client = runner.client().await;
    let one = "GET /none HTTP/1.1\r\nHost: h\r\n\r\nPOST /start HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}\
               GET /status HTTP/1.1\r\nHost: h\r\n\r\n";
    client.send(one.repeat(50)).await;
    for _ in 0..50 {
        assert_eq!(client.reply().await.status, 404);
        assert!(client.reply().await.json()["sessionId"].is_string());
        assert_eq!(client.reply().await.json()["status"], "ready");
    }
}

/// A response does not wait for the end of the next request.
#[tokio::test]
async fn a_response_does_not_wait_for_the_next_request() {
    let runner = Runner::start().await;
    let mut client = runner.client().await;
    client.send("GET /status HTTP/1.1\r\nHost: h\r\n\r\nGET /sta").await;
    assert_eq!(client.reply().await.status, 200);
    client.send("tus HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert_eq!(client.reply().await.status, 200);
}

/// A client that half-closes its connection still gets its response.
#[tokio::test]
async fn a_half_closed_connection_is_answered() {
    let runner = Runner::start().await;
    let mut client = runner.client().await;
    client
        .send("POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}")
        .await;
    client.stream.shutdown().await.expect("it was open");
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(client.rest().await, b"");
    // An incomplete request gets an error or nothing, never a session.
    for cut in [
        "POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{",
        "POST /start HT",
        "",
    ] {
        let mut client = runner.client().await;
        client.send(cut).await;
        client.stream.shutdown().await.expect("it was open");
        let rest = client.rest().await;
        assert!(
            rest.is_empty() || rest.starts_with(b"HTTP/1.1 400"),
            "{}",
            String::from_utf8_lossy(&rest)
        );
    }
    assert_alive(&runner).await;
}

pub(super) fn never() -> ConnLimits {
    let never = Duration::from_secs(3600);
    ConnLimits {
        first_head: never,
        idle: never,
        head: never,
        body: never,
        answer: never,
        stall: never,
        linger: never,
        stall_body: never,
        ..ConnLimits::default()
    }
}

/// A first request that does not complete closes the connection, whatever part of it has arrived.
#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let runner = Runner::with(
        config(),
        ConnLimits {
            first_head: Duration::ZERO,
            ..never()
        },
    )
    .await;
    for half in [&b""[..], b"GET /sta", b"\x16\x03\x01\x02"] {
        let mut client = runner.client().await;
        client.send(half).await;
        assert_eq!(client.rest().await, b"");
    }
}

/// A client that is silent after a response is disconnected.
#[tokio::test]
async fn an_idle_connection_is_closed() {
    let runner = Runner::with(
        config(),
        ConnLimits {
            idle: Duration::ZERO,
            ..never()
        },
    )
    .await;
    let mut client = runner.client().await;
    assert_eq!(client.ask("GET /status HTTP/1.1", "").await.status, 200);
    assert_eq!(client.rest().await, b"");
}

/// A later head that never ends is cut off, even if it trickles.
#[tokio::test]
async fn a_slow_head_is_cut_off() {
    let runner = Runner::with(
        config(),
        ConnLimits {
            head: Duration::ZERO,
            ..never()
        },
    )
    .await;
    let mut client = runner.client().await;
    assert_eq!(client.ask("GET /status HTTP/1.1", "").await.status, 200);
    assert_eq!(client.ask("GET /status HTTP/1.1", "").await.status, 200);
    client.send("G").await;
    assert_eq!(client.rest().await, b"");
}

/// A body that never ends is rejected with a message.
#[tokio::test]
async fn a_slow_body_is_refused() {
    let runner = Runner::with(
        config(),
        ConnLimits {
            body: Duration::ZERO,
            ..never()
        },
    )
    .await;
    let mut client = runner.client().await;
    client
        .send("POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{")
        .await;
    assert_eq!(client.reply().await.refusal().0, 408);
    assert_eq!(client.rest().await, b"");
}

/// Every response has a deadline.
#[tokio::test]
async fn a_response_that_never_comes_closes_the_connection() {
    let runner = Runner::with(
        config(),
        ConnLimits {
            answer: Duration::ZERO,
            ..never()
        },
    )
    .await;
    let mut client = runner.client().await;
    client
        .send("POST /start HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{")
        .await;
    assert_eq!(client.rest().await, b"");
}

/// A client that sends requests and reads no responses is disconnected.
#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let runner = Runner::with(
        config(),
        ConnLimits {
            stall: Duration::ZERO,
            ..never()
        },
    )
    .await;
    let mut client = runner.client().await;
    let many = "GET /status HTTP/1.1\r\nHost: h\r\n\r\n".repeat(1000);
    let asking = async { while client.stream.write_all(many.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(GUARD, asking).await.expect("the server lets go");
    assert_alive(&runner).await;
}

/// The same over TLS, which accepts a response before the network does.
#[tokio::test]
async fn a_client_that_does_not_read_over_tls_is_disconnected() {
    let config = crate::proto::config! {
        tls: config::Tls::Auto,
        ..config()
    };
    let conn_limits = ConnLimits {
        stall: Duration::ZERO,
        ..never()
    };
    let runner = Runner::with(config, conn_limits).await;
    let authority = runner
        .tls
        .as_ref()
        .and_then(|tls| tls.authority())
        .expect("one is made");
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(&authority).expect("PEM");
    roots.add(authority).expect("a certificate");
    let trusting = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = runner.client().await.stream;
    let connected = TlsConnector::from(Arc::new(trusting)).connect(name, stream).await;
    let mut stream = connected.expect("it is trusted");
    let many = "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    let asking = async { while stream.write_all(many.as_bytes()).await.is_ok() && stream.flush().await.is_ok() {} };
    tokio::time::timeout(GUARD, asking).await.expect("the server lets go");
    assert_alive(&runner).await;
}
