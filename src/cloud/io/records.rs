//! Records of uploads and builds: the interface [`Records`] and its implementation
//! [`SqliteRecords`].
//!
//! In and out: values of [`crate::proto::build`]. A change is durable when its call returns, and
//! atomic across a kill or power failure. A damaged, foreign or newer database is an error and is
//! never overwritten.
//!
//! SQLite was chosen in November 2026: one file, durable commits, and recovery from `SQLITE_FULL`,
//! for a C compiler and 0.68 MB of binary. redb is no smaller (0.74 MB), and its versions for this
//! compiler lack the crash fixes of 4.2.0. fjall has threads of its own, LMDB maps the file and
//! dies by SIGBUS on I/O errors, and sled is an alpha version. A custom journal would be small, but
//! all records would have to fit in memory.

mod sqlite;

use std::path::PathBuf;

pub use sqlite::SqliteRecords;

use crate::proto::build::{ArchiveInfo, Build, BuildFilter, BuildStatus, Org, UploadRecord};
use crate::proto::keys::Sha256Digest;
use crate::proto::sweep::UploadUsage;
use edge_runner_proto::uuid::Uuid;

/// Why a record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The disk is full; nothing was changed.
    #[error("no space is left for a record in the data directory")]
    Full,
    /// Any other error, as a message for the log.
    #[error("the records: {0}")]
    Broken(String),
}

/// Why the database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenRecordsError {
    /// The file is damaged or is not a database.
    #[error(
        "the records of builds in {} are damaged: {reason}; put a copy back, with `-wal` beside it if the copy has that, or \
         move the file away to begin without records",
        .path.display()
    )]
    Damaged { path: PathBuf, reason: String },
    /// The database belongs to another program.
    #[error("{} is the database of another program; name another `--data-dir`", .path.display())]
    Foreign { path: PathBuf },
    /// A later release wrote the database.
    #[error(
        "the records of builds in {} are of version {version}, which a later release wrote; use that release",
        .path.display()
    )]
    Later { path: PathBuf, version: i64 },
    #[error("opening the records of builds in {}: {reason}", .path.display())]
    Io { path: PathBuf, reason: String },
}

/// Stores uploads and builds. Calls block; changes are durable when they return.
pub trait Records: Send + Sync + 'static {
    /// Inserts the upload of a new grant.
    fn insert_upload(&self, upload: &UploadRecord) -> Result<(), RecordError>;
    fn upload(&self, id: Uuid) -> Result<Option<UploadRecord>, RecordError>;
    /// Sets the archive of an upload.
    fn set_archive(&self, id: Uuid, info: &ArchiveInfo) -> Result<(), RecordError>;
    /// Inserts a build and seals its upload, atomically.
    fn insert_build(&self, build: &Build) -> Result<(), RecordError>;
    fn build(&self, org: &Org, id: Uuid) -> Result<Option<Build>, RecordError>;
    /// Returns a page, newest first, and the total number. A hash matches builds of archives that
    /// the requesting key has uploaded.
    fn list(&self, org: &Org, of: &BuildFilter) -> Result<(Vec<Build>, u64), RecordError>;
    /// Returns the newest success with this archive, region and build file.
    fn find_success(
        &self,
        org: &Org,
        archive: &Sha256Digest,
        region: &str,
        file: &str,
    ) -> Result<Option<Build>, RecordError>;
    /// Updates a build if its status is still `expected`. Returns whether it was.
    fn update_build(&self, expected: BuildStatus, next: &Build) -> Result<bool, RecordError>;
    /// Returns the pending and running builds, oldest first.
    fn unfinished(&self) -> Result<Vec<Build>, RecordError>;

    /// Returns up to `max` builds that ended at `until_ms` or earlier, in any order.
    fn builds_ended_until(&self, until_ms: u64, max: usize) -> Result<Vec<Uuid>, RecordError>;
    /// Deletes ended builds; others stay.
    fn delete_builds(&self, ids: &[Uuid]) -> Result<(), RecordError>;
    /// Tells whether a build of any organization exists.
    fn has_build(&self, id: Uuid) -> Result<bool, RecordError>;
    /// Returns up to `max` uploads with ids greater than `after`, ordered by id, for the sweep.
    fn upload_usages(&self, after: Option<Uuid>, max: usize) -> Result<Vec<UploadUsage>, RecordError>;
    /// Returns the same facts about one upload.
    fn upload_usage(&self, id: Uuid) -> Result<Option<UploadUsage>, RecordError>;
    /// Deletes an upload.
    fn delete_upload(&self, id: Uuid) -> Result<(), RecordError>;
}

#[cfg(test)]
mod tests;
