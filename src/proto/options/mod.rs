//! Options of a command line and their variables: a table says which there are, arguments and
//! variables enter as values, and what they say leaves, or a [`Misuse`].
//!
//! - [`Table`]: the options of one command; [`read()`]: what was typed
//! - [`unsaid`]: what variables say of options that were not typed; [`mod@env`]: variables, and
//!   `.env`
//! - [`values`] and [`hosts`]: texts of one kind; [`help`]: the parts of a help text

pub mod env;
pub mod help;
pub mod hosts;
mod misuse;
mod read;
mod table;
pub mod unsaid;
pub mod values;

use std::io;
use std::net::IpAddr;

use env::Variables;

pub use misuse::{Misuse, need};
pub use read::{Asked, not_unicode, read, split_command};
pub use table::{Flag, HOST_HELP, LowArgs, Set, Table, Takes, Wants, flag, number, push, put, tls};

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
