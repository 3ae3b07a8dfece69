//! The twin of `io::process` in a build without `process`, which refuses a command when it reads the arguments.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::abilities::{Ability, Absent};
use crate::bot::{self, Bot};

/// What would be run for every session.
pub struct Recipe {
    pub command: Vec<OsString>,
    pub withheld: Vec<String>,
    pub folder: Option<PathBuf>,
}

/// Makes a bot that fails.
pub fn bot(recipe: Recipe) -> Bot {
    bot::erase(move |_| {
        let refused = check(&recipe.command, None);
        async { Ok(refused?) }
    })
}

/// # Errors
/// Always: no program can be run.
pub fn check(_command: &[OsString], _folder: Option<&Path>) -> Result<(), String> {
    Err(format!("a program as the bot {}", Absent(Ability::Process)))
}
