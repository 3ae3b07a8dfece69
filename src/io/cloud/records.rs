//! Where uploads and builds are recorded.

use crate::proto::cloud::build::{Build, Facts, Filter, Org, Status, Upload};
use crate::proto::uuid::Uuid;

/// Why a record was not written or read.
#[derive(Debug)]
pub enum RecordError {
    /// There is no space; nothing of the change was kept.
    Full,
    /// In words for the log.
    Broken(String),
}

/// Records of uploads and builds. Blocks; what was written is on disk when a call returns. Another database follows by another
/// implementation.
pub trait Records: Send + Sync + 'static {
    /// Keeps the upload of a new grant.
    fn granted(&self, upload: &Upload) -> Result<(), RecordError>;
    fn upload(&self, id: Uuid) -> Result<Option<Upload>, RecordError>;
    /// Keeps what came for an upload.
    fn stored(&self, id: Uuid, facts: &Facts) -> Result<(), RecordError>;
    /// Keeps a new build and seals its upload, both or neither.
    fn insert(&self, build: &Build) -> Result<(), RecordError>;
    fn fetch(&self, org: &Org, id: Uuid) -> Result<Option<Build>, RecordError>;
    /// Returns a page, newest first, and how many there are in all.
    fn list(&self, org: &Org, of: &Filter) -> Result<(Vec<Build>, u64), RecordError>;
    /// Returns the newest success with that archive, region and build file.
    fn cached(&self, org: &Org, hash: &str, region: &str, file: &str) -> Result<Option<Build>, RecordError>;
    /// Keeps the next value of a build if its status is still the expected one; tells whether it was.
    fn change(&self, expected: Status, next: &Build) -> Result<bool, RecordError>;
    /// Returns the builds in no final state, oldest first.
    fn unfinished(&self) -> Result<Vec<Build>, RecordError>;
}
