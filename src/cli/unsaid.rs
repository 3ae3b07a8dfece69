//! What the runner's own options have to do with variables: their names, and which of them go
//! against each other.

use super::flags::{RUNNER, Typed};
use super::help;
use crate::config::Transport;
use crate::proto::options::env::Variables;
use crate::proto::options::unsaid::{slips_of, with_prefix};
use crate::proto::telephony::PROVIDERS;

/// Options of which a typed one makes the other's variable count for nothing.
const RIVALS: &[[&str; 2]] = &[
    ["--api-key", "--api-key-file"],
    ["--dialin", "--no-dialin"],
    ["--direct", "--transport"],
];

/// Variables that begin like those of options, and belong to others: the service's further arguments, and what a program
/// that is a bot is told.
const OF_OTHERS: &[&str] = &["RUNNER_ARGS", "RUNNER_ARGUMENTS"];

/// Returns the name of an option's variable.
pub(super) fn variable(long: &str) -> String {
    with_prefix(RUNNER.prefix, long)
}

/// Tells whether something typed says otherwise than this option's variable.
pub(super) fn overrules(typed: &Typed, option: &str) -> bool {
    let said = |long: &str| typed.said.contains(&long);
    let rival = |[one, other]: &[&str; 2]| match option {
        long if long == *one => said(other),
        long if long == *other => said(one),
        _ => false,
    };
    // `-t videoroom` says nothing against `--direct`, which leads there.
    let is_rival = RIVALS.iter().any(rival) && (option != "--direct" || typed.transport != Some(Transport::Videoroom));
    is_rival || (option == "--bot" && typed.command.is_some())
}

/// Warns of variables of the runner that are none, and are nearly one.
pub(super) fn slips(variables: &Variables, warnings: &mut Vec<String>) {
    let told = help::environment(&PROVIDERS);
    let told = told.iter().map(|(name, _)| *name);
    slips_of(&[&RUNNER], told.chain(OF_OTHERS.iter().copied()), variables, warnings);
}

#[cfg(test)]
mod tests;
