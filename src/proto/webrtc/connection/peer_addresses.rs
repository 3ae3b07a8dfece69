//! Where the other end is: the addresses that it has named, checked from, and answered at.
//!
//! In: candidates, and the STUN messages of both ends. Out: candidates for str0m, what may come in,
//! and the addresses that an answer to a check of this end has proven (return routability). Whether
//! a message is signed is for str0m to say, or for [`super::consent`] where it answers a check of
//! that. Source: RFC 8445 sections 7.2.5 and 7.3.

use std::net::SocketAddr;

use str0m::Candidate;
use str0m::crypto::Sha1HmacProvider;

use super::checks::{CheckInitiator, PendingChecks};
use super::consent::Consent;
use super::output::ValidatedPath;
use super::packet::PacketPath;
use super::packet::{ReceivedPacket, Transmit};
use crate::limits::{CHECKED_ADDRESSES_MAX, CHECKED_UNPROVEN_MAX, REMOTE_CANDIDATES_MAX};
use crate::webrtc::candidate::{self, CandidateError, ParsedCandidate, RemoteCandidatePolicy};
use crate::webrtc::packet_kind::PacketKind;

/// What is known of the other end's addresses.
///
/// All are counted, since str0m keeps each for ever. An address of this end is never the other's. A
/// check may say to come from anywhere; so those addresses that have not answered are counted over
/// all restarts of ICE, and over all connections of the session.
pub struct PeerAddresses {
    policy: RemoteCandidatePolicy,
    /// The addresses of this end, offered or not.
    own: Vec<SocketAddr>,
    candidate_count: usize,
    /// Where the peer has checked from.
    checked_from: Vec<SocketAddr>,
    /// Where it has answered a check of this end, here and before.
    validated: Vec<SocketAddr>,
    /// How many addresses it has checked from that did not answer, here and before.
    unvalidated_count: usize,
    checks: PendingChecks,
    pub consent: Consent,
    /// A check of this end's own that has to leave.
    queued_check: Option<Transmit>,
    validated_path: Option<ValidatedPath>,
}

impl PeerAddresses {
    /// Begins with all addresses under which this end is reached. `hmac` signs the checks that this
    /// end makes beside those of str0m.
    pub fn new(policy: RemoteCandidatePolicy, own: Vec<SocketAddr>, hmac: &'static dyn Sha1HmacProvider) -> Self {
        PeerAddresses {
            policy,
            own,
            candidate_count: 0,
            checked_from: Vec::new(),
            validated: Vec::new(),
            unvalidated_count: 0,
            checks: PendingChecks::default(),
            consent: Consent::new(hmac),
            queued_check: None,
            validated_path: None,
        }
    }

    /// Goes on counting where the connection before this one stopped.
    pub fn inherit(&mut self, former: PeerAddresses) {
        self.unvalidated_count += former.unvalidated_count;
        self.validated = former.validated;
    }

    /// ICE has restarted, and has forgotten the peer's candidates.
    pub fn handle_restart(&mut self) {
        self.candidate_count = 0;
        self.checked_from.clear();
        self.consent.handle_restart();
    }

    /// Takes a candidate of the peer as text, and returns it fit for str0m.
    ///
    /// # Errors
    /// Why it is ignored; nothing when there are too many, or when str0m cannot read it.
    pub fn parse_candidate(&mut self, text: &str) -> Result<(ParsedCandidate, Candidate), Option<CandidateError>> {
        if self.candidate_count == REMOTE_CANDIDATES_MAX {
            log::debug!("remote candidate ignored: {REMOTE_CANDIDATES_MAX} are known");
            return Err(None);
        }
        let policy = self.policy;
        let usable = candidate::parse_remote(text, &policy).and_then(|usable| match self.is_own(usable.addr) {
            true => Err(CandidateError::Own),
            false => Ok(usable),
        });
        let usable = usable.map_err(|ignored| {
            log::debug!("remote candidate ignored: {ignored}");
            Some(ignored)
        })?;
        match Candidate::from_sdp_string(&usable.text) {
            Ok(candidate) => {
                self.candidate_count += 1;
                Ok((usable, candidate))
            }
            Err(error) => {
                log::debug!("remote candidate ignored: {error}");
                Err(None)
            }
        }
    }

