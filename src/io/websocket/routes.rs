//! WebSocket upgrades.
//!
//! In: the request, and the token in its path. Out: the response to the upgrade, and the session
//! that the connection becomes. Rejects: requests without an upgrade, missing or invalid tokens,
//! and unknown session ids.

use std::future::ready;

use hyper::header;
use hyper::http::request::Parts;
use hyper::{Request, Response};
use serde_json::json;
use tokio_tungstenite::tungstenite::handshake::server::create_response;

use crate::features::Feature;
use crate::io::http::app::{RunnerApp, mint_token, new_session_id, register};
use crate::io::http::error::HttpError;
use crate::io::http::lease::{RegistrationLease, requester, session_start};
use crate::io::http::refusal_log::log_client;
use crate::io::module::{Module, RouteRequest, StartRequest};
use crate::io::sessions::SessionStart;
use crate::io::tasks::request_time;
use crate::io::websocket::dialled::DialledSession;
use crate::io::websocket::{SocketEndpoint, SocketStart, upgrade};
use crate::proto::bots::{BotChoice, QUERY as BOT};
use crate::proto::http::route::{self, Route, RouteError};
use crate::proto::http::started::IdUse;
use crate::proto::http::token::{self, Issuer, SocketKind, VerifiedToken};
use crate::proto::server::admission::{PendingKind, Requester};
use crate::proto::server::key;
use crate::proto::sockets::{eval, start};
use crate::proto::telephony::Provider;
use crate::proto::telephony::proof::Proof;
use edge_runner_http::common::{Reply, ResponseBody, lock};

/// Plain clients. Telephone calls use the rest of this file.
pub const CLIENTS: Option<&Module> = match Feature::WebSocket.in_this_build() {
    true => Some(&MODULE),
    false => None,
};

const MODULE: Module = Module {
    answer: Some(|request| Box::pin(answer(request))),
    start: Some(|request| Box::pin(ready(begin_session(request)))),
    ..Module::new(Feature::WebSocket)
};

async fn answer(request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    match &request.route {
        Route::Socket(SocketKind::Client, _) => socket(request, None),
        _ => Err(HttpError::Route(RouteError::NotFound)),
    }
}

/// Registers the body for the client, with which the bot starts. Returns the JSON of the reply.
fn begin_session(request: StartRequest<'_>) -> Result<Vec<u8>, HttpError> {
    let StartRequest {
        app,
        plan,
        bot,
        base,
        peer,
        ..
    } = request;
    let id = register(app, bot, &plan.body, peer)?;
    let url = start::socket_url(&app.config, base, SocketKind::Client, None);
    let token = mint_token(app, SocketKind::Client, Some(&id), peer.is_authorised);
    Ok(start::reply(&url, Some(&id), token.as_deref()))
}

/// What the sockets of telephony providers have beside those of plain clients.
pub struct CallHooks {
    /// Returns the provider that signed the upgrade, if one did.
    pub verify: fn(&RunnerApp, &Parts) -> Result<Option<&'static Provider>, HttpError>,
    /// Returns the session of a call that the runner dialled.
    pub dialled: fn(&RunnerApp, &SocketEndpoint) -> Option<DialledSession>,
}

