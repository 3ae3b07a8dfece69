//! Runs a build: unpacks the archive, runs the builder command, and determines the outcome.
//!
//! In: a [`BuildJob`]. Out: a [`RunOutcome`], and lines in the build's log. The command runs in its
//! own process group, in the unpacked context, with stdin closed and a minimal environment. At the
//! end its group is killed, as is any process that has the run's environment, and the scratch
//! folder is removed. The command has the service's rights; isolation is up to the command. Source:
//! decisions I-10 to I-13.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::build_log::BuildLog;
use super::dir::{self, DirHandle};
use super::extract::{self, ExtractError};
use super::guard;
use crate::config::CloudConfig;
use crate::limits::{BUILD_LINE_BYTES_MAX, BUILD_STOP_WITHIN};
use crate::proto::build::{Build, Image, ImageLocation};
use crate::proto::outcome::{self, BuildPhase, CommandExit, ImageError, OutEntry, StderrTail};
use crate::proto::unpack::UnpackLimits;
use edge_runner_http::common;
use edge_runner_http::group::ProcessGroup;
use edge_runner_http::script::{ScriptError, check_script};
use edge_runner_http::search_path::files_in_path;
use edge_runner_http::shutdown::Shutdown;
use edge_runner_http::tasks;
use edge_runner_proto::limits::PROCESS_GROUP_INTERVAL;
use edge_runner_proto::process::output_lines::LineSplitter;
use edge_runner_proto::sorting;

/// Time for the group to exit after SIGKILL. A process may hang in a disk or driver.
const BUILD_KILL_REST: Duration = Duration::from_secs(5);

/// Bytes read from a pipe at a time.
const BUILD_PIPE_BYTES: usize = 16 * 1024;

/// Size of `BUILD_RESULT` in bytes.
const RESULT_BYTES_MAX: usize = 64 * 1024;

/// Input of a run.
pub struct BuildJob {
    pub build: Build,
    pub archive: Box<dyn io::Read + Send>,
    /// `scratch/{id}-{attempt}` in [`guard::scratch_dir`]. The run creates and removes it.
    pub scratch: PathBuf,
    /// `images/{id}`. The run creates it for a stored image.
    pub images: PathBuf,
    pub command: Arc<[OsString]>,
    pub limits: RunLimits,
    /// `PATH`, `LANG` and the variables of `--builder-env`.
    pub env: Vec<(OsString, OsString)>,
    /// Called when the command has exited, before its output is processed. Requests for the build
    /// then wait for the result.
    pub on_exit: Box<dyn FnOnce() + Send>,
    /// Called with the outcome before the scratch folder is removed, which may take long.
    pub on_outcome: Box<dyn FnOnce(RunOutcome) + Send>,
}

/// Limits of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    pub timeout: Duration,
    pub grace: Duration,
    /// Bytes.
    pub unpacked_max: u64,
    pub entries_max: u64,
}

impl RunLimits {
    /// Returns the limits of a service.
    pub fn of(config: &CloudConfig) -> RunLimits {
        RunLimits {
            timeout: config.build_timeout,
            grace: config.build_grace,
            unpacked_max: config.unpacked_max,
            entries_max: config.entries_max,
        }
    }
}

/// Returns the environment of every command of a service.
pub fn command_env(config: &CloudConfig) -> Vec<(OsString, OsString)> {
    let mut env = vec![(OsString::from("PATH"), config.path.clone())];
    env.extend(config.lang.clone().map(|lang| ("LANG".into(), lang)));
    env.extend(config.builder_env.iter().cloned());
    env
}

/// The outcome of a run. Its processes have ended; the scratch folder is removed when [`run`]
/// returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    Success(Image),
    Failed(String),
    TimedOut(String),
    /// The service stopped.
    Interrupted,
}

/// Checks that a builder command can be run.
///
/// # Errors
/// [`BuilderCommandError`] names the program.
pub fn check_command(command: &[OsString], path: &OsStr) -> Result<(), BuilderCommandError> {
    let first = command.first().filter(|first| !first.is_empty());
    let first = first.ok_or(BuilderCommandError::Empty)?;
    let check = || {
        let program = program(first, path)?;
        let found = program.metadata()?;
        if found.is_dir() {
            return Err(BuilderProgramError::IsFolder);
        }
        if found.permissions().mode() & 0o111 == 0 {
            return Err(BuilderProgramError::NotExecutable);
        }
        // It runs in the context of a build, which is not there yet.
        Ok(check_script(&program, None, path)?)
    };
    check().map_err(|source| BuilderCommandError::Unusable {
        name: first.display().to_string(),
        source,
    })
}

