//! The twin of `cli::cloud` in a build without the service: every word of it is refused by the name of its feature.

use std::ffi::OsString;

use super::start::Failure;
use super::{Command, Misuse, Surroundings, env::Variables};
use crate::abilities::Ability;

/// Nothing belongs to it here.
#[derive(Debug, Default)]
pub(super) struct Typed;

/// There is nothing that it could do.
#[derive(Debug)]
pub enum Task {}

impl Task {
    pub(super) fn run(self, _warnings: &[String], _variables: &Variables) -> Result<(), Failure> {
        match self {}
    }
}

/// # Errors
/// Always.
pub(super) fn parse(
    _arguments: Vec<OsString>,
    _command: Option<Vec<OsString>>,
    _around: &Surroundings<'_>,
) -> Result<Command, Misuse> {
    super::abilities::need("`edge-runner cloud`", Ability::Cloud)?;
    unreachable!("this file stands for the service in builds that lack it")
}

/// Returns how the help of these arguments is called.
pub(super) fn help_of(_arguments: &[OsString]) -> String {
    "edge-runner --help".into()
}
