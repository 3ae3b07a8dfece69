//! `/status`: the reply with the transports, the bot and the number of sessions.
//!
//! In: the configuration, the replica, the states of the worker and of the bot's process. Out: the
//! JSON of the reply, and its status code. Source: `docs/spec/runner.md`, decision D-26.

use serde_json::{Value, json};

use super::start::{served_transports, startable_transports};
use crate::config::{Config, ListenAddresses};
use crate::http::cluster::Replica;
use crate::http::page_address::phone_url;
use crate::livekit::missing_variables;
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
            .filter(|transport| *transport == Transport::Videoroom && !config.of_bots().any(|bot| bot.bot_enters_rooms))
            .map(Transport::name)
            .collect();
        // Transports that can only fail until their variables are set.
        let without_credentials: Vec<&str> = startable_transports(config)
            .into_iter()
            .filter(|transport| match transport {
                Transport::Mediaroom => !missing_variables(&config.mediaroom).is_empty(),
                Transport::Videoroom => config.videoroom.key.is_none() && config.videoroom.room_url.is_none(),
                _ => false,
            })
            .map(Transport::name)
            .collect();
        let messaging = config.messaging.as_ref().map_or("", |_| r#""messaging":true,"#);
        let local = config.local.as_ref().map_or("", |_| r#""local":true,"#);
        let recording = config.calls.record.as_ref().map_or("", |_| r#""recording":true,"#);
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
            r#"","transports":{},"unavailable":{},"without_bot":{},"without_credentials":{},{messaging}{local}{recording}{bot}{speech_to}{replica_name}"version":"{}","sessions":"#,
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
    /// not `ready`; nor is one whose worker has no registration.
    pub fn reply(
        &self,
        sessions: usize,
        draining: bool,
        worker: Option<&WorkerMember>,
        bot: Option<&BotProcessMember>,
        bots: &[BotMember],
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
        write!(reply, "{sessions}{}{member}{bot}{bots}}}", self.page).expect("writing to a vector cannot fail");
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
mod tests {
    use super::*;
    use crate::assistant::service_url::ServiceUrl;
    use crate::http::cluster::ClusterKey;
    use crate::moq::config::MoqUdpPort;
    use crate::options::host::Host;
    use crate::server::tls_config::Tls;

    fn config(transport: Option<Transport>) -> Config {
        Config {
            transport,
            ..Config::default()
        }
    }

    /// Pages on this machine learn where phones find the runner, but not from behind a proxy.
    #[test]
    fn status_names_the_page_for_phones() {
        let listening = ListenAddresses {
            port: 7860,
            rtc_port: 7860,
            moq_port: MoqUdpPort::default(),
            addresses: vec![[192, 168, 1, 2].into()],
        };
        let page = |config: Config| -> Value {
            let mut status = StatusReplies::new(&config, None);
            status.set_addresses(&config, &listening);
            let reply: Value = serde_json::from_slice(&status.reply(3, false, None, None, &[])).expect("JSON");
            reply["page"].clone()
        };
        let everywhere = || Config {
            host: Host::Address([0, 0, 0, 0].into()),
            tls: Tls::Auto,
            ..Config::default()
        };
        assert_eq!(page(everywhere()), "https://192.168.1.2:7860/");
        assert_eq!(page(Config::default()), Value::Null, "localhost alone");
        let proxied = Config {
            proxy: Some("bots.example.net".into()),
            ..everywhere()
        };
        assert_eq!(page(proxied), Value::Null);
    }

    /// Several bots have their names, each with the state of its process.
    #[test]
    fn status_names_the_bots() {
        let member = |name: &str, process| BotMember {
            name: name.to_owned(),
            process,
        };
        let starting = BotProcessMember {
            state: BotProcessState::Starting,
            error: None,
        };
        let bots = [member("sales", None), member("home", Some(starting))];
        let reply = StatusReplies::new(&Config::default(), None).reply(0, false, None, None, &bots);
        let status: Value = serde_json::from_slice(&reply).expect("a reply is JSON");
        let expected = json!([{"name": "sales"}, {"name": "home", "process": {"state": "starting"}}]);
        assert_eq!(status["bots"], expected);
    }

    /// A bot that is loaded before its calls has a state; its error is for those who may see it.
    #[test]
    fn status_has_the_state_of_the_process_of_the_bot() {
        let member = |state, error: Option<&str>| -> Value {
            let bot = BotProcessMember {
                state,
                error: error.map(str::to_owned),
            };
            let reply = StatusReplies::new(&Config::default(), None).reply(0, false, None, Some(&bot), &[]);
            let status: Value = serde_json::from_slice(&reply).expect("a reply is JSON");
            status["bot_process"].clone()
        };
        assert_eq!(member(BotProcessState::Starting, None), json!({"state": "starting"}));
        assert_eq!(member(BotProcessState::Ready, None), json!({"state": "ready"}));
        let error = "ModuleNotFoundError: No module named \"x\" (bot.py, line 3)";
        assert_eq!(
            member(BotProcessState::Failed, Some(error)),
            json!({"state": "failed", "error": error})
        );
    }

    /// A video room needs a key that creates one, or the URL of one that exists.
    #[test]
    fn status_names_transports_without_credentials() {
        let lacking = |config: &Config| -> Value {
            let reply = StatusReplies::new(config, None).reply(0, false, None, None, &[]);
            let status: Value = serde_json::from_slice(&reply).expect("a reply is JSON");
            status["without_credentials"].clone()
        };
        let mut keyed = config(None);
        keyed.videoroom.key = Some(crate::secret::Secret::new("key"));
        let mut given = config(None);
        given.videoroom.room_url = Some("https://h/r".into());
        assert_eq!(lacking(&config(None)), json!(["videoroom", "mediaroom"]));
        assert_eq!(lacking(&keyed), json!(["mediaroom"]));
        assert_eq!(lacking(&given), json!(["mediaroom"]));
        assert_eq!(lacking(&config(Some(Transport::WebRtc))), json!([]));
    }

    /// R-044, R-070: the transports of this build, those it lacks, and the load.
    #[test]
    fn status_describes_this_build() {
        let status = |transport, sessions| -> Value {
            let status = StatusReplies::new(&config(transport), None);
            let reply = |draining| -> Value {
                serde_json::from_slice(&status.reply(sessions, draining, None, None, &[])).expect("a reply is JSON")
            };
            let (ready, mut draining) = (reply(false), reply(true));
            assert_eq!(draining["status"].take(), json!("draining"));
            draining["status"] = json!("ready");
            assert_eq!(draining, ready, "nothing else changes");
            ready
        };
        assert_eq!(
            status(None, 3),
            json!({
                "status": "ready",
                "transports": [
                    "webrtc", "videoroom", "mediaroom", "telephony_a", "telephony_b", "telephony_c", "telephony_d",
                    "websocket"
                ],
                "unavailable": [],
                "without_bot": [],
                "without_credentials": ["videoroom", "mediaroom"],
                "bot": "parrot",
                "version": env!("CARGO_PKG_VERSION"),
                "sessions": 3,
            })
        );
        let stock = Config {
            bot_enters_rooms: false,
            ..Config::default()
        };
        // A worker without a registration takes no rooms.
        let worker = |is_ready, word| WorkerMember {
            is_ready,
            word,
            json: json!({"state": word}),
        };
        for (member, draining, expected) in [
            (worker(true, "registered"), false, "ready"),
            (worker(false, "refused"), false, "refused"),
            (worker(true, "registered"), true, "draining"),
        ] {
            let reply = StatusReplies::new(&stock, None).reply(0, draining, Some(&member), None, &[]);
            let status: Value = serde_json::from_slice(&reply).expect("JSON");
            assert_eq!((&status["status"], &status["worker"]), (&json!(expected), &member.json));
        }
        let stock: Value =
            serde_json::from_slice(&StatusReplies::new(&stock, None).reply(0, false, None, None, &[])).expect("JSON");
        assert_eq!(stock["without_bot"], json!(["videoroom"]), "its bot cannot enter one");
        assert_eq!(
            stock["transports"].as_array().map(Vec::len),
            Some(8),
            "and all are served"
        );
        let calls = Config {
            messaging: Some(crate::whatsapp::config::Messaging::for_tests("http://127.0.0.1:9")),
            ..Config::default()
        };
        let mut calls: Value =
            serde_json::from_slice(&StatusReplies::new(&calls, None).reply(3, false, None, None, &[])).expect("JSON");
        let one_key_more = calls.as_object_mut().expect("an object").remove("messaging");
        assert_eq!((one_key_more, calls), (Some(json!(true)), status(None, 3)));
        let mut far = Config {
            bot: crate::built_in_bot::BuiltInBot::Realtime,
            ..Config::default()
        };
        far.assistant.realtime.url = ServiceUrl::parse("wss://api.openai.com/v1?key=k").expect("a URL");
        let of_bot = |config: &Config| -> Vec<Value> {
            let status: Value =
                serde_json::from_slice(&StatusReplies::new(config, None).reply(0, false, None, None, &[]))
                    .expect("JSON");
            ["bot", "speech_to"].map(|name| status[name].clone()).into()
        };
        assert_eq!(of_bot(&far), [json!("realtime"), json!(["api.openai.com"])]);
        let own = Config {
            bot_name: Some("kitchen".into()),
            ..far.clone()
        };
        assert_eq!(of_bot(&own), [json!("kitchen"), Value::Null]);
        let program = Config {
            command: Some(vec!["bot".into()]),
            ..far
        };
        assert_eq!(of_bot(&program), [Value::Null, Value::Null]);
        // D-26: a replica has a name, and while it drains, a code that balancers understand.
        let key = ClusterKey::new(crate::secret::Secret::new("key"));
        let replica = Replica::new(&key, Some("a"), [1; 8]);
        let replica = StatusReplies::new(&Config::default(), Some(&replica));
        assert_eq!((replica.code(false), replica.code(true)), (200, 503));
        let mut named: Value = serde_json::from_slice(&replica.reply(3, false, None, None, &[])).expect("JSON");
        let name = named.as_object_mut().expect("an object").remove("replica");
        assert_eq!((name, named), (Some(json!("a")), status(None, 3)));
        let alone = StatusReplies::new(&Config::default(), None);
        assert_eq!((alone.code(false), alone.code(true)), (200, 200));
        let one = status(Some(Transport::WebRtc), usize::MAX);
        assert_eq!(
            (&one["transports"], &one["unavailable"]),
            (&json!(["webrtc"]), &json!([]))
        );
        assert_eq!(one["sessions"], json!(usize::MAX));
    }

    #[test]
    fn a_runner_is_ready_while_it_takes_new_sessions() {
        let worker = |is_ready, word| WorkerMember {
            is_ready,
            word,
            json: Value::Null,
        };
        let (lost, registered) = (worker(false, "connecting"), worker(true, "registered"));
        for (has_room, draining, worker, reason) in [
            (true, false, None, None),
            (true, false, Some(&registered), None),
            (false, false, None, Some("full")),
            (true, true, None, Some("draining")),
            (true, false, Some(&lost), Some("connecting")),
            (false, true, Some(&lost), Some("draining")),
        ] {
            let (code, body) = readiness(has_room, draining, worker);
            let body: Value = serde_json::from_str(&body).expect("JSON");
            assert_eq!(code, if reason.is_none() { 200 } else { 503 });
            assert_eq!(
                (body["ready"] == true, body["reason"].as_str()),
                (reason.is_none(), reason)
            );
        }
    }
}
