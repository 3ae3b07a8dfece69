//! Where the other end is: the addresses that it has named, checked from, and answered at.
//!
//! In: candidates, and the STUN messages of both ends. Out: candidates for str0m, what may come in, and the addresses that an
//! answer to a check of this end has proven (return routability). Whether a message is signed is for str0m to say, or for
//! [`super::consent`] where it answers a check of that. Source: RFC 8445 sections 7.2.5 and 7.3.

use std::net::SocketAddr;

use str0m::Candidate;
use str0m::crypto::Sha1HmacProvider;

use super::checks::{Checks, Maker};
use super::consent::{Consent, Way};
use super::output::Proven;
use super::packet::{Packet, Transmit};
use super::remote::Remote;
use crate::candidate::{Ignored, Usable};
use crate::packet_kind::PacketKind;

/// The addresses of the other end.
pub struct Paths {
    remote: Remote,
    checks: Checks,
    consent: Consent,
    /// A check of this end's own that has to leave.
    check: Option<Transmit>,
    proven: Option<Proven>,
}

impl Paths {
    /// `hmac` signs the checks that this end makes beside those of str0m.
    pub fn new(remote: Remote, hmac: &'static dyn Sha1HmacProvider) -> Self {
        Paths {
            remote,
            checks: Checks::default(),
            consent: Consent::new(hmac),
            check: None,
            proven: None,
        }
    }

    /// Goes on counting where the connection before this one stopped.
    pub fn follow(&mut self, former: Paths) {
        self.remote.follow(former.remote);
    }

    /// Takes a description of the other end that str0m has taken.
    pub fn handle_description(&mut self, sdp: &str) {
        self.consent.handle_description(sdp);
    }

    /// ICE has restarted.
    pub fn handle_restart(&mut self) {
        self.remote.handle_restart();
        self.consent.handle_restart();
    }

    /// Takes a candidate of the other end as text, and returns it fit for str0m.
    ///
    /// # Errors
    /// Why it is ignored; nothing when there are too many, or when str0m cannot read it.
    pub fn candidate(&mut self, text: &str) -> Result<(Usable, Candidate), Option<Ignored>> {
        self.remote.candidate(text)
    }

    /// Tells whether the peer has checked from this address.
    pub fn has_checked_from(&self, source: SocketAddr) -> bool {
        self.remote.has_checked_from(source)
    }

    /// Tells whether a packet may come from its source.
    pub fn admits(&mut self, kind: PacketKind, packet: &Packet<'_>) -> bool {
        self.remote.admits(kind, packet)
    }

    /// Tells whether a packet says to answer a check that this end made beside those of str0m.
    pub fn is_answer(&self, kind: PacketKind, packet: &Packet<'_>) -> bool {
        self.checks.answered(kind, packet) == Some(Maker::Consent)
    }

    /// Takes what says to answer such a check, and tells whether it is signed.
    pub fn handle_answer(&mut self, packet: &Packet<'_>) -> bool {
        let is_signed = self.consent.is_signed(packet.contents);
        if is_signed {
            self.handle_signed(PacketKind::CheckAnswer, packet);
        }
        is_signed
    }

    /// Takes a signed message: it may answer a check from where that was sent to.
    pub fn handle_signed(&mut self, kind: PacketKind, packet: &Packet<'_>) {
        let Some(source) = self.checks.take_answered(kind, packet) else {
            return;
        };
        self.remote.handle_proof(packet.source);
        self.consent.handle_proof(Way {
            over: packet.over,
            source,
            peer: packet.source,
        });
        self.proven = Some(Proven {
            over: packet.over,
            local: packet.destination,
            peer: packet.source,
        });
    }

    /// Takes note of what str0m sends.
    pub fn handle_outgoing(&mut self, transmit: &mut Transmit) {
        if transmit.is_check() {
            self.checks.handle_outgoing(Maker::Str0m, transmit);
            self.consent.handle_check(transmit.contents());
        }
    }

    /// Returns an address that was proven since the last call.
    pub fn take_proven(&mut self) -> Option<Proven> {
        self.proven.take()
    }

    /// Returns the check that has to leave.
    pub fn take_check(&mut self) -> Option<Transmit> {
        let mut check = self.check.take()?;
        self.checks.handle_outgoing(Maker::Consent, &mut check);
        Some(check)
    }

    /// Makes a check, and tells whether there is one: the peer has to have answered before.
    pub fn ask(&mut self) -> bool {
        self.check = self.consent.check();
        self.check.is_some()
    }

    /// Returns the address and port that the peer was last proven to have.
    pub fn address(&self) -> Option<SocketAddr> {
        self.consent.way().map(|way| way.peer)
    }
}
