//! Why arguments and variables make no sense, in words that say what would be right.

use std::fmt;

use super::unsaid::Taken;
use crate::abilities::{Ability, Absent};

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
    /// A value that its option or variable does not take; `given` is absent when it may hold a
    /// secret.
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
    /// Text with an `@`, a `?` or a `=` is not repeated: what stands before the first in a URL may
    /// be a password, behind the second a token, behind the third the value of a name.
    pub fn value(source: &str, given: &str, wants: impl Into<String>) -> Misuse {
        Misuse::Value {
            source: source.to_owned(),
            given: (!given.contains(['@', '?', '='])).then(|| given.to_owned()),
            wants: wants.into(),
        }
    }

    /// Names the variables where it speaks of options that were not typed.
    pub fn traced<T>(mut self, taken: &[Taken<T>]) -> Misuse {
        match &mut self {
            Misuse::Value { source, .. } => {
                if let Some(taken) = taken.iter().find(|taken| taken.flag.long == source) {
                    source.clone_from(&taken.variable);
                }
            }
            Misuse::Combination(text) | Misuse::NotInBuild { what: text, .. } | Misuse::Absent { what: text, .. } => {
                let spoken_of = |taken: &&Taken<T>| {
                    let long = taken.flag.long;
                    let mut names = vec![format!("`{long}`"), format!("`{long} ")];
                    names.extend(taken.flag.short.map(|short| format!("`-{short} ")));
                    // Those of one family may be spoken of at once, such as `--moq-*`.
                    let family = long.trim_start_matches('-').split_once('-');
                    names.extend(family.map(|(family, _)| format!("`--{family}-*`")));
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

/// Refuses what needs an ability that this build lacks; `what` is what asked for it.
///
/// # Errors
/// [`Misuse::Absent`].
pub fn need(what: &str, ability: Ability) -> Result<(), Misuse> {
    match ability.absent() {
        Some(absent) => Err(Misuse::Absent {
            what: what.to_owned(),
            absent,
        }),
        None => Ok(()),
    }
}
