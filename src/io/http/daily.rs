//! Sessions in video rooms: what `/start`, the redirect and the dial-in webhook do before a bot begins.
//!
//! In: requests that were let in. Out: replies. A place for the session is taken before anything is asked of the provider, so
//! that no room is made that nobody serves; the bot begins before the reply is sent.

use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::body::{AcceptedBody, read};
use super::refusal_log::log_client;
use super::{HttpError, RunnerApp, methods, new_session_id};
use crate::bot::{self, SessionId};
use crate::config::Transport;
use crate::io::daily::{Prepared, prepare};
use crate::io::room;
use crate::io::sessions::SessionStart;
use crate::limits::{DIALIN_HEADERS_BYTES_MAX, PROCESS_BODY_BYTES_MAX};
use crate::logging;
use crate::proto::daily::{Asked, Failure, Wanted, dialin, reply};
use crate::proto::http::route;
use crate::proto::server::admission::Kind;
use edge_runner_http::common::{PeerInfo, Reply, json_reply, lock, unix_time_s};

/// Makes or chooses a video room, and starts the bot; returns the JSON of the reply.
pub(super) async fn start(
    app: &RunnerApp,
    wanted: Option<Wanted>,
    body: Value,
    peer: PeerInfo,
) -> Result<Vec<u8>, HttpError> {
    let Some(wanted) = wanted else {
        fits_program(app, &body)?;
        let permit = app.permit(peer.requester(), Kind::Caller)?;
        let start = start_of(app, body, peer);
        let session_id = start.session_id.clone();
        room::begin(app.sessions.clone(), permit, start, bot::Kind::Base);
        return Ok(reply::bare(&session_id));
    };
    let (Prepared { room, token, .. }, session_id) = begin(app, Asked::Client(&wanted), body, peer)
        .await
        .map_err(|refused| refused.into(HttpError::Videoroom))?;
    Ok(reply::started(app.config.start_names, &room, &token, &session_id))
}

/// Makes or chooses a video room, starts the bot, and sends the browser there.
pub(super) async fn visit(app: &RunnerApp, head: &Parts, peer: PeerInfo) -> Result<Reply, HttpError> {
    let mut answer = Reply::default();
    // A guess or a second visit has to come here again.
    let no_store = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(header::CACHE_CONTROL, no_store);
    if let Some(only) = app.config.transport.filter(|only| *only != Transport::Videoroom) {
        return Err(HttpError::OtherTransport(only));
    }
    if head.method == Method::HEAD {
        return Ok(answer);
    }
    let (Prepared { room, token, .. }, _) = begin(app, Asked::Client(&Wanted::default()), json!({}), peer)
        .await
        .map_err(|refused| refused.into(HttpError::Videoroom))?;
    *answer.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let location = HeaderValue::try_from(reply::location(&room, &token)).expect("a URL was read as fit for a header");
    answer.headers_mut().insert(header::LOCATION, location);
    Ok(answer)
}

/// Makes a room for the call that the provider holds, and starts the bot that is to connect it.
pub(super) async fn dialled(app: &RunnerApp, head: &Parts, body: Incoming, peer: PeerInfo) -> Result<Reply, HttpError> {
    let config = &app.config.videoroom;
    if !config.dialin {
        return Err(HttpError::Route(route::RouteError::NotFound));
    }
    match head.method {
        Method::POST => {}
        Method::OPTIONS => return Ok(methods(route::POST_METHODS)),
        _ => return Err(HttpError::Route(route::RouteError::Method(route::POST_METHODS))),
    }
    let body = read(app.times, &head.headers, AcceptedBody::Anything, body).await?;
    let map = dialin::object(&body).map_err(HttpError::DialIn)?;
    if dialin::is_ping(&map) {
        return Ok(json_reply(StatusCode::OK, r#"{"status":"OK"}"#));
    }
    if let Some(key) = &config.dialin_hmac {
        let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        dialin::verify(key.expose(), &text, &body, unix_time_s()).map_err(HttpError::Caller)?;
    }
    let peer = PeerInfo {
        is_authorised: peer.is_authorised || config.dialin_hmac.is_some(),
        ..peer
    };
    let call = dialin::call(map).map_err(HttpError::DialIn)?;
    app.check_open()?;
    if call.headers_left_out {
        log_client(app, peer).attribute(|| {
            log::warn!("the SIP headers of a call are left out: they have more than {DIALIN_HEADERS_BYTES_MAX} bytes");
        });
    }
    if !lock(&app.calls).take(&call.call_id, Instant::now()) {
        return Err(HttpError::SameCall);
    }
    let begun = begin(app, Asked::Call { from: &call.from }, call.bot_body(config), peer).await;
    let (Prepared { room, token, .. }, session_id) = begun.map_err(|refused| {
        lock(&app.calls).give_back(&call.call_id);
        refused.into(HttpError::CallRoom)
    })?;
    let answer = reply::started(app.config.start_names, &room, &token, &session_id);
    Ok(json_reply(StatusCode::OK, answer))
}

/// Why no bot began.
enum NotBegun {
    Refused(HttpError),
    Failed(Failure),
}

impl NotBegun {
    fn into(self, failed: impl FnOnce(Failure) -> HttpError) -> HttpError {
        match self {
            NotBegun::Refused(refusal) => refusal,
            NotBegun::Failed(failure) => failed(failure),
        }
    }
}

/// Takes a place, asks the provider, and starts the bot.
async fn begin(
    app: &RunnerApp,
    asked: Asked<'_>,
    body: Value,
    peer: PeerInfo,
) -> Result<(Prepared, SessionId), NotBegun> {
    let config = &app.config.videoroom;
    if config.key.is_none() {
        return Err(NotBegun::Failed(Failure::NoKey));
    }
    fits_program(app, &body).map_err(NotBegun::Refused)?;
    let permit = app.permit(peer.requester(), Kind::Caller).map_err(NotBegun::Refused)?;
    let start = start_of(app, body, peer);
    let session_id = start.session_id.clone();
    let prepared = logging::for_client(
        start.log_client.clone(),
        prepare(config, asked, app.sessions.hang_ups().try_acquire()),
    );
    let mut prepared = prepared.await.map_err(NotBegun::Failed)?;
    // The provider took its time; dropped, the room is taken back.
    app.check_open().map_err(NotBegun::Refused)?;
    prepared.keep();
    room::begin(app.sessions.clone(), permit, start, prepared.for_bot());
    Ok((prepared, session_id))
}

/// A program that cannot be given its arguments would leave a room empty.
fn fits_program(app: &RunnerApp, body: &Value) -> Result<(), HttpError> {
    let fits = app.config.command.is_none() || body.to_string().len() <= PROCESS_BODY_BYTES_MAX;
    fits.then_some(()).ok_or(HttpError::TooMuchForProgram)
}

fn start_of(app: &RunnerApp, body: Value, peer: PeerInfo) -> SessionStart {
    SessionStart {
        session_id: new_session_id(),
        body,
        log_client: log_client(app, peer),
        lease: None,
    }
}
