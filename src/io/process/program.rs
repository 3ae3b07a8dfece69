//! One process and its process group: start, signals, and the wait for the last member.
//!
//! In: a command, its environment, and signals. Out: the exit status, and whether the group has a
//! member left. Dropping a [`Program`] kills its group and leaves no zombie. The group itself is
//! [`crate::io::group`].

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};

use log::Level;
use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::output_log;
use super::pcm::Pipes;
use super::sandbox::Sandbox;
use crate::bot::SessionId;
use crate::config::{BotAudio, Secret};
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
    /// What each process may have of private memory.
    pub memory_kib: Option<u64>,
    /// Variables of this program alone.
    pub environment: Vec<(String, Secret)>,
}

/// A running program.
pub struct Program {
    /// Dropped before `leader`: the signal needs the leader's process id, which the system may
    /// reuse once the leader is reaped.
    group: ProcessGroup,
    leader: Leader,
    /// That of a child of the runner; dropped after it.
    _owner: Option<ChildOwner>,
    /// Logs the program's output. It is a task, so that a flood of output delays nothing else.
    output_log: JoinSet<()>,
    /// The last line of stderr, once all of it was read.
    last_line: Arc<OnceLock<String>>,
    /// The connection to a process that was started before its call; it ends with the call.
    _control: Option<Arc<UnixStream>>,
}

/// The first process of the group.
enum Leader {
    Own(Box<Child>),
    Forked(ForkedChild),
}

/// A child of a process that has loaded the bot.
struct ForkedChild {
    /// Tells how it ended; `None` once it has told, or never will.
    ended: Option<oneshot::Receiver<ExitStatus>>,
    status: Option<ExitStatus>,
    /// The process that forked it, which reports the end.
    _parent: Arc<dyn Send + Sync>,
}

/// A process that was started before its call, or that forks for calls.
pub struct WaitingProgram {
    program: Program,
    /// Tells the log whose lines follow.
    session: Option<oneshot::Sender<SessionId>>,
}

impl WaitingProgram {
    /// Makes it the program of a call.
    pub fn begin(mut self, session_id: SessionId, control: Arc<UnixStream>) -> Program {
        if let Some(session) = self.session.take() {
            let _ = session.send(session_id);
        }
        self.program._control = Some(control);
        self.program
    }

    /// Its lines are those of no call.
    pub fn forget_session(&mut self) {
        self.session = None;
    }

    /// Returns whether it has exited.
    pub fn is_over(&mut self) -> bool {
        match &mut self.program.leader {
            Leader::Own(child) => !matches!(child.try_wait(), Ok(None)),
            Leader::Forked(_) => false,
        }
    }

    /// Waits for the end of a process that fails, and returns the last line of its stderr.
    pub async fn last_line(&mut self) -> Option<String> {
        self.session = None;
        self.program.flush_output().await
    }
}

impl Program {
    /// Starts the command without a shell. Returns the pipes of its audio in raw mode.
    ///
    /// # Errors
    /// The system's error, when the program does not exist, or memory or permissions are missing.
    pub fn start(spec: &ProgramSpec, arguments: &str, session_id: SessionId) -> io::Result<(Program, Option<Pipes>)> {
        let mut command = command(spec, &spec.command, Some(arguments))?;
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
        let log = logging::in_session(session_id.clone(), log);
        Ok((Program::new("bot", (child, owner), Some(session_id), log), pipes))
    }

