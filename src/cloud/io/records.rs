//! Where uploads and builds are recorded: [`Records`] is the interface, [`SqliteRecords`] the one database
//! behind it.
//!
//! In: values of [`crate::proto::build`]. Out: the same, as they were last written. What a call has
//! written is on disk when it returns, and a change of several rows is kept whole or not at all,
//! however the process or the machine ends. Refuses: a database that is damaged, or not ours, or of
//! a later version; it is never made anew over what is there.
//!
//! What was weighed, in November 2026. SQLite is one file, and what was committed survives kills,
//! power cuts and full disks; that is what its own tests are about, for twenty years. After
//! `SQLITE_FULL` it goes on as before. It costs a C compiler and 0.68 MB of the binary, compiled as
//! `.cargo/config.toml` says. redb is pure Rust and no smaller (0.74 MB), and the versions for this
//! compiler lack the repairs of 4.2.0, by whose notes a crash could leave the file unopenable or
//! roll committed changes back, and every I/O error latches: a full disk would end reading too,
//! until it is opened again. fjall is a folder with threads of its own, LMDB maps the file and dies
//! of an I/O error by SIGBUS, sled has been an alpha version for years. A journal of our own would
//! be four hundred lines, small and provable, and all records would have to fit into memory; it
//! stays the way out where half a megabyte is too much.

mod sqlite;

use std::path::PathBuf;

pub use sqlite::SqliteRecords;

use crate::proto::build::{ArchiveInfo, Build, BuildFilter, BuildStatus, Org, UploadRecord};
use crate::proto::keys::Sha256Digest;
use crate::proto::sweep::UploadUsage;
use edge_runner_proto::uuid::Uuid;

/// Why a record was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Nothing of the change was kept.
    #[error("there is no space for a record in the data directory")]
    Full,
    /// In words for the log.
    #[error("the records: {0}")]
    Broken(String),
}

/// Why the database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenRecordsError {
    /// It is no database, or damaged.
    #[error(
        "the records of builds in {} are damaged: {why}; put a copy back, with `-wal` beside it if the copy has that, or \
         move the file away to begin without records",
        .path.display()
    )]
    Damaged { path: PathBuf, why: String },
    /// It is a database, but of something else.
    #[error("{} is the database of another program; name another `--data-dir`", .path.display())]
    Foreign { path: PathBuf },
    /// It was made by a later version of this program.
    #[error(
        "the records of builds in {} are of version {version}, which a later release wrote; use that release",
        .path.display()
    )]
    Later { path: PathBuf, version: i64 },
    #[error("opening the records of builds in {}: {why}", .path.display())]
    Io { path: PathBuf, why: String },
}

/// Records of uploads and builds. Blocks; what was written is on disk when a call returns. Another
/// database follows by another implementation.
pub trait Records: Send + Sync + 'static {
    /// Retention the upload of a new grant.
    fn insert_upload(&self, upload: &UploadRecord) -> Result<(), RecordError>;
    fn upload(&self, id: Uuid) -> Result<Option<UploadRecord>, RecordError>;
    /// Retention what has_archive for an upload.
    fn set_archive(&self, id: Uuid, info: &ArchiveInfo) -> Result<(), RecordError>;
    /// Retention a new build and seals its upload, both or neither.
    fn insert_build(&self, build: &Build) -> Result<(), RecordError>;
    fn build(&self, org: &Org, id: Uuid) -> Result<Option<Build>, RecordError>;
    /// Returns a page, newest first, and how many there are in all. A hash finds builds of archives
    /// that the asking key has uploaded, be it for another build.
    fn list(&self, org: &Org, of: &BuildFilter) -> Result<(Vec<Build>, u64), RecordError>;
    /// Returns the newest success with that archive, by its SHA-256, region and build file.
    fn find_success(
        &self,
        org: &Org,
        archive: &Sha256Digest,
        region: &str,
        file: &str,
    ) -> Result<Option<Build>, RecordError>;
    /// Retention the next value of a build if its status is still the expected one; tells whether it
    /// was.
    fn update_build(&self, expected: BuildStatus, next: &Build) -> Result<bool, RecordError>;
    /// Returns the builds in no final state, oldest first.
    fn unfinished(&self) -> Result<Vec<Build>, RecordError>;

    /// Returns up to `max` builds that ended at `until_ms` or before, in no order.
    fn builds_ended_until(&self, until_ms: u64, max: usize) -> Result<Vec<Uuid>, RecordError>;
    /// Deletes the records of builds; of those that have ended alone.
    fn delete_builds(&self, ids: &[Uuid]) -> Result<(), RecordError>;
    /// Tells whether a build of any organization is recorded.
    fn has_build(&self, id: Uuid) -> Result<bool, RecordError>;
    /// Returns up to `max` uploads whose identifiers follow `after`, in their order, with what a
    /// sweep needs to know.
    fn upload_usages(&self, after: Option<Uuid>, max: usize) -> Result<Vec<UploadUsage>, RecordError>;
    /// Returns the same of one upload.
    fn upload_usage(&self, id: Uuid) -> Result<Option<UploadUsage>, RecordError>;
    /// Deletes the record of an upload.
    fn delete_upload(&self, id: Uuid) -> Result<(), RecordError>;
}

#[cfg(test)]
mod tests;
