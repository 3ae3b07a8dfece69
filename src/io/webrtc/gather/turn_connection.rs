//! The connection to one TURN server: UDP, TCP, or TLS over TCP.
//!
//! In and out: whole messages. A datagram that the socket cannot take is lost. What a stream cannot
//! take yet is queued, up to [`RELAY_STREAM_BYTES_MAX`]; above that, session data is dropped and
//! protocol messages are not.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::io::webrtc::gather::error::GatherError;
use crate::io::{rest, tasks};
use crate::limits::RELAY_STREAM_BYTES_MAX;
use crate::proto::webrtc::gather::server::{GatherServer, ServerUse, TurnTransport};
use crate::proto::webrtc::relay::stream::{TurnFramingError, TurnStreamReader};
use crate::proto::webrtc::relay::{AllocationSetup, TurnAllocation};
use std::time::Duration;

/// Bytes of one read from a relay: the longest datagram.
const RELAY_READ_BYTES: usize = 64 * 1024;
/// Time to connect to one address of a relay, and for TLS after it.
const RELAY_CONNECT: Duration = Duration::from_secs(5);

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// One connection.
pub(in crate::io) struct TurnConnection {
    pub local: SocketAddr,
    pub server: SocketAddr,
    kind: TurnSocket,
    buffer: Vec<u8>,
}

enum TurnSocket {
    Udp(UdpSocket),
    Stream {
        reader: ReadHalf<Box<dyn Duplex>>,
        writer: WriteHalf<Box<dyn Duplex>>,
        messages: TurnStreamReader,
        waiting: BytesMut,
        /// Whether TLS may still buffer written bytes.
        unflushed: bool,
    },
}

impl TurnConnection {
    /// Connects to one address of a TURN server, and prepares an allocation there, which has sent
    /// nothing yet. `sends_first`: [`AllocationSetup::sends_first`].
    ///
    /// # Errors
    /// Returns a [`GatherError`] that says why there is no connection, for instance because the
    /// server is not for TURN.
    pub(in crate::io) async fn with_allocation(
        server: &GatherServer,
        address: SocketAddr,
        sends_first: bool,
    ) -> Result<(TurnConnection, TurnAllocation), GatherError> {
        let ServerUse::Turn {
            transport,
            username,
            credential,
        } = &server.usage
        else {
            return Err(GatherError::NotAsked);
        };
        let connection = TurnConnection::connect(server, *transport, address).await?;
        let setup = AllocationSetup {
            local: connection.local,
            server: connection.server,
            over_stream: matches!(connection.kind, TurnSocket::Stream { .. }),
            username,
            credential: credential.expose(),
            sends_first,
        };
        let allocation = TurnAllocation::new(&setup, tasks::now());
        Ok((connection, allocation))
    }

