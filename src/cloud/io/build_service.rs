//! Manages all builds: queue, runs and results.
//!
//! In: authorized requests, and the ends of runs. Out: builds, or an [`ApiError`]. A build is
//! recorded before the client gets its answer, and starts when fewer than `--max-builds` run. Its
//! result is recorded before its slot is free; without disk space the record is retried. A build
//! interrupted by a stop stays `building`, and [`BuildService::recover`] continues it at the next
//! start. Source: decisions I-16, I-19, I-20, I-29.

pub(super) mod run;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::time::timeout;

use crate::config::CloudConfig;
use crate::io::archives::ArchiveStore;
use crate::io::builder::{self, RunLimits};
use crate::io::records::{RecordError, Records};
use crate::io::upload_locks::UploadLocks;
use crate::limits::RECONCILE_WITHIN;
use crate::proto::api_error::ApiError;
use crate::proto::build::{self, Build, BuildChange, BuildFilter, BuildRequest, BuildStatus, Org};
use crate::proto::metrics::{CloudMetrics, CreateOutcome};
use crate::proto::queue::{self, BuildQueue};
use edge_runner_http::common::{lock, random, unix_time_ms};
use edge_runner_http::shutdown::Shutdown;
use edge_runner_http::tasks;
use edge_runner_proto::uuid::Uuid;

use run::{BuildRunner, RunStage};

/// The build service.
pub struct BuildService {
    records: Arc<dyn Records>,
    archives: Arc<dyn ArchiveStore>,
    upload_locks: Arc<UploadLocks>,
    data_dir: PathBuf,
    /// `None`: builds wait until the service is started with a command.
    command: Option<Arc<[OsString]>>,
    limits: RunLimits,
    attempts_max: u32,
    /// Environment for every command.
    env: Vec<(OsString, OsString)>,
    runner: BuildRunner,
    queue: Mutex<BuildQueue>,
    /// Held from recording a build to queueing it, so that both have the same order.
    order: Mutex<()>,
    /// Builds that run or whose result is being recorded.
    stages: Mutex<HashMap<Uuid, watch::Receiver<RunStage>>>,
    /// Number of entries in `stages`.
    busy: watch::Sender<usize>,
    stop: Shutdown,
    metrics: Arc<CloudMetrics>,
}

/// Result of [`BuildService::create`].
#[derive(Debug)]
pub struct CreateResult {
    pub build: Build,
    /// Whether an earlier success is returned and nothing runs.
    pub cached: bool,
}

impl BuildService {
    /// Creates the service. Nothing runs before [`BuildService::recover`].
    pub fn new(
        config: &CloudConfig,
        records: Arc<dyn Records>,
        archives: Arc<dyn ArchiveStore>,
        upload_locks: Arc<UploadLocks>,
        stop: Shutdown,
        metrics: Arc<CloudMetrics>,
    ) -> Arc<BuildService> {
        BuildService::with_runner(config, records, archives, upload_locks, stop, metrics, run::runner())
    }

    fn with_runner(
        config: &CloudConfig,
        records: Arc<dyn Records>,
        archives: Arc<dyn ArchiveStore>,
        upload_locks: Arc<UploadLocks>,
        stop: Shutdown,
        metrics: Arc<CloudMetrics>,
        runner: BuildRunner,
    ) -> Arc<BuildService> {
        Arc::new(BuildService {
            records,
            archives,
            upload_locks,
            data_dir: config.data_dir.clone(),
            command: config.command.as_deref().map(Arc::from),
            limits: RunLimits::of(config),
            attempts_max: config.attempts_max,
            env: builder::command_env(config),
            runner,
            queue: Mutex::new(BuildQueue::new(config.builds_max, config.pending_max)),
            order: Mutex::new(()),
            stages: Mutex::default(),
            busy: watch::Sender::new(0),
            stop,
            metrics,
        })
    }

    /// Resumes the unfinished builds of the previous run: pending ones wait again; interrupted ones
    /// run again, or fail without attempts left. Leftover commands must have been killed before.
    ///
    /// # Errors
    /// [`RecordError`] when the records cannot be read.
    pub async fn recover(self: &Arc<Self>) -> Result<(), RecordError> {
        let service = self.clone();
        let unfinished = blocking(move || service.records.unfinished()).await?;
        let plan = queue::recover(unfinished, self.attempts_max);
        if !(plan.interrupted.is_empty() && plan.pending.is_empty() && plan.exhausted.is_empty()) {
            log::info!(
                "builds: {} were interrupted and run again, {} wait, {} had their last attempt",
                plan.interrupted.len(),
                plan.pending.len(),
                plan.exhausted.len()
            );
        }
        lock(&self.queue).restore(&plan);
        for build in plan.exhausted {
            let reason = queue::exhausted_message(build.attempt);
            if let Ok(failed) = build.change(BuildChange::Fail(reason), unix_time_ms()) {
                self.busy.send_modify(|busy| *busy += 1);
                tasks::spawn(self.clone().fail_exhausted(build, failed));
            }
        }
        self.start_pending();
        Ok(())
    }

