//! `--tls acme`: its state in temporary folders, and orders from a scripted directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::SystemTime;

use rcgen::{CertificateParams, KeyPair};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::rustls::crypto::ring;

use super::http::pause;
use super::*;
use crate::testing::{TempDir, read_request};
use edge_runner_proto::config::Tls;
use edge_runner_proto::server::acme::Failures;

const DIRECTORY: &str = "https://ca.example.net/directory";

fn settings(folder: &TempDir) -> TlsSettings {
    TlsSettings {
        tls: Tls::Acme,
        acme: AcmeConfig {
            names: vec!["bot.example.net".into()],
            directory: DIRECTORY.into(),
            ..AcmeConfig::default()
        },
        host_names: Vec::new(),
        state_dir: Some(folder.0.clone()),
        ca_url: String::new(),
    }
}

fn open(settings: &TlsSettings) -> Result<Arc<AcmeTls>, String> {
    let provider = Arc::new(ring::default_provider());
    AcmeTls::open(settings, provider)
        .map(Arc::new)
        .map_err(|why| why.to_string())
}

/// PEM of a certificate and its key.
fn issued(name: &str) -> String {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new([name.to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    certificate.pem() + &key.serialize_pem()
}

/// A failure and its pause outlive the runner, in a file for its owner alone; another directory has
/// another file.
#[tokio::test]
async fn failures_are_stored() {
    let folder = TempDir::new();
    let acme = open(&settings(&folder)).expect("the folder can be used");
    acme.fail(&OrderFailure::refused("no".into())).await;
    let failures = lock(&acme.clock).failures();
    assert_eq!(failures.refused, 1);
    let again = open(&settings(&folder)).expect("the folder can be used");
    assert_eq!(lock(&again.clock).failures(), failures);
    let path = folder.path(&file_names(DIRECTORY).0);
    assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
    let mut other = settings(&folder);
    other.acme.directory.push('2');
    let other = open(&other).expect("the folder can be used");
    assert_eq!(lock(&other.clock).failures(), Failures::default());
}

/// A stored certificate is served to clients that ask for its name; a file that others can read is
/// closed, and a damaged one is not used.
#[test]
fn a_stored_certificate_is_used() {
    let folder = TempDir::new();
    let path = folder.path(&file_names(DIRECTORY).1);
    fs::write(&path, issued("bot.example.net")).expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("changed");
    let acme = open(&settings(&folder)).expect("the folder can be used");
    let current = acme.current().expect("a certificate");
    assert!(is_for(&current.certificate, "bot.example.net") && !is_for(&current.certificate, "other.example.net"));
    assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
    assert!(acme.next_order_s(unix_time_s()) > unix_time_s());
    for damaged in [
        "",
        "rubbish",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        fs::write(&path, damaged).expect("written");
        let acme = open(&settings(&folder)).expect("the folder can be used");
        assert!(acme.current().is_none(), "{damaged}");
        assert_eq!(acme.next_order_s(unix_time_s()), 0);
    }
}

/// A certificate of the directory is stored and served only if it is for the names.
#[tokio::test]
async fn a_certificate_for_other_names_is_not_taken() {
    let folder = TempDir::new();
    let acme = open(&settings(&folder)).expect("the folder can be used");
    let path = folder.path(&file_names(DIRECTORY).1);
    acme.accept(issued("other.example.net")).await;
    assert!(acme.current().is_none() && !path.exists());
    assert_eq!(lock(&acme.clock).failures().refused, 1);
    acme.accept(issued("bot.example.net")).await;
    assert!(acme.current().is_some() && path.exists());
    assert_eq!(lock(&acme.clock).failures(), Failures::default());
}

/// A damaged account is renamed; without a usable folder or root the runner does not start.
#[test]
fn damaged_files_are_reported() {
    let folder = TempDir::new();
    let account = folder.path(&file_names(DIRECTORY).0);
    for damaged in [
        "",
        "{}",
        r#"{"account":{},"email":null,"refused":-1,"unreachable":0,"notBefore":0,"askedByDirectory":false}"#,
    ] {
        fs::write(&account, damaged).expect("written");
        let acme = open(&settings(&folder)).expect("the folder can be used");
        assert_eq!(lock(&acme.clock).failures(), Failures::default());
    }
    assert!(fs::read_dir(&folder.0).expect("readable").any(|entry| {
        let name = entry.expect("readable").file_name();
        name.to_string_lossy().contains(".json.damaged-")
    }));
    let mut rooted = settings(&folder);
    rooted.acme.root = Some(account.clone());
    assert!(open(&rooted).err().expect("refused").contains("--acme-root"));
    fs::write(folder.path("root.pem"), issued("ca.example.net")).expect("written");
    rooted.acme.root = Some(folder.path("root.pem"));
    assert!(open(&rooted).is_ok());
    let mut blocked = settings(&folder);
    blocked.state_dir = Some(account);
    assert!(open(&blocked).err().expect("refused").contains("--state-dir"));
}

/// `Retry-After` is a number of seconds or a date.
#[test]
fn retry_after_is_parsed() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let seconds = |text| pause(text, now).map(|pause| pause.as_secs());
    assert_eq!(seconds("120"), Some(120));
    assert_eq!(seconds(" Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
    assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), None);
    assert_eq!((seconds(""), seconds("soon"), seconds("-1")), (None, None, None));
}

/// Starts a directory that certifies `bot.example.net` without a validation, and that answers
/// requests for these paths with 204 and without a body. Returns its URL.
async fn directory(without_body: &'static [&'static str]) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let url = format!("{base}/directory");
    let task = tokio::spawn(async move {
        let identifier = r#"{"type":"dns","value":"bot.example.net"}"#;
        let order = |status: &str| {
            format!(
                r#"{{"status":"{status}","identifiers":[{identifier}],"authorizations":["{base}/authorization"],
                "finalize":"{base}/finalize","certificate":"{base}/certificate"}}"#
            )
        };
        let mut status = "ready";
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let request = read_request(&mut stream).await;
            let path = request.split(' ').nth(1).expect("a path");
            let (location, body) = match path {
                "/directory" => (
                    "",
                    format!(
                        r#"{{"newNonce":"{base}/nonce","newAccount":"{base}/account","newOrder":"{base}/new-order"}}"#
                    ),
                ),
                "/account" => ("/account/1", r#"{"status":"valid"}"#.to_owned()),
                "/new-order" => ("/order", order("pending")),
                "/authorization" => (
                    "",
                    format!(
                        r#"{{"identifier":{identifier},"status":"pending","challenges":[{{"type":"tls-alpn-01",
                        "url":"{base}/challenge","token":"t","status":"pending"}}]}}"#
                    ),
                ),
                "/challenge" => (
                    "",
                    r#"{"type":"tls-alpn-01","url":"x","token":"t","status":"valid"}"#.to_owned(),
                ),
                "/order" => ("", order(status)),
                "/finalize" => {
                    status = "valid";
                    ("", order(status))
                }
                "/certificate" => ("", "a chain".to_owned()),
                _ => ("", String::new()),
            };
            let (status, body) = match without_body.contains(&path) {
                true => ("204 No Content", String::new()),
                false => ("200 OK", format!("content-length: {}\r\n\r\n{body}", body.len())),
            };
            let end = if body.is_empty() { "\r\n" } else { "" };
            let head = format!("HTTP/1.1 {status}\r\nreplay-nonce: n\r\nlocation: {base}{location}\r\n{end}");
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    });
    (url, task)
}

