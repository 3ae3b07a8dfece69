//! A thread that detects stalls of the runtime and of session tasks, since a bot that blocks its
//! thread may block the runtime.
//!
//! In: session tasks, which record when they are polled, and a heartbeat task in the runtime. Out:
//! a log line when one of them stalls and when it recovers, counts for the metrics, and keep-alive
//! messages to the supervisor, which stop while the runtime is stalled. `proto::stall` defines a
//! stall.
//!
//! The heartbeat has a useful side effect: it wakes an idle worker thread, which takes over the
//! sockets and timers of a blocked one.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::common::lock;
use crate::logging;
use crate::notify::Supervisor;
use crate::services::Services;
use crate::tasks::SlotPool;
use edge_runner_proto::SessionId;
use edge_runner_proto::stall::{Heartbeat, RuntimeStallMessage, StallEvent, TaskRole, TaskStallMessage, TaskWatch};

/// Time that the shutdown waits until the supervisor is notified of it.
const NOTIFY_WITHIN: Duration = Duration::from_millis(200);

/// The stall detector of one runner. Clones share it.
#[derive(Clone, Default)]
pub struct Watchdog {
    board: Arc<WatchState>,
    /// Commands to the thread; empty before it starts.
    orders: Arc<OnceLock<Sender<WatchCommand>>>,
}

/// State shared by the thread and the runtime.
#[derive(Default)]
struct WatchState {
    /// Wakes the heartbeat task.
    ask: Notify,
    answered: AtomicBool,
    tasks: Mutex<WatchedTasks>,
    runtime_stalls: AtomicU64,
    task_stalls: AtomicU64,
    runtime_stalled: AtomicBool,
}

#[derive(Default)]
struct WatchedTasks {
    by_number: HashMap<u64, WatchedTask>,
    last: u64,
}

struct WatchedTask {
    session: SessionId,
    task: TaskRole,
    moves: Arc<AtomicU32>,
    turns: TaskWatch,
}

/// A command to the thread.
enum WatchCommand {
    Ready,
    Stopping {
        within: Duration,
        done: oneshot::Sender<()>,
    },
}

/// Stalls so far, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// Stalls of the runtime.
    pub runtime: u64,
    /// Stalls of session tasks.
    pub tasks: u64,
    /// Whether the runtime is stalled now, as last seen from the thread.
    pub runtime_now: bool,
}

impl Watchdog {
    /// Starts the thread. Call it within the runtime to be watched. The supervisor is told the
    /// number of `live` sessions, if given.
    ///
    /// # Errors
    /// Returns the operating system's error when the thread cannot be started.
    pub fn start(&self, live: Option<SlotPool>, services: &Services) -> io::Result<()> {
        let (sender, orders) = mpsc::channel();
        let board = self.board.clone();
        let lease = services.lease("the thread that watches the runtime");
        thread::Builder::new().name("watch".into()).spawn(move || {
            let _lease = lease;
            watch(&board, &orders, live.as_ref());
        })?;
        let board = self.board.clone();
        services.spawn("the heartbeat of the runtime", async move {
            loop {
                board.ask.notified().await;
                board.answered.store(true, Relaxed);
            }
        });
        // On a second start the first thread keeps receiving the commands.
        let _ = self.orders.set(sender);
        Ok(())
    }

    /// Tells the supervisor that the runner is ready.
    pub fn ready(&self) {
        if let Some(orders) = self.orders.get() {
            // A send fails only if the thread has panicked, which has been logged.
            let _ = orders.send(WatchCommand::Ready);
        }
    }

    /// Tells the supervisor that shutdown has begun and how long it may take. The returned future
    /// waits until that has been sent, for `NOTIFY_WITHIN` at most.
    pub fn stopping(&self, within: Duration) -> impl Future<Output = ()> + use<> {
        let (done, notified) = oneshot::channel();
        let order = WatchCommand::Stopping { within, done };
        let sent = self.orders.get().is_some_and(|orders| orders.send(order).is_ok());
        async move {
            if sent {
                let _ = tokio::time::timeout(NOTIFY_WITHIN, notified).await;
            }
        }
    }

    /// Returns the stalls so far.
    pub fn stalls(&self) -> Stalls {
        let board = &self.board;
        Stalls {
            runtime: board.runtime_stalls.load(Relaxed),
            tasks: board.task_stalls.load(Relaxed),
            runtime_now: board.runtime_stalled.load(Relaxed),
        }
    }

    /// Wraps the future of a session task so that its polls are watched.
    pub fn watch_task<F: Future>(&self, session: SessionId, task: TaskRole, future: F) -> WatchedFuture<F> {
        let moves = Arc::<AtomicU32>::default();
        let watched = WatchedTask {
            session,
            task,
            moves: moves.clone(),
            turns: TaskWatch::new(Instant::now()),
        };
        let mut tasks = self.board.tasks();
        tasks.last += 1;
        let number = tasks.last;
        tasks.by_number.insert(number, watched);
        drop(tasks);
        WatchedFuture {
            future: Box::pin(future),
            _entry: TaskGuard {
                number,
                board: self.board.clone(),
            },
            moves,
        }
    }
}

impl WatchState {
    fn tasks(&self) -> MutexGuard<'_, WatchedTasks> {
        // The map is consistent after every statement.
        lock(&self.tasks)
    }
}

/// A future that records when it is polled.
pub struct WatchedFuture<F> {
    future: Pin<Box<F>>,
    /// Dropped after the future, whose drop is not a poll.
    _entry: TaskGuard,
    /// Odd during a poll. Only this future writes it.
    moves: Arc<AtomicU32>,
}

