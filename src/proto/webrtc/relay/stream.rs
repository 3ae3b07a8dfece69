//! Splits a TURN server's byte stream into messages.
//!
//! In: bytes of a TCP connection. Out: whole STUN and ChannelData messages, the latter without
//! their padding. A first byte that starts neither is an error, after which the connection is
//! unusable. The 16-bit length field bounds the length of messages. The client library ignores the
//! padding, so it is removed here. Source: RFC 8656 sections 3.5 and 12.5.

use bytes::{Bytes, BytesMut};

const STUN_HEADER_BYTES: usize = 20;
const CHANNEL_HEADER_BYTES: usize = 4;

/// Buffers bytes until a message is complete.
#[derive(Debug, Default)]
pub struct TurnStreamReader {
    buffer: BytesMut,
}

/// The stream does not contain TURN messages.
#[derive(Debug, PartialEq, Eq)]
pub struct TurnFramingError;

impl TurnStreamReader {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next message, if it is complete.
    ///
    /// # Errors
    /// [`TurnFramingError`], again on every later call.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, TurnFramingError> {
        let [first, _, high, low, ..] = self.buffer[..] else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        // RFC 7983: STUN starts with the bits 00; channel numbers are 0x4000 to 0x4FFF.
        let (whole, padded) = match first {
            0..=3 => (STUN_HEADER_BYTES + length, STUN_HEADER_BYTES + length),
            0x40..=0x4f => {
                let whole = CHANNEL_HEADER_BYTES + length;
                (whole, whole.next_multiple_of(4))
            }
            _ => return Err(TurnFramingError),
        };
        if self.buffer.len() < padded {
            return Ok(None);
        }
        let mut message = self.buffer.split_to(padded);
        message.truncate(whole);
        Ok(Some(message.freeze()))
    }
}

/// Pads a ChannelData message for a stream; STUN messages need no padding.
pub fn pad(message: &mut Vec<u8>) {
    message.resize(message.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stun(length: usize) -> Vec<u8> {
        let mut message = vec![0x01, 0x13];
        message.extend((length as u16).to_be_bytes());
        message.resize(STUN_HEADER_BYTES + length, 7);
        message
    }

    fn channel(length: usize) -> Vec<u8> {
        let mut message = vec![0x40, 0x01];
        message.extend((length as u16).to_be_bytes());
        message.resize(CHANNEL_HEADER_BYTES + length, 9);
        message
    }

    /// The stream yields the same messages for every split, without padding.
    #[test]
    fn messages_survive_every_split() {
        let sent = [stun(8), channel(5), channel(0), channel(4), stun(0), channel(65_535)];
        let mut stream = Vec::new();
        for message in &sent {
            let mut padded = message.clone();
            pad(&mut padded);
            stream.extend(padded);
        }
        for piece in [1, 3, 7, 1_460, stream.len()] {
            let mut messages = TurnStreamReader::default();
            let mut read = Vec::new();
            for bytes in stream.chunks(piece) {
                messages.push(bytes);
                while let Some(message) = messages.next_message().expect("a good stream") {
                    read.push(message.to_vec());
                }
            }
            assert!(read == sent, "in pieces of {piece}");
        }
    }

    /// A server with another protocol, such as SSH, is detected at once.
    #[test]
    fn other_protocols_are_rejected() {
        let mut messages = TurnStreamReader::default();
        messages.push(b"SSH-2.0-x");
        assert_eq!(messages.next_message(), Err(TurnFramingError));
        assert_eq!(messages.next_message(), Err(TurnFramingError));
        for first in 0..=255u8 {
            let mut messages = TurnStreamReader::default();
            messages.push(&[first, 0, 0, 0]);
            assert_eq!(
                messages.next_message().is_err(),
                !matches!(first, 0..=3 | 0x40..=0x4f),
                "{first}"
            );
        }
    }
}
