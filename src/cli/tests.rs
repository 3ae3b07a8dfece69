//! The command line as a whole: arguments and environment in, a configuration or an error out.

use super::*;
use crate::config::{BotAudio, BuiltInBot, Host, Secret, Tls, Transport};
use crate::limits::{ICE_ADDRESSES_MAX, SESSIONS_MAX_DEFAULT};
use crate::proto::http::cluster::ClusterKey;
use crate::proto::options::env::Variables;

fn parse_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<CliCommand, UsageError> {
    parse_as(&ProgramIdentity::stock(), arguments, variables)
}

/// Parses with these variables on a machine that has the address 192.0.2.5 and resolves `board`.
fn parse_as(
    program: &ProgramIdentity,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<CliCommand, UsageError> {
    let variables = variables
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let env = Env {
        variables: Variables::new(variables, []),
        addresses: ["127.0.0.1", "192.0.2.5", "2001:db8::5"]
            .iter()
            .map(|address| address.parse().expect("an address"))
            .collect(),
        make_key: &|folder| match folder.to_str() {
            Some("/state") => Ok("kept-in-the-folder".into()),
            _ => Err(std::io::ErrorKind::PermissionDenied.into()),
        },
        names: vec!["Board".into(), "Board.lan.".into()],
        read: &|path| match path {
            "key" => Ok("0123456789abcdef\nsecond line\n".into()),
            "cluster" => Ok("0123456789abcdef0123456789abcdef\n".into()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        },
        lookup_host: &|name| match name {
            "board" => vec![
                "2001:db8::5".parse().expect("an address"),
                "192.0.2.5".parse().expect("an address"),
            ],
            _ => Vec::new(),
        },
    };
    parse_for(program, arguments.iter().map(OsString::from), &env)
}

fn served(arguments: &[&str], variables: &[(&str, &str)]) -> (Config, Vec<String>) {
    match parse_with(arguments, variables) {
        Ok(CliCommand::Serve { config, warnings }) => (*config, warnings),
        other => panic!("{arguments:?} do not serve: {other:?}"),
    }
}

fn config(arguments: &[&str]) -> Config {
    served(arguments, &[]).0
}

fn refused_with(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    match parse_with(arguments, variables) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{arguments:?} are accepted"),
    }
}

fn refused(arguments: &[&str]) -> String {
    refused_with(arguments, &[])
}

fn address(text: &str) -> Host {
    Host::Address(text.parse().expect("an address"))
}

/// R-005, R-007, R-009, R-086: every transport at localhost:7860, for every origin.
#[test]
fn no_arguments_give_the_documented_defaults() {
    let (config, warnings) = served(&[], &[]);
    assert_eq!(
        (config.host, config.port, config.rtc_port),
        (Host::Localhost, 7860, None)
    );
    assert_eq!(
        (config.transport, config.default_transport()),
        (None, Transport::WebRtc)
    );
    assert_eq!(
        (config.bot, config.sessions_max),
        (BuiltInBot::Parrot, SESSIONS_MAX_DEFAULT)
    );
    assert_eq!((config.proxy, config.embedded, config.workers), (None, None, None));
    assert!(config.allowed_origins.is_empty() && config.ice_servers.is_empty() && config.ice_addresses.is_empty());
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn reads_values_in_every_spelling() {
    for arguments in [
        &["--port", "80", "-t", "webrtc", "--bot", "echo", "-v", "-v"][..],
        &["--port=80", "-twebrtc", "--bot=echo", "-vv"],
        &[
            "--port=1",
            "-t=webrtc",
            "--port",
            "80",
            "--bot",
            "parrot",
            "--bot",
            "echo",
            "-v",
            "--verbose",
        ],
    ] {
        let config = config(arguments);
        assert_eq!(config.port, 80);
        assert_eq!(config.transport, Some(Transport::WebRtc));
        assert_eq!(config.bot, BuiltInBot::Echo);
        assert_eq!(config.verbosity, 2);
    }
    let config = config(&[
        "--port=0",
        "--rtc-port=0",
        "--max-sessions=1",
        "--workers=1",
        "--opus-complexity=0",
    ]);
    assert_eq!((config.port, config.rtc_port), (0, Some(0)));
    assert_eq!((config.sessions_max, config.workers), (1, Some(1)));
    assert_eq!(config.opus_complexity, 0);
}

/// Profiles of boards set RUNNER_MAX_SESSIONS by what their processor can do, and calls of a
/// service cost money.
#[cfg(feature = "assistants")]
#[test]
fn a_variable_only_lowers_the_sessions_of_a_service() {
    let key = ("OPENAI_API_KEY", "k");
    for (options, variables, max) in [
        (&[][..], &[key][..], 4),
        (&[], &[key, ("RUNNER_MAX_SESSIONS", "48")], 4),
        (&[], &[key, ("RUNNER_MAX_SESSIONS", "2")], 2),
        (
            &[],
            &[key, ("RUNNER_MAX_SESSIONS", "48"), ("RUNNER_BOT_SESSIONS", "9")],
            9,
        ),
        (&["--max-sessions", "48"], &[key], 48),
    ] {
        let (config, _) = served(&[&["--bot", "realtime"], options].concat(), variables);
        assert_eq!(config.sessions_max, max, "{options:?} {variables:?}");
    }
}

#[test]
fn help_and_version_ignore_later_arguments() {
    assert!(matches!(
        parse_with(&["-h", "--nonsense"], &[]),
        Ok(CliCommand::Help(_))
    ));
    assert!(matches!(
        parse_with(&["--port=1", "--help"], &[]),
        Ok(CliCommand::Help(_))
    ));
    let Ok(CliCommand::Version(text)) = parse_with(&["-V"], &[]) else {
        panic!("prints the version");
    };
    assert_eq!(text, format!("edge-runner {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn an_unknown_option_suggests_the_nearest_one() {
    for (given, nearest) in [
        ("--prot", "`--port`"),
        ("--allow-origin=x", "`--allowed-origins`"),
        ("--esp-32", "`--esp32`"),
        ("--ice-server", "`--ice-servers`"),
        ("--completions", "`edge-runner completions`"),
        ("--doctr", "`edge-runner doctor`"),
        ("--transports", "`--transport`"),
    ] {
        let message = refused(&[given]);
        assert!(message.contains(nearest), "{message}");
    }
    for given in ["--completely-different", "--moqtlscrt-of"] {
        let message = refused(&[given]);
        assert!(!message.contains("did you mean"), "{message}");
    }
    assert!(refused(&["-q"]).contains("-t"), "{}", refused(&["-q"]));
    assert!(refused(&["serve"]).contains("`--`"));
}

#[test]
fn a_mistyped_value_or_command_suggests_the_nearest_one() {
    for (arguments, nearest) in [
        (&["--bot", "parot"][..], "`parrot`"),
        (&["-t", "twillio"], "`twilio`"),
        (&["-t", "telephonya"], "`telephony_a`"),
        (&["--tls", "outo"], "`auto`"),
        (&["--metrics=locl"], "`local`"),
        (&["--ws-auth=tokn"], "`token`"),
        (&["--log=jsn"], "`json`"),
        (&["docter"], "`doctor`"),
        (&["docter", "--port=1"], "`doctor`"),
        (&["completion", "bash"], "`completions`"),
        (&["completions", "bsh"], "`bash`"),
        (&["help", "docter"], "`doctor`"),
        (&["bot.py"], "`-- python3 bot.py`"),
        (&["--port=1", "bots/hello.mjs"], "`-- node bots/hello.mjs`"),
    ] {
        let message = refused(arguments);
        assert!(message.ends_with(&format!("; did you mean {nearest}?")), "{message}");
    }
    for arguments in [&["--bot", "cat"][..], &["serve"], &["-t", "zoom"], &["completions"]] {
        let message = refused(arguments);
        assert!(!message.contains("did you mean"), "{message}");
    }
}

#[test]
fn commands_print_their_own_help() {
    let text = |arguments: &[&str]| match parse_with(arguments, &[]) {
        Ok(CliCommand::Help(text)) => text,
        other => panic!("{arguments:?} print no help: {other:?}"),
    };
    for arguments in [&["doctor", "--help"][..], &["doctor", "-h"], &["help", "doctor"]] {
        let help = text(arguments);
        assert!(
            help.starts_with("Usage: edge-runner doctor") && !help.contains("--rtc-port"),
            "{help}"
        );
    }
    assert_eq!(text(&["help"]), text(&["--help"]));
    assert!(text(&["--help"]).contains(env!("CARGO_PKG_REPOSITORY")));
    assert_eq!(
        text(&["completions", "--help"]),
        completions::help(&ProgramIdentity::stock())
    );
    assert!(text(&["completions", "zsh"]).starts_with("#compdef edge-runner"));
    assert_eq!(
        help_of(&ProgramIdentity::stock(), &["doctor".into()]),
        "edge-runner doctor --help"
    );
}

/// `-h` is a page of a terminal, `--help` is everything.
#[test]
fn the_short_option_prints_a_summary() {
    let text = |argument: &str| match parse_with(&[argument], &[]) {
        Ok(CliCommand::Help(text)) => text,
        other => panic!("{argument} prints no help: {other:?}"),
    };
    assert_eq!(text("-h"), help::summary(&ProgramIdentity::stock()));
    assert_eq!(text("--help"), help::text(&ProgramIdentity::stock()));
}

/// A program with a bot of its own has its own name, and refuses the options that choose and
/// equip a built-in bot; their variables may be meant for another program.
#[test]
fn a_program_with_its_own_bot_refuses_options_of_the_built_in_ones() {
    let program = ProgramIdentity {
        name: "kitchen-bot".into(),
        has_own_bot: true,
    };
    for (arguments, option) in [
        (&["--bot", "echo"][..], "`--bot`"),
        (&["doctor", "--bot", "realtime"], "`--bot`"),
        (&["--tools", "python3 tools.py"], "`--tools`"),
    ] {
        let refused = parse_as(&program, arguments, &[])
            .expect_err("it has a bot")
            .to_string();
        assert!(
            refused.starts_with(option) && refused.contains("has its own"),
            "{refused}"
        );
    }
    // The key of the service is not needed, and nothing else of it is read.
    let variables = [("RUNNER_BOT", "realtime"), ("RUNNER_BOT_MINUTES", "never")];
    match parse_as(&program, &[], &variables) {
        Ok(CliCommand::Serve { config, warnings }) => {
            assert_eq!(config.bot, BuiltInBot::Parrot);
            let [bot, caps] = &warnings[..] else {
                panic!("two warnings: {warnings:?}")
            };
            assert_eq!(bot, "RUNNER_BOT has no effect: this program has its own bot");
            assert!(
                caps.starts_with("RUNNER_BOT_MINUTES: no effect: this program has its own bot"),
                "{caps}"
            );
        }
        other => panic!("it does not serve: {other:?}"),
    }
    match parse_as(&program, &["-V"], &[]) {
        Ok(CliCommand::Version(text)) => assert!(text.starts_with("kitchen-bot, a bot on edge-runner "), "{text}"),
        other => panic!("no version: {other:?}"),
    }
    assert_eq!(help_of(&program, &[]), "kitchen-bot --help");
    assert!(
        parse_as(&program, &["--", "python3", "bot.py"], &[]).is_ok(),
        "a command replaces its bot"
    );
}

#[test]
fn the_log_is_text_by_default() {
    use crate::config::LogFormat;
    assert_eq!(config(&[]).log, LogFormat::Text);
    assert_eq!(config(&["--log=json"]).log, LogFormat::Json);
    assert_eq!(served(&[], &[("RUNNER_LOG", "json")]).0.log, LogFormat::Json);
}

#[test]
fn errors_name_the_option_and_the_expected_value() {
    for (arguments, parts) in [
        (&["--port"][..], &["--port N"][..]),
        (&["--port", "--embedded"], &["--port N"]),
        (&["--port", "65536"], &["0 to 65535", "65536"]),
        (&["--port", "-1"], &["0 to 65535", "-1"]),
        (&["--rtc-port=x"], &["--rtc-port", "0 to 65535"]),
        (&["--max-sessions", "0"], &["1 to 4096"]),
        (&["--workers", "65"], &["1 to 64"]),
        (&["--opus-complexity", "11"], &["0 to 10", "11"]),
        (&["-t", "zoom"], &["-t", "`webrtc`", "`twilio`", "zoom"]),
        (&["--bot", "cat"], &["`parrot`", "`echo`"]),
        (&["--ws-auth", "maybe"], &["`none` or `token`"]),
        (&["--tls", "on"], &["CERT:KEY"]),
        (&["--embedded=yes"], &["--embedded", "no value"]),
        (&["--ice-address", "here"], &["IP address"]),
        (&["--ice-servers"], &["--ice-servers SERVER"]),
        (&["--allowed-origins", "-v"], &["--allowed-origins ORIGIN"]),
        (&["--"], &["COMMAND"]),
        (&["--", "", "x"], &["COMMAND"]),
        (&["--no-verify-webhooks=1"], &["--no-verify-webhooks", "no value"]),
    ] {
        let message = refused(arguments);
        for part in parts {
            assert!(message.contains(part), "{part} in {message}");
        }
    }
}

#[test]
fn errors_do_not_contain_passwords_of_urls() {
    for arguments in [
        ["--proxy", "https://u:hunter2@b.net"],
        ["--allowed-origins", "https://u:hunter2@b.net"],
        ["--moq-connect", "https://u:hunter2@b.net"],
        ["--ice-servers", "turn:u:hunter2@b.net"],
        ["--host", "u:hunter2@b.net"],
    ] {
        let message = refused(&arguments);
        assert!(
            message.contains(arguments[0]) && !message.contains("hunter2"),
            "{message}"
        );
    }
}

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

#[test]
fn rejects_unimplemented_options() {
    for (arguments, part) in [
        (&["cloud", "serve", "--data-dir=/d", "--store=s3://b"][..], "--store"),
        (
            &["cloud", "serve", "--data-dir=/d", "--database=postgres://d"],
            "--database",
        ),
    ] {
        let message = refused(arguments);
        assert!(
            message.contains("not implemented yet") && message.contains(part),
            "{message}"
        );
    }
    // Values that need no unimplemented part are accepted.
    config(&["--tls=off", "--ws-auth=none", "--no-dialin", "--dialin", "--no-dialin"]);
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

/// All arguments after `--` belong to the bot, also those that look like options.
#[test]
fn a_command_replaces_the_built_in_bot() {
    let config = config(&["--port", "80", "--", "python3", "bot.py", "--port", "1", "--"]);
    let words = ["python3", "bot.py", "--port", "1", "--"];
    assert_eq!(config.command, Some(words.map(OsString::from).to_vec()));
    assert_eq!(config.port, 80);
    assert_eq!(served(&[], &[]).0.command, None);
    let message = refused(&["--bot", "echo", "--", "./bot"]);
    assert!(
        message.contains("`--bot`") && message.contains("`-- COMMAND`"),
        "{message}"
    );
}

#[test]
fn bot_audio_sets_the_format_of_a_program() {
    let audio = |arguments: &[&str]| config(arguments).bot_audio;
    assert_eq!(audio(&["--", "bot"]), BotAudio::Protobuf);
    assert_eq!(audio(&["--bot-audio", "protobuf", "--", "bot"]), BotAudio::Protobuf);
    let pcm = |rate_hz| BotAudio::Pcm { rate_hz };
    assert_eq!(audio(&["--bot-audio", "pcm", "--", "bot"]), pcm(16_000));
    let rate = ["--bot-rate", "48000", "--bot-audio", "pcm", "--", "bot"];
    assert_eq!(audio(&rate), pcm(48_000));
    let variables = [("RUNNER_BOT_AUDIO", "pcm"), ("RUNNER_BOT_RATE", "8000")];
    assert_eq!(served(&["--", "bot"], &variables).0.bot_audio, pcm(8_000));
    let (config, warnings) = served(&["--bot-rate", "8000", "--", "bot"], &[]);
    assert_eq!(config.bot_audio, BotAudio::Protobuf);
    assert!(
        warnings.iter().any(|warning| warning.contains("`--bot-rate`")),
        "{warnings:?}"
    );
    for (arguments, named) in [
        (&["--bot-audio", "opus", "--", "bot"][..], "`protobuf` or `pcm`"),
        (&["--bot-audio", "pcm"], "-- COMMAND"),
        (
            &["--bot-audio", "pcm", "--bot-rate", "7999", "--", "bot"],
            "8000 to 48000",
        ),
        (&["--bot-audio", "pcm", "-t", "videoroom", "--", "bot"], "Daily"),
    ] {
        let message = refused(arguments);
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn ws_auth_reads_the_option_before_the_variable() {
    for name in ["RUNNER_WEBSOCKET_AUTH", "PIPECAT_WEBSOCKET_AUTH"] {
        assert!(served(&[], &[(name, "token")]).0.ws_tokens);
        assert!(!served(&["--ws-auth=none"], &[(name, "token")]).0.ws_tokens);
        assert!(served(&["--ws-auth", "token"], &[(name, "none")]).0.ws_tokens);
        assert!(refused_with(&[], &[(name, "yes")]).contains(name));
    }
    assert!(!config(&[]).ws_tokens);
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
#[cfg(feature = "acme")]
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

/// R-037, R-079.
#[test]
fn origins_read_the_option_before_the_variable() {
    let variable = [("PIPECAT_ALLOWED_ORIGINS", "https://v.net, https://w.net")];
    let (config, _) = served(&[], &variable);
    assert_eq!(config.allowed_origins, ["https://v.net", "https://w.net"]);
    let arguments = [
        "--allowed-origins",
        "https://A.net,https://b.net",
        "https://c.net",
        "--allowed-origins=https://a.net",
    ];
    let (config, _) = served(&arguments, &variable);
    assert_eq!(
        config.allowed_origins,
        ["https://a.net", "https://b.net", "https://c.net"]
    );
    assert!(
        served(&[], &[("RUNNER_ALLOWED_ORIGINS", "  ")])
            .0
            .allowed_origins
            .is_empty()
    );
    // An invalid list must not allow every origin.
    for bad in ["", ",", "*", "a.net", "https://a.net/page"] {
        assert!(refused(&["--allowed-origins", bad]).contains("allow all"), "{bad:?}");
    }
    assert!(refused_with(&[], &[("RUNNER_ALLOWED_ORIGINS", "*")]).contains("RUNNER_ALLOWED_ORIGINS"));
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

#[test]
fn host_names_are_of_the_machine_and_the_option() {
    assert_eq!(config(&[]).host_names, ["board", "board.lan"]);
    let given = config(&["--allowed-hosts", "Bot.Example.net.,b.example", "board"]);
    assert_eq!(given.host_names, ["b.example", "board", "board.lan", "bot.example.net"]);
    for bad in ["http://a", "a:80", "a b"] {
        assert!(refused(&["--allowed-hosts", bad]).contains("--allowed-hosts"), "{bad}");
    }
}

#[test]
fn trusted_proxies_are_networks() {
    assert!(config(&[]).trusted_proxies.is_empty());
    let networks = |list: &[&str]| -> Vec<_> { list.iter().map(|text| text.parse().expect("a network")).collect() };
    let given = config(&["--trusted-proxies", "10.0.0.1,192.0.2.0/24", "2001:db8::/32"]);
    assert_eq!(
        given.trusted_proxies,
        networks(&["10.0.0.1", "192.0.2.0/24", "2001:db8::/32"])
    );
    let (set, _) = served(&[], &[("RUNNER_TRUSTED_PROXIES", "10.0.0.1, 10.0.0.2")]);
    assert_eq!(set.trusted_proxies, networks(&["10.0.0.1", "10.0.0.2"]));
    for bad in ["proxy", "10.0.0.0/33", "10.0.0.1:80"] {
        assert!(refused(&["--trusted-proxies", bad]).contains("ADDRESS/BITS"), "{bad}");
    }
    let of = |count: usize| vec!["10.0.0.1"; count].join(",");
    let most = crate::limits::TRUSTED_PROXIES_MAX;
    assert_eq!(config(&["--trusted-proxies", &of(most)]).trusted_proxies.len(), most);
    assert!(refused(&["--trusted-proxies", &of(most + 1)]).contains("at most 64 networks"));
}

/// Caps that no bot reads give a false sense of safety.
#[cfg(feature = "assistants")]
#[test]
fn caps_of_the_assistants_beside_another_bot_are_a_warning() {
    let caps = [("RUNNER_BOT_IDLE", "60"), ("RUNNER_BOT_MINUTES", "5")];
    for arguments in [&[][..], &["--bot", "echo"], &["--", "sh"]] {
        let (_, warnings) = served(arguments, &caps);
        let told = warnings
            .iter()
            .filter(|line| line.contains("RUNNER_BOT_MINUTES, RUNNER_BOT_IDLE: no effect"));
        assert_eq!(told.count(), 1, "{arguments:?}: {warnings:?}");
    }
    assert!(served(&[], &[("RUNNER_BOT_IDLE", " ")]).1.is_empty());
}

/// R-089: the key comes from the option, a file or a variable. No error contains it.
#[test]
fn reads_the_api_key_from_one_place() {
    let key = |arguments: &[&str], variables: &[(&str, &str)]| served(arguments, variables).0.api_key.expect("a key");
    let long = "k".repeat(512);
    let variable = [("RUNNER_API_KEY", "variable-is-this-one")];
    assert_eq!(key(&[], &variable).expose(), "variable-is-this-one");
    assert_eq!(
        key(&["--api-key", "sixteen-letters!"], &variable).expose(),
        "sixteen-letters!"
    );
    assert_eq!(key(&["--api-key", &long], &[]).expose(), long);
    assert_eq!(key(&["--api-key-file", "key"], &variable).expose(), "0123456789abcdef");
    assert!(config(&[]).api_key.is_none());
    // One that the runner made gives way to one that somebody gave.
    let made = [("RUNNER_API_KEY_FILE", "auto"), ("STATE_DIRECTORY", "/state")];
    assert_eq!(key(&[], &made).expose(), "kept-in-the-folder");
    assert_eq!(
        key(&[], &[made[0], made[1], variable[0]]).expose(),
        "variable-is-this-one"
    );
    assert_eq!(key(&["--api-key-file", "key"], &made).expose(), "0123456789abcdef");
    assert!(
        served(&[], &[("RUNNER_API_KEY_FILE", " "), made[1]])
            .0
            .api_key
            .is_none()
    );
    assert!(refused(&["--api-key-file", "auto"]).contains("set --state-dir"));
    assert!(refused(&["--api-key-file", "auto", "--state-dir", "/full"]).contains("/full/api-key"));
    // The key does not protect WebSockets, which is easy to overlook.
    let warnings = |more: &[&str]| served(&[&["--api-key", "sixteen-letters!"], more].concat(), &[]).1;
    assert!(warnings(&[])[0].contains("--ws-auth token"));
    assert!(warnings(&["--ws-auth", "token"]).is_empty());
    assert!(refused(&["--api-key-file", "absent"]).contains("reading absent"));
    assert!(refused(&["--api-key", &long, "--api-key-file", "key"]).contains("one of them"));
    for bad in [
        "fifteen-letters",
        &"k".repeat(513),
        "with a space in it",
        "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
    ] {
        let message = refused(&["--api-key", bad]);
        assert!(message.contains("16 to 512") && !message.contains(bad), "{message}");
    }
}

/// D-22: a replica has a key of a file, and a name. No error contains the key.
#[test]
fn reads_the_cluster_key_from_a_file() {
    let cluster = |arguments: &[&str]| config(arguments).cluster.expect("a key");
    let unnamed = cluster(&["--cluster-key-file", "cluster"]);
    let expected = ClusterKey::new(Secret::new("0123456789abcdef0123456789abcdef"));
    assert_eq!((&unnamed.key, &unnamed.replica_name), (&expected, &None));
    assert_eq!(unnamed.key_file, std::path::Path::new("cluster"));
    let named = cluster(&["--cluster-key-file", "cluster", "--replica-name", "eu-1_b"]);
    assert_eq!(named.replica_name.as_deref(), Some("eu-1_b"));
    let variables = [("RUNNER_CLUSTER_KEY_FILE", "cluster"), ("RUNNER_REPLICA_NAME", "c")];
    let by_variables = served(&[], &variables).0.cluster.expect("a key");
    assert_eq!(by_variables.replica_name.as_deref(), Some("c"));
    assert!(config(&[]).cluster.is_none());
    let short = refused(&["--cluster-key-file", "key"]);
    assert!(short.contains("32 to 512") && !short.contains("abcdef"), "{short}");
    assert!(refused(&["--cluster-key-file", "absent"]).contains("reading absent"));
    assert!(refused(&["--replica-name", "a"]).contains("--cluster-key-file"));
    for bad in ["", "a.b", "a b", "\u{e9}", &"n".repeat(33)] {
        let message = refused(&["--cluster-key-file", "cluster", "--replica-name", bad]);
        assert!(message.contains("1 to 32 letters"), "{message}");
    }
}

#[test]
fn the_state_folder_follows_systemd_and_xdg() {
    let folder = |arguments: &[&str], variables: &[(&str, &str)]| served(arguments, variables).0.state_dir;
    let home = ("HOME", "/home/ann");
    assert_eq!(folder(&[], &[]), None);
    assert_eq!(folder(&[], &[home]), Some("/home/ann/.local/state/edge-runner".into()));
    let xdg = ("XDG_STATE_HOME", "/state");
    assert_eq!(folder(&[], &[home, xdg]), Some("/state/edge-runner".into()));
    let systemd = ("STATE_DIRECTORY", "/var/lib/edge-runner:/var/lib/other");
    assert_eq!(folder(&[], &[home, xdg, systemd]), Some("/var/lib/edge-runner".into()));
    assert_eq!(folder(&["--state-dir", "/s"], &[systemd]), Some("/s".into()));
    assert!(refused(&["--tls", "auto"]).contains("--state-dir"));
    assert_eq!(config(&["--tls", "auto", "--state-dir", "/s"]).tls, Tls::Auto);
}

#[test]
fn the_doctor_takes_the_options_of_the_runner() {
    let Ok(CliCommand::Doctor { config, .. }) = parse_with(&["doctor", "--port", "9"], &[]) else {
        panic!("a doctor");
    };
    assert_eq!(config.port, 9);
    assert!(refused(&["--port", "9", "doctor"]).contains("`doctor` must be the first argument"));
}

#[test]
fn rejects_a_drain_above_the_cap() {
    assert_eq!(config(&[]).drain.as_secs(), 0);
    assert_eq!(config(&["--drain", "3600"]).drain.as_secs(), 3600);
    assert!(refused(&["--drain", "3601"]).contains("0 to 3600"));
}

/// R-084.
#[test]
fn a_host_is_an_address_localhost_or_a_resolvable_name() {
    assert_eq!(config(&["--host", "0.0.0.0"]).host, address("0.0.0.0"));
    assert_eq!(config(&["--host", "::"]).host, address("::"));
    assert_eq!(config(&["--host", "[::1]"]).host, address("::1"));
    assert_eq!(config(&["--host", "LocalHost"]).host, Host::Localhost);
    assert_eq!(config(&["--host", "board"]).host, address("192.0.2.5"));
    for bad in ["", "unknown", "192.0.2", "http://a", "a:80", "[board]"] {
        assert!(refused(&["--host", bad]).contains("`--host` takes"), "{bad:?}");
    }
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

/// Every option of `docs/spec/runner.md` exists under its name there.
#[test]
fn every_specified_option_is_known() {
    for option in [
        "--host",
        "--port",
        "--rtc-port",
        "-t",
        "--transport",
        "-x",
        "--proxy",
        "-d",
        "--direct",
        "--dialin",
        "--no-dialin",
        "--allowed-origins",
        "--allowed-hosts",
        "--trusted-proxies",
        "--ice-servers",
        "--ice-address",
        "--embedded",
        "--esp32",
        "--ws-auth",
        "--no-verify-webhooks",
        "--bot",
        "--max-sessions",
        "--tls",
        "--moq-connect",
        "--moq-serve",
        "--moq-bind",
        "--moq-namespace",
        "--moq-bot-id",
        "--moq-client-id",
        "--moq-tls-cert",
        "--moq-tls-key",
        "--moq-tls-generate",
        "--moq-tls-insecure",
        "-v",
        "-h",
        "--help",
        "-V",
        "--version",
    ] {
        if let Err(error) = parse_with(&[option], &[]) {
            assert!(
                !matches!(
                    error,
                    UsageError::UnknownOption { .. } | UsageError::UnknownShortOption { .. }
                ),
                "{error}"
            );
        }
    }
}

#[cfg(unix)]
#[test]
fn rejects_an_argument_that_is_not_unicode() {
    use std::os::unix::ffi::OsStringExt;
    let env = Env {
        variables: Variables::default(),
        addresses: Vec::new(),
        make_key: &|_| Err(std::io::ErrorKind::NotFound.into()),
        names: vec!["Board".into()],
        read: &|_| Err(std::io::Error::other("no file")),
        lookup_host: &|_| Vec::new(),
    };
    let bad = || OsString::from_vec(b"x\xff".to_vec());
    let unicode = || UsageError::NotUnicode("x\u{fffd}".to_owned());
    for (arguments, error) in [
        (vec![bad()], unicode()),
        (vec!["--bot".into(), bad()], unicode()),
        (
            vec![OsString::from_vec(b"--bo\xff".to_vec())],
            UsageError::UnknownOption {
                given: "--bo\u{fffd}".to_owned(),
                nearest: Some("`--bot`".to_owned()),
            },
        ),
    ] {
        assert_eq!(parse(arguments.clone(), &env).err(), Some(error), "{arguments:?}");
    }
}
