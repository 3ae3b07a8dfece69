//! The commands of the microphone and of the loudspeaker.
//!
//! In: the words of a command. Out: bytes of the microphone, and what happens to each command; it
//! is started again as [`Supervision`] says. Each runs in a process group of its own in a task of
//! its own, which ends the group when its user is gone. Pipes are small, since what waits in them
//! is latency. In place of a command there may be a card that `card` opens.

pub mod once;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::device_events::{LoudspeakerEvent, MicrophoneEvent};
use super::{card, until};
use crate::config::{AudioBackEnd, AudioDevice};
use crate::io::children::{self, ChildOwner};
use crate::io::group::ProcessGroup;
use crate::io::tasks::{self, SlotPool};
use crate::proto::local::command::set_device;
use crate::proto::local::direction::AudioDirection;
use crate::proto::local::supervision::{CommandFailure, StderrLine, Supervision};
use crate::proto::process::output_lines::LineSplitter;
use std::time::Duration;

/// Bytes of the pipes: 128 ms at 16 kHz, and the least that Linux grants.
pub const PIPE_BYTES: usize = 4_096;
/// Pieces of the microphone that wait for their user.
const PIECES_MAX: usize = 16;
/// Chunks of 20 ms that wait for the loudspeaker: its first lead, and one more.
pub const CHUNKS_MAX: usize = 4;
/// Commands at a time: those of one session, those of the last one that are ending, the hook, and
/// the test of a page.
const COMMANDS_MAX: usize = 10;
/// Time that a player has to play what it has read.
const PLAYED_WITHIN: Duration = Duration::from_millis(500);
/// Time that the exit status of a command takes whose pipe is closed.
const STATUS_WITHIN: Duration = Duration::from_millis(500);
/// Bytes of the output of a command that lists devices.
const OUTPUT_BYTES_MAX: u64 = 256 * 1024;
/// Bytes of one line of stderr.
const LINE_BYTES_MAX: usize = 1_024;

/// Counts the commands that run, so that the end of the runner can wait for them.
pub type CommandSlots = SlotPool;

/// Returns the slots of a runner.
pub fn slots() -> CommandSlots {
    SlotPool::new(COMMANDS_MAX)
}

/// The command of the microphone. Dropping it ends the command.
pub struct MicrophoneCommand(mpsc::Receiver<MicrophoneEvent>);

impl MicrophoneCommand {
    /// Starts the command, without the variables that are `withheld`.
    pub fn start(device: &AudioDevice, withheld: &[String], slots: &CommandSlots) -> MicrophoneCommand {
        let (events, received) = mpsc::channel(PIECES_MAX);
        let spec = CommandSpec::new(device, withheld, AudioDirection::In);
        let slot = slots.try_acquire();
        tasks::spawn(async move {
            let _slot = slot;
            tokio::select! {
                () = record(&spec, &events) => {}
                () = events.closed() => {}
            }
        });
        MicrophoneCommand(received)
    }

    /// Starts a microphone without sound, for a caller who types: the bot's time goes on.
    pub fn silent(device: &AudioDevice) -> MicrophoneCommand {
        let (events, received) = mpsc::channel(PIECES_MAX);
        let frames = device.rate_hz as usize / 50;
        let silence = vec![0; 2 * usize::from(device.channels) * frames];
        tasks::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            while events.send(MicrophoneEvent::Bytes(silence.clone())).await.is_ok() {
                ticks.tick().await;
            }
        });
        MicrophoneCommand(received)
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> MicrophoneEvent {
        match self.0.recv().await {
            Some(event) => event,
            // The task has panicked.
            None => std::future::pending().await,
        }
    }
}

/// The command of the loudspeaker. Dropping it ends the command once it has played the rest.
pub struct LoudspeakerCommand {
    pub chunks: mpsc::Sender<Vec<u8>>,
    events: mpsc::Receiver<LoudspeakerEvent>,
    /// Bytes in its pipe after the last write, or that a card has not taken.
    piped: Arc<AtomicUsize>,
}

impl LoudspeakerCommand {
    /// Starts the command, without the variables that are `withheld`.
    pub fn start(device: &AudioDevice, withheld: &[String], slots: &CommandSlots) -> LoudspeakerCommand {
        let (chunks, received) = mpsc::channel(CHUNKS_MAX);
        let (reported, events) = mpsc::channel(PIECES_MAX);
        let spec = CommandSpec::new(device, withheld, AudioDirection::Out);
        let slot = slots.try_acquire();
        let piped = Arc::<AtomicUsize>::default();
        let written = piped.clone();
        tasks::spawn(async move {
            let _slot = slot;
            play(&spec, received, &reported, &written).await;
        });
        LoudspeakerCommand { chunks, events, piped }
    }

