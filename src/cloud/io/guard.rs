//! The guard process, which kills builder commands that outlive the service.
//!
//! The parent-death signal reaches one process, but commands have children. The service therefore
//! starts this program again as a guard, in its own process group and without environment. The
//! guard reads the process groups of running commands from stdin and kills them when stdin closes,
//! which happens however the service ends. [`kill_leftovers`] finds processes outside these groups,
//! and those of a killed guard, by the data directory in their environment. Source: `setpgid(2)`,
//! `kill(2)`, `proc_pid_environ(5)`; decision I-12.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpgid, getpgrp, kill_process, kill_process_group, waitpid};
use tokio::signal::unix::{SignalKind, signal};

/// The pipe to the guard.
static GUARD: OnceLock<ChildStdin> = OnceLock::new();

/// Lock file that a guard holds from the first command to its exit.
pub const LOCK: &str = "guard.lock";

/// The hidden subcommand that runs a guard; its arguments are the process id of the service, which
/// may have ended when the guard looks for its parent, and the data directory.
pub const SUBCOMMAND: &str = "guard";

/// Time between two looks at the processes.
const POLL: Duration = Duration::from_millis(1);
/// Searches for processes that a service has left.
const PASSES_MAX: u32 = 1_000;
/// Looks at a process that is in `execve(2)`: half a minute, since a busy board with a slow card
/// takes seconds to read a program.
const EXEC_POLLS_MAX: u32 = 30_000;

/// Starts the guard of this process.
///
/// # Errors
/// The error of the system.
pub fn start(data_dir: &Path) -> io::Result<()> {
    let mut guard = Command::new("/proc/self/exe")
        .arg0("cloud-guard")
        .args(["cloud", SUBCOMMAND])
        .arg(std::process::id().to_string())
        .arg(std::path::absolute(data_dir)?)
        .env_clear()
        // The guard keeps no terminal, pipe or folder open.
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

/// A running command as known to the guard; unregistered on drop.
pub struct GuardEntry(Option<i32>);

impl GuardEntry {
    /// Announces that a command is about to start.
    pub fn announce() -> GuardEntry {
        send("?");
        GuardEntry(None)
    }

    /// Registers the command's process group. If the service ends before this, [`kill_leftovers`]
    /// finds the command.
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

/// Errors are ignored: without a guard the next start kills leftovers.
fn send(line: &str) {
    if let Some(mut guard) = GUARD.get() {
        let _ = guard.write_all(format!("{line}\n").as_bytes());
    }
}

/// Runs the guard, inside a runtime. It ignores signals sent to all processes of a service and ends
/// when the service has ended.
pub fn run(service: u32, data_dir: &Path) {
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ] {
        let _ = signal(kind);
    }
    let mut groups: Vec<Pid> = Vec::new();
    // The next service waits for this lock, so that its commands are not killed by this guard.
    // Without a command, the guard may belong to a service that was refused the directory, and must
    // not kill anything there.
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
        wait_for_exit(service);
        kill_leftovers(data_dir);
    }
}

/// Waits until the parent has exited. Its pipes close earlier than its children get their
/// parent-death signal, and a command that dies by it during a search may leave a child that the
/// search has missed.
fn wait_for_exit(parent: u32) {
    while std::os::unix::process::parent_id() == parent {
        std::thread::sleep(POLL);
    }
}

/// Locks a data directory for a guard, waiting for an earlier one. File systems without locks are
/// tolerated.
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

/// Kills all processes started by commands of a data directory, and their groups. Searches until
/// none is found twice in a row, since a process may start others until it is killed. One search
/// may miss a child whose id is lower than that of its parent, because ids have wrapped round, if
/// the parent then ends by itself. A process that hangs in a disk or a driver is given up. Returns
/// their number.
pub fn kill_leftovers(data_dir: &Path) -> usize {
    let mut wanted = b"BUILD_CONTEXT=".to_vec();
    wanted.extend_from_slice(scratch_dir(data_dir).as_os_str().as_bytes());
    wanted.push(b'/');
    let mut killed = BTreeSet::new();
    let mut was_empty = false;
    for _ in 0..PASSES_MAX {
        let found = kill_matching(|variable| variable.starts_with(&wanted));
        let is_empty = found.is_empty();
        if is_empty && was_empty {
            break;
        }
        was_empty = is_empty;
        killed.extend(found.into_iter().map(Pid::as_raw_pid));
        std::thread::sleep(POLL);
    }
    killed.len()
}

/// Kills all processes started by the command of one run. Returns their ids. Processes with a
/// changed environment are not found.
pub fn kill_run(context: &Path) -> Vec<Pid> {
    let mut wanted = b"BUILD_CONTEXT=".to_vec();
    wanted.extend_from_slice(context.as_os_str().as_bytes());
    kill_matching(|variable| variable == wanted)
}

