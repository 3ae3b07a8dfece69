//! HTTPS and WSS on the HTTP port, against the real binary: clients that trust the downloaded
//! authority, certificates replaced during a call, garbage instead of a handshake, and silent
//! connections.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use edge_runner_proto::limits::HTTP_CONNECTIONS_MAX;
use edge_runner_proto::sockets::frames::{self, ProtobufFrame};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use crate::support::certificate::CertificateFiles;
use crate::support::http::{self, Reply};
use crate::support::runner::{PATIENCE, TestRunner};

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

fn auto() -> TestRunner {
    TestRunner::start(&["--bot", "echo", "--tls", "auto", "--state-dir", "state"])
}

/// A client that trusts the certificates in this PEM only.
pub fn trusting(pem: &[u8]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(pem) {
        roots.add(der.expect("PEM")).expect("a certificate");
    }
    assert!(!roots.is_empty());
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Downloads the authority, as a phone does.
fn authority(runner: &TestRunner) -> Vec<u8> {
    let reply = http::get(runner.addr, "/ca.crt");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/x-x509-ca-cert"));
    reply.body
}

fn tcp(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&addr, PATIENCE).expect("the runner listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out is legal");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time-out is legal");
    stream
}

/// Does the handshake with a server of this name.
pub fn connect(addr: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> io::Result<Tls> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connection = ClientConnection::new(config.clone(), name).expect("a sound configuration");
    let mut stream = StreamOwned::new(connection, tcp(addr));
    stream.conn.complete_io(&mut stream.sock)?;
    Ok(stream)
}

/// Sends one request over TLS.
fn secure(addr: SocketAddr, config: &Arc<ClientConfig>, method: &str, target: &str, body: &str) -> Reply {
    let mut stream = connect(addr, &addr.ip().to_string(), config).expect("it is trusted");
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("the runner reads");
    let mut raw = Vec::new();
    // A missing close_notify would be an error here.
    stream.read_to_end(&mut raw).expect("the runner answers");
    http::parse(&raw).expect("a reply")
}

fn start(runner: &TestRunner) -> Value {
    let (json, body) = (["Content-Type: application/json"], br#"{"transport":"websocket"}"#);
    let reply = http::request(runner.addr, "POST", "/start", &json, body).expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// A plain client's call over WSS.
struct Call(WebSocket<Tls>);

impl Call {
    fn begin(addr: SocketAddr, config: &Arc<ClientConfig>) -> Call {
        let stream = connect(addr, &addr.ip().to_string(), config).expect("it is trusted");
        let (socket, _) = tungstenite::client(format!("wss://{addr}/ws-client"), stream).expect("an upgrade");
        Call(socket)
    }

    /// Speaks for half a second, and waits for as much echo.
    fn echo(&mut self) {
        let pcm: Vec<i16> = (0..8_000).map(|n| ((n % 100) * 200 - 10_000) as i16).collect();
        for frame in pcm.chunks(320) {
            self.0
                .send(Message::Binary(frames::audio(frame, 16_000).into()))
                .expect("the runner reads");
        }
        let mut loud = 0;
        while loud < 6_000 {
            if let Message::Binary(bytes) = self.0.read().expect("the call goes on")
                && let ProtobufFrame::Audio { pcm, channels, .. } = frames::decode(bytes).expect("a frame")
            {
                let mut received = Vec::new();
                frames::samples(&pcm, channels, &mut received).expect("whole samples");
                loud += received.iter().filter(|sample| sample.unsigned_abs() > 1_000).count();
            }
        }
    }
}

/// A client that trusts the authority can do over TLS everything that plain HTTP does on that port.
#[test]
fn https_and_http_share_a_port() {
    let runner = auto();
    let trusted = trusting(&authority(&runner));
    for _ in 0..3 {
        let reply = secure(runner.addr, &trusted, "GET", "/status", "");
        assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("ready")));
        let plain = http::get(runner.addr, "/status");
        assert_eq!(plain.json()["transports"], reply.json()["transports"]);

        let body = r#"{"transport":"websocket"}"#;
        let reply = secure(runner.addr, &trusted, "POST", "/start", body);
        assert_eq!(reply.json()["wsUrl"], json!(format!("wss://{}/ws-client", runner.addr)));
        assert_eq!(
            start(&runner)["wsUrl"],
            json!(format!("ws://{}/ws-client", runner.addr))
        );
    }
    assert_eq!(
        secure(runner.addr, &trusted, "GET", "/ca.crt", "").body,
        authority(&runner)
    );
    let page = secure(runner.addr, &trusted, "GET", "/client/", "");
    assert!(page.text().contains("<html"), "{}", page.text());
    // Devices keep plain HTTP: nothing is redirected.
    let (json, reply) = (["Content-Type: application/json"], "{}");
    let reply = http::request(runner.addr, "POST", "/api/offer", &json, reply.as_bytes()).expect("an answer");
    assert_eq!(reply.status, 422);
}

