//! The paths to a media-room server beside UDP from host addresses, and ICE restarts.
//!
//! In: TCP candidates of the server, the addresses of TCP connections and of TURN allocations that
//! the session opened, and requests to restart. Out: the address of each TCP candidate, a candidate
//! line for each relayed address, and the offer of a restart. str0m pairs a local with a remote
//! candidate as soon as it knows both, so the TCP candidates of either end are added once a
//! connection is open. Sources: RFC 6544, RFC 8445 section 9, RFC 8656.

use std::net::SocketAddr;

use str0m::Candidate;
use str0m::net::{Protocol, TcpType};

use super::super::output::{ConnectionOutput, NegotiationError};
use super::PeerConnection;
use crate::limits::ROOM_TCP_CANDIDATES_MAX;
use crate::webrtc::sdp::SdpDescription;

impl PeerConnection {
    /// Reports a TCP candidate of the server.
    pub(in super::super) fn add_tcp_candidate(&mut self, text: &str) {
        match self.paths.parse_tcp_candidate(text) {
            Ok((usable, candidate)) => {
                let known = &mut self.sfu.tcp_candidates;
                if known.len() < ROOM_TCP_CANDIDATES_MAX && !known.iter().any(|each| each.addr() == usable.addr) {
                    known.push(candidate);
                    self.outputs.push_back(ConnectionOutput::TcpCandidate(usable.addr));
                }
            }
            Err(Some(ignored)) => self.attempt.handle_unusable_candidate(ignored),
            Err(None) => {}
        }
    }

    /// Adds an open TCP connection to a candidate of the server. Returns `false` if the server has
    /// withdrawn the candidate by an ICE restart.
    pub fn add_tcp_path(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        let known = self.sfu.tcp_candidates.iter().find(|each| each.addr() == remote);
        let Some(candidate) = known.cloned() else {
            return false;
        };
        self.rtc.add_remote_candidate(candidate);
        self.add_local_candidates(std::iter::once(tcp_candidate(local)));
        true
    }

    /// Removes a TCP connection that has ended, or that belongs to an earlier ICE session.
    pub fn remove_tcp_path(&mut self, local: SocketAddr) {
        self.withdraw(tcp_candidate(local));
    }

    /// Adds a relayed address. Returns its candidate line for the server, without `a=`.
    pub fn add_relayed(&mut self, relayed: SocketAddr, local: SocketAddr) -> Option<String> {
        let candidate = Candidate::relayed(relayed, local, Protocol::Udp).ok()?;
        self.add_local_candidate(candidate)
    }

    /// Removes a relayed address.
    pub fn remove_relayed(&mut self, relayed: SocketAddr, local: SocketAddr) {
        self.withdraw(Candidate::relayed(relayed, local, Protocol::Udp));
    }

    /// Removes host addresses, because the server wants a relay.
    pub fn remove_host_candidates(&mut self, local: &[SocketAddr]) {
        for address in local {
            self.withdraw(Candidate::host(*address, Protocol::Udp));
        }
    }

    /// Returns whether the server has sent a UDP candidate in this ICE session.
    pub fn has_udp_candidate(&self) -> bool {
        self.sfu.has_udp_candidate
    }

    fn withdraw(&mut self, candidate: Result<Candidate, str0m::error::IceError>) {
        if let Ok(candidate) = candidate {
            self.remove_local_candidate(&candidate);
        }
    }

    /// Offers an ICE restart of the publisher's connection. Returns the offer and the new user name
    /// fragment, which takes effect with the answer.
    ///
    /// # Errors
    /// [`NegotiationError`] if the connection has ended or its first offer was never answered.
    pub fn restart_ice(&mut self) -> Result<(String, String), NegotiationError> {
        let is_first_answered = self.sfu.audio_mid.is_some_and(|mid| self.rtc.media(mid).is_some());
        if self.is_closing || self.end_reported || !is_first_answered {
            return Err(NegotiationError::Ended);
        }
        let mut change = self.rtc.sdp_api();
        let credentials = change.ice_restart(true);
        let (offer, pending) = change
            .apply()
            .ok_or_else(|| NegotiationError::Internal("there is nothing to offer".to_owned()))?;
        let text = offer.to_sdp_string();
        if SdpDescription::parse(&text).layout() != self.sfu.layout {
            return Err(NegotiationError::Internal(
                "an ICE restart changed the sections".to_owned(),
            ));
        }
        self.sfu.pending_offer = Some((offer, pending));
        self.sfu.early_candidates = Some(Vec::new());
        Ok((text, credentials.ufrag))
    }

    /// Forgets the server's candidates of the ICE session before a restart.
    pub(super) fn handle_ice_restart(&mut self) {
        self.paths.handle_restart();
        self.sfu.tcp_candidates.clear();
        self.sfu.has_udp_candidate = false;
    }
}

fn tcp_candidate(local: SocketAddr) -> Result<Candidate, str0m::error::IceError> {
    Candidate::builder().tcp().host(local).tcptype(TcpType::Active).build()
}
