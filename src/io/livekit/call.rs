//! A call of this program into a room.
//!
//! In: the room and its token. Out: a session whose bot is the caller.

use std::sync::Arc;

use super::{RoomTransport, unix_time};
use crate::bot::media::MediaSlot;
use crate::io::admission::SessionPermit;
use crate::io::session::{self, SessionTask};
use crate::io::sessions::Sessions;
use crate::io::tasks::{self, BoxedTask};
use crate::io::webrtc::seeding;
use crate::limits::AUDIO_IN_FRAMES_MAX;
use crate::proto::caller::target::RoomInvite;
use crate::proto::livekit::roster::RoomRole;
use crate::proto::livekit::session::{RoomSession, RoomSetup};
use crate::proto::livekit::socket_base;

/// Joins a room as a caller. Returns the session, which runs while it is polled, and the media of
/// the caller.
pub fn call(sessions: Sessions, permit: SessionPermit, invite: &RoomInvite) -> (BoxedTask, MediaSlot) {
    let setup = RoomSetup {
        role: RoomRole::Caller,
        common: Arc::default(),
        url: socket_base(&invite.url),
        other_urls: Vec::new(),
        token: invite.token.clone(),
        agent_name: String::new(),
        service: None,
        unix: unix_time(),
        job: None,
    };
    let session = Box::new(RoomSession::new(setup, tasks::now()));
    let io = RoomTransport::new(sessions.config().clone(), None);
    let mut task = SessionTask::new(sessions, permit, None);
    let slot = task.send_media(AUDIO_IN_FRAMES_MAX);
    (tasks::boxed(seeding(session::run(session, io, task))), slot)
}
