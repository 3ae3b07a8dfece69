//! Bots: the command after `--`, the built-in ones, and a program's own.

use super::*;

/// Profiles of boards set RUNNER_MAX_SESSIONS by what their processor can do, and calls of a
/// service cost money.
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

/// One process has loaded a file, as it can be; a command has to speak the interface.
#[test]
fn a_file_is_loaded_before_its_calls_and_a_command_where_asked() {
    for (args, expected) in [
        (&["bot.py"][..], 1),
        (&["--warm", "0", "bot.py"], 0),
        (&["--warm", "3", "bot.py"], 3),
        (&["--bot-audio", "pcm", "bot.py"], 0),
        (&["--", "node", "bot.mjs"], 0),
        (&["--warm", "2", "--", "node", "bot.mjs"], 2),
    ] {
        assert_eq!(config(args).warm, expected, "{args:?}");
    }
    assert_eq!(config(&["--bot-memory", "300", "bot.py"]).bot_memory_mib, Some(300));
    assert!(refused(&["--warm", "33", "bot.py"]).contains("0 to 32"));
    for (args, option) in [
        (&["--warm", "1"][..], "`--warm` has no effect without"),
        (
            &["--warm", "1", "--bot-audio", "pcm", "bot.py"],
            "`--warm` has no effect with",
        ),
        (&["--bot-memory", "300"], "`--bot-memory` has no effect without"),
    ] {
        let (_, warnings) = served(args, &[]);
        assert!(warnings.iter().any(|warning| warning.contains(option)), "{warnings:?}");
    }
}

/// Options before the file are the runner's; all behind it is the bot's, also after a list.
#[test]
fn the_file_of_a_bot_in_python_begins_its_command() {
    let parsed = config(&["--port", "80", "bots/hello.py", "--port", "1", "--", "x", "y.py"]);
    let words = ["bots/hello.py", "--port", "1", "--", "x", "y.py"];
    assert_eq!(parsed.command, Some(words.map(OsString::from).to_vec()));
    assert_eq!((parsed.port, parsed.python_bot), (80, Some(PythonBot::default())));
    let list = ["--python", "/py", "--allowed-origins", "https://a.example", "bot.py"];
    let parsed = config(&list);
    assert_eq!(parsed.command, Some(vec!["bot.py".into()]));
    let interpreter = Some("/py".into());
    assert_eq!(parsed.python_bot, Some(PythonBot { interpreter }));
    assert_eq!(config(&["--", "python3", "bot.py"]).python_bot, None);
    assert!(refused(&["--bot", "echo", "bot.py"]).contains("`--bot`"));
    let (_, warnings) = served(&["--python", "/py"], &[]);
    assert!(
        warnings.iter().any(|warning| warning.contains("`--python`")),
        "{warnings:?}"
    );
    assert!(matches!(
        parse_with(&["doctor", "bot.py"], &[]),
        Ok(CliCommand::Doctor { .. })
    ));
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

/// Caps that no bot reads give a false sense of safety.
#[test]
fn caps_of_the_assistants_beside_another_bot_are_a_warning() {
    let caps = [("RUNNER_BOT_IDLE", "60"), ("RUNNER_BOT_MINUTES", "5")];
    for arguments in [&[][..], &["--bot", "echo"], &["--", "sh"]] {
        let (_, warnings) = served(arguments, &caps);
        let reported = warnings
            .iter()
            .filter(|line| line.contains("RUNNER_BOT_MINUTES, RUNNER_BOT_IDLE: no effect"));
        assert_eq!(reported.count(), 1, "{arguments:?}: {warnings:?}");
    }
    assert!(served(&[], &[("RUNNER_BOT_IDLE", " ")]).1.is_empty());
}
