//! Receives the files that clients upload for the bot, into `--uploads-folder`.
//!
//! In: forms on `/files` and `/sessions/ID/files`. Out: files that only their owner reads, each
//! under its name when it is whole, and the JSON for the client. Those of a session are deleted
//! once it is over, all others when a runner starts that has the folder to itself. The rules are in
//! `proto::http::uploads`; a bot finds the folder in its arguments.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::future::pending;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::{Reply, json_reply, lock, random};
use edge_runner_http::server::{ConnPhase, ConnState};
use edge_runner_http::tasks::{self, SlotPool, request_time};
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::app::RunnerApp;
use super::error::{HttpError, ModuleRefusal};
use crate::config::Config;
use crate::io::RunError;
use crate::io::module::{ModuleStartup, RouteRequest};
use crate::io::running::{ModuleFuture, RunningModule};
use crate::io::sessions::Sessions;
use crate::io::written_folder::{self, unusable};
use crate::proto::http::registry::UnknownSession;
use crate::proto::http::started::StartedSessions;
use crate::proto::http::uploads::{
    IncomingForm, UploadError, UploadLedger, UploadName, UploadedFile, is_leftover, make_space, reply,
};
use crate::proto::server::multipart::{FilePart, MultipartError};

const OPTION: &str = "--uploads-folder";
/// Files that are received at once: each is a thread's work on the disk.
const UPLOADS_AT_ONCE_MAX: usize = 4;
/// Time for one file: 50 MiB at 85 kB/s.
const UPLOAD_WITHIN: Duration = Duration::from_secs(600);
/// Bytes written at a time.
const UPLOAD_PIECE_BYTES: usize = 256 * 1024;
/// Time between two looks for sessions that are over, while files belong to any.
const UPLOADS_SWEPT_EVERY: Duration = Duration::from_secs(1);

/// Checks that the folder can be written to.
///
/// # Errors
/// [`RunError::WrittenFolder`] if not.
pub fn check(config: &Config) -> Result<(), RunError> {
    match &config.uploads_dir {
        Some(folder) => written_folder::check(folder).map_err(|source| unusable(OPTION, folder, source)),
        None => Ok(()),
    }
}

/// Opens the folder, and deletes the files of sessions from then on.
pub fn run(startup: &ModuleStartup<'_>) -> Result<Option<Arc<dyn RunningModule>>, RunError> {
    let app = startup.app;
    let Some(path) = &app.config.uploads_dir else {
        return Ok(None);
    };
    let folder = UploadFolder::open(path, app.config.uploads_max).map_err(|source| unusable(OPTION, path, source))?;
    let folder = Arc::new(folder);
    log::info!(
        "clients may upload files for the bot, which are stored in {}",
        path.display()
    );
    let live = LiveIds::of(app);
    let swept = folder.clone();
    startup.services.spawn("the end of uploads", async move {
        loop {
            swept.added.notified().await;
            while !lock(&swept.ledger).is_empty() {
                tokio::select! {
                    () = live.sessions.next_end() => {}
                    () = sleep(UPLOADS_SWEPT_EVERY) => {}
                }
                let ended = lock(&swept.ledger).take_ended(|id| live.contains(id));
                swept.delete(ended).await;
            }
        }
    });
    Ok(Some(Arc::new(Uploads(folder))))
}

/// The uploads of one runner.
pub struct Uploads(Arc<UploadFolder>);

impl RunningModule for Uploads {
    fn end(&self) -> ModuleFuture<'_, ()> {
        let left = lock(&self.0.ledger).take_ended(|_| false);
        Box::pin(self.0.delete(left))
    }
}

/// Receives a file, with or without the session that it belongs to.
///
/// # Errors
/// [`HttpError`] if it is not taken. Then nothing of it is left.
pub async fn receive(request: RouteRequest<'_>, session_id: Option<String>) -> Result<Reply, HttpError> {
    let app = request.app;
    if let Some(id) = &session_id
        && !LiveIds::of(app).contains(id)
    {
        return Err(HttpError::Unknown(UnknownSession));
    }
    let Uploads(folder) = app.modules.get().ok_or_else(|| refuse(UploadError::Off))?;
    let received = receive_form(folder, &request.head.headers, request.body, request.conn_state);
    let stored = match timeout(UPLOAD_WITHIN, received).await {
        Ok(received) => received.map_err(refuse)?,
        Err(_) => return Err(refuse(UploadError::Late)),
    };
    let name = stored.part.name;
    let answer = reply(name, &stored.file);
    let kept = folder.clone();
    let work = move || kept.keep(stored, session_id.map(Arc::from));
    blocking(work).await.map_err(refuse)?;
    Ok(json_reply(StatusCode::OK, answer))
}

