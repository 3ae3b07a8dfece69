//! Packets on a byte stream: each has its length before it, in two bytes.
//!
//! In: bytes of a connection as they come. Out: whole packets, STUN, DTLS and SRTP as they would be datagrams. Refused: a
//! packet longer than [`FRAMED_BYTES_MAX`], after which the connection is of no more use.
//! Source: RFC 4571 section 2, RFC 6544 section 3.

use bytes::{Buf, Bytes, BytesMut};

use crate::limits::FRAMED_BYTES_MAX;

const LENGTH_BYTES: usize = 2;

/// What came before the next whole packet.
#[derive(Debug, Default)]
pub struct Rfc4571Reader {
    buffer: BytesMut,
}

/// A packet is longer than any that a session takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTooLong;

impl Rfc4571Reader {
    /// Returns where to append the next bytes, with room for a packet.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        self.buffer.reserve(LENGTH_BYTES + FRAMED_BYTES_MAX);
        &mut self.buffer
    }

    /// Takes the next whole packet, if it is there.
    ///
    /// # Errors
    /// [`FrameTooLong`]; every later call says so again.
    pub fn next_packet(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        let [high, low, ..] = self.buffer[..] else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > FRAMED_BYTES_MAX {
            return Err(FrameTooLong);
        }
        if self.buffer.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

/// Appends a packet with its length before it; one that is too long for that is left out.
pub fn append_framed(packet: &[u8], into: &mut Vec<u8>) {
    if let Ok(length) = u16::try_from(packet.len()) {
        into.extend_from_slice(&length.to_be_bytes());
        into.extend_from_slice(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets come out whole, however the network cuts them.
    #[test]
    fn packets_survive_every_cut() {
        let packets = [&b"first"[..], b"", &[7; FRAMED_BYTES_MAX], b"last"];
        let mut stream = Vec::new();
        packets.iter().for_each(|packet| append_framed(packet, &mut stream));
        for size in [1, 2, 3, 1000, stream.len()] {
            let mut framed = Rfc4571Reader::default();
            let mut taken = Vec::new();
            for piece in stream.chunks(size) {
                framed.buffer_mut().extend_from_slice(piece);
                while let Some(packet) = framed.next_packet().expect("short enough") {
                    taken.push(packet);
                }
            }
            assert_eq!(taken, packets, "{size}");
        }
    }

    #[test]
    fn a_packet_past_the_cap_ends_the_stream() {
        let mut framed = Rfc4571Reader::default();
        framed
            .buffer_mut()
            .extend_from_slice(&(FRAMED_BYTES_MAX as u16 + 1).to_be_bytes());
        assert_eq!(framed.next_packet(), Err(FrameTooLong));
        framed.buffer_mut().extend_from_slice(&[0; 64]);
        assert_eq!(framed.next_packet(), Err(FrameTooLong));
        let mut stream = Vec::new();
        append_framed(&vec![0; 65_536], &mut stream);
        assert!(stream.is_empty());
    }
}
