//! Processes that have loaded the bot before a call begins.
//!
//! In: the command of such a process, and calls. Out: a [`Program`] for a call: a child that the
//! process forks, or the process itself, which was waiting. One task keeps them running: it starts
//! another where one was used, has died, or where a file of the bot has changed. A call that finds
//! none waits a while for one that starts, and is started by itself otherwise, so that none is
//! lost. A bot that cannot be loaded any more leaves the one that was loaded before in service.
//! The messages are those of [`crate::proto::process::warm`].

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use edge_runner_http::common::lock;
use log::Level;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::output_log;
use super::program::{Program, ProgramSpec, WaitingProgram};
use super::sandbox::Sandbox;
use crate::bot::SessionId;
use crate::io::group::ProcessGroup;
use crate::io::running::RunningModule;
use crate::io::tasks;
use crate::logging;
use crate::proto::http::status::{BotProcessMember, BotProcessState};
use crate::proto::process::last_line;
use crate::proto::process::warm::{
    self, PING_INTERVAL, Pings, WARM_LINE_BYTES_MAX, WarmMessage, WarmMode, restart_after,
};

/// Time in which a process loads the bot: minutes on a small board.
const PROCESS_WARM_LOAD: Duration = Duration::from_secs(180);
/// Time that a call waits for a process that starts, before it is started by itself.
const PROCESS_WARM_WAIT: Duration = Duration::from_secs(30);
/// How often the files of the bot are looked at while no call comes, and the longest that a call
/// waits for a look.
const PROCESS_WARM_LOOK: Duration = Duration::from_secs(2);
/// Time in which a process forks the child of a call.
const PROCESS_FORK_WITHIN: Duration = Duration::from_secs(5);

const HANGS: &str = "the process that has loaded the bot does not answer: it is killed";
const HAS_ENDED: &str = "the process that has loaded the bot has ended: it is started again";

/// What is started before calls.
pub struct WarmSpec {
    pub command: Vec<OsString>,
    /// What the process reads from its socket before any message, behind a line with its length.
    pub package: Option<&'static str>,
    /// Processes that wait for a call, where each takes one.
    pub waiting_max: usize,
    /// The file of the bot, if it is known.
    pub file: Option<PathBuf>,
}

/// The processes of a bot. Dropping it kills those that have no call.
pub struct WarmBot {
    shared: Arc<WarmShared>,
    _keeper: JoinSet<()>,
}

struct WarmShared {
    spec: Arc<ProgramSpec>,
    warm: WarmSpec,
    state: Mutex<WarmState>,
    /// Changes with `state`.
    changes: watch::Sender<()>,
    /// Held while a thread looks at the files, so that at most one waits for them.
    looks: Arc<tokio::sync::Mutex<()>>,
    calls: AtomicU64,
}

#[derive(Default)]
struct WarmState {
    /// How the newest process serves calls; `None` before the first one is ready.
    mode: Option<WarmMode>,
    parent: Option<Arc<Parent>>,
    waiting: VecDeque<Box<WaitingBot>>,
    /// The files of the bot, and those hidden from it, and how they were when it was loaded.
    files: BotFiles,
    /// A file has changed since.
    is_outdated: bool,
    /// Processes in a row that failed.
    failures: u32,
    /// Nothing starts now: the last process failed, and the next one has to wait.
    is_pausing: bool,
    /// Why the newest process could not load the bot.
    error: Option<String>,
}

type Stamp = Option<(SystemTime, u64)>;
type BotFiles = Arc<[(PathBuf, Stamp)]>;

/// What a call gets.
enum Offer {
    Parent(Arc<Parent>),
    Waiting(Box<WaitingBot>),
    Later,
    /// None will come in time.
    Nothing,
}

