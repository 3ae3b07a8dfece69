//! HTTP/3 frames (RFC 9114, section 7): a reader that takes bytes in any pieces, and a writer.

use bytes::{Buf, Bytes};
use quinn_proto::VarInt;
use quinn_proto::coding::Codec;

use super::qpack::FIELD_SECTION_MAX;

pub const DATA: u64 = 0x00;
pub const HEADERS: u64 = 0x01;
pub const SETTINGS: u64 = 0x04;
/// The first bytes of a bidirectional stream of WebTransport. Not a frame with a length.
pub const WEBTRANSPORT_STREAM: u64 = 0x41;

/// The longest SETTINGS frame. Browsers send about 60 bytes.
const SETTINGS_MAX: u64 = 4096;

/// A QUIC integer that arrives in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VarintReader {
    value: u64,
    /// Bytes that are still missing, after the first byte.
    missing: u8,
    has_begun: bool,
}

impl VarintReader {
    /// Takes the next byte. Returns the value after the last one, and is then ready for another.
    pub fn push(&mut self, byte: u8) -> Option<u64> {
        if self.has_begun {
            self.value = self.value << 8 | u64::from(byte);
            self.missing -= 1;
        } else {
            self.has_begun = true;
            self.value = u64::from(byte & 0x3f);
            self.missing = (1 << (byte >> 6)) - 1;
        }
        if self.missing > 0 {
            return None;
        }
        Some(std::mem::take(self).value)
    }
}

/// Appends a QUIC integer. `value` is below 2^62.
pub fn put_varint(value: u64, output: &mut Vec<u8>) {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX).encode(output);
}

/// Appends a frame.
pub fn put_frame(kind: u64, payload: &[u8], output: &mut Vec<u8>) {
    put_varint(kind, output);
    put_varint(payload.len() as u64, output);
    output.extend_from_slice(payload);
}

/// A frame of an HTTP/3 stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Http3Frame {
    /// The next bytes of a DATA frame; empty at its begin.
    Data(Bytes),
    /// A complete HEADERS frame.
    Headers(Vec<u8>),
    /// A complete SETTINGS frame.
    Settings(Vec<u8>),
    /// A HEADERS or SETTINGS frame beyond its limit; it is skipped.
    TooLong,
    /// The begin of another frame, with its type; it is skipped.
    Other(u64),
}

/// Reads the frames of one stream.
#[derive(Debug, Default)]
pub struct Http3FrameReader {
    state: FrameState,
    collected: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum FrameState {
    Type(VarintReader),
    Length { kind: u64, length: VarintReader },
    Payload { kind: u64, missing: u64 },
    Skipped { missing: u64 },
}

impl Default for FrameState {
    fn default() -> Self {
        Self::Type(VarintReader::default())
    }
}

impl Http3FrameReader {
    /// A reader for a stream whose first frame type was read already.
    pub fn after_type(kind: u64) -> Self {
        Self {
            state: FrameState::Length {
                kind,
                length: VarintReader::default(),
            },
            collected: Vec::new(),
        }
    }

    /// Takes bytes up to the next frame. Returns `None` when it took all without completing one.
    pub fn read(&mut self, bytes: &mut Bytes) -> Option<Http3Frame> {
        loop {
            match &mut self.state {
                FrameState::Type(reader) => {
                    let kind = take_varint(reader, bytes)?;
                    let length = VarintReader::default();
                    self.state = FrameState::Length { kind, length };
                }
                FrameState::Length { kind, length } => {
                    let (kind, missing) = (*kind, take_varint(length, bytes)?);
                    if let Some(frame) = self.begin(kind, missing) {
                        return Some(frame);
                    }
                }
                FrameState::Payload { kind, missing } => {
                    let (kind, part) = (*kind, take_up_to(bytes, *missing));
                    *missing -= part.len() as u64;
                    let is_complete = *missing == 0;
                    if is_complete {
                        self.state = FrameState::default();
                    }
                    if kind == DATA {
                        if part.is_empty() && !is_complete {
                            return None;
                        }
                        if !part.is_empty() {
                            return Some(Http3Frame::Data(part));
                        }
                        continue;
                    }
                    self.collected.extend_from_slice(&part);
                    if !is_complete {
                        return None;
                    }
                    let payload = std::mem::take(&mut self.collected);
                    return Some(match kind {
                        HEADERS => Http3Frame::Headers(payload),
                        _ => Http3Frame::Settings(payload),
                    });
                }
                FrameState::Skipped { missing } => {
                    *missing -= take_up_to(bytes, *missing).len() as u64;
                    if *missing > 0 {
                        return None;
                    }
                    self.state = FrameState::default();
                }
            }
        }
    }

    fn begin(&mut self, kind: u64, length: u64) -> Option<Http3Frame> {
        let limit = match kind {
            DATA => u64::MAX,
            HEADERS => FIELD_SECTION_MAX as u64,
            SETTINGS => SETTINGS_MAX,
            _ => {
                self.state = FrameState::Skipped { missing: length };
                return Some(Http3Frame::Other(kind));
            }
        };
        if length > limit {
            self.state = FrameState::Skipped { missing: length };
            return Some(Http3Frame::TooLong);
        }
        self.state = FrameState::Payload { kind, missing: length };
        (kind == DATA).then(|| Http3Frame::Data(Bytes::new()))
    }
}

fn take_varint(reader: &mut VarintReader, bytes: &mut Bytes) -> Option<u64> {
    while bytes.has_remaining() {
        if let Some(value) = reader.push(bytes.get_u8()) {
            return Some(value);
        }
    }
    None
}

fn take_up_to(bytes: &mut Bytes, limit: u64) -> Bytes {
    let length = usize::try_from(limit).map_or(bytes.len(), |limit| limit.min(bytes.len()));
    bytes.split_to(length)
}

/// Frame types of HTTP/2 that HTTP/3 forbids (RFC 9114, section 7.2.8).
pub fn is_reserved_frame(kind: u64) -> bool {
    matches!(kind, 0x02 | 0x06 | 0x08 | 0x09)
}
