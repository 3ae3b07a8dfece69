//! Who takes whose place: a device that was reset comes back, and its former session ends.
//!
//! In: the news of other sessions, and questions whether the caller is there. Out: the end of the
//! session, or a question to the caller, which `liveness` judges.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::WebRtcSession;
use crate::event::LeaveReason;
use crate::server::source::SourceKey;
use crate::session::Session as _;

/// A microcontroller, as far as it is known from outside of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// Where it was last proven to be.
    pub address: SocketAddr,
    /// The address that its offer names: its own one, behind a NAT.
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
    /// Tells whether the device of another offer may be this one, come back. Two that are there at
    /// the same time have different addresses of their own.
    pub fn may_be_same_device(self, other: OfferOrigin) -> bool {
        let differ = self.host.zip(other.host).is_some_and(|(one, other)| one != other);
        self.source == other.source && !differ
    }
}

/// Another session whose caller may be this one's, come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompetingSession {
    /// Its checks are answered from an address and port from which this one's were.
    AtAddress,
    /// A device's, which is connected.
    Device(DeviceIdentity),
}

impl WebRtcSession {
    /// Takes the news of another session.
    ///
    /// Silence is no proof that a caller has gone: a device that pushes to talk says nothing, and a
    /// network may be away for a while. Nor is a common address, since a NAT has one for all behind
    /// it. So none of this ends a session whose caller is there:
    /// - A device that has shaken hands at the very address and port of this one is this one, and
    ///   has new keys: it ends at once.
    /// - Where no more is known than that the rival is answered there, or that it names the same
    ///   address of its own behind a common one, the caller is asked. It goes when nothing was
    ///   heard for as long as makes it lost. A checked address alone must not end a session:
    ///   devices answer any peer that knows their password, and some have all the same.
    /// - Anybody else at a common address is a neighbour, who takes nothing away. If it was this
    ///   device after all, there is a session too many until this one is given up.
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

    /// Somebody wants to know whether the caller is there: it is asked at once. What was found is
    /// in the outputs.
    pub fn handle_probe(&mut self, now: Instant) {
        let can_ask = self.can_send_audio() && self.connection.validated_address().is_some();
        self.liveness.start_probe(can_ask, now);
        self.send_due_check(now);
    }
}
