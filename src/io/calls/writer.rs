//! Writes the records of ended calls, and the events that wait for their receiver, to the folder of
//! `--calls-dir`.
//!
//! A thread of its own writes them, since a disk may be slow: calls do not wait for it. All that
//! waits is written in one go, and synced once for all records of a file, so that a disk which
//! takes a tenth of a second for that keeps pace with a burst of calls. What a disk does not take
//! waits and is written again, without what the failed write left behind. `proto::calls` decides
//! what is written together, and how much waits. A line that a power cut left incomplete is removed
//! by the next start. An event is a file in `events` below the folder, which has its name when it
//! is whole, until it is accepted or dropped. It is written before the records, so that a record on
//! the disk has its event there.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use edge_runner_http::common::{lock, unix_time_ms};

use crate::io::tasks;
use crate::io::written_folder::check;
use crate::proto::calls::files::{CallFile, FiledCalls, surplus};
use crate::proto::calls::{CallBacklog, PostedEvent, RecordBatch, WaitingRecord, WaitingWrites};
use crate::proto::sorting;
use crate::proto::time::SteadyClock;

/// Between attempts to write what a disk did not take; further records are attempts as well.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Bytes that are searched for the end of the last whole line: more than what is synced at once and
/// one record before it.
const REPAIRED_BYTES: u64 = 512 * 1024;

/// The folder of events, below that of the records.
const EVENTS: &str = "events";
/// Bytes of an event that is read: more than one has.
const EVENT_BYTES_MAX: u64 = 256 * 1024;

