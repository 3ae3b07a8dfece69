//! What waits for the disk of `--calls-dir`: records of ended calls, and events.
//!
//! In: records, events, ids of events that are over, and what a write left undone. Out: all that
//! waits, so that a slow disk syncs once for many records. Records that wait have a limit of bytes:
//! while a disk takes nothing, further ones are dropped and counted, those of refused calls at half
//! of it. Events need none, since each is over before another one takes its place in the
//! `EventQueue`; one that is over before it was written is not written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::files::{CallFile, FiledCalls, file_for};
use super::post::PostedEvent;

/// Bytes of records that wait; further ones are dropped. Two thousand calls of two minutes, more
/// than a burst has while a disk takes nothing.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of records that wait, above which those of refused calls are dropped.
const REFUSED_BYTES_MAX: usize = WAITING_BYTES_MAX / 2;
/// Bytes of records that are synced together, unless a single one is longer.
const BATCH_BYTES_MAX: u64 = 256 * 1024;

/// The record of an ended call, on its way to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingRecord {
    /// The JSON, with the line feed.
    pub line: String,
    /// When the call ended, in milliseconds since 1970: the day of its file.
    pub unix_ms: u64,
    pub calls: FiledCalls,
}

/// Records that go to one file and are synced together.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordBatch {
    pub file: CallFile,
    /// How many of the records that wait.
    pub records: usize,
    pub bytes: u64,
}

/// What is written in one go.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WaitingWrites {
    /// The earliest first.
    pub records: VecDeque<WaitingRecord>,
    pub events: Vec<PostedEvent>,
    /// The ids of events whose files are deleted.
    pub over: BTreeSet<String>,
}

/// What waits for the disk.
#[derive(Debug, Default)]
pub struct CallBacklog {
    records: VecDeque<WaitingRecord>,
    /// Of the records that wait, and of those that are being written.
    record_bytes: usize,
    /// Of those that are being written.
    taken_bytes: usize,
    /// The bodies of events, by id.
    events: BTreeMap<String, String>,
    over: BTreeSet<String>,
    dropped: u64,
}

impl WaitingRecord {
    /// `record` is JSON without a line feed.
    pub fn new(mut record: String, unix_ms: u64, calls: FiledCalls) -> Self {
        record.push('\n');
        WaitingRecord {
            line: record,
            unix_ms,
            calls,
        }
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.line.len()).unwrap_or(u64::MAX)
    }
}

impl RecordBatch {
    /// Returns the first of these records that go to one file; `None` without records.
    pub fn first(files: &[CallFile], records: &VecDeque<WaitingRecord>) -> Option<Self> {
        let first = records.front()?;
        let file = file_for(files, first.calls, first.bytes(), first.unix_ms);
        let (mut count, mut bytes) = (0, 0);
        for record in records {
            let sum = bytes + record.bytes();
            let is_together = file.takes(record.calls, sum, record.unix_ms) && sum <= BATCH_BYTES_MAX;
            if count > 0 && !is_together {
                break;
            }
            (count, bytes) = (count + 1, sum);
        }
        Some(RecordBatch {
            file,
            records: count,
            bytes,
        })
    }
}

impl CallBacklog {
    /// Adds a record.
    ///
    /// # Errors
    /// How many records were dropped since the start, this one included: too many bytes wait.
    pub fn add(&mut self, record: WaitingRecord) -> Result<(), u64> {
        let bytes = self.record_bytes + record.line.len();
        let is_full = bytes > WAITING_BYTES_MAX;
        if is_full || bytes > REFUSED_BYTES_MAX && record.calls == FiledCalls::Refused {
            self.dropped += 1;
            return Err(self.dropped);
        }
        self.record_bytes = bytes;
        self.records.push_back(record);
        Ok(())
    }

    /// Returns how many records were dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Adds an event, which is kept until it is over.
    pub fn keep(&mut self, event: PostedEvent) {
        self.events.insert(event.id, event.body);
    }

    /// The event with this id is accepted or dropped.
    pub fn forget(&mut self, id: String) {
        if self.events.remove(&id).is_none() {
            self.over.insert(id);
        }
    }

    /// Takes all that waits, for [`settle`](Self::settle) to give back what was not written; `None`
    /// if nothing waits.
    pub fn take(&mut self) -> Option<WaitingWrites> {
        if self.records.is_empty() && self.events.is_empty() && self.over.is_empty() {
            return None;
        }
        self.taken_bytes = self.record_bytes;
        let events = std::mem::take(&mut self.events).into_iter();
        Some(WaitingWrites {
            records: std::mem::take(&mut self.records),
            events: events.map(|(id, body)| PostedEvent { id, body }).collect(),
            over: std::mem::take(&mut self.over),
        })
    }

    /// Takes back what was not written; it goes before what came meanwhile.
    pub fn settle(&mut self, mut rest: WaitingWrites) {
        let rest_bytes: usize = rest.records.iter().map(|record| record.line.len()).sum();
        self.record_bytes -= self.taken_bytes - rest_bytes;
        self.taken_bytes = 0;
        rest.records.append(&mut self.records);
        self.records = rest.records;
        self.over.append(&mut rest.over);
        for event in rest.events {
            // It may have a file, or not: both are over. So its id stays in `over`.
            if !self.over.contains(&event.id) {
                self.events.insert(event.id, event.body);
            }
        }
    }

    /// Returns how many records wait.
    pub fn records(&self) -> usize {
        self.records.len()
    }
}

#[cfg(test)]
mod tests;
