//! Transports: WebRTC, Media over QUIC, rooms and telephony.

use super::*;

/// R-071, R-072.
#[test]
fn accepts_every_transport_of_this_build() {
    for transport in Transport::ALL {
        let arguments = ["-t", transport.name(), "-x", "bots.example.net"];
        match parse_with(&arguments, &[]) {
            Ok(CliCommand::Serve { config, .. }) => {
                assert!(transport.in_this_build(), "{}", transport.name());
                assert_eq!(config.default_transport(), transport);
            }
            Ok(_) => panic!("{} does something else", transport.name()),
            Err(error) => {
                assert!(matches!(error, UsageError::MissingFeature { .. }), "{error}");
                assert!(!transport.in_this_build() && error.to_string().contains(transport.name()));
            }
        }
    }
    assert_eq!(config(&["-t", "daily"]).transport, Some(Transport::Videoroom));
    assert_eq!(config(&["-t", "livekit"]).transport, Some(Transport::Mediaroom));
    assert_eq!(
        config(&["-t", "exotel"]).transport,
        Some(Transport::Telephony(crate::proto::telephony::PROVIDERS[3]))
    );
    assert_eq!(config(&["-t", "websocket"]).transport, Some(Transport::WebSocket));
}

/// R-014: the options of Media over QUIC are validated for every `-t`, each with its own words.
#[test]
fn options_of_media_over_quic_are_validated_for_every_transport() {
    for transport in [&[][..], &["-t", "webrtc"], &["-t", "moq"]] {
        for (arguments, part) in [
            (&["--moq-tls-cert", "c"][..], "`--moq-tls-cert` needs `--moq-tls-key`"),
            (&["--moq-tls-key", "k"], "`--moq-tls-key` needs `--moq-tls-cert`"),
            (
                &["--moq-connect", "https://r", "--moq-tls-key", "k"],
                "`--moq-tls-key` needs `--moq-tls-cert`",
            ),
            (
                &["--moq-bind", "0.0.0.0"],
                "`--moq-bind` takes ADDR:PORT with a numeric port",
            ),
            (
                &["--moq-connect", "https://"],
                "`--moq-connect` takes a URL with a host",
            ),
            (
                &["--moq-connect", "moqt://r"],
                "`--moq-connect` takes a URL with a port",
            ),
            (&["--moq-namespace", "a//b"], "in parts between single slashes"),
            (&["--moq-bot-id", "a/b"], "without slashes"),
            (&["--moq-client-id", "response"], "must differ"),
            (&["--moq-tls-generate", "a/b"], "`--moq-tls-generate` takes a host name"),
        ] {
            let message = refused(&[transport, arguments].concat());
            assert!(message.contains(part), "{message}");
        }
    }
    let message = refused_with(&[], &[("RUNNER_MOQ_TLS_CERT", "c")]);
    assert!(message.contains("(set by RUNNER_MOQ_TLS_CERT)"), "{message}");
    let message = refused_with(&[], &[("RUNNER_MOQ_BIND", "4080")]);
    assert!(message.contains("`RUNNER_MOQ_BIND` takes"), "{message}");
}

/// WebRTC and QUIC have a UDP socket each.
#[test]
fn media_over_quic_needs_a_udp_port_of_its_own() {
    for arguments in [
        &["--moq-bind", "[::]:7860"][..],
        &["--port", "4080"],
        &["--rtc-port", "4080"],
    ] {
        let message = refused(&[&["-t", "moq"], arguments].concat());
        assert!(message.contains("name the same UDP port"), "{message}");
        config(arguments);
    }
    config(&["-t", "moq", "--rtc-port", "0", "--moq-bind", "[::]:0"]);
}

