//! The addresses of the other end of a connection: which of its candidates are used, where it may
//! check from, and which of them have answered.
//!
//! All are counted, since str0m keeps each for ever. An address of this end is never the other's. A
//! check may say to come from anywhere; so those addresses that have not answered a check of this
//! end are counted over all restarts of ICE, and over all connections of the session.

use std::net::SocketAddr;

use str0m::Candidate;

use super::packet::Packet;
use crate::candidate::{self, Ignored, RemotePolicy, Usable};
use crate::limits::{CHECKED_ADDRESSES_MAX, CHECKED_UNPROVEN_MAX, REMOTE_CANDIDATES_MAX};
use crate::packet_kind::PacketKind;

/// What is known of the other end's addresses.
pub struct Remote {
    policy: RemotePolicy,
    /// The addresses of this end: nobody who is the peer has one of them.
    own: Vec<SocketAddr>,
    candidates: usize,
    /// Where the peer has checked from.
    checked: Vec<SocketAddr>,
    /// Where it has answered a check of this end, here and before.
    proven: Vec<SocketAddr>,
    /// How many addresses it has checked from that did not answer, here and before.
    unproven: usize,
}

impl Remote {
    /// Begins with the host candidates that this end offers, and all addresses under which it is reached, offered or not.
    /// `named_by_operator` as in [`RemotePolicy`].
    pub fn new(local: &[SocketAddr], own: Vec<SocketAddr>, named_by_operator: bool) -> Self {
        Remote {
            policy: RemotePolicy {
                loopback_offered: local.iter().any(|address| address.ip().is_loopback()),
                named_by_operator,
            },
            own,
            candidates: 0,
            checked: Vec::new(),
            proven: Vec::new(),
            unproven: 0,
        }
    }

    /// Goes on counting where the connection before this one stopped.
    pub fn follow(&mut self, former: Remote) {
        self.unproven += former.unproven;
        self.proven = former.proven;
    }

    /// Takes a candidate of the peer as text, and returns it fit for str0m.
    ///
    /// # Errors
    /// Why it is ignored; nothing when there are too many, or when str0m cannot read it.
    pub fn candidate(&mut self, text: &str) -> Result<(Usable, Candidate), Option<Ignored>> {
        if self.candidates == REMOTE_CANDIDATES_MAX {
            log::debug!("remote candidate ignored: {REMOTE_CANDIDATES_MAX} are known");
            return Err(None);
        }
        let policy = self.policy;
        let usable = candidate::parse_remote(text, &policy).and_then(|usable| match self.is_own(usable.addr) {
            true => Err(Ignored::Own),
            false => Ok(usable),
        });
        let usable = usable.map_err(|ignored| {
            log::debug!("remote candidate ignored: {ignored}");
            Some(ignored)
        })?;
        match Candidate::from_sdp_string(&usable.text) {
            Ok(candidate) => {
                self.candidates += 1;
                Ok((usable, candidate))
            }
            Err(error) => {
                log::debug!("remote candidate ignored: {error}");
                Err(None)
            }
        }
    }

    /// Tells whether an address is this end's: one that is offered, or, with the port of one, any of loopback.
    fn is_own(&self, address: SocketAddr) -> bool {
        let is_it = |own: &SocketAddr| *own == address || (own.port() == address.port() && address.ip().is_loopback());
        self.own.iter().any(is_it)
    }

    /// Tells whether a packet may come from its source: each address that checks becomes a candidate that str0m keeps.
    pub fn admits(&mut self, kind: PacketKind, packet: &Packet<'_>) -> bool {
        if kind != PacketKind::Check || self.has_checked_from(packet.source) {
            return true;
        }
        let known = self.proven.contains(&packet.source);
        let room = self.checked.len() < CHECKED_ADDRESSES_MAX && (known || self.unproven < CHECKED_UNPROVEN_MAX);
        if room {
            self.unproven += usize::from(!known);
            self.checked.push(packet.source);
        } else {
            let (here, unproven) = (self.checked.len(), self.unproven);
            log::debug!("check ignored: the peer has {here} addresses already, and {unproven} did not answer");
        }
        room
    }

    /// A check of this end was answered from there.
    pub fn handle_proof(&mut self, source: SocketAddr) {
        if self.proven.contains(&source) || self.proven.len() == CHECKED_ADDRESSES_MAX {
            return;
        }
        self.proven.push(source);
        self.unproven -= usize::from(self.has_checked_from(source));
    }

    /// Tells whether the peer has checked from this address. Who has not is a stranger.
    pub fn has_checked_from(&self, source: SocketAddr) -> bool {
        self.checked.contains(&source)
    }

    /// ICE has restarted, and has forgotten the peer's candidates.
    pub fn handle_restart(&mut self) {
        self.candidates = 0;
        self.checked.clear();
    }
}
