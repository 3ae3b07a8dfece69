//! The twin of `payload` in a build without `cloud`: every answer is whole before its first byte leaves.

use bytes::Bytes;
use http_body_util::Full;

/// The body of an answer.
pub type Payload = Full<Bytes>;

/// Makes a body of bytes that are there.
pub fn whole(bytes: impl Into<Bytes>) -> Payload {
    Full::new(bytes.into())
}
