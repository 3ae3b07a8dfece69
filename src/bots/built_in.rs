//! Selects the built-in bot.

use super::{echo, parrot};
use crate::bot::{BotError, RunnerArguments};
use crate::config::BuiltInBot;
use crate::proto::modules::NO_VIDEO_ROOMS;

cfg_if::cfg_if! {
    if #[cfg(feature = "assistants")] {
        use super::assistant::cascade::cascade;
        use super::assistant::realtime::realtime;
    } else {
        use absent as cascade;
        use absent as realtime;

        /// The command line rejects a bot that this build lacks.
        async fn absent(args: RunnerArguments) -> Result<(), BotError> {
            Err(format!("the bot `{}` is not in this build", args.cli_args.bot.name()).into())
        }
    }
}

/// Runs the built-in bot that the configuration selects.
///
/// # Errors
/// An error in a video room, and [`crate::bot::MissingField`] in another session without media.
pub async fn built_in_bot(args: RunnerArguments) -> Result<(), BotError> {
    if let Some(rooms) = args.kind.rooms_of_bot() {
        return Err(format!(
            "the built-in bot `{}` cannot join {rooms}: {NO_VIDEO_ROOMS}",
            args.cli_args.bot.name()
        )
        .into());
    }
    // Boxed, because the memory of a call would otherwise be that of the largest bot.
    match args.cli_args.bot {
        BuiltInBot::Parrot => Box::pin(parrot::parrot(args)).await,
        BuiltInBot::Echo => Box::pin(echo::echo(args)).await,
        BuiltInBot::Realtime => Box::pin(realtime(args)).await,
        BuiltInBot::Cascade => Box::pin(cascade(args)).await,
    }
}
