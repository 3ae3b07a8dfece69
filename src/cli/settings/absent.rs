//! Replaces the file of settings in a build without it: `--config` and `config` are rejected.

use std::ffi::OsString;

use super::flags::LowArgs;
use super::{Env, ProgramIdentity, UsageError};
use crate::features::Feature;
use crate::proto::options::env::Variables;
use crate::proto::options::env_options::EnvOption;
use crate::proto::options::need;

/// The commands of `edge-runner config`.
pub(super) const COMMANDS: [&str; 2] = ["check", "show"];

/// A command of `edge-runner config`: there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigCommand {}

/// Rejects the command.
pub(super) fn command(_: &mut Vec<OsString>) -> Result<Option<ConfigCommand>, UsageError> {
    need("`config`", Feature::Config).map(|()| None)
}

/// What the file adds: nothing.
pub(super) struct Added {
    pub variables: Variables,
    pub options: Vec<EnvOption<LowArgs>>,
}

/// Adds nothing; `features::check` rejects the option.
pub(super) fn apply(_: &mut LowArgs, env: &Env<'_>, _: &[EnvOption<LowArgs>]) -> Result<Added, UsageError> {
    Ok(Added {
        variables: env.variables.clone(),
        options: Vec::new(),
    })
}

/// What a command prints: there is none.
pub(super) enum ConfigReport {}

/// Never called.
pub(super) fn report(command: ConfigCommand, _: &LowArgs, _: &[EnvOption<LowArgs>], _: &Env<'_>) -> ConfigReport {
    match command {}
}

impl ConfigReport {
    /// Never called.
    pub(super) fn text(self, _: &[String]) -> Result<String, UsageError> {
        match self {}
    }
}

/// Returns the text of `config --help`.
pub(super) fn help(_: &ProgramIdentity) -> String {
    String::new()
}
