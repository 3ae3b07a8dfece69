//! The HTTP client of `instant-acme`, on the client of this crate.
//!
//! In: requests to the directory. Out: responses, within the limits for providers; `Retry-After` of
//! a refusal is kept, since the errors of `instant-acme` do not have it, and that of any response
//! is within limits, since `instant-acme` adds it to the clock as it is. Rejected: a URL that
//! cannot be requested. Source: RFC 9110 section 10.2.3.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use httpdate::parse_http_date;
use hyper::header::{HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode, Uri};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use crate::client;
use crate::common::lock;
use edge_runner_proto::limits::ACME_RETRY_AFTER_MAX;

/// Requests to one directory.
#[derive(Clone)]
pub struct DirectoryClient {
    pub trust: Option<TlsConnector>,
    /// The pause that the last refusal asked for.
    pub retry_after: Arc<Mutex<Option<Duration>>>,
}

impl HttpClient for DirectoryClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            // The error type has no values.
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let content_type = head.headers.get(hyper::header::CONTENT_TYPE).cloned();
            let url = head.uri.to_string();
            let asks_for_nonce = head.method == Method::HEAD;
            let sent = client::send_bytes(head.method, &url, content_type, body, client.trust);
            let mut response = sent.await.map_err(|error| Error::Other(error.into()))?;
            // RFC 8555 section 7.2 has this status for GET. Some directories answer HEAD with it
            // too, which `instant-acme` rejects.
            if asks_for_nonce && response.status() == StatusCode::NO_CONTENT {
                *response.status_mut() = StatusCode::OK;
            }
            check_urls(&response).map_err(|why| Error::Other(why.into()))?;
            bound_pause(&mut response, &client.retry_after, SystemTime::now());
            Ok(BytesResponse::from(response.map(Full::new)))
        })
    }
}

/// The fields of RFC 8555 whose values are URLs that a client requests.
const URL_FIELDS: [&str; 8] = [
    "newNonce",
    "newAccount",
    "newOrder",
    "authorizations",
    "finalize",
    "certificate",
    "url",
    "renewalInfo",
];

/// Checks the URLs of a response, since `instant-acme` panics at one that it cannot request.
///
/// # Errors
/// Says which field has none.
pub fn check_urls(response: &Response<Bytes>) -> Result<(), String> {
    let is_url = |text: &str| text.parse::<Uri>().is_ok_and(|uri| uri.authority().is_some());
    let wrong = |field: &str| {
        Err(format!(
            "the directory answered with a `{field}` that is no URL: ask its operator, or choose another directory with \
             --acme-directory"
        ))
    };
    // Relative to what was requested, it would be one as well; ACME has none of these.
    let location = response.headers().get(LOCATION).map(HeaderValue::to_str);
    if location.is_some_and(|text| !text.is_ok_and(is_url)) {
        return wrong("Location");
    }
    // A certificate is no JSON, and `instant-acme` describes what is none in the place of some.
    let Ok(Value::Object(answer)) = serde_json::from_slice(response.body()) else {
        return Ok(());
    };
    let challenges = answer.get("challenges").and_then(Value::as_array);
    let objects = challenges.into_iter().flatten().filter_map(Value::as_object);
    for (field, value) in objects.chain([&answer]).flatten() {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        let is_wrong = |value: &Value| value.as_str().is_some_and(|text| !is_url(text));
        if URL_FIELDS.contains(&&**field) && values.iter().any(is_wrong) {
            return wrong(field);
        }
    }
    Ok(())
}

/// Bounds the pause that a response asks for: `instant-acme` panics where the clock cannot hold
/// its end. Without a pause it takes its own. Keeps the pause of a refusal.
pub fn bound_pause<B>(response: &mut Response<B>, refused: &Mutex<Option<Duration>>, now: SystemTime) {
    let asked = response.headers_mut().remove(RETRY_AFTER);
    let asked = asked.as_ref().and_then(|value| value.to_str().ok());
    let asked = asked.and_then(|text| pause(text, now));
    if response.status().is_client_error() || response.status().is_server_error() {
        *lock(refused) = asked;
    }
    if let Some(asked) = asked {
        let bounded_s = asked.min(ACME_RETRY_AFTER_MAX).as_secs();
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(bounded_s));
    }
}

/// Parses `Retry-After`: seconds, or a date.
pub fn pause(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => parse_http_date(text).ok()?.duration_since(now).ok(),
    }
}
