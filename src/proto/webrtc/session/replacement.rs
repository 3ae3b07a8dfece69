//! Replaces the session of a device that was reset and connects again.
//!
//! In: notices of other sessions, and probes. Out: the end of the session, or a check to the
//! caller. Source: `docs/spec/devices.md` 9.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::WebRtcSession;
use crate::event::LeaveReason;
use crate::server::source::SourceKey;
use crate::session::Session as _;

/// What other sessions know about a microcontroller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// Its validated address.
    pub address: SocketAddr,
    /// Its address in its own network, from its offer.
    pub host: Option<IpAddr>,
}

/// Where a device's offer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferOrigin {
    pub source: SourceKey,
    /// As in [`DeviceIdentity`].
    pub host: Option<IpAddr>,
}

impl OfferOrigin {
    /// Returns whether another offer may come from the same device. Devices that exist at the same
    /// time have different host addresses.
    pub fn may_be_same_device(self, other: OfferOrigin) -> bool {
        let differ = self.host.zip(other.host).is_some_and(|(one, other)| one != other);
        self.source == other.source && !differ
    }
}

/// Another session that may have the same caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompetingSession {
    /// Its peer was validated at an address of this session.
    AtAddress,
    /// A connected device.
    Device(DeviceIdentity),
}

impl WebRtcSession {
    /// Handles a notice of another session.
    ///
    /// Silence does not prove that a caller is gone: a push-to-talk device sends nothing, and
    /// networks fail for a while. Neither does a common address, because of NATs. So a session ends
    /// only as follows:
    /// - A device that completed a handshake at this session's address and port has replaced this
    ///   one, which ends at once.
    /// - If the other peer was only validated at this address, or has the same host address behind
    ///   the same NAT, this session's caller is checked, and the session ends if the caller stays
    ///   silent. A validated address alone must not end a session, because devices answer any peer
    ///   that knows their password, and some share one.
    /// - Any other device behind the same NAT has no effect. If it was this one after all, the old
    ///   session ends by its timeout.
    pub fn handle_competitor(&mut self, rival: CompetingSession, now: Instant) {
        match (rival, self.device()) {
            (CompetingSession::AtAddress, _) => self.is_contested = true,
            (CompetingSession::Device(rival), Some(own)) if rival.address == own.address => {
                return self.handle_end(LeaveReason::Replaced, now);
            }
            (CompetingSession::Device(rival), Some(own)) if rival.address.ip() == own.address.ip() => {
                if rival.host.is_none() || rival.host != own.host {
                    return;
                }
                self.is_contested = true;
            }
            (CompetingSession::Device(_), _) => return,
        }
        self.handle_probe(now);
    }

    /// Starts a probe whether the caller is there. The outcome is in the outputs.
    pub fn handle_probe(&mut self, now: Instant) {
        let can_ask = self.can_send_audio() && self.connection.validated_address().is_some();
        self.liveness.start_probe(can_ask, now);
        self.send_due_check(now);
    }
}
