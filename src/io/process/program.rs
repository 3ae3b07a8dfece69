//! One process and its process group: start, signals, and the wait for the last member.
//!
//! In: a command, its environment, and signals. Out: the exit status, and whether the group has a
//! member left. Dropping a [`Program`] kills its group and leaves no zombie. The group itself is
//! [`crate::io::group`].

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};

use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::output_log;
use super::pcm::Pipes;
use super::sandbox::Sandbox;
use crate::bot::SessionId;
use crate::config::BotAudio;
use crate::io::children::{self, ChildOwner};
use crate::io::group::ProcessGroup;
use crate::io::tasks;
use crate::limits::{PROCESS_GROUP_INTERVAL, PROCESS_REST};
use crate::logging;

/// The command that runs for every session.
pub struct ProgramSpec {
    pub command: Vec<OsString>,
    /// Names of variables that the program does not inherit.
    pub withheld: Vec<String>,
    /// How the program gets its audio.
    pub audio: BotAudio,
    /// What the program reads from its standard input, where that is not its audio.
    pub input: Option<&'static str>,
    /// The working directory; `None` means the one of the runner.
    pub working_dir: Option<PathBuf>,
    /// Where the command runs with less; its working folder comes before the one above.
    pub sandbox: Option<Sandbox>,
}

/// A running program.
pub struct Program {
    /// Dropped before `child`: the signal needs the leader's process id, which the system may reuse
    /// once the leader is reaped.
    group: ProcessGroup,
    child: Child,
    _owner: ChildOwner,
    /// Logs the program's output. It is a task, so that a flood of output delays nothing else.
    output_log: JoinSet<()>,
    /// The last line of stderr, once all of it was read.
    last_line: Arc<OnceLock<String>>,
}

impl Program {
    /// Starts the command without a shell. Returns the pipes of its audio in raw mode.
    ///
    /// # Errors
    /// The system's error, when the program does not exist, or memory or permissions are missing.
    pub fn start(spec: &ProgramSpec, arguments: &str, session_id: SessionId) -> io::Result<(Program, Option<Pipes>)> {
        let mut command = command(spec, arguments)?;
        let stdin = match spec.audio {
            BotAudio::Protobuf if spec.input.is_some() => Stdio::piped(),
            BotAudio::Protobuf => Stdio::null(),
            BotAudio::Pcm { rate_hz } => {
                command.env("RUNNER_BOT_RATE", rate_hz.to_string());
                Stdio::piped()
            }
        };
        let (mut child, owner) = children::spawn(command.stdin(stdin))?;
        let mut pipes = None;
        let mut stdout = child.stdout.take();
        let input = spec.input.filter(|_| spec.audio == BotAudio::Protobuf);
        let input = input.and_then(|input| Some((child.stdin.take()?, input)));
        if let Some(stdin) = child.stdin.take() {
            pipes = stdout.take().map(|stdout| Pipes::new(stdin, stdout));
        }
        let stderr = child.stderr.take();
        let feed = async move {
            if let Some((mut stdin, input)) = input {
                // A program that exits before it has read everything says why on stderr.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let read = async move {
            match (stdout, stderr) {
                (Some(stdout), Some(stderr)) => output_log::run(stdout, stderr).await,
                (None, Some(stderr)) => output_log::run(tokio::io::empty(), stderr).await,
                (_, None) => String::new(),
            }
        };
        let log = async move { tokio::join!(feed, read).1 };
        Ok((Program::new("bot", (child, owner), session_id, log), pipes))
    }

    /// Starts a command that reads and writes lines of text. Its stderr is logged at DEBUG.
    ///
    /// # Errors
    /// See [`Program::start`].
    pub fn start_with_lines(
        spec: &ProgramSpec,
        arguments: &str,
        session_id: SessionId,
    ) -> io::Result<(Program, ChildStdin, ChildStdout)> {
        let (mut child, owner) = children::spawn(command(spec, arguments)?.stdin(Stdio::piped()))?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let program = Program::new("program of functions", (child, owner), session_id, async {
            output_log::run_at_debug(stderr).await;
            String::new()
        });
        Ok((program, stdin, stdout))
    }

    /// Takes a process that has just been started. `what` names it in the log.
    fn new(
        what: &str,
        (child, owner): (Child, ChildOwner),
        session_id: SessionId,
        log: impl Future<Output = String> + Send + 'static,
    ) -> Program {
        let id = child.id().expect("a child that was never waited for has a process id");
        log::debug!("the {what} is process {id}");
        let last_line = Arc::<OnceLock<String>>::default();
        let kept = last_line.clone();
        let log = async move {
            let _ = kept.set(log.await);
        };
        let mut output_log = JoinSet::new();
        output_log.spawn(tasks::boxed(logging::in_session(session_id, log)));
        Program {
            group: ProcessGroup::from_leader(id),
            child,
            _owner: owner,
            output_log,
            last_line,
        }
    }

    /// Waits until the process has exited. Its children may still run.
    ///
    /// # Errors
    /// The system's error, when the exit status was collected elsewhere.
    pub async fn exited(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.group.leader_was_reaped();
        status
    }

    /// Waits until the process and its whole group have ended.
    ///
    /// # Errors
    /// See [`Program::exited`].
    pub async fn group_exited(&mut self) -> io::Result<ExitStatus> {
        let status = self.exited().await;
        while !self.group.is_gone() {
            sleep(PROCESS_GROUP_INTERVAL).await;
        }
        status
    }

    /// Sends SIGTERM to the group.
    pub fn terminate(&mut self) {
        self.group.signal(Signal::TERM);
    }

    /// Sends SIGKILL to the group.
    pub fn kill(&mut self) {
        self.group.signal(Signal::KILL);
    }

    /// Waits until the output is in the log, up to `PROCESS_REST`: a process that left the group
    /// may keep the pipes open. Returns the last line of stderr.
    pub async fn flush_output(&mut self) -> Option<String> {
        let _ = timeout(PROCESS_REST, self.output_log.join_next()).await;
        self.last_line.get().cloned()
    }
}

/// Returns the command of a program, with its environment and pipes for its output.
fn command(spec: &ProgramSpec, arguments: &str) -> io::Result<Command> {
    let launcher = spec.sandbox.as_ref().map(Sandbox::launcher).unwrap_or_default();
    let mut words = launcher.iter().chain(&spec.command);
    let mut command = Command::new(words.next().ok_or(io::ErrorKind::NotFound)?);
    for name in &spec.withheld {
        command.env_remove(name);
    }
    if let Some(working_dir) = &spec.working_dir {
        command.current_dir(working_dir);
    }
    command
        .args(words)
        .env("ENV", "local")
        .env("RUNNER_ARGUMENTS", arguments)
        // Without it, Python buffers output up to 8 KiB, and loses the buffer in a crash.
        .env("PYTHONUNBUFFERED", "1")
        // These address the runner's own supervisor; a program that inherits them would report
        // as the service.
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        .env_remove("WATCHDOG_PID")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

/// Returns whether a status is that of a program that SIGTERM ended: the signal, code 0, or the
/// code 143 of a shell.
pub fn is_exit_on_sigterm(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::TERM.as_raw()) || matches!(status.code(), Some(0 | 143))
}
