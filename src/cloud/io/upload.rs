//! Upload grants and uploads.
//!
//! In: a grant request, or the head and body of a multipart form. Out: a grant, or a stored
//! archive. `proto::verify` checks the form when the file begins. The file is written in pieces on
//! blocking threads, one piece while the next one fills, and no thread waits for a slow client. The
//! archive is stored when the whole body arrived in time and is synced. Dropping the future leaves
//! no partial file. Errors: those of `verify`; too many uploads; a stall of [`UPLOAD_STALL`]; a
//! full disk; a sealed upload. Source: decisions I-06 to I-09; `docs/spec/cloud-protocol.md` 3 and
//! 4.3.

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use hyper::header;
use hyper::http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::config::CloudConfig;
use crate::io::archives::{ArchiveDir, PartialArchive};
use crate::io::disk;
use crate::io::keys::KeyStore;
use crate::io::records::{RecordError, Records};
use crate::io::upload_locks::{UploadLock, UploadLocks};
use crate::limits::UPLOAD_STALL;
use crate::proto::api_error::{ApiError, ErrorHeader};
use crate::proto::build::{Slug, UploadRecord};
use crate::proto::grant::{self, GrantTerms, UploadGrant};
use crate::proto::keys::KeyHolder;
use crate::proto::sign::GrantSigner;
use crate::proto::verify::{self, FileCheck, UploadForm, VerifiedUpload};
use edge_runner_http::common::{random, unix_time_ms};
use edge_runner_http::server::{ConnPhase, ConnState};
use edge_runner_proto::limits::FRAME_BYTES_MAX;
use edge_runner_proto::limits::RETRY_AFTER_S;
use edge_runner_proto::server::multipart::{self, MultipartEvent, MultipartParser};
use edge_runner_proto::uuid::Uuid;

/// Interval at which the connection's deadline is renewed while the disk is busy.
const UPLOAD_RENEWED_EVERY: Duration = Duration::from_secs(10);

/// Bytes written at a time. Each upload has two such buffers.
const UPLOAD_PIECE_BYTES: usize = 256 * 1024;

/// Issues grants and receives uploads.
pub struct UploadService {
    folder: Arc<ArchiveDir>,
    records: Arc<dyn Records>,
    upload_locks: Arc<UploadLocks>,
    keys: Arc<KeyStore>,
    signing: GrantSigner,
    data_dir: PathBuf,
    size_max: u64,
    grant_ms: u64,
    free_min: u64,
    /// One permit per verified upload in progress.
    permits: Arc<Semaphore>,
}

/// A completed upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUpload {
    /// Name of the archive in the store: `{org}/{upload}.tar.gz`.
    pub key: String,
    md5: [u8; 16],
}

impl StoredUpload {
    /// Returns the `ETag`.
    pub fn etag(&self) -> String {
        format!("\"{}\"", HEXLOWER.encode(&self.md5))
    }
}

/// Sets the phase of the connection; returns whether the connection still has its permit.
type PhaseSetter<'n> = &'n (dyn Fn(ConnPhase) -> bool + Sync);

impl UploadService {
    /// Creates the service from its parts.
    pub fn new(
        config: &CloudConfig,
        signing: GrantSigner,
        folder: Arc<ArchiveDir>,
        records: Arc<dyn Records>,
        upload_locks: Arc<UploadLocks>,
        keys: Arc<KeyStore>,
    ) -> Self {
        UploadService {
            folder,
            records,
            upload_locks,
            keys,
            signing,
            data_dir: config.data_dir.clone(),
            size_max: config.context_max,
            grant_ms: u64::try_from(config.grant_ttl.as_millis()).unwrap_or(u64::MAX),
            free_min: config.free_min,
            permits: Arc::new(Semaphore::new(config.uploads_max)),
        }
    }

