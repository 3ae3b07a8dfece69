//! Files and folders by descriptors: nothing here follows a link, whatever stands in its way.
//!
//! In: an open folder and names in it. Out: what was made, or nothing left of a tree, however deep it is and whatever rights its
//! folders have been given. Refuses: to go into what is mounted in a tree, which is another's. Source: `openat(2)`, `mkdirat(2)`,
//! `linkat(2)`, `symlinkat(2)`, `unlinkat(2)`, `fdopendir(3)`, `proc_pid_fdinfo(5)`.

use std::ffi::{CStr, CString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::limits::{REMOVE_DEPTH_MAX, REMOVE_NAMES_MAX};

/// An open folder.
pub struct DirHandle(OwnedFd);

impl DirHandle {
    /// Opens a folder by its path, in which only the last component must not be a link.
    ///
    /// # Errors
    /// The system's; `ENOTDIR` for what is no folder.
    pub fn open(path: &Path) -> io::Result<DirHandle> {
        open_at(CWD, &c_name(path.as_os_str().as_bytes())?, FOLDER, Mode::empty()).map(DirHandle)
    }

    /// Opens a folder in this one.
    ///
    /// # Errors
    /// As [`DirHandle::open`].
    pub fn open_dir(&self, name: &CStr) -> io::Result<DirHandle> {
        open_at(self.0.as_fd(), name, FOLDER, Mode::empty()).map(DirHandle)
    }

    /// Makes one more descriptor of the same folder.
    ///
    /// # Errors
    /// The system's, when there are too many.
    pub fn try_clone(&self) -> io::Result<DirHandle> {
        self.0.try_clone().map(DirHandle)
    }

    /// Makes a folder in this one, for its owner alone.
    ///
    /// # Errors
    /// The system's.
    pub fn create_dir(&self, name: &CStr) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.0, name, Mode::RWXU)?)
    }

    /// Makes a file in this one, for its owner alone.
    ///
    /// # Errors
    /// The system's; `EEXIST` when something has the name.
    pub fn create_file(&self, name: &CStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        open_at(self.0.as_fd(), name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
    }

    /// Opens a regular file in this one. What would make the caller wait, a FIFO, does not.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for what is no regular file.
    pub fn open_file(&self, name: &CStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(open_at(self.0.as_fd(), name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        Ok(file)
    }

    /// Makes a symbolic link in this one.
    ///
    /// # Errors
    /// The system's.
    pub fn symlink(&self, name: &CStr, target: &CStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    /// Gives a file in `from` one more name, in this folder.
    ///
    /// # Errors
    /// The system's.
    pub fn hard_link(&self, name: &CStr, from: &DirHandle, target: &CStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(&from.0, target, &self.0, name, AtFlags::empty())?)
    }

    /// Takes a file or a link out of this folder.
    ///
    /// # Errors
    /// The system's.
    pub fn unlink(&self, name: &CStr) -> io::Result<()> {
        self.unlink_at(name, AtFlags::empty())
    }

    /// Changes its rights.
    ///
    /// # Errors
    /// The system's.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.0, Mode::from_raw_mode(mode))?)
    }

    fn unlink_at(&self, name: &CStr, flags: AtFlags) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, flags)?)
    }

    /// Opens a folder in this one whatever its rights are, and gives its owner all of them. Only one of the mount `of` is touched,
    /// if that is given.
    fn open_forced(&self, name: &CStr, of: Option<MountId>) -> io::Result<DirHandle> {
        // A descriptor that only names it: from here on it is this folder, whatever else gets the name.
        let named = DirHandle(open_at(self.0.as_fd(), name, FOLDER | OFlags::PATH, Mode::empty())?);
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
        // One that is open may be another user's; then its names tell what can be removed.
        let _ = folder.set_mode(0o700);
        Ok(folder)
    }

    /// Tells by which mount it was opened.
    fn mount(&self) -> io::Result<MountId> {
        let device = fs::metadata(self.path())?.dev();
        // What is mounted from the same file system has the same device. A system that does not tell has to do with that.
        let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd())).unwrap_or_default();
        let id = told.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        Ok((device, id.and_then(|id| id.trim().parse().ok())))
    }

    /// Returns the names in it, at most `max` of them, and of how many bytes each is if it is a regular file.
    ///
    /// # Errors
    /// The system's.
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

    /// Moves a file in this one to another folder of the same file system, under its name.
    ///
    /// # Errors
    /// The system's.
    pub fn move_to(&self, name: &CStr, to: &DirHandle) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name, &to.0, name)?)
    }

    /// Waits until the names in it are on the disk.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }

    /// A path by which it can be read as long as it is open.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }

    /// Moves a folder in this one to another place, under a name that is free there.
    fn move_up(&self, name: &CStr, top: &DirHandle, moved: &mut u64) -> io::Result<()> {
        loop {
            let new = self::c_name(format!(".moved-{moved}").as_bytes())?;
            *moved += 1;
            match rustix::fs::renameat(&self.0, name, &top.0, &new) {
                // The tree itself has something of that name.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Some of the names in it, without so many of the first; none when there are no more.
    fn names(&self, without: usize) -> io::Result<Vec<CString>> {
        fs::read_dir(self.path())?
            .skip(without)
            .take(REMOVE_NAMES_MAX)
            .map(|entry| c_name(entry?.file_name().as_bytes()))
            .collect()
    }
}

/// The device of a folder's file system, and the number of the mount that shows it.
type MountId = (u64, Option<u64>);

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

fn open_at(folder: BorrowedFd, name: &CStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(folder, name, flags | OFlags::CLOEXEC, mode)?)
}

fn is_of(error: &io::Error, kinds: &[Errno]) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| kinds.contains(&errno))
}

/// Makes a name for the system.
///
/// # Errors
/// `InvalidInput` when it has a NUL inside.
pub fn c_name(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a name has a NUL inside"))
}

/// Removes a folder and all that is in it. What is not there is removed already. No process may be at work in it: a name that comes
/// while it is removed is an error.
///
/// # Errors
/// The first one, with the name that it is about. Everything else that could be removed is gone by then; what is mounted in it is as
/// it was.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    put_away(path, true)
}

/// Removes all that is in a folder, which may be a mount of its own. A file or a link of its name goes.
///
/// # Errors
/// As [`remove`].
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
        // A file or a link of that name.
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

/// A tree that is removed.
struct TreeRemoval {
    top: DirHandle,
    of: MountId,
    /// How many folders were moved up to the top.
    moved: u64,
}

impl TreeRemoval {
    /// Empties a folder. One that lies too deep is moved up to the top, so that neither the stack nor the number of open files
    /// grows with the tree; the top is emptied until nothing comes any more. What cannot be removed keeps nothing else from it.
    fn clear(&mut self, folder: &DirHandle, depth: usize) -> io::Result<()> {
        loop {
            let (mut first, mut left, mut is_changed) = (None, 0, false);
            loop {
                // A listing begins with what was left of it: the rest of what it began with is gone.
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
                // Not every file system lists names in one order, and what was moved may stand anywhere.
                Some(_) => {}
            }
        }
    }

    fn remove_entry(&mut self, folder: &DirHandle, name: &CStr, depth: usize) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{name:?}: {error}"));
        match folder.unlink(name) {
            // EPERM is what POSIX says of a folder, EISDIR what Linux says.
            Err(error) if is_of(&error, &[Errno::ISDIR, Errno::PERM]) => {
                let inner = match folder.open_forced(name, Some(self.of)) {
                    // It is no folder, so that it was said of something else.
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
