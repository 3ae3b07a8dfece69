//! The twin of `http::rooms` in a build without `mediaroom`: the way to a media room is refused.

use serde_json::Value;

use super::{App, Engine, Peer, Refusal};
use crate::abilities::{Ability, Absent};

pub(super) fn mediaroom<E: Engine>(_app: &App<E>, _body: Value, _peer: Peer) -> Result<Vec<u8>, Refusal> {
    Err(Refusal::Absent(Absent(Ability::Mediaroom)))
}
