//! All builds: the queue, those that run, and what became of them.
//!
//! In: requests of clients that were let in, and the ends of runs. Out: builds, or a [`ApiError`]. A build is recorded before its
//! client is answered, and begins when one of `--max-builds` places is free. What became of it is recorded before the place is given
//! on; where there is no space for that, it is tried until there is. What a stop of the service cuts off stays `building` in the
//! records, and [`BuildService::recover`] takes it up at the next start. Source: `cloud-interface.md` §4, I-16, I-19, I-20, I-29.

mod run;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::config::CloudConfig;
use crate::io::archives::ArchiveStore;
use crate::io::builder::RunLimits;
use crate::io::records::{RecordError, Records};
use crate::io::upload_locks::UploadLocks;
use crate::limits::RECONCILE_WITHIN;
use crate::proto::api_error::ApiError;
use crate::proto::build::{Build, BuildChange, BuildFilter, BuildRequest, BuildStatus, Org};
use crate::proto::queue::{self, BuildQueue};
use edge_runner_http::common::{lock, random, unix_time_ms};
use edge_runner_http::shutdown::Shutdown;
use edge_runner_http::tasks;
use edge_runner_proto::uuid::Uuid;

use run::{BuildRunner, RunStage};

/// What is kept and where: shared by the rooms of the service.
pub struct BuildService {
    records: Arc<dyn Records>,
    archives: Arc<dyn ArchiveStore>,
    upload_locks: Arc<UploadLocks>,
    data_dir: PathBuf,
    /// Nothing: builds wait until the service is started with a command.
    command: Option<Arc<[OsString]>>,
    limits: RunLimits,
    attempts_max: u32,
    /// The environment of every command.
    env: Vec<(OsString, OsString)>,
    runner: BuildRunner,
    queue: Mutex<BuildQueue>,
    /// Held from a record to its place in the queue, so that both have one order.
    order: Mutex<()>,
    /// Builds whose command runs, or whose end is being recorded.
    stages: Mutex<HashMap<Uuid, watch::Receiver<RunStage>>>,
    /// How many of those there are.
    busy: watch::Sender<usize>,
    stop: Shutdown,
}

/// The answer to a client that wants a build.
#[derive(Debug)]
pub struct CreateResult {
    pub build: Build,
    /// Whether it is an earlier success, so that nothing runs.
    pub cached: bool,
}

impl BuildService {
    /// Puts it together; nothing runs before [`BuildService::recover`].
    pub fn new(
        config: &CloudConfig,
        records: Arc<dyn Records>,
        archives: Arc<dyn ArchiveStore>,
        upload_locks: Arc<UploadLocks>,
        stop: Shutdown,
    ) -> Arc<BuildService> {
        BuildService::with_runner(config, records, archives, upload_locks, stop, run::runner())
    }

    fn with_runner(
        config: &CloudConfig,
        records: Arc<dyn Records>,
        archives: Arc<dyn ArchiveStore>,
        upload_locks: Arc<UploadLocks>,
        stop: Shutdown,
        runner: BuildRunner,
    ) -> Arc<BuildService> {
        let mut env = vec![(OsString::from("PATH"), config.path.clone())];
        env.extend(config.lang.clone().map(|lang| ("LANG".into(), lang)));
        env.extend(config.builder_env.iter().cloned());
        Arc::new(BuildService {
            records,
            archives,
            upload_locks,
            data_dir: config.data_dir.clone(),
            command: config.command.as_deref().map(Arc::from),
            limits: RunLimits {
                timeout: config.build_timeout,
                grace: config.build_grace,
                unpacked_max: config.unpacked_max,
                entries_max: config.entries_max,
            },
            attempts_max: config.attempts_max,
            env,
            runner,
            queue: Mutex::new(BuildQueue::new(config.builds_max, config.pending_max)),
            order: Mutex::new(()),
            stages: Mutex::default(),
            busy: watch::Sender::new(0),
            stop,
        })
    }

