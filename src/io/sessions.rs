//! What sessions of all transports share: a slot under the cap, a bot in its own task, and an end.
//!
//! In: id, body and kind of a session. Out: a [`BotTask`], and the result of the bot. A panic of a
//! bot ends its own session only; a bot that does not end in time is aborted.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use edge_runner_http::common::{lock, random};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle, JoinSet};

use crate::bot::media::MediaError;
use crate::bot::{Bot, BotError, Kind, RunnerArguments, SessionId, Shutdown, ShutdownTrigger};
use crate::config::{Config, Transport};
use crate::io::admission::Admission;
use crate::io::bots::{Bots, SessionBot};
use crate::io::observer::{MissedCall, ObserveSessions, ObservedSession, SessionObserver, SoundNotice};
use crate::io::process;
use crate::io::tasks::{self, SlotPool};
use crate::io::trace;
use crate::io::watch::Watchdog;
use crate::limits::{BOT_GRACE, BOT_GRACE_AT_SHUTDOWN, EVAL_LONG_MAX};
use crate::logging::{self, LogClient};
use crate::proto::calls::CallOutcome;
use crate::proto::event::LeaveReason;
use crate::proto::http::cluster::Replica;
use crate::proto::http::traceparent::Traceparent;
use crate::proto::metrics::RunnerMetrics;
use crate::proto::metrics::bots::BotSessionMetrics;
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::live_sessions::{LiveSessions, SessionProgress};
use crate::proto::server::source::SourceKey;
use crate::proto::stall::TaskRole;

/// Hang-up requests in progress beside the live sessions; further ones keep the permit of their
/// session.
const HANG_UPS_MAX: usize = 32;

/// The start of a new session.
pub struct SessionStart {
    pub session_id: SessionId,
    pub body: Value,
    pub bot: SessionBot,
    /// The client to which the session's log lines are attributed.
    pub log_client: LogClient,
    /// Dropped when the session has ended.
    pub lease: Option<Box<dyn Send>>,
}

/// A call that came in, before it is a session.
pub struct CallAttempt<'a> {
    /// The session that it becomes; the same for each request of its provider, where those name
    /// the call.
    pub id: SessionId,
    /// `None` while it is not known.
    pub transport: Option<Transport>,
    /// Where its request came from.
    pub source: SourceKey,
    /// Its numbers and direction, as for a bot.
    pub call_data: &'a Value,
    pub trace: Option<Traceparent>,
}

/// The sessions of a runner. Clones share them.
#[derive(Clone)]
pub struct Sessions(Arc<SessionsInner>);

struct SessionsInner {
    config: Arc<Config>,
    /// `None` without a cluster key.
    replica: Option<Replica>,
    bots: Bots,
    live: SlotPool,
    admission: Admission,
    hang_ups: SlotPool,
    long_evaluations: SlotPool,
    metrics: Arc<RunnerMetrics>,
    /// The sessions with a bot, each with the signal that ends it.
    table: Mutex<LiveSessions<Arc<Notify>>>,
    observer: OnceLock<Arc<dyn ObserveSessions>>,
    shutdown: Shutdown,
    watchdog: Watchdog,
}

impl Sessions {
    /// Returns the sessions of a runner with one bot.
    pub fn new(config: Arc<Config>, bot: Bot, live: SlotPool, shutdown: Shutdown) -> Self {
        let bots = Bots::only(config.clone(), bot, None);
        Sessions::of_bots(config, bots, live, shutdown)
    }

    pub fn of_bots(config: Arc<Config>, bots: Bots, live: SlotPool, shutdown: Shutdown) -> Self {
        let cluster = config.cluster.as_ref();
        Sessions(Arc::new(SessionsInner {
            replica: cluster.map(|cluster| Replica::new(&cluster.key, cluster.replica_name.as_deref(), random())),
            config,
            bots,
            admission: Admission::new(live.clone()),
            live,
            hang_ups: SlotPool::new(HANG_UPS_MAX),
            long_evaluations: SlotPool::new(EVAL_LONG_MAX),
            metrics: Arc::default(),
            table: Mutex::default(),
            observer: OnceLock::new(),
            shutdown,
            watchdog: Watchdog::default(),
        }))
    }

    pub fn config(&self) -> &Arc<Config> {
        &self.0.config
    }

    /// Returns the bots of this runner.
    pub fn bots(&self) -> &Bots {
        &self.0.bots
    }

    /// Returns the replica that this runner is; `None` without a cluster key.
    pub fn replica(&self) -> Option<&Replica> {
        self.0.replica.as_ref()
    }

    pub fn shutdown(&self) -> &Shutdown {
        &self.0.shutdown
    }

