//! The checked configuration: the only input of `io::run`.
//!
//! Holds values only: `cli` reads arguments, variables and files and builds a [`Config`]; the other
//! layers read it. `cli` rejects invalid combinations of options before.

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::aliases::{self, Area};
pub use crate::assistant::config::{
    AssistantConfig, BodyPermissions, CascadeConfig, CascadeServices, ChatModelConfig, DetectorKind, Dialect, Greeting,
    NoiseReduction, RealtimeConfig, RecognizerConfig, ToolsConfig, ToolsEndpoint, TurnDetection, VoiceConfig,
};
pub use crate::assistant::service_url::{ServiceUrl, ServiceVendor};
pub use crate::assistant::services::endpoint::{ServiceAccess, ServiceEndpoint};
use crate::features::Feature;
use crate::http::cluster::ClusterKey;
use crate::limits::{OPUS_COMPLEXITY_DEFAULT, SESSIONS_MAX_DEFAULT};
pub use crate::moq::config::{MoqCertificate, MoqConfig, MoqMode};
use crate::options::hosts::is_local_name;
pub use crate::secret::{Secret, SecretBytes};
use crate::server::forwarded::Network;
pub use crate::telephony::settings::{Settings, Telephony};
use crate::telephony::{PROVIDERS, Provider};

/// A transport, as `/start` and `-t` select it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// WebRTC connections of browsers, microcontrollers and WHIP or WHEP clients.
    WebRtc,
    /// Daily rooms.
    Videoroom,
    /// LiveKit rooms.
    Mediaroom,
    /// Calls of a telephony provider.
    Telephony(&'static Provider),
    /// Plain clients on a WebSocket.
    WebSocket,
    /// Media over QUIC, served by the runner or through a relay.
    Moq,
}

/// Number of transports other than those of the telephony providers.
const OTHERS: usize = 5;

impl Transport {
    /// All transports, in the order of help texts and pages.
    pub const ALL: [Transport; OTHERS + PROVIDERS.len()] = Transport::all(PROVIDERS);

    /// Returns all transports, with those of these telephony providers.
    pub const fn all<const P: usize, const N: usize>(providers: [&'static Provider; P]) -> [Transport; N] {
        assert!(N == OTHERS + P);
        let mut all = [Transport::WebRtc; N];
        all[1] = Transport::Videoroom;
        all[2] = Transport::Mediaroom;
        let mut at = 0;
        while at < P {
            all[3 + at] = Transport::Telephony(providers[at]);
            at += 1;
        }
        all[3 + P] = Transport::WebSocket;
        all[4 + P] = Transport::Moq;
        all
    }

    /// Returns the canonical name, as in `/start`, `-t` and `/status`.
    pub fn name(self) -> &'static str {
        match self {
            Transport::WebRtc => "webrtc",
            Transport::Videoroom => "videoroom",
            Transport::Mediaroom => "mediaroom",
            Transport::Telephony(provider) => provider.wire_name(),
            Transport::WebSocket => "websocket",
            Transport::Moq => "moq",
        }
    }

    /// Returns the transport with this canonical name or alias.
    pub fn from_name(name: &str) -> Option<Transport> {
        Transport::named(&Transport::ALL, name)
    }

    /// Returns the transport of this list with this canonical name or alias.
    pub fn named(transports: &[Transport], name: &str) -> Option<Transport> {
        let canonical = aliases::canonical(Area::Transport, name);
        let mut transports = transports.iter().copied();
        transports.find(|transport| transport.name() == canonical)
    }

    /// Returns the cargo feature of the transport.
    pub const fn feature(self) -> Feature {
        match self {
            Transport::WebRtc => Feature::WebRtc,
            Transport::Videoroom => Feature::Videoroom,
            Transport::Mediaroom => Feature::Mediaroom,
            Transport::Telephony(_) => Feature::Telephony,
            Transport::WebSocket => Feature::WebSocket,
            Transport::Moq => Feature::Moq,
        }
    }

    /// Returns whether this build can run sessions of the transport.
    pub fn in_this_build(self) -> bool {
        self.feature().in_this_build()
    }

