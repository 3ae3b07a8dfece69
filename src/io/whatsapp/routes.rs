//! The WhatsApp webhook: the challenge of its address, and call events.
//!
//! In: authorized requests. Out: the challenge, or success at once whatever happens to the calls,
//! since the provider repeats everything that is not answered 200. Unsigned bodies are rejected
//! before parsing. Without `--messaging` the path is not found. Source: `docs/spec/whatsapp.md` 2
//! and 6.2.

use std::sync::Arc;

use hyper::Method;
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use serde_json::Value;

use crate::config::{Config, Messaging};
use crate::features::Feature;
use crate::io::http::app::{RunnerApp, methods, new_session_id};
use crate::io::http::body::{AcceptedBody, read};
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::http::refusal_log::log_client;
use crate::io::module::{BannerRow, DoctorCheck, Module, RouteRequest};
use crate::io::running::RunningModule;
use crate::io::sessions::SessionStart;
use crate::io::webrtc::WebRtc;
use crate::io::whatsapp::doctor;
use crate::io::whatsapp::{WhatsAppCalls, handle_events};
use crate::proto::bots::{BotChoice, UnknownBot};
use crate::proto::http::route::{self, Query, Route, RouteError};
use crate::proto::refusal::SessionRefusal;
use crate::proto::whatsapp::signature::{self, WebhookSignatureError};
use crate::proto::whatsapp::{endpoints, webhook};
use edge_runner_http::common::{PeerInfo, Reply, json_reply, whole};

pub const MODULE: Option<&Module> = Some(
    &Module {
        run: Some(|_| Ok(Some(Arc::new(WhatsAppCalls::default())))),
        answer: Some(|request| Box::pin(answer(request))),
        banner: Some(|config, _| banner_rows(config)),
        hosts: Some(doctor::hosts),
        ..Module::new(Feature::Messaging)
    }
    .with_checks(&[DoctorCheck {
        what: "messaging",
        examine: |config| Box::pin(doctor::examine(config)),
    }]),
);

impl RunningModule for WhatsAppCalls {}

/// Returns the webhook to enter at the provider.
fn banner_rows(config: &Config) -> Vec<BannerRow> {
    let host = config.proxy.as_deref().unwrap_or("PUBLIC-HOST");
    let webhook = || ("WhatsApp", format!("https://{host}/messaging"));
    config.messaging.iter().map(|_| webhook()).collect()
}

async fn answer(request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    match request.route {
        Route::Module(&endpoints::WEBHOOK) => {
            handle_webhook(request.app, request.head, request.body, request.peer).await
        }
        _ => Err(HttpError::Route(RouteError::NotFound)),
    }
}

/// Answers the provider.
async fn handle_webhook(app: &RunnerApp, head: &Parts, body: Incoming, peer: PeerInfo) -> Result<Reply, HttpError> {
    let Some(config) = &app.config.messaging else {
        return Err(HttpError::Route(route::RouteError::NotFound));
    };
    match head.method {
        Method::GET | Method::HEAD => challenge(config, head),
        Method::POST => {
            let body = read(app.conn_limits, &head.headers, AcceptedBody::Anything, body).await?;
            signature::verify(&config.app_secret, signature_of(&head.headers)?, &body).map_err(unsigned)?;
            let events = webhook::parse(&body, &config.phone_number_id)
                .map_err(|invalid| ModuleRefusal::logged(StatusCode::BAD_REQUEST, invalid))?;
            // The signature authorizes the provider, whatever its address.
            let requester = PeerInfo {
                is_authorised: true,
                ..peer
            };
            let start = |body: Value| -> Result<SessionStart, SessionRefusal> {
                let text = |name: &str| body.get(name).and_then(Value::as_str);
                let choice = BotChoice {
                    dialled: [text("to"), text("phone_number_id")],
                    ..BotChoice::default()
                };
                let bots = app.sessions.bots();
                let mut bot = bots.choose(choice).unwrap_or_else(|UnknownBot| bots.default());
                bot.check_caller(text("from"))?;
                bot.take_place()?;
                Ok(SessionStart {
                    session_id: new_session_id(),
                    body,
                    bot,
                    log_client: log_client(app, requester),
                    lease: None,
                })
            };
            let engine = app.module::<WebRtc>(Feature::WebRtc)?;
            let calls = app.module::<WhatsAppCalls>(Feature::Messaging)?;
            handle_events(engine, calls, events, requester.requester(), &start);
            Ok(json_reply(StatusCode::OK, r#"{"status":"success"}"#))
        }
        Method::OPTIONS => Ok(methods(route::WEBHOOK_METHODS)),
        _ => Err(HttpError::Route(route::RouteError::Method(route::WEBHOOK_METHODS))),
    }
}

/// Returns the signature. With two of them, one would not be checked.
fn signature_of(headers: &HeaderMap) -> Result<Option<&[u8]>, HttpError> {
    let mut values = headers.get_all(signature::HEADER).iter();
    match (values.next(), values.next()) {
        (first, None) => Ok(first.map(HeaderValue::as_bytes)),
        (_, Some(_)) => Err(unsigned(WebhookSignatureError::Malformed)),
    }
}

/// Echoes the challenge as plain text, which no browser renders as a page.
fn challenge(config: &Messaging, head: &Parts) -> Result<Reply, HttpError> {
    let query = Query::new(head.uri.query().unwrap_or_default());
    let challenge = signature::challenge(&config.verification_token, query).map_err(|wrong| ModuleRefusal {
        warning: Some("the check of the webhook does not have MESSAGING_WEBHOOK_VERIFICATION_TOKEN".to_owned()),
        ..ModuleRefusal::new(StatusCode::FORBIDDEN, wrong)
    })?;
    log::info!("WhatsApp has verified the address of the webhook");
    let mut reply = Reply::new(whole(challenge));
    let headers = reply.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    Ok(reply)
}

/// Rejects a body that the app has not signed.
fn unsigned(wrong: WebhookSignatureError) -> HttpError {
    ModuleRefusal {
        detail: "invalid signature".to_owned(),
        ..ModuleRefusal::logged(StatusCode::UNAUTHORIZED, wrong)
    }
    .into()
}
