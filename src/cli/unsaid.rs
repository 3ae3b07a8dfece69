//! Options that nobody typed, from their variables: `RUNNER_PORT` for `--port`, and so for each of the table; `CLOUD_PORT` for
//! that of `edge-runner cloud`.
//!
//! [`Typed`] and the variables enter; what variables say of options that were not typed is put into it, and the names leave.
//! A list has commas, a repeated option too; one without a value takes `true` or `false`, and `-v` a number. What is typed
//! wins, over its own variable and over that of an option that goes against it. Refuses what the option itself would refuse,
//! under the variable's name.

use super::env::Variables;
use super::flags::{Flag, RUNNER, Table, Takes, Typed};
use super::{Misuse, distance, help, store};
use crate::aliases::{self, Area};
use crate::config::Transport;

/// An option that a variable set.
pub(super) struct Taken {
    pub flag: &'static Flag,
    pub variable: String,
}

/// Options of which a typed one makes the other's variable count for nothing.
const RIVALS: &[[&str; 2]] = &[
    ["--api-key", "--api-key-file"],
    ["--dialin", "--no-dialin"],
    ["--direct", "--transport"],
];

/// Variables that begin like those of options, and belong to others: the service's further arguments, and what a program
/// that is a bot is told.
const OF_OTHERS: &[&str] = &["RUNNER_ARGS", "RUNNER_ARGUMENTS"];

/// How much a name may differ from a known one and be a slip. Short names are left alone: RUNNER_OS is another's.
const SLIP: usize = 2;
const SLIP_CHARS_LEAST: usize = 4;

/// Returns the name of an option's variable.
pub(super) fn variable(long: &str) -> String {
    with_prefix(RUNNER.prefix, long)
}

/// Returns the name of an option's variable that begins like this.
pub(super) fn with_prefix(prefix: &str, long: &str) -> String {
    let name = long.trim_start_matches('-').to_ascii_uppercase().replace('-', "_");
    format!("{prefix}{name}")
}

/// Whether an option has a variable.
pub(super) fn has_variable(flag: &Flag) -> bool {
    !matches!(flag.takes, Takes::Help | Takes::Version)
}

/// Sets the options that were not typed and whose variables are set.
///
/// # Errors
/// [`Misuse`] for a value that the option does not take.
pub(super) fn fill(typed: &mut Typed, table: &Table, variables: &Variables) -> Result<Vec<Taken>, Misuse> {
    let mut taken = Vec::new();
    for flag in table.flags.iter().filter(|flag| has_variable(flag)) {
        if overruled(flag, typed) {
            continue;
        }
        let names = names(flag, table.prefix);
        // The runner's own name wins over its aliases wherever it stands; of the others' the nearest place wins (I-26).
        let found = match table.prefix == RUNNER.prefix {
            true => names.iter().find_map(|name| Some((name, variables.literal(name)?))),
            false => variables.nearest(&names),
        };
        let Some((variable, text)) = found else {
            continue;
        };
        let times =
            |wants: &str, read: fn(&str) -> Option<u8>| read(text).ok_or_else(|| Misuse::value(variable, text, wants));
        match flag.takes {
            Takes::Nothing(set) => match times("`true` or `false`", switch)? {
                0 => continue,
                _ => set(typed),
            },
            Takes::Count(set) => (0..times("a number from 0 to 3", count)?).for_each(|_| set(typed)),
            Takes::One(_, set) | Takes::Many(_, set) => store(typed, set, variable, text)?,
            Takes::Each(_, set) => {
                for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
                    store(typed, set, variable, entry)?;
                }
            }
            Takes::Help | Takes::Version => continue,
        }
        taken.push(Taken {
            flag,
            variable: variable.clone(),
        });
    }
    Ok(taken)
}

/// Whether something typed says it already, or says otherwise.
fn overruled(flag: &Flag, typed: &Typed) -> bool {
    let said = |long: &str| typed.said.contains(&long);
    let rival = |[one, other]: &[&str; 2]| match flag.long {
        long if long == *one => said(other),
        long if long == *other => said(one),
        _ => false,
    };
    // `-t videoroom` says nothing against `--direct`, which leads there.
    let is_rival =
        RIVALS.iter().any(rival) && (flag.long != "--direct" || typed.transport != Some(Transport::Videoroom));
    said(flag.long) || is_rival || (flag.long == "--bot" && typed.command.is_some())
}

/// Every name of an option's variable, its own first.
fn names(flag: &Flag, prefix: &str) -> Vec<String> {
    let own = with_prefix(prefix, flag.long);
    let others = aliases::aliases(Area::Variable, &own)
        .iter()
        .copied()
        .map(str::to_owned);
    let of_aliases = aliases::aliases(Area::Option, flag.long)
        .iter()
        .map(|alias| with_prefix(prefix, alias));
    let others: Vec<_> = others.chain(of_aliases).collect();
    [vec![own], others].concat()
}

fn switch(text: &str) -> Option<u8> {
    match &*text.to_ascii_lowercase() {
        "true" | "1" | "yes" | "on" => Some(1),
        "false" | "0" | "no" | "off" => Some(0),
        _ => None,
    }
}

fn count(text: &str) -> Option<u8> {
    text.parse().ok().filter(|count| *count <= 3)
}

/// Warns of variables of the runner that are none, and are nearly one.
pub(super) fn slips(variables: &Variables, warnings: &mut Vec<String>) {
    let told = help::ENVIRONMENT.iter().map(|(name, _)| *name);
    slips_of(&[&RUNNER], told.chain(OF_OTHERS.iter().copied()), variables, warnings);
}

/// Warns of variables that begin like those of the tables, are none of them and none of the `others`, and are nearly one.
pub(super) fn slips_of<'n>(
    tables: &[&Table],
    others: impl Iterator<Item = &'n str>,
    variables: &Variables,
    warnings: &mut Vec<String>,
) {
    let Some(prefix) = tables.first().map(|table| table.prefix) else {
        return;
    };
    let own = tables
        .iter()
        .flat_map(|table| table.flags)
        .filter(|flag| has_variable(flag));
    let known: Vec<String> = own
        .flat_map(|flag| names(flag, prefix))
        .chain(others.map(str::to_owned))
        .collect();
    for name in variables.names() {
        let long_enough = name
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.len() >= SLIP_CHARS_LEAST);
        if !long_enough || known.iter().any(|other| other == name) {
            continue;
        }
        let near = known.iter().map(|other| (distance(name, other), other)).min();
        if let Some((1..=SLIP, near)) = near {
            warnings.push(format!("{name} is set, and means nothing here; did you mean {near}?"));
        }
    }
}

#[cfg(test)]
mod tests;
