//! The sandbox of `--sandbox` for programs: bubblewrap, which Debian and Raspberry Pi OS package.
//!
//! In: the configuration. Out: the words to put before the command of a program. The program sees
//! the files of the machine, but may only write to its working folder, to that of uploads, whose
//! files it deletes, and to a temporary folder of its own. It sees no other process, has no
//! capability, makes no namespaces, and sees neither the state folder, which has the keys of
//! `--tls auto` and `--tls acme`, nor what is kept of calls, nor the files from which the runner
//! read its settings and keys. Devices and the network stay. Source: bwrap(1).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{fs, io};

use crate::config::Config;

const LAUNCHER: &str = "bwrap";
/// Keeps programs from namespaces of their own, in which they would have capabilities. Since
/// bubblewrap 0.8.
const NO_MORE_NAMESPACES: [&str; 2] = ["--unshare-user", "--disable-userns"];
/// The folder of programs whose working folder would be the state folder.
const PROGRAMS_FOLDER: &str = "programs";
/// Links on the way to a file, as Linux follows them.
const LINKS_MAX: usize = 40;

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
    #[error(
        "`--sandbox`: programs may replace the link {}, which leads to a file that the runner reads: put the file there, or name \
         it by its own path",
        .link.display()
    )]
    Link { link: PathBuf },
}