#[test]
fn warns_of_options_of_media_over_quic_without_their_transport() {
    let about = |warnings: Vec<String>, part: &str| warnings.iter().filter(|line| line.contains(part)).count();
    let (config, warnings) = served(&["-t", "moq", "--moq-namespace", "n"], &[]);
    assert_eq!(config.moq.namespace.as_deref(), Some("n"));
    assert_eq!(about(warnings, "no effect"), 0);
    for arguments in [&["--moq-namespace", "n"][..], &["-t", "webrtc", "--moq-serve"]] {
        let (_, warnings) = served(arguments, &[]);
        assert_eq!(about(warnings, "`--moq-*` have no effect without `-t moq`"), 1);
    }
    let insecure = ["-t", "moq", "--moq-connect", "https://r", "--moq-tls-insecure"];
    let (_, warnings) = served(&insecure, &[]);
    assert_eq!(about(warnings, "is not verified"), 1);
}

/// R-075 to R-078: the key has two names, and `--dialin` does not need `-t`.
#[test]
fn direct_and_dialin_need_a_key() {
    for option in ["--direct", "-d", "--dialin"] {
        for empty in [&[][..], &[("VIDEOROOM_API_KEY", "")]] {
            let message = refused_with(&[option], empty);
            assert!(
                message.contains("needs VIDEOROOM_API_KEY (or DAILY_API_KEY)"),
                "{message}"
            );
        }
    }
    for name in ["VIDEOROOM_API_KEY", "DAILY_API_KEY"] {
        let key = [(name, "k")];
        for arguments in [&["--direct"][..], &["-d", "-t", "videoroom"], &["-d", "-t", "daily"]] {
            let (config, _) = served(arguments, &key);
            assert!(config.direct);
            assert_eq!(config.transport, Some(Transport::Videoroom));
        }
        for (other, common) in [
            ("webrtc", "webrtc"),
            ("mediaroom", "livekit"),
            ("telephony_d", "exotel"),
            ("moq", "moq"),
        ] {
            let message = refused_with(&["-d", "-t", other], &key);
            assert!(
                message.contains(&format!("cannot be used with `-t {common}`")),
                "{message}"
            );
        }
        for (arguments, variable) in [
            (&["--direct"][..], ("RUNNER_TRANSPORT", "webrtc")),
            (&["-t", "webrtc"], ("RUNNER_DIRECT", "true")),
        ] {
            let (config, _) = served(arguments, &[key[0], variable]);
            assert_eq!(config.direct, arguments == ["--direct"]);
        }
        for arguments in [
            &["--dialin"][..],
            &["--dialin", "-t", "webrtc"],
            &["--no-dialin", "--dialin"],
        ] {
            assert!(served(arguments, &key).0.videoroom.dialin);
        }
        assert!(!served(&["--dialin", "--no-dialin"], &key).0.videoroom.dialin);
        assert!(!served(&[], &key).0.videoroom.dialin);
    }
}

/// R-027 to R-032.
#[test]
fn reads_the_settings_of_rooms_from_variables() {
    let (config, warnings) = served(
        &[],
        &[
            ("VIDEOROOM_API_KEY", "k"),
            ("VIDEOROOM_ROOM_URL", "https://example.daily.co/room"),
            ("MEDIAROOM_URL", "ws://localhost:7880"),
            ("RUNNER_START_NAMES", "alias"),
        ],
    );
    assert_eq!(
        config.videoroom.room_url.as_deref(),
        Some("https://example.daily.co/room")
    );
    assert_eq!(config.mediaroom.url.as_deref(), Some("ws://localhost:7880"));
    assert_eq!(config.start_names, crate::config::StartNames::Alias);
    assert!(
        matches!(&warnings[..], [warning] if warning.contains("MEDIAROOM_API_KEY")),
        "{warnings:?}"
    );
}

