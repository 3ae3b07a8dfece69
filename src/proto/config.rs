//! The checked configuration: the only input of `io::run`.
//!
//! Holds values only: `cli` reads arguments, variables and files and builds a [`Config`]; the other
//! layers read it. `cli` rejects invalid combinations of options before.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

pub use crate::aliases::StartNames;
pub use crate::assistant::config::{
    AssistantConfig, BodyPermissions, CascadeConfig, CascadeServices, ChatModelConfig, DetectorKind, Greeting,
    NoiseReduction, PromptVoiceConfig, RealtimeConfig, RecognizerConfig, ToolsConfig, ToolsEndpoint, TurnDetection,
    VoiceConfig,
};
pub use crate::assistant::service_url::{Dialect, ServiceUrl, ServiceVendor};
pub use crate::assistant::services::endpoint::{ServiceAccess, ServiceEndpoint};
pub use crate::bots::{BotTable, NamedBot};
pub use crate::built_in_bot::BuiltInBot;
pub use crate::calls::config::CallsConfig;
pub use crate::daily::config::Videoroom;
pub use crate::features::Feature;
pub use crate::http::cluster::{ClusterConfig, ClusterKey};
use crate::http::uploads::UPLOADS_DEFAULT;
pub use crate::job::JobType;
use crate::limits::{OPUS_COMPLEXITY_DEFAULT, SESSIONS_MAX_DEFAULT};
use crate::livekit::config::missing_variables;
pub use crate::livekit::config::{Mediaroom, MediaroomWorker};
pub use crate::local::config::{
    AlsaDefault, AudioBackEnd, AudioDevice, LocalConfig, LocalEcho, LocalStart, WakeConfig,
};
pub use crate::metrics::MetricsAccess;
#[doc(hidden)]
pub use crate::moq::config::MoqUdpPort;
pub use crate::moq::config::{MoqCertificate, MoqConfig, MoqMode};
pub use crate::options::host::Host;
use crate::options::hosts::is_local_name;
pub use crate::process::{BotAudio, PythonBot};
pub use crate::secret::{Secret, SecretBytes};
pub use crate::server::forwarded::{Network, NetworkParseError};
#[doc(hidden)]
pub use crate::server::tls_config::TlsSettings;
pub use crate::server::tls_config::{AcmeConfig, Tls};
pub use crate::telephony::provider::Provider;
pub use crate::telephony::settings::{Settings, Telephony};
pub use crate::transport::Transport;
pub use crate::webrtc::ice::IceServer;
pub use crate::whatsapp::config::Messaging;

