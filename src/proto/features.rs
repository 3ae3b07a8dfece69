//! What this build can do: one [`Feature`] per cargo feature, and the one place that asks which features there are.
//!
//! Nothing enters but the features of the build; constants leave. A module that is not built has a twin, `absent.rs` in its
//! folder, chosen where the module is declared, so no other line of the crate asks for a feature. What a build lacks is
//! refused in the words of [`MissingFeature`], wherever it is asked for: in options, routes, and `/start`.

use std::fmt;

/// One thing that a build has or lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    WebRtc,
    /// The runner itself asks STUN and TURN servers; without it only its clients do.
    Turn,
    Telephony,
    WebSocket,
    Mediaroom,
    Videoroom,
    Messaging,
    Tls,
    Page,
    Doctor,
    Cloud,
}

impl Feature {
    /// Every one, in the order of `Cargo.toml`.
    pub const ALL: [Feature; 11] = [
        Feature::WebRtc,
        Feature::Turn,
        Feature::Telephony,
        Feature::WebSocket,
        Feature::Mediaroom,
        Feature::Videoroom,
        Feature::Messaging,
        Feature::Tls,
        Feature::Page,
        Feature::Doctor,
        Feature::Cloud,
    ];

    /// Returns the name of its cargo feature.
    pub const fn name(self) -> &'static str {
        match self {
            Feature::WebRtc => "webrtc",
            Feature::Turn => "turn",
            Feature::Telephony => "telephony",
            Feature::WebSocket => "websocket",
            Feature::Mediaroom => "mediaroom",
            Feature::Videoroom => "videoroom",
            Feature::Messaging => "messaging",
            Feature::Tls => "tls",
            Feature::Page => "page",
            Feature::Doctor => "doctor",
            Feature::Cloud => "cloud",
        }
    }

    /// Tells whether this build has it.
    pub const fn in_this_build(self) -> bool {
        match self {
            Feature::WebRtc => cfg!(feature = "webrtc"),
            Feature::Turn => cfg!(feature = "turn"),
            Feature::Telephony => cfg!(feature = "telephony"),
            Feature::WebSocket => cfg!(feature = "websocket"),
            Feature::Mediaroom => cfg!(feature = "mediaroom"),
            Feature::Videoroom => cfg!(feature = "videoroom"),
            Feature::Messaging => cfg!(feature = "messaging"),
            Feature::Tls => cfg!(feature = "tls"),
            Feature::Page => cfg!(feature = "page"),
            Feature::Doctor => cfg!(feature = "doctor"),
            Feature::Cloud => cfg!(feature = "cloud"),
        }
    }

    /// Returns itself in words if this build lacks it.
    pub fn missing(self) -> Option<MissingFeature> {
        (!self.in_this_build()).then_some(MissingFeature(self))
    }
}

/// An feature that this build lacks. Its words are the end of a sentence that begins with what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingFeature(pub Feature);

impl fmt::Display for MissingFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.name();
        write!(f, "is not in this build: the cargo feature `{name}` brings it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_build_has_every_ability() {
        for feature in Feature::ALL {
            assert_eq!(feature.missing(), None, "{}", feature.name());
        }
    }

    #[test]
    fn what_is_absent_names_its_feature() {
        assert_eq!(
            format!("`--tls` {}", MissingFeature(Feature::Tls)),
            "`--tls` is not in this build: the cargo feature `tls` brings it"
        );
    }
}
