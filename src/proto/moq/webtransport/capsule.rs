//! Capsules on the stream of CONNECT (RFC 9297, section 3): the one that closes a session
//! (draft-ietf-webtrans-http3, section 6). All others are skipped.

use super::frame::{VarintReader, put_varint};

const CLOSE_WEBTRANSPORT_SESSION: u64 = 0x2843;
/// The longest reason of a close, in bytes; set by the draft.
const REASON_MAX: usize = 1024;
/// The code before the reason, in bytes.
const CODE_SIZE: usize = 4;

/// A close of the session by the remote end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionClose {
    pub code: u32,
    pub reason: String,
}

/// A close capsule that is too short or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCapsule;

/// Reads capsules from the payload of DATA frames.
#[derive(Debug, Default)]
pub struct CapsuleReader {
    state: CapsuleState,
    collected: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum CapsuleState {
    Type(VarintReader),
    Length { kind: u64, length: VarintReader },
    Close { missing: usize },
    Skipped { missing: u64 },
}

impl Default for CapsuleState {
    fn default() -> Self {
        Self::Type(VarintReader::default())
    }
}

impl CapsuleReader {
    /// Takes bytes. Returns the close when it is complete; what follows it has no meaning.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<Option<SessionClose>, InvalidCapsule> {
        while !bytes.is_empty() {
            match &mut self.state {
                CapsuleState::Type(reader) => {
                    if let Some(kind) = take_varint(reader, &mut bytes) {
                        let length = VarintReader::default();
                        self.state = CapsuleState::Length { kind, length };
                    }
                }
                CapsuleState::Length { kind, length } => {
                    let kind = *kind;
                    if let Some(length) = take_varint(length, &mut bytes) {
                        self.state = begin(kind, length)?;
                    }
                }
                CapsuleState::Close { missing } => {
                    let (part, rest) = bytes.split_at(bytes.len().min(*missing));
                    (bytes, *missing) = (rest, *missing - part.len());
                    self.collected.extend_from_slice(part);
                    if *missing == 0 {
                        return close_of(&self.collected).map(Some);
                    }
                }
                CapsuleState::Skipped { missing } => {
                    let length = usize::try_from(*missing).unwrap_or(usize::MAX);
                    let length = length.min(bytes.len());
                    (bytes, *missing) = (&bytes[length..], *missing - length as u64);
                    if *missing == 0 {
                        self.state = CapsuleState::default();
                    }
                }
            }
        }
        Ok(None)
    }
}

fn begin(kind: u64, length: u64) -> Result<CapsuleState, InvalidCapsule> {
    if kind == CLOSE_WEBTRANSPORT_SESSION {
        return match usize::try_from(length) {
            Ok(missing) if (CODE_SIZE..=CODE_SIZE + REASON_MAX).contains(&missing) => {
                Ok(CapsuleState::Close { missing })
            }
            _ => Err(InvalidCapsule),
        };
    }
    Ok(match length {
        0 => CapsuleState::default(),
        missing => CapsuleState::Skipped { missing },
    })
}

fn close_of(payload: &[u8]) -> Result<SessionClose, InvalidCapsule> {
    let (code, reason) = payload.split_first_chunk::<CODE_SIZE>().ok_or(InvalidCapsule)?;
    Ok(SessionClose {
        code: u32::from_be_bytes(*code),
        reason: String::from_utf8_lossy(reason).into_owned(),
    })
}

fn take_varint(reader: &mut VarintReader, bytes: &mut &[u8]) -> Option<u64> {
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        if let Some(value) = reader.push(byte) {
            return Some(value);
        }
    }
    None
}

/// Appends the capsule that closes the session. A reason is cut at the limit of the draft.
pub fn put_close(code: u32, reason: &str, output: &mut Vec<u8>) {
    let mut end = reason.len().min(REASON_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let reason = &reason[..end];
    put_varint(CLOSE_WEBTRANSPORT_SESSION, output);
    put_varint((CODE_SIZE + reason.len()) as u64, output);
    output.extend_from_slice(&code.to_be_bytes());
    output.extend_from_slice(reason.as_bytes());
}
