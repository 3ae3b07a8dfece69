//! The addresses of the peer: named as candidates, used for checks, or validated.
//!
//! In: candidates, and STUN messages in both directions. Out: candidates for str0m, packets to
//! accept, and addresses that answered a check of this end (return routability). str0m verifies
//! signatures; [`super::consent`] verifies answers to its own checks. Source: RFC 8445 sections
//! 7.2.5 and 7.3.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use str0m::Candidate;
use str0m::crypto::Sha1HmacProvider;
use str0m::net::Protocol;

use super::checks::{AnsweredCheck, CheckInitiator, PendingChecks};
use super::consent::Consent;
use super::moved_peer::MovedPeer;
use super::output::ValidatedPath;
use super::packet::PacketPath;
use super::packet::{ReceivedPacket, Transmit};
use crate::limits::{CHECKED_ADDRESSES_MAX, CHECKED_UNPROVEN_MAX, REMOTE_CANDIDATES_MAX};
use crate::webrtc::candidate::{self, CandidateError, ParsedCandidate, RemoteCandidatePolicy};
use crate::webrtc::packet_kind::PacketKind;

/// The peer's known addresses.
///
/// str0m keeps every address forever, so they are counted. Source addresses of checks can be
/// forged; those that never answered are counted across ICE restarts and across all connections of
/// a session.
pub struct PeerAddresses {
    policy: RemoteCandidatePolicy,
    /// All addresses of this end, offered or not.
    own: Vec<SocketAddr>,
    /// Addresses of candidates.
    named: Vec<(Protocol, SocketAddr)>,
    /// Addresses from which the peer has sent checks.
    checked_from: Vec<SocketAddr>,
    /// Addresses that answered a check of this end, in this connection or an earlier one.
    validated: Vec<SocketAddr>,
    /// How many addresses sent checks without ever answering one, in this connection or an earlier
    /// one.
    unvalidated_count: usize,
    checks: PendingChecks,
    pub consent: Consent,
    pub moved: MovedPeer,
    /// A check of this end that is ready to send.
    queued_check: Option<Transmit>,
    validated_path: Option<ValidatedPath>,
    /// The path of what is no check, once there is something.
    used_path: Option<PacketPath>,
    /// From the last check on that path to its answer.
    round_trip: Option<Duration>,
}

impl PeerAddresses {
    /// Creates the state for a connection with these local addresses. `hmac` signs the additional
    /// checks.
    pub fn new(policy: RemoteCandidatePolicy, own: Vec<SocketAddr>, hmac: &'static dyn Sha1HmacProvider) -> Self {
        PeerAddresses {
            policy,
            own,
            named: Vec::new(),
            checked_from: Vec::new(),
            validated: Vec::new(),
            unvalidated_count: 0,
            checks: PendingChecks::default(),
            consent: Consent::new(hmac),
            moved: MovedPeer::default(),
            queued_check: None,
            validated_path: None,
            used_path: None,
            round_trip: None,
        }
    }

    /// Continues the counts of the previous connection.
    pub fn inherit(&mut self, former: PeerAddresses) {
        self.unvalidated_count += former.unvalidated_count;
        self.validated = former.validated;
    }

    /// Forgets the candidates of the ICE session before a restart.
    pub fn handle_restart(&mut self) {
        self.named.clear();
        self.checked_from.clear();
        self.consent.handle_restart();
        self.moved.handle_restart();
    }

    /// Parses a candidate of the peer for str0m.
    ///
    /// # Errors
    /// Why the candidate is ignored, or `None` if its address is known, there are too many, or
    /// str0m cannot parse it.
    pub fn parse_candidate(&mut self, text: &str) -> Result<(ParsedCandidate, Candidate), Option<CandidateError>> {
        self.parse_with(text, candidate::parse_remote)
    }

    /// Parses a candidate of the peer that accepts TCP connections.
    ///
    /// # Errors
    /// As [`PeerAddresses::parse_candidate`].
    pub fn parse_tcp_candidate(&mut self, text: &str) -> Result<(ParsedCandidate, Candidate), Option<CandidateError>> {
        self.parse_with(text, candidate::parse_passive_tcp)
    }

    fn parse_with(
        &mut self,
        text: &str,
        parse: impl Fn(&str, &RemoteCandidatePolicy) -> Result<ParsedCandidate, CandidateError>,
    ) -> Result<(ParsedCandidate, Candidate), Option<CandidateError>> {
        if self.named.len() == REMOTE_CANDIDATES_MAX {
            log::debug!("remote candidate ignored: {REMOTE_CANDIDATES_MAX} are known");
            return Err(None);
        }
        let policy = self.policy;
        let usable = parse(text, &policy).and_then(|usable| match self.is_own(usable.addr) {
            true => Err(CandidateError::Own),
            false => Ok(usable),
        });
        let usable = usable.map_err(|ignored| {
            log::debug!("remote candidate ignored: {ignored}");
            Some(ignored)
        })?;
        match Candidate::from_sdp_string(&usable.text) {
            Ok(candidate) => {
                let named = (candidate.proto(), candidate.addr());
                if self.named.contains(&named) {
                    log::debug!("remote candidate ignored: its address is known");
                    return Err(None);
                }
                self.named.push(named);
                Ok((usable, candidate))
            }
            Err(error) => {
                log::debug!("remote candidate ignored: {error}");
                Err(None)
            }
        }
    }

