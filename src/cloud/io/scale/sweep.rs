//! Deletes expired archives, builds, logs and images of all replicas.
//!
//! In: records, and retention times. One replica sweeps at a time. An object is deleted before its
//! record, so that a kill leaves a record whose object the next sweep deletes again, and never an
//! object that nothing names. [`crate::proto::sweep`] decides what is due, by the clock of the
//! database; while that may be wrong, what is kept for long stays.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::time::sleep;
use tokio_postgres::Row;

use super::database::{DatabaseError, Statements as _, TRANSACTION_IDLE};
use super::logs::{self, LogError};
use super::records::{SharedRecords, number, optional_number, parsed};
use super::store::{ObjectStore, StoreError};
use crate::config::CloudConfig;
use crate::limits::SWEEP_STEP;
use crate::proto::build::Slug;
use crate::proto::grant::archive_key;
use crate::proto::metrics::{CloudMetrics, SweepStats};
use crate::proto::scale::object_keys::objects_prefix;
use crate::proto::sweep::{Retention, SweepAction, UploadUsage};
use edge_runner_http::shutdown::Shutdown;
use edge_runner_proto::time::SteadyClock;
use edge_runner_proto::uuid::Uuid;

/// The advisory lock of the process that sweeps.
const SWEEP_LOCK: i64 = 0x4552_4343_0001;

/// The columns of [`usage_of`].
macro_rules! usage_columns {
    () => {
        "id, org, expires_ms, etag IS NOT NULL AS has_archive, ended_ms, (SELECT COUNT(*) FROM build \
         WHERE build.upload = upload.id AND status IN ('pending', 'building')) AS unfinished"
    };
}

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
        let mut clock = None;
        loop {
            let swept = match self.records.now_ms().await {
                Err(error) => Err(error),
                Ok(now_ms) => {
                    let now = Instant::now();
                    let clock = clock.get_or_insert_with(|| SteadyClock::new(now, now_ms));
                    let retention = match clock.handle_look(now, now_ms) {
                        true => self.retention,
                        false => self.retention.by_unsteady_clock(),
                    };
                    self.records.alone(self.once(retention, now_ms)).await
                }
            };
            match swept {
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
    async fn once(&self, retention: Retention, now_ms: u64) -> Result<SweepStats, SweepError> {
        let builds = self.builds(retention, now_ms).await?;
        let archives = self.uploads(retention, now_ms).await?;
        logs::move_ended(&self.records, &self.store, &self.data_dir, now_ms).await?;
        Ok(SweepStats {
            archives,
            builds,
            orphans: 0,
        })
    }

    async fn builds(&self, retention: Retention, now_ms: u64) -> Result<usize, SweepError> {
        let mut deleted = 0;
        let Some(until_ms) = retention.builds_until(now_ms) else {
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

    async fn uploads(&self, retention: Retention, now_ms: u64) -> Result<usize, SweepError> {
        let (mut after, mut deleted) = (None, 0);
        loop {
            let held = self.records.upload_usages(after, SWEEP_STEP).await?;
            let Some(last) = held.last() else {
                return Ok(deleted);
            };
            after = Some(last.id);
            let due = held
                .iter()
                .filter(|of| retention.action(of, now_ms) != SweepAction::Keep);
            for of in due {
                let mut failed = None;
                let decide = async |of: UploadUsage| match self.upload(&of, retention, now_ms).await {
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
    async fn upload(&self, of: &UploadUsage, retention: Retention, now_ms: u64) -> Result<bool, StoreError> {
        let key = archive_key(&of.org, of.id);
        match retention.action(of, now_ms) {
            SweepAction::Keep => Ok(false),
            SweepAction::DeleteArchive => self.store.delete(&key).await.map(|()| false),
            SweepAction::Delete => self.store.delete(&key).await.map(|()| true),
            // What was uploaded and not built is not recorded.
            SweepAction::DeleteIfEmpty => self.store.is_there(&key).await.map(|is_there| !is_there),
        }
    }
}

/// The statements of the sweep.
impl SharedRecords {
    /// Runs `sweep` while no other process does. Returns `None` if another one does.
    ///
    /// The lock is that of a transaction, which the database ends, and so the lock, when this
    /// process says nothing for [`TRANSACTION_IDLE`]. Then the sweep is dropped where it waits.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn alone<T>(&self, sweep: impl Future<Output = T>) -> Result<Option<T>, DatabaseError> {
        let mut session = self.database.session().await?;
        let tx = session.transaction().await?;
        let row = tx
            .query_one("SELECT pg_try_advisory_xact_lock($1)", &[&SWEEP_LOCK])
            .await?;
        if !row.try_get::<_, bool>(0)? {
            return Ok(None);
        }
        let hold = async {
            loop {
                sleep(TRANSACTION_IDLE / 3).await;
                if let Err(error) = tx.batch_execute("SELECT 1").await {
                    return error;
                }
            }
        };
        let swept = tokio::select! {
            swept = sweep => Ok(Some(swept)),
            lost = hold => Err(lost),
        };
        drop(tx);
        session.close();
        swept
    }

    /// Deletes ended builds with their logs; others stay.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn delete_builds(&self, ids: &[Uuid]) -> Result<(), DatabaseError> {
        let session = self.database.session().await?;
        let ids: Vec<String> = ids.iter().map(Uuid::to_string).collect();
        let sql = "DELETE FROM build WHERE id = ANY($1) AND completed_ms IS NOT NULL";
        session.execute(sql, &[&ids]).await?;
        Ok(())
    }

    /// Returns up to `max` uploads with ids greater than `after`, ordered by id, for the sweep.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn upload_usages(&self, after: Option<Uuid>, max: usize) -> Result<Vec<UploadUsage>, DatabaseError> {
        let session = self.database.session().await?;
        let sql = concat!(
            "SELECT ",
            usage_columns!(),
            " FROM upload WHERE id > $1 ORDER BY id LIMIT $2"
        );
        // The empty text sorts before every id.
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let rows = session.query(sql, &[&after, &max]).await?;
        rows.iter().map(usage_of).collect()
    }

    /// Locks an upload against new builds while `decide` deletes its archive, and deletes its
    /// record if that says so. An upload that is locked is left to the next sweep.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn delete_upload(
        &self,
        id: Uuid,
        decide: impl AsyncFnOnce(UploadUsage) -> bool,
    ) -> Result<(), DatabaseError> {
        let mut session = self.database.session().await?;
        let tx = session.transaction().await?;
        let id = id.to_string();
        let locked = "SELECT id FROM upload WHERE id = $1 FOR UPDATE SKIP LOCKED";
        if tx.query_opt(locked, &[&id]).await?.is_none() {
            return Ok(());
        }
        // After the lock, so that builds of requests that held it are counted.
        let sql = concat!("SELECT ", usage_columns!(), " FROM upload WHERE id = $1");
        let usage = usage_of(&tx.query_one(sql, &[&id]).await?)?;
        if decide(usage).await {
            tx.execute("DELETE FROM upload WHERE id = $1", &[&id]).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}

/// Reads the columns of `usage_columns`.
fn usage_of(row: &Row) -> Result<UploadUsage, DatabaseError> {
    Ok(UploadUsage {
        id: parsed(row, "id", Uuid::parse)?,
        org: parsed(row, "org", Slug::parse)?,
        expires_ms: number(row, "expires_ms")?,
        has_archive: row.try_get("has_archive")?,
        ended_ms: optional_number(row, "ended_ms")?,
        unfinished: number(row, "unfinished")?,
    })
}
