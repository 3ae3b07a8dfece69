//! What the operator sees: the metrics, the list of live sessions, and the end of one.
//!
//! In: requests that passed the API key and are not of a foreign page. Out: the text of the
//! metrics, or JSON. The routes of sessions are for those that may read the metrics, and need a key
//! where other machines may.

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use serde_json::json;

use super::app::RunnerApp;
use super::error::HttpError;
use crate::config::MetricsAccess;
use crate::io::metrics;
use crate::proto::http::{host, registry};
use crate::proto::metrics::MetricsDenied;
use edge_runner_http::common::{PeerInfo, Reply, json_reply};
use edge_runner_http::metrics::{check_access, reply};

/// Checks whether a client, whose key was checked where there is one, may list and end sessions.
pub(crate) fn check_sessions_access(app: &RunnerApp, headers: &HeaderMap, peer: PeerInfo) -> Result<(), HttpError> {
    check_access(app.config.metrics, headers, peer).map_err(HttpError::Metrics)?;
    let config = &app.config;
    let is_public = |name: &String| !host::is_loopback(name.as_bytes());
    let is_proxied = config.proxy.as_ref().is_some_and(is_public) || !config.trusted_proxies.is_empty();
    let is_shared = matches!(config.metrics, MetricsAccess::Any | MetricsAccess::Key) || is_proxied;
    match is_shared && config.api_key.is_none() {
        true => Err(HttpError::Metrics(MetricsDenied::NoKey)),
        false => Ok(()),
    }
}

/// Answers with the metrics, if the client may read them.
pub(super) fn metrics_reply(app: &RunnerApp, headers: &HeaderMap, peer: PeerInfo) -> Result<Reply, HttpError> {
    check_access(app.config.metrics, headers, peer).map_err(HttpError::Metrics)?;
    Ok(reply(metrics::text(&app.sessions, &app.modules)))
}

/// Answers with the live sessions.
pub(super) fn list(app: &RunnerApp, headers: &HeaderMap, peer: PeerInfo) -> Result<Reply, HttpError> {
    check_sessions_access(app, headers, peer)?;
    Ok(unstored(StatusCode::OK, app.sessions.describe()))
}

/// Ends a session, or a call that is to become one.
pub(super) fn end(app: &RunnerApp, id: &str, headers: &HeaderMap, peer: PeerInfo) -> Result<Reply, HttpError> {
    check_sessions_access(app, headers, peer)?;
    if app.sessions.end(id) {
        log::info!("the operator ends session {id}");
    } else if app.modules.iter().any(|module| module.end_call(id)) {
        log::info!("the operator ends the call {id} before it is answered");
    } else {
        return Err(HttpError::Unknown(registry::UnknownSession));
    }
    Ok(unstored(StatusCode::ACCEPTED, json!({"ended": id}).to_string()))
}

fn unstored(status: StatusCode, body: String) -> Reply {
    let mut reply = json_reply(status, body);
    let no_store = HeaderValue::from_static("no-store");
    reply.headers_mut().insert(header::CACHE_CONTROL, no_store);
    reply
}
