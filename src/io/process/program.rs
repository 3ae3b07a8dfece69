//! One process with everything that it starts: its group, the signals to it, and the wait for the last of it.
//!
//! In: a command, the arguments for its environment, signals. Out: its exit status, and whether any of its group is left.
//! However it is let go of, no process of the group and no zombie stays behind.
//! Source: `kill(2)`, `setpgid(2)`, `waitpid(2)`, `proc_pid_stat(5)`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::output;
use crate::bot::SessionId;
use crate::io::tasks;
use crate::limits::{PROCESS_GROUP_INTERVAL, PROCESS_REST};
use crate::logging;

/// A running program.
pub struct Program {
    /// Dropped first: its signal needs the leader's number, which is free for others once the leader is reaped.
    group: Group,
    child: Child,
    /// Its words on their way to the log; a task of its own, so that a flood of them holds up nothing else.
    output: JoinSet<()>,
}

impl Program {
    /// Starts `command`, without a shell.
    ///
    /// # Errors
    /// The system's, when there is no such program, no memory for it or no right to it.
    pub fn start(command: &[OsString], arguments: &str, session_id: SessionId) -> io::Result<Program> {
        let (program, rest) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
        let mut child = Command::new(program)
            .args(rest)
            .env("ENV", "local")
            .env("RUNNER_ARGUMENTS", arguments)
            // Else Python keeps lines back until 8 KiB of them are there, and loses them in a crash.
            .env("PYTHONUNBUFFERED", "1")
            // The runner's own supervisor: a program that thinks it is the service would speak for the runner.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let id = child.id().expect("a child that was never waited for has a number");
        log::debug!("the bot is process {id}");
        let mut output = JoinSet::new();
        if let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) {
            output.spawn(tasks::boxed(logging::in_session(
                session_id,
                output::log(stdout, stderr),
            )));
        }
        Ok(Program {
            group: Group {
                id: id as libc::pid_t,
                is_led: true,
                is_gone: false,
            },
            child,
            output,
        })
    }

    /// Waits until the process itself has ended; what it started may go on.
    ///
    /// # Errors
    /// The system's, when somebody else took the exit status.
    pub async fn exited(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.group.is_led = false;
        status
    }

    /// Waits until the process and all of its group have ended.
    ///
    /// # Errors
    /// As [`Program::exited`].
    pub async fn gone(&mut self) -> io::Result<ExitStatus> {
        let status = self.exited().await;
        while !self.group.is_gone() {
            sleep(PROCESS_GROUP_INTERVAL).await;
        }
        status
    }

    /// Asks the group to end.
    pub fn terminate(&mut self) {
        self.group.signal(libc::SIGTERM);
    }

    /// Ends the group by force.
    pub fn kill(&mut self) {
        self.group.signal(libc::SIGKILL);
    }

    /// Waits until the last words are in the log; not for long, since a process that left the group may hold the pipes.
    pub async fn finish_output(&mut self) {
        let _ = timeout(PROCESS_REST, self.output.join_next()).await;
    }
}

/// Tells whether a program ended as SIGTERM ends programs: by the signal, with 0, or as shells report the signal.
pub fn is_of_sigterm(status: ExitStatus) -> bool {
    status.signal() == Some(libc::SIGTERM) || matches!(status.code(), Some(0 | 143))
}

/// A process group, by the number of its leader.
struct Group {
    id: libc::pid_t,
    /// The leader was not reaped yet, so that its number is nobody else's.
    is_led: bool,
    is_gone: bool,
}

impl Group {
    fn signal(&mut self, signal: libc::c_int) {
        // Without a leader the number lives as long as any member does, and not longer.
        if self.is_led || !self.is_gone() {
            // SAFETY: two numbers, no memory.
            unsafe { libc::kill(-self.id, signal) };
        }
    }

    /// Tells whether the group has no member any more; it is asked until it says so, and never after.
    fn is_gone(&mut self) -> bool {
        if self.is_led || self.is_gone {
            return self.is_gone;
        }
        // Where the runner is the first process of a container, orphans become its children: nobody else reaps them.
        // SAFETY: a null pointer says that the status is not wanted.
        while unsafe { libc::waitpid(-self.id, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
        // SAFETY: two numbers, no memory. Signal 0 only asks.
        self.is_gone = unsafe { libc::kill(-self.id, 0) } != 0 || !runs(self.id);
        self.is_gone
    }
}

/// Tells whether a member of a group runs. A zombie does not, and whoever has to reap it may take its time, or never do it: the
/// first process of a container often does not.
fn runs(group: libc::pid_t) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return true;
    };
    processes
        .flatten()
        // What is no process has no such file.
        .filter_map(|process| fs::read_to_string(process.path().join("stat")).ok())
        // Its number, its name in parentheses, which may hold anything, its state, its parent's number, its group's.
        .filter_map(|stat| {
            let (_, rest) = stat.rsplit_once(')')?;
            let mut fields = rest.split_ascii_whitespace();
            let (state, group) = (fields.next()?, fields.nth(1)?);
            (!matches!(state, "Z" | "X")).then(|| group.parse().ok())?
        })
        .any(|of: libc::pid_t| of == group)
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
    }
}
