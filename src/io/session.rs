//! The event loop of a session, shared by all transports.
//!
//! It waits for the next event: input of the [`SessionIo`], output of the bot, the deadline, the
//! end of the bot, an eviction, or shutdown. It passes the event to the [`Session`] and performs
//! the outputs: commands go to the [`SessionIo`], audio and events to the bot. It ends when the
//! session is gone and its bot has ended.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep_until;

use crate::bot::media::{self, AudioMix, MediaDrops, MediaSlot, OutboundText, TransportSide};
use crate::bot::{self, SessionId};
use crate::config::Transport;
use crate::io::admission::SessionPermit;
use crate::io::bots::SessionBot;
use crate::io::observer::SessionObserver;
use crate::io::sessions::{BotOutcome, BotTask, LiveEntry, Sessions};
use crate::io::tasks;
use crate::io::trace;
use crate::logging::{self, LogClient};
use crate::proto::counts::{Count, Counts, NetworkTimes};
use crate::proto::event::{LeaveReason, SessionEvent};
use crate::proto::http::traceparent::Traceparent;
use crate::proto::metrics::SessionMetrics;
use crate::proto::server::live_sessions::SessionProgress;
use crate::proto::session::{CallerFrame, Deadline, Session, SessionOutput};
use crate::proto::silent_bot::SilentBotWatch;
use crate::proto::stall::TaskRole;

/// How much later than the timer of a session its standby timer is: one frame, so that it is where
/// the timer moves to next.
///
/// tokio interrupts its own wait for events, by a system call and another wait, when a timer is set
/// before all others. No task waits for the standby timer; it makes the deadline of the next frame
/// known while that of this one passes.
const STANDBY_AFTER: Duration = Duration::from_millis(20);

/// The I/O of one session: receives input and performs commands.
pub trait SessionIo: Send + 'static {
    type Session: Session + Send;
    /// An input: a datagram, a message, a request.
    type Input: Send;

    /// Waits for the next input. Cancel safe.
    fn recv(&mut self) -> impl Future<Output = Self::Input> + Send;

    /// Passes an input to the session.
    fn deliver(&mut self, input: Self::Input, session: &mut Self::Session, task: &mut SessionTask);

    /// Performs a command. A command that cannot complete at once wakes the loop through `cx`.
    fn perform(
        &mut self,
        command: <Self::Session as Session>::Command,
        session: &mut Self::Session,
        task: &mut SessionTask,
        cx: &mut Context<'_>,
    );

    /// Closes the connection at the end of the session.
    fn close(self, session: &Self::Session, task: &SessionTask) -> CloseOutcome;
}

/// The work that remains after the session has closed.
#[derive(Default)]
pub struct CloseOutcome {
    /// A hang-up request, which runs while the bot ends.
    pub hang_up: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Appended to the last log line.
    pub log_suffix: String,
}

/// What starts the bot of a session once more.
pub struct BotRestart {
    pub session_id: SessionId,
    pub body: Value,
    pub frames_max: usize,
    pub make_arguments: Box<dyn FnOnce(MediaSlot) -> bot::Kind + Send>,
}

/// The bot, the counters and the permit of a session.
pub struct SessionTask {
    pub sessions: Sessions,
    pub counts: Counts,
    pub began: Instant,
    /// Why the session has ended.
    reason: Option<LeaveReason>,
    transport_side: Option<TransportSide>,
    /// Which bot it is, once it has started.
    chosen: Option<SessionBot>,
    bot: Option<BotTask>,
    metrics: Option<SessionMetrics>,
    listed: Option<LiveEntry>,
    /// The trace that the session belongs to.
    trace: Option<Traceparent>,
    /// What was last known of the network.
    network: NetworkTimes,
    /// Starts the bot once more, where a session may need that.
    restart: Option<BotRestart>,
    /// What was dropped before the bot was started once more.
    dropped_before: MediaDrops,
    /// Reused buffer for the bot's speech.
    speech: Vec<i16>,
    /// Samples per second of it.
    speech_rate_hz: u32,
    silent_bot: SilentBotWatch,
    cleanup_guard: Option<Box<dyn Send>>,
    /// Released last, because fields are dropped in this order: shutdown waits for the last permit.
    pub permit: SessionPermit,
}

