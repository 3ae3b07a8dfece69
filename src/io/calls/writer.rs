//! Writes the records of ended calls, and the events that wait for their receiver, to the folder of
//! `--calls-dir`.
//!
//! A thread of its own writes them, since a disk may be slow: calls do not wait for it. Each record
//! is one line, synced before the next one. A line that a power cut left incomplete is removed by
//! the next start. `proto::calls::files` names the files. An event is a file in `events`
//! below the folder, which has its name when it is whole, until it is accepted or dropped.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use edge_runner_http::common::{lock, unix_time_ms};

use crate::io::written_folder::check;
use crate::proto::calls::PostedEvent;
use crate::proto::calls::files::{CallFile, file_for, surplus};
use crate::proto::sorting;

/// Records and events that wait for the disk; further ones are not written.
const WAITING_MAX: usize = 256;
/// Bytes that are searched for the end of the last whole line: more than a record has.
const LINE_BYTES_MAX: u64 = 256 * 1024;

/// The folder of events, below that of the records.
const EVENTS: &str = "events";
/// Bytes of an event that is read: more than one has.
const EVENT_BYTES_MAX: u64 = 256 * 1024;

/// What is written.
enum WriteTask {
    Record(String),
    Event(PostedEvent),
    /// The event with this id is accepted or dropped.
    EventOver(String),
}

