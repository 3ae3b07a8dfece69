//! One process with everything that it starts: its group, the signals to it, and the wait for the last of it.
//!
//! In: a command, the arguments for its environment, signals. Out: its exit status, and whether any of its group is left.
//! However it is let go of, no process of the group and no zombie stays behind.
//! The group itself is [`crate::io::group`].

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::output_log;
use super::pcm::Pipes;
use crate::bot::SessionId;
use crate::config::BotAudio;
use crate::io::group::ProcessGroup;
use crate::io::tasks;
use crate::limits::{PROCESS_GROUP_INTERVAL, PROCESS_REST};
use crate::logging;

/// What is run for every session.
pub struct ProgramSpec {
    pub command: Vec<OsString>,
    /// Variables of this process that it does not inherit.
    pub withheld: Vec<String>,
    /// How the program gets its audio.
    pub audio: BotAudio,
    /// Where it starts; `None` means where this process did.
    pub working_dir: Option<PathBuf>,
}

/// A running program.
pub struct Program {
    /// Dropped first: its signal needs the leader's number, which is free for others once the leader is reaped.
    group: ProcessGroup,
    child: Child,
    /// Its words on their way to the log; a task of its own, so that a flood of them holds up nothing else.
    output_log: JoinSet<()>,
}

impl Program {
    /// Starts the command, without a shell. The pipes are those of its audio in raw mode.
    ///
    /// # Errors
    /// The system's, when there is no such program, no memory for it or no right to it.
    pub fn start(spec: &ProgramSpec, arguments: &str, session_id: SessionId) -> io::Result<(Program, Option<Pipes>)> {
        let (program, rest) = spec.command.split_first().ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        for name in &spec.withheld {
            command.env_remove(name);
        }
        if let Some(working_dir) = &spec.working_dir {
            command.current_dir(working_dir);
        }
        let stdin = match spec.audio {
            BotAudio::Protobuf => Stdio::null(),
            BotAudio::Pcm { rate_hz } => {
                command.env("RUNNER_BOT_RATE", rate_hz.to_string());
                Stdio::piped()
            }
        };
        let mut child = command
            .args(rest)
            .env("ENV", "local")
            .env("RUNNER_ARGUMENTS", arguments)
            // Else Python keeps lines back until 8 KiB of them are there, and loses them in a crash.
            .env("PYTHONUNBUFFERED", "1")
            // The runner's own supervisor: a program that thinks it is the service would speak for the runner.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .env_remove("WATCHDOG_PID")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let id = child.id().expect("a child that was never waited for has a number");
        log::debug!("the bot is process {id}");
        let mut pipes = None;
        let mut stdout = child.stdout.take();
        if let Some(stdin) = child.stdin.take() {
            pipes = stdout.take().map(|stdout| Pipes::new(stdin, stdout));
        }
        let mut output_log = JoinSet::new();
        if let Some(stderr) = child.stderr.take() {
            let log = async move {
                match stdout {
                    Some(stdout) => output_log::run(stdout, stderr).await,
                    None => output_log::run(tokio::io::empty(), stderr).await,
                }
            };
            output_log.spawn(tasks::boxed(logging::in_session(session_id, log)));
        }
        let program = Program {
            group: ProcessGroup::from_leader(id),
            child,
            output_log,
        };
        Ok((program, pipes))
    }

    /// Waits until the process itself has ended; what it started may go on.
    ///
    /// # Errors
    /// The system's, when somebody else took the exit status.
    pub async fn exited(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.group.leader_was_reaped();
        status
    }

    /// Waits until the process and all of its group have ended.
    ///
    /// # Errors
    /// As [`Program::exited`].
    pub async fn group_exited(&mut self) -> io::Result<ExitStatus> {
        let status = self.exited().await;
        while !self.group.is_gone() {
            sleep(PROCESS_GROUP_INTERVAL).await;
        }
        status
    }

    /// Asks the group to end.
    pub fn terminate(&mut self) {
        self.group.signal(Signal::TERM);
    }

    /// Ends the group by force.
    pub fn kill(&mut self) {
        self.group.signal(Signal::KILL);
    }

    /// Waits until the last words are in the log; not for long, since a process that left the group may hold the pipes.
    pub async fn flush_output(&mut self) {
        let _ = timeout(PROCESS_REST, self.output_log.join_next()).await;
    }
}

/// Tells whether a program ended as SIGTERM ends programs: by the signal, with 0, or as shells report the signal.
pub fn is_exit_on_sigterm(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::TERM.as_raw()) || matches!(status.code(), Some(0 | 143))
}
