//! Files with each kind of value and mistake, for a table of four options.

use std::ffi::OsString;

use super::*;
use crate::options::{env_options, flag, number, push, put};

#[derive(Debug, Default)]
struct Args {
    port: Option<u16>,
    key: Option<String>,
    key_file: Option<String>,
    servers: Vec<String>,
    is_embedded: bool,
    local: Option<String>,
    verbosity: u8,
    given: Vec<&'static str>,
    argument: Option<OsString>,
}

impl OptionStore for Args {
    fn given(&mut self) -> &mut Vec<&'static str> {
        &mut self.given
    }

    fn argument(&mut self) -> &mut Option<OsString> {
        &mut self.argument
    }

    fn overrides(&self, long: &str) -> bool {
        long == "--key-file" && self.given.contains(&"--key")
    }
}

static TABLE: OptionTable<Args> = OptionTable {
    prefix: "RUNNER_",
    argument: None,
    own_variable_first: true,
    modules: &[&[
        flag(
            "--port",
            FlagKind::Value("N", |args: &mut Args, text| {
                put(&mut args.port, number(&text, 0, u16::MAX)?)
            }),
            "",
            "",
        ),
        flag(
            "--key",
            FlagKind::Value("KEY", |args, text| put(&mut args.key, text)),
            "",
            "",
        ),
        flag(
            "--key-file",
            FlagKind::Value("FILE", |args, text| put(&mut args.key_file, text)),
            "",
            "",
        ),
        flag(
            "--ice-servers",
            FlagKind::Repeatable("URL", |args, text| push(&mut args.servers, text)),
            "",
            "",
        ),
        flag("--embedded", FlagKind::Switch(|args| args.is_embedded = true), "", ""),
        flag(
            "--local",
            FlagKind::Optional("voice|text", |args, text| put(&mut args.local, text)),
            "",
            "",
        ),
        flag("--verbose", FlagKind::Count(|args| args.verbosity += 1), "", ""),
        flag("--env-file", FlagKind::Value("FILE", |_, _| Ok(())), "", ""),
    ]],
};

fn parsed(text: &str) -> Result<SettingsFile, UsageError> {
    let variables = [
        ("VIDEOROOM_API_KEY", None),
        ("SERVICE_URL", None),
        ("RUNNER_BOT_MINUTES", None),
    ];
    let of_bots = bot_keys(&TABLE, &["--key"], variables.into_iter());
    parse(
        "a.toml",
        text,
        &keys(&TABLE, variables.into_iter()),
        &of_bots,
        TABLE.prefix,
    )
}

fn refused(text: &str) -> String {
    parsed(text).expect_err("a mistake").to_string()
}

fn no_references(_: &Reference) -> Result<String, String> {
    Err("there is none".into())
}