/// Why a builder command cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum BuilderCommandError {
    #[error("the builder command after `--` is empty")]
    Empty,
    #[error("the builder command `{name}` cannot be run: {source}")]
    Unusable { name: String, source: BuilderProgramError },
    #[error("starting `{name}`: {source}")]
    Start { name: String, source: BuilderProgramError },
}

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum BuilderProgramError {
    #[error("no program of that name is in PATH")]
    NotFound,
    #[error("it is a folder")]
    IsFolder,
    #[error("it is not executable; `chmod +x` makes it so")]
    NotExecutable,
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Finds a program as the service sees it. The command's working directory is the untrusted
/// context.
fn program(name: &OsStr, path: &OsStr) -> Result<PathBuf, BuilderProgramError> {
    if name.as_bytes().contains(&b'/') {
        return Ok(std::path::absolute(name)?);
    }
    files_in_path(name, path)
        .filter(|candidate| candidate.is_absolute())
        .find(|candidate| fs::metadata(candidate).is_ok_and(|found| found.permissions().mode() & 0o111 != 0))
        .ok_or(BuilderProgramError::NotFound)
}

/// Runs a build. `log` is open for appending.
pub async fn run(mut job: BuildJob, log: BuildLog, mut stop: Shutdown) -> RunOutcome {
    let dirs = RunDirs::of(&job.scratch);
    let output = OutputLog::new(log);
    let known = std::mem::replace(&mut job.on_outcome, Box::new(drop));
    let outcome = attempt(job, &dirs, &output, &mut stop).await;
    known(outcome.clone());
    remove(dirs.scratch).await;
    outcome
}

/// Cleans up after a run that panicked.
pub async fn clean_up(scratch: &Path) {
    let dirs = RunDirs::of(scratch);
    kill_escaped(&dirs.context).await;
    remove(dirs.scratch).await;
}

async fn remove(scratch: PathBuf) {
    let path = scratch.clone();
    if let Some(Err(error)) = blocking(move || dir::remove_tree(&scratch)).await {
        log::warn!("{}: not everything can be removed: {error}", path.display());
    }
}

/// The folders of a run.
#[derive(Clone)]
struct RunDirs {
    scratch: PathBuf,
    context: PathBuf,
    out: PathBuf,
    home: PathBuf,
    tmp: PathBuf,
    /// A file for the command's result.
    result: PathBuf,
}

impl RunDirs {
    fn of(scratch: &Path) -> RunDirs {
        RunDirs {
            context: scratch.join("context"),
            out: scratch.join("out"),
            home: scratch.join("home"),
            tmp: scratch.join("tmp"),
            result: scratch.join("result"),
            scratch: scratch.to_owned(),
        }
    }

    fn make(&self) -> io::Result<()> {
        dir::remove_tree(&self.scratch)?;
        let mut builder = DirBuilder::new();
        builder.mode(0o700).recursive(true);
        for folder in [&self.context, &self.out, &self.home, &self.tmp] {
            builder.create(folder)?;
        }
        Ok(())
    }
}

/// Runs blocking work on a thread for it. Returns `None` after a panic, which the runtime has
/// logged.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tasks::blocking(work).await.ok()
}

/// Error message for a panic.
const PANIC: &str = "internal error; see the log of the service";

