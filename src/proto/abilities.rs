//! What this build can do: one [`Ability`] per cargo feature, and the one place that asks which features there are.
//!
//! Nothing enters but the features of the build; constants leave. A module that is not built has a twin, `absent.rs` in its
//! folder, chosen where the module is declared, so no other line of the crate asks for a feature. What a build lacks is
//! refused in the words of [`Absent`], wherever it is asked for: in options, routes, and `/start`.

use std::fmt;

/// One thing that a build has or lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
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

impl Ability {
    /// Every one, in the order of `Cargo.toml`.
    pub const ALL: [Ability; 11] = [
        Ability::WebRtc,
        Ability::Turn,
        Ability::Telephony,
        Ability::WebSocket,
        Ability::Mediaroom,
        Ability::Videoroom,
        Ability::Messaging,
        Ability::Tls,
        Ability::Page,
        Ability::Doctor,
        Ability::Cloud,
    ];

    /// Returns the name of its cargo feature.
    pub const fn feature(self) -> &'static str {
        match self {
            Ability::WebRtc => "webrtc",
            Ability::Turn => "turn",
            Ability::Telephony => "telephony",
            Ability::WebSocket => "websocket",
            Ability::Mediaroom => "mediaroom",
            Ability::Videoroom => "videoroom",
            Ability::Messaging => "messaging",
            Ability::Tls => "tls",
            Ability::Page => "page",
            Ability::Doctor => "doctor",
            Ability::Cloud => "cloud",
        }
    }

    /// Tells whether this build has it.
    pub const fn in_this_build(self) -> bool {
        match self {
            Ability::WebRtc => cfg!(feature = "webrtc"),
            Ability::Turn => cfg!(feature = "turn"),
            Ability::Telephony => cfg!(feature = "telephony"),
            Ability::WebSocket => cfg!(feature = "websocket"),
            Ability::Mediaroom => cfg!(feature = "mediaroom"),
            Ability::Videoroom => cfg!(feature = "videoroom"),
            Ability::Messaging => cfg!(feature = "messaging"),
            Ability::Tls => cfg!(feature = "tls"),
            Ability::Page => cfg!(feature = "page"),
            Ability::Doctor => cfg!(feature = "doctor"),
            Ability::Cloud => cfg!(feature = "cloud"),
        }
    }

    /// Returns itself in words if this build lacks it.
    pub fn absent(self) -> Option<Absent> {
        (!self.in_this_build()).then_some(Absent(self))
    }
}

/// An ability that this build lacks. Its words are the end of a sentence that begins with what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absent(pub Ability);

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let feature = self.0.feature();
        write!(f, "is not in this build: the cargo feature `{feature}` brings it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_build_has_every_ability() {
        for ability in Ability::ALL {
            assert_eq!(ability.absent(), None, "{}", ability.feature());
        }
    }

    #[test]
    fn what_is_absent_names_its_feature() {
        assert_eq!(
            format!("`--tls` {}", Absent(Ability::Tls)),
            "`--tls` is not in this build: the cargo feature `tls` brings it"
        );
    }
}