/// Reaps and removes exited children. As the init process of a container, the service inherits
/// orphans.
pub fn reap(killed: &mut Vec<Pid>) {
    // A process may become a child when its parent exits.
    killed.retain(|&id| !matches!(waitpid(Some(id), WaitOptions::NOHANG), Ok(Some(_))));
}

/// Returns the folder of all scratch folders in the form in which leftovers are searched. It need
/// not exist.
pub fn scratch_dir(data_dir: &Path) -> PathBuf {
    canonical(data_dir).join("scratch")
}

/// Returns the canonical path of a folder, or an absolute one.
pub fn canonical(folder: &Path) -> PathBuf {
    let whole = folder.canonicalize().or_else(|_| std::path::absolute(folder));
    whole.unwrap_or_else(|_| folder.to_owned())
}

/// Reads the environment of a process, given its folder below `/proc`. `None` for those that cannot
/// be read, which are those of other users and exited ones, and for one that stays in `execve(2)`.
fn environment(process: &Path) -> Option<Vec<u8>> {
    let read = || fs::read(process.join("environ")).ok();
    for _ in 0..EXEC_POLLS_MAX {
        let environment = read()?;
        if !environment.is_empty() {
            return Some(environment);
        }
        match fs::read_to_string(process.join("stat")) {
            Ok(stat) if is_in_exec(&stat) => std::thread::sleep(POLL),
            // It may have got its environment since the first look.
            _ => return read(),
        }
    }
    None
}

/// Tells by its `stat` whether a process is in `execve(2)`: its memory is new, and the kernel has
/// not noted yet where the code ends, which it does after the environment. Until then the
/// environment reads as empty, also when its bounds are set: Linux sets them to its start before it
/// looks for its end. Kernel threads and zombies have no memory.
fn is_in_exec(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return false;
    };
    // The first is the third of `proc_pid_stat(5)`.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let (state, memory, code_end) = (fields.first(), fields.get(20), fields.get(24));
    !matches!(state, Some(&("Z" | "X")))
        && memory.is_some_and(|bytes| *bytes != "0")
        && code_end.is_some_and(|end| *end == "0")
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
        let Some(environment) = environment(&process.path()) else {
            continue;
        };
        if id == own || !environment.split(|&byte| byte == 0).any(&is_wanted) {
            continue;
        }
        found.push(id);
        // The service itself lacks the variable, so the group is the process's own or a command's.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A search that takes such a process for one without the variable leaves it behind for good.
    #[test]
    fn a_process_in_execve_differs_from_others() {
        let stat = |state: &str, memory: &str, code_end: &str| {
            let mut fields = vec!["1"; 50];
            (fields[0], fields[20], fields[24]) = (state, memory, code_end);
            format!("7 (a) b) {}", fields.join(" "))
        };
        assert!(is_in_exec(&stat("R", "4096", "0")));
        assert!(is_in_exec(&stat("D", "4096", "0")));
        assert!(!is_in_exec(&stat("S", "4096", "140722156158955")));
        assert!(!is_in_exec(&stat("Z", "0", "0")), "a zombie");
        assert!(!is_in_exec(&stat("I", "0", "0")), "a kernel thread");
        assert!(!is_in_exec(""));
        let own = fs::read_to_string("/proc/self/stat").expect("a stat");
        assert!(!is_in_exec(&own));
    }

    /// Linux needs the longer for an environment the larger it is, and meanwhile shows none.
    #[test]
    fn an_environment_that_the_kernel_has_not_set_up_is_waited_for() {
        let many: Vec<(String, String)> = (0..4_000).map(|n| (format!("V{n}"), "0123456789".to_owned())).collect();
        for _ in 0..100 {
            let mut command = Command::new("/bin/cat");
            command.env_clear().envs(many.iter().cloned()).stdin(Stdio::piped());
            let mut child = command.spawn().expect("a child");
            let found = environment(&PathBuf::from(format!("/proc/{}", child.id()))).unwrap_or_default();
            assert!(found.starts_with(b"V"), "{} bytes", found.len());
            drop(child.stdin.take());
            child.wait().expect("an end");
        }
    }

    #[test]
    fn a_process_without_an_environment_is_not_waited_for() {
        let mut child = Command::new("/bin/cat").env_clear().stdin(Stdio::piped()).spawn();
        let child = child.as_mut().expect("a child");
        let process = PathBuf::from(format!("/proc/{}", child.id()));
        assert_eq!(environment(&process), Some(Vec::new()));
        drop(child.stdin.take());
        child.wait().expect("an end");
        assert_eq!(environment(&process), None);
    }
}
