//! Calls of telephony providers: webhooks, sockets, and calls that the runner dials.
//!
//! In: requests of providers and of operators. Out: the response, and for a socket the session that
//! the connection becomes.

use super::dialled::DialledSession;
use super::routes::{CallHooks, socket};
use super::{SocketEndpoint, banner, dial, doctor, webhook};
use crate::features::Feature;
use crate::io::http::app::RunnerApp;
use crate::io::http::error::HttpError;
use crate::io::module::{DoctorCheck, Module, RouteRequest};
use crate::proto::http::route::{Route, RouteError};
use crate::proto::http::token::SocketKind;
use crate::proto::telephony::proof::Proof;
use edge_runner_http::common::Reply;

/// The row of `io::modules`.
pub const MODULE: Option<&Module> = Some(
    &Module {
        run: Some(dial::run),
        answer: Some(|request| Box::pin(answer(request))),
        check_page: Some(webhook::reject_get),
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

fn dialled(app: &RunnerApp, endpoint: &SocketEndpoint) -> Option<DialledSession> {
    match endpoint {
        SocketEndpoint::Call {
            proof: Proof::Webhook(key),
            ..
        } => DialledSession::claim(&app.modules.get::<dial::DialOut>()?.calls, key),
        _ => None,
    }
}
