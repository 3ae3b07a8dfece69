//! The one loop that every session runs in, whatever carries its bytes.
//!
//! It waits for whichever comes first, something that the [`SessionIo`] brings, something of the bot,
//! the deadline, the bot's end, an eviction or the runner's end, hands it to the [`Session`], and
//! does what the session answers: commands go to the carrier, audio and events to the bot. It ends
//! when nothing of the session is left, its bot included.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use serde_json::Value;
use tokio::time::sleep_until;

use crate::bot::media::{self, AudioMix, MediaSlot, TransportSide};
use crate::bot::{self, SessionId};
use crate::config::Transport;
use crate::io::admission::SessionPermit;
use crate::io::sessions::{BotOutcome, BotTask, Sessions};
use crate::io::tasks;
use crate::logging::{self, LogClient};
use crate::proto::counts::{Count, Counts};
use crate::proto::event::{LeaveReason, SessionEvent};
use crate::proto::metrics::SessionMetrics;
use crate::proto::session::{AudioFrame, Deadline, Session, SessionOutput};
use crate::proto::stall::TaskRole;

/// Carries the bytes of one session, and does what the session asks for.
pub trait SessionIo: Send + 'static {
    type Session: Session + Send;
    /// What comes: a datagram, a message, a request.
    type Input: Send;

    /// Waits for what comes next. The future can be dropped at any time without losing any of it.
    fn recv(&mut self) -> impl Future<Output = Self::Input> + Send;

    /// Hands the session what has come.
    fn deliver(&mut self, input: Self::Input, session: &mut Self::Session, task: &mut SessionTask);

    /// Does what the session asks for. What cannot be done at once wakes the loop by `cx`.
    fn perform(
        &mut self,
        command: <Self::Session as Session>::Command,
        session: &mut Self::Session,
        task: &mut SessionTask,
        cx: &mut Context<'_>,
    );

    /// The session is over: closes what is open.
    fn close(self, session: &Self::Session, task: &SessionTask) -> CloseOutcome;
}

/// What a carrier leaves behind.
#[derive(Default)]
pub struct CloseOutcome {
    /// What goes on beside the end of the bot.
    pub hang_up: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Goes to the end of the last line in the log.
    pub words: String,
}

/// What a session has beside its state and its carrier: the bot, the counters, the permit.
pub struct SessionTask {
    pub sessions: Sessions,
    pub counts: Counts,
    pub began: Instant,
    /// Why the session has ended.
    reason: Option<LeaveReason>,
    link: Option<TransportSide>,
    bot: Option<BotTask>,
    share: Option<SessionMetrics>,
    /// Speech on its way from the bot to the session, kept for its memory.
    speech: Vec<i16>,
    lease: Option<Box<dyn Send>>,
    /// Released last, as fields are dropped in this order: what waits for the last permit finds
    /// nothing left.
    pub permit: SessionPermit,
}

impl SessionTask {
    /// Makes one whose bot has not started. `lease` is dropped when the session has ended.
    pub fn new(sessions: Sessions, permit: SessionPermit, lease: Option<Box<dyn Send>>) -> Self {
        SessionTask {
            sessions,
            counts: Counts::default(),
            began: tasks::now(),
            reason: None,
            link: None,
            bot: None,
            share: None,
            speech: Vec::new(),
            lease,
            permit,
        }
    }

    /// Starts the bot, of which `kind` is made with its slot. At most `frames_max` frames of audio
    /// wait for it.
    pub fn start_bot(
        &mut self,
        session_id: SessionId,
        body: Value,
        transport: Transport,
        frames_max: usize,
        kind: impl FnOnce(MediaSlot) -> bot::Kind,
    ) {
        let (link, slot) = media::pair(frames_max);
        let metrics = self.sessions.metrics().clone();
        self.share = Some(SessionMetrics::begin(metrics, transport, tasks::now()));
        self.bot = Some(self.sessions.begin(session_id, body, kind(slot)));
        self.link = Some(link);
    }

    /// Tells whether the bot has started.
    pub fn has_bot(&self) -> bool {
        self.link.is_some()
    }

