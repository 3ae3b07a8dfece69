//! Canaries of HTTPS: the lines of private keys from files and of generated ones.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, Stream};

use super::{B_KEY, Watched, assert_silent, secrets};
use crate::support::http;
use crate::support::runner::TestRunner;

/// Private keys: a file that is replaced by a broken one, and a generated key.
#[test]
fn no_private_key_comes_out_of_a_runner() {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("the system has random numbers");
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = certificate.self_signed(&key).expect("a certificate").pem();
    let key = key.serialize_pem();
    let files = [("tls.crt", certificate.as_str()), ("tls.key", &key)];
    let debug = [("RUST_LOG", "debug")];
    let watched = |options: &[&str]| Watched {
        runner: TestRunner::start_among(&files, options, &debug),
        secrets: secrets(),
        key: None,
    };

    let mut own = watched(&["--tls", "tls.crt:tls.key"]);
    own.secrets.extend(lines_of_key(&key));
    ask_over_tls(&own);
    let broken = format!("-----BEGIN PRIVATE KEY-----\n{B_KEY}\n-----END PRIVATE KEY-----\n");
    std::fs::write(own.runner.path("tls.key"), broken).expect("the folder is writable");
    own.runner.signal("HUP");
    own.runner.wait_for_log("tls.key");
    ask_over_tls(&own);
    own.end(&[" DEBUG "]);

    let mut made = watched(&["--tls", "auto", "--state-dir", "."]);
    for name in ["authority.pem", "server.pem"] {
        let pem = std::fs::read_to_string(made.runner.path(name)).expect("the runner keeps it");
        made.secrets.extend(lines_of_key(&pem));
    }
    ask_over_tls(&made);
    made.runner.signal("HUP");
    made.end(&[" DEBUG "]);
}

/// The base64 lines of a PEM private key.
fn lines_of_key(pem: &str) -> Vec<String> {
    let (_, behind) = pem.split_once("PRIVATE KEY-----").expect("there is a key");
    let (body, _) = behind.split_once("-----END").expect("it has an end");
    let lines: Vec<String> = body
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    assert!(!lines.is_empty());
    lines
}

/// Requests everything readable with TLS, without TLS, and without a protocol.
fn ask_over_tls(watched: &Watched) {
    let addr = watched.addr();
    let mut texts = Vec::new();
    for target in [
        "/ca.crt",
        "/status",
        "/metrics",
        "/client/",
        "/server.pem",
        "/client/../server.pem",
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        texts.push(http::get(addr, target).text());
        let mut stream = TcpStream::connect(addr).expect("the runner listens");
        let mut session = tls_client();
        let mut secure = Stream::new(&mut session, &mut stream);
        secure.write_all(request.as_bytes()).expect("a handshake");
        let mut answer = Vec::new();
        // How the connection ends is irrelevant here.
        let _ = secure.read_to_end(&mut answer);
        texts.push(String::from_utf8_lossy(&answer).into_owned());
    }
    for torn in [
        &b"\x16\x03\x01\x00\x04\x01\x00\x00\x00"[..],
        b"\x16\x03\x01\xff\xff\x01",
    ] {
        let answer = http::exchange(addr, torn).map(|reply| reply.text());
        texts.push(format!("{answer:?}"));
    }
    assert!(texts.iter().any(|text| text.contains("ready")), "{texts:?}");
    for text in texts {
        assert_silent(&text, &watched.secrets);
    }
}

/// A client that accepts any certificate.
fn tls_client() -> ClientConnection {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the cipher suites")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), "localhost".try_into().expect("a name")).expect("a client")
}

/// Accepts every certificate.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
