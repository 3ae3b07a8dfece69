//! Variables that are nearly those of the runner's options.

use super::flags::RUNNER;
use super::help;
use crate::proto::options::env::Variables;
use crate::proto::options::env_options;
use crate::proto::telephony::PROVIDERS;

/// Variables that begin like those of options, and belong to others: the service's further arguments, and what a program
/// that is a bot is told.
const FOREIGN_VARIABLES: &[&str] = &["RUNNER_ARGS", "RUNNER_ARGUMENTS"];

/// Warns of variables of the runner that are none, and are nearly one.
pub(super) fn warn_typos(variables: &Variables, warnings: &mut Vec<String>) {
    let told = help::environment(&PROVIDERS);
    let told = told.iter().map(|(name, _)| *name);
    env_options::warn_typos(
        &[&RUNNER],
        told.chain(FOREIGN_VARIABLES.iter().copied()),
        variables,
        warnings,
    );
}

#[cfg(test)]
mod tests;
