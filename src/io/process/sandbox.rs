//! The sandbox of `--sandbox` for programs: bubblewrap, which Debian and Raspberry Pi OS package.
//!
//! In: the configuration. Out: the words to put before the command of a program. The program sees
//! the files of the machine, but may only write to its working folder, to that of uploads, whose
//! files it deletes, and to a temporary folder of its own. It sees no other process, has no
//! capability, makes no namespaces, and sees neither the state folder, which has the keys of
//! `--tls auto` and `--tls acme`, nor what is kept of calls, nor the files from which the runner
//! read its settings and keys. Devices and the network stay. Source: bwrap(1).

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::config::Config;

const LAUNCHER: &str = "bwrap";
/// Keeps programs from namespaces of their own, in which they would have capabilities. Since
/// bubblewrap 0.8.
const NO_MORE_NAMESPACES: [&str; 2] = ["--unshare-user", "--disable-userns"];
/// The folder of programs whose working folder would be the state folder.
const PROGRAMS_FOLDER: &str = "programs";

/// Where programs run, and what they do not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    working_dir: PathBuf,
    /// Folders that are seen as empty ones.
    emptied: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    uploads: Option<PathBuf>,
}

/// Why programs cannot run in a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("`--sandbox` needs bubblewrap: `{LAUNCHER}` cannot be run: {0} (on Debian: apt-get install bubblewrap)")]
    Missing(#[source] io::Error),
    #[error(
        "`--sandbox`: `{LAUNCHER}` fails here: {0}; containers, and units with RestrictNamespaces=, forbid the user namespaces \
         that it needs; for the packaged unit there is sandbox.conf (\"Sandbox\" in docs/operations.md)"
    )]
    Refused(String),
    #[error("`--sandbox`: the working folder {}: {source}", .folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    #[error(
        "`--sandbox`: programs may write beside {}, and so change what `--settings page` takes back: move this file to a folder \
         that programs do not write to",
        .file.display()
    )]
    Settings { file: PathBuf },
}

