//! Deletes expired archives, builds, logs and images.
//!
//! In: records, folders and retention times. A record is deleted before its files, so that a kill
//! leaves files without a record but never the reverse; the first sweep after a start looks for
//! such files. [`crate::proto::sweep`] decides what is due. A clock that was just set, or that the
//! machine has just started with, deletes no record of what is kept for long. Source: decision
//! I-23.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::config::CloudConfig;
use crate::io::archives::ArchiveStore;
use crate::io::records::{RecordError, Records};
use crate::io::upload_locks::UploadLocks;
use crate::limits::SWEEP_STEP;
use crate::proto::build::{Org, Slug};
use crate::proto::metrics::{CloudMetrics, SweepStats};
use crate::proto::sweep::{Retention, SweepAction, UploadUsage};
use edge_runner_http::common::unix_time_ms;
use edge_runner_http::shutdown::Shutdown;
use edge_runner_proto::time::SteadyClock;
use edge_runner_proto::uuid::Uuid;

/// What is due: retention times, at a time in milliseconds since 1970.
#[derive(Clone, Copy)]
struct Due {
    retention: Retention,
    now_ms: u64,
}

/// Sweeps the data directory.
pub struct Sweeper {
    records: Arc<dyn Records>,
    archives: Arc<dyn ArchiveStore>,
    upload_locks: Arc<UploadLocks>,
    data_dir: PathBuf,
    retention: Retention,
    metrics: Arc<CloudMetrics>,
}

impl Sweeper {
    pub fn new(
        config: &CloudConfig,
        records: Arc<dyn Records>,
        archives: Arc<dyn ArchiveStore>,
        upload_locks: Arc<UploadLocks>,
        metrics: Arc<CloudMetrics>,
    ) -> Sweeper {
        Sweeper {
            records,
            archives,
            upload_locks,
            data_dir: config.data_dir.clone(),
            retention: Retention {
                archives: config.keep_archives,
                builds: config.keep_builds,
            },
            metrics,
        }
    }

