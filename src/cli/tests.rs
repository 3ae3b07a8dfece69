//! The command line as a whole: arguments and environment in, a configuration or an error out.

mod access;
mod bots;
mod messages;
mod transports;

use super::*;
use crate::config::{BotAudio, BuiltInBot, Host, PythonBot, Secret, Tls, Transport};
use crate::limits::{ICE_ADDRESSES_MAX, SESSIONS_MAX_DEFAULT};
use crate::proto::http::cluster::ClusterKey;

fn parse_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<CliCommand, UsageError> {
    parse_as(&ProgramIdentity::stock(), arguments, variables)
}

/// Parses with these variables on a machine that has the address 192.0.2.5 and resolves `board`.
fn parse_as(
    program: &ProgramIdentity,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<CliCommand, UsageError> {
    let env = Env {
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
        ..Env::of_variables(variables)
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

/// every transport at localhost:7860, for every origin.
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

/// Options of Pipecat's runner: an old name of the downloads folder, uploads, and a transport that
/// is none.
#[test]
fn reads_old_options_of_pipecats_runner() {
    assert_eq!(config(&["--folder", "files"]).downloads_dir, Some("files".into()));
    let uploads = config(&["-u", "in", "--uploads-folder-max-files", "0"]);
    assert_eq!((uploads.uploads_dir, uploads.uploads_max), (Some("in".into()), 0));
    let (of_variable, _) = served(&[], &[("PIPECAT_UPLOADS_FOLDER", "in")]);
    assert_eq!(
        (of_variable.uploads_dir, of_variable.uploads_max),
        (Some("in".into()), 10)
    );
    assert!(refused(&["-u", "in", "--uploads-folder-max-files", "10001"]).contains("10000"));
    let (config, warnings) = served(&["-t", "eval"], &[]);
    assert_eq!(config.transport, None);
    assert!(
        warnings
            .iter()
            .any(|warning| warning.starts_with("`-t eval` has no effect")),
        "{warnings:?}"
    );
    assert!(refused(&["-t", "vonage"]).contains("webrtc"));
}

#[test]
fn the_log_is_text_by_default() {
    use crate::config::LogFormat;
    assert_eq!(config(&[]).log, LogFormat::Text);
    assert_eq!(config(&["--log=json"]).log, LogFormat::Json);
    assert_eq!(served(&[], &[("RUNNER_LOG", "json")]).0.log, LogFormat::Json);
}

#[test]
fn newer_versions_are_asked_for_only_if_that_is_wanted() {
    use crate::config::UpdateCheck;
    assert_eq!(config(&[]).update_check, UpdateCheck::Off);
    assert_eq!(config(&["--update-check", "on"]).update_check, UpdateCheck::Releases);
    let (of_variable, _) = served(&[], &[("RUNNER_UPDATE_CHECK", "https://nas.example/latest/")]);
    let mirror = UpdateCheck::Mirror("https://nas.example/latest".into());
    assert_eq!(of_variable.update_check, mirror);
    assert!(refused(&["--update-check", "daily"]).contains("`off`, `on`, or the folder of a release"));
}

#[test]
fn options_may_be_given_with_their_opposite() {
    config(&["--tls=off", "--ws-auth=none", "--no-dialin", "--dialin", "--no-dialin"]);
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

///
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
