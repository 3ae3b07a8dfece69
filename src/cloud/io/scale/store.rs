//! The object store: archives and images.
//!
//! In: keys of objects. Out: their content piece by piece, or links and grants for clients.
//! Requests are signed by [`crate::proto::scale::sigv4`], at the time that
//! [`crate::proto::scale::store_time`] gives, and never logged. A request that fails may be
//! repeated. Source: Amazon S3 API Reference.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::header::ETAG;
use hyper::{Method, StatusCode};

use super::secret_file::SecretFile;
use crate::config::StoreKeys;
use crate::proto::grant::{GrantTerms, UploadGrant};
use crate::proto::metrics::{BackendFailure, BackendMetrics};
use crate::proto::scale::listing;
use crate::proto::scale::post::{self, StoreFields};
use crate::proto::scale::secret_files;
use crate::proto::scale::sigv4::{StoreCredentials, StoreRequest};
use crate::proto::scale::store_time::{StoreTime, TimeChange};
use crate::proto::scale::store_url::StoreUrl;
use edge_runner_http::client::{PieceSink, ResponseLimits, RestError, Transfer, UploadBody, date_s, transfer};
use edge_runner_http::common::{lock, unix_time_ms};

/// Longest stall of a request.
const STALL: Duration = Duration::from_secs(20);

/// Time for the check whether the store is there.
const REACHED_WITHIN: Duration = Duration::from_secs(3);

/// Largest answer that is kept: a listing of a thousand keys.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Bytes of a file sent at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Largest object of one request, the limit of stores.
pub const OBJECT_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// A request that was refused is signed again if the time for signatures has changed by more: a
/// request takes less.
const OTHER_TIME_MS: u64 = 300_000;

/// How long a link to an image is valid. A download that has begun goes on.
const LINK_S: u64 = 900;

/// Why the store did not do something. Contains no credential.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the object store: {0}")]
    Unreachable(#[source] RestError),
    /// The object has another content than the one asked for.
    #[error("the object is not the one that was recorded")]
    Changed,
    /// Nothing may be concluded from it, such as that there is no object.
    #[error("the object store answers with something else than a listing")]
    NoListing,
    #[error("the object store answers {status}{}{code}", if .code.is_empty() { "" } else { " " })]
    Refused { status: u16, code: String },
}

/// The store.
pub struct ObjectStore {
    place: StoreUrl,
    credentials: SecretFile<StoreCredentials>,
    metrics: BackendMetrics,
    time: Mutex<StoreTime>,
}

/// What a request is about.
struct ObjectRequest<'a> {
    method: Method,
    key: &'a str,
    query: &'a [(&'a str, &'a str)],
    if_match: Option<&'a str>,
    range: Option<Range<u64>>,
    stall: Duration,
}

impl ObjectRequest<'_> {
    fn of(method: Method, key: &str) -> ObjectRequest<'_> {
        ObjectRequest {
            method,
            key,
            query: &[],
            if_match: None,
            range: None,
            stall: STALL,
        }
    }
}

impl ObjectStore {
    pub fn new(place: StoreUrl, credentials: StoreKeys) -> ObjectStore {
        let StoreKeys { at_start, file } = credentials;
        ObjectStore {
            place,
            credentials: SecretFile::new(
                at_start,
                file,
                secret_files::credentials,
                secret_files::CREDENTIALS_WANTS,
            ),
            metrics: BackendMetrics::default(),
            time: Mutex::default(),
        }
    }

    /// Returns how long requests took, and how many failed.
    pub fn metrics(&self) -> &BackendMetrics {
        &self.metrics
    }

    /// Reads an object into `sink`, and returns its ETag. With `if_match` its ETag has to be this
    /// one. `None`: there is no such object.
    ///
    /// # Errors
    /// [`StoreError`]; an error of the sink is [`RestError::Body`].
    pub async fn fetch(
        &self,
        key: &str,
        if_match: Option<&str>,
        sink: PieceSink<'_>,
    ) -> Result<Option<String>, StoreError> {
        let request = ObjectRequest {
            if_match,
            ..ObjectRequest::of(Method::GET, key)
        };
        let answer = match self.send(request, sink).await {
            Err(StoreError::Refused { status: 404, .. }) => return Ok(None),
            Err(StoreError::Refused { status: 412, .. }) => return Err(StoreError::Changed),
            other => other?,
        };
        Ok(Some(etag(&answer)))
    }