    /// Sweeps periodically until the service stops.
    pub async fn run(self, mut stop: Shutdown) {
        let sweep = Arc::new(self);
        let mut clock = SteadyClock::new(Instant::now(), unix_time_ms());
        let mut is_first = true;
        loop {
            let now_ms = unix_time_ms();
            let is_steady = clock.handle_look(Instant::now(), now_ms);
            let retention = match is_steady {
                true => sweep.retention,
                false => sweep.retention.by_unsteady_clock(),
            };
            let due = Due { retention, now_ms };
            let stats = spawn_blocking({
                let sweep = sweep.clone();
                move || sweep.once(is_first, due)
            });
            let stats = stats.await;
            sweep
                .metrics
                .swept(stats.as_ref().ok().and_then(|stats| stats.as_ref().ok()).copied());
            match stats {
                Ok(Ok(SweepStats {
                    archives,
                    builds,
                    orphans,
                })) if archives + builds + orphans > 0 => {
                    log::info!("swept: {archives} archives, {builds} builds, {orphans} files without a record");
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => log::warn!("sweeping: {error}; retrying"),
                Err(error) => log::error!("sweeping: {error}"),
            }
            is_first = false;
            tokio::select! {
                () = sleep(sweep.retention.interval()) => {}
                () = stop.wait() => return,
            }
        }
    }

    fn once(&self, is_first: bool, due: Due) -> Result<SweepStats, RecordError> {
        let mut stats = SweepStats::default();
        self.builds(due, &mut stats)?;
        self.uploads(due, &mut stats)?;
        if is_first {
            self.orphans(due.now_ms, &mut stats)?;
        }
        Ok(stats)
    }

    fn builds(&self, due: Due, stats: &mut SweepStats) -> Result<(), RecordError> {
        let Some(until_ms) = due.retention.builds_until(due.now_ms) else {
            return Ok(());
        };
        loop {
            let ended = self.records.builds_ended_until(until_ms, SWEEP_STEP)?;
            if ended.is_empty() {
                return Ok(());
            }
            self.records.delete_builds(&ended)?;
            stats.builds += ended.len();
            for id in ended {
                warn_on_error(&self.log(id), fs::remove_file(self.log(id)));
                warn_on_error(&self.images(id), fs::remove_dir_all(self.images(id)));
            }
        }
    }

    fn uploads(&self, due: Due, stats: &mut SweepStats) -> Result<(), RecordError> {
        let mut after = None;
        loop {
            let held = self.records.upload_usages(after, SWEEP_STEP)?;
            let Some(last) = held.last() else {
                return Ok(());
            };
            after = Some(last.id);
            for of in held
                .iter()
                .filter(|of| due.retention.action(of, due.now_ms) != SweepAction::Keep)
            {
                self.upload(of, due, stats)?;
            }
        }
    }

    fn upload(&self, of: &UploadUsage, due: Due, stats: &mut SweepStats) -> Result<(), RecordError> {
        // The upload is in use; the next sweep decides again.
        let Some(_lock) = self.upload_locks.try_lock(of.id) else {
            return Ok(());
        };
        let Some(of) = self.records.upload_usage(of.id)? else {
            return Ok(());
        };
        match due.retention.action(&of, due.now_ms) {
            SweepAction::Keep => Ok(()),
            SweepAction::DeleteArchive => {
                stats.archives += usize::from(self.delete(&of));
                Ok(())
            }
            SweepAction::Delete => {
                let was_there = self.delete(&of);
                stats.archives += usize::from(was_there);
                // If deletion failed, the record stays and the next sweep retries.
                match was_there && self.is_there(&of) {
                    true => Ok(()),
                    false => self.records.delete_upload(of.id),
                }
            }
            SweepAction::DeleteIfEmpty if self.is_there(&of) => Ok(()),
            SweepAction::DeleteIfEmpty => self.records.delete_upload(of.id),
        }
    }

    fn is_there(&self, of: &UploadUsage) -> bool {
        let opened = self.archives.open(&of.org, of.id);
        !opened.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Deletes an archive. Returns whether there was one.
    fn delete(&self, of: &UploadUsage) -> bool {
        let was_there = self.is_there(of);
        if let Err(error) = self.archives.delete(&of.org, of.id) {
            log::warn!("sweeping: deleting the archive of upload {}: {error}", of.id);
        }
        was_there
    }

    /// Deletes files without a record, by the age of the file.
    fn orphans(&self, now_ms: u64, stats: &mut SweepStats) -> Result<(), RecordError> {
        let old_build = |entry: &DirEntry| self.retention.is_orphan_build_due(written_ms(entry), now_ms);
        for entry in entries(&self.data_dir.join("logs")) {
            let id = named(&entry, ".log");
            if let Some(id) = id.filter(|_| old_build(&entry))
                && !self.records.has_build(id)?
            {
                stats.orphans += 1;
                warn_on_error(&entry.path(), fs::remove_file(entry.path()));
            }
        }
        for entry in entries(&self.data_dir.join("images")) {
            let id = named(&entry, "");
            if let Some(id) = id.filter(|_| old_build(&entry))
                && !self.records.has_build(id)?
            {
                stats.orphans += 1;
                warn_on_error(&entry.path(), fs::remove_dir_all(entry.path()));
            }
        }
        for folder in entries(&self.data_dir.join("archives")) {
            let Some(org) = folder.file_name().to_str().and_then(Slug::parse) else {
                continue;
            };
            for entry in entries(&folder.path()) {
                self.orphan_archive(&org, &entry, now_ms, stats)?;
            }
        }
        Ok(())
    }

    fn orphan_archive(
        &self,
        org: &Org,
        entry: &DirEntry,
        now_ms: u64,
        stats: &mut SweepStats,
    ) -> Result<(), RecordError> {
        if let Some(id) = named(entry, ".tar.gz")
            && self.retention.is_orphan_archive_due(written_ms(entry), now_ms)
            && self.records.upload(id)?.is_none()
        {
            stats.orphans += 1;
            warn_on_error(&entry.path(), self.archives.delete(org, id));
        }
        Ok(())
    }

    fn log(&self, id: Uuid) -> PathBuf {
        self.data_dir.join("logs").join(format!("{id}.log"))
    }

    fn images(&self, id: Uuid) -> PathBuf {
        self.data_dir.join("images").join(id.to_string())
    }
}

/// Logs a failed deletion. A missing file is not an error.
fn warn_on_error(path: &Path, deleted: io::Result<()>) {
    match deleted {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log::warn!("sweeping: deleting {}: {error}", path.display());
        }
        _ => {}
    }
}

/// Lists a folder; empty if it does not exist.
fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Parses the id in a file name.
fn named(entry: &DirEntry, ending: &str) -> Option<Uuid> {
    Uuid::parse(entry.file_name().to_str()?.strip_suffix(ending)?)
}

/// Returns the modification time; the current time if it is unknown.
fn written_ms(entry: &DirEntry) -> u64 {
    let written = entry
        .metadata()
        .and_then(|of| of.modified())
        .unwrap_or_else(|_| SystemTime::now());
    let since = written.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