/// Directories that answer 204 where nothing is read from the body certify all the same; elsewhere
/// the failure says what is missing.
#[tokio::test(start_paused = true)]
async fn answers_without_a_body_are_accepted_or_named() {
    for (without_body, expected) in [
        (&[][..], Ok("a chain")),
        (&["/nonce", "/account", "/challenge"], Ok("a chain")),
        (&["/new-order"], Err("answered without a body where ACME has one")),
        (&["/directory"], Err("answered without a body where ACME has one")),
    ] {
        let (url, task) = directory(without_body).await;
        let folder = TempDir::new();
        let mut settings = settings(&folder);
        settings.acme.directory = url;
        let acme = open(&settings).expect("the folder can be used");
        match (order::perform(&acme).await, expected) {
            (Ok(certificate), Ok(chain)) => assert!(certificate.starts_with(chain), "{certificate}"),
            (Err(failure), Err(words)) => assert!(failure.text.contains(words), "{failure}"),
            (ordered, _) => panic!("{without_body:?}: {ordered:?}"),
        }
        task.abort();
    }
}

fn answers(bodies: &[&str]) -> Vec<scripted::DirectoryAnswer> {
    let answer = |body: &&str| scripted::DirectoryAnswer {
        status: 200,
        retry_after: String::new(),
        body: body.as_bytes().to_vec(),
    };
    bodies.iter().map(answer).collect()
}