    /// Starts a loudspeaker without sound: the session paces what it plays.
    pub fn silent() -> LoudspeakerCommand {
        let (chunks, mut received) = mpsc::channel(CHUNKS_MAX);
        tasks::spawn(async move { while received.recv().await.is_some() {} });
        LoudspeakerCommand {
            chunks,
            events: mpsc::channel(1).1,
            piped: Arc::default(),
        }
    }

    /// Returns the bytes in its pipe after the last write.
    pub fn piped(&self) -> usize {
        self.piped.load(Relaxed)
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> LoudspeakerEvent {
        match self.events.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }
}

/// A command to run, or a card to open.
struct CommandSpec {
    device: AudioDevice,
    withheld: Vec<String>,
    direction: AudioDirection,
}

impl CommandSpec {
    fn new(device: &AudioDevice, withheld: &[String], direction: AudioDirection) -> Self {
        CommandSpec {
            device: device.clone(),
            withheld: withheld.to_vec(),
            direction,
        }
    }

    fn supervision(&self) -> Supervision {
        Supervision::new(self.direction, &self.device.back_end.name())
    }

    fn start(&self, words: &[String]) -> Result<RunningCommand, CommandFailure> {
        let mut words = words.to_vec();
        if let Some(name) = stand_in(&self.device, self.direction) {
            log::debug!("the {} is {name}", self.direction.name());
            set_device(&mut words, name);
        }
        let (stdin, stdout) = match self.direction {
            AudioDirection::In => (Stdio::null(), Stdio::piped()),
            AudioDirection::Out => (Stdio::piped(), Stdio::null()),
        };
        let mut command = command_of(&words, &self.withheld);
        // Messages in English, since they are read.
        command.env("LC_MESSAGES", "C").env_remove("LC_ALL");
        command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        RunningCommand::spawn(&mut command).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CommandFailure::NotFound,
            _ => CommandFailure::NotStarted(error.to_string()),
        })
    }
}

/// Returns the card that stands for the default device now, as ALSA names it.
fn stand_in(device: &AudioDevice, direction: AudioDirection) -> Option<String> {
    device.stand_in(direction, &card::cards(), |path| Path::new(path).exists())
}

/// Returns what the banner calls a device.
pub fn shown_name(device: &AudioDevice, direction: AudioDirection) -> String {
    stand_in(device, direction).unwrap_or_else(|| device.back_end.name())
}

/// Returns a command in a process group of its own, without the variables that are `withheld`.
fn command_of(words: &[String], withheld: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).process_group(0);
    for name in withheld {
        command.env_remove(name);
    }
    command
}

/// Runs a command with a further argument to its end. Dropping the future kills its process group.
pub async fn run_once(words: &[String], argument: &str, withheld: &[String]) -> io::Result<ExitStatus> {
    let mut command = command_of(words, withheld);
    command.arg(argument);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    RunningCommand::spawn(&mut command)?.wait().await
}

/// Why a command has no output.
pub enum OutputError {
    NotInstalled,
    Failed(String),
}

/// Runs a command to its end, without the variables that are `withheld`, and returns what it
/// prints, up to `OUTPUT_BYTES_MAX`. Dropping the future kills its process group.
pub async fn output_of(words: &[String], withheld: &[String]) -> Result<String, OutputError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => OutputError::NotInstalled,
        _ => OutputError::Failed(error.to_string()),
    };
    let mut command = command_of(words, withheld);
    command.env("LC_MESSAGES", "C").env_remove("LC_ALL");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut command = RunningCommand::spawn(&mut command).map_err(failed)?;
    let mut output = Vec::new();
    if let Some(stdout) = command.child.stdout.take() {
        let read = stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut output).await;
        read.map_err(failed)?;
    }
    let status = command.wait().await.map_err(failed)?;
    match status.success() {
        true => Ok(String::from_utf8_lossy(&output).into_owned()),
        false => Err(OutputError::Failed(status.to_string())),
    }
}

/// A running command. Dropping it kills its process group.
struct RunningCommand {
    /// Dropped before `child`: its id is that of the leader until the leader is reaped.
    group: ProcessGroup,
    child: Child,
    _owner: ChildOwner,
}

impl RunningCommand {
    fn spawn(command: &mut Command) -> io::Result<RunningCommand> {
        let (child, owner) = children::spawn(command)?;
        Ok(RunningCommand {
            group: ProcessGroup::from_leader(child.id().expect("a child that was not waited for has an id")),
            child,
            _owner: owner,
        })
    }

