//! The arguments of `edge-runner phone set-up`.
//!
//! In: the arguments after `phone`, and the variables of the provider, also those in the file of
//! settings. Out: a [`PhoneSetUp`], or the text of its help. Keys are no arguments. Rejects
//! providers without an API for numbers, numbers that are not E.164, and missing credentials.

use std::ffi::OsString;

use edge_runner_http::startup::StartupError;

use super::command::{CommandRow, CommandStart, CommandTask, ParsedCommand, begin, complete, failure, print_line};
use super::{Env, ProgramIdentity, UsageError, settings, version_text};
use crate::io::phone::PhoneSetUp;
use crate::proto::options::help::{entries, entry, paragraph};
use crate::proto::options::hosts;
use crate::proto::options::values::all_names;
use crate::proto::options::{Expected, FlagKind, OptionStore, OptionTable, SpecialMode, flag, parse, put};
use crate::proto::telephony::dial::is_number;
use crate::proto::telephony::options::{TelephonyOptions, telephony};
use crate::proto::telephony::{PROVIDERS, Provider};

/// The row of `commands`.
pub(super) const COMMAND: Option<&CommandRow> = Some(&CommandRow {
    name: "phone",
    parse: |program, arguments, env| Ok(command(program, arguments, env)?.into()),
    help_of: None,
});

/// The variable of `--proxy` of the runner, which this command takes as well.
const PROXY_VARIABLE: &str = "RUNNER_PROXY";
const PROXY: &str = "--proxy";
/// The variable of `--config` of the runner.
const CONFIG_VARIABLE: &str = "RUNNER_CONFIG";

#[derive(Debug, Default)]
struct PhoneArgs {
    number: Option<String>,
    proxy: Option<String>,
    config: Option<String>,
    runner: Option<String>,
    is_dry_run: bool,
    verbosity: u8,
    given: Vec<&'static str>,
    argument: Option<OsString>,
}

impl OptionStore for PhoneArgs {
    fn given(&mut self) -> &mut Vec<&'static str> {
        &mut self.given
    }

    fn argument(&mut self) -> &mut Option<OsString> {
        &mut self.argument
    }
}

static PHONE: OptionTable<PhoneArgs> = OptionTable {
    prefix: "",
    argument: Some("PROVIDER"),
    own_variable_first: false,
    modules: &[&[
        flag(
            "--number",
            FlagKind::Value("NUMBER", |args: &mut PhoneArgs, text| match is_number(&text) {
                true => put(&mut args.number, text),
                false => Err("a number such as +15550001111".into()),
            }),
            "",
            "The number, one of the account. Required.",
        ),
        flag(
            PROXY,
            FlagKind::Value("HOST", |args, text| put(&mut args.proxy, text)),
            "",
            "The public host name of the runner. [default: RUNNER_PROXY, or `proxy` in the file of --config]",
        ),
        flag(
            "--config",
            FlagKind::Value("FILE", |args, text| put(&mut args.config, text)),
            "",
            "The file of settings of the runner. [default: RUNNER_CONFIG]",
        ),
        flag(
            "--runner",
            FlagKind::Value("URL", |args, text| match text.contains("://") {
                true => put(&mut args.runner, text),
                false => Err(Expected::from("a URL such as http://127.0.0.1:7860/")),
            }),
            "",
            "Where the test is sent, if this machine cannot reach the public name. [default: https://HOST/]",
        ),
        flag(
            "--dry-run",
            FlagKind::Switch(|args: &mut PhoneArgs| args.is_dry_run = true),
            "",
            "Print what would be changed, and change nothing.",
        ),
        flag(
            "--verbose",
            FlagKind::Count(|args: &mut PhoneArgs| args.verbosity = args.verbosity.saturating_add(1)),
            "",
            "Log more.",
        )
        .short('v'),
        flag("--help", FlagKind::Help, "", "Print this help.").short('h'),
        flag("--version", FlagKind::Version, "", "Print the version.").short('V'),
    ]],
};