    /// Issues a grant for a region that has builds. `url` is where clients post the form.
    ///
    /// # Errors
    /// 503 when disk space is low; 500.
    pub async fn grant(self: &Arc<Self>, to: &KeyHolder, region: &Slug, url: String) -> Result<UploadGrant, ApiError> {
        let (uploads, to, region) = (self.clone(), to.clone(), region.clone());
        let granted = spawn_blocking(move || uploads.grant_now(to, region, &url));
        granted.await.unwrap_or_else(|panic| Err(internal(panic)))
    }

    /// Returns what keeps grants from being issued: `storage` without enough free space, `records`
    /// if they cannot be read, or nothing.
    pub async fn obstacle(self: &Arc<Self>) -> Option<&'static str> {
        let uploads = self.clone();
        let found = spawn_blocking(move || match uploads.has_space() {
            Ok(false) => Some("storage"),
            Ok(true) if uploads.records.has_build(Uuid::v4(random())).is_ok() => None,
            Ok(true) | Err(_) => Some("records"),
        });
        found.await.unwrap_or(Some("records"))
    }

    fn has_space(&self) -> std::io::Result<bool> {
        Ok(self.free_min == 0 || disk::free_bytes(&self.data_dir)? >= self.free_min)
    }

    fn grant_now(&self, to: KeyHolder, region: Slug, url: &str) -> Result<UploadGrant, ApiError> {
        if !self.has_space().map_err(internal)? {
            return Err(ApiError::storage_full());
        }
        let now_ms = unix_time_ms();
        let upload = UploadRecord {
            id: Uuid::v4(random()),
            org: to.org,
            region,
            expires_ms: now_ms.saturating_add(self.grant_ms),
            sealed: false,
            key: Some(to.hash),
            info: None,
        };
        self.records.insert_upload(&upload).map_err(|error| match error {
            RecordError::Full => ApiError::storage_full(),
            RecordError::Broken(reason) => internal(reason),
        })?;
        let terms = GrantTerms {
            org: &upload.org,
            upload: upload.id,
            region: &upload.region,
            url,
            size_max: self.size_max,
            expires_ms: upload.expires_ms,
        };
        Ok(grant::issue(&self.signing, &terms, now_ms))
    }

    /// Receives an upload on a connection.
    ///
    /// # Errors
    /// The first error; the rest of the body is not read.
    pub async fn receive(
        &self,
        head: &Parts,
        body: Incoming,
        conn_state: &ConnState,
    ) -> Result<StoredUpload, ApiError> {
        self.receive_form(head, body, &|phase| conn_state.set(phase)).await
    }

    async fn receive_form<B>(
        &self,
        head: &Parts,
        mut body: B,
        set_phase: PhaseSetter<'_>,
    ) -> Result<StoredUpload, ApiError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let kind = head.headers.get(header::CONTENT_TYPE);
        let boundary = kind.and_then(|kind| multipart::boundary(kind.as_bytes()));
        let mut parser = MultipartParser::new(&boundary.ok_or_else(verify::no_form)?);
        let declared = body.size_hint().exact().unwrap_or(0);
        // Checked before the first read, so that a client that waits for `100 Continue` sends
        // nothing in vain.
        if declared > self.size_max.saturating_add(FRAME_BYTES_MAX as u64) {
            return Err(verify::too_large(self.size_max));
        }
        let mut receiver = FormReceiver {
            uploads: self,
            declared,
            form: UploadForm::default(),
            file: None,
            piece: Vec::new(),
        };
        let mut writer = ArchiveWriter {
            folder: self.folder.clone(),
            writing: None,
        };
        loop {
            let phase = if receiver.file.is_some() {
                ConnPhase::Upload
            } else {
                ConnPhase::Receiving
            };
            if !set_phase(phase) {
                // The connection was evicted and is about to close.
                pending::<()>().await;
            }
            let Ok(frame) = tokio::time::timeout(UPLOAD_STALL, body.frame()).await else {
                let waited_s = UPLOAD_STALL.as_secs();
                return Err(ApiError::too_slow(format!("no data arrived for {waited_s} s")));
            };
            let data = match frame {
                None => break,
                Some(Err(_)) => return Err(verify::malformed("the body ended early")),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            if let Some((_, check, _)) = &receiver.file {
                check.handle_time(unix_time_ms())?;
            }
            parser.push(&data, &mut |event| receiver.handle(event))?;
            // Another frame of this size might not fit.
            if !receiver.piece.is_empty() && receiver.piece.len() + data.len() > UPLOAD_PIECE_BYTES {
                let piece = std::mem::take(&mut receiver.piece);
                receiver.piece = writer.write(piece, set_phase).await?;
            }
        }
        parser.finish()?;
        let (verified, check, _permit) = receiver
            .file
            .ok_or_else(|| internal("a form was whole without a file"))?;
        check.handle_end(unix_time_ms())?;
        writer.write(receiver.piece, set_phase).await?;
        let part = writer.end(set_phase).await?;
        let lock = with_keepalive(self.upload_locks.lock(verified.upload), set_phase).await;
        let commit = ArchiveCommit {
            folder: self.folder.clone(),
            records: self.records.clone(),
            keys: self.keys.clone(),
            verified,
            lock,
        };
        with_keepalive(spawn_blocking(move || commit.keep(part)), set_phase)
            .await
            .map_err(internal)?
    }

    fn open(&self, verified: &VerifiedUpload) -> Result<(), ApiError> {
        open(&*self.records, &self.keys, verified)
    }
}