impl SessionTask {
    /// Creates a task whose bot has not started. `cleanup_guard` is dropped when the session has
    /// ended.
    pub fn new(sessions: Sessions, permit: SessionPermit, cleanup_guard: Option<Box<dyn Send>>) -> Self {
        SessionTask {
            sessions,
            counts: Counts::default(),
            began: tasks::now(),
            reason: None,
            transport_side: None,
            chosen: None,
            bot: None,
            metrics: None,
            listed: None,
            trace: None,
            network: NetworkTimes::default(),
            restart: None,
            dropped_before: MediaDrops::default(),
            speech: Vec::new(),
            speech_rate_hz: 0,
            silent_bot: SilentBotWatch::default(),
            cleanup_guard,
            permit,
        }
    }

    /// Starts the bot; `make_arguments` builds its arguments. At most `frames_max` audio frames are
    /// queued for it.
    pub fn start_bot(
        &mut self,
        chosen: SessionBot,
        session_id: SessionId,
        body: Value,
        transport: Transport,
        frames_max: usize,
        make_arguments: impl FnOnce(MediaSlot) -> bot::Kind,
    ) {
        chosen.mark_log();
        let (transport_side, slot) = media::pair(frames_max);
        let runner_metrics = self.sessions.metrics().clone();
        self.metrics = Some(SessionMetrics::begin(runner_metrics, transport, tasks::now()));
        let kind = make_arguments(slot);
        transport_side.set_messages_max(kind.messages_in_bytes_max());
        self.trace = Traceparent::of_body(&body);
        let listed = self.sessions.list(
            &chosen,
            session_id.clone(),
            Some(transport),
            kind.call_data(),
            Some(self.permit.requester().source),
            &body,
        );
        let bot = self
            .sessions
            .begin(&chosen, session_id, body, kind, listed.sound_notice());
        self.bot = Some(bot);
        self.chosen = Some(chosen);
        self.listed = Some(listed);
        self.transport_side = Some(transport_side);
    }

    /// Sends media of the runner itself, in place of those of a bot, and returns their other side.
    pub fn send_media(&mut self, frames_max: usize) -> MediaSlot {
        let (transport_side, slot) = media::pair(frames_max);
        self.transport_side = Some(transport_side);
        slot
    }

    /// Lets the bot be started once more, if it fails and the session asks for that.
    pub fn allow_restart(&mut self, restart: BotRestart) {
        self.restart = Some(restart);
    }

    /// Starts the bot once more. Tells whether it could.
    fn restart_bot(&mut self) -> bool {
        let (Some(restart), Some(chosen)) = (self.restart.take(), &self.chosen) else {
            return false;
        };
        let (transport_side, slot) = media::pair(restart.frames_max);
        if let Some(before) = self.transport_side.replace(transport_side) {
            self.dropped_before = before.dropped();
        }
        let kind = (restart.make_arguments)(slot);
        let notice = self.listed.as_ref().map(LiveEntry::sound_notice).unwrap_or_default();
        let bot = self
            .sessions
            .begin(chosen, restart.session_id, restart.body, kind, notice);
        self.bot = Some(bot);
        self.silent_bot.handle_restart();
        true
    }

    /// Returns whether the bot has started.
    pub fn has_bot(&self) -> bool {
        self.transport_side.is_some()
    }

    /// Updates the counters that the session and the bot's link keep.
    fn count(&mut self, session: &impl Session) {
        session.update_counts(&mut self.counts);
        self.network.update(session.network());
        let dropped = self
            .transport_side
            .as_ref()
            .map(TransportSide::dropped)
            .unwrap_or_default();
        let before = self.dropped_before;
        self.counts
            .set(Count::FramesDropped, before.frames_in + dropped.frames_in);
        self.counts
            .add(Count::MessagesDropped, before.messages_out + dropped.messages_out);
    }

    /// Adds the counters to the metrics, if that is due.
    fn flush(&mut self, session: &impl Session, now: Instant) {
        if self.metrics.as_ref().is_none_or(|metrics| now < metrics.next_flush()) {
            return;
        }
        self.count(session);
        if let Some(observer) = self.observer() {
            observer.network(&self.counts, session.network());
        }
        if let (Some(metrics), Some(transport_side)) = (&mut self.metrics, &self.transport_side) {
            let waiting = transport_side.waiting();
            metrics.flush(&self.counts, waiting, now);
            if let Some(listed) = &self.listed {
                listed.update(SessionProgress {
                    has_caller: session.has_caller(),
                    counts: self.counts,
                    waiting,
                });
            }
        }
    }

