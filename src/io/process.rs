//! Bots that are programs: one process per session, in a process group of its own.
//!
//! In: a command and the arguments of a session. The program gets them as JSON in
//! `RUNNER_ARGUMENTS`. Its media is a WebSocket at `media_url` with the frames of
//! `proto::sockets::frames` ([`protobuf`], [`listener`]), or PCM on its standard streams ([`pcm`]).
//! Its other output is logged ([`output_log`]). A file in Python alone is a program as well
//! ([`python`]), and may be loaded before its calls ([`warm`]). Out: the result of the session.
//! The program runs until it exits, closes its media, or the session is over. Then its group gets
//! SIGTERM, and SIGKILL after a grace period ([`program`]). With `--sandbox` it sees and may do
//! less ([`sandbox`]).

#[cfg_attr(not(feature = "telephony"), path = "absent.rs")]
mod call_control;
pub mod listener;
pub mod output_log;
pub mod pcm;
pub mod program;
#[cfg_attr(not(feature = "assistants"), path = "absent.rs")]
mod prompts;
pub mod protobuf;
pub mod python;
pub mod sandbox;
mod service_rows;
mod services;
pub mod warm;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::{sleep, timeout};

use crate::bot::{self, Audio, Bot, BotError, RunnerArguments, Shutdown};
use crate::config::BotAudio;
use crate::io::running::RunningModule;
use crate::limits::{
    BOT_GRACE, BOT_GRACE_AT_SHUTDOWN, PROCESS_CLOSE_WITHIN, PROCESS_DRAIN_WITHIN, PROCESS_HANG_UP_GRACE, PROCESS_REST,
};
use crate::proto::process::{self, last_line};
use crate::rtvi::Rtvi;
use edge_runner_http::script::{ScriptError, check_script, is_executable};
use edge_runner_http::search_path::files_in_path;
use listener::MediaListener;
use pcm::{ClosingPipes, Pipes};
use program::Program;
pub use program::ProgramSpec;
use protobuf::{ClosingMedia, MediaProtocolError, OWN_RUNNER, PendingMedia, ProgramSignals};
use sandbox::Sandbox;
use services::{CallControl, Prompts};
use warm::WarmBot;
pub use warm::WarmSpec;

/// Time by which the kill of a program precedes the end of its task, so that the task can report
/// it.
const PROCESS_KILL_MARGIN: Duration = Duration::from_millis(250);

/// The time from SIGTERM to SIGKILL.
const STOP_GRACE: Duration = BOT_GRACE.saturating_sub(PROCESS_KILL_MARGIN);

/// Returns the bot that runs a command for every session, and its processes that start before the
/// calls. Logs the names of the variables that the command does not inherit. `name` is that of one
/// of several bots.
pub fn bot(spec: ProgramSpec, warm: Option<WarmSpec>, name: Option<&str>) -> (Bot, Option<Arc<dyn RunningModule>>) {
    let is_set = |name: &&String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let set: Vec<&str> = spec.withheld.iter().filter(is_set).map(String::as_str).collect();
    if !set.is_empty() {
        let whose = name.map_or_else(
            || "the bot's environment".to_owned(),
            |name| format!("the environment of the bot `{name}`"),
        );
        log::info!(
            "withheld from {whose}: {}; `--pass-env NAME` gives it one of them",
            set.join(", ")
        );
    }
    let spec = Arc::new(spec);
    let warm = warm.map(|warm| Arc::new(WarmBot::start(spec.clone(), warm)));
    let running = warm.clone().map(|warm| warm as Arc<dyn RunningModule>);
    (bot::erase(move |args| run(spec.clone(), warm.clone(), args)), running)
}

/// The reason for which a command cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("the command after `--` is empty")]
    Empty,
    #[error("the bot `{name}` cannot be run: {source}")]
    Missing { name: String, source: io::Error },
    #[error("the bot `{0}` cannot be run: it is a folder")]
    Folder(String),
    #[error(
        "the bot `{0}` cannot be run: it is not executable; `chmod +x` makes it so, or put its interpreter before it"
    )]
    NotExecutable(String),
    #[error("the bot `{name}` cannot be run: {source}")]
    Script { name: String, source: ScriptError },
    #[error("the bot cannot be run: `{script}` does not exist in {folder}")]
    NoScript { script: String, folder: String },
    #[error("the bot `{name}` cannot be run: no program of that name is in PATH{hint}")]
    NotInPath { name: String, hint: String },
}