    /// Starts a process before its call, with a socket as its standard input.
    ///
    /// # Errors
    /// See [`Program::start`].
    pub fn start_warm(
        spec: &ProgramSpec,
        words: &[OsString],
        output: Level,
    ) -> io::Result<(WaitingProgram, UnixStream)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = command(spec, words, None)?;
        // In a sandbox the ids of processes are others.
        let allowed = if spec.sandbox.is_some() { "once" } else { "fork" };
        command.env("EDGE_RUNNER_WARM", allowed);
        let (mut child, owner) = children::spawn(command.stdin(Stdio::from(OwnedFd::from(theirs))))?;
        let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (session, begins) = oneshot::channel();
        let log = async move {
            // Without a call, all of the output is read here.
            let session_id = tokio::select! {
                last = output_log::run_at(output, &mut stdout, &mut stderr) => return last,
                Ok(session_id) = begins => session_id,
            };
            logging::in_session(session_id, output_log::run(stdout, stderr)).await
        };
        let waiting = WaitingProgram {
            program: Program::new("process that loads the bot", (child, owner), None, log),
            session: Some(session),
        };
        Ok((waiting, UnixStream::from_std(ours)?))
    }

    /// Takes a process that was forked for a call, the leader of this group.
    pub fn of_forked(
        group: ProcessGroup,
        ended: oneshot::Receiver<ExitStatus>,
        parent: Arc<dyn Send + Sync>,
        log: impl Future<Output = String> + Send + 'static,
    ) -> Program {
        log::debug!("the bot is process {}", group.id());
        let leader = Leader::Forked(ForkedChild {
            ended: Some(ended),
            status: None,
            _parent: parent,
        });
        Program::with_log((group, leader), None, log)
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
        let mut command = command(spec, &spec.command, Some(arguments))?;
        let (mut child, owner) = children::spawn(command.stdin(Stdio::piped()))?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let log = logging::in_session(session_id.clone(), async {
            output_log::run_at_debug(stderr).await;
            String::new()
        });
        let program = Program::new("program of functions", (child, owner), Some(session_id), log);
        Ok((program, stdin, stdout))
    }

    /// Takes a process that has just been started. `what` names it in the log.
    fn new(
        what: &str,
        (child, owner): (Child, ChildOwner),
        session_id: Option<SessionId>,
        log: impl Future<Output = String> + Send + 'static,
    ) -> Program {
        let id = child.id().expect("a child that was never waited for has a process id");
        let started = || log::debug!("the {what} is process {id}");
        match session_id {
            Some(session_id) => logging::in_session_sync(session_id, started),
            None => started(),
        }
        let group = ProcessGroup::from_leader(id);
        Program::with_log((group, Leader::Own(Box::new(child))), Some(owner), log)
    }

    fn with_log(
        (group, leader): (ProcessGroup, Leader),
        owner: Option<ChildOwner>,
        log: impl Future<Output = String> + Send + 'static,
    ) -> Program {
        let last_line = Arc::<OnceLock<String>>::default();
        let kept = last_line.clone();
        let log = async move {
            let _ = kept.set(log.await);
        };
        let mut output_log = JoinSet::new();
        output_log.spawn(tasks::boxed(log));
        Program {
            group,
            leader,
            _owner: owner,
            output_log,
            last_line,
            _control: None,
        }
    }

    /// Waits until the process has exited. Its children may still run.
    ///
    /// # Errors
    /// The system's error, when the exit status was collected elsewhere.
    pub async fn exited(&mut self) -> io::Result<ExitStatus> {
        let status = match &mut self.leader {
            Leader::Own(child) => child.wait().await,
            Leader::Forked(forked) => {
                if let Some(ended) = &mut forked.ended {
                    forked.status = ended.await.ok();
                    forked.ended = None;
                }
                match forked.status {
                    Some(status) => Ok(status),
                    None => Ok(self.exited_without_parent().await),
                }
            }
        };
        self.group.leader_was_reaped();
        status
    }

    /// Waits for the end of a child whose parent has died, which would have told how it ended.
    async fn exited_without_parent(&mut self) -> ExitStatus {
        self.group.leader_was_reaped();
        while !self.group.is_gone() {
            sleep(PROCESS_GROUP_INTERVAL).await;
        }
        let status = ExitStatus::from_raw(0);
        if let Leader::Forked(forked) = &mut self.leader {
            forked.status = Some(status);
        }
        status
    }

    /// Learns whether a forked process has been reaped by its parent: its id may be that of another
    /// process then.
    fn learn_of_end(&mut self) {
        let Leader::Forked(forked) = &mut self.leader else {
            return;
        };
        if let Some(ended) = &mut forked.ended {
            let received = ended.try_recv();
            if received == Err(oneshot::error::TryRecvError::Empty) {
                return;
            }
            (forked.ended, forked.status) = (None, received.ok());
        }
        self.group.leader_was_reaped();
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
        self.learn_of_end();
        self.group.signal(Signal::TERM);
    }

    /// Sends SIGKILL to the group.
    pub fn kill(&mut self) {
        self.learn_of_end();
        self.group.signal(Signal::KILL);
    }

    /// Waits until the output is in the log, up to `PROCESS_REST`: a process that left the group
    /// may keep the pipes open. Returns the last line of stderr.
    pub async fn flush_output(&mut self) -> Option<String> {
        let _ = timeout(PROCESS_REST, self.output_log.join_next()).await;
        self.last_line.get().cloned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The group is killed next.
        self.learn_of_end();
    }
}

/// Returns the command of a program, with its environment and pipes for its output.
fn command(spec: &ProgramSpec, words: &[OsString], arguments: Option<&str>) -> io::Result<Command> {
    let limit = spec.memory_kib.map(limited).unwrap_or_default();
    let launcher = spec.sandbox.as_ref().map(Sandbox::launcher).unwrap_or_default();
    let mut words = limit.iter().chain(&launcher).chain(words);
    let mut command = Command::new(words.next().ok_or(io::ErrorKind::NotFound)?);
    for name in &spec.withheld {
        command.env_remove(name);
    }
    command.envs(spec.environment.iter().map(|(name, value)| (name, value.expose())));
    if let Some(working_dir) = &spec.working_dir {
        command.current_dir(working_dir);
    }
    command
        .args(words)
        .env("ENV", "local")
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
    match arguments {
        Some(arguments) => command
            .env("RUNNER_ARGUMENTS", arguments)
            .env_remove("EDGE_RUNNER_WARM"),
        None => command.env_remove("RUNNER_ARGUMENTS"),
    };
    Ok(command)
}

/// Returns the words before a command whose processes may each have this much private memory: a
/// shell sets the limit, which whatever it starts inherits. It is RLIMIT_DATA, which counts what a
/// process may write to, and not the gigabytes of addresses of RLIMIT_AS that stay unused.
fn limited(memory_kib: u64) -> Vec<OsString> {
    let words = ["/bin/sh", "-c", "ulimit -d \"$0\" && exec \"$@\""].map(OsString::from);
    words.into_iter().chain([memory_kib.to_string().into()]).collect()
}

/// Returns whether a status is that of a program that SIGTERM ended: the signal, code 0, or the
/// code 143 of a shell.
pub fn is_exit_on_sigterm(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::TERM.as_raw()) || matches!(status.code(), Some(0 | 143))
}