async fn attempt(mut job: BuildJob, dirs: &RunDirs, output: &Arc<OutputLog>, stop: &mut Shutdown) -> RunOutcome {
    let Build { attempt, size, .. } = job.build;
    output
        .note(format!("attempt {attempt}: unpacking the build context, {size} bytes"))
        .await;
    let mut archive = std::mem::replace(&mut job.archive, Box::new(io::empty()));
    let (file, stopping, at) = (job.build.file.clone(), stop.clone(), dirs.clone());
    let bounds = UnpackLimits {
        bytes_max: job.limits.unpacked_max,
        entries_max: job.limits.entries_max,
    };
    let unpacked = blocking(move || {
        at.make().map_err(|source| ExtractError::Create {
            name: "the scratch folder".to_owned(),
            source,
        })?;
        extract::extract(&mut *archive, &at.context, bounds, &file, &|| stopping.is_set())
    });
    let sum = match unpacked.await {
        Some(Ok(sum)) => sum,
        Some(Err(ExtractError::Stopped)) => return RunOutcome::Interrupted,
        Some(Err(fault)) => return output.failed(BuildPhase::Unpack, &fault.to_string()).await,
        None => return output.failed(BuildPhase::Unpack, PANIC).await,
    };
    output
        .note(format!("unpacked {} entries, {} bytes", sum.entries, sum.bytes))
        .await;
    match command(&mut job, dirs, output, stop).await {
        Ok(()) => {}
        Err(outcome) => return outcome,
    }
    let (at, images, last) = (dirs.clone(), job.images, output.last_line());
    match blocking(move || image(&at, &last, &images)).await {
        Some(Ok(image)) => {
            let name = match &image.location {
                ImageLocation::Uri(name) | ImageLocation::Stored(name) => name,
            };
            output.note(format!("the image is {name}, {} bytes", image.size)).await;
            RunOutcome::Success(image)
        }
        // The command got the stop signal too and exited in good order.
        Some(Err(_)) if stop.is_set() => RunOutcome::Interrupted,
        Some(Err(error)) => output.failed(BuildPhase::Image, &error.to_string()).await,
        None => output.failed(BuildPhase::Image, PANIC).await,
    }
}

/// The first event while the command runs.
enum WaitResult {
    Ended(io::Result<ExitStatus>),
    Late,
    Stopped,
}

/// Runs the command. Returns `Ok` on success.
async fn command(
    job: &mut BuildJob,
    dirs: &RunDirs,
    output: &Arc<OutputLog>,
    stop: &mut Shutdown,
) -> Result<(), RunOutcome> {
    if stop.is_set() {
        return Err(RunOutcome::Interrupted);
    }
    output.note("running the builder command".to_owned()).await;
    let mut entry = guard::GuardEntry::announce();
    let mut child = match start(job, dirs) {
        Ok(child) => child,
        Err(error) => return Err(output.failed(BuildPhase::Build, &error.to_string()).await),
    };
    let id = child.id().expect("a child that was never waited for has a number");
    // Dropped before the child: the group's signal needs the leader's id, which the system may
    // reuse after the leader is reaped.
    let mut group = ProcessGroup::from_leader(id);
    entry.started(group.id());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut readers = tokio::task::JoinSet::new();
    if let (Some(stdout), Some(stderr)) = (stdout, stderr) {
        readers.spawn(tasks::boxed(copy_output(stdout, stderr, output.clone())));
    }
    let first = tokio::select! {
        biased;
        status = child.wait() => WaitResult::Ended(status),
        () = stop.wait() => WaitResult::Stopped,
        () = sleep(job.limits.timeout) => WaitResult::Late,
    };
    match first {
        WaitResult::Ended(_) => group.leader_was_reaped(),
        WaitResult::Late | WaitResult::Stopped => {
            let reason = if let WaitResult::Late = first {
                "the time limit has passed"
            } else {
                "the service stops"
            };
            output.note(format!("{reason}: sending SIGTERM to the command")).await;
            group.signal(Signal::TERM);
            let _ = timeout(job.limits.grace, wait_for_group(&mut child, &mut group)).await;
        }
    }
    if !matches!(first, WaitResult::Stopped) {
        std::mem::replace(&mut job.on_exit, Box::new(|| ()))();
    }
    group.signal(Signal::KILL);
    if timeout(BUILD_KILL_REST, wait_for_group(&mut child, &mut group))
        .await
        .is_err()
    {
        log::warn!("process group {} does not end on SIGKILL", group.id());
    }
    kill_escaped(&dirs.context).await;
    // A process that still holds the pipes is not waited for any longer.
    let _ = timeout(BUILD_KILL_REST, readers.join_next()).await;
    readers.abort_all();
    match first {
        WaitResult::Ended(Ok(status)) => classify_exit(&end_of(status), output, stop).await,
        WaitResult::Ended(Err(error)) => {
            let reason = format!("waiting for the command: {error}");
            Err(output.failed(BuildPhase::Build, &reason).await)
        }
        WaitResult::Late => {
            let limit = job.limits.timeout.as_secs_f64();
            let reason = format!("no end within {limit} seconds (`--build-timeout`), so it was stopped");
            Err(match output.failed(BuildPhase::Build, &reason).await {
                RunOutcome::Failed(text) => RunOutcome::TimedOut(text),
                other => other,
            })
        }
        WaitResult::Stopped => Err(RunOutcome::Interrupted),
    }
}