/// Rejects an upload whose key was revoked, that is sealed, or whose grant has no record, so that
/// nothing would ever delete it.
fn open(records: &dyn Records, keys: &KeyStore, verified: &VerifiedUpload) -> Result<(), ApiError> {
    let upload = records.upload(verified.upload).map_err(record_error)?;
    if let Some(key) = upload.as_ref().and_then(|upload| upload.key)
        && !keys.grants_access(&key, &verified.org).map_err(internal)?
    {
        return Err(verify::revoked());
    }
    match upload {
        Some(upload) if upload.sealed => Err(ApiError::new(
            409,
            "CONFLICT",
            "a build was made of this upload; ask for another grant",
        )),
        Some(_) => Ok(()),
        None => Err(verify::denied(
            "the upload is not known here any more; ask for another grant",
        )),
    }
}

/// A form in progress.
struct FormReceiver<'u> {
    uploads: &'u UploadService,
    /// Body size from the head; 0 if unknown.
    declared: u64,
    form: UploadForm,
    /// Set when the file begins.
    file: Option<(VerifiedUpload, FileCheck, OwnedSemaphorePermit)>,
    /// Next piece of the file to write.
    piece: Vec<u8>,
}

impl FormReceiver<'_> {
    fn handle(&mut self, event: MultipartEvent<'_>) -> Result<(), ApiError> {
        match event {
            MultipartEvent::Field { name, value } => self.form.add(name, value),
            MultipartEvent::File => self.begin(),
            MultipartEvent::Data(data) => {
                let Some((_, check, _)) = &mut self.file else {
                    return Err(internal("a file was there before it began"));
                };
                check.handle_data(data)?;
                self.piece.extend_from_slice(data);
                Ok(())
            }
            MultipartEvent::FileEnd | MultipartEvent::End => Ok(()),
        }
    }

    /// Called when all fields are known. Only verified uploads take a permit.
    fn begin(&mut self) -> Result<(), ApiError> {
        let uploads = self.uploads;
        let verified = std::mem::take(&mut self.form).verify(&uploads.signing, unix_time_ms())?;
        uploads.open(&verified)?;
        let permit = uploads.permits.clone().try_acquire_owned().map_err(|_| {
            ApiError::new(503, "SlowDown", "too many uploads are under way; try again later")
                .with_header(ErrorHeader::RetryAfterS(RETRY_AFTER_S))
        })?;
        let check = FileCheck::new(&verified, uploads.size_max);
        if self.declared > check.size_max().saturating_add(FRAME_BYTES_MAX as u64) {
            return Err(verify::too_large(check.size_max()));
        }
        self.piece.reserve(UPLOAD_PIECE_BYTES);
        self.file = Some((verified, check, permit));
        Ok(())
    }
}

