//! What a new connection speaks, told by its first byte, so that one port serves all of it.
//!
//! In: the byte. Out: an [`Opening`]. A TLS record that opens a connection is a handshake, 0x16; a request of HTTP/1.1 begins
//! with a letter; WebRTC packets over TCP begin with their length, of which no session takes more than [`FRAMED_BYTES_MAX`].
//! Whatever is none of it is left to the HTTP parser, which refuses it in words. Source: RFC 8446 section 5.1, RFC 9112
//! sections 2.2 and 3, RFC 6544 section 3.

use crate::limits::FRAMED_BYTES_MAX;

/// The largest high byte of a packet's length.
const LENGTH_HIGH_MAX: u8 = (FRAMED_BYTES_MAX >> 8) as u8;

/// What a connection opens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Http,
    Tls,
    /// WebRTC packets, each behind its length.
    Framed,
}

impl Opening {
    /// Judges a connection by its first byte.
    pub fn of(first: u8) -> Opening {
        match first {
            0x16 => Opening::Tls,
            // An empty line, which a server ignores before a request. The first packet is a check,
            // which is never so long.
            b'\r' | b'\n' => Opening::Http,
            0..=LENGTH_HIGH_MAX => Opening::Framed,
            _ => Opening::Http,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte of 256 is a handshake; every letter that a method may begin with is a request; a check has 256 bytes at most.
    #[test]
    fn one_byte_tells() {
        let tls: Vec<u8> = (0..=255).filter(|byte| Opening::of(*byte) == Opening::Tls).collect();
        assert_eq!(tls, [0x16]);
        assert!([b'\r', b'\n'].map(Opening::of) == [Opening::Http; 2]);
        assert!((b'A'..=b'Z').all(|byte| Opening::of(byte) == Opening::Http));
        assert!([0, 1, LENGTH_HIGH_MAX].map(Opening::of) == [Opening::Framed; 3]);
        assert_eq!(Opening::of(LENGTH_HIGH_MAX + 1), Opening::Http);
    }
}
