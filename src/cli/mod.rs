//! The command line: arguments and environment in, a [`CliCommand`] or a [`UsageError`] out.
//!
//! Two stages. `parse` here reads what was typed, option by option, with the table in `flags`, and `env_options` adds what variables
//! say of the other options; `resolve` holds the values against each other and makes the [`Config`]. Everything that is not an argument enters as a
//! value in [`Env`], so both stages can be tested whole. `start` alone reads the process's environment and files.
//! A usage error is exit code 2; its text names the mistake and what is expected.

pub mod banner;
mod completions;
mod env_options;
mod env_trust;
mod features;
mod flags;
mod help;
mod messaging;
mod moq;
mod qr;
mod resolve;
mod rooms;
pub mod start;
mod telephony;

use std::ffi::OsString;

use crate::config::Config;
use crate::features::Feature;
use crate::proto::options::suggest::nearest;
pub use crate::proto::options::{Env, UsageError};
use crate::proto::options::{Expected, SpecialMode, need, parse as parse_options, split_command};
use flags::{LowArgs, RUNNER};

/// What the user asked for.
#[derive(Debug)]
#[allow(missing_docs, reason = "not part of the public API")]
pub enum CliCommand {
    /// Serve; `warnings` are for the log, once there is one.
    Serve { config: Box<Config>, warnings: Vec<String> },
    /// Look for what keeps callers out, say what to do about it, and end.
    Doctor { config: Box<Config>, warnings: Vec<String> },
    /// What `edge-runner cloud` is asked for.
    #[cfg(feature = "cloud")]
    Cloud(edge_runner_cloud::cli::CloudCommand),
    /// Print this text and end.
    Help(String),
    /// Print this text and end.
    Version(String),
}

/// Reads the arguments, without the program's name.
///
/// # Errors
/// [`UsageError`] for the first argument, value or combination that makes no sense, and for what this build lacks.
pub fn parse(arguments: impl IntoIterator<Item = OsString>, env: &Env<'_>) -> Result<CliCommand, UsageError> {
    let mut options: Vec<OsString> = arguments.into_iter().collect();
    if let [help, cloud] = &*options
        && help == "help"
        && cloud == "cloud"
    {
        options = vec!["cloud".into(), "--help".into()];
    }
    if options.first().is_some_and(|argument| argument == "cloud") {
        options.remove(0);
        return cloud(options, env);
    }
    if let Some(text) = information(&options)? {
        return Ok(CliCommand::Help(text));
    }
    let command = split_command(&mut options);
    let is_doctor = options.first().is_some_and(|argument| argument == "doctor");
    if is_doctor {
        options.remove(0);
    }
    let mut args = Box::new(LowArgs {
        command,
        ..LowArgs::default()
    });
    match parse_options(&mut *args, &RUNNER, options).map_err(suggest_command)? {
        Some(SpecialMode::Help) if is_doctor => return Ok(CliCommand::Help(help::doctor())),
        Some(SpecialMode::Help) => return Ok(CliCommand::Help(help::text())),
        Some(SpecialMode::Version) => return Ok(version()),
        None => {}
    }
    if is_doctor {
        need("`edge-runner doctor`", Feature::Doctor)?;
    }
    let mut warnings = Vec::new();
    env_options::warn_typos(&env.variables, &mut warnings);
    let taken = crate::proto::options::env_options::apply(&mut *args, &RUNNER, &env.variables)?;
    let config = resolve::config(*args, env, &mut warnings).map_err(|error| error.with_sources(&taken))?;
    let config = Box::new(config);
    Ok(match is_doctor {
        false => CliCommand::Serve { config, warnings },
        true => CliCommand::Doctor { config, warnings },
    })
}

/// The commands, and `help`.
const COMMANDS: [&str; 4] = ["doctor", "cloud", "completions", "help"];

/// Returns the text of `help` and `completions`, or nothing for other arguments.
fn information(options: &[OsString]) -> Result<Option<String>, UsageError> {
    let word = |at: usize| options.get(at).map(|word| word.to_string_lossy());
    let text = match (word(0).as_deref(), word(1).as_deref()) {
        (Some("help"), None) => help::text(),
        (Some("help"), Some("doctor")) => help::doctor(),
        (Some("help"), Some("completions")) | (Some("completions"), Some("--help" | "-h")) => {
            completions::HELP.to_owned()
        }
        (Some("help"), Some(other)) => {
            return Err(UsageError::value(
                "help",
                other,
                Expected::one_of(other, &COMMANDS[..3], &[]),
            ));
        }
        (Some("completions"), shell) => {
            let shell = shell.unwrap_or_default();
            let expected = || Expected::one_of(shell, &completions::SHELLS, &[]);
            completions::script(shell).ok_or_else(|| UsageError::value("completions", shell, expected()))?
        }
        _ => return Ok(None),
    };
    Ok(Some(text))
}

/// Names the command that a mistyped argument or option was probably meant to be.
fn suggest_command(error: UsageError) -> UsageError {
    match error {
        UsageError::UnexpectedArgument(given) if COMMANDS.contains(&&*given) => {
            UsageError::Combination(format!("`{given}` must be the first argument"))
        }
        UsageError::UnexpectedArgument(given) => match nearest(&given, COMMANDS) {
            Some(nearest) => UsageError::UnknownCommand { given, nearest },
            None => UsageError::UnexpectedArgument(given),
        },
        UsageError::UnknownOption { given, nearest: None } => {
            let command = nearest(given.trim_start_matches('-'), COMMANDS);
            let nearest = command.map(|command| format!("`edge-runner {command}`"));
            UsageError::UnknownOption { given, nearest }
        }
        other => other,
    }
}

fn version() -> CliCommand {
    CliCommand::Version(format!("edge-runner {}\n", env!("CARGO_PKG_VERSION")))
}

/// Reads the arguments behind `cloud`.
#[cfg(feature = "cloud")]
fn cloud(options: Vec<OsString>, env: &Env<'_>) -> Result<CliCommand, UsageError> {
    edge_runner_cloud::cli::parse(options, env).map(CliCommand::Cloud)
}

/// Refuses the arguments behind `cloud`.
#[cfg(not(feature = "cloud"))]
fn cloud(_: Vec<OsString>, _: &Env<'_>) -> Result<CliCommand, UsageError> {
    need("`edge-runner cloud`", Feature::Cloud)?;
    unreachable!("a build without the service lacks its feature")
}

/// Returns how the help is called that belongs to these arguments.
pub fn help_of(arguments: &[OsString]) -> String {
    match arguments.first().is_some_and(|argument| argument == "cloud") {
        #[cfg(feature = "cloud")]
        true => edge_runner_cloud::cli::help_of(arguments),
        #[cfg(not(feature = "cloud"))]
        true => "edge-runner --help".into(),
        false => match arguments.first() {
            Some(first) if first == "doctor" || first == "completions" => {
                format!("edge-runner {} --help", first.to_string_lossy())
            }
            _ => "edge-runner --help".into(),
        },
    }
}

#[cfg(test)]
mod tests;
