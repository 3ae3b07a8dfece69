//! The client against providers that live in the same process: real sockets on free ports, answers written byte by byte.

use std::sync::Mutex;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::*;
use crate::config::{Account, Secret, Telephony};
use crate::proto::rest::Body;
use crate::proto::telephony::hangup;

const NO_PAUSES: [Duration; 2] = [Duration::ZERO; 2];

/// What a provider does with a connection once it has read the request.
enum Script {
    /// Writes this and closes.
    Say(Vec<u8>),
    /// Writes this and leaves the connection open.
    SayAndStay(Vec<u8>),
}

fn answer(status: &str, body: &str) -> Script {
    let length = body.len();
    Script::SayAndStay(format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes())
}

fn garbage(bytes: &[u8]) -> Script {
    Script::Say(bytes.to_vec())
}

/// A provider that plays one script per connection, and refuses connections after the last.
struct Fake {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fake {
    async fn new(scripts: Vec<Script>) -> Self {
        Fake::over(scripts, |stream| async { Some(stream) }).await
    }

    /// `wrap` puts TLS around a connection, or fails to.
    async fn over<S, W, F>(scripts: Vec<Script>, wrap: W) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        F: Future<Output = Option<S>> + Send,
        W: Fn(TcpStream) -> F + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let heard = requests.clone();
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            for script in scripts {
                let (stream, _) = listener.accept().await.expect("a connection");
                let Some(mut stream) = wrap(stream).await else {
                    continue;
                };
                let request = read_request(&mut stream).await;
                heard.lock().expect("no panic").push(request);
                // The client may be gone already: when an answer is longer than it takes.
                match script {
                    Script::Say(bytes) => {
                        let _ = stream.write_all(&bytes).await;
                        let _ = stream.shutdown().await;
                    }
                    Script::SayAndStay(bytes) => {
                        let _ = stream.write_all(&bytes).await;
                        let _ = stream.flush().await;
                        open.push(stream);
                    }
                }
            }
            drop(listener);
            std::future::pending::<()>().await;
        });
        Fake {
            address,
            requests,
            task,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }

    /// Credentials of every provider, whose APIs are all here.
    fn telephony(&self) -> Telephony {
        let account = |id: &str, token: &str| {
            Some(Account {
                id: id.into(),
                token: Secret::new(token),
            })
        };
        Telephony {
            a: account("AC01", "a-token"),
            b_key: Some(Secret::new("b-key")),
            c: account("MA01", "c-token"),
            a_url: self.url(""),
            b_url: self.url(""),
            c_url: self.url(""),
            ..Telephony::default()
        }
    }

    async fn hang_up(&self, provider: Provider) -> Result<&'static str, String> {
        let request = hangup::request(provider, "v3:id-1", &self.telephony()).expect("credentials");
        try_to_hang_up(provider, &request, &NO_PAUSES).await
    }
}

/// Reads a head, and the body that its content-length tells.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = String::new();
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().expect("a length"));
            if body.len() >= length {
                return text;
            }
        }
        let mut chunk = [0; 1024];
        let count = stream.read(&mut chunk).await.expect("a request");
        assert_ne!(count, 0, "the client closed after {text:?}");
        text += std::str::from_utf8(&chunk[..count]).expect("text");
    }
}

fn get(url: String) -> Request {
    Request {
        method: Method::Get,
        url,
        authorization: None,
        body: None,
    }
}

