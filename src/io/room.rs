//! Sessions whose bots start at once, because no caller connects to this machine.
//!
//! In a hosted video room, and without a room, the bot has its own connection: the runner holds its
//! slot and ends it. Media rooms are joined by the runner itself ([`crate::io::livekit`]). Metrics
//! are per transport, so a bot without a room has none.

use serde_json::Value;

use crate::bot::Kind;
use crate::config::Transport;
use crate::io::admission::SessionPermit;
use crate::io::sessions::{BotOutcome, SessionStart, Sessions};
use crate::io::tasks;
use crate::io::trace;
use crate::logging;
use crate::proto::counts::{Counts, NetworkTimes};
use crate::proto::event::LeaveReason;
use crate::proto::http::traceparent::Traceparent;
use crate::proto::metrics::SessionMetrics;
use crate::proto::stall::TaskRole;

/// Starts a session in a hosted video room, or without a room, with a permit taken before.
/// `call_data` has the numbers of a telephone call.
pub fn begin(sessions: Sessions, permit: SessionPermit, start: SessionStart, kind: Kind, call_data: Option<Value>) {
    let (id, client, watchdog) = (
        start.session_id.clone(),
        start.log_client.clone(),
        sessions.watchdog().clone(),
    );
    let task = async move {
        run_bot(&sessions, start, kind, call_data.as_ref()).await;
        drop(permit);
    };
    let task = logging::in_session(id.clone(), logging::for_client(client, task));
    tasks::spawn(watchdog.watch_task(id, TaskRole::Media, task));
}

/// Runs a bot from its start to its end, logs its end, and returns its result.
pub async fn run_bot(sessions: &Sessions, start: SessionStart, kind: Kind, call_data: Option<&Value>) -> BotOutcome {
    let began = tasks::now();
    let transport = kind.transport();
    let name = transport.map_or(kind.name(), Transport::common_name);
    start.bot.mark_log();
    log::info!("session started: {name}");
    let trace = Traceparent::of_body(&start.body);
    let share = transport.map(|transport| SessionMetrics::begin(sessions.metrics().clone(), transport, began));
    let mut shutdown = sessions.shutdown().clone();
    let id = start.session_id.clone();
    let mut listed = sessions.list(&start.bot, id, transport, call_data, None, &start.body);
    let mut bot = sessions.begin(&start.bot, start.session_id, start.body, kind, listed.sound_notice());
    let (outcome, reason) = tokio::select! {
        outcome = bot.ended() => {
            // The bot may see the shutdown before this task does, and end because of it.
            let reason = match shutdown.is_set() {
                true => LeaveReason::Shutdown,
                false => outcome.reason(),
            };
            (outcome, reason)
        }
        () = shutdown.wait() => (bot.finish(sessions.shutdown()).await, LeaveReason::Shutdown),
        reason = listed.ended_early() => (bot.finish(sessions.shutdown()).await, reason),
    };
    if let Some(share) = share {
        share.end(&Counts::default(), reason);
    }
    listed.note_end(reason);
    if let Some(observer) = listed.observer() {
        observer.end(reason, outcome.error(), &Counts::default(), NetworkTimes::default());
    }
    let seconds = (tasks::now() - began).as_secs_f64();
    outcome.log(reason, &format!("{seconds:.1} s{}", trace::log_suffix(trace.as_ref())));
    drop((start.bot, start.lease));
    outcome
}
