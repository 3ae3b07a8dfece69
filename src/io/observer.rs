//! What a module learns of every session without taking part in it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::bot::SessionId;
use crate::config::Transport;
use crate::proto::calls::CallOutcome;
use crate::proto::counts::{Counts, NetworkTimes};
use crate::proto::event::{LeaveReason, SessionEvent};
use crate::proto::http::traceparent::Traceparent;
use crate::proto::server::source::SourceKey;
use crate::proto::session::CallerFrame;

/// Observes the sessions of a runner.
pub trait ObserveSessions: Send + Sync {
    /// Observes a session from its start. Dropping the result ends that.
    fn begin(self: Arc<Self>, session: ObservedSession<'_>) -> Box<dyn SessionObserver>;

    /// A call became no session.
    fn missed(&self, call: MissedCall<'_>);
}

/// A call that became no session.
pub struct MissedCall<'a> {
    /// The same, if its provider reports it again.
    pub id: SessionId,
    /// `None` while it is not known.
    pub transport: Option<Transport>,
    /// The name of one of several bots.
    pub bot: Option<Arc<str>>,
    /// Its numbers and direction, as for a bot.
    pub call_data: &'a Value,
    /// Where its request came from; `None` for a call that the runner dialled.
    pub source: Option<SourceKey>,
    pub trace: Option<Traceparent>,
    pub outcome: CallOutcome,
    /// Why its provider did not dial, or did not connect it.
    pub provider_error: Option<&'a str>,
    pub lasted: Duration,
}

/// A session that begins.
pub struct ObservedSession<'a> {
    pub id: SessionId,
    /// `None` if the bot has no transport.
    pub transport: Option<Transport>,
    /// The name of one of several bots.
    pub bot: Option<Arc<str>>,
    /// What the transport tells about the call.
    pub call_data: Option<&'a Value>,
    /// Where the request of a caller who connects here came from.
    pub source: Option<SourceKey>,
    /// The `body` of its start.
    pub body: &'a Value,
}

/// What becomes of the sound of a session, for its bot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoundNotice {
    pub is_recorded: bool,
    /// Whether operators may listen.
    pub allows_listening: bool,
}

/// Observes one session.
pub trait SessionObserver: Send + Sync {
    /// An event for the bot.
    fn event(&self, event: &SessionEvent);

    /// A message of the bot, also one that its caller does not get.
    fn bot_message(&self, text: &str);

    /// The words of speech of the bot that follows.
    fn bot_words(&self, text: &str);

    /// The bot has transferred the call; it may come more than once.
    fn transfer(&self, target: &str);

    /// The bot hangs up, for this reason.
    fn hang_up(&self, reason: &str);

    /// Sound of a caller on its way to the bot.
    fn caller_sound(&self, frame: &CallerFrame<'_>);

    /// Speech of the bot, as the session takes it.
    fn bot_sound(&self, pcm: &[i16], rate_hz: u32);

    /// Returns what becomes of the sound of the session.
    fn sound_notice(&self) -> SoundNotice;

    /// The bot takes back the speech that was not sent.
    fn interruption(&self);

    /// What the session knows of its network, about once a second.
    fn network(&self, counts: &Counts, network: NetworkTimes);

    /// Returns what the log says of the answers of the bot; `None` if there is nothing to say.
    fn answers(&self) -> Option<String>;

    /// The end of the session, with the error of a bot that failed.
    fn end(&self, reason: LeaveReason, bot_error: Option<&str>, counts: &Counts, network: NetworkTimes);
}