impl<F: Future> Future for WatchedFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let entered = self.moves.load(Relaxed).wrapping_add(1);
        self.moves.store(entered, Relaxed);
        let polled = self.future.as_mut().poll(cx);
        self.moves.store(entered.wrapping_add(1), Relaxed);
        polled
    }
}

/// The registration of a task. Dropping it removes the task.
struct TaskGuard {
    number: u64,
    board: Arc<WatchState>,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.board.tasks().by_number.remove(&self.number);
    }
}

/// Runs the thread: checks, reports and sleeps until the last sender of commands is dropped.
fn watch(board: &WatchState, orders: &Receiver<WatchCommand>, live: Option<&SlotPool>) {
    let mut supervisor = Supervisor::find();
    let mut heartbeat = Heartbeat::new(Instant::now());
    let mut next = Instant::now();
    let (mut ready, mut stopping) = (false, false);
    board.ask.notify_one();
    loop {
        match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(WatchCommand::Ready) => {
                ready = true;
                supervisor.ready();
            }
            Ok(WatchCommand::Stopping { within, done }) => {
                stopping = true;
                supervisor.stopping(within);
                // The receiver may have timed out.
                let _ = done.send(());
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                next = now + supervisor.interval();
                look_at_runtime(board, &mut heartbeat, now);
                look_at_tasks(board, now);
                if !heartbeat.is_stalled() {
                    supervisor.alive();
                }
                if let Some(live) = live.filter(|_| ready) {
                    supervisor.sessions(live.count(), stopping, now);
                }
            }
        }
    }
}

fn look_at_runtime(board: &WatchState, heartbeat: &mut Heartbeat, now: Instant) {
    let answered = board.answered.swap(false, Relaxed);
    let change = heartbeat.handle_look(answered, now);
    if answered {
        board.ask.notify_one();
    }
    match change {
        Some(change @ StallEvent::Stalled(_)) => {
            board.runtime_stalls.fetch_add(1, Relaxed);
            log::error!("{}", RuntimeStallMessage(change));
        }
        Some(change @ StallEvent::Recovered(_)) => log::info!("{}", RuntimeStallMessage(change)),
        None => {}
    }
    board.runtime_stalled.store(heartbeat.is_stalled(), Relaxed);
}

fn look_at_tasks(board: &WatchState, now: Instant) {
    let mut changes = Vec::new();
    for watched in board.tasks().by_number.values_mut() {
        let before = watched.turns.stalls();
        let change = watched.turns.handle_look(watched.moves.load(Relaxed), now);
        board
            .task_stalls
            .fetch_add(u64::from(watched.turns.stalls() - before), Relaxed);
        changes.extend(change.map(|change| (watched.session.clone(), watched.task, change)));
    }
    // Without the lock: a slow log must not delay a session.
    for (session, task, change) in changes {
        logging::in_session_sync(session, || match change {
            StallEvent::Stalled(_) => log::warn!("{}", TaskStallMessage(task, change)),
            StallEvent::Recovered(_) => log::info!("{}", TaskStallMessage(task, change)),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use super::*;

    fn moves(watch: &Watchdog) -> Vec<u32> {
        let tasks = watch.board.tasks();
        tasks
            .by_number
            .values()
            .map(|watched| watched.moves.load(Relaxed))
            .collect()
    }

    /// A task counts as polled only during polls, and leaves the map when it ends or is dropped.
    #[test]
    fn a_task_records_its_polls() {
        let watch = Watchdog::default();
        let id = SessionId::from("a session");
        let seen = watch.clone();
        let mut left = 2;
        let mut task = watch.watch_task(
            id.clone(),
            TaskRole::Media,
            poll_fn(move |_| {
                assert!(moves(&seen).iter().any(|moves| !moves.is_multiple_of(2)));
                left -= 1;
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            }),
        );
        let idle = watch.watch_task(id, TaskRole::Bot, std::future::pending::<()>());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut task).poll(&mut cx).is_pending());
        assert!(moves(&watch).iter().all(|moves| moves.is_multiple_of(2)));
        assert!(Pin::new(&mut task).poll(&mut cx).is_ready());
        drop(task);
        assert_eq!(moves(&watch), [0]);
        drop(idle);
        assert!(moves(&watch).is_empty());
    }

    /// A task stuck in a poll is counted once; the heartbeat is sent again only after an answer.
    #[test]
    fn stalls_are_counted() {
        let watch = Watchdog::default();
        let board = &watch.board;
        let task = watch.watch_task(
            SessionId::from("a session"),
            TaskRole::Bot,
            std::future::pending::<()>(),
        );
        task.moves.store(1, Relaxed);
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(start);
        for half_seconds in 0..20 {
            let now = start + Duration::from_millis(500) * half_seconds;
            look_at_runtime(board, &mut heartbeat, now);
            look_at_tasks(board, now);
        }
        let stalled = Stalls {
            runtime: 1,
            tasks: 1,
            runtime_now: true,
        };
        assert_eq!(watch.stalls(), stalled);
        board.answered.store(true, Relaxed);
        task.moves.store(2, Relaxed);
        look_at_runtime(board, &mut heartbeat, start + Duration::from_secs(10));
        assert_eq!(
            watch.stalls(),
            Stalls {
                runtime_now: false,
                ..stalled
            }
        );
        assert!(!board.answered.load(Relaxed));
    }
}