/// Applies a file after typed options and variables.
fn applied(typed: &[&'static str], variables: &[(&str, &str)], text: &str) -> Result<Args, UsageError> {
    let mut args = Args {
        given: typed.to_vec(),
        ..Args::default()
    };
    let variables = variables
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let from_env = env_options::apply(&mut args, &TABLE, &Variables::new(variables, [])).expect("valid variables");
    parsed(text)?.apply(&mut args, &TABLE, &from_env, &no_references)?;
    Ok(args)
}

/// An option that takes a word or none is on with `true`.
#[test]
fn a_word_may_be_a_switch() {
    for (text, local) in [
        ("local = true", Some("voice")),
        ("local = 'text'", Some("text")),
        ("local = false", None),
    ] {
        let args = applied(&[], &[], text).expect(text);
        assert_eq!(
            (args.local.as_deref(), args.given.len()),
            (local, usize::from(local.is_some()))
        );
    }
    let args = applied(&[], &[("RUNNER_LOCAL", "yes")], "").expect("valid settings");
    assert_eq!(args.local.as_deref(), Some("voice"));
    assert_eq!(
        refused("local = ['a']"),
        "a.toml:1: `local` takes one text or number, not a list"
    );
}

#[test]
fn each_type_of_value_sets_its_option() {
    let text = "\u{feff}# a comment\nport = 8_080\nverbose = 2\nembedded = true\nice-servers = [\"stun:a\", \"stun:b\"]\nkey = 'k'\n";
    let args = applied(&[], &[], text).expect("valid settings");
    assert_eq!((args.port, args.verbosity, args.is_embedded), (Some(8080), 2, true));
    assert_eq!(args.servers, ["stun:a", "stun:b"]);
    assert_eq!(args.key.as_deref(), Some("k"));
    assert_eq!(
        args.given,
        ["--port", "--verbose", "--embedded", "--ice-servers", "--key"]
    );
    let args = applied(&[], &[], "port = '0x50'\n").expect_err("no number").to_string();
    assert_eq!(args, "`port (a.toml:1)` takes a number from 0 to 65535, not `0x50`");
    let args = applied(&[], &[], "ice-servers = 'stun:a'\nport = 0x50\nembedded = false").expect("valid settings");
    assert_eq!(
        (args.servers, args.port, args.is_embedded),
        (vec!["stun:a".to_owned()], Some(80), false)
    );
}

#[test]
fn options_and_variables_take_precedence() {
    let text = "port = 1\nkey-file = 'f'\nembedded = true\n";
    assert_eq!(applied(&["--port"], &[], text).expect("valid settings").port, None);
    let args = applied(&[], &[("RUNNER_PORT", "2"), ("RUNNER_EMBEDDED", "off")], text).expect("valid settings");
    assert_eq!((args.port, args.is_embedded), (Some(2), false));
    assert_eq!(args.given, ["--key-file"], "variables do not count as given");
    // A variable also takes precedence over an entry that conflicts with it.
    let args = applied(&[], &[("RUNNER_KEY", "k")], text).expect("valid settings");
    assert_eq!((args.key.as_deref(), args.key_file), (Some("k"), None));
}

#[test]
fn mistakes_have_their_line_and_what_is_expected() {
    for (text, message) in [
        (
            "port = 1\nprot = 2\n",
            "a.toml:2: there is no setting `prot`; did you mean `port`?",
        ),
        (
            "ice_servers = []",
            "a.toml:1: there is no setting `ice_servers`; did you mean `ice-servers`?",
        ),
        (
            "RUNNER_PORT = 1",
            "a.toml:1: there is no setting `RUNNER_PORT`; did you mean `port`?",
        ),
        (
            "\n\nembedded = 'yes'",
            "a.toml:3: `embedded` takes `true` or `false`, not a text",
        ),
        (
            "verbose = true",
            "a.toml:1: `verbose` takes a number from 0 to 3, not `true` or `false`",
        ),
        (
            "verbose = 4",
            "`verbose (a.toml:1)` takes a number from 0 to 3, not `4`",
        ),
        ("port = [1]", "a.toml:1: `port` takes one text or number, not a list"),
        (
            "port = 1979-05-27",
            "a.toml:1: `port` takes one text or number, not a date or time",
        ),
        (
            "ice-servers = [\n'stun:a',\n[1]]",
            "a.toml:3: `ice-servers` takes texts or numbers, not a list",
        ),
        (
            "ice-servers = []",
            "a.toml:1: `ice-servers` takes at least one value (leave the key out for none), not an empty list",
        ),
        (
            "BOT_MINUTES = 1",
            "a.toml:1: there is no setting `BOT_MINUTES`; did you mean `bot-minutes`?",
        ),
        (
            "[server]\nport = 1",
            "a.toml:1: there is no section `server`; the only sections are [bots.NAME], and the keys of the runner stand above them",
        ),
        (
            "[bot.x]\nminutes = 1",
            "a.toml:1: there is no section `bot`; did you mean [bots.NAME]?",
        ),
        (
            "minutes = 1",
            "a.toml:1: there is no setting `minutes` outside of a section [bots.NAME]; did you mean `bot-minutes`?",
        ),
        (
            "command = 'bot'",
            "a.toml:1: `command` takes a list of texts: a program and its arguments, not a text",
        ),
        (
            "env-file = 'x'",
            "a.toml:1: `env-file` is read before this file: use `--env-file` or RUNNER_ENV_FILE",
        ),
        (
            "VIDEOROOM_API_KEY = 'a'\nDAILY_API_KEY = 'b'",
            "a.toml:2: `DAILY_API_KEY` is set twice: as `VIDEOROOM_API_KEY` in line 1",
        ),
        (
            "[key]\nvalue = 1",
            "a.toml:1: `key` takes a value, { file = \"PATH\" } or { variable = \"NAME\" }; it is no section",
        ),
    ] {
        let result = parsed(text).and_then(|_| applied(&[], &[], text).map(drop));
        assert_eq!(result.expect_err(text).to_string(), message);
    }
    assert!(refused("xyz = 1").contains("keys are the long names of options"));
    for (text, line) in [
        ("port = 1\nport = 2\n", 2),
        ("port = 1\n\nkey = \n", 3),
        ("key = 'k", 1),
    ] {
        let message = refused(text);
        assert!(
            message.starts_with(&format!("a.toml:{line}: no valid TOML: ")),
            "{message}"
        );
    }
}

/// A secret stays out of messages, wherever the mistake is.
#[test]
fn no_message_contains_a_value() {
    for text in [
        "key = hunter2",
        "key = 'hunter2",
        "key = 'a'\nkey = 'hunter2'",
        "key = ['hunter2']",
        "xyz = 'hunter2'",
    ] {
        let message = refused(text);
        assert!(!message.contains("hunter2"), "{message}");
    }
    let settings = parsed("port = { variable = 'SECRET' }").expect("valid settings");
    let read = |_: &Reference| Ok("hunter2".to_owned());
    let failed = settings.apply(&mut Args::default(), &TABLE, &[], &read).map(drop);
    assert_eq!(
        failed.expect_err("no number").to_string(),
        "`port (a.toml:1)` takes a number from 0 to 65535"
    );
}

#[test]
fn values_may_be_in_files_and_variables() {
    let settings = parsed("key = { file = 'f' }\nport = { variable = 'P' }\nDAILY_API_KEY = { file = 'g' }\n")
        .expect("valid settings");
    assert_eq!(settings.files().collect::<Vec<_>>(), ["f", "g"]);
    let read = |reference: &Reference| match reference {
        Reference::File(path) => Ok(format!("in {path}")),
        Reference::Variable(name) => Ok(format!("{}1", name.len())),
    };
    let mut args = Args::default();
    settings.apply(&mut args, &TABLE, &[], &read).expect("valid values");
    assert_eq!((args.key.as_deref(), args.port), (Some("in f"), Some(11)));
    let variables = settings.variables(&Variables::default(), &read).expect("valid values");
    assert_eq!(variables.len(), 1);
    assert_eq!((variables[0].name, &*variables[0].value), ("VIDEOROOM_API_KEY", "in g"));
    let failed = settings
        .apply(&mut Args::default(), &TABLE, &[], &no_references)
        .map(drop);
    assert_eq!(
        failed.expect_err("no file").to_string(),
        "a.toml:1: `key`: there is none"
    );
    assert!(!settings.contains_one(|_| true), "references are no secrets");
    assert!(
        parsed("key = 'k'")
            .expect("valid settings")
            .contains_one(|name| name == "--key")
    );
}

/// A variable of the process takes precedence under any of its names.
#[test]
fn variables_of_the_file_are_those_that_nothing_else_sets() {
    let settings = parsed("VIDEOROOM_API_KEY = 'a'\nSERVICE_URL = 'b'\nbot-minutes = 5\n").expect("valid settings");
    let process = [("DAILY_API_KEY".to_owned(), "c".to_owned())];
    let env = Variables::new(process, []);
    let added = settings.variables(&env, &no_references).expect("no references");
    let all = env.with_settings(added);
    assert_eq!(all.get("VIDEOROOM_API_KEY"), Some("c"));
    assert_eq!(all.get("SERVICE_URL"), Some("b"));
    assert_eq!(all.get("RUNNER_BOT_MINUTES"), Some("5"));
    assert_eq!(all.place("SERVICE_URL"), Some("SERVICE_URL (a.toml:2)"));
    assert_eq!(all.place("VIDEOROOM_API_KEY"), None);
}

#[test]
fn others_must_not_read_a_secret() {
    let of = |mode| exposed_warning(Path::new("/etc/a.toml"), mode);
    assert!(of(0o644).is_some_and(|text| text.contains("chmod 640 /etc/a.toml")));
    for mode in [0o600, 0o640, 0o660] {
        assert_eq!(of(mode), None, "{mode:o}");
    }
}

#[test]
fn a_section_has_the_settings_of_a_bot() {
    let text = "port = 1\n\n[bots.sales]\ncommand = ['a', 'b']\nnumbers = ['+1555', 2]\nminutes = 5\n\n\
                [bots.sales.env]\nMODEL = 'large'\nKEY = { file = 'k' }\nDEBUG = true\n\n[bots.home]\nkey = 'x'\nby-body = true\n";
    let settings = parsed(text).expect("valid settings");
    let [sales, home] = &*settings.bots else {
        panic!("two bots, not {:?}", settings.bots);
    };
    assert_eq!(
        (&*sales.name, sales.line, &*home.name, home.line),
        ("sales", 3, "home", 13)
    );
    assert_eq!(sales.texts(NUMBERS), ["+1555", "2"]);
    assert_eq!((sales.is_on(BY_BODY), home.is_on(BY_BODY)), (false, true));
    let minutes = sales.settings.get("RUNNER_BOT_MINUTES").expect("an entry");
    assert_eq!(sales.settings.place(minutes), "minutes (a.toml:6)");
    let read = |_: &Reference| Ok("secret".to_owned());
    let environment = sales.environment(&read).expect("readable");
    let shown: Vec<_> = environment
        .iter()
        .map(|(name, value)| (&**name, value.expose()))
        .collect();
    assert_eq!(shown, [("MODEL", "large"), ("KEY", "secret"), ("DEBUG", "true")]);
    assert!(home.environment(&read).expect("readable").is_empty());
    assert_eq!(
        sales.environment(&no_references).expect_err("no file").to_string(),
        "a.toml:10: `KEY`: there is none"
    );
    assert_eq!(settings.files().collect::<Vec<_>>(), ["k"]);
    assert!(
        settings.contains_one(|name| name == "--key"),
        "a section is a part of the file"
    );
    assert_ne!(sales.content(), home.content());
}

/// What documents and messages call a variable is its name in the file, too.
#[test]
fn a_variable_has_its_whole_name_too() {
    for text in ["bot-minutes = 5", "RUNNER_BOT_MINUTES = 5"] {
        let settings = parsed(text).expect("valid settings");
        assert!(settings.get("RUNNER_BOT_MINUTES").is_some(), "{text}");
    }
    assert_eq!(
        refused("bot-minutes = 5\nRUNNER_BOT_MINUTES = 6"),
        "a.toml:2: `RUNNER_BOT_MINUTES` is set twice: as `bot-minutes` in line 1"
    );
    assert_eq!(
        refused("prt = { file = 'x' }"),
        "a.toml:1: there is no setting `prt`; did you mean `port`?"
    );
}

/// A comment or another order of the lines is no change, whatever it does to their numbers.
#[test]
fn the_content_of_a_section_has_no_line_numbers() {
    let content = |text: &str| parsed(text).expect("valid settings").bots[0].content();
    let text = "[bots.a]\ncommand = ['x']\nminutes = 5\nenv = { A = '1', B = '2' }\n";
    assert_eq!(content(text), content(&format!("# new\n\n{text}")));
    let other = "[bots.a]\nminutes = 5\nenv = { B = '2', A = '1' }\n# new\ncommand = ['x']\n";
    assert_eq!(content(text), content(other));
    for (from, to) in [
        ("5", "6"),
        ("'1'", "'3'"),
        ("'x'", "'y'"),
        ("A =", "C ="),
        ("minutes = 5\n", ""),
    ] {
        assert_ne!(content(text), content(&text.replace(from, to)), "{from}");
    }
}

#[test]
fn mistakes_in_sections_have_their_line() {
    for (text, message) in [
        ("bots = 1", "a.toml:1: `bots` takes sections: [bots.NAME]"),
        ("[bots]\nsales = 1", "a.toml:2: `bots` takes sections: [bots.NAME]"),
        (
            "[bots.'a b']",
            "a.toml:1: the name of a bot has up to 32 ASCII letters, digits, `-` and `_`, and is not `default`",
        ),
        (
            "[bots.default]",
            "a.toml:1: the name of a bot has up to 32 ASCII letters, digits, `-` and `_`, and is not `default`",
        ),
        (
            "[bots.a]\nport = 1",
            "a.toml:2: `port` is a setting of the runner: put it above the first section",
        ),
        (
            "[bots.a]\nnumber = 1",
            "a.toml:2: there is no setting `number` of a bot; did you mean `numbers`?",
        ),
        (
            "[bots.a]\nurl = 'x'",
            "a.toml:2: there is no setting `url` of a bot; did you mean `SERVICE_URL`?",
        ),
        (
            "[bots.a]\nminuts = 1",
            "a.toml:2: there is no setting `minuts` of a bot; did you mean `minutes`?",
        ),
        (
            "[bots.a]\nbot-minuts = 1",
            "a.toml:2: there is no setting `bot-minuts` of a bot; did you mean `bot-minutes`?",
        ),
        (
            "[bots.a]\nenvs = 1",
            "a.toml:2: there is no setting `envs` of a bot; did you mean `env`?",
        ),
        (
            "[bots.a]\nprot = 1",
            "a.toml:2: there is no setting `prot` of a bot; did you mean `port`? It is a setting of the runner: put it above the \
             first section",
        ),
        (
            "numbers = ['+1']",
            "a.toml:1: `numbers` is a setting of a bot: put it into its section [bots.NAME]",
        ),
        (
            "[bots.a]\nanything-else = 1",
            "a.toml:2: there is no setting `anything-else` of a bot, in [bots.a]",
        ),
        (
            "[bots.a]\nminutes = 1\nbot-minutes = 1",
            "a.toml:3: `bot-minutes` is set twice: as `minutes` in line 2",
        ),
        (
            "[bots.a]\nby-body = 1",
            "a.toml:2: `by-body` takes `true` or `false`, not a number",
        ),
        (
            "[bots.a]\nenv = 1",
            "a.toml:2: `env` takes variables: { NAME = \"value\" }",
        ),
        (
            "[bots.a.env]\n'A B' = 1",
            "a.toml:2: the name of a variable has ASCII letters, digits and `_`, and no digit first",
        ),
        (
            "[bots.a.env]\nA = [1]",
            "a.toml:2: `A` takes one text or number, not a list",
        ),
        ("[bots.a.env]\nA = \"\\u0000\"", "a.toml:2: `A` contains a NUL byte"),
        (
            "env = 'x'",
            "a.toml:1: `env` is a setting of a bot: put it into its section [bots.NAME]",
        ),
    ] {
        assert_eq!(refused(text), message);
    }
    let many: String = (0..crate::limits::BOTS_MAX + 1)
        .map(|nth| format!("[bots.b{nth}]\n"))
        .collect();
    assert_eq!(refused(&many), "a.toml:33: a runner has at most 32 bots");
    let most: String = (0..crate::limits::BOTS_MAX)
        .map(|nth| format!("[bots.b{nth}]\n"))
        .collect();
    assert_eq!(
        parsed(&most).expect("valid settings").bots.len(),
        crate::limits::BOTS_MAX
    );
}

/// The section of a bot takes precedence over everything, under each name, and as a file or a
/// value.
#[test]
fn variables_of_a_section_replace_all_others() {
    let process = [
        ("DAILY_API_KEY", "c"),
        ("SERVICE_URL", "d"),
        ("SERVICE_URL_FILE", "e"),
        ("OTHER", "f"),
    ];
    let process = process.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let settings = parsed("[bots.a]\nVIDEOROOM_API_KEY = 'a'\nSERVICE_URL = 'b'\n").expect("valid settings");
    let section = &settings.bots[0].settings;
    let added = section
        .variables(&Variables::default(), &no_references)
        .expect("no references");
    let all = Variables::new(process, []).replaced_by(added);
    assert_eq!(
        (all.get("VIDEOROOM_API_KEY"), all.get("SERVICE_URL")),
        (Some("a"), Some("b"))
    );
    assert_eq!(
        (all.literal("DAILY_API_KEY"), all.literal("SERVICE_URL_FILE")),
        (None, None)
    );
    assert_eq!(
        (all.get("OTHER"), all.place("SERVICE_URL")),
        (Some("f"), Some("SERVICE_URL (a.toml:3)"))
    );
}
