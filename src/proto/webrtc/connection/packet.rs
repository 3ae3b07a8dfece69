//! What goes between a connection and the network: packets in and packets out.
//!
//! Source: RFC 3550 section 5.1 (RTP).

use std::net::SocketAddr;

use str0m::net::Protocol;
use str0m::rtp::Ssrc;

use crate::webrtc::crypto;
use crate::webrtc::packet_kind::PacketKind;

/// The way on which a peer is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketPath {
    pub over: IceProtocol,
    pub source: SocketAddr,
    pub peer: SocketAddr,
}

/// What carries a packet between this machine, or a relay, and the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IceProtocol {
    Udp,
    /// Framed on a connection that the peer has opened, RFC 6544.
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

/// A packet that has come.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPacket<'a> {
    pub over: IceProtocol,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub contents: &'a [u8],
}

impl<'a> ReceivedPacket<'a> {
    /// Makes one that came as a datagram.
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
    /// Takes what str0m wants sent; `bare` says that RTP leaves without its empty header extension.
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

    /// Makes one whose bytes are as they go on the wire.
    pub fn from_parts(way: PacketPath, contents: Vec<u8>) -> Self {
        Transmit {
            over: way.over,
            source: way.source,
            destination: way.peer,
            kind: PacketKind::from_packet(&contents),
            contents,
            strips_extension: false,
        }
    }

    /// Returns the bytes as they go on the wire.
    pub fn contents(&mut self) -> &[u8] {
        if self.strips_extension {
            crypto::strip_empty_extension(&mut self.contents)
        } else {
            &self.contents
        }
    }

    /// Puts bytes ahead of what leaves.
    pub fn prepend(&mut self, bytes: &[u8]) {
        self.contents.splice(..0, bytes.iter().copied());
    }

    /// Returns what this is.
    pub fn kind(&self) -> PacketKind {
        self.kind
    }

    /// Returns the addresses between which this goes.
    pub fn path(&self) -> PacketPath {
        PacketPath {
            over: self.over,
            source: self.source,
            peer: self.destination,
        }
    }

    /// Tells whether this answers a connectivity check. Who knows the password is sent one, from
    /// wherever it says to be: that proves no address.
    pub fn is_answer(&self) -> bool {
        self.kind == PacketKind::CheckAnswer
    }

    /// Tells whether this is a connectivity check, whose answer will come from the destination.
    pub fn is_check(&self) -> bool {
        self.kind == PacketKind::Check
    }
}

/// What a packet has shown of who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketTrust {
    /// It had no effect.
    Rejected,
    /// It came from an address of the peer, as far as it says; what is in it may show more.
    Unauthenticated,
    /// It is signed by the peer.
    Authenticated,
}

/// Returns the source and the payload type that an RTP packet claims to have, RFC 3550 section 5.1.
pub fn rtp_header(kind: PacketKind, contents: &[u8]) -> Option<(Ssrc, u8)> {
    let &[_, second, _, _, _, _, _, _, a, b, c, d, ..] = contents else {
        return None;
    };
    (kind == PacketKind::Rtp).then(|| (u32::from_be_bytes([a, b, c, d]).into(), second & 0x7f))
}
