//! The arguments of `edge-runner update`.
//!
//! In: the arguments after `update`. Out: an [`UpdateConfig`], or the text of its help. Read
//! without a table of options, whose parser is some kilobytes for each command.

use std::ffi::OsString;

use edge_runner_http::startup::StartupError;
use lexopt::Arg;

use super::command::{CommandRow, CommandStart, CommandTask, ParsedCommand, begin, complete, failure, print_line};
use super::{Env, ProgramIdentity, UsageError, version_text};
use crate::io::update::{RELEASE_KEYS, UpdateConfig, UpdateOutcome};
use crate::proto::options::env::unused_proxy_warning;
use crate::proto::options::suggest::nearest;
use crate::proto::options::{Expected, from_lexopt, not_unicode};
use crate::proto::update::release::folder;
use crate::proto::update::version::is_version;

/// The row of `commands`.
pub(super) const COMMAND: Option<&CommandRow> = Some(&CommandRow {
    name: "update",
    parse: |program, arguments, env| Ok(command(program, arguments, env)?.into()),
    help_of: None,
});

/// The exit code of a check that found another version, as of `dnf check-update`.
const EXIT_AVAILABLE: u8 = 100;

/// The options without a value.
const SWITCHES: [&str; 4] = ["--check", "--allow-downgrade", "--help", "--version"];
/// The options with a value, and what it is called.
const VALUES: [(&str, &str); 5] = [
    ("--to", "VERSION"),
    ("--from", "URL"),
    ("--key", "KEY"),
    ("--service", "NAME"),
    ("--runner", "URL"),
];

