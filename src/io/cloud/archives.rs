//! Where archives are kept.

use std::io;

use crate::proto::cloud::build::{Facts, Org, Upload};
use crate::proto::uuid::Uuid;

/// A place for archives. Blocks. An S3-compatible store follows by another implementation.
pub trait Archives: Send + Sync + 'static {
    /// Tells what is there of an upload; nothing when nothing is. Hashes it again if `upload.facts` are not of the file that is there.
    fn head(&self, upload: &Upload) -> io::Result<Option<Facts>>;
    /// Opens an archive from its first byte.
    fn open(&self, org: &Org, id: Uuid) -> io::Result<Box<dyn io::Read + Send>>;
    /// Deletes an archive; one that is not there is deleted already.
    fn delete(&self, org: &Org, id: Uuid) -> io::Result<()>;
}
