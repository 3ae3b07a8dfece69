//! The requests of calls by any transport: asks a runner by `POST /start`, and says why a server
//! refuses.
//!
//! In: the target and the key. Out: the answer, or a sentence about why there is none, with what
//! the server answered and what to do about it. URLs are in the messages without their query, which
//! may hold a token.

use bytes::Bytes;

use crate::config::{Secret, Transport};
use crate::io::rest::{self, RequestUrl, RestResponse};
use crate::proto::caller::target::CallTarget;
use crate::proto::http::start::start_body;
use crate::proto::server::rest::{RestBody, RestMethod, RestRequest};

/// Characters of an answer that are quoted.
const QUOTED_CHARS_MAX: usize = 300;

/// Asks a runner for a session. Returns its answer; `None` if it has no `/start`.
///
/// # Errors
/// A sentence for the user.
pub async fn start(base: &str, transport: Transport, key: Option<&Secret>) -> Result<Option<Bytes>, String> {
    let response = post(&format!("{base}/start"), RestBody::json(&start_body(transport)), key).await?;
    match response.status {
        200 => Ok(Some(response.body)),
        404 | 405 => Ok(None),
        status => Err(refusal(&format!("{base}/start"), status, &response.body)),
    }
}

/// Returns the host and the port of an HTTP target.
pub fn authority(target: &CallTarget) -> Result<(String, u16), String> {
    let (CallTarget::Offer { url }
    | CallTarget::Started { base: url, .. }
    | CallTarget::Whip { url }
    | CallTarget::Socket { url }
    | CallTarget::Eval { url }
    | CallTarget::Telephone { url, .. }
    | CallTarget::Room { url, .. }) = target;
    let parsed = RequestUrl::of(url).map_err(|error| format!("{}: {error}", shown(url)))?;
    let uri: Option<hyper::Uri> = url.parse().ok();
    let port = uri.and_then(|uri| uri.port_u16());
    let default = if parsed.tls { 443 } else { 80 };
    Ok((parsed.host, port.unwrap_or(default)))
}

/// Sends a body.
///
/// # Errors
/// A sentence for the user if there is no answer.
pub async fn post(url: &str, body: RestBody, key: Option<&Secret>) -> Result<RestResponse, String> {
    let request = RestRequest {
        method: RestMethod::Post,
        url: url.to_owned(),
        authorization: key.map(bearer),
        body: Some(body),
    };
    let response = rest::send(&request).await;
    response.map_err(|error| format!("{}: {error}; is a runner running there?", shown(url)))
}

/// Returns a URL without its query.
pub fn shown(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// Returns the header `Authorization` with a key.
pub fn bearer(key: &Secret) -> Secret {
    Secret::new(format!("Bearer {}", key.expose()))
}

/// Describes the refusal of a server.
pub fn refusal(url: &str, status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(QUOTED_CHARS_MAX)
        .collect();
    let quoted = match line.trim() {
        "" => String::new(),
        line => format!(": {line}"),
    };
    let advice = match status {
        401 | 403 => "; does it need `--api-key`?",
        404 => "; does the URL have the right path?",
        _ => "",
    };
    format!("{url}: the call was refused with status {status}{quoted}{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_the_server_said() {
        assert_eq!(
            refusal("ws://a/b", 401, b"{\"detail\":\"no\x1b\"}"),
            "ws://a/b: the call was refused with status 401: {\"detail\":\"no \"}; does it need `--api-key`?"
        );
        assert_eq!(
            refusal("ws://a/b", 200, b""),
            "ws://a/b: the call was refused with status 200"
        );
        assert!(refusal("ws://a/b", 500, &[b'x'; 4_096]).len() < 400);
    }
}