/// The validated configuration of the runner. Fields may be added: start from [`Config::default`]
/// and change single fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Host on which the HTTP server listens.
    pub host: Host,
    /// HTTP port; 0 selects a free one.
    pub port: u16,
    /// UDP port of all WebRTC sessions; `None` means the number of the HTTP port, 0 a free one.
    pub rtc_port: Option<u16>,
    /// The transport of `-t`; `None` serves all.
    pub transport: Option<Transport>,
    /// Public host name, without a scheme or trailing slash.
    pub proxy: Option<String>,
    /// Proxies on other machines whose forwarding headers are trusted.
    pub trusted_proxies: Vec<Network>,
    /// Allowed origins in lower case, without a default port; empty allows every origin.
    pub allowed_origins: Vec<String>,
    /// Accepted host names beside those that are always accepted, in lower case: those of this
    /// machine, and of `--allowed-hosts`.
    pub host_names: Vec<String>,
    /// API key that `/start` and `/api/offer` require; `None` requires none.
    pub api_key: Option<Secret>,
    /// The key that replicas behind a balancer share; `None` for a runner of its own.
    pub cluster: Option<ClusterConfig>,
    /// Source of the HTTPS certificate.
    pub tls: Tls,
    /// Settings of [`Tls::Acme`].
    pub acme: AcmeConfig,
    /// Folder of the files that the runner creates; `None` if no folder is known.
    pub state_dir: Option<PathBuf>,
    /// The options and variables that are set, by their keys, for a comparison with later ones.
    #[doc(hidden)]
    pub set: Vec<(String, Secret)>,
    /// The file of settings, if it contains a secret.
    pub secret_settings: Option<PathBuf>,
    /// The file of settings that the page may change; `None` if it may change none.
    #[doc(hidden)]
    pub settings_page: Option<PathBuf>,
    /// Whether the runner asks for newer versions of itself.
    pub update_check: UpdateCheck,
    /// Folder that replaces the built-in page at `/client/`.
    pub page_dir: Option<PathBuf>,
    /// Folder whose files clients may download from `/files/`.
    pub downloads_dir: Option<PathBuf>,
    /// Folder for files that clients upload for the bot.
    pub uploads_dir: Option<PathBuf>,
    /// Files in that folder, of which the oldest are deleted for a new one; 0 keeps all.
    pub uploads_max: usize,
    /// Clients that may read `/metrics`.
    pub metrics: MetricsAccess,
    /// Records of calls.
    pub calls: CallsConfig,
    /// Time that live sessions have to end on their own after a stop request.
    pub drain: Duration,
    /// STUN and TURN servers from which the runner gathers candidates and that clients receive,
    /// before those of `enableDefaultIceServers`.
    pub ice_servers: Vec<IceServer>,
    /// Additional host addresses to offer as candidates.
    pub ice_addresses: Vec<IpAddr>,
    /// The only address in answers to microcontrollers; `None` without `--embedded`.
    pub embedded: Option<Ipv4Addr>,
    /// The bots, if there are several. The fields about one bot below are those of the default.
    pub bots: BotTable<Config>,
    /// The built-in bot that the stock binary runs.
    pub bot: BuiltInBot,
    /// The name of a bot of your own, which runs in place of the built-in one; `/status` and the
    /// page show it.
    pub bot_name: Option<String>,
    /// The program that is the bot, with its arguments; `None` runs [`Config::bot`].
    pub command: Option<Vec<OsString>>,
    /// Set if the first word of that program is a file in Python, which an interpreter runs.
    pub python_bot: Option<PythonBot>,
    /// Processes that have loaded the program before a call; 0 starts one for each call.
    pub warm: usize,
    /// What each process of the program may have of private memory, in MiB.
    pub bot_memory_mib: Option<u64>,
    /// Audio interface of that program.
    pub bot_audio: BotAudio,
    /// Environment variables that the program does not inherit.
    pub withheld: Vec<String>,
    /// Environment variables of the program alone, in place of inherited ones.
    pub bot_environment: Vec<(String, Secret)>,
    /// Working directory of the program; `None` means that of the runner.
    pub bot_folder: Option<PathBuf>,
    /// The files that programs in a sandbox do not see; `None` runs them without a sandbox.
    pub sandbox: Option<Vec<PathBuf>>,
    /// Whether WebSockets require a one-time token of `/start`.
    pub ws_tokens: bool,
    /// Settings of telephony providers.
    pub telephony: Telephony,
    /// Settings of Daily rooms.
    pub videoroom: Videoroom,
    /// Settings of LiveKit rooms.
    pub mediaroom: Mediaroom,
    /// The WhatsApp account; `None` without `--messaging`.
    pub messaging: Option<Messaging>,
    /// Media over QUIC, which only `-t moq` serves.
    pub moq: MoqConfig,
    /// The sound card as a caller; `None` without `--local`.
    pub local: Option<LocalConfig>,
    /// The built-in bots that use services.
    pub assistant: AssistantConfig,
    /// Names of the fields of a Daily room in the response of `/start`.
    pub start_names: StartNames,
    /// Whether to run one bot in one Daily room, without a web server.
    pub direct: bool,
    /// Whether the bot can join a Daily room by itself: programs and custom bots can, the built-in
    /// ones cannot.
    pub bot_enters_rooms: bool,
    /// Limit of live sessions.
    pub sessions_max: usize,
    /// Worker threads of the runtime; `None` means one per core.
    pub workers: Option<usize>,
    /// Complexity of the Opus encoder, 0 to 10.
    pub opus_complexity: u8,
    /// Number of `-v` options.
    pub verbosity: u8,
    /// The format of log lines.
    pub log: LogFormat,
}

/// Makes a [`Config`] from another one and the fields that differ, for tests of other crates.
#[cfg(feature = "testing")]
#[doc(hidden)]
#[macro_export]
macro_rules! config {
    ($($field:ident: $value:expr,)* ..$base:expr) => {{
        let mut config: $crate::config::Config = $base;
        $(config.$field = $value;)*
        config
    }};
}

