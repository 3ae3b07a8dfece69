//! The checked configuration: the only input of `io::run`.
//!
//! Values only. Nothing here reads an argument, a variable, a file or a clock; `cli` builds a
//! [`Config`] and every other layer reads it. A [`Config`] is valid: combinations without a meaning
//! are rejected before.

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::aliases::{self, Area};
use crate::features::Feature;
use crate::limits::{OPUS_COMPLEXITY_DEFAULT, SESSIONS_MAX_DEFAULT};
pub use crate::secret::{Secret, SecretBytes};
use crate::server::forwarded::Network;
pub use crate::telephony::settings::{Settings, Telephony};
use crate::telephony::{PROVIDERS, Provider};

/// A transport; what `/start` and `-t` choose between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    WebRtc,
    Videoroom,
    Mediaroom,
    /// Calls of a telephony provider.
    Telephony(&'static Provider),
    WebSocket,
    Moq,
}

/// How many transports there are beside those of the telephony providers.
const OTHERS: usize = 5;

impl Transport {
    /// Every transport, in the order in which they are listed to people.
    pub const ALL: [Transport; OTHERS + PROVIDERS.len()] = Transport::all(PROVIDERS);

    /// Returns every transport where these are the telephony providers.
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

    /// Returns the canonical name, as it stands in `/start`, `-t` and `/status`.
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

    /// Returns the transport of that name, canonical or alias.
    pub fn from_name(name: &str) -> Option<Transport> {
        Transport::named(&Transport::ALL, name)
    }

    /// Returns the one of these transports that has that name, canonical or alias.
    pub fn named(transports: &[Transport], name: &str) -> Option<Transport> {
        let canonical = aliases::canonical(Area::Transport, name);
        let mut transports = transports.iter().copied();
        transports.find(|transport| transport.name() == canonical)
    }

    /// Returns the feature that it needs; `None` if it is not implemented yet.
    pub const fn feature(self) -> Option<Feature> {
        match self {
            Transport::WebRtc => Some(Feature::WebRtc),
            Transport::Videoroom => Some(Feature::Videoroom),
            Transport::Mediaroom => Some(Feature::Mediaroom),
            Transport::Telephony(_) => Some(Feature::Telephony),
            Transport::WebSocket => Some(Feature::WebSocket),
            Transport::Moq => None,
        }
    }

    /// Tells whether this build can run sessions of the transport.
    pub fn in_this_build(self) -> bool {
        self.feature().is_some_and(Feature::in_this_build)
    }

    /// Returns the telephony provider whose calls it carries.
    pub fn provider(self) -> Option<&'static Provider> {
        match self {
            Transport::Telephony(provider) => Some(provider),
            _ => None,
        }
    }

    /// Tells whether a browser on a page of the runner can be its caller.
    pub fn is_for_pages(self) -> bool {
        !self.is_telephony() && self != Transport::Moq
    }

    /// Tells whether it carries the calls of a telephony provider.
    pub fn is_telephony(self) -> bool {
        self.provider().is_some()
    }
}

/// Where the HTTP server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// `127.0.0.1` and `::1`, where they exist.
    Localhost,
    /// One address; unspecified means every interface of that family.
    Address(IpAddr),
}

impl Host {
    /// Returns the URL of the server at this host, without a slash at its end.
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
    pub username: Option<String>,
    pub credential: Option<String>,
}

impl fmt::Debug for IceServer {
    /// Credentials never reach a log, so they are not part of the debug form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IceServer")
            .field("urls", &self.urls)
            .finish_non_exhaustive()
    }
}

/// What the runner knows of the provider of video rooms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Videoroom {
    /// Without it no room and no token is made.
    pub key: Option<Secret>,
    /// Base of the provider's REST API, without a slash at its end.
    pub url: String,
    /// An existing room, whose use is asked for by its being configured.
    pub room_url: Option<String>,
    /// An existing room, used instead of a new one where a room is asked for.
    pub sample_room_url: Option<String>,
    /// Whether the dial-in webhook is served.
    pub dialin: bool,
    /// The base64-decoded key with which the provider signs that webhook.
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

/// What the runner knows of the media-room server. Sessions need the first three.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mediaroom {
    /// `ws`, `wss`, `http` or `https` URL, without a slash at its end.
    pub url: Option<String>,
    pub key: Option<String>,
    pub secret: Option<Secret>,
    /// The one room of all sessions; `None` makes a new one for each.
    pub room_name: Option<String>,
}

