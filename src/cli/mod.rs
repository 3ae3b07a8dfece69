//! Command line: arguments and surroundings in, a [`Command`] or a [`Misuse`] out.
//!
//! Two stages. `parse` here reads what was typed, option by option, with the table in `flags`, and `unsaid` adds what variables
//! say of the other options; `meaning` holds the values against each other and makes the [`Config`]. Everything that is not an argument enters as a
//! value in [`Surroundings`], so both stages can be tested whole. `start` alone reads the process's environment and files.
//! Misuse is exit code 2; its text names what was wrong and what would be right.

mod abilities;
pub mod banner;
#[cfg_attr(not(feature = "cloud"), path = "cloud/absent.rs")]
pub mod cloud;
pub mod env;
mod flags;
mod help;
mod hosts;
mod meaning;
mod messaging;
mod moq;
mod rooms;
pub mod start;
mod telephony;
mod trust;
mod unsaid;
mod values;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::IpAddr;

use crate::abilities::{Ability, Absent};
use crate::aliases::{self, Area};
use crate::config::Config;
use env::Variables;
use flags::{Flag, Group, RUNNER, Table, Takes, Typed};
use unsaid::Taken;

/// What the user asked for.
#[derive(Debug)]
pub enum Command {
    /// Serve; `warnings` are for the log, once there is one.
    Serve { config: Box<Config>, warnings: Vec<String> },
    /// Look for what keeps callers out, say what to do about it, and end.
    Doctor { config: Box<Config>, warnings: Vec<String> },
    /// What `edge-runner cloud` is asked for.
    Cloud { task: cloud::Task, warnings: Vec<String> },
    /// Print this text and end.
    Help(String),
    /// Print this text and end.
    Version(String),
}

/// What the meaning of the arguments depends on, besides themselves.
pub struct Surroundings<'a> {
    /// Environment variables over those of `.env`.
    pub variables: Variables,
    /// The addresses of this machine's interfaces.
    pub addresses: Vec<IpAddr>,
    /// This machine's own names.
    pub names: Vec<String>,
    /// Reads a short text file.
    pub read: &'a dyn Fn(&str) -> io::Result<String>,
    /// Finds the addresses of a host name; none when it is unknown.
    pub resolve: &'a dyn Fn(&str) -> Vec<IpAddr>,
}

/// Why the arguments make no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misuse {
    UnknownOption {
        given: String,
        nearest: &'static str,
    },
    UnknownShortOption {
        given: char,
        known: Vec<char>,
    },
    MissingValue {
        option: String,
        word: &'static str,
    },
    UnexpectedValue {
        option: String,
    },
    UnexpectedArgument(String),
    /// A value that its option or variable does not take; `given` is absent when it may hold a secret.
    Value {
        source: String,
        given: Option<String>,
        wants: String,
    },
    /// Options that do not go together, in a sentence.
    Combination(String),
    /// Something that is specified and not yet built, and what to do meanwhile.
    NotInBuild {
        what: String,
        meanwhile: &'static str,
    },
    /// An ability that this build lacks, and what asked for it.
    Absent {
        what: String,
        absent: Absent,
    },
    NotUnicode(String),
}

impl Misuse {
    /// Text with an `@`, a `?` or a `=` is not repeated: what stands before the first in a URL may be a password, behind the
    /// second a token, behind the third the value of a name.
    fn value(source: &str, given: &str, wants: impl Into<String>) -> Misuse {
        Misuse::Value {
            source: source.to_owned(),
            given: (!given.contains(['@', '?', '='])).then(|| given.to_owned()),
            wants: wants.into(),
        }
    }

