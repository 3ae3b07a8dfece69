//! Unencrypted handshake records and their messages.
//!
//! In: datagrams. Out: slices of them, without copies. Truncated records and messages are not
//! returned. Source: RFC 6347 sections 4.1, 4.2.2.

/// Type, version, epoch, sequence number, length.
pub const RECORD_HEADER_BYTES: usize = 13;
/// Type, length, message number, fragment offset and fragment length.
pub const MESSAGE_HEADER_BYTES: usize = 12;

const HANDSHAKE: u8 = 22;

/// A handshake message or one fragment of it.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeMessage<'a> {
    pub kind: u8,
    /// The length of the whole message, without its header.
    pub length: usize,
    pub number: [u8; 2],
    pub offset: usize,
    /// The bytes of this fragment.
    pub body: &'a [u8],
}

impl<'a> HandshakeMessage<'a> {
    /// Splits off the first message.
    pub fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = bytes.split_first_chunk::<MESSAGE_HEADER_BYTES>()?;
        let u24 =
            |at: usize| usize::from(header[at]) << 16 | usize::from(header[at + 1]) << 8 | usize::from(header[at + 2]);
        let (body, rest) = rest.split_at_checked(u24(9))?;
        let message = HandshakeMessage {
            kind: header[0],
            length: u24(1),
            number: [header[4], header[5]],
            offset: u24(6),
            body,
        };
        Some((message, rest))
    }

    pub fn is_whole(&self) -> bool {
        self.offset == 0 && self.body.len() == self.length
    }
}

/// Iterates over messages, up to the first truncated one.
pub fn messages(bytes: &[u8]) -> impl Iterator<Item = HandshakeMessage<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (message, behind) = HandshakeMessage::split(rest)?;
        rest = behind;
        Some(message)
    })
}

/// Iterates over the records of a datagram, up to the first truncated one.
pub fn records(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let (record, behind) = split_record(rest)?;
        rest = behind;
        Some(record)
    })
}

/// Splits off the first record; `None` if it is truncated.
pub fn split_record(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let header = datagram.first_chunk::<RECORD_HEADER_BYTES>()?;
    let length = usize::from(u16::from_be_bytes([header[11], header[12]]));
    datagram.split_at_checked(RECORD_HEADER_BYTES + length)
}

/// Appends a record with the header of another and these contents.
pub fn write_record(header: &[u8], contents: &[&[u8]], into: &mut Vec<u8>) {
    let length: usize = contents.iter().map(|part| part.len()).sum();
    into.extend_from_slice(&header[..RECORD_HEADER_BYTES - 2]);
    into.extend_from_slice(&(length as u16).to_be_bytes());
    contents.iter().for_each(|part| into.extend_from_slice(part));
}

/// Returns the header of an unfragmented message.
pub fn message_header(kind: u8, number: [u8; 2], length: usize) -> [u8; MESSAGE_HEADER_BYTES] {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    [kind, a, b, c, number[0], number[1], 0, 0, 0, a, b, c]
}

/// Returns whether the first record is an unencrypted handshake record.
pub fn is_handshake_in_clear(datagram: &[u8]) -> bool {
    matches!(datagram, [HANDSHAKE, _, _, 0, 0, ..])
}
