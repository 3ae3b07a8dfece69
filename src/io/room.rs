//! Sessions in rooms, whose bots start at once: nobody has to connect to this machine.
//!
//! In a hosted video room, and without a room at all, the bot is by itself: the runner keeps its place and sees to its end. A
//! media room is joined by the runner ([`crate::io::mediaroom`]). The metrics are by transport: a bot without a room has none,
//! and is no part of them.

use std::sync::Arc;

use crate::bot::{Kind, VideoroomArguments};
use crate::config::{Secret, Transport};
use crate::io::admission::Permit;
use crate::io::mediaroom;
use crate::io::sessions::{Outcome, Sessions, Start};
use crate::io::tasks;
use crate::io::webrtc::Common;
use crate::logging;
use crate::proto::event::LeaveReason;
use crate::proto::metrics::{Counts, Share};
use crate::proto::stall::Task;

/// Where a bot goes.
pub enum Room {
    /// Nowhere: it brings its own transport.
    Base,
    Video {
        room_url: String,
        token: Option<Secret>,
        /// Where a call is connected to, in a room that was made for one.
        sip_uri: Option<String>,
    },
    Media(mediaroom::Room),
}

/// Begins a session in a room, which was given its place before.
pub type Begin = Box<dyn FnOnce(Start, Room) + Send>;

/// Makes what begins a session with this permit.
pub fn begin(sessions: Sessions, permit: Permit, common: Arc<Common>) -> Begin {
    Box::new(move |start, room| match room {
        Room::Base => spawn(sessions, permit, start, Kind::Base),
        Room::Video {
            room_url,
            token,
            sip_uri,
        } => {
            let kind = Kind::Videoroom(VideoroomArguments {
                room_url,
                token,
                sip_uri,
            });
            spawn(sessions, permit, start, kind);
        }
        Room::Media(room) => mediaroom::begin(sessions, permit, common, start, room),
    })
}

fn spawn(sessions: Sessions, permit: Permit, start: Start, kind: Kind) {
    let (id, caller, watch) = (start.session_id.clone(), start.caller.clone(), sessions.watch().clone());
    let life = async move {
        alone(&sessions, start, kind).await;
        drop(permit);
    };
    let task = logging::in_session(id.clone(), logging::of_caller(caller, life));
    tasks::spawn(watch.over(id, Task::Media, task));
}

/// Runs a bot that is by itself, from its start to its end, and tells how it ended.
pub async fn alone(sessions: &Sessions, start: Start, kind: Kind) -> Outcome {
    let began = tasks::now();
    log::info!("session started: {}", kind.name());
    let share = match kind {
        Kind::Videoroom(_) => Some(Share::begin(sessions.metrics().clone(), Transport::Videoroom, began)),
        _ => None,
    };
    let mut shutdown = sessions.shutdown().clone();
    let mut bot = sessions.begin(start.session_id, start.body, kind);
    let (outcome, reason) = tokio::select! {
        outcome = bot.ended() => {
            // A bot may see the runner stop before its session does, and end for that reason.
            let reason = match shutdown.is_set() {
                true => LeaveReason::Shutdown,
                false => outcome.reason(),
            };
            (outcome, reason)
        }
        () = shutdown.wait() => (bot.finish(sessions.shutdown()).await, LeaveReason::Shutdown),
    };
    if let Some(share) = share {
        share.end(&Counts::default(), reason);
    }
    outcome.log(reason, &format!("{:.1} s", (tasks::now() - began).as_secs_f64()));
    drop(start.lease);
    outcome
}
