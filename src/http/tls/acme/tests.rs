//! The state of `--tls acme` in temporary folders, without a directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::SystemTime;

use rcgen::{CertificateParams, KeyPair};
use tokio_rustls::rustls::crypto::ring;

use super::http::pause;
use super::*;
use crate::testing::TempDir;
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
