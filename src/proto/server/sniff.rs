//! The protocol of a new connection, from its first byte, so that one port serves all of them.
//!
//! In: the byte. Out: a [`SniffedProtocol`]. A TLS connection begins with a handshake record, 0x16;
//! a request of HTTP/1.1 begins with a letter; WebRTC packets over TCP begin with their length,
//! which is at most [`FRAMED_BYTES_MAX`]. Anything else goes to the HTTP parser, which rejects it
//! with a message. Source: RFC 8446 section 5.1, RFC 9112 sections 2.2 and 3, RFC 6544 section 3.

use crate::limits::FRAMED_BYTES_MAX;

/// The largest high byte of the length of a packet.
const LENGTH_HIGH_MAX: u8 = (FRAMED_BYTES_MAX >> 8) as u8;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SniffedProtocol {
    Http,
    Tls,
    /// WebRTC packets, each after its length.
    Framed,
}

impl SniffedProtocol {
    /// Returns the protocol of a connection with this first byte.
    pub fn from_first_byte(first: u8) -> SniffedProtocol {
        match first {
            0x16 => SniffedProtocol::Tls,
            // An empty line, which a server ignores before a request. The first packet of a framed
            // connection is a check, which is shorter.
            b'\r' | b'\n' => SniffedProtocol::Http,
            0..=LENGTH_HIGH_MAX => SniffedProtocol::Framed,
            _ => SniffedProtocol::Http,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0x16 is a TLS handshake; letters start HTTP methods; checks have at most 256 bytes.
    #[test]
    fn detects_the_protocol_by_one_byte() {
        let tls: Vec<u8> = (0..=255)
            .filter(|byte| SniffedProtocol::from_first_byte(*byte) == SniffedProtocol::Tls)
            .collect();
        assert_eq!(tls, [0x16]);
        assert!([b'\r', b'\n'].map(SniffedProtocol::from_first_byte) == [SniffedProtocol::Http; 2]);
        assert!((b'A'..=b'Z').all(|byte| SniffedProtocol::from_first_byte(byte) == SniffedProtocol::Http));
        assert!([0, 1, LENGTH_HIGH_MAX].map(SniffedProtocol::from_first_byte) == [SniffedProtocol::Framed; 3]);
        assert_eq!(
            SniffedProtocol::from_first_byte(LENGTH_HIGH_MAX + 1),
            SniffedProtocol::Http
        );
    }
}