    /// Rejects new sessions from here on; live ones continue.
    pub fn close(&self) {
        self.0.admission.close();
    }

    /// Tells whether new sessions are rejected because the runner drains or stops.
    pub fn is_closed(&self) -> bool {
        self.0.admission.is_closed() || self.0.shutdown.is_set()
    }

    /// Returns the watchdog of the session tasks.
    pub fn watchdog(&self) -> &Watchdog {
        &self.0.watchdog
    }

    /// Returns the number of live sessions.
    pub fn count(&self) -> usize {
        self.0.live.count()
    }

    /// Returns whether every session is taken.
    pub fn is_full(&self) -> bool {
        self.count() >= self.0.live.max()
    }

    /// Waits for the next session that ends, counted from this call and not from the first poll.
    pub fn next_end(&self) -> impl Future<Output = ()> {
        self.0.live.released()
    }

    /// Returns the admission control.
    pub fn admission(&self) -> &Admission {
        &self.0.admission
    }

    /// Waits until all sessions and hang-ups have ended, and the sockets that have yet to name
    /// their call.
    pub async fn wait_empty(&self) {
        self.0.admission.wait_empty().await;
        self.0.hang_ups.wait_empty().await;
    }

    /// Returns the slots of hang-ups that outlive their sessions.
    pub fn hang_ups(&self) -> &SlotPool {
        &self.0.hang_ups
    }

    /// Returns the slots of sockets that may take the long messages of an evaluation.
    pub fn long_evaluations(&self) -> &SlotPool {
        &self.0.long_evaluations
    }

    /// Returns the metrics of this runner.
    pub fn metrics(&self) -> &Arc<RunnerMetrics> {
        &self.0.metrics
    }

    /// Lets a module observe all sessions from here on. Only the first one does.
    pub fn observe(&self, observer: Arc<dyn ObserveSessions>) {
        let _ = self.0.observer.set(observer);
    }

    /// Reports a call that became no session to the observer.
    pub fn note_missed(&self, call: MissedCall<'_>) {
        if let Some(observer) = self.0.observer.get() {
            observer.missed(call);
        }
    }

    /// Reports a call that an admission turned away to the observer; other errors end no call.
    /// `bot` is its name, as far as it is known. For calls that no HTTP request waits for: the
    /// router reports the others.
    pub fn note_refused(&self, call: CallAttempt<'_>, bot: Option<&str>, refusal: &SessionRefusal) {
        if let Some(outcome) = CallOutcome::of_refusal(refusal) {
            self.note_turned_away(call, bot, outcome, None);
        }
    }

    /// Reports a call that was turned away to the observer. `bot` is its name, as far as it is
    /// known, and `provider_error` why its provider did not connect it.
    pub fn note_turned_away(
        &self,
        call: CallAttempt<'_>,
        bot: Option<&str>,
        outcome: CallOutcome,
        provider_error: Option<&str>,
    ) {
        self.note_missed(MissedCall {
            id: call.id,
            transport: call.transport,
            bot: bot.filter(|name| !name.is_empty()).map(Arc::from),
            call_data: call.call_data,
            source: Some(call.source),
            trace: call.trace,
            outcome,
            provider_error,
            lasted: Duration::ZERO,
        });
    }

    /// Lists a session until the entry is dropped. `call_data` is what the transport tells about
    /// the call, `source` where the request of a caller who connects here came from, and `body`
    /// that of its start. At the limit of its bot, it is ended.
    pub fn list(
        &self,
        chosen: &SessionBot,
        id: SessionId,
        transport: Option<Transport>,
        call_data: Option<&Value>,
        source: Option<SourceKey>,
        body: &Value,
    ) -> LiveEntry {
        let ended = Arc::new(Notify::new());
        let row = chosen.row();
        let bot = row.name().cloned();
        lock(&self.0.table).begin(id.clone(), transport, bot.clone(), ended.clone(), tasks::now());
        let over = Arc::new(Notify::new());
        let limit = row.session_max().map(|session_max| {
            let mut limit = JoinSet::new();
            limit.spawn(end_after(id.clone(), bot.clone(), session_max, over.clone()));
            limit
        });
        let observer = self.0.observer.get().map(|observer| {
            observer.clone().begin(ObservedSession {
                id: id.clone(),
                transport,
                bot: bot.clone(),
                call_data,
                source,
                body,
            })
        });
        LiveEntry {
            sessions: self.clone(),
            id,
            ended,
            observer,
            of_bot: row.metrics().begin(),
            over,
            _limit: limit,
        }
    }

