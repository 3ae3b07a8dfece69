//! Why a connection did not come to be, for whoever reads the log at night.
//!
//! In: the client's candidates, used or not, and every datagram of ICE and DTLS both ways until the connection is up; after
//! that nothing is counted. Out: a [`IceFailure`], one sentence for the log, and a list of the pairs with their counts. The sentence
//! tells a peer's addresses by their kind and the network they belong to; the list has them in full, and is for DEBUG.
//! The pairs are at most [`TRIED_PAIRS_MAX`]. Source: RFC 8445 section 7 (checks).

mod display;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::limits::{REMOTE_CANDIDATES_MAX, TRIED_PAIRS_MAX};
use crate::webrtc::candidate::{CandidateError, CandidateKind};
use crate::webrtc::crypto::HandshakeError;
use crate::webrtc::packet_kind::PacketKind;
use crate::webrtc::stun;

/// One pair of addresses between which checks went, and how many: ours and their answers, theirs and our answers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CheckedPair {
    local: SocketAddr,
    remote: SocketAddr,
    sent: u32,
    answered: u32,
    received: u32,
    replied: u32,
}

/// What was tried to connect with one client.
#[derive(Clone, Debug, Default)]
pub struct IceAttempt {
    /// The UDP port of this runner.
    port: u16,
    candidates: Vec<(CandidateKind, SocketAddr)>,
    mdns_candidates: u32,
    unusable_candidates: u32,
    pairs: Vec<CheckedPair>,
    /// Checks between addresses for which there was no room in `pairs`.
    unlisted_checks: u32,
    /// Checks that named this connection and were not signed for it.
    rejected_checks: u32,
    /// Answers that did not say from where the check came.
    unmapped_answers: u32,
    records_in: u32,
    records_out: u32,
    /// The first reason that a datagram of the handshake was refused for.
    handshake_error: Option<HandshakeError>,
    ice_connected: bool,
    is_secured: bool,
}

/// What kept a connection from being.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IceFailure {
    /// The client named no candidate and sent nothing.
    NothingReceived,
    /// Every candidate is a name that only the client's own network knows, and it sent nothing.
    OnlyMdns,
    /// None of the candidates can be used here, and the client sent nothing.
    NoUsableCandidate,
    /// No address of this end goes with one of the client's.
    NoPair,
    /// Checks left, and nothing came.
    Unanswered,
    /// The client's answers cannot be used.
    UnmappedAnswers,
    /// The client's checks came, and no answer to ours.
    OneWay,
    /// What came was signed for another connection.
    OtherCredentials,
    /// Checks were answered, and the client chose no pair.
    NotNominated,
    /// ICE is up, and no record of DTLS came.
    NoHandshake,
    /// The handshake of DTLS began and did not end.
    HandshakeIncomplete,
    /// The handshake of DTLS was refused, here or by the client.
    HandshakeFailed(HandshakeError),
}

impl IceAttempt {
    /// Begins to count for a connection of a runner with this UDP port.
    pub fn new(port: u16) -> Self {
        IceAttempt {
            port,
            ..IceAttempt::default()
        }
    }

    /// A candidate of the client is used.
    pub fn handle_candidate(&mut self, kind: CandidateKind, address: SocketAddr) {
        // Each restart of ICE brings its own.
        if !self.is_secured && self.candidates.len() < REMOTE_CANDIDATES_MAX {
            self.candidates.push((kind, address));
        }
    }

    /// A candidate of the client is not used.
    pub fn handle_unusable_candidate(&mut self, why: CandidateError) {
        match why {
            CandidateError::EndOfCandidates => {}
            CandidateError::Mdns => self.mdns_candidates += 1,
            _ => self.unusable_candidates += 1,
        }
    }

    /// A datagram came; `accepted` tells whether it is this connection's.
    pub fn handle_incoming(&mut self, source: SocketAddr, destination: SocketAddr, kind: PacketKind, accepted: bool) {
        if self.is_secured {
            return;
        }
        match kind {
            PacketKind::Check if !accepted => self.rejected_checks += 1,
            PacketKind::Check => self.count(destination, source, |pair| pair.received += 1),
            // An error is an answer, too: the way is open.
            kind if kind.is_response() && accepted => self.count(destination, source, |pair| pair.answered += 1),
            PacketKind::Dtls => self.records_in += 1,
            _ => {}
        }
    }

    /// A datagram came that is no packet of WebRTC.
    pub fn handle_unreadable(&mut self, contents: &[u8]) {
        if !self.is_secured && stun::lacks_mapped_address(contents) {
            self.unmapped_answers = self.unmapped_answers.saturating_add(1);
        }
    }

    /// A datagram leaves.
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

    /// A datagram of the handshake was refused.
    pub fn handle_handshake_error(&mut self, refusal: HandshakeError) {
        if !self.is_secured {
            self.handshake_error.get_or_insert(refusal);
        }
    }

    /// ICE has found a pair.
    pub fn handle_ice_connected(&mut self) {
        self.ice_connected = true;
    }

    /// The connection is up: nothing is left to explain.
    pub fn handle_secured(&mut self) {
        *self = IceAttempt {
            is_secured: true,
            ..IceAttempt::new(self.port)
        };
    }

    /// Tells whether the connection came to be.
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

    /// Returns what kept the connection from being.
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

    /// Returns every pair with its counts, addresses in full.
    pub fn pairs(&self) -> impl fmt::Display + '_ {
        display::PairsDisplay(self)
    }

    /// Returns the kind of the client's address: of the candidate that named it, or one that its own check told.
    fn candidate_kind(&self, remote: SocketAddr) -> CandidateKind {
        let named = self.candidates.iter().find(|(_, address)| *address == remote);
        named.map_or(CandidateKind::PeerReflexive, |(kind, _)| *kind)
    }

    /// Returns the addresses of this end from which checks left, each once.
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
