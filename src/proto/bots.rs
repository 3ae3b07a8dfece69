//! The bots of a runner, and which of them answers a call.
//!
//! In: what a caller or a provider names, as a [`BotChoice`]. Out: the index of a bot in the
//! [`BotTable`], or [`UnknownBot`]. The first bot is the default. A runner with one bot has an
//! empty table, and each choice is that bot.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

/// The name of the bot of the command line, or of the top of the file of settings, beside others.
pub const OWN_BOT: &str = "default";
/// The parameter of a query that names a bot.
pub const QUERY: &str = "bot";
/// Bytes of a text that may name a bot.
pub const BYTES_MAX: usize = 64;
/// Characters of the name of a bot.
const NAME_CHARS_MAX: usize = 32;
/// The member of the body that names a bot.
const BODY_MEMBER: &str = "bot";

/// One of several bots. `C` is the configuration of a runner.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NamedBot<C> {
    /// Letters, digits, `-` and `_`.
    pub name: Arc<str>,
    /// The configuration of the runner with the settings of this bot.
    pub config: Arc<C>,
    /// The numbers that callers dial for it, as their provider names them, and ids of trunks.
    pub numbers: Vec<String>,
    /// The telephones that may call it, as in [`NamedBot::admits`]; empty admits all.
    pub callers: Vec<String>,
    /// The names of its devices, in the paths of WHIP and WHEP.
    pub devices: Vec<String>,
    /// The name by which LiveKit's rooms ask for it and for no other bot; without one it is
    /// reached by that of the runner.
    pub agent_name: Option<String>,
    /// Limit of its live sessions; `None` leaves that of the runner.
    pub places: Option<usize>,
    /// Longest session.
    pub session_max: Option<Duration>,
    /// Whether the `body` of a caller may name it.
    pub is_in_body: bool,
}

impl<C> NamedBot<C> {
    /// Returns a bot that callers choose by its name alone.
    pub fn new(name: impl Into<Arc<str>>, config: Arc<C>) -> Self {
        NamedBot {
            name: name.into(),
            config,
            numbers: Vec::new(),
            callers: Vec::new(),
            devices: Vec::new(),
            agent_name: None,
            places: None,
            session_max: None,
            is_in_body: false,
        }
    }

    /// Returns whether a telephone may call it. An entry is a number, or the beginning of one with
    /// `*` behind it; a caller without a number is none of them.
    pub fn admits(&self, caller: Option<&str>) -> bool {
        let caller = caller.map(number_of).filter(|caller| !caller.is_empty());
        let is_one = |entry: &String| {
            caller.as_ref().is_some_and(|caller| match entry.strip_suffix('*') {
                Some(beginning) => is_digits(caller) && caller.starts_with(&number_of(beginning)),
                None => *caller == number_of(entry),
            })
        };
        self.callers.is_empty() || self.callers.iter().any(is_one)
    }
}

/// Returns whether an entry of [`NamedBot::callers`] fits some telephone: a number, the beginning
/// of one with `*` behind it, an address such as `sip:desk@pbx.example.net` or `client:ann`, or
/// `anonymous`.
pub fn is_caller(entry: &str) -> bool {
    match entry.trim().strip_suffix('*') {
        Some("") => true,
        Some(beginning) => is_digits(&number_of(beginning)),
        None => is_digits(&number_of(entry)) || entry.contains([':', '@']) || entry.eq_ignore_ascii_case("anonymous"),
    }
}

/// The bots of a runner with several; empty for one with a single bot.
#[derive(Clone, Debug, Default)]
pub struct BotTable<C>(Vec<NamedBot<C>>);

/// What says which bot answers a call, the most explicit first.
#[derive(Clone, Copy, Debug, Default)]
pub struct BotChoice<'a> {
    /// The name of a bot, in `/start`, in a query or of a job.
    pub name: Option<&'a str>,
    /// The name of a bot or of a device, in a path.
    pub endpoint: Option<&'a str>,
    /// The body of the caller, whose `bot` counts where the operator allows it.
    pub body: Option<&'a Value>,
    /// The agent name by which LiveKit's room asks for a bot.
    pub agent: Option<&'a str>,
    /// The number that was dialled, and the trunk of the call.
    pub dialled: [Option<&'a str>; 2],
}