impl WarmState {
    fn is_needed(&self, waiting_max: usize) -> bool {
        // What was missing may be there later, and nothing but a try can tell.
        self.is_outdated
            || self.error.is_some()
            || match self.mode {
                None => true,
                Some(WarmMode::None) => false,
                Some(WarmMode::Once) => self.waiting.len() < waiting_max,
                Some(WarmMode::Fork) => self.parent.as_ref().is_none_or(|parent| parent.is_over()),
            }
    }

    /// Returns the state for `/status`; `None` for a bot that each call has to load.
    fn member(&self) -> Option<BotProcessMember> {
        let is_loaded = self.parent.as_ref().is_some_and(|parent| !parent.is_over()) || !self.waiting.is_empty();
        let state = match (is_loaded, &self.error) {
            (_, None) if self.mode == Some(WarmMode::None) => return None,
            (true, _) => BotProcessState::Ready,
            (false, Some(_)) => BotProcessState::Failed,
            (false, None) => BotProcessState::Starting,
        };
        let error = self.error.clone();
        Some(BotProcessMember { state, error })
    }

    fn offer(&mut self) -> Offer {
        // The call that came after the change of a file is to be that of the new one.
        if self.is_outdated && !self.is_pausing {
            return Offer::Later;
        }
        if let Some(parent) = self.parent.as_ref().filter(|parent| !parent.is_over()) {
            return Offer::Parent(parent.clone());
        }
        if let Some(waiting) = self.waiting.pop_front() {
            return Offer::Waiting(waiting);
        }
        match self.is_pausing || self.mode == Some(WarmMode::None) {
            true => Offer::Nothing,
            false => Offer::Later,
        }
    }
}

impl WarmBot {
    pub fn start(spec: Arc<ProgramSpec>, warm: WarmSpec) -> Self {
        let shared = Arc::new(WarmShared {
            state: Mutex::new(WarmState {
                files: stamped(warm.file.iter().chain(hidden(&spec)).cloned()).into(),
                ..WarmState::default()
            }),
            spec,
            warm,
            changes: watch::Sender::default(),
            looks: Arc::default(),
            calls: AtomicU64::default(),
        });
        let mut keeper = JoinSet::new();
        keeper.spawn(tasks::boxed(keep(shared.clone())));
        keeper.spawn(tasks::boxed(look(shared.clone())));
        WarmBot {
            shared,
            _keeper: keeper,
        }
    }

    /// Returns a program that has loaded the bot, for one call. `None` if the call has to start its
    /// own.
    pub async fn take(&self, arguments: &str, session_id: &SessionId) -> Option<Program> {
        let mut changes = self.shared.changes.subscribe();
        let mut time_is_up = std::pin::pin!(sleep(PROCESS_WARM_WAIT));
        // Files that cannot be looked at in time stay as they are known.
        let _ = timeout(PROCESS_WARM_LOOK, self.shared.notice_changes()).await;
        let mut has_waited = false;
        loop {
            let offer = lock(&self.shared.state).offer();
            let program = match offer {
                Offer::Nothing => return None,
                Offer::Later => {
                    if !has_waited {
                        log::info!("the bot is starting: the call waits until it is loaded");
                        has_waited = true;
                    }
                    tokio::select! {
                        changed = changes.changed() => changed.ok()?,
                        () = &mut time_is_up => return None,
                    }
                    continue;
                }
                Offer::Parent(parent) => {
                    let call = self.shared.calls.fetch_add(1, Ordering::Relaxed);
                    let program = parent.clone().fork(call, arguments, session_id).await;
                    if program.is_none() {
                        parent.end();
                    }
                    program
                }
                Offer::Waiting(waiting) => {
                    // Another one starts, also if the session ends meanwhile.
                    self.shared.changes.send_replace(());
                    waiting.take(arguments, session_id).await
                }
            };
            let mut state = lock(&self.shared.state);
            match program {
                None => state.failures += 1,
                // One that was loaded before the newest failed says nothing about that.
                Some(_) if state.error.is_some() => {}
                Some(_) => state.failures = 0,
            }
            drop(state);
            self.shared.changes.send_replace(());
            if program.is_some() {
                return program;
            }
            // It has died, and another one takes a while.
            log::warn!("the process that had loaded the bot is gone: it is started again");
        }
    }
}