    /// Returns the JSON of the live sessions.
    pub fn describe(&self) -> String {
        lock(&self.0.table).reply(tasks::now())
    }

    /// Returns whether a session with this id is live.
    pub fn is_live(&self, id: &str) -> bool {
        lock(&self.0.table).handle(id).is_some()
    }

    /// Asks a session to end; returns whether it lives.
    pub fn end(&self, id: &str) -> bool {
        let ended = lock(&self.0.table).handle(id);
        ended.map(|ended| ended.notify_one()).is_some()
    }

    /// Starts the bot of a session, with what becomes of its sound.
    pub fn begin(
        &self,
        chosen: &SessionBot,
        session_id: SessionId,
        body: Value,
        kind: Kind,
        notice: SoundNotice,
    ) -> BotTask {
        let trace = Traceparent::of_body(&body);
        let row = chosen.row();
        let mut args = RunnerArguments::new(session_id.clone(), body, row.config.clone(), kind);
        args.shutdown = self.0.shutdown.clone();
        args.handle_sigint = self.0.config.direct;
        args.is_recorded = notice.is_recorded;
        args.allows_listening = notice.allows_listening;
        args.metrics = self.0.metrics.clone();
        let (over, session_over) = Shutdown::channel();
        args.session_over = session_over;
        let bot = row.run.clone();
        // The bot function is called inside the task, because it may panic before its first await.
        let (sessions, id) = (self.clone(), session_id.clone());
        let name = row.name().cloned();
        let task = logging::in_session(session_id.clone(), async move {
            name.iter().for_each(logging::set_bot);
            trace::of_session(trace, async { bot(args).await })
                .await
                .inspect_err(|error| {
                    if let Some(line) = process::last_line_of(error) {
                        lock(&sessions.0.table).note_failure(id, line);
                    }
                })
        });
        BotTask {
            task: tokio::spawn(self.0.watchdog.watch_task(session_id, TaskRole::Bot, task)),
            over,
        }
    }
}

/// The entry of a session in the list of live sessions.
pub struct LiveEntry {
    sessions: Sessions,
    id: SessionId,
    ended: Arc<Notify>,
    observer: Option<Box<dyn SessionObserver>>,
    /// Its part of the figures of its bot.
    of_bot: BotSessionMetrics,
    /// Notified at the limit of its bot.
    over: Arc<Notify>,
    _limit: Option<JoinSet<()>>,
}

/// Ends a session that has lasted as long as its bot may talk.
async fn end_after(id: SessionId, bot: Option<Arc<str>>, session_max: Duration, over: Arc<Notify>) {
    tokio::time::sleep(session_max).await;
    logging::in_session_sync(id, || {
        bot.iter().for_each(logging::set_bot);
        log::info!(
            "the session ends: it has lasted {} s, the `max-seconds` of its bot",
            session_max.as_secs()
        );
    });
    over.notify_one();
}

impl LiveEntry {
    /// Returns what observes the session.
    pub fn observer(&self) -> Option<&dyn SessionObserver> {
        self.observer.as_deref()
    }

    /// Returns what becomes of the sound of the session.
    pub fn sound_notice(&self) -> SoundNotice {
        self.observer().map(SessionObserver::sound_notice).unwrap_or_default()
    }

    /// Replaces what the list tells of the session.
    pub fn update(&self, progress: SessionProgress) {
        lock(&self.sessions.0.table).update(&self.id, progress);
    }

    /// Records why the session has ended.
    pub fn note_end(&mut self, reason: LeaveReason) {
        self.of_bot.note_end(reason);
    }

    /// Waits until the operator, or the limit of the bot, ends the session. Returns which. Cancel
    /// safe.
    pub async fn ended_early(&self) -> LeaveReason {
        tokio::select! {
            () = self.ended.notified() => LeaveReason::Operator,
            () = self.over.notified() => LeaveReason::Limit,
        }
    }
}

impl Drop for LiveEntry {
    fn drop(&mut self) {
        lock(&self.sessions.0.table).end(&self.id);
    }
}

/// The task of one bot.
pub struct BotTask {
    task: JoinHandle<Result<(), BotError>>,
    over: ShutdownTrigger,
}

impl BotTask {
    /// Waits until the bot has ended. Must not be called again afterwards.
    pub async fn ended(&mut self) -> BotOutcome {
        BotOutcome::of((&mut self.task).await)
    }

