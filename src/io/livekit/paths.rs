//! The TCP connections and TURN allocations of a session in a room, each in a task of its own.
//!
//! In: requests and packets of the session. Out: what became of each path, and its packets.
//! Dropping a path ends its task; an allocation is released first. Queues are bounded: what a
//! stalled path cannot take is lost, because late speech is useless. Sources: RFC 6544, RFC 4571.

use std::io;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::features::{Feature, MissingFeature};
pub use crate::io::livekit::path_link::PathInput;
use crate::io::livekit::path_link::{PathLink, RunRelay};
use crate::io::livekit::relay;
use crate::io::tasks;
use crate::io::webrtc::udp::OutgoingPacket;
use crate::limits::{ICE_TCP_SEND_BUFFER_BYTES, RELAY_STREAM_BYTES_MAX};
use crate::proto::livekit::session::{PathEvent, PathId, PathRequest};
use crate::proto::livekit::wire::SignalTarget;
use crate::proto::webrtc::connection::{IceProtocol, Transmit};
use crate::proto::webrtc::rfc4571::{self, Rfc4571Reader};
use std::time::Duration;

/// Time for a TCP connection to a candidate of the server.
const ROOM_TCP_CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Packets queued for a path of a room: half a second of audio, and data.
const ROOM_PATH_PACKETS_MAX: usize = 64;

/// The paths of one session.
pub struct RoomPaths {
    open: Vec<OpenPath>,
    sender: mpsc::Sender<PathInput>,
    receiver: mpsc::Receiver<PathInput>,
}

/// The session's end of a path.
struct OpenPath {
    id: PathId,
    target: SignalTarget,
    /// The local addresses of a TCP connection or of an allocation; empty until it is open.
    local: Vec<SocketAddr>,
    over: IceProtocol,
    outgoing: mpsc::Sender<OutgoingPacket>,
}

impl Default for RoomPaths {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(ROOM_PATH_PACKETS_MAX);
        RoomPaths {
            open: Vec::new(),
            sender,
            receiver,
        }
    }
}

async fn report_no_relay(link: PathLink) {
    let why = format!("asking a TURN server {}", MissingFeature(Feature::Turn));
    link.report(PathEvent::Ended(why)).await;
}

impl RoomPaths {
    /// Waits for the next input. Cancel safe.
    pub async fn recv(&mut self) -> PathInput {
        loop {
            match self.receiver.recv().await {
                Some(PathInput::Event(id, event)) => {
                    // The event of a path that was closed meanwhile has no effect.
                    if self.handle_event(id, &event) {
                        return PathInput::Event(id, event);
                    }
                }
                Some(input) => return input,
                // `sender` keeps the channel open.
                None => std::future::pending().await,
            }
        }
    }

    fn handle_event(&mut self, id: PathId, event: &PathEvent) -> bool {
        let Some(at) = self.open.iter().position(|path| path.id == id) else {
            return false;
        };
        match event {
            PathEvent::Connected { local } => self.open[at].local = vec![*local],
            PathEvent::Allocated { relayed, .. } => self.open[at].local.clone_from(relayed),
            PathEvent::Ended(_) => drop(self.open.swap_remove(at)),
        }
        true
    }

    /// Opens a path. The session bounds their number.
    pub fn open(&mut self, target: SignalTarget, id: PathId, request: PathRequest) {
        let (outgoing, packets) = mpsc::channel(ROOM_PATH_PACKETS_MAX);
        let link = PathLink::new(id, target, self.sender.clone(), packets);
        let over = match &request {
            PathRequest::Tcp(_) => IceProtocol::Tcp,
            PathRequest::Relay(_) => IceProtocol::Udp,
        };
        match request {
            PathRequest::Tcp(address) => drop(tasks::spawn(connect(address, link))),
            PathRequest::Relay(server) => {
                let row: Option<RunRelay> = relay::row();
                let work = match row {
                    Some(run) => run(server, link),
                    None => tasks::boxed(report_no_relay(link)),
                };
                tasks::spawn(work);
            }
        }
        self.open.push(OpenPath {
            id,
            target,
            local: Vec::new(),
            over,
            outgoing,
        });
    }

    pub fn close(&mut self, id: PathId) {
        self.open.retain(|path| path.id != id);
    }

    pub fn close_all(&mut self) {
        self.open.clear();
    }

    /// Sends a packet, if it leaves by a path. Returns whether it does.
    pub fn send(&self, target: SignalTarget, transmit: &mut Transmit) -> bool {
        let (over, source, peer) = (transmit.over, transmit.source, transmit.destination);
        let is_it = |path: &&OpenPath| path.target == target && path.over == over && path.local.contains(&source);
        let Some(path) = self.open.iter().find(is_it) else {
            return over == IceProtocol::Tcp;
        };
        if let Ok(permit) = path.outgoing.try_reserve() {
            let contents = Bytes::copy_from_slice(transmit.contents());
            permit.send(OutgoingPacket { peer, contents });
        }
        true
    }
}

/// Holds a TCP connection to the server.
async fn connect(server: SocketAddr, mut link: PathLink) {
    let opening = timeout(ROOM_TCP_CONNECT_WITHIN, open(server));
    let opened = tokio::select! {
        opened = opening => opened,
        _ = link.next() => return,
    };
    let why = match opened {
        Ok(Ok((stream, local))) => {
            link.report(PathEvent::Connected { local }).await;
            match carry(stream, server, local, &mut link).await {
                Ok(()) => return,
                Err(error) => error.to_string(),
            }
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer".to_owned(),
    };
    link.report(PathEvent::Ended(why)).await;
}

async fn open(server: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let stream = TcpStream::connect(server).await?;
    // Speech is sent in small pieces, which Nagle's algorithm would delay.
    stream.set_nodelay(true)?;
    socket2::SockRef::from(&stream).set_send_buffer_size(ICE_TCP_SEND_BUFFER_BYTES)?;
    let local = stream.local_addr()?;
    Ok((stream, SocketAddr::new(local.ip().to_canonical(), local.port())))
}

/// Moves packets until either side closes. `Ok` means that the session did.
async fn carry(stream: TcpStream, server: SocketAddr, local: SocketAddr, link: &mut PathLink) -> io::Result<()> {
    let (mut read, mut write) = stream.into_split();
    let mut frames = Rfc4571Reader::default();
    let (mut waiting, mut framed) = (BytesMut::new(), Vec::new());
    loop {
        let too_long = |_| io::Error::other("the server speaks something else than ICE over TCP");
        while let Some(packet) = frames.next_packet().map_err(too_long)? {
            link.deliver(IceProtocol::Tcp, server, local, packet);
        }
        tokio::select! {
            read = read.read_buf(frames.buffer_mut()) => if read? == 0 {
                return Err(io::Error::other("the server closed the connection"));
            },
            packet = link.next() => match packet {
                Some(packet) if waiting.len() <= RELAY_STREAM_BYTES_MAX => {
                    framed.clear();
                    rfc4571::append_framed(&packet.contents, &mut framed);
                    waiting.extend_from_slice(&framed);
                }
                Some(_) => {}
                None => return Ok(()),
            },
            written = write.write_buf(&mut waiting), if !waiting.is_empty() => {
                written?;
            },
        }
    }
}

#[cfg(test)]
mod tests;