/// A change of what the program sees, at its path.
enum Mount<'a> {
    /// An empty folder, whose files are in memory.
    Empty(&'a Path),
    /// The folder as it is, to write to.
    Writable(&'a Path),
    /// An empty file.
    Hidden(&'a Path),
}

impl Mount<'_> {
    fn path(&self) -> &Path {
        let (Mount::Empty(path) | Mount::Writable(path) | Mount::Hidden(path)) = self;
        path
    }

    fn depth(&self) -> usize {
        self.path().components().count()
    }
}

impl Sandbox {
    /// Returns the sandbox of the configuration, if it asks for one.
    pub fn new(config: &Config) -> Option<Self> {
        let hidden = config.sandbox.as_ref()?.iter();
        let state_dir = config.state_dir.clone();
        let working_dir = match config.bot_folder.clone() {
            Some(folder) if Some(&folder) == state_dir.as_ref() => folder.join(PROGRAMS_FOLDER),
            Some(folder) => folder,
            None => std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        };
        let absolute = |path: &PathBuf| std::path::absolute(path).ok();
        Some(Sandbox {
            working_dir: absolute(&working_dir).unwrap_or(working_dir),
            emptied: state_dir
                .iter()
                .chain(config.calls.folders())
                .filter_map(absolute)
                .collect(),
            hidden: hidden.filter_map(absolute).collect(),
            uploads: config.uploads_dir.as_ref().and_then(absolute),
        })
    }

    /// Returns the working folder of programs.
    pub fn working_dir(&self) -> &Path {
        &self.working_dir
    }

    /// Returns the words before the command. What is hidden has to exist by now.
    pub fn launcher(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = [LAUNCHER, "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"]
            .into_iter()
            .chain(NO_MORE_NAMESPACES.into_iter().filter(|_| forbids_namespaces()))
            .chain(["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"])
            .map(OsString::from)
            .collect();
        for mount in self.mounts() {
            match mount {
                Mount::Empty(path) => words.extend(["--tmpfs".into(), path.into()]),
                Mount::Writable(path) => words.extend(["--bind".into(), path.into(), path.into()]),
                Mount::Hidden(path) => words.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]),
            }
        }
        words.extend(["--chdir".into(), self.working_dir.clone().into(), "--".into()]);
        words
    }

    /// Returns the mounts, outer folders first.
    fn mounts(&self) -> Vec<Mount<'_>> {
        let emptied = self.emptied.iter().map(PathBuf::as_path).filter(|path| path.is_dir());
        // A service that starts there has nothing to write.
        let writable = (self.working_dir != Path::new("/")).then_some(Mount::Writable(&self.working_dir));
        let uploads = self.uploads.as_deref().filter(|path| path.is_dir());
        let files = self.hidden.iter().map(PathBuf::as_path).filter(|path| path.is_file());
        let mut mounts = vec![Mount::Empty(Path::new("/tmp"))];
        for mount in emptied
            .map(Mount::Empty)
            .chain(writable)
            .chain(uploads.map(Mount::Writable))
            .chain(files.map(Mount::Hidden))
        {
            let is_inner = |other: &Mount<'_>| other.depth() > mount.depth();
            let at = mounts.iter().position(is_inner).unwrap_or(mounts.len());
            mounts.insert(at, mount);
        }
        mounts
    }

    /// Returns whether programs may write to the folder of a file.
    fn may_write_beside(&self, file: &Path) -> bool {
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let Some(file) = real(file) else { return false };
        let is_around = |mount: &&Mount<'_>| {
            real(mount.path()).is_some_and(|path| file.parent().is_some_and(|folder| folder.starts_with(path)))
        };
        // The innermost one counts.
        matches!(self.mounts().iter().rfind(is_around), Some(Mount::Writable(_)))
    }

    /// Makes the working folder, and runs a program that does nothing. `settings` is the file that
    /// the settings page changes: what the last start had is beside it. Blocks, so it is for the
    /// start, before the first session.
    ///
    /// # Errors
    /// [`SandboxError`] if that fails, and if programs may write beside that file.
    pub fn check(&self, settings: Option<&Path>) -> Result<(), SandboxError> {
        std::fs::create_dir_all(&self.working_dir).map_err(|source| SandboxError::Folder {
            folder: self.working_dir.clone(),
            source,
        })?;
        if let Some(file) = settings.filter(|file| self.may_write_beside(file)) {
            return Err(SandboxError::Settings { file: file.to_owned() });
        }
        let launcher = self.launcher();
        let output = Command::new(&launcher[0])
            .args(&launcher[1..])
            .arg("true")
            .stdin(Stdio::null())
            .output()
            .map_err(SandboxError::Missing)?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let report = String::from_utf8_lossy(&output.stderr);
                let line = report.lines().next().unwrap_or_default();
                Err(SandboxError::Refused(line.trim_start_matches("bwrap: ").to_owned()))
            }
        }
    }
}

/// Returns whether bubblewrap can forbid namespaces here. Runs it once, and blocks for that long.
fn forbids_namespaces() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let probe = Command::new(LAUNCHER)
            .args(NO_MORE_NAMESPACES)
            .args(["--ro-bind", "/", "/", "--proc", "/proc", "true"])
            .stdin(Stdio::null())
            .output();
        probe.is_ok_and(|output| output.status.success())
    })
}

#[cfg(test)]
mod tests {
    use edge_runner_http::testing::TempDir;

    use super::*;

    fn sandbox(working_dir: &Path, state_dir: Option<&Path>, hidden: &[&Path]) -> Sandbox {
        Sandbox {
            working_dir: working_dir.to_owned(),
            emptied: state_dir.map(Path::to_owned).into_iter().collect(),
            hidden: hidden.iter().map(|path| path.to_path_buf()).collect(),
            uploads: None,
        }
    }

    fn words(sandbox: &Sandbox) -> String {
        let words: Vec<_> = sandbox
            .launcher()
            .iter()
            .map(|word| word.display().to_string())
            .collect();
        words.join(" ")
    }