fn refuse(error: UploadError) -> HttpError {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match error {
        UploadError::Off | UploadError::Full => ModuleRefusal::logged(status, error),
        UploadError::Busy => ModuleRefusal::logged(status, error).with_retry(),
        _ => ModuleRefusal::new(status, error),
    }
    .into()
}

/// A whole file that has no name yet.
struct ReceivedUpload {
    part: PartialUpload,
    file: FilePart,
    bytes: u64,
}

async fn receive_form(
    folder: &Arc<UploadFolder>,
    headers: &HeaderMap,
    mut body: Incoming,
    conn_state: &ConnState,
) -> Result<ReceivedUpload, UploadError> {
    let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let mut form = IncomingForm::new(content_type.unwrap_or_default(), body.size_hint().exact())?;
    let _slot = folder.slots.try_acquire().ok_or(UploadError::Busy)?;
    let (mut part, mut piece, mut phase) = (None, Vec::new(), ConnPhase::Receiving);
    loop {
        if !conn_state.set(phase) {
            // The connection was evicted and is about to close.
            pending::<()>().await;
        }
        let data = match body.frame().await {
            None => break,
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(_)) => return Err(MultipartError::Malformed("the body ended early").into()),
        };
        form.push(&data, &mut piece)?;
        if piece.len() >= UPLOAD_PIECE_BYTES {
            let written = folder.clone();
            let work = move || written.write(part, piece);
            (part, piece) = blocking(work).await.map(|(part, piece)| (Some(part), piece))?;
            phase = ConnPhase::Upload;
        }
    }
    let (file, bytes) = form.finish()?;
    let written = folder.clone();
    let (part, _) = blocking(move || written.write(part, piece)).await?;
    Ok(ReceivedUpload { part, file, bytes })
}

/// Runs work on the folder on a thread for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, UploadError> + Send + 'static,
) -> Result<T, UploadError> {
    tasks::blocking(work).await.unwrap_or(Err(UploadError::Failed))
}

/// The ids of sessions that are not over.
struct LiveIds {
    started: Arc<Mutex<StartedSessions>>,
    sessions: Sessions,
}

impl LiveIds {
    fn of(app: &RunnerApp) -> Self {
        LiveIds {
            started: app.table.clone(),
            sessions: app.sessions.clone(),
        }
    }

    fn contains(&self, id: &str) -> bool {
        lock(&self.started).contains(id, request_time()) || self.sessions.is_live(id)
    }
}

/// The folder with its files.
struct UploadFolder {
    path: PathBuf,
    files_max: usize,
    slots: SlotPool,
    /// Held while the folder is listed and changed.
    turn: Mutex<()>,
    ledger: Mutex<UploadLedger>,
    /// A file of a session was added.
    added: Notify,
    /// Locked, so that no other runner deletes what it finds at its start.
    _shared: File,
}

