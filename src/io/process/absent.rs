//! The twin of `io::process` in a build without `process`, which refuses a command when it reads the arguments.

use std::ffi::OsString;

use crate::abilities::{Ability, Absent};
use crate::bot::{self, Bot};

/// Makes a bot that fails.
pub fn bot(command: Vec<OsString>, _withheld: &[String]) -> Bot {
    bot::erase(move |_| {
        let refused = check(&command);
        async { Ok(refused?) }
    })
}

/// # Errors
/// Always: no program can be run.
pub fn check(_command: &[OsString]) -> Result<(), String> {
    Err(format!("a program as the bot {}", Absent(Ability::Process)))
}
