//! The configurations of several bots.
//!
//! In: the values of a start, and the sections of bots in the file of settings. Out: the
//! [`Config`] of the runner with its table of bots. The default is the bot of the command line or
//! of the top of the file; without one it is the first section. Rejects a number, a device or an
//! agent name of two bots.

use crate::config::{BotTable, Config, NamedBot};
use crate::limits::SESSIONS_MAX_DEFAULT;
use crate::proto::bots::{OWN_BOT, number_of};
use crate::proto::options::Expected;

use super::settings::{self, BotSection};
use super::{Env, StartValues, TypedArguments, UsageError};

/// Resolves the values of a start with sections of bots.
///
/// # Errors
/// [`UsageError`] for an invalid value or combination.
pub(super) fn resolve(
    mut values: StartValues<'_>,
    sections: &[BotSection],
    typed: &TypedArguments<'_>,
    env: &Env<'_>,
    warnings: &mut Vec<String>,
) -> Result<Config, UsageError> {
    let args = &values.args;
    let has_own = args.command.is_some() || args.bot.is_some() || args.has_own_bot;
    let sessions_max = args.sessions_max.unwrap_or(SESSIONS_MAX_DEFAULT);
    if let Some(first) = sections.first().filter(|_| !has_own) {
        settings::apply_bot(&mut values, first).map_err(|error| of_bot(first, error))?;
    }
    let mut config = values.resolve(warnings).map_err(|error| {
        // The runner has the settings of the first bot.
        let of_first = sections
            .first()
            .filter(|first| !has_own && settings::is_in(&error, first));
        match of_first {
            Some(first) => of_bot(first, error),
            None => error,
        }
    })?;
    let mut bots = Vec::new();
    if has_own {
        bots.push(NamedBot::new(OWN_BOT, config.clone().into()));
    }
    for section in sections {
        let bot = bot(section, typed, env, warnings);
        bots.push(bot.map_err(|error| of_bot(section, error))?);
    }
    for bot in &mut bots {
        // Without a limit of its own, a bot has that of the runner.
        let own = bot.config.sessions_max;
        bot.places = (own < sessions_max).then_some(own);
    }
    check_names(&bots)?;
    if let Some(first) = bots.first().filter(|_| !has_own) {
        config.bot_environment.clone_from(&first.config.bot_environment);
    }
    config.sessions_max = sessions_max;
    config.bots = BotTable::new(bots);
    Ok(config)
}

/// Resolves the values of a start for one bot.
fn bot(
    section: &BotSection,
    typed: &TypedArguments<'_>,
    env: &Env<'_>,
    warnings: &mut Vec<String>,
) -> Result<NamedBot<Config>, UsageError> {
    let mut values = StartValues::read(typed.parse()?.0, env)?;
    settings::apply_bot(&mut values, section)?;
    let mut of_bot = Vec::new();
    let config = values.resolve(&mut of_bot)?;
    // What the runner has for others, such as a setting of a built-in bot, is no mistake here.
    of_bot.retain(|warning| settings::is_about(warning, section) && !warnings.contains(warning));
    warnings.extend(
        of_bot
            .into_iter()
            .map(|warning| format!("[{}]: {warning}", section.key())),
    );
    settings::named_bot(section, config, env)
}

/// Names the section in an error.
fn of_bot(section: &BotSection, error: UsageError) -> UsageError {
    UsageError::Combination(format!("[{}]: {error}", section.key()))
}

/// Rejects a bot of the sound card that there is not.
///
/// # Errors
/// [`UsageError`] with the names of all bots.
pub(super) fn check_local(config: &Config) -> Result<(), UsageError> {
    let named = config.local.as_ref().and_then(|local| local.bot.as_deref());
    let Some(name) = named else {
        return Ok(());
    };
    let names: Vec<&str> = config.bots.names().collect();
    match names.is_empty() {
        true => Err(UsageError::Combination(
            "`--local-bot` chooses one of several bots, which are sections of a file of settings (--config)".into(),
        )),
        false if names.contains(&name) => Ok(()),
        false => Err(UsageError::value(
            "--local-bot",
            name,
            Expected::one_of(name, &names, &[]),
        )),
    }
}

/// Rejects a number, a device or an agent name of two bots, and a device with the name of another
/// bot.
fn check_names(bots: &[NamedBot<Config>]) -> Result<(), UsageError> {
    for (at, bot) in bots.iter().enumerate() {
        for other in &bots[..at] {
            let is_shared = |number: &&String| other.numbers.iter().any(|own| number_of(own) == number_of(number));
            let number = bot.numbers.iter().find(is_shared);
            let is_device = |device: &&String| other.devices.contains(device) || **device == *other.name;
            let device = bot.devices.iter().find(is_device);
            let is_bot = |device: &&String| **device == *bot.name;
            let device = device.or_else(|| other.devices.iter().find(is_bot));
            let agent_name = bot.config.agent_name().filter(|name| {
                let is_own = bot.agent_name.is_some() || other.agent_name.is_some();
                is_own && other.config.agent_name() == Some(name)
            });
            if let Some(shared) = number.or(device).map(String::as_str).or(agent_name) {
                return Err(UsageError::Combination(format!(
                    "`{shared}` leads to the bot `{}` and to `{}`: it can be one of them",
                    other.name, bot.name
                )));
            }
        }
    }
    Ok(())
}