const URLS: &str = r#"{"newNonce": "https://ca.example.net/n", "newAccount": "https://ca.example.net/a",
    "newOrder": "https://ca.example.net/o"}"#;
const ACCOUNT: &str = r#"{"status": "valid"}"#;
const ORDER: &str = r#"{"status": "pending", "identifiers": [], "authorizations": ["https://ca.example.net/z"],
    "finalize": "https://ca.example.net/f"}"#;
const CHALLENGE: &str =
    r#"{"type": "tls-alpn-01", "url": "https://ca.example.net/c", "token": "t", "status": "processing"}"#;

fn authorization(name: &str) -> String {
    format!(
        r#"{{"identifier": {{"type": "dns", "value": "{name}"}}, "status": "pending", "challenges":
        [{{"type": "tls-alpn-01", "url": "https://ca.example.net/c", "token": "t", "status": "pending"}}]}}"#
    )
}

/// `instant-acme` adds any pause to the clock, which panics for the longest.
#[test]
fn no_pause_that_a_directory_asks_for_stops_the_runner() {
    for retry_after in ["18446744073709551615", "0", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        let own = authorization("bot.example.net");
        let mut answers = answers(&[URLS, ACCOUNT, ORDER, &own, CHALLENGE]);
        let pending = scripted::DirectoryAnswer {
            status: 200,
            retry_after: retry_after.to_owned(),
            body: ORDER.into(),
        };
        answers.extend(vec![pending; 1000]);
        let ordered = scripted::order(&["bot.example.net"], answers);
        assert!(!matches!(ordered.result, Some(Ok(_))), "{ordered:?}");
        // Five answers before the order, which is asked for at least once.
        assert!(
            (6..400).contains(&ordered.asked),
            "{retry_after}: {} questions",
            ordered.asked
        );
    }
}

/// A validation of a name that was not ordered gets no answer: the TLS listener would serve its
/// certificate to any client.
#[test]
fn names_that_were_not_ordered_are_not_validated() {
    for (name, validated) in [("bot.example.net", 1), ("other.example.net", 0)] {
        let ordered = scripted::order(
            &["bot.example.net"],
            answers(&[URLS, ACCOUNT, ORDER, &authorization(name)]),
        );
        assert_eq!(ordered.validated.len(), validated, "{ordered:?}");
        assert!(ordered.has_account && !ordered.serves);
    }
}

/// `instant-acme` panics at a URL that it cannot request.
#[test]
fn an_answer_with_a_wrong_url_fails_the_order() {
    let wrong_order = ORDER.replace("https://ca.example.net/z", "https://ca example");
    let wrong_challenge = authorization("bot.example.net").replace("https://ca.example.net/c", "/c");
    for (field, bodies) in [
        ("newNonce", &[&*URLS.replace("https://ca.example.net/n", "")][..]),
        ("authorizations", &[URLS, ACCOUNT, &wrong_order]),
        ("url", &[URLS, ACCOUNT, ORDER, &wrong_challenge]),
    ] {
        let ordered = scripted::order(&["bot.example.net"], answers(bodies));
        let failure = ordered.result.expect("at once").expect_err("no URL");
        assert!(failure.text.contains(&format!("`{field}`")), "{failure}");
    }
}

/// A panic in an order ends the order and not the runner.
#[tokio::test(start_paused = true)]
async fn a_panic_in_an_order_is_a_failure() {
    let folder = TempDir::new();
    let acme = open(&settings(&folder)).expect("the folder can be used");
    let ordered = acme.bounded(|_| async { panic!("a test of panics") }).await;
    assert!(ordered.expect_err("no certificate").text.contains("stopped the order"));
    let ordered = acme.bounded(|_| std::future::pending()).await;
    assert!(ordered.expect_err("no certificate").text.contains("within 300 s"));
}