    /// Takes over the totals that others count.
    fn count(&mut self, session: &impl Session) {
        session.update_counts(&mut self.counts);
        let dropped = self.link.as_ref().map(TransportSide::dropped).unwrap_or_default();
        self.counts.set(Count::FramesDropped, dropped.frames_in);
        self.counts.add(Count::MessagesDropped, dropped.messages_out);
    }

    /// Adds what was counted to the metrics, when that is due.
    fn flush(&mut self, session: &impl Session, now: Instant) {
        if self.share.as_ref().is_none_or(|share| now < share.next_flush()) {
            return;
        }
        self.count(session);
        if let (Some(share), Some(link)) = (&mut self.share, &self.link) {
            share.flush(&self.counts, link.waiting(), now);
        }
    }

    fn push_audio(&mut self, frame: &AudioFrame<'_>) {
        let Some(link) = &self.link else { return };
        self.counts.add(Count::FramesIn, 1);
        match frame.identity {
            Some(identity) => link.push_participant_audio(frame.pcm, frame.rate_hz, identity),
            None => link.push_audio(frame.pcm, frame.rate_hz),
        }
    }

    fn push_event(&mut self, event: SessionEvent, session: &impl Session) {
        match &event {
            SessionEvent::Joined => {
                if let (Some(share), Some(codec)) = (&self.share, session.codec_name()) {
                    share.connected(tasks::now() - self.began);
                    share.codec_negotiated(codec);
                }
            }
            SessionEvent::Message(_) => self.counts.add(Count::MessagesIn, 1),
            SessionEvent::Left(reason) => self.reason = Some(*reason),
            _ => {}
        }
        if let Some(link) = &self.link {
            link.push(event.into());
        }
    }
}

/// Lets a session run in a task of its own, whose lines in the log are the session's.
pub fn spawn(sessions: &Sessions, id: SessionId, client: LogClient, task: impl Future<Output = ()> + Send + 'static) {
    let task = logging::in_session(id.clone(), logging::for_client(client, task));
    tasks::spawn(sessions.watchdog().watch_task(id, TaskRole::Media, task));
}

/// Runs a session to its end.
pub async fn run<C: SessionIo>(mut session: Box<C::Session>, mut carrier: C, mut task: SessionTask) {
    if task.has_bot() {
        log::info!("session started: {}", session.name());
    }
    let outcome = run_loop(&mut *session, &mut carrier, &mut task).await;
    // The bot has its own time to end, and holds its permit until then.
    task.permit.mark_connected();
    task.count(&*session);
    let CloseOutcome { hang_up, words } = carrier.close(&session, &task);
    let SessionTask {
        sessions,
        counts,
        began,
        reason,
        link,
        bot,
        share,
        lease,
        permit,
        ..
    } = task;
    // The bot learns of the end by the link.
    drop(link);
    // A provider that does not answer keeps no caller out, unless many of them do not answer.
    let aside = hang_up.as_ref().and_then(|_| sessions.hang_ups().try_acquire());
    let ended = async {
        let outcome = match (outcome, bot) {
            (None, Some(bot)) => Some(bot.finish(sessions.shutdown()).await),
            (outcome, _) => outcome,
        };
        let reason = reason.unwrap_or(LeaveReason::Failed);
        if let Some(outcome) = outcome {
            session.log_diagnosis(reason);
            let seconds = (tasks::now() - began).as_secs_f64();
            let (frames, dropped) = (counts.get(Count::FramesIn), counts.get(Count::FramesDropped));
            let summary = session.summary(&counts);
            outcome.log(
                reason,
                &format!("{seconds:.1} s, {summary}, {frames} frames to the bot, {dropped} dropped{words}"),
            );
        }
        if let Some(share) = share {
            share.end(&counts, reason);
        }
        drop((session, lease));
        aside.is_none().then_some(permit)
    };
    let hang_up = async {
        if let Some(hang_up) = hang_up {
            hang_up.await;
        }
    };
    // What waits for the last permit finds nothing left.
    let ((), _permit) = tokio::join!(hang_up, ended);
}

