//! Performs the operations that [`crate::proto::unpack`] returns.
//!
//! In: an archive, an empty folder, limits. Out: the archive's content in the folder, with
//! permission bits and file times but without owners. Paths are opened component by component
//! without following links. Calls block. After an error the folder is incomplete.

use std::ffi::CString;
use std::fmt;
use std::fs::{File, Permissions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use super::dir::{DirHandle, c_name};
use crate::limits::UNPACK_BUFFER_BYTES;
use crate::proto::unpack::{ArchiveError, ExtractOp, UnpackError, UnpackLimits, UnpackStats, Unpacker, escape_name};

/// Why an archive was not extracted.
#[derive(Debug)]
pub enum ExtractError {
    Refused(ArchiveError),
    /// Reading the archive failed.
    Read(io::Error),
    /// Creating an entry failed; its name is escaped.
    Create {
        name: String,
        source: io::Error,
    },
    /// The caller cancelled the extraction.
    Stopped,
}

impl fmt::Display for ExtractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExtractError::Refused(refusal) => refusal.fmt(f),
            ExtractError::Read(source) => write!(f, "reading the archive: {source}"),
            ExtractError::Create { name, source } => write!(f, "making `{name}`: {source}"),
            ExtractError::Stopped => f.write_str("the service stops"),
        }
    }
}

impl std::error::Error for ExtractError {}

impl From<UnpackError> for ExtractError {
    fn from(failure: UnpackError) -> ExtractError {
        match failure {
            UnpackError::Refused(refusal) => ExtractError::Refused(refusal),
            UnpackError::Read(source) => ExtractError::Read(source),
        }
    }
}

/// Extracts `archive` into the folder `context`, which must then contain `build_file`. `stopped` is
/// polled between reads.
///
/// # Errors
/// [`ExtractError`].
pub fn extract(
    archive: &mut dyn Read,
    context: &Path,
    bounds: UnpackLimits,
    build_file: &str,
    stopped: &dyn Fn() -> bool,
) -> Result<UnpackStats, ExtractError> {
    let mut extractor = Extractor::new(context).map_err(|source| ExtractError::Create {
        name: ".".to_owned(),
        source,
    })?;
    let archive = CancellableReader { archive, stopped };
    let unpacked = extractor.extract_all(archive, bounds, build_file, stopped);
    // Cancellation hides any other error.
    unpacked.map_err(|fault| if stopped() { ExtractError::Stopped } else { fault })
}

/// Fails after cancellation. A single read of the unpacker may pass many small gzip members.
struct CancellableReader<'a> {
    archive: &'a mut dyn Read,
    stopped: &'a dyn Fn() -> bool,
}

impl Read for CancellableReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if (self.stopped)() {
            return Err(io::Error::other("it is stopped"));
        }
        self.archive.read(into)
    }
}

struct Extractor {
    root: DirHandle,
    /// The parent directory of the last entry, a cache for the next one.
    last: Option<(Vec<u8>, DirHandle)>,
}

/// A file being written.
struct OpenFile {
    file: File,
    mode: u32,
    mtime_s: u64,
}

impl Extractor {
    fn new(context: &Path) -> io::Result<Extractor> {
        Ok(Extractor {
            root: DirHandle::open(context)?,
            last: None,
        })
    }

    fn extract_all(
        &mut self,
        archive: impl Read,
        bounds: UnpackLimits,
        build_file: &str,
        stopped: &dyn Fn() -> bool,
    ) -> Result<UnpackStats, ExtractError> {
        let mut unpacker = Unpacker::new(archive, bounds)?;
        let mut buffer = vec![0; UNPACK_BUFFER_BYTES];
        while let Some(make) = unpacker.next_op()? {
            let (ExtractOp::Dir { path, .. }
            | ExtractOp::File { path, .. }
            | ExtractOp::Symlink { path, .. }
            | ExtractOp::HardLink { path, .. }) = &make;
            let name = escape_name(path);
            let failed = |source| ExtractError::Create {
                name: name.clone(),
                source,
            };
            let Some(mut open) = self.make(make).map_err(failed)? else {
                continue;
            };
            loop {
                match unpacker.read(&mut buffer)? {
                    0 => break,
                    // A kilobyte may expand to a megabyte of zeros.
                    _ if stopped() => return Err(ExtractError::Stopped),
                    count => open.file.write_all(&buffer[..count]).map_err(failed)?,
                }
            }
            open.finish().map_err(failed)?;
        }
        Ok(unpacker.finish(build_file)?)
    }

    /// Performs an operation. Returns a file to be written.
    fn make(&mut self, make: ExtractOp) -> io::Result<Option<OpenFile>> {
        match make {
            ExtractOp::Dir { path, mode, exists } => {
                let (folder, name) = self.parent(&path)?;
                if !exists {
                    folder.create_dir(&name)?;
                }
                folder.open_dir(&name)?.set_mode(mode)?;
            }
            ExtractOp::File {
                path,
                mode,
                mtime_s,
                exists,
                ..
            } => {
                let (folder, name) = self.parent(&path)?;
                if exists {
                    folder.unlink(&name)?;
                }
                let file = folder.create_file(&name)?;
                return Ok(Some(OpenFile { file, mode, mtime_s }));
            }
            ExtractOp::Symlink { path, target } => {
                let (folder, own) = self.parent(&path)?;
                folder.symlink(&own, &c_name(&target)?)?;
            }
            ExtractOp::HardLink { path, target, exists } => {
                let (from, target) = self.parent(&target)?;
                // `self.parent` below needs `self` again.
                let from = from.try_clone()?;
                let (folder, name) = self.parent(&path)?;
                if exists {
                    folder.unlink(&name)?;
                }
                folder.hard_link(&name, &from, &target)?;
            }
        }
        Ok(None)
    }

    /// Opens the parent directory of an entry, and returns it with the entry's name.
    fn parent(&mut self, path: &[u8]) -> io::Result<(&DirHandle, CString)> {
        let (parent, own) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        let own = c_name(own)?;
        if parent.is_empty() {
            return Ok((&self.root, own));
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != parent) {
            let mut folder = None;
            for component in parent.split(|&byte| byte == b'/') {
                let at = folder.as_ref().unwrap_or(&self.root);
                folder = Some(at.open_dir(&c_name(component)?)?);
            }
            self.last = folder.map(|folder| (parent.to_vec(), folder));
        }
        let folder = self.last.as_ref().map_or(&self.root, |(_, folder)| folder);
        Ok((folder, own))
    }
}

impl OpenFile {
    fn finish(self) -> io::Result<()> {
        // Times beyond the system's range are ignored.
        if let Some(time) = UNIX_EPOCH.checked_add(Duration::from_secs(self.mtime_s)) {
            let _ = self.file.set_modified(time);
        }
        self.file.set_permissions(Permissions::from_mode(self.mode))
    }
}

#[cfg(test)]
mod tests;