    /// Takes up what an earlier run of the service left: builds that waited wait again, those that were cut off run again, or fail
    /// when their attempts are used up. What is left of their commands must be gone by then.
    ///
    /// # Errors
    /// When the records cannot be read.
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
            let why = queue::exhausted_message(build.attempt);
            if let Ok(failed) = build.change(BuildChange::Fail(why), unix_time_ms()) {
                self.busy.send_modify(|busy| *busy += 1);
                tasks::spawn(self.clone().fail_exhausted(build, failed));
            }
        }
        self.start_pending();
        Ok(())
    }

    /// Makes a build, or finds one that was made of the same. `base` is scheme and host of the request.
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
        // A task of its own: a client that goes away must not stop it between the record and the queue.
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
        let upload = upload.filter(|upload| upload.org == *org).ok_or_else(|| {
            ApiError::bad_request("there is no upload with this `uploadId`; ask for a grant and upload first")
        })?;
        if upload.region.as_str() != wanted.region {
            let text = format!("the grant of this upload is for the region `{}`", upload.region);
            return Err(ApiError::bad_request(text));
        }
        let info = self
            .archives
            .head(&upload)
            .map_err(|error| ApiError::internal(format!("looking at the archive of upload {}: {error}", upload.id)))?
            .ok_or_else(|| {
                ApiError::bad_request("nothing was uploaded with this grant, or it was deleted since; upload first")
            })?;
        let cached = self
            .records
            .find_success(org, &info.sha256, &wanted.region, &wanted.file);
        if let Some(build) = cached.map_err(broken)? {
            return Ok(CreateResult { build, cached: true });
        }
        lock(&self.queue)
            .reserve(org)
            .map_err(|full| ApiError::too_many(full.to_string()))?;
        let id = Uuid::v4(random());
        let build = Build::new(id, &upload, &info, wanted.file.clone(), base, unix_time_ms());
        let _order = lock(&self.order);
        // A kill between an archive's last byte and its record leaves this to be made up for.
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
        Ok(CreateResult { build, cached: false })
    }

    /// Returns a build as it stands. One whose command has ended is waited for, for a while: until the result is recorded.
    ///
    /// # Errors
    /// 404 or 500.
    pub async fn get(&self, org: &Org, id: Uuid) -> Result<Build, ApiError> {
        let unknown = || ApiError::not_found("there is no build with this identifier");
        let fetch = || self.records.build(org, id).map_err(broken)?.ok_or_else(unknown);
        let build = fetch()?;
        if build.status != BuildStatus::Building {
            return Ok(build);
        }
        let stage = lock(&self.stages).get(&id).cloned();
        let Some(mut stage) = stage else {
            // It is about to run again, or its end was recorded a moment ago.
            return fetch();
        };
        if matches!(*stage.borrow(), RunStage::Running) {
            return Ok(build);
        }
        // The other end is dropped when there is nothing to record.
        let recorded = async { drop(stage.wait_for(|stage| matches!(stage, RunStage::Recorded)).await) };
        let _ = timeout(RECONCILE_WITHIN, recorded).await;
        let became = match &*stage.borrow() {
            RunStage::Finished(build) => Some(build.clone()),
            RunStage::Running | RunStage::Exited | RunStage::Recorded => None,
        };
        match became {
            // There is no space for the record, but it is known what it will say.
            Some(became) => Ok(*became),
            None => fetch(),
        }
    }

    /// Returns a page of builds and how many there are.
    ///
    /// # Errors
    /// 500.
    pub async fn list(self: &Arc<Self>, org: Org, of: BuildFilter) -> Result<(Vec<Build>, u64), ApiError> {
        let service = self.clone();
        blocking(move || service.records.list(&org, &of)).await.map_err(broken)
    }

    /// Returns where the log of a build is.
    pub fn log_path(&self, id: Uuid) -> PathBuf {
        self.data_dir.join("logs").join(format!("{id}.log"))
    }

    /// Returns the folder of the image that the service keeps of a build.
    pub fn images_path(&self, id: Uuid) -> PathBuf {
        self.data_dir.join("images").join(id.to_string())
    }

    /// Waits until no command runs and nothing is being recorded any more. After the stop was told, that is soon.
    pub async fn idle(&self) {
        let mut busy = self.busy.subscribe();
        let _ = busy.wait_for(|busy| *busy == 0).await;
    }
}

/// Does what waits for the disk on a thread that may.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

fn broken(error: RecordError) -> ApiError {
    ApiError::internal(error.to_string())
}

#[cfg(test)]
mod tests;