/// What the runner knows of the provider of the messaging app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messaging {
    /// The access token of a system user.
    pub token: Secret,
    /// The id of the business number, which is not the number.
    pub phone_number_id: String,
    /// The secret of the app, which signs webhooks.
    pub app_secret: Secret,
    /// The word by which the provider's check of the webhook's address is known.
    pub verification_token: Secret,
    /// Base of the provider's Graph API, without a slash at its end.
    pub url: String,
}

impl Messaging {
    /// The API's base where none is configured.
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

/// Under which names the answer of `/start` tells of a video room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartNames {
    Canonical,
    Alias,
    #[default]
    Both,
}

/// Where the certificate of HTTPS comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// Plain HTTP alone.
    #[default]
    Off,
    /// Made by the runner and kept in [`Config::state_dir`].
    Auto,
    /// PEM files, read again on SIGHUP.
    Files { certificate: PathBuf, key: PathBuf },
}

/// What HTTPS is made of.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    pub tls: Tls,
    /// Names under which the server may be addressed, beside those of its addresses.
    pub host_names: Vec<String>,
    /// Where a certificate that is made here is kept; `None` when no place is known.
    pub state_dir: Option<PathBuf>,
    /// Where people find the certificate of the authority, in words.
    pub ca_url: String,
}

/// Who may read `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// No client.
    Off,
    /// Peers on this machine that no proxy stands before.
    #[default]
    Local,
    Any,
}

/// Which bot the stock binary runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltInBot {
    Parrot,
    Echo,
}

impl BuiltInBot {
    /// Both, the default first.
    pub const ALL: [BuiltInBot; 2] = [BuiltInBot::Parrot, BuiltInBot::Echo];

    /// Returns the name, as it stands in `--bot`.
    pub fn name(self) -> &'static str {
        match self {
            BuiltInBot::Parrot => "parrot",
            BuiltInBot::Echo => "echo",
        }
    }
}

/// How a program after `--` gets the caller's audio and gives its own.
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

/// Everything the runner was told, checked. It may grow: begin with [`Config::default`], and change
/// what is to be otherwise.
#[derive(Clone, Debug)]
// The tests of the crates above make it with the update syntax.
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Config {
    pub host: Host,
    /// HTTP port; 0 asks for a free one.
    pub port: u16,
    /// UDP port of every WebRTC session; `None` means the HTTP port's number, 0 a free one.
    pub rtc_port: Option<u16>,
    /// The one transport of `-t`; `None` serves all.
    pub transport: Option<Transport>,
    /// Public host name without scheme and trailing slash.
    pub proxy: Option<String>,
    /// Proxies on other machines that are believed where a request came from.
    pub trusted_proxies: Vec<Network>,
    /// Whole origins in lower case, without a default port; empty allows every origin.
    pub allowed_origins: Vec<String>,
    /// Names under which the server may be addressed beside those that are always taken, in lower
    /// case: of this machine, and of `--allowed-hosts`.
    pub host_names: Vec<String>,
    /// What a caller of `/start` and `/api/offer` has to know; `None` asks for nothing.
    pub api_key: Option<Secret>,
    pub tls: Tls,
    /// Where what the runner makes for itself is kept; `None` when no place is known.
    pub state_dir: Option<PathBuf>,
    pub metrics: MetricsAccess,
    /// How long live sessions may go on by themselves once the runner was asked to stop.
    pub drain: Duration,
    /// Servers that this runner gathers candidates from and that are returned to clients, before
    /// `enableDefaultIceServers`.
    pub ice_servers: Vec<IceServer>,
    /// Further host addresses to offer as candidates.
    pub ice_addresses: Vec<IpAddr>,
    /// The one address that microcontrollers are offered; `None` without `--embedded`.
    pub embedded: Option<Ipv4Addr>,
    pub bot: BuiltInBot,
    /// The program that is run as the bot, with its arguments; `None` runs [`Config::bot`].
    pub command: Option<Vec<OsString>>,
    /// How that program gets and gives audio.
    pub bot_audio: BotAudio,
    /// The variables of this process that the program does not inherit.
    pub withheld: Vec<String>,
    /// Where the program starts; `None` means where the runner does.
    pub bot_folder: Option<PathBuf>,
    /// Whether WebSockets need a one-time token of `/start`.
    pub ws_tokens: bool,
    pub telephony: Telephony,
    pub videoroom: Videoroom,
    pub mediaroom: Mediaroom,
    /// The WhatsApp account whose calls are answered; `None` without `--messaging`.
    pub messaging: Option<Messaging>,
    pub start_names: StartNames,
    /// One bot in one video room, and no web server.
    pub direct: bool,
    /// Whether the bot can enter a video room by itself: a program and a developer's own bot may,
    /// the built-in ones cannot.
    pub bot_enters_rooms: bool,
    /// Cap on live sessions.
    pub sessions_max: usize,
    /// Worker threads of the runtime; `None` means one per core.
    pub workers: Option<usize>,
    /// How hard the Opus encoder tries, 0 to 10.
    pub opus_complexity: u8,
    /// How many `-v` were given.
    pub verbosity: u8,
    /// The format of log lines.
    pub log: LogFormat,
}

