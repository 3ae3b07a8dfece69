//! `edge-runner cloud`: its arguments and tasks are those of the crate `edge-runner-cloud`.

use std::ffi::OsString;

use edge_runner_cloud::cli::{self, CloudTask};
use edge_runner_http::startup::StartupError;

use super::command::{CommandRow, CommandStart, CommandTask, ParsedCommand};
use super::{Env, UsageError};
use crate::proto::options::env;

/// The row of `commands`.
pub(super) const COMMAND: Option<&CommandRow> = Some(&CommandRow {
    name: "cloud",
    parse: |_, arguments, env| Ok(parse(arguments, env)?.into()),
    help_of: Some(cli::help_of),
});

#[derive(Debug)]
struct CloudRun {
    task: CloudTask,
    warnings: Vec<String>,
}

fn parse(arguments: Vec<OsString>, env: &Env<'_>) -> Result<ParsedCommand<CloudRun>, UsageError> {
    use cli::CloudCommand::{Do, Help, Version};
    Ok(match cli::parse(arguments, env)? {
        Do { task, warnings } => ParsedCommand::Task(CloudRun { task, warnings }),
        Help(text) | Version(text) => ParsedCommand::Text(text),
    })
}

impl CommandTask for CloudRun {
    fn run(self: Box<Self>, start: &CommandStart<'_>) -> Result<(), StartupError> {
        let mut warnings = [start.skipped, &self.warnings].concat();
        warnings.extend(env::unused_proxy_warning(start.variables));
        self.task.run(&warnings, start.variables)
    }
}