/// A call over WSS carries speech like any other session.
#[test]
fn a_call_over_wss_has_sound() {
    let runner = auto();
    let trusted = trusting(&authority(&runner));
    let mut call = Call::begin(runner.addr, &trusted);
    call.echo();
    assert_eq!(runner.sessions(), 1);
    call.echo();
    call.0.close(None).expect("the runner reads");
    runner.wait_for_sessions(0);
}

/// The certificate covers every name of this machine and no others; ALPN is `http/1.1`; a client
/// without the authority fails; a returning client resumes its session.
#[test]
fn the_handshake_is_a_browsers() {
    let runner = auto();
    let trusted = trusting(&authority(&runner));
    for name in ["localhost", "127.0.0.1", "::1"] {
        connect(runner.addr, name, &trusted).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for name in ["bank.example", "198.51.100.1"] {
        connect(runner.addr, name, &trusted).expect_err(name);
    }
    let mut browser = ClientConfig::clone(&trusted);
    browser.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let browser = Arc::new(browser);
    let mut first = connect(runner.addr, "localhost", &browser).expect("it is trusted");
    assert_eq!(first.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    // The ticket comes with the first response.
    let request = format!(
        "GET /status HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        runner.addr
    );
    first.write_all(request.as_bytes()).expect("the runner reads");
    first.read_to_end(&mut Vec::new()).expect("the runner answers");
    let again = connect(runner.addr, "localhost", &browser).expect("it is trusted");
    assert_eq!(
        again.conn.handshake_kind(),
        Some(tokio_rustls::rustls::HandshakeKind::Resumed)
    );

    let mut strict = ClientConfig::clone(&trusted);
    strict.alpn_protocols = vec![b"h2".to_vec()];
    connect(runner.addr, "localhost", &Arc::new(strict)).expect_err("there is no HTTP/2");
    let unknown = CertificateParams::new(vec!["x".to_owned()]).expect("a name");
    let unknown = unknown
        .self_signed(&KeyPair::generate().expect("a key"))
        .expect("a certificate");
    connect(runner.addr, "localhost", &trusting(unknown.pem().as_bytes())).expect_err("it is not trusted");
    assert_eq!(http::get(runner.addr, "/status").status, 200);
}

/// The authority survives a restart, so devices keep trusting it.
#[test]
fn the_authority_persists() {
    let folder = auto();
    let state = folder.path("state");
    let first = authority(&folder);
    let other = TestRunner::start(&["--tls", "auto", "--state-dir", state.to_str().expect("a plain path")]);
    assert_eq!(authority(&other), first);
    assert!(folder.log().contains("SHA-256 "), "{}", folder.log());
    assert!(!folder.log().contains("PRIVATE KEY"));
}

/// Without an authority, the response says what would make one; a TLS handshake is closed when TLS
/// is off.
#[test]
fn without_tls_there_is_none() {
    let runner = TestRunner::start(&["-v"]);
    let reply = http::get(runner.addr, "/ca.crt");
    assert_eq!(reply.status, 404);
    assert!(reply.text().contains("--tls auto"), "{}", reply.text());
    let mut stream = tcp(runner.addr);
    stream
        .write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        .expect("the runner listens");
    let mut rest = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    runner.wait_for_log("it speaks TLS, which is off");
    // SIGHUP ends nothing.
    runner.signal("HUP");
    runner.wait_for_log("SIGHUP");
    assert_eq!(http::get(runner.addr, "/status").status, 200);
}

/// Garbage after the first byte of a handshake closes the connection, and the server lives.
#[test]
fn garbage_in_place_of_a_handshake_closes_the_connection() {
    let runner = auto();
    let record = |bytes: &[u8]| [&[0x16, 3, 1, (bytes.len() >> 8) as u8, bytes.len() as u8], bytes].concat();
    for rubbish in [
        b"\x16GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0x16; 40_000],
        vec![0x16, 0xff, 0xff, 0xff, 0xff],
        record(&[0; 16]),
        record(&[0xff; 300]),
        record(b"\x01\x00\x00\x03\x03\x03\x00"),
        record(b"\x02\x00\x00\x00"),
        [
            record(&[1, 0xff, 0xff, 0xff]),
            record(&[0; 16_000]),
            record(&[0; 16_000]),
        ]
        .concat(),
    ] {
        let mut stream = tcp(runner.addr);
        // The server may close while the test still writes.
        let _ = stream.write_all(&rubbish);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        // At most an alert comes back.
        assert!(rest.is_empty() || rest[0] == 0x15, "{rest:?}");
    }
    assert_eq!(http::get(runner.addr, "/status").status, 200);
}

/// Certificate files are read again at SIGHUP: new connections get the new one, a call keeps the
/// old one, and files that do not match change nothing.
#[test]
fn files_are_read_again_during_a_call() {
    let (old, new) = (CertificateFiles::new(), CertificateFiles::new());
    let folder = TestRunner::start(&[]);
    let (certificate, key) = (folder.path("cert.pem"), folder.path("key.pem"));
    let put = |files: &CertificateFiles| {
        fs::write(&certificate, &files.certificate).expect("written");
        fs::write(&key, &files.key).expect("written");
    };
    put(&old);
    let pair = format!("{}:{}", certificate.display(), key.display());
    let runner = TestRunner::start(&["--bot", "echo", "--tls", &pair]);
    assert_eq!(http::get(runner.addr, "/ca.crt").status, 404);
    let (trusts_old, trusts_new) = (
        trusting(old.certificate.as_bytes()),
        trusting(new.certificate.as_bytes()),
    );
    let mut call = Call::begin(runner.addr, &trusts_old);
    call.echo();

    fs::write(&key, &new.key).expect("written");
    runner.signal("HUP");
    let said = runner.wait_for_log("stays as it was");
    assert!(
        said.contains("ERROR") && said.contains("key.pem") && said.contains("another certificate"),
        "{said}"
    );
    connect(runner.addr, "localhost", &trusts_old).expect("the old one is served");

    put(&new);
    runner.signal("HUP");
    runner.wait_for_log("was read again");
    connect(runner.addr, "localhost", &trusts_new).expect("the new one is served");
    connect(runner.addr, "localhost", &trusts_old).expect_err("the old one is gone");
    call.echo();
    assert_eq!(runner.sessions(), 1);
}

/// Unusable files end the start, with a message and exit code 1.
#[test]
fn unusable_files_are_named() {
    let folder = TestRunner::start(&[]);
    let (old, new) = (CertificateFiles::new(), CertificateFiles::new());
    let place = |name: &str, text: &str| {
        let path = folder.path(name);
        fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let certificate = place("cert.pem", &old.certificate);
    let (foreign, none) = (place("foreign.pem", &new.key), place("none.pem", "hello"));
    let missing = folder.path("missing.pem").display().to_string();
    for (certificate, key, words) in [
        (&certificate, &foreign, ["foreign.pem", "another certificate"]),
        (&certificate, &none, ["none.pem", "no private key"]),
        (&none, &foreign, ["none.pem", "no certificate"]),
        (&missing, &foreign, ["missing.pem", "No such file"]),
    ] {
        let ended = TestRunner::run(&[
            "--port",
            "0",
            "--rtc-port",
            "0",
            "--tls",
            &format!("{certificate}:{key}"),
        ]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(
            words.iter().all(|word| ended.stderr.contains(word)),
            "{words:?} in {ended:?}"
        );
        assert!(!ended.stdout.contains("listening"));
    }
}

/// More silent connections than there are permits, of three kinds: every other request is answered,
/// and the runner closes all of them.
#[test]
fn half_open_connections_do_not_block_clients() {
    let runner = auto();
    let trusted = trusting(&authority(&runner));
    let count = 300.max(HTTP_CONNECTIONS_MAX + 60);
    let halves: [&[u8]; 3] = [
        b"",
        b"POST /start HTTP/1.1\r\nHost: x\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ];
    let mut silent = Vec::new();
    for half in halves.iter().cycle().take(count) {
        let mut stream = tcp(runner.addr);
        stream.write_all(half).expect("the runner listens");
        silent.push(stream);
        if silent.len().is_multiple_of(20) {
            start(&runner);
            assert_eq!(secure(runner.addr, &trusted, "POST", "/start", "{}").status, 200);
        }
    }
    for mut stream in silent {
        let mut rest = Vec::new();
        // A reset is an end too.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest[0] == 0x15, "{rest:?}");
    }
    start(&runner);
}
