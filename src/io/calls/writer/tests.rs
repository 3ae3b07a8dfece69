//! The writer of records and events: what is on the disk, and how often it is asked for.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use serde_json::json;

use super::*;
use crate::proto::calls::EventKind;

/// 2026-11-28T22:13:20Z.
const NOW: u64 = 1_795_904_000_000;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("edge-runner-calls-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

/// Records of these ids, which end now.
fn waiting(ids: impl IntoIterator<Item = usize>) -> WaitingWrites {
    let records = ids
        .into_iter()
        .map(|id| WaitingRecord::new(id.to_string(), NOW, FiledCalls::Ended));
    WaitingWrites {
        records: records.collect(),
        ..WaitingWrites::default()
    }
}

/// Returns the ids of all records in their order.
fn written(folder: &Path) -> Vec<usize> {
    let mut files = files(folder).expect("readable");
    sorting::sort(&mut files);
    let text = |file: &CallFile| fs::read_to_string(folder.join(file.name())).expect("readable");
    let text: String = files.iter().map(text).collect();
    text.lines().map(|line| line.parse().expect("a whole record")).collect()
}

#[test]
fn records_are_lines_of_a_file_that_only_its_owner_reads() {
    let folder = folder("lines").join("below");
    let writer = CallWriter::start(&folder).expect("a folder");
    for nth in 0..3 {
        writer.write(format!(r#"{{"id":{nth}}}"#), FiledCalls::Ended);
    }
    writer.finish();
    writer.write("late".to_owned(), FiledCalls::Ended);
    let files = files(&folder).expect("readable");
    assert_eq!(files.len(), 1);
    let path = folder.join(files[0].name());
    let text = fs::read_to_string(&path).expect("readable");
    assert_eq!(text, "{\"id\":0}\n{\"id\":1}\n{\"id\":2}\n");
    let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
    fs::remove_dir_all(folder.parent().expect("a parent")).expect("removable");
}

/// What a power cut leaves at any byte of a line is removed, and whole lines stay. So is what
/// follows a part of the file that has its place, but never reached the disk.
#[test]
fn an_incomplete_line_is_removed() {
    let folder = folder("cut");
    check(&folder).expect("a folder");
    let path = folder.join("calls-20261128.jsonl");
    let line = r#"{"id":"new"}"#;
    let zeros = "\0".repeat(5_000);
    let lost = format!("{zeros}\n{line}\n");
    for before in ["", "{\"id\":1}\n", "{\"id\":1}\n{\"id\":2}\n"] {
        let cuts = (0..line.len()).map(|cut| &line[..cut]);
        for left in cuts.chain([&*zeros, &*lost]) {
            fs::write(&path, format!("{before}{left}")).expect("writable");
            let mut waiting = WaitingWrites::default();
            waiting
                .records
                .push_back(WaitingRecord::new(line.to_owned(), NOW, FiledCalls::Ended));
            let mut opened = CallFolder::new(&folder, File::sync_data);
            opened.write(&mut waiting).expect("written");
            let text = fs::read_to_string(&path).expect("readable");
            assert_eq!(text, format!("{before}{line}\n"), "{left:?}");
        }
    }
    fs::remove_dir_all(folder).expect("removable");
}

/// The next start removes it, also from the file of a day that gets no further record.
#[test]
fn a_start_removes_an_incomplete_line() {
    let folder = folder("start");
    check(&folder).expect("a folder");
    for (name, text) in [
        ("calls-20261127.jsonl", "{\"id\":1}\n"),
        ("calls-20261128.jsonl", "{\"id\":2}\n"),
        ("calls-20261128-2.jsonl", "{\"id\":3}\n{\"id"),
        ("refused-20261127.jsonl", "{\"id\":4}\n{\"id"),
    ] {
        fs::write(folder.join(name), text).expect("writable");
    }
    CallWriter::start(&folder).expect("a folder").finish();
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("readable");
    assert_eq!(read("calls-20261128-2.jsonl"), "{\"id\":3}\n");
    assert_eq!(read("calls-20261128.jsonl"), "{\"id\":2}\n");
    assert_eq!(read("refused-20261127.jsonl"), "{\"id\":4}\n");
    fs::remove_dir_all(folder).expect("removable");
}

/// Events that are not over are there at the next start, in their order, and nothing else is.
#[test]
fn events_are_kept_until_they_are_over() {
    let folder = folder("events");
    assert_eq!(kept_events(&folder).expect("a folder"), []);
    let event = |nth: u64| PostedEvent::new(EventKind::Started, &json!({"nth": nth}), NOW + nth, 9 - nth);
    let writer = CallWriter::start(&folder).expect("a folder");
    for nth in [2, 1, 3] {
        writer.keep(event(nth));
    }
    writer.forget(event(2).id);
    writer.forget(event(4).id);
    writer.finish();
    fs::write(folder.join("events/new.part"), "{").expect("writable");
    fs::write(folder.join("events/evt_1_0000000000000001.json"), [0xff]).expect("writable");
    assert_eq!(kept_events(&folder).expect("a folder"), [event(1), event(3)]);
    let path = folder.join("events").join(PostedEvent::file_name(&event(1).id));
    let mode = fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(files(&folder).expect("readable").is_empty());
    fs::remove_dir_all(folder).expect("removable");
}

/// A burst waits for a disk that is slow, which is asked a few times for all of it.
#[test]
fn a_burst_on_a_slow_disk_loses_no_record() {
    let folder = folder("burst");
    check(&folder).expect("a folder");
    let syncs = Arc::new(AtomicUsize::new(0));
    let (disk, is_slow) = channel::<()>();
    let counted = syncs.clone();
    let slow = CallFolder::new(&folder, move |file| {
        counted.fetch_add(1, Ordering::Relaxed);
        // Until the burst is over.
        let _ = is_slow.recv();
        file.sync_data()
    });
    let writer = CallWriter::start_thread(slow).expect("a thread");
    for id in 0..2_000 {
        writer.write(id.to_string(), FiledCalls::Ended);
    }
    drop(disk);
    writer.finish();
    assert_eq!(written(&folder), (0..2_000).collect::<Vec<_>>());
    let syncs = syncs.load(Ordering::Relaxed);
    assert!(syncs <= 4, "{syncs} syncs: the folder, what came first, and the rest");
    fs::remove_dir_all(folder).expect("removable");
}

/// More bytes than are synced at once go to the disk in batches, in their order.
#[test]
fn a_long_backlog_is_written_in_batches() {
    let folder = folder("batches");
    check(&folder).expect("a folder");
    let syncs = Arc::new(AtomicUsize::new(0));
    let counted = syncs.clone();
    let mut opened = CallFolder::new(&folder, move |file| {
        counted.fetch_add(1, Ordering::Relaxed);
        file.sync_data()
    });
    let mut waiting = WaitingWrites::default();
    for id in 0..1_000 {
        let record = format!("{id:01000}");
        waiting
            .records
            .push_back(WaitingRecord::new(record, NOW, FiledCalls::Ended));
    }
    opened.write(&mut waiting).expect("written");
    assert_eq!(written(&folder), (0..1_000).collect::<Vec<_>>());
    assert_eq!(
        syncs.load(Ordering::Relaxed),
        1 + 4,
        "a megabyte in four, and the folder"
    );
    fs::remove_dir_all(folder).expect("removable");
}

/// A disk that fails at any sync gets the same records again, and each is there once.
#[test]
fn what_a_failed_write_left_is_written_once() {
    for failing in 0..4 {
        let folder = folder(&format!("failed-{failing}"));
        check(&folder).expect("a folder");
        let mut nth = 0;
        let mut opened = CallFolder::new(&folder, move |file| {
            nth += 1;
            match nth - 1 == failing {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => file.sync_data(),
            }
        });
        // The second day is another file, so another batch.
        let mut waiting = waiting(0..20);
        for record in waiting.records.iter_mut().skip(10) {
            record.unix_ms += 86_400_000;
        }
        assert!(opened.write(&mut waiting).is_err());
        assert_eq!(waiting.records.len(), if failing < 2 { 20 } else { 10 });
        waiting
            .records
            .push_back(WaitingRecord::new("20".to_owned(), NOW + 86_400_000, FiledCalls::Ended));
        opened.write(&mut waiting).expect("written");
        assert_eq!(waiting, WaitingWrites::default());
        assert_eq!(written(&folder), (0..=20).collect::<Vec<_>>(), "sync {failing}");
        fs::remove_dir_all(folder).expect("removable");
    }
}

/// The next record, or the end of the runner, is another attempt.
#[test]
fn a_writer_that_failed_tries_again() {
    let folder = folder("again");
    check(&folder).expect("a folder");
    let mut has_failed = false;
    let failing = CallFolder::new(&folder, move |file| match std::mem::replace(&mut has_failed, true) {
        false => Err(io::ErrorKind::StorageFull.into()),
        true => file.sync_data(),
    });
    let writer = CallWriter::start_thread(failing).expect("a thread");
    writer.write("1".to_owned(), FiledCalls::Ended);
    writer.write("2".to_owned(), FiledCalls::Ended);
    writer.finish();
    assert_eq!(written(&folder), [1, 2]);
    let broken = CallFolder::new(&folder, |_| Err(io::ErrorKind::StorageFull.into()));
    let writer = CallWriter::start_thread(broken).expect("a thread");
    writer.write("3".to_owned(), FiledCalls::Ended);
    writer.finish();
    assert_eq!(lock(&writer.backlog).records(), 1, "the log says that it is lost");
    fs::remove_dir_all(folder).expect("removable");
}

/// An event whose folder fails is kept for the next attempt, and records are written meanwhile.
#[test]
fn events_that_fail_do_not_hold_records_up() {
    let folder = folder("no-events");
    check(&folder).expect("a folder");
    let mut opened = CallFolder::new(&folder, File::sync_data);
    let mut waiting = waiting([1]);
    waiting
        .events
        .push(PostedEvent::new(EventKind::Ended, &json!({}), NOW, 1));
    assert!(opened.write(&mut waiting).is_err());
    assert_eq!((waiting.events.len(), written(&folder)), (1, vec![1]));
    assert_eq!(kept_events(&folder).expect("a folder"), []);
    opened.write(&mut waiting).expect("written");
    assert_eq!(kept_events(&folder).expect("a folder").len(), 1);
    assert_eq!((waiting, written(&folder)), (WaitingWrites::default(), vec![1]));
    fs::remove_dir_all(folder).expect("removable");
}

/// Records of a folder that disappears are written when it is there again.
#[test]
fn a_folder_that_fails_is_tried_again() {
    let folder = folder("gone");
    check(&folder).expect("a folder");
    let mut opened = CallFolder::new(&folder, File::sync_data);
    opened.write(&mut waiting([1])).expect("written");
    fs::remove_dir_all(&folder).expect("removable");
    let mut waiting = waiting([2]);
    assert!(opened.write(&mut waiting).is_err());
    check(&folder).expect("a folder");
    waiting
        .records
        .push_back(WaitingRecord::new("3".to_owned(), NOW, FiledCalls::Ended));
    opened.write(&mut waiting).expect("written");
    assert_eq!(written(&folder), [2, 3]);
    fs::remove_dir_all(folder).expect("removable");
}
