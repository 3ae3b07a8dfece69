//! The built-in bots of the stock binary.
//!
//! In: a session's arguments; `--bot` chooses. [`parrot`] repeats what you said once you pause, [`echo`] plays every frame
//! straight back. Both are ordinary bots: they use nothing that a developer's bot cannot use.

pub mod echo;
pub mod parrot;

use std::process::ExitCode;

use crate::bot::{self, BotError, RunnerArguments};
use crate::cli::start::{Enters, enter};
use crate::config::BuiltInBot;

/// Runs the runner with the built-in bots, which need media of the runner: where they would have to enter a room by themselves,
/// it says so before it makes one.
pub fn main() -> ExitCode {
    enter(bot::erase(stock), env!("CARGO_CRATE_NAME"), Enters::Nothing)
}

/// Runs the built-in bot that the runner was started with.
///
/// # Errors
/// [`crate::bot::MissingField`] in a session without media.
pub async fn stock(args: RunnerArguments) -> Result<(), BotError> {
    match args.cli_args.bot {
        BuiltInBot::Parrot => parrot::parrot(args).await,
        BuiltInBot::Echo => echo::echo(args).await,
    }
}
