//! A folder of small state files: certificates with their keys, one PEM file each, and the keys of
//! the cloud service.
//!
//! A file is written to a temporary name and renamed, so that readers never see half of it; key and
//! certificate share a file, so that they always match. Folder and files are accessible to their
//! owner only. Two processes on one folder take turns ([`Store::lock`]), or one keeps it
//! ([`Store::try_lock`]). Rejects: files longer than [`KEY_FILE_BYTES_MAX`].

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use edge_runner_proto::limits::KEY_FILE_BYTES_MAX;

/// Time that another runner may lock the state folder; it needs milliseconds.
const STATE_LOCK_WITHIN: Duration = Duration::from_secs(5);

/// The permission bits of group and others.
const OTHERS: u32 = 0o077;
/// Between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// An existing folder.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
}

/// The contents of a file.
#[derive(Debug)]
pub struct StoredFile {
    pub text: Vec<u8>,
    /// The mode, if group or others have access.
    pub exposed_mode: Option<u32>,
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub struct StoreLock(#[expect(dead_code, reason = "its end is the end of the lock")] Option<File>);

impl Store {
    /// Opens the folder, creating it if necessary.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn open(folder: &Path) -> io::Result<Store> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(Store {
            folder: folder.to_owned(),
        })
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Waits until no other process holds the lock. Blocks for up to `STATE_LOCK_WITHIN`.
    ///
    /// # Errors
    /// Returns the operating system's error, or [`io::ErrorKind::TimedOut`].
    pub fn lock(&self) -> io::Result<StoreLock> {
        self.lock_within("lock", STATE_LOCK_WITHIN)
    }

    /// Waits for a lock of another name.
    ///
    /// # Errors
    /// As [`Store::lock`].
    pub fn lock_named(&self, name: &str) -> io::Result<StoreLock> {
        self.lock_within(name, STATE_LOCK_WITHIN)
    }

    /// Takes the lock if it is free; returns `None` when another process holds it.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn try_lock(&self) -> io::Result<Option<StoreLock>> {
        match self.lock_within("lock", Duration::ZERO) {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn lock_within(&self, name: &str, time: Duration) -> io::Result<StoreLock> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.path(name))?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(StoreLock(Some(file))),
                Err(TryLockError::WouldBlock) if began.elapsed() < time => thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
                // Some network file systems have no locks; there, one runner per folder is the
                // operator's duty.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    return Ok(StoreLock(None));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Reads a file; returns `None` when it does not exist.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn read(&self, name: &str) -> io::Result<Option<StoredFile>> {
        let path = self.path(name);
        let mode = match fs::metadata(&path) {
            Ok(metadata) => metadata.mode(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(StoredFile {
            text: read_bounded(&path)?,
            exposed_mode: (mode & OTHERS != 0).then_some(mode & 0o777),
        }))
    }

    /// Writes a file atomically.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn write(&self, name: &str, text: &[u8]) -> io::Result<()> {
        let beside = self.path(&format!(".{name}.{}", std::process::id()));
        // A killed process with the same id may have left the file behind.
        let _ = fs::remove_file(&beside);
        let written = (|| {
            let mut file = OpenOptions::new()
                .create_new(true)
                .write(true)
                .mode(0o600)
                .open(&beside)?;
            file.write_all(text)?;
            file.sync_all()?;
            fs::rename(&beside, self.path(name))?;
            File::open(&self.folder)?.sync_all()
        })();
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    }

    /// Removes the access of group and others to a file.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn restrict_to_owner(&self, name: &str) -> io::Result<()> {
        fs::set_permissions(self.path(name), Permissions::from_mode(0o600))
    }

    /// Renames a damaged file and returns its new path.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn quarantine(&self, name: &str, clock_s: u64) -> io::Result<PathBuf> {
        let aside = self.path(&format!("{name}.damaged-{clock_s}"));
        fs::rename(self.path(name), &aside)?;
        Ok(aside)
    }
}

/// Reads a file of at most [`KEY_FILE_BYTES_MAX`] bytes.
///
/// # Errors
/// Returns the operating system's error, or [`io::ErrorKind::FileTooLarge`].
pub fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(KEY_FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > KEY_FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    /// A file at the cap is read; a longer one is rejected before it fills the memory.
    #[test]
    fn the_length_of_a_file_is_capped() {
        let folder = TempDir::new();
        let path = folder.path("long.pem");
        let mut text = vec![b'x'; usize::try_from(KEY_FILE_BYTES_MAX).expect("it fits")];
        fs::write(&path, &text).expect("written");
        assert_eq!(read_bounded(&path).expect("read").len(), text.len());
        text.push(b'x');
        fs::write(&path, &text).expect("written");
        assert_eq!(
            read_bounded(&path).expect_err("too long").kind(),
            io::ErrorKind::FileTooLarge
        );
    }

    /// A second process waits for the lock, up to its timeout.
    #[test]
    fn the_lock_excludes_other_processes() {
        let folder = TempDir::new();
        let (one, other) = (folder.store(), folder.store());
        let lock = one.lock().expect("it is free");
        let refused = other.lock_within("lock", Duration::ZERO).expect_err("the first has it");
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        drop(lock);
        other.lock_within("lock", Duration::ZERO).expect("it is free again");
    }

    /// `try_lock` does not wait for a holder; locks of different names are independent.
    #[test]
    fn try_lock_does_not_wait() {
        let folder = TempDir::new();
        let (one, other) = (folder.store(), folder.store());
        let kept = one.try_lock().expect("the folder takes locks").expect("it is free");
        assert!(other.try_lock().expect("the folder takes locks").is_none());
        other.lock_named("other.lock").expect("it is free");
        drop(kept);
        assert!(other.try_lock().expect("the folder takes locks").is_some());
    }

    /// The partial file of a killed process is neither read nor in the way.
    #[test]
    fn partial_files_are_never_read() {
        let folder = TempDir::new();
        let store = folder.store();
        let beside = store.path(&format!(".server.pem.{}", std::process::id()));
        fs::write(&beside, "half").expect("written");
        assert!(store.read("server.pem").expect("readable").is_none());
        store.write("server.pem", b"whole").expect("written");
        assert!(!beside.exists());
        let found = store.read("server.pem").expect("readable").expect("there");
        assert_eq!((found.text.as_slice(), found.exposed_mode), (&b"whole"[..], None));
        // A failed write leaves no temporary file.
        fs::create_dir(store.path("taken")).expect("made");
        fs::write(store.path("taken").join("x"), "x").expect("written");
        store.write("taken", b"text").expect_err("a folder is in the way");
        assert_eq!(fs::read_dir(store.path(".")).expect("readable").count(), 2);
    }
}