impl RunningModule for WarmBot {
    fn bot_process(&self) -> Option<BotProcessMember> {
        lock(&self.shared.state).member()
    }
}

impl WarmShared {
    /// Looks whether a file of the bot has changed. A thread of its own looks: the files of a
    /// network take their time, in which calls would stand still.
    async fn notice_changes(&self) {
        loop {
            let look = self.looks.clone().lock_owned().await;
            let known = lock(&self.state).files.clone();
            let files = known.clone();
            let have_changed = tasks::blocking(move || {
                let _look = look;
                files.iter().any(|(file, stamp)| stamp_of(file) != *stamp)
            });
            if !have_changed.await.unwrap_or(false) {
                return;
            }
            let mut state = lock(&self.state);
            if state.is_outdated {
                return;
            }
            // A process that is ready since has brought others.
            if Arc::ptr_eq(&state.files, &known) {
                state.is_outdated = true;
                state.is_pausing = false;
                break;
            }
        }
        log::info!("a file of the bot has changed: it is loaded again");
        self.changes.send_replace(());
    }

    /// Takes a process that is ready. `have_changed` says whether its files have, since its start.
    fn add(&self, ready: Ready, files: BotFiles, have_changed: bool) {
        let mut state = lock(&self.state);
        if state.is_outdated || state.error.is_some() {
            state.waiting.clear();
        }
        state.mode = Some(ready.mode());
        state.error = None;
        state.files = files;
        state.is_outdated = have_changed;
        // Those with a call keep the one before until their call has ended.
        state.parent = None;
        match ready {
            Ready::Parent(parent) => state.parent = Some(parent),
            Ready::Waiting(waiting) => state.waiting.push_back(waiting),
            Ready::Nothing => {}
        }
        drop(state);
        self.changes.send_replace(());
    }

    /// Drops processes that wait for a call and are over.
    fn drop_over(&self, end: &NextMessage) {
        let mut state = lock(&self.state);
        let before = state.waiting.len();
        state.waiting.retain(|waiting| !waiting.is_over.load(Ordering::Relaxed));
        // One that has a call by now is the call's.
        if state.waiting.len() < before {
            log::warn!(
                "{}",
                if matches!(end, NextMessage::Hangs) {
                    HANGS
                } else {
                    HAS_ENDED
                }
            );
            state.failures += 1;
            state.is_pausing = true;
        }
        drop(state);
        self.changes.send_replace(());
    }

    /// Records that a process could not load the bot. Returns the pause before the next one.
    fn fail(&self, files: BotFiles, error: String) -> Duration {
        let mut state = lock(&self.state);
        state.failures += 1;
        state.error = Some(error);
        state.is_pausing = true;
        // The one that was loaded before stays until another is.
        state.is_outdated = false;
        state.files = files;
        let pause = restart_after(state.failures);
        drop(state);
        self.changes.send_replace(());
        pause
    }
}

