//! The UDP port of Media over QUIC: one QUIC endpoint for all connections of a runner.
//!
//! In: datagrams, and what connections send. Out: each connection's events in its bounded
//! [`ConnectionInbox`], new connections to [`AcceptConnections`], and the endpoint's own answers:
//! version negotiation, Retry, stateless reset and refusals. An event for a full inbox is dropped;
//! QUIC repeats what was lost. The endpoint's lock is held for one datagram or one event, never
//! across an `.await`. Source: RFC 9000 sections 5.2, 8.1, 10.3 and 13.4.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BytesMut;
use edge_runner_http::common::{lock, random};
use quinn_proto::{
    ClientConfig, ConnectError, Connection, ConnectionEvent, ConnectionHandle, DatagramEvent, Endpoint, EndpointEvent,
    Incoming, ServerConfig, Transmit,
};

use crate::io::inbox_queue::InboxQueue;
use crate::io::tasks;
use crate::io::udp_family::{DatagramBatch, UdpFamilySocket};
use crate::proto::moq::link::endpoint_config;

/// Events queued for one connection: the packets of a second of audio in both directions, or a full
/// congestion window of a fast network.
const INBOX_EVENTS: usize = 128;
/// Attempts to find a port that is free in both families.
const FREE_PORT_ATTEMPTS: u32 = 16;

/// Decides about new connections, and takes those it permits.
pub trait AcceptConnections: Send + Sync + 'static {
    /// Held by a connection from its first datagram.
    type Permit: Send;

    /// Decides about a connection from this address. `is_validated` says that the address has
    /// answered a Retry.
    fn admit(&self, remote: SocketAddr, is_validated: bool) -> ConnectionVerdict<Self::Permit>;

    /// Takes a new connection.
    fn accept(self: &Arc<Self>, permit: Self::Permit, connection: Connection, inbox: ConnectionInbox);
}

/// The decision about a new connection.
pub enum ConnectionVerdict<P> {
    Accept(P),
    /// The client is to prove its address first (RFC 9000 section 8.1.2).
    Retry,
    Refuse,
}

/// The UDP port, shared by all connections.
pub struct MoqPort {
    v4: Option<UdpFamilySocket>,
    v6: Option<UdpFamilySocket>,
    state: Mutex<EndpointState>,
    inbox_full: AtomicU64,
}

struct EndpointState {
    endpoint: Endpoint,
    inboxes: HashMap<ConnectionHandle, InboxQueue<ReceivedEvent>>,
}

impl MoqPort {
    /// Binds an address. `[::]` and `0.0.0.0` differ: the first means both families, where the
    /// machine has them. Without `server`, connections are only made by [`MoqPort::connect`].
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn bind(address: SocketAddr, server: Option<Arc<ServerConfig>>) -> io::Result<Arc<MoqPort>> {
        let (mut v4, mut v6) = (None, None);
        match address.ip() {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => (v4, v6) = bind_both(address.port())?,
            IpAddr::V6(_) => v6 = Some(UdpFamilySocket::bind(address)?),
            IpAddr::V4(_) => v4 = Some(UdpFamilySocket::bind(address)?),
        }
        if v4.is_none() && v6.is_none() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        // `transport_config` disables the probing of the path MTU.
        let allow_mtud = false;
        let endpoint = Endpoint::new(Arc::new(endpoint_config(random(), &random())), server, allow_mtud, None);
        Ok(Arc::new(MoqPort {
            v4,
            v6,
            state: Mutex::new(EndpointState {
                endpoint,
                inboxes: HashMap::new(),
            }),
            inbox_full: AtomicU64::new(0),
        }))
    }

    /// Returns the number of the port.
    pub fn number(&self) -> u16 {
        self.v4.as_ref().or(self.v6.as_ref()).map_or(0, |socket| socket.port)
    }

    /// Returns whether the port can send to this address.
    pub fn serves(&self, address: IpAddr) -> bool {
        self.socket_for(address).is_some()
    }

    /// Returns the number of live connections.
    pub fn connections(&self) -> usize {
        lock(&self.state).inboxes.len()
    }