/// Answers an upgrade, and fills the upgrade slot of the connection.
///
/// # Errors
/// [`HttpError`] for a request that is no upgrade, an invalid token, an unknown session or bot, and
/// while there is no place.
pub fn socket(request: RouteRequest<'_>, hooks: Option<&CallHooks>) -> Result<Reply, HttpError> {
    let RouteRequest {
        app,
        head,
        peer,
        upgrade_slot,
        route: Route::Socket(family, in_path),
        ..
    } = request
    else {
        return Err(HttpError::Route(RouteError::NotFound));
    };
    let switching = switching(head)?;
    let signed = match hooks {
        Some(hooks) => (hooks.verify)(app, head)?,
        None => None,
    };
    let query = route::Query::new(head.uri.query().unwrap_or_default());
    let token = in_path.or_else(|| bearer(head)).or_else(|| query.value("token"));
    // Checks come first, then the permit; the token is consumed last. The tokens stay locked until
    // then, so that two requests cannot both use one token.
    let mut tokens = lock(&app.tokens);
    let verified = token.map(|token| tokens.verify(&token, family, request_time()));
    let token = good_token(verified, app.config.ws_tokens)?;
    let named = match (family, &token) {
        (SocketKind::Client, None) => query.value("sessionId"),
        // The id in a token names a session only if `/start` registered one.
        (SocketKind::Client, Some(token)) => {
            let id = &token.claims().id;
            lock(&app.table).contains(id, request_time()).then(|| id.clone())
        }
        // A call's data comes from its provider.
        _ => None,
    };
    let lease = match named {
        Some(id) => Some(RegistrationLease::claim(&app.table, &id, IdUse::Connect, peer).map_err(HttpError::Unknown)?),
        None => None,
    };
    let named = query.value(BOT);
    let choice = BotChoice {
        name: lease.as_ref().and_then(RegistrationLease::bot).or(named.as_deref()),
        body: lease.as_ref().map(RegistrationLease::body),
        ..BotChoice::default()
    };
    let bot = app.choose(choice, peer)?;
    let issuer = token.as_ref().map(|token| token.claims().issuer);
    let requester = requester(peer, lease.as_ref());
    let requester = Requester {
        is_authorised: requester.is_authorised
            || signed.is_some()
            || issuer.is_some_and(|issuer| issuer != Issuer::Anyone),
        ..requester
    };
    let may_be_eval = eval::is_announced(|flag| query.value(flag).is_some());
    let endpoint = endpoint(family, token.as_ref(), signed, named.is_some(), may_be_eval);
    let client = log_client(app, peer).or_authorised(requester.is_authorised);
    app.check_open()?;
    let admission = app.sessions.admission();
    let permit = admission.newcomer(|admission| match endpoint {
        SocketEndpoint::Client => admission.session(requester, PendingKind::Silent),
        SocketEndpoint::Call { .. } => admission.handshake(requester),
    });
    let permit = permit.map_err(HttpError::Offer)?;
    let dialled = hooks.and_then(|hooks| (hooks.dialled)(app, &endpoint));
    let mut start = match endpoint {
        SocketEndpoint::Client => {
            let start = session_start(lease, bot, client, |registered| registered.unwrap_or_else(|| json!({})));
            start().map_err(HttpError::Offer)?
        }
        // Its bot has a place once the call is known.
        SocketEndpoint::Call { .. } => SessionStart {
            session_id: new_session_id(),
            body: json!({}),
            bot,
            log_client: client,
            lease: None,
        },
    };
    if let Some(token) = token {
        token.redeem();
    }
    if let Some(dialled) = &dialled {
        start.session_id = dialled.id().clone();
    }
    let start = SocketStart {
        start,
        dialled,
        tokens: app.tokens.clone(),
    };
    let upgrade = upgrade(app.sessions.clone(), endpoint, start, permit);
    *lock(upgrade_slot) = Some(upgrade);
    Ok(switching.map(|()| ResponseBody::default()))
}

/// Makes the response that accepts an upgrade.
fn switching(head: &Parts) -> Result<Response<()>, HttpError> {
    let mut request = Request::new(());
    *request.method_mut() = head.method.clone();
    *request.version_mut() = head.version;
    *request.headers_mut() = head.headers.clone();
    create_response(&request).map_err(|_| HttpError::UpgradeRequired)
}

/// Returns the bearer token of the header `Authorization`.
fn bearer(head: &Parts) -> Option<String> {
    let authorization = head.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    String::from_utf8(key::bearer(authorization.as_bytes())?.to_vec()).ok()
}

/// Returns a valid token; rejects an invalid one, and a missing one where it is required.
fn good_token<'t>(
    verified: Option<Result<VerifiedToken<'t>, token::TokenError>>,
    is_needed: bool,
) -> Result<Option<VerifiedToken<'t>>, HttpError> {
    match verified {
        Some(Ok(token)) => Ok(Some(token)),
        None if is_needed => Err(HttpError::TokenRequired),
        // Where tokens are not required, foreign ones are ignored.
        None => Ok(None),
        Some(Err(token::TokenError::Unrecognized)) if !is_needed => Ok(None),
        Some(Err(refusal)) => Err(HttpError::Token(refusal)),
    }
}

/// Returns the endpoint, and for a call the proof of its provider.
fn endpoint(
    family: SocketKind,
    token: Option<&VerifiedToken<'_>>,
    signed: Option<&'static Provider>,
    names_bot: bool,
    may_be_eval: bool,
) -> SocketEndpoint {
    let proof = match token.map(VerifiedToken::claims) {
        _ if family == SocketKind::Client => return SocketEndpoint::Client,
        Some(claims) if claims.issuer == Issuer::Webhook => Proof::Webhook(claims.id.clone()),
        Some(claims) if claims.issuer == Issuer::ApiKey => Proof::ApiKey,
        _ => signed.map_or(Proof::Missing, Proof::Signature),
    };
    SocketEndpoint::Call {
        proof,
        names_bot,
        may_be_eval,
    }
}
