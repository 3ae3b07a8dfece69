//! The file of settings, as its settings page writes it: whole at any moment, and taken back if the
//! runner does not start with it.
//!
//! In: texts of the file. Out: files beside it.
//! - `FILE.last`: what the runner last started with, from a change on, until it has started with
//!   the changed file.
//! - `FILE.tried`: the same while it starts. A start that finds it takes it back, because the
//!   one before did not get far.
//! - `FILE.rejected`: a change that was taken back, below the reason; until the next change.
//!
//! Each of them is written under another name, synced and renamed. A power cut between any two
//! system calls leaves a whole file, and that of the last start. Owner and mode are those of the
//! file.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// How the reason begins in a rejected file.
const REASON: &str = "# Not taken: ";

/// What happens between two system calls: nothing, except in tests of power cuts.
type Step<'s> = &'s mut dyn FnMut();

/// The file of settings, and those beside it.
#[derive(Clone, Debug)]
pub struct SettingsStore {
    path: PathBuf,
}

/// What a start finds.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundSettings {
    /// The file of the last start.
    Known,
    /// A changed one. [`SettingsStore::pass`] or [`SettingsStore::reject`] follows.
    Changed,
    /// The start before failed with a changed one, which was taken back.
    TakenBack,
}

impl SettingsStore {
    /// Opens an existing file. A link leads to the file that is written.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn open(path: &Path) -> io::Result<SettingsStore> {
        let path = fs::canonicalize(path)?;
        Ok(SettingsStore { path })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file.
    ///
    /// # Errors
    /// Returns the operating system's error, or one for a file that is no text.
    pub fn read(&self) -> io::Result<String> {
        fs::read_to_string(&self.path)
    }

    /// Writes a changed file, and keeps the one that the runner started with.
    ///
    /// # Errors
    /// Returns the operating system's error. The file is then as before.
    pub fn change(&self, text: &str) -> io::Result<()> {
        self.change_by(text, &mut || {})
    }

    fn change_by(&self, text: &str, step: Step<'_>) -> io::Result<()> {
        let last = self.beside("last");
        if !last.try_exists()? {
            self.write(&last, &fs::read(&self.path)?, step)?;
        }
        self.write(&self.path, text.as_bytes(), step)?;
        remove(&self.beside("rejected"))
    }

    /// Says that the running runner has all of a changed file.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn apply(&self) -> io::Result<()> {
        remove(&self.beside("last"))
    }

    /// Begins a start.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn begin(&self) -> io::Result<FoundSettings> {
        self.begin_by(&mut || {})
    }

    fn begin_by(&self, step: Step<'_>) -> io::Result<FoundSettings> {
        let (last, tried) = (self.beside("last"), self.beside("tried"));
        if tried.try_exists()? {
            self.reject_by("the runner ended before it had started with this file", step)?;
            return Ok(FoundSettings::TakenBack);
        }
        if !last.try_exists()? {
            return Ok(FoundSettings::Known);
        }
        self.rename(&last, &tried, step)?;
        Ok(FoundSettings::Changed)
    }

    /// The runner has started with the changed file.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn pass(&self) -> io::Result<()> {
        remove(&self.beside("tried"))?;
        self.sync_folder()
    }

    /// The runner does not start with the changed file: takes the last one back, also where a full
    /// disk does not take the changed one with its reason.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn reject(&self, reason: &str) -> io::Result<()> {
        self.reject_by(reason, &mut || {})
    }

    fn reject_by(&self, reason: &str, step: Step<'_>) -> io::Result<()> {
        let reason: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let kept = fs::read(&self.path).and_then(|changed| {
            let text = [format!("{REASON}{reason}\n").as_bytes(), &changed].concat();
            self.write(&self.beside("rejected"), &text, step)
        });
        if let Err(error) = kept {
            log::warn!("the changed settings were not taken ({reason}), and cannot be kept: {error}");
        }
        self.rename(&self.beside("tried"), &self.path, step)
    }

    /// Returns why the last change was taken back, if it was.
    pub fn rejection(&self) -> Option<String> {
        let text = fs::read_to_string(self.beside("rejected")).ok()?;
        text.lines().next()?.strip_prefix(REASON).map(str::to_owned)
    }

    /// Returns the path of a file with this ending.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(ending);
        name.into()
    }

    fn write(&self, path: &Path, text: &[u8], step: Step<'_>) -> io::Result<()> {
        let like = fs::metadata(&self.path)?;
        let new = self.beside("new");
        // What a power cut left of an earlier change.
        remove(&new)?;
        step();
        let written = (|| {
            let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
            step();
            belong_as(&file, &like)?;
            step();
            file.write_all(text)?;
            step();
            file.sync_all()?;
            step();
            self.rename(&new, path, step)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn rename(&self, from: &Path, to: &Path, step: Step<'_>) -> io::Result<()> {
        fs::rename(from, to)?;
        step();
        self.sync_folder()?;
        step();
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

/// Gives a file the owner and the mode of another.
fn belong_as(file: &File, like: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
        fchown(file, Some(like.uid()), Some(like.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(like.mode() & 0o7777))
}

/// Removes a file that may not be there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
