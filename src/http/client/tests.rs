//! The client against servers in the same process: real sockets on free ports, scripted responses.

use edge_runner_proto::config::Secret;
use edge_runner_proto::server::rest::RestBody;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::*;
use crate::testing::{FakeServer, Script, answer, garbage, get};

#[tokio::test]
async fn a_refused_connection_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let error = send(&get(format!("http://{address}/")))
        .await
        .expect_err("nothing listens");
    assert!(matches!(error, RestError::Connect { .. }) && error.is_transient());
    assert!(error.to_string().starts_with("connecting to 127.0.0.1: "), "{error}");
}

/// A dead address is skipped for the next one, up to a number of addresses.
#[tokio::test]
async fn a_dead_address_is_skipped() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let live = listener.local_addr().expect("bound");
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let dead = closed.local_addr().expect("bound");
    drop(closed);
    let dial = |dead_ones: usize| connect_to_one([vec![dead; dead_ones], vec![live]].concat().into_iter());
    assert!(dial(REST_ADDRESSES_MAX - 1).await.is_ok());
    assert!(dial(REST_ADDRESSES_MAX).await.is_err());
    let none = connect_to_one(std::iter::empty()).await.expect_err("no address");
    assert_eq!(none.to_string(), "it has no address");
}

/// An endless response is cut off at the limit too.
#[tokio::test(start_paused = true)]
async fn an_endless_response_is_cut_off() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{".to_vec();
    let fake = FakeServer::new(vec![Script::SayAndStay(head)]).await;
    let error = send(&get(fake.url("/"))).await.expect_err("no end");
    assert!(matches!(error, RestError::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn bodies_have_a_cap() {
    let limit = "x".repeat(REST_BODY_BYTES_MAX);
    let chunked =
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{REST_BODY_BYTES_MAX:x}\r\n{limit}\r\n");
    let fake = FakeServer::new(vec![
        answer("200 OK", &limit),
        answer("200 OK", &format!("{limit}x")),
        garbage(format!("{chunked}0\r\n\r\n").as_bytes()),
        garbage(format!("{chunked}1\r\nx\r\n0\r\n\r\n").as_bytes()),
        garbage(format!("HTTP/1.0 201 Created\r\n\r\n{limit}").as_bytes()),
    ])
    .await;
    for (status, fits) in [(200, true), (200, false), (200, true), (200, false), (201, true)] {
        match send(&get(fake.url("/v1/rooms?limit=1"))).await {
            Ok(answer) => assert_eq!(
                (fits, answer.status, answer.body.len()),
                (true, status, REST_BODY_BYTES_MAX)
            ),
            Err(error) => assert!(!fits && matches!(error, RestError::TooLong { .. }), "{error}"),
        }
    }
    assert!(fake.requests()[0].starts_with("GET /v1/rooms?limit=1 HTTP/1.1\r\n"));
}

#[tokio::test]
async fn heads_have_a_cap() {
    let head = |bytes: usize| {
        format!(
            "HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 0\r\n\r\n",
            "y".repeat(bytes)
        )
    };
    let fake = FakeServer::new(vec![
        garbage(head(REST_HEAD_BYTES_MAX / 2).as_bytes()),
        garbage(head(REST_HEAD_BYTES_MAX * 4).as_bytes()),
    ])
    .await;
    assert!(send(&get(fake.url("/"))).await.is_ok());
    let error = send(&get(fake.url("/"))).await.expect_err("too long a head");
    assert!(matches!(error, RestError::Exchange { .. }), "{error}");
}

/// A JSON body and a key are sent as a room provider expects, and the response is read whole.
#[tokio::test]
async fn a_json_request_is_sent_with_its_key() {
    let fake = FakeServer::new(vec![answer("200 OK", r#"{"url":"https://rooms.example.net/r1"}"#)]).await;
    let request = RestRequest {
        method: RestMethod::Post,
        url: fake.url("/v1/rooms"),
        authorization: Some(edge_runner_proto::server::rest::bearer(&Secret::new("room-key"))),
        body: Some(RestBody::json(&serde_json::json!({"properties": {"exp": 1}}))),
    };
    let answer = send(&request).await.expect("an answer");
    assert_eq!(
        (answer.status, &answer.body[..]),
        (200, &br#"{"url":"https://rooms.example.net/r1"}"#[..])
    );
    let asked = &fake.requests()[0];
    assert!(asked.contains("authorization: Bearer room-key\r\n"), "{asked}");
    assert!(asked.ends_with("\r\n\r\n{\"properties\":{\"exp\":1}}"), "{asked}");
}

/// A request that cannot be sent fails before any connection, without its secret in the error.
#[tokio::test]
async fn requests_that_cannot_be_sent_say_why() {
    for url in [
        "",
        "/v1",
        "ftp://h/",
        "api.example.net/v1",
        "https://",
        "https://a:b@h/",
        "http://h:99999/",
        "http://h/ b",
    ] {
        let error = send(&get(url.into())).await.expect_err(url);
        assert!(
            matches!(error, RestError::Request(_)) && !error.is_transient(),
            "{url}: {error}"
        );
    }
    let mut request = get("http://127.0.0.1:1/".into());
    request.authorization = Some(Secret::new("Bearer two\nlines"));
    let error = send(&request).await.expect_err("a line break").to_string();
    assert!(error.contains("credential") && !error.contains("two"), "{error}");
}

#[test]
fn urls_are_parsed() {
    let of = |url: &str| {
        let target = RequestUrl::of(url).expect("a target");
        (
            target.tls,
            target.host,
            target.port,
            target.authority,
            target.path.to_string(),
        )
    };
    let want = |tls, host: &str, port, authority: &str, path: &str| {
        (tls, host.to_owned(), port, authority.to_owned(), path.to_owned())
    };
    assert_eq!(
        of("https://api.example.net"),
        want(true, "api.example.net", 443, "api.example.net", "/")
    );
    assert_eq!(of("http://h/a?b=c"), want(false, "h", 80, "h", "/a?b=c"));
    assert_eq!(of("https://h?b"), want(true, "h", 443, "h", "/?b"));
    assert_eq!(of("http://[::1]:81/"), want(false, "::1", 81, "[::1]:81", "/"));
}

/// An authority that no system trusts.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Returns a connector that trusts this authority alone.
    fn trusted(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a root");
        connector(roots)
    }

    /// Starts a provider whose certificate is for that name and expires at the end of that year.
    async fn provider(&self, name: &str, until: i32) -> FakeServer {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 12, 31);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .expect("a key that fits");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        FakeServer::over(vec![answer("200 OK", "{}")], move |stream| {
            let acceptor = acceptor.clone();
            async move { acceptor.accept(stream).await.ok() }
        })
        .await
    }
}

async fn send_to(fake: &FakeServer, trust: Option<TlsConnector>) -> Result<RestResponse, RestError> {
    send_trusting(trust, &get(format!("https://{}/v1", fake.address)), &[], STANDARD).await
}

#[tokio::test]
async fn a_trusted_provider_answers_over_tls() {
    let authority = Authority::new("authority");
    let fake = authority.provider("127.0.0.1", 2999).await;
    let answer = send_to(&fake, Some(authority.trusted())).await.expect("an answer");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"{}"[..]));
    let wanted = format!("GET /v1 HTTP/1.1\r\nhost: {}\r\n", fake.address);
    assert!(fake.requests()[0].starts_with(&wanted));
}

/// Nothing is sent to a server with an invalid certificate, and the error gives advice.
#[tokio::test]
async fn invalid_certificates_are_rejected() {
    let authority = Authority::new("authority");
    let trusted = || Some(authority.trusted());
    for (name, until, trust, hint) in [
        (
            "127.0.0.1",
            2999,
            Some(Authority::new("other").trusted()),
            "SSL_CERT_FILE",
        ),
        ("127.0.0.1", 2021, trusted(), "clock"),
        ("other.example.net", 2999, trusted(), "127.0.0.1"),
    ] {
        let fake = authority.provider(name, until).await;
        let error = send_to(&fake, trust).await.expect_err("a bad certificate");
        assert!(
            matches!(error, RestError::Certificate { .. }) && !error.is_transient(),
            "{error:?}"
        );
        assert!(error.to_string().contains(hint), "{error}");
        assert!(fake.requests().is_empty());
    }
}

/// The system does not trust the test's authority; a system without root certificates says so.
#[tokio::test]
async fn an_unknown_authority_is_rejected() {
    let fake = Authority::new("authority").provider("127.0.0.1", 2999).await;
    let error = send_to(&fake, None).await.expect_err("an unknown authority");
    assert!(
        matches!(error, RestError::Certificate { .. } | RestError::NoCertificates { .. }),
        "{error}"
    );
    let words = error.to_string();
    assert!(words.contains("SSL_CERT_FILE"), "{words}");
}

/// Small images often lack root certificates; the error says how to add them.
#[test]
fn missing_root_certificates_are_reported_with_advice() {
    let error = trust_in(CertificateResult::default())
        .err()
        .expect("no root certificates");
    let words = error.to_string();
    assert!(
        words.contains("`ca-certificates`") && words.contains("SSL_CERT_FILE"),
        "{words}"
    );
    assert!(!error.is_transient());
}

#[tokio::test]
async fn a_server_without_tls_fails_the_handshake() {
    let plain = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = plain.local_addr().expect("bound");
    let server = tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.expect("a connection");
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    });
    let error = send_trusting(
        Some(Authority::new("other").trusted()),
        &get(format!("https://{address}/")),
        &[],
        STANDARD,
    )
    .await;
    let error = error.expect_err("no TLS there");
    assert!(
        matches!(error, RestError::Tls { .. }) && error.is_transient(),
        "{error:?}"
    );
    server.await.expect("the server ends");
}

/// Pieces of a body, and an error for each `None`.
fn upload_of(pieces: &[Option<&'static [u8]>], size: u64) -> UploadBody {
    let mut pieces = std::collections::VecDeque::from(pieces.to_vec());
    UploadBody {
        content_type: "multipart/form-data; boundary=b".into(),
        size,
        next: Box::new(move || match pieces.pop_front() {
            Some(Some(piece)) => Ok(Bytes::from_static(piece)),
            Some(None) => Err(io::Error::other("the disk is gone")),
            None => Ok(Bytes::new()),
        }),
    }
}

const SHORT: ResponseLimits = ResponseLimits {
    timeout: Duration::from_secs(30),
    body_bytes_max: 8,
};

/// I-27: a body is sent in pieces, with its length and without a credential, within the caller's
/// limits.
#[tokio::test]
async fn a_body_is_sent_piece_by_piece() {
    let fake = FakeServer::new(vec![
        answer("204 No Content", ""),
        answer("403 Forbidden", "too long a body"),
    ])
    .await;
    let sent = upload(
        &fake.url("/form?a=b"),
        upload_of(&[Some(b"one,"), Some(b"two")], 7),
        SHORT,
    )
    .await;
    assert_eq!(sent.expect("an answer").status, 204);
    let error = upload(&fake.url("/form"), upload_of(&[Some(b"x")], 1), SHORT).await;
    assert_eq!(
        error.expect_err("a cap").to_string(),
        "the answer of 127.0.0.1 is longer than 8 bytes"
    );
    let (version, host) = (env!("CARGO_PKG_VERSION"), fake.address);
    assert_eq!(
        fake.requests()[0],
        format!(
            "POST /form?a=b HTTP/1.1\r\nhost: {host}\r\nuser-agent: edge-runner/{version}\r\naccept: application/json\r\n\
             content-type: multipart/form-data; boundary=b\r\ncontent-length: 7\r\n\r\none,two"
        )
    );
}

/// An empty body has a length too, without which object stores refuse it.
#[tokio::test]
async fn an_empty_body_has_a_length() {
    let fake = FakeServer::new(vec![answer("200 OK", "")]).await;
    let url = fake.url("/key");
    let request = Transfer {
        method: hyper::Method::PUT,
        url: &url,
        headers: &[],
        body: Some(upload_of(&[], 0)),
        within: SHORT,
    };
    let sent = transfer(request, &mut |_| Ok(())).await.expect("an answer");
    assert_eq!(sent.status(), hyper::StatusCode::OK);
    let request = &fake.requests()[0];
    assert!(request.contains("\r\ncontent-length: 0\r\n"), "{request}");
}

/// A file that cannot be read, or that shrank, is a local error and is not retried.
#[tokio::test]
async fn an_unreadable_body_is_a_local_error() {
    for (pieces, size, why) in [
        (&[Some(&b"one"[..]), None][..], 10, "the disk is gone"),
        (&[Some(b"one")], 10, "unexpected end of file"),
        (&[Some(b"longer")], 3, "unexpected end of file"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let error = upload(&url, upload_of(pieces, size), SHORT).await.expect_err("no body");
        assert!(!error.is_transient(), "{error}");
        assert_eq!(error.to_string(), format!("reading the request body: {why}"));
    }
}

/// The timeout counts from the last piece sent.
#[tokio::test(start_paused = true)]
async fn a_stalled_upload_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let start = tokio::time::Instant::now();
    let error = upload(&url, upload_of(&[Some(b"x")], 1), SHORT)
        .await
        .expect_err("silence");
    assert_eq!(error.to_string(), "127.0.0.1 did not answer within 30 s");
    assert!(
        start.elapsed().abs_diff(SHORT.timeout) < Duration::from_millis(10),
        "{:?}",
        start.elapsed()
    );
}

/// A rejection reaches a client that is still sending.
#[tokio::test]
async fn an_early_response_is_returned() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut some = [0; 1024];
        let _ = stream.read(&mut some).await.expect("a request");
        stream
            .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")
            .await
            .expect("an answer");
        // The client goes on for a while, and must not be reset before it reads the response.
        while stream.read(&mut some).await.is_ok_and(|count| count > 0) {}
    });
    const PIECE: &[u8] = &[b'x'; 4096];
    let pieces = vec![Some(PIECE); 100_000];
    let sent = upload(&url, upload_of(&pieces, 4096 * 100_000), SHORT)
        .await
        .expect("an answer");
    assert_eq!((sent.status, &sent.body[..]), (403, &b"no"[..]));
    server.await.expect("no panic");
}
