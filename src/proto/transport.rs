//! The transports of a session, by the names of `/start`, `-t` and `/status`.

use crate::aliases::{self, Area};
use crate::features::Feature;
use crate::telephony::{PROVIDERS, Provider};

/// A transport, as `/start` and `-t` select it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// WebRTC connections of browsers, microcontrollers and WHIP or WHEP clients.
    WebRtc,
    /// Daily rooms.
    #[doc(alias = "Daily")]
    Videoroom,
    /// LiveKit rooms.
    #[doc(alias = "LiveKit")]
    Mediaroom,
    /// Calls of a telephony provider.
    Telephony(&'static Provider),
    /// Plain clients on a WebSocket.
    WebSocket,
    /// Media over QUIC, served by the runner or through a relay.
    Moq,
    /// The sound card of this machine, which neither `/start` nor `-t` selects.
    Local,
}

/// Number of transports other than those of the telephony providers.
const OTHERS: usize = 5;

impl Transport {
    /// All transports that `/start` and `-t` select, in the order of help texts and pages.
    pub const ALL: [Transport; OTHERS + PROVIDERS.len()] = Transport::all(PROVIDERS);

    /// Every transport that a session may have.
    pub const OF_SESSIONS: [Transport; OTHERS + PROVIDERS.len() + 1] = {
        let mut all = [Transport::Local; OTHERS + PROVIDERS.len() + 1];
        let mut at = 0;
        while at < Transport::ALL.len() {
            all[at] = Transport::ALL[at];
            at += 1;
        }
        all
    };

