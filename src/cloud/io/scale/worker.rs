//! Runs builds under leases.
//!
//! In: builds that wait, or whose worker has not renewed its lease. Out: their ends, recorded only
//! while the build is still this run's. All leases of a worker are renewed by one statement. A run
//! whose lease is lost, or has not been renewed for two thirds of it, is stopped; so is every run
//! when the service stops, and its build is given back. While the database or the store is away,
//! runs wait for it. [`crate::proto::scale::lease`] decides.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::SharedParts;
use super::database::DatabaseError;
use super::records::{CHANNEL, PinnedArchive, RecordedEnd, SharedRecords, UncertainClaim};
use super::store::{OBJECT_BYTES_MAX, ObjectStore, StoreError};
use crate::config::{CloudConfig, SharedConfig};
use crate::io::build_log::BuildLog;
use crate::io::build_service;
use crate::io::builder::{self, BuildJob, RunLimits, RunOutcome};
use crate::io::{dir, guard};
use crate::proto::build::{Build, BuildChange, Image, ImageLocation};
use crate::proto::grant::archive_key;
use crate::proto::metrics::{ClaimKind, CloudMetrics, LeaseLoss};
use crate::proto::queue;
use crate::proto::scale::lease::{Claim, LeaseTimes};
use crate::proto::scale::object_keys::image_key;
use edge_runner_http::client::RestError;
use edge_runner_http::common::lock;
use edge_runner_http::shutdown::{Shutdown, ShutdownTrigger};
use edge_runner_http::tasks;
use edge_runner_proto::uuid::Uuid;

/// Longest time between two looks for a build; messages of the database only shorten it.
const POLL: Duration = Duration::from_secs(5);

/// Time between two tries of what the database or the store did not do.
const AGAIN: Duration = Duration::from_secs(1);

/// Time between two copies of a log's new lines to the database.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// How often the rest of a stopped run's log is tried to be copied.
const LOG_TRIES: u32 = 3;

/// How often a run that is stopped tries to record its end or to give its build back: for longer
/// than the database needs for a restart.
const STOP_TRIES: u32 = 10;

/// Largest piece of a log in the database.
const LOG_PIECE_BYTES: usize = 256 * 1024;

/// A worker.
pub struct Worker {
    records: Arc<SharedRecords>,
    store: Arc<ObjectStore>,
    data_dir: PathBuf,
    command: Arc<[OsString]>,
    env: Vec<(OsString, OsString)>,
    limits: RunLimits,
    attempts_max: u32,
    times: LeaseTimes,
    slots: Arc<Semaphore>,
    /// Wakes the worker when a build may wait.
    woken: Notify,
    runs: Mutex<HashMap<Uuid, ActiveRun>>,
    /// Number of entries in `runs`.
    busy: watch::Sender<usize>,
    stop: Shutdown,
    metrics: Arc<CloudMetrics>,
}

/// A run that has a lease.
struct ActiveRun {
    attempt: u32,
    /// When the last renewal that succeeded was sent.
    renewed: Instant,
    stop: ShutdownTrigger,
    /// Its lease is lost, and it is stopped.
    is_lost: bool,
}

/// The files of a run, beside its scratch folder.
struct RunFiles {
    log: PathBuf,
    images: PathBuf,
}

/// The local log of a run, and how much of it is in the database.
struct LogCopy<'r> {
    records: &'r SharedRecords,
    run: &'r Build,
    path: &'r Path,
    copied: u64,
}

/// A run that is registered; unregistered on drop.
struct RunEntry<'w> {
    worker: &'w Worker,
    id: Uuid,
    attempt: u32,
    _slot: OwnedSemaphorePermit,
}

impl Drop for RunEntry<'_> {
    fn drop(&mut self) {
        self.worker.forget(self.id, self.attempt);
        self.worker.busy.send_modify(|busy| *busy -= 1);
    }
}