    /// Returns whether an address belongs to this end: an offered one, or loopback with an offered
    /// port.
    fn is_own(&self, address: SocketAddr) -> bool {
        let is_it = |own: &SocketAddr| *own == address || (own.port() == address.port() && address.ip().is_loopback());
        self.own.iter().any(is_it)
    }

    /// Returns whether a check from this source is admitted. str0m keeps a candidate for every
    /// source.
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

    /// Returns whether the peer sent a check from this address.
    pub fn has_checked_from(&self, source: SocketAddr) -> bool {
        self.checked_from.contains(&source)
    }

    /// Returns whether a packet answers an additional check of this end.
    pub fn answers_consent_check(&self, kind: PacketKind, packet: &ReceivedPacket<'_>) -> bool {
        self.checks.initiator_of(kind, packet) == Some(CheckInitiator::Consent)
    }

    /// Handles such an answer. Returns whether it is signed.
    pub fn handle_consent_answer(&mut self, packet: &ReceivedPacket<'_>, now: Instant) -> bool {
        let is_signed = self.consent.is_signed(packet.contents);
        if is_signed {
            self.handle_signed(PacketKind::CheckAnswer, packet, now);
        }
        is_signed
    }

    /// Handles a signed message, which may validate the path of a check.
    pub fn handle_signed(&mut self, kind: PacketKind, packet: &ReceivedPacket<'_>, now: Instant) {
        let Some(AnsweredCheck { path, round_trip }) = self.checks.take_answered(kind, packet, now) else {
            return;
        };
        // Other pairs of candidates are checked as well, and may be slower.
        if self.used_path.is_none_or(|used| used == path) {
            self.round_trip = Some(round_trip);
        }
        self.mark_validated(packet.source);
        self.consent.handle_validated(path);
        self.moved.handle_validated(path);
        self.validated_path = Some(ValidatedPath {
            over: packet.over,
            local: packet.destination,
            peer: packet.source,
        });
    }

    /// Marks an address as validated.
    fn mark_validated(&mut self, source: SocketAddr) {
        if self.validated.contains(&source) || self.validated.len() == CHECKED_ADDRESSES_MAX {
            return;
        }
        self.validated.push(source);
        self.unvalidated_count -= usize::from(self.has_checked_from(source));
    }

    /// Records the checks among str0m's packets.
    pub fn handle_outgoing(&mut self, transmit: &mut Transmit, now: Instant) {
        if transmit.is_check() {
            self.checks.handle_outgoing(CheckInitiator::Str0m, transmit, now);
            self.consent.handle_check(transmit.contents());
        }
    }

    /// Records the path of an outgoing packet that is no check.
    pub fn handle_used(&mut self, path: PacketPath) {
        self.used_path = Some(path);
    }

    /// Returns the time from the last answered check on the path of the media to its answer.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Returns the path that was validated since the last call.
    pub fn take_validated_path(&mut self) -> Option<ValidatedPath> {
        self.validated_path.take()
    }

    /// Returns the queued check.
    pub fn take_check(&mut self, now: Instant) -> Option<Transmit> {
        let mut check = self.queued_check.take()?;
        self.checks.handle_outgoing(CheckInitiator::Consent, &mut check, now);
        Some(check)
    }

    /// Queues a check. Returns `false` if no path has been validated yet.
    pub fn queue_check(&mut self) -> bool {
        self.queued_check = self.consent.build_check();
        self.queued_check.is_some()
    }

    /// Returns the address and port of the path that was validated last.
    pub fn current(&self) -> Option<SocketAddr> {
        self.consent.path().map(|path| path.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::IceProtocol;
    use super::*;

    fn message(kind: [u8; 2], number: u8) -> Vec<u8> {
        let mut message = [&kind[..], &[0, 0, 0x21, 0x12, 0xa4, 0x42]].concat();
        message.extend([number; 12]);
        message
    }

    fn path(port: u16) -> PacketPath {
        PacketPath {
            over: IceProtocol::Udp,
            source: SocketAddr::from(([192, 0, 2, 1], 7860)),
            peer: SocketAddr::from(([192, 0, 2, 9], port)),
        }
    }

    /// Checks of other paths tell nothing of that which carries the media.
    #[test]
    fn the_round_trip_is_that_of_the_used_path() {
        let policy = RemoteCandidatePolicy {
            loopback_offered: false,
            named_by_operator: false,
        };
        let hmac = crate::webrtc::crypto::provider().sha1_hmac_provider;
        let mut paths = PeerAddresses::new(policy, Vec::new(), hmac);
        let mut now = Instant::now();
        let mut number = 0;
        let mut check = |paths: &mut PeerAddresses, port: u16, millis: u64| {
            number += 1;
            let mut sent = Transmit::from_parts(path(port), message([0, 1], number));
            paths.handle_outgoing(&mut sent, now);
            now += Duration::from_millis(millis);
            let answer = message([1, 1], number);
            let packet = ReceivedPacket::from_datagram(path(port).peer, path(port).source, &answer);
            paths.handle_signed(PacketKind::CheckAnswer, &packet, now);
            paths.round_trip().map(|time| time.as_millis())
        };
        assert_eq!(check(&mut paths, 1, 90), Some(90), "nothing is sent yet");
        assert_eq!(check(&mut paths, 2, 20), Some(20));
        paths.handle_used(path(2));
        assert_eq!(check(&mut paths, 1, 90), Some(20));
        assert_eq!(check(&mut paths, 2, 30), Some(30));
        paths.handle_used(path(1));
        assert_eq!(check(&mut paths, 2, 40), Some(30));
        assert_eq!(check(&mut paths, 1, 80), Some(80));
    }
}
