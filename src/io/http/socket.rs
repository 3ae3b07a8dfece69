//! Requests that become WebSockets.
//!
//! In: the request, and the token that its path carries. Out: the answer to the upgrade, and what the connection becomes.
//! Refuses: what asks for no upgrade, a socket without the token that it needs, and the name of no session.

use std::time::Instant;

use hyper::Request;
use hyper::header;
use hyper::http::request::Parts;
use serde_json::json;
use tokio_tungstenite::tungstenite::handshake::server::create_response;

use super::floor::{Becomes, Payload, Peer, Reply, lock};
use super::note::caller;
use super::webhook::verify_upgrade;
use super::{App, Engine, Lease, Refusal, fresh_id};
use crate::io::sessions::Start;
use crate::proto::route;
use crate::proto::token::Family;

/// Answers an upgrade, and says what the connection becomes.
pub(super) fn socket<E: Engine>(
    app: &App<E>,
    family: Family,
    in_path: Option<String>,
    head: &Parts,
    peer: Peer,
    becomes: &Becomes,
) -> Result<Reply, Refusal> {
    let mut request = Request::new(());
    *request.method_mut() = head.method.clone();
    *request.version_mut() = head.version;
    *request.headers_mut() = head.headers.clone();
    let switching = create_response(&request).map_err(|_| Refusal::NoUpgrade)?;
    if family == Family::Call {
        verify_upgrade(app, head)?;
    }
    let query = route::Query::new(head.uri.query().unwrap_or_default());
    let upgrade = app.engine.socket(family, peer.requester(), || {
        let mut named = query.value("sessionId");
        if let Some(tokens) = &app.tokens {
            let bearer = head
                .headers
                .get(header::AUTHORIZATION)
                .and_then(|value| value.to_str().ok());
            let token = in_path
                .or_else(|| bearer.and_then(route::bearer))
                .or_else(|| query.value("token"));
            let token = token.ok_or(Refusal::NoToken)?;
            let claims = lock(tokens)
                .take(&token, family, Instant::now())
                .map_err(Refusal::Token)?;
            // The name in a token is a session's only where `/start` registered one.
            named = Some(claims.id).filter(|id| lock(&app.table).contains(id, Instant::now()));
        }
        match named.filter(|_| family == Family::Client) {
            Some(id) => {
                let mut lease = Lease::claim(&app.table, &id).map_err(Refusal::Unknown)?;
                lease.used = true;
                Ok(Start {
                    session_id: lease.claim.session_id.clone(),
                    body: lease.claim.body.take(),
                    caller: caller(app, peer),
                    lease: Some(Box::new(lease)),
                })
            }
            None => Ok(Start {
                session_id: fresh_id(),
                body: json!({}),
                caller: caller(app, peer),
                lease: None,
            }),
        }
    })?;
    *lock(becomes) = Some(upgrade);
    Ok(switching.map(|()| Payload::default()))
}
