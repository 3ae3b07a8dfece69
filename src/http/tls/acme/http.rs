//! The HTTP client of `instant-acme`, on the client of this crate.
//!
//! In: requests to the directory. Out: responses, within the limits for providers; `Retry-After` of
//! a refusal is kept, since the errors of `instant-acme` do not have it. Source: RFC 9110 section
//! 10.2.3.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use httpdate::parse_http_date;
use hyper::header::RETRY_AFTER;
use hyper::{Method, Request, StatusCode};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio_rustls::TlsConnector;

use crate::client;
use crate::common::lock;

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
            if response.status().is_client_error() || response.status().is_server_error() {
                let asked = response
                    .headers()
                    .get(RETRY_AFTER)
                    .and_then(|value| value.to_str().ok());
                *lock(&client.retry_after) = asked.and_then(|text| pause(text, SystemTime::now()));
            }
            Ok(BytesResponse::from(response.map(Full::new)))
        })
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