/// Keeps processes ready.
async fn keep(shared: Arc<WarmShared>) {
    let mut changes = shared.changes.subscribe();
    loop {
        let pause = {
            let state = lock(&shared.state);
            match state.is_needed(shared.warm.waiting_max) {
                false => None,
                // One that died, and none that was used, waits.
                true if state.failures > 0 && !state.is_outdated => Some(restart_after(state.failures)),
                true => Some(Duration::ZERO),
            }
        };
        match pause {
            None => {
                let _ = changes.changed().await;
                continue;
            }
            Some(Duration::ZERO) => {}
            Some(pause) => wait(&shared, pause).await,
        }
        lock(&shared.state).is_pausing = false;
        let before: Vec<_> = lock(&shared.state).files.iter().map(|(file, _)| file.clone()).collect();
        let before = stamps(before).await;
        match load(&shared).await {
            Ok((ready, files)) => {
                let level = match lock(&shared.state).error {
                    Some(_) => Level::Info,
                    None => Level::Debug,
                };
                let mode = ready.mode();
                // A bot that each call starts names none, and may become one that is loaded.
                let own = shared.warm.file.iter().filter(|_| files.is_empty());
                let all = files.iter().chain(own).chain(hidden(&shared.spec));
                let mut files = stamps(all.cloned().collect()).await;
                let mut have_changed = false;
                // A change since the start of the process is still a change.
                for (file, stamp) in &mut files {
                    if let Some((_, old)) = before.iter().find(|(known, _)| known == file) {
                        have_changed |= *stamp != *old;
                        *stamp = *old;
                    }
                }
                shared.add(ready, files.into(), have_changed);
                log::log!(level, "the bot is loaded before its calls: {mode:?}");
            }
            Err(why) => {
                let has_old = lock(&shared.state).mode.is_some_and(|mode| mode != WarmMode::None);
                let pause = shared.fail(before.into(), why.to_string());
                let old = if has_old {
                    "calls get the one that was loaded before, "
                } else {
                    ""
                };
                log::warn!(
                    "the bot cannot be loaded: {why}; {old}the next try is in {} s, and its output is at DEBUG until a file changes",
                    pause.as_secs()
                );
            }
        }
    }
}

/// Notices changes of files between calls.
async fn look(shared: Arc<WarmShared>) {
    loop {
        sleep(PROCESS_WARM_LOOK).await;
        shared.notice_changes().await;
    }
}

/// Waits for the pause of failed starts, or until a file has changed.
async fn wait(shared: &WarmShared, pause: Duration) {
    let mut changes = shared.changes.subscribe();
    lock(&shared.state).is_pausing = true;
    shared.changes.send_replace(());
    changes.mark_unchanged();
    let changed = async {
        while !lock(&shared.state).is_outdated {
            let _ = changes.changed().await;
        }
    };
    tokio::select! {
        () = sleep(pause) => {}
        () = changed => {}
    }
}

/// Starts a process and waits until it has loaded the bot.
async fn load(shared: &Arc<WarmShared>) -> Result<(Ready, Vec<PathBuf>), LoadError> {
    // What a file writes that fails again, and has not changed, is known.
    let is_known = {
        let state = lock(&shared.state);
        state.error.is_some() && !state.is_outdated
    };
    let output = if is_known { Level::Debug } else { Level::Info };
    let (mut program, stream) = Program::start_warm(&shared.spec, &shared.warm.command, output)?;
    let mut lines = Lines::new(Arc::new(stream));
    let hello = async {
        if let Some(package) = shared.warm.package {
            let text = [&format!("{}\n", package.len()), package].concat();
            write_all(&lines.stream, text.as_bytes()).await?;
        }
        lines.next().await
    };
    let hello = timeout(PROCESS_WARM_LOAD, hello).await.map_err(|_| LoadError::Late)?;
    let last_line = async |mut program: WaitingProgram| program.last_line().await.as_deref().and_then(last_line::shown);
    match hello {
        Ok(Some(WarmMessage::Hello {
            mode,
            files,
            answers_pings,
        })) => Ok(match mode {
            WarmMode::None => (Ready::Nothing, files),
            WarmMode::Once => {
                let waiting = WaitingBot::new(program, lines, shared, answers_pings);
                (Ready::Waiting(waiting), files)
            }
            WarmMode::Fork => {
                program.forget_session();
                (Ready::Parent(Parent::new(program, lines, shared, answers_pings)), files)
            }
        }),
        Ok(Some(WarmMessage::Failed(why))) => {
            // Its other lines are in the log by then.
            last_line(program).await;
            let why = last_line::shown(&why).unwrap_or_else(|| "it does not say why".to_owned());
            Err(LoadError::Bot(why))
        }
        Ok(Some(_)) => Err(LoadError::WarmMessage(warm::NoMessage)),
        Ok(None) => Err(match last_line(program).await {
            Some(line) => LoadError::Bot(line),
            None => LoadError::Ended,
        }),
        Err(error) => Err(error),
    }
}