/// Checks before the first session that `command` can be run in this folder.
pub fn check(command: &[OsString], folder: Option<&Path>) -> Result<(), CommandError> {
    // The search path of the system, which starts the program.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = command.first().filter(|program| !program.is_empty());
    let program = program.ok_or(CommandError::Empty)?;
    let name = program.display().to_string();
    let check_first_line = |program: &Path, name: String| {
        check_script(program, Some(folder.unwrap_or(Path::new(""))), &path)
            .map_err(|source| CommandError::Script { name, source })
    };
    if program.as_bytes().contains(&b'/') {
        let program = folder.unwrap_or(Path::new("")).join(program);
        return match program.metadata() {
            Err(source) => Err(CommandError::Missing { name, source }),
            Ok(found) if found.is_dir() => Err(CommandError::Folder(name)),
            Ok(_) if !is_executable(&program) => Err(CommandError::NotExecutable(name)),
            Ok(_) => check_first_line(&program, name),
        };
    }
    if let Some(found) = files_in_path(program, &path).find(|candidate| is_executable(candidate)) {
        return check_first_line(&found, name);
    }
    let here = folder.unwrap_or(Path::new("")).join(program).exists();
    let hint = if here {
        format!("; did you mean `./{name}`?")
    } else {
        String::new()
    };
    Err(CommandError::NotInPath { name, hint })
}

/// Checks before the first session that the command of a bot can be run in this folder, and that
/// the script of an interpreter is there.
pub fn check_bot(command: &[OsString], folder: Option<&Path>) -> Result<(), CommandError> {
    check(command, folder)?;
    let folder = folder.unwrap_or(Path::new(""));
    match process::script(&command[1..]) {
        Some(script) if !folder.join(script).exists() => Err(CommandError::NoScript {
            script: script.display().to_string(),
            folder: match folder.as_os_str().is_empty() {
                true => "the working directory".to_owned(),
                false => folder.display().to_string(),
            },
        }),
        _ => Ok(()),
    }
}

/// The reason for which a program failed its session.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    /// The listener for its media could not be opened.
    #[error("opening a socket for its media: {0}")]
    Listener(#[source] io::Error),
    #[error("starting `{}`: {source}{hint}", .program.display())]
    Start {
        program: OsString,
        source: io::Error,
        hint: &'static str,
    },
    /// The command has become one that cannot be run.
    #[error(transparent)]
    Command(CommandError),
    #[error("`--bot-audio pcm` has no audio in a session of kind `{0}`: the bot joins that room by itself")]
    NoAudio(&'static str),
    #[error("{0}")]
    Exit(ExitStatus),
    #[error(
        "{status}, before it opened media_url{}{}",
        said.as_ref().map_or_else(String::new, |said| format!(" (its last lines: {said})")),
        if *may_have_runner { OWN_RUNNER } else { "" }
    )]
    ExitWithoutMedia {
        status: ExitStatus,
        /// Whether it may be a bot for Pipecat's own runner.
        may_have_runner: bool,
        /// The last lines of its stderr, without what may be a secret.
        said: Option<String>,
    },
    /// The exit status is not available.
    #[error("waiting for its exit status: {0}")]
    Wait(#[source] io::Error),
    #[error(transparent)]
    Media(MediaProtocolError),
    /// SIGTERM did not end it in time.
    #[error("it did not end in time on SIGTERM and was killed")]
    Killed,
}

impl ProgramError {
    /// Adds the last lines of the program's stderr, if it failed before it had its media: such
    /// lines cannot quote what was said.
    fn with_last_line(mut self, line: Option<String>) -> Self {
        if let ProgramError::ExitWithoutMedia { said, .. } = &mut self {
            *said = line.as_deref().and_then(last_line::shown);
        }
        self
    }
}

/// Returns the last lines of a program that failed its session before it had its media.
pub fn last_line_of(error: &BotError) -> Option<&str> {
    match error.downcast_ref()? {
        ProgramError::ExitWithoutMedia { said, .. } => said.as_deref(),
        _ => None,
    }
}

/// How the media of a program ended.
pub enum MediaEnd {
    /// The session is over. The program's socket closes after the messages that wait.
    SessionOver(ClosingMedia),
    /// The session is over. The program's standard input ends.
    EndOfInput(ClosingPipes),
    /// The program closed its media or exited, and the session has all of its speech.
    HungUp,
    /// The program broke the protocol.
    ProtocolError(MediaProtocolError, ClosingMedia),
}

