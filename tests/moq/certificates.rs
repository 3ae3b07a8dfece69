//! Certificates: which one the runner serves and when it changes, and how it verifies a relay. A
//! runner in serve mode stands for the relay of the doctor; calls through relays are in
//! `tests/peers/moq/dial.py`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::{SERVE, invite, serve, start};
use crate::support::certificate::{CertificateFiles, TestAuthority};
use crate::support::http;
use crate::support::moq::{MoqClient, MoqInvitation};
use crate::support::ports::free_port;
use crate::support::runner::{TestRunner, folder};
use crate::support::skip;

/// The last year of a certificate that is valid, and of one that has expired.
const VALID: i32 = 4_000;
const EXPIRED: i32 = 2_020;

fn hash(files: &CertificateFiles) -> Vec<u8> {
    let der = CertificateDer::from_pem_slice(files.certificate.as_bytes()).expect("a certificate");
    Sha256::digest(&der).to_vec()
}

/// Paths of files in a folder of their own.
struct CertificateFolder {
    certificate: String,
    key: String,
    authority: String,
}

impl CertificateFolder {
    fn new(authority: &TestAuthority) -> Self {
        let folder = folder();
        let path = |name: &str| folder.join(name).display().to_string();
        let made = CertificateFolder {
            certificate: path("cert.pem"),
            key: path("key.pem"),
            authority: path("authority.pem"),
        };
        fs::write(&made.authority, authority.pem()).expect("written");
        made
    }

    fn put(&self, files: &CertificateFiles) {
        fs::write(&self.certificate, &files.certificate).expect("written");
        fs::write(&self.key, &files.key).expect("written");
    }

    fn https(&self) -> String {
        format!("{}:{}", self.certificate, self.key)
    }

    /// The variable that makes a runner trust the authority alone.
    fn trust(&self) -> [(&str, &str); 1] {
        [("SSL_CERT_FILE", &self.authority)]
    }
}

/// A call by the certificate of this hash.
fn talks(runner: &TestRunner, reply: &Value, hash: Option<Vec<u8>>) -> MoqClient {
    let mut invitation = MoqInvitation::read(reply);
    if let Some(hash) = hash {
        invitation.certificate_hash = hash;
    }
    let client = MoqClient::connect(&invitation);
    client.hum(440.0);
    client.wait_for_tone(440.0);
    assert!(runner.sessions() > 0);
    client
}

/// SIGHUP reads the certificate again. A call goes on; later callers get the hash of the new
/// one and connect by it.
#[test]
fn a_new_certificate_ends_no_call() {
    let folder = TestRunner::start(&[]);
    let (certificate, key) = (folder.path("cert.pem"), folder.path("key.pem"));
    let put = |files: &CertificateFiles| {
        fs::write(&certificate, &files.certificate).expect("written");
        fs::write(&key, &files.key).expect("written");
    };
    put(&CertificateFiles::new());
    let files = [&certificate, &key].map(|path| path.display().to_string());
    let runner = serve(&["--bot", "echo", "--moq-tls-cert", &files[0], "--moq-tls-key", &files[1]]);
    let before = invite(&runner, &json!({}));
    let early = MoqClient::connect(&before);
    early.hum(440.0);
    early.wait_for_tone(440.0);

    put(&CertificateFiles::new());
    runner.signal("HUP");
    runner.wait_for_log("was read again");
    let after = invite(&runner, &json!({}));
    assert_ne!(before.certificate_hash, after.certificate_hash);
    let late = MoqClient::connect(&after);
    late.hum(660.0);
    late.wait_for_tone(660.0);
    early.hum(990.0);
    early.wait_for_tone(990.0);
    assert_eq!(runner.sessions(), 2);
}

/// the certificate of `--tls` serves QUIC if this system trusts its authority, without a
/// hash in `/start`; else the runner makes one. SIGHUP decides anew. Calls go on.
#[test]
fn the_certificate_of_https_serves_quic_while_it_is_trusted() {
    let authority = TestAuthority::new();
    let (public, own) = (authority.issue(VALID), CertificateFiles::new());
    let files = CertificateFolder::new(&authority);
    files.put(&own);
    let https = files.https();
    let runner = TestRunner::start_with(
        &[&SERVE[..], &["--bot", "echo", "--tls", &https]].concat(),
        &files.trust(),
    );
    runner.wait_for_log("this system does not trust the authority of");
    let reply = start(&runner, &json!({})).json();
    let made = MoqInvitation::read(&reply).certificate_hash;
    assert!(!made.is_empty() && made != hash(&own), "{reply}");
    let early = talks(&runner, &reply, None);

    files.put(&public);
    runner.signal("HUP");
    runner.wait_for_log("the certificate of Media over QUIC was read again");
    let reply = start(&runner, &json!({})).json();
    assert_eq!(reply["moq"]["certHash"], Value::Null);
    let _late = talks(&runner, &reply, Some(hash(&public)));
    early.wait_for_tone(440.0);

    // One that has expired is not trusted.
    files.put(&authority.issue(EXPIRED));
    runner.signal("HUP");
    runner.wait_for_log("the certificate of Media over QUIC was renewed");
    let reply = start(&runner, &json!({})).json();
    let again = MoqInvitation::read(&reply).certificate_hash;
    assert!(!again.is_empty() && again != made, "{reply}");
    let _last = talks(&runner, &reply, None);
    early.wait_for_tone(440.0);
    assert_eq!(runner.sessions(), 3);
}