/// Why a process did not load the bot.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("{0}")]
    Bot(String),
    #[error("its process ended before it said that it is ready")]
    Ended,
    #[error("its process was not ready after {} s", PROCESS_WARM_LOAD.as_secs())]
    Late,
    #[error(transparent)]
    WarmMessage(#[from] warm::NoMessage),
    #[error(transparent)]
    System(#[from] io::Error),
}

enum Ready {
    Parent(Arc<Parent>),
    Waiting(Box<WaitingBot>),
    Nothing,
}

impl Ready {
    fn mode(&self) -> WarmMode {
        match self {
            Ready::Parent(_) => WarmMode::Fork,
            Ready::Waiting(_) => WarmMode::Once,
            Ready::Nothing => WarmMode::None,
        }
    }
}

/// A process that takes one call. Dropping it kills the process.
struct WaitingBot {
    program: WaitingProgram,
    stream: Arc<UnixStream>,
    /// It has ended, or hangs.
    is_over: Arc<AtomicBool>,
    /// Pings a process that answers pings.
    pinger: JoinSet<()>,
}

impl WaitingBot {
    fn new(program: WaitingProgram, mut lines: Lines, shared: &Arc<WarmShared>, answers_pings: bool) -> Box<Self> {
        let stream = lines.stream.clone();
        let is_over = Arc::<AtomicBool>::default();
        let mut pinger = JoinSet::new();
        if answers_pings {
            let (over, changes) = (is_over.clone(), Arc::downgrade(shared));
            pinger.spawn(tasks::boxed(async move {
                let mut pings = Pings::default();
                // A ping that was begun and not completed would be the beginning of the call.
                let ping = |stream: &UnixStream, text: &str| {
                    let is_torn = stream.try_write(text.as_bytes()).is_ok_and(|count| count < text.len());
                    over.fetch_or(is_torn, Ordering::Relaxed);
                };
                let end = loop {
                    match lines.next_or_ping(&mut pings, true, ping).await {
                        NextMessage::Message(_) => {}
                        end => break end,
                    }
                };
                over.store(true, Ordering::Relaxed);
                if let Some(shared) = changes.upgrade() {
                    shared.drop_over(&end);
                }
            }));
        }
        Box::new(WaitingBot {
            program,
            stream,
            is_over,
            pinger,
        })
    }

    /// Gives it a call. `None` if it has died.
    async fn take(mut self: Box<Self>, arguments: &str, session_id: &SessionId) -> Option<Program> {
        // No ping gets into the line of the call.
        self.pinger.shutdown().await;
        let line = warm::call(0, arguments);
        let written = timeout(PROCESS_FORK_WITHIN, write_all(&self.stream, line.as_bytes())).await;
        if self.is_over.load(Ordering::Relaxed) || self.program.is_over() || !matches!(written, Ok(Ok(()))) {
            return None;
        }
        Some(self.program.begin(session_id.clone(), self.stream))
    }
}

/// A process that forks a child for each call. Its children hold it until their calls have ended.
pub struct Parent {
    stream: Arc<UnixStream>,
    children: Arc<Children>,
    _reader: JoinSet<()>,
}

#[derive(Default)]
struct Children {
    calls: Mutex<BTreeMap<u64, Child>>,
    is_over: AtomicBool,
    /// Whether a message to the process was begun and not completed. Locked while one is written.
    is_torn: tokio::sync::Mutex<bool>,
    /// Their parent; `None` once it was killed because it hangs.
    program: Mutex<Option<WaitingProgram>>,
}

/// What a call waits for.
struct Child {
    /// Takes the child's group, which is killed if the call ends before it has taken it.
    started: Option<oneshot::Sender<ProcessGroup>>,
    ended: oneshot::Sender<ExitStatus>,
}

impl Parent {
    fn new(program: WaitingProgram, mut lines: Lines, shared: &Arc<WarmShared>, answers_pings: bool) -> Arc<Self> {
        let children = Arc::new(Children {
            program: Mutex::new(Some(program)),
            ..Children::default()
        });
        let stream = lines.stream.clone();
        let (known, changes) = (children.clone(), Arc::downgrade(shared));
        let mut reader = JoinSet::new();
        reader.spawn(tasks::boxed(async move {
            let mut pings = Pings::default();
            let ping = |stream: &UnixStream, text: &str| known.send_now(stream, text);
            loop {
                match lines.next_or_ping(&mut pings, answers_pings, ping).await {
                    NextMessage::Message(message) => known.take(message),
                    NextMessage::Hangs => {
                        log::warn!("{HANGS}");
                        // The system reaps its children then, and their calls go on.
                        drop(lock(&known.program).take());
                        break;
                    }
                    NextMessage::End => break,
                }
            }
            known.end();
            if let Some(shared) = changes.upgrade() {
                let mut state = lock(&shared.state);
                if state.parent.as_ref().is_some_and(|parent| parent.is_over()) {
                    log::warn!("{HAS_ENDED}");
                    state.failures += 1;
                    state.is_pausing = true;
                }
                drop(state);
                shared.changes.send_replace(());
            }
        }));
        Arc::new(Parent {
            stream,
            children,
            _reader: reader,
        })
    }

    fn is_over(&self) -> bool {
        self.children.is_over.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.children.is_over.store(true, Ordering::Relaxed);
    }

    /// Lets it fork the child of a call. `None` if it does not.
    async fn fork(self: Arc<Self>, call: u64, arguments: &str, session_id: &SessionId) -> Option<Program> {
        let (stdout, of_stdout) = output().ok()?;
        let (stderr, of_stderr) = output().ok()?;
        let (started, has_started) = oneshot::channel();
        let (ended, has_ended) = oneshot::channel();
        let child = Child {
            started: Some(started),
            ended,
        };
        lock(&self.children.calls).insert(call, child);
        let line = warm::call(call, arguments);
        let fork = async {
            let mut is_torn = self.children.is_torn.lock().await;
            if std::mem::replace(&mut *is_torn, true) || self.is_over() {
                return None;
            }
            let sent = send_with(&self.stream, line.as_bytes(), &[of_stdout, of_stderr])
                .await
                .ok()?;
            write_all(&self.stream, &line.as_bytes()[sent..]).await.ok()?;
            *is_torn = false;
            drop(is_torn);
            has_started.await.ok()
        };
        let group = timeout(PROCESS_FORK_WITHIN, fork).await.ok().flatten();
        let Some(group) = group else {
            lock(&self.children.calls).remove(&call);
            return None;
        };
        let log = logging::in_session(session_id.clone(), async move { output_log::run(stdout, stderr).await });
        Some(Program::of_forked(group, has_ended, self, log))
    }
}

impl Children {
    fn take(&self, message: WarmMessage) {
        let mut calls = lock(&self.calls);
        match message {
            WarmMessage::Started { call, pid } => {
                let group = ProcessGroup::from_leader(pid);
                let started = calls.get_mut(&call).and_then(|child| child.started.take());
                if started.is_none_or(|started| started.send(group).is_err()) {
                    // The call has ended by now, and the group is killed.
                    calls.remove(&call);
                }
            }
            WarmMessage::Refused { call, error } => {
                log::warn!("the process that has loaded the bot cannot fork: {error}");
                calls.remove(&call);
            }
            WarmMessage::Ended { call, status } => {
                if let Some(child) = calls.remove(&call) {
                    let _ = child.ended.send(ExitStatus::from_raw(status));
                }
            }
            WarmMessage::Hello { .. } | WarmMessage::Pong | WarmMessage::Failed(_) => {}
        }
    }

    /// Sends a short message, unless the process does not read or another one is being sent.
    fn send_now(&self, stream: &UnixStream, text: &str) {
        let Ok(mut is_torn) = self.is_torn.try_lock() else {
            return;
        };
        if !*is_torn {
            *is_torn = stream.try_write(text.as_bytes()).is_ok_and(|count| count < text.len());
        }
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        lock(&self.calls).clear();
    }
}

/// Returns a pipe for the output of a child.
fn output() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (sender, receiver) = pipe::pipe()?;
    Ok((receiver, sender.into_blocking_fd()?))
}

