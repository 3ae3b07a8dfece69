//! Errors of arguments and variables. Their texts say what is expected.

use std::fmt;

use super::env::Variables;
use super::env_options::EnvOption;
use super::table::Expected;
use crate::features::{Feature, MissingFeature};

/// Why arguments or variables are rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageError {
    UnknownOption {
        given: String,
        /// The nearest option or command.
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
    /// An invalid value. `given` is `None` if it may be a secret.
    Value {
        source: String,
        given: Option<String>,
        wants: String,
        nearest: Option<String>,
    },
    /// An invalid combination, as a sentence.
    Combination(String),
    /// A feature that this build lacks, and the option or command that needs it.
    MissingFeature {
        what: String,
        feature: MissingFeature,
    },
    NotUnicode(String),
}

impl UsageError {
    /// Returns the error about an invalid value. A value with `@`, `?` or `=` is not repeated: it
    /// may be a URL with a password or a token, or a pair with a secret.
    pub fn value(source: &str, given: &str, wants: impl Into<Expected>) -> UsageError {
        let Expected { values, nearest } = wants.into();
        UsageError::Value {
            source: source.to_owned(),
            given: (!given.contains(['@', '?', '='])).then(|| given.to_owned()),
            wants: values,
            nearest: nearest.map(|nearest| format!("`{nearest}`")),
        }
    }

    /// Returns the error about an invalid value that is not repeated, because it may be a secret.
    pub fn redacted(source: &str, wants: impl Into<String>) -> UsageError {
        UsageError::Value {
            source: source.to_owned(),
            given: None,
            wants: wants.into(),
            nearest: None,
        }
    }

    /// Adds the variables, and the entries of the file of settings, that set the options in the
    /// message.
    pub fn with_sources<T>(mut self, from_env: &[EnvOption<T>]) -> UsageError {
        match &mut self {
            UsageError::Value { source, .. } => {
                if let Some(option) = from_env.iter().find(|option| option.flag.long == source) {
                    source.clone_from(&option.variable);
                }
            }
            UsageError::Combination(text) | UsageError::MissingFeature { what: text, .. } => {
                let is_named = |option: &&EnvOption<T>| {
                    let long = option.flag.long;
                    if option.is_off {
                        return false;
                    }
                    let mut names = vec![format!("`{long}`"), format!("`{long} ")];
                    names.extend(option.flag.short.map(|short| format!("`-{short} ")));
                    // The message may name a family of options, such as `--moq-*`.
                    let family = long.trim_start_matches('-').split_once('-');
                    names.extend(family.map(|(family, _)| format!("`--{family}-*`")));
                    names.iter().any(|name| text.contains(name))
                };
                let sources: Vec<_> = from_env
                    .iter()
                    .filter(is_named)
                    .map(|option| &*option.variable)
                    .collect();
                if !sources.is_empty() {
                    *text = format!("{text} (set by {})", sources.join(", "));
                }
            }
            _ => {}
        }
        self
    }

    /// Adds the line of the file of settings that sets the variable in the message.
    pub fn with_places(mut self, variables: &Variables) -> UsageError {
        if let UsageError::Value { source, .. } = &mut self
            && let Some(place) = variables.place(source)
        {
            *source = place.to_owned();
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
                    "there is no option `-{given}`; the short options are {}",
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

/// Checks that this build has the feature that `what` needs.
///
/// # Errors
/// [`UsageError::MissingFeature`] if it does not.
pub fn need(what: &str, feature: Feature) -> Result<(), UsageError> {
    match feature.missing() {
        Some(feature) => Err(UsageError::MissingFeature {
            what: what.to_owned(),
            feature,
        }),
        None => Ok(()),
    }
}