/// R-033, R-034, R-035, R-038, R-087: what every provider is sent, to the byte.
#[tokio::test]
async fn every_provider_is_asked_as_its_api_wants_it() {
    let version = env!("CARGO_PKG_VERSION");
    for (provider, status, line, credential, rest) in [
        (
            Provider::A,
            "200 OK",
            "POST /2010-04-01/Accounts/AC01/Calls/v3:id-1.json HTTP/1.1",
            "Basic QUMwMTphLXRva2Vu",
            "content-type: application/x-www-form-urlencoded\r\ncontent-length: 16\r\n\r\nStatus=completed",
        ),
        (
            Provider::B,
            "200 OK",
            "POST /v2/calls/v3:id-1/actions/hangup HTTP/1.1",
            "Bearer b-key",
            "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
        ),
        (
            Provider::C,
            "204 No Content",
            "DELETE /v1/Account/MA01/Call/v3:id-1/ HTTP/1.1",
            "Basic TUEwMTpjLXRva2Vu",
            "\r\n",
        ),
    ] {
        let fake = Fake::new(vec![answer(status, "")]).await;
        assert_eq!(fake.hang_up(provider).await, Ok(HUNG_UP));
        let host = fake.address;
        let wanted = format!(
            "{line}\r\nhost: {host}\r\nuser-agent: edge-runner/{version}\r\naccept: application/json\r\n\
             authorization: {credential}\r\n{rest}"
        );
        assert_eq!(fake.requests(), [wanted]);
    }
}