impl Worker {
    /// Creates a worker. The folder `worker` in the data directory is emptied.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new(
        config: &CloudConfig,
        shared: &SharedConfig,
        command: &[OsString],
        (records, store, metrics): SharedParts,
        stop: Shutdown,
    ) -> io::Result<Arc<Worker>> {
        let folder = work_dir(&config.data_dir);
        dir::remove_tree(&folder)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Arc::new(Worker {
            records,
            store,
            data_dir: config.data_dir.clone(),
            command: command.into(),
            env: builder::command_env(config),
            limits: RunLimits::of(config),
            attempts_max: config.attempts_max,
            times: LeaseTimes { lease: shared.lease },
            slots: Arc::new(Semaphore::new(config.builds_max)),
            woken: Notify::new(),
            runs: Mutex::default(),
            busy: watch::Sender::new(0),
            stop,
            metrics,
        }))
    }

    /// Returns the number of running builds.
    pub fn busy(&self) -> watch::Receiver<usize> {
        self.busy.subscribe()
    }

    /// Listens for new builds until the service stops.
    pub async fn listen(self: Arc<Self>) {
        let mut stop = self.stop.clone();
        let listen = async {
            loop {
                if let Err(error) = self.records.database.listen(CHANNEL, &self.woken).await {
                    log::debug!("listening for builds: {error}");
                }
                sleep(AGAIN).await;
            }
        };
        tokio::select! {
            () = listen => {}
            () = stop.wait() => {}
        }
    }

    /// Claims builds while slots are free, until the service stops. `claims` is dropped when the
    /// last one has its run.
    pub async fn run(self: Arc<Self>, claims: watch::Sender<()>) {
        self.claim_builds(&claims).await;
        drop(claims);
    }

    async fn claim_builds(self: &Arc<Self>, claims: &watch::Sender<()>) {
        let mut stop = self.stop.clone();
        let mut was_away = false;
        while !stop.is_set() {
            let slot = tokio::select! {
                slot = self.slots.clone().acquire_owned() => slot.expect("the semaphore is never closed"),
                () = stop.wait() => return,
            };
            // Never dropped halfway, which would leave a build without a run until its lease has
            // passed.
            let mut uncertain = None;
            let claimed = self.records.claim(self.attempts_max, self.times.lease, &mut uncertain);
            match claimed.await {
                Ok(Some(Claim::Run { build, last })) => {
                    self.metrics.claimed(ClaimKind::of_attempt(build.attempt));
                    self.begin(build, last, slot);
                    continue;
                }
                Ok(Some(Claim::Exhausted(build))) => {
                    self.metrics.claimed(ClaimKind::Exhausted);
                    self.metrics.ended(build.status);
                    log::warn!("build {} of {}: its attempts are used up", build.id, build.org);
                    continue;
                }
                Ok(None) => was_away = false,
                Err(error) if !std::mem::replace(&mut was_away, true) => {
                    log::warn!("claiming a build: {error}; retrying")
                }
                Err(_) => {}
            }
            if let Some(claim) = uncertain {
                self.undo(claim, claims.clone());
            }
            drop(slot);
            let pause = if was_away { AGAIN } else { POLL.min(self.times.lease) };
            tokio::select! {
                () = self.woken.notified() => {}
                () = sleep(pause) => {}
                () = stop.wait() => return,
            }
        }
    }

    /// Gives the build of a claim back, if that happened, with the attempt. A stop waits for it as
    /// for a claim.
    fn undo(self: &Arc<Self>, claim: UncertainClaim, claims: watch::Sender<()>) {
        let (worker, mut stop) = (self.clone(), self.stop.clone());
        tasks::spawn(async move {
            let (id, attempt, lease) = (claim.id, claim.attempt, claim.lease.as_str());
            let undo = || worker.records.give_back(id, attempt, false, Some(lease));
            worker.retried(&mut stop, STOP_TRIES, "giving a claim back", undo).await;
            drop(claims);
        });
    }

    /// Renews the leases of all runs, and stops those that lost theirs, until the service has
    /// stopped and none is left.
    pub async fn renew(self: Arc<Self>) {
        let mut stop = self.stop.clone();
        let mut pause = self.times.renew_every();
        loop {
            let is_stopping = stop.is_set();
            if is_stopping {
                lock(&self.runs).values().for_each(|run| run.stop.set());
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.wait(), if !is_stopping => continue,
            }
            let held: Vec<(Uuid, u32)> = lock(&self.runs).iter().map(|(id, run)| (*id, run.attempt)).collect();
            if held.is_empty() {
                if is_stopping {
                    return;
                }
                continue;
            }
            let sent = Instant::now();
            let since = lock(&self.runs)
                .values()
                .filter(|run| !run.is_lost)
                .map(|run| run.renewed.elapsed())
                .max();
            let within = self.times.renew_within(since.unwrap_or_default());
            let renewal = self.records.renew(&held, self.times.lease);
            let renewed = tokio::select! {
                renewed = timeout(within, renewal) => renewed,
                () = stop.wait(), if !is_stopping => continue,
            };
            let mut runs = lock(&self.runs);
            let mine = held.iter().filter_map(|(id, attempt)| {
                let run = runs.get(id).filter(|run| run.attempt == *attempt);
                run.map(|_| *id)
            });
            let mine: Vec<Uuid> = mine.collect();
            match renewed {
                Ok(Ok(kept)) => {
                    pause = self.times.renew_every();
                    for id in mine {
                        let Some(run) = runs.get_mut(&id) else { continue };
                        if kept.contains(&id) {
                            run.renewed = sent;
                        } else if !is_stopping {
                            log::warn!("build {id}: another worker has it; this run is stopped");
                            self.lose(run, LeaseLoss::Taken);
                        }
                    }
                }
                failed => {
                    pause = AGAIN.min(self.times.renew_every());
                    if let Ok(Err(error)) = failed {
                        log::warn!("renewing leases: {error}; retrying");
                    }
                    for id in &mine {
                        if let Some(run) = runs.get_mut(id)
                            && run.renewed.elapsed() >= self.times.give_up_after()
                        {
                            self.lose(run, LeaseLoss::Expired);
                        }
                    }
                }
            }
        }
    }

    /// Registers a claimed build, and runs it. `last` is the number of its last attempt.
    fn begin(self: &Arc<Self>, build: Build, last: u32, slot: OwnedSemaphorePermit) {
        let (trigger, stop) = Shutdown::channel();
        let mut runs = lock(&self.runs);
        // A stop that comes later finds it in `runs`.
        if self.stop.is_set() {
            trigger.set();
        }
        let run = ActiveRun {
            attempt: build.attempt,
            renewed: Instant::now(),
            stop: trigger,
            is_lost: false,
        };
        if let Some(mut earlier) = runs.insert(build.id, run) {
            // Its lease has passed.
            self.lose(&mut earlier, LeaseLoss::Taken);
        }
        drop(runs);
        self.busy.send_modify(|busy| *busy += 1);
        let worker = self.clone();
        tasks::spawn(async move {
            let _entry = RunEntry {
                worker: &worker,
                id: build.id,
                attempt: build.attempt,
                _slot: slot,
            };
            worker.run_build(&build, last, stop).await;
        });
    }

    /// Stops a run that lost its lease.
    fn lose(&self, run: &mut ActiveRun, how: LeaseLoss) {
        if !std::mem::replace(&mut run.is_lost, true) {
            self.metrics.lease_lost(how);
        }
        run.stop.set();
    }

    /// Ends the renewals of a run.
    fn forget(&self, id: Uuid, attempt: u32) {
        let mut runs = lock(&self.runs);
        if runs.get(&id).is_some_and(|run| run.attempt == attempt) {
            runs.remove(&id);
        }
    }

    async fn run_build(&self, build: &Build, last: u32, mut stop: Shutdown) {
        let (id, attempt) = (build.id, build.attempt);
        log::info!("build {id} of {}: attempt {attempt} of {last}", build.org);
        let folder = work_dir(&self.data_dir);
        let files = RunFiles {
            log: folder.join(format!("{id}-{attempt}.log")),
            images: folder.join(format!("{id}-{attempt}")),
        };
        let (outcome, rest) = self.attempt(build, last, &files, &mut stop).await;
        let change = match outcome {
            RunOutcome::Success(image) => match self.keep_image(build, &image, &files.images, &mut stop).await {
                Ok(()) => Some(BuildChange::Succeed(image)),
                Err(RunOutcome::Failed(reason)) => Some(BuildChange::Fail(reason)),
                Err(_) => None,
            },
            RunOutcome::Failed(reason) => Some(BuildChange::Fail(reason)),
            RunOutcome::TimedOut(reason) => Some(BuildChange::TimeOut(reason)),
            RunOutcome::Interrupted => None,
        };
        match change {
            Some(change) => self.record(build, &change, &mut stop).await,
            None => {
                log::info!("build {id} of {}: interrupted", build.org);
                // A stop in order is not the build's, so that it does not count.
                let counts = !self.stop.is_set();
                let give_back = || self.records.give_back(id, attempt, counts, None);
                // Without this the lease passes.
                self.retried(&mut stop, STOP_TRIES, "giving it back", give_back).await;
            }
        }
        self.forget(id, attempt);
        // The slot is free when the scratch folder is removed.
        if let Some(rest) = rest {
            let _ = rest.await;
        }
        let _ = fs::remove_file(&files.log);
        if let Err(error) = dir::remove_tree(&files.images) {
            log::warn!("{}: {error}", files.images.display());
        }
    }

    /// Runs the builder command. The log is in the database when this returns, and the task, if it
    /// goes on, removes the scratch folder.
    async fn attempt(
        &self,
        build: &Build,
        last: u32,
        files: &RunFiles,
        stop: &mut Shutdown,
    ) -> (RunOutcome, Option<JoinHandle<RunOutcome>>) {
        let read = || self.records.log(build.id, 0, u64::MAX);
        let Some((_, earlier)) = self.retried(stop, 1, "reading its log", read).await else {
            return (RunOutcome::Interrupted, None);
        };
        let (mut log, mut copy) = LogCopy::begin(&self.records, build, &files.log, &earlier);
        if build.attempt > 1 {
            log.write_service_line(&queue::attempt_message(build.attempt, last));
        }
        let archive = match self.archive(build, stop).await {
            Ok(archive) => archive,
            Err(outcome) => {
                if let RunOutcome::Failed(reason) = &outcome {
                    log.write_service_line(reason);
                    copy.end(stop).await;
                }
                return (outcome, None);
            }
        };
        let (outcome_sender, mut known) = oneshot::channel();
        let scratch = guard::scratch_dir(&self.data_dir).join(format!("{}-{}", build.id, build.attempt));
        let job = BuildJob {
            build: build.clone(),
            archive: Box::new(archive),
            scratch: scratch.clone(),
            images: files.images.clone(),
            command: self.command.clone(),
            limits: self.limits,
            env: self.env.clone(),
            on_exit: Box::new(|| ()),
            on_outcome: Box::new(move |outcome| {
                let _ = outcome_sender.send(outcome);
            }),
        };
        // Runs as a task, so that a panic fails only this build.
        let mut run = tokio::spawn(builder::run(job, log, stop.clone()));
        let (outcome, is_running) = loop {
            tokio::select! {
                biased;
                Ok(outcome) = &mut known => break (outcome, true),
                outcome = build_service::run::ended(&mut run, &scratch) => break (outcome, false),
                () = sleep(LOG_EVERY) => copy.copy().await,
            }
        };
        copy.end(stop).await;
        (outcome, is_running.then_some(run))
    }

    /// Returns the archive of a build, with the content that its record has.
    async fn archive(&self, build: &Build, stop: &mut Shutdown) -> Result<File, RunOutcome> {
        let failed = |reason: String| Err(RunOutcome::Failed(format!("unpack: {reason}")));
        let find = || self.records.upload(build.upload);
        let Some(upload) = self.retried(stop, 1, "looking up its archive", find).await else {
            return Err(RunOutcome::Interrupted);
        };
        let Some(archive) = upload.and_then(|upload| upload.archive) else {
            return failed("the archive is not there any more".into());
        };
        let path = work_dir(&self.data_dir).join(format!("{}-{}.tar.gz", build.id, build.attempt));
        let fetch = || async {
            match self.download(build, &archive, &path).await {
                // The disk of this machine, or what the store has: another try finds the same.
                Err(error @ (StoreError::Changed | StoreError::Unreachable(RestError::Body(_)))) => Ok(Err(error)),
                other => other.map(Ok),
            }
        };
        let over = stop_and_grace(stop.clone(), Duration::ZERO);
        match before(over, self.retried(stop, 1, "fetching its archive", fetch)).await {
            None => Err(RunOutcome::Interrupted),
            Some(Ok(Some(file))) => Ok(file),
            Some(Ok(None)) => failed("the archive is not there any more".into()),
            Some(Err(StoreError::Changed)) => {
                failed("another archive was uploaded after the build was created; ask for another grant".into())
            }
            Some(Err(error)) => failed(error.to_string()),
        }
    }

    /// Reads the archive into a file without a name. `None`: the store does not have it.
    async fn download(&self, build: &Build, pinned: &PinnedArchive, path: &Path) -> Result<Option<File>, StoreError> {
        let broken = |error: io::Error| StoreError::Unreachable(RestError::Body(error));
        let mut file = dir::unnamed_file(path).map_err(broken)?;
        let (mut sha256, mut bytes) = (Sha256::new(), 0);
        let mut sink = |piece: Bytes| {
            bytes += piece.len() as u64;
            if bytes > pinned.info.size {
                return Err(io::Error::other("the archive is longer than its record"));
            }
            sha256.update(&piece);
            file.write_all(&piece)
        };
        let etag = Some(pinned.etag.as_str()).filter(|etag| !etag.is_empty());
        let key = archive_key(&build.org, build.upload);
        if self.store.fetch(&key, etag, &mut sink).await?.is_none() {
            return Ok(None);
        }
        let digest: [u8; 32] = sha256.finalize().into();
        if digest != pinned.info.sha256 {
            return Err(StoreError::Changed);
        }
        file.seek(SeekFrom::Start(0)).map_err(broken)?;
        Ok(Some(file))
    }

    /// Puts an image that the command left as a file into the store.
    async fn keep_image(
        &self,
        build: &Build,
        image: &Image,
        folder: &Path,
        stop: &mut Shutdown,
    ) -> Result<(), RunOutcome> {
        let ImageLocation::Stored(name) = &image.location else {
            return Ok(());
        };
        if image.size > OBJECT_BYTES_MAX {
            let reason = format!("image: it has more than the {OBJECT_BYTES_MAX} bytes that the object store takes");
            return Err(RunOutcome::Failed(reason));
        }
        let (key, path) = (image_key(build, name), folder.join(name));
        let put = || async {
            match File::open(&path) {
                Ok(file) => match self.store.put(&key, file, image.size).await {
                    // The file: another try finds the same.
                    Err(StoreError::Unreachable(RestError::Body(error))) => Ok(Err(error)),
                    put => put.map(|_| Ok(())),
                },
                Err(error) => Ok(Err(error)),
            }
        };
        // As a command does, it gets some time.
        let over = stop_and_grace(stop.clone(), self.limits.grace);
        match before(over, self.retried(stop, 1, "storing its image", put)).await {
            None => Err(RunOutcome::Interrupted),
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(RunOutcome::Failed(format!("image: reading it: {error}"))),
        }
    }

    /// Records the end of a run, as soon as the database is there and while the build is the run's.
    async fn record(&self, build: &Build, change: &BuildChange, stop: &mut Shutdown) {
        let recorded = self.retried(stop, STOP_TRIES, "recording its end", || {
            self.records.record(build, change)
        });
        match recorded.await {
            Some(RecordedEnd::Recorded) => {
                self.metrics.ended(change.status());
                log::info!("build {} of {}: ended", build.id, build.org);
            }
            lost => {
                let mut runs = lock(&self.runs);
                let run = runs.get_mut(&build.id).filter(|run| run.attempt == build.attempt);
                if let Some(run) = run.filter(|_| lost.is_some()) {
                    self.lose(run, LeaseLoss::Fenced);
                }
                log::warn!(
                    "build {}: its end is not recorded, since another run has it or will",
                    build.id
                );
            }
        }
    }

    /// Repeats what may succeed later, `least` times at least. `None`: the run is stopped.
    async fn retried<T, E: std::fmt::Display, F: Future<Output = Result<T, E>>>(
        &self,
        stop: &mut Shutdown,
        least: u32,
        what: &str,
        mut act: impl FnMut() -> F,
    ) -> Option<T> {
        let mut tries = 0;
        loop {
            match act().await {
                Ok(done) => return Some(done),
                Err(error) if tries == 0 => log::warn!("{what}: {error}; retrying"),
                Err(_) => {}
            }
            tries += 1;
            tokio::select! {
                biased;
                () = stop.wait(), if tries >= least => return None,
                () = sleep(AGAIN) => {}
            }
        }
    }
}

