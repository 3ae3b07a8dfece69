//! Ends builder commands that outlive the service.
//!
//! A signal that the kernel sends when a parent dies reaches one process alone, and commands have
//! children. So the service has a guard: this program once more, in a process of its own, which is
//! told the group of each running command, and kills them all when its stdin ends: the service is
//! gone then, however it went. It gets no variable of the service's, so that it has no key.
//!
//! In: groups that begin and end, a line each. Out: nothing, until the service is gone. What is in
//! no group that it was told of, and what a guard left that was killed as well, [`kill_leftovers`]
//! finds by the data directory in its environment. Source: `setpgid(2)`, `kill(2)`,
//! `proc_pid_environ(5)`.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, WaitOptions, getpgid, getpgrp, kill_process, kill_process_group, waitpid};
use tokio::signal::unix::{SignalKind, signal};

/// The service's end of the way to its guard.
static GUARD: OnceLock<ChildStdin> = OnceLock::new();

/// The name of the lock that a guard holds from its first command to its end.
pub const LOCK: &str = "guard.lock";

/// The word behind `cloud` that makes this program a guard; what follows it is the data directory.
pub const SUBCOMMAND: &str = "guard";

/// Makes the guard of this process. `data_dir` is where its commands work.
///
/// # Errors
/// The system's, when it has no more processes or files.
pub fn start(data_dir: &Path) -> io::Result<()> {
    let mut guard = Command::new("/proc/self/exe")
        .arg0("cloud-guard")
        .args(["cloud", SUBCOMMAND])
        .arg(std::path::absolute(data_dir)?)
        .env_clear()
        // It holds nothing that anybody could wait for: no terminal, no pipe, no folder.
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(stdin) = guard.stdin.take() {
        let _ = GUARD.set(stdin);
    }
    Ok(())
}

/// One command's entry in the guard's book; nothing is left of its group when it is dropped.
pub struct GuardEntry(Option<i32>);

impl GuardEntry {
    /// Says that a command is about to be started.
    pub fn announce() -> GuardEntry {
        send("?");
        GuardEntry(None)
    }

    /// Says which group it has. What ends the service between the two leaves the command to
    /// [`kill_leftovers`].
    pub fn started(&mut self, group: i32) {
        self.0 = Some(group);
        send(&format!("+{group}"));
    }
}

impl Drop for GuardEntry {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            send(&format!("-{group}"));
        }
    }
}

/// Without its guard the service goes on; the next start looks for leftovers.
fn send(line: &str) {
    if let Some(mut guard) = GUARD.get() {
        let _ = guard.write_all(format!("{line}\n").as_bytes());
    }
}

/// What the guard does all its life; it has to be called inside a runtime. A signal to all of a
/// service's processes is not for it: it ends when the service has.
pub fn run(data_dir: &Path) {
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ] {
        let _ = signal(kind);
    }
    let mut groups: Vec<Pid> = Vec::new();
    // Held while this guard has anything to end: the next service waits for it, so that what it
    // begins is not ended by this one. A service that began no command may be one that was refused
    // the directory: what runs there is another's.
    let mut held = None;
    for line in io::stdin().lines().map_while(Result::ok) {
        held = held.or_else(|| lock(data_dir));
        match (line.strip_prefix('+'), line.strip_prefix('-')) {
            (Some(group), _) => groups.extend(group.parse().ok().and_then(Pid::from_raw)),
            (_, Some(group)) => groups.retain(|known| Some(*known) != group.parse().ok().and_then(Pid::from_raw)),
            _ => {}
        }
    }
    for group in groups {
        let _ = kill_process_group(group, Signal::KILL);
    }
    if held.is_some() {
        kill_leftovers(data_dir);
    }
}

/// Takes the lock of a data directory's guard, once the guard before is gone. Some network file
/// systems know no locks; there the file alone has to do.
fn lock(data_dir: &Path) -> Option<fs::File> {
    let mut options = fs::OpenOptions::new();
    let opened = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(data_dir.join(LOCK));
    opened.ok().inspect(|file| drop(file.lock()))
}

/// Kills every process that was started as a command of a data directory, or by one, and their
/// groups. Returns how many there were.
pub fn kill_leftovers(data_dir: &Path) -> usize {
    let mut wanted = b"BUILD_CONTEXT=".to_vec();
    wanted.extend_from_slice(scratch_dir(data_dir).as_os_str().as_bytes());
    wanted.push(b'/');
    kill_matching(|variable| variable.starts_with(&wanted)).len()
}

/// Kills every process that was started as the command of one run, or by it, wherever it has gone.
/// Returns their numbers. One that gave its own children another environment has hidden them.
pub fn kill_run(context: &Path) -> Vec<Pid> {
    let mut wanted = b"BUILD_CONTEXT=".to_vec();
    wanted.extend_from_slice(context.as_os_str().as_bytes());
    kill_matching(|variable| variable == wanted)
}

/// Reaps those of the processes that have ended and are this one's children, and takes them out.
/// Where the service is the first process of a container, orphans become its children, and no other
/// process reaps them.
pub fn reap(killed: &mut Vec<Pid>) {
    // What is no child may become one, when its parent ends.
    killed.retain(|&id| !matches!(waitpid(Some(id), WaitOptions::NOHANG), Ok(Some(_))));
}

/// Returns where the commands of a data directory work, written in the one way that leftovers are
/// looked for: it need not be there yet, as the data directory has to.
pub fn scratch_dir(data_dir: &Path) -> PathBuf {
    canonical(data_dir).join("scratch")
}

/// Returns the one way to write the path of a folder.
pub fn canonical(folder: &Path) -> PathBuf {
    let whole = folder.canonicalize().or_else(|_| std::path::absolute(folder));
    whole.unwrap_or_else(|_| folder.to_owned())
}

fn kill_matching(is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = rustix::process::getpid();
    let mut found = Vec::new();
    for process in processes.flatten() {
        let Some(id) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok().and_then(Pid::from_raw))
        else {
            continue;
        };
        // Other users' processes, and those that have ended, tell nothing.
        let Ok(environment) = fs::read(process.path().join("environ")) else {
            continue;
        };
        if id == own || !environment.split(|&byte| byte == 0).any(&is_wanted) {
            continue;
        }
        found.push(id);
        // The group is its own, or that of the command it comes from: the service's has no such
        // variable.
        if let Ok(group) = getpgid(Some(id))
            && !group.is_init()
            && group != getpgrp()
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = kill_process(id, Signal::KILL);
    }
    found
}