    /// Returns the telephony provider of the transport.
    pub fn provider(self) -> Option<&'static Provider> {
        match self {
            Transport::Telephony(provider) => Some(provider),
            _ => None,
        }
    }

    /// Returns whether a browser on a page of the runner can use it.
    pub fn is_for_pages(self) -> bool {
        !self.is_telephony()
    }

    /// Returns whether it carries calls of a telephony provider.
    pub fn is_telephony(self) -> bool {
        self.provider().is_some()
    }
}

/// The host on which the HTTP server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// `127.0.0.1` and `::1`, as far as the machine has them.
    Localhost,
    /// One address; an unspecified one means all interfaces of its family.
    Address(IpAddr),
}

impl Host {
    /// Returns the URL of the server, without a trailing slash.
    pub fn url(self, port: u16) -> String {
        match self {
            Host::Localhost => format!("http://localhost:{port}"),
            Host::Address(address) => format!("http://{}", SocketAddr::new(address, port)),
        }
    }
}

/// One STUN or TURN server entry, as clients receive it in `iceConfig`.
#[derive(Clone, PartialEq, Eq)]
pub struct IceServer {
    /// `stun:`, `stuns:`, `turn:` or `turns:` URLs.
    pub urls: Vec<String>,
    /// User name, which TURN servers require.
    pub username: Option<String>,
    /// Password of the user name.
    pub credential: Option<String>,
}

impl fmt::Debug for IceServer {
    /// Omits user name and credential, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IceServer")
            .field("urls", &self.urls)
            .finish_non_exhaustive()
    }
}

/// Configuration of Daily rooms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Videoroom {
    /// API key; `None` creates neither rooms nor tokens.
    pub key: Option<Secret>,
    /// Base URL of the REST API, without a trailing slash.
    pub url: String,
    /// An existing room, which sessions use whenever it is set.
    pub room_url: Option<String>,
    /// An existing room, used instead of a new one when a request asks for a room.
    pub sample_room_url: Option<String>,
    /// Whether the dial-in webhook is served.
    pub dialin: bool,
    /// The base64-decoded HMAC key of that webhook.
    pub dialin_hmac: Option<SecretBytes>,
}

impl Default for Videoroom {
    fn default() -> Self {
        Videoroom {
            key: None,
            url: "https://api.daily.co/v1".into(),
            room_url: None,
            sample_room_url: None,
            dialin: false,
            dialin_hmac: None,
        }
    }
}

/// Configuration of the LiveKit server. Sessions need `url`, `key` and `secret`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mediaroom {
    /// `ws`, `wss`, `http` or `https` URL, without a trailing slash.
    pub url: Option<String>,
    /// API key, which names the secret.
    pub key: Option<String>,
    /// API secret, which signs access tokens.
    pub secret: Option<Secret>,
    /// The room of all sessions; `None` creates a room for each.
    pub room_name: Option<String>,
    /// Further URLs of the same server or cluster, for when the first does not answer.
    pub other_urls: Vec<String>,
    /// How the runner registers for jobs; `None` without `--register`.
    pub worker: Option<MediaroomWorker>,
}

impl Mediaroom {
    /// Returns all URLs, the preferred one first.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.url.iter().chain(&self.other_urls).map(String::as_str)
    }
}

/// Registration at a LiveKit server, which then assigns rooms to the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaroomWorker {
    /// What a job is for.
    pub job_type: JobType,
    /// The name by which rooms ask for this bot; empty to get a job for every room.
    pub agent_name: String,
    /// A further name that has to match; empty for none.
    pub deployment: String,
    /// The load at which the server prefers other runners, in hundredths: `agents.target_load` of
    /// its configuration.
    pub target_load_percent: u8,
}

impl MediaroomWorker {
    /// The default of [`MediaroomWorker::agent_name`].
    pub const AGENT_NAME: &str = "bot";
    /// The default of [`MediaroomWorker::target_load_percent`]: that of the server.
    pub const TARGET_LOAD_PERCENT: u8 = 70;
}

/// What a job of a LiveKit server is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobType {
    /// A room, from its creation on.
    #[default]
    Room,
    /// One participant that publishes a track.
    Publisher,
    /// One participant.
    Participant,
}

impl JobType {
    /// All types, in the order of the help.
    pub const ALL: [JobType; 3] = [JobType::Room, JobType::Participant, JobType::Publisher];