/// Parses the arguments after `update`.
fn command(
    program: &ProgramIdentity,
    arguments: Vec<OsString>,
    env: &Env<'_>,
) -> Result<ParsedCommand<UpdateConfig>, UsageError> {
    let mut config = UpdateConfig {
        is_check: false,
        version: None,
        allows_older: false,
        from: String::new(),
        keys: RELEASE_KEYS.to_owned(),
        service: None,
        runner: "http://localhost:7860".to_owned(),
        has_own_bot: program.has_own_bot,
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(from_lexopt)? {
        let name = match argument {
            Arg::Short('h') => "--help".to_owned(),
            Arg::Short('V') => "--version".to_owned(),
            Arg::Long(name) => format!("--{name}"),
            Arg::Short(given) => {
                return Err(UsageError::UnknownShortOption {
                    given,
                    known: vec!['h', 'V'],
                });
            }
            Arg::Value(value) => {
                return Err(UsageError::UnexpectedArgument(
                    value.into_string().map_err(not_unicode)?,
                ));
            }
        };
        match &*name {
            "--help" => return Ok(ParsedCommand::Text(help(program))),
            "--version" => return Ok(ParsedCommand::Text(version_text(program))),
            "--check" => config.is_check = true,
            "--allow-downgrade" => config.allows_older = true,
            _ => {
                let Some((long, word)) = VALUES.into_iter().find(|(long, _)| *long == name) else {
                    let known = SWITCHES.into_iter().chain(VALUES.map(|(long, _)| long));
                    return Err(UsageError::UnknownOption {
                        nearest: nearest(&name, known).map(|name| format!("`{name}`")),
                        given: name,
                    });
                };
                let value = parser
                    .value()
                    .map_err(|_| UsageError::MissingValue { option: name, word })?;
                let value = value.into_string().map_err(not_unicode)?;
                store(&mut config, long, &value, env).map_err(|wants| UsageError::value(long, &value, wants))?;
            }
        }
    }
    if config.from.is_empty() {
        config.from = folder(config.version.as_deref());
    }
    Ok(ParsedCommand::Task(config))
}

impl CommandTask for UpdateConfig {
    fn run(self: Box<Self>, start: &CommandStart<'_>) -> Result<(), StartupError> {
        begin(0, start);
        if let Some(warning) = unused_proxy_warning(start.variables) {
            log::warn!("{warning}");
        }
        let updated = complete(Some(1), crate::io::update::run(&self, &mut print_line))?;
        match updated.map_err(failure)? {
            UpdateOutcome::UpToDate | UpdateOutcome::Installed => Ok(()),
            UpdateOutcome::Available => Err(StartupError {
                code: EXIT_AVAILABLE,
                message: String::new(),
            }),
        }
    }
}

/// Stores the value of an option; the error is what the option takes.
fn store(config: &mut UpdateConfig, long: &str, value: &str, env: &Env<'_>) -> Result<(), Expected> {
    match long {
        "--to" => {
            let version = value.strip_prefix('v').unwrap_or(value);
            let is_valid = is_version(version);
            config.version = Some(version.to_owned()).filter(|_| is_valid);
            is_valid.then_some(()).ok_or("a version, such as `1.2.3`")?;
        }
        // A file, or its text.
        "--key" => config.keys = env.read_text(value).unwrap_or_else(|_| value.to_owned()),
        "--service" => {
            let is_usable = |c: char| c.is_ascii_alphanumeric() || "-_.@:\\".contains(c);
            let is_name = !value.is_empty() && !value.starts_with('-') && value.chars().all(is_usable);
            is_name
                .then_some(())
                .ok_or("the name of a service of systemd, such as `edge-runner.service`")?;
            config.service = Some(value.to_owned());
        }
        _ => {
            let is_url = ["http://", "https://"]
                .iter()
                .any(|scheme| value.len() > scheme.len() && value.starts_with(scheme));
            is_url
                .then_some(())
                .ok_or("a URL that begins with https:// or http://")?;
            let url = value.trim_end_matches('/').to_owned();
            match long {
                "--from" => config.from = url,
                _ => config.runner = url,
            }
        }
    }
    Ok(())
}

/// Returns the text of `update --help`.
fn help(program: &ProgramIdentity) -> String {
    format!(
        "\
Usage: {} update [OPTIONS]

Replaces this program by that of the latest release, once its signature and checksums are verified.
The previous program stays beside it as edge-runner.previous, and comes back if the service that
runs the program does not answer within 30 s after its restart. A program that pip, npm, cargo or
apt installed is left to them.

Options:
      --check                   Say what would be done, and change nothing.
      --to VERSION              This version in place of the latest.
      --allow-downgrade         Also a version that is older than the installed one.
      --from URL                The folder with the files of a release, such as a mirror.
      --key KEY                 The public keys that sign releases, in place of the built-in ones:
                                a file, or its text, as in `ssh-ed25519 AAAA...`.
      --service NAME            The service of systemd to restart; users other than root have their
                                own. [default: edge-runner.service, if it runs this program]
      --runner URL              Where that service answers. [default: http://localhost:7860]
  -h, --help                    Print this help.
  -V, --version                 Print the version.

Exit codes:
  0                             The program is up to date, or was updated.
  1                             It was not updated: the message on stderr says why.
  2                             Usage error: the message on stderr says what is expected.
  100                           With --check: another version can be installed.
",
        program.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::completions;

    fn parsed(arguments: &[&str]) -> Result<ParsedCommand<UpdateConfig>, UsageError> {
        let mut env = Env::of_variables::<&str, &str>(&[]);
        env.read = &|path| match path {
            "key.pub" => Ok(b"ssh-ed25519 AAAA of a file\n".to_vec()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        let arguments = arguments.iter().map(OsString::from).collect();
        command(&ProgramIdentity::stock(), arguments, &env)
    }

    fn config(arguments: &[&str]) -> UpdateConfig {
        match parsed(arguments) {
            Ok(ParsedCommand::Task(config)) => config,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_latest_release_is_asked_for_unless_a_version_is_named() {
        let plain = config(&[]);
        assert!(plain.from.ends_with("/releases/latest/download"), "{plain:?}");
        assert!(!plain.is_check && !plain.allows_older && plain.service.is_none() && plain.keys == RELEASE_KEYS);
        let older = config(&["--to", "v0.9.0-rc.1", "--allow-downgrade", "--check"]);
        assert!(older.from.ends_with("/releases/download/v0.9.0-rc.1"), "{older:?}");
        assert_eq!(older.version.as_deref(), Some("0.9.0-rc.1"));
        assert!(older.is_check && older.allows_older);
        let mirror = config(&[
            "--from=http://127.0.0.1:80/x/",
            "--to",
            "1.0.0",
            "--runner",
            "http://board:80/",
        ]);
        assert_eq!(
            (&*mirror.from, &*mirror.runner),
            ("http://127.0.0.1:80/x", "http://board:80")
        );
    }

    #[test]
    fn a_key_is_a_file_or_its_text() {
        assert_eq!(config(&["--key", "key.pub"]).keys, "ssh-ed25519 AAAA of a file\n");
        assert_eq!(config(&["--key", "ssh-ed25519 AAAA"]).keys, "ssh-ed25519 AAAA");
    }

    #[test]
    fn wrong_arguments_are_explained() {
        for (arguments, why) in [
            (&["--to", "1/2"][..], "a version, such as"),
            (&["--from", "file:///etc"], "a URL that begins with"),
            (&["--from", "https://"], "a URL that begins with"),
            (&["--runner", "localhost:7860"], "a URL that begins with"),
            (&["--service", "a b"], "the name of a service"),
            (&["--service", "--now"], "the name of a service"),
            (&["--to"], "VERSION"),
            (&["--chek"], "`--check`"),
            (&["-x"], "-x"),
            (&["--check=yes"], "--check"),
            (&["now"], "now"),
        ] {
            let error = parsed(arguments).expect_err("a usage error").to_string();
            assert!(error.contains(why), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn the_help_has_every_option_and_fits() {
        let Ok(ParsedCommand::Text(help)) = parsed(&["-h"]) else {
            panic!("a help");
        };
        let known = SWITCHES.into_iter().chain(VALUES.map(|(long, _)| long));
        let completed: Vec<&str> = known
            .filter(|option| !["--help", "--version"].contains(option))
            .collect();
        assert!(completions::UPDATE.iter().all(|option| completed.contains(option)));
        assert_eq!(completed.len(), completions::UPDATE.len());
        for option in SWITCHES.into_iter().chain(VALUES.map(|(long, _)| long)) {
            assert!(help.contains(&format!(" {option} ")), "{option}");
        }
        assert!(
            help.lines()
                .all(|line| line.len() <= crate::proto::options::help::WIDTH),
            "{help}"
        );
        assert!(help.contains(&format!("  {EXIT_AVAILABLE} ")));
        assert!(matches!(parsed(&["--check", "-V"]), Ok(ParsedCommand::Text(_))));
    }
}