    /// Creates a build, or finds a success with the same archive, region and build file. `base` is
    /// the scheme and host of the request.
    ///
    /// # Errors
    /// 400, 429 or 500.
    pub async fn create(
        self: &Arc<Self>,
        org: Org,
        wanted: BuildRequest,
        base: String,
    ) -> Result<CreateResult, ApiError> {
        let service = self.clone();
        // Runs as a task, so that a disconnecting client cannot separate record and queue.
        let made = tokio::spawn(async move {
            let turn = service.upload_locks.lock(wanted.upload).await;
            let made = blocking({
                let service = service.clone();
                move || {
                    let _lock = turn;
                    service.make(&org, &wanted, base)
                }
            });
            let made = made.await;
            service.start_pending();
            made
        });
        made.await
            .unwrap_or_else(|error| Err(ApiError::internal(format!("making a build: {error}"))))
    }

    fn make(&self, org: &Org, wanted: &BuildRequest, base: String) -> Result<CreateResult, ApiError> {
        let upload = self.records.upload(wanted.upload).map_err(broken)?;
        let upload = wanted.check_upload(org, upload)?;
        let info = self
            .archives
            .head(&upload)
            .map_err(|error| ApiError::internal(format!("looking at the archive of upload {}: {error}", upload.id)))?
            .ok_or_else(build::nothing_uploaded)?;
        let cached = self
            .records
            .find_success(org, &info.sha256, &wanted.region, &wanted.file);
        if let Some(build) = cached.map_err(broken)? {
            self.metrics.created(CreateOutcome::Cached);
            return Ok(CreateResult { build, cached: true });
        }
        lock(&self.queue).reserve(org).map_err(|full| {
            self.metrics.created(CreateOutcome::Full);
            ApiError::too_many(full.to_string())
        })?;
        let id = Uuid::v4(random());
        let build = Build::new(id, &upload, &info, wanted.file.clone(), base, unix_time_ms());
        let _order = lock(&self.order);
        // A kill may have come between the archive's commit and its record.
        let stored = match upload.info == Some(info) {
            true => Ok(()),
            false => self.records.set_archive(upload.id, &info),
        };
        match stored.and_then(|()| self.records.insert_build(&build)) {
            Ok(()) => lock(&self.queue).push(org.clone(), id),
            Err(error) => {
                lock(&self.queue).release(org);
                return Err(broken(error));
            }
        }
        self.metrics.created(CreateOutcome::Created);
        Ok(CreateResult { build, cached: false })
    }

    /// Returns a build. If its command has exited, waits a limited time for the result.
    ///
    /// # Errors
    /// 404 or 500.
    pub async fn get(&self, org: &Org, id: Uuid) -> Result<Build, ApiError> {
        let fetch = || {
            let found = self.records.build(org, id).map_err(broken)?;
            found.ok_or_else(ApiError::unknown_build)
        };
        let build = fetch()?;
        if build.status != BuildStatus::Building {
            return Ok(build);
        }
        let stage = lock(&self.stages).get(&id).cloned();
        let Some(mut stage) = stage else {
            // The build is about to run again, or its end has just been recorded.
            return fetch();
        };
        if matches!(*stage.borrow(), RunStage::Running) {
            return Ok(build);
        }
        // The sender is dropped if there is nothing to record.
        let recorded = async { drop(stage.wait_for(|stage| matches!(stage, RunStage::Recorded)).await) };
        let _ = timeout(RECONCILE_WITHIN, recorded).await;
        let became = match &*stage.borrow() {
            RunStage::Finished(build) => Some(build.clone()),
            RunStage::Running | RunStage::Exited | RunStage::Recorded => None,
        };
        match became {
            // The result is known, but there is no space to record it.
            Some(became) => Ok(*became),
            None => fetch(),
        }
    }

    /// Returns a page of builds and their total number.
    ///
    /// # Errors
    /// 500.
    pub async fn list(self: &Arc<Self>, org: Org, of: BuildFilter) -> Result<(Vec<Build>, u64), ApiError> {
        let service = self.clone();
        blocking(move || service.records.list(&org, &of)).await.map_err(broken)
    }

    /// Returns the path of a build's log.
    pub fn log_path(&self, id: Uuid) -> PathBuf {
        self.data_dir.join("logs").join(format!("{id}.log"))
    }

    /// Returns the folder of a build's stored image.
    pub fn images_path(&self, id: Uuid) -> PathBuf {
        self.data_dir.join("images").join(id.to_string())
    }

    /// Returns the number of builds that run or whose result is being recorded.
    pub fn busy(&self) -> watch::Receiver<usize> {
        self.busy.subscribe()
    }
}

/// Runs blocking work on a thread for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tasks::blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

fn broken(error: RecordError) -> ApiError {
    ApiError::internal(error.to_string())
}

#[cfg(test)]
mod tests;
