//! Daily rooms over HTTP: `/start`, the redirect and the dial-in webhook.
//!
//! In: authorized requests. Out: replies. The permit of a session is taken before Daily is asked,
//! so that no room is created without a bot for it. The bot starts before the reply is sent.
//! Source: `docs/spec/daily.md` 3, 4 and 6.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::bot::{self, SessionId};
use crate::config::Transport;
use crate::features::Feature;
use crate::io::bots::SessionBot;
use crate::io::daily::{PreparedRoom, prepare_room};
use crate::io::daily::{banner, direct, doctor};
use crate::io::http::app::{RunnerApp, check_program_body, methods, new_session_id};
use crate::io::http::body::{AcceptedBody, read};
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::http::refusal_log::log_client;
use crate::io::http::requested_call::{CallFacts, RequestedCall};
use crate::io::module::{DoctorCheck, Module, RouteRequest, StartRequest};
use crate::io::room;
use crate::io::running::RunningModule;
use crate::io::sessions::SessionStart;
use crate::limits::DIALIN_HEADERS_BYTES_MAX;
use crate::logging;
use crate::proto::bots::{BotChoice, QUERY as BOT};
use crate::proto::daily::recent_calls::RecentCalls;
use crate::proto::daily::{DailyError, RoomPurpose, RoomRequest, dialin, endpoints, reply};
use crate::proto::http::route::{Query, Route, RouteError};
use crate::proto::http::{route, start};
use crate::proto::server::admission::PendingKind;
use edge_runner_http::common::{PeerInfo, Reply, json_reply, lock, unix_time_s};

pub const MODULE: Option<&Module> = Some(
    &Module {
        run: Some(|_| Ok(Some(Arc::new(DialInCalls::default())))),
        answer: Some(|request| Box::pin(answer(request))),
        start: Some(|request| Box::pin(begin_session(request))),
        run_alone: Some(|config, bot, announce| Box::pin(direct::run(config, bot, announce))),
        banner: Some(banner::rows),
        hosts: Some(doctor::hosts),
        ..Module::new(Feature::Videoroom)
    }
    .with_checks(&[DoctorCheck {
        what: "rooms",
        examine: |config| Box::pin(doctor::examine(config)),
    }]),
);

/// Dial-in calls that have a bot.
#[derive(Default)]
struct DialInCalls(Mutex<RecentCalls>);

impl RunningModule for DialInCalls {}

async fn answer(request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    let RouteRequest {
        app,
        head,
        body,
        peer,
        call,
        ..
    } = request;
    match request.route {
        Route::Module(&endpoints::ROOM) => redirect(app, head, (peer, call)).await,
        Route::Module(&endpoints::DIALIN) => handle_dialin(app, head, body, (peer, call)).await,
        _ => Err(HttpError::Route(RouteError::NotFound)),
    }
}

async fn begin_session(request: StartRequest<'_>) -> Result<Vec<u8>, HttpError> {
    let bot = request.choose_bot()?;
    let StartRequest {
        app, plan, peer, call, ..
    } = request;
    let room = plan.fields.rooms.room(&app.config.videoroom);
    start(app, room, (bot, plan.body), (peer, call)).await
}

/// Prepares a room and starts the bot. Returns the JSON of the reply.
async fn start(
    app: &RunnerApp,
    wanted: Option<&RoomRequest>,
    (mut bot, body): (SessionBot, Value),
    (peer, call): (PeerInfo, &RequestedCall),
) -> Result<Vec<u8>, HttpError> {
    let Some(wanted) = wanted else {
        check_program_body(&bot, &body)?;
        let permit = app.permit(peer.requester(), PendingKind::Caller)?;
        bot.take_place().map_err(HttpError::Offer)?;
        let start = session_start(app, bot, body, peer);
        let session_id = start.session_id.clone();
        room::begin(app.sessions.clone(), permit, start, bot::Kind::Base, None);
        return Ok(reply::roomless_reply(&session_id));
    };
    let (PreparedRoom { room, token, .. }, session_id) =
        begin(app, RoomPurpose::Client(wanted), (bot, body), (peer, None))
            .await
            .map_err(|refused| refused.into(call, no_room))?;
    Ok(reply::start_reply(app.config.start_names, &room, &token, &session_id))
}

