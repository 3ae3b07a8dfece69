//! The bodies of requests to the runner: read within its caps of size and time.
//!
//! In: hyper's stream of frames. Out: the whole body. Refuses: forms, and what `floor` does not collect.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};

use super::Refusal;
use super::floor::{Caps, ReadError, Times, collect};
use crate::limits;

/// What an endpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// Anything that is not declared as a form: existing clients forget to say that it is JSON.
    Json,
    /// Providers send forms, JSON, and nothing at all.
    Anything,
}

/// Reads a body within its caps of size and time.
pub(super) async fn read(times: Times, headers: &HeaderMap, takes: Takes, body: Incoming) -> Result<Bytes, Refusal> {
    if takes == Takes::Json && is_form(headers) {
        return Err(Refusal::Form);
    }
    let caps = Caps {
        bytes_max: limits::HTTP_BODY_BYTES_MAX,
        within: times.body,
    };
    collect(caps, headers, body).await.map_err(|error| match error {
        ReadError::Compressed => Refusal::Compressed,
        ReadError::TooLarge => Refusal::TooLarge,
        ReadError::TooSlow => Refusal::TooSlow,
        ReadError::Broken => Refusal::Broken,
    })
}

/// Tells whether a body is a form, which is no JSON whatever it holds.
fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    kind.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") || kind.eq_ignore_ascii_case(b"multipart/form-data")
}
