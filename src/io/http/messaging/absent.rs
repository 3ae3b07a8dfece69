//! The twin of `http::messaging` in a build without `messaging`: its webhook is refused.

use hyper::body::Incoming;
use hyper::http::request::Parts;

use super::{App, Engine, Peer, Refusal, Reply};
use crate::abilities::{Ability, Absent};

pub(super) async fn messaging<E: Engine>(
    _app: &App<E>,
    _head: &Parts,
    _body: Incoming,
    _peer: Peer,
) -> Result<Reply, Refusal> {
    Err(Refusal::Absent(Absent(Ability::Messaging)))
}