    /// Tells a bot that its session is over, waits for it, and aborts it after its grace period.
    pub async fn finish(mut self, shutdown: &Shutdown) -> BotOutcome {
        self.over.set();
        let mut stopping = shutdown.clone();
        let patience = async {
            tokio::select! {
                () = tokio::time::sleep(BOT_GRACE) => {}
                () = async {
                    stopping.wait().await;
                    tokio::time::sleep(BOT_GRACE_AT_SHUTDOWN).await;
                } => {}
            }
        };
        tokio::select! {
            ended = self.ended() => ended,
            () = patience => {
                self.task.abort();
                BotOutcome::Aborted
            }
        }
    }
}

impl Drop for BotTask {
    /// Aborts the bot, for instance after a panic of the session's task.
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The result of a bot.
pub enum BotOutcome {
    Returned,
    Failed(String),
    Aborted,
}

impl BotOutcome {
    fn of(result: Result<Result<(), BotError>, JoinError>) -> Self {
        match result {
            Ok(Ok(())) => BotOutcome::Returned,
            // A bot that was speaking when the caller left has not failed.
            Ok(Err(error)) if error.is::<MediaError>() => BotOutcome::Returned,
            Ok(Err(error)) => BotOutcome::Failed(error.to_string()),
            Err(error) if error.is_panic() => BotOutcome::Failed(panic_words(error)),
            Err(_) => BotOutcome::Aborted,
        }
    }

    pub fn reason(&self) -> LeaveReason {
        match self {
            BotOutcome::Returned => LeaveReason::BotEnded,
            BotOutcome::Failed(_) | BotOutcome::Aborted => LeaveReason::BotFailed,
        }
    }

    /// Returns why the bot failed.
    pub fn error(&self) -> Option<&str> {
        match self {
            BotOutcome::Failed(why) => Some(why),
            BotOutcome::Returned | BotOutcome::Aborted => None,
        }
    }

    /// Writes the last log line of a session.
    pub fn log(&self, reason: LeaveReason, counts: &str) {
        match self {
            BotOutcome::Returned => log::info!("session ended: {reason}; {counts}"),
            BotOutcome::Failed(why) if reason == LeaveReason::BotFailed => {
                log::warn!("session ended: the bot failed: {why}; {counts}");
            }
            BotOutcome::Failed(why) => log::warn!("session ended: {reason}; {counts}; the bot failed: {why}"),
            BotOutcome::Aborted => {
                log::warn!("session ended: {reason}; {counts}; the bot did not end in time and was aborted");
            }
        }
    }
}

fn panic_words(error: JoinError) -> String {
    let payload = error.into_panic();
    let words = payload
        .downcast_ref::<&str>()
        .map(|words| (*words).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    words.map_or_else(|| "it panicked".to_owned(), |words| format!("it panicked: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bot;

    /// A panic of a session's task ends its bot and releases its slot.
    #[tokio::test]
    async fn a_panic_of_a_session_s_task_ends_its_bot() {
        struct Gone(Option<tokio::sync::oneshot::Sender<()>>);
        impl Drop for Gone {
            fn drop(&mut self) {
                let _ = self.0.take().map(|gone| gone.send(()));
            }
        }
        let (gone, bot_is_gone) = tokio::sync::oneshot::channel();
        let gone = std::sync::Mutex::new(Some(gone));
        let stays = bot::erase(move |_| {
            let gone = Gone(gone.lock().expect("no holder panics").take());
            async move {
                let _gone = gone;
                std::future::pending().await
            }
        });
        let (_stop, shutdown) = Shutdown::channel();
        let live = SlotPool::new(1);
        let sessions = Sessions::new(Arc::default(), stays, live.clone(), shutdown);
        let slot = live.try_acquire().expect("a free slot");
        let bot = sessions.bots().default();
        let id = SessionId::from("a session");
        let bot = sessions.begin(&bot, id, Value::Null, Kind::Base, SoundNotice::default());
        let task = tokio::spawn(async move {
            let _life = (bot, slot);
            tokio::task::yield_now().await;
            panic!("a bug");
        });
        assert!(task.await.is_err_and(|error| error.is_panic()));
        bot_is_gone.await.expect("the bot was dropped");
        assert_eq!(sessions.count(), 0);
    }

    /// At the cap of hang-ups, the next one keeps the slot of its session.
    #[test]
    fn hang_ups_are_capped() {
        let (_stop, shutdown) = Shutdown::channel();
        let idle_bot = bot::erase(|_| async { Ok(()) });
        let sessions = Sessions::new(Arc::default(), idle_bot, SlotPool::new(1), shutdown);
        let aside: Vec<_> = (0..HANG_UPS_MAX)
            .map_while(|_| sessions.hang_ups().try_acquire())
            .collect();
        assert_eq!(aside.len(), HANG_UPS_MAX);
        assert!(sessions.hang_ups().try_acquire().is_none());
        assert_eq!(sessions.count(), 0);
    }
}
