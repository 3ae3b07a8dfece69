//! Sessions in rooms, whose bots start at once: nobody has to connect to this machine.
//!
//! In a hosted video room, and without a room at all, the bot is by itself: the runner keeps its place and sees to its end. A
//! media room is joined by the runner ([`crate::io::mediaroom`]).

use std::sync::Arc;

use crate::config::Secret;
use crate::io::mediaroom;
use crate::io::sessions::{Sessions, Start};
use crate::io::tasks::Place;
use crate::proto::rtc::Common;

/// Where a bot goes.
pub enum Room {
    /// Nowhere: it brings its own transport.
    Base,
    Video {
        room_url: String,
        token: Option<Secret>,
    },
    Media(mediaroom::Room),
}

/// Begins a session in a room, which was given its place before.
pub type Begin = Box<dyn FnOnce(Start, Room) + Send>;

/// Makes what begins a session in this place.
pub fn begin(sessions: Sessions, place: Place, common: Arc<Common>) -> Begin {
    Box::new(move |start, room| match room {
        Room::Base | Room::Video { .. } => todo!("V: {}", drop_all(sessions, place, start)),
        Room::Media(room) => mediaroom::begin(sessions, place, common, start, room),
    })
}

fn drop_all(_: Sessions, _: Place, _: Start) -> &'static str {
    ""
}
