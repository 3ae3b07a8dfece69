//! What requests need of a replica: keys, regions, grants, builds, logs, images.
//!
//! In: authorized requests. Out: answers, or an [`ApiError`]: 503 with `Retry-After` while the
//! database or the store is away. Nothing is cached, so that every replica answers alike, and a
//! revoked key is refused with the next request. An upload goes to the store; the first build of it
//! reads the object once and pins its content.

use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use md5::{Digest as _, Md5};
use sha2::Sha256;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::Instant;

use super::SharedParts;
use super::database::DatabaseError;
use super::logs::{self, LogError};
use super::migrate::{self, SchemaError};
use super::records::{Creation, PinnedArchive, SharedRecords};
use super::store::{ObjectStore, StoreError};
use crate::config::{CloudConfig, Role};
use crate::io::backend::{ApiFuture, Backend, BackendFuture, ImageSource, grant_json};
use crate::io::build_log::{self, BuildLog, LogPage};
use crate::io::build_service::CreateResult;
use crate::io::keys::{KeySnapshot, key_in};
use crate::io::records::RecordError;
use crate::io::upload::StoredUpload;
use crate::limits::KEY_BYTES;
use crate::proto::api_error::{ApiError, ErrorHeader};
use crate::proto::build::{self, ArchiveInfo, Build, BuildFilter, BuildRequest, Org, Slug, UploadRecord};
use crate::proto::grant::{GrantTerms, UploadGrant, archive_key};
use crate::proto::keys::{self, EnvKey, KeyHolder, KeySet, Sha256Digest};
use crate::proto::log_query::LogQuery;
use crate::proto::metrics::{CloudMetrics, CloudSnapshot, CreateOutcome};
use crate::proto::queue::QueueFull;
use crate::proto::regions::Regions;
use crate::proto::route::RequestPath;
use crate::proto::scale::object_keys::image_key;
use crate::proto::scale::post::StoreFields;
use crate::proto::verify::{self, FileCheck, VerifiedUpload};
use edge_runner_http::common::random;
use edge_runner_http::procfs;
use edge_runner_http::server::ConnState;
use edge_runner_proto::config::MetricsAccess;
use edge_runner_proto::limits::RETRY_AFTER_S;
use edge_runner_proto::uuid::Uuid;

/// The setting with the regions.
pub const REGIONS: &str = "regions";

/// How long the state of database and store counts, so that probes do not become load.
const STATE_FOR: Duration = Duration::from_secs(1);

/// Bytes of a log that hold a page: as JSON it is no shorter, and the last line may exceed it.
const LOG_WINDOW_BYTES: u64 = build_log::BUILD_LOG_PAGE_BYTES_MAX as u64 + 64 * 1024;

/// A replica, as requests see it.
pub struct SharedService {
    records: Arc<SharedRecords>,
    store: Arc<ObjectStore>,
    metrics: Arc<CloudMetrics>,
    metrics_need_key: bool,
    role: Role,
    variables: Vec<EnvKey>,
    /// The keys of `variables`.
    variable_keys: KeySet,
    size_max: u64,
    grant_ms: u64,
    pending_max: usize,
    /// One permit per archive that is read.
    reads: Semaphore,
    /// The last state, and when it was found.
    state: Mutex<Option<(Instant, Option<&'static str>)>>,
    /// Closed when this replica's worker claims nothing any more.
    claiming: watch::Receiver<()>,
    /// Running builds of this replica's worker.
    busy: watch::Receiver<usize>,
}

impl SharedService {
    pub fn new(
        config: &CloudConfig,
        role: Role,
        (records, store, metrics): SharedParts,
        (claiming, busy): (watch::Receiver<()>, watch::Receiver<usize>),
    ) -> SharedService {
        SharedService {
            records,
            store,
            metrics,
            metrics_need_key: config.metrics == MetricsAccess::Key,
            role,
            variables: config.keys.clone(),
            variable_keys: KeySet::new(&config.keys, &[]),
            size_max: config.context_max,
            grant_ms: u64::try_from(config.grant_ttl.as_millis()).unwrap_or(u64::MAX),
            pending_max: config.pending_max,
            reads: Semaphore::new(config.uploads_max),
            state: Mutex::default(),
            claiming,
            busy,
        }
    }

