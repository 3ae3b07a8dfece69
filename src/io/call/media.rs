//! Calls by a session of the runner itself, in a room or over QUIC: the caller is its bot.
//!
//! In: how the session is opened, and the plan. Out: the conversation at its end, with the session
//! closed, or why no bot has answered. Audio is queued for the session, which sends it in time;
//! what it does not take while its connection is lost is dropped.

use std::collections::VecDeque;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, sleep_until, timeout};

use super::CallRun;
use crate::bot::media::{Audio, AudioFrame, Event, LeaveReason, Media, MediaSlot};
use crate::bot::{self, Shutdown, ShutdownTrigger};
use crate::config::Config;
use crate::io::admission::SessionPermit;
use crate::io::session::{self, SessionIo, SessionTask};
use crate::io::sessions::Sessions;
use crate::io::tasks::{self, BoxedTask, SlotPool};
use crate::limits::AUDIO_IN_FRAMES_MAX;
use crate::proto::caller::{CallConversation, CallPlan, ConversationOutput, FRAME, RATE_HZ, rtvi_messages};
use crate::proto::server::admission::{PendingKind, Requester};

/// From the request to the bot, in a call that is not shorter: one that is started for the call may
/// load its models first.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// Frames of a bot that greets early, of 20 ms: a second.
const EARLY_FRAMES_MAX: usize = 50;

/// The place of a session, and what ends it.
pub struct CallPlace {
    sessions: Sessions,
    permit: SessionPermit,
    stop: ShutdownTrigger,
}

impl CallPlace {
    /// Makes a place for one session, whose bot is the caller.
    pub fn new() -> CallPlace {
        let (stop, shutdown) = Shutdown::channel();
        let no_bot = bot::erase(|_| async { Ok(()) });
        let sessions = Sessions::new(Arc::new(Config::default()), no_bot, SlotPool::new(1), shutdown);
        let requester = Requester {
            source: IpAddr::from(Ipv4Addr::LOCALHOST).into(),
            is_authorised: true,
            local_address: None,
        };
        let permit = sessions.admission().session(requester, PendingKind::Caller);
        let permit = permit.expect("the place is free");
        CallPlace { sessions, permit, stop }
    }

    /// Begins the session. Returns its task, the media of the caller, and what ends the session.
    pub fn begin<C: SessionIo>(
        self,
        session: Box<C::Session>,
        io: C,
    ) -> (impl Future<Output = ()>, MediaSlot, ShutdownTrigger) {
        let mut task = SessionTask::new(self.sessions, self.permit, None);
        let slot = task.send_media(AUDIO_IN_FRAMES_MAX);
        (session::run(session, io, task), slot, self.stop)
    }
}

/// A session that runs while it is polled, and the media of its bot.
pub struct CallerSession {
    pub running: BoxedTask,
    pub slot: MediaSlot,
    pub stop: ShutdownTrigger,
    /// Whether it carries keys; otherwise they are messages.
    pub has_keys: bool,
    /// Describes why no bot has answered, once the session is over.
    pub explain: Box<dyn FnOnce(NoAnswer) -> String + Send>,
}

/// Why no bot has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The room was not joined.
    NotJoined(String),
    /// The session ended before a bot was there.
    Ended(LeaveReason),
    /// No bot was there within this time.
    Late(Duration),
}

impl NoAnswer {
    /// Describes it; `else_why` says what is missing if the session does not.
    pub fn describe(self, else_why: &str) -> String {
        match self {
            NoAnswer::NotJoined(why) => why,
            NoAnswer::Late(time) => format!("{else_why} within {} s", time.as_secs_f64()),
            NoAnswer::Ended(LeaveReason::NeverConnected | LeaveReason::Left) => else_why.to_owned(),
            NoAnswer::Ended(reason) => format!("{else_why}: {}", loss(reason)),
        }
    }
}

/// Opens a session and runs its call to its end.
///
/// # Errors
/// A sentence for the user.
pub async fn run(
    task: &mut CallRun<'_>,
    plan: CallPlan,
    opening: impl Future<Output = Result<CallerSession, String>>,
) -> Result<CallConversation, String> {
    let CallerSession {
        running,
        slot,
        stop,
        has_keys,
        explain,
    } = task.open(opening).await?;
    let mut call = MediaCall {
        media: slot.open(Audio::at(RATE_HZ)),
        bots: 0,
        early: VecDeque::new(),
        has_keys,
    };
    let talking = async {
        let within = ANSWERED_WITHIN.min(plan.longest);
        let answered = task.open(async { Ok(call.wait_for_bot(within).await) }).await;
        let ended = match answered {
            Ok(Ok(())) => Ok(Ok(call.talk(plan, task).await)),
            Ok(Err(why)) => Ok(Err(why)),
            Err(stopped) => Err(stopped),
        };
        stop.set();
        ended
    };
    let (ended, ()) = tokio::join!(talking, running);
    ended?.map_err(explain)
}

