//! The page's files as answers: compressed for those who take it, and not sent twice.
//!
//! In: a name below `/client/` and the request's headers. Out: the file with the headers that guard the page, 304 without
//! it, or nothing when there is no such file.

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};

use crate::page;
use edge_runner_http::common::{Reply, whole};

/// Sends a browser on to the page.
pub(super) fn to_page() -> Reply {
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    reply
        .headers_mut()
        .insert(header::LOCATION, HeaderValue::from_static("/client/"));
    reply
}

/// Finds a file of the page; a client that has it already gets no bytes.
pub(super) fn file(name: &str, headers: &HeaderMap) -> Option<Reply> {
    let asset = page::asset(name)?;
    let asked = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
            .unwrap_or_default()
    };
    let mut reply = Reply::default();
    let put = [
        (header::ETAG, asset.etag),
        // A page of another version must not stay behind in a browser: it asks, and mostly hears 304.
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "Accept-Encoding"),
        (header::CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // `no-referrer` would also hide the origin of some requests, which a list of origins needs.
        (header::REFERRER_POLICY, "same-origin"),
    ];
    for (name, value) in put {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if asset.is_in(asked(header::IF_NONE_MATCH)) {
        *reply.status_mut() = StatusCode::NOT_MODIFIED;
        return Some(reply);
    }
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    *reply.body_mut() = if page::accepts_gzip(asked(header::ACCEPT_ENCODING)) {
        reply
            .headers_mut()
            .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        whole(asset.gzip)
    } else {
        whole(asset.identity())
    };
    Some(reply)
}
