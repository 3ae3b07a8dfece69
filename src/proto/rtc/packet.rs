//! What goes between a connection and the network: packets in, packets out, and what they claim to be by their first bytes.
//!
//! Sources: RFC 7983 (first bytes), RFC 8489 section 5 (STUN), RFC 3550 section 5.1 (RTP).

use std::net::SocketAddr;

use str0m::net::Protocol;
use str0m::rtp::Ssrc;

use super::checks::{Checks, Maker};
use super::consent::Way;
use crate::crypto;

/// What carries a packet between this machine, or a relay, and the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Over {
    Udp,
    /// Framed on a connection that the peer has opened, RFC 6544.
    Tcp,
}

impl From<Over> for Protocol {
    fn from(over: Over) -> Self {
        match over {
            Over::Udp => Protocol::Udp,
            Over::Tcp => Protocol::Tcp,
        }
    }
}

/// A packet that has come.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    pub over: Over,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub contents: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Makes one that came as a datagram.
    pub fn datagram(source: SocketAddr, destination: SocketAddr, contents: &'a [u8]) -> Self {
        Packet {
            over: Over::Udp,
            source,
            destination,
            contents,
        }
    }
}

/// A packet to send.
pub struct Transmit {
    pub over: Over,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    contents: Vec<u8>,
    bare: bool,
}

impl Transmit {
    /// Takes what str0m wants sent; `bare` says that RTP leaves without its empty header extension.
    pub fn new(transmit: str0m::net::Transmit, bare: bool) -> Self {
        let over = match transmit.proto {
            Protocol::Udp => Over::Udp,
            _ => Over::Tcp,
        };
        Transmit {
            over,
            source: transmit.source,
            destination: transmit.destination,
            contents: transmit.contents.into(),
            bare,
        }
    }

    /// Makes one whose bytes are as they go on the wire.
    pub fn ready(way: Way, contents: Vec<u8>) -> Self {
        Transmit {
            over: way.over,
            source: way.source,
            destination: way.peer,
            contents,
            bare: false,
        }
    }

    /// Returns the bytes as they go on the wire.
    pub fn contents(&mut self) -> &[u8] {
        if self.bare {
            crypto::strip_empty_extension(&mut self.contents)
        } else {
            &self.contents
        }
    }

    /// Puts bytes ahead of what leaves.
    pub fn put_ahead(&mut self, bytes: &[u8]) {
        self.contents.splice(..0, bytes.iter().copied());
    }

    /// Tells whether this answers a connectivity check. Who knows the password is sent one, from
    /// wherever it says to be: that proves no address.
    pub fn is_answer(&self) -> bool {
        is_answer(&self.contents)
    }

    /// Takes note of it if it is a check.
    pub fn note_check(&self, maker: Maker, checks: &mut Checks) {
        checks.handle_outgoing(maker, self.over, (self.source, self.destination), &self.contents);
    }

    /// Tells whether this is a DTLS record.
    pub fn is_record(&self) -> bool {
        is_record(&self.contents)
    }

    /// Tells whether this is a connectivity check, whose answer will come from the destination.
    pub fn is_check(&self) -> bool {
        is_check(&self.contents)
    }
}

/// What a packet has shown of who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// It had no effect.
    Stranger,
    /// It came from an address of the peer, as far as it says; what is in it may show more.
    Unproven,
    /// It is signed by the peer.
    Peer,
}

/// Returns the source that an RTP packet claims to have, RFC 3550 section 5.1; RTCP shares its port, RFC 5761 section 4.
pub fn rtp_source(contents: &[u8]) -> Option<Ssrc> {
    let &[first, second, _, _, _, _, _, _, a, b, c, d, ..] = contents else {
        return None;
    };
    let is_rtp = (128..192).contains(&first) && !(192..224).contains(&second);
    is_rtp.then(|| u32::from_be_bytes([a, b, c, d]).into())
}

/// Returns the payload type of an RTP packet.
pub fn rtp_payload_type(contents: &[u8]) -> Option<u8> {
    rtp_source(contents).map(|_| contents[1] & 0x7f)
}

/// Tells whether a datagram is STUN, by its first byte, RFC 7983.
pub fn is_stun(contents: &[u8]) -> bool {
    contents.first().is_some_and(|first| *first < 4)
}

/// Tells whether a datagram is a DTLS record, by its first byte, RFC 7983.
pub fn is_record(contents: &[u8]) -> bool {
    matches!(contents.first(), Some(20..=63))
}

/// Tells whether a datagram is a STUN binding request, RFC 8489 section 5.
pub fn is_check(contents: &[u8]) -> bool {
    contents.starts_with(&[0x00, 0x01])
}

/// Tells whether a datagram is a STUN binding success response, RFC 8489 section 5.
pub fn is_answer(contents: &[u8]) -> bool {
    contents.starts_with(&[0x01, 0x01])
}
