//! Queues of packets that do not leave by the UDP port: from relayed addresses at TURN servers, and
//! to peers over TCP.
//!
//! In: packets of sessions. Out: the same packets, to the task that owns the relay's or the peer's
//! socket. Queues are bounded; a packet for a full or missing one is dropped.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::io::webrtc::udp::UdpPort;
use crate::limits::RELAY_QUEUE_DATAGRAMS;

/// A packet to a peer.
pub struct OutgoingPacket {
    pub peer: SocketAddr,
    pub contents: Bytes,
}

/// The queues of all relays by relayed address, or of all TCP connections by peer address.
#[derive(Default)]
pub(super) struct OutgoingQueues(RwLock<HashMap<SocketAddr, mpsc::Sender<OutgoingPacket>>>);

/// The two sets of queues.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueueKind {
    Relays,
    Connected,
}

impl OutgoingQueues {
    pub(super) fn send(&self, address: SocketAddr, peer: SocketAddr, contents: &[u8]) {
        if let Some(queue) = self.queues().get(&address)
            && let Ok(permit) = queue.try_reserve()
        {
            permit.send(OutgoingPacket {
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

/// The queue of a relayed address or of a connected peer. Dropping it unregisters the address.
pub struct OutgoingQueue {
    port: Arc<UdpPort>,
    table: QueueKind,
    address: SocketAddr,
    /// Keeps the channel open, and identifies the queue if the address has a new owner.
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

    /// Takes a packet that is already queued.
    pub fn try_next(&mut self) -> Option<OutgoingPacket> {
        self.queue.try_recv().ok()
    }

    /// Waits for the next packet to send.
    pub async fn next(&mut self) -> OutgoingPacket {
        match self.queue.recv().await {
            Some(outgoing) => outgoing,
            // `sender` keeps the channel open.
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
