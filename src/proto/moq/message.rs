//! The messages of `moq-lite-04`: types of streams, requests, replies and group headers.
//!
//! A message is its length (varint) and its fields. Integers are varints unless they are called a
//! byte; a string is its length and UTF-8. Writers take the message's fields and append the message
//! with its length; readers take the bytes after the length. Source: `docs/spec/moq.md` 3.

use std::fmt;

use super::varint::{read_varint, write_varint};

/// The types of bidirectional streams, the first bytes that the opening end sends.
pub const STREAM_ANNOUNCE: u64 = 1;
pub const STREAM_SUBSCRIBE: u64 = 2;
pub const STREAM_FETCH: u64 = 3;
pub const STREAM_PROBE: u64 = 4;
pub const STREAM_GOAWAY: u64 = 5;
/// The type of unidirectional streams.
pub const STREAM_GROUP: u64 = 0;

/// The types of replies to a subscription.
pub const REPLY_OK: u64 = 0;
pub const REPLY_DROP: u64 = 1;

/// Bytes of the longest message: a request with the longest names fits twice.
pub const MESSAGE_LENGTH_MAX: usize = 4096;
/// Bytes of the path of a broadcast: a namespace of 64 random bytes fits many times.
pub const PATH_BYTES_MAX: usize = 1024;
/// Segments of a path; the published libraries reject more.
pub const PATH_SEGMENTS_MAX: usize = 32;
/// Bytes of the name of a track: names in use have up to 20.
pub const TRACK_NAME_BYTES_MAX: usize = 256;
/// Hops of an announcement; the published libraries reject more.
pub const HOPS_MAX: usize = 32;

/// Why a message was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoqMessageError {
    /// The message ends within a field.
    Truncated,
    /// Bytes follow the last field.
    TrailingBytes,
    /// A string is not UTF-8.
    NotUtf8,
    /// A message or a string exceeds its limit.
    TooLong,
    /// A path has more segments, or an announcement more hops, than permitted.
    TooMany,
    /// A byte or type has no meaning in this version.
    InvalidValue,
}

impl fmt::Display for MoqMessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a message is truncated",
            Self::TrailingBytes => "a message has trailing bytes",
            Self::NotUtf8 => "a string is not UTF-8",
            Self::TooLong => "a message is too long",
            Self::TooMany => "a path or its hops have too many parts",
            Self::InvalidValue => "a message has an invalid value",
        })
    }
}

impl std::error::Error for MoqMessageError {}

/// The first and the last group that a subscriber wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupBounds {
    /// `None` is the latest group when the subscription begins.
    pub start: Option<u64>,
    /// Inclusive; `None` is without end.
    pub end: Option<u64>,
}

/// `ANNOUNCE_INTEREST`: asks for the broadcasts below a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnounceInterest {
    pub prefix: String,
    /// Broadcasts that passed through this hop are not announced; 0 is none.
    pub exclude_hop: u64,
}

impl AnnounceInterest {
    pub fn write(&self, out: &mut Vec<u8>) {
        write_message(out, |body| {
            write_string(&self.prefix, body);
            write_varint(self.exclude_hop, body);
        });
    }

    pub fn read(body: &[u8]) -> Result<Self, MoqMessageError> {
        let mut fields = MessageFields { rest: body };
        let interest = Self {
            prefix: fields.path()?,
            exclude_hop: fields.varint()?,
        };
        fields.end()?;
        Ok(interest)
    }
}

/// `ANNOUNCE`: a broadcast begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnounceMessage {
    pub is_active: bool,
    /// The path below the prefix that was asked for.
    pub suffix: String,
    /// The ends that the announcement passed through, the publisher first.
    pub hops: Vec<u64>,
}

impl AnnounceMessage {
    pub fn write(&self, out: &mut Vec<u8>) {
        write_message(out, |body| {
            body.push(u8::from(self.is_active));
            write_string(&self.suffix, body);
            write_varint(self.hops.len() as u64, body);
            for hop in &self.hops {
                write_varint(*hop, body);
            }
        });
    }

    pub fn read(body: &[u8]) -> Result<Self, MoqMessageError> {
        let mut fields = MessageFields { rest: body };
        let is_active = match fields.byte()? {
            0 => false,
            1 => true,
            _ => return Err(MoqMessageError::InvalidValue),
        };
        let suffix = fields.path()?;
        let count = fields.varint()?;
        if count > HOPS_MAX as u64 {
            return Err(MoqMessageError::TooMany);
        }
        let hops = (0..count).map(|_| fields.varint()).collect::<Result<_, _>>()?;
        fields.end()?;
        Ok(Self {
            is_active,
            suffix,
            hops,
        })
    }
}

/// `SUBSCRIBE`: asks for a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeMessage {
    /// Chosen by the subscriber, unique in its session; groups name it.
    pub id: u64,
    pub broadcast: String,
    pub track: String,
    pub terms: SubscribeTerms,
}

impl SubscribeMessage {
    pub fn write(&self, out: &mut Vec<u8>) {
        write_message(out, |body| {
            write_varint(self.id, body);
            write_string(&self.broadcast, body);
            write_string(&self.track, body);
            self.terms.write_fields(body);
        });
    }

