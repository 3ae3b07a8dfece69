//! The path on which the peer sends, for what this end sends.
//!
//! A NAT may give the peer another port in the middle of a call, and a network another address. The
//! peer nominates the new pair then, but str0m keeps to the nominated pair of the highest priority
//! until its checks have failed for 20 s, and a peer-reflexive pair has a lower one. This module
//! sends what is not STUN where the peer sends from, if the peer has answered a check there. In:
//! validated paths, and the source of each packet. Out: another path for a packet. Sources: RFC
//! 8445 sections 8.1.1 and 12.1, RFC 7675 section 5.1.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::packet::{IceProtocol, PacketPath};
use crate::limits::CHECKED_ADDRESSES_MAX;

/// Silence of the peer on one path after which packets follow it to another one: longer than a
/// packet may be overtaken.
const PEER_MOVED_AFTER: Duration = Duration::from_millis(300);

/// The last packet that is not STUN of one source.
struct Arrival {
    over: IceProtocol,
    peer: SocketAddr,
    at: Instant,
}

/// The sources of the peer's packets, and the paths that may be used in turn.
#[derive(Default)]
pub struct MovedPeer {
    validated: Vec<PacketPath>,
    arrivals: Vec<Arrival>,
}

impl MovedPeer {
    /// Forgets the paths of the ICE session before a restart.
    pub fn handle_restart(&mut self) {
        self.validated.clear();
        self.arrivals.clear();
    }

    /// Records a path on which the peer has answered a check.
    pub fn handle_validated(&mut self, path: PacketPath) {
        if !self.validated.contains(&path) && self.validated.len() < CHECKED_ADDRESSES_MAX {
            self.validated.push(path);
        }
    }

    /// Records a packet that is not STUN.
    pub fn handle_packet(&mut self, over: IceProtocol, peer: SocketAddr, now: Instant) {
        let known = self
            .arrivals
            .iter_mut()
            .find(|known| known.over == over && known.peer == peer);
        if let Some(known) = known {
            known.at = now;
        } else if self.arrivals.len() < CHECKED_ADDRESSES_MAX {
            self.arrivals.push(Arrival { over, peer, at: now });
        }
    }

    /// Returns the path for a packet that str0m sends on `path`, if the peer has moved.
    pub fn path_instead_of(&self, path: PacketPath) -> Option<PacketPath> {
        let last = self.arrivals.iter().max_by_key(|arrival| arrival.at)?;
        if last.over == path.over && last.peer == path.peer {
            return None;
        }
        let is_former = |arrival: &&Arrival| arrival.over == path.over && arrival.peer == path.peer;
        let former = self.arrivals.iter().find(is_former)?;
        let has_moved = last.at >= former.at + PEER_MOVED_AFTER;
        let is_new = |valid: &&PacketPath| valid.over == last.over && valid.peer == last.peer;
        self.validated.iter().find(is_new).filter(|_| has_moved).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TICK: Duration = Duration::from_millis(20);

    fn path(port: u16) -> PacketPath {
        PacketPath {
            over: IceProtocol::Udp,
            source: SocketAddr::from(([192, 0, 2, 1], 7860)),
            peer: SocketAddr::from(([192, 0, 2, 9], port)),
        }
    }

    fn hear(moved: &mut MovedPeer, port: u16, now: Instant) {
        moved.handle_packet(IceProtocol::Udp, path(port).peer, now);
    }

    #[test]
    fn packets_follow_a_peer_that_answered_at_its_new_address() {
        let (mut moved, start) = (MovedPeer::default(), Instant::now());
        moved.handle_validated(path(1));
        assert_eq!(moved.path_instead_of(path(1)), None, "nothing was received");
        hear(&mut moved, 1, start);
        hear(&mut moved, 2, start + PEER_MOVED_AFTER);
        assert_eq!(moved.path_instead_of(path(1)), None, "the new address may be forged");
        moved.handle_validated(path(2));
        assert_eq!(moved.path_instead_of(path(1)), Some(path(2)));
        assert_eq!(moved.path_instead_of(path(2)), None, "str0m has followed");
        hear(&mut moved, 1, start + PEER_MOVED_AFTER + TICK);
        assert_eq!(moved.path_instead_of(path(1)), None, "the peer is back");
    }

    #[test]
    fn packets_that_overtake_each_other_are_no_move() {
        let (mut moved, start) = (MovedPeer::default(), Instant::now());
        moved.handle_validated(path(2));
        hear(&mut moved, 1, start);
        hear(&mut moved, 2, start + PEER_MOVED_AFTER - TICK);
        assert_eq!(moved.path_instead_of(path(1)), None);
    }

    #[test]
    fn a_path_without_a_packet_of_the_peer_stays() {
        let (mut moved, start) = (MovedPeer::default(), Instant::now());
        moved.handle_validated(path(2));
        hear(&mut moved, 2, start);
        assert_eq!(moved.path_instead_of(path(1)), None);
    }

    #[test]
    fn a_restart_forgets_all_paths() {
        let (mut moved, start) = (MovedPeer::default(), Instant::now());
        moved.handle_validated(path(2));
        hear(&mut moved, 1, start);
        hear(&mut moved, 2, start + PEER_MOVED_AFTER);
        moved.handle_restart();
        assert_eq!(moved.path_instead_of(path(1)), None);
    }

    #[test]
    fn addresses_are_bounded() {
        let mut moved = MovedPeer::default();
        for port in 0..2 * CHECKED_ADDRESSES_MAX as u16 {
            moved.handle_validated(path(port));
            hear(&mut moved, port, Instant::now());
        }
        assert_eq!(
            (moved.validated.len(), moved.arrivals.len()),
            (CHECKED_ADDRESSES_MAX, CHECKED_ADDRESSES_MAX)
        );
    }
}