/// The doctor says which certificate the runner would serve, by the runner's own rule.
#[test]
fn the_doctor_judges_the_certificate_of_https_as_the_runner_does() {
    let authority = TestAuthority::new();
    let files = CertificateFolder::new(&authority);
    let https = files.https();
    let doctor = |trust: &[(&str, &str)]| {
        let args = [
            "doctor",
            "--port",
            "0",
            "--rtc-port",
            "0",
            "--moq-bind",
            "127.0.0.1:0",
            "-t",
            "moq",
            "--tls",
            &https,
        ];
        TestRunner::run_with(&args, trust).stdout
    };
    let other = folder().join("other.pem");
    fs::write(&other, TestAuthority::new().pem()).expect("written");
    let distrust = [("SSL_CERT_FILE", other.to_str().expect("text"))];
    let made =
        "ok    quic tls    the runner makes a certificate for 13 days and renews it, since this system does not trust";
    for (given, trust, words) in [
        (
            authority.issue(VALID),
            &files.trust(),
            "ok    quic tls    the certificate is for localhost",
        ),
        (authority.issue(VALID), &distrust, made),
        (authority.issue(EXPIRED), &files.trust(), made),
        (CertificateFiles::new(), &files.trust(), made),
    ] {
        files.put(&given);
        let text = doctor(trust);
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Browsers accept a self-signed certificate by its hash only on P-256 and for at most 14 days:
/// start-up and doctor say what they refuse. `/start` gives the hash all the same, since programs
/// accept any certificate by it.
#[test]
fn a_certificate_that_browsers_refuse_is_reported() {
    let files = CertificateFolder::new(&TestAuthority::new());
    let own = CertificateFiles::new();
    files.put(&own);
    let pair = ["--moq-tls-cert", &files.certificate, "--moq-tls-key", &files.key];
    let runner = serve(&[&pair[..], &["--bot", "echo"]].concat());
    let warning = runner.wait_for_log("browsers refuse the certificate");
    assert!(
        warning.contains("WARN") && warning.contains("days, and 14 are allowed"),
        "{warning}"
    );
    let reply = start(&runner, &json!({})).json();
    talks(&runner, &reply, None);
    assert_eq!(MoqInvitation::read(&reply).certificate_hash, hash(&own));
    let doctor = |more: &[&str]| {
        let args = ["doctor", "--port", "0", "--rtc-port", "0", "-t", "moq"];
        TestRunner::run(&[&args[..], more].concat()).stdout
    };
    let text = doctor(&[&["--moq-bind", "127.0.0.1:0"], &pair[..]].concat());
    let words = "warn  quic tls    browsers refuse the self-signed certificate by its hash: it is valid for";
    assert!(text.contains(words), "{text}");
    // The relay's, which browsers get the hash of.
    let relay = [
        "--moq-connect",
        "https://localhost:9/moq",
        "--moq-tls-cert",
        &files.certificate,
    ];
    let runner = TestRunner::start(&[&SERVE[..2], &relay].concat());
    runner.wait_for_log("browsers refuse the certificate");
    fs::remove_file(&files.certificate).expect("it is there");
    let runner = TestRunner::start(&[&SERVE[..2], &relay].concat());
    runner.wait_for_log("/start fails until the file is right");
}

/// A runner whose certificate is that of the authority, in the role of a relay. Returns its port.
fn relay(files: &CertificateFolder, bind: &str) -> (TestRunner, u16) {
    let pair = ["--moq-tls-cert", &files.certificate, "--moq-tls-key", &files.key];
    let runner = TestRunner::start(&[&["-t", "moq", "--moq-bind", bind], &pair[..]].concat());
    let url = start(&runner, &json!({})).json()["moq"]["relayUrl"].take();
    let url = url.as_str().expect("a URL");
    let port = url
        .strip_suffix("/moq")
        .and_then(|url| url.rsplit_once(':')?.1.parse().ok());
    (runner, port.expect("a port"))
}

fn ask_doctor(url: &str, trust: &[(&str, &str)]) -> String {
    let args = [
        "doctor",
        "--port",
        "0",
        "--rtc-port",
        "0",
        "-t",
        "moq",
        "--moq-connect",
        url,
    ];
    TestRunner::run_with(&args, trust).stdout
}

/// By default a relay is verified by the authorities of this system, whatever the form of its URL.
#[test]
fn a_relay_is_verified_by_the_authorities_of_the_system() {
    let authority = TestAuthority::new();
    let files = CertificateFolder::new(&authority);
    files.put(&authority.issue(VALID));
    let has_ipv6 = skip::has_ipv6("a relay at an IPv6 address");
    let (_relay, port) = relay(&files, if has_ipv6 { "[::]:0" } else { "0.0.0.0:0" });
    let hosts = ["localhost", "127.0.0.1", "[::1]"];
    for host in &hosts[..if has_ipv6 { 3 } else { 2 }] {
        for url in [
            format!("https://{host}:{port}/moq"),
            format!("https://{host}:{port}"),
            format!("moqt://{host}:{port}/moq"),
            format!("moql://{host}:{port}/moq"),
        ] {
            let text = ask_doctor(&url, &files.trust());
            let words = "accepts connections, and its certificate is trusted";
            assert!(
                text.contains("ok    relay       ") && text.contains(words),
                "{url}: {text}"
            );
        }
    }
    let text = ask_doctor(&format!("https://localhost:{port}/moq"), &[]);
    assert!(
        text.contains("FAIL  relay") && text.contains("its certificate is not trusted"),
        "{text}"
    );
    let text = ask_doctor(&format!("https://localhost:{port}/elsewhere"), &files.trust());
    assert!(text.contains("HTTP status 404"), "{text}");
}

/// With `http` the certificate is the one whose hash the relay publishes over plain HTTP. Start-up
/// and doctor say that the hash itself is not protected.
#[test]
fn a_relay_over_http_is_verified_by_the_hash_that_it_publishes() {
    let authority = TestAuthority::new();
    let files = CertificateFolder::new(&authority);
    let issued = authority.issue(VALID);
    files.put(&issued);
    let (_relay, port) = relay(&files, &format!("127.0.0.1:{}", free_port()));
    let url = format!("http://127.0.0.1:{port}/moq");
    let answers = |status: &str, body: String| {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port that only QUIC uses");
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        // The doctor dials twice when the first attempt fails.
        let times = if body == HEXLOWER.encode(&hash(&issued)) { 1 } else { 2 };
        std::thread::spawn(move || {
            let mut asked = Vec::new();
            for _ in 0..times {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut request = [0; 1_024];
                let length = stream.read(&mut request).expect("a request");
                asked.push(String::from_utf8_lossy(&request[..length]).into_owned());
                stream.write_all(answer.as_bytes()).expect("the client reads");
            }
            asked
        })
    };
    for (status, body, words) in [
        ("200 OK", HEXLOWER.encode(&hash(&issued)), "warn  relay"),
        (
            "200 OK",
            HEXLOWER.encode(&[7; 32]),
            "is not the one whose hash it has at /certificate.sha256",
        ),
        (
            "200 OK",
            "no hash".to_owned(),
            "has no hash at /certificate.sha256: 200",
        ),
        (
            "404 Not Found",
            String::new(),
            "has no hash at /certificate.sha256: 404",
        ),
    ] {
        let server = answers(status, body);
        let text = ask_doctor(&url, &[]);
        assert!(text.contains(words), "{words}: {text}");
        let asked = server.join().expect("it answers");
        assert!(
            asked[0].starts_with("GET /certificate.sha256 HTTP/1.1\r\n"),
            "{asked:?}"
        );
    }
    let runner = TestRunner::start(&["-t", "moq", "--moq-connect", &url]);
    let warning = runner.wait_for_log("comes over plain HTTP");
    assert!(warning.contains("WARN"), "{warning}");
}

/// the runner's own certificate is renewed while a call goes on; a later caller connects by
/// the new hash. libfaketime changes the wall clock of this process only.
#[test]
fn a_renewal_ends_no_call() {
    let Some(library) = skip::faketime("the renewal of a certificate") else {
        return;
    };
    let offset = folder().join("offset");
    let jump = |to: &str| fs::write(&offset, to).expect("the build's folder is writable");
    jump("+0");
    let runner = TestRunner::start_with(
        &[&SERVE[..], &["--bot", "echo"]].concat(),
        &[
            ("LD_PRELOAD", &library),
            ("FAKETIME_TIMESTAMP_FILE", offset.to_str().expect("text")),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ],
    );
    let before = invite(&runner, &json!({}));
    let call = MoqClient::connect(&before);
    call.hum(440.0);
    call.wait_for_tone(440.0);
    assert_eq!(
        invite(&runner, &json!({})).certificate_hash,
        before.certificate_hash,
        "it is not due"
    );
    // The last day: it does not wait for the session that has no caller yet.
    jump("+12d");
    let after = invite(&runner, &json!({}));
    runner.wait_for_log("the certificate of Media over QUIC was renewed");
    assert_ne!(after.certificate_hash, before.certificate_hash);
    let late = MoqClient::connect(&after);
    late.hum(660.0);
    late.wait_for_tone(660.0);
    call.hum(990.0);
    call.wait_for_tone(990.0);
    assert_eq!(http::get(runner.addr, "/status").json()["sessions"], 3);
}