    /// Waits for the exit status.
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.group.leader_was_reaped();
        status
    }

    /// Reads the rest of stderr of a command that has closed its pipe, and returns why it ended.
    async fn ended(&mut self, lines: &mut StderrLines, supervision: &mut Supervision) -> CommandFailure {
        let end = async {
            let status = self.wait().await;
            while lines.is_open {
                lines.read(supervision).await;
            }
            status
        };
        match timeout(STATUS_WITHIN, end).await {
            Ok(Ok(status)) => CommandFailure::Ended(status.to_string()),
            Ok(Err(error)) => CommandFailure::Ended(error.to_string()),
            Err(_) => CommandFailure::Ended("its pipe is closed".to_owned()),
        }
    }
}

/// The stderr of a command, by lines.
struct StderrLines {
    pipe: Option<ChildStderr>,
    splitter: LineSplitter,
    buffer: Box<[u8; 1024]>,
    is_open: bool,
}

impl StderrLines {
    fn of(command: &mut RunningCommand) -> Self {
        let pipe = command.child.stderr.take();
        StderrLines {
            is_open: pipe.is_some(),
            pipe,
            splitter: LineSplitter::new(LINE_BYTES_MAX, "…", false),
            buffer: Box::new([0; 1024]),
        }
    }

    /// Reads once, and returns how many lines tell of lost audio. Cancel safe.
    async fn read(&mut self, supervision: &mut Supervision) -> usize {
        let StderrLines {
            pipe: Some(pipe),
            splitter,
            buffer,
            is_open,
        } = self
        else {
            return std::future::pending().await;
        };
        let now = tasks::now();
        let mut xruns = 0;
        let mut handle = |line: &str| {
            log::debug!(target: "edge_runner::local::stderr", "{line}");
            xruns += usize::from(supervision.handle_line(line, now) == StderrLine::Xrun);
        };
        match pipe.read(&mut **buffer).await {
            Ok(bytes @ 1..) => splitter.push(&buffer[..bytes], &mut handle),
            Ok(0) | Err(_) => {
                splitter.finish(&mut handle);
                *is_open = false;
            }
        }
        xruns
    }
}

/// Reports a failure, and returns the pause before the next attempt.
fn report(supervision: &mut Supervision, failure: &CommandFailure) -> Duration {
    let retry = supervision.handle_failure(failure);
    match retry.is_new {
        true => log::warn!("{}", retry.words),
        false => log::debug!("{}", retry.words),
    }
    retry.after
}

/// Runs the command of a microphone, or opens its card, again and again, until its user is gone.
async fn record(spec: &CommandSpec, events: &mpsc::Sender<MicrophoneEvent>) {
    let mut supervision = spec.supervision();
    loop {
        let failure = match &spec.device.back_end {
            AudioBackEnd::Command(words) => run_recorder(spec, words, &mut supervision, events).await,
            AudioBackEnd::Kernel(card) => card::record(card, spec.device.rate_hz, &mut supervision, events).await,
        };
        let Some(failure) = failure else { return };
        let pause = report(&mut supervision, &failure);
        if events.send(MicrophoneEvent::Failed).await.is_err() {
            return;
        }
        sleep(pause).await;
    }
}

/// Runs the command of a microphone. Returns `None` when its user is gone.
async fn run_recorder(
    spec: &CommandSpec,
    words: &[String],
    supervision: &mut Supervision,
    events: &mpsc::Sender<MicrophoneEvent>,
) -> Option<CommandFailure> {
    let mut command = match spec.start(words) {
        Ok(command) => command,
        Err(failure) => return Some(failure),
    };
    supervision.handle_started(tasks::now());
    events.send(MicrophoneEvent::Started).await.ok()?;
    let mut lines = StderrLines::of(&mut command);
    let Some(mut stdout) = command.child.stdout.take() else {
        return Some(CommandFailure::Hung);
    };
    shrink(&stdout);
    Some(match read_pieces(&mut stdout, &mut lines, supervision, events).await {
        Some(failure) => failure,
        None => command.ended(&mut lines, supervision).await,
    })
}

/// Passes on what a microphone writes. Returns `None` at the end of its output.
async fn read_pieces(
    stdout: &mut (impl AsyncRead + AsFd + Unpin),
    lines: &mut StderrLines,
    supervision: &mut Supervision,
    events: &mpsc::Sender<MicrophoneEvent>,
) -> Option<CommandFailure> {
    let mut buffer = [0; PIPE_BYTES];
    // What the pipe still holds of the time before audio was lost.
    let mut before_loss: Option<usize> = None;
    loop {
        if before_loss == Some(0) {
            before_loss = None;
            events.send(MicrophoneEvent::Overrun).await.ok()?;
        }
        let read_max = before_loss.unwrap_or(PIPE_BYTES).min(PIPE_BYTES);
        if let Some(failure) = supervision.poll_failure(tasks::now()) {
            return Some(failure);
        }
        let hangs_at = supervision.poll_timeout();
        let read = tokio::select! {
            read = stdout.read(&mut buffer[..read_max]) => read,
            xruns = lines.read(supervision), if lines.is_open => {
                if xruns > 0 {
                    before_loss = Some(unread(stdout));
                }
                continue;
            }
            () = until(hangs_at) => continue,
        };
        let Ok(bytes @ 1..) = read else { return None };
        supervision.note_traffic(tasks::now());
        before_loss = before_loss.map(|left| left.saturating_sub(bytes));
        events
            .send(MicrophoneEvent::Bytes(buffer[..bytes].to_vec()))
            .await
            .ok()?;
    }
}