impl<'a> BotChoice<'a> {
    /// Returns the choice of a caller that names a bot or not.
    pub fn named(name: Option<&'a str>) -> Self {
        BotChoice {
            name,
            ..BotChoice::default()
        }
    }
}

/// No bot has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownBot;

impl<C> BotTable<C> {
    /// Returns the table of these bots, the default first.
    pub fn new(bots: Vec<NamedBot<C>>) -> Self {
        BotTable(bots)
    }

    /// Returns whether the runner has a single bot.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bots, the default first.
    pub fn iter(&self) -> impl Iterator<Item = &NamedBot<C>> {
        self.0.iter()
    }

    /// Returns the bots, the default first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut NamedBot<C>> {
        self.0.iter_mut()
    }

    /// Returns the names of the bots, the default first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|bot| &*bot.name)
    }

    /// Returns the bot at an index; `None` in a runner with a single bot.
    pub fn get(&self, index: usize) -> Option<&NamedBot<C>> {
        self.0.get(index)
    }

    /// Returns the index of the bot that answers a call; 0 is the default, and the only bot.
    ///
    /// # Errors
    /// [`UnknownBot`] if no bot has the name, or no bot or device that of the endpoint.
    pub fn choose(&self, choice: BotChoice<'_>) -> Result<usize, UnknownBot> {
        if self.0.is_empty() {
            return Ok(0);
        }
        let find = |is_it: &dyn Fn(&NamedBot<C>) -> bool| self.0.iter().position(is_it);
        if let Some(name) = choice.name {
            return find(&|bot| *bot.name == *name).ok_or(UnknownBot);
        }
        if let Some(name) = choice.endpoint {
            let found = find(&|bot| *bot.name == *name);
            let of_device = || find(&|bot| bot.devices.iter().any(|device| device == name));
            return found.or_else(of_device).ok_or(UnknownBot);
        }
        let in_body = choice.body.and_then(|body| body.get(BODY_MEMBER)?.as_str());
        let of_body = in_body.and_then(|name| find(&|bot| bot.is_in_body && *bot.name == *name));
        if let Some(index) = of_body {
            return Ok(index);
        }
        let of_agent = choice
            .agent
            .and_then(|agent| find(&|bot| bot.agent_name.as_deref() == Some(agent)));
        if let Some(index) = of_agent {
            return Ok(index);
        }
        let dialled = choice.dialled.into_iter().flatten().map(number_of);
        let of_number = dialled
            .filter(|number| !number.is_empty())
            .find_map(|number| find(&|bot| bot.numbers.iter().any(|own| number_of(own) == number)));
        // The name of the runner leads to none that has its own.
        let of_runner = choice.agent.and_then(|_| find(&|bot| bot.agent_name.is_none()));
        Ok(of_number.or(of_runner).unwrap_or(0))
    }
}

/// Returns whether a text can be the name of a bot.
pub fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=NAME_CHARS_MAX).contains(&text.len()) && text.chars().all(fits)
}

/// Returns the digits of a telephone number, which providers write as `+1555...`, `1555...`,
/// `001555...` or a SIP address; another text, such as the id of a trunk, in lower case.
pub fn number_of(text: &str) -> String {
    let text = text.trim();
    let scheme = ["sip:", "sips:", "tel:"].into_iter().find(|scheme| {
        text.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    let address = scheme.map_or(text, |scheme| &text[scheme.len()..]);
    let address = address.split(['@', ';']).next().unwrap_or_default();
    let plain: String = address
        .chars()
        .filter(|c| !matches!(c, ' ' | '-' | '.' | '(' | ')'))
        .collect();
    let digits = plain.strip_prefix('+').or_else(|| plain.strip_prefix("00"));
    let digits = digits.unwrap_or(&plain);
    match is_digits(digits) {
        true => digits.to_owned(),
        false => text.to_lowercase(),
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests;
