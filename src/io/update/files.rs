//! The files of an update: the program, the new and the previous one beside it.
//!
//! In: the content of the new program. Out: the renamed files, or a sentence about the obstacle. A
//! name without a dot in front has a whole program at every moment, whenever this process or the
//! machine ends; what is left behind under other names is overwritten by the next update.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};

use crate::proto::update::installation::{InstallFacts, InstallKind};
use crate::proto::update::release::UNCHANGED;

/// The files of the package `edge-runner`, as dpkg keeps them.
const PACKAGE_LIST: &str = "/var/lib/dpkg/info/edge-runner.list";
/// A folder that only images of `boards/image` have.
const BOARD_IMAGE: &str = "/usr/local/lib/edge-board";
/// How the folders begin that wheels leave beside the modules of Python.
const WHEEL: &str = "edge_bot_runner-";

/// The file of the installed program.
#[derive(Debug)]
pub struct ProgramFile {
    /// Without symbolic links.
    pub path: PathBuf,
    folder: PathBuf,
    name: String,
}

impl ProgramFile {
    /// Returns the file of this program.
    pub fn own() -> Result<ProgramFile, String> {
        let path = std::env::current_exe().map_err(|error| format!("the file of this program is unknown: {error}"))?;
        // The kernel marks a file that was replaced while the program runs.
        match (
            path.is_file(),
            path.parent(),
            path.file_name().and_then(|name| name.to_str()),
        ) {
            (true, Some(folder), Some(name)) => Ok(ProgramFile {
                folder: folder.to_owned(),
                name: name.to_owned(),
                path,
            }),
            _ => Err(format!(
                "the file of this program was replaced or moved while it runs: try again. {UNCHANGED}"
            )),
        }
    }

    /// Returns who replaces the file.
    pub fn kind(&self, has_own_bot: bool) -> InstallKind {
        let above = self.folder.parent().unwrap_or(&self.folder);
        let has_line = |file: &Path, is_meant: &dyn Fn(&str) -> bool| {
            fs::read_to_string(file).is_ok_and(|text| text.lines().any(is_meant))
        };
        let facts = InstallFacts {
            program: &self.path,
            has_own_bot,
            is_packaged: has_line(Path::new(PACKAGE_LIST), &|line| Path::new(line) == self.path),
            is_board_image: Path::new(BOARD_IMAGE).is_dir(),
            is_of_wheel: has_wheel(&above.join("lib")),
            is_of_cargo: has_line(&above.join(".crates.toml"), &|line| line.starts_with("\"edge-runner ")),
            is_of_build: self.folder.join(".fingerprint").is_dir(),
        };
        facts.kind()
    }

    /// Returns where the previous program is kept.
    pub fn previous(&self) -> PathBuf {
        self.folder.join(format!("{}.previous", self.name))
    }

    /// Makes other updates of this folder fail while the result is kept.
    pub fn lock(&self) -> Result<File, String> {
        self.is_replaceable().map_err(|why| format!("{why}. {UNCHANGED}"))?;
        let folder = File::open(&self.folder).map_err(|error| self.objection(&error))?;
        match folder.try_lock() {
            // Some network file systems have no locks.
            Ok(()) => Ok(folder),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(folder),
            Err(TryLockError::Error(error)) => Err(self.objection(&error)),
            Err(TryLockError::WouldBlock) => Err(format!(
                "another update of {} is running: wait until it is done. {UNCHANGED}",
                self.path.display()
            )),
        }
    }

    /// Checks that this user may replace the file; the error is a sentence without its end.
    pub fn is_replaceable(&self) -> Result<(), String> {
        access(&self.folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| self.obstacle(&error.into()))
    }

