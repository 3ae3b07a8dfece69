//! Packets on a byte stream, each after a two-byte length.
//!
//! In: the bytes of a connection. Out: whole STUN, DTLS and SRTP packets. A packet longer than
//! [`FRAMED_BYTES_MAX`] is an error, after which the connection is unusable. Sources: RFC 4571
//! section 2, RFC 6544 section 3.

use bytes::{Buf, Bytes, BytesMut};

use crate::limits::FRAMED_BYTES_MAX;

const LENGTH_BYTES: usize = 2;

/// Buffers bytes until a packet is complete.
#[derive(Debug, Default)]
pub struct Rfc4571Reader {
    buffer: BytesMut,
}

/// A packet exceeds the length that a session accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTooLong;

impl Rfc4571Reader {
    /// Returns the buffer for the next bytes, with room for a packet.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        self.buffer.reserve(LENGTH_BYTES + FRAMED_BYTES_MAX);
        &mut self.buffer
    }

    /// Returns the next packet, if it is complete.
    ///
    /// # Errors
    /// [`FrameTooLong`], again on every later call.
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

/// Appends a packet with its length. A packet too long for the length field is dropped.
pub fn append_framed(packet: &[u8], into: &mut Vec<u8>) {
    if let Ok(length) = u16::try_from(packet.len()) {
        into.extend_from_slice(&length.to_be_bytes());
        into.extend_from_slice(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets are complete however the network splits them.
    #[test]
    fn packets_survive_every_split() {
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
