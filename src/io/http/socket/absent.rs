//! The twin of `http::socket` in a build without `telephony` and `websocket`: sockets are refused before they come here.

use hyper::http::request::Parts;

use super::{App, Becomes, Engine, Peer, Refusal, Reply};
use crate::abilities::{Ability, Absent};
use crate::proto::token::Family;

pub(super) fn socket<E: Engine>(
    _app: &App<E>,
    _family: Family,
    _in_path: Option<String>,
    _head: &Parts,
    _peer: Peer,
    _becomes: &Becomes,
) -> Result<Reply, Refusal> {
    Err(Refusal::Absent(Absent(Ability::WebSocket)))
}