    /// The transports by which `edge-runner call` calls, beside those of telephones.
    #[doc(hidden)]
    pub const CALLABLE: [Transport; 4] = [
        Transport::WebRtc,
        Transport::WebSocket,
        Transport::Mediaroom,
        Transport::Moq,
    ];

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
            Transport::Local => "local",
        }
    }

    /// Returns the name by which people know it, for logs and reports: its first alias, or the
    /// canonical name without one.
    pub fn common_name(self) -> &'static str {
        let name = self.name();
        aliases::aliases(Area::Transport, name).first().copied().unwrap_or(name)
    }

    /// Returns the transport with this canonical name or alias.
    pub fn from_name(name: &str) -> Option<Transport> {
        Transport::named(&Transport::ALL, name)
    }

    /// Returns the transport of a session with this canonical name or alias.
    pub fn of_session(name: &str) -> Option<Transport> {
        Transport::named(&Transport::OF_SESSIONS, name)
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
            Transport::Local => Feature::Local,
        }
    }

    /// Returns the transport of a feature. Each telephony provider is one; `-t` says which.
    #[doc(hidden)]
    pub fn of_feature(feature: Feature, selected: Option<Transport>) -> Option<Transport> {
        let mut transports = Transport::ALL
            .into_iter()
            .filter(|transport| transport.feature() == feature);
        match (transports.next(), transports.next()) {
            (Some(only), None) => Some(only),
            _ => selected.filter(|selected| selected.feature() == feature),
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

    /// Returns whether its media passes the runner. The bot joins a Daily room by itself.
    #[doc(hidden)]
    pub fn has_media(self) -> bool {
        self != Transport::Videoroom
    }

    /// Returns why the wish of a `/start` request to be recorded or not cannot be followed.
    #[doc(hidden)]
    pub fn cannot_follow_record(self, wish: bool) -> Option<&'static str> {
        match self {
            Transport::Videoroom if wish => Some("no sound of a Daily room passes this runner"),
            Transport::Telephony(_) => {
                Some("the body does not reach the call of a telephony provider; a parameter `record` of the call does")
            }
            _ => None,
        }
    }

    /// Returns whether its audio is RTP, which shows what was lost.
    #[doc(hidden)]
    pub fn has_rtp(self) -> bool {
        matches!(self, Transport::WebRtc | Transport::Mediaroom)
    }

    /// Returns whether a caller makes an offer that the runner answers.
    #[doc(hidden)]
    pub fn takes_offers(self) -> bool {
        self == Transport::WebRtc
    }

    /// Returns whether `edge-runner call` calls by it.
    #[doc(hidden)]
    pub fn is_callable(self) -> bool {
        self.is_telephony() || Transport::CALLABLE.contains(&self)
    }

    /// Returns what it is for, behind its name in the help of `edge-runner call`.
    #[doc(hidden)]
    pub fn call_purpose(self) -> Option<&'static str> {
        match self {
            Transport::Mediaroom => Some("for a room"),
            Transport::Moq => Some("for Media over QUIC"),
            _ => None,
        }
    }

    /// Returns whether callers join rooms of a server that is not the runner.
    #[doc(hidden)]
    pub fn has_rooms(self) -> bool {
        matches!(self, Transport::Videoroom | Transport::Mediaroom)
    }

    /// Returns whether callers connect to the runner itself, which so learns their address.
    #[doc(hidden)]
    pub fn connects_callers(self) -> bool {
        matches!(self, Transport::WebRtc | Transport::WebSocket | Transport::Moq)
    }

    /// Returns whether its audio is that of telephone lines, with 8,000 samples a second.
    #[doc(hidden)]
    pub fn is_narrowband(self) -> bool {
        self.is_telephony()
    }

    /// Returns whether the client of a session learns its id from `/start`. A call of a telephony
    /// provider has a session only once it connects.
    #[doc(hidden)]
    pub fn names_sessions(self) -> bool {
        !self.is_telephony()
    }

    /// Returns what a list of allowed origins does to its calls, if it blocks them.
    #[doc(hidden)]
    pub fn blocked_by_origins(self) -> Option<&'static str> {
        self.is_telephony()
            .then_some("telephony providers send no Origin, so their calls are refused")
    }

    /// Returns whether it has a list of allowed origins of its own, that of the start.
    #[doc(hidden)]
    pub fn keeps_origins(self) -> bool {
        self == Transport::Moq
    }

    /// Returns whether only a runner started with its option serves it.
    #[doc(hidden)]
    pub fn needs_option(self) -> bool {
        matches!(self, Transport::Moq | Transport::Local)
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
        assert_eq!(Transport::from_name("local"), None, "it cannot be started from outside");
        assert_eq!(Transport::of_session("local"), Some(Transport::Local));
        assert_eq!(Transport::of_session("daily"), Some(Transport::Videoroom));
        assert_eq!(Transport::from_name("WebRTC"), None);
        assert_eq!(Transport::from_name(""), None);
    }

    #[test]
    fn a_feature_has_one_transport_or_one_of_each_provider() {
        let provider = Some(Transport::Telephony(PROVIDERS[1]));
        for selected in [None, provider, Some(Transport::Moq)] {
            let webrtc = Transport::of_feature(Feature::WebRtc, selected);
            assert_eq!(webrtc, Some(Transport::WebRtc));
            assert_eq!(Transport::of_feature(Feature::Page, selected), None);
        }
        assert_eq!(Transport::of_feature(Feature::Telephony, provider), provider);
        assert_eq!(Transport::of_feature(Feature::Telephony, Some(Transport::WebRtc)), None);
        assert_eq!(Transport::of_feature(Feature::Telephony, None), None);
    }

    #[test]
    fn calls_of_providers_are_narrowband_without_an_id_or_an_origin() {
        for transport in Transport::OF_SESSIONS {
            let is_of_provider = transport.provider().is_some();
            assert_eq!(transport.is_narrowband(), is_of_provider, "{}", transport.name());
            assert_eq!(transport.names_sessions(), !is_of_provider, "{}", transport.name());
            let is_blocked = transport.blocked_by_origins().is_some();
            assert_eq!(is_blocked, is_of_provider, "{}", transport.name());
        }
    }
}