    /// Returns a part of an object that has at least so many bytes.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn fetch_part(&self, key: &str, part: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let wanted = part.end.saturating_sub(part.start);
        let mut bytes = Vec::new();
        let mut sink = |piece: Bytes| {
            bytes.extend_from_slice(&piece);
            match bytes.len() as u64 > wanted {
                true => Err(io::Error::other("the store sends more than was asked for")),
                false => Ok(()),
            }
        };
        let request = ObjectRequest {
            range: Some(part),
            ..ObjectRequest::of(Method::GET, key)
        };
        self.send(request, &mut sink).await?;
        match bytes.len() as u64 == wanted {
            true => Ok(bytes),
            false => Err(StoreError::Changed),
        }
    }

    /// Tells whether there is an object with this key.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn is_there(&self, key: &str) -> Result<bool, StoreError> {
        match self.send(ObjectRequest::of(Method::HEAD, key), &mut ignore).await {
            Ok(_) => Ok(true),
            Err(StoreError::Refused { status: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Stores a file of `size` bytes, and returns its ETag.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put(&self, key: &str, mut file: File, size: u64) -> Result<String, StoreError> {
        let next = move || -> io::Result<Bytes> {
            let mut piece = vec![0; PIECE_BYTES];
            let count = file.read(&mut piece)?;
            piece.truncate(count);
            Ok(piece.into())
        };
        let body = UploadBody {
            content_type: "application/octet-stream".into(),
            size,
            next: Box::new(next),
        };
        let request = ObjectRequest::of(Method::PUT, key);
        let sent = self.send_with(request, Some(body), &mut ignore).await;
        sent.map(|answer| etag(&answer))
    }

    /// Deletes an object. A missing one is not an error.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        match self.send(ObjectRequest::of(Method::DELETE, key), &mut ignore).await {
            Ok(_) | Err(StoreError::Refused { status: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns keys that begin with a prefix, a thousand at most.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let mut xml = Vec::new();
        let mut sink = |piece: Bytes| {
            xml.extend_from_slice(&piece);
            match xml.len() > ANSWER_BYTES_MAX {
                true => Err(io::Error::other("the listing is too long")),
                false => Ok(()),
            }
        };
        let request = ObjectRequest {
            query: &[("list-type", "2"), ("prefix", prefix)],
            ..ObjectRequest::of(Method::GET, "")
        };
        self.send(request, &mut sink).await?;
        listing::keys(&String::from_utf8_lossy(&xml)).ok_or(StoreError::NoListing)
    }

    /// Checks that the store answers and that the bucket is there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn check(&self) -> Result<(), StoreError> {
        let request = ObjectRequest {
            stall: REACHED_WITHIN,
            ..ObjectRequest::of(Method::HEAD, "")
        };
        self.send(request, &mut ignore).await.map(drop)
    }

    /// Returns a URL under which a client gets an object by this method for a while.
    pub fn link(&self, method: &str, key: &str) -> String {
        let endpoint = &self.place.public;
        let path = endpoint.path(key);
        let request = StoreRequest {
            method,
            host: &endpoint.host,
            path: &path,
            query: &[],
        };
        let query = request.link(
            &self.credentials.current(),
            &self.place.region,
            LINK_S,
            self.signing_ms(),
        );
        endpoint.url(&path, &query)
    }

    /// Issues a grant.
    pub fn grant(&self, terms: GrantTerms<'_>) -> UploadGrant<StoreFields> {
        let endpoint = &self.place.public;
        let url = endpoint.url(&endpoint.path(""), "");
        let terms = GrantTerms { url: &url, ..terms };
        let (bucket, region) = (&self.place.bucket, &self.place.region);
        post::issue(&self.credentials.current(), bucket, region, &terms, self.signing_ms())
    }

    /// Returns the time for a signature, in milliseconds since 1970.
    fn signing_ms(&self) -> u64 {
        lock(&self.time).at(Instant::now(), unix_time_ms())
    }

    /// Learns the time of the store from an answer.
    fn learn_time(&self, answer: &hyper::Response<Bytes>) {
        let Some(date_s) = date_s(answer.headers()) else {
            return;
        };
        let change = lock(&self.time).handle_date(date_s, Instant::now(), unix_time_ms());
        match change {
            Some(TimeChange::Differs(difference)) => log::warn!(
                "{difference} that of the object store: requests, grants and links are signed by the time of the store"
            ),
            Some(TimeChange::Agrees) => log::info!("this machine's clock agrees with that of the object store again"),
            None => {}
        }
    }

    async fn send(
        &self,
        request: ObjectRequest<'_>,
        sink: PieceSink<'_>,
    ) -> Result<hyper::Response<Bytes>, StoreError> {
        self.send_with(request, None, sink).await
    }

    async fn send_with(
        &self,
        request: ObjectRequest<'_>,
        body: Option<UploadBody>,
        sink: PieceSink<'_>,
    ) -> Result<hyper::Response<Bytes>, StoreError> {
        let began = Instant::now();
        let answer = self.transfer(&request, body, sink).await;
        self.metrics.took(began.elapsed());
        match &answer {
            // A piece that the sink refuses is no failure of the store.
            Ok(_) | Err(StoreError::Changed | StoreError::NoListing | StoreError::Unreachable(RestError::Body(_))) => {}
            Err(StoreError::Unreachable(_)) => self.metrics.failed(BackendFailure::Unreachable),
            // An object that is not there, or not the one that was meant.
            Err(StoreError::Refused { status: 404 | 412, .. }) => {}
            Err(StoreError::Refused { .. }) => self.metrics.failed(BackendFailure::Refused),
        }
        answer
    }

    async fn transfer(
        &self,
        request: &ObjectRequest<'_>,
        body: Option<UploadBody>,
        sink: PieceSink<'_>,
    ) -> Result<hyper::Response<Bytes>, StoreError> {
        let may_repeat = body.is_none();
        let signed_ms = self.signing_ms();
        let mut answer = self.exchange(request, body, signed_ms, &mut *sink).await?;
        self.learn_time(&answer);
        let now_ms = self.signing_ms();
        let is_other_time = now_ms.abs_diff(signed_ms) > OTHER_TIME_MS;
        if answer.status() == StatusCode::FORBIDDEN && is_other_time && may_repeat {
            answer = self.exchange(request, None, now_ms, sink).await?;
        }
        if answer.status().is_success() {
            return Ok(answer);
        }
        let code = listing::error_code(&String::from_utf8_lossy(answer.body()));
        Err(StoreError::Refused {
            status: answer.status().as_u16(),
            code: code.unwrap_or_default(),
        })
    }

    async fn exchange(
        &self,
        request: &ObjectRequest<'_>,
        body: Option<UploadBody>,
        signed_ms: u64,
        sink: PieceSink<'_>,
    ) -> Result<hyper::Response<Bytes>, StoreError> {
        let endpoint = &self.place.endpoint;
        let path = endpoint.path(request.key);
        let signed = StoreRequest {
            method: request.method.as_str(),
            host: &endpoint.host,
            path: &path,
            query: request.query,
        };
        let url = endpoint.url(&path, &signed.encoded_query());
        let mut headers = signed.headers(&self.credentials.current(), &self.place.region, signed_ms);
        // Ceph answers in JSON where that is acceptable.
        headers.push(("accept", "application/xml".into()));
        headers.extend(request.if_match.map(|etag| ("if-match", etag.to_owned())));
        let range = request.range.as_ref();
        headers.extend(range.map(|part| ("range", format!("bytes={}-{}", part.start, part.end - 1))));
        let answer = transfer(
            Transfer {
                method: request.method.clone(),
                url: &url,
                headers: &headers,
                body,
                within: ResponseLimits {
                    timeout: request.stall,
                    body_bytes_max: ANSWER_BYTES_MAX,
                },
            },
            sink,
        );
        answer.await.map_err(StoreError::Unreachable)
    }
}

/// Returns the ETag of an object; empty if the store has none.
fn etag(answer: &hyper::Response<Bytes>) -> String {
    let etag = answer.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
    etag.unwrap_or_default().to_owned()
}

/// For answers whose body is of no interest.
fn ignore(_: Bytes) -> io::Result<()> {
    Ok(())
}