    /// Writes a file beside the program, with its owner and mode.
    pub fn write_new(&self, content: &[u8]) -> Result<NewFile<'_>, String> {
        let new = NewFile {
            path: self.folder.join(format!(".{}.new", self.name)),
            program: self,
        };
        self.write(&new.path, content).map_err(|error| self.objection(&error))?;
        Ok(new)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        remove(path)?;
        let old = fs::metadata(&self.path)?;
        // A link that another user put there is not followed.
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o700).open(path)?;
        file.write_all(content)?;
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
            // Only root can, and who may write to the folder may own the new file.
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        }
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o777))?;
        file.sync_all()
    }

    /// Keeps the program under the name of the previous one too.
    pub fn keep_previous(&self) -> Result<(), String> {
        let beside = self.folder.join(format!(".{}.old", self.name));
        let kept = (|| {
            remove(&beside)?;
            // Some file systems have no links, and some kernels no links to files of others.
            if fs::hard_link(&self.path, &beside).is_err() {
                self.write(&beside, &fs::read(&self.path)?)?;
            }
            fs::rename(&beside, self.previous())?;
            // A rename between two links to one file removes neither.
            remove(&beside)
        })();
        kept.map_err(|error| {
            let _ = remove(&beside);
            self.objection(&error)
        })
    }

    /// Brings the previous program back.
    pub fn restore(&self) -> io::Result<()> {
        fs::rename(self.previous(), &self.path)?;
        File::open(&self.folder)?.sync_all()
    }

    /// Returns why the file cannot be replaced, as a sentence without its end.
    fn obstacle(&self, error: &io::Error) -> String {
        let folder = self.folder.display();
        match error.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("this user may not write to {folder}: run it as a user who may, such as by sudo")
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                format!("{folder} is on a read-only file system: make it writable first")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                format!("the disk with {folder} is full: the new program needs room beside the old one")
            }
            _ => format!("{folder} cannot be written to: {error}"),
        }
    }

    fn objection(&self, error: &io::Error) -> String {
        format!("{}. {UNCHANGED}", self.obstacle(error))
    }
}

/// A file beside the program, which is removed unless it replaces it.
#[derive(Debug)]
pub struct NewFile<'a> {
    path: PathBuf,
    program: &'a ProgramFile,
}

impl NewFile<'_> {
    /// Asks the new program for its version, which shows that it runs here.
    pub fn try_to_run(&self, version: &str) -> Result<(), String> {
        // It reads a `.env` of the working directory.
        let asked = Command::new(&self.path)
            .arg("--version")
            .current_dir("/")
            .stdin(Stdio::null())
            .output();
        let asked = asked.map_err(|error| error.to_string())?;
        let output = String::from_utf8_lossy(&asked.stdout);
        let mut words = output.split_whitespace();
        match (asked.status.success(), words.next(), words.next()) {
            (true, Some("edge-runner"), Some(found)) if found == version => Ok(()),
            (true, ..) => Err(format!("it says that it is `{}`", output.trim())),
            (false, ..) => {
                let reason = String::from_utf8_lossy(&asked.stderr);
                Err(format!(
                    "{}, {}",
                    asked.status,
                    reason.lines().next().unwrap_or("without a word")
                ))
            }
        }
    }

    /// Replaces the program, and keeps the previous one.
    pub fn replace(self) -> Result<(), String> {
        self.program.keep_previous()?;
        fs::rename(&self.path, &self.program.path).map_err(|error| self.program.objection(&error))?;
        // The new name is there, even if the disk cannot say so.
        let _ = File::open(&self.program.folder).and_then(|folder| folder.sync_all());
        Ok(())
    }

    /// Installs the file as a package.
    pub fn give_to_dpkg(self) -> Result<(), String> {
        let mut dpkg = Command::new("dpkg");
        // The owner's settings stay, without a question.
        dpkg.args(["--install", "--force-confold"]).arg(&self.path);
        let installed = dpkg
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output();
        let installed = installed.map_err(|error| format!("dpkg cannot be started: {error}. {UNCHANGED}"))?;
        match installed.status.success() {
            true => Ok(()),
            false => Err(format!(
                "dpkg could not install the package: {}. `dpkg --audit` says what is missing",
                String::from_utf8_lossy(&installed.stderr).trim()
            )),
        }
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        let _ = remove(&self.path);
    }
}

/// Removes a file that may be absent.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether a wheel of the runner is among the modules of a Python below this folder.
fn has_wheel(lib: &Path) -> bool {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    let begins = |path: &PathBuf, with: &str| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(with.as_bytes()))
    };
    let pythons = names(lib).into_iter().filter(|path| begins(path, "python3"));
    let modules = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
    modules
        .into_iter()
        .any(|folder| names(&folder).iter().any(|path| begins(path, WHEEL)))
}
