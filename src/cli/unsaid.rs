//! Variables that are nearly those of the runner's options.

use super::flags::RUNNER;
use super::help;
use crate::proto::options::env::Variables;
use crate::proto::options::unsaid::slips_of;
use crate::proto::telephony::PROVIDERS;

/// Variables that begin like those of options, and belong to others: the service's further arguments, and what a program
/// that is a bot is told.
const OF_OTHERS: &[&str] = &["RUNNER_ARGS", "RUNNER_ARGUMENTS"];

/// Warns of variables of the runner that are none, and are nearly one.
pub(super) fn slips(variables: &Variables, warnings: &mut Vec<String>) {
    let told = help::environment(&PROVIDERS);
    let told = told.iter().map(|(name, _)| *name);
    slips_of(&[&RUNNER], told.chain(OF_OTHERS.iter().copied()), variables, warnings);
}

#[cfg(test)]
mod tests;
