//! Disk space.
//!
//! In: a folder, or an I/O error. Out: free bytes, or whether the error means a lack of space.
//! Source: `statvfs(3)`; decision I-21.

use std::io;
use std::path::Path;

/// Returns the bytes available to this user in the file system of a folder.
///
/// # Errors
/// The error of the system.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let state = rustix::fs::statvfs(folder)?;
    Ok(state.f_bavail.saturating_mul(state.f_frsize))
}

/// Tells whether a write failed because of a full disk, a quota or a file size limit.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// I-21: free space is reported, and a missing folder is an error.
    #[test]
    fn free_space_is_reported() {
        assert!(free_bytes(Path::new("/")).expect("the root has a file system") > 0);
        let missing = free_bytes(Path::new("/nowhere/at/all")).expect_err("it is not there");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(free_bytes(Path::new("a\0b")).is_err());
    }

    #[test]
    fn a_full_disk_is_recognized_by_its_error() {
        for (errno, full) in [
            (Errno::NOSPC, true),
            (Errno::DQUOT, true),
            (Errno::FBIG, true),
            (Errno::IO, false),
            (Errno::ROFS, false),
        ] {
            assert_eq!(is_full(&errno.into()), full, "{errno}");
        }
    }
}