    /// Says once why the caller hears nothing of the bot.
    fn watch_bot(&mut self, session: &impl Session, now: Instant) {
        if self.silent_bot.is_done() || self.bot.is_none() {
            return;
        }
        if session.has_caller() {
            self.silent_bot.handle_caller(now);
        }
        if let Some(readiness) = self.transport_side.as_ref().and_then(TransportSide::readiness) {
            self.silent_bot.handle_readiness(readiness, now);
        }
        if let Some(warning) = self.silent_bot.poll_warning(now) {
            log::warn!("{warning}");
        }
    }

    fn push_audio(&mut self, frame: &CallerFrame<'_>) {
        let Some(transport_side) = &self.transport_side else {
            return;
        };
        if !self.silent_bot.is_done() {
            self.silent_bot
                .handle_caller_sound(frame.pcm, frame.rate_hz, tasks::now());
        }
        self.counts.add(Count::FramesIn, 1);
        if let Some(observer) = self.observer() {
            observer.caller_sound(frame);
        }
        match frame.identity {
            Some(identity) => transport_side.push_participant_audio(frame.pcm, frame.rate_hz, identity),
            None => transport_side.push_audio(frame.pcm, frame.rate_hz),
        }
    }

    /// Returns what observes the session.
    fn observer(&self) -> Option<&dyn SessionObserver> {
        self.listed.as_ref().and_then(LiveEntry::observer)
    }

    fn push_event(&mut self, event: SessionEvent, session: &impl Session) {
        if let Some(observer) = self.observer() {
            observer.event(&event);
        }
        match &event {
            SessionEvent::Joined => {
                if let (Some(metrics), Some(codec)) = (&self.metrics, session.codec_name()) {
                    metrics.connected(codec, tasks::now() - self.began);
                }
            }
            SessionEvent::Message(_) => self.counts.add(Count::MessagesIn, 1),
            SessionEvent::ParticipantJoined(who) => {
                if let (Some(transport_side), Some(call_data)) = (&self.transport_side, who.call_data()) {
                    transport_side.set_call_data(call_data);
                }
            }
            SessionEvent::Left(reason) => self.reason = Some(*reason),
            _ => {}
        }
        if let Some(transport_side) = &self.transport_side {
            transport_side.push(event.into());
        }
    }
}

/// Spawns the task of a session, with its id on every log line.
pub fn spawn(sessions: &Sessions, id: SessionId, client: LogClient, task: impl Future<Output = ()> + Send + 'static) {
    let task = logging::in_session(id.clone(), logging::for_client(client, task));
    tasks::spawn(sessions.watchdog().watch_task(id, TaskRole::Media, task));
}

/// Runs a session to its end.
pub async fn run<C: SessionIo>(mut session: Box<C::Session>, mut io: C, mut task: SessionTask) {
    if let Some(chosen) = &task.chosen {
        chosen.mark_log();
        log::info!("session started: {}", session.name());
    }
    let outcome = run_loop(&mut *session, &mut io, &mut task).await;
    // A session that is ending must not be evicted; its bot still has its grace period.
    task.permit.mark_connected();
    task.count(&*session);
    let CloseOutcome { hang_up, log_suffix } = io.close(&session, &task);
    let SessionTask {
        sessions,
        counts,
        began,
        reason,
        transport_side,
        chosen,
        bot,
        metrics,
        mut listed,
        trace,
        network,
        cleanup_guard,
        permit,
        ..
    } = task;
    // Dropping the link tells the bot that the session has ended.
    drop(transport_side);
    // A slow hang-up request runs without holding its session slot, up to a limit on such requests.
    let hang_up_slot = hang_up.as_ref().and_then(|_| sessions.hang_ups().try_acquire());
    let ended = async {
        let outcome = match (outcome, bot) {
            (None, Some(bot)) => Some(bot.finish(sessions.shutdown()).await),
            (outcome, _) => outcome,
        };
        let reason = reason.unwrap_or(LeaveReason::Failed);
        if let Some(listed) = &mut listed {
            listed.note_end(reason);
        }
        let mut answers = String::new();
        if let Some(observer) = listed.as_ref().and_then(LiveEntry::observer) {
            answers = observer.answers().map(|words| format!(", {words}")).unwrap_or_default();
            observer.end(reason, outcome.as_ref().and_then(BotOutcome::error), &counts, network);
        }
        if let Some(outcome) = outcome {
            session.log_diagnosis(reason);
            let seconds = (tasks::now() - began).as_secs_f64();
            let (frames, dropped) = (counts.get(Count::FramesIn), counts.get(Count::FramesDropped));
            let summary = session.summary(&counts);
            let trace = trace::log_suffix(trace.as_ref());
            outcome.log(
                reason,
                &format!(
                    "{seconds:.1} s{answers}, {summary}, {frames} frames to the bot, {dropped} dropped{log_suffix}{trace}"
                ),
            );
        }
        if let Some(metrics) = metrics {
            metrics.end(&counts, reason);
        }
        drop((session, listed, chosen, cleanup_guard));
        hang_up_slot.is_none().then_some(permit)
    };
    let hang_up = async {
        if let Some(hang_up) = hang_up {
            hang_up.await;
        }
    };
    // The permit is dropped last, because shutdown waits for it.
    let ((), _permit) = tokio::join!(hang_up, ended);
}