impl Default for Config {
    /// What a runner without options and variables has.
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
            tls: Tls::Off,
            state_dir: None,
            metrics: MetricsAccess::Local,
            drain: Duration::ZERO,
            ice_servers: Vec::new(),
            ice_addresses: Vec::new(),
            embedded: None,
            bot: BuiltInBot::Parrot,
            command: None,
            withheld: Vec::new(),
            bot_audio: BotAudio::default(),
            bot_folder: None,
            ws_tokens: false,
            telephony: Telephony::default(),
            videoroom: Videoroom::default(),
            mediaroom: Mediaroom::default(),
            messaging: None,
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
    /// Returns the transport that `/start` uses when the request names none: the first in the list
    /// that this build has.
    pub fn default_transport(&self) -> Transport {
        let first = || Transport::ALL.into_iter().find(|transport| transport.in_this_build());
        self.transport.or_else(first).unwrap_or(Transport::WebRtc)
    }

    /// Returns what HTTPS is made of.
    pub fn tls_settings(&self) -> TlsSettings {
        TlsSettings {
            tls: self.tls.clone(),
            host_names: self.host_names.clone(),
            state_dir: self.state_dir.clone(),
            ca_url: "/ca.crt of this server".into(),
        }
    }

    /// Tells whether any web page, open in a browser that reaches this runner, can create video
    /// rooms with `/start` and read their tokens: there is neither a list of origins nor a key.
    pub fn creates_rooms_for_pages(&self) -> bool {
        let serves = matches!(self.transport, None | Some(Transport::Videoroom)) && !self.direct;
        let can = self.videoroom.key.is_some() && self.bot_enters_rooms;
        serves && can && self.allowed_origins.is_empty() && self.api_key.is_none()
    }

    /// Says what it means that others reach this runner and it asks for no key; nothing where they
    /// do not, or it does.
    pub fn open_access_warning(&self) -> Option<&'static str> {
        let for_others = !matches!(self.host, Host::Localhost)
            && !matches!(self.host, Host::Address(address) if address.is_loopback());
        (for_others && self.api_key.is_none() && !self.direct).then_some(
            "anyone who reaches this machine can talk to the bot; require a key with --api-key-file FILE and --ws-auth token",
        )
    }

    /// Tells whether a name is known under which a provider could reach this runner; webhooks under
    /// others are sent away. A name of a local network leads no provider here.
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

/// What the sockets turned out to be once they were bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddresses {
    /// HTTP port, never 0.
    pub port: u16,
    /// UDP port of every WebRTC session; 0 in a build without WebRTC alone.
    pub rtc_port: u16,
    /// Addresses under which other machines may reach this one.
    pub addresses: Vec<IpAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each transport is found by its own name and by the name that clients use.
    #[test]
    fn every_transport_is_found_by_its_names() {
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
    fn urls_are_ones_that_a_browser_takes() {
        let v6 = Host::Address("2001:db8::1".parse().expect("an address"));
        assert_eq!(v6.url(7860), "http://[2001:db8::1]:7860");
        let v4 = Host::Address("192.0.2.7".parse().expect("an address"));
        assert_eq!(v4.url(80), "http://192.0.2.7:80");
        assert_eq!(Host::Localhost.url(1), "http://localhost:1");
    }

    /// Finding 7: open is who listens to others and asks for nothing.
    #[test]
    fn a_runner_without_a_key_is_open() {
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
    fn credentials_are_no_part_of_the_debug_form() {
        let server = IceServer {
            urls: vec!["turn:a".into()],
            username: Some("ann".into()),
            credential: Some("hunter2".into()),
        };
        let shown = format!("{server:?}");
        assert!(shown.contains("turn:a") && !shown.contains("hunter2") && !shown.contains("ann"));
    }
}
