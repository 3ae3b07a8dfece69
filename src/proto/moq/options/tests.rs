//! Tests of the options of Media over QUIC.

use std::net::{IpAddr, Ipv4Addr};

use super::*;

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn resolve(moq: &MoqOptions, tls: &Tls) -> Result<(MoqConfig, Vec<String>), UsageError> {
    resolve_with(moq, tls, false)
}

fn resolve_with(moq: &MoqOptions, tls: &Tls, ws_tokens: bool) -> Result<(MoqConfig, Vec<String>), UsageError> {
    let env = Env {
        lookup_host: &|name| match name {
            "localhost" => vec![IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)],
            _ => Vec::new(),
        },
        ..Env::of_variables::<&str, &str>(&[])
    };
    let mut warnings = Vec::new();
    let config = moq.resolve(Some(Transport::Moq), tls, ws_tokens, &env, &mut warnings)?;
    Ok((config, warnings))
}

fn config(moq: &MoqOptions) -> MoqConfig {
    let (config, warnings) = resolve(moq, &Tls::Off).expect("valid options");
    assert_eq!(warnings, [""; 0]);
    config
}

fn warnings(moq: &MoqOptions) -> Vec<String> {
    resolve(moq, &Tls::Off).expect("valid options").1
}

fn error(moq: &MoqOptions) -> String {
    resolve(moq, &Tls::Off).expect_err("a usage error").to_string()
}

fn certificate(moq: &MoqOptions, tls: &Tls) -> MoqCertificate {
    match resolve(moq, tls).expect("valid options").0.mode {
        MoqMode::Serve { certificate, .. } => certificate,
        MoqMode::Dial { .. } => panic!("it serves"),
    }
}

#[test]
fn serves_without_options() {
    assert_eq!(config(&MoqOptions::default()), MoqConfig::default());
    let forced = MoqOptions {
        serve: true,
        ..MoqOptions::default()
    };
    assert_eq!(config(&forced), MoqConfig::default());
}

#[test]
fn a_relay_needs_a_host_and_a_known_port() {
    for good in ["https://r.example.net", "moqt://r:4443/x"] {
        let moq = MoqOptions {
            connect: some(good),
            ..MoqOptions::default()
        };
        let dial = MoqMode::Dial {
            url: RelayUrl::parse(good).expect("a URL"),
            bind: None,
            certificate: None,
            is_insecure: false,
        };
        assert_eq!(config(&moq).mode, dial);
    }
    for (bad, part) in [
        ("relay.example.net", "a URL such as"),
        ("https://", "with a host"),
        ("moqt://r/x", "with a port, unless"),
        ("https://r:0/", "from 1 to 65535"),
    ] {
        let moq = MoqOptions {
            connect: some(bad),
            ..MoqOptions::default()
        };
        let error = error(&moq);
        assert!(error.contains("--moq-connect") && error.contains(part), "{error}");
    }
}

