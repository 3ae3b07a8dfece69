//! TLS to the database: what its certificate has to be.

use std::fs;
use std::path::Path;

use super::{QUICK, context, until};
use crate::support::certificate::{CertificateFiles, TestAuthority};
use crate::support::cloud::{DataDir, TestCloud};
use crate::support::runner::{RunOutput, TestRunner};
use crate::support::scale::Place;

/// Has PostgreSQL prove itself by this certificate, and take connections with TLS only.
fn require_tls(place: &Place, files: &CertificateFiles) {
    for (name, text) in [("server.crt", &files.certificate), ("server.key", &files.key)] {
        // It runs in the folder of the server, which refuses a key that others may read.
        place.sql(&format!(
            "COPY (SELECT unnest(string_to_array('{}', E'\\n'))) TO PROGRAM 'umask 077; cat >{name}'",
            text.trim()
        ));
    }
    let hba = place.sql("SHOW hba_file");
    place.sql("ALTER SYSTEM SET ssl = on");
    place.sql(&format!(
        "COPY (SELECT 'hostssl all cloud 127.0.0.1/32 trust') TO '{hba}'"
    ));
    place.sql("SELECT pg_reload_conf()");
    until("the server was to ask for TLS", || {
        place.succeeds("SELECT 1 / ssl::INTEGER FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    });
}

/// Lists the keys in this database, with these authorities.
fn list(url: &str, trusted: &Path) -> RunOutput {
    let trusted = trusted.to_str().expect("folders of tests are UTF-8");
    TestRunner::run_with(
        &["cloud", "keys", "list"],
        &[("CLOUD_DATABASE", url), ("SSL_CERT_FILE", trusted)],
    )
}

/// A replica serves over TLS if the certificate of the database is that of a trusted authority, of
/// the name in the URL, and has not expired. Every mode with TLS verifies all three, and none falls
/// back to plain text.
#[test]
fn the_certificate_of_the_database_is_verified() {
    let Some((place, _postgres, _store)) = Place::with_own_servers() else {
        return;
    };
    let data = DataDir::new();
    let [authority, other] = [TestAuthority::new(), TestAuthority::new()];
    let files = [("trusted.pem", &authority), ("other.pem", &other)].map(|(name, authority)| {
        let path = data.path().join(name);
        fs::write(&path, authority.pem()).expect("the folder is writable");
        path
    });
    let [trusted, untrusted] = &files;
    let variables = place.variables();
    let (_, plain) = variables
        .iter()
        .find(|(name, _)| *name == "CLOUD_DATABASE")
        .expect("a URL");
    let url = format!("{plain}?sslmode=require");
    require_tls(&place, &authority.issue(2100));

    let listed = list(&url, trusted);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let mut variables = variables.clone();
    variables.extend([
        ("CLOUD_DATABASE", &*url),
        ("SSL_CERT_FILE", trusted.to_str().expect("folders of tests are UTF-8")),
    ]);
    let replica = DataDir::new();
    let cloud = TestCloud::start_with(&replica, &QUICK, &variables);
    cloud.wait_for(&cloud.build(&context("x")), "success");
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'edge-runner'";
    assert_eq!(place.sql(encrypted), "t");
    drop(cloud);

    // Both authorities have the same name. The address is that of the server, and the name not one
    // of its certificate.
    let renamed = plain.replace("127.0.0.1", "db.example.net") + "?hostaddr=127.0.0.1";
    for (url, trusted, words) in [
        (&*url, untrusted, "BadSignature"),
        (&*format!("{plain}?sslmode=verify-full"), untrusted, "BadSignature"),
        (&*renamed, trusted, "not valid for name"),
        (&*format!("{renamed}&sslmode=require"), trusted, "not valid for name"),
        (&*format!("{plain}?sslmode=disable"), trusted, "no encryption"),
    ] {
        let refused = list(url, trusted);
        assert_eq!(refused.code, Some(1), "{url}: {}", refused.stderr);
        assert!(refused.stderr.contains(words), "{url}: {}", refused.stderr);
    }

    require_tls(&place, &authority.issue(2020));
    until("the expired certificate was to be refused", || {
        let refused = list(&url, trusted);
        refused.code == Some(1) && refused.stderr.contains("expired")
    });
}
