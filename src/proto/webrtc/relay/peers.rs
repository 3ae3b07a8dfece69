//! The peers of one TURN allocation, with their permissions and channels.
//!
//! In: addresses of datagrams to and from peers, and the server's errors. Out: whether to request a
//! permission, bind a channel, or let one expire. Peers are kept while in use and for a while
//! longer; their number is capped. Source: RFC 8656 sections 9 and 12.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use turn_client_proto::types::attribute::XorPeerAddress;
use turn_client_proto::types::message::{CHANNEL_BIND, CREATE_PERMISSION};
use turn_client_proto::types::stun::message::Message;

use crate::limits::RELAY_PEER_FORGOTTEN;

/// Peers that one relay may send to: the candidates of the default number of sessions.
const RELAY_PEERS_MAX: usize = 1024;
/// Time without a packet to a peer after which its permission expires; a live connection is checked
/// every few seconds.
const RELAY_PEER_IDLE: Duration = Duration::from_secs(60);
/// The same for a peer that never sent a packet, when the table is full: a reachable peer answers
/// the first checks.
const RELAY_PEER_UNHEARD: Duration = Duration::from_secs(5);
/// Time without permission requests after the relay rejected one.
const RELAY_REFUSED: Duration = Duration::from_secs(30);

/// The peers of one allocation.
#[derive(Debug, Default)]
pub struct RelayPeers {
    /// Permissions are per address.
    by_ip: HashMap<IpAddr, RelayPeer>,
    /// Channels are per address and port.
    channels: HashMap<SocketAddr, TurnChannel>,
    expire_at: Option<Instant>,
}

#[derive(Debug)]
struct RelayPeer {
    last_used: Instant,
    has_sent: bool,
    refused_until: Option<Instant>,
}

#[derive(Debug)]
struct TurnChannel {
    used: Instant,
    /// When to request the channel again; `None` while it exists or is requested.
    ask_again: Option<Instant>,
}

impl RelayPeers {
    /// Records a datagram to a peer. Returns `false` if it must be dropped: the relay rejected the
    /// peer, or there are too many.
    pub fn touch(&mut self, ip: IpAddr, now: Instant) -> bool {
        if let Some(peer) = self.by_ip.get_mut(&ip) {
            peer.last_used = now;
            return peer.refused_until.is_none_or(|until| until <= now);
        }
        if self.by_ip.len() == RELAY_PEERS_MAX {
            // Peers that were never heard expire sooner, so a client with many addresses blocks
            // others only briefly.
            self.by_ip.retain(|_, peer| {
                let idle = if peer.has_sent {
                    RELAY_PEER_IDLE
                } else {
                    RELAY_PEER_UNHEARD
                };
                now < peer.last_used + idle
            });
        }
        if self.by_ip.len() == RELAY_PEERS_MAX {
            log::debug!("a datagram to a relay is dropped: {RELAY_PEERS_MAX} peers have permissions");
            return false;
        }
        self.by_ip.insert(
            ip,
            RelayPeer {
                last_used: now,
                has_sent: false,
                refused_until: None,
            },
        );
        true
    }

    /// Returns whether to bind a channel, and counts it as requested.
    pub fn needs_channel(&mut self, peer: SocketAddr, now: Instant) -> bool {
        if let Some(channel) = self.channels.get_mut(&peer) {
            channel.used = now;
            return channel.ask_again.take_if(|at| *at <= now).is_some();
        }
        if self.channels.len() == RELAY_PEERS_MAX {
            self.channels.retain(|_, channel| now < channel.used + RELAY_PEER_IDLE);
        }
        if self.channels.len() == RELAY_PEERS_MAX {
            return false;
        }
        self.channels.insert(
            peer,
            TurnChannel {
                used: now,
                ask_again: None,
            },
        );
        true
    }

    /// Records that a packet came from the address.
    pub fn mark_sent(&mut self, ip: IpAddr) {
        if let Some(peer) = self.by_ip.get_mut(&ip) {
            peer.has_sent = true;
        }
    }

