//! `/status`: the reply with the transports, the bot and the number of sessions.
//!
//! In: the configuration, the replica, the states of the worker and of the bot's process. Out: the
//! JSON of the reply, and its status code. Source: `docs/spec/runner.md`, decision D-26.

use serde_json::{Value, json};

use super::start::{served_transports, startable_transports};
use crate::config::{Config, ListenAddresses};
use crate::http::cluster::Replica;
use crate::http::page_address::phone_url;
use crate::modules;
use crate::transport::Transport;

/// The response of `/status`, prepared once: only the number of sessions changes.
#[derive(Clone, Debug)]
pub struct StatusReplies {
    /// The text after the word for the state, up to the number of sessions.
    before_sessions: Vec<u8>,
    /// The member with the URL that phones can open, or nothing.
    page: String,
    /// The code while the runner drains.
    draining_code: u16,
}

/// The state of a worker that is registered at a LiveKit server.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerMember {
    pub is_ready: bool,
    /// The word for its state.
    pub word: &'static str,
    pub json: Value,
}

/// The process that loads the bot before its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotProcessMember {
    pub state: BotProcessState,
    /// The last line of the error of the newest one that could not load the bot.
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BotProcessState {
    Starting,
    Ready,
    /// None could load the bot yet. Each call starts a process of its own.
    Failed,
}

impl BotProcessMember {
    fn json(&self) -> Value {
        let state = match self.state {
            BotProcessState::Starting => "starting",
            BotProcessState::Ready => "ready",
            BotProcessState::Failed => "failed",
        };
        match &self.error {
            Some(error) => json!({"state": state, "error": error}),
            None => json!({"state": state}),
        }
    }
}

/// One of several bots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotMember {
    pub name: String,
    /// The process that loads it before its calls.
    pub process: Option<BotProcessMember>,
}

impl BotMember {
    fn json(&self) -> Value {
        match &self.process {
            Some(process) => json!({"name": self.name, "process": process.json()}),
            None => json!({"name": self.name}),
        }
    }
}

impl StatusReplies {
    /// Prepares the response for a configuration, and for the replica that the runner is.
    pub fn new(config: &Config, replica: Option<&Replica>) -> Self {
        let names = |available: bool| -> Vec<&str> {
            served_transports(config)
                .filter(|transport| transport.in_this_build() == available)
                .map(Transport::name)
                .collect()
        };
        // Transports whose sessions start without the bot joining.
        let without_bot: Vec<&str> = startable_transports(config)
            .into_iter()
            .filter(|transport| !transport.has_media() && !config.of_bots().any(|bot| bot.bot_enters_rooms))
            .map(Transport::name)
            .collect();
        // Transports that can only fail until their variables are set.
        let without_credentials: Vec<&str> = startable_transports(config)
            .into_iter()
            .filter(|transport| config.lacks_credentials(*transport))
            .map(Transport::name)
            .collect();
        let members = modules::STATUS_MEMBERS.iter().filter(|(_, is_on)| is_on(config));
        let members: String = members.map(|(name, _)| format!(r#""{name}":true,"#)).collect();
        let bot = match config.command {
            None => {
                let name = config.bot_name.as_deref().unwrap_or(config.bot.name());
                format!(r#""bot":{},"#, json!(name))
            }
            Some(_) => String::new(),
        };
        let mut speech_to: Vec<&str> = Vec::new();
        for host in config.of_bots().flat_map(Config::speech_to) {
            if !speech_to.contains(&host) {
                speech_to.push(host);
            }
        }
        let speech_to = match speech_to {
            hosts if hosts.is_empty() => String::new(),
            hosts => format!(r#""speech_to":{},"#, json!(hosts)),
        };
        let replica_name = match replica {
            Some(replica) => format!(r#""replica":{},"#, json!(replica.name())),
            None => String::new(),
        };
        let text = format!(
            r#"","transports":{},"unavailable":{},"without_bot":{},"without_credentials":{},{members}{bot}{speech_to}{replica_name}"version":"{}","sessions":"#,
            json!(names(true)),
            json!(names(false)),
            json!(without_bot),
            json!(without_credentials),
            env!("CARGO_PKG_VERSION"),
        );
        StatusReplies {
            before_sessions: text.into_bytes(),
            page: String::new(),
            // Most balancers look at the code alone.
            draining_code: if replica.is_some() { 503 } else { 200 },
        }
    }

    /// Adds the URL that phones can open, for pages on this machine. Callers that come through a
    /// proxy do not learn the address behind it.
    pub fn set_addresses(&mut self, config: &Config, listening: &ListenAddresses) {
        let is_behind_proxy = config.proxy.is_some() || !config.trusted_proxies.is_empty();
        if let Some(url) = phone_url(config, listening).filter(|_| !is_behind_proxy) {
            self.page = format!(r#","page":{}"#, json!(url));
        }
    }

    /// Returns the status code of the response.
    pub fn code(&self, draining: bool) -> u16 {
        if draining { self.draining_code } else { 200 }
    }

    /// Returns the JSON of the response. A runner that accepts no new session is `draining`, and
    /// not `ready`; nor is one whose worker has no registration. `new_version` is one that can be
    /// installed.
    pub fn reply(
        &self,
        sessions: usize,
        draining: bool,
        worker: Option<&WorkerMember>,
        bot: Option<&BotProcessMember>,
        bots: &[BotMember],
        new_version: Option<&str>,
    ) -> Vec<u8> {
        use std::io::Write as _;
        const BEGIN: &str = r#"{"status":""#;
        let word = match worker {
            _ if draining => "draining",
            Some(worker) if !worker.is_ready => worker.word,
            _ => "ready",
        };
        // Capacity for the longest word and number, and the brace.
        let mut reply = Vec::with_capacity(BEGIN.len() + self.before_sessions.len() + self.page.len() + 40);
        reply.extend_from_slice(BEGIN.as_bytes());
        reply.extend_from_slice(word.as_bytes());
        reply.extend_from_slice(&self.before_sessions);
        let member = worker.map_or_else(String::new, |worker| format!(r#","worker":{}"#, worker.json));
        let bot = bot.map_or_else(String::new, |bot| format!(r#","bot_process":{}"#, bot.json()));
        let bots = match bots.is_empty() {
            true => String::new(),
            false => format!(r#","bots":{}"#, Value::from_iter(bots.iter().map(BotMember::json))),
        };
        let new = new_version.map_or_else(String::new, |version| format!(r#","new_version":{}"#, json!(version)));
        write!(reply, "{sessions}{}{member}{bot}{bots}{new}}}", self.page).expect("writing to a vector cannot fail");
        reply
    }
}

/// Returns the status code and the JSON of `GET /readyz`: 200 while the runner takes new sessions,
/// else 503 with the reason.
pub fn readiness(has_room: bool, draining: bool, worker: Option<&WorkerMember>) -> (u16, String) {
    let reason = match worker {
        _ if draining => "draining",
        Some(worker) if !worker.is_ready => worker.word,
        _ if !has_room => "full",
        _ => return (200, r#"{"ready":true}"#.to_owned()),
    };
    (503, json!({"ready": false, "reason": reason}).to_string())
}

#[cfg(test)]
mod tests;