/// Runs until the session is gone; returns the result of the bot if it ended first.
async fn run_loop<C: SessionIo>(session: &mut C::Session, io: &mut C, task: &mut SessionTask) -> Option<BotOutcome> {
    let mut timer = pin!(sleep_until(tasks::now().into()));
    let mut standby = pin!(sleep_until(tasks::now().into()));
    let mut shutdown = task.sessions.shutdown().clone();
    let mut stop = pin!(async move { shutdown.wait().await });
    let mut outcome = None;
    let mut stopping = false;
    let mut ending = false;
    while let Some(deadline) = poll_fn(|cx| Poll::Ready(drain(session, io, task, cx))).await {
        // Without this, a session without traffic would not flush its counters.
        let due = task.metrics.as_ref().map(SessionMetrics::next_flush);
        let next = deadline
            .earlier_of(due, "metrics")
            .earlier_of(task.silent_bot.poll_timeout(), "silent bot");
        let until = tokio::time::Instant::from_std(next.at);
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        if standby.deadline() <= until {
            standby.as_mut().reset(until + STANDBY_AFTER);
        }
        let SessionTask {
            transport_side,
            bot,
            permit,
            listed,
            ..
        } = task;
        // Unbiased: a flood from the peer or the bot must not starve the others.
        tokio::select! {
            input = io.recv() => io.deliver(input, session, task),
            () = notified(transport_side.as_ref()) => drain_bot(session, task),
            () = &mut timer => handle_timeout(session, task, deadline),
            ended = ended(bot.as_mut()), if outcome.is_none() => {
                drain_bot(session, task);
                if let BotOutcome::Failed(why) = &ended
                    && !task.sessions.shutdown().is_set()
                    && task.restart.is_some()
                    && session.handle_bot_failure(tasks::now())
                    && task.restart_bot()
                {
                    log::warn!("the bot failed: {why}; it is started once more");
                    continue;
                }
                // The bot may see the shutdown before this task does, and end because of it.
                let reason = if task.sessions.shutdown().is_set() {
                    LeaveReason::Shutdown
                } else {
                    ended.reason()
                };
                session.handle_bot_end(reason, tasks::now());
                outcome = Some(ended);
            }
            () = permit.evicted() => session.handle_eviction(tasks::now()),
            reason = ended_early(listed.as_ref()), if !ending => {
                ending = true;
                session.handle_end(reason, tasks::now());
            }
            () = &mut stop, if !stopping => {
                stopping = true;
                session.handle_end(LeaveReason::Shutdown, tasks::now());
            }
        }
    }
    outcome
}

async fn notified(transport_side: Option<&TransportSide>) {
    match transport_side {
        Some(transport_side) => transport_side.notified().await,
        None => std::future::pending().await,
    }
}

async fn ended_early(listed: Option<&LiveEntry>) -> LeaveReason {
    match listed {
        Some(listed) => listed.ended_early().await,
        None => std::future::pending().await,
    }
}