/// Sends the beginning of a message with file descriptors. Returns the number of bytes.
async fn send_with(stream: &UnixStream, text: &[u8], files: &[OwnedFd; 2]) -> io::Result<usize> {
    stream
        .async_io(Interest::WRITABLE, || {
            let files = [files[0].as_fd(), files[1].as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            beside.push(SendAncillaryMessage::ScmRights(&files));
            Ok(sendmsg(stream, &[IoSlice::new(text)], &mut beside, SendFlags::empty())?)
        })
        .await
}

async fn write_all(stream: &UnixStream, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        stream.writable().await?;
        match stream.try_write(text) {
            Ok(count) => text = &text[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What comes next from a process.
enum NextMessage {
    Message(WarmMessage),
    /// It leaves pings without an answer.
    Hangs,
    /// It has ended, or sends what is no message.
    End,
}

/// The messages of a process.
struct Lines {
    stream: Arc<UnixStream>,
    buffer: Vec<u8>,
}

impl Lines {
    fn new(stream: Arc<UnixStream>) -> Self {
        Lines {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Returns the next message of a process that waits for calls. While none comes, one that
    /// answers pings gets some.
    async fn next_or_ping(
        &mut self,
        pings: &mut Pings,
        answers_pings: bool,
        ping: impl Fn(&UnixStream, &str),
    ) -> NextMessage {
        let message = loop {
            tokio::select! {
                message = self.next() => break message,
                () = sleep(PING_INTERVAL), if answers_pings => match pings.poll_ping() {
                    Some(text) => ping(&self.stream, &text),
                    None => return NextMessage::Hangs,
                },
            }
        };
        pings.handle_message();
        match message {
            Ok(Some(message)) => NextMessage::Message(message),
            Ok(None) => NextMessage::End,
            Err(error) => {
                log::warn!("the process that has loaded the bot: {error}");
                NextMessage::End
            }
        }
    }

    /// Returns the next message; `None` at the end.
    async fn next(&mut self) -> Result<Option<WarmMessage>, LoadError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                return Ok(Some(warm::parse(&line)?));
            }
            if self.buffer.len() >= WARM_LINE_BYTES_MAX {
                return Err(warm::NoMessage.into());
            }
            self.stream.readable().await?;
            let mut part = [0; 1024];
            match self.stream.try_read(&mut part) {
                Ok(0) => return Ok(None),
                Ok(count) => self.buffer.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns the files that the sandbox hides as they are when a process starts: one that is replaced
/// later is seen by it.
fn hidden(spec: &ProgramSpec) -> &[PathBuf] {
    spec.sandbox.as_ref().map(Sandbox::hidden).unwrap_or_default()
}

/// Returns the files as they are now. A thread of its own looks at them.
async fn stamps(files: Vec<PathBuf>) -> Vec<(PathBuf, Stamp)> {
    tasks::blocking(move || stamped(files)).await.unwrap_or_default()
}

fn stamped(files: impl IntoIterator<Item = PathBuf>) -> Vec<(PathBuf, Stamp)> {
    let stamp = |file: PathBuf| {
        let stamp = stamp_of(&file);
        (file, stamp)
    };
    files.into_iter().map(stamp).collect()
}

fn stamp_of(file: &Path) -> Stamp {
    let found = std::fs::metadata(file).ok()?;
    Some((found.modified().ok()?, found.len()))
}

#[cfg(test)]
mod tests;