/// Result of a write: the part, and the empty buffer.
type WriteResult = io::Result<(PartialArchive, Vec<u8>)>;

/// Writes an archive piece by piece.
struct ArchiveWriter {
    folder: Arc<ArchiveDir>,
    /// The task that owns the part. If this is dropped, the task drops the part.
    writing: Option<JoinHandle<WriteResult>>,
}

impl ArchiveWriter {
    /// Starts to write a piece after the previous one; returns an empty buffer.
    async fn write(&mut self, mut piece: Vec<u8>, set_phase: PhaseSetter<'_>) -> Result<Vec<u8>, ApiError> {
        let (part, empty) = match &mut self.writing {
            None => (None, Vec::with_capacity(UPLOAD_PIECE_BYTES)),
            Some(writing) => {
                let (part, empty) = written(with_keepalive(writing, set_phase).await)?;
                (Some(part), empty)
            }
        };
        let folder = self.folder.clone();
        self.writing = Some(spawn_blocking(move || {
            let mut part = part.map_or_else(|| folder.create(), Ok)?;
            part.write(&piece)?;
            piece.clear();
            Ok((part, piece))
        }));
        Ok(empty)
    }

    /// Waits for the last write.
    async fn end(self, set_phase: PhaseSetter<'_>) -> Result<PartialArchive, ApiError> {
        let writing = self.writing.ok_or_else(|| internal("nothing was written"))?;
        Ok(written(with_keepalive(writing, set_phase).await)?.0)
    }
}

fn written(joined: Result<WriteResult, tokio::task::JoinError>) -> Result<(PartialArchive, Vec<u8>), ApiError> {
    joined.map_err(internal)?.map_err(write_error)
}

/// Waits for work while keeping the connection from timing out.
async fn with_keepalive<T>(work: impl Future<Output = T>, set_phase: PhaseSetter<'_>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        set_phase(ConnPhase::Upload);
        if let Ok(done) = tokio::time::timeout(UPLOAD_RENEWED_EVERY, &mut work).await {
            return done;
        }
    }
}

/// The final steps, which complete even if the client disconnects.
struct ArchiveCommit {
    folder: Arc<ArchiveDir>,
    records: Arc<dyn Records>,
    keys: Arc<KeyStore>,
    verified: VerifiedUpload,
    lock: UploadLock,
}

impl ArchiveCommit {
    fn keep(self, part: PartialArchive) -> Result<StoredUpload, ApiError> {
        let VerifiedUpload { org, upload, .. } = &self.verified;
        let info = part.sync().map_err(write_error)?;
        open(&*self.records, &self.keys, &self.verified)?;
        self.folder.commit(part, org, *upload).map_err(write_error)?;
        // The archive is stored. Without the record its file is hashed again when needed.
        if let Err(error) = self.records.set_archive(*upload, &info) {
            log::warn!("upload {upload} of {org}: it is stored but could not be recorded: {error}");
        }
        drop(self.lock);
        Ok(StoredUpload {
            key: grant::archive_key(org, *upload),
            md5: info.md5,
        })
    }
}

fn write_error(error: io::Error) -> ApiError {
    match disk::is_full(&error) {
        true => no_space(),
        false => internal(format!("writing an upload: {error}")),
    }
}

fn record_error(error: RecordError) -> ApiError {
    match error {
        RecordError::Full => no_space(),
        RecordError::Broken(reason) => internal(reason),
    }
}

fn no_space() -> ApiError {
    ApiError::new(
        507,
        "InsufficientStorage",
        "the service has no space for the upload; try again later",
    )
}

fn internal(reason: impl ToString) -> ApiError {
    ApiError::internal(reason.to_string())
}

#[cfg(test)]
mod tests;