/// Converts an exit status.
fn end_of(status: ExitStatus) -> CommandExit {
    match (status.code(), status.signal()) {
        (Some(code), _) => CommandExit::Code(code),
        (None, signal) => CommandExit::Signal(signal.unwrap_or(0)),
    }
}

/// Logs how the command ended. Returns the outcome unless it was a success.
async fn classify_exit(end: &CommandExit, output: &Arc<OutputLog>, stop: &mut Shutdown) -> Result<(), RunOutcome> {
    if *end == CommandExit::Code(0) {
        output.note(format!("the command ended: {end}")).await;
        return Ok(());
    }
    if is_stopped(end, stop).await {
        output
            .note(format!("the service stops: the command ended: {end}"))
            .await;
        return Err(RunOutcome::Interrupted);
    }
    Err(output.failed(BuildPhase::Build, &end.to_string()).await)
}

/// Tells whether a failure is due to the service's stop. A supervisor may signal all processes at
/// once, and the command may end first.
async fn is_stopped(end: &CommandExit, stop: &mut Shutdown) -> bool {
    let (CommandExit::Code(number) | CommandExit::Signal(number)) = *end;
    // Shells report a signal as 128 plus its number.
    let signal = if let CommandExit::Code(_) = end {
        number - 128
    } else {
        number
    };
    if [Signal::TERM, Signal::INT, Signal::HUP]
        .iter()
        .any(|stops| stops.as_raw() == signal)
    {
        let _ = timeout(BUILD_STOP_WITHIN, stop.wait()).await;
    }
    stop.is_set()
}

/// Waits until the command and its group have exited.
async fn wait_for_group(child: &mut Child, group: &mut ProcessGroup) {
    // Waiting again for an exited child returns its status again.
    let _ = child.wait().await;
    group.leader_was_reaped();
    while !group.is_gone() {
        sleep(PROCESS_GROUP_INTERVAL).await;
    }
}

/// Kills processes that left the group until none is found; each may be starting another.
async fn kill_escaped(context: &Path) {
    let search = async {
        let mut killed = Vec::new();
        loop {
            let context = context.to_owned();
            let found = blocking(move || guard::kill_run(&context)).await.unwrap_or_default();
            guard::reap(&mut killed);
            if found.is_empty() {
                return;
            }
            killed.extend(found);
            sleep(PROCESS_GROUP_INTERVAL).await;
        }
    };
    if timeout(BUILD_KILL_REST, search).await.is_err() {
        log::warn!("processes of a build's command do not end on SIGKILL");
    }
}

fn start(job: &BuildJob, dirs: &RunDirs) -> Result<Child, BuilderCommandError> {
    let (first, rest) = job.command.split_first().ok_or(BuilderCommandError::Empty)?;
    let env = environment(job, dirs);
    let path = env.get(OsStr::new("PATH")).cloned().unwrap_or_default();
    let failed = |source| BuilderCommandError::Start {
        name: first.display().to_string(),
        source,
    };
    let program = program(first, &path).map_err(failed)?;
    let mut command = Command::new(program);
    command
        .as_std_mut()
        .args(rest.iter().map(|argument| expand(argument, job, dirs)));
    command
        .arg0(first)
        .env_clear()
        .envs(env)
        .current_dir(&dirs.context)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command.spawn().map_err(|error| failed(error.into()))
}

/// Builds the complete environment. `--builder-env` overrides the defaults, but not the variables
/// of the build.
fn environment(job: &BuildJob, dirs: &RunDirs) -> BTreeMap<OsString, OsString> {
    let build = &job.build;
    let defaults: [(&str, OsString); 4] = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
        ("LANG", "C.UTF-8".into()),
        ("HOME", dirs.home.clone().into()),
        ("TMPDIR", dirs.tmp.clone().into()),
    ];
    let own: [(&str, OsString); 9] = [
        ("BUILD_ID", build.id.to_string().into()),
        ("BUILD_ORG", build.org.as_str().into()),
        ("BUILD_REGION", build.region.as_str().into()),
        ("BUILD_FILE", build.file.clone().into()),
        ("BUILD_CONTEXT", dirs.context.clone().into()),
        ("BUILD_CONTEXT_HASH", build.hash.clone().into()),
        ("BUILD_OUT", dirs.out.clone().into()),
        ("BUILD_RESULT", dirs.result.clone().into()),
        ("BUILD_ATTEMPT", build.attempt.to_string().into()),
    ];
    let named = |(name, value): (&str, OsString)| (OsString::from(name), value);
    let mut all = sorting::map(defaults.into_iter().map(named));
    all.extend(job.env.iter().cloned());
    all.extend(own.into_iter().map(named));
    all
}