/// The caller of a session.
struct MediaCall {
    media: Media,
    /// The number of bots in the room.
    bots: usize,
    /// Audio of the bot from before it was known to hear the caller, at most [`EARLY_FRAMES_MAX`].
    early: VecDeque<AudioFrame>,
    has_keys: bool,
}

impl MediaCall {
    /// Waits until a bot is there and hears the caller.
    async fn wait_for_bot(&mut self, time: Duration) -> Result<(), NoAnswer> {
        let mut why = None;
        let mut late = std::pin::pin!(sleep(time));
        loop {
            let event = tokio::select! {
                event = self.media.recv() => event,
                () = &mut late => return Err(NoAnswer::Late(time)),
            };
            match event {
                Some(Event::Joined) => return Ok(()),
                Some(Event::JoinFailed(words)) => why = Some(words),
                Some(Event::Left(reason)) => {
                    return Err(why.map_or(NoAnswer::Ended(reason), NoAnswer::NotJoined));
                }
                Some(Event::Audio(frame)) => {
                    if self.early.len() == EARLY_FRAMES_MAX {
                        self.early.pop_front();
                    }
                    self.early.push_back(frame);
                }
                Some(event) => self.count_bots(&event),
                None => return Err(NoAnswer::Ended(LeaveReason::Failed)),
            }
        }
    }

    fn count_bots(&mut self, event: &Event) {
        match event {
            Event::ParticipantJoined(who) if who.is_agent => self.bots += 1,
            Event::ParticipantLeft(who) if who.is_agent => self.bots = self.bots.saturating_sub(1),
            _ => {}
        }
    }

    async fn talk(&mut self, plan: CallPlan, task: &mut CallRun<'_>) -> CallConversation {
        let mut conversation = task.conversation(plan, true);
        for frame in std::mem::take(&mut self.early) {
            conversation.handle_audio(&frame, frame.rate_hz(), tasks::now());
        }
        // A session that is over reports that as an event.
        let _ = self.media.send_message(rtvi_messages::client_ready());
        loop {
            let deadline = loop {
                match conversation.poll_output() {
                    ConversationOutput::Timeout(at) => break at,
                    ConversationOutput::Observed(at, observation) => task.observe(at, &observation),
                    output => self.send(&output).await,
                }
            };
            if conversation.is_over() {
                return conversation;
            }
            tokio::select! {
                biased;
                () = task.stopped() => conversation.handle_stop(tasks::now()),
                () = sleep_until(deadline.into()) => conversation.handle_timeout(tasks::now()),
                event = self.media.recv() => self.handle_event(event, &mut conversation),
            }
        }
    }

    /// Sends an output of the conversation.
    async fn send(&self, output: &ConversationOutput) {
        match output {
            ConversationOutput::Audio(pcm) => {
                // Silence is left out where sound waits, so that no delay of the connection stays.
                // The queue is full while it is lost.
                if pcm.iter().any(|sample| *sample != 0) || !self.media.output().is_waiting() {
                    let _ = timeout(FRAME, self.media.send_audio(pcm)).await;
                }
            }
            ConversationOutput::Key(key) if self.has_keys => {
                if !self.media.output().send_keys(&key.to_string()) {
                    log::debug!("a key is lost: too many wait");
                }
            }
            output => {
                if let Some(message) = output.message() {
                    let _ = self.media.send_message(message);
                }
            }
        }
    }

    fn handle_event(&mut self, event: Option<Event>, conversation: &mut CallConversation) {
        let now = tasks::now();
        match event {
            Some(Event::Audio(frame)) => conversation.handle_audio(&frame, frame.rate_hz(), now),
            Some(Event::Message(text)) => conversation.handle_message(&text, now),
            Some(Event::Left(LeaveReason::Left)) => conversation.handle_end(Ok(String::new()), now),
            Some(Event::Left(reason)) => conversation.handle_end(Err(loss(reason)), now),
            Some(event) => {
                let before = self.bots;
                self.count_bots(&event);
                if before > 0 && self.bots == 0 {
                    conversation.handle_end(Ok(String::new()), now);
                }
            }
            None => conversation.handle_end(Err("its session has ended".into()), now),
        }
    }
}

/// Describes the end of a session that the bot did not intend.
fn loss(reason: LeaveReason) -> String {
    match reason {
        LeaveReason::Vanished => "nothing arrives any more".to_owned(),
        LeaveReason::Replaced => "another participant has joined as this caller".to_owned(),
        LeaveReason::Failed => "it was not restored in time".to_owned(),
        LeaveReason::Protocol => "the other end violates the protocol".to_owned(),
        other => other.to_string(),
    }
}