    async fn connect(
        server: &GatherServer,
        transport: TurnTransport,
        address: SocketAddr,
    ) -> Result<TurnConnection, GatherError> {
        let refused = |source: io::Error| GatherError::Connect {
            server: server.authority(),
            source,
        };
        if transport == TurnTransport::Udp {
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any).await.map_err(refused)?;
            socket.connect(address).await.map_err(refused)?;
            // tokio sends nothing before it has seen the socket writable once.
            socket.writable().await.map_err(refused)?;
            let local = socket.local_addr().map_err(refused)?;
            return Ok(TurnConnection::new(local, address, TurnSocket::Udp(socket)));
        }
        let whole = async {
            let tcp = TcpStream::connect(address).await.map_err(refused)?;
            // Speech is sent in small pieces, which Nagle's algorithm would delay.
            tcp.set_nodelay(true).map_err(refused)?;
            let local = tcp.local_addr().map_err(refused)?;
            let stream: Box<dyn Duplex> = if transport == TurnTransport::Tls {
                let trust = rest::system_trust().await?;
                Box::new(rest::secure(&trust, tcp, &server.host).await?)
            } else {
                Box::new(tcp)
            };
            let (reader, writer) = tokio::io::split(stream);
            let kind = TurnSocket::Stream {
                reader,
                writer,
                messages: TurnStreamReader::default(),
                waiting: BytesMut::new(),
                unflushed: false,
            };
            Ok(TurnConnection::new(local, address, kind))
        };
        match timeout(RELAY_CONNECT, whole).await {
            Ok(outcome) => outcome,
            Err(_) => Err(GatherError::ConnectTimeout {
                server: server.authority(),
            }),
        }
    }

    fn new(local: SocketAddr, server: SocketAddr, kind: TurnSocket) -> TurnConnection {
        TurnConnection {
            local,
            server,
            kind,
            buffer: vec![0; RELAY_READ_BYTES],
        }
    }

    /// Sends a protocol message.
    pub(in crate::io) fn send(&mut self, message: &[u8]) {
        self.put(message, 2 * RELAY_STREAM_BYTES_MAX);
    }

    /// Sends session data; drops it when too much is queued.
    pub(in crate::io) fn send_data(&mut self, message: &[u8]) {
        self.put(message, RELAY_STREAM_BYTES_MAX);
    }

    fn put(&mut self, message: &[u8], bytes_max: usize) {
        match &mut self.kind {
            TurnSocket::Udp(socket) => {
                if let Err(error) = socket.try_send(message) {
                    log::debug!("sending to a relay: {error}");
                }
            }
            TurnSocket::Stream { waiting, .. } => {
                if waiting.len() + message.len() <= bytes_max {
                    waiting.extend_from_slice(message);
                }
            }
        }
    }

    /// Waits for the next message, and sends queued data meanwhile. Cancel safe.
    ///
    /// # Errors
    /// Returns an error when the connection ends, fails, or carries something other than TURN.
    pub(in crate::io) async fn next(&mut self) -> io::Result<Bytes> {
        let buffer = &mut self.buffer;
        match &mut self.kind {
            TurnSocket::Udp(socket) => loop {
                match socket.recv(buffer).await {
                    Ok(length) => return Ok(Bytes::copy_from_slice(&buffer[..length])),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        return Err(io::Error::new(error.kind(), "nothing listens there"));
                    }
                    Err(error) => {
                        // An ICMP error may be temporary; a lasting one shows in unanswered
                        // refreshes.
                        log::debug!("receiving from a relay: {error}");
                        tokio::task::yield_now().await;
                    }
                }
            },
            TurnSocket::Stream {
                reader,
                writer,
                messages,
                waiting,
                unflushed,
            } => loop {
                let whole = messages.next_message().map_err(|TurnFramingError| {
                    io::Error::new(io::ErrorKind::InvalidData, "the server speaks something else than TURN")
                })?;
                if let Some(message) = whole {
                    return Ok(message);
                }
                tokio::select! {
                    length = reader.read(buffer) => match length? {
                        0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
                        length => messages.push(&buffer[..length]),
                    },
                    moved = carry(writer, waiting, unflushed), if !waiting.is_empty() || *unflushed => moved?,
                }
            },
        }
    }
}

/// Writes queued bytes, or flushes when nothing is queued. Cancel safe.
async fn carry(writer: &mut (impl AsyncWrite + Unpin), waiting: &mut BytesMut, unflushed: &mut bool) -> io::Result<()> {
    if waiting.is_empty() {
        writer.flush().await?;
        *unflushed = false;
    } else {
        writer.write_buf(waiting).await?;
        *unflushed = true;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::IceServer;
    use crate::proto::webrtc::gather::server::parse_servers;

    /// Data for a stalled server is queued up to the cap and dropped above it; a protocol message
    /// is still queued, and all arrives in order once the server reads.
    #[tokio::test]
    async fn data_for_a_stalled_stream_is_capped() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let list = IceServer {
            urls: vec![format!("turn:{address}?transport=tcp")],
            username: Some("u".into()),
            credential: Some("c".into()),
        };
        let server = parse_servers(&[list]).remove(0);
        let mut connection = TurnConnection::connect(&server, TurnTransport::Tcp, address)
            .await
            .expect("connected");
        let (mut accepted, _) = listener.accept().await.expect("a connection");
        connection.send_data(&vec![1; RELAY_STREAM_BYTES_MAX]);
        connection.send_data(&[2]);
        connection.send(&[3]);
        let mut read = vec![0; RELAY_STREAM_BYTES_MAX + 1];
        tokio::select! {
            _ = connection.next() => panic!("the server sent nothing"),
            all = accepted.read_exact(&mut read) => assert_eq!(all.expect("bytes"), read.len()),
        }
        assert_eq!(
            (read[0], read[RELAY_STREAM_BYTES_MAX - 1], read[RELAY_STREAM_BYTES_MAX]),
            (1, 1, 3)
        );
    }
}
