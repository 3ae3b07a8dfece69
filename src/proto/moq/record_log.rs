//! The log of records, `transcript.json.z`: RTVI messages in both directions.
//!
//! A log is one group of a track; each of its frames is a JSON object. Frames are one raw DEFLATE
//! stream, flushed after every record, without the four bytes of each flush. [`RecordWriter`] takes
//! a message and returns a frame; [`RecordReader`] takes frames in order and returns the records
//! that are new. Records have a number `seq` and the writer's `epoch`, so that a log that is
//! replayed on a new connection is recognised; for peers that send neither, a replayed record is
//! one that equals the record in the same place. Source: `docs/spec/moq.md`.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use flate2::{Decompress, FlushDecompress, Status};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::deflate::RecordDeflater;
use crate::limits::MESSAGE_BYTES_MAX;

/// The track of records in every broadcast.
pub const RECORD_TRACK: &str = "transcript.json.z";

/// The label of records for the transport, which the application does not receive.
const TRANSPORT_LABEL: &str = "moq-transport";

/// The record before the end of a session. Without it, a browser reconnects for minutes.
pub const SESSION_ENDING: &str = r#"{"label":"moq-transport","type":"session-ending"}"#;

/// The type of [`SESSION_ENDING`].
pub const SESSION_ENDING_TYPE: &str = "session-ending";

/// What a sync flush writes, and a frame leaves out.
const FLUSH_TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// Bytes of an inflated record: the longest message, with the keys of its writer.
const RECORD_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 256;

/// Bytes of an inflated record that are discarded when it is too long for a message. A record
/// beyond ends the log, since DEFLATE expands a thousandfold.
const DISCARDED_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;

/// Records without `seq` that are recognised when they are replayed: 32 KiB of their hashes. Those
/// beyond are delivered again.
const REPLAYED_RECORDS_MAX: usize = 4_096;

/// Bytes that are inflated at a time.
const INFLATE_STEP_BYTES: usize = 4 * 1024;

/// Writes the log of one publisher.
pub struct RecordWriter {
    deflater: RecordDeflater,
    /// As 16 hexadecimal digits.
    epoch: String,
    sequence: u64,
    text: String,
}

impl RecordWriter {
    /// Creates the writer of a log; `epoch` is random.
    pub fn new(epoch: u64) -> Self {
        RecordWriter {
            deflater: RecordDeflater::new(),
            epoch: format!("{epoch:016x}"),
            sequence: 0,
            text: String::new(),
        }
    }

    /// Returns the frame of a record, with `seq` and `epoch` added. `None` if the text is not a
    /// JSON object.
    pub fn append(&mut self, text: &str) -> Option<Vec<u8>> {
        let object = text.trim();
        let is_object = object.starts_with('{') && serde_json::from_str::<IgnoredAny>(object).is_ok();
        let body = object.strip_suffix('}').filter(|_| is_object)?.trim_end();
        let separator = if body.ends_with('{') { "" } else { "," };
        self.text.clear();
        // The last of two equal keys counts, so the writer's own keys replace the message's.
        let (sequence, epoch) = (self.sequence, &self.epoch);
        self.text.push_str(body);
        self.text
            .push_str(&format!("{separator}\"seq\":{sequence},\"epoch\":\"{epoch}\"}}"));
        self.sequence += 1;
        Some(self.deflater.compress(self.text.as_bytes()))
    }
}

/// A record of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoqRecord {
    /// A message for the bot.
    Message(String),
    /// A record for the transport, with its type.
    Control(String),
}

/// Why a frame of a log gives no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoqRecordError {
    /// The record is not a JSON object.
    NotAnObject,
    /// The record exceeds [`MESSAGE_BYTES_MAX`].
    TooLong,
    /// The frame is not DEFLATE. No later frame can be read.
    Corrupt,
    /// The record exceeds the limit of what is discarded. No later frame can be read.
    Bomb,
}

impl MoqRecordError {
    /// Returns whether later frames cannot be read either.
    pub fn is_fatal(self) -> bool {
        matches!(self, MoqRecordError::Corrupt | MoqRecordError::Bomb)
    }
}

impl fmt::Display for MoqRecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MoqRecordError::NotAnObject => f.write_str("not a JSON object"),
            MoqRecordError::TooLong => write!(f, "more than {MESSAGE_BYTES_MAX} bytes"),
            MoqRecordError::Corrupt => f.write_str("not DEFLATE"),
            MoqRecordError::Bomb => write!(f, "more than {DISCARDED_BYTES_MAX} bytes inflated"),
        }
    }
}

/// Reads the log of a peer.
#[derive(Default)]
pub struct RecordReader {
    /// The state of the stream; its 43 KiB are taken with the first frame.
    inflater: Option<Decompress>,
    is_broken: bool,
    text: Vec<u8>,
    /// The hash of the last epoch, and its last number.
    epoch: Option<u64>,
    sequence: Option<u64>,
    /// Hashes of the records without a number, in order.
    unnumbered: Vec<u64>,
    /// During a replay, how many of `unnumbered` have come again.
    replayed: Option<usize>,
}