/// Replaces the placeholders of an argument. `{{` is a brace; other braces stay, since scripts use
/// them.
fn expand(argument: &OsStr, job: &BuildJob, dirs: &RunDirs) -> OsString {
    let id = job.build.id.to_string();
    let state: [(&[u8], &[u8]); 9] = [
        (b"{{", b"{"),
        (b"{context}", dirs.context.as_os_str().as_bytes()),
        (b"{buildfile}", job.build.file.as_bytes()),
        (b"{out}", dirs.out.as_os_str().as_bytes()),
        (b"{result}", dirs.result.as_os_str().as_bytes()),
        (b"{id}", id.as_bytes()),
        (b"{org}", job.build.org.as_str().as_bytes()),
        (b"{region}", job.build.region.as_str().as_bytes()),
        (b"{hash}", job.build.hash.as_bytes()),
    ];
    let mut rest = argument.as_bytes();
    let mut filled = Vec::with_capacity(rest.len());
    while let Some(&byte) = rest.first() {
        if let Some((word, value)) = state.iter().find(|(word, _)| rest.starts_with(word)) {
            filled.extend_from_slice(value);
            rest = &rest[word.len()..];
        } else {
            filled.push(byte);
            rest = &rest[1..];
        }
    }
    OsString::from_vec(filled)
}

