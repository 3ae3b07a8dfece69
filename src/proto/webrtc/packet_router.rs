//! Routes the packets that arrive on the shared port to sessions.
//!
//! In: the ICE user name fragments and paths of sessions. Out: the sessions that receive a packet,
//! by the fragment in a check or by its path. Source addresses can be forged, so a path belongs to
//! a session only after it answered one of the session's checks (return routability). Before that,
//! all sessions that sent checks on the path receive its responses, since only one of them knows
//! the transaction. Other packets on a path that no session validated go to all of these sessions.
//! On a path that several sessions validated, packets go to all of those: one has the current peer,
//! and each accepts what its own keys decrypt. So no session can cut another off.
//!
//! A session claims a path once and gives up its paths with its fragment, except the one in use, so
//! the tables are bounded by the number of sessions. Sources: RFC 8445 sections 7.2.5 and 7.3, RFC
//! 8489 section 5.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::slice;

use crate::webrtc::connection::IceProtocol;
use crate::webrtc::packet_kind::PacketKind;
use crate::webrtc::stun;

/// The address of a peer, as seen from this machine or from a relay. Different networks and
/// protocols may use the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemotePath {
    pub over: IceProtocol,
    pub address: SocketAddr,
    pub relay: Option<SocketAddr>,
}

impl From<SocketAddr> for RemotePath {
    /// A peer that sends datagrams without a relay.
    fn from(peer: SocketAddr) -> Self {
        RemotePath {
            over: IceProtocol::Udp,
            address: peer,
            relay: None,
        }
    }
}

/// A session's claim to a path, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathClaim {
    /// A check was sent on the path, or one from it was answered.
    Expected,
    /// A check on the path was answered.
    Validated,
    /// The path of a configured server, from which no session receives packets.
    Reserved,
}

struct PathClaimant<T> {
    session: u64,
    claim: PathClaim,
    inbox: T,
}

/// Maps packets to sessions. `T` is a handle to a session.
pub struct PacketRouter<T> {
    by_ufrag: HashMap<String, PathClaimant<T>>,
    by_path: HashMap<RemotePath, Vec<PathClaimant<T>>>,
}

impl<T> Default for PacketRouter<T> {
    fn default() -> Self {
        PacketRouter {
            by_ufrag: HashMap::new(),
            by_path: HashMap::new(),
        }
    }
}