/// Returns whether a command has a file in Python.
fn names_python(command: &[OsString]) -> bool {
    command.iter().any(|word| word.as_bytes().ends_with(b".py"))
}

async fn run(spec: Arc<ProgramSpec>, warm: Option<Arc<WarmBot>>, mut args: RunnerArguments) -> Result<(), BotError> {
    if let BotAudio::Pcm { rate_hz } = spec.audio {
        return run_pcm(&spec, args, rate_hz).await;
    }
    // Without media, the program runs until it exits, or until the session is ended.
    let mut media = PendingMedia::of(&mut args);
    let listener = media
        .as_ref()
        .map(|_| MediaListener::bind())
        .transpose()
        .map_err(ProgramError::Listener)?;
    let arguments = arguments(&args, listener.as_ref())?;
    let services = (CallControl::of(&args), Prompts::of(&args));
    let loaded = match &warm {
        Some(warm) => match loaded(warm, &arguments, &args, media.as_mut()).await {
            Ok(program) => program,
            Err(SessionOver) => return Ok(()),
        },
        None => None,
    };
    let mut program = match loaded {
        Some(program) => program,
        None => start(&spec, &arguments, &args)?.0,
    };
    let media = media
        .zip(listener)
        .map(|(media, listener)| |signals| protobuf::run(media, listener, services, signals));
    let signals = ProgramSignals {
        is_python_bot: spec.input.is_some(),
        may_have_runner: spec.input.is_none() && names_python(&spec.command),
        ..ProgramSignals::default()
    };
    let result = supervise(&mut program, media, (args.shutdown, args.session_over), &signals).await;
    let line = program.flush_output().await;
    Ok(result.map_err(|error| error.with_last_line(line))?)
}

/// The session has ended before it had a program.
struct SessionOver;

/// Returns a program that has loaded the bot before the call. `None` if the call has to start its
/// own.
async fn loaded(
    warm: &WarmBot,
    arguments: &str,
    args: &RunnerArguments,
    media: Option<&mut PendingMedia>,
) -> Result<Option<Program>, SessionOver> {
    let (mut shutdown, mut is_over) = (args.shutdown.clone(), args.session_over.clone());
    let session_over = async {
        match media {
            Some(media) => media.session_over().await,
            None => is_over.wait().await,
        }
    };
    tokio::select! {
        program = warm.take(arguments, &args.session_id) => Ok(program),
        () = session_over => Err(SessionOver),
        () = shutdown.wait() => Err(SessionOver),
    }
}

/// Runs a program whose media is PCM on its standard streams.
async fn run_pcm(spec: &ProgramSpec, mut args: RunnerArguments, rate_hz: u32) -> Result<(), BotError> {
    let kind = args.kind.name();
    let arguments = arguments(&args, None)?;
    let rtvi = Rtvi::open(&mut args, Audio::at(rate_hz)).map_err(|_| ProgramError::NoAudio(kind))?;
    let (mut program, pipes) = start(spec, &arguments, &args)?;
    let media = pipes.map(|pipes| |signals| pcm::run(rtvi, pipes, signals));
    let signals = ProgramSignals::default();
    signals.is_connected.store(true, Ordering::Relaxed);
    let result = supervise(&mut program, media, (args.shutdown, args.session_over), &signals).await;
    program.flush_output().await;
    Ok(result?)
}

fn start(
    spec: &ProgramSpec,
    arguments: &str,
    args: &RunnerArguments,
) -> Result<(Program, Option<Pipes>), ProgramError> {
    let started = Program::start(spec, arguments, args.session_id.clone());
    let folder = spec.sandbox.as_ref().map(Sandbox::working_dir);
    let folder = folder.or(spec.working_dir.as_deref());
    started.map_err(|source| match check_bot(&spec.command, folder) {
        Err(why) => ProgramError::Command(why),
        Ok(()) => ProgramError::Start {
            program: spec.command.first().cloned().unwrap_or_default(),
            // With a sandbox the system failed to start its launcher.
            hint: if spec.sandbox.is_none() {
                start_hint(&source)
            } else {
                ""
            },
            source,
        },
    })
}

