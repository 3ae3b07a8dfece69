//! Access control for hyper's requests: applies `proto::http::access` and makes its responses.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;

use super::error::HttpError;
use crate::proto::http::access::{AccessPolicy, AllowedRequest, RequestHead};
use crate::proto::http::origin::{self, CorsDecision};
use crate::proto::http::route::{self, Route};
use edge_runner_http::common::{Reply, has_host};

/// Admits a request with `None`, or answers a preflight.
pub fn admit(
    access: &AccessPolicy,
    head: &Parts,
    route: &Result<Route<'_>, route::RouteError>,
    cors: CorsDecision<'_>,
) -> Result<Option<Reply>, HttpError> {
    let judged = RequestHead {
        method: head.method.as_str(),
        path: head.uri.path(),
        route,
        authority: head.uri.authority().map(|authority| authority.as_str().as_bytes()),
        has_host: has_host(head),
        header: &|name| head.headers.get(name).map(HeaderValue::as_bytes),
    };
    match access.check(&judged, cors).map_err(HttpError::Denied)? {
        AllowedRequest::Request => Ok(None),
        AllowedRequest::Preflight(preflight) => {
            let mut reply = Reply::default();
            put(reply.headers_mut(), origin::preflight_headers(preflight));
            Ok(Some(reply))
        }
    }
}

/// Returns the values of a header, in order.
pub fn values(headers: &HeaderMap, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes)
}

/// Returns the values of `Authorization`.
pub fn authorizations(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    values(headers, header::AUTHORIZATION)
}

/// Adds headers.
pub fn put<'h>(headers: &mut HeaderMap, more: impl IntoIterator<Item = origin::CorsHeader<'h>>) {
    for (name, value) in more {
        // hyper has accepted these values in a request, so they are valid.
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
}
