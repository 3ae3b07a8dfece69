//! The logs of builds: rows of the database while they grow, and an object when they have ended.
//!
//! In: ended builds whose logs are rows. Out: objects of the store, and records that name their
//! sizes. Pages of both are read alike. An object comes before the record that names it, and the
//! rows go with that record. It begins as the images of its build do, and so is deleted with them.

use std::fs;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::database::{DatabaseError, Statements as _};
use super::records::{SharedRecords, attempt_of, int, number, optional_number, parsed};
use super::store::{ObjectStore, StoreError};
use crate::io::dir;
use crate::limits::SWEEP_STEP;
use crate::proto::build::Build;
use crate::proto::scale::object_keys::log_key;
use edge_runner_proto::uuid::Uuid;

/// How long the rows of an ended build stay, since most logs are read then.
const ROWS_FOR_MS: u64 = 60 * 60 * 1000;

/// The setting with the time from which logs become objects, in milliseconds since 1970.
const FROM: &str = "log_objects_from_ms";

/// Why a log was not read or moved.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a file in the data directory: {0}")]
    File(#[from] io::Error),
}

/// Returns at least the bytes of a log from `start` to `end`, as far as they are there, and the
/// offset of the first one.
///
/// # Errors
/// [`LogError`].
pub async fn read(
    records: &SharedRecords,
    store: &ObjectStore,
    id: Uuid,
    start: u64,
    end: u64,
) -> Result<(u64, Vec<u8>), LogError> {
    // The rows are gone when the size is there, so they are looked for first.
    let (first, rows) = records.log(id, start, end).await?;
    if !rows.is_empty() {
        return Ok((first, rows));
    }
    let end = match records.log_size(id).await? {
        Some(size) if size > start => end.min(size),
        _ => return Ok((start, rows)),
    };
    let bytes = store.fetch_part(&log_key(id), start..end).await?;
    Ok((start, bytes))
}

/// Makes objects of the logs of builds that have ended a while ago. Each is a file without a name
/// in `folder` meanwhile.
///
/// # Errors
/// [`LogError`]; the logs that were moved stay so.
pub async fn move_ended(
    records: &SharedRecords,
    store: &ObjectStore,
    folder: &Path,
    now_ms: u64,
) -> Result<(), LogError> {
    let from = records.setting(FROM).await?;
    if from
        .and_then(|from| from.parse().ok())
        .is_none_or(|from: u64| now_ms < from)
    {
        return Ok(());
    }
    loop {
        let due = records
            .logs_ended_until(now_ms.saturating_sub(ROWS_FOR_MS), SWEEP_STEP)
            .await?;
        let mut moved = 0;
        for (id, size) in &due {
            moved += usize::from(move_log(records, store, folder, *id, *size).await?);
        }
        // Those that stay would come again.
        if due.len() < SWEEP_STEP || moved == 0 {
            return Ok(());
        }
    }
}

/// Makes an object of a log of `size` bytes. Returns whether it did: not if another process did so
/// meanwhile, and not of a log with a gap.
async fn move_log(
    records: &SharedRecords,
    store: &ObjectStore,
    folder: &Path,
    id: Uuid,
    size: u64,
) -> Result<bool, LogError> {
    let path = folder.join(format!("{id}.log"));
    // A kill may have left it.
    let _ = fs::remove_file(&path);
    let mut file = dir::unnamed_file(&path)?;
    let mut at = 0;
    while at < size {
        // One row.
        let (first, piece) = records.log(id, at, at + 1).await?;
        if first != at || piece.is_empty() {
            return Ok(false);
        }
        file.write_all(&piece)?;
        at += piece.len() as u64;
    }
    file.seek(SeekFrom::Start(0))?;
    store.put(&log_key(id), file, at).await?;
    records.set_log_object(id, at).await?;
    Ok(true)
}

