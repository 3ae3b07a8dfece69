//! Sessions in rooms: what `/start`, the redirect and the dial-in webhook do before a bot begins.
//!
//! A place for the session is taken before anything is asked of a provider, so that no room is made that nobody serves.

use serde_json::Value;

use super::{App, Engine, Peer, Refusal};
use crate::proto::videoroom::Wanted;

/// Makes or chooses a video room, and starts the bot; returns the JSON of the reply.
pub(super) async fn videoroom<E: Engine>(
    _app: &App<E>,
    _room: Option<Wanted>,
    _body: Value,
    _peer: Peer,
) -> Result<Vec<u8>, Refusal> {
    todo!("V")
}

/// Makes the tokens of a media room, and starts the bot; returns the JSON of the reply.
pub(super) fn mediaroom<E: Engine>(_app: &App<E>, _body: Value, _peer: Peer) -> Result<Vec<u8>, Refusal> {
    todo!("M")
}
