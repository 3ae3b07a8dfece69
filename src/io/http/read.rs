//! The bodies of requests: read within their caps of size and time.
//!
//! In: hyper's stream of frames. Out: the whole body. A body above the cap is read on for a while and dropped, so that its
//! sender gets to read why. Refuses: forms and compressed bodies.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};

use super::{Refusal, Times};
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
    if headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|coding| coding != "identity")
    {
        return Err(Refusal::Compressed);
    }
    let declared = body.size_hint().exact().unwrap_or(0);
    if declared > limits::HTTP_DISCARD_BYTES_MAX as u64 {
        return Err(Refusal::TooLarge);
    }
    // A client that waits for leave to send is told before it does.
    if declared > limits::HTTP_BODY_BYTES_MAX as u64 && headers.contains_key(header::EXPECT) {
        return Err(Refusal::TooLarge);
    }
    match tokio::time::timeout(times.body, collect(body, declared as usize)).await {
        Ok(result) => result,
        Err(_) => Err(Refusal::TooSlow),
    }
}

/// Collects a body. What is above the cap is read for a while and dropped, so that the client gets to read the answer.
async fn collect(mut body: Incoming, declared: usize) -> Result<Bytes, Refusal> {
    let mut whole = BytesMut::new();
    let mut read_bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::Broken)?.into_data() else {
            continue;
        };
        read_bytes += data.len();
        if read_bytes > limits::HTTP_DISCARD_BYTES_MAX {
            break;
        }
        if read_bytes <= limits::HTTP_BODY_BYTES_MAX {
            if body.is_end_stream() && whole.is_empty() {
                return Ok(data);
            }
            if whole.is_empty() {
                whole.reserve(declared.min(limits::HTTP_BODY_BYTES_MAX));
            }
            whole.extend_from_slice(&data);
        }
    }
    if read_bytes > limits::HTTP_BODY_BYTES_MAX {
        Err(Refusal::TooLarge)
    } else {
        Ok(whole.freeze())
    }
}

/// Tells whether a body is a form, which is no JSON whatever it holds.
fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    kind.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") || kind.eq_ignore_ascii_case(b"multipart/form-data")
}
