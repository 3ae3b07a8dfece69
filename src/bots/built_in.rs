//! Selects the built-in bot.

use super::{NO_VIDEO_ROOMS, echo, parrot};
use crate::bot::{BotError, Kind, RunnerArguments};
use crate::config::BuiltInBot;

/// Runs the built-in bot that the configuration selects.
///
/// # Errors
/// An error in a video room, and [`crate::bot::MissingField`] in another session without media.
pub async fn built_in_bot(args: RunnerArguments) -> Result<(), BotError> {
    if let Kind::Videoroom(_) = args.kind {
        return Err(format!(
            "the built-in bot `{}` cannot join Daily rooms: {NO_VIDEO_ROOMS}",
            args.cli_args.bot.name()
        )
        .into());
    }
    // Boxed, because the memory of a call would otherwise be that of the largest bot.
    match args.cli_args.bot {
        BuiltInBot::Parrot => Box::pin(parrot::parrot(args)).await,
        BuiltInBot::Echo => Box::pin(echo::echo(args)).await,
        #[cfg(feature = "assistants")]
        BuiltInBot::Realtime => Box::pin(super::assistant::realtime::realtime(args)).await,
        #[cfg(feature = "assistants")]
        BuiltInBot::Cascade => Box::pin(super::assistant::cascade::cascade(args)).await,
        // The command line refuses them.
        #[cfg(not(feature = "assistants"))]
        BuiltInBot::Realtime | BuiltInBot::Cascade => {
            Err(format!("the bot `{}` is not in this build", args.cli_args.bot.name()).into())
        }
    }
}
