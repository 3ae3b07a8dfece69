//! What a new connection speaks, told by its first byte, so that one port serves all of it.
//!
//! In: the byte. Out: an [`Opening`]. A TLS record that opens a connection is a handshake, 0x16; a request of HTTP/1.1 begins
//! with a letter. Whatever is neither is left to the HTTP parser, which refuses it in words. Source: RFC 8446 section 5.1,
//! RFC 9112 section 3.

/// What a connection opens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Http,
    Tls,
}

impl Opening {
    /// Judges a connection by its first byte.
    pub fn of(first: u8) -> Opening {
        match first {
            0x16 => Opening::Tls,
            _ => Opening::Http,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte of 256 is a handshake; every letter that a method may begin with is a request.
    #[test]
    fn one_byte_is_tls() {
        let tls: Vec<u8> = (0..=255).filter(|byte| Opening::of(*byte) == Opening::Tls).collect();
        assert_eq!(tls, [0x16]);
        assert!((b'A'..=b'Z').all(|byte| Opening::of(byte) == Opening::Http));
    }
}
