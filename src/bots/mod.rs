//! The built-in bots of the stock binary.
//!
//! In: a session's arguments; `--bot` chooses. [`parrot`] repeats what you said once you pause, [`echo`] plays every frame
//! straight back. Both are ordinary bots: they use nothing that a developer's bot cannot use.

pub mod echo;
pub mod parrot;

use std::process::ExitCode;

use crate::bot::{self, BotError, Kind, RunnerArguments};
use crate::cli::start::{Enters, enter};
use crate::config::BuiltInBot;

/// Why the built-in bots are not in video rooms, and what to do.
pub(crate) const STAYS_OUT: &str = "a video room is entered with its provider's own library, whose protocol is closed; give the \
                                    runner a bot that has it, a program after `--` or one of your own";

/// Runs the runner with the built-in bots, which need media of the runner: that they cannot enter video rooms is said when it
/// starts.
pub fn main() -> ExitCode {
    enter(bot::erase(stock), env!("CARGO_CRATE_NAME"), Enters::Nothing)
}

/// Runs the built-in bot that the runner was started with.
///
/// # Errors
/// In a video room, and [`crate::bot::MissingField`] in any other session without media.
pub async fn stock(args: RunnerArguments) -> Result<(), BotError> {
    if let Kind::Videoroom(_) = args.kind {
        return Err(format!(
            "the built-in bot `{}` stays outside: {STAYS_OUT}",
            args.cli_args.bot.name()
        )
        .into());
    }
    match args.cli_args.bot {
        BuiltInBot::Parrot => parrot::parrot(args).await,
        BuiltInBot::Echo => echo::echo(args).await,
    }
}
