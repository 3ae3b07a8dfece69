//! The offer endpoint: offers and trickled candidates of WebRTC clients.
//!
//! In: JSON bodies. Out: JSON answers. `proto::webrtc::offer` parses the bodies; `io::webrtc` makes
//! the connection and its session.

use std::time::Instant;

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use serde_json::json;

use crate::features::Feature;
use crate::io::http::app::RunnerApp;
use crate::io::http::body::{AcceptedBody, read};
use crate::io::http::error::HttpError;
use crate::io::http::lease::{RegistrationLease, requester, session_start};
use crate::io::http::refusal_log::log_client;
use crate::io::tasks::request_time;
use crate::io::webrtc::WebRtc;
use crate::logging;
use crate::proto::bots::{BotChoice, QUERY as BOT};
use crate::proto::http::registry;
use crate::proto::http::route::Query;
use crate::proto::http::started::IdUse;
use crate::proto::webrtc::offer::{CandidatesBody, OfferBody};
use edge_runner_http::common::{PeerInfo, Reply, json_reply, lock};

/// Answers an offer: for the session that `/start` registered, or for a new one.
pub async fn take_offer(
    app: &RunnerApp,
    session: Option<&str>,
    head: &Parts,
    body: Incoming,
    peer: PeerInfo,
) -> Result<Reply, HttpError> {
    let body = read(app.conn_limits, &head.headers, AcceptedBody::Offer, body).await?;
    let mut offer = OfferBody::parse(&body).map_err(|invalid| HttpError::Invalid { invalid, body })?;
    let id_use = match offer.restarts_elsewhere(app.sessions.replica()) {
        true => IdUse::Restart,
        false => IdUse::Connect,
    };
    let lease = match session {
        Some(id) => Some(RegistrationLease::claim(&app.table, id, id_use, peer).map_err(HttpError::Unknown)?),
        None => None,
    };
    // The bot gets the data of the offer, or else that of `/start`.
    let sent = offer.request_data.take();
    let named = Query::new(head.uri.query().unwrap_or_default()).value(BOT);
    let choice = BotChoice {
        name: lease.as_ref().and_then(RegistrationLease::bot).or(named.as_deref()),
        body: sent.as_ref().or(lease.as_ref().map(RegistrationLease::body)),
        ..BotChoice::default()
    };
    let bot = app.choose(choice, peer)?;
    let requester = requester(peer, lease.as_ref());
    let client = log_client(app, peer).or_authorised(requester.is_authorised);
    let begin = session_start(lease, bot, client.clone(), move |registered| {
        sent.or(registered).unwrap_or_else(|| json!({}))
    });
    let began = Instant::now();
    let answer = logging::for_client(
        client,
        app.module::<WebRtc>(Feature::WebRtc)?.offer(offer, requester, begin),
    )
    .await;
    let answer = answer.map_err(HttpError::Offer)?;
    app.sessions.metrics().offer_answered(began.elapsed());
    Ok(json_reply(StatusCode::OK, answer.to_json()))
}

/// Hands candidates to their connection.
pub async fn take_candidates(
    app: &RunnerApp,
    session: Option<&str>,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Reply, HttpError> {
    let body = read(app.conn_limits, headers, AcceptedBody::Json, body).await?;
    let candidates = CandidatesBody::parse(&body).map_err(|invalid| HttpError::Invalid { invalid, body })?;
    if let Some(id) = session
        && !lock(&app.table).contains(id, request_time())
    {
        return Err(HttpError::Unknown(registry::UnknownSession));
    }
    app.module::<WebRtc>(Feature::WebRtc)?
        .candidates(candidates)
        .await
        .map_err(HttpError::Offer)?;
    Ok(json_reply(StatusCode::OK, r#"{"status":"success"}"#))
}
