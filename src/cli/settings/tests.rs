//! The file as a part of the command line.

use super::*;
use crate::cli::CliCommand;
use crate::config::BuiltInBot;

/// Parses arguments with variables, on a machine with these files.
fn parsed(arguments: &[&str], variables: &[(&str, &str)], files: &[(&str, &str)]) -> Result<CliCommand, String> {
    let variables = variables
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let env = Env {
        variables: Variables::new(variables, []),
        addresses: Vec::new(),
        make_key: &|_| Err(std::io::ErrorKind::PermissionDenied.into()),
        names: Vec::new(),
        read: &|path| {
            let found = files.iter().find(|(name, _)| *name == path);
            found
                .map(|(_, text)| text.as_bytes().to_vec())
                .ok_or_else(|| std::io::ErrorKind::NotFound.into())
        },
        lookup_host: &|_| Vec::new(),
    };
    crate::cli::parse(arguments.iter().map(OsString::from), &env).map_err(|error| error.to_string())
}

fn config(arguments: &[&str], text: &str) -> crate::config::Config {
    let arguments = [&["--config", "a.toml"], arguments].concat();
    match parsed(&arguments, &[], &[("a.toml", text)]) {
        Ok(CliCommand::Serve { config, .. }) => *config,
        other => panic!("{text} does not serve: {other:?}"),
    }
}

fn text(arguments: &[&str], variables: &[(&str, &str)], file: &str) -> String {
    match parsed(arguments, variables, &[("a.toml", file)]) {
        Ok(CliCommand::Help(text)) => text,
        other => panic!("{arguments:?} print nothing: {other:?}"),
    }
}

fn refused(arguments: &[&str], file: &str) -> String {
    parsed(arguments, &[], &[("a.toml", file)]).expect_err("a mistake")
}

/// Every option and every variable of the runner can be in the file.
#[test]
fn every_option_and_variable_is_a_key() {
    let keys = keys(&RUNNER, variables().map(|name| (name, of_variable(name))));
    for flag in RUNNER.flags() {
        let has_key = keys.iter().any(|key| key.name == flag.long);
        assert_eq!(has_key, !["--help", "--version"].contains(&flag.long), "{}", flag.long);
    }
    assert!(keys.iter().any(|key| key.name == "VIDEOROOM_API_KEY"));
    assert!(!keys.iter().any(|key| ["ENV", "RUST_LOG"].contains(&key.name)));
}

#[test]
fn the_file_sets_options_variables_and_the_command() {
    let set = config(
        &[],
        "port = 8080\nVIDEOROOM_API_KEY = 'abc'\ncommand = ['bot.py', '--config', 'x']\n",
    );
    assert_eq!(set.port, 8080);
    assert!(set.videoroom.key.is_some() && set.python_bot.is_some());
    assert_eq!(
        set.command,
        Some(["bot.py", "--config", "x"].map(OsString::from).to_vec())
    );
    assert_eq!(config(&["--port", "1"], "port = 2").port, 1);
    // Whatever names the bot elsewhere replaces the command of the file.
    let set = config(&["--bot", "echo"], "command = ['bot']");
    assert_eq!((set.bot, set.command), (BuiltInBot::Echo, None));
    let set = config(&["--", "other"], "command = ['bot']\n");
    assert_eq!(set.command, Some(vec!["other".into()]));
    let set = config(&["other.py", "--config", "b.toml"], "port = 3");
    assert_eq!((set.port, set.command.map(|words| words.len())), (3, Some(3)));
    let message = refused(&["--config", "a.toml"], "bot = 'echo'\ncommand = ['bot']");
    assert!(message.contains("both name the bot"), "{message}");
}

#[test]
fn errors_name_the_line_that_sets_the_value() {
    let message = refused(&["--config", "a.toml"], "direct = true\ntransport = 'webrtc'");
    assert!(
        message.contains("(set by direct (a.toml:1), transport (a.toml:2))"),
        "{message}"
    );
    let message = refused(
        &["--config", "a.toml"],
        "\nVIDEOROOM_API_URL = 'nonsense'\nVIDEOROOM_API_KEY = 'k'",
    );
    assert!(
        message.starts_with("`VIDEOROOM_API_URL (a.toml:2)` takes the base URL"),
        "{message}"
    );
    let message = refused(&["--config", "b.toml"], "");
    assert!(
        message.starts_with("`--config b.toml`: ") && message.contains("in TOML"),
        "{message}"
    );
    let message = parsed(&[], &[("RUNNER_CONFIG", "b.toml")], &[]).expect_err("no file");
    assert!(message.contains("(set by RUNNER_CONFIG)"), "{message}");
}

