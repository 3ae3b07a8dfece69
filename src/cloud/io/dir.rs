//! Directory handles: file operations relative to a descriptor, which never follow links.
//!
//! In: an open directory and names in it. Out: created files, or the removal of trees of any depth
//! and with any modes. Removal does not enter other mounts. Source: `openat(2)`, `mkdirat(2)`,
//! `linkat(2)`, `symlinkat(2)`, `unlinkat(2)`, `fdopendir(3)`, `proc_pid_fdinfo(5)`.

use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::limits::{REMOVE_DEPTH_MAX, REMOVE_NAMES_MAX};

/// An open directory.
pub struct DirHandle(File);

impl DirHandle {
    /// Opens a directory by path. The last component must not be a link.
    ///
    /// # Errors
    /// The error of the system; `ENOTDIR` for anything but a directory.
    pub fn open(path: &Path) -> io::Result<DirHandle> {
        open_at(CWD, &c_name(path.as_os_str().as_bytes())?, FOLDER, Mode::empty()).map(DirHandle)
    }

    /// Opens a subdirectory.
    ///
    /// # Errors
    /// As [`DirHandle::open`].
    pub fn open_dir(&self, name: &CStr) -> io::Result<DirHandle> {
        open_at(self.0.as_fd(), name, FOLDER, Mode::empty()).map(DirHandle)
    }

    /// Duplicates the descriptor.
    ///
    /// # Errors
    /// The error of the system.
    pub fn try_clone(&self) -> io::Result<DirHandle> {
        self.0.try_clone().map(DirHandle)
    }

    /// Creates a subdirectory with mode 0700.
    ///
    /// # Errors
    /// The error of the system.
    pub fn create_dir(&self, name: &CStr) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.0, name, Mode::RWXU)?)
    }

    /// Creates a file with mode 0600.
    ///
    /// # Errors
    /// The error of the system; `EEXIST` if the name is taken.
    pub fn create_file(&self, name: &CStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        open_at(self.0.as_fd(), name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Opens a regular file. Does not block on a FIFO.
    ///
    /// # Errors
    /// The error of the system; `InvalidInput` for anything but a regular file.
    pub fn open_file(&self, name: &CStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open_at(self.0.as_fd(), name, flags, Mode::empty())?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok(file)
    }

    /// Opens a regular file, and lets only its owner read and write it. The owner needs no right to
    /// read it before.
    ///
    /// # Errors
    /// As [`DirHandle::open_file`].
    pub fn open_own_file(&self, name: &CStr) -> io::Result<File> {
        let mode = Permissions::from_mode(0o600);
        match self.open_file(name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            other => {
                let file = other?;
                file.set_permissions(mode)?;
                return Ok(file);
            }
        }
        // The mode is set through a descriptor that cannot read, so that no link is followed.
        let file = open_at(self.0.as_fd(), name, NAME | OFlags::NOFOLLOW, Mode::empty())?;
        if file.metadata()?.is_file() {
            fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)?;
        }
        self.open_file(name)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// The error of the system.
    pub fn symlink(&self, name: &CStr, target: &CStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    /// Creates a hard link to a file in `from`.
    ///
    /// # Errors
    /// The error of the system.
    pub fn hard_link(&self, name: &CStr, from: &DirHandle, target: &CStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(&from.0, target, &self.0, name, AtFlags::empty())?)
    }

    /// Removes a file or link.
    ///
    /// # Errors
    /// The error of the system.
    pub fn unlink(&self, name: &CStr) -> io::Result<()> {
        self.unlink_at(name, AtFlags::empty())
    }

    /// Sets the mode.
    ///
    /// # Errors
    /// The error of the system.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.0.set_permissions(Permissions::from_mode(mode))
    }

    fn unlink_at(&self, name: &CStr, flags: AtFlags) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, flags)?)
    }

    /// Opens a subdirectory of any mode, and sets it to 0700. With `of`, only a directory
    /// of that mount is opened.
    fn open_forced(&self, name: &CStr, of: Option<MountId>) -> io::Result<DirHandle> {
        // A descriptor of the name alone pins the directory against replacement.
        let named = DirHandle(open_at(self.0.as_fd(), name, FOLDER | NAME, Mode::empty())?);
        if of.is_some() && of != Some(named.mount()?) {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "something is mounted there",
            ));
        }
        let path = self::c_name(named.path().as_bytes())?;
        let open = || open_at(CWD, &path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).map(DirHandle);
        let folder = match open() {
            Err(error) if is_of(&error, &[Errno::ACCESS]) => {
                fs::set_permissions(named.path(), Permissions::from_mode(0o700))?;
                open()?
            }
            other => other?,
        };
        // The directory may belong to another user; its names can still be listed.
        let _ = folder.set_mode(0o700);
        Ok(folder)
    }

    /// Returns the mount through which it was opened.
    fn mount(&self) -> io::Result<MountId> {
        let device = fs::metadata(self.path())?.dev();
        // Bind mounts share the device number. Without a mount id the device has to do.
        let fdinfo = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd())).unwrap_or_default();
        let id = fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        Ok((device, id.and_then(|id| id.trim().parse().ok())))
    }

    /// Lists at most `max` names, with the size of regular files.
    ///
    /// # Errors
    /// The error of the system.
    pub fn list(&self, max: usize) -> io::Result<Vec<(Vec<u8>, Option<u64>)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.path())?.take(max) {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let size = metadata.is_file().then_some(metadata.len());
            found.push((entry.file_name().as_bytes().to_vec(), size));
        }
        Ok(found)
    }

    /// Moves a file to another directory of the same file system.
    ///
    /// # Errors
    /// The error of the system.
    pub fn move_to(&self, name: &CStr, to: &DirHandle) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name, &to.0, name)?)
    }

    /// Syncs the directory.
    ///
    /// # Errors
    /// The error of the system.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }

    /// A path that is valid while the descriptor is open.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }

    /// Moves a subdirectory to `top`, under a free name.
    fn move_up(&self, name: &CStr, top: &DirHandle, moved: &mut u64) -> io::Result<()> {
        loop {
            let new = self::c_name(format!(".moved-{moved}").as_bytes())?;
            *moved += 1;
            match rustix::fs::renameat(&self.0, name, &top.0, &new) {
                // The tree itself contains this name.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Lists some names after the first `without` ones. Empty at the end.
    fn names(&self, without: usize) -> io::Result<Vec<CString>> {
        fs::read_dir(self.path())?
            .skip(without)
            .take(REMOVE_NAMES_MAX)
            .map(|entry| c_name(entry?.file_name().as_bytes()))
            .collect()
    }
}

/// Device number and mount id.
type MountId = (u64, Option<u64>);

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// Opens the name alone, so that no permission is needed. The service starts on Linux only.
#[cfg(target_os = "linux")]
const NAME: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const NAME: OFlags = OFlags::empty();

fn open_at(folder: BorrowedFd, name: &CStr, flags: OFlags, mode: Mode) -> io::Result<File> {
    Ok(rustix::fs::openat(folder, name, flags | OFlags::CLOEXEC, mode)?.into())
}

fn is_of(error: &io::Error, kinds: &[Errno]) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| kinds.contains(&errno))
}

