//! The bots of a runner: what each call starts, and the places of each.
//!
//! In: the configuration, and what a caller names. Out: a [`SessionBot`], which holds its place
//! until the session has ended. `proto::bots` decides which bot it is.

use std::sync::Arc;
use std::time::Duration;

use crate::bot::Bot;
use crate::config::Config;
use crate::io::running::RunningModule;
use crate::io::tasks::{Slot, SlotPool};
use crate::io::{RunError, bot_of};
use crate::logging;
use crate::proto::bots::{BotChoice, NamedBot, UnknownBot};
use crate::proto::metrics::bots::BotMetrics;
use crate::proto::refusal::SessionRefusal;

/// The bots of a runner, the default first. Clones share them.
#[derive(Clone)]
pub struct Bots {
    config: Arc<Config>,
    rows: Arc<[Arc<BotRow>]>,
}

/// One bot.
pub struct BotRow {
    /// `None` for the only bot.
    named: Option<NamedBot<Config>>,
    /// The configuration that it is given.
    pub config: Arc<Config>,
    pub run: Bot,
    /// Its processes that start before the calls.
    pub processes: Option<Arc<dyn RunningModule>>,
    /// `None` leaves the limit to the runner.
    places: Option<SlotPool>,
    metrics: Arc<BotMetrics>,
}

impl Bots {
    /// Returns the only bot of a runner.
    pub fn only(config: Arc<Config>, bot: Bot, processes: Option<Arc<dyn RunningModule>>) -> Self {
        let row = BotRow {
            named: None,
            config: config.clone(),
            run: bot,
            processes,
            places: None,
            metrics: Arc::default(),
        };
        Bots {
            config,
            rows: Arc::new([Arc::new(row)]),
        }
    }

    /// Returns the bots of a configuration. `bot` is the function of those that run no program.
    ///
    /// # Errors
    /// Returns [`RunError::Command`] for a program that cannot be run.
    pub fn start(config: &Arc<Config>, bot: Bot) -> Result<Self, RunError> {
        if config.bots.is_empty() {
            let (bot, processes) = bot_of(config, bot, None)?;
            return Ok(Bots::only(config.clone(), bot, processes));
        }
        let row = |named: &NamedBot<Config>| -> Result<Arc<BotRow>, RunError> {
            let (run, processes) =
                bot_of(&named.config, bot.clone(), Some(&named.name)).map_err(|error| RunError::OfBot {
                    name: named.name.clone(),
                    error: Box::new(error),
                })?;
            Ok(Arc::new(BotRow {
                named: Some(named.clone()),
                config: named.config.clone(),
                run,
                processes,
                places: named.places.map(SlotPool::new),
                metrics: Arc::default(),
            }))
        };
        Ok(Bots {
            config: config.clone(),
            rows: config.bots.iter().map(row).collect::<Result<_, RunError>>()?,
        })
    }

    /// Returns all bots, the default first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<BotRow>> {
        self.rows.iter()
    }

    /// Returns the bot that a choice names, without a place for a session.
    ///
    /// # Errors
    /// [`UnknownBot`] if there is none.
    pub fn choose(&self, choice: BotChoice<'_>) -> Result<SessionBot, UnknownBot> {
        let index = self.config.bots.choose(choice)?;
        Ok(self.at(index))
    }

    /// Returns the bot that answers a caller who names none.
    pub fn default(&self) -> SessionBot {
        self.at(0)
    }

    fn at(&self, index: usize) -> SessionBot {
        SessionBot {
            row: self.rows[index].clone(),
            place: None,
        }
    }
}

impl BotRow {
    /// Returns its name among several; `None` for the only bot.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.named.as_ref().map(|named| &named.name)
    }

    /// Returns the longest time of a session.
    pub fn session_max(&self) -> Option<Duration> {
        self.named.as_ref()?.session_max
    }

    pub fn metrics(&self) -> &Arc<BotMetrics> {
        &self.metrics
    }
}

/// The bot of a session.
pub struct SessionBot {
    row: Arc<BotRow>,
    /// Released when the session has ended.
    place: Option<Slot>,
}

impl SessionBot {
    pub fn row(&self) -> &BotRow {
        &self.row
    }

    /// Marks the log lines of the session whose code calls this.
    pub fn mark_log(&self) {
        if let Some(name) = self.row.name() {
            logging::set_bot(name);
        }
    }

    /// Rejects a telephone that may not call the bot. `caller` is its number.
    ///
    /// # Errors
    /// [`SessionRefusal::CallerNotAllowed`].
    pub fn check_caller(&self, caller: Option<&str>) -> Result<(), SessionRefusal> {
        match self.row.named.as_ref().is_none_or(|named| named.admits(caller)) {
            true => Ok(()),
            false => Err(SessionRefusal::CallerNotAllowed(self.name())),
        }
    }

    /// Takes a place for a session, unless the bot has no limit of its own.
    ///
    /// # Errors
    /// [`SessionRefusal::BotFull`] if all are taken.
    pub fn take_place(&mut self) -> Result<(), SessionRefusal> {
        let (Some(places), None) = (&self.row.places, &self.place) else {
            return Ok(());
        };
        let place = places.try_acquire();
        self.place = Some(place.ok_or_else(|| SessionRefusal::BotFull(self.name()))?);
        Ok(())
    }

    fn name(&self) -> String {
        self.row.name().map_or_else(String::new, |name| (**name).to_owned())
    }
}
