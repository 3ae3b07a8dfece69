//! The commands beside the runner, one row each.
//!
//! In: the arguments. Out: the task of the command that they name, or a text to print. A command
//! that this build lacks is an error that names the feature.

use std::ffi::{OsStr, OsString};

use super::command::{CommandRow, TASKS};
use super::{CliCommand, Env, ProgramIdentity, UsageError};
use crate::proto::options::need;

/// Every command. Without its feature, `absent` takes its place, which has no row.
static COMMANDS: [Option<&CommandRow>; 6] = [
    super::call::COMMAND,
    super::new::COMMAND,
    super::phone::COMMAND,
    super::setup::COMMAND,
    super::update::COMMAND,
    super::cloud::COMMAND,
];

/// Parses the arguments of a command with a task, and of `help` before its name; `None` for other
/// arguments.
pub(super) fn parse(
    program: &ProgramIdentity,
    arguments: &[OsString],
    env: &Env<'_>,
) -> Option<Result<CliCommand, UsageError>> {
    let (name, arguments) = match arguments {
        [help, name] if help == "help" => (name, vec![OsString::from("--help")]),
        [name, rest @ ..] => (name, rest.to_vec()),
        [] => return None,
    };
    let (name, _, feature) = TASKS.into_iter().find(|(task, ..)| name == task)?;
    Some(match built(OsStr::new(name)) {
        Some(command) => (command.parse)(program, arguments, env),
        None => need(&format!("`{} {name}`", program.name), feature)
            .map(|()| unreachable!("a build with the feature has the command")),
    })
}

/// Returns the row of a command that this build has.
pub(super) fn built(name: &OsStr) -> Option<&'static CommandRow> {
    COMMANDS.iter().copied().flatten().find(|command| name == command.name)
}
