//! A table of options: one entry per option with its names, value placeholder, help text and
//! setter.
//!
//! `T` is the type that collects the values of one command. The setter of an option validates each
//! value by itself. Aliases of options are in `aliases`.

use std::ffi::{OsStr, OsString};

use super::suggest::nearest;
use crate::features::Feature;
use crate::server::tls_config::Tls;

/// Where the value of an option is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSource {
    Typed,
    Variable,
    /// The file of settings.
    File,
}

/// Collects the values of one command.
pub trait OptionStore {
    /// The long names of the options that were typed or that the file of settings sets.
    fn given(&mut self) -> &mut Vec<&'static str>;
    /// Records that an option was set. A switch has an empty value.
    fn record(&mut self, _flag: &'static Flag<Self>, _value: &str, _source: ValueSource)
    where
        Self: Sized,
    {
    }
    /// The positional argument, if the table takes one.
    fn argument(&mut self) -> &mut Option<OsString>;
    /// Returns whether this positional argument is a command, whose arguments are all behind it.
    fn begins_command(&self, _argument: &OsStr) -> bool {
        false
    }
    /// Stores such a command.
    fn set_command(&mut self, _command: Vec<OsString>) {}
    /// Returns whether a typed option overrides the variable of this one.
    fn overrides(&self, _long: &str) -> bool {
        false
    }
}

/// Headings of the help that several modules share.
pub const SERVER: &str = "Server";
pub const BOTS: &str = "Bots";
pub const ACCESS: &str = "Access";
pub const ROOMS_AND_CALLS: &str = "Rooms and telephony";
/// The heading of calls, of `edge-runner call`.
pub const CALLS: &str = "Calls";

/// The help of `--host`, shared by the runner and the cloud service.
pub const HOST_HELP: &str = "Address to listen on: an IP address, a name of this machine, or `localhost` for 127.0.0.1 and ::1. \
     0.0.0.0 listens on every interface. [default: localhost]";

/// Stores the value of an option; the error is what the option expects.
pub type Setter<T> = fn(&mut T, String) -> Result<(), Expected>;

/// The expected values of an option, as the end of a sentence that begins with "`--port` takes".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub values: String,
    /// The valid value nearest to the given one.
    pub nearest: Option<String>,
}

impl Expected {
    /// Returns the error for `given`, which is not one of these names. `aliases` are suggested but
    /// not listed.
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

/// How many values an option takes, their placeholder in the help, and the setter.
pub enum FlagKind<T> {
    Switch(fn(&mut T)),
    /// No value; counts its uses.
    Count(fn(&mut T)),
    /// One value; the last use wins.
    Value(&'static str, Setter<T>),
    /// One of these words, separated by `|`, or no value for the first of them. Another argument
    /// behind the option is not its value. Its variable and its entry in the file of settings also
    /// take `true`, for the first word, and `false`.
    Optional(&'static str, Setter<T>),
    /// One value per use; all are kept.
    Repeatable(&'static str, Setter<T>),
    /// Values up to the next option; those of all uses are kept.
    List(&'static str, Setter<T>),
    /// Prints the help and exits.
    Help,
    /// Prints the version and exits.
    Version,
    /// Prints a report of this machine and exits.
    Report,
}

/// One option.
pub struct Flag<T: 'static> {
    pub short: Option<char>,
    /// With its dashes.
    pub long: &'static str,
    pub kind: FlagKind<T>,
    /// Its heading in the help.
    pub group: &'static str,
    /// The help text; `help` wraps it.
    pub help: &'static str,
    /// The features of which the option needs any one; errors name the first.
    pub needs: &'static [Feature],
    /// The value that needs no feature: it turns off what the option is for.
    pub off: Option<&'static str>,
    /// Whether a build without the features ignores the variable of the option, with a warning.
    pub is_optional_in_variables: bool,
}

impl<T> Flag<T> {
    /// Gives the option a short name.
    pub const fn short(mut self, short: char) -> Self {
        self.short = Some(short);
        self
    }

    /// Makes the option need one of these features.
    pub const fn needs(mut self, features: &'static [Feature]) -> Self {
        self.needs = features;
        self
    }

    /// Names the value that needs none of them.
    pub const fn unless(mut self, off: &'static str) -> Self {
        self.off = Some(off);
        self
    }

    /// Makes a build without the features ignore the variable of the option, with a warning.
    pub const fn optional_in_variables(mut self) -> Self {
        self.is_optional_in_variables = true;
        self
    }

    /// Returns the feature that the option needs; of several, the first that this build has.
    pub fn feature(&self) -> Option<Feature> {
        let built = self.needs.iter().find(|feature| feature.in_this_build());
        built.or(self.needs.first()).copied()
    }
}

/// The options of one command, and their variables.
pub struct OptionTable<T: 'static> {
    /// The options, in lists of one module each.
    pub modules: &'static [&'static [Flag<T>]],
    /// The prefix of their variables.
    pub prefix: &'static str,
    /// The placeholder of the positional argument; `None` if there is none.
    pub argument: Option<&'static str>,
    /// If true, an option's own variable takes precedence over its aliases. Otherwise a variable of
    /// the process takes precedence over one of `.env`, under any name.
    pub own_variable_first: bool,
}

impl<T> OptionTable<T> {
    /// Returns the options, in the order of the help.
    pub fn flags(&self) -> impl Iterator<Item = &'static Flag<T>> + use<T> {
        self.modules.iter().copied().flatten()
    }
}

/// Returns an option.
pub const fn flag<T>(long: &'static str, kind: FlagKind<T>, group: &'static str, help: &'static str) -> Flag<T> {
    Flag {
        short: None,
        long,
        kind,
        group,
        help,
        needs: &[],
        off: None,
        is_optional_in_variables: false,
    }
}

/// Stores the value of an option that takes one.
///
/// # Errors
/// Never; the return type is that of a setter.
pub fn put<T>(slot: &mut Option<T>, value: T) -> Result<(), Expected> {
    *slot = Some(value);
    Ok(())
}

/// Adds a value to the list of an option that takes several.
///
/// # Errors
/// Never; the return type is that of a setter.
pub fn push<T>(list: &mut Vec<T>, value: T) -> Result<(), Expected> {
    list.push(value);
    Ok(())
}

/// Parses a number between two inclusive bounds.
///
/// # Errors
/// The expected values.
pub fn number<T>(text: &str, least: T, most: T) -> Result<T, Expected>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    match text.parse() {
        Ok(value) if value >= least && value <= most => Ok(value),
        _ => Err(format!("a number from {least} to {most}").into()),
    }
}

/// Parses the value of `--tls`.
///
/// # Errors
/// The expected values.
pub fn tls(text: &str) -> Result<Tls, Expected> {
    match text {
        "off" => Ok(Tls::Off),
        "auto" => Ok(Tls::Auto),
        "acme" => Ok(Tls::Acme),
        _ => match text.split_once(':') {
            Some((certificate, key)) if !certificate.is_empty() && !key.is_empty() => Ok(Tls::Files {
                certificate: certificate.into(),
                key: key.into(),
            }),
            _ => Err(Expected {
                values: "`off`, `auto`, `acme`, or two files CERT:KEY".to_owned(),
                nearest: nearest(text, ["off", "auto", "acme"]).map(str::to_owned),
            }),
        },
    }
}