#[test]
fn a_bind_address_needs_a_numeric_port() {
    for (good, address) in [
        ("[::]:4080", "[::]:4080"),
        ("0.0.0.0:4080", "0.0.0.0:4080"),
        (":4081", "[::]:4081"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("localhost:4080", "127.0.0.1:4080"),
    ] {
        let moq = MoqOptions {
            bind: some(good),
            ..MoqOptions::default()
        };
        let MoqMode::Serve { bind, .. } = config(&moq).mode else {
            panic!("it serves")
        };
        assert_eq!(bind.to_string(), address);
    }
    for bad in [
        "4080",
        "[::]",
        "0.0.0.0:moq",
        "::1:4080",
        "1.2.3.4:65536",
        "elsewhere:1",
        "",
    ] {
        let moq = MoqOptions {
            bind: some(bad),
            ..MoqOptions::default()
        };
        assert!(error(&moq).contains("--moq-bind"), "{bad}");
    }
}

#[test]
fn serving_needs_both_files_and_dialing_only_the_certificate() {
    let cert = MoqOptions {
        tls_cert: some("c.pem"),
        ..MoqOptions::default()
    };
    assert!(error(&cert).contains("`--moq-tls-cert` needs `--moq-tls-key`"));
    let key = MoqOptions {
        tls_key: some("k.pem"),
        ..MoqOptions::default()
    };
    assert!(error(&key).contains("`--moq-tls-key` needs `--moq-tls-cert`"));
    let dialing = |moq| MoqOptions {
        connect: some("https://r"),
        ..moq
    };
    let MoqMode::Dial { certificate, .. } = config(&dialing(cert)).mode else {
        panic!("it dials")
    };
    assert_eq!(certificate, Some("c.pem".into()));
    assert!(error(&dialing(key)).contains("`--moq-tls-key` needs `--moq-tls-cert`"));
}

/// The certificate of `--tls` serves both ports, unless another source is named.
#[test]
fn takes_the_certificate_of_https() {
    let tls = Tls::Files {
        certificate: "c".into(),
        key: "k".into(),
    };
    let shared = MoqCertificate::FilesOfTls {
        certificate: "c".into(),
        key: "k".into(),
    };
    let plain = MoqOptions::default();
    assert_eq!(certificate(&plain, &tls), shared);
    assert_eq!(
        certificate(&plain, &Tls::Auto),
        MoqCertificate::SelfSigned { host: None }
    );
    let named = MoqOptions {
        tls_generate: some("Board.local"),
        ..MoqOptions::default()
    };
    let host = some("board.local");
    assert_eq!(certificate(&named, &tls), MoqCertificate::SelfSigned { host });
    let own = MoqOptions {
        tls_cert: some("c2"),
        tls_key: some("k2"),
        ..MoqOptions::default()
    };
    let files = MoqCertificate::Files {
        certificate: "c2".into(),
        key: "k2".into(),
    };
    assert_eq!(certificate(&own, &tls), files);
}

#[test]
fn warns_of_ignored_and_risky_options() {
    let moq = MoqOptions {
        serve: true,
        connect: some("https://r"),
        tls_cert: some("c"),
        tls_key: some("k"),
        tls_generate: some("localhost"),
        tls_insecure: true,
        ..MoqOptions::default()
    };
    assert_eq!(warnings(&moq).len(), 3);
    let moq = MoqOptions { serve: false, ..moq };
    let warnings = warnings(&moq);
    assert_eq!(warnings.len(), 3);
    assert!(warnings[2].contains("the certificate of https://r:443/moq is not verified"));
}

/// The hash of the relay's certificate comes unprotected, unless the certificate is not
/// verified at all, which has a warning of its own.
#[test]
fn warns_of_a_relay_over_plain_http() {
    for (url, tls_insecure, words) in [
        ("http://r/moq", false, Some("over plain HTTP")),
        ("http://r/moq", true, Some("is not verified")),
        ("https://r/moq", false, None),
        ("moqt://r:1/moq", false, None),
    ] {
        let warnings = warnings(&MoqOptions {
            connect: some(url),
            tls_insecure,
            ..MoqOptions::default()
        });
        assert_eq!(warnings.len(), usize::from(words.is_some()), "{warnings:?}");
        assert!(words.is_none_or(|words| warnings[0].contains(words)), "{warnings:?}");
    }
}

/// The tokens of `/start` are checked by the runner's own port only.
#[test]
fn warns_that_a_relay_checks_no_tokens() {
    for (connect, count) in [(None, 0), (some("https://r"), 1)] {
        let moq = MoqOptions {
            connect,
            ..MoqOptions::default()
        };
        let (_, warnings) = resolve_with(&moq, &Tls::Off, true).expect("valid options");
        assert_eq!(warnings.len(), count, "{warnings:?}");
        assert!(
            warnings.iter().all(|words| words.contains("`--ws-auth token`")),
            "{warnings:?}"
        );
    }
}

/// A namespace that is not random lets others in, unless a token or the address excludes them.
#[test]
fn warns_of_a_shared_namespace() {
    let shared = |bind, connect: Option<&str>| MoqOptions {
        namespace: some("rooms/one"),
        bind: Some(bind),
        connect: connect.map(str::to_owned),
        ..MoqOptions::default()
    };
    for (moq, words) in [
        (shared("[::]:4080".into(), None), Some("reaches the UDP port")),
        (shared("[::1]:4080".into(), None), None),
        (shared("[::1]:0".into(), Some("https://r")), Some("may use the relay")),
    ] {
        let warnings = warnings(&moq);
        assert_eq!(warnings.len(), usize::from(words.is_some()), "{warnings:?}");
        assert!(words.is_none_or(|words| warnings[0].contains(words)), "{warnings:?}");
    }
    let serve = MoqConfig::default().mode;
    assert_eq!(shared_namespace(&serve, true), None);
}

#[test]
fn names_are_checked_and_differ() {
    for bad in ["", "/a", "a/", "a//b", "a b", "é"] {
        let namespace = MoqOptions {
            namespace: some(bad),
            ..MoqOptions::default()
        };
        assert!(error(&namespace).contains("--moq-namespace"), "{bad}");
        let bot = MoqOptions {
            bot_id: some(bad),
            ..MoqOptions::default()
        };
        assert!(error(&bot).contains("--moq-bot-id"), "{bad}");
    }
    let same = MoqOptions {
        client_id: some("response"),
        ..MoqOptions::default()
    };
    assert!(error(&same).contains("must differ"));
    let named = config(&MoqOptions {
        namespace: some("rooms/one"),
        bind: some("127.0.0.1:0"),
        bot_id: some("bot"),
        client_id: some("caller"),
        ..MoqOptions::default()
    });
    assert_eq!(named.namespace.as_deref(), Some("rooms/one"));
    assert_eq!((&*named.bot_id, &*named.client_id), ("bot", "caller"));
}
