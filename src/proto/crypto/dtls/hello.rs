//! ClientHellos that come in pieces, put together before dimpl sees them.
//!
//! In: datagrams. Out: the same, with the pieces of a hello taken out and the whole hello put in
//! once its last piece is there. Pieces may come in any order, twice, and overlap, as they do when
//! a client cuts its hello anew for a smaller MTU: dimpl takes such a flight for a copy of the
//! first and never answers, and of many small ones its queue overflows. Everything else passes as
//! it came, broken records included. Refused: longer hellos than a record holds. Source: RFC 6347
//! section 4.2.3.

use std::borrow::Cow;

/// Longest hello that is put together: what one record may hold, and several times what key shares
/// of browsers take.
const HELLO_BYTES_MAX: usize = (1 << 14) - MESSAGE_HEADER_BYTES;
/// Type, version, epoch, sequence number, length.
const RECORD_HEADER_BYTES: usize = 13;
/// Type, length, number of the message, offset and length of the piece.
const MESSAGE_HEADER_BYTES: usize = 12;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// One hello while its pieces come.
#[derive(Default)]
pub(super) struct Hello {
    message: [u8; 2],
    body: Vec<u8>,
    arrived: Vec<bool>,
    missing: usize,
}

/// Part of a hello.
struct Piece<'a> {
    message: [u8; 2],
    length: usize,
    offset: usize,
    bytes: &'a [u8],
}

impl Hello {
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
            let Some(piece) = Piece::read(record) else {
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
    fn add(&mut self, piece: &Piece<'_>) -> bool {
        if piece.length > HELLO_BYTES_MAX {
            log::debug!("a ClientHello of {} bytes is not read", piece.length);
            return false;
        }
        if (piece.message, piece.length) != (self.message, self.body.len()) {
            *self = Hello {
                message: piece.message,
                body: vec![0; piece.length],
                arrived: vec![false; piece.length],
                missing: piece.length,
            };
        }
        for (at, byte) in (piece.offset..).zip(piece.bytes) {
            if !std::mem::replace(&mut self.arrived[at], true) {
                self.body[at] = *byte;
                self.missing -= 1;
            }
        }
        self.missing == 0
    }

    /// Appends the hello as one record, under the header of the record that completed it.
    fn write(&mut self, header: &[u8], into: &mut Vec<u8>) {
        let Hello { message, body, .. } = std::mem::take(self);
        let [_, a, b, c] = (body.len() as u32).to_be_bytes();
        let length = ((body.len() + MESSAGE_HEADER_BYTES) as u16).to_be_bytes();
        into.extend_from_slice(&header[..RECORD_HEADER_BYTES - length.len()]);
        into.extend_from_slice(&length);
        into.extend_from_slice(&[CLIENT_HELLO, a, b, c, message[0], message[1], 0, 0, 0, a, b, c]);
        into.extend_from_slice(&body);
    }
}

impl<'a> Piece<'a> {
    /// Reads a record that holds one piece of a hello and nothing else, and not all of it.
    fn read(record: &'a [u8]) -> Option<Self> {
        if !is_handshake_in_clear(record) {
            return None;
        }
        let (header, bytes) = record[RECORD_HEADER_BYTES..].split_first_chunk::<MESSAGE_HEADER_BYTES>()?;
        let u24 =
            |at: usize| usize::from(header[at]) << 16 | usize::from(header[at + 1]) << 8 | usize::from(header[at + 2]);
        let (length, offset, size) = (u24(1), u24(6), u24(9));
        let is_piece = header[0] == CLIENT_HELLO && size == bytes.len() && size > 0 && size < length;
        // What reaches beyond the end is left to dimpl, which refuses it.
        (is_piece && offset + size <= length).then_some(Piece {
            message: [header[4], header[5]],
            length,
            offset,
            bytes,
        })
    }
}

/// Cuts the first record off; `None` for what is none, or not all of one.
fn split_record(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let header = datagram.first_chunk::<RECORD_HEADER_BYTES>()?;
    let length = usize::from(u16::from_be_bytes([header[11], header[12]]));
    datagram.split_at_checked(RECORD_HEADER_BYTES + length)
}

/// Tells whether the first record is of a handshake, and not encrypted.
fn is_handshake_in_clear(datagram: &[u8]) -> bool {
    matches!(datagram, [HANDSHAKE, _, _, 0, 0, ..])
}
