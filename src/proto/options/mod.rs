//! Options of a command line and their variables: a table says which there are, arguments and
//! variables enter as values, and what they say leaves, or a [`UsageError`].
//!
//! - [`OptionTable`]: the options of one command; [`parse()`]: what was typed
//! - [`env_options`]: what variables say of options that were not typed; [`mod@env`]: variables, and
//!   `.env`
//! - [`values`] and [`hosts`]: texts of one kind; [`help`]: the parts of a help text

pub mod env;
pub mod env_options;
pub mod help;
pub mod hosts;
mod parse;
pub mod suggest;
mod table;
mod usage_error;
pub mod values;

use std::io;
use std::net::IpAddr;

use env::Variables;

pub use parse::{SpecialMode, not_unicode, parse, split_command};
pub use table::{
    Expected, Flag, FlagKind, HIDDEN, HOST_HELP, OptionStore, OptionTable, Setter, flag, number, push, put, tls,
};
pub use usage_error::{UsageError, need};

/// What the meaning of the arguments depends on, besides themselves.
pub struct Env<'a> {
    /// Environment variables over those of `.env`.
    pub variables: Variables,
    /// The addresses of this machine's interfaces.
    pub addresses: Vec<IpAddr>,
    /// This machine's own names.
    pub names: Vec<String>,
    /// Reads a short text file.
    pub read: &'a dyn Fn(&str) -> io::Result<String>,
    /// Finds the addresses of a host name; none when it is unknown.
    pub lookup_host: &'a dyn Fn(&str) -> Vec<IpAddr>,
}