#[test]
fn a_file_with_a_secret_is_remembered() {
    let secret = |text| config(&[], text).secret_settings.is_some();
    assert!(secret("api-key = '0123456789abcdef'") && secret("VIDEOROOM_API_KEY = 'k'"));
    assert!(!secret("port = 1"));
}

#[test]
fn a_check_prints_warnings_and_makes_nothing() {
    let file = "api-key-file = 'auto'\nstate-dir = '/s'\n";
    for arguments in [
        &["config", "check", "a.toml"][..],
        &["config", "check", "--config", "a.toml"],
    ] {
        let text = text(arguments, &[], file);
        assert!(
            text.starts_with("warning: ") && text.ends_with("a.toml: no mistakes\n"),
            "{text}"
        );
    }
    assert!(refused(&["config", "check"], "").contains("needs a file"));
    assert!(refused(&["config", "chekc"], "").contains("did you mean `check`?"));
    assert!(text(&["config"], &[], "").starts_with("Usage: edge-runner config check"));
}

#[test]
fn what_is_set_is_shown_with_its_source_and_without_secrets() {
    let file = "port = 1\nhost = '0.0.0.0'\nverbose = 2\nembedded = false\napi-key = '0123456789hunter2'\n\
                ice-servers = ['{\"urls\":\"turn:t\",\"username\":\"u\",\"credential\":\"hunter2\"}', 'stun:b']\nVIDEOROOM_API_KEY = 'hunter2'\nbot-greeting = ''\n";
    let variables = [
        ("RUNNER_HOST", "127.0.0.1"),
        ("VIDEOROOM_API_URL", "https://u.example/hunter?key=hunter2"),
    ];
    let arguments = ["config", "show", "a.toml", "--tls", "off"];
    let message = parsed(&arguments, &variables, &[("a.toml", file)]).err();
    assert!(
        message.is_some_and(|message| message.contains("VIDEOROOM_API_URL")),
        "values are checked"
    );
    let shown = text(&arguments, &variables[..1], file);
    for line in [
        "port = 1  # port (a.toml:1)",
        "host = \"127.0.0.1\"  # RUNNER_HOST",
        "verbose = 2  # verbose (a.toml:3)",
        "embedded = false  # embedded (a.toml:4)",
        "tls = \"off\"  # --tls",
        "api-key = \"********\"  # api-key (a.toml:5)",
        "ice-servers = [\"********\", \"********\"]  # ice-servers (a.toml:6)",
        "VIDEOROOM_API_KEY = \"********\"  # VIDEOROOM_API_KEY (a.toml:7)",
        "bot-greeting = \"\"  # bot-greeting (a.toml:8)",
        "# log: text (default)",
    ] {
        assert!(shown.lines().any(|other| other == line), "{line} is not in\n{shown}");
    }
    assert!(!shown.contains("hunter2") && !shown.contains("# port:"), "{shown}");
    // What is shown is a file again.
    let keys = keys(&RUNNER, variables_with_features());
    parse("again.toml", &shown, &keys, RUNNER.prefix).expect("valid settings");
}

fn variables_with_features() -> impl Iterator<Item = (&'static str, Option<crate::features::Feature>)> {
    variables().map(|name| (name, of_variable(name)))
}

#[test]
fn texts_are_quoted_as_toml() {
    assert_eq!(masked("80"), "80");
    assert_eq!(masked("0"), "0");
    assert_eq!(masked("007"), "\"007\"");
    assert_eq!(masked("a\"b\\\n\u{7}"), "\"a\\\"b\\\\\\n\\u0007\"");
    assert_eq!(masked("https://u:p@h"), "\"********\"");
    assert_eq!(masked("https://h/a"), "\"https://h/a\"");
}