/// The statements of logs.
impl SharedRecords {
    /// Appends to the log of a run. Returns whether the build is still the run's.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn append_log(&self, run: &Build, start: u64, data: &[u8]) -> Result<bool, DatabaseError> {
        let session = self.database.session().await?;
        // The lock lets no other run begin in between. A call that is repeated, since its answer
        // was lost, finds its row; what was written meanwhile makes that longer.
        let sql = "WITH run AS (SELECT id FROM build WHERE id = $1 AND attempt = $2 AND status = 'building' FOR SHARE), \
                   added AS (INSERT INTO build_log (build, start, data) SELECT id, $3, $4 FROM run \
                   ON CONFLICT (build, start) DO UPDATE SET data = EXCLUDED.data WHERE length(build_log.data) < length(EXCLUDED.data)) \
                   SELECT EXISTS (SELECT 1 FROM run)";
        let row = session
            .query_one(
                sql,
                &[&run.id.to_string(), &attempt_of(run.attempt), &int(start), &data],
            )
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Returns at least the bytes of a log from `start` to `end`, as far as they are there, and the
    /// offset of the first one.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn log(&self, id: Uuid, start: u64, end: u64) -> Result<(u64, Vec<u8>), DatabaseError> {
        let session = self.database.session().await?;
        let sql = "SELECT start, data FROM build_log WHERE build = $1 AND start < $3 AND start + length(data) > $2 ORDER BY start";
        let rows = session.query(sql, &[&id.to_string(), &int(start), &int(end)]).await?;
        let first = rows.first().map_or(Ok(start), |row| number(row, "start"))?;
        let mut bytes = Vec::new();
        for row in &rows {
            bytes.extend_from_slice(row.try_get("data")?);
        }
        Ok((first, bytes))
    }

    /// Returns the bytes of the object that has the log of a build, if one has it.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn log_size(&self, id: Uuid) -> Result<Option<u64>, DatabaseError> {
        let session = self.database.session().await?;
        let row = session
            .query_opt("SELECT log_size FROM build WHERE id = $1", &[&id.to_string()])
            .await?;
        row.map_or(Ok(None), |row| optional_number(&row, "log_size"))
    }

    /// Returns up to `max` builds that ended at `until_ms` or earlier and have logs here, in any
    /// order, and the bytes of these.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn logs_ended_until(&self, until_ms: u64, max: usize) -> Result<Vec<(Uuid, u64)>, DatabaseError> {
        let session = self.database.session().await?;
        let sql = "SELECT build.id, \
                   (SELECT SUM(length(data)) FROM build_log AS piece WHERE piece.build = build.id)::BIGINT AS size \
                   FROM build_log JOIN build ON build.id = build_log.build WHERE start = 0 AND completed_ms <= $1 LIMIT $2";
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let rows = session.query(sql, &[&int(until_ms), &max]).await?;
        rows.iter()
            .map(|row| Ok((parsed(row, "id", Uuid::parse)?, number(row, "size")?)))
            .collect()
    }

    /// Records that an object of `size` bytes has the log of an ended build.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn set_log_object(&self, id: Uuid, size: u64) -> Result<(), DatabaseError> {
        let mut session = self.database.session().await?;
        let tx = session.transaction().await?;
        let id = id.to_string();
        let sql = "UPDATE build SET log_size = $2 WHERE id = $1 AND completed_ms IS NOT NULL";
        tx.execute(sql, &[&id, &int(size)]).await?;
        tx.execute("DELETE FROM build_log WHERE build = $1", &[&id]).await?;
        tx.commit().await
    }

    /// Inserts a piece of such a build's log, unless it is there.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn import_log(&self, id: Uuid, start: u64, data: &[u8]) -> Result<(), DatabaseError> {
        let session = self.database.session().await?;
        let sql = "INSERT INTO build_log (build, start, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        session.execute(sql, &[&id.to_string(), &int(start), &data]).await?;
        Ok(())
    }
}
