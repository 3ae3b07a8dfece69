//! Replaces the file of settings in a build without it: `--config` and `config` are rejected.

use std::ffi::OsString;

use super::flags::LowArgs;
use super::{Env, ProgramIdentity, StartValues, UsageError};
use crate::config::{Config, NamedBot, Secret};
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
    pub bots: Vec<BotSection>,
}

/// The section of a bot: there is none.
pub(super) enum BotSection {}

impl BotSection {
    /// Never called.
    pub(super) fn key(&self) -> String {
        match *self {}
    }

    /// Never called.
    pub(super) fn content(&self) -> Secret {
        match *self {}
    }
}

/// Adds nothing; `features::check` rejects the option.
pub(super) fn apply(_: &mut LowArgs, env: &Env<'_>, _: &[EnvOption<LowArgs>]) -> Result<Added, UsageError> {
    Ok(Added {
        variables: env.variables.clone(),
        options: Vec::new(),
        bots: Vec::new(),
    })
}

/// Rejects `--config`.
pub(super) fn for_command(_: &str, _: &str, _: &Env<'_>) -> Result<(Option<String>, Variables), UsageError> {
    need("`--config`", Feature::Config)?;
    Ok((None, Variables::default()))
}

/// What a command prints: there is none.
pub(super) enum ConfigReport {}

/// Never called.
pub(super) fn report(command: ConfigCommand, _: &StartValues<'_>) -> ConfigReport {
    match command {}
}

impl ConfigReport {
    /// Never called.
    pub(super) fn text(self, _: &[String]) -> Result<String, UsageError> {
        match self {}
    }
}

/// There is no file of settings.
pub(super) fn exposed_warning(_: &Config) -> Option<String> {
    None
}

/// Returns the text of `config --help`.
pub(super) fn help(_: &ProgramIdentity) -> String {
    String::new()
}

/// Never called.
pub(super) fn apply_bot(_: &mut StartValues<'_>, bot: &BotSection) -> Result<(), UsageError> {
    match *bot {}
}

/// Never called.
pub(super) fn named_bot(bot: &BotSection, _: Config, _: &Env<'_>) -> Result<NamedBot<Config>, UsageError> {
    match *bot {}
}

/// Never called.
pub(super) fn is_in(_: &UsageError, bot: &BotSection) -> bool {
    match *bot {}
}

/// Never called.
pub(super) fn is_about(_: &str, bot: &BotSection) -> bool {
    match *bot {}
}
