//! Writes the sound of calls to the folder of `--record`.
//!
//! A thread of its own mixes and writes it: a session copies its frames into a bounded queue and
//! waits for nothing. A second thread waits until whole recordings are on the disk, so that calls
//! which end do not hold up the sound of those that go on. A file has its name when the call is
//! over; until then it ends in `.part`, and the next start completes one that a power cut left. A
//! disk that is full or too slow ends a recording and not the call.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::bot::SessionId;
use crate::io::tasks;
use crate::limits::RECORDING_MAX;
use crate::proto::calls::recordings::{self, PART, surplus, whole_name};
use crate::proto::calls::sound::{CallSound, HEAD_BYTES, TappedSound, head, repaired};

/// Frames that wait for the thread: half a second of 32 calls.
const WAITING_MAX: usize = 2048;
/// Whole recordings that wait for the disk, each with an open file; with more of them the thread
/// that mixes waits too.
const WHOLE_MAX: usize = 32;
/// How often what was mixed is written.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Bytes that are written before the size of the folder is looked at again.
const ROOM_BYTES: u64 = 8 * 1024 * 1024;
/// Sound that is written at once.
const PIECE: Duration = Duration::from_secs(5);

/// Starts recordings, and ends them with the runner.
pub struct SoundWriter {
    tasks: SyncSender<SoundTask>,
    next_key: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread does.
enum SoundTask {
    Begin(u64, NewRecording),
    Sound(u64, Duration, TappedSound),
    End(u64, Duration),
    Stop,
}

struct NewRecording {
    id: SessionId,
    name: String,
    rate_hz: u32,
    is_over: Arc<AtomicBool>,
}

/// The recording of one call, for its session. Dropping it ends it.
pub struct CallRecording {
    key: u64,
    began: Instant,
    tasks: SyncSender<SoundTask>,
    /// Set when no more sound is taken.
    is_over: Arc<AtomicBool>,
}

impl SoundWriter {
    /// Completes what an earlier process left in the folder, and starts the thread.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(folder: &Path) -> io::Result<SoundWriter> {
        repair(folder)?;
        let (tasks, waiting) = sync_channel(WAITING_MAX);
        let mut thread_side = SoundThread {
            folder: folder.to_owned(),
            longest: RECORDING_MAX,
            open: BTreeMap::new(),
            until_look: 0,
            completer: Some(RecordingCompleter::start()?),
        };
        let thread = thread::Builder::new()
            .name("recordings".into())
            .spawn(move || thread_side.run(&waiting))?;
        Ok(SoundWriter {
            tasks,
            next_key: AtomicU64::new(0),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Begins the recording of a call. Returns it and the name of its file; `None` if the thread
    /// has too much to do.
    pub fn begin(&self, id: &SessionId, rate_hz: u32, unix_ms: u64) -> Option<(CallRecording, String)> {
        let name = recordings::name(id, unix_ms);
        let is_over = Arc::new(AtomicBool::new(false));
        let new = NewRecording {
            id: id.clone(),
            name: name.clone(),
            rate_hz,
            is_over: is_over.clone(),
        };
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        if self.tasks.try_send(SoundTask::Begin(key, new)).is_err() {
            log::warn!("a call is not recorded: the disk of --record is too slow");
            return None;
        }
        let recording = CallRecording {
            key,
            began: tasks::now(),
            tasks: self.tasks.clone(),
            is_over,
        };
        Some((recording, name))
    }

    /// Ends what is still recorded, and waits until it is written.
    pub fn finish(&self) {
        let _ = self.tasks.send(SoundTask::Stop);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl CallRecording {
    /// Takes what passed the tap of the call.
    pub fn add(&self, tapped: TappedSound, now: Instant) {
        if self.is_over() {
            return;
        }
        let at = now.saturating_duration_since(self.began);
        // A gap would move one side against the other, so this is the end.
        if self.tasks.try_send(SoundTask::Sound(self.key, at, tapped)).is_err()
            && !self.is_over.swap(true, Ordering::Relaxed)
        {
            log::warn!("the recording of this call ends: the disk of --record is too slow");
        }
    }

    /// Returns whether no more sound is taken.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends the recording: the call is over.
    pub fn end(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            // Without the task, the thread ends the recording when it next looks at it.
            let at = tasks::now().saturating_duration_since(self.began);
            let _ = self.tasks.try_send(SoundTask::End(self.key, at));
        }
    }
}

impl Drop for CallRecording {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread's side.
struct SoundThread {
    folder: PathBuf,
    /// The longest recording.
    longest: Duration,
    open: BTreeMap<u64, OpenRecording>,
    /// Bytes to write before the size of the folder is looked at.
    until_look: u64,
    /// `None` completes recordings at once.
    completer: Option<RecordingCompleter>,
}

/// A recording whose sound is written, and whether all of it is.
type WholeRecording = (OpenRecording, io::Result<()>);

/// The thread that syncs whole recordings, and gives them their names.
struct RecordingCompleter {
    recordings: SyncSender<WholeRecording>,
    thread: JoinHandle<()>,
}

impl RecordingCompleter {
    fn start() -> io::Result<Self> {
        let (recordings, waiting) = sync_channel::<WholeRecording>(WHOLE_MAX);
        let complete = move || {
            waiting
                .into_iter()
                .for_each(|(recording, rest)| recording.complete(rest))
        };
        let thread = thread::Builder::new().name("recordings-end".into()).spawn(complete)?;
        Ok(RecordingCompleter { recordings, thread })
    }
}

struct OpenRecording {
    new: NewRecording,
    sound: CallSound,
    file: File,
    path: PathBuf,
    /// Of the last frame.
    at: Duration,
    buffer: Vec<u8>,
    sound_bytes: u64,
}

impl SoundThread {
    fn run(&mut self, tasks: &Receiver<SoundTask>) {
        let mut written = Instant::now();
        loop {
            match tasks.recv_timeout(WRITE_EVERY) {
                Ok(SoundTask::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(task) => self.handle(task),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if written.elapsed() >= WRITE_EVERY {
                written = Instant::now();
                self.write_all();
            }
        }
        for (_, recording) in std::mem::take(&mut self.open) {
            self.end(recording);
        }
        if let Some(RecordingCompleter { recordings, thread }) = self.completer.take() {
            drop(recordings);
            let _ = thread.join();
        }
    }

    fn handle(&mut self, task: SoundTask) {
        match task {
            SoundTask::Begin(key, new) => {
                // A folder of short calls has tens of thousands of files.
                if self.until_look == 0 {
                    self.make_room();
                }
                let (id, is_over) = (new.id.clone(), new.is_over.clone());
                match OpenRecording::create(&self.folder, new) {
                    Ok(recording) => {
                        self.open.insert(key, recording);
                    }
                    Err(error) => {
                        is_over.store(true, Ordering::Relaxed);
                        log::warn!("{id}: this call is not recorded: {error}");
                    }
                }
            }
            SoundTask::Sound(key, at, tapped) => {
                let Some(recording) = self.open.get_mut(&key) else {
                    return;
                };
                if matches!(tapped, TappedSound::Caller { .. } | TappedSound::Bot { .. }) {
                    recording.at = at;
                }
                if recording.at > recording.sound.length() + PIECE {
                    let before = recording.sound_bytes;
                    // A long silence is not held in memory. An error comes again with the next
                    // piece.
                    let _ = recording.write(self.longest);
                    self.until_look = self.until_look.saturating_sub(recording.sound_bytes - before);
                }
                recording.sound.handle(&tapped, at);
            }
            SoundTask::End(key, at) => {
                if let Some(mut recording) = self.open.remove(&key) {
                    recording.at = at;
                    self.end(recording);
                }
            }
            SoundTask::Stop => {}
        }
    }

    /// Writes what was mixed, and ends the recordings that take no more.
    fn write_all(&mut self) {
        let mut over = Vec::new();
        for (key, recording) in &mut self.open {
            let before = recording.sound_bytes;
            let written = recording.write(self.longest);
            self.until_look = self.until_look.saturating_sub(recording.sound_bytes - before);
            let id = &recording.new.id;
            match written {
                Err(error) => log::warn!("{id}: the recording of this call ends: {error}"),
                Ok(()) if recording.at >= self.longest => {
                    let minutes = self.longest.as_secs() / 60;
                    log::warn!("{id}: the recording of this call ends: it has {minutes} minutes, and may have no more");
                }
                Ok(()) if recording.new.is_over.load(Ordering::Relaxed) => {}
                Ok(()) => continue,
            }
            over.push(*key);
        }
        for key in over {
            if let Some(recording) = self.open.remove(&key) {
                self.end(recording);
            }
        }
        if self.until_look == 0 && !self.open.is_empty() {
            self.make_room();
        }
    }

    /// Writes the end of a recording, and has it completed.
    fn end(&mut self, mut recording: OpenRecording) {
        let before = recording.sound_bytes;
        let rest = recording.finish(self.longest);
        self.until_look = self.until_look.saturating_sub(recording.sound_bytes - before);
        let whole = (recording, rest);
        let (recording, rest) = match self.completer.as_ref().map(|completer| &completer.recordings) {
            None => whole,
            Some(recordings) => match recordings.try_send(whole) {
                Ok(()) => return,
                Err(TrySendError::Full(whole) | TrySendError::Disconnected(whole)) => whole,
            },
        };
        recording.complete(rest);
    }

    /// Deletes the oldest recordings above the limit of the folder.
    fn make_room(&mut self) {
        self.until_look = ROOM_BYTES;
        let made = files(&self.folder).and_then(|files| {
            // Each open recording may grow until the next look.
            let growth = ROOM_BYTES * 2;
            let old = surplus(&files, growth);
            old.iter().try_for_each(|name| fs::remove_file(self.folder.join(name)))
        });
        if let Err(error) = made {
            log::warn!("old recordings in {} are not deleted: {error}", self.folder.display());
        }
    }
}

impl OpenRecording {
    fn create(folder: &Path, new: NewRecording) -> io::Result<Self> {
        let path = folder.join(format!("{}{PART}", new.name));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all_at(&head(new.rate_hz, 0), 0)?;
        Ok(OpenRecording {
            sound: CallSound::new(new.rate_hz),
            new,
            file,
            path,
            at: Duration::ZERO,
            buffer: Vec::new(),
            sound_bytes: 0,
        })
    }

    /// Writes what no longer changes.
    fn write(&mut self, longest: Duration) -> io::Result<()> {
        let end = self.at.min(longest);
        loop {
            let until = end.min(self.sound.length() + PIECE);
            self.sound.take(until, &mut self.buffer);
            self.write_buffer()?;
            if until == end {
                return Ok(());
            }
        }
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        self.file.write_all_at(&buffer, HEAD_BYTES + self.sound_bytes)?;
        self.sound_bytes += buffer.len() as u64;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest of the sound.
    fn finish(&mut self, longest: Duration) -> io::Result<()> {
        self.new.is_over.store(true, Ordering::Relaxed);
        self.write(longest)?;
        self.sound.finish(self.at.min(longest), &mut self.buffer);
        self.write_buffer()
    }

    /// Writes the head, waits for the disk, and gives the file its name. What a full disk does not
    /// take is left out; `rest` is what became of the end.
    fn complete(mut self, rest: io::Result<()>) {
        let named = self.name_file();
        if let Err(error) = rest.and(named) {
            log::warn!("{}: the recording of this call is not whole: {error}", self.new.id);
        }
    }

    fn name_file(&mut self) -> io::Result<()> {
        let length = HEAD_BYTES + self.sound_bytes;
        complete(&self.file, &head(self.new.rate_hz, self.sound_bytes), length)?;
        fs::rename(&self.path, self.path.with_file_name(&self.new.name))
    }
}

/// Writes the head of a file, and cuts it to its length.
fn complete(file: &File, head: &[u8], length: u64) -> io::Result<()> {
    file.set_len(length)?;
    file.write_all_at(head, 0)?;
    file.sync_all()
}

/// Returns the names and sizes of the files of a folder.
fn files(folder: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some(name) = entry.file_name().to_str() {
            files.push((name.to_owned(), entry.metadata()?.len()));
        }
    }
    Ok(files)
}

/// Completes the recordings that were not written to their end, and deletes those without sound.
fn repair(folder: &Path) -> io::Result<()> {
    for (part, bytes) in files(folder)? {
        let Some(name) = whole_name(&part) else { continue };
        let path = folder.join(&part);
        let mut begin = Vec::new();
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        (&file).take(HEAD_BYTES).read_to_end(&mut begin)?;
        match repaired(&begin, bytes) {
            Some((head, length)) => {
                complete(&file, &head, length)?;
                fs::rename(path, folder.join(name))?;
                log::info!("the recording {name} was not written to its end and is completed");
            }
            None => fs::remove_file(path)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::proto::kit::Wav;

    /// 2026-11-28T22:13:20Z.
    const NOW: u64 = 1_795_904_000_000;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("edge-runner-record-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    fn frame(key: u64, ms: u64, sample: i16) -> SoundTask {
        let tapped = TappedSound::Caller {
            pcm: Arc::from([sample; 160]),
            rate_hz: 8_000,
            identity: None,
        };
        SoundTask::Sound(key, Duration::from_millis(ms), tapped)
    }

    fn new(name: &str) -> NewRecording {
        NewRecording {
            id: SessionId::from("a call"),
            name: recordings::name(name, NOW),
            rate_hz: 8_000,
            is_over: Arc::default(),
        }
    }

    fn idle_thread(folder: &Path) -> SoundThread {
        SoundThread {
            folder: folder.to_owned(),
            longest: Duration::from_secs(10),
            open: BTreeMap::new(),
            until_look: 0,
            completer: None,
        }
    }

    fn wav(path: &Path) -> Wav {
        Wav::read(&fs::read(path).expect("a file")).expect("a WAV file")
    }

    #[test]
    fn a_recording_has_its_name_when_the_call_is_over() {
        let folder = folder("name");
        let writer = SoundWriter::start(&folder).expect("a folder");
        let id = SessionId::from("a/b");
        let (recording, name) = writer.begin(&id, 8_000, NOW).expect("room");
        let (pcm, rate_hz) = (Arc::from([500; 160]), 8_000);
        let bot = TappedSound::Bot { pcm, rate_hz };
        recording.add(bot, tasks::now());
        drop(recording);
        // One that its session still has when the runner ends.
        let (_held, other) = writer.begin(&SessionId::from("c"), 16_000, NOW).expect("room");
        writer.finish();
        let path = folder.join(&name);
        assert_eq!(wav(&path).rate_hz, 8_000);
        assert_eq!(wav(&folder.join(other)).rate_hz, 16_000);
        let mode = fs::metadata(&path).expect("it exists").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(files(&folder).expect("readable").len(), 2);
        fs::remove_dir_all(folder).expect("removable");
    }

    /// A disk that syncs slowly holds up what comes after it only with many recordings.
    #[test]
    fn a_slow_disk_does_not_hold_up_calls_that_go_on() {
        let folder = folder("slow");
        let (recordings, waiting) = sync_channel::<WholeRecording>(1);
        let mut thread_side = idle_thread(&folder);
        // Takes recordings only when the test does: the disk is busy all the time.
        thread_side.completer = Some(RecordingCompleter {
            recordings,
            thread: thread::spawn(|| {}),
        });
        for key in 0..3 {
            thread_side.handle(SoundTask::Begin(key, new(&key.to_string())));
            thread_side.handle(frame(key, 20, 900));
        }
        let path = |key: u64| folder.join(new(&key.to_string()).name);
        thread_side.handle(SoundTask::End(0, Duration::from_millis(20)));
        assert!(!path(0).exists(), "it waits for the disk");
        // There is no room for a second one, which is completed at once.
        thread_side.handle(SoundTask::End(1, Duration::from_millis(20)));
        assert!(path(1).exists());
        let (recording, rest) = waiting.recv().expect("the first");
        recording.complete(rest);
        assert_eq!(wav(&path(0)).rate_hz, 8_000);
        drop(waiting);
        thread_side.handle(SoundTask::End(2, Duration::from_millis(20)));
        assert!(path(2).exists(), "also without the other thread");
        fs::remove_dir_all(folder).expect("removable");
    }

    /// The sizes of all files are read once for many calls, which count what they write.
    #[test]
    fn the_folder_is_looked_at_again_when_it_has_grown() {
        let folder = folder("look");
        let mut thread_side = idle_thread(&folder);
        let mut expected = ROOM_BYTES;
        for key in 0..2 {
            thread_side.handle(SoundTask::Begin(key, new(&key.to_string())));
            thread_side.handle(frame(key, 20, 900));
            thread_side.handle(SoundTask::End(key, Duration::from_millis(20)));
            let path = folder.join(new(&key.to_string()).name);
            expected -= fs::metadata(path).expect("a recording").len() - HEAD_BYTES;
            assert!(expected < ROOM_BYTES && thread_side.until_look == expected);
        }
        thread_side.until_look = 1;
        thread_side.handle(SoundTask::Begin(2, new("2")));
        thread_side.handle(frame(2, 20, 900));
        thread_side.handle(SoundTask::End(2, Duration::from_millis(20)));
        assert_eq!(thread_side.until_look, 0);
        thread_side.handle(SoundTask::Begin(3, new("3")));
        assert_eq!(thread_side.until_look, ROOM_BYTES);
        fs::remove_dir_all(folder).expect("removable");
    }

    /// What a power cut left is completed by the next start.
    #[test]
    fn a_recording_that_was_cut_is_completed() {
        let folder = folder("cut");
        let mut thread_side = idle_thread(&folder);
        thread_side.handle(SoundTask::Begin(0, new("a")));
        for nth in 1..=200 {
            thread_side.handle(frame(0, 20 * nth, 900));
        }
        thread_side.write_all();
        // The process is gone here.
        std::mem::forget(thread_side.open.remove(&0));
        let part = folder.join(format!("{}{PART}", new("a").name));
        let bytes = fs::metadata(&part).expect("it is being written").len();
        let cut = OpenOptions::new().write(true).open(&part).expect("writable");
        cut.write_all_at(&[1, 2, 3], bytes).expect("written");
        fs::write(folder.join("call-empty.wav.part"), "RIFF").expect("writable");
        repair(&folder).expect("repairable");
        assert_eq!(
            wav(&folder.join(new("a").name)).pcm.len() as u64,
            (bytes - HEAD_BYTES) / 4
        );
        assert_eq!(files(&folder).expect("readable").len(), 1);
        fs::remove_dir_all(folder).expect("removable");
    }

    /// A disk that takes no more ends the recording, and its session copies nothing further.
    #[test]
    fn a_full_disk_ends_a_recording_alone() {
        let folder = folder("full");
        let mut thread_side = idle_thread(&folder);
        let new = new("a");
        let is_over = new.is_over.clone();
        thread_side.handle(SoundTask::Begin(0, new));
        // Every write to this device fails with "no space left".
        if let Some(recording) = thread_side.open.get_mut(&0) {
            recording.file = OpenOptions::new().write(true).open("/dev/full").expect("a device");
        }
        for nth in 1..=200 {
            thread_side.handle(frame(0, 20 * nth, 900));
        }
        thread_side.write_all();
        assert!(is_over.load(Ordering::Relaxed) && thread_side.open.is_empty());
        thread_side.handle(frame(0, 5000, 900));
        thread_side.handle(SoundTask::End(0, Duration::from_secs(5)));
        fs::remove_dir_all(folder).expect("removable");
    }

    /// A recording ends at its longest time, and one whose session is gone ends as well.
    #[test]
    fn a_recording_ends_at_its_limit_or_without_its_session() {
        let folder = folder("limit");
        let mut thread_side = idle_thread(&folder);
        for (key, name) in [(0, "long"), (1, "gone"), (2, "lives")] {
            thread_side.handle(SoundTask::Begin(key, new(name)));
        }
        thread_side.handle(frame(0, 15_000, 900));
        thread_side.open[&1].new.is_over.store(true, Ordering::Relaxed);
        thread_side.write_all();
        assert_eq!(thread_side.open.keys().collect::<Vec<_>>(), [&2]);
        let long = wav(&folder.join(new("long").name));
        assert_eq!(long.length(), Duration::from_secs(10));
        fs::remove_dir_all(folder).expect("removable");
    }
}
