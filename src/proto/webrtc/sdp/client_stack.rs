//! Which family of WebRTC stacks made an offer, and what that means for its answer.
//!
//! In: the attributes of an offer. Out: a [`ClientStack`], and the DTLS role of this end. Small stacks on
//! microcontrollers are told by what they write, or by what none but they leaves out. A browser is
//! never taken for one: it writes `SAVPF` (RFC 8829 section 5.1.2), and `a=ice-options` (section
//! 5.2.1) and `a=extmap` in every offer. Nor is a library that offers no header extension
//! (libdatachannel, FFmpeg, GStreamer, pion): each names its ICE options or its streams.
//! Sources: RFC 8829, RFC 8839 section 5.6, offers recorded from libpeer and esp_peer.

use super::section::is_ssrc;
use super::split_attribute;

/// Who made an offer, as far as it matters for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStack {
    /// Browsers, and the libraries that follow RFC 8829 and RFC 8445 as they do.
    Full,
    /// Firmware on libpeer, and what is as small. It is the server of the DTLS handshake whatever
    /// it offers, unless it offers to be the client, and begins SCTP in either role.
    Libpeer,
    /// Firmware on Espressif's esp_peer: it follows the DTLS role of the answer, and of both ends
    /// only the client of the handshake begins SCTP.
    EspPeer,
}

/// A part in the DTLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtlsRole {
    /// It begins.
    Client,
    Server,
}

impl DtlsRole {
    /// Returns the value of `a=setup` in an answer.
    pub fn setup(self) -> &'static str {
        match self {
            DtlsRole::Client => "active",
            DtlsRole::Server => "passive",
        }
    }
}

impl ClientStack {
    /// Tells whether the other end is a microcontroller, whose parsers and buffers are small.
    pub fn is_device(self) -> bool {
        self != ClientStack::Full
    }

    /// Returns the role of this end, by the role that the offer leaves to it.
    pub fn answer_role(self, offered: Option<&str>) -> DtlsRole {
        match (offered, self) {
            (Some("active"), _) => DtlsRole::Server,
            (Some("passive"), _) | (_, ClientStack::Libpeer) => DtlsRole::Client,
            _ => DtlsRole::Server,
        }
    }
}

/// What an offer shows of who made it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StackDetector {
    esp_peer: bool,
    libpeer: bool,
    full: bool,
    /// A header extension is offered.
    pub has_extensions: bool,
}

/// The session identifier that stands in every offer of esp_peer.
const ESP_PEER_SESSION: &str = "7801614086411001801";

impl StackDetector {
    /// Takes the value of the `o=` line.
    pub fn handle_origin(&mut self, origin: &str) {
        self.esp_peer |= origin.split(' ').nth(1) == Some(ESP_PEER_SESSION);
    }

    /// Takes a profile: `SAVP` is what no browser has offered since there are browsers with WebRTC.
    pub fn handle_profile(&mut self, is_savp: bool) {
        self.libpeer |= is_savp;
    }

    /// Takes an attribute of any level.
    pub fn handle_attribute(&mut self, attribute: &str) {
        let (name, value) = split_attribute(attribute);
        match name {
            "msid-semantic" if value.trim() == "iot" => self.libpeer = true,
            "msid-semantic" if value.trim() == "esp-webrtc" => self.esp_peer = true,
            "extmap" => {
                self.has_extensions = true;
                self.full = true;
            }
            "extmap-allow-mixed" | "ice-options" | "ice-lite" | "msid" | "msid-semantic" => self.full = true,
            // A source with the name of its stream.
            "ssrc" => self.full |= is_ssrc(value) && value.split(' ').nth(1).is_some_and(|it| it.starts_with("msid:")),
            _ => {}
        }
    }

    pub fn detect(self) -> ClientStack {
        match self {
            StackDetector { esp_peer: true, .. } => ClientStack::EspPeer,
            StackDetector { libpeer: true, .. } => ClientStack::Libpeer,
            StackDetector { full: true, .. } => ClientStack::Full,
            // Some builds of libpeer offer `SAVPF` and no semantic.
            _ => ClientStack::Libpeer,
        }
    }
}
