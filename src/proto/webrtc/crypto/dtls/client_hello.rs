//! ClientHellos that come in pieces, put together before dimpl sees them.
//!
//! In: datagrams. Out: the same, with the pieces of a hello taken out and the whole hello put in
//! once its last piece is there. Pieces may come in any order, twice, and overlap, as they do when
//! a client cuts its hello anew for a smaller MTU: dimpl takes such a flight for a copy of the
//! first and never answers, and of many small ones its queue overflows. Everything else passes as
//! it came, broken records included. Refused: longer hellos than a record holds. Source: RFC 6347
//! section 4.2.3.

use std::borrow::Cow;

use super::records::{
    HandshakeMessage, MESSAGE_HEADER_BYTES, RECORD_HEADER_BYTES, is_handshake_in_clear, message_header, split_record,
    write_record,
};

/// Longest hello that is put together: what one record may hold, and several times what key shares
/// of browsers take.
const HELLO_BYTES_MAX: usize = (1 << 14) - MESSAGE_HEADER_BYTES;

const CLIENT_HELLO: u8 = 1;

/// One hello while its pieces come.
#[derive(Default)]
pub(super) struct ClientHelloAssembler {
    number: [u8; 2],
    body: Vec<u8>,
    arrived: Vec<bool>,
    missing: usize,
}

impl ClientHelloAssembler {
    /// Returns what of a datagram is for the handshake now; nothing while pieces are missing.
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

    /// Takes a piece, and tells whether it was the last one. A piece of another hello, or of one
    /// that has another length, begins anew.
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

    /// Appends the hello as one record, under the header of the record that completed it.
    fn write(&mut self, header: &[u8], into: &mut Vec<u8>) {
        let ClientHelloAssembler { number, body, .. } = std::mem::take(self);
        write_record(
            header,
            &[&message_header(CLIENT_HELLO, number, body.len()), &body],
            into,
        );
    }
}

/// Reads a record that holds one piece of a hello and nothing else, and not all of it.
fn hello_fragment(record: &[u8]) -> Option<HandshakeMessage<'_>> {
    if !is_handshake_in_clear(record) {
        return None;
    }
    let (message, rest) = HandshakeMessage::split(&record[RECORD_HEADER_BYTES..])?;
    let size = message.body.len();
    let is_piece = message.kind == CLIENT_HELLO && rest.is_empty() && size > 0 && size < message.length;
    // What reaches beyond the end is left to dimpl, which refuses it.
    (is_piece && message.offset + size <= message.length).then_some(message)
}