/// Parses the arguments after `phone`.
fn command(
    program: &ProgramIdentity,
    mut arguments: Vec<OsString>,
    env: &Env<'_>,
) -> Result<ParsedCommand<PhoneRun>, UsageError> {
    let wrong = |text: &str| UsageError::Combination(format!("`phone` {text}"));
    match arguments.first().is_some_and(|word| word == "set-up") {
        true => drop(arguments.remove(0)),
        false
            if arguments
                .first()
                .is_some_and(|word| word.as_encoded_bytes().starts_with(b"-")) => {}
        false => return Err(wrong("does one thing: `phone set-up PROVIDER`")),
    }
    let mut args = PhoneArgs::default();
    match parse(&mut args, &PHONE, arguments)? {
        Some(SpecialMode::Help | SpecialMode::ShortHelp) => return Ok(ParsedCommand::Text(help(program))),
        Some(SpecialMode::Version) => return Ok(ParsedCommand::Text(version_text(program))),
        None => {}
    }
    let named = args
        .argument
        .as_deref()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let sets_up = |provider: &&&'static Provider| {
        provider.protocol.dials() && [provider.vendor(), provider.wire_name()].contains(&named)
    };
    let Some(provider) = PROVIDERS.iter().find(sets_up).copied() else {
        return Err(wrong(&format!(
            "sets up numbers of {}: name one of them",
            vendors().join(", ")
        )));
    };
    let Some(number) = args.number else {
        return Err(wrong("needs the number: `--number +15550001111`"));
    };
    let file = args.config.as_deref().or(env.variables.get(CONFIG_VARIABLE));
    let (of_file, variables) = match file {
        Some(file) => settings::for_command(file, PROXY, env)?,
        None => (None, env.variables.clone()),
    };
    let of_variable = variables.get(PROXY_VARIABLE).map(str::to_owned);
    let Some(proxy) = args.proxy.or(of_variable).or(of_file) else {
        return Err(wrong("needs the public host name of the runner: `--proxy HOST`"));
    };
    let (host, warning) = hosts::proxy(&proxy)?;
    let mut warnings: Vec<String> = warning.into_iter().collect();
    let telephony = telephony(&TelephonyOptions::default(), &[provider], &variables, &mut warnings)?;
    if !provider.hangs_up(&telephony.settings) {
        let names: Vec<String> = provider.hangs_up_with.iter().map(|name| all_names(name)).collect();
        return Err(wrong(&format!(
            "needs {} in the environment, in .env or in the file of --config",
            names.join(" and ")
        )));
    }
    Ok(ParsedCommand::Task(PhoneRun {
        set_up: PhoneSetUp {
            provider,
            number,
            host,
            settings: telephony.settings,
            runner: args.runner,
            is_dry_run: args.is_dry_run,
        },
        verbosity: args.verbosity,
        warnings,
    }))
}

/// Points a telephone number at a runner.
#[derive(Debug)]
struct PhoneRun {
    set_up: PhoneSetUp,
    verbosity: u8,
    warnings: Vec<String>,
}

impl CommandTask for PhoneRun {
    fn run(self: Box<Self>, start: &CommandStart<'_>) -> Result<(), StartupError> {
        begin(self.verbosity, start);
        for warning in start.skipped.iter().chain(&self.warnings) {
            log::warn!("{warning}");
        }
        let done = complete(Some(1), crate::io::phone::run(&self.set_up, print_line))?;
        done.map_err(failure)
    }
}

/// Returns the providers whose numbers can be set up.
fn vendors() -> Vec<&'static str> {
    let dials = PROVIDERS.iter().filter(|provider| provider.protocol.dials());
    dials.map(|provider| provider.vendor()).collect()
}