impl<'r> LogCopy<'r> {
    /// Opens the log of a run, which goes on where an earlier attempt ended.
    fn begin(records: &'r SharedRecords, run: &'r Build, path: &'r Path, earlier: &[u8]) -> (BuildLog, LogCopy<'r>) {
        let open = || {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
            file.write_all(earlier)?;
            BuildLog::open(path)
        };
        let log = open().unwrap_or_else(|error: io::Error| {
            log::warn!(
                "build {}: its log cannot be opened, and stays as it is: {error}",
                run.id
            );
            BuildLog::discarding()
        });
        let copied = earlier.len() as u64;
        (
            log,
            LogCopy {
                records,
                run,
                path,
                copied,
            },
        )
    }

    /// Copies what is new. What fails is tried again with the next copy.
    async fn copy(&mut self) {
        if let Err(error) = self.copy_all().await {
            log::debug!("build {}: copying its log: {error}", self.run.id);
        }
    }

    /// Copies the rest, as soon as the database is there; a run that is stopped has a few tries.
    async fn end(&mut self, stop: &Shutdown) {
        let mut tries = 0;
        while let Err(error) = self.copy_all().await {
            tries += 1;
            if tries == 1 {
                log::warn!("build {}: copying its log: {error}; retrying", self.run.id);
            }
            if tries >= LOG_TRIES && stop.is_set() {
                return;
            }
            sleep(AGAIN).await;
        }
    }

    async fn copy_all(&mut self) -> Result<(), DatabaseError> {
        loop {
            let piece = self.next_piece().unwrap_or_default();
            if piece.is_empty() || !self.records.append_log(self.run, self.copied, &piece).await? {
                return Ok(());
            }
            self.copied += piece.len() as u64;
        }
    }

    /// Reads complete lines that are not copied yet. A line that fails to be written is cut off
    /// again.
    fn next_piece(&self) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.path)?;
        file.seek(SeekFrom::Start(self.copied))?;
        let mut piece = Vec::new();
        file.take(LOG_PIECE_BYTES as u64).read_to_end(&mut piece)?;
        let end = piece.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        piece.truncate(end);
        Ok(piece)
    }
}

/// Waits until a run has been stopped for some time.
async fn stop_and_grace(mut stop: Shutdown, grace: Duration) {
    stop.wait().await;
    sleep(grace).await;
}

/// Waits for a transfer, which may take long, unless something else ends first.
async fn before<T>(over: impl Future<Output = ()>, transfer: impl Future<Output = Option<T>>) -> Option<T> {
    tokio::select! {
        biased;
        done = transfer => done,
        () = over => None,
    }
}

/// Returns the folder of logs, archives and images of this machine's runs.
fn work_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("worker")
}
