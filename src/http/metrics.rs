//! `/metrics` over HTTP: who may read them, and the reply.
//!
//! In: headers and peer of a request, or the text. Out: a verdict of
//! [`edge_runner_proto::metrics`], or the reply.

use hyper::header::{self, HeaderMap, HeaderValue};

use crate::common::{PeerInfo, Reply, whole};
use edge_runner_proto::http::host;
use edge_runner_proto::metrics::{self, MetricsAccess, MetricsDenied, is_forwarding};

/// The content type of Prometheus' text format.
pub const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Checks whether a client may read the metrics. The caller has checked its key.
///
/// # Errors
/// [`MetricsDenied`] if it may not.
pub fn check_access(access: MetricsAccess, headers: &HeaderMap, peer: PeerInfo) -> Result<(), MetricsDenied> {
    let on_this_machine = peer.ip().to_canonical().is_loopback();
    // Most proxies add a header or pass the name that they were asked for. One that does neither,
    // as nginx without `proxy_set_header`, looks like a client of this machine.
    let named_otherwise = headers
        .get(header::HOST)
        .is_some_and(|host| !host::is_loopback(host.as_bytes()));
    let forwarded = named_otherwise || headers.keys().any(|name| is_forwarding(name.as_str()));
    metrics::check_access(access, on_this_machine, forwarded)
}

/// Answers with the text of the metrics.
pub fn reply(text: String) -> Reply {
    let mut reply = Reply::new(whole(text));
    let put = reply.headers_mut();
    put.insert(header::CONTENT_TYPE, METRICS_TYPE);
    put.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