    /// Returns the name of the type.
    pub fn name(self) -> &'static str {
        match self {
            JobType::Room => "room",
            JobType::Publisher => "publisher",
            JobType::Participant => "participant",
        }
    }

    /// Returns the type with this name.
    pub fn from_name(name: &str) -> Option<JobType> {
        JobType::ALL.into_iter().find(|of| of.name() == name)
    }
}

/// Configuration of WhatsApp calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messaging {
    /// The access token of a system user.
    pub token: Secret,
    /// The id of the business number, not the number itself.
    pub phone_number_id: String,
    /// The secret of the app, which signs webhooks.
    pub app_secret: Secret,
    /// The token that the provider sends to verify the URL of the webhook.
    pub verification_token: Secret,
    /// Base URL of the Graph API, without a trailing slash.
    pub url: String,
}

impl Messaging {
    /// The default base URL of the API.
    pub const URL: &str = "https://graph.facebook.com/v23.0";

    #[cfg(test)]
    pub(crate) fn for_tests(url: &str) -> Self {
        Messaging {
            token: Secret::new("token-of-the-tests"),
            phone_number_id: "1060000001".into(),
            app_secret: Secret::new("secret-of-the-tests"),
            verification_token: Secret::new("word-of-the-tests"),
            url: url.into(),
        }
    }
}

/// Names of the fields of a Daily room in the response of `/start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartNames {
    /// The canonical names.
    Canonical,
    /// The names that existing clients use.
    Alias,
    /// Both.
    #[default]
    Both,
}

/// Source of the HTTPS certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// No HTTPS.
    #[default]
    Off,
    /// Issued by the runner and stored in [`Config::state_dir`].
    Auto,
    /// For public names, issued by the directory of [`AcmeConfig`] and stored in
    /// [`Config::state_dir`]. Other names and addresses get the certificate of [`Tls::Auto`].
    Acme,
    /// PEM files, read again on SIGHUP.
    Files {
        /// Path of the certificate and its chain.
        certificate: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
}

/// Settings of `--tls acme` (RFC 8555).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcmeConfig {
    /// Public host names of the certificate, in lower case.
    pub names: Vec<String>,
    /// Contact address of the account.
    pub email: Option<String>,
    /// URL of the directory.
    pub directory: String,
    /// PEM file of the authorities to trust for the directory in place of those of the system.
    pub root: Option<PathBuf>,
}

/// Settings of HTTPS.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// Source of the certificate.
    pub tls: Tls,
    /// Settings of [`Tls::Acme`].
    pub acme: AcmeConfig,
    /// Host names of the certificate, beside the addresses of the machine.
    pub host_names: Vec<String>,
    /// Folder of an issued certificate; `None` if no folder is known.
    pub state_dir: Option<PathBuf>,
    /// Where people find the certificate of the authority, as text.
    pub ca_url: String,
}

/// Clients that may read `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// None.
    Off,
    /// Clients on this machine that connect without a proxy.
    #[default]
    Local,
    /// Every client.
    Any,
}

/// A bot of the stock binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltInBot {
    /// Repeats what the caller said after a pause.
    Parrot,
    /// Plays every frame back at once.
    Echo,
    /// Talks by a speech-to-speech service.
    Realtime,
    /// Talks by a recogniser, a chat model and a voice.
    Cascade,
}

impl BuiltInBot {
    /// All bots, the default first.
    pub const ALL: [BuiltInBot; 4] = [
        BuiltInBot::Parrot,
        BuiltInBot::Echo,
        BuiltInBot::Realtime,
        BuiltInBot::Cascade,
    ];

    /// Returns the name in `--bot`.
    pub fn name(self) -> &'static str {
        match self {
            BuiltInBot::Parrot => "parrot",
            BuiltInBot::Echo => "echo",
            BuiltInBot::Realtime => "realtime",
            BuiltInBot::Cascade => "cascade",
        }
    }

    /// Returns the feature that the bot needs.
    pub fn feature(self) -> Option<Feature> {
        match self {
            BuiltInBot::Parrot | BuiltInBot::Echo => None,
            BuiltInBot::Realtime | BuiltInBot::Cascade => Some(Feature::Assistants),
        }
    }
}

/// How a bot that is a program exchanges audio with the runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BotAudio {
    /// Protobuf frames over the WebSocket at `media_url`, with texts, keys and marks.
    #[default]
    Protobuf,
    /// 16-bit signed little-endian mono PCM on the program's standard input and output.
    Pcm {
        /// The sample rate of both directions, in Hz.
        rate_hz: u32,
    },
}

