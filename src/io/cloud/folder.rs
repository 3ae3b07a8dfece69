//! Files and folders by descriptors: nothing here follows a link, whatever stands in its way.
//!
//! In: an open folder and names in it. Out: what was made, or nothing left of a tree, however deep it is and whatever rights its
//! folders have been given. Source: `openat(2)`, `mkdirat(2)`, `linkat(2)`, `symlinkat(2)`, `unlinkat(2)`, `fdopendir(3)`.

use std::ffi::{CStr, CString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::limits::cloud::{REMOVE_DEPTH_MAX, REMOVE_NAMES_MAX};

/// An open folder.
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder by its path, in which only the last component must not be a link.
    ///
    /// # Errors
    /// The system's; `ENOTDIR` for what is no folder.
    pub fn open(path: &Path) -> io::Result<Folder> {
        open_at(libc::AT_FDCWD, &name(path.as_os_str().as_bytes())?, FOLDER, 0).map(Folder)
    }

    /// Opens a folder in this one.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn folder(&self, name: &CStr) -> io::Result<Folder> {
        open_at(self.0.as_raw_fd(), name, FOLDER, 0).map(Folder)
    }

    /// Makes one more descriptor of the same folder.
    ///
    /// # Errors
    /// The system's, when there are too many.
    pub fn again(&self) -> io::Result<Folder> {
        self.0.try_clone().map(Folder)
    }

    /// Makes a folder in this one, for its owner alone.
    ///
    /// # Errors
    /// The system's.
    pub fn make(&self, name: &CStr) -> io::Result<()> {
        // SAFETY: the name is a C string that outlives the call.
        done(unsafe { libc::mkdirat(self.0.as_raw_fd(), name.as_ptr(), 0o700) })
    }

    /// Makes a file in this one, for its owner alone.
    ///
    /// # Errors
    /// The system's; `EEXIST` when something has the name.
    pub fn create(&self, name: &CStr) -> io::Result<File> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        open_at(self.0.as_raw_fd(), name, flags, 0o600).map(File::from)
    }

    /// Opens a regular file in this one. What would make the caller wait, a FIFO, does not.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for what is no regular file.
    pub fn file(&self, name: &CStr) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::from(open_at(self.0.as_raw_fd(), name, flags, 0)?);
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
        // SAFETY: both are C strings that outlive the call.
        done(unsafe { libc::symlinkat(target.as_ptr(), self.0.as_raw_fd(), name.as_ptr()) })
    }

    /// Gives a file in `from` one more name, in this folder.
    ///
    /// # Errors
    /// The system's.
    pub fn link(&self, name: &CStr, from: &Folder, target: &CStr) -> io::Result<()> {
        let (from, to) = (from.0.as_raw_fd(), self.0.as_raw_fd());
        // SAFETY: both are C strings that outlive the call.
        done(unsafe { libc::linkat(from, target.as_ptr(), to, name.as_ptr(), 0) })
    }

    /// Takes a file or a link out of this folder.
    ///
    /// # Errors
    /// The system's.
    pub fn unlink(&self, name: &CStr) -> io::Result<()> {
        self.unlink_at(name, 0)
    }

    /// Changes its rights.
    ///
    /// # Errors
    /// The system's.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        // SAFETY: two numbers, no memory.
        done(unsafe { libc::fchmod(self.0.as_raw_fd(), mode) })
    }

    fn unlink_at(&self, name: &CStr, flags: libc::c_int) -> io::Result<()> {
        // SAFETY: the name is a C string that outlives the call.
        done(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), flags) })
    }

    /// Opens a folder in this one whatever its rights are, and gives its owner all of them.
    fn seize(&self, name: &CStr) -> io::Result<Folder> {
        let folder = match self.folder(name) {
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
                // One that may not be opened can be changed by way of a descriptor that only names it.
                let named = open_at(self.0.as_raw_fd(), name, FOLDER | libc::O_PATH, 0)?;
                let path = format!("/proc/self/fd/{}", named.as_raw_fd());
                fs::set_permissions(path, Permissions::from_mode(0o700))?;
                self.folder(name)?
            }
            other => other?,
        };
        folder.set_mode(0o700)?;
        Ok(folder)
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
    pub fn move_to(&self, name: &CStr, to: &Folder) -> io::Result<()> {
        let (from, to) = (self.0.as_raw_fd(), to.0.as_raw_fd());
        // SAFETY: the name is a C string that outlives the call.
        done(unsafe { libc::renameat(from, name.as_ptr(), to, name.as_ptr()) })
    }

    /// Waits until the names in it are on the disk.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: one number, no memory.
        done(unsafe { libc::fsync(self.0.as_raw_fd()) })
    }

    /// A path by which it can be read as long as it is open.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }

    /// Moves a folder in this one to another place, under a name that is free there.
    fn move_up(&self, name: &CStr, top: &Folder, moved: &mut u64) -> io::Result<()> {
        loop {
            let new = self::name(format!(".moved-{moved}").as_bytes())?;
            *moved += 1;
            let (from, to) = (self.0.as_raw_fd(), top.0.as_raw_fd());
            // SAFETY: both are C strings that outlive the call.
            match done(unsafe { libc::renameat(from, name.as_ptr(), to, new.as_ptr()) }) {
                // The tree itself has something of that name.
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::ENOTEMPTY | libc::EEXIST | libc::ENOTDIR)
                    ) => {}
                other => return other,
            }
        }
    }

    /// Some of the names in it; none when there are none.
    fn names(&self) -> io::Result<Vec<CString>> {
        fs::read_dir(self.path())?
            .take(REMOVE_NAMES_MAX)
            .map(|entry| name(entry?.file_name().as_bytes()))
            .collect()
    }
}

