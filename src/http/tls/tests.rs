//! Certificates in temporary folders, with clocks and addresses set by the tests.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::auto::{AUTHORITY, SERVER};
use super::*;
use crate::testing::TempDir;
use edge_runner_proto::server::tls::{CertificateName, RELEASED_S, RenewalReason};

const DAY_S: u64 = 86_400;
const NOW_S: u64 = RELEASED_S + 100 * DAY_S;

impl TempDir {
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn settings(&self) -> TlsSettings {
        TlsSettings {
            tls: config::Tls::Auto,
            acme: config::AcmeConfig::default(),
            host_names: vec!["board".into()],
            state_dir: Some(self.0.clone()),
            ca_url: "a place".into(),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn home() -> Vec<IpAddr> {
    vec!["192.168.1.7".parse().expect("an address")]
}

fn away() -> Vec<IpAddr> {
    vec!["192.168.2.9".parse().expect("an address")]
}

fn open(settings: &TlsSettings, addresses: &[IpAddr], clock_s: u64) -> (AutoTls, Arc<CertifiedKey>) {
    AutoTls::open(settings, provider(), addresses, clock_s).expect("a certificate can be made")
}

fn names(key: &CertifiedKey) -> Vec<CertificateName> {
    let first = key.cert.first().expect("a certificate");
    edge_runner_proto::server::tls::parsed::Certificate::read(first)
        .expect("readable")
        .names
}

/// A stored certificate is reused, and its file is private to its owner.
#[test]
fn certificates_are_stored_and_reused() {
    let folder = TempDir::new();
    let deep = TlsSettings {
        state_dir: Some(folder.path("state/edge-runner")),
        ..folder.settings()
    };
    let (first, shown) = open(&deep, &home(), NOW_S);
    let (second, again) = open(&deep, &home(), NOW_S + DAY_S);
    assert_eq!(
        (&first.authority.pem, &shown.cert),
        (&second.authority.pem, &again.cert)
    );
    assert!(
        first.authority.certificate.subject.contains("on board ("),
        "{}",
        first.authority.certificate.subject
    );
    let mode = |name: &str| fs::metadata(folder.path(name)).expect("it is there").mode() & 0o777;
    assert_eq!(mode("state/edge-runner"), 0o700);
    for name in [AUTHORITY, SERVER] {
        assert_eq!(mode(&format!("state/edge-runner/{name}")), 0o600, "{name}");
    }
    let text = std::str::from_utf8(&first.authority.pem).expect("PEM is text");
    assert!(text.starts_with("-----BEGIN CERTIFICATE-----\n") && !text.contains("KEY"));
    assert!(first.authority.fingerprint().len() == 32 * 3 - 1);
}

/// A new address and an expiry each cause a renewal by the same authority; old addresses stay.
#[test]
fn a_certificate_is_renewed_under_the_same_authority() {
    let folder = TempDir::new();
    let (auto, first) = open(&folder.settings(), &home(), NOW_S);
    assert_eq!(auto.due(&home(), NOW_S), None);
    let moved = CertificateName::Address(away()[0]);
    assert_eq!(auto.due(&away(), NOW_S), Some(RenewalReason::Missing(moved.clone())));
    let second = auto.renew(&away(), NOW_S).expect("it can be made");
    assert_ne!(first.cert, second.cert);
    assert!(names(&second).contains(&moved) && names(&second).contains(&CertificateName::Address(home()[0])));
    assert_eq!((auto.due(&away(), NOW_S), auto.due(&home(), NOW_S)), (None, None));

    let later_s = NOW_S + 600 * DAY_S;
    assert_eq!(auto.due(&home(), later_s), Some(RenewalReason::Ending));
    let third = auto.renew(&home(), later_s).expect("it can be made");
    assert_eq!(auto.due(&home(), later_s), None);
    let (after, kept) = open(&folder.settings(), &home(), later_s);
    assert_eq!(
        (kept.cert.clone(), &after.authority.pem),
        (third.cert.clone(), &auto.authority.pem)
    );
}

/// A certificate that another runner has renewed is reused.
#[test]
fn a_certificate_renewed_by_another_runner_is_reused() {
    let folder = TempDir::new();
    let (one, _) = open(&folder.settings(), &home(), NOW_S);
    let (other, _) = open(&folder.settings(), &home(), NOW_S);
    let made = one.renew(&away(), NOW_S).expect("it can be made");
    let found = other.renew(&away(), NOW_S).expect("it can be found");
    assert_eq!(made.cert, found.cert);
}

/// Runners that start together in an empty folder share one authority.
#[test]
fn runners_that_start_together_share_an_authority() {
    let folder = TempDir::new();
    let settings = folder.settings();
    let start = || open(&settings, &home(), NOW_S);
    let opened: Vec<_> = std::thread::scope(|scope| {
        let runners: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        runners
            .into_iter()
            .map(|runner| runner.join().expect("no runner panics"))
            .collect()
    });
    let (first, shown) = &opened[0];
    for (auto, key) in &opened {
        assert_eq!((&auto.authority.pem, &key.cert), (&first.authority.pem, &shown.cert));
    }
}

/// A clock in 1970 makes a certificate that is valid once the clock is set.
#[test]
fn a_clock_in_1970_is_tolerated() {
    let folder = TempDir::new();
    let (auto, first) = open(&folder.settings(), &home(), 17);
    assert_eq!(auto.due(&home(), 60), None);
    assert_eq!(auto.due(&home(), RELEASED_S + 300 * DAY_S), None);
    let late_s = RELEASED_S + 2000 * DAY_S;
    assert_eq!(auto.due(&home(), late_s), Some(RenewalReason::Ending));
    let second = auto.renew(&home(), late_s).expect("it can be made");
    // The next start is in 1970 again.
    let (next, kept) = open(&folder.settings(), &home(), 17);
    assert_ne!(first.cert, second.cert);
    assert_eq!((&kept.cert, &next.authority.pem), (&second.cert, &auto.authority.pem));
}

/// A damaged certificate is replaced by one of the same authority.
#[test]
fn a_damaged_certificate_is_replaced() {
    let folder = TempDir::new();
    let (auto, mut last) = open(&folder.settings(), &home(), NOW_S);
    let whole = folder.read(SERVER);
    let elsewhere = TempDir::new();
    open(&elsewhere.settings(), &home(), NOW_S);
    let foreign = elsewhere.read(SERVER);
    let key_at = |text: &str| text.find("-----BEGIN PRIVATE KEY").expect("a key");
    let mixed = format!("{}{}", &whole[..key_at(&whole)], &foreign[key_at(&foreign)..]);
    for damaged in [
        "",
        "rubbish",
        &whole[..whole.len() / 2],
        &whole[..key_at(&whole)],
        &mixed,
        &foreign,
        "\0\0\0",
    ] {
        fs::write(folder.path(SERVER), damaged).expect("written");
        let (next, key) = open(&folder.settings(), &home(), NOW_S);
        assert_eq!(next.authority.pem, auto.authority.pem);
        assert_ne!(key.cert, last.cert, "{damaged}");
        last = key;
    }
    fs::set_permissions(folder.path(SERVER), Permissions::from_mode(0o644)).expect("changed");
    let (_, key) = open(&folder.settings(), &home(), NOW_S);
    assert_ne!(key.cert, last.cert, "others may have read the key");
    let mode = fs::metadata(folder.path(SERVER)).expect("it is there").mode() & 0o777;
    assert_eq!(mode, 0o600);
}

/// A damaged authority is renamed and replaced; one that others could read stays and is restricted.
#[test]
fn a_damaged_authority_is_renamed_and_replaced() {
    let folder = TempDir::new();
    let (auto, _) = open(&folder.settings(), &home(), NOW_S);
    fs::set_permissions(folder.path(AUTHORITY), Permissions::from_mode(0o640)).expect("changed");
    let (next, _) = open(&folder.settings(), &home(), NOW_S);
    assert_eq!(next.authority.pem, auto.authority.pem);
    assert_eq!(
        fs::metadata(folder.path(AUTHORITY)).expect("there").mode() & 0o777,
        0o600
    );

    let whole = folder.read(AUTHORITY);
    let mut last = auto.authority.pem.clone();
    // The server certificate is not an authority.
    for (number, damaged) in ["", &whole[..whole.len() / 2], &folder.read(SERVER)]
        .into_iter()
        .enumerate()
    {
        fs::write(folder.path(AUTHORITY), damaged).expect("written");
        let clock_s = NOW_S + number as u64;
        let (next, key) = open(&folder.settings(), &home(), clock_s);
        assert_ne!(next.authority.pem, last);
        assert_eq!(folder.read(&format!("{AUTHORITY}.damaged-{clock_s}")), damaged);
        // The served certificate is signed by the new authority.
        assert_eq!(open(&folder.settings(), &home(), NOW_S).1.cert, key.cert);
        last = next.authority.pem.clone();
    }
}

/// Without storage HTTPS still works.
#[test]
fn https_works_without_storage() {
    let folder = TempDir::new();
    fs::write(folder.path("file"), "in the way").expect("written");
    let blocked = TlsSettings {
        state_dir: Some(folder.path("file")),
        ..folder.settings()
    };
    let nowhere = TlsSettings {
        state_dir: None,
        ..folder.settings()
    };
    for settings in [blocked, nowhere] {
        let (auto, key) = open(&settings, &home(), NOW_S);
        assert!(names(&key).contains(&CertificateName::Address(home()[0])));
        let next = auto.renew(&away(), NOW_S).expect("it can be made");
        assert!(names(&next).contains(&CertificateName::Address(away()[0])));
    }
}

/// A public name that the authority excludes is left out; a new authority includes it.
#[test]
fn names_outside_the_authority_are_left_out() {
    let folder = TempDir::new();
    open(&folder.settings(), &home(), NOW_S);
    let mut wider = folder.settings();
    wider.host_names.push("bot.example.net".into());
    let public = CertificateName::Dns("bot.example.net".into());
    let (auto, key) = open(&wider, &home(), NOW_S);
    assert!(!names(&key).contains(&public) && names(&key).contains(&CertificateName::Dns("board.local".into())));
    assert_eq!(auto.due(&home(), NOW_S), None);
    fs::remove_file(folder.path(AUTHORITY)).expect("there");
    let (_, key) = open(&wider, &home(), NOW_S);
    assert!(names(&key).contains(&public));
}

/// Unusable files are named with their fault.
#[test]
fn unusable_files_are_reported() {
    let folder = TempDir::new();
    let (auto, _) = open(&folder.settings(), &home(), NOW_S);
    let text = folder.read(SERVER);
    let (certificate, key) = text.split_at(text.find("-----BEGIN PRIVATE").expect("a key"));
    let (cert_path, key_path) = (folder.path("cert.pem"), folder.path("key.pem"));
    fs::write(&cert_path, certificate).expect("written");
    fs::write(&key_path, key).expect("written");
    let read = || read_files(&cert_path, &key_path, &provider());
    assert_eq!(
        read().expect("they fit").certificate.issuer,
        auto.authority.certificate.subject
    );

    let refused = || read().expect_err("it does not do").to_string();
    let says = |words: &[&str]| {
        let said = refused();
        assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
    };
    let encrypted = key
        .replace("BEGIN PRIVATE", "BEGIN ENCRYPTED PRIVATE")
        .replace("END PRIVATE", "END ENCRYPTED PRIVATE");
    fs::write(&key_path, encrypted).expect("written");
    says(&["key.pem", "encrypted"]);
    fs::write(&key_path, certificate).expect("written");
    says(&["key.pem", "no private key"]);
    let other = folder.read(AUTHORITY);
    fs::write(&key_path, &other).expect("written");
    says(&["key.pem", "another certificate"]);
    fs::write(
        &key_path,
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    )
    .expect("written");
    says(&["key.pem", "cannot be used"]);
    fs::write(&key_path, key).expect("written");
    for none in ["", key, "\u{fffd}"] {
        fs::write(&cert_path, none).expect("written");
        says(&["cert.pem", "no certificate"]);
    }
    fs::write(
        &cert_path,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .expect("written");
    says(&["cert.pem", "cannot be read"]);
    fs::remove_file(&cert_path).expect("there");
    says(&["cert.pem", "reading"]);
}