/// A replica behind a balancer.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    pub key: ClusterKey,
    /// The file of the key, for `doctor`.
    pub key_file: PathBuf,
    /// The name of this replica; `None` means a random one.
    pub replica_name: Option<String>,
}

/// The validated configuration of the runner. Fields may be added: start from [`Config::default`]
/// and change single fields.
#[derive(Clone, Debug)]
// Tests of dependent crates build it with the struct update syntax.
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
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
    /// Folder that replaces the built-in page at `/client/`.
    pub page_dir: Option<PathBuf>,
    /// Folder whose files clients may download from `/files/`.
    pub downloads_dir: Option<PathBuf>,
    /// Clients that may read `/metrics`.
    pub metrics: MetricsAccess,
    /// Time that live sessions have to end on their own after a stop request.
    pub drain: Duration,
    /// STUN and TURN servers from which the runner gathers candidates and that clients receive,
    /// before those of `enableDefaultIceServers`.
    pub ice_servers: Vec<IceServer>,
    /// Additional host addresses to offer as candidates.
    pub ice_addresses: Vec<IpAddr>,
    /// The only address in answers to microcontrollers; `None` without `--embedded`.
    pub embedded: Option<Ipv4Addr>,
    /// The built-in bot that the stock binary runs.
    pub bot: BuiltInBot,
    /// The name of a bot of your own, which runs in place of the built-in one; `/status` and the
    /// page show it.
    pub bot_name: Option<String>,
    /// The program that is the bot, with its arguments; `None` runs [`Config::bot`].
    pub command: Option<Vec<OsString>>,
    /// Audio interface of that program.
    pub bot_audio: BotAudio,
    /// Environment variables that the program does not inherit.
    pub withheld: Vec<String>,
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
            page_dir: None,
            downloads_dir: None,
            metrics: MetricsAccess::Local,
            drain: Duration::ZERO,
            ice_servers: Vec::new(),
            ice_addresses: Vec::new(),
            embedded: None,
            bot: BuiltInBot::Parrot,
            bot_name: None,
            command: None,
            withheld: Vec::new(),
            bot_audio: BotAudio::default(),
            bot_folder: None,
            sandbox: None,
            ws_tokens: false,
            telephony: Telephony::default(),
            videoroom: Videoroom::default(),
            mediaroom: Mediaroom::default(),
            messaging: None,
            moq: MoqConfig::default(),
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

    /// Returns the settings of HTTPS.
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
    pub fn pays_for_strangers(&self) -> bool {
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
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The bound UDP port of Media over QUIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoqUdpPort {
    pub number: u16,
    /// Whether callers on this machine reach it by IPv6.
    pub has_ipv6: bool,
}

/// Addresses of the bound sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    fn finds_every_transport_by_its_name_and_its_aliases() {
        for transport in Transport::ALL {
            assert_eq!(Transport::from_name(transport.name()), Some(transport));
            for alias in aliases::aliases(Area::Transport, transport.name()) {
                assert_eq!(Transport::from_name(alias), Some(transport));
            }
        }
        assert_eq!(Transport::from_name("twilio"), Some(Transport::Telephony(PROVIDERS[0])));
        assert_eq!(Transport::from_name("WebRTC"), None);
        assert_eq!(Transport::from_name(""), None);
    }

    #[test]
    fn formats_urls_of_hosts() {
        let v6 = Host::Address("2001:db8::1".parse().expect("an address"));
        assert_eq!(v6.url(7860), "http://[2001:db8::1]:7860");
        let v4 = Host::Address("192.0.2.7".parse().expect("an address"));
        assert_eq!(v4.url(80), "http://192.0.2.7:80");
        assert_eq!(Host::Localhost.url(1), "http://localhost:1");
    }

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

    #[test]
    fn the_debug_form_omits_credentials() {
        let server = IceServer {
            urls: vec!["turn:a".into()],
            username: Some("ann".into()),
            credential: Some("hunter2".into()),
        };
        let shown = format!("{server:?}");
        assert!(shown.contains("turn:a") && !shown.contains("hunter2") && !shown.contains("ann"));
    }
}
