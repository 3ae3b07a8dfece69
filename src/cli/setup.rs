//! The arguments of `edge-runner setup`.
//!
//! In: the arguments after `setup`. Out: a [`SetupConfig`], or the text of its help. It reads no
//! variables, because those of the runner are what it makes.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::time::Duration;

use edge_runner_http::startup::StartupError;

use super::command::{CommandRow, CommandStart, CommandTask, ParsedCommand, begin, complete, failure};
use super::{Env, ProgramIdentity, UsageError, version_text};
use crate::io::setup::SetupConfig;
use crate::proto::options::help::{entries, entry, paragraph};
use crate::proto::options::{FlagKind, OptionStore, OptionTable, SpecialMode, flag, number, parse, put};

/// The row of `commands`.
pub(super) const COMMAND: Option<&CommandRow> = Some(&CommandRow {
    name: "setup",
    parse: |program, arguments, _| Ok(command(program, arguments)?.into()),
    help_of: None,
});

/// The longest time that the page may be open: a day.
const MINUTES_MAX: u64 = 24 * 60;

#[derive(Debug, Default)]
struct SetupArgs {
    spool: Option<String>,
    host: Option<Ipv4Addr>,
    port: Option<u16>,
    runner_port: Option<u16>,
    minutes: Option<u64>,
    verbosity: u8,
    given: Vec<&'static str>,
    argument: Option<OsString>,
}

impl OptionStore for SetupArgs {
    fn given(&mut self) -> &mut Vec<&'static str> {
        &mut self.given
    }

    fn argument(&mut self) -> &mut Option<OsString> {
        &mut self.argument
    }
}

static SETUP: OptionTable<SetupArgs> = OptionTable {
    prefix: "",
    argument: None,
    own_variable_first: false,
    modules: &[&[
        flag(
            "--spool",
            FlagKind::Value("DIR", |args, text| put(&mut args.spool, text)),
            "",
            "The folder for the file `settings`. Required.",
        ),
        flag(
            "--host",
            FlagKind::Value("ADDR", |args, text| {
                put(&mut args.host, text.parse().map_err(|_| "an IPv4 address")?)
            }),
            "",
            "Address to listen on. [default: 0.0.0.0]",
        ),
        flag(
            "--port",
            FlagKind::Value("N", |args, text| put(&mut args.port, number(&text, 0, u16::MAX)?)),
            "",
            "Port to listen on. [default: 80]",
        ),
        flag(
            "--runner-port",
            FlagKind::Value("N", |args, text| {
                put(&mut args.runner_port, number(&text, 1, u16::MAX)?)
            }),
            "",
            "Port of the runner, to which the page leads on. [default: 7860]",
        ),
        flag(
            "--minutes",
            FlagKind::Value("N", |args, text| put(&mut args.minutes, number(&text, 1, MINUTES_MAX)?)),
            "",
            "How long the page is open. [default: 60]",
        ),
        flag(
            "--verbose",
            FlagKind::Count(|args: &mut SetupArgs| args.verbosity = args.verbosity.saturating_add(1)),
            "",
            "Log more: -v addresses and reasons of rejected requests.",
        )
        .short('v'),
        flag("--help", FlagKind::Help, "", "Print this help.").short('h'),
        flag("--version", FlagKind::Version, "", "Print the version.").short('V'),
    ]],
};

/// Parses the arguments after `setup`.
fn command(program: &ProgramIdentity, arguments: Vec<OsString>) -> Result<ParsedCommand<SetupRun>, UsageError> {
    let mut args = SetupArgs::default();
    match parse(&mut args, &SETUP, arguments)? {
        Some(SpecialMode::Help | SpecialMode::ShortHelp) => return Ok(ParsedCommand::Text(help(program))),
        Some(SpecialMode::Version) => return Ok(ParsedCommand::Text(version_text(program))),
        None => {}
    }
    let spool = args
        .spool
        .ok_or_else(|| UsageError::Combination("`setup` needs a folder for the settings: `--spool DIR`".to_owned()))?;
    let config = SetupConfig {
        host: args.host.unwrap_or(Ipv4Addr::UNSPECIFIED),
        port: args.port.unwrap_or(80),
        spool: spool.into(),
        open_for: Duration::from_secs(args.minutes.unwrap_or(60) * 60),
        runner_port: args.runner_port.unwrap_or(7860),
        check,
    };
    Ok(ParsedCommand::Task(SetupRun {
        config,
        verbosity: args.verbosity,
    }))
}

