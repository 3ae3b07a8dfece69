//! What the flags and the environment mean once they are checked: the only input of `io::run`.
//!
//! Values only. Nothing here reads an argument, a variable, a file or a clock; `cli` builds a [`Config`] and every other
//! room reads it. A value that exists is valid: combinations that make no sense were refused before.

use std::net::{IpAddr, Ipv4Addr};

/// A transport by its canonical name; what `/start` and `-t` choose between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    WebRtc,
    Videoroom,
    Mediaroom,
    TelephonyA,
    TelephonyB,
    TelephonyC,
    TelephonyD,
    WebSocket,
    Moq,
}

impl Transport {
    /// The nine transports, in the order in which they are listed to people.
    pub const ALL: [Transport; 9] = [
        Transport::WebRtc,
        Transport::Videoroom,
        Transport::Mediaroom,
        Transport::TelephonyA,
        Transport::TelephonyB,
        Transport::TelephonyC,
        Transport::TelephonyD,
        Transport::WebSocket,
        Transport::Moq,
    ];

    /// Returns the canonical name, as it stands in `/start`, `-t` and `/status`.
    pub fn name(self) -> &'static str {
        match self {
            Transport::WebRtc => "webrtc",
            Transport::Videoroom => "videoroom",
            Transport::Mediaroom => "mediaroom",
            Transport::TelephonyA => "telephony_a",
            Transport::TelephonyB => "telephony_b",
            Transport::TelephonyC => "telephony_c",
            Transport::TelephonyD => "telephony_d",
            Transport::WebSocket => "websocket",
            Transport::Moq => "moq",
        }
    }

    /// Tells whether this build can run sessions of the transport.
    pub fn in_this_build(self) -> bool {
        matches!(self, Transport::WebRtc)
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

/// One STUN or TURN server entry, as clients receive it in `iceConfig`.
#[derive(Clone, PartialEq, Eq)]
pub struct IceServer {
    /// `stun:`, `turn:` or `turns:` URLs.
    pub urls: Vec<String>,
    pub username: Option<String>,
    pub credential: Option<String>,
}

impl std::fmt::Debug for IceServer {
    /// Credentials never reach a log, so they are not part of the debug form.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IceServer")
            .field("urls", &self.urls)
            .finish_non_exhaustive()
    }
}

/// Which bot the stock binary runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltInBot {
    Parrot,
    Echo,
}

/// Everything the runner was told, checked.
#[derive(Clone, Debug)]
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
    /// Whole origins; empty allows every origin.
    pub allowed_origins: Vec<String>,
    /// Servers returned to clients; the list wins over `enableDefaultIceServers`.
    pub ice_servers: Vec<IceServer>,
    /// Further host addresses to offer as candidates.
    pub ice_addresses: Vec<IpAddr>,
    /// The one address that microcontrollers are offered; `None` without `--embedded`.
    pub embedded: Option<Ipv4Addr>,
    pub bot: BuiltInBot,
    /// Cap on live sessions.
    pub sessions_max: usize,
    /// Worker threads of the runtime; `None` means one per core.
    pub workers: Option<usize>,
    /// How many `-v` were given.
    pub verbosity: u8,
}

impl Config {
    /// Returns the transport that `/start` uses when the request names none.
    pub fn default_transport(&self) -> Transport {
        self.transport.unwrap_or(Transport::WebRtc)
    }
}
