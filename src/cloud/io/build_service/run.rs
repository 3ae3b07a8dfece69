//! The life of one build, from the queue to the record of its result.
//!
//! In: a pending build. Out: its record in a final state, or still `building` if the service stops
//! first. A record that finds no disk space is retried until the stop.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{BuildService, blocking};
use crate::io::build_log::BuildLog;
use crate::io::builder::{self, BuildJob, RunOutcome};
use crate::io::guard;
use crate::io::records::RecordError;
use crate::proto::build::{Build, BuildChange, Org};
use crate::proto::metrics::ClaimKind;
use crate::proto::queue;
use edge_runner_http::common::{lock, unix_time_ms};
use edge_runner_http::shutdown::Shutdown;
use edge_runner_http::tasks;
use edge_runner_proto::uuid::Uuid;

/// Delay between attempts to record a result.
const RECORD_AGAIN: Duration = Duration::from_secs(1);

/// The function that runs a build; tests replace it.
pub type BuildRunner =
    Arc<dyn Fn(BuildJob, BuildLog, Shutdown) -> Pin<Box<dyn Future<Output = RunOutcome> + Send>> + Send + Sync>;

/// Returns the runner that executes the builder command.
pub fn runner() -> BuildRunner {
    Arc::new(|job, log, stop| Box::pin(builder::run(job, log, stop)))
}

/// Why the archive of a build cannot be opened.
#[derive(Debug, thiserror::Error)]
enum OpenArchiveError {
    #[error("unpack: the archive is not there any more")]
    Missing,
    #[error("unpack: opening the archive: {0}")]
    Io(#[source] io::Error),
}

/// The stage of a running build.
#[derive(Clone, Debug)]
pub enum RunStage {
    /// The archive is unpacked or the command runs.
    Running,
    /// The command has exited.
    Exited,
    /// The result is known but not recorded.
    Finished(Box<Build>),
    /// The result is recorded; the scratch folder is being removed.
    Recorded,
}

/// Waits for a run and the removal of its scratch folder.
pub(in crate::io) async fn ended(run: &mut JoinHandle<RunOutcome>, scratch: &Path) -> RunOutcome {
    match run.await {
        Ok(outcome) => outcome,
        Err(_) => {
            builder::clean_up(scratch).await;
            RunOutcome::Failed("build: the service failed while it ran; its log says why".into())
        }
    }
}

/// A slot of a running build, released on drop.
struct RunPermit {
    service: Arc<BuildService>,
    id: Uuid,
}

impl RunPermit {
    /// Takes the slot of a build that is already counted in `busy`.
    fn take(service: &Arc<BuildService>, id: Uuid, stage: RunStage) -> (RunPermit, watch::Sender<RunStage>) {
        let (stage_sender, stage) = watch::channel(stage);
        lock(&service.stages).insert(id, stage);
        let service = service.clone();
        (RunPermit { service, id }, stage_sender)
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        lock(&self.service.stages).remove(&self.id);
        lock(&self.service.queue).finish(self.id);
        self.service.busy.send_modify(|busy| *busy -= 1);
        self.service.start_pending();
    }
}

impl BuildService {
    /// Starts waiting builds while slots are free.
    pub(super) fn start_pending(self: &Arc<Self>) {
        while self.command.is_some() && !self.stop.is_set() {
            let next = lock(&self.queue).start_next();
            let Some((org, id)) = next else {
                return;
            };
            self.busy.send_modify(|busy| *busy += 1);
            tasks::spawn(self.clone().run_build(org, id));
        }
    }

    async fn run_build(self: Arc<Self>, org: Org, id: Uuid) {
        let (_permit, stage_sender) = RunPermit::take(&self, id, RunStage::Running);
        let Some(build) = self.begin(&org, id).await else {
            return;
        };
        log::info!(
            "build {id} of {org}: attempt {} of {}",
            build.attempt,
            self.attempts_max
        );
        self.metrics.claimed(ClaimKind::of_attempt(build.attempt));
        let (outcome_sender, known) = oneshot::channel();
        let (service, of, says) = (self.clone(), build.clone(), stage_sender.clone());
        let scratch = self.scratch_path(&build);
        let mut run = None;
        let outcome = match blocking(move || service.job(of, says, outcome_sender)).await {
            // Runs as a task, so that a panic fails only this build.
            Ok((job, log)) => {
                let mut task = tokio::spawn((self.runner)(job, log, self.stop.clone()));
                tokio::select! {
                    biased;
                    Ok(outcome) = known => {
                        run = Some(task);
                        outcome
                    }
                    outcome = ended(&mut task, &scratch) => outcome,
                }
            }
            Err(error) => RunOutcome::Failed(error.to_string()),
        };
        let to = match outcome {
            RunOutcome::Success(image) => Some(BuildChange::Succeed(image)),
            RunOutcome::Failed(reason) => Some(BuildChange::Fail(reason)),
            RunOutcome::TimedOut(reason) => Some(BuildChange::TimeOut(reason)),
            RunOutcome::Interrupted => None,
        };
        match to.and_then(|to| build.change(to, unix_time_ms()).ok()) {
            Some(ended) => {
                stage_sender.send_replace(RunStage::Finished(Box::new(ended.clone())));
                self.record(&build, ended).await;
                stage_sender.send_replace(RunStage::Recorded);
            }
            None => log::info!("build {id} of {org}: interrupted"),
        }
        // The slot is free when the scratch folder is removed.
        if let Some(mut run) = run {
            ended(&mut run, &scratch).await;
        }
    }