/// Returns the text of `phone --help`.
fn help(program: &ProgramIdentity) -> String {
    let name = &program.name;
    let mut text = format!(
        "Usage: {name} phone set-up {} --number NUMBER --proxy HOST [OPTIONS]\n\n",
        vendors().join("|")
    );
    paragraph(
        &mut text,
        "Points a telephone number at the runner: sends the running runner the webhook of a call that does not exist, \
         and then sets https://HOST/ as the webhook of the number by the API of the provider. The test is signed \
         where the credentials of the runner can sign as the provider does. Where only the provider can, a runner that \
         verifies signatures rejects the test, which proves no more than that. The credentials are those of the runner, in the environment, in .env or in the \
         file of --config.",
    );
    text.push_str("\nOptions:\n");
    entries(&mut text, PHONE.flags(), |flag| flag.help.to_owned());
    text.push_str("\nExit codes:\n");
    for (code, help) in [
        ("  0", "The number has the webhook, or would get it."),
        (
            "  1",
            "The test or the provider failed: the message on stderr says why.",
        ),
        ("  2", "Usage error: the message on stderr says what is expected."),
    ] {
        entry(&mut text, code, help);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str], variables: &[(&str, &str)]) -> Result<ParsedCommand<PhoneRun>, String> {
        let env = Env::of_variables(variables);
        let arguments = arguments.iter().map(OsString::from).collect();
        command(&ProgramIdentity::stock(), arguments, &env).map_err(|error| error.to_string())
    }

    const KEY: [(&str, &str); 1] = [("TELNYX_API_KEY", "hunter2")];

    #[test]
    fn a_number_of_a_provider_is_set_up() {
        let words = [
            "set-up",
            "telnyx",
            "--number",
            "+15550001111",
            "--proxy",
            "https://bots.example.net/",
        ];
        let Ok(ParsedCommand::Task(PhoneRun { set_up, .. })) = parsed(&words, &KEY) else {
            panic!("a set-up");
        };
        assert_eq!(
            (set_up.provider.name, set_up.host.as_str()),
            ("telnyx", "bots.example.net")
        );
        assert!(!set_up.is_dry_run && set_up.runner.is_none());
        let variables = [KEY[0], ("RUNNER_PROXY", "bots.example.net")];
        let words = ["set-up", "telephony_b", "--dry-run", "--number", "+15550001111"];
        assert!(matches!(parsed(&words, &variables), Ok(ParsedCommand::Task(task)) if task.set_up.is_dry_run));
    }

    #[cfg(feature = "config")]
    #[test]
    fn the_file_of_settings_has_the_name_and_the_credentials() {
        let file = "proxy = 'bots.example.net'\nTELNYX_API_KEY = { file = 'key' }\n";
        let read = |path: &str| match path {
            "a.toml" => Ok(file.as_bytes().to_vec()),
            "key" => Ok(b"hunter2\n".to_vec()),
            _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        };
        let parsed = |options: &[&str], variables: &[(&str, &str)]| {
            let env = Env {
                read: &read,
                ..Env::of_variables(variables)
            };
            let words = [&["set-up", "telnyx", "--number", "+15550001111"], options].concat();
            let arguments = words.iter().map(OsString::from).collect();
            match command(&ProgramIdentity::stock(), arguments, &env) {
                Ok(ParsedCommand::Task(PhoneRun { set_up, .. })) => Ok(set_up.host),
                Ok(_) => panic!("a set-up"),
                Err(error) => Err(error.to_string()),
            }
        };
        let of_file = Ok("bots.example.net".to_owned());
        assert_eq!(parsed(&["--config", "a.toml"], &[]), of_file);
        assert_eq!(parsed(&[], &[("RUNNER_CONFIG", "a.toml")]), of_file);
        let other = Ok("other.example.net".to_owned());
        assert_eq!(
            parsed(&["--config", "a.toml", "--proxy", "other.example.net"], &[]),
            other
        );
        assert_eq!(
            parsed(&["--config", "a.toml"], &[("RUNNER_PROXY", "other.example.net")]),
            other
        );
        let missing = parsed(&["--config", "b.toml"], &[]).expect_err("no file");
        assert!(missing.contains("b.toml"), "{missing}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let number = ["--number", "+15550001111"];
        let all = [&["set-up", "telnyx"][..], &number, &["--proxy", "bots.example.net"]].concat();
        for (words, variables, why) in [
            (&[][..], &KEY[..], "`phone set-up PROVIDER`"),
            (&["delete"], &KEY, "`phone set-up PROVIDER`"),
            (&["set-up"], &KEY, "twilio, telnyx, plivo"),
            (&["set-up", "exotel"], &KEY, "twilio, telnyx, plivo"),
            (&["set-up", "telnyx"], &KEY, "--number"),
            (&all[..4], &KEY, "--proxy"),
            (&all, &[], "TELNYX_API_KEY"),
            (&["set-up", "telnyx", "--number", "the shop"], &KEY, "--number"),
            (&["set-up", "telnyx", "--runner", "bots"], &KEY, "--runner"),
        ] {
            let error = parsed(words, variables).expect_err("a usage error");
            assert!(error.contains(why) && !error.contains("hunter2"), "{error}");
        }
        assert!(matches!(parsed(&["--help"], &[]), Ok(ParsedCommand::Text(text)) if text.contains("--dry-run")));
    }
}