    /// The order decides what is seen: a folder within one that is hidden has to come after it.
    #[test]
    fn what_is_within_a_hidden_folder_comes_after_it() {
        let (folder, missing) = (Path::new("/usr/share"), Path::new("/no/such/folder"));
        let inside = words(&sandbox(&folder.join("doc"), Some(folder), &[]));
        assert!(inside.ends_with(
            "--tmpfs /tmp --tmpfs /usr/share --bind /usr/share/doc /usr/share/doc --chdir /usr/share/doc --"
        ));
        let around = words(&sandbox(folder, Some(&folder.join("doc")), &[]));
        assert!(around.contains("--bind /usr/share /usr/share --tmpfs /usr/share/doc"));
        assert!(!words(&sandbox(folder, Some(missing), &[missing])).contains("no/such"));
    }

    #[test]
    fn a_service_in_the_root_folder_gets_nothing_to_write() {
        let words = words(&sandbox(Path::new("/"), None, &[Path::new("/etc/passwd")]));
        assert!(words.ends_with("--tmpfs /tmp --ro-bind /dev/null /etc/passwd --chdir / --"));
        assert!(!words.contains("--bind "));
    }

    /// Also within a folder that is hidden.
    #[test]
    fn uploads_are_there_to_be_read_and_deleted() {
        let config = crate::proto::config! {
            sandbox: Some(Vec::new()),
            bot_folder: Some(PathBuf::from("/")),
            state_dir: Some(PathBuf::from("/usr/share")),
            uploads_dir: Some(PathBuf::from("/usr/share/doc")),
            ..Config::default()
        };
        let sandbox = Sandbox::new(&config).expect("it is asked for");
        assert!(words(&sandbox).contains("--tmpfs /usr/share --bind /usr/share/doc /usr/share/doc --chdir"));
    }

    #[test]
    fn what_is_kept_of_calls_is_hidden() {
        let config = crate::proto::config! {
            sandbox: Some(Vec::new()),
            bot_folder: Some(PathBuf::from("/")),
            calls: crate::config::CallsConfig {
                dir: Some(PathBuf::from("/usr/share")),
                ..Default::default()
            },
            ..Config::default()
        };
        let sandbox = Sandbox::new(&config).expect("it is asked for");
        assert!(words(&sandbox).contains("--tmpfs /usr/share "));
    }

    /// Otherwise a program could put a file there that the next start takes for the settings of the
    /// last one.
    #[test]
    fn programs_do_not_write_beside_the_file_of_the_settings_page() {
        let folder = TempDir::new();
        let (bots, state) = (folder.path("bots"), folder.path("bots/state"));
        std::fs::create_dir_all(&state).expect("the folder is the test's");
        let sandbox = sandbox(&bots, Some(&state), &[]);
        let file = |name: &str| {
            let file = folder.path(name);
            std::fs::write(&file, "").expect("the folder is the test's");
            file
        };
        let inside = file("bots/edge-runner.toml");
        let link = folder.path("link.toml");
        std::os::unix::fs::symlink(&inside, &link).expect("the folder is the test's");
        for file in [inside, link] {
            let refused = sandbox.check(Some(&file)).expect_err("programs write there");
            assert!(refused.to_string().contains(&*file.display().to_string()), "{refused}");
        }
        assert!(!sandbox.may_write_beside(&file("edge-runner.toml")));
        let hidden = file("bots/state/edge-runner.toml");
        assert!(!sandbox.may_write_beside(&hidden), "programs see an empty folder");
    }

    #[test]
    fn a_program_never_works_in_the_state_folder() {
        let state = PathBuf::from("/var/lib/edge-runner");
        let config = crate::proto::config! {
            sandbox: Some(Vec::new()),
            bot_folder: Some(state.clone()),
            state_dir: Some(state.clone()),
            ..Config::default()
        };
        let sandbox = Sandbox::new(&config).expect("it is asked for");
        assert_eq!(sandbox.working_dir(), state.join(PROGRAMS_FOLDER));
        assert_eq!(Sandbox::new(&Config::default()), None);
    }
}
