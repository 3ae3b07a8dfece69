//! Ends builder commands that outlive the service.
//!
//! A signal that the kernel sends when a parent dies reaches one process alone, and commands have children. So the service has a
//! guard: a process of its own that knows the group of each running command, and kills them all when the service is gone, however
//! it went. It is made before the service has threads or open files, since it is a copy that never becomes another program.
//! A command's group is told by the command's own process before that becomes the command, so that there is no gap.
//!
//! In: groups that begin and end. Out: nothing, until the service is gone. For a guard that was killed as well, [`end_leftovers`]
//! looks for commands of a data directory by what their environment says of it.
//! Source: `fork(2)`, `socketpair(2)`, `setsid(2)`, `proc_pid_environ(5)`.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The service's end of the way to its guard.
static GUARD: OnceLock<OwnedFd> = OnceLock::new();

/// The name of the lock that a guard holds from its first command to its end.
pub const LOCK: &str = "guard.lock";

const BEGINS: u8 = b'+';
const ENDS: u8 = b'-';
/// What it is, the command's entry, its group.
const MESSAGE_BYTES: usize = 9;

/// Makes the guard of this process, which has to have one thread and should have no files open. `data_dir` is where its commands
/// work.
///
/// # Errors
/// The system's, when it has no more processes or files.
///
/// # Safety
/// No other thread may run: what it holds at that moment, the heap's lock among it, would stay held in the guard.
pub unsafe fn start(data_dir: &Path) -> io::Result<()> {
    let mut ends = [0; 2];
    // A message stays whole, and a guard that is gone is an error and no signal.
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the call writes two numbers to where there is room for two.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made both, and nobody else knows of them.
    let [ours, its] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    // SAFETY: the caller has one thread, so that the copy finds nothing locked.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            // Before it goes to the root.
            let data_dir = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
            watch(its.into_raw_fd(), &data_dir)
        }
        _ => {
            let _ = GUARD.set(ours);
            Ok(())
        }
    }
}

/// One command's entry in the guard's book; nothing is left of its group when it is dropped.
pub struct Entry(u32);

impl Entry {
    /// Makes an entry for a command that is about to be started.
    pub fn next() -> Entry {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Entry(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns what the process that becomes the command has to do, between `fork` and `exec`: tell that its group begins. That is
    /// one system call.
    pub fn begins(&self) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
        let entry = self.0;
        move || {
            // SAFETY: it only asks.
            tell(BEGINS, entry, unsafe { libc::getpid() });
            Ok(())
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        tell(ENDS, self.0, 0);
    }
}

fn tell(what: u8, entry: u32, group: i32) {
    let Some(guard) = GUARD.get() else {
        return;
    };
    let mut message = [what; MESSAGE_BYTES];
    message[1..5].copy_from_slice(&entry.to_ne_bytes());
    message[5..].copy_from_slice(&group.to_ne_bytes());
    // Without its guard the service goes on; the next start looks for leftovers.
    // SAFETY: the message outlives the call.
    unsafe {
        libc::send(
            guard.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            libc::MSG_NOSIGNAL,
        );
    }
}

/// What the guard does all its life. It holds nothing that anybody could wait for: no terminal, no pipe, no folder.
fn watch(socket: RawFd, data_dir: &Path) -> ! {
    // SAFETY: plain system calls on this process, which has one thread and shares nothing that they change. The file that is
    // opened takes the lowest number, which is the first of the three that were closed.
    unsafe {
        libc::setsid();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"cloud-guard".as_ptr());
        libc::chdir(c"/".as_ptr());
        let highest = libc::sysconf(libc::_SC_OPEN_MAX).clamp(256, 4096) as RawFd;
        for descriptor in (0..highest).filter(|&descriptor| descriptor != socket) {
            libc::close(descriptor);
        }
        for _ in 0..3 {
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        }
    }
    let mut groups: Vec<(u32, i32)> = Vec::new();
    // Held while this guard has anything to end: the next service waits for it, so that what it begins is not ended by this one. A
    // service that began no command may be one that was refused the directory: what runs there is another's.
    let mut held = None;
    loop {
        let mut message = [0_u8; MESSAGE_BYTES];
        // SAFETY: the call writes to the message alone, and no more than it holds.
        let length = unsafe { libc::recv(socket, message.as_mut_ptr().cast(), message.len(), 0) };
        let [what, a, b, c, d, rest @ ..] = message;
        let (entry, group) = (u32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes(rest));
        match (length, what) {
            (9, BEGINS) => {
                groups.push((entry, group));
                held = held.or_else(|| hold(data_dir));
            }
            (9, ENDS) => groups.retain(|&(known, _)| known != entry),
            (-1, _) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    for (_, group) in groups {
        // SAFETY: two numbers, no memory.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    if held.is_some() {
        end_leftovers(data_dir);
    }
    // SAFETY: it ends this process without what the service would do at its end.
    unsafe { libc::_exit(0) }
}

/// Takes the lock of a data directory's guard, once the guard before is gone. Some network file systems know no locks; there the
/// file alone has to do.
fn hold(data_dir: &Path) -> Option<fs::File> {
    let mut options = fs::OpenOptions::new();
    let opened = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(data_dir.join(LOCK));
    opened.ok().inspect(|file| drop(file.lock()))
}

/// Kills every process that was started as a command of a data directory, or by one, and their groups. Returns how many there were.
pub fn end_leftovers(data_dir: &Path) -> usize {
    let mut wanted = b"BUILD_CONTEXT=".to_vec();
    wanted.extend_from_slice(scratch(data_dir).as_os_str().as_bytes());
    wanted.push(b'/');
    end_where(|variable| variable.starts_with(&wanted)).len()
}

/// Kills every process that was started as the command of one run, or by it, wherever it has gone. Returns their numbers. One
/// that gave its own children another environment has hidden them.
pub fn end_run(context: &Path) -> Vec<libc::pid_t> {
    let mut wanted = b"BUILD_CONTEXT=".to_vec();
    wanted.extend_from_slice(context.as_os_str().as_bytes());
    end_where(|variable| variable == wanted)
}

/// Reaps those of the processes that have ended and are this one's children, and takes them out. Where the service is the first
/// process of a container, orphans become its children, and nobody else reaps them.
pub fn reap(killed: &mut Vec<libc::pid_t>) {
    // What is no child may become one, when its parent ends.
    // SAFETY: a null pointer says that the status is not wanted.
    killed.retain(|&id| unsafe { libc::waitpid(id, std::ptr::null_mut(), libc::WNOHANG) } <= 0);
}

/// Returns where the commands of a data directory work, written in the one way that leftovers are looked for: it need not be there
/// yet, as the data directory has to.
pub fn scratch(data_dir: &Path) -> PathBuf {
    whole(data_dir).join("scratch")
}

/// Returns the one way to write the path of a folder.
pub fn whole(folder: &Path) -> PathBuf {
    let whole = folder.canonicalize().or_else(|_| std::path::absolute(folder));
    whole.unwrap_or_else(|_| folder.to_owned())
}

fn end_where(is_wanted: impl Fn(&[u8]) -> bool) -> Vec<libc::pid_t> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id() as i32;
    let mut found = Vec::new();
    for process in processes.flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
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
        // SAFETY: numbers, no memory.
        unsafe {
            // The group is its own, or that of the command it comes from: the service's has no such variable.
            let group = libc::getpgid(id);
            if group > 1 && group != libc::getpgrp() {
                libc::kill(-group, libc::SIGKILL);
            }
            libc::kill(id, libc::SIGKILL);
        }
    }
    found
}
