//! Calls of telephony providers: webhooks, sockets, and calls that the runner dials.
//!
//! In: requests of providers and of operators. Out: the response, and for a socket the session that
//! the connection becomes.

use std::future::ready;

use super::dialled::DialledSession;
use super::routes::{CallHooks, socket};
use super::{SocketEndpoint, banner, dial, doctor, webhook};
use crate::features::Feature;
use crate::io::http::app::{RunnerApp, issue_token};
use crate::io::http::error::HttpError;
use crate::io::module::{DoctorCheck, Module, RouteRequest, StartRequest};
use crate::proto::http::route::{Route, RouteError};
use crate::proto::http::token::SocketKind;
use crate::proto::sockets::start;
use crate::proto::telephony::PROVIDERS;
use crate::proto::telephony::proof::{self, Proof};
use edge_runner_http::common::Reply;

/// The row of `io::modules`.
pub const MODULE: Option<&Module> = Some(
    &Module {
        run: Some(dial::run),
        answer: Some(|request| Box::pin(answer(request))),
        start: Some(|request| Box::pin(ready(Ok(begin_session(&request))))),
        answer_page: Some(webhook::answer_get),
        banner: Some(banner::rows),
        hosts: Some(doctor::hosts),
        ..Module::new(Feature::Telephony)
    }
    .with_checks(&[DoctorCheck {
        what: "telephony",
        examine: |config| Box::pin(doctor::examine(config)),
    }]),
);

const HOOKS: CallHooks = CallHooks {
    verify: webhook::verify_upgrade,
    dialled,
};

async fn answer(request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    match &request.route {
        Route::Webhook => {
            let caller = (request.peer, request.call);
            webhook::webhook(request.app, request.head, request.body, caller).await
        }
        Route::Dial => dial::answer(request.app, request.head, request.peer, request.body).await,
        Route::Socket(SocketKind::Call, _) => socket(request, Some(&HOOKS)),
        _ => Err(HttpError::Route(RouteError::NotFound)),
    }
}

/// Returns the JSON of the reply. Nothing is registered, since a call's data comes from its
/// provider. A client with the API key also gets a token for calls that would otherwise need proof.
fn begin_session(request: &StartRequest<'_>) -> Vec<u8> {
    let (app, is_authorised) = (request.app, request.peer.is_authorised);
    let url = start::socket_url(&app.config, request.base, SocketKind::Call, request.bot);
    let proves = is_authorised && proof::protects_any(&PROVIDERS, &app.config.telephony);
    let token = (app.config.ws_tokens || proves).then(|| issue_token(app, SocketKind::Call, None, is_authorised));
    start::reply(&url, None, token.as_deref())
}

fn dialled(app: &RunnerApp, endpoint: &SocketEndpoint) -> Option<DialledSession> {
    match endpoint {
        SocketEndpoint::Call {
            proof: Proof::Webhook(key),
            ..
        } => DialledSession::claim(&app.modules.get::<dial::DialOut>()?.calls, key),
        _ => None,
    }
}