/// Why the image of a successful command is unusable.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error("BUILD_RESULT is unusable: {0}")]
    Result(#[from] ResultFileError),
    #[error("BUILD_OUT is unusable: {0}")]
    Out(#[source] io::Error),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("keeping `{name}`: {source}")]
    Store { name: String, source: io::Error },
}

/// Why `BUILD_RESULT` cannot be read.
#[derive(Debug, thiserror::Error)]
enum ResultFileError {
    #[error("it is a link")]
    Link,
    #[error("it has more than {max} bytes", max = RESULT_BYTES_MAX)]
    TooLarge,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Determines the image, and stores it if it is a file.
fn image(dirs: &RunDirs, last_line: &str, images: &Path) -> Result<Image, CollectError> {
    let result = result(&dirs.result)?;
    let out = match DirHandle::open(&dirs.out) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        other => Some(other.map_err(CollectError::Out)?),
    };
    let names = out.as_ref().map_or(Ok(Vec::new()), |out| out.list(2));
    let names = names.map_err(CollectError::Out)?;
    let items: Vec<OutEntry> = names.into_iter().map(|(name, size)| OutEntry { name, size }).collect();
    let image = outcome::find_image(result.as_deref(), last_line, &items)?;
    if let (ImageLocation::Stored(name), Some(out)) = (&image.location, &out) {
        keep(out, name, images).map_err(|source| CollectError::Store {
            name: name.clone(),
            source,
        })?;
    }
    Ok(image)
}

/// Reads `BUILD_RESULT`, if it exists.
fn result(path: &Path) -> Result<Option<Vec<u8>>, ResultFileError> {
    let folder = DirHandle::open(path.parent().unwrap_or(path));
    let name = dir::c_name(b"result")?;
    let file = match folder.and_then(|folder| folder.open_file(&name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => return Err(ResultFileError::Link),
        other => other?,
    };
    let mut content = Vec::new();
    file.take(RESULT_BYTES_MAX as u64 + 1).read_to_end(&mut content)?;
    if content.len() > RESULT_BYTES_MAX {
        return Err(ResultFileError::TooLarge);
    }
    Ok(Some(content))
}

/// Moves an image to `images/` and syncs it before it is recorded.
fn keep(out: &DirHandle, name: &str, images: &Path) -> io::Result<()> {
    let file_name = dir::c_name(name.as_bytes())?;
    // A command may leave a file that its own user cannot read.
    out.open_own_file(&file_name)?.sync_all()?;
    // Left by an attempt that was killed at this point.
    dir::remove_tree(images)?;
    DirBuilder::new().mode(0o700).recursive(true).create(images)?;
    let to = DirHandle::open(images)?;
    out.move_to(&file_name, &to)?;
    to.sync()?;
    images.parent().map_or(Ok(()), |parent| DirHandle::open(parent)?.sync())
}

/// The output of a run, and the log that it goes to.
struct OutputLog(Mutex<OutputState>);

struct OutputState {
    log: BuildLog,
    /// The last non-empty line of stdout.
    last_line: String,
    stderr: StderrTail,
}

impl OutputLog {
    fn new(log: BuildLog) -> Arc<OutputLog> {
        Arc::new(OutputLog(Mutex::new(OutputState {
            log,
            last_line: String::new(),
            stderr: StderrTail::default(),
        })))
    }

    /// Accesses the state on a blocking thread.
    async fn with(self: &Arc<OutputLog>, work: impl FnOnce(&mut OutputState) + Send + 'static) {
        let output = self.clone();
        blocking(move || work(&mut common::lock(&output.0))).await;
    }

    async fn note(self: &Arc<OutputLog>, line: String) {
        self.with(move |state| state.log.write_service_line(&line)).await;
    }

    /// Logs an error and returns it as an outcome.
    async fn failed(self: &Arc<OutputLog>, phase: BuildPhase, reason: &str) -> RunOutcome {
        self.note(outcome::error_message(phase, reason, "")).await;
        let state = common::lock(&self.0);
        let stderr = if phase == BuildPhase::Build {
            state.stderr.end()
        } else {
            ""
        };
        RunOutcome::Failed(outcome::error_message(phase, reason, stderr))
    }

    fn last_line(&self) -> String {
        let state = common::lock(&self.0);
        state.last_line.clone()
    }
}

/// Copies both streams to the log until they end. The pipes are read even if the log drops lines,
/// so that the command does not block.
async fn copy_output(stdout: impl AsyncRead + Unpin, stderr: impl AsyncRead + Unpin, output: Arc<OutputLog>) {
    let (mut stdout, mut stderr) = (PipeReader::new(stdout), PipeReader::new(stderr));
    while stdout.is_open || stderr.is_open {
        let (lines, is_stdout) = tokio::select! {
            lines = stdout.lines(), if stdout.is_open => (lines, true),
            lines = stderr.lines(), if stderr.is_open => (lines, false),
        };
        let Some(lines) = lines else {
            continue;
        };
        let write = move |state: &mut OutputState| {
            state.log.write_lines(&lines);
            if is_stdout {
                if let Some(last) = lines.rsplit('\n').find(|line| !line.trim().is_empty()) {
                    last.trim().clone_into(&mut state.last_line);
                }
            } else {
                lines.split('\n').for_each(|line| state.stderr.push(line));
            }
        };
        output.with(write).await;
    }
}

struct PipeReader<R> {
    pipe: R,
    cutter: LineSplitter,
    buffer: Box<[u8]>,
    is_open: bool,
}

impl<R: AsyncRead + Unpin> PipeReader<R> {
    fn new(pipe: R) -> Self {
        PipeReader {
            pipe,
            cutter: LineSplitter::new(BUILD_LINE_BYTES_MAX, "", true),
            buffer: vec![0; BUILD_PIPE_BYTES].into(),
            is_open: true,
        }
    }

    /// Reads once. Returns the complete lines, separated by line feeds.
    async fn lines(&mut self) -> Option<String> {
        let read = self.pipe.read(&mut self.buffer).await;
        let mut lines: Option<String> = None;
        let mut push = |line: &str| {
            let lines = match &mut lines {
                None => lines.insert(String::new()),
                Some(lines) => {
                    lines.push('\n');
                    lines
                }
            };
            lines.push_str(cut(line));
        };
        match read {
            Ok(count) if count > 0 => self.cutter.push(&self.buffer[..count], &mut push),
            _ => {
                self.is_open = false;
                self.cutter.finish(&mut push);
            }
        }
        lines
    }
}

/// Cuts a line to its maximum length at a character boundary. Replacement characters may have made
/// it longer.
fn cut(line: &str) -> &str {
    let mut end = line.len().min(BUILD_LINE_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line[..end]
}

#[cfg(test)]
mod tests;