#[tokio::test]
async fn a_call_that_is_over_is_a_good_end_too() {
    for (provider, status, body) in [
        (Provider::A, "404 Not Found", r#"{"code":20404,"status":404}"#),
        (Provider::A, "400 Bad Request", r#"{"code":21220,"status":400}"#),
        (
            Provider::B,
            "422 Unprocessable Entity",
            r#"{"errors":[{"code":"90018","title":"Call has already ended"}]}"#,
        ),
        (Provider::C, "404 Not Found", ""),
    ] {
        let fake = Fake::new(vec![answer(status, body)]).await;
        assert_eq!(fake.hang_up(provider).await, Ok(OVER_ALREADY));
        assert_eq!(fake.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_provider_that_stumbles_is_asked_three_times() {
    let fake = Fake::new(vec![
        answer("500 Internal Server Error", "oops"),
        answer("503 Service Unavailable", ""),
        answer("200 OK", "{}"),
    ])
    .await;
    assert_eq!(fake.hang_up(Provider::A).await, Ok(HUNG_UP));
    let requests = fake.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| *request == requests[0]));

    let fake = Fake::new((0..4).map(|_| answer("429 Too Many Requests", "")).collect()).await;
    let why = fake.hang_up(Provider::B).await;
    assert_eq!(why, Err("status 429, too many requests, 3 times".into()));
    assert_eq!(fake.requests().len(), 3);
}

#[tokio::test]
async fn a_refusal_is_final() {
    let body = r#"{"code":20003,"message":"Authenticate"}"#;
    let fake = Fake::new(vec![answer("401 Unauthorized", body), answer("200 OK", "")]).await;
    let why = fake.hang_up(Provider::A).await;
    let wanted = "status 401, the provider does not take the credentials, code 20003: Authenticate";
    assert_eq!(why, Err(wanted.into()));
    assert_eq!(fake.requests().len(), 1);

    let redirect = Script::Say(b"HTTP/1.1 307 Elsewhere\r\nlocation: /\r\ncontent-length: 0\r\n\r\n".to_vec());
    let fake = Fake::new(vec![redirect, answer("200 OK", "")]).await;
    let why = fake.hang_up(Provider::C).await;
    assert_eq!(why, Err("status 307, a redirect, which is not followed".into()));
    assert_eq!(fake.requests().len(), 1);
}

/// Whatever breaks on the way, the next try may go well.
#[tokio::test]
async fn a_broken_exchange_is_tried_again() {
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{";
    for broken in [
        &b"hello\r\n\r\n"[..],
        b"",
        b"HTTP/1.1 2",
        b"\x15\x03\x01\x00\x02\x02\x46",
        cut,
    ] {
        let fake = Fake::new(vec![garbage(broken), garbage(broken), answer("200 OK", "")]).await;
        assert_eq!(fake.hang_up(Provider::A).await, Ok(HUNG_UP));
        assert_eq!(fake.requests().len(), 3);
    }
    let fake = Fake::new(vec![garbage(b""), garbage(b"x"), garbage(cut)]).await;
    let why = fake.hang_up(Provider::A).await.expect_err("three broken answers");
    assert!(why.starts_with("127.0.0.1 gave no proper answer: "), "{why}");
}

#[tokio::test]
async fn nobody_listening_is_said_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let error = send(&get(format!("http://{address}/"))).await.expect_err("nobody");
    assert!(matches!(error, RestError::Connect { .. }) && error.is_passing());
    assert!(error.to_string().starts_with("connecting to 127.0.0.1: "), "{error}");
}

/// A provider with an address that is dead is reached at the next one, but nobody is dialled for ever.
#[tokio::test]
async fn another_address_is_tried() {
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

/// A provider that takes the connection and stays silent costs three times ten seconds and the pauses, no more. The clock is
/// the test's own, and moves when nothing else does.
#[tokio::test(start_paused = true)]
async fn silence_has_an_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let start = tokio::time::Instant::now();
    let why = try_to_hang_up(Provider::A, &get(url), &HANG_UP_PAUSES).await;
    assert_eq!(why, Err("127.0.0.1 did not answer within 10 s, 3 times".into()));
    let pauses: Duration = HANG_UP_PAUSES.iter().sum();
    let spent = start.elapsed();
    // Timers round up to the millisecond.
    assert!(
        spent.abs_diff(REST_TIMEOUT * 3 + pauses) < Duration::from_millis(10),
        "{spent:?}"
    );
}

/// One that sends an answer without an end is cut off in the same way.
#[tokio::test(start_paused = true)]
async fn an_answer_without_an_end_is_cut_off() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{".to_vec();
    let fake = Fake::new(vec![Script::SayAndStay(head)]).await;
    let error = send(&get(fake.url("/"))).await.expect_err("no end");
    assert!(matches!(error, RestError::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn bodies_have_a_cap() {
    let limit = "x".repeat(REST_BODY_BYTES_MAX);
    let chunked =
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{REST_BODY_BYTES_MAX:x}\r\n{limit}\r\n");
    let fake = Fake::new(vec![
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
    let fake = Fake::new(vec![
        garbage(head(REST_HEAD_BYTES_MAX / 2).as_bytes()),
        garbage(head(REST_HEAD_BYTES_MAX * 4).as_bytes()),
    ])
    .await;
    assert!(send(&get(fake.url("/"))).await.is_ok());
    let error = send(&get(fake.url("/"))).await.expect_err("too long a head");
    assert!(matches!(error, RestError::Exchange { .. }), "{error}");
}

/// A JSON body and a key, as a room provider wants them; the answer comes back whole.
#[tokio::test]
async fn a_room_can_be_made() {
    let fake = Fake::new(vec![answer("200 OK", r#"{"url":"https://rooms.example.net/r1"}"#)]).await;
    let request = Request {
        method: Method::Post,
        url: fake.url("/v1/rooms"),
        authorization: Some(crate::proto::rest::bearer(&Secret::new("room-key"))),
        body: Some(Body::json(&serde_json::json!({"properties": {"exp": 1}}))),
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

/// What cannot be sent is said before anybody is called, without the secret in it, and is not tried again.
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
            matches!(error, RestError::Request(_)) && !error.is_passing(),
            "{url}: {error}"
        );
    }
    let mut request = get("http://127.0.0.1:1/".into());
    request.authorization = Some(Secret::new("Bearer two\nlines"));
    let why = try_to_hang_up(Provider::B, &request, &NO_PAUSES)
        .await
        .expect_err("a line break");
    assert!(why.contains("credential") && !why.contains("two"), "{why}");
}

#[test]
fn urls_lead_where_they_say() {
    let of = |url: &str| {
        let target = Target::of(url).expect("a target");
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

/// An authority of the test's own, which no system trusts.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Returns what trusts this authority and nobody else.
    fn trusted(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a root");
        connector(roots)
    }

    /// Starts a provider whose certificate is for that name, until the end of that year.
    async fn provider(&self, name: &str, until: i32) -> Fake {
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
        Fake::over(vec![answer("200 OK", "{}")], move |stream| {
            let acceptor = acceptor.clone();
            async move { acceptor.accept(stream).await.ok() }
        })
        .await
    }
}

async fn send_to(fake: &Fake, trust: Option<TlsConnector>) -> Result<Answer, RestError> {
    send_trusting(trust, &get(format!("https://{}/v1", fake.address)), STANDARD).await
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

/// Nothing is sent to a server whose certificate does not hold, and the words say what can be done about it.
#[tokio::test]
async fn certificates_that_do_not_hold_are_refused() {
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
            matches!(error, RestError::Certificate { .. }) && !error.is_passing(),
            "{error:?}"
        );
        assert!(error.to_string().contains(hint), "{error}");
        assert!(fake.requests().is_empty());
    }
}

/// The system's own trust does not know the test's authority; on a system without any, that is what is said.
#[tokio::test]
async fn a_system_trusts_no_stranger() {
    let fake = Authority::new("authority").provider("127.0.0.1", 2999).await;
    let error = send_to(&fake, None).await.expect_err("a stranger");
    assert!(
        matches!(error, RestError::Certificate { .. } | RestError::NoCertificates { .. }),
        "{error}"
    );
    let words = error.to_string();
    assert!(words.contains("SSL_CERT_FILE"), "{words}");
}

/// A small image without certificates is a common fault, and the words say how it is mended.
#[test]
fn a_system_without_certificates_is_told_what_to_install() {
    let error = trust_in(CertificateResult::default()).err().expect("nobody is trusted");
    let words = error.to_string();
    assert!(
        words.contains("`ca-certificates`") && words.contains("SSL_CERT_FILE"),
        "{words}"
    );
    assert!(!error.is_passing());
}

#[tokio::test]
async fn a_provider_without_tls_is_not_mistaken_for_one_with() {
    let plain = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = plain.local_addr().expect("bound");
    let server = tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.expect("a connection");
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    });
    let error = send_trusting(
        Some(Authority::new("other").trusted()),
        &get(format!("https://{address}/")),
        STANDARD,
    )
    .await;
    let error = error.expect_err("no TLS there");
    assert!(
        matches!(error, RestError::Tls { .. }) && error.is_passing(),
        "{error:?}"
    );
    server.await.expect("the server ends");
}

/// Pieces of a body, and an error where one is `None`.
fn upload_of(pieces: &[Option<&'static [u8]>], size: u64) -> Upload {
    let mut pieces = std::collections::VecDeque::from(pieces.to_vec());
    Upload {
        content_type: "multipart/form-data; boundary=b".into(),
        size,
        next: Box::new(move || match pieces.pop_front() {
            Some(Some(piece)) => Ok(Bytes::from_static(piece)),
            Some(None) => Err(io::Error::other("the disk is gone")),
            None => Ok(Bytes::new()),
        }),
    }
}

const SHORT: Within = Within {
    timeout: Duration::from_secs(30),
    body_bytes_max: 8,
};

/// I-27: a body is sent in pieces, with its length and without a credential; the caller's caps hold for the answer.
#[tokio::test]
async fn a_body_is_sent_piece_by_piece() {
    let fake = Fake::new(vec![
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

/// A file that cannot be read, or is shorter than it was, is no fault of the server's: there is no second try.
#[tokio::test]
async fn a_body_that_cannot_be_read_is_told_apart() {
    for (pieces, size, why) in [
        (&[Some(&b"one"[..]), None][..], 10, "the disk is gone"),
        (&[Some(b"one")], 10, "unexpected end of file"),
        (&[Some(b"longer")], 3, "unexpected end of file"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let error = upload(&url, upload_of(pieces, size), SHORT).await.expect_err("no body");
        assert!(!error.is_passing(), "{error}");
        assert_eq!(error.to_string(), format!("reading what is to be sent: {why}"));
    }
}

/// The time runs from the last piece that moved.
#[tokio::test(start_paused = true)]
async fn an_upload_that_stands_still_has_an_end() {
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

/// A refusal reaches whoever is still sending.
#[tokio::test]
async fn an_answer_before_the_end_of_the_body_counts() {
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
        // Whoever is refused goes on for a while, and must not be reset before the answer is read.
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
