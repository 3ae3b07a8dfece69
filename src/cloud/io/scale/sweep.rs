//! Deletes expired archives, builds, logs and images of all replicas.
//!
//! In: records, and retention times. One replica sweeps at a time. An object is deleted before its
//! record, so that a kill leaves a record whose object the next sweep deletes again, and never an
//! object that nothing names. [`crate::proto::sweep`] decides what is due.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::time::sleep;

use super::database::DatabaseError;
use super::logs::{self, LogError};
use super::records::SharedRecords;
use super::store::{ObjectStore, StoreError};
use crate::config::CloudConfig;
use crate::limits::SWEEP_STEP;
use crate::proto::grant::archive_key;
use crate::proto::metrics::{CloudMetrics, SweepStats};
use crate::proto::scale::object_keys::objects_prefix;
use crate::proto::sweep::{Retention, SweepAction, UploadUsage};
use edge_runner_http::shutdown::Shutdown;

/// Sweeps the database and the store.
pub struct SharedSweeper {
    records: Arc<SharedRecords>,
    store: Arc<ObjectStore>,
    retention: Retention,
    data_dir: PathBuf,
    metrics: Arc<CloudMetrics>,
}

/// Why a sweep ended early.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl SharedSweeper {
    pub fn new(
        config: &CloudConfig,
        records: Arc<SharedRecords>,
        store: Arc<ObjectStore>,
        metrics: Arc<CloudMetrics>,
    ) -> SharedSweeper {
        SharedSweeper {
            records,
            store,
            retention: Retention {
                archives: config.keep_archives,
                builds: config.keep_builds,
            },
            data_dir: config.data_dir.clone(),
            metrics,
        }
    }

    /// Sweeps periodically until the service stops.
    pub async fn run(self, mut stop: Shutdown) {
        loop {
            match self.records.alone(self.once()).await {
                // Another replica sweeps.
                Ok(None) => {}
                Ok(Some(Ok(stats))) => {
                    self.metrics.swept(Some(stats));
                    if stats != SweepStats::default() {
                        log::info!("swept: {} uploads, {} builds", stats.archives, stats.builds);
                    }
                }
                Ok(Some(Err(error))) => self.failed(&error),
                Err(error) => self.failed(&error.into()),
            }
            tokio::select! {
                () = sleep(self.retention.interval()) => {}
                () = stop.wait() => return,
            }
        }
    }

    fn failed(&self, error: &SweepError) {
        self.metrics.swept(None);
        log::warn!("sweeping: {error}; retrying");
    }

    /// Returns the numbers of uploads and builds whose objects were deleted.
    async fn once(&self) -> Result<SweepStats, SweepError> {
        let now_ms = self.records.now_ms().await?;
        let builds = self.builds(now_ms).await?;
        let archives = self.uploads(now_ms).await?;
        logs::move_ended(&self.records, &self.store, &self.data_dir, now_ms).await?;
        Ok(SweepStats {
            archives,
            builds,
            orphans: 0,
        })
    }

    async fn builds(&self, now_ms: u64) -> Result<usize, SweepError> {
        let mut deleted = 0;
        let Some(until_ms) = self.retention.builds_until(now_ms) else {
            return Ok(0);
        };
        loop {
            let due = self.records.builds_ended_until(until_ms, SWEEP_STEP).await?;
            if due.is_empty() {
                return Ok(deleted);
            }
            for build in &due {
                // Those of attempts that lost their lease too, and the log.
                for key in self.store.list(&objects_prefix(build.id)).await? {
                    self.store.delete(&key).await?;
                }
            }
            deleted += due.len();
            let ids: Vec<_> = due.iter().map(|build| build.id).collect();
            self.records.delete_builds(&ids).await?;
        }
    }

    async fn uploads(&self, now_ms: u64) -> Result<usize, SweepError> {
        let (mut after, mut deleted) = (None, 0);
        loop {
            let held = self.records.upload_usages(after, SWEEP_STEP).await?;
            let Some(last) = held.last() else {
                return Ok(deleted);
            };
            after = Some(last.id);
            let due = held
                .iter()
                .filter(|of| self.retention.action(of, now_ms) != SweepAction::Keep);
            for of in due {
                let mut failed = None;
                let decide = async |of: UploadUsage| match self.upload(&of, now_ms).await {
                    Ok(is_over) => is_over,
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                };
                self.records.delete_upload(of.id, decide).await?;
                match failed {
                    Some(error) => return Err(error.into()),
                    None => deleted += 1,
                }
            }
        }
    }

    /// Deletes the archive of an upload if it is due. Returns whether the record may go.
    async fn upload(&self, of: &UploadUsage, now_ms: u64) -> Result<bool, StoreError> {
        let key = archive_key(&of.org, of.id);
        match self.retention.action(of, now_ms) {
            SweepAction::Keep => Ok(false),
            SweepAction::DeleteArchive => self.store.delete(&key).await.map(|()| false),
            SweepAction::Delete => self.store.delete(&key).await.map(|()| true),
            // What was uploaded and not built is not recorded.
            SweepAction::DeleteIfEmpty => self.store.is_there(&key).await.map(|is_there| !is_there),
        }
    }
}