    /// Looks the key of a request up.
    async fn keys(&self, head: &Parts) -> (KeySnapshot<'_>, Result<(), ApiError>) {
        let needs_key = RequestPath::new(head.uri.path())
            .needed_key(self.metrics_need_key)
            .is_some();
        // A key of another length cannot match.
        let key = key_in(&head.headers).filter(|key| needs_key && KEY_BYTES.contains(&key.len()));
        let (mut stored, mut readable) = (None, Ok(()));
        if let Some(key) = key.filter(|key| self.variable_keys.find(key).is_none()) {
            match self.records.key(&keys::hash(key)).await {
                Ok(found) => stored = found,
                Err(error) => readable = Err(refusal(error)),
            }
        }
        let known = KeySet::new(&self.variables, stored.as_slice());
        (KeySnapshot::of(known), readable)
    }

    /// Tells whether the key with this digest still opens the private surface of an organization.
    async fn grants_access(&self, hash: &Sha256Digest, org: &Org) -> Result<bool, ApiError> {
        if self.variable_keys.grants_access(hash, org) {
            return Ok(true);
        }
        let stored = self.records.key(hash).await.map_err(refusal)?;
        Ok(KeySet::new(&[], stored.as_slice()).grants_access(hash, org))
    }

    /// Returns the regions.
    ///
    /// # Errors
    /// 503 or 500.
    async fn regions(&self) -> Result<Arc<Regions>, ApiError> {
        match self.records.setting(REGIONS).await.map_err(refusal)? {
            None => Ok(Arc::default()),
            Some(text) => Regions::parse(text.as_bytes())
                .map(Arc::new)
                .map_err(|error| ApiError::internal(format!("the regions in the database: {error}"))),
        }
    }

    /// Returns what keeps this replica from its work: `records` without the database, `schema` if
    /// it has to be migrated, `regions` if they are invalid, `store` without the object store.
    async fn obstacle(&self) -> Option<&'static str> {
        let mut state = self.state.lock().await;
        if let Some((at, found)) = *state
            && at.elapsed() < STATE_FOR
        {
            return found;
        }
        let found = self.look().await;
        *state = Some((Instant::now(), found));
        found
    }