    /// Records the failure of a build without attempts left.
    pub(super) async fn fail_exhausted(self: Arc<Self>, build: Build, ended: Build) {
        let (_permit, stage_sender) = RunPermit::take(&self, build.id, RunStage::Finished(Box::new(ended.clone())));
        if let Ok(mut log) = BuildLog::open(&self.log_path(build.id)) {
            log.write_service_line(queue::EXHAUSTED);
        }
        self.metrics.claimed(ClaimKind::Exhausted);
        self.record(&build, ended).await;
        stage_sender.send_replace(RunStage::Recorded);
    }

    /// Records the start of a build. Returns `None` if it must not start.
    async fn begin(self: &Arc<Self>, org: &Org, id: Uuid) -> Option<Build> {
        loop {
            let (service, org) = (self.clone(), org.clone());
            let begun = blocking(move || {
                let Some(build) = service.records.build(&org, id)? else {
                    return Ok(None);
                };
                let Ok(next) = build.change(BuildChange::Start, unix_time_ms()) else {
                    return Ok(None);
                };
                Ok(service.records.update_build(build.status, &next)?.then_some(next))
            });
            match begun.await {
                Ok(begun) => return begun,
                Err(error) => self.wait_to_retry(id, &error).await?,
            }
        }
    }

    /// Returns the scratch folder of a run.
    fn scratch_path(&self, build: &Build) -> PathBuf {
        guard::scratch_dir(&self.data_dir).join(format!("{}-{}", build.id, build.attempt))
    }

    /// Opens the log and the archive of a run.
    fn job(
        &self,
        build: Build,
        stage_sender: watch::Sender<RunStage>,
        outcome_sender: oneshot::Sender<RunOutcome>,
    ) -> Result<(BuildJob, BuildLog), OpenArchiveError> {
        let mut log = BuildLog::open(&self.log_path(build.id)).unwrap_or_else(|error| {
            log::warn!(
                "build {}: its log cannot be opened, and stays as it is: {error}",
                build.id
            );
            BuildLog::discarding()
        });
        if build.attempt > 1 {
            log.write_service_line(&queue::attempt_message(build.attempt, self.attempts_max));
        }
        let archive = self.archives.open(&build.org, build.upload);
        let archive = archive.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OpenArchiveError::Missing,
            _ => OpenArchiveError::Io(error),
        })?;
        let job = BuildJob {
            archive,
            scratch: self.scratch_path(&build),
            images: self.images_path(build.id),
            command: self.command.clone().unwrap_or_default(),
            limits: self.limits,
            env: self.env.clone(),
            on_exit: Box::new(move || {
                stage_sender.send_replace(RunStage::Exited);
            }),
            on_outcome: Box::new(move |outcome| {
                let _ = outcome_sender.send(outcome);
            }),
            build,
        };
        Ok((job, log))
    }

    /// Records a result.
    async fn record(self: &Arc<Self>, build: &Build, ended: Build) {
        loop {
            let (service, from, next) = (self.clone(), build.status, ended.clone());
            match blocking(move || service.records.update_build(from, &next)).await {
                Ok(_) => break,
                Err(error) => {
                    if self.wait_to_retry(build.id, &error).await.is_none() {
                        return;
                    }
                }
            }
        }
        self.metrics.ended(ended.status);
        let since = ended.started_ms.unwrap_or(ended.created_ms);
        let took_ms = ended.completed_ms.unwrap_or(since).saturating_sub(since);
        log::info!(
            "build {} of {}: {} after {took_ms} ms",
            build.id,
            build.org,
            ended.status.name()
        );
    }

    /// Waits before a record is retried. Returns `None` if the service stops.
    async fn wait_to_retry(&self, id: Uuid, error: &RecordError) -> Option<()> {
        log::warn!("build {id}: {error}; trying again");
        let mut stop = self.stop.clone();
        tokio::select! {
            () = sleep(RECORD_AGAIN) => Some(()),
            () = stop.wait() => None,
        }
    }
}
