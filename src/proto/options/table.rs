//! A table of options: one entry per option with its names, value word, help lines and setter.
//!
//! `T` is what the values of one command are put into. Texts of values enter through the setters,
//! each value read by itself. An alias of an option is in `aliases`.

use std::ffi::OsString;

use super::suggest::nearest;
use crate::config::Tls;

/// Where the values of one command go, and what stands beside its options.
pub trait OptionStore {
    /// The long names of the options that were typed.
    fn given(&mut self) -> &mut Vec<&'static str>;
    /// The one argument that is no option, where the table takes one.
    fn argument(&mut self) -> &mut Option<OsString>;
    /// Tells whether something that was typed says otherwise than this option's variable.
    fn overrides(&self, long: &str) -> bool;
}

/// The help of `--host`, which every server has.
pub const HOST_HELP: &str = "Address to listen on: an IP address, a name of this machine, or `localhost` for 127.0.0.1 and ::1. \
     0.0.0.0 listens on every interface. [default: localhost]";

/// What an option does with the text of its value; what it takes instead is the error.
pub type Setter<T> = fn(&mut T, String) -> Result<(), Expected>;

/// What an option takes, as the end of "`--port` kind ...".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub values: String,
    /// The value that was probably meant.
    pub nearest: Option<String>,
}

impl Expected {
    /// Returns the refusal of `given`, which is none of these names. `aliases` are suggested too, and not listed.
    pub fn one_of(given: &str, names: &[&str], aliases: &[&str]) -> Expected {
        let listed: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let values = match listed.split_last() {
            Some((last, [first])) => format!("{first} or {last}"),
            Some((last, others)) if !others.is_empty() => format!("one of {} or {last}", others.join(", ")),
            _ => listed.concat(),
        };
        let known = names.iter().chain(aliases).copied();
        let nearest = nearest(given, known).map(str::to_owned);
        Expected { values, nearest }
    }
}

impl From<String> for Expected {
    fn from(values: String) -> Expected {
        Expected { values, nearest: None }
    }
}

impl From<&str> for Expected {
    fn from(values: &str) -> Expected {
        Expected::from(values.to_owned())
    }
}

/// How many values an option takes, what stands for one in the help, and where they go.
pub enum FlagKind<T> {
    Switch(fn(&mut T)),
    /// No value; every use counts.
    Count(fn(&mut T)),
    /// One value; of several uses the last counts.
    Value(&'static str, Setter<T>),
    /// One value; every use adds one.
    Repeatable(&'static str, Setter<T>),
    /// Values up to the next option; every use adds some.
    List(&'static str, Setter<T>),
    /// Prints the help and ends.
    Help,
    /// Prints the version and ends.
    Version,
}

/// One option.
pub struct Flag<T: 'static> {
    pub short: Option<char>,
    /// With its dashes.
    pub long: &'static str,
    pub kind: FlagKind<T>,
    /// The heading under which it stands in the help.
    pub group: &'static str,
    /// For people; lines are broken by `help`.
    pub help: &'static str,
}

/// The options of one command, and what stands beside them.
pub struct OptionTable<T: 'static> {
    pub flags: &'static [Flag<T>],
    /// What the names of their variables begin with.
    pub prefix: &'static str,
    /// The word for its one argument that is no option.
    pub argument: Option<&'static str>,
    /// Whether an option's own variable wins over its aliases wherever each stands; else the
    /// nearest place wins.
    pub own_variable_first: bool,
}

/// The group of options that neither help nor completions show.
pub const HIDDEN: &str = "";

/// Makes an option.
pub const fn flag<T>(
    short: Option<char>,
    long: &'static str,
    kind: FlagKind<T>,
    group: &'static str,
    help: &'static str,
) -> Flag<T> {
    Flag {
        short,
        long,
        kind,
        group,
        help,
    }
}

/// Stores the value of an option that takes one.
///
/// # Errors
/// Never; the type is that of a setter.
pub fn put<T>(slot: &mut Option<T>, value: T) -> Result<(), Expected> {
    *slot = Some(value);
    Ok(())
}

/// Adds a value to the list of an option that takes several.
///
/// # Errors
/// Never; the type is that of a setter.
pub fn push<T>(list: &mut Vec<T>, value: T) -> Result<(), Expected> {
    list.push(value);
    Ok(())
}

/// Reads a number between two bounds, which belong to it.
///
/// # Errors
/// What the option takes.
pub fn number<T>(text: &str, least: T, most: T) -> Result<T, Expected>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    match text.parse() {
        Ok(value) if value >= least && value <= most => Ok(value),
        _ => Err(format!("a number from {least} to {most}").into()),
    }
}

/// Reads the value of `--tls`.
///
/// # Errors
/// What the option takes.
pub fn tls(text: &str) -> Result<Tls, Expected> {
    match text {
        "off" => Ok(Tls::Off),
        "auto" => Ok(Tls::Auto),
        _ => match text.split_once(':') {
            Some((certificate, key)) if !certificate.is_empty() && !key.is_empty() => Ok(Tls::Files {
                certificate: certificate.into(),
                key: key.into(),
            }),
            _ => Err(Expected {
                values: "`off`, `auto` or the two files CERT:KEY".to_owned(),
                nearest: nearest(text, ["off", "auto"]).map(str::to_owned),
            }),
        },
    }
}