const FOLDER: libc::c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;

fn open_at(folder: libc::c_int, name: &CStr, flags: libc::c_int, mode: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string that outlives the call.
    let descriptor = unsafe { libc::openat(folder, name.as_ptr(), flags | libc::O_CLOEXEC, mode) };
    done(descriptor)?;
    // SAFETY: the call has just made it, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes a name for the system.
///
/// # Errors
/// `InvalidInput` when it has a NUL inside.
pub fn name(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a name has a NUL inside"))
}

/// Removes a folder and all that is in it. What is not there is removed already. No process may be at work in it: a name that comes
/// while it is removed is an error.
///
/// # Errors
/// The system's, with what could be removed gone.
pub fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(last)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = match Folder::open(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let last = name(last.as_bytes())?;
    let top = match parent.seize(&last) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // A file or a link of that name.
        Err(error) if is_no_folder(&error) => return parent.unlink(&last),
        other => other?,
    };
    clear(&top, &top, 0, &mut 0)?;
    drop(top);
    parent.unlink_at(&last, libc::AT_REMOVEDIR)
}

/// Empties a folder. One that lies too deep is moved up to the top, so that neither the stack nor the number of open files grows
/// with the tree; the top is emptied until nothing comes any more.
fn clear(top: &Folder, folder: &Folder, depth: usize, moved: &mut u64) -> io::Result<()> {
    loop {
        let names = folder.names()?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            match folder.unlink(&name) {
                Ok(()) => continue,
                // EPERM is what POSIX says of a folder, EISDIR what Linux says.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EISDIR | libc::EPERM)) => {}
                Err(error) => return Err(error),
            }
            let inner = folder.seize(&name)?;
            if depth == REMOVE_DEPTH_MAX {
                folder.move_up(&name, top, moved)?;
            } else {
                clear(top, &inner, depth + 1, moved)?;
                folder.unlink_at(&name, libc::AT_REMOVEDIR)?;
            }
        }
    }
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP))
}

#[cfg(test)]
mod tests;