/// Runs the command of a loudspeaker, or opens its card, again and again, until its user is gone.
async fn play(
    spec: &CommandSpec,
    mut chunks: mpsc::Receiver<Vec<u8>>,
    events: &mpsc::Sender<LoudspeakerEvent>,
    piped: &AtomicUsize,
) {
    let mut supervision = spec.supervision();
    loop {
        let failure = match &spec.device.back_end {
            AudioBackEnd::Command(words) => run_player(spec, words, &mut supervision, &mut chunks, events, piped).await,
            AudioBackEnd::Kernel(card) => {
                let rate_hz = spec.device.rate_hz;
                card::play(card, rate_hz, &mut supervision, &mut chunks, events, piped).await
            }
        };
        let Some(failure) = failure else { return };
        let _ = events.try_send(LoudspeakerEvent::Failed);
        let mut pause = std::pin::pin!(sleep(report(&mut supervision, &failure)));
        // The conversation goes on; what the card cannot play is gone.
        loop {
            tokio::select! {
                () = &mut pause => break,
                chunk = chunks.recv() => if chunk.is_none() { return },
            }
        }
    }
}

/// Runs the command of a loudspeaker. Returns `None` when its user is gone.
async fn run_player(
    spec: &CommandSpec,
    words: &[String],
    supervision: &mut Supervision,
    chunks: &mut mpsc::Receiver<Vec<u8>>,
    events: &mpsc::Sender<LoudspeakerEvent>,
    piped: &AtomicUsize,
) -> Option<CommandFailure> {
    let mut command = match spec.start(words) {
        Ok(command) => command,
        Err(failure) => return Some(failure),
    };
    supervision.handle_started(tasks::now());
    let failure = write_chunks(&mut command, supervision, chunks, events, piped).await;
    if failure.is_none() {
        // Its standard input is closed: it plays the rest and ends.
        let _ = timeout(PLAYED_WITHIN, command.wait()).await;
    }
    failure
}

/// Writes chunks to a player. Returns `None` when its user is gone.
async fn write_chunks(
    command: &mut RunningCommand,
    supervision: &mut Supervision,
    chunks: &mut mpsc::Receiver<Vec<u8>>,
    events: &mpsc::Sender<LoudspeakerEvent>,
    piped: &AtomicUsize,
) -> Option<CommandFailure> {
    let mut lines = StderrLines::of(command);
    let Some(mut stdin) = command.child.stdin.take() else {
        return Some(CommandFailure::Hung);
    };
    shrink(&stdin);
    let mut chunk: Vec<u8> = Vec::new();
    let mut written = 0;
    loop {
        if let Some(failure) = supervision.poll_failure(tasks::now()) {
            return Some(failure);
        }
        let is_pending = written < chunk.len();
        let hangs_at = supervision.poll_timeout();
        tokio::select! {
            wrote = stdin.write(&chunk[written..]), if is_pending => match wrote {
                Ok(bytes @ 1..) => {
                    written += bytes;
                    piped.store(unread(&stdin), Relaxed);
                    supervision.note_traffic(tasks::now());
                }
                Ok(0) | Err(_) => {
                    drop(stdin);
                    return Some(command.ended(&mut lines, supervision).await);
                }
            },
            next = chunks.recv(), if !is_pending => match next {
                Some(next) => (chunk, written) = (next, 0),
                None => return None,
            },
            xruns = lines.read(supervision), if lines.is_open => {
                if xruns > 0 {
                    piped.store(unread(&stdin), Relaxed);
                    let _ = events.try_send(LoudspeakerEvent::Underrun);
                }
            }
            _ = command.child.wait() => {
                command.group.leader_was_reaped();
                return Some(command.ended(&mut lines, supervision).await);
            }
            () = until(hangs_at) => {}
        }
    }
}

/// Returns the bytes in a pipe that its program has not read.
fn unread(pipe: &impl AsFd) -> usize {
    rustix::io::ioctl_fionread(pipe).map_or(0, |bytes| bytes as usize)
}

/// Gives a pipe its smallest size.
#[cfg(target_os = "linux")]
fn shrink(pipe: &impl std::os::fd::AsFd) {
    if let Err(error) = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES) {
        log::debug!("resizing a pipe of --local: {error}");
    }
}

#[cfg(not(target_os = "linux"))]
fn shrink(_: &impl std::os::fd::AsFd) {}