    /// Names the variables where it speaks of options that nobody typed.
    fn traced(mut self, taken: &[Taken]) -> Misuse {
        match &mut self {
            Misuse::Value { source, .. } => {
                if let Some(taken) = taken.iter().find(|taken| taken.flag.long == source) {
                    source.clone_from(&taken.variable);
                }
            }
            Misuse::Combination(text) | Misuse::NotInBuild { what: text, .. } | Misuse::Absent { what: text, .. } => {
                let spoken_of = |taken: &&Taken| {
                    let long = taken.flag.long;
                    let mut names = vec![format!("`{long}`"), format!("`{long} ")];
                    names.extend(taken.flag.short.map(|short| format!("`-{short} ")));
                    // All of them are spoken of at once.
                    names.extend((taken.flag.group == Group::Moq).then(|| "`--moq-*`".to_owned()));
                    names.iter().any(|name| text.contains(name))
                };
                let sources: Vec<_> = taken.iter().filter(spoken_of).map(|taken| &*taken.variable).collect();
                if !sources.is_empty() {
                    *text = format!("{text} (set by {})", sources.join(", "));
                }
            }
            _ => {}
        }
        self
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misuse::UnknownOption { given, nearest } => {
                write!(f, "there is no option `{given}`; did you mean `{nearest}`?")
            }
            Misuse::UnknownShortOption { given, known } => {
                let known: Vec<_> = known.iter().map(|c| format!("-{c}")).collect();
                write!(
                    f,
                    "there is no option `-{given}`; the short ones are {}",
                    known.join(", ")
                )
            }
            Misuse::MissingValue { option, word } => write!(f, "`{option}` needs a value: {option} {word}"),
            Misuse::UnexpectedValue { option } => write!(f, "`{option}` takes no value"),
            Misuse::UnexpectedArgument(given) => {
                write!(f, "`{given}` is no option; a command stands after `--`")
            }
            Misuse::Value {
                source,
                given: Some(given),
                wants,
            } => write!(f, "`{source}` takes {wants}, not `{given}`"),
            Misuse::Value {
                source,
                given: None,
                wants,
            } => write!(f, "`{source}` takes {wants}"),
            Misuse::Combination(sentence) => f.write_str(sentence),
            Misuse::NotInBuild { what, meanwhile } => {
                write!(f, "{what} is not in this build yet: {meanwhile}")
            }
            Misuse::Absent { what, absent } => write!(f, "{what} {absent}"),
            Misuse::NotUnicode(shown) => write!(f, "the argument `{shown}` is not valid Unicode"),
        }
    }
}

impl std::error::Error for Misuse {}

/// Reads the arguments, without the program's name.
///
/// # Errors
/// [`Misuse`] for the first argument, value or combination that makes no sense, and for what this build lacks.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    surroundings: &Surroundings<'_>,
) -> Result<Command, Misuse> {
    let mut options: Vec<OsString> = arguments.into_iter().collect();
    let mut command = None;
    if let Some(at) = options.iter().position(|argument| argument == "--") {
        command = Some(options.split_off(at).split_off(1));
    }
    if options.first().is_some_and(|argument| argument == "cloud") {
        options.remove(0);
        return cloud::parse(options, command, surroundings);
    }
    let is_doctor = options.first().is_some_and(|argument| argument == "doctor");
    if is_doctor {
        options.remove(0);
    }
    let mut typed = Box::new(Typed {
        command,
        ..Typed::default()
    });
    match self::options(&mut typed, &RUNNER, options)? {
        Some(Asked::Help) => return Ok(Command::Help(help::text())),
        Some(Asked::Version) => return Ok(version()),
        None => {}
    }
    if is_doctor {
        abilities::need("`edge-runner doctor`", Ability::Doctor)?;
    }
    let mut warnings = Vec::new();
    unsaid::slips(&surroundings.variables, &mut warnings);
    let taken = unsaid::fill(&mut typed, &RUNNER, &surroundings.variables)?;
    let config = meaning::config(*typed, surroundings, &mut warnings).map_err(|misuse| misuse.traced(&taken))?;
    let config = Box::new(config);
    Ok(match is_doctor {
        false => Command::Serve { config, warnings },
        true => Command::Doctor { config, warnings },
    })
}

fn version() -> Command {
    Command::Version(format!("edge-runner {}\n", env!("CARGO_PKG_VERSION")))
}

/// Returns how the help is called that belongs to these arguments.
pub fn help_of(arguments: &[OsString]) -> String {
    match arguments.first().is_some_and(|argument| argument == "cloud") {
        true => cloud::help_of(arguments),
        false => "edge-runner --help".into(),
    }
}

/// What ends the reading of options.
enum Asked {
    Help,
    Version,
}

