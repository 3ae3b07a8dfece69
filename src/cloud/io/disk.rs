//! How much space is left.
//!
//! In: a folder, or what the system said of a write. Out: bytes that this user may still fill, or whether space was what it
//! lacked. Blocks for as long as the system takes, which for a local disk is nothing.

use std::io;
use std::path::Path;

/// Returns the bytes that are free in the file system of a folder, without those that only root may fill.
///
/// # Errors
/// The system's.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let state = rustix::fs::statvfs(folder)?;
    Ok(state.f_bavail.saturating_mul(state.f_frsize))
}

/// Tells whether a write failed for want of space: on the disk, in a quota, or under a limit on the size of files.
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

    /// I-21: some space is free where tests may write, and a folder that is not there has none to tell of.
    #[test]
    fn a_folder_tells_how_much_is_free() {
        assert!(free_bytes(Path::new("/")).expect("the root has a file system") > 0);
        let missing = free_bytes(Path::new("/nowhere/at/all")).expect_err("it is not there");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(free_bytes(Path::new("a\0b")).is_err());
    }

    #[test]
    fn a_full_disk_is_told_by_its_error() {
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
