//! Help, and errors with the nearest name.

use super::*;

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
    let codec = crate::proto::audio::opus::codec_name();
    assert_eq!(text, format!("edge-runner {} ({codec})\n", env!("CARGO_PKG_VERSION")));
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

#[cfg(unix)]
#[test]
fn rejects_an_argument_that_is_not_unicode() {
    use std::os::unix::ffi::OsStringExt;
    let env = Env::of_variables::<&str, &str>(&[]);
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
