//! The file as a part of the command line.

use super::*;
use crate::aliases::{self, Area};
use crate::cli::CliCommand;
use crate::config::{BuiltInBot, Greeting};
use crate::proto::setup::fields::FIELDS;

/// Parses arguments with variables, on a machine with these files.
fn parsed(arguments: &[&str], variables: &[(&str, &str)], files: &[(&str, &str)]) -> Result<CliCommand, String> {
    let env = Env {
        read: &|path| {
            let found = files.iter().find(|(name, _)| *name == path);
            found
                .map(|(_, text)| text.as_bytes().to_vec())
                .ok_or_else(|| std::io::ErrorKind::NotFound.into())
        },
        ..Env::of_variables(variables)
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
    let keys = keys(&RUNNER, variables().map(|name| (name, feature_of(name))));
    for flag in RUNNER.flags() {
        let has_key = keys.iter().any(|key| key.name == flag.long);
        let prints = ["--help", "--version", "--local-list"].contains(&flag.long);
        assert_eq!(has_key, !prints, "{}", flag.long);
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
        "# moq-bind: [::]:4080, or any port with --moq-connect (default)",
    ] {
        assert!(shown.lines().any(|other| other == line), "{line} is not in\n{shown}");
    }
    assert!(!shown.contains("hunter2") && !shown.contains("# port:"), "{shown}");
    // What is shown is a file again.
    let keys = keys(&RUNNER, variables_with_features());
    parse("again.toml", &shown, &keys, &[], RUNNER.prefix).expect("valid settings");
}

fn variables_with_features() -> impl Iterator<Item = (&'static str, Option<crate::features::Feature>)> {
    variables().map(|name| (name, feature_of(name)))
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

#[test]
fn the_sound_card_calls_one_of_the_bots() {
    let file = "[bots.desk]\nbot = 'echo'\n[bots.sales]\nbot = 'echo'\n";
    let named = |name: &'static str| ["--local", "--local-bot", name];
    let set = config(&named("sales"), file);
    assert_eq!(set.local.expect("it is on").bot.as_deref(), Some("sales"));
    let refused = |arguments: &[&str], file: &str| refused(&[&["--config", "a.toml"], arguments].concat(), file);
    let message = refused(&named("sale"), file);
    assert!(
        message.contains("`desk` or `sales`") && message.contains("did you mean `sales`?"),
        "{message}"
    );
    let message = refused(&named("sales"), "bot = 'echo'\n");
    assert!(message.contains("one of several bots"), "{message}");
}

/// A bot with an agent name of its own has a registration; the others share that of the runner.
#[test]
fn bots_have_agent_names_of_their_own() {
    let server = "register = 'room'\nMEDIAROOM_URL = 'wss://a'\nMEDIAROOM_API_KEY = 'k'\nMEDIAROOM_API_SECRET = 's'\n";
    let file = |sections: &str| format!("{server}{sections}");
    let names = |set: &Config| -> Vec<String> {
        let registrations = crate::proto::livekit::registrations(set).into_iter();
        registrations.map(|worker| worker.agent_name.clone()).collect()
    };
    let seller = "[bots.sales]\nbot = 'echo'\nagent-name = 'seller'\n";
    let set = config(
        &[],
        &file(&format!(
            "{seller}[bots.desk]\nbot = 'echo'\n[bots.home]\nbot = 'echo'\n"
        )),
    );
    assert_eq!(names(&set), ["seller", "bot"]);
    let own: Vec<_> = set.bots.iter().map(|bot| bot.agent_name.as_deref()).collect();
    assert_eq!(own, [Some("seller"), None, None]);
    assert_eq!(
        names(&config(&[], &file(seller))),
        ["seller"],
        "no bot has that of the runner"
    );
    assert_eq!(names(&config(&["--bot", "echo"], &file(seller))), ["bot", "seller"]);
    for (sections, name) in [
        ("[bots.b]\nbot = 'echo'\nagent-name = 'seller'\n", "seller"),
        (
            "[bots.b]\nbot = 'echo'\n[bots.c]\nbot = 'echo'\nagent-name = 'bot'\n",
            "bot",
        ),
    ] {
        let message = refused(&["--config", "a.toml"], &file(&format!("{seller}{sections}")));
        assert!(message.contains(&format!("`{name}` leads to the bot")), "{message}");
    }
}

/// Each section is a bot with the settings of the runner and its own, which come first.
#[test]
fn sections_are_bots_with_settings_of_their_own() {
    let text = "max-sessions = 6\nwarm = 2\nREALTIME_API_KEY = 'k'\nbot-greeting = 'Hello'\n\n\
                [bots.sales]\ncommand = ['bot.py']\nnumbers = ['+15550001111']\ncallers = ['+43*']\nwarm = 0\nmax-sessions = 2\n\
                env = { MODEL = 'large' }\n\n\
                [bots.home]\nbot = 'realtime'\ngreeting = 'Hi'\ndevices = ['kitchen']\nby-body = true\nmax-seconds = 600\n\n\
                [bots.other]\ncommand = ['other']\n";
    let set = config(&[], text);
    let bots: Vec<_> = set.bots.iter().collect();
    let [sales, home, other] = bots[..] else {
        panic!("three bots, not {:?}", set.bots);
    };
    assert_eq!((&*sales.name, &*home.name, &*other.name), ("sales", "home", "other"));
    assert!(sales.config.python_bot.is_some() && other.config.python_bot.is_none());
    assert_eq!((sales.config.warm, other.config.warm), (0, 2));
    assert_eq!((sales.places, other.places, set.sessions_max), (Some(2), None, 6));
    assert_eq!(
        (&*sales.numbers, &*sales.callers),
        (&["+15550001111".to_owned()][..], &["+43*".to_owned()][..])
    );
    assert_eq!(sales.config.bot_environment.len(), 1);
    assert_eq!(other.config.bot_environment.len(), 0);
    assert_eq!(home.config.bot, BuiltInBot::Realtime);
    assert_eq!(home.config.assistant.greeting, Greeting::Text("Hi".to_owned()));
    assert_eq!((&*home.devices, home.is_in_body), (&["kitchen".to_owned()][..], true));
    assert!(home.config.command.is_none());
    assert_eq!(
        (home.session_max, sales.session_max),
        (Some(Duration::from_secs(600)), None)
    );
    // The first section is the default, and what the runner says of itself.
    assert_eq!(set.command, Some(vec!["bot.py".into()]));
    let keys: Vec<&str> = set
        .set
        .iter()
        .map(|(key, _)| key.as_str())
        .filter(|key| key.starts_with("bots."))
        .collect();
    assert_eq!(keys, ["bots.sales", "bots.home", "bots.other"]);
}

/// A bot outside the sections is the default, wherever it is named.
#[test]
fn the_bot_of_the_runner_itself_comes_first() {
    let text = "[bots.sales]\nbot = 'echo'\n";
    for arguments in [&["--bot", "parrot"][..], &["--", "program"]] {
        let set = config(arguments, text);
        let names: Vec<&str> = set.bots.names().collect();
        assert_eq!(names, ["default", "sales"]);
        let echo = set.bots.get(1).expect("two bots");
        assert_eq!((echo.config.bot, &echo.config.command), (BuiltInBot::Echo, &None));
    }
    let set = config(&[], &format!("command = ['program']\n{text}"));
    assert_eq!(set.bots.names().next(), Some("default"));
    // An assistant has few sessions, and leaves the others theirs.
    let set = config(
        &[],
        "bot = 'realtime'\nREALTIME_API_KEY = 'k'\n[bots.sales]\nbot = 'echo'\n",
    );
    let places: Vec<_> = set.bots.iter().map(|bot| bot.places).collect();
    assert_eq!((places, set.sessions_max), (vec![Some(4), None], 32));
    assert!(config(&[], "port = 1").bots.is_empty());
}

#[test]
fn mistakes_in_the_section_of_a_bot_name_it() {
    let refused = |text: &str| refused(&["--config", "a.toml"], text);
    for (text, message) in [
        (
            "[bots.a]\nnumbers = ['1']",
            "[bots.a]: a.toml:1: a bot needs `command` or `bot`",
        ),
        (
            "[bots.a]\nbot = 'echo'\ncommand = ['x']",
            "[bots.a]: a.toml:2: `bot` and `command` both name the bot; give one of them",
        ),
        (
            "[bots.a]\nbot = 'ecco'",
            "[bots.a]: `bot (a.toml:2)` takes one of `parrot`, `echo`, `realtime` or `cascade`, not `ecco`; did you mean `echo`?",
        ),
        (
            "[bots.a]\nbot = 'echo'\n[bots.b]\nbot = 'echo'\nenv = { A = '1' }",
            "[bots.b]: a.toml:5: `env` is the environment of a `command`, or of one in `tools`, and this bot has none",
        ),
        (
            "[bots.a]\nbot = 'echo'\nnumbers = ['+1 555']\n[bots.b]\nbot = 'echo'\nnumbers = ['1555']",
            "`1555` leads to the bot `a` and to `b`: it can be one of them",
        ),
        (
            "[bots.a]\nbot = 'echo'\ndevices = ['b']\n[bots.b]\nbot = 'echo'",
            "`b` leads to the bot `a` and to `b`: it can be one of them",
        ),
        (
            "[bots.a]\nbot = 'echo'\nmax-seconds = 9",
            "[bots.a]: a.toml:3: `max-seconds` takes a number of seconds from 10 to 86400",
        ),
        (
            "[bots.a]\nbot = 'echo'\nmax-seconds = { file = 'x' }",
            "[bots.a]: a.toml:3: `max-seconds` takes a number of seconds from 10 to 86400",
        ),
        (
            "[bots.a]\nbot = 'echo'\nagent-name = 'x'",
            "[bots.a]: `--agent-name` needs `--register` (set by agent-name (a.toml:3))",
        ),
        (
            "[bots.a]\nbot = 'echo'\ncallers = ['+43*', 'abc']",
            "[bots.a]: a.toml:3: `callers` takes numbers such as +15550001111, beginnings such as +43*, and addresses such as \
             sip:desk@example.net, not \"abc\"",
        ),
    ] {
        assert_eq!(refused(text), message);
    }
    // What the default lacks, the runner lacks.
    let message = refused("[bots.a]\nbot = 'realtime'");
    assert!(
        message.starts_with("[bots.a]: ") && message.contains("REALTIME_API_KEY") && message.contains("a.toml:2"),
        "{message}"
    );
    let message = refused("[bots.a]\nbot = 'echo'\n[bots.b]\nbot = 'realtime'");
    assert!(
        message.starts_with("[bots.b]: ") && message.contains("a.toml:4"),
        "{message}"
    );
}

/// Secrets and environments of sections are masked.
#[test]
fn sections_are_shown_without_secrets() {
    let file = "port = 1\n[bots.a]\nbot = 'realtime'\nREALTIME_API_KEY = 'hunter2'\nnumbers = ['+1']\n\
                [bots.b]\ncommand = ['x', 'y']\nby-body = true\nenv = { TOKEN = 'hunter2', B = { file = 'b' } }\n";
    let read = |arguments: &[&str]| {
        let files = [("a.toml", file), ("b", "hunter2")];
        match parsed(arguments, &[], &files) {
            Ok(CliCommand::Help(text)) => text,
            other => panic!("{arguments:?} print nothing: {other:?}"),
        }
    };
    let shown = read(&["config", "show", "a.toml"]);
    assert!(!shown.contains("hunter2"), "{shown}");
    let section = "\n[bots.a]  # a.toml:2\nbot = \"realtime\"  # a.toml:3\nREALTIME_API_KEY = \"********\"  # a.toml:4\n\
                   numbers = [\"+1\"]  # a.toml:5\n\n[bots.b]  # a.toml:6\ncommand = [\"x\", \"y\"]  # a.toml:7\n\
                   by-body = true  # a.toml:8\nenv.TOKEN = \"********\"  # a.toml:9\nenv.B = \"********\"  # a.toml:9\n";
    assert!(shown.ends_with(section), "{shown}");
    assert!(read(&["config", "check", "a.toml"]).ends_with("a.toml: no mistakes\n"));
}

/// Fields of the settings page are keys of the file, and what is a secret there is one here.
#[test]
fn fields_of_the_settings_page_are_keys() {
    let keys = keys(&RUNNER, variables().map(|name| (name, None)));
    for field in &FIELDS {
        let name = aliases::canonical(Area::Variable, field.name);
        assert!(keys.iter().any(|key| key.name == name), "{}", field.name);
        assert_eq!(field.is_secret, is_secret(name), "{}", field.name);
    }
}

#[test]
fn the_settings_page_needs_a_file_and_a_key() {
    let page = |text: &str| config(&["--settings", "page"], text).settings_page;
    assert_eq!(
        page("api-key = '0123456789abcdef'").as_deref(),
        Some(std::path::Path::new("a.toml"))
    );
    assert_eq!(page("port = 1"), None);
    assert_eq!(
        config(&["--settings", "off"], "api-key = '0123456789abcdef'").settings_page,
        None
    );
    let missing = parsed(&["--settings", "page"], &[], &[]).expect_err("no file");
    assert!(missing.contains("`--config FILE`"), "{missing}");
    assert!(refused(&["--settings", "paeg"], "").contains("did you mean `page`?"));
    let warned = parsed(&["--config", "a.toml", "--settings", "page"], &[], &[("a.toml", "")]);
    let Ok(CliCommand::Serve { warnings, .. }) = warned else {
        panic!("{warned:?}")
    };
    assert!(
        warnings.iter().any(|warning| warning.contains("without an API key")),
        "{warnings:?}"
    );
}
