//! The options of a command line and their variables: the table of options, arguments and variables
//! in, values or a [`UsageError`] out.
//!
//! - [`OptionTable`]: the options of one command; [`parse()`]: reads the arguments
//! - [`env_options`]: reads the variables of options that were not typed; [`mod@env`]: variables
//!   and `.env`
//! - [`values`] and [`hosts`]: validate texts of one kind; [`help`]: formats a help text
//! - [`variables`]: the variables of a module that are not of its options

pub mod env;
pub mod env_options;
pub mod help;
pub mod host;
pub mod hosts;
pub(crate) mod parse;
pub mod suggest;
mod table;
mod usage_error;
pub mod values;
pub mod variables;

use std::io;
use std::net::IpAddr;
use std::path::Path;

use env::Variables;

use crate::limits::KEY_FILE_BYTES_MAX;

pub use parse::{SpecialMode, from_lexopt, not_unicode, parse, split_command};
pub use table::{
    ACCESS, BOTS, CALLS, Expected, Flag, FlagKind, HOST_HELP, OptionStore, OptionTable, ROOMS_AND_CALLS, SERVER,
    Setter, ValueSource, flag, number, push, put, tls,
};
pub use usage_error::{UsageError, need};

/// The surroundings that the meaning of the arguments depends on.
pub struct Env<'a> {
    /// The variables of the process and of `.env`.
    pub variables: Variables,
    /// The addresses of this machine's interfaces.
    pub addresses: Vec<IpAddr>,
    /// The names of this machine.
    pub names: Vec<String>,
    /// Reads a file of at most [`OPTION_FILE_BYTES_MAX`](crate::limits::OPTION_FILE_BYTES_MAX).
    pub read: &'a dyn Fn(&str) -> io::Result<Vec<u8>>,
    /// Returns the key of callers that is kept in a folder, and makes one if there is none.
    pub make_key: &'a dyn Fn(&Path) -> io::Result<String>,
    /// Resolves a host name; returns no address for an unknown name.
    pub lookup_host: &'a dyn Fn(&str) -> Vec<IpAddr>,
}

impl Env<'_> {
    /// Returns the surroundings of a machine that has these variables alone: no file can be read,
    /// and no key made.
    pub fn of_variables<Name: AsRef<str>, Value: AsRef<str>>(variables: &[(Name, Value)]) -> Self {
        let pairs = variables
            .iter()
            .map(|(name, value)| (name.as_ref().to_owned(), value.as_ref().to_owned()));
        Self {
            variables: Variables::new(pairs, []),
            addresses: Vec::new(),
            names: Vec::new(),
            read: &|_| Err(io::ErrorKind::NotFound.into()),
            make_key: &|_| Err(io::ErrorKind::NotFound.into()),
            lookup_host: &|_| Vec::new(),
        }
    }

    /// Reads a text file of at most [`KEY_FILE_BYTES_MAX`].
    ///
    /// # Errors
    /// The system's error, or one about the length or the encoding.
    pub fn read_text(&self, path: &str) -> io::Result<String> {
        if path.contains("://") {
            return Err(io::Error::other("it is a URL, and the name of a file is expected"));
        }
        let bytes = (self.read)(path)?;
        if bytes.len() as u64 > KEY_FILE_BYTES_MAX {
            return Err(io::Error::other(format!(
                "it is longer than {KEY_FILE_BYTES_MAX} bytes"
            )));
        }
        String::from_utf8(bytes).map_err(|_| io::Error::other("it is no text in UTF-8"))
    }
}
