//! Folders that options name and that the runner writes to.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::io::RunError;

/// Checks that a folder exists, or makes it for its owner alone, and that it takes files.
///
/// # Errors
/// The system's error.
pub fn check(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let probe = folder.join(format!(".edge-runner-{}", std::process::id()));
    OpenOptions::new().append(true).create(true).mode(0o600).open(&probe)?;
    fs::remove_file(probe)
}

/// Returns the error of the start about the folder of an option.
pub fn unusable(option: &'static str, folder: &Path, source: io::Error) -> RunError {
    RunError::WrittenFolder {
        option,
        path: PathBuf::from(folder),
        source,
    }
}
