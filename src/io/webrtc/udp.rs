//! The UDP port shared by all WebRTC sessions: reads datagrams in batches and routes each to its
//! session.
//!
//! [`PacketRouter`] routes by the ufrag in a packet or by the path it came on; other datagrams are
//! dropped without an answer. The kernel reports the local address of each datagram, so one socket
//! per family serves every interface, including those that appear later. Session inboxes are
//! bounded, and a datagram for a full one is dropped.
//!
//! A local address with another port number belongs to a TURN relay: packets from it go to the
//! queue of that relay, and packets to it are routed like all others. A peer behind a relay is a
//! different path. Callers over ICE-TCP (`ice_tcp`) are routed in the same way.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use edge_runner_http::common::lock;

use crate::config::Host;
use crate::io::inbox_queue::InboxQueue;
use crate::io::tasks;
use crate::io::udp_family::{DatagramBatch, UdpFamilySocket};
use crate::proto::webrtc::connection::{IceProtocol, ReceivedPacket};
use crate::proto::webrtc::packet_router::{PacketRouter, RemotePath};

use queues::{OutgoingQueues, QueueKind};

pub use queues::{OutgoingPacket, OutgoingQueue};

mod queues;

/// Datagrams queued for one session: 200 packets a second for a third of a second.
const SESSION_INBOX_DATAGRAMS: usize = 64;
/// Bytes of the block into which datagrams are copied for their sessions: some 50 packets of
/// speech.
const DATAGRAM_ARENA_BYTES: usize = 8 * 1024;

/// A received packet on its way to a session.
pub struct Datagram {
    pub over: IceProtocol,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub contents: Bytes,
    pub arrived: Instant,
}

impl Datagram {
    /// Returns the packet for a connection.
    pub fn packet(&self) -> ReceivedPacket<'_> {
        ReceivedPacket {
            over: self.over,
            source: self.source,
            destination: self.destination,
            contents: &self.contents,
        }
    }
}

/// The UDP port, shared by all sessions.
pub struct UdpPort {
    v4: Option<UdpFamilySocket>,
    v6: Option<UdpFamilySocket>,
    routes: Mutex<PacketRouter<InboxQueue<Datagram>>>,
    last_session: AtomicU64,
    relays: OutgoingQueues,
    /// Queues of peers that are connected over TCP.
    connected: OutgoingQueues,
    /// Public addresses of a NAT, from `--ice-address`.
    external: OnceLock<Vec<IpAddr>>,
    dropped: DroppedDatagrams,
}

/// Counters of dropped datagrams.
#[derive(Default)]
pub struct DroppedDatagrams {
    /// Datagrams of no session.
    pub unrouted: AtomicU64,
    /// Datagrams of a session whose inbox was full.
    pub inbox_full: AtomicU64,
}

