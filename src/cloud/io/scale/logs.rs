//! The logs of builds: rows of the database while they grow, and an object when they have ended.
//!
//! In: ended builds whose logs are rows. Out: objects of the store, and records that name their
//! sizes. Pages of both are read alike. An object comes before the record that names it, and the
//! rows go with that record. It begins as the images of its build do, and so is deleted with them.

use std::fs;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::database::DatabaseError;
use super::records::SharedRecords;
use super::store::{ObjectStore, StoreError};
use crate::io::dir;
use crate::limits::SWEEP_STEP;
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
        for (id, size) in &due {
            move_log(records, store, folder, *id, *size).await?;
        }
        if due.len() < SWEEP_STEP {
            return Ok(());
        }
    }
}

/// Makes an object of a log of `size` bytes. Nothing happens if another process did so meanwhile.
async fn move_log(
    records: &SharedRecords,
    store: &ObjectStore,
    folder: &Path,
    id: Uuid,
    size: u64,
) -> Result<(), LogError> {
    let path = folder.join(format!("{id}.log"));
    // A kill may have left it.
    let _ = fs::remove_file(&path);
    let mut file = dir::unnamed_file(&path)?;
    let mut at = 0;
    while at < size {
        // One row.
        let (first, piece) = records.log(id, at, at + 1).await?;
        if first != at || piece.is_empty() {
            return Ok(());
        }
        file.write_all(&piece)?;
        at += piece.len() as u64;
    }
    file.seek(SeekFrom::Start(0))?;
    store.put(&log_key(id), file, at).await?;
    Ok(records.set_log_object(id, at).await?)
}