/// The first stage: what was typed, by a table.
fn options(typed: &mut Typed, table: &Table, options: Vec<OsString>) -> Result<Option<Asked>, Misuse> {
    let mut parser = lexopt::Parser::from_args(options);
    while let Some(argument) = parser.next().map_err(from_lexopt)? {
        let (flag, name) = match argument {
            lexopt::Arg::Short(short) => (by_short(table, short)?, format!("-{short}")),
            lexopt::Arg::Long(long) => {
                let name = format!("--{long}");
                (by_long(table, &name).ok_or_else(|| unknown(table, &name))?, name)
            }
            lexopt::Arg::Value(value) => {
                argument_of(typed, table, value)?;
                continue;
            }
        };
        typed.said.push(flag.long);
        match flag.takes {
            Takes::Help => return Ok(Some(Asked::Help)),
            Takes::Version => return Ok(Some(Asked::Version)),
            // A value attached to it is found by lexopt at the next turn.
            Takes::Nothing(set) | Takes::Count(set) => set(typed),
            Takes::One(word, set) | Takes::Each(word, set) => {
                let value = one_value(&mut parser, &name, word)?;
                store(typed, set, &name, &value.text)?;
            }
            Takes::Many(word, set) => {
                let first = one_value(&mut parser, &name, word)?;
                let attached = first.attached;
                store(typed, set, &name, &first.text)?;
                // `--name=value` is one value; after `--name value` more may follow.
                while !attached && let Some(more) = next_value(&mut parser)? {
                    store(typed, set, &name, &more.text)?;
                }
            }
        }
    }
    Ok(None)
}

/// The text of one value, and whether it was written as `--name=value`.
struct Text {
    text: String,
    attached: bool,
}

fn one_value(parser: &mut lexopt::Parser, name: &str, word: &'static str) -> Result<Text, Misuse> {
    if let Some(value) = parser.optional_value() {
        let text = value.into_string().map_err(not_unicode)?;
        return Ok(Text { text, attached: true });
    }
    next_value(parser)?.ok_or_else(|| Misuse::MissingValue {
        option: name.to_owned(),
        word,
    })
}

/// Returns the next argument unless it is an option. A negative number is a value: what it is for says what it takes.
fn next_value(parser: &mut lexopt::Parser) -> Result<Option<Text>, Misuse> {
    let Some(mut rest) = parser.try_raw_args() else {
        return Ok(None);
    };
    let value = rest.next_if(|argument| {
        let bytes = argument.as_encoded_bytes();
        bytes.len() < 2 || bytes[0] != b'-' || bytes[1].is_ascii_digit()
    });
    let text = value
        .map(|value| value.into_string().map_err(not_unicode))
        .transpose()?;
    Ok(text.map(|text| Text { text, attached: false }))
}

fn store(typed: &mut Typed, set: flags::Set, name: &str, value: &str) -> Result<(), Misuse> {
    set(typed, value.to_owned()).map_err(|wants| Misuse::value(name, value, wants))
}

fn by_short(table: &Table, short: char) -> Result<&'static Flag, Misuse> {
    let found = table.flags.iter().find(|flag| flag.short == Some(short));
    found.ok_or_else(|| Misuse::UnknownShortOption {
        given: short,
        known: table.flags.iter().filter_map(|flag| flag.short).collect(),
    })
}

fn by_long(table: &Table, name: &str) -> Option<&'static Flag> {
    let canonical = aliases::canonical(Area::Option, name);
    table.flags.iter().find(|flag| flag.long == canonical)
}

fn unknown(table: &Table, given: &str) -> Misuse {
    let nearest = table
        .flags
        .iter()
        .flat_map(|flag| std::iter::once(flag.long).chain(aliases::aliases(Area::Option, flag.long).iter().copied()))
        .min_by_key(|known| distance(given, known))
        .unwrap_or("--help");
    Misuse::UnknownOption {
        given: given.to_owned(),
        nearest,
    }
}

/// How many characters have to be put in, taken out or changed to make one text of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.chars().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.chars().count()]
}

/// Takes the argument that is no option, where the table has a word for it.
fn argument_of(typed: &mut Typed, table: &Table, value: OsString) -> Result<(), Misuse> {
    match (table.argument, &typed.argument) {
        (Some(_), None) => {
            typed.argument = Some(value);
            Ok(())
        }
        (Some(word), Some(_)) => Err(Misuse::Combination(format!(
            "`{}` is one argument too many: there is one {word}",
            value.to_string_lossy()
        ))),
        (None, _) => Err(Misuse::UnexpectedArgument(value.into_string().map_err(not_unicode)?)),
    }
}

fn not_unicode(value: OsString) -> Misuse {
    Misuse::NotUnicode(value.to_string_lossy().into_owned())
}

/// What lexopt itself finds wrong; the rest is found above, where the option's value word is known.
fn from_lexopt(error: lexopt::Error) -> Misuse {
    match error {
        lexopt::Error::UnexpectedValue { option, .. } => Misuse::UnexpectedValue { option },
        lexopt::Error::NonUnicodeValue(value) => not_unicode(value),
        other => Misuse::Combination(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