/// A change of what the program sees, at a real path.
struct Mount {
    kind: MountKind,
    path: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MountKind {
    /// An empty folder, whose files are in memory.
    Empty,
    /// The folder as it is, to write to.
    Writable,
    /// A folder in a writable one. It is written to as well, but not moved.
    Pinned,
    /// An empty file.
    Hidden,
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

    /// Returns the files that programs do not see. One that another file takes the place of takes
    /// its mount along, and is seen by a program that runs.
    pub fn hidden(&self) -> &[PathBuf] {
        &self.hidden
    }

    /// Returns the words before the command. What is hidden has to exist by now.
    pub fn launcher(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = [LAUNCHER, "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"]
            .into_iter()
            .chain(NO_MORE_NAMESPACES.into_iter().filter(|_| forbids_namespaces()))
            .chain(["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"])
            .map(OsString::from)
            .collect();
        for Mount { kind, path } in self.mounts() {
            let path = path.into_os_string();
            match kind {
                MountKind::Empty => words.extend(["--tmpfs".into(), path]),
                MountKind::Writable | MountKind::Pinned => words.extend(["--bind".into(), path.clone(), path]),
                MountKind::Hidden => words.extend(["--ro-bind".into(), "/dev/null".into(), path]),
            }
        }
        words.extend(["--chdir".into(), self.working_dir.clone().into(), "--".into()]);
        words
    }

    /// Returns the mounts, outer folders first.
    fn mounts(&self) -> Vec<Mount> {
        let real = |path: &PathBuf| fs::canonicalize(path).ok();
        let folder = |path: &PathBuf| real(path).filter(|path| path.is_dir());
        let file = |path: &PathBuf| real(path).filter(|path| path.is_file());
        let of = |kind| move |path| Mount { kind, path };
        let working_dir = real(&self.working_dir).unwrap_or_else(|| self.working_dir.clone());
        // A service that starts there has nothing to write.
        let writable = Some(working_dir).filter(|path| path != Path::new("/"));
        let emptied = self.emptied.iter().filter_map(folder);
        let uploads = self.uploads.iter().filter_map(folder);
        let files = self.hidden.iter().filter_map(file);
        let mut mounts = vec![of(MountKind::Empty)(PathBuf::from("/tmp"))];
        emptied
            .map(of(MountKind::Empty))
            .chain(writable.map(of(MountKind::Writable)))
            .chain(uploads.map(of(MountKind::Writable)))
            .chain(files.map(of(MountKind::Hidden)))
            .for_each(|mount| insert(&mut mounts, mount));
        let pinned = pinned(&mounts).into_iter().map(of(MountKind::Pinned));
        pinned.for_each(|mount| insert(&mut mounts, mount));
        mounts
    }

    /// Returns whether programs may write to a folder, given by its real path.
    fn may_write_to(&self, folder: &Path) -> bool {
        let mounts = self.mounts();
        // The innermost one counts.
        let around = mounts.iter().rfind(|mount| folder.starts_with(&mount.path));
        around.is_some_and(|mount| matches!(mount.kind, MountKind::Writable | MountKind::Pinned))
    }

    /// Returns whether programs may write to the folder of a file.
    fn may_write_beside(&self, file: &Path) -> bool {
        let file = fs::canonicalize(file).ok();
        let folder = file.as_deref().and_then(Path::parent);
        folder.is_some_and(|folder| self.may_write_to(folder))
    }

    /// Returns a link on the way to a file that programs may replace by another one.
    fn replaceable_link(&self, file: &Path) -> Option<PathBuf> {
        let mut path = file.to_owned();
        for _ in 0..LINKS_MAX {
            // The outermost one: what is above it is real.
            let link = path.ancestors().filter(|part| part.is_symlink()).last()?.to_owned();
            let folder = fs::canonicalize(link.parent()?).ok()?;
            if self.may_write_to(&folder) {
                return Some(link);
            }
            let target = folder.join(fs::read_link(&link).ok()?);
            let rest = path.strip_prefix(&link).ok()?;
            // An empty rest would add a slash, which leads through the next link.
            path = match rest.as_os_str().is_empty() {
                true => target,
                false => target.join(rest),
            };
        }
        None
    }

    /// Makes the working folder, and runs a program that does nothing. `settings` is the file that
    /// the settings page changes: what the last start had is beside it. Blocks, so it is for the
    /// start, before the first session.
    ///
    /// # Errors
    /// [`SandboxError`] if that fails, and if programs may write beside that file, or replace a
    /// link to one that the runner reads.
    pub fn check(&self, settings: Option<&Path>) -> Result<(), SandboxError> {
        fs::create_dir_all(&self.working_dir).map_err(|source| SandboxError::Folder {
            folder: self.working_dir.clone(),
            source,
        })?;
        if let Some(file) = settings.filter(|file| self.may_write_beside(file)) {
            return Err(SandboxError::Settings { file: file.to_owned() });
        }
        if let Some(link) = self.hidden.iter().find_map(|file| self.replaceable_link(file)) {
            return Err(SandboxError::Link { link });
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

/// Inserts a mount behind those that may be around it.
fn insert(mounts: &mut Vec<Mount>, mount: Mount) {
    let depth = |mount: &Mount| mount.path.components().count();
    let is_inner = |other: &Mount| depth(other) > depth(&mount);
    let at = mounts.iter().position(is_inner).unwrap_or(mounts.len());
    mounts.insert(at, mount);
}

/// Returns the folders between one that programs may write to and what they do not see in it. A
/// program that could move such a folder could put another file in the place of a hidden one.
fn pinned(mounts: &[Mount]) -> BTreeSet<PathBuf> {
    let mut pinned = BTreeSet::new();
    let unseen = mounts
        .iter()
        .filter(|mount| matches!(mount.kind, MountKind::Empty | MountKind::Hidden));
    for mount in unseen {
        let folders = || mount.path.ancestors().skip(1);
        let around = folders().find_map(|folder| mounts.iter().rfind(|mount| mount.path == folder));
        if let Some(around) = around.filter(|around| around.kind == MountKind::Writable) {
            let between = folders().take_while(|folder| *folder != around.path);
            pinned.extend(between.map(Path::to_owned));
        }
    }
    pinned
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
        fs::create_dir_all(&state).expect("the folder is the test's");
        let sandbox = sandbox(&bots, Some(&state), &[]);
        let file = |name: &str| {
            let file = folder.path(name);
            fs::write(&file, "").expect("the folder is the test's");
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

    /// A folder that can be moved takes its mounts along, and another one in its place has none.
    #[test]
    fn folders_with_what_is_hidden_stay_where_they_are() {
        let folder = TempDir::new();
        let bots = folder.path("bots");
        let (state, file) = (bots.join("var/state"), bots.join("etc/runner/edge-runner.toml"));
        for folder in [&state, &bots.join("etc/runner"), &bots.join("src")] {
            fs::create_dir_all(folder).expect("the folder is the test's");
        }
        fs::write(&file, "").expect("the folder is the test's");
        let sandbox = sandbox(&bots, Some(&state), &[&file, &state.join("key")]);
        let words = words(&sandbox);
        let at = |words_of_mount: String| {
            words
                .find(&words_of_mount)
                .unwrap_or_else(|| panic!("{words_of_mount}: {words}"))
        };
        let bind = |path: &Path| at(format!("--bind {0} {0} ", path.display()));
        let order = [
            bind(&bots),
            bind(&bots.join("etc")),
            bind(&bots.join("etc/runner")),
            at(format!("--ro-bind /dev/null {}", file.display())),
        ];
        assert!(order.is_sorted(), "{words}");
        assert!(bind(&bots.join("var")) < at(format!("--tmpfs {}", state.display())));
        assert_eq!(words.matches("--bind ").count(), 4, "{words}");
        assert!(sandbox.may_write_beside(&file), "a folder that stays is written to");
    }

    #[test]
    fn programs_replace_no_link_to_a_file_of_the_runner() {
        let folder = TempDir::new();
        let (bots, file) = (folder.path("bots"), folder.path("edge-runner.toml"));
        fs::create_dir_all(&bots).expect("the folder is the test's");
        fs::write(&file, "").expect("the folder is the test's");
        let link = |name: &str, to: &Path| {
            let link = folder.path(name);
            std::os::unix::fs::symlink(to, &link).expect("the folder is the test's");
            link
        };
        let inside = link("bots/settings.toml", &file);
        let outside = link("outside.toml", &file);
        let through = link("through.toml", Path::new("bots/settings.toml"));
        for named in [&inside, &through] {
            let refused = sandbox(&bots, None, &[&file, named])
                .check(None)
                .expect_err("it is a link of theirs");
            assert!(
                refused.to_string().contains(&*inside.display().to_string()),
                "{refused}"
            );
        }
        assert_eq!(sandbox(&bots, None, &[]).replaceable_link(&outside), None);
        assert_eq!(sandbox(&bots, None, &[]).replaceable_link(&bots.join("missing")), None);
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
