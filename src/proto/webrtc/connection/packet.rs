//! The packets between a connection and the network.
//!
//! Source: RFC 3550 section 5.1 (RTP).

use std::net::SocketAddr;

use str0m::net::Protocol;
use str0m::rtp::Ssrc;

use crate::webrtc::crypto;
use crate::webrtc::packet_kind::PacketKind;

/// The endpoints of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketPath {
    pub over: IceProtocol,
    pub source: SocketAddr,
    pub peer: SocketAddr,
}

/// The transport protocol between this machine, or a relay, and the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IceProtocol {
    Udp,
    /// A connection that the peer opened, with RFC 4571 framing (RFC 6544).
    Tcp,
}

impl From<IceProtocol> for Protocol {
    fn from(over: IceProtocol) -> Self {
        match over {
            IceProtocol::Udp => Protocol::Udp,
            IceProtocol::Tcp => Protocol::Tcp,
        }
    }
}

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPacket<'a> {
    pub over: IceProtocol,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub contents: &'a [u8],
}

impl<'a> ReceivedPacket<'a> {
    /// Creates a packet received as a datagram.
    #[cfg(any(test, feature = "testing"))]
    pub fn from_datagram(source: SocketAddr, destination: SocketAddr, contents: &'a [u8]) -> Self {
        ReceivedPacket {
            over: IceProtocol::Udp,
            source,
            destination,
            contents,
        }
    }
}

/// A packet to send.
pub struct Transmit {
    pub over: IceProtocol,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    kind: PacketKind,
    contents: Vec<u8>,
    strips_extension: bool,
}

impl Transmit {
    /// Wraps a packet of str0m. `bare` removes the empty header extension from RTP.
    pub fn new(transmit: str0m::net::Transmit, bare: bool) -> Self {
        let over = match transmit.proto {
            Protocol::Udp => IceProtocol::Udp,
            _ => IceProtocol::Tcp,
        };
        Transmit {
            over,
            source: transmit.source,
            destination: transmit.destination,
            kind: PacketKind::from_packet(&transmit.contents),
            contents: transmit.contents.into(),
            strips_extension: bare,
        }
    }

    /// Creates a packet that is sent unchanged.
    pub fn from_parts(path: PacketPath, contents: Vec<u8>) -> Self {
        Transmit {
            over: path.over,
            source: path.source,
            destination: path.peer,
            kind: PacketKind::from_packet(&contents),
            contents,
            strips_extension: false,
        }
    }

    /// Returns the bytes for the wire.
    pub fn contents(&mut self) -> &[u8] {
        if self.strips_extension {
            crypto::strip_empty_extension(&mut self.contents)
        } else {
            &self.contents
        }
    }

    /// Inserts bytes at the front.
    pub fn prepend(&mut self, bytes: &[u8]) {
        self.contents.splice(..0, bytes.iter().copied());
    }

    /// Returns the kind of packet.
    pub fn kind(&self) -> PacketKind {
        self.kind
    }

    /// Returns the path on which this is sent.
    pub fn path(&self) -> PacketPath {
        PacketPath {
            over: self.over,
            source: self.source,
            peer: self.destination,
        }
    }

    /// Sends this on another path.
    pub fn set_path(&mut self, path: PacketPath) {
        self.over = path.over;
        self.source = path.source;
        self.destination = path.peer;
    }

    /// Returns whether this answers a connectivity check. Such an answer goes to any claimed
    /// address, so it proves nothing about the peer.
    pub fn is_answer(&self) -> bool {
        self.kind == PacketKind::CheckAnswer
    }

    /// Returns whether this is a connectivity check.
    pub fn is_check(&self) -> bool {
        self.kind == PacketKind::Check
    }
}

/// How far a received packet identifies its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketTrust {
    /// The packet was ignored.
    Rejected,
    /// The packet claims to come from the peer's address; its content may prove more.
    Unauthenticated,
    /// The peer signed the packet.
    Authenticated,
}

/// Returns the SSRC and the payload type of an RTP packet, RFC 3550 section 5.1.
pub fn rtp_header(kind: PacketKind, contents: &[u8]) -> Option<(Ssrc, u8)> {
    let &[_, second, _, _, _, _, _, _, a, b, c, d, ..] = contents else {
        return None;
    };
    (kind == PacketKind::Rtp).then(|| (u32::from_be_bytes([a, b, c, d]).into(), second & 0x7f))
}