/// R-033 to R-038, R-087.
#[test]
fn reads_telephony_settings_from_variables() {
    let variables = [
        ("TWILIO_ACCOUNT_SID", "AC1"),
        ("TELCO_A_AUTH_TOKEN", "t"),
        ("TELCO_A_API_URL", "http://127.0.0.1:8080/"),
    ];
    let (config, warnings) = served(&[], &variables);
    let set = |name| config.telephony.settings.get(name).map(crate::config::Secret::expose);
    assert_eq!(set("TELCO_A_ACCOUNT_SID"), Some("AC1"));
    assert_eq!(set("TELCO_A_API_URL"), Some("http://127.0.0.1:8080"));
    assert!(config.telephony.verify_webhooks && !config.telephony.unverified_calls);
    let (switched, _) = served(&["--unverified-calls"], &variables);
    assert!(switched.telephony.verify_webhooks && switched.telephony.unverified_calls);
    assert_eq!(warnings, Vec::<String>::new());
    assert!(
        !served(&["--no-verify-webhooks"], &variables)
            .0
            .telephony
            .verify_webhooks
    );

    let (_, warnings) = served(&[], &variables[..1]);
    assert!(warnings[0].contains("TELCO_A_AUTH_TOKEN"), "{warnings:?}");
    assert!(refused_with(&[], &[("TELCO_A_API_URL", "api")]).contains("TELCO_A_API_URL"));
    assert!(refused_with(&[], &[("TELNYX_PUBLIC_KEY", "short")]).contains("TELNYX_PUBLIC_KEY"));
}

/// R-085: providers send no `Origin`.
#[test]
fn warns_of_settings_that_block_providers() {
    let warnings = |arguments: &[&str]| served(arguments, &[]).1;
    for (name, common) in [
        ("telephony_a", "twilio"),
        ("telephony_b", "telnyx"),
        ("telephony_c", "plivo"),
        ("telephony_d", "exotel"),
    ] {
        let list = warnings(&["-t", name, "-x", "b.net", "--allowed-origins", "https://a.net"]);
        assert!(
            list.len() == 1 && list[0].contains(common) && list[0].contains("Origin"),
            "{list:?}"
        );
        let tokens = warnings(&["-t", name, "-x", "b.net", "--ws-auth", "token"]);
        match name {
            "telephony_d" => assert!(tokens.len() == 1 && tokens[0].contains("`POST /`"), "{tokens:?}"),
            _ => assert_eq!(tokens, Vec::<String>::new()),
        }
        assert_eq!(warnings(&["-t", name, "-x", "b.net"]), Vec::<String>::new());
    }
    let others = ["-t", "websocket", "--ws-auth=token", "--allowed-origins=https://a.net"];
    assert_eq!(warnings(&others), Vec::<String>::new());
}

/// R-073, R-074.
#[test]
fn providers_with_markup_need_a_public_host() {
    for name in ["telephony_a", "telephony_b", "telephony_c", "twilio", "telnyx", "plivo"] {
        assert!(refused(&["-t", name]).contains("`--proxy HOST`"), "{name}");
    }
    // The name that users know, whichever was typed.
    assert!(refused(&["-t", "telephony_a"]).starts_with("`-t twilio` needs"));
    assert_eq!(config(&["-t", "telephony_d"]).proxy, None);
    let (config, warnings) = served(&["-x", "https://Bots.example.net/"], &[]);
    assert_eq!(config.proxy.as_deref(), Some("bots.example.net"));
    assert_eq!(warnings.len(), 1);
    assert!(refused(&["--proxy", "b.net/x"]).contains("`--proxy`"));
}

/// A runner with a certificate of a public name is reached by it.
#[test]
fn a_provider_connects_to_the_name_of_the_certificate() {
    let acme = [
        "--tls",
        "acme",
        "--acme-name",
        "bots.example.net,b.example.net",
        "--state-dir",
        "/s",
    ];
    for (more, proxy) in [
        (&["-t", "twilio"][..], Some("bots.example.net")),
        (&["-t", "twilio", "-x", "other.example.net"], Some("other.example.net")),
        (&["-t", "exotel"], None),
        (&[], None),
    ] {
        assert_eq!(config(&[&acme, more].concat()).proxy.as_deref(), proxy, "{more:?}");
    }
}

