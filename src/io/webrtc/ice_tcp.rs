//! ICE over TCP, for callers whose network blocks UDP: framed packets on a connection to the HTTP
//! port.
//!
//! In: a connection whose first byte belongs to a frame length. Out: its packets to their sessions,
//! and the sessions' packets back. Nothing is sent to, or stored for, a caller whose first packet
//! is not a connectivity check of a live session. [`TcpConnections`] decides which connections
//! stay; one on which no session answers checks is closed. A stalled connection loses packets,
//! because late speech is useless. Browsers behind an SSH tunnel to the port use this too. Source:
//! RFC 6544, RFC 4571.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::BytesMut;
use edge_runner_http::common::lock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::io::tasks;
use crate::io::webrtc::udp::{OutgoingQueue, UdpPort};
use crate::limits::{FRAMED_BYTES_MAX, ICE_TCP_SEND_BUFFER_BYTES, PEER_FREED_AFTER};
use crate::proto::webrtc::packet_kind::PacketKind;
use crate::proto::webrtc::rfc4571::{self, Rfc4571Reader};
use crate::proto::webrtc::tcp_connections::TcpConnections;
use std::time::Duration;

/// Time from the first packet of an ICE-TCP connection to the answer of its session, which follows
/// a valid check within milliseconds.
const ICE_TCP_PROVEN_WITHIN: Duration = Duration::from_secs(5);

/// The slots of all connections.
#[derive(Clone, Default)]
pub struct TcpSlots(Arc<Mutex<TcpConnections<oneshot::Sender<()>>>>);

impl TcpSlots {
    /// Takes a slot for a connection that has named a session; the evicted connection, if any, is
    /// closed.
    fn admit(&self, session: u64, peer: SocketAddr) -> Option<TcpSlot> {
        let (handle, evicted) = oneshot::channel();
        let admitted = self.connections().admit(session, peer.ip(), handle, tasks::now())?;
        Some(TcpSlot {
            slots: self.clone(),
            id: admitted.id,
            evicted,
        })
    }

    fn connections(&self) -> MutexGuard<'_, TcpConnections<oneshot::Sender<()>>> {
        // The list is consistent after every statement.
        lock(&self.0)
    }
}

/// One slot. Dropping it releases it.
struct TcpSlot {
    slots: TcpSlots,
    id: u64,
    /// Completes when another connection has taken the slot.
    evicted: oneshot::Receiver<()>,
}

impl Drop for TcpSlot {
    fn drop(&mut self) {
        self.slots.connections().remove(self.id);
    }
}

/// A connection that has named a live session.
pub struct IceTcpConnection {
    incoming: IceTcpReader,
    slot: TcpSlot,
    outgoing: OutgoingQueue,
    write: OwnedWriteHalf,
}

impl IceTcpConnection {
    /// Reads the first packet and delivers it. The caller of this function applies a timeout.
    ///
    /// # Errors
    /// Returns an I/O error, or an error for a packet of no session and for one connection too
    /// many.
    pub async fn open(
        port: &Arc<UdpPort>,
        slots: &TcpSlots,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> io::Result<IceTcpConnection> {
        socket2::SockRef::from(&stream).set_send_buffer_size(ICE_TCP_SEND_BUFFER_BYTES)?;
        let local = stream.local_addr()?;
        let (read, write) = stream.into_split();
        let mut incoming = IceTcpReader {
            read,
            frames: Rfc4571Reader::default(),
            arena: BytesMut::new(),
            port: port.clone(),
            peer: canonical(peer),
            local: canonical(local),
        };
        // Registered first, because the first packet is answered at once.
        let outgoing = port.connect(incoming.peer);
        let session = loop {
            match incoming.deliver()? {
                Some(Some(session)) => break session,
                Some(None) => return Err(io::Error::other("its first packet is for no session")),
                None => incoming.fill().await?,
            }
        };
        let slot = slots.admit(session, peer);
        let slot = slot.ok_or_else(|| io::Error::other("its session or its address has too many already"))?;
        Ok(IceTcpConnection {
            incoming,
            slot,
            outgoing,
            write,
        })
    }

    /// Moves packets until either side closes.
    pub async fn run(self) {
        let peer = self.incoming.peer;
        let mut slot = self.slot;
        let answered = Notify::new();
        let (slots, id) = (slot.slots.clone(), slot.id);
        let prove = || {
            slots.connections().mark_validated(id);
            answered.notify_one();
        };
        let ended = tokio::select! {
            read = self.incoming.run(&answered) => read,
            written = send(self.outgoing, self.write, prove) => written,
            _ = &mut slot.evicted => Err(io::Error::other("another connection has its slot")),
        };
        if let Err(error) = ended {
            log::debug!("{peer}: connection closed: {error}");
        }
    }
}

/// The receiving half of a connection.
struct IceTcpReader {
    read: OwnedReadHalf,
    frames: Rfc4571Reader,
    arena: BytesMut,
    port: Arc<UdpPort>,
    peer: SocketAddr,
    local: SocketAddr,
}

impl IceTcpReader {
    async fn run(mut self, answered: &Notify) -> io::Result<()> {
        let mut until = Instant::now() + ICE_TCP_PROVEN_WITHIN;
        loop {
            while self.deliver()?.is_some() {}
            tokio::select! {
                filled = self.fill() => filled?,
                () = answered.notified() => until = Instant::now() + PEER_FREED_AFTER,
                () = sleep_until(until) => return Err(io::Error::other("no session answers a check on it")),
            }
        }
    }

    /// Delivers the next whole packet and returns its session; `None` when no packet is complete.
    fn deliver(&mut self) -> io::Result<Option<Option<u64>>> {
        let packet = self
            .frames
            .next_packet()
            .map_err(|_| io::Error::other("a packet is too long"))?;
        Ok(packet.map(|packet| {
            self.port
                .deliver_framed(self.peer, self.local, &packet, &mut self.arena)
        }))
    }

    async fn fill(&mut self) -> io::Result<()> {
        match self.read.read_buf(self.frames.buffer_mut()).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Writes the sessions' packets, and reports each response to a check.
async fn send(mut outgoing: OutgoingQueue, mut write: OwnedWriteHalf, answered: impl Fn()) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(FRAMED_BYTES_MAX);
    loop {
        let packet = outgoing.next().await;
        if PacketKind::from_packet(&packet.contents) == PacketKind::CheckAnswer {
            answered();
        }
        rfc4571::append_framed(&packet.contents, &mut buffer);
        write.write_all(&buffer).await?;
        buffer.clear();
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
