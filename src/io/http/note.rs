//! What the log says of refused requests: a DEBUG line each, and one at the default level for a refused offer, a client's
//! bug or a forged webhook.
//!
//! In: the refusal and the request's head. Out: lines, which count as the caller's. Paths lose their tokens, bodies their
//! secrets, and both the configured key.

use std::borrow::Cow;

use hyper::http::request::Parts;
use log::{Level, debug, log, warn};

use super::{App, PeerInfo, Refusal};
use crate::logging::LogClient;
use crate::proto::http::route;
use crate::proto::server::body;
use crate::proto::webrtc::offer::OfferError;

/// Logs a refusal, and counts it. `takes_offer` says whether the request brings an offer.
pub(super) fn log_refusal(app: &App, refusal: &Refusal, head: &Parts, takes_offer: bool, peer: PeerInfo) {
    if let Refusal::Offer(why) = refusal {
        app.sessions.metrics().offer_refused(why);
    }
    let path = without_key(app, route::for_log(head.uri.path()));
    let (method, status) = (&head.method, refusal.status().as_u16());
    let caller = caller(app, peer);
    match refusal {
        Refusal::Signature(wrong) => caller.charge(|| warn!("{status} {method} {path}: {wrong}")),
        Refusal::Caller(wrong) => caller.charge(|| warn!("{status} {method} {path}: {wrong}")),
        Refusal::Messaging(wrong) => caller.charge(|| warn!("{status} {method} {path}: {wrong}")),
        Refusal::NotVerified(_) => caller.charge(|| {
            warn!(
                "{status} {method} {path}: the check of the webhook does not have MESSAGING_WEBHOOK_VERIFICATION_TOKEN"
            );
        }),
        Refusal::Webhook(refusal) => caller.charge(|| warn!("{status} {method} {path}: {refusal}")),
        Refusal::Videoroom(failure) | Refusal::CallRoom(failure) => {
            caller.charge(|| warn!("{status} {method} {path}: {failure}"));
        }
        Refusal::Invalid { invalid, body } if caller.may_log_body() => {
            let body = String::from_utf8_lossy(body);
            let body = body::for_log(without_key(app, &body).as_bytes());
            caller.charge(|| warn!("{status} {method} {path}: {invalid}; body: {body}"));
        }
        _ if takes_offer => {
            let detail = refusal.to_string();
            let detail = without_key(app, &detail);
            caller.charge(|| log!(level(refusal), "{status} {method} {path}: {detail}"));
        }
        _ => {}
    }
    debug!("{peer} {method} {path}: {status} {refusal}");
}

/// Returns the level at which a refused offer is told. A caller whose bot has hung up asks for a
/// connection that is gone, and a runner that stops refuses everybody: both are daily life.
fn level(refusal: &Refusal) -> Level {
    match refusal {
        Refusal::Offer(OfferError::UnknownConnection | OfferError::Stopping) => Level::Info,
        _ => Level::Warn,
    }
}

/// Returns whose doing the lines are that a request leads to.
pub(super) fn caller(app: &App, peer: PeerInfo) -> LogClient {
    LogClient::new(app.lines.clone(), peer.source)
}

/// Takes the configured key out of what a client wrote, wherever it put it.
fn without_key<'t>(app: &App, text: &'t str) -> Cow<'t, str> {
    match &app.config.api_key {
        Some(key) if text.contains(key.expose()) => text.replace(key.expose(), "***").into(),
        _ => text.into(),
    }
}