/// R-080, R-081.
#[test]
fn ice_servers_read_the_option_before_the_variable() {
    let turn = r#"{"urls":"turn:t","username":"u","credential":"c"}"#;
    let (config, warnings) = served(&["--ice-servers", "stun:a", turn, "-v", "--ice-servers=stun:b"], &[]);
    let urls: Vec<_> = config
        .ice_servers
        .iter()
        .map(|server| server.urls[0].as_str())
        .collect();
    assert_eq!(urls, ["stun:a", "turn:t", "stun:b"]);
    assert!(warnings.is_empty());
    let variable = [("RUNNER_ICE_SERVERS", "stun:v,stun:w")];
    assert_eq!(served(&[], &variable).0.ice_servers.len(), 2);
    assert_eq!(served(&["--ice-servers", "stun:a"], &variable).0.ice_servers.len(), 1);
    assert!(refused(&["--ice-servers", "stun://a"]).contains("--ice-servers"));
    assert!(refused_with(&[], &[("PIPECAT_ICE_SERVERS", "[1]")]).contains("PIPECAT_ICE_SERVERS"));
}

/// R-082, R-083.
#[test]
fn embedded_needs_an_ipv4_address_of_this_machine() {
    for name in ["--embedded", "--esp32"] {
        let (config, warnings) = served(&[name, "--host", "192.0.2.5"], &[]);
        assert_eq!(config.embedded, Some([192, 0, 2, 5].into()));
        assert_eq!(config.host, address("192.0.2.5"));
        assert!(warnings.is_empty());
    }
    assert!(refused(&["--embedded"]).contains("192.0.2.5"));
    for host in [
        "localhost",
        "board",
        "0.0.0.0",
        "::",
        "2001:db8::5",
        "[::1]",
        "192.0.2.50",
    ] {
        let message = refused(&["--embedded", "--host", host]);
        assert!(message.contains("this machine has 192.0.2.5"), "{message}");
    }
    let (config, warnings) = served(&["--embedded", "--host", "127.0.0.1"], &[]);
    assert_eq!(config.embedded, Some([127, 0, 0, 1].into()));
    assert!(warnings[0].contains("only clients on this machine"));
}

#[test]
fn rejects_ice_addresses_above_the_cap() {
    let arguments = |n: usize| vec!["--ice-address=203.0.113.7"; n];
    assert_eq!(
        config(&arguments(ICE_ADDRESSES_MAX)).ice_addresses.len(),
        ICE_ADDRESSES_MAX
    );
    assert!(refused(&arguments(ICE_ADDRESSES_MAX + 1)).contains("--ice-address"));
}

/// The variables of providers are documented in the help and withheld from bots, and each URL is
/// tied to its key.
#[test]
fn the_variables_of_providers_are_documented_and_withheld() {
    use crate::cli::{env_trust, help};
    let help = help::variables();
    let of = |name| help.iter().find(|(known, _)| *known == name).map(|(_, help)| help);
    assert!(of("TELCO_A_AUTH_TOKEN").is_some());
    assert!(of("TELCO_A_API_URL").is_some_and(|help| help.contains("[default: https://api.twilio.com]")));
    let withheld = env_trust::withheld(&[], &mut Vec::new()).expect("nothing wrong");
    for name in ["TELCO_A_AUTH_TOKEN", "TWILIO_AUTH_TOKEN", "TELCO_B_API_KEY"] {
        assert!(withheld.contains(&name.to_owned()), "{name}");
    }
    assert!(!withheld.contains(&"TELCO_A_ACCOUNT_SID".to_owned()));
    assert!(env_trust::is_secret("TELCO_A_AUTH_TOKEN") && !env_trust::is_secret("TELCO_B_PUBLIC_KEY"));
    assert_eq!(env_trust::sent_to("TELCO_A_API_URL"), ["TELCO_A_AUTH_TOKEN"]);
}
