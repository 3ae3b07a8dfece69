//! Certificates made and read: hash, renewal, reload.

use std::fs;

use edge_runner_http::testing::TempDir;

use super::super::arrivals::WaitingSession;
use super::*;

fn made(waiting: WaitingRegistry) -> Arc<ServedCertificate> {
    let host = Some("robot.local".to_owned());
    ServedCertificate::open(&MoqCertificate::SelfSigned { host }, &[], waiting).expect("a certificate")
}

fn parsed(served: &ServedCertificate) -> Certificate {
    Certificate::read(&served.current.get().cert[0]).expect("a certificate")
}

/// Browsers compare the SHA-256 hash of the whole certificate, in Base64 with padding.
#[test]
fn a_made_certificate_names_its_host_and_has_a_hash() {
    let served = made(WaitingRegistry::default());
    let certificate = parsed(&served);
    assert!(certificate.names.contains(&CertificateName::Dns("robot.local".into())));
    assert_eq!(certificate.subject, certificate.issuer);
    let hash = served.hash().expect("it is self-signed");
    assert_eq!(hash.len(), 44);
    let of_der = BASE64.encode(&Sha256::digest(&served.current.get().cert[0]));
    assert_eq!(hash, of_der);
    assert_eq!(served.hash(), Some(hash), "it stays");
}

/// A due certificate is replaced, but not while a caller may hold its hash.
#[test]
fn a_renewal_waits_for_sessions() {
    let waiting = WaitingRegistry::default();
    let served = made(waiting.clone());
    let now_s = unix_time_s();
    let soon = Validity {
        from_s: now_s - 10 * 86_400,
        until_s: now_s + 3 * 86_400,
    };
    *lock(&served.made) = Some(soon);
    let before = served.current.get().cert[0].clone();
    let (arrived, _arriving) = tokio::sync::oneshot::channel();
    let session_id = "a session".into();
    let entry = waiting.register("a/request", WaitingSession { session_id, arrived });
    served.renew_if_due();
    assert_eq!(served.current.get().cert[0], before);
    drop(entry);
    served.renew_if_due();
    assert_ne!(served.current.get().cert[0], before);
    assert!(lock(&served.made).is_some_and(|made| made.until_s > now_s + 11 * 86_400));
}

#[test]
fn files_are_read_again() {
    let folder = TempDir::new();
    let (certificate, key) = (folder.path("cert.pem"), folder.path("key.pem"));
    let write = |name: &str| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a valid name");
        fs::write(&certificate, made.cert.pem()).expect("a file");
        fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    };
    write("first.example");
    let settings = MoqCertificate::Files {
        certificate: certificate.clone(),
        key: key.clone(),
    };
    let served = ServedCertificate::open(&settings, &[], WaitingRegistry::default()).expect("a certificate");
    let first = hash_of_file(&certificate).expect("a certificate");
    assert!(first.is_some() && served.hash() == first, "it is self-signed");
    write("second.example");
    served.reload();
    let second = CertificateName::Dns("second.example".into());
    assert_eq!(parsed(&served).names, std::slice::from_ref(&second));
    fs::write(&key, "no key").expect("a file");
    served.reload();
    assert_eq!(parsed(&served).names, [second], "it stays");
    let error = ServedCertificate::open(&settings, &[], WaitingRegistry::default()).err();
    let words = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(words.contains("key.pem") && words.contains("private key"), "{words}");
}

/// The rule by which the files of `--tls` are served: an authority that this system trusts, with
/// its intermediates, and a certificate that is valid now.
#[test]
fn a_certificate_is_trusted_by_its_authority() {
    let params = |name: &str, is_authority: bool| {
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).expect("a valid name");
        if is_authority {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        params
    };
    let key = || KeyPair::generate().expect("a key");
    let root = rcgen::CertifiedIssuer::self_signed(params("root.example", true), key()).expect("an authority");
    let middle = rcgen::CertifiedIssuer::signed_by(params("middle.example", true), key(), &root).expect("an authority");
    let issued = |params: rcgen::CertificateParams, issuer| {
        params.signed_by(&key(), issuer).expect("a certificate").der().clone()
    };
    let mut roots = RootCertStore::empty();
    assert!(
        !is_trusted(&[issued(params("bot.example", false), &root)], &roots),
        "no authority"
    );
    roots.add(root.der().clone()).expect("an authority");
    assert!(is_trusted(&[issued(params("bot.example", false), &root)], &roots));
    let below = issued(params("bot.example", false), &middle);
    assert!(
        !is_trusted(std::slice::from_ref(&below), &roots),
        "its chain is incomplete"
    );
    assert!(is_trusted(&[below, middle.der().clone()], &roots));
    let mut expired = params("bot.example", false);
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    assert!(!is_trusted(&[issued(expired, &root)], &roots));
    let other = rcgen::CertifiedIssuer::self_signed(params("other.example", true), key()).expect("an authority");
    assert!(!is_trusted(&[issued(params("bot.example", false), &other)], &roots));
    assert!(!is_trusted(&[], &roots));
}
