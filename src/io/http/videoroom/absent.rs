//! The twin of `http::videoroom` in a build without `videoroom`: every way to a video room is refused.

use hyper::body::Incoming;
use hyper::http::request::Parts;
use serde_json::Value;

use super::{App, Engine, Peer, Refusal, Reply};
use crate::abilities::{Ability, Absent};
use crate::proto::videoroom::Wanted;

const REFUSED: Refusal = Refusal::Absent(Absent(Ability::Videoroom));

pub(super) async fn start<E: Engine>(
    _app: &App<E>,
    _wanted: Option<Wanted>,
    _body: Value,
    _peer: Peer,
) -> Result<Vec<u8>, Refusal> {
    Err(REFUSED)
}

pub(super) async fn visit<E: Engine>(_app: &App<E>, _head: &Parts, _peer: Peer) -> Result<Reply, Refusal> {
    Err(REFUSED)
}

pub(super) async fn dialled<E: Engine>(
    _app: &App<E>,
    _head: &Parts,
    _body: Incoming,
    _peer: Peer,
) -> Result<Reply, Refusal> {
    Err(REFUSED)
}
