//! The client of LiveKit servers: access tokens, signalling, two peer connections and the session.
//!
//! [`connection_details`] holds what a session starts with, [`token`] signs access tokens,
//! [`signal`] runs the signalling protocol with the messages of [`wire`] and keeps the [`roster`],
//! [`receiver`] decodes and mixes the participants' audio, and [`session`] runs a bot in a room.
//! [`packet_queue`], [`text_stream`], [`transcripts`], [`remote_calls`] and
//! [`agent_state`] handle messages, and [`room_service`] has the requests to the server's API.
//! [`worker`] registers the runner at a server that assigns rooms to it.
//! This file answers questions about the configuration: which variables are missing, what the
//! server's URL is, and how often the runner registers. Source: `docs/spec/livekit.md` 2.

#[cfg(feature = "call")]
pub mod call_options;
pub mod config;
pub mod connection_details;
pub mod doctor;
pub mod endpoints;
#[cfg(feature = "call")]
pub mod invite;
pub mod options;
pub mod room_config;
pub mod room_service;
pub mod token;

cfg_if::cfg_if! {
    if #[cfg(feature = "mediaroom")] {
        pub mod agent_state;
        pub mod packet_queue;
        pub mod receiver;
        pub mod remote_calls;
        pub mod roster;
        pub mod session;
        pub mod signal;
        pub mod text_stream;
        pub mod transcripts;
        pub mod wire;
        pub mod worker;
    }
}

pub use crate::bot_message::TRANSCRIPTION_TOPIC;
use crate::config::Config;
pub use crate::livekit::config::missing_variables;
use crate::livekit::config::{Mediaroom, MediaroomWorker};

/// The attribute with the name of an agent.
const NAME_ATTRIBUTE: &str = "lk.agent.name";
/// The attribute with the state of an agent.
const STATE_ATTRIBUTE: &str = "lk.agent.state";

/// Returns the name by which others know the bots of this runner. It is empty for a runner that is
/// registered without a name.
pub fn agent_name(config: &Mediaroom) -> &str {
    let worker = config.worker.as_ref();
    worker.map_or(MediaroomWorker::AGENT_NAME, |worker| &worker.agent_name)
}

/// Returns the registrations of a runner, one for each agent name of its bots, since a connection
/// to the server has one name; none without `--register`.
pub fn registrations(config: &Config) -> Vec<&MediaroomWorker> {
    let mut registrations: Vec<&MediaroomWorker> = Vec::new();
    for worker in config.of_bots().filter_map(|bot| bot.mediaroom.worker.as_ref()) {
        if registrations.iter().all(|other| other.agent_name != worker.agent_name) {
            registrations.push(worker);
        }
    }
    registrations
}

/// Returns the server's URL as `http` or `https`, without a trailing slash.
pub fn http_base(url: &str) -> String {
    with_scheme(url.trim_end_matches('/'), "ws", "http")
}

/// Returns the server's URL as `ws` or `wss`, for clients.
pub fn socket_base(url: &str) -> String {
    with_scheme(url, "http", "ws")
}

/// Replaces the scheme `from` by `to`, and the secure form of one by that of the other.
fn with_scheme(url: &str, from: &str, to: &str) -> String {
    match url.strip_prefix(from) {
        Some(rest) if rest.starts_with("://") || rest.starts_with("s://") => format!("{to}{rest}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BotTable, NamedBot};
    use crate::secret::Secret;

    #[test]
    fn there_is_a_registration_for_each_agent_name() {
        let of = |agent_name: Option<&str>| Config {
            mediaroom: Mediaroom {
                worker: agent_name.map(|agent_name| MediaroomWorker {
                    job_type: crate::job::JobType::Room,
                    agent_name: agent_name.to_owned(),
                    deployment: String::new(),
                    target_load_percent: 70,
                }),
                ..Mediaroom::default()
            },
            ..Config::default()
        };
        let names = |config: &Config| -> Vec<String> {
            let registrations = registrations(config).into_iter();
            registrations.map(|worker| worker.agent_name.clone()).collect()
        };
        assert!(names(&of(None)).is_empty());
        assert_eq!(names(&of(Some("bot"))), ["bot"]);
        let bots = ["seller", "bot", "bot"].map(|agent| NamedBot::new(agent, of(Some(agent)).into()));
        let several = Config {
            bots: BotTable::new(bots.to_vec()),
            ..of(Some("seller"))
        };
        assert_eq!(names(&several), ["seller", "bot"]);
    }

    #[test]
    fn names_each_missing_variable() {
        let none = Mediaroom::default();
        assert_eq!(
            missing_variables(&none),
            ["MEDIAROOM_URL", "MEDIAROOM_API_KEY", "MEDIAROOM_API_SECRET"]
        );
        let half = Mediaroom {
            url: Some("ws://localhost:7880".into()),
            secret: Some(Secret::new("secret")),
            ..none
        };
        assert_eq!(missing_variables(&half), ["MEDIAROOM_API_KEY"]);
        let whole = Mediaroom {
            key: Some("devkey".into()),
            ..half
        };
        assert!(missing_variables(&whole).is_empty());
    }
}
