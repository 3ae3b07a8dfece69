//! The twin of `http::whip` in a build without `webrtc`: its routes are refused before they come here.

use hyper::body::Incoming;
use hyper::http::request::Parts;

use super::{App, Engine, Peer, Refusal, Reply};
use crate::abilities::{Ability, Absent};
use crate::proto::whip::path::Request;

pub(super) async fn serve<E: Engine>(
    _app: &App<E>,
    _request: Request,
    _head: &Parts,
    _body: Incoming,
    _peer: Peer,
) -> Result<Reply, Refusal> {
    Err(Refusal::Absent(Absent(Ability::WebRtc)))
}