    /// Tells whether an address is this end's: one that is offered, or, with the port of one, any
    /// of loopback.
    fn is_own(&self, address: SocketAddr) -> bool {
        let is_it = |own: &SocketAddr| *own == address || (own.port() == address.port() && address.ip().is_loopback());
        self.own.iter().any(is_it)
    }

    /// Tells whether a packet may come from its source: each address that checks becomes a
    /// candidate that str0m keeps.
    pub fn admit_check(&mut self, kind: PacketKind, packet: &ReceivedPacket<'_>) -> bool {
        if kind != PacketKind::Check || self.has_checked_from(packet.source) {
            return true;
        }
        let known = self.validated.contains(&packet.source);
        let room =
            self.checked_from.len() < CHECKED_ADDRESSES_MAX && (known || self.unvalidated_count < CHECKED_UNPROVEN_MAX);
        if room {
            self.unvalidated_count += usize::from(!known);
            self.checked_from.push(packet.source);
        } else {
            let (here, unproven) = (self.checked_from.len(), self.unvalidated_count);
            log::debug!("check ignored: the peer has {here} addresses already, and {unproven} did not answer");
        }
        room
    }

    /// Tells whether the peer has checked from this address. Who has not is a stranger.
    pub fn has_checked_from(&self, source: SocketAddr) -> bool {
        self.checked_from.contains(&source)
    }

    /// Tells whether a packet says to answer a check that this end made beside those of str0m.
    pub fn answers_consent_check(&self, kind: PacketKind, packet: &ReceivedPacket<'_>) -> bool {
        self.checks.initiator_of(kind, packet) == Some(CheckInitiator::Consent)
    }

    /// Takes what says to answer such a check, and tells whether it is signed.
    pub fn handle_consent_answer(&mut self, packet: &ReceivedPacket<'_>) -> bool {
        let is_signed = self.consent.is_signed(packet.contents);
        if is_signed {
            self.handle_signed(PacketKind::CheckAnswer, packet);
        }
        is_signed
    }

    /// Takes a signed message: it may answer a check from where that was sent to.
    pub fn handle_signed(&mut self, kind: PacketKind, packet: &ReceivedPacket<'_>) {
        let Some(source) = self.checks.take_answered(kind, packet) else {
            return;
        };
        self.mark_validated(packet.source);
        self.consent.handle_validated(PacketPath {
            over: packet.over,
            source,
            peer: packet.source,
        });
        self.validated_path = Some(ValidatedPath {
            over: packet.over,
            local: packet.destination,
            peer: packet.source,
        });
    }

    /// A check of this end was answered from there.
    fn mark_validated(&mut self, source: SocketAddr) {
        if self.validated.contains(&source) || self.validated.len() == CHECKED_ADDRESSES_MAX {
            return;
        }
        self.validated.push(source);
        self.unvalidated_count -= usize::from(self.has_checked_from(source));
    }

    /// Takes note of what str0m sends.
    pub fn handle_outgoing(&mut self, transmit: &mut Transmit) {
        if transmit.is_check() {
            self.checks.handle_outgoing(CheckInitiator::Str0m, transmit);
            self.consent.handle_check(transmit.contents());
        }
    }

    /// Returns an address that was proven since the last call.
    pub fn take_validated_path(&mut self) -> Option<ValidatedPath> {
        self.validated_path.take()
    }

    /// Returns the check that has to leave.
    pub fn take_check(&mut self) -> Option<Transmit> {
        let mut check = self.queued_check.take()?;
        self.checks.handle_outgoing(CheckInitiator::Consent, &mut check);
        Some(check)
    }

    /// Makes a check, and tells whether there is one: the peer has to have answered before.
    pub fn queue_check(&mut self) -> bool {
        self.queued_check = self.consent.build_check();
        self.queued_check.is_some()
    }

    /// Returns the address and port that the peer was last proven to have.
    pub fn current(&self) -> Option<SocketAddr> {
        self.consent.path().map(|way| way.peer)
    }
}