async fn ended(bot: Option<&mut BotTask>) -> BotOutcome {
    match bot {
        Some(bot) => bot.ended().await,
        None => std::future::pending().await,
    }
}

fn handle_timeout(session: &mut impl Session, task: &mut SessionTask, deadline: Deadline) {
    let now = tasks::now();
    if let Some(metrics) = &mut task.metrics
        && now >= deadline.at
    {
        log::trace!("due: {}", deadline.why);
        metrics.record_lateness(now.saturating_duration_since(deadline.at));
    }
    session.handle_timeout(now);
    feed_speech(session, task);
}

/// Performs the session's outputs, up to its next deadline; returns `None` when the session is
/// gone.
fn drain<C: SessionIo>(
    session: &mut C::Session,
    io: &mut C,
    task: &mut SessionTask,
    cx: &mut Context<'_>,
) -> Option<Deadline> {
    let now = tasks::now();
    task.flush(session, now);
    task.watch_bot(session, now);
    loop {
        match session.poll_output(now) {
            SessionOutput::Timeout(deadline) => {
                if session.has_caller() {
                    task.permit.mark_connected();
                }
                return Some(deadline);
            }
            SessionOutput::Closed => return None,
            SessionOutput::Command(command) => io.perform(command, session, task, cx),
            SessionOutput::Audio(frame) => task.push_audio(&frame),
            SessionOutput::Event(event) => task.push_event(event, session),
            SessionOutput::BotAudioWanted => feed_speech(session, task),
        }
    }
}

/// Passes everything from the bot to the session.
fn drain_bot(session: &mut impl Session, task: &mut SessionTask) {
    let Some(transport_side) = &task.transport_side else {
        return;
    };
    let now = tasks::now();
    if let Some(audio) = transport_side.audio() {
        let mixed = audio.mix == AudioMix::Mixed;
        task.speech_rate_hz = audio.out_rate_hz;
        session.set_audio(audio.in_rate_hz, audio.out_rate_hz, mixed, now);
    }
    if transport_side.take_interruption() {
        task.counts.add(Count::Interruptions, 1);
        if let Some(observer) = task.observer() {
            observer.interruption();
        }
        session.handle_interruption(now);
    }
    while let Some(text) = transport_side.take_text() {
        if let Some(observer) = task.observer() {
            match &text {
                OutboundText::Message(text) | OutboundText::Report(text) => observer.bot_message(text),
                OutboundText::Spoken(text) => observer.bot_words(text),
            }
        }
        if let OutboundText::Message(text) = text {
            task.counts.add(Count::MessagesOut, 1);
            task.silent_bot.handle_message(&text, now);
            session.handle_message(text);
        }
    }
    if let Some(keys) = transport_side.take_keys() {
        session.handle_keys(&keys);
    }
    if let Some(target) = transport_side.transferred_to() {
        if let Some(observer) = task.observer() {
            observer.transfer(&target);
        }
        session.handle_transferred();
    }
    let hang_up = transport_side.take_hang_up();
    feed_speech(session, task);
    if let Some(reason) = hang_up {
        log::info!("the bot hangs up: {reason}");
        if let Some(observer) = task.observer() {
            observer.hang_up(&reason);
        }
        session.handle_bot_end(LeaveReason::BotEnded, now);
    }
}

/// Passes speech and marks in order, up to the session's free capacity.
fn feed_speech(session: &mut impl Session, task: &mut SessionTask) {
    let SessionTask {
        transport_side,
        speech,
        speech_rate_hz,
        silent_bot,
        listed,
        ..
    } = task;
    let observer = listed.as_ref().and_then(LiveEntry::observer);
    let Some(transport_side) = transport_side else { return };
    for name in transport_side.take_unplayed_marks() {
        transport_side.push(bot::Event::Mark { name, played: false });
    }
    while let Some(capacity) = session.bot_audio_capacity() {
        speech.clear();
        if capacity > 0 {
            transport_side.take_audio(speech, capacity);
        }
        if !speech.is_empty() {
            silent_bot.handle_sound(speech);
            if let Some(observer) = observer {
                observer.bot_sound(speech, *speech_rate_hz);
            }
        }
        session.handle_bot_audio(speech, tasks::now());
        let Some(name) = transport_side.take_mark() else { break };
        if let Some(event) = session.handle_mark(name) {
            transport_side.push(event.into());
        }
    }
}
