//! The bodies of requests to the runner: read within its caps of size and time.
//!
//! In: hyper's stream of frames. Out: the whole body. Refuses: forms where JSON is
//! wanted, and what `floor` does not collect.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};

use super::HttpError;
use crate::limits;
use edge_runner_http::common::{BodyLimits, ConnLimits, collect};

/// What an endpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptedBody {
    /// Anything that is not declared as a form: existing clients forget to say that it is JSON.
    Json,
    /// The same, and JSON that is declared as a form: the HTTP client of ESP-IDF declares so every
    /// body whose sender names no type. A page gains nothing by it: what it may send without being
    /// asked for, this type as well as plain text, `access` judges by its origin.
    Offer,
    /// Providers send forms, JSON, and nothing at all.
    Anything,
}

/// Reads a body within its caps of size and time.
pub(super) async fn read(
    times: ConnLimits,
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
        within: times.body,
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

/// Returns the type without its parameters.
fn content_type(headers: &HeaderMap) -> &[u8] {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}
