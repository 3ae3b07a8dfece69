//! Callers whose network lets no UDP through: their WebRTC packets, framed, on a connection to the HTTP port.
//!
//! In: a connection whose first byte is the length of a packet. Out: its packets to the sessions they are for, and those of the
//! sessions back. Nothing is sent to, and nothing kept for, a caller whose first packet is not a check of a live session. A
//! connection that has stalled loses packets, as the network would: late speech is worthless.
//! The browser on the far end of an SSH tunnel to this port comes this way. Source: RFC 6544, RFC 4571.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this room is the shell: it owns a socket and the clock"
)]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout_at};

use crate::io::udp::{Attached, Port};
use crate::limits::{FRAMED_BYTES_MAX, ICE_TCP_SEND_BUFFER_BYTES, PEER_FREED_AFTER};
use crate::proto::framing::{self, Framed};

/// A connection whose caller has named a live session.
pub struct Connected {
    incoming: Incoming,
    outgoing: Attached,
    write: OwnedWriteHalf,
}

impl Connected {
    /// Reads the first packet, and hands it on; the caller of this sets the time for it.
    ///
    /// # Errors
    /// The connection's, and that of a packet for no session.
    pub async fn open(port: &Arc<Port>, stream: TcpStream, peer: SocketAddr) -> io::Result<Connected> {
        socket2::SockRef::from(&stream).set_send_buffer_size(ICE_TCP_SEND_BUFFER_BYTES)?;
        let local = stream.local_addr()?;
        let (read, write) = stream.into_split();
        let mut incoming = Incoming {
            read,
            framed: Framed::default(),
            arena: BytesMut::new(),
            port: port.clone(),
            peer: canonical(peer),
            local: canonical(local),
        };
        // The answer to the first packet has to have somewhere to go.
        let outgoing = port.connect(incoming.peer);
        loop {
            match incoming.deliver()? {
                Some(true) => break,
                Some(false) => return Err(io::Error::other("its first packet is for no session")),
                None => incoming.fill().await?,
            }
        }
        Ok(Connected {
            incoming,
            outgoing,
            write,
        })
    }

    /// Carries packets until either side has no more use for the connection.
    pub async fn carry(self) {
        let peer = self.incoming.peer;
        let ended = tokio::select! {
            read = self.incoming.carry() => read,
            written = send(self.outgoing, self.write) => written,
        };
        if let Err(error) = ended {
            log::debug!("{peer}: connection closed: {error}");
        }
    }
}

/// The caller's half of a connection.
struct Incoming {
    read: OwnedReadHalf,
    framed: Framed,
    arena: BytesMut,
    port: Arc<Port>,
    peer: SocketAddr,
    local: SocketAddr,
}

impl Incoming {
    async fn carry(mut self) -> io::Result<()> {
        let mut until = Instant::now() + PEER_FREED_AFTER;
        loop {
            let mut taken = false;
            while let Some(for_a_session) = self.deliver()? {
                taken |= for_a_session;
            }
            if taken {
                until = Instant::now() + PEER_FREED_AFTER;
            }
            match timeout_at(until, self.fill()).await {
                Ok(filled) => filled?,
                Err(_) => return Err(io::Error::other("nothing came for a session any more")),
            }
        }
    }

    /// Hands on the next whole packet, and tells whether it was for a session; nothing when there is none.
    fn deliver(&mut self) -> io::Result<Option<bool>> {
        let packet = self
            .framed
            .take()
            .map_err(|_| io::Error::other("a packet is too long"))?;
        Ok(packet.map(|packet| {
            self.port
                .deliver_framed(self.peer, self.local, &packet, &mut self.arena)
                .is_some()
        }))
    }

    async fn fill(&mut self) -> io::Result<()> {
        match self.read.read_buf(self.framed.room()).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

async fn send(mut outgoing: Attached, mut write: OwnedWriteHalf) -> io::Result<()> {
    let mut framed = Vec::with_capacity(FRAMED_BYTES_MAX);
    loop {
        framing::put(&outgoing.next().await.contents, &mut framed);
        write.write_all(&framed).await?;
        framed.clear();
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
