//! The twin of `http::webhook` in a build without `telephony`: calls are refused before they come here.

use hyper::body::Incoming;
use hyper::http::request::Parts;

use super::{App, Engine, Refusal, Reply};
use crate::abilities::{Ability, Absent};
use crate::proto::telephony::Provider;

const REFUSED: Refusal = Refusal::Absent(Absent(Ability::Telephony));

pub(super) async fn webhook<E: Engine>(_app: &App<E>, _head: &Parts, _body: Incoming) -> Result<Reply, Refusal> {
    Err(REFUSED)
}

pub(super) fn verify_upgrade<E>(_app: &App<E>, _head: &Parts) -> Result<Option<Provider>, Refusal> {
    Err(REFUSED)
}
