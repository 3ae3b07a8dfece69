//! What waits for the disk of `--calls-dir`: records of ended calls, and events.
//!
//! In: records, events, ids of events that are over, and what a write left undone. Out: all that
//! waits, so that a slow disk syncs once for many records. Records that wait have a limit of bytes:
//! while a disk takes nothing, further ones are dropped and counted, those of refused calls at half
//! of it. Events need none, since each is over before another one takes its place in the
//! `EventQueue`; one that is over before it was written is not written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::files::{CallFile, file_for};
use super::outcome::EndedRow;
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
    pub fn new(mut record: String, unix_ms: u64) -> Self {
        record.push('\n');
        WaitingRecord { line: record, unix_ms }
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.line.len()).unwrap_or(u64::MAX)
    }

    /// Returns whether the runner turned the call away.
    fn is_refusal(&self) -> bool {
        serde_json::from_str(&self.line).is_ok_and(|row: EndedRow| row.is_refusal())
    }
}

impl RecordBatch {
    /// Returns the first of these records that go to one file; `None` without records.
    pub fn first(files: &[CallFile], records: &VecDeque<WaitingRecord>) -> Option<Self> {
        let first = records.front()?;
        let file = file_for(files, first.bytes(), first.unix_ms);
        let (mut count, mut bytes) = (0, 0);
        for record in records {
            let sum = bytes + record.bytes();
            let is_together = file.takes(sum, record.unix_ms) && sum <= BATCH_BYTES_MAX;
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
        if is_full || bytes > REFUSED_BYTES_MAX && record.is_refusal() {
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::calls::EventKind;

    /// 2026-11-28T22:13:20Z.
    const NOW: u64 = 1_795_904_000_000;
    const DAY_MS: u64 = 86_400_000;

    fn record(nth: usize) -> WaitingRecord {
        WaitingRecord::new(format!(r#"{{"id":{nth:06}}}"#), NOW)
    }

    fn event(nth: u64) -> PostedEvent {
        PostedEvent::new(EventKind::Ended, &json!({"nth": nth}), NOW + nth, nth)
    }

    fn backlog(records: usize) -> CallBacklog {
        let mut backlog = CallBacklog::default();
        for nth in 0..records {
            assert_eq!(backlog.add(record(nth)), Ok(()));
        }
        backlog
    }

    #[test]
    fn all_that_waits_is_taken_at_once_in_its_order() {
        let mut backlog = backlog(3);
        for nth in [2, 1] {
            backlog.keep(event(nth));
        }
        let taken = backlog.take().expect("something waits");
        assert_eq!(taken.records, [record(0), record(1), record(2)]);
        assert_eq!(taken.events, [event(1), event(2)]);
        assert_eq!(backlog.take(), None);
        backlog.settle(WaitingWrites::default());
        assert_eq!((backlog.record_bytes, backlog.records()), (0, 0));
    }

    /// What a disk did not take is written before what came meanwhile.
    #[test]
    fn what_was_not_written_is_first_the_next_time() {
        let mut backlog = backlog(3);
        let mut rest = backlog.take().expect("something waits");
        rest.records.pop_front();
        assert_eq!(backlog.add(record(3)), Ok(()));
        backlog.settle(rest);
        let next = backlog.take().expect("something waits");
        assert_eq!(next.records, [record(1), record(2), record(3)]);
        backlog.settle(WaitingWrites::default());
        assert_eq!(backlog.record_bytes, 0);
    }

    /// An event that is over is not written, and deleted where it may have been.
    #[test]
    fn an_event_that_is_over_is_not_written() {
        let mut backlog = backlog(0);
        backlog.keep(event(1));
        backlog.forget(event(1).id);
        assert_eq!(backlog.take(), None);
        backlog.keep(event(2));
        backlog.keep(event(3));
        let failed = backlog.take().expect("something waits");
        backlog.forget(event(2).id);
        backlog.settle(failed);
        let next = backlog.take().expect("something waits");
        assert_eq!((next.events, next.over), (vec![event(3)], [event(2).id].into()));
    }

    /// A disk that takes nothing costs no more memory than the limit, also while it is written to.
    #[test]
    fn records_are_dropped_at_their_bytes_and_counted() {
        let long = WaitingRecord::new("x".repeat(WAITING_BYTES_MAX / 4 - 1), NOW);
        let mut backlog = backlog(0);
        for _ in 0..4 {
            assert_eq!(backlog.add(long.clone()), Ok(()));
        }
        assert_eq!(backlog.add(record(1)), Err(1));
        let mut rest = backlog.take().expect("something waits");
        assert_eq!(backlog.add(record(2)), Err(2));
        rest.records.pop_front();
        backlog.settle(rest);
        assert_eq!((backlog.add(record(3)), backlog.records()), (Ok(()), 4));
        assert_eq!(backlog.dropped(), 2);
    }

    /// Refused calls leave room for the records of others.
    #[test]
    fn records_of_refused_calls_leave_room() {
        let mut backlog = backlog(0);
        let of = |outcome: &str| {
            let texts = "x".repeat(WAITING_BYTES_MAX / 16 - 100);
            WaitingRecord::new(json!({"outcome": outcome, "texts": texts}).to_string(), NOW)
        };
        for outcome in ["refused", "left"] {
            for _ in 0..8 {
                assert_eq!(backlog.add(of(outcome)), Ok(()));
            }
            assert!(backlog.add(of("refused")).is_err());
        }
        assert!(backlog.add(of("left")).is_err());
    }

    #[test]
    fn records_of_one_file_are_synced_together() {
        let mut records: VecDeque<WaitingRecord> = (0..100).map(record).collect();
        let bytes = record(0).bytes();
        let batch = |files: &[CallFile], records: &VecDeque<WaitingRecord>| {
            let batch = RecordBatch::first(files, records).expect("records");
            let sum: u64 = records.iter().take(batch.records).map(WaitingRecord::bytes).sum();
            assert_eq!(batch.bytes, sum);
            (batch.file.name(), batch.records)
        };
        assert_eq!(batch(&[], &records), ("calls-20261128.jsonl".into(), 100));
        // Those of the next day, and those that a file has no room for, go to another one.
        records[60].unix_ms += DAY_MS;
        assert_eq!(batch(&[], &records), ("calls-20261128.jsonl".into(), 60));
        let almost_full = CallFile::parse("calls-20261128.jsonl", CallFile::BYTES_MAX - 7 * bytes);
        let almost_full: Vec<CallFile> = almost_full.into_iter().collect();
        assert_eq!(batch(&almost_full, &records), ("calls-20261128.jsonl".into(), 7));
        let full = CallFile::parse("calls-20261128.jsonl", CallFile::BYTES_MAX);
        let full: Vec<CallFile> = full.into_iter().collect();
        assert_eq!(batch(&full, &records), ("calls-20261128-1.jsonl".into(), 60));
        // A repair reads as much as is synced at once.
        let half = "x".repeat(usize::try_from(BATCH_BYTES_MAX).expect("a small number") / 2);
        records[3].line = half.clone();
        records[5].line = half;
        assert_eq!(batch(&[], &records).1, 5);
        records.drain(..5);
        records[0].line += &"x".repeat(300_000);
        assert_eq!(batch(&[], &records).1, 1);
        assert_eq!(RecordBatch::first(&[], &VecDeque::new()), None);
    }
}
