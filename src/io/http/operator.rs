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
use crate::proto::metrics::{MetricsDenied, check_access, is_forwarding};
use edge_runner_http::common::{PeerInfo, Reply, json_reply, whole};

/// The content type of Prometheus' text format.
pub(super) const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Checks whether a client may read the metrics.
fn check_metrics_access(app: &RunnerApp, headers: &HeaderMap, peer: PeerInfo) -> Result<(), HttpError> {
    let on_this_machine = peer.ip().to_canonical().is_loopback();
    // Most proxies add a header or pass the name that they were asked for. One that does neither,
    // as nginx without `proxy_set_header`, looks like a client of this machine.
    let named_otherwise = headers
        .get(header::HOST)
        .is_some_and(|host| !host::is_loopback(host.as_bytes()));
    let forwarded = named_otherwise || headers.keys().any(|name| is_forwarding(name.as_str()));
    check_access(app.config.metrics, on_this_machine, forwarded).map_err(HttpError::Metrics)
}

/// Checks whether a client, whose key was checked where there is one, may list and end sessions.
pub(crate) fn check_sessions_access(app: &RunnerApp, headers: &HeaderMap, peer: PeerInfo) -> Result<(), HttpError> {
    check_metrics_access(app, headers, peer)?;
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
    check_metrics_access(app, headers, peer)?;
    let mut reply = Reply::new(whole(metrics::text(&app.sessions, &app.modules)));
    let put = reply.headers_mut();
    put.insert(header::CONTENT_TYPE, METRICS_TYPE);
    put.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

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