impl Default for Config {
    /// Returns the configuration without options and variables.
    fn default() -> Self {
        Config {
            host: Host::Localhost,
            port: 7860,
            rtc_port: None,
            transport: None,
            proxy: None,
            trusted_proxies: Vec::new(),
            allowed_origins: Vec::new(),
            host_names: Vec::new(),
            api_key: None,
            cluster: None,
            tls: Tls::Off,
            acme: AcmeConfig::default(),
            state_dir: None,
            set: Vec::new(),
            secret_settings: None,
            settings_page: None,
            update_check: UpdateCheck::default(),
            page_dir: None,
            downloads_dir: None,
            uploads_dir: None,
            uploads_max: UPLOADS_DEFAULT,
            metrics: MetricsAccess::Local,
            calls: CallsConfig::default(),
            drain: Duration::ZERO,
            ice_servers: Vec::new(),
            ice_addresses: Vec::new(),
            embedded: None,
            bots: BotTable::default(),
            bot: BuiltInBot::Parrot,
            bot_name: None,
            command: None,
            withheld: Vec::new(),
            bot_environment: Vec::new(),
            python_bot: None,
            warm: 0,
            bot_memory_mib: None,
            bot_audio: BotAudio::default(),
            bot_folder: None,
            sandbox: None,
            ws_tokens: false,
            telephony: Telephony::default(),
            videoroom: Videoroom::default(),
            mediaroom: Mediaroom::default(),
            messaging: None,
            moq: MoqConfig::default(),
            local: None,
            assistant: AssistantConfig::default(),
            start_names: StartNames::default(),
            direct: false,
            bot_enters_rooms: true,
            sessions_max: SESSIONS_MAX_DEFAULT,
            workers: None,
            opus_complexity: OPUS_COMPLEXITY_DEFAULT,
            verbosity: 0,
            log: LogFormat::Text,
        }
    }
}

impl Config {
    /// Returns the transport of a `/start` request that names none: that of `-t`, else the first of
    /// this build.
    pub fn default_transport(&self) -> Transport {
        let first = || Transport::ALL.into_iter().find(|transport| transport.in_this_build());
        self.transport.or_else(first).unwrap_or(Transport::WebRtc)
    }

    /// Returns the configuration of each bot: that of every one of several, or this one.
    pub fn of_bots(&self) -> impl Iterator<Item = &Config> {
        let only = self.bots.is_empty().then_some(self);
        self.bots.iter().map(|bot| &*bot.config).chain(only)
    }

    /// Returns the settings of HTTPS.
    #[doc(hidden)]
    pub fn tls_settings(&self) -> TlsSettings {
        TlsSettings {
            tls: self.tls.clone(),
            acme: self.acme.clone(),
            host_names: self.host_names.clone(),
            state_dir: self.state_dir.clone(),
            ca_url: "/ca.crt of this server".into(),
        }
    }

    /// Returns whether any web page in a browser that reaches this runner can create Daily rooms
    /// with `/start` and read their tokens, because neither allowed origins nor an API key is set.
    pub fn creates_rooms_for_pages(&self) -> bool {
        let serves = matches!(self.transport, None | Some(Transport::Videoroom)) && !self.direct;
        let can = self.videoroom.key.is_some() && self.bot_enters_rooms;
        serves && can && self.allowed_origins.is_empty() && self.api_key.is_none()
    }

    /// Returns whether sessions of a transport can only fail until its variables are set.
    #[doc(hidden)]
    pub fn lacks_credentials(&self, transport: Transport) -> bool {
        match transport {
            Transport::Mediaroom => !missing_variables(&self.mediaroom).is_empty(),
            Transport::Videoroom => self.videoroom.key.is_none() && self.videoroom.room_url.is_none(),
            _ => false,
        }
    }

    /// Returns the name by which a server asks for the bot of `--register`; `None` without it.
    #[doc(hidden)]
    pub fn agent_name(&self) -> Option<&str> {
        self.mediaroom.worker.as_ref().map(|worker| &*worker.agent_name)
    }

    /// Returns whether a session of `/start` becomes a job, which another runner may take.
    #[doc(hidden)]
    pub fn dispatches_jobs(&self, transport: Transport) -> bool {
        transport == Transport::Mediaroom && self.mediaroom.worker.is_some()
    }

    /// Returns whether the runner itself can join rooms, with the sockets that each needs.
    #[doc(hidden)]
    pub fn joins_rooms(&self) -> bool {
        self.mediaroom.url.is_some()
    }

