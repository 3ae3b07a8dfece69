//! Reassembles fragmented ClientHellos before dimpl sees them.
//!
//! In: datagrams. Out: the same, with the fragments replaced by one whole hello after the last
//! arrived. Fragments may be reordered, duplicated and overlapping, as after a client reduced its
//! MTU. dimpl mistakes such a flight for a retransmission and does not answer, and many small
//! fragments overflow its queue. Everything else passes unchanged, malformed records included.
//! Hellos longer than one record are rejected. Source: RFC 6347 section 4.2.3.

use std::borrow::Cow;

use super::records::{
    HandshakeMessage, MESSAGE_HEADER_BYTES, RECORD_HEADER_BYTES, is_handshake_in_clear, message_header, split_record,
    write_record,
};

/// The longest hello: the capacity of one record, several times the size of browsers' hellos.
const HELLO_BYTES_MAX: usize = (1 << 14) - MESSAGE_HEADER_BYTES;

const CLIENT_HELLO: u8 = 1;

/// A partially received hello.
#[derive(Default)]
pub(super) struct ClientHelloAssembler {
    number: [u8; 2],
    body: Vec<u8>,
    arrived: Vec<bool>,
    missing: usize,
}

impl ClientHelloAssembler {
    /// Returns what the handshake needs of a datagram; empty while fragments are missing.
    pub fn handle_datagram<'a>(&mut self, datagram: &'a [u8]) -> Cow<'a, [u8]> {
        if !is_handshake_in_clear(datagram) {
            return Cow::Borrowed(datagram);
        }
        let mut left = Vec::new();
        let mut found = false;
        let mut rest = datagram;
        while let Some((record, behind)) = split_record(rest) {
            rest = behind;
            let Some(piece) = hello_fragment(record) else {
                left.extend_from_slice(record);
                continue;
            };
            found = true;
            if self.add(&piece) {
                self.write(&record[..RECORD_HEADER_BYTES], &mut left);
            }
        }
        if !found {
            return Cow::Borrowed(datagram);
        }
        left.extend_from_slice(rest);
        Cow::Owned(left)
    }

    /// Adds a fragment. Returns whether the hello is complete. A fragment of another hello, or of
    /// another length, starts over.
    fn add(&mut self, piece: &HandshakeMessage<'_>) -> bool {
        if piece.length > HELLO_BYTES_MAX {
            log::debug!("a ClientHello of {} bytes is not read", piece.length);
            return false;
        }
        if (piece.number, piece.length) != (self.number, self.body.len()) {
            *self = ClientHelloAssembler {
                number: piece.number,
                body: vec![0; piece.length],
                arrived: vec![false; piece.length],
                missing: piece.length,
            };
        }
        for (at, byte) in (piece.offset..).zip(piece.body) {
            if !std::mem::replace(&mut self.arrived[at], true) {
                self.body[at] = *byte;
                self.missing -= 1;
            }
        }
        self.missing == 0
    }

    /// Appends the hello as one record with the header of the last fragment's record.
    fn write(&mut self, header: &[u8], into: &mut Vec<u8>) {
        let ClientHelloAssembler { number, body, .. } = std::mem::take(self);
        write_record(
            header,
            &[&message_header(CLIENT_HELLO, number, body.len()), &body],
            into,
        );
    }
}

/// Parses a record that consists of exactly one fragment of a hello.
fn hello_fragment(record: &[u8]) -> Option<HandshakeMessage<'_>> {
    if !is_handshake_in_clear(record) {
        return None;
    }
    let (message, rest) = HandshakeMessage::split(&record[RECORD_HEADER_BYTES..])?;
    let size = message.body.len();
    let is_piece = message.kind == CLIENT_HELLO && rest.is_empty() && size > 0 && size < message.length;
    // dimpl rejects fragments that exceed the message.
    (is_piece && message.offset + size <= message.length).then_some(message)
}