    /// Returns the number of events that found a full inbox.
    pub fn inbox_full(&self) -> u64 {
        self.inbox_full.load(Relaxed)
    }

    /// Reads datagrams for ever; spawn it as a task.
    pub async fn run<A: AcceptConnections>(self: Arc<Self>, arrivals: Arc<A>) {
        tokio::join!(
            self.read(self.v4.as_ref(), &arrivals),
            self.read(self.v6.as_ref(), &arrivals)
        );
    }

    async fn read<A: AcceptConnections>(self: &Arc<Self>, socket: Option<&UdpFamilySocket>, arrivals: &Arc<A>) {
        let Some(socket) = socket else {
            return;
        };
        let mut batch = DatagramBatch::default();
        let mut answer = Vec::new();
        loop {
            socket.receive(&mut batch).await;
            let now = tasks::now();
            for (meta, contents) in batch.datagrams() {
                let datagram = ReceivedDatagram {
                    remote: meta.addr,
                    local: meta.dst_ip.map(|ip| ip.to_canonical()),
                    ecn: meta.ecn.and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8)),
                    // An allocation of its own: QUIC keeps parts of datagrams until a stream is
                    // read in order, and in a shared block one byte would keep all of the block.
                    contents: contents.into(),
                };
                answer.clear();
                if let Some(transmit) = self.handle(datagram, arrivals, &mut answer, now) {
                    self.send(&transmit, &answer);
                }
            }
        }
    }

    /// Passes a datagram to the endpoint, and returns the endpoint's own answer.
    fn handle<A: AcceptConnections>(
        self: &Arc<Self>,
        datagram: ReceivedDatagram,
        arrivals: &Arc<A>,
        answer: &mut Vec<u8>,
        now: Instant,
    ) -> Option<Transmit> {
        let ReceivedDatagram {
            remote,
            local,
            ecn,
            contents,
        } = datagram;
        let bytes = contents.len();
        let mut state = lock(&self.state);
        match state.endpoint.handle(now, remote, local, ecn, contents, answer)? {
            DatagramEvent::ConnectionEvent(handle, event) => {
                let inbox = state.inboxes.get(&handle);
                let received = ReceivedEvent {
                    event,
                    bytes,
                    arrived: now,
                };
                if inbox.is_none_or(|inbox| !inbox.push(|| received)) {
                    self.inbox_full.fetch_add(1, Relaxed);
                }
                None
            }
            DatagramEvent::Response(transmit) => Some(transmit),
            DatagramEvent::NewConnection(incoming) => {
                let may_retry = incoming.may_retry();
                // The decision may log a line.
                drop(state);
                let verdict = arrivals.admit(remote, incoming.remote_address_validated());
                let mut state = lock(&self.state);
                match verdict {
                    ConnectionVerdict::Accept(permit) => {
                        let (connection, inbox) = match self.accept(&mut state, incoming, answer, now) {
                            Ok(accepted) => accepted,
                            Err(transmit) => return transmit,
                        };
                        drop(state);
                        arrivals.accept(permit, connection, inbox);
                        None
                    }
                    ConnectionVerdict::Retry if may_retry => state.endpoint.retry(incoming, answer).ok(),
                    ConnectionVerdict::Retry | ConnectionVerdict::Refuse => {
                        Some(state.endpoint.refuse(incoming, answer))
                    }
                }
            }
        }
    }

    fn accept(
        self: &Arc<Self>,
        state: &mut EndpointState,
        incoming: Incoming,
        answer: &mut Vec<u8>,
        now: Instant,
    ) -> Result<(Connection, ConnectionInbox), Option<Transmit>> {
        match state.endpoint.accept(incoming, now, answer, None) {
            Ok((handle, connection)) => Ok((connection, self.open(state, handle))),
            Err(error) => {
                log::debug!("a QUIC handshake failed at its first packet: {}", error.cause);
                Err(error.response)
            }
        }
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// Returns a [`ConnectError`] for an address or a name that no connection can have.
    pub fn connect(
        self: &Arc<Self>,
        config: ClientConfig,
        remote: SocketAddr,
        server_name: &str,
        now: Instant,
    ) -> Result<(Connection, ConnectionInbox), ConnectError> {
        let mut state = lock(&self.state);
        let (handle, connection) = state.endpoint.connect(now, config, remote, server_name)?;
        Ok((connection, self.open(&mut state, handle)))
    }

    fn open(self: &Arc<Self>, state: &mut EndpointState, handle: ConnectionHandle) -> ConnectionInbox {
        let queue = InboxQueue::new(INBOX_EVENTS);
        state.inboxes.insert(handle, queue.clone());
        ConnectionInbox {
            port: self.clone(),
            handle,
            queue,
            is_drained: false,
        }
    }

    /// Sends one datagram.
    pub fn send(&self, transmit: &Transmit, contents: &[u8]) {
        let Some(socket) = self.socket_for(transmit.destination.ip()) else {
            return;
        };
        socket.send(&quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit
                .ecn
                .and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: &contents[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        });
    }

    fn socket_for(&self, address: IpAddr) -> Option<&UdpFamilySocket> {
        match address {
            IpAddr::V4(_) => self.v4.as_ref(),
            IpAddr::V6(_) => self.v6.as_ref(),
        }
    }
}