/// Serves the setup page of a board.
#[derive(Debug)]
struct SetupRun {
    config: SetupConfig,
    verbosity: u8,
}

impl CommandTask for SetupRun {
    fn run(self: Box<Self>, start: &CommandStart<'_>) -> Result<(), StartupError> {
        begin(self.verbosity, start);
        let served = complete(
            Some(1),
            crate::io::setup::run(self.config, |address| {
                let mut out = io::stdout();
                // A supervisor may have closed stdout; the log has the address as well.
                let _ = writeln!(out, "setup page: listening on http://{address}").and_then(|()| out.flush());
                log::info!("the setup page listens on {address}");
            }),
        )?;
        served.map_err(|error| failure(error.to_string()))
    }
}

/// Checks variables as the start of the runner does, and returns its message.
fn check(variables: &[(String, String)]) -> Result<(), String> {
    super::parse([], &Env::of_variables(variables))
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// Returns the text of `setup --help`.
fn help(program: &ProgramIdentity) -> String {
    let mut text = format!("Usage: {} setup --spool DIR [OPTIONS]\n\n", program.name);
    paragraph(
        &mut text,
        "Serves the setup page of a board over plain HTTP, to devices in the board's own private networks, until \
         settings are taken; writes them to DIR/settings and ends. The images for boards start it at their first boot, and \
         apply the file. Needs no privilege except for a port below 1024.",
    );
    text.push_str("\nOptions:\n");
    entries(&mut text, SETUP.flags(), |flag| flag.help.to_owned());
    text.push_str("\nExit codes:\n");
    for (code, help) in [
        ("  0", "Settings were taken, the time is over, or a signal came."),
        ("  1", "The page cannot be served, such as a port in use."),
        ("  2", "Usage error: the message on stderr says what is expected."),
    ] {
        entry(&mut text, code, help);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<ParsedCommand<SetupRun>, UsageError> {
        command(
            &ProgramIdentity::stock(),
            arguments.iter().map(OsString::from).collect(),
        )
    }

    #[test]
    fn options_have_defaults_and_bounds() {
        let Ok(ParsedCommand::Task(SetupRun { config, verbosity })) = parsed(&["--spool", "/d"]) else {
            panic!("a setup");
        };
        assert_eq!(
            (config.host, config.port, config.runner_port, verbosity),
            (Ipv4Addr::UNSPECIFIED, 80, 7860, 0)
        );
        assert_eq!(config.open_for, Duration::from_secs(3600));
        for wrong in [
            &[][..],
            &["--spool", "/d", "--minutes", "0"],
            &["--spool", "/d", "--host", "::"],
            &["--spool", "/d", "more"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
        let Ok(ParsedCommand::Text(help)) = parsed(&["--help"]) else {
            panic!("a help");
        };
        for flag in SETUP.flags() {
            assert!(help.contains(flag.long), "{}", flag.long);
        }
        let own = ProgramIdentity {
            name: "my-bot".into(),
            has_own_bot: true,
        };
        let Ok(ParsedCommand::Text(help)) = command(&own, vec!["--help".into()]) else {
            panic!("a help");
        };
        assert!(
            help.starts_with("Usage: my-bot setup") && !help.contains("edge-runner"),
            "{help}"
        );
        assert!(
            matches!(command(&own, vec!["-V".into()]), Ok(ParsedCommand::Text(text)) if text.starts_with("my-bot"))
        );
    }

    /// The page shows what the runner would say at its start.
    #[test]
    fn variables_are_checked_by_the_runner() {
        let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect()
        };
        assert_eq!(check(&own(&[("RUNNER_BOT", "parrot")])), Ok(()));
        assert_eq!(
            check(&own(&[("RUNNER_BOT", "realtime"), ("OPENAI_API_KEY", "sk-secret")])),
            Ok(())
        );
        let error = check(&own(&[("RUNNER_BOT", "realtime")])).expect_err("no key");
        assert!(error.contains("OPENAI_API_KEY"), "{error}");
        let wrong = own(&[
            ("RUNNER_BOT", "realtime"),
            ("OPENAI_API_KEY", "sk-secret"),
            ("REALTIME_URL", "nonsense"),
        ]);
        let error = check(&wrong).expect_err("no URL");
        assert!(
            error.contains("REALTIME_URL") && !error.contains("sk-secret"),
            "{error}"
        );
    }
}