impl UdpPort {
    /// Binds the port on every interface, or on the one address of `host`. Port 0 takes any free
    /// one.
    ///
    /// A loopback host restricts HTTP only: a page that came through a tunnel still sends its audio
    /// directly, and the answer names every interface.
    ///
    /// # Errors
    /// Returns the operating system's error when no family can be bound.
    pub fn bind(host: Host, port: u16) -> io::Result<Arc<UdpPort>> {
        let everywhere = (Some(Ipv4Addr::UNSPECIFIED), Some(Ipv6Addr::UNSPECIFIED));
        let (v4, v6) = match host {
            Host::Localhost => everywhere,
            Host::Address(address) if address.is_loopback() => everywhere,
            Host::Address(IpAddr::V4(address)) => (Some(address), None),
            Host::Address(IpAddr::V6(address)) => (None, Some(address)),
        };
        let mut refused = None;
        let mut bind = |address: IpAddr, port: u16| match UdpFamilySocket::bind(SocketAddr::new(address, port)) {
            Ok(socket) => Some(socket),
            Err(error) => {
                refused = Some(error);
                None
            }
        };
        let v4 = v4.and_then(|address| bind(address.into(), port));
        // Both families share one number, so that one firewall rule is enough.
        let port_v6 = v4.as_ref().map_or(port, |socket| socket.port);
        let v6 = v6.and_then(|address| bind(address.into(), port_v6));
        let wanted_v4 = !matches!(host, Host::Address(IpAddr::V6(_)));
        if (wanted_v4 && v4.is_none()) || (v4.is_none() && v6.is_none()) {
            return Err(refused.unwrap_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable)));
        }
        Ok(Arc::new(UdpPort {
            v4,
            v6,
            routes: Mutex::default(),
            last_session: AtomicU64::new(0),
            relays: OutgoingQueues::default(),
            connected: OutgoingQueues::default(),
            external: OnceLock::new(),
            dropped: DroppedDatagrams::default(),
        }))
    }

    /// Sets the addresses of a router in front. Only the first call counts.
    pub fn set_external(&self, addresses: Vec<IpAddr>) {
        let _ = self.external.set(addresses);
    }

    fn external(&self) -> &[IpAddr] {
        self.external.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the port number.
    pub fn number(&self) -> u16 {
        self.v4.as_ref().or(self.v6.as_ref()).map_or(0, |socket| socket.port)
    }

    /// Returns the counters of dropped datagrams.
    pub fn dropped(&self) -> &DroppedDatagrams {
        &self.dropped
    }

    /// Tells whether the address's family is bound.
    pub fn serves(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.v4.is_some(),
            IpAddr::V6(_) => self.v6.is_some(),
        }
    }

    /// Reads datagrams for ever; spawn it as a task.
    pub async fn run(self: Arc<Self>) {
        let v6 = self.clone();
        tokio::join!(self.read(self.v4.as_ref()), v6.read(v6.v6.as_ref()));
    }

    async fn read(&self, socket: Option<&UdpFamilySocket>) {
        let Some(socket) = socket else {
            return;
        };
        let mut batch = DatagramBatch::default();
        let mut arena = BytesMut::new();
        loop {
            socket.receive(&mut batch).await;
            let arrived = tasks::now();
            let routes = self.routes();
            for (meta, contents) in batch.datagrams() {
                let Some(ip) = meta.dst_ip else { continue };
                let destination = SocketAddr::new(ip.to_canonical(), socket.port);
                let path = RemotePath::from(meta.addr);
                deliver(&routes, path, destination, contents, &mut arena, arrived, &self.dropped);
            }
        }
    }

    /// Sends a packet, or drops it if the kernel, the relay or the connection has no room. With an
    /// unspecified source the kernel chooses.
    pub fn send(&self, over: IceProtocol, source: SocketAddr, destination: SocketAddr, contents: &[u8]) {
        match over {
            IceProtocol::Tcp => return self.connected.send(destination, destination, contents),
            IceProtocol::Udp if source.port() != self.number() => {
                return self.relays.send(source, destination, contents);
            }
            IceProtocol::Udp => {}
        }
        let socket = match destination {
            SocketAddr::V4(_) => &self.v4,
            SocketAddr::V6(_) => &self.v6,
        };
        let Some(socket) = socket else { return };
        // The kernel rejects a source address that no interface has; the router inserts it.
        let is_own = !source.ip().is_unspecified() && !self.external().contains(&source.ip());
        let transmit = quinn_udp::Transmit {
            destination,
            ecn: None,
            contents,
            segment_size: None,
            src_ip: is_own.then_some(source.ip()),
        };
        socket.send(&transmit);
    }

    /// Returns the path to a peer from a local address of this machine or of a relay.
    pub fn path(&self, over: IceProtocol, local: SocketAddr, peer: SocketAddr) -> RemotePath {
        let relay = (over == IceProtocol::Udp && local.port() != self.number()).then_some(local);
        RemotePath {
            over,
            address: peer,
            relay,
        }
    }

    /// Registers a relayed address until the result is dropped. Returns `None` if its port is the
    /// runner's own number, because paths could not be told apart.
    pub fn attach(self: &Arc<Self>, relayed: SocketAddr) -> Option<OutgoingQueue> {
        (relayed.port() != self.number()).then(|| OutgoingQueue::new(self.clone(), QueueKind::Relays, relayed))
    }

    /// Registers the connection of a peer over TCP until the result is dropped.
    pub fn connect(self: &Arc<Self>, peer: SocketAddr) -> OutgoingQueue {
        OutgoingQueue::new(self.clone(), QueueKind::Connected, peer)
    }

    /// Delivers a packet that a peer sent to a relayed address.
    pub fn deliver_relayed(&self, peer: SocketAddr, relayed: SocketAddr, contents: &[u8], arena: &mut BytesMut) {
        let path = self.path(IceProtocol::Udp, relayed, peer);
        let (now, dropped) = (tasks::now(), &self.dropped);
        deliver(&self.routes(), path, relayed, contents, arena, now, dropped);
    }

    /// Delivers a packet from a TCP connection, and returns its session.
    pub fn deliver_framed(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
        contents: &[u8],
        arena: &mut BytesMut,
    ) -> Option<u64> {
        let path = self.path(IceProtocol::Tcp, local, peer);
        let (now, dropped) = (tasks::now(), &self.dropped);
        deliver(&self.routes(), path, local, contents, arena, now, dropped)
    }

    fn queues(&self, table: QueueKind) -> &OutgoingQueues {
        match table {
            QueueKind::Relays => &self.relays,
            QueueKind::Connected => &self.connected,
        }
    }

    /// Opens the inbox of a new session.
    pub fn open(self: &Arc<Self>) -> SessionInbox {
        SessionInbox {
            port: self.clone(),
            session: self.last_session.fetch_add(1, Relaxed) + 1,
            queue: InboxQueue::new(SESSION_INBOX_DATAGRAMS),
            ufrag: None,
        }
    }

    /// Delivers a datagram as if it had come from `source`.
    #[cfg(test)]
    pub fn inject(&self, source: SocketAddr, contents: &[u8], arena: &mut BytesMut) {
        let destination = SocketAddr::from(([127, 0, 0, 1], self.number()));
        let (now, dropped) = (tasks::now(), &self.dropped);
        deliver(
            &self.routes(),
            source.into(),
            destination,
            contents,
            arena,
            now,
            dropped,
        );
    }

    /// Returns the number of routed ufrags and paths.
    #[cfg(test)]
    pub fn routed(&self) -> (usize, usize) {
        self.routes().len()
    }

    fn routes(&self) -> MutexGuard<'_, PacketRouter<InboxQueue<Datagram>>> {
        // The maps are consistent after every statement, so a panic cannot leave half a change.
        lock(&self.routes)
    }
}

