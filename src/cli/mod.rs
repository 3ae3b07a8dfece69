//! Command line: arguments and surroundings in, a [`Command`] or a [`Misuse`] out.
//!
//! Two stages. `parse` here reads what was typed, option by option, with the table in `flags`, and `unsaid` adds what variables
//! say of the other options; `meaning` holds the values against each other and makes the [`Config`]. Everything that is not an argument enters as a
//! value in [`Surroundings`], so both stages can be tested whole. `start` alone reads the process's environment and files.
//! Misuse is exit code 2; its text names what was wrong and what would be right.

mod abilities;
pub mod banner;
mod flags;
mod help;
mod meaning;
mod messaging;
mod moq;
mod rooms;
pub mod start;
mod telephony;
mod trust;
mod unsaid;

use std::ffi::OsString;

use crate::abilities::Ability;
use crate::config::Config;
use crate::proto::options::{Asked, need, read, split_command};
pub use crate::proto::options::{Misuse, Surroundings};
use flags::{RUNNER, Typed};

/// What the user asked for.
#[derive(Debug)]
pub enum Command {
    /// Serve; `warnings` are for the log, once there is one.
    Serve { config: Box<Config>, warnings: Vec<String> },
    /// Look for what keeps callers out, say what to do about it, and end.
    Doctor { config: Box<Config>, warnings: Vec<String> },
    /// What `edge-runner cloud` is asked for.
    #[cfg(feature = "cloud")]
    Cloud(edge_runner_cloud::cli::Command),
    /// Print this text and end.
    Help(String),
    /// Print this text and end.
    Version(String),
}

/// Reads the arguments, without the program's name.
///
/// # Errors
/// [`Misuse`] for the first argument, value or combination that makes no sense, and for what this build lacks.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    surroundings: &Surroundings<'_>,
) -> Result<Command, Misuse> {
    let mut options: Vec<OsString> = arguments.into_iter().collect();
    if options.first().is_some_and(|argument| argument == "cloud") {
        options.remove(0);
        return cloud(options, surroundings);
    }
    let command = split_command(&mut options);
    let is_doctor = options.first().is_some_and(|argument| argument == "doctor");
    if is_doctor {
        options.remove(0);
    }
    let mut typed = Box::new(Typed {
        command,
        ..Typed::default()
    });
    match read(&mut *typed, &RUNNER, options)? {
        Some(Asked::Help) => return Ok(Command::Help(help::text())),
        Some(Asked::Version) => return Ok(version()),
        None => {}
    }
    if is_doctor {
        need("`edge-runner doctor`", Ability::Doctor)?;
    }
    let mut warnings = Vec::new();
    unsaid::slips(&surroundings.variables, &mut warnings);
    let taken = crate::proto::options::unsaid::fill(&mut *typed, &RUNNER, &surroundings.variables)?;
    let config = meaning::config(*typed, surroundings, &mut warnings).map_err(|misuse| misuse.traced(&taken))?;
    let config = Box::new(config);
    Ok(match is_doctor {
        false => Command::Serve { config, warnings },
        true => Command::Doctor { config, warnings },
    })
}

fn version() -> Command {
    Command::Version(format!("edge-runner {}\n", env!("CARGO_PKG_VERSION")))
}

/// Reads the arguments behind `cloud`.
#[cfg(feature = "cloud")]
fn cloud(options: Vec<OsString>, surroundings: &Surroundings<'_>) -> Result<Command, Misuse> {
    edge_runner_cloud::cli::parse(options, surroundings).map(Command::Cloud)
}

/// Refuses the arguments behind `cloud`.
#[cfg(not(feature = "cloud"))]
fn cloud(_: Vec<OsString>, _: &Surroundings<'_>) -> Result<Command, Misuse> {
    need("`edge-runner cloud`", Ability::Cloud)?;
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