impl RecordReader {
    /// Starts a new subscription, which begins with the first record of the log again.
    pub fn restart(&mut self) {
        self.start_group();
        self.replayed = Some(0);
    }

    /// Starts a new group, which continues the log with a new DEFLATE stream. Conforming peers have
    /// one group.
    pub fn start_group(&mut self) {
        self.inflater = None;
        self.is_broken = false;
    }

    /// Reads the next frame. Returns `None` for a record that was read before.
    ///
    /// # Errors
    /// Returns why there is no record.
    pub fn read(&mut self, frame: &[u8]) -> Result<Option<MoqRecord>, MoqRecordError> {
        if self.is_broken {
            return Err(MoqRecordError::Corrupt);
        }
        let inflated = self.inflate(frame);
        self.is_broken = inflated.is_err_and(MoqRecordError::is_fatal);
        inflated?;
        self.parse()
    }

    /// Inflates one frame into `text`.
    fn inflate(&mut self, frame: &[u8]) -> Result<(), MoqRecordError> {
        let inflater = self.inflater.get_or_insert_with(|| Decompress::new(false));
        self.text.clear();
        self.text.shrink_to(INFLATE_STEP_BYTES);
        let mut step = [0; INFLATE_STEP_BYTES];
        let mut discarded = 0;
        for mut input in [frame, &FLUSH_TAIL] {
            loop {
                let (read, written) = (inflater.total_in(), inflater.total_out());
                let status = inflater
                    .decompress(input, &mut step, FlushDecompress::None)
                    .map_err(|_| MoqRecordError::Corrupt)?;
                let read = (inflater.total_in() - read) as usize;
                let written = (inflater.total_out() - written) as usize;
                input = input.get(read..).unwrap_or_default();
                if discarded > 0 || self.text.len() + written > RECORD_BYTES_MAX {
                    discarded += written;
                } else {
                    self.text.extend_from_slice(&step[..written]);
                }
                if discarded + self.text.len() > DISCARDED_BYTES_MAX {
                    return Err(MoqRecordError::Bomb);
                }
                match status {
                    // The peer ended its stream, so nothing may follow.
                    Status::StreamEnd if !input.is_empty() => return Err(MoqRecordError::Corrupt),
                    Status::StreamEnd => break,
                    // A full step may have more output.
                    _ if written == step.len() => {}
                    _ if input.is_empty() => break,
                    _ if read == 0 && written == 0 => return Err(MoqRecordError::Corrupt),
                    _ => {}
                }
            }
        }
        match discarded {
            0 => Ok(()),
            _ => Err(MoqRecordError::TooLong),
        }
    }

    /// Parses the record in `text`.
    fn parse(&mut self) -> Result<Option<MoqRecord>, MoqRecordError> {
        let text = std::str::from_utf8(&self.text).map_err(|_| MoqRecordError::NotAnObject)?;
        let mut object: Map<String, Value> = serde_json::from_str(text).map_err(|_| MoqRecordError::NotAnObject)?;
        let sequence = object.get("seq").and_then(Value::as_u64);
        let is_new = match sequence {
            Some(sequence) => is_new_number(&mut self.epoch, &mut self.sequence, &object, sequence),
            None => is_new_text(&mut self.unnumbered, &mut self.replayed, text),
        };
        if !is_new {
            return Ok(None);
        }
        if object.get("label").is_some_and(|label| label == TRANSPORT_LABEL) {
            let kind = object.get("type").and_then(Value::as_str).unwrap_or_default();
            return Ok(Some(MoqRecord::Control(kind.to_owned())));
        }
        let message = match sequence {
            None => text.to_owned(),
            Some(_) => {
                object.remove("seq");
                object.remove("epoch");
                Value::Object(object).to_string()
            }
        };
        match message.len() {
            0..=MESSAGE_BYTES_MAX => Ok(Some(MoqRecord::Message(message))),
            _ => Err(MoqRecordError::TooLong),
        }
    }
}

/// Returns whether a number follows the last one of its epoch, and remembers it.
fn is_new_number(
    last_epoch: &mut Option<u64>,
    last: &mut Option<u64>,
    object: &Map<String, Value>,
    sequence: u64,
) -> bool {
    let epoch = object.get("epoch").and_then(Value::as_str).map(hash);
    if *last_epoch != epoch {
        *last_epoch = epoch;
        *last = None;
    }
    let is_new = last.is_none_or(|last| sequence > last);
    if is_new {
        *last = Some(sequence);
    }
    is_new
}

/// Returns whether a record without a number is new: it is not during a replay while every record
/// equals the one in its place. The first that differs comes from another instance of the peer, or
/// is the first after the replay.
fn is_new_text(hashes: &mut Vec<u64>, replayed: &mut Option<usize>, text: &str) -> bool {
    let hash = hash(text);
    if let Some(place) = replayed {
        if hashes.get(*place) == Some(&hash) {
            *place += 1;
            return false;
        }
        // Another instance writes another log.
        hashes.truncate(*place);
        *replayed = None;
    }
    if hashes.len() < REPLAYED_RECORDS_MAX {
        hashes.push(hash);
    }
    true
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