    async fn look(&self) -> Option<&'static str> {
        match migrate::check(&self.records.database).await {
            Err(SchemaError::Database(_)) => return Some("records"),
            Err(SchemaError::Old | SchemaError::Later { .. }) => return Some("schema"),
            Ok(()) => {}
        }
        match self.regions().await {
            Err(_) => Some("regions"),
            Ok(_) => self.store.check().await.is_err().then_some("store"),
        }
    }

    /// Returns what the metrics show of this moment.
    async fn snapshot(&self) -> CloudSnapshot<'_> {
        CloudSnapshot {
            role: self.role.name(),
            queue: self.records.queue().await.ok(),
            running: *self.busy.borrow(),
            database: self.records.database.metrics(),
            store: Some(self.store.metrics()),
            process: procfs::process(),
        }
    }

    /// Issues a grant of the store. The store need not be there.
    ///
    /// # Errors
    /// 503 or 500.
    async fn grant(&self, to: &KeyHolder, region: &Slug) -> Result<UploadGrant<StoreFields>, ApiError> {
        let mut upload = UploadRecord {
            id: Uuid::v4(random()),
            org: to.org.clone(),
            region: region.clone(),
            expires_ms: 0,
            sealed: false,
            key: Some(to.hash),
            info: None,
        };
        let inserted = self.records.insert_upload(&mut upload, self.grant_ms).await;
        inserted.map_err(refusal)?;
        Ok(self.store.grant(GrantTerms {
            org: &upload.org,
            upload: upload.id,
            region: &upload.region,
            url: "",
            size_max: self.size_max,
            expires_ms: upload.expires_ms,
        }))
    }

    /// Creates a build, or finds one with the same archive, region and build file that succeeded,
    /// or with the same upload that has not ended.
    ///
    /// # Errors
    /// 400, 403, 429, 500 or 503.
    async fn create(&self, org: Org, wanted: BuildRequest, base: String) -> Result<CreateResult, ApiError> {
        let found = self.records.upload(wanted.upload).await.map_err(refusal)?;
        let (record, archive) = found.map(|found| (found.record, found.archive)).unzip();
        let upload = wanted.check_upload(&org, record)?;
        if let Some(key) = &upload.key
            && !self.grants_access(key, &org).await?
        {
            return Err(verify::revoked());
        }
        let archive = match archive.flatten() {
            Some(archive) => archive,
            None => {
                let pinned = self.pin(&upload).await;
                // What is not there, or cannot be read, is no archive.
                if !matches!(&pinned, Err(error) if error.status >= 500 || *error == build::nothing_uploaded()) {
                    self.metrics.archive(pinned.is_ok());
                }
                pinned?
            }
        };
        let id = Uuid::v4(random());
        let created = self
            .records
            .create(id, &wanted, &org, archive, base, self.pending_max)
            .await;
        let created = created.map_err(refusal)?;
        let outcome = match &created {
            Creation::Made(_) => Some(CreateOutcome::Created),
            Creation::Waiting(_) => Some(CreateOutcome::Repeated),
            Creation::Cached(_) => Some(CreateOutcome::Cached),
            Creation::Full => Some(CreateOutcome::Full),
            Creation::Gone => None,
        };
        if let Some(outcome) = outcome {
            self.metrics.created(outcome);
        }
        match created {
            Creation::Made(build) | Creation::Waiting(build) => Ok(CreateResult { build, cached: false }),
            Creation::Cached(build) => Ok(CreateResult { build, cached: true }),
            Creation::Full => {
                let pending_max = self.pending_max;
                Err(ApiError::too_many(QueueFull { pending_max }.to_string()))
            }
            Creation::Gone => Err(build::nothing_uploaded()),
        }
    }

    /// Reads an archive once, checks it, and returns what identifies its content.
    async fn pin(&self, upload: &UploadRecord) -> Result<PinnedArchive, ApiError> {
        let _permit = self.reads.try_acquire().map_err(|_| {
            ApiError::new(503, "SlowDown", "too many archives are being read; try again later")
                .with_header(ErrorHeader::RetryAfterS(RETRY_AFTER_S))
        })?;
        let verified = VerifiedUpload {
            org: upload.org.clone(),
            upload: upload.id,
            // The store has checked the time of the upload.
            expires_ms: u64::MAX,
            size: (1, self.size_max),
        };
        let mut check = FileCheck::new(&verified, self.size_max);
        let (mut md5, mut sha256, mut refused) = (Md5::new(), Sha256::new(), None);
        let mut sink = |piece: Bytes| {
            check.handle_data(&piece).map_err(|error| {
                refused = Some(error);
                io::Error::other("the archive is refused")
            })?;
            md5.update(&piece);
            sha256.update(&piece);
            Ok(())
        };
        let key = archive_key(&upload.org, upload.id);
        let read = self.store.fetch(&key, None, &mut sink).await;
        if let Some(error) = refused {
            return Err(error);
        }
        let etag = read.map_err(store_refusal)?.ok_or_else(build::nothing_uploaded)?;
        let info = ArchiveInfo {
            size: check.handle_end(0)?,
            md5: md5.finalize().into(),
            sha256: sha256.finalize().into(),
            inode: 0,
            modified_ns: 0,
        };
        Ok(PinnedArchive { info, etag })
    }

    /// Returns a build.
    ///
    /// # Errors
    /// 404, 500 or 503.
    async fn build(&self, org: &Org, id: Uuid) -> Result<Build, ApiError> {
        let found = self.records.build(org, id).await.map_err(refusal)?;
        found.ok_or_else(ApiError::unknown_build)
    }

    /// Returns a page of builds and their total number.
    ///
    /// # Errors
    /// 500 or 503.
    async fn list(&self, org: &Org, filter: &BuildFilter) -> Result<(Vec<Build>, u64), ApiError> {
        self.records.list(org, filter).await.map_err(refusal)
    }

    /// Returns a page of a build's log; `InvalidInput` for a token of another log.
    ///
    /// # Errors
    /// 500 or 503.
    async fn log_page(&self, id: Uuid, lines: LogQuery) -> Result<io::Result<LogPage>, ApiError> {
        let start = match build_log::page_start(lines.token.as_deref()) {
            Ok(start) => start,
            Err(error) => return Ok(Err(error)),
        };
        // The byte before the page shows whether a line begins there.
        let from = start.saturating_sub(1);
        let end = start.saturating_add(LOG_WINDOW_BYTES);
        let read = logs::read(&self.records, &self.store, id, from, end).await;
        let (first, bytes) = read.map_err(|error| match error {
            LogError::Database(error) => refusal(error),
            LogError::Store(error) => store_refusal(error),
            LogError::File(error) => ApiError::internal(error.to_string()),
        })?;
        let skipped = from
            .checked_sub(first)
            .and_then(|skipped| usize::try_from(skipped).ok());
        let Some(mut bytes) = skipped.and_then(|skipped| bytes.get(skipped..)) else {
            return Ok(Err(io::ErrorKind::InvalidInput.into()));
        };
        Ok(BuildLog::read_lines(&mut bytes, start, lines.limit))
    }
}

