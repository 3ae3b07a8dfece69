//! How much space is left.
//!
//! In: a folder, or what the system said of a write. Out: bytes that this user may still fill, or whether space was what it
//! lacked. Blocks for as long as the system takes, which for a local disk is nothing.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Returns the bytes that are free in the file system of a folder, without those that only root may fill.
///
/// # Errors
/// The system's.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: it is a plain structure of numbers, for which zeros are values.
    let mut state: libc::statvfs64 = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero, and the structure is written to for the time of the call alone.
    if unsafe { libc::statvfs64(folder.as_ptr(), &mut state) } != 0 {
        return Err(io::Error::last_os_error());
    }
    #[allow(clippy::unnecessary_cast, reason = "their widths differ between systems")]
    let (blocks, bytes) = (state.f_bavail as u64, state.f_frsize as u64);
    Ok(blocks.saturating_mul(bytes))
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
        for (code, full) in [
            (libc::ENOSPC, true),
            (libc::EDQUOT, true),
            (libc::EFBIG, true),
            (libc::EIO, false),
            (libc::EROFS, false),
        ] {
            assert_eq!(is_full(&io::Error::from_raw_os_error(code)), full, "{code}");
        }
    }
}