    /// Returns whether a packet ever came from the address.
    pub fn has_sent(&self, ip: IpAddr) -> bool {
        self.by_ip.get(&ip).is_some_and(|peer| peer.has_sent)
    }

    /// Handles a rejected permission, or the expiry of an unused one.
    pub fn handle_permission_failure(&mut self, ip: IpAddr, now: Instant) {
        if let Some(peer) = self.by_ip.get_mut(&ip)
            && now < peer.last_used + RELAY_PEER_IDLE
        {
            peer.refused_until = Some(now + RELAY_REFUSED);
        }
    }

    /// Handles a rejected channel, or the expiry of an unused one. Datagrams use indications then.
    pub fn handle_channel_failure(&mut self, peer: SocketAddr, now: Instant) {
        if let Some(channel) = self.channels.get_mut(&peer) {
            channel.ask_again = Some(now + RELAY_REFUSED);
        }
    }

    /// Returns whether a request renews the permission or channel of an idle peer.
    pub fn is_unused(&self, request: &Message<'_>, now: Instant) -> bool {
        if !matches!(request.method(), CREATE_PERMISSION | CHANNEL_BIND) {
            return false;
        }
        let Ok(peer) = request.attribute::<XorPeerAddress>() else {
            return false;
        };
        let peer = peer.addr(request.transaction_id());
        let used = match request.method() {
            CHANNEL_BIND => self.channels.get(&peer).map(|channel| channel.used),
            _ => self.by_ip.get(&peer.ip()).map(|peer| peer.last_used),
        };
        used.is_none_or(|used| now >= used + RELAY_PEER_IDLE)
    }

    /// Removes peers whose permission and channel have expired.
    pub fn expire(&mut self, now: Instant) {
        if self.expire_at.is_some_and(|at| now < at) {
            return;
        }
        self.expire_at = Some(now + RELAY_PEER_IDLE);
        self.by_ip.retain(|_, peer| now < peer.last_used + RELAY_PEER_FORGOTTEN);
        self.channels
            .retain(|_, channel| now < channel.used + RELAY_PEER_FORGOTTEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: usize) -> IpAddr {
        IpAddr::from((0x0a00_0000 + n as u32).to_be_bytes())
    }

    /// At the cap every peer is accepted, the next one is not, and idle peers make room.
    #[test]
    fn peers_are_capped() {
        let now = Instant::now();
        let mut peers = RelayPeers::default();
        assert!((0..RELAY_PEERS_MAX).all(|n| peers.touch(peer(n), now)));
        assert!(!peers.touch(peer(RELAY_PEERS_MAX), now));
        assert!(peers.touch(peer(0), now), "a known peer");
        let later = now + RELAY_PEER_IDLE;
        assert!(peers.touch(peer(RELAY_PEERS_MAX), later));
        peers.expire(later + RELAY_PEER_FORGOTTEN);
        assert!(peers.by_ip.is_empty());
        let mut peers = RelayPeers::default();
        let at = |n| SocketAddr::new(peer(n), 1);
        assert!((0..RELAY_PEERS_MAX).all(|n| peers.needs_channel(at(n), now)));
        assert!(!peers.needs_channel(at(RELAY_PEERS_MAX), now));
        assert!(!peers.needs_channel(at(0), now), "it has one");
        assert!(peers.needs_channel(at(RELAY_PEERS_MAX), later));
    }

    /// A rejected peer is not requested for a while; an expired one is not rejected.
    #[test]
    fn a_rejected_peer_is_not_requested_for_a_while() {
        let now = Instant::now();
        let mut peers = RelayPeers::default();
        peers.touch(peer(1), now);
        peers.handle_permission_failure(peer(1), now);
        assert!(!peers.touch(peer(1), now + RELAY_REFUSED / 2));
        assert!(peers.touch(peer(1), now + RELAY_REFUSED));
        peers.handle_permission_failure(peer(1), now + RELAY_REFUSED + RELAY_PEER_IDLE);
        assert!(
            peers.touch(peer(1), now + RELAY_REFUSED + RELAY_PEER_IDLE),
            "it lapsed by itself"
        );
    }
}
