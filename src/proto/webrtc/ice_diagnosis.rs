//! Explains why a connection was not established.
//!
//! In: the client's candidates, and every ICE and DTLS datagram until the connection is up. Out: an
//! [`IceFailure`], one sentence for the log, and a list of candidate pairs with counts. The
//! sentence describes a peer's addresses by type and network only; the list has them in full and is
//! for DEBUG. At most `TRIED_PAIRS_MAX` pairs are listed. Source: RFC 8445 section 7 (checks).

mod display;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::limits::REMOTE_CANDIDATES_MAX;
use crate::webrtc::candidate::{CandidateError, CandidateKind};
use crate::webrtc::crypto::HandshakeError;
use crate::webrtc::packet_kind::PacketKind;
use crate::webrtc::stun;

/// Candidate pairs that are counted until a connection is established: two local candidates with
/// each candidate of a client.
const TRIED_PAIRS_MAX: usize = 64;

/// A pair of addresses, and how many checks and answers it carried in each direction.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CheckedPair {
    local: SocketAddr,
    remote: SocketAddr,
    sent: u32,
    answered: u32,
    received: u32,
    replied: u32,
}

/// The record of one connection attempt.
#[derive(Clone, Debug, Default)]
pub struct IceAttempt {
    /// The UDP port of this runner.
    port: u16,
    candidates: Vec<(CandidateKind, SocketAddr)>,
    mdns_candidates: u32,
    unusable_candidates: u32,
    pairs: Vec<CheckedPair>,
    /// Checks on further pairs, beyond the cap.
    unlisted_checks: u32,
    /// Checks for this connection with an invalid signature.
    rejected_checks: u32,
    /// Success responses without XOR-MAPPED-ADDRESS.
    unmapped_answers: u32,
    records_in: u32,
    records_out: u32,
    /// The first DTLS error.
    handshake_error: Option<HandshakeError>,
    ice_connected: bool,
    is_secured: bool,
}

/// Why a connection was not established.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IceFailure {
    /// The client sent neither candidates nor packets.
    NothingReceived,
    /// All candidates are mDNS names, and no packet arrived.
    OnlyMdns,
    /// No candidate is usable, and no packet arrived.
    NoUsableCandidate,
    /// No local address matches the family of any candidate.
    NoPair,
    /// Checks were sent, and no packet arrived.
    Unanswered,
    /// The client's answers lack XOR-MAPPED-ADDRESS.
    UnmappedAnswers,
    /// The client's checks arrived, but no answer to this end's checks.
    OneWay,
    /// The packets were signed with other credentials.
    OtherCredentials,
    /// Checks were answered, but the client nominated no pair.
    NotNominated,
    /// ICE is up, but no DTLS record arrived.
    NoHandshake,
    /// The DTLS handshake began but did not finish.
    HandshakeIncomplete,
    /// The DTLS handshake failed, at this end or at the client's.
    HandshakeFailed(HandshakeError),
}

impl IceAttempt {
    /// Creates the record for a runner with this UDP port.
    pub fn new(port: u16) -> Self {
        IceAttempt {
            port,
            ..IceAttempt::default()
        }
    }

    /// Records a usable candidate of the client.
    pub fn handle_candidate(&mut self, kind: CandidateKind, address: SocketAddr) {
        // Each ICE restart adds candidates.
        if !self.is_secured && self.candidates.len() < REMOTE_CANDIDATES_MAX {
            self.candidates.push((kind, address));
        }
    }

    /// Records a candidate that cannot be used.
    pub fn handle_unusable_candidate(&mut self, why: CandidateError) {
        match why {
            CandidateError::EndOfCandidates => {}
            CandidateError::Mdns => self.mdns_candidates += 1,
            _ => self.unusable_candidates += 1,
        }
    }

    /// Records a received datagram; `accepted` is true if it belongs to this connection.
    pub fn handle_incoming(&mut self, source: SocketAddr, destination: SocketAddr, kind: PacketKind, accepted: bool) {
        if self.is_secured {
            return;
        }
        match kind {
            PacketKind::Check if !accepted => self.rejected_checks += 1,
            PacketKind::Check => self.count(destination, source, |pair| pair.received += 1),
            // An error response shows an open path, too.
            kind if kind.is_response() && accepted => self.count(destination, source, |pair| pair.answered += 1),
            PacketKind::Dtls => self.records_in += 1,
            _ => {}
        }
    }