impl<T: Clone> PacketRouter<T> {
    /// Returns the sessions that receive a packet, each with its number.
    pub fn recipients<'r>(
        &'r self,
        path: RemotePath,
        contents: &[u8],
    ) -> impl Iterator<Item = (u64, &'r T)> + use<'r, T> {
        let (claimants, least) = match stun::receiver_ufrag(contents) {
            Some(ufrag) => {
                let named = self.by_ufrag.get(ufrag);
                (named.map_or(&[][..], slice::from_ref), PathClaim::Expected)
            }
            None => {
                let claimants = self.by_path.get(&path).map_or(&[][..], Vec::as_slice);
                let strongest = claimants.iter().map(|claimant| claimant.claim).max();
                let least = match strongest {
                    Some(PathClaim::Reserved) => PathClaim::Reserved,
                    _ if PacketKind::from_packet(contents).is_response() => PathClaim::Expected,
                    strongest => strongest.unwrap_or(PathClaim::Expected),
                };
                (claimants, least)
            }
        };
        let takers = claimants.iter().filter(move |claimant| claimant.claim >= least);
        takers.map(|claimant| (claimant.session, &claimant.inbox))
    }

    /// Registers a session under its fragment.
    pub fn register(&mut self, ufrag: String, session: u64, inbox: &T) {
        let claimant = PathClaimant {
            session,
            claim: PathClaim::Expected,
            inbox: inbox.clone(),
        };
        self.by_ufrag.insert(ufrag, claimant);
    }

    /// Lets a session receive responses on a path, because it sent or answered a check there.
    pub fn expect_answers(&mut self, path: RemotePath, session: u64, inbox: &T) {
        self.claim(path, session, inbox, PathClaim::Expected);
    }

    /// Records that a check of a session was answered on a path. On the first call for a session,
    /// returns the other sessions that validated the path.
    pub fn mark_validated(&mut self, path: RemotePath, session: u64, inbox: &T) -> Vec<u64> {
        if !self.claim(path, session, inbox, PathClaim::Validated) {
            return Vec::new();
        }
        let others = self.by_path[&path]
            .iter()
            .filter(|other| other.session != session && other.claim == PathClaim::Validated);
        others.map(|other| other.session).collect()
    }

    /// Reserves a path for a session, whatever other sessions claim.
    pub fn reserve(&mut self, path: RemotePath, session: u64, inbox: &T) {
        self.claim(path, session, inbox, PathClaim::Reserved);
    }

    /// Removes a session's claim to a path.
    pub fn release(&mut self, path: &RemotePath, session: u64) {
        if let Some(claimants) = self.by_path.get_mut(path) {
            claimants.retain(|claimant| claimant.session != session);
            if claimants.is_empty() {
                self.by_path.remove(path);
            }
        }
    }

    /// Removes a session's fragment and its paths, except the path `used`, which it keeps during a
    /// restart.
    pub fn unregister(&mut self, ufrag: Option<&str>, session: u64, used: Option<RemotePath>) {
        if let Some(ufrag) = ufrag {
            self.by_ufrag.remove(ufrag);
        }
        self.by_path.retain(|path, claimants| {
            claimants.retain(|claimant| claimant.session != session || used == Some(*path));
            !claimants.is_empty()
        });
    }

    /// Returns the numbers of fragments and of claims.
    pub fn len(&self) -> (usize, usize) {
        let claims = self.by_path.values().map(Vec::len);
        (self.by_ufrag.len(), claims.sum())
    }

    /// Adds or strengthens a claim. Returns whether anything changed.
    fn claim(&mut self, path: RemotePath, session: u64, inbox: &T, claim: PathClaim) -> bool {
        let claimants = self.by_path.entry(path).or_default();
        match claimants.iter_mut().find(|claimant| claimant.session == session) {
            Some(claimant) if claimant.claim >= claim => false,
            Some(claimant) => {
                claimant.claim = claim;
                true
            }
            None => {
                claimants.push(PathClaimant {
                    session,
                    claim,
                    inbox: inbox.clone(),
                });
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = &[
        1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
    ];
    const REFUSAL: &[u8] = &[
        1, 0x11, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
    ];
    const MEDIA: &[u8] = &[128, 111, 0, 1];

    fn path(port: u16) -> RemotePath {
        SocketAddr::from(([192, 0, 2, 9], port)).into()
    }

    fn takers(routes: &PacketRouter<()>, path: RemotePath, contents: &[u8]) -> Vec<u64> {
        routes.recipients(path, contents).map(|(session, ())| session).collect()
    }

    /// During an ICE restart a session still receives packets on the path in use; its other paths
    /// end with the fragment.
    #[test]
    fn the_path_in_use_survives_a_restart() {
        let mut routes = PacketRouter::default();
        routes.register("old".to_owned(), 1, &());
        for port in [1, 2] {
            routes.mark_validated(path(port), 1, &());
        }
        routes.unregister(Some("old"), 1, Some(path(1)));
        assert_eq!(takers(&routes, path(1), MEDIA), [1]);
        assert_eq!((takers(&routes, path(2), MEDIA), routes.len()), (vec![], (0, 1)));
        routes.unregister(None, 1, None);
        assert_eq!(routes.len(), (0, 0));
    }

    /// A session that only expects answers neither takes nor loses packets of one that validated
    /// the path.
    #[test]
    fn validated_claims_outrank_expected_ones() {
        let mut routes = PacketRouter::default();
        routes.expect_answers(path(1), 1, &());
        routes.expect_answers(path(1), 2, &());
        assert_eq!(takers(&routes, path(1), MEDIA), [1, 2]);
        assert_eq!(routes.mark_validated(path(1), 2, &()), [0u64; 0]);
        assert_eq!(takers(&routes, path(1), MEDIA), [2]);
        assert_eq!(takers(&routes, path(1), ANSWER), [1, 2]);
        assert_eq!(takers(&routes, path(1), REFUSAL), [1, 2]);
        routes.expect_answers(path(1), 3, &());
        routes.expect_answers(path(1), 2, &());
        assert_eq!(takers(&routes, path(1), MEDIA), [2], "what is proven stays so");
        assert_eq!(takers(&routes, path(2), MEDIA), [0u64; 0]);
    }

    /// Sessions that validated the same path share it, and the later one learns of the others once.
    #[test]
    fn sessions_share_a_validated_path() {
        let mut routes = PacketRouter::default();
        assert_eq!(routes.mark_validated(path(1), 1, &()), [0u64; 0]);
        assert_eq!(routes.mark_validated(path(1), 2, &()), [1]);
        assert_eq!(routes.mark_validated(path(1), 2, &()), [0u64; 0]);
        assert_eq!(routes.mark_validated(path(1), 3, &()), [1, 2]);
        assert_eq!(takers(&routes, path(1), MEDIA), [1, 2, 3]);
        routes.unregister(None, 1, None);
        assert_eq!(takers(&routes, path(1), MEDIA), [2, 3]);
    }

    /// A reserved path belongs to one session until it is released.
    #[test]
    fn a_reserved_path_belongs_to_one_session() {
        let mut routes = PacketRouter::default();
        routes.mark_validated(path(1), 1, &());
        routes.reserve(path(1), 2, &());
        routes.mark_validated(path(1), 3, &());
        for contents in [MEDIA, ANSWER] {
            assert_eq!(takers(&routes, path(1), contents), [2]);
        }
        routes.release(&path(1), 2);
        assert_eq!(takers(&routes, path(1), MEDIA), [1, 3]);
    }

    /// Claims end with their session and leave no empty entries.
    #[test]
    fn all_claims_end_with_the_session() {
        let mut routes = PacketRouter::default();
        routes.register("one".into(), 1, &());
        routes.register("two".into(), 2, &());
        for port in 1..=10 {
            routes.expect_answers(path(port), 1, &());
            routes.mark_validated(path(port), 2, &());
        }
        assert_eq!(routes.len(), (2, 20));
        routes.unregister(Some("one"), 1, None);
        routes.release(&path(1), 2);
        assert_eq!(routes.len(), (1, 9));
        routes.unregister(Some("two"), 2, None);
        assert_eq!(routes.len(), (0, 0));
        assert!(routes.by_path.is_empty());
    }
}