impl Backend for SharedService {
    fn recover(&self) -> BackendFuture<'_, Result<(), RecordError>> {
        Box::pin(ready(Ok(())))
    }

    fn busy(&self) -> watch::Receiver<usize> {
        self.busy.clone()
    }

    fn ended(&self) -> BackendFuture<'_, ()> {
        let (mut claiming, mut busy) = (self.claiming.clone(), self.busy.clone());
        Box::pin(async move {
            while claiming.changed().await.is_ok() {}
            let _ = busy.wait_for(|busy| *busy == 0).await;
        })
    }

    fn keys<'a>(&'a self, head: &'a Parts) -> BackendFuture<'a, (KeySnapshot<'a>, Result<(), ApiError>)> {
        Box::pin(SharedService::keys(self, head))
    }

    fn regions(&self) -> ApiFuture<'_, Arc<Regions>> {
        Box::pin(SharedService::regions(self))
    }

    fn has_api(&self) -> bool {
        self.role != Role::Worker
    }

    /// The workers have the command.
    fn has_builds(&self) -> bool {
        true
    }

    fn obstacle(&self) -> BackendFuture<'_, Option<&'static str>> {
        Box::pin(SharedService::obstacle(self))
    }

    fn snapshot(&self) -> BackendFuture<'_, CloudSnapshot<'_>> {
        Box::pin(SharedService::snapshot(self))
    }

    fn grant<'a>(&'a self, to: &'a KeyHolder, region: &'a Slug, _: &'a str) -> ApiFuture<'a, String> {
        Box::pin(async move { grant_json(&SharedService::grant(self, to, region).await?) })
    }

    fn receive<'a>(&'a self, _: &'a Parts, _: Incoming, _: &'a ConnState) -> ApiFuture<'a, StoredUpload> {
        Box::pin(ready(Err(ApiError::not_found("uploads go to the URL of their grant"))))
    }

    fn create(&self, org: Org, wanted: BuildRequest, base: String) -> ApiFuture<'_, CreateResult> {
        Box::pin(SharedService::create(self, org, wanted, base))
    }

    fn build<'a>(&'a self, org: &'a Org, id: Uuid) -> ApiFuture<'a, Build> {
        Box::pin(SharedService::build(self, org, id))
    }

    fn list(&self, org: Org, filter: BuildFilter) -> ApiFuture<'_, (Vec<Build>, u64)> {
        Box::pin(async move { SharedService::list(self, &org, &filter).await })
    }

    fn log_page(&self, id: Uuid, lines: LogQuery) -> ApiFuture<'_, io::Result<LogPage>> {
        Box::pin(SharedService::log_page(self, id, lines))
    }

    fn image(&self, build: &Build, name: &str, method: &str) -> ImageSource {
        ImageSource::Link(self.store.link(method, &image_key(build, name)))
    }
}

fn refusal(error: DatabaseError) -> ApiError {
    match error {
        DatabaseError::Unavailable(_) => {
            log::warn!("{error}");
            ApiError::unavailable()
        }
        DatabaseError::Broken(_) => ApiError::internal(error.to_string()),
    }
}

fn store_refusal(error: StoreError) -> ApiError {
    log::warn!("{error}");
    ApiError::unavailable()
}
