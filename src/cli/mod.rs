//! Command line: arguments and surroundings in, a [`CliCommand`] or a [`UsageError`] out.
//!
//! Two stages. `parse` here reads what was typed, option by option, with the table in `flags`, and `env_options` adds what variables
//! say of the other options; `resolve` holds the values against each other and makes the [`Config`]. Everything that is not an argument enters as a
//! value in [`Env`], so both stages can be tested whole. `start` alone reads the process's environment and files.
//! UsageError is exit code 2; its text names what was wrong and what would be right.

pub mod banner;
mod env_options;
mod env_trust;
mod features;
mod flags;
mod help;
mod messaging;
mod moq;
mod resolve;
mod rooms;
pub mod start;
mod telephony;

use std::ffi::OsString;

use crate::config::Config;
use crate::features::Feature;
pub use crate::proto::options::{Env, UsageError};
use crate::proto::options::{SpecialMode, need, parse as parse_options, split_command};
use flags::{LowArgs, RUNNER};

/// What the user asked for.
#[derive(Debug)]
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
    if options.first().is_some_and(|argument| argument == "cloud") {
        options.remove(0);
        return cloud(options, env);
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
    match parse_options(&mut *args, &RUNNER, options)? {
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
    unreachable!("a build without the service lacks its ability")
}

/// Returns how the help is called that belongs to these arguments.
pub fn help_of(arguments: &[OsString]) -> String {
    match arguments.first().is_some_and(|argument| argument == "cloud") {
        #[cfg(feature = "cloud")]
        true => edge_runner_cloud::cli::help_of(arguments),
        #[cfg(not(feature = "cloud"))]
        true => "edge-runner --help".into(),
        false => "edge-runner --help".into(),
    }
}

#[cfg(test)]
mod tests;
