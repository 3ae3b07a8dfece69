//! What sessions send that does not leave by the UDP port: from addresses at TURN servers, and to peers that came over TCP.
//!
//! In: packets of sessions. Out: the same in the queue of the relay or of the peer's connection, whose task owns the socket.
//! Queues are bounded; a packet for a full one, or for one that is gone, is dropped.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::io::udp::UdpPort;
use crate::limits::RELAY_QUEUE_DATAGRAMS;

/// A packet on its way to a peer.
pub struct OutgoingPacket {
    pub peer: SocketAddr,
    pub contents: Bytes,
}

/// The queues of all relays, by the address that each gives, or of all connections, by the peer's address.
#[derive(Default)]
pub(super) struct OutgoingQueues(RwLock<HashMap<SocketAddr, mpsc::Sender<OutgoingPacket>>>);

/// Which queues a new one belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueueKind {
    Relays,
    Connected,
}

impl OutgoingQueues {
    pub(super) fn send(&self, address: SocketAddr, peer: SocketAddr, contents: &[u8]) {
        if let Some(queue) = self.queues().get(&address)
            && let Ok(place) = queue.try_reserve()
        {
            place.send(OutgoingPacket {
                peer,
                contents: Bytes::copy_from_slice(contents),
            });
        }
    }

    fn queues(&self) -> RwLockReadGuard<'_, HashMap<SocketAddr, mpsc::Sender<OutgoingPacket>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, HashMap<SocketAddr, mpsc::Sender<OutgoingPacket>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address at a relay and what is to be sent from it, or that of a connected peer and what is to be sent to it; dropped,
/// the address is nobody's.
pub struct OutgoingQueue {
    port: Arc<UdpPort>,
    table: QueueKind,
    address: SocketAddr,
    /// Held as well, so that the queue never ends, and told apart from that of a later owner of the address.
    sender: mpsc::Sender<OutgoingPacket>,
    queue: mpsc::Receiver<OutgoingPacket>,
}

impl OutgoingQueue {
    pub(super) fn new(port: Arc<UdpPort>, table: QueueKind, address: SocketAddr) -> Self {
        let (sender, queue) = mpsc::channel(RELAY_QUEUE_DATAGRAMS);
        port.queues(table).change().insert(address, sender.clone());
        OutgoingQueue {
            port,
            table,
            address,
            sender,
            queue,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes a datagram that is already there.
    pub fn try_next(&mut self) -> Option<OutgoingPacket> {
        self.queue.try_recv().ok()
    }

    /// Waits for the next datagram to send.
    pub async fn next(&mut self) -> OutgoingPacket {
        match self.queue.recv().await {
            Some(outgoing) => outgoing,
            // `sender` is one of the queue's senders, so it never ends.
            None => std::future::pending().await,
        }
    }
}

impl Drop for OutgoingQueue {
    fn drop(&mut self) {
        let mut queues = self.port.queues(self.table).change();
        if queues
            .get(&self.address)
            .is_some_and(|queue| queue.same_channel(&self.sender))
        {
            queues.remove(&self.address);
        }
    }
}
