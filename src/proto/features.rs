//! The features of this build: one [`Feature`] per cargo feature, and the only place that queries
//! them.
//!
//! A module that is not built has no row in the table of modules, or a replacement, `absent.rs` in
//! its folder, chosen where the module is declared. Options, routes and `/start` report a missing
//! feature with the text of [`MissingFeature`].

use std::fmt;

/// A cargo feature that a build has or lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Browsers and microcontrollers over WebRTC.
    WebRtc,
    /// The runner itself uses STUN and TURN servers; without it only its clients do.
    Turn,
    /// Calls of telephony providers.
    Telephony,
    /// Plain clients on a WebSocket.
    WebSocket,
    /// LiveKit rooms.
    Mediaroom,
    /// Daily rooms.
    Videoroom,
    /// WhatsApp calls.
    Messaging,
    /// Media over QUIC.
    Moq,
    /// Built-in bots that talk by services of others.
    Assistants,
    /// A neural detector of speech.
    Vad,
    /// HTTPS on the HTTP port.
    Tls,
    /// Certificates for public names by ACME: `--tls acme`.
    Acme,
    /// The page at `/client/`.
    Page,
    /// Records of calls: `/calls`.
    Calls,
    /// A file of settings: `--config`.
    Config,
    /// The sound card of this machine as a caller: `--local`.
    Local,
    /// `edge-runner call`.
    Call,
    /// `edge-runner setup`: the setup page of a board.
    Setup,
    /// `edge-runner new`: folders for bots of one's own.
    New,
    /// `edge-runner doctor`.
    Doctor,
    /// `edge-runner cloud`.
    Cloud,
}

impl Feature {
    /// All features, in the order of `Cargo.toml`.
    pub const ALL: [Feature; 21] = [
        Feature::WebRtc,
        Feature::Turn,
        Feature::Telephony,
        Feature::WebSocket,
        Feature::Mediaroom,
        Feature::Videoroom,
        Feature::Messaging,
        Feature::Moq,
        Feature::Assistants,
        Feature::Vad,
        Feature::Tls,
        Feature::Acme,
        Feature::Page,
        Feature::Calls,
        Feature::Config,
        Feature::Local,
        Feature::Call,
        Feature::Setup,
        Feature::New,
        Feature::Doctor,
        Feature::Cloud,
    ];

    /// Returns the name of the cargo feature.
    pub const fn name(self) -> &'static str {
        match self {
            Feature::WebRtc => "webrtc",
            Feature::Turn => "turn",
            Feature::Telephony => "telephony",
            Feature::WebSocket => "websocket",
            Feature::Mediaroom => "mediaroom",
            Feature::Videoroom => "videoroom",
            Feature::Messaging => "messaging",
            Feature::Moq => "moq",
            Feature::Assistants => "assistants",
            Feature::Vad => "vad",
            Feature::Tls => "tls",
            Feature::Acme => "acme",
            Feature::Page => "page",
            Feature::Calls => "calls",
            Feature::Config => "config",
            Feature::Local => "local",
            Feature::Call => "call",
            Feature::Setup => "setup",
            Feature::New => "new",
            Feature::Doctor => "doctor",
            Feature::Cloud => "cloud",
        }
    }

    /// Returns whether this build has the feature.
    pub const fn in_this_build(self) -> bool {
        match self {
            Feature::WebRtc => cfg!(feature = "webrtc"),
            Feature::Turn => cfg!(feature = "turn"),
            Feature::Telephony => cfg!(feature = "telephony"),
            Feature::WebSocket => cfg!(feature = "websocket"),
            Feature::Mediaroom => cfg!(feature = "mediaroom"),
            Feature::Videoroom => cfg!(feature = "videoroom"),
            Feature::Messaging => cfg!(feature = "messaging"),
            Feature::Moq => cfg!(feature = "moq"),
            Feature::Assistants => cfg!(feature = "assistants"),
            Feature::Vad => cfg!(feature = "vad"),
            Feature::Tls => cfg!(feature = "tls"),
            Feature::Acme => cfg!(feature = "acme"),
            Feature::Page => cfg!(feature = "page"),
            Feature::Calls => cfg!(feature = "calls"),
            Feature::Config => cfg!(feature = "config"),
            Feature::Local => cfg!(feature = "local"),
            Feature::Call => cfg!(feature = "call"),
            Feature::Setup => cfg!(feature = "setup"),
            Feature::New => cfg!(feature = "new"),
            Feature::Doctor => cfg!(feature = "doctor"),
            Feature::Cloud => cfg!(feature = "cloud"),
        }
    }

    /// Returns the error about the feature if this build lacks it.
    pub fn missing(self) -> Option<MissingFeature> {
        (!self.in_this_build()).then_some(MissingFeature(self))
    }
}

/// Paths of the WebSockets that callers open.
const SOCKETS: [(Feature, &str); 2] = [(Feature::Telephony, "/ws"), (Feature::WebSocket, "/ws-client")];

/// Returns the WebSocket paths of this build, for a sentence; `None` if it has none.
pub fn sockets() -> Option<String> {
    let built = SOCKETS.iter().filter(|(feature, _)| feature.in_this_build());
    let paths: Vec<&str> = built.map(|(_, path)| *path).collect();
    (!paths.is_empty()).then(|| paths.join(" and "))
}

/// A feature that this build lacks. Its words are the end of a sentence that begins with what was
/// asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingFeature(pub Feature);

impl fmt::Display for MissingFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.name();
        write!(f, "is not in this build: it needs the cargo feature `{name}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_build_has_every_feature() {
        for feature in Feature::ALL {
            assert_eq!(feature.missing(), None, "{}", feature.name());
        }
    }

    #[test]
    fn a_missing_feature_is_named() {
        assert_eq!(
            format!("`--tls` {}", MissingFeature(Feature::Tls)),
            "`--tls` is not in this build: it needs the cargo feature `tls`"
        );
    }
}
