//! The features of this build: one [`Feature`] per cargo feature, and the only place that queries
//! them.
//!
//! Where a module is declared, `absent.rs` takes its place in a build without it: that of `src/io`
//! and `src/cli` has no row in any table; one in the folder of a module has what others use. A
//! module that needs no crate is compiled in every build, and its row asks
//! [`Feature::in_this_build`]. Options, routes and `/start` report a missing feature with the text
//! of [`MissingFeature`]. Tests are compiled with the default features, so they have no conditions.

use std::fmt;

macro_rules! features {
    ($($(#[$about:meta])* $feature:ident = $name:tt $(if $also:meta)?,)*) => {
        /// A cargo feature that a build has or lacks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Feature {
            $($(#[$about])* $feature,)*
        }

        impl Feature {
            /// All features, in the order of `Cargo.toml`.
            pub const ALL: [Feature; [$($name),*].len()] = [$(Feature::$feature),*];

            /// Returns the name of the cargo feature.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Feature::$feature => $name,)*
                }
            }

            /// Returns whether this build has the feature.
            pub const fn in_this_build(self) -> bool {
                match self {
                    $(Feature::$feature => cfg!(all(feature = $name $(, $also)?)),)*
                }
            }
        }
    };
}

features! {
    /// Browsers and microcontrollers over WebRTC.
    WebRtc = "webrtc",
    /// The runner itself uses STUN and TURN servers; without it only its clients do.
    Turn = "turn",
    /// Calls of telephony providers.
    Telephony = "telephony",
    /// Plain clients on a WebSocket.
    WebSocket = "websocket",
    /// LiveKit rooms.
    Mediaroom = "mediaroom",
    /// Daily rooms.
    Videoroom = "videoroom",
    /// WhatsApp calls.
    Messaging = "messaging",
    /// Media over QUIC.
    Moq = "moq",
    /// Built-in bots that talk by services of others.
    Assistants = "assistants",
    /// A neural detector of speech.
    Vad = "vad",
    /// HTTPS on the HTTP port.
    Tls = "tls",
    /// Certificates for public names by ACME: `--tls acme`.
    Acme = "acme",
    /// The page at `/client/`.
    Page = "page",
    /// Records of calls: `/calls`.
    Calls = "calls",
    /// A file of settings: `--config`.
    Config = "config",
    /// The sound card of this machine as a caller: `--local`.
    Local = "local",
    /// A canceller of its echo, on processors of 64 bits.
    Aec = "aec" if target_pointer_width = "64",
    /// `edge-runner call`.
    Call = "call",
    /// `edge-runner setup`, the setup page of a board, and `--settings page`.
    Setup = "setup",
    /// `edge-runner new`: folders for bots of one's own.
    New = "new",
    /// `edge-runner doctor`.
    Doctor = "doctor",
    /// `edge-runner update`.
    Update = "update",
    /// `edge-runner cloud`.
    Cloud = "cloud",
    /// The cloud service on several machines: `--database`, `--store`.
    Scale = "scale",
}

impl Feature {
    /// Returns the error about the feature if this build lacks it.
    pub fn missing(self) -> Option<MissingFeature> {
        (!self.in_this_build()).then_some(MissingFeature(self))
    }
}

/// Paths of the WebSockets that callers open.
const SOCKETS: [(Feature, &str); 2] = [(Feature::Telephony, "/ws"), (Feature::WebSocket, "/ws-client")];

/// Returns whether clients of one's own, such as a device, can call a runner of this build.
pub const fn serves_clients() -> bool {
    Feature::WebRtc.in_this_build() || Feature::WebSocket.in_this_build()
}

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
    fn the_default_build_has_every_feature_that_one_machine_needs() {
        for feature in Feature::ALL.into_iter().filter(|feature| *feature != Feature::Scale) {
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
