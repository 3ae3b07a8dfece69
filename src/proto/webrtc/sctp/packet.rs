//! Parses and writes the SCTP packets of an association's setup, with one chunk each.
//!
//! In and out: SCTP packets without DTLS. str0m verifies the checksums of received packets. Source:
//! RFC 9260 sections 3 and 6.8.

use crc::{CRC_32_ISCSI, Crc};

pub const DATA: u8 = 0;
pub const INIT: u8 = 1;
pub const INIT_ACK: u8 = 2;
pub const SACK: u8 = 3;
pub const COOKIE_ECHO: u8 = 10;
pub const COOKIE_ACK: u8 = 11;

/// The port of both ends, as in str0m.
const PORT: [u8; 2] = 5000_u16.to_be_bytes();
const HEADER_BYTES: usize = 12;
const CHUNK_HEADER_BYTES: usize = 4;
const COOKIE_PARAMETER: [u8; 2] = 7_u16.to_be_bytes();
/// The cookie of the INIT ACK. It needs no secret, because DTLS has authenticated the peer.
const COOKIE: [u8; 8] = *b"edge-run";

/// CRC32c.
static CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// The first chunk of a packet.
pub struct SctpChunk<'a> {
    pub kind: u8,
    pub flags: u8,
    pub value: &'a [u8],
}

/// Returns the type of the first chunk, even if it is truncated.
pub fn first_chunk_type(packet: &[u8]) -> Option<u8> {
    packet.get(HEADER_BYTES).copied()
}

/// Parses the first chunk; `None` if it is truncated.
pub fn first_chunk(packet: &[u8]) -> Option<SctpChunk<'_>> {
    let chunk = packet.get(HEADER_BYTES..)?;
    let &[kind, flags, high, low] = chunk.first_chunk()?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let value = chunk.get(CHUNK_HEADER_BYTES..length)?;
    Some(SctpChunk { kind, flags, value })
}

/// Encodes a packet with one chunk.
pub fn encode_packet(tag: u32, kind: u8, flags: u8, value: &[u8]) -> Vec<u8> {
    // The value comes from a packet that fitted into a datagram.
    let length = (CHUNK_HEADER_BYTES + value.len()) as u16;
    let mut bytes = [
        &PORT[..],
        &PORT,
        &tag.to_be_bytes(),
        &[0; 4],
        &[kind, flags],
        &length.to_be_bytes(),
        value,
    ]
    .concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    write_checksum(bytes)
}

/// Writes the checksum, the only little-endian number of SCTP.
fn write_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    packet[8..HEADER_BYTES].fill(0);
    let sum = CHECKSUM.checksum(&packet);
    packet[8..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    packet
}

/// The value of an INIT or INIT ACK.
pub struct InitChunk {
    pub tag: u32,
    /// The receive window in bytes.
    pub window: u32,
    pub tsn: u32,
    /// Tag, window, stream counts and initial TSN, as received.
    fixed: [u8; 16],
    /// The parameters, without a cookie.
    parameters: Vec<u8>,
}

impl InitChunk {
    /// Parses the value of either chunk.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (fixed, parameters) = value.split_first_chunk::<16>()?;
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        Some(InitChunk {
            tag: word(0),
            window: word(4),
            tsn: word(12),
            fixed: *fixed,
            parameters: parameters.to_vec(),
        })
    }

    /// Encodes the value of an INIT.
    pub fn encode_init(&self) -> Vec<u8> {
        [&self.fixed[..], &self.parameters].concat()
    }

    /// Encodes the value of an INIT ACK of the same sender.
    ///
    /// The cookie comes first, because small stacks search for its type byte by byte.
    pub fn encode_init_ack(&self) -> Vec<u8> {
        let length = (CHUNK_HEADER_BYTES + COOKIE.len()) as u16;
        [
            &self.fixed[..],
            &COOKIE_PARAMETER,
            &length.to_be_bytes(),
            &COOKIE,
            &self.parameters,
        ]
        .concat()
    }
}

/// A DATA chunk.
pub struct DataChunk<'a> {
    pub flags: u8,
    pub tsn: u32,
    pub ppid: u32,
    pub content: &'a [u8],
    /// Stream id, stream sequence number, protocol id and content.
    after_tsn: &'a [u8],
}

impl<'a> DataChunk<'a> {
    /// Parses the first chunk of a packet.
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        let chunk = first_chunk(packet).filter(|chunk| chunk.kind == DATA)?;
        let (tsn, rest) = chunk.value.split_first_chunk()?;
        let (fixed, content) = rest.split_first_chunk::<8>()?;
        Some(DataChunk {
            flags: chunk.flags,
            tsn: u32::from_be_bytes(*tsn),
            ppid: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            content,
            after_tsn: rest,
        })
    }

    /// Encodes the chunk with another TSN.
    pub fn encode_with_tsn(&self, tag: u32, tsn: u32) -> Vec<u8> {
        encode_packet(
            tag,
            DATA,
            self.flags,
            &[&tsn.to_be_bytes()[..], self.after_tsn].concat(),
        )
    }
}

/// Encodes an unordered, unfragmented message on stream 0.
pub fn encode_message(tag: u32, tsn: u32, ppid: u32, content: &[u8]) -> Vec<u8> {
    let value = [&tsn.to_be_bytes()[..], &[0; 4], &ppid.to_be_bytes(), content].concat();
    encode_packet(tag, DATA, UNORDERED | WHOLE, &value)
}

/// Encodes an acknowledgement of everything up to `tsn`.
pub fn encode_sack(tag: u32, tsn: u32, window: u32) -> Vec<u8> {
    let value = [tsn.to_be_bytes(), window.to_be_bytes(), [0; 4]].concat();
    encode_packet(tag, SACK, 0, &value)
}

/// The flag of a first fragment.
pub const BEGIN: u8 = 0x02;
const WHOLE: u8 = 0x03;
const UNORDERED: u8 = 0x04;
