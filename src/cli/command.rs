//! What each command beside the runner has, such as `edge-runner call`, and the names of all.
//!
//! The rows of those in this build are in `commands`.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io::{self, Write as _};

use edge_runner_http::startup::{EXIT_FAILURE, StartupError, forbid_debuggers, runtime};

use super::{CliCommand, Env, ProgramIdentity, UsageError};
use crate::features::Feature;
use crate::limits::RUNTIME_END;
use crate::logging;
use crate::proto::config::LogFormat;
use crate::proto::options::env::Variables;

/// The commands with a task of their own: name, what they do, and the feature that they need.
pub(super) const TASKS: [(&str, &str, Feature); 6] = [
    ("call", "call a bot: speak, listen, and check the answer", Feature::Call),
    ("new", "make a folder with a new bot and its test", Feature::New),
    ("phone", "point a telephone number at a runner", Feature::Telephony),
    ("setup", "serve the setup page of a board", Feature::Setup),
    ("update", "replace this program by a release", Feature::Update),
    ("cloud", "the cloud agent service and its client", Feature::Cloud),
];

/// The row of a command in `commands`.
pub(super) struct CommandRow {
    pub(super) name: &'static str,
    /// Parses the arguments after the name.
    pub(super) parse: fn(&ProgramIdentity, Vec<OsString>, &Env<'_>) -> Result<CliCommand, UsageError>,
    /// Returns the command that prints the help for these arguments, which begin with the name, if
    /// it is not `NAME --help`.
    pub(super) help_of: Option<fn(&[OsString]) -> String>,
}

/// What a command does once its arguments are parsed. No bot runs, so the environment of the
/// process stays as it is.
pub trait CommandTask: fmt::Debug {
    /// # Errors
    /// [`StartupError`], with the exit code of the process.
    fn run(self: Box<Self>, start: &CommandStart<'_>) -> Result<(), StartupError>;
}

/// The surroundings of a task.
pub struct CommandStart<'a> {
    /// Lines of the `.env` file that were skipped.
    pub skipped: &'a [String],
    pub variables: &'a Variables,
}

/// What the arguments of a command ask for.
#[derive(Debug)]
pub(super) enum ParsedCommand<T> {
    Task(T),
    /// Print this text and exit.
    Text(String),
}

impl<T: CommandTask + 'static> From<ParsedCommand<T>> for CliCommand {
    fn from(parsed: ParsedCommand<T>) -> CliCommand {
        match parsed {
            ParsedCommand::Task(task) => CliCommand::Task(Box::new(task)),
            ParsedCommand::Text(text) => CliCommand::Help(text),
        }
    }
}

/// Returns every command of the program, whether this build has it or not: its name, what it does,
/// and the feature that it needs.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str, Option<Feature>)> {
    let first = [
        ("doctor", "check what prevents calls", Some(Feature::Doctor)),
        (
            "config",
            "check the settings, or print what is set",
            Some(Feature::Config),
        ),
    ];
    let last = [
        ("completions", "print completions for a shell", None),
        ("help", "print help", None),
    ];
    let tasks = TASKS
        .into_iter()
        .map(|(name, does, feature)| (name, does, Some(feature)));
    first.into_iter().chain(tasks).chain(last)
}

/// Returns the feature that a command needs; `None` if every build has it, or it is no command.
pub(super) fn feature_of(command: &str) -> Option<Feature> {
    let (_, _, feature) = all().find(|(name, ..)| *name == command)?;
    feature
}

/// Returns the names of all commands.
pub(super) fn names() -> Vec<&'static str> {
    all().map(|(name, ..)| name).collect()
}

/// Begins a task, with its log as text.
pub(super) fn begin(verbosity: u8, start: &CommandStart<'_>) {
    let filter = start.variables.get("RUST_LOG");
    logging::init(verbosity, filter, env!("CARGO_CRATE_NAME"), LogFormat::Text);
    forbid_debuggers();
}

/// Runs a task on a runtime with this many threads; `None` is one per core.
pub(super) fn complete<T>(threads: Option<usize>, task: impl Future<Output = T>) -> Result<T, StartupError> {
    let runtime = runtime(threads, || {})?;
    let done = runtime.block_on(task);
    runtime.shutdown_timeout(RUNTIME_END);
    Ok(done)
}

/// Prints a line of what a task has done so far.
pub(super) fn print_line(line: &str) {
    let mut out = io::stdout();
    // stdout may be closed; the exit code still reports the end of the task.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A task that failed.
pub(super) fn failure(message: String) -> StartupError {
    StartupError {
        code: EXIT_FAILURE,
        message,
    }
}