/// Returns how the bot ended, if it did before the session.
async fn run_loop<C: SessionIo>(
    session: &mut C::Session,
    carrier: &mut C,
    task: &mut SessionTask,
) -> Option<BotOutcome> {
    let mut timer = pin!(sleep_until(tasks::now().into()));
    let mut shutdown = task.sessions.shutdown().clone();
    let mut stop = pin!(async move { shutdown.wait().await });
    let mut outcome = None;
    let mut stopping = false;
    while let Some(deadline) = poll_fn(|cx| Poll::Ready(drain(session, carrier, task, cx))).await {
        // A session may be silent for long; what it counted before that is not kept back so long.
        let due = task.share.as_ref().map(SessionMetrics::next_flush);
        let until = tokio::time::Instant::from_std(deadline.or(due, "metrics").at);
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        let SessionTask { link, bot, permit, .. } = task;
        // In no order: a peer that floods, or a bot that never stops sending, must not keep the
        // others waiting.
        tokio::select! {
            input = carrier.recv() => carrier.deliver(input, session, task),
            () = notified(link.as_ref()) => drain_bot(session, task),
            () = &mut timer => handle_timeout(session, task, deadline),
            ended = ended(bot.as_mut()), if outcome.is_none() => {
                drain_bot(session, task);
                // A bot may see the runner stop before its session does, and end for that reason.
                let reason = if task.sessions.shutdown().is_set() {
                    LeaveReason::Shutdown
                } else {
                    ended.reason()
                };
                session.handle_bot_end(reason, tasks::now());
                outcome = Some(ended);
            }
            () = permit.evicted() => session.handle_eviction(tasks::now()),
            () = &mut stop, if !stopping => {
                stopping = true;
                session.handle_end(LeaveReason::Shutdown, tasks::now());
            }
        }
    }
    outcome
}

async fn notified(link: Option<&TransportSide>) {
    match link {
        Some(link) => link.notified().await,
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
    if let Some(share) = &mut task.share
        && now >= deadline.at
    {
        log::trace!("due: {}", deadline.why);
        share.record_lateness(now.saturating_duration_since(deadline.at));
    }
    session.handle_timeout(now);
    feed_speech(session, task);
}

/// Does what the session answers, up to its next deadline; `None` when nothing of it is left.
fn drain<C: SessionIo>(
    session: &mut C::Session,
    carrier: &mut C,
    task: &mut SessionTask,
    cx: &mut Context<'_>,
) -> Option<Deadline> {
    let now = tasks::now();
    task.flush(session, now);
    loop {
        match session.poll_output(now) {
            SessionOutput::Timeout(deadline) => {
                if session.has_caller() {
                    task.permit.mark_connected();
                }
                return Some(deadline);
            }
            SessionOutput::Closed => return None,
            SessionOutput::Command(command) => carrier.perform(command, session, task, cx),
            SessionOutput::Audio(frame) => task.push_audio(&frame),
            SessionOutput::Event(event) => task.push_event(event, session),
            SessionOutput::SpeechWanted => feed_speech(session, task),
        }
    }
}

/// Hands the session everything that the bot has for it.
fn drain_bot(session: &mut impl Session, task: &mut SessionTask) {
    let Some(link) = &task.link else { return };
    let now = tasks::now();
    if let Some(audio) = link.audio() {
        let mixed = audio.mix == AudioMix::Mixed;
        session.set_audio(audio.in_rate_hz, audio.out_rate_hz, mixed, now);
    }
    if link.take_interruption() {
        task.counts.add(Count::Interruptions, 1);
        session.handle_interruption(now);
    }
    while let Some(text) = link.take_message() {
        task.counts.add(Count::MessagesOut, 1);
        session.handle_message(text);
    }
    feed_speech(session, task);
}

/// Hands the session as much speech as it takes, up to the first mark behind which there is no
/// more.
fn feed_speech(session: &mut impl Session, task: &mut SessionTask) {
    let SessionTask { link, speech, .. } = task;
    let Some(link) = link else { return };
    for name in link.take_unplayed_marks() {
        link.push(bot::Event::Mark { name, played: false });
    }
    while let Some(room) = session.speech_capacity() {
        speech.clear();
        if room > 0 {
            link.take_audio(speech, room);
        }
        session.handle_speech(speech, tasks::now());
        let Some(name) = link.take_mark() else { break };
        if let Some(event) = session.handle_mark(name) {
            link.push(event.into());
        }
    }
}
