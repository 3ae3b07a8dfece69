//! Errors of arguments and variables, with texts that say what is expected.

use std::fmt;

use super::env_options::EnvOption;
use super::table::Expected;
use crate::features::{Feature, MissingFeature};

/// Why arguments or variables are rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageError {
    UnknownOption {
        given: String,
        /// The option or the command that was probably meant.
        nearest: Option<String>,
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
    UnknownCommand {
        given: String,
        nearest: &'static str,
    },
    /// A value that its option or variable does not take. `given` is `None` if it may be a secret.
    Value {
        source: String,
        given: Option<String>,
        wants: String,
        nearest: Option<String>,
    },
    /// Options that do not go together, in a sentence.
    Combination(String),
    /// A part of the specification that is not implemented yet, and the alternative.
    NotInBuild {
        what: String,
        meanwhile: &'static str,
    },
    /// A feature that this build lacks, and what needs it.
    MissingFeature {
        what: String,
        feature: MissingFeature,
    },
    NotUnicode(String),
}

impl UsageError {
    /// Makes the error of a rejected value. A value with `@`, `?` or `=` is not repeated: it may be a
    /// URL with a password or a token, or a pair with a secret.
    pub fn value(source: &str, given: &str, wants: impl Into<Expected>) -> UsageError {
        let Expected { values, nearest } = wants.into();
        UsageError::Value {
            source: source.to_owned(),
            given: (!given.contains(['@', '?', '='])).then(|| given.to_owned()),
            wants: values,
            nearest: nearest.map(|nearest| format!("`{nearest}`")),
        }
    }

    /// Makes the error of a value that is not repeated, since it may be a secret.
    pub fn redacted(source: &str, wants: impl Into<String>) -> UsageError {
        UsageError::Value {
            source: source.to_owned(),
            given: None,
            wants: wants.into(),
            nearest: None,
        }
    }

    /// Names the variables that set the options in the message.
    pub fn with_sources<T>(mut self, taken: &[EnvOption<T>]) -> UsageError {
        match &mut self {
            UsageError::Value { source, .. } => {
                if let Some(taken) = taken.iter().find(|taken| taken.flag.long == source) {
                    source.clone_from(&taken.variable);
                }
            }
            UsageError::Combination(text)
            | UsageError::NotInBuild { what: text, .. }
            | UsageError::MissingFeature { what: text, .. } => {
                let spoken_of = |taken: &&EnvOption<T>| {
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

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsageError::UnknownOption { given, nearest } => {
                write!(f, "there is no option `{given}`")?;
                did_you_mean(f, nearest.as_deref())
            }
            UsageError::UnknownCommand { given, nearest } => {
                write!(f, "there is no command `{given}`")?;
                did_you_mean(f, Some(&format!("`{nearest}`")))
            }
            UsageError::UnknownShortOption { given, known } => {
                let known: Vec<_> = known.iter().map(|c| format!("-{c}")).collect();
                write!(
                    f,
                    "there is no option `-{given}`; the short ones are {}",
                    known.join(", ")
                )
            }
            UsageError::MissingValue { option, word } => write!(f, "`{option}` needs a value: {option} {word}"),
            UsageError::UnexpectedValue { option } => write!(f, "`{option}` takes no value"),
            UsageError::UnexpectedArgument(given) => {
                write!(f, "`{given}` is not an option; put the command of a bot after `--`")
            }
            UsageError::Value {
                source,
                given: Some(given),
                wants,
                nearest,
            } => {
                write!(f, "`{source}` takes {wants}, not `{given}`")?;
                did_you_mean(f, nearest.as_deref())
            }
            UsageError::Value {
                source,
                given: None,
                wants,
                ..
            } => write!(f, "`{source}` takes {wants}"),
            UsageError::Combination(sentence) => f.write_str(sentence),
            UsageError::NotInBuild { what, meanwhile } => {
                write!(f, "{what} is not in this build yet: {meanwhile}")
            }
            UsageError::MissingFeature { what, feature } => write!(f, "{what} {feature}"),
            UsageError::NotUnicode(shown) => write!(f, "the argument `{shown}` is not valid Unicode"),
        }
    }
}

impl std::error::Error for UsageError {}

fn did_you_mean(f: &mut fmt::Formatter<'_>, nearest: Option<&str>) -> fmt::Result {
    match nearest {
        Some(nearest) => write!(f, "; did you mean {nearest}?"),
        None => Ok(()),
    }
}

/// Requires a feature of this build for `what`.
///
/// # Errors
/// [`UsageError::MissingFeature`].
pub fn need(what: &str, feature: Feature) -> Result<(), UsageError> {
    match feature.missing() {
        Some(feature) => Err(UsageError::MissingFeature {
            what: what.to_owned(),
            feature,
        }),
        None => Ok(()),
    }
}