/// Prepares a room, starts the bot, and redirects the browser to the room.
async fn redirect(app: &RunnerApp, head: &Parts, (peer, call): (PeerInfo, &RequestedCall)) -> Result<Reply, HttpError> {
    let mut answer = Reply::default();
    // A repeated visit needs a new room.
    let no_store = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(header::CACHE_CONTROL, no_store);
    if let Some(only) = app.config.transport.filter(|only| *only != Transport::Videoroom) {
        let detail = format!("no video rooms here: this runner serves {} alone", only.name());
        return Err(ModuleRefusal::new(StatusCode::NOT_FOUND, detail).into());
    }
    if head.method == Method::HEAD {
        return Ok(answer);
    }
    let named = Query::new(head.uri.query().unwrap_or_default()).value(BOT);
    let bot = app.choose(BotChoice::named(named.as_deref()), peer)?;
    let (PreparedRoom { room, token, .. }, _) = begin(
        app,
        RoomPurpose::Client(&RoomRequest::default()),
        (bot, json!({})),
        (peer, None),
    )
    .await
    .map_err(|refused| refused.into(call, no_room))?;
    *answer.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let location = HeaderValue::try_from(reply::join_url(&room, &token)).expect("a URL was read as fit for a header");
    answer.headers_mut().insert(header::LOCATION, location);
    Ok(answer)
}

/// Prepares a room for a held call, and starts the bot that connects it.
async fn handle_dialin(
    app: &RunnerApp,
    head: &Parts,
    body: Incoming,
    (peer, requested): (PeerInfo, &RequestedCall),
) -> Result<Reply, HttpError> {
    let config = &app.config.videoroom;
    if !config.dialin {
        return Err(HttpError::Route(route::RouteError::NotFound));
    }
    match head.method {
        Method::POST => {}
        Method::OPTIONS => return Ok(methods(route::POST_METHODS)),
        _ => return Err(HttpError::Route(route::RouteError::Method(route::POST_METHODS))),
    }
    let body = read(app.conn_limits, &head.headers, AcceptedBody::Anything, body).await?;
    let map = dialin::parse_object(&body).map_err(|invalid| ModuleRefusal::new(StatusCode::BAD_REQUEST, invalid))?;
    if dialin::is_test(&map) {
        return Ok(json_reply(StatusCode::OK, r#"{"status":"OK"}"#));
    }
    if let Some(key) = &config.dialin_hmac {
        let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        dialin::verify(key.expose(), &text, &body, unix_time_s()).map_err(|wrong| ModuleRefusal {
            detail: "invalid signature".to_owned(),
            ..ModuleRefusal::logged(StatusCode::FORBIDDEN, wrong)
        })?;
    }
    let peer = PeerInfo {
        is_authorised: peer.is_authorised || config.dialin_hmac.is_some(),
        ..peer
    };
    let call = dialin::parse_call(map).map_err(|invalid| ModuleRefusal::new(StatusCode::BAD_REQUEST, invalid))?;
    let numbers = json!({"from": call.from, "to": call.to});
    requested.set(CallFacts {
        id: Some(call.record_id()),
        transport: Some(Transport::Videoroom),
        call_data: numbers.clone(),
        ..CallFacts::default()
    });
    app.check_open()?;
    if call.headers_left_out {
        log_client(app, peer).attribute(|| {
            log::warn!("the SIP headers of a call are left out: they have more than {DIALIN_HEADERS_BYTES_MAX} bytes");
        });
    }
    let choice = BotChoice {
        dialled: [Some(&call.to), None],
        ..BotChoice::default()
    };
    let bot = app.choose(choice, peer)?;
    bot.check_caller(Some(&call.from)).map_err(HttpError::Offer)?;
    let calls = &app.module::<DialInCalls>(Feature::Videoroom)?.0;
    let entry = DialInEntry::insert(calls, &call.call_id);
    let mut entry = entry.ok_or_else(|| ModuleRefusal::new(StatusCode::CONFLICT, "this call has a bot already"))?;
    let body = call.bot_body(config);
    let purpose = RoomPurpose::Call { from: &call.from };
    let begun = begin(app, purpose, (bot, body), (peer, Some(numbers))).await;
    let (PreparedRoom { room, token, .. }, session_id) =
        begun.map_err(|refused| refused.into(requested, no_room_for_call))?;
    entry.has_bot = true;
    let answer = reply::start_reply(app.config.start_names, &room, &token, &session_id);
    Ok(json_reply(StatusCode::OK, answer))
}

/// A dial-in call that is to have a bot. One that gets none is forgotten, so that its provider may
/// repeat it: also where that closes the connection, which ends the request.
struct DialInEntry<'c> {
    calls: &'c Mutex<RecentCalls>,
    call_id: &'c str,
    has_bot: bool,
}

impl<'c> DialInEntry<'c> {
    /// Remembers a call. Returns `None` if it is known.
    fn insert(calls: &'c Mutex<RecentCalls>, call_id: &'c str) -> Option<Self> {
        lock(calls).insert(call_id, Instant::now()).then(|| DialInEntry {
            calls,
            call_id,
            has_bot: false,
        })
    }
}

impl Drop for DialInEntry<'_> {
    fn drop(&mut self) {
        if !self.has_bot {
            lock(self.calls).remove(self.call_id);
        }
    }
}