/// A datagram with what the kernel tells of it.
struct ReceivedDatagram {
    remote: SocketAddr,
    local: Option<IpAddr>,
    ecn: Option<quinn_proto::EcnCodepoint>,
    contents: BytesMut,
}

/// Binds both families to one port, as far as the machine has them; port 0 takes one that is free
/// in both.
fn bind_both(port: u16) -> io::Result<(Option<UdpFamilySocket>, Option<UdpFamilySocket>)> {
    let mut attempts = if port == 0 { FREE_PORT_ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        let v6 = present(UdpFamilySocket::bind((Ipv6Addr::UNSPECIFIED, port).into()))?;
        let port = v6.as_ref().map_or(port, |socket| socket.port);
        match present(UdpFamilySocket::bind((Ipv4Addr::UNSPECIFIED, port).into())) {
            Ok(v4) => return Ok((v4, v6)),
            // Another process has the port of the other family.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns `None` for a family that this machine does not have.
fn present(bound: io::Result<UdpFamilySocket>) -> io::Result<Option<UdpFamilySocket>> {
    match bound {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse || error.kind() == io::ErrorKind::PermissionDenied => {
            Err(error)
        }
        Err(error) => {
            log::debug!("an address family is missing: {error}");
            Ok(None)
        }
    }
}

/// An event on its way to its connection.
pub struct ReceivedEvent {
    pub event: ConnectionEvent,
    /// Bytes of its datagram.
    pub bytes: usize,
    pub arrived: Instant,
}

/// One connection's place at the port. Dropping it ends the connection without a goodbye.
pub struct ConnectionInbox {
    port: Arc<MoqPort>,
    handle: ConnectionHandle,
    queue: InboxQueue<ReceivedEvent>,
    /// Whether the endpoint has forgotten the connection; its handle may belong to another one.
    is_drained: bool,
}

impl ConnectionInbox {
    /// Waits for the connection's next event. Cancel safe.
    pub async fn recv(&mut self) -> ReceivedEvent {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Polls for the connection's next event. A drained connection has none.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<ReceivedEvent> {
        self.queue.poll_next(cx)
    }

    /// Passes an event of the connection to the endpoint; the connection takes the result.
    pub fn handle_endpoint_event(&mut self, event: EndpointEvent) -> Option<ConnectionEvent> {
        if self.is_drained {
            return None;
        }
        let mut state = lock(&self.port.state);
        if event.is_drained() {
            self.is_drained = true;
            state.inboxes.remove(&self.handle);
        }
        state.endpoint.handle_event(self.handle, event)
    }

    pub fn port(&self) -> &MoqPort {
        &self.port
    }
}

impl Drop for ConnectionInbox {
    fn drop(&mut self) {
        self.handle_endpoint_event(EndpointEvent::drained());
    }
}

#[cfg(test)]
mod tests;
