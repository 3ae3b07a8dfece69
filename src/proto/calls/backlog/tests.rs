//! What waits for the disk: its order, its limits, and what is written together.

use serde_json::json;

use super::*;
use crate::calls::EventKind;

/// 2026-11-28T22:13:20Z.
const NOW: u64 = 1_795_904_000_000;
const DAY_MS: u64 = 86_400_000;

fn record(nth: usize) -> WaitingRecord {
    WaitingRecord::new(format!(r#"{{"id":{nth:06}}}"#), NOW, FiledCalls::Ended)
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
    let long = WaitingRecord::new("x".repeat(WAITING_BYTES_MAX / 4 - 1), NOW, FiledCalls::Ended);
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
    let of = |calls| WaitingRecord::new("x".repeat(WAITING_BYTES_MAX / 16 - 1), NOW, calls);
    for calls in [FiledCalls::Refused, FiledCalls::Ended] {
        for _ in 0..8 {
            assert_eq!(backlog.add(of(calls)), Ok(()));
        }
        assert!(backlog.add(of(FiledCalls::Refused)).is_err());
    }
    assert!(backlog.add(of(FiledCalls::Ended)).is_err());
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
    records[50].calls = FiledCalls::Refused;
    assert_eq!(batch(&[], &records), ("calls-20261128.jsonl".into(), 50));
    records[50].calls = FiledCalls::Ended;
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
