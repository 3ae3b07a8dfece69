//! Warnings about `RUNNER_` variables that are probably mistyped.

use super::flags::RUNNER;
use super::help;
use crate::proto::options::env::Variables;
use crate::proto::options::env_options;

/// Variables with the prefix of the runner that are not its options: the systemd unit reads the
/// first, and programs that are bots the second.
const FOREIGN_VARIABLES: &[&str] = &["RUNNER_ARGS", "RUNNER_ARGUMENTS"];

/// Warns of unknown `RUNNER_` variables whose name is close to a known one.
pub(super) fn warn_typos(variables: &Variables, warnings: &mut Vec<String>) {
    let documented = help::variables();
    let documented = documented.iter().map(|(name, _)| *name);
    env_options::warn_typos(
        &[&RUNNER],
        documented.chain(FOREIGN_VARIABLES.iter().copied()),
        variables,
        warnings,
    );
}

#[cfg(test)]
mod tests;
