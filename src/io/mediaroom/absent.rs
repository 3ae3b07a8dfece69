//! The twin of `io::mediaroom` in a build without `mediaroom`: there is no room, so nothing begins in one.

use std::sync::Arc;

use crate::io::admission::Permit;
use crate::io::sessions::{Sessions, Start};
use crate::io::webrtc::Common;

/// What a session would join.
pub enum Room {}

pub fn begin(_sessions: Sessions, _permit: Permit, _common: Arc<Common>, _start: Start, room: Room) {
    match room {}
}