impl UploadFolder {
    fn open(path: &Path, files_max: usize) -> io::Result<Self> {
        let shared = File::open(path)?;
        let is_alone = match shared.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            // Some network file systems have no locks.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => true,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        if is_alone {
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                if entry.file_name().to_str().is_some_and(is_leftover) && entry.file_type()?.is_file() {
                    fs::remove_file(entry.path())?;
                }
            }
        }
        // Only a runner that starts at this moment has the whole lock.
        let _ = shared.try_lock_shared();
        Ok(UploadFolder {
            path: path.to_owned(),
            files_max,
            slots: SlotPool::new(UPLOADS_AT_ONCE_MAX),
            turn: Mutex::default(),
            ledger: Mutex::default(),
            added: Notify::new(),
            _shared: shared,
        })
    }

    /// Writes a piece, of a new file if there is none yet. Blocks.
    fn write(&self, part: Option<PartialUpload>, mut piece: Vec<u8>) -> Result<(PartialUpload, Vec<u8>), UploadError> {
        let written = (|| {
            let mut part = part.map_or_else(|| PartialUpload::create(&self.path), Ok)?;
            part.file.write_all(&piece)?;
            Ok(part)
        })();
        piece.clear();
        Ok((written.map_err(|error| self.failed(&error))?, piece))
    }

    /// Gives a whole file its name, and deletes what has to go for it. Blocks.
    fn keep(&self, upload: ReceivedUpload, session_id: Option<Arc<str>>) -> Result<(), UploadError> {
        let _turn = lock(&self.turn);
        let mut stored = self.list().map_err(|error| self.failed(&error))?;
        for surplus in make_space(&mut stored, upload.bytes, self.files_max)? {
            remove(&self.path, surplus);
        }
        let mut ledger = lock(&self.ledger);
        ledger.retain(&stored);
        let name = upload.part.name;
        upload.part.keep().map_err(|error| self.failed(&error))?;
        if let Some(id) = session_id {
            ledger.add(name, id);
            self.added.notify_one();
        }
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<UploadedFile>> {
        let mut stored = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().and_then(UploadName::parse) else {
                continue;
            };
            // The bot may have deleted it since.
            if let Ok(about) = entry.metadata() {
                stored.push(UploadedFile {
                    modified: about.modified()?,
                    name,
                    bytes: about.len(),
                });
            }
        }
        Ok(stored)
    }

    async fn delete(&self, names: Vec<UploadName>) {
        if names.is_empty() {
            return;
        }
        let path = self.path.clone();
        let deleted = tasks::blocking(move || {
            for name in names {
                remove(&path, name);
            }
        });
        // It fails only if the runtime ends.
        let _ = deleted.await;
    }

    fn failed(&self, error: &io::Error) -> UploadError {
        log::warn!(
            "{OPTION} {}: an upload could not be stored: {error}",
            self.path.display()
        );
        UploadError::Failed
    }
}

fn remove(folder: &Path, name: UploadName) {
    match fs::remove_file(folder.join(name.to_string())) {
        // The bot deletes what it has read.
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log::warn!("{OPTION} {}: {name} could not be deleted: {error}", folder.display());
        }
        _ => {}
    }
}

/// A file that is being received. Dropping it deletes it.
struct PartialUpload {
    name: UploadName,
    file: File,
    folder: PathBuf,
    is_kept: bool,
}

impl PartialUpload {
    fn create(folder: &Path) -> io::Result<Self> {
        let name = UploadName::new(random());
        let path = folder.join(name.part());
        Ok(PartialUpload {
            file: OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?,
            name,
            folder: folder.to_owned(),
            is_kept: false,
        })
    }

    fn keep(mut self) -> io::Result<()> {
        fs::rename(
            self.folder.join(self.name.part()),
            self.folder.join(self.name.to_string()),
        )?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for PartialUpload {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_file(self.folder.join(self.name.part()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("edge-runner-uploads-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        written_folder::check(&folder).expect("a folder");
        folder
    }

    /// What a killed runner has left is deleted, but not beside another runner, and no other file.
    #[test]
    fn a_start_deletes_what_is_left() {
        let path = folder("left");
        let names = [UploadName::new([1; 16]).to_string(), UploadName::new([2; 16]).part()];
        let write_all = || {
            for name in names.iter().map(String::as_str).chain(["notes.txt"]) {
                fs::write(path.join(name), "x").expect("written");
            }
        };
        let count = || fs::read_dir(&path).expect("readable").count();
        write_all();
        let first = UploadFolder::open(&path, 10).expect("a folder");
        assert_eq!(count(), 1);
        write_all();
        let second = UploadFolder::open(&path, 10).expect("a folder");
        assert_eq!(count(), 3);
        drop((first, second));
        UploadFolder::open(&path, 10).expect("a folder");
        assert_eq!(count(), 1);
        fs::remove_dir_all(&path).expect("removable");
    }

    #[test]
    fn a_part_that_is_dropped_leaves_no_file() {
        let path = folder("part");
        let uploads = UploadFolder::open(&path, 10).expect("a folder");
        let (part, _) = uploads.write(None, b"half".to_vec()).expect("written");
        assert_eq!(fs::read_dir(&path).expect("readable").count(), 1);
        drop(part);
        assert_eq!(fs::read_dir(&path).expect("readable").count(), 0);
        fs::remove_dir_all(&path).expect("removable");
        assert_eq!(uploads.write(None, Vec::new()).err(), Some(UploadError::Failed));
    }
}