/// Explains the system's error for a file that exists and is executable.
fn start_hint(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => {
            "; the file exists, but not its dynamic loader: it was built for another C library or machine"
        }
        Some(Errno::NOEXEC) => "; it is neither a program for this machine nor a script that begins with `#!`",
        _ => "",
    }
}

/// Returns the arguments of a session, for a program that has no media.
///
/// # Errors
/// When they are too long for a variable.
pub fn arguments_without_media(args: &RunnerArguments) -> Result<String, process::ArgumentsTooLong> {
    arguments(args, None)
}

fn arguments(args: &RunnerArguments, listener: Option<&MediaListener>) -> Result<String, process::ArgumentsTooLong> {
    let media_url = listener.map(MediaListener::url);
    // A program has a working folder of its own.
    let uploads = args
        .cli_args
        .uploads_dir
        .as_ref()
        .map(|folder| std::path::absolute(folder).unwrap_or(folder.clone()));
    let common = process::CommonArguments {
        session_id: &args.session_id,
        body: &args.body,
        handle_sigint: args.handle_sigint,
        // The runner sends SIGTERM to end a program, so every program should handle it.
        handle_sigterm: true,
        idle_timeout_s: args.idle_timeout.as_secs(),
        is_recorded: args.is_recorded,
        allows_listening: args.allows_listening,
        media_url: media_url.as_deref(),
        uploads: uploads.as_deref().map(|folder| (folder, args.cli_args.uploads_max)),
    };
    process::arguments(&common, args.kind.for_program())
}

/// Runs the media of a program, and ends the program as soon as one of the two has ended, or
/// without media the session.
async fn supervise<'e, M>(
    program: &mut Program,
    media: Option<impl FnOnce(&'e ProgramSignals) -> M>,
    (mut shutdown, mut session_over): (Shutdown, Shutdown),
    signals: &'e ProgramSignals,
) -> Result<(), ProgramError>
where
    M: Future<Output = MediaEnd>,
{
    let has_media = media.is_some();
    let media_task = async {
        match media {
            Some(media) => media(signals).await,
            None => {
                session_over.wait().await;
                MediaEnd::SessionOver(ClosingMedia::unconnected())
            }
        }
    };
    let mut media_task = std::pin::pin!(media_task);
    enum FirstEnd {
        Exited(io::Result<ExitStatus>),
        Media(MediaEnd),
        Shutdown,
    }
    let stopping = shutdown.clone();
    let first = tokio::select! {
        status = program.exited() => FirstEnd::Exited(status),
        end = &mut media_task => FirstEnd::Media(end),
        () = shutdown.wait() => FirstEnd::Shutdown,
    };
    match first {
        FirstEnd::Exited(status) => {
            let is_connected = !has_media || signals.is_connected.load(Ordering::Relaxed);
            check_status(status).map_err(|error| match error {
                ProgramError::Exit(status) if !is_connected => ProgramError::ExitWithoutMedia {
                    status,
                    may_have_runner: signals.may_have_runner,
                    said: None,
                },
                error => error,
            })?;
            if !has_media {
                reap_group(program).await;
                return Ok(());
            }
            signals.exited.notify_one();
            // Its queued speech plays to the end while the rest of its group is ended.
            let end_group = async {
                reap_group(program).await;
                signals.group_ended.notify_one();
            };
            match tokio::join!(timeout(PROCESS_DRAIN_WITHIN, media_task), end_group) {
                (Ok(MediaEnd::ProtocolError(error, _)), ()) => Err(ProgramError::Media(error)),
                _ => Ok(()),
            }
        }
        FirstEnd::Media(end) => end_after_media(program, end, stopping, signals).await,
        FirstEnd::Shutdown => {
            let rest = async {
                match media_task.await {
                    MediaEnd::SessionOver(closing) | MediaEnd::ProtocolError(_, closing) => closing.close().await,
                    MediaEnd::EndOfInput(closing) => closing.close().await,
                    MediaEnd::HungUp => {}
                }
            };
            run_beside(rest, stop(program, stopping, STOP_GRACE)).await
        }
    }
}

