//! Recognizes the WebRTC stack that made an offer.
//!
//! In: the attributes of an offer. Out: a [`ClientStack`] and the DTLS role of this end.
//! Microcontroller stacks are recognized by what they write, or by what only they omit. A browser
//! always writes `SAVPF` (RFC 8829 section 5.1.2), `a=ice-options` (section 5.2.1) and `a=extmap`.
//! Other libraries without header extensions (libdatachannel, FFmpeg, GStreamer, pion) write ICE
//! options or stream ids. Sources: RFC 8829, RFC 8839 section 5.6, `docs/spec/devices.md` 1.

use super::section::is_ssrc;
use super::split_attribute;

/// The stack that made an offer, as far as the answer depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStack {
    /// Browsers and libraries that follow RFC 8829 and RFC 8445.
    Full,
    /// Firmware based on libpeer, and similar stacks. It is the DTLS server unless it offers
    /// `active`, and it starts SCTP in either role.
    Libpeer,
    /// Firmware based on Espressif's esp_peer. It follows the answer's DTLS role; the DTLS client
    /// starts SCTP.
    EspPeer,
}

/// A role in the DTLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtlsRole {
    /// Starts the handshake.
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
    /// Returns whether the peer is a microcontroller, with small parsers and buffers.
    pub fn is_device(self) -> bool {
        self != ClientStack::Full
    }

    /// Returns the role of this end, given the offer's `a=setup`.
    pub fn answer_role(self, offered: Option<&str>) -> DtlsRole {
        match (offered, self) {
            (Some("active"), _) => DtlsRole::Server,
            (Some("passive"), _) | (_, ClientStack::Libpeer) => DtlsRole::Client,
            _ => DtlsRole::Server,
        }
    }
}

/// Collects the characteristics of an offer.
#[derive(Clone, Copy, Debug, Default)]
pub struct StackDetector {
    esp_peer: bool,
    libpeer: bool,
    full: bool,
    /// The offer has a header extension.
    pub has_extensions: bool,
}

/// The constant session id of esp_peer's offers.
const ESP_PEER_SESSION: &str = "7801614086411001801";

impl StackDetector {
    /// Handles the value of the `o=` line.
    pub fn handle_origin(&mut self, origin: &str) {
        self.esp_peer |= origin.split(' ').nth(1) == Some(ESP_PEER_SESSION);
    }

    /// Handles the profile. No browser offers `SAVP`.
    pub fn handle_profile(&mut self, is_savp: bool) {
        self.libpeer |= is_savp;
    }

    /// Handles an attribute of the session or a section.
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
            // An SSRC with a stream id.
            "ssrc" => self.full |= is_ssrc(value) && value.split(' ').nth(1).is_some_and(|it| it.starts_with("msid:")),
            _ => {}
        }
    }

    pub fn detect(self) -> ClientStack {
        match self {
            StackDetector { esp_peer: true, .. } => ClientStack::EspPeer,
            StackDetector { libpeer: true, .. } => ClientStack::Libpeer,
            StackDetector { full: true, .. } => ClientStack::Full,
            // Some libpeer builds offer `SAVPF` without `msid-semantic`.
            _ => ClientStack::Libpeer,
        }
    }
}
