//! The list of live sessions for the operator, and the end of one.
//!
//! In: requests that passed the API key and are not of a foreign page. Out: JSON. Both routes are
//! for those that may read the metrics, and need a key where other machines may.

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use serde_json::json;

use super::{HttpError, RunnerApp, check_sessions_access};
use crate::proto::http::registry;
use edge_runner_http::common::{PeerInfo, Reply, json_reply};

/// Answers with the live sessions.
pub(super) fn list(app: &RunnerApp, headers: &HeaderMap, peer: PeerInfo) -> Result<Reply, HttpError> {
    check_sessions_access(app, headers, peer)?;
    Ok(unstored(StatusCode::OK, app.sessions.describe()))
}

/// Ends a session.
pub(super) fn end(app: &RunnerApp, id: &str, headers: &HeaderMap, peer: PeerInfo) -> Result<Reply, HttpError> {
    check_sessions_access(app, headers, peer)?;
    match app.sessions.end(id) {
        true => {
            log::info!("the operator ends session {id}");
            Ok(unstored(StatusCode::ACCEPTED, json!({"ended": id}).to_string()))
        }
        false => Err(HttpError::Unknown(registry::UnknownSession)),
    }
}

fn unstored(status: StatusCode, body: String) -> Reply {
    let mut reply = json_reply(status, body);
    let no_store = HeaderValue::from_static("no-store");
    reply.headers_mut().insert(header::CACHE_CONTROL, no_store);
    reply
}