/// Hands records to the thread that writes them.
pub struct CallWriter {
    tasks: Mutex<Option<SyncSender<WriteTask>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CallWriter {
    /// Makes the folder, tries to write there, removes a line that was not written to its end, and
    /// starts the thread.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(folder: &Path) -> io::Result<CallWriter> {
        check(folder)?;
        // Only the last file can have one. The next record may go to another file.
        if let Some(last) = files(folder)?.into_iter().max() {
            open_whole(&folder.join(last.name()))?;
        }
        let (tasks, waiting) = sync_channel(WAITING_MAX);
        let folder = folder.to_owned();
        let thread = thread::Builder::new()
            .name("calls".into())
            .spawn(move || write_all(&folder, &waiting))?;
        Ok(CallWriter {
            tasks: Mutex::new(Some(tasks)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Writes a record, without waiting for the disk.
    pub fn write(&self, record: String) {
        self.push(WriteTask::Record(record));
    }

    /// Keeps an event until it is over, without waiting for the disk.
    pub fn keep(&self, event: PostedEvent) {
        self.push(WriteTask::Event(event));
    }

    /// Deletes the file of an event.
    pub fn forget(&self, id: String) {
        self.push(WriteTask::EventOver(id));
    }

    fn push(&self, task: WriteTask) {
        let tasks = lock(&self.tasks);
        match tasks.as_ref().map(|tasks| tasks.try_send(task)) {
            Some(Err(TrySendError::Full(_))) => {
                log::warn!("a record or an event of a call is not written: the disk of --calls-dir is too slow");
            }
            // Without a thread, the reason was logged.
            Some(Ok(()) | Err(TrySendError::Disconnected(_))) | None => {}
        }
    }

    /// Waits until each record is written; none is taken afterwards.
    pub fn finish(&self) {
        lock(&self.tasks).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Returns the events that were kept when the runner ended, the oldest first.
///
/// # Errors
/// The system's error.
pub fn kept_events(folder: &Path) -> io::Result<Vec<PostedEvent>> {
    let folder = folder.join(EVENTS);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let mut events = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let mut body = String::new();
        let read = File::open(entry.path()).and_then(|file| file.take(EVENT_BYTES_MAX).read_to_string(&mut body));
        if let (Some(name), Ok(_)) = (name.to_str(), read) {
            events.extend(PostedEvent::from_file(name, body));
        }
    }
    sorting::sort_by(&mut events, |one, other| one.id.cmp(&other.id));
    Ok(events)
}

fn write_all(folder: &Path, tasks: &Receiver<WriteTask>) {
    let mut open = None;
    let mut has_failed = false;
    for task in tasks {
        let written = match task {
            WriteTask::Record(record) => write(folder, &mut open, &record, unix_time_ms()),
            WriteTask::Event(event) => keep(folder, &event),
            WriteTask::EventOver(id) => forget(folder, &id),
        };
        match written {
            Ok(()) if has_failed => {
                has_failed = false;
                log::info!("records of calls are written to {} again", folder.display());
            }
            Ok(()) => {}
            Err(error) => {
                open = None;
                if !has_failed {
                    has_failed = true;
                    log::warn!("records of calls are not written to {}: {error}", folder.display());
                }
            }
        }
    }
}

/// Writes the file of an event. A power cut leaves it whole, or under another name.
fn keep(folder: &Path, event: &PostedEvent) -> io::Result<()> {
    let folder = folder.join(EVENTS);
    let part = folder.join("new.part");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part)?;
    file.write_all(event.body.as_bytes())?;
    file.sync_data()?;
    fs::rename(part, folder.join(PostedEvent::file_name(&event.id)))?;
    File::open(folder)?.sync_data()
}

fn forget(folder: &Path, id: &str) -> io::Result<()> {
    match fs::remove_file(folder.join(EVENTS).join(PostedEvent::file_name(id))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes one record; `open` is the file of the last one.
fn write(folder: &Path, open: &mut Option<(PathBuf, File)>, record: &str, unix_ms: u64) -> io::Result<()> {
    let line = format!("{record}\n");
    let bytes = u64::try_from(line.len()).unwrap_or(u64::MAX);
    let files = files(folder)?;
    let name = file_for(&files, bytes, unix_ms).name();
    for file in surplus(&files, bytes, unix_ms) {
        fs::remove_file(folder.join(file.name()))?;
    }
    let path = folder.join(name);
    let mut file = match open.take() {
        // A file that was deleted or moved is not written to.
        Some((known, file)) if known == path && path.exists() => file,
        _ => open_whole(&path)?,
    };
    file.write_all(line.as_bytes())?;
    file.sync_data()?;
    *open = Some((path, file));
    Ok(())
}

fn files(folder: &Path) -> io::Result<Vec<CallFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(name) = name.to_str() {
            files.extend(CallFile::parse(name, entry.metadata()?.len()));
        }
    }
    Ok(files)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

/// Opens a file, and removes a line that was not written to its end.
fn open_whole(path: &Path) -> io::Result<File> {
    let mut file = open(path)?;
    let bytes = file.metadata()?.len();
    let searched_from = bytes.saturating_sub(LINE_BYTES_MAX);
    file.seek(SeekFrom::Start(searched_from))?;
    let mut end = Vec::new();
    (&file).take(LINE_BYTES_MAX).read_to_end(&mut end)?;
    let whole = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < end.len() {
        log::warn!(
            "{}: the last record is incomplete, perhaps by a power cut; it is removed",
            path.display()
        );
        file.set_len(searched_from + u64::try_from(whole).unwrap_or(0))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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

    #[test]
    fn records_are_lines_of_a_file_that_only_its_owner_reads() {
        let folder = folder("lines").join("below");
        let writer = CallWriter::start(&folder).expect("a folder");
        for nth in 0..3 {
            writer.write(format!(r#"{{"id":{nth}}}"#));
        }
        writer.finish();
        writer.write("late".to_owned());
        let files = files(&folder).expect("readable");
        assert_eq!(files.len(), 1);
        let path = folder.join(files[0].name());
        let text = fs::read_to_string(&path).expect("readable");
        assert_eq!(text, "{\"id\":0}\n{\"id\":1}\n{\"id\":2}\n");
        let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
        fs::remove_dir_all(folder.parent().expect("a parent")).expect("removable");
    }

    /// What a power cut leaves at any byte of a line is removed, and whole lines stay.
    #[test]
    fn an_incomplete_line_is_removed() {
        let folder = folder("cut");
        check(&folder).expect("a folder");
        let path = folder.join("calls-20261128.jsonl");
        let line = r#"{"id":"new"}"#;
        for before in ["", "{\"id\":1}\n", "{\"id\":1}\n{\"id\":2}\n"] {
            for cut in 0..line.len() {
                fs::write(&path, format!("{before}{}", &line[..cut])).expect("writable");
                write(&folder, &mut None, line, NOW).expect("written");
                let text = fs::read_to_string(&path).expect("readable");
                assert_eq!(text, format!("{before}{line}\n"), "{cut}");
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
        ] {
            fs::write(folder.join(name), text).expect("writable");
        }
        CallWriter::start(&folder).expect("a folder").finish();
        let read = |name: &str| fs::read_to_string(folder.join(name)).expect("readable");
        assert_eq!(read("calls-20261128-2.jsonl"), "{\"id\":3}\n");
        assert_eq!(read("calls-20261128.jsonl"), "{\"id\":2}\n");
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

    /// A folder that disappears, or cannot be written to, loses records and nothing else.
    #[test]
    fn a_folder_that_fails_is_tried_again() {
        let folder = folder("gone");
        check(&folder).expect("a folder");
        let mut open = None;
        write(&folder, &mut open, "1", NOW).expect("written");
        fs::remove_dir_all(&folder).expect("removable");
        assert!(write(&folder, &mut open, "2", NOW).is_err());
        check(&folder).expect("a folder");
        write(&folder, &mut open, "3", NOW).expect("written");
        let text = fs::read_to_string(folder.join("calls-20261128.jsonl")).expect("readable");
        assert_eq!(text, "3\n");
        fs::remove_dir_all(folder).expect("removable");
    }
}