/// Hands records to the thread that writes them.
pub struct CallWriter {
    backlog: Arc<Mutex<CallBacklog>>,
    /// Wakes the thread; `None` when nothing more is taken.
    wakes: Mutex<Option<SyncSender<()>>>,
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
        // Only the last file of a kind can have one. The next record may go to another file.
        let files = files(folder)?;
        for calls in FiledCalls::ALL {
            if let Some(last) = files.iter().filter(|file| file.calls == calls).max() {
                open_whole(&folder.join(last.name()))?;
            }
        }
        Self::start_thread(CallFolder::new(folder, File::sync_data))
    }

    fn start_thread(mut folder: CallFolder) -> io::Result<CallWriter> {
        // One wake is enough for all that was added before it is received.
        let (wakes, woken) = sync_channel(1);
        let backlog = Arc::<Mutex<CallBacklog>>::default();
        let waiting = backlog.clone();
        let thread = thread::Builder::new()
            .name("calls".into())
            .spawn(move || write_all(&mut folder, &waiting, &woken))?;
        Ok(CallWriter {
            backlog,
            wakes: Mutex::new(Some(wakes)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Writes a record, without waiting for the disk.
    pub fn write(&self, record: String, calls: FiledCalls) {
        let record = WaitingRecord::new(record, unix_time_ms(), calls);
        let mut added = Ok(());
        self.add(|backlog| added = backlog.add(record));
        // Each is a line as long as they are few.
        if let Err(count) = added
            && (count < 10 || count.is_multiple_of(100))
        {
            log::warn!(
                "the record of a call is not written: the disk of --calls-dir is too slow or takes nothing, and as many \
                 records as may wait do ({count} since the start)"
            );
        }
    }

    /// Returns how many records were dropped since the start.
    pub fn dropped(&self) -> u64 {
        lock(&self.backlog).dropped()
    }

    /// Keeps an event until it is over, without waiting for the disk.
    pub fn keep(&self, event: PostedEvent) {
        self.add(|backlog| backlog.keep(event));
    }

    /// Deletes the file of an event.
    pub fn forget(&self, id: String) {
        self.add(|backlog| backlog.forget(id));
    }

    fn add(&self, add: impl FnOnce(&mut CallBacklog)) {
        if let Some(wakes) = lock(&self.wakes).as_ref() {
            add(&mut lock(&self.backlog));
            // A full channel has a wake already.
            let _ = wakes.try_send(());
        }
    }

    /// Waits until each record is written, or the disk refuses it; none is taken afterwards.
    pub fn finish(&self) {
        lock(&self.wakes).take();
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

/// Writes what waits until the writer is finished.
fn write_all(folder: &mut CallFolder, backlog: &Mutex<CallBacklog>, woken: &Receiver<()>) {
    let mut has_failed = false;
    loop {
        let woken = match has_failed {
            false => woken.recv().map_err(|_| RecvTimeoutError::Disconnected),
            true => woken.recv_timeout(AGAIN_AFTER),
        };
        while let Some(mut waiting) = take(backlog) {
            let written = folder.write(&mut waiting);
            lock(backlog).settle(waiting);
            let path = folder.path.display();
            match written {
                Ok(()) if has_failed => {
                    has_failed = false;
                    log::info!("records and events of calls are written to {path} again, with those that waited");
                }
                Ok(()) => {}
                Err(error) if !has_failed => {
                    has_failed = true;
                    log::warn!(
                        "records or events of calls are not written to {path}: {error}; they wait until they can be"
                    );
                    break;
                }
                Err(_) => break,
            }
        }
        if woken == Err(RecvTimeoutError::Disconnected) {
            break;
        }
    }
    let left = lock(backlog).records();
    if left > 0 {
        let path = folder.path.display();
        log::warn!("the records of {left} calls are lost: they could not be written to {path} before the end");
    }
}

/// Takes what waits; the lock is free when this returns.
fn take(backlog: &Mutex<CallBacklog>) -> Option<WaitingWrites> {
    lock(backlog).take()
}

/// The folder of records and events.
struct CallFolder {
    path: PathBuf,
    /// The file of the last record.
    open: Option<(PathBuf, File)>,
    /// The file of a write that failed, and its bytes before that.
    failed: Option<(PathBuf, u64)>,
    /// Decides whether files are old.
    clock: SteadyClock,
    sync: SyncFn,
}

/// Waits until the content of a file is on the disk.
type SyncFn = Box<dyn FnMut(&File) -> io::Result<()> + Send>;

impl CallFolder {
    fn new(path: &Path, sync: impl FnMut(&File) -> io::Result<()> + Send + 'static) -> Self {
        CallFolder {
            path: path.to_owned(),
            open: None,
            failed: None,
            clock: SteadyClock::new(tasks::now(), unix_time_ms()),
            sync: Box::new(sync),
        }
    }

    /// Writes all that waits, and removes it from there. What fails stays, and does not hold the
    /// other kinds up. Returns the first error.
    fn write(&mut self, waiting: &mut WaitingWrites) -> io::Result<()> {
        let kept = self.keep(&mut waiting.events);
        let forgotten = self.forget(waiting);
        let written = self.append(&mut waiting.records);
        kept.and(forgotten).and(written)
    }

    /// Writes the files of events. A power cut leaves each whole, or under another name.
    fn keep(&mut self, events: &mut Vec<PostedEvent>) -> io::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let folder = self.path.join(EVENTS);
        let part = folder.join("new.part");
        for event in &*events {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&part)?;
            file.write_all(event.body.as_bytes())?;
            (self.sync)(&file)?;
            fs::rename(&part, folder.join(PostedEvent::file_name(&event.id)))?;
        }
        (self.sync)(&File::open(folder)?)?;
        // Before this, a name may be lost.
        events.clear();
        Ok(())
    }

    fn forget(&mut self, waiting: &mut WaitingWrites) -> io::Result<()> {
        let folder = self.path.join(EVENTS);
        while let Some(id) = waiting.over.first() {
            match fs::remove_file(folder.join(PostedEvent::file_name(id))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => waiting.over.pop_first(),
            };
        }
        Ok(())
    }

    /// Appends records to their files, in batches.
    fn append(&mut self, records: &mut VecDeque<WaitingRecord>) -> io::Result<()> {
        self.take_back()?;
        while !records.is_empty() {
            let files = files(&self.path)?;
            let Some(batch) = RecordBatch::first(&files, records) else {
                break;
            };
            let unix_ms = unix_time_ms();
            let is_steady = self.clock.handle_look(tasks::now(), unix_ms);
            for file in surplus(&files, batch.file.calls, batch.bytes, is_steady.then_some(unix_ms)) {
                fs::remove_file(self.path.join(file.name()))?;
            }
            let path = self.path.join(batch.file.name());
            let file = match self.open.take() {
                // A file that was deleted or moved is not written to.
                Some((known, file)) if known == path && path.exists() => file,
                _ => self.open_day(&path)?,
            };
            // If the next step fails, these bytes were written before.
            self.failed = Some((path.clone(), file.metadata()?.len()));
            write_lines(&file, records.iter().take(batch.records))?;
            (self.sync)(&file)?;
            self.failed = None;
            self.open = Some((path, file));
            records.drain(..batch.records);
        }
        Ok(())
    }

    /// Removes what a write that failed left in its file, since that is written again.
    fn take_back(&mut self) -> io::Result<()> {
        let Some((path, bytes)) = &self.failed else {
            return Ok(());
        };
        match OpenOptions::new().write(true).open(path) {
            Ok(file) if file.metadata()?.len() > *bytes => file.set_len(*bytes)?,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        self.failed = None;
        Ok(())
    }

    /// Opens a file of records; a new one has its name also after a power cut.
    fn open_day(&mut self, path: &Path) -> io::Result<File> {
        let file = open_whole(path)?;
        if file.metadata()?.len() == 0 {
            (self.sync)(&File::open(&self.path)?)?;
        }
        Ok(file)
    }
}

fn write_lines<'a>(file: &File, records: impl Iterator<Item = &'a WaitingRecord>) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(64 * 1024, file);
    for record in records {
        writer.write_all(record.line.as_bytes())?;
    }
    writer.flush()
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

/// Opens a file, and removes what was not written to its end: from an incomplete line on, or from
/// the first line with a zero, which is a part of the file that did not reach the disk.
fn open_whole(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    let bytes = file.metadata()?.len();
    let searched_from = bytes.saturating_sub(REPAIRED_BYTES);
    file.seek(SeekFrom::Start(searched_from))?;
    let mut end = Vec::new();
    (&file).take(REPAIRED_BYTES).read_to_end(&mut end)?;
    let written = end.iter().position(|byte| *byte == 0).unwrap_or(end.len());
    let whole = end[..written]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
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
mod tests;