/// Why no bot was started.
enum StartError {
    Refused(HttpError),
    Failed(DailyError),
}

impl StartError {
    /// Returns the answer, and notes a failure of the provider for the record of the call.
    fn into(self, call: &RequestedCall, failed: impl FnOnce(DailyError) -> HttpError) -> HttpError {
        match self {
            StartError::Refused(refusal) => refusal,
            // Without a key there is no provider.
            StartError::Failed(DailyError::NoKey) => failed(DailyError::NoKey),
            StartError::Failed(failure) => {
                call.handle_provider_error(failure.to_string());
                failed(failure)
            }
        }
    }
}

/// The room or its token could not be made.
fn no_room(failure: DailyError) -> HttpError {
    ModuleRefusal::logged(StatusCode::INTERNAL_SERVER_ERROR, failure).into()
}

/// The room of a dial-in call could not be made.
fn no_room_for_call(failure: DailyError) -> HttpError {
    ModuleRefusal {
        detail: format!("Failed to create room: {failure}"),
        ..ModuleRefusal::logged(StatusCode::INTERNAL_SERVER_ERROR, failure)
    }
    .into()
}

/// Takes a permit, prepares a room and starts the bot. `call_data` has the numbers of a dial-in
/// call.
async fn begin(
    app: &RunnerApp,
    purpose: RoomPurpose<'_>,
    (mut bot, body): (SessionBot, Value),
    (peer, call_data): (PeerInfo, Option<Value>),
) -> Result<(PreparedRoom, SessionId), StartError> {
    let config = &app.config.videoroom;
    if config.key.is_none() {
        return Err(StartError::Failed(DailyError::NoKey));
    }
    if !bot.row().config.bot_enters_rooms {
        let error = start::StartRequestError::BotCannotJoin(Transport::Videoroom);
        return Err(StartError::Refused(HttpError::Start(error)));
    }
    check_program_body(&bot, &body).map_err(StartError::Refused)?;
    let permit = app
        .permit(peer.requester(), PendingKind::Caller)
        .map_err(StartError::Refused)?;
    bot.take_place()
        .map_err(|full| StartError::Refused(HttpError::Offer(full)))?;
    let start = session_start(app, bot, body, peer);
    let session_id = start.session_id.clone();
    let prepared = logging::for_client(
        start.log_client.clone(),
        prepare_room(config, purpose, app.sessions.hang_ups().try_acquire()),
    );
    let mut prepared = prepared.await.map_err(StartError::Failed)?;
    // The runner may have closed meanwhile. Dropping `prepared` deletes the room.
    app.check_open().map_err(StartError::Refused)?;
    prepared.keep();
    room::begin(app.sessions.clone(), permit, start, prepared.for_bot(), call_data);
    Ok((prepared, session_id))
}

fn session_start(app: &RunnerApp, bot: SessionBot, body: Value, peer: PeerInfo) -> SessionStart {
    SessionStart {
        session_id: new_session_id(),
        body,
        bot,
        log_client: log_client(app, peer),
        lease: None,
    }
}
