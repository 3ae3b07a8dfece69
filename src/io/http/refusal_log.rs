//! What the log says of refused requests: a DEBUG line each, and one at the default level for a refused offer, a client's
//! bug or a forged webhook.
//!
//! In: the refusal and the request's head. Out: lines, which count as the caller's. Paths lose their tokens, bodies their
//! secrets, and both the configured key.

use std::borrow::Cow;

use hyper::http::request::Parts;
use log::{Level, debug, log, warn};

use super::{HttpError, PeerInfo, RunnerApp};
use crate::logging::LogClient;
use crate::proto::http::route;
use crate::proto::server::body;
use crate::proto::webrtc::offer::OfferError;

/// Logs a refusal, and counts it. `takes_offer` says whether the request brings an offer.
pub(super) fn log_refusal(app: &RunnerApp, refusal: &HttpError, head: &Parts, takes_offer: bool, peer: PeerInfo) {
    if let HttpError::Offer(why) = refusal {
        app.sessions.metrics().offer_refused(why);
    }
    let path = without_key(app, route::path_for_log(head.uri.path()));
    let (method, status) = (&head.method, refusal.status().as_u16());
    let client = log_client(app, peer);
    match refusal {
        HttpError::Signature(wrong) => client.attribute(|| warn!("{status} {method} {path}: {wrong}")),
        HttpError::Caller(wrong) => client.attribute(|| warn!("{status} {method} {path}: {wrong}")),
        HttpError::Messaging(wrong) => client.attribute(|| warn!("{status} {method} {path}: {wrong}")),
        HttpError::NotVerified(_) => client.attribute(|| {
            warn!(
                "{status} {method} {path}: the check of the webhook does not have MESSAGING_WEBHOOK_VERIFICATION_TOKEN"
            );
        }),
        HttpError::Webhook(refusal) => client.attribute(|| warn!("{status} {method} {path}: {refusal}")),
        HttpError::Videoroom(failure) | HttpError::CallRoom(failure) => {
            client.attribute(|| warn!("{status} {method} {path}: {failure}"));
        }
        HttpError::Invalid { invalid, body } if client.may_log_body() => {
            let body = String::from_utf8_lossy(body);
            let body = body::for_log(without_key(app, &body).as_bytes());
            client.attribute(|| warn!("{status} {method} {path}: {invalid}; body: {body}"));
        }
        _ if takes_offer => {
            let detail = refusal.to_string();
            let detail = without_key(app, &detail);
            client.attribute(|| log!(level(refusal), "{status} {method} {path}: {detail}"));
        }
        _ => {}
    }
    debug!("{peer} {method} {path}: {status} {refusal}");
}

/// Returns the level at which a refused offer is told. A caller whose bot has hung up asks for a
/// connection that is gone, and a runner that stops refuses everybody: both are daily life.
fn level(refusal: &HttpError) -> Level {
    match refusal {
        HttpError::Offer(OfferError::UnknownConnection | OfferError::Stopping) => Level::Info,
        _ => Level::Warn,
    }
}

/// Returns whose doing the lines are that a request leads to.
pub(super) fn log_client(app: &RunnerApp, peer: PeerInfo) -> LogClient {
    LogClient::new(app.lines.clone(), peer.source)
}

/// Takes the configured key out of what a client wrote, wherever it put it.
fn without_key<'t>(app: &RunnerApp, text: &'t str) -> Cow<'t, str> {
    match &app.config.api_key {
        Some(key) if text.contains(key.expose()) => text.replace(key.expose(), "***").into(),
        _ => text.into(),
    }
}