/// Creates a file for reading and writing whose name, which must be free, is removed at once.
///
/// # Errors
/// The error of the system.
pub fn unnamed_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// Converts a name for system calls.
///
/// # Errors
/// `InvalidInput` for an inner NUL.
pub fn c_name(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a name has a NUL inside"))
}

/// Removes a directory and its content. A missing one is not an error. No process may add names
/// meanwhile.
///
/// # Errors
/// The first error, with its name. Everything else that can be removed is removed; other mounts are
/// untouched.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    put_away(path, true)
}

/// Removes the content of a directory, which may be a mount point. A file or link of this name is
/// removed.
///
/// # Errors
/// As [`remove_tree`].
pub fn clear(path: &Path) -> io::Result<()> {
    put_away(path, false)
}

fn put_away(path: &Path, with_itself: bool) -> io::Result<()> {
    let (Some(parent), Some(last)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = match DirHandle::open(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let last = c_name(last.as_bytes())?;
    let of = if with_itself { Some(parent.mount()?) } else { None };
    let top = match parent.open_forced(&last, of) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // A file or link.
        Err(error) if is_no_folder(&error) => return parent.unlink(&last),
        other => other?,
    };
    let mut tree = TreeRemoval {
        of: top.mount()?,
        top,
        moved: 0,
    };
    let top = tree.top.try_clone()?;
    tree.clear(&top, 0)?;
    drop((tree, top));
    match with_itself {
        true => parent.unlink_at(&last, AtFlags::REMOVEDIR),
        false => Ok(()),
    }
}

/// A removal in progress.
struct TreeRemoval {
    top: DirHandle,
    of: MountId,
    /// Number of directories moved to the top.
    moved: u64,
}

impl TreeRemoval {
    /// Empties a directory. Deep subdirectories are moved to the top, which bounds the stack and
    /// the number of open files. Errors do not stop the removal of other names.
    fn clear(&mut self, folder: &DirHandle, depth: usize) -> io::Result<()> {
        loop {
            let (mut first, mut left, mut is_changed) = (None, 0, false);
            loop {
                // Names that could not be removed are skipped.
                let names = folder.names(left)?;
                if names.is_empty() {
                    break;
                }
                for name in names {
                    let moved = self.moved;
                    match self.remove_entry(folder, &name, depth) {
                        Ok(()) => is_changed = true,
                        Err(error) => {
                            left += 1;
                            first.get_or_insert(error);
                        }
                    }
                    is_changed |= self.moved != moved;
                }
            }
            match first {
                None => return Ok(()),
                Some(error) if !is_changed => return Err(error),
                // The order of names may change, and moved directories may appear anywhere.
                Some(_) => {}
            }
        }
    }

    fn remove_entry(&mut self, folder: &DirHandle, name: &CStr, depth: usize) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{name:?}: {error}"));
        match folder.unlink(name) {
            // POSIX specifies EPERM for a directory, Linux returns EISDIR.
            Err(error) if is_of(&error, &[Errno::ISDIR, Errno::PERM]) => {
                let inner = match folder.open_forced(name, Some(self.of)) {
                    // Not a directory, so the first error stands.
                    Err(inner) if is_no_folder(&inner) => return Err(named(error)),
                    other => other.map_err(named)?,
                };
                if depth == REMOVE_DEPTH_MAX {
                    return folder.move_up(name, &self.top, &mut self.moved).map_err(named);
                }
                self.clear(&inner, depth + 1)?;
                folder.unlink_at(name, AtFlags::REMOVEDIR).map_err(named)
            }
            other => other.map_err(named),
        }
    }
}

fn is_no_folder(error: &io::Error) -> bool {
    is_of(error, &[Errno::NOTDIR, Errno::LOOP])
}

#[cfg(test)]
mod tests;