/// Delivers a packet to its sessions, and returns the first of them.
fn deliver(
    routes: &PacketRouter<InboxQueue<Datagram>>,
    path: RemotePath,
    destination: SocketAddr,
    contents: &[u8],
    arena: &mut BytesMut,
    arrived: Instant,
    dropped: &DroppedDatagrams,
) -> Option<u64> {
    let mut first = None;
    let mut copy: Option<Bytes> = None;
    for (session, inbox) in routes.recipients(path, contents) {
        first = first.or(Some(session));
        let is_queued = inbox.push(|| {
            let copy = copy.get_or_insert_with(|| {
                if arena.capacity() < contents.len() {
                    // One block holds many datagrams, and is reused once they have all been read.
                    arena.reserve(DATAGRAM_ARENA_BYTES.max(contents.len()));
                }
                arena.extend_from_slice(contents);
                arena.split().freeze()
            });
            Datagram {
                over: path.over,
                source: path.address,
                destination,
                contents: copy.clone(),
                arrived,
            }
        });
        if !is_queued {
            dropped.inbox_full.fetch_add(1, Relaxed);
        }
    }
    if first.is_none() {
        dropped.unrouted.fetch_add(1, Relaxed);
    }
    first
}

/// One session's inbox at the port. Dropping it removes its routes.
pub struct SessionInbox {
    port: Arc<UdpPort>,
    session: u64,
    queue: InboxQueue<Datagram>,
    ufrag: Option<String>,
}

impl SessionInbox {
    /// Waits for the session's next datagram.
    pub async fn recv(&mut self) -> Datagram {
        poll_fn(|cx| self.queue.poll_next(cx)).await
    }

    /// Takes a datagram that has already arrived.
    #[cfg(test)]
    pub fn try_recv(&mut self) -> Option<Datagram> {
        self.queue.try_next()
    }

    /// Routes a ufrag to the session in place of an earlier one, whose paths are removed.
    pub fn listen(&mut self, ufrag: String) {
        self.rename(ufrag, None);
    }

    /// Like `listen`, but keeps the path in use: a peer sends there until ICE selects another one.
    pub fn rename(&mut self, ufrag: String, used: Option<RemotePath>) {
        if self.ufrag.as_ref() == Some(&ufrag) {
            return;
        }
        let mut routes = self.port.routes();
        if let Some(old) = self.ufrag.replace(ufrag.clone()) {
            routes.unregister(Some(&old), self.session, used);
        }
        routes.register(ufrag, self.session, &self.queue);
    }

    /// Routes STUN responses on a path on which a check was sent or answered.
    pub fn expect(&self, path: impl Into<RemotePath>) {
        self.port
            .routes()
            .expect_answers(path.into(), self.session, &self.queue);
    }

    /// Routes everything on a path on which a check was answered. Returns the other sessions for
    /// which this path was proven.
    pub fn prove(&self, path: impl Into<RemotePath>) -> Vec<u64> {
        self.port
            .routes()
            .mark_validated(path.into(), self.session, &self.queue)
    }

    /// Routes everything from a configured address to this session alone, until the inbox is
    /// dropped or [`SessionInbox::release`] is called.
    pub fn reserve(&self, address: SocketAddr) {
        self.port.routes().reserve(address.into(), self.session, &self.queue);
    }

    /// Removes the route of a reserved address.
    pub fn release(&self, address: SocketAddr) {
        self.port.routes().release(&address.into(), self.session);
    }

    /// Returns the session's number at this port.
    pub fn number(&self) -> u64 {
        self.session
    }

    pub fn port(&self) -> &UdpPort {
        &self.port
    }
}

impl Drop for SessionInbox {
    fn drop(&mut self) {
        self.port.routes().unregister(self.ufrag.as_deref(), self.session, None);
    }
}

#[cfg(test)]
mod tests;