/// Ends a program whose media has ended.
async fn end_after_media(
    program: &mut Program,
    end: MediaEnd,
    shutdown: Shutdown,
    signals: &ProgramSignals,
) -> Result<(), ProgramError> {
    match end {
        MediaEnd::HungUp => match exit_within_grace(program, &shutdown).await {
            Some(status) => {
                check_status(status)?;
                reap_group(program).await;
                Ok(())
            }
            None => stop(program, shutdown, STOP_GRACE).await,
        },
        MediaEnd::EndOfInput(closing) => run_beside(closing.close(), exit_or_stop(program, shutdown)).await,
        // The close of its media ends a bot in Python. SIGTERM would come to what it has started,
        // such as a recorder, before the bot can end that.
        MediaEnd::SessionOver(closing) if signals.is_python_bot && signals.is_connected.load(Ordering::Relaxed) => {
            run_beside(closing.close(), exit_or_stop(program, shutdown)).await
        }
        MediaEnd::SessionOver(mut closing) => {
            // SIGTERM ends most programs before they read their last messages.
            if closing.flush().await {
                let mut shutdown = shutdown.clone();
                tokio::select! {
                    () = sleep(PROCESS_CLOSE_WITHIN) => {}
                    () = shutdown.wait() => {}
                }
            }
            run_beside(closing.close(), stop(program, shutdown, STOP_GRACE)).await
        }
        MediaEnd::ProtocolError(error, closing) => {
            log::debug!("the bot's media is closed: {error}");
            let stopped = run_beside(closing.close(), stop(program, shutdown, STOP_GRACE)).await;
            stopped.and(Err(ProgramError::Media(error)))
        }
    }
}

/// Ends a program that notices the end of its session by itself.
async fn exit_or_stop(program: &mut Program, shutdown: Shutdown) -> Result<(), ProgramError> {
    match exit_within_grace(program, &shutdown).await {
        Some(status) => {
            reap_group(program).await;
            check_stopped(status)
        }
        None => stop(program, shutdown, STOP_GRACE - PROCESS_HANG_UP_GRACE).await,
    }
}

/// Waits up to `PROCESS_HANG_UP_GRACE` for a program to exit by itself.
async fn exit_within_grace(program: &mut Program, shutdown: &Shutdown) -> Option<io::Result<ExitStatus>> {
    let mut stopping = shutdown.clone();
    tokio::select! {
        status = program.exited() => Some(status),
        () = sleep(PROCESS_HANG_UP_GRACE) => None,
        () = stopping.wait() => None,
    }
}

/// Checks the exit status of a program that ended by itself.
fn check_status(status: io::Result<ExitStatus>) -> Result<(), ProgramError> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(ProgramError::Exit(status)),
        Err(error) => Err(ProgramError::Wait(error)),
    }
}

/// Ends the processes that a program left behind in its group.
async fn reap_group(program: &mut Program) {
    program.terminate();
    if timeout(PROCESS_HANG_UP_GRACE, program.group_exited()).await.is_err() {
        log::info!("the bot left processes behind, which are killed");
        program.kill();
    }
}

/// Checks the exit status of a program after SIGTERM. Any exit code is accepted; a death by another
/// signal is a failure.
fn check_stopped(status: io::Result<ExitStatus>) -> Result<(), ProgramError> {
    match status {
        Ok(status) if program::is_exit_on_sigterm(status) => Ok(()),
        Ok(status) if status.code().is_some() => {
            log::info!("the bot ended at the end of its session with {status}");
            Ok(())
        }
        Ok(status) => Err(ProgramError::Exit(status)),
        Err(error) => Err(ProgramError::Wait(error)),
    }
}

/// Sends SIGTERM to the program's group, and SIGKILL after `grace`, or sooner when the runner
/// stops.
async fn stop(program: &mut Program, mut shutdown: Shutdown, grace: Duration) -> Result<(), ProgramError> {
    program.terminate();
    let time_is_up = async {
        tokio::select! {
            () = sleep(grace) => {}
            () = async {
                shutdown.wait().await;
                sleep(BOT_GRACE_AT_SHUTDOWN - PROCESS_KILL_MARGIN).await;
            } => {}
        }
    };
    tokio::select! {
        status = program.group_exited() => check_stopped(status),
        () = time_is_up => {
            program.kill();
            // A process that survives SIGKILL is blocked in the kernel.
            let _ = timeout(PROCESS_REST, program.group_exited()).await;
            Err(ProgramError::Killed)
        }
    }
}

/// Polls `aside` while `main` runs, and drops it when `main` has ended.
async fn run_beside<T>(aside: impl Future<Output = ()>, main: impl Future<Output = T>) -> T {
    let aside = async {
        aside.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        done = main => done,
        () = aside => unreachable!("it is pending after `aside`"),
    }
}

#[cfg(test)]
mod tests;
