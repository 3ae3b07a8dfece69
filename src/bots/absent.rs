//! The twin of `bots::stock` in a build without `bots`, which asks for a program when it starts.

use crate::abilities::{Ability, Absent};
use crate::bot::{BotError, RunnerArguments};

/// # Errors
/// Always: there is no bot.
pub async fn stock(_args: RunnerArguments) -> Result<(), BotError> {
    Err(format!("a built-in bot {}", Absent(Ability::Bots)).into())
}
