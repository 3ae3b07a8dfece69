//! Addresses at TURN servers that sessions send from as from this machine's own.
//!
//! In: datagrams of sessions. Out: the same in the queue of the relay, whose task owns the connection to its server. Queues
//! are bounded; a datagram for a full one, or for a relay that is gone, is dropped.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::io::udp::Port;
use crate::limits::RELAY_QUEUE_DATAGRAMS;

/// A datagram on its way to a peer by a relay.
pub struct Outgoing {
    pub peer: SocketAddr,
    pub contents: Bytes,
}

/// The queues of all relays, by the address that each gives.
#[derive(Default)]
pub(super) struct Relays(RwLock<HashMap<SocketAddr, mpsc::Sender<Outgoing>>>);

impl Relays {
    pub(super) fn send(&self, relayed: SocketAddr, peer: SocketAddr, contents: &[u8]) {
        if let Some(queue) = self.queues().get(&relayed)
            && let Ok(place) = queue.try_reserve()
        {
            place.send(Outgoing {
                peer,
                contents: Bytes::copy_from_slice(contents),
            });
        }
    }

    fn queues(&self) -> RwLockReadGuard<'_, HashMap<SocketAddr, mpsc::Sender<Outgoing>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address at a relay, and what is to be sent from it; dropped, the address is nobody's.
pub struct Attached {
    port: Arc<Port>,
    relayed: SocketAddr,
    /// Held as well, so that the queue never ends, and told apart from that of a later owner of the address.
    sender: mpsc::Sender<Outgoing>,
    queue: mpsc::Receiver<Outgoing>,
}

impl Attached {
    pub(super) fn new(port: Arc<Port>, relayed: SocketAddr) -> Self {
        let (sender, queue) = mpsc::channel(RELAY_QUEUE_DATAGRAMS);
        let mut queues = port.relays.0.write().unwrap_or_else(PoisonError::into_inner);
        queues.insert(relayed, sender.clone());
        drop(queues);
        Attached {
            port,
            relayed,
            sender,
            queue,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.relayed
    }

    /// Waits for the next datagram to send.
    pub async fn next(&mut self) -> Outgoing {
        match self.queue.recv().await {
            Some(outgoing) => outgoing,
            // `sender` is one of the queue's senders, so it never ends.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut queues = self.port.relays.0.write().unwrap_or_else(PoisonError::into_inner);
        if queues
            .get(&self.relayed)
            .is_some_and(|queue| queue.same_channel(&self.sender))
        {
            queues.remove(&self.relayed);
        }
    }
}