    pub fn read(body: &[u8]) -> Result<Self, MoqMessageError> {
        let mut fields = MessageFields { rest: body };
        let subscribe = Self {
            id: fields.varint()?,
            broadcast: fields.path()?,
            track: fields.string(TRACK_NAME_BYTES_MAX)?.to_owned(),
            terms: SubscribeTerms::read_fields(&mut fields)?,
        };
        fields.end()?;
        Ok(subscribe)
    }
}

/// The terms of a subscription: the last fields of `SUBSCRIBE`, and all of `SUBSCRIBE_UPDATE` and
/// `SUBSCRIBE_OK`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscribeTerms {
    /// Higher is more urgent.
    pub priority: u8,
    /// Whether older groups are sent first. The published libraries ignore it.
    pub is_ordered: bool,
    /// Milliseconds after which a group is too old.
    pub max_latency_ms: u64,
    pub groups: GroupBounds,
}

impl SubscribeTerms {
    fn write_fields(&self, body: &mut Vec<u8>) {
        body.push(self.priority);
        body.push(u8::from(self.is_ordered));
        write_varint(self.max_latency_ms, body);
        for bound in [self.groups.start, self.groups.end] {
            write_varint(bound.map_or(0, |sequence| sequence.saturating_add(1)), body);
        }
    }

    fn read_fields(fields: &mut MessageFields<'_>) -> Result<Self, MoqMessageError> {
        Ok(Self {
            priority: fields.byte()?,
            is_ordered: fields.byte()? != 0,
            max_latency_ms: fields.varint()?,
            groups: GroupBounds {
                start: fields.varint()?.checked_sub(1),
                end: fields.varint()?.checked_sub(1),
            },
        })
    }

    /// Appends `SUBSCRIBE_UPDATE`.
    pub fn write_update(&self, out: &mut Vec<u8>) {
        write_message(out, |body| self.write_fields(body));
    }

    /// Appends `SUBSCRIBE_OK` with its type.
    pub fn write_ok(&self, out: &mut Vec<u8>) {
        write_varint(REPLY_OK, out);
        self.write_update(out);
    }

    /// Reads `SUBSCRIBE_UPDATE`, or `SUBSCRIBE_OK` after its type.
    pub fn read(body: &[u8]) -> Result<Self, MoqMessageError> {
        let mut fields = MessageFields { rest: body };
        let terms = Self::read_fields(&mut fields)?;
        fields.end()?;
        Ok(terms)
    }
}

/// `GROUP`: the header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// The id of the subscription.
    pub subscription: u64,
    pub sequence: u64,
}

impl GroupHeader {
    /// Appends the type of the stream and the message.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_varint(STREAM_GROUP, out);
        write_message(out, |body| {
            write_varint(self.subscription, body);
            write_varint(self.sequence, body);
        });
    }

    pub fn read(body: &[u8]) -> Result<Self, MoqMessageError> {
        let mut fields = MessageFields { rest: body };
        let header = Self {
            subscription: fields.varint()?,
            sequence: fields.varint()?,
        };
        fields.end()?;
        Ok(header)
    }
}

/// A path without slashes at its ends and without empty segments, as the published libraries make
/// it.
pub fn normal_path(path: &str) -> String {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    segments.join("/")
}

/// The part of a path below a prefix, which ends at a slash or covers the whole path.
pub fn path_below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(prefix)?;
    match prefix.is_empty() || rest.is_empty() {
        true => Some(rest),
        false => rest.strip_prefix('/'),
    }
}

/// Appends a message with its length. The body is written in place, behind a byte for its length;
/// a body of 64 bytes or more moves up.
fn write_message(out: &mut Vec<u8>, write_body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.push(0);
    write_body(out);
    let length = out.len() - at - 1;
    if length < 0x40 {
        out[at] = length as u8;
    } else {
        let body = out.split_off(at + 1);
        out.pop();
        write_varint(length as u64, out);
        out.extend(body);
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    write_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// The fields of a message that were not read yet.
struct MessageFields<'a> {
    rest: &'a [u8],
}

impl<'a> MessageFields<'a> {
    fn byte(&mut self) -> Result<u8, MoqMessageError> {
        let (first, rest) = self.rest.split_first().ok_or(MoqMessageError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    fn varint(&mut self) -> Result<u64, MoqMessageError> {
        let (value, length) = read_varint(self.rest).ok_or(MoqMessageError::Truncated)?;
        self.rest = &self.rest[length..];
        Ok(value)
    }

    fn string(&mut self, bytes_max: usize) -> Result<&'a str, MoqMessageError> {
        let length = self.varint()?;
        if length > bytes_max as u64 {
            return Err(MoqMessageError::TooLong);
        }
        let (text, rest) = self
            .rest
            .split_at_checked(length as usize)
            .ok_or(MoqMessageError::Truncated)?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| MoqMessageError::NotUtf8)
    }

    fn path(&mut self) -> Result<String, MoqMessageError> {
        let path = normal_path(self.string(PATH_BYTES_MAX)?);
        match path.split('/').count() > PATH_SEGMENTS_MAX {
            true => Err(MoqMessageError::TooMany),
            false => Ok(path),
        }
    }

    fn end(&self) -> Result<(), MoqMessageError> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(MoqMessageError::TrailingBytes),
        }
    }
}

#[cfg(test)]
mod tests;
