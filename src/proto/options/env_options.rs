//! Options from variables: `RUNNER_PORT` for `--port`, and likewise for every option of a table.
//!
//! In: variables, and the typed options. Out: the values of the other options, and the names of the
//! variables that set them. Items of a list are separated by commas; an option without a value
//! takes `true` or `false`, `-v` a number. A typed option overrides its own variable and that of a
//! conflicting option. Values are validated like those of typed options.

use super::UsageError;
use super::env::Variables;
use super::parse::{first_word, store};
use super::suggest::nearest;
use super::table::{Flag, FlagKind, OptionStore, OptionTable, ValueSource};
use crate::aliases::{self, Area};

/// An option that a variable or the file of settings sets.
pub struct EnvOption<T: 'static> {
    pub flag: &'static Flag<T>,
    /// The name of the variable, or the key and the place of the entry.
    pub variable: String,
    /// Whether it is a switch that is turned off.
    pub is_off: bool,
}

/// Returns the name of an option's variable with this prefix.
pub fn with_prefix(prefix: &str, long: &str) -> String {
    let name = long.trim_start_matches('-').to_ascii_uppercase().replace('-', "_");
    format!("{prefix}{name}")
}

/// Returns whether an option has a variable.
pub fn has_variable<T>(flag: &Flag<T>) -> bool {
    !matches!(flag.kind, FlagKind::Help | FlagKind::Version | FlagKind::Report)
}

/// Applies the variables of options that were not typed, and returns these options.
///
/// # Errors
/// [`UsageError`] for an invalid value.
pub fn apply<T: OptionStore>(
    args: &mut T,
    table: &OptionTable<T>,
    variables: &Variables,
) -> Result<Vec<EnvOption<T>>, UsageError> {
    let mut applied = Vec::new();
    for flag in table.flags().filter(|flag| has_variable(flag)) {
        if args.given().contains(&flag.long) || args.overrides(flag.long) {
            continue;
        }
        let names = names(flag, table.prefix);
        // R-027, I-26.
        let found = match table.own_variable_first {
            true => names.iter().find_map(|name| Some((name, variables.literal(name)?))),
            false => variables.nearest(&names),
        };
        let Some((variable, text)) = found else {
            continue;
        };
        let count_of = |wants: &str, read: fn(&str) -> Option<u8>| {
            read(text).ok_or_else(|| UsageError::value(variable, text, wants))
        };
        let mut is_off = false;
        match flag.kind {
            FlagKind::Switch(set) => match count_of("`true` or `false`", switch)? {
                0 => is_off = true,
                _ => {
                    set(args);
                    args.record(flag, "", ValueSource::Variable);
                }
            },
            FlagKind::Count(set) => {
                for _ in 0..count_of("a number from 0 to 3", count)? {
                    set(args);
                    args.record(flag, "", ValueSource::Variable);
                }
            }
            FlagKind::Optional(words, _) => match switch(text) {
                Some(0) => is_off = true,
                Some(_) => store(args, flag, ValueSource::Variable, variable, first_word(words))?,
                None => store(args, flag, ValueSource::Variable, variable, text)?,
            },
            FlagKind::Value(..) | FlagKind::List(..) => {
                store(args, flag, ValueSource::Variable, variable, text)?;
            }
            FlagKind::Repeatable(..) => {
                for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
                    store(args, flag, ValueSource::Variable, variable, entry)?;
                }
            }
            FlagKind::Help | FlagKind::Version | FlagKind::Report => continue,
        }
        applied.push(EnvOption {
            flag,
            variable: variable.clone(),
            is_off,
        });
    }
    Ok(applied)
}

/// Returns every name of an option's variable, the canonical one first.
fn names<T>(flag: &Flag<T>, prefix: &str) -> Vec<String> {
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

/// Warns of unknown variables whose name is close to a known one. Only variables with the prefix of
/// the tables are considered; `others` are additional known names.
pub fn warn_typos<'n, T>(
    tables: &[&OptionTable<T>],
    others: impl Iterator<Item = &'n str>,
    variables: &Variables,
    warnings: &mut Vec<String>,
) {
    let Some(prefix) = tables.first().map(|table| table.prefix) else {
        return;
    };
    let own = tables
        .iter()
        .flat_map(|table| table.flags())
        .filter(|flag| has_variable(flag));
    let known: Vec<String> = own
        .flat_map(|flag| names(flag, prefix))
        .chain(others.map(str::to_owned))
        .collect();
    for name in variables.names() {
        let Some(rest) = name.strip_prefix(prefix) else {
            continue;
        };
        if known.iter().any(|other| other == name) {
            continue;
        }
        let rests = known.iter().filter_map(|other| other.strip_prefix(prefix));
        if let Some(near) = nearest(rest, rests) {
            warnings.push(format!(
                "{name} is set, but it is not a known variable; did you mean {prefix}{near}?"
            ));
        }
    }
}
