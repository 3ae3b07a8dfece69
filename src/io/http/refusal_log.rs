//! Logs rejected requests: a DEBUG line each, and a line at the default level for a missing or
//! wrong key or token, rejected offers, invalid bodies and forged webhooks.
//!
//! In: the error and the request's head. Out: lines attributed to the client. Tokens in paths,
//! secrets in bodies, and the configured key are removed.

use hyper::header::UPGRADE;
use hyper::http::request::Parts;
use log::{Level, debug, info, log, warn};

use super::app::RunnerApp;
use super::error::HttpError;
use crate::logging::LogClient;
use crate::proto::http::route;
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::body;
use edge_runner_http::common::PeerInfo;

/// Logs an error, and counts it. `takes_offer` says whether the endpoint takes offers.
pub fn log_refusal(app: &RunnerApp, refusal: &HttpError, head: &Parts, takes_offer: bool, peer: PeerInfo) {
    if let HttpError::Offer(why) = refusal {
        app.sessions.metrics().offer_refused(why);
    }
    let access = app.access.current();
    let path = access.without_key(route::path_for_log(head.uri.path()));
    let (method, status) = (&head.method, refusal.status().as_u16());
    let client = log_client(app, peer);
    match refusal {
        HttpError::Module(module) if module.warning.is_some() => {
            let warning = module.warning.as_deref().unwrap_or_default();
            client.attribute(|| warn!("{status} {method} {path}: {warning}"));
        }
        HttpError::Invalid { invalid, body } if client.may_log_body() => {
            let body = String::from_utf8_lossy(body);
            let body = body::redact_for_log(access.without_key(&body).as_bytes());
            client.attribute(|| warn!("{status} {method} {path}: {invalid}; body: {body}"));
        }
        HttpError::Route(route::RouteError::NotFound) if head.headers.contains_key(UPGRADE) => {
            client.attribute(|| {
                info!("{status} {method} {path}: WebSocket clients connect to /ws-client, telephones to /ws");
            });
        }
        HttpError::Key(_) | HttpError::TokenRequired | HttpError::Token(_) => {
            client.attribute(|| warn!("{status} {method} {path}: {refusal}"));
        }
        _ if takes_offer => {
            let detail = refusal.to_string();
            let detail = access.without_key(&detail);
            client.attribute(|| log!(level(refusal), "{status} {method} {path}: {detail}"));
        }
        _ => {}
    }
    debug!("{peer} {method} {path}: {status} {refusal}");
}

/// Returns the level for a rejected offer. A reconnect after the bot has hung up, and an offer to a
/// stopping runner, are routine.
fn level(refusal: &HttpError) -> Level {
    match refusal {
        HttpError::Offer(SessionRefusal::UnknownConnection | SessionRefusal::Stopping) => Level::Info,
        _ => Level::Warn,
    }
}

/// Returns the client to which the request's log lines are attributed.
pub fn log_client(app: &RunnerApp, peer: PeerInfo) -> LogClient {
    LogClient::new(app.log_limit.clone(), peer.source, peer.is_authorised)
}
