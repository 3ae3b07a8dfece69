//! The twin of `io::rest` in a build whose abilities ask nobody: every request fails.

use std::fmt;

use bytes::Bytes;

use edge_runner_proto::server::rest::Request;

/// What a provider answered.
pub struct Answer {
    pub status: u16,
    pub body: Bytes,
}

/// That nobody is asked.
#[derive(Debug)]
pub struct RestError;

impl fmt::Display for RestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this build asks no provider")
    }
}

/// # Errors
/// Always.
pub async fn send(_request: &Request) -> Result<Answer, RestError> {
    Err(RestError)
}