    /// Returns whether [`Config::bot`] talks to callers: no program and no bot of your own does.
    pub fn runs_built_in_bot(&self) -> bool {
        self.command.is_none() && self.bot_name.is_none()
    }

    /// Returns the hosts outside this network that the bot sends speech, or what was said, to.
    pub fn speech_to(&self) -> Vec<&str> {
        match self.bot {
            _ if !self.runs_built_in_bot() => Vec::new(),
            BuiltInBot::Realtime => self.assistant.realtime.url.third_party().into_iter().collect(),
            BuiltInBot::Cascade => self.assistant.cascade.third_parties(),
            BuiltInBot::Parrot | BuiltInBot::Echo => Vec::new(),
        }
    }

    /// Returns whether anyone who reaches this runner can spend the money of its operator: the bot
    /// uses a service with a key, and neither allowed origins nor an API key is set.
    pub fn anyone_can_spend(&self) -> bool {
        let has_key = match self.bot {
            BuiltInBot::Parrot | BuiltInBot::Echo => false,
            BuiltInBot::Realtime => self.assistant.realtime.key.is_some(),
            BuiltInBot::Cascade => self.assistant.cascade.has_key(),
        };
        let pays = has_key && self.runs_built_in_bot();
        pays && self.allowed_origins.is_empty() && self.api_key.is_none()
    }

    /// Returns a warning if others reach this runner, over the network or through the proxy, and
    /// need no key.
    pub fn open_access_warning(&self) -> Option<String> {
        let is_local = match self.host {
            Host::Localhost => true,
            Host::Address(address) => address.is_loopback(),
        };
        let (prefix, target) = match &self.proxy {
            _ if self.api_key.is_some() || self.direct => return None,
            _ if !is_local => ("", "this machine"),
            Some(proxy) if !is_local_name(proxy) => ("`--proxy`: ", proxy.as_str()),
            Some(_) | None => return None,
        };
        Some(format!(
            "{prefix}anyone who reaches {target} can talk to the bot; require a key with --api-key-file FILE and \
             --ws-auth token"
        ))
    }

    /// Returns whether a provider can reach this runner under a known name. Webhooks to other host
    /// names are rejected; `.local` names and names without a dot are not public.
    pub fn has_public_name(&self) -> bool {
        let is_public = |name: &String| name.contains('.') && !name.ends_with(".local");
        self.proxy.is_some() || self.host_names.iter().any(is_public)
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Whether a runner asks once a day for a newer version, which it does not install.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UpdateCheck {
    /// It does not ask.
    #[default]
    Off,
    /// It asks where releases are.
    Releases,
    /// It asks the folder of the latest release on a mirror: a URL without a slash at its end.
    Mirror(String),
}

/// Addresses of the bound sockets.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenAddresses {
    /// HTTP port, never 0.
    pub port: u16,
    /// UDP port of every WebRTC session; 0 only in a build without WebRTC.
    pub rtc_port: u16,
    /// UDP port of Media over QUIC; number 0 if the runner serves none.
    pub moq_port: MoqUdpPort,
    /// Addresses at which other machines may reach this one.
    pub addresses: Vec<IpAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_of_open_access_without_an_api_key() {
        let is_open = |host: Host, key: Option<&str>, direct: bool| {
            let config = Config {
                host,
                api_key: key.map(Secret::new),
                direct,
                ..Config::default()
            };
            config.open_access_warning().is_some()
        };
        let address = |text: &str| Host::Address(text.parse().expect("an address"));
        for host in ["0.0.0.0", "::", "192.168.1.9", "2001:db8::1"].map(address) {
            assert!(is_open(host, None, false), "{host:?}");
            assert!(!is_open(host, Some("k"), false) && !is_open(host, None, true));
        }
        for host in [
            Host::Localhost,
            address("127.0.0.1"),
            address("127.8.9.1"),
            address("::1"),
        ] {
            assert!(!is_open(host, None, false), "{host:?}");
        }
    }

    #[test]
    fn a_proxy_on_this_machine_is_no_open_access() {
        for (proxy, is_open) in [("bots.example.net", true), ("localhost", false), ("127.0.0.1", false)] {
            let config = Config {
                proxy: Some(proxy.into()),
                ..Config::default()
            };
            assert_eq!(config.open_access_warning().is_some(), is_open, "{proxy}");
        }
    }
}
