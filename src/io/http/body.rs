//! The bodies of requests to the runner, read within limits of size and time.
//!
//! In: hyper's body. Out: the whole body. Rejects: forms where JSON is expected, and what
//! [`edge_runner_http::common::collect`] rejects.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};

use super::error::HttpError;
use crate::limits;
use edge_runner_http::common::{BodyLimits, ConnLimits, collect};

/// The content types that an endpoint accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedBody {
    /// Anything but forms. Existing clients often omit the JSON content type.
    Json,
    /// Like `Json`, and also JSON declared as a form, which is the default of ESP-IDF's HTTP
    /// client. This opens nothing to cross-site pages: `access` checks their origin for every
    /// content type that needs no preflight.
    Offer,
    /// Everything: providers send forms, JSON, and empty bodies.
    Anything,
}

/// Reads a body within its limits of size and time.
pub async fn read(
    conn_limits: ConnLimits,
    headers: &HeaderMap,
    takes: AcceptedBody,
    body: Incoming,
) -> Result<Bytes, HttpError> {
    let is_refused = match takes {
        AcceptedBody::Json => is_form(headers),
        AcceptedBody::Offer => is_multipart(headers),
        AcceptedBody::Anything => false,
    };
    if is_refused {
        return Err(HttpError::Form);
    }
    let caps = BodyLimits {
        bytes_max: limits::HTTP_BODY_BYTES_MAX,
        within: conn_limits.body,
    };
    let body = collect(caps, headers, body).await?;
    if takes == AcceptedBody::Offer && is_form(headers) && !body.trim_ascii_start().starts_with(b"{") {
        return Err(HttpError::Form);
    }
    Ok(body)
}

/// Tells whether a body is declared as a form.
fn is_form(headers: &HeaderMap) -> bool {
    content_type(headers).eq_ignore_ascii_case(b"application/x-www-form-urlencoded") || is_multipart(headers)
}

fn is_multipart(headers: &HeaderMap) -> bool {
    content_type(headers).eq_ignore_ascii_case(b"multipart/form-data")
}

/// Returns the media type without parameters.
fn content_type(headers: &HeaderMap) -> &[u8] {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}