    /// Records a datagram that str0m cannot parse.
    pub fn handle_unreadable(&mut self, contents: &[u8]) {
        if !self.is_secured && stun::lacks_mapped_address(contents) {
            self.unmapped_answers = self.unmapped_answers.saturating_add(1);
        }
    }

    /// Records an outgoing datagram.
    pub fn handle_outgoing(&mut self, source: SocketAddr, destination: SocketAddr, kind: PacketKind) {
        if self.is_secured {
            return;
        }
        match kind {
            PacketKind::Check => self.count(source, destination, |pair| pair.sent += 1),
            kind if kind.is_response() => self.count(source, destination, |pair| pair.replied += 1),
            PacketKind::Dtls => self.records_out += 1,
            _ => {}
        }
    }

    /// Records a DTLS error.
    pub fn handle_handshake_error(&mut self, refusal: HandshakeError) {
        if !self.is_secured {
            self.handshake_error.get_or_insert(refusal);
        }
    }

    /// Records that ICE selected a pair.
    pub fn handle_ice_connected(&mut self) {
        self.ice_connected = true;
    }

    /// Clears the record when the connection is up.
    pub fn handle_secured(&mut self) {
        *self = IceAttempt {
            is_secured: true,
            ..IceAttempt::new(self.port)
        };
    }

    /// Returns whether the connection is up.
    pub fn is_secured(&self) -> bool {
        self.is_secured
    }

    fn count(&mut self, local: SocketAddr, remote: SocketAddr, count: impl FnOnce(&mut CheckedPair)) {
        let is_it = |pair: &CheckedPair| pair.remote == remote && pair.local == local;
        match self.pairs.iter().position(is_it) {
            Some(at) => count(&mut self.pairs[at]),
            None if self.pairs.len() == TRIED_PAIRS_MAX => self.unlisted_checks += 1,
            None => {
                let mut pair = CheckedPair {
                    local,
                    remote,
                    sent: 0,
                    answered: 0,
                    received: 0,
                    replied: 0,
                };
                count(&mut pair);
                self.pairs.push(pair);
            }
        }
    }

    fn sum(&self, of: impl Fn(&CheckedPair) -> u32) -> u32 {
        self.pairs.iter().map(of).fold(0, u32::saturating_add)
    }

    /// Returns why the connection was not established.
    pub fn cause(&self) -> IceFailure {
        let (sent, answered) = (self.sum(|pair| pair.sent), self.sum(|pair| pair.answered));
        let received = self.sum(|pair| pair.received);
        if self.ice_connected {
            return match &self.handshake_error {
                Some(refusal) => IceFailure::HandshakeFailed(refusal.clone()),
                None if self.records_in == 0 => IceFailure::NoHandshake,
                None => IceFailure::HandshakeIncomplete,
            };
        }
        match (received, answered) {
            (_, 1..) => IceFailure::NotNominated,
            (_, 0) if self.unmapped_answers > 0 => IceFailure::UnmappedAnswers,
            (1.., 0) => IceFailure::OneWay,
            (0, 0) if self.rejected_checks > 0 => IceFailure::OtherCredentials,
            (0, 0) if sent > 0 => IceFailure::Unanswered,
            (0, 0) if !self.candidates.is_empty() => IceFailure::NoPair,
            (0, 0) if self.unusable_candidates > 0 => IceFailure::NoUsableCandidate,
            (0, 0) if self.mdns_candidates > 0 => IceFailure::OnlyMdns,
            (0, 0) => IceFailure::NothingReceived,
        }
    }

    /// Returns every pair with its counts and full addresses.
    pub fn pairs(&self) -> impl fmt::Display + '_ {
        display::PairsDisplay(self)
    }

    /// Returns the type of a remote address: that of its candidate, or peer-reflexive.
    fn candidate_kind(&self, remote: SocketAddr) -> CandidateKind {
        let named = self.candidates.iter().find(|(_, address)| *address == remote);
        named.map_or(CandidateKind::PeerReflexive, |(kind, _)| *kind)
    }

    /// Returns the local addresses from which checks were sent, without duplicates.
    fn local_addresses(&self) -> Vec<IpAddr> {
        let mut locals: Vec<IpAddr> = Vec::new();
        for pair in self.pairs.iter().filter(|pair| pair.sent > 0) {
            if !locals.contains(&pair.local.ip()) {
                locals.push(pair.local.ip());
            }
        }
        locals
    }
}

#[cfg(test)]
mod tests;
