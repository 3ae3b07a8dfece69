//! The options of a command line and their variables: the table of options, arguments and variables
//! in, values or a [`UsageError`] out.
//!
//! - [`OptionTable`]: the options of one command; [`parse()`]: reads the arguments
//! - [`env_options`]: reads the variables of options that were not typed; [`mod@env`]: variables
//!   and `.env`
//! - [`values`] and [`hosts`]: validate texts of one kind; [`help`]: formats a help text

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
pub use table::{Expected, Flag, FlagKind, HOST_HELP, OptionStore, OptionTable, Setter, flag, number, push, put, tls};
pub use usage_error::{UsageError, need};

/// The surroundings that the meaning of the arguments depends on.
pub struct Env<'a> {
    /// The variables of the process and of `.env`.
    pub variables: Variables,
    /// The addresses of this machine's interfaces.
    pub addresses: Vec<IpAddr>,
    /// The names of this machine.
    pub names: Vec<String>,
    /// Reads a short text file.
    pub read: &'a dyn Fn(&str) -> io::Result<String>,
    /// Resolves a host name; returns no address for an unknown name.
    pub lookup_host: &'a dyn Fn(&str) -> Vec<IpAddr>,
}
