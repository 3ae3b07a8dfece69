//! The HTTP client for providers' REST APIs: one connection per request, with TLS or, for tests and
//! private gateways, without.
//!
//! In: a [`RestRequest`] planned by `proto`, or a body that is read while it is sent. Out: status
//! and body of the response, at most [`REST_BODY_BYTES_MAX`] within [`REST_TIMEOUT`], or within the
//! caller's limits. Redirects are not followed. Credentials and URLs appear neither in errors nor
//! in the log. System root certificates are loaded with the first `https` request and kept.
//! Rejects: other schemes, invalid certificates, responses that are too long. Source: RFC 9112.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, DATE, HOST, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER,
    USER_AGENT,
};
use hyper_util::rt::TokioIo;
use rustls_native_certs::CertificateResult;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use edge_runner_proto::limits::{
    REST_ADDRESSES_MAX, REST_BODY_BYTES_MAX, REST_CONNECT, REST_HEAD_BYTES_MAX, REST_TIMEOUT,
};
use edge_runner_proto::server::rest::{RestMethod, RestRequest};
use edge_runner_proto::time::parse_http_date;

use crate::common::lock;
use crate::tasks;

/// The value of the `User-Agent` header.
pub const USER_AGENT_NAME: &str = concat!("edge-runner/", env!("CARGO_PKG_VERSION"));

/// A provider's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestResponse {
    pub status: u16,
    pub body: Bytes,
    /// `Location`, as the provider wrote it.
    pub location: Option<String>,
    /// `Retry-After` in seconds; dates are not read.
    pub retry_after: Option<Duration>,
    /// `Date`, the time by the provider's clock: seconds since 1970.
    pub unix_s: Option<u64>,
}

impl From<hyper::Response<Bytes>> for RestResponse {
    fn from(response: hyper::Response<Bytes>) -> Self {
        let text = |name| response.headers().get(name)?.to_str().ok();
        RestResponse {
            status: response.status().as_u16(),
            location: text(LOCATION).map(str::to_owned),
            retry_after: text(RETRY_AFTER).and_then(|text| text.trim().parse().ok().map(Duration::from_secs)),
            unix_s: date_s(response.headers()),
            body: response.into_body(),
        }
    }
}

/// Returns the time of a response by the clock of its server, in seconds since 1970.
pub fn date_s(headers: &HeaderMap) -> Option<u64> {
    parse_http_date(headers.get(DATE)?.to_str().ok()?)
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// The request cannot be sent; the text says what is wrong with it.
    #[error("the request cannot be sent: {0}")]
    Request(&'static str),
    /// The system has no root certificates.
    #[error(
        "no certificates to trust were found on this system{why}; install the package `ca-certificates`, or name a \
         file of them in SSL_CERT_FILE"
    )]
    NoCertificates { why: String },
    #[error("looking up {host}: {source}")]
    Resolve { host: String, source: io::Error },
    #[error("connecting to {host}: {source}")]
    Connect { host: String, source: io::Error },
    /// The server's certificate is invalid.
    #[error("the certificate of {host} is invalid: {why}{}", hint(.why))]
    Certificate {
        host: String,
        why: rustls::CertificateError,
    },
    #[error("TLS with {host}: {source}")]
    Tls { host: String, source: io::Error },
    /// The connection closed early, or the response is not HTTP.
    #[error("{host} sent no valid response: {source}")]
    Exchange { host: String, source: hyper::Error },
    #[error("the answer of {host} is longer than {bytes_max} bytes")]
    TooLong { host: String, bytes_max: usize },
    #[error("{host} did not answer within {} s", .within.as_secs())]
    Timeout { host: String, within: Duration },
    /// The body to be sent could not be read.
    #[error("reading the request body: {0}")]
    Body(#[source] io::Error),
}

/// Returns what an operator can do about a certificate error.
fn hint(error: &rustls::CertificateError) -> &'static str {
    use rustls::CertificateError as C;
    match error {
        C::UnknownIssuer => "; SSL_CERT_FILE may name a file of certificates to trust instead",
        C::Expired | C::ExpiredContext { .. } | C::NotValidYet | C::NotValidYetContext { .. } => {
            "; is the clock of this machine right?"
        }
        _ => "",
    }
}

impl RestError {
    /// Tells whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        !matches!(
            self,
            RestError::Request(_)
                | RestError::NoCertificates { .. }
                | RestError::Certificate { .. }
                | RestError::Body(_)
        )
    }
}

/// The limits of a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseLimits {
    /// From the name lookup to the last byte of the response; in an upload, from the last piece
    /// sent.
    pub timeout: Duration,
    pub body_bytes_max: usize,
}

/// The limits for providers.
pub const STANDARD: ResponseLimits = ResponseLimits {
    timeout: REST_TIMEOUT,
    body_bytes_max: REST_BODY_BYTES_MAX,
};

/// Sends one request and reads its response, whatever its status.
///
/// # Errors
/// Returns a [`RestError`] when no complete response arrives in time.
pub async fn send(request: &RestRequest) -> Result<RestResponse, RestError> {
    send_trusting(None, request, &[], STANDARD).await
}

/// Sends one request with limits of the caller's.
///
/// # Errors
/// As [`send`].
pub async fn send_within(request: &RestRequest, within: ResponseLimits) -> Result<RestResponse, RestError> {
    send_trusting(None, request, &[], within).await
}

/// Sends one request with further headers.
///
/// # Errors
/// As [`send`].
pub async fn send_with(
    request: &RestRequest,
    headers: &[(&'static str, String)],
    within: ResponseLimits,
) -> Result<RestResponse, RestError> {
    send_trusting(None, request, headers, within).await
}

/// A body that is read while it is sent.
pub struct UploadBody {
    pub content_type: String,
    /// Total length in bytes.
    pub size: u64,
    /// Returns the next piece, which must not be empty. May block as file reads do.
    pub next: Box<dyn FnMut() -> io::Result<Bytes> + Send>,
}

/// Posts a body to a URL that needs no credential. The response may arrive before the whole body
/// has been sent.
///
/// # Errors
/// Returns a [`RestError`] when no byte moves within the timeout, or no complete response arrives.
pub async fn upload(url: &str, upload: UploadBody, within: ResponseLimits) -> Result<RestResponse, RestError> {
    let target = RequestUrl::of(url)?;
    let mut message = bare_message(hyper::Method::POST, &target)?;
    let content_type = HeaderValue::try_from(upload.content_type)
        .map_err(|_| RestError::Request("no header can hold the type of its body"))?;
    message.headers_mut().insert(CONTENT_TYPE, content_type);
    let moved = Arc::new(Mutex::new(Instant::now()));
    *message.body_mut() = RequestBody::pieces(upload.size, upload.next, &moved);
    let whole = async {
        let stream = open(&target, None).await?;
        let response = exchange(stream, message, &target.host, within.body_bytes_max).await?;
        Ok(RestResponse::from(response))
    };
    while_moving(&moved, &target.host, within.timeout, whole).await
}

/// A request of any method, whose body and response may be files.
pub struct Transfer<'a> {
    pub method: hyper::Method,
    pub url: &'a str,
    pub headers: &'a [(&'static str, String)],
    pub body: Option<UploadBody>,
    /// The timeout is that of a stall; the size is that of the body of an error.
    pub within: ResponseLimits,
}

/// Takes the body of a response piece by piece. May block as file writes do.
pub type PieceSink<'s> = &'s mut (dyn FnMut(Bytes) -> io::Result<()> + Send);

/// Sends a request. The body of a success goes to `sink`, any other is returned.
///
/// # Errors
/// Returns a [`RestError`] when no byte moves within the timeout, no complete response arrives, or
/// the sink fails, as [`RestError::Body`].
pub async fn transfer(request: Transfer<'_>, sink: PieceSink<'_>) -> Result<hyper::Response<Bytes>, RestError> {
    let target = RequestUrl::of(request.url)?;
    let mut message = bare_message(request.method, &target)?;
    let moved = Arc::new(Mutex::new(Instant::now()));
    for (name, value) in request.headers {
        let mut value =
            HeaderValue::try_from(value).map_err(|_| RestError::Request("no header can hold one of its values"))?;
        value.set_sensitive(true);
        message.headers_mut().insert(*name, value);
    }
    if let Some(body) = request.body {
        // hyper sends none for an empty body, and object stores refuse a `PUT` without.
        message.headers_mut().insert(CONTENT_LENGTH, body.size.into());
        *message.body_mut() = RequestBody::pieces(body.size, body.next, &moved);
    }
    let (bytes_max, host) = (request.within.body_bytes_max, &target.host);
    let whole = async {
        let stream = open(&target, None).await?;
        let read = async |response: hyper::Response<Incoming>| {
            let (head, mut body) = response.into_parts();
            if !head.status.is_success() {
                let body = collect(body, host, bytes_max).await?;
                return Ok(hyper::Response::from_parts(head, body));
            }
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| broken(host, error))?;
                *lock(&moved) = Instant::now();
                if let Ok(piece) = frame.into_data() {
                    sink(piece).map_err(RestError::Body)?;
                }
            }
            Ok(hyper::Response::from_parts(head, Bytes::new()))
        };
        exchange_with(stream, message, host, read).await
    };
    while_moving(&moved, host, request.within.timeout, whole).await
}

/// Waits for an exchange until no byte has moved for a while.
async fn while_moving<T>(
    moved: &Mutex<Instant>,
    host: &str,
    stall: Duration,
    whole: impl Future<Output = Result<T, RestError>>,
) -> Result<T, RestError> {
    let mut whole = pin!(whole);
    loop {
        let deadline = *lock(moved) + stall;
        tokio::select! {
            biased;
            outcome = &mut whole => return outcome,
            () = sleep_until(deadline) => {}
        }
        if Instant::now() >= *lock(moved) + stall {
            return Err(RestError::Timeout {
                host: host.to_owned(),
                within: stall,
            });
        }
    }
}

/// The body of a request. One type for both sources, so that HTTP code is instantiated once.
struct RequestBody {
    /// Bytes still to be sent.
    left: u64,
    source: BodySource,
}

enum BodySource {
    Whole(Bytes),
    Pieces {
        next: Box<dyn FnMut() -> io::Result<Bytes> + Send>,
        moved: Arc<Mutex<Instant>>,
    },
}

impl RequestBody {
    fn whole(bytes: Bytes) -> RequestBody {
        RequestBody {
            left: bytes.len() as u64,
            source: BodySource::Whole(bytes),
        }
    }

    /// A body of `size` bytes, which notes in `moved` when a piece of it is sent.
    fn pieces(
        size: u64,
        next: Box<dyn FnMut() -> io::Result<Bytes> + Send>,
        moved: &Arc<Mutex<Instant>>,
    ) -> RequestBody {
        RequestBody {
            left: size,
            source: BodySource::Pieces {
                next,
                moved: moved.clone(),
            },
        }
    }

    fn next(&mut self) -> io::Result<Bytes> {
        let piece = match &mut self.source {
            BodySource::Whole(bytes) => std::mem::take(bytes),
            BodySource::Pieces { next, moved } => {
                let piece = next()?;
                *lock(moved) = Instant::now();
                piece
            }
        };
        // The body has to match the length in the head.
        let left = self.left.checked_sub(piece.len() as u64).filter(|_| !piece.is_empty());
        self.left = left.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(piece)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(match self.left {
            0 => None,
            _ => Some(self.next().map(Frame::data)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The parts of a URL that a request needs.
pub struct RequestUrl {
    pub tls: bool,
    /// Without brackets.
    pub host: String,
    port: u16,
    /// The value of the `Host` header.
    pub authority: String,
    pub path: hyper::Uri,
}

impl RequestUrl {
    pub fn of(url: &str) -> Result<Self, RestError> {
        let uri: hyper::Uri = url.parse().map_err(|_| RestError::Request("its URL cannot be read"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => {
                return Err(RestError::Request(
                    "its URL begins neither with https:// nor with http://",
                ));
            }
        };
        let authority = uri.authority().ok_or(RestError::Request("its URL has no host"))?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(RestError::Request("its URL has no plain host"));
        }
        // `port_u16` returns `None` for an invalid port too, which is rejected here.
        let bare = authority.as_str() == authority.host();
        let port = match authority.port_u16() {
            Some(port) => port,
            None if !bare => return Err(RestError::Request("its URL has a port that is none")),
            None if tls => 443,
            None => 80,
        };
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(RequestUrl {
            tls,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            path: format!("{slash}{path}")
                .parse()
                .map_err(|_| RestError::Request("its path cannot be read"))?,
        })
    }
}

/// Makes a request with the headers that every request has.
fn bare_message(method: hyper::Method, target: &RequestUrl) -> Result<hyper::Request<RequestBody>, RestError> {
    let mut message = hyper::Request::new(RequestBody::whole(Bytes::new()));
    *message.method_mut() = method;
    *message.uri_mut() = target.path.clone();
    let headers = message.headers_mut();
    let host =
        HeaderValue::try_from(&target.authority).map_err(|_| RestError::Request("no header can hold its host"))?;
    headers.insert(HOST, host);
    headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_NAME));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    Ok(message)
}

fn message(request: &RestRequest, target: &RequestUrl) -> Result<hyper::Request<RequestBody>, RestError> {
    let method = match request.method {
        RestMethod::Get => hyper::Method::GET,
        RestMethod::Post => hyper::Method::POST,
        RestMethod::Patch => hyper::Method::PATCH,
        RestMethod::Delete => hyper::Method::DELETE,
    };
    let mut message = bare_message(method, target)?;
    let headers = message.headers_mut();
    if let Some(secret) = &request.authorization {
        let mut value = HeaderValue::try_from(secret.expose())
            .map_err(|_| RestError::Request("no header can hold its credential; is there a line break in it?"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    if let Some(body) = &request.body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(body.content_type));
        *message.body_mut() = RequestBody::whole(body.bytes.clone().into());
    }
    Ok(message)
}

/// `trust` replaces the system's root certificates.
async fn send_trusting(
    trust: Option<TlsConnector>,
    request: &RestRequest,
    headers: &[(&'static str, String)],
    within: ResponseLimits,
) -> Result<RestResponse, RestError> {
    let target = RequestUrl::of(&request.url)?;
    let mut message = message(request, &target)?;
    for (name, value) in headers {
        let value =
            HeaderValue::try_from(value).map_err(|_| RestError::Request("no header can hold one of its values"))?;
        message.headers_mut().insert(*name, value);
    }
    exchange_within(trust, &target, message, within)
        .await
        .map(RestResponse::from)
}

/// Sends a request of any method, and returns the response with its head. `trust` replaces the
/// system's root certificates.
///
/// # Errors
/// As [`send`].
pub async fn send_bytes(
    method: hyper::Method,
    url: &str,
    content_type: Option<HeaderValue>,
    body: Bytes,
    trust: Option<TlsConnector>,
) -> Result<hyper::Response<Bytes>, RestError> {
    let target = RequestUrl::of(url)?;
    let mut message = bare_message(method, &target)?;
    if let Some(content_type) = content_type {
        message.headers_mut().insert(CONTENT_TYPE, content_type);
        *message.body_mut() = RequestBody::whole(body);
    }
    exchange_within(trust, &target, message, STANDARD).await
}

async fn exchange_within(
    trust: Option<TlsConnector>,
    target: &RequestUrl,
    message: hyper::Request<RequestBody>,
    within: ResponseLimits,
) -> Result<hyper::Response<Bytes>, RestError> {
    let whole = async {
        let stream = open(target, trust).await?;
        exchange(stream, message, &target.host, within.body_bytes_max).await
    };
    match timeout(within.timeout, whole).await {
        Ok(outcome) => outcome,
        Err(_) => Err(RestError::Timeout {
            host: target.host.clone(),
            within: within.timeout,
        }),
    }
}

/// A connection to a server, with or without TLS. Boxed, so that HTTP and WebSocket code is
/// instantiated once.
pub type ClientStream = Box<dyn ByteStream>;

pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Connects to the server of a URL, with TLS if the scheme asks for it. `trust` replaces the
/// system's root certificates.
pub async fn open(target: &RequestUrl, trust: Option<TlsConnector>) -> Result<ClientStream, RestError> {
    let tcp = connect(target).await?;
    // Requests are written whole; Nagle's algorithm would only delay them.
    tcp.set_nodelay(true).map_err(|source| RestError::Connect {
        host: target.host.clone(),
        source,
    })?;
    if !target.tls {
        return Ok(Box::new(tcp));
    }
    let connector = match trust {
        Some(connector) => connector,
        None => system_trust().await?,
    };
    Ok(Box::new(secure(&connector, tcp, &target.host).await?))
}

/// Connects to the server of a URL, without TLS.
pub async fn connect(target: &RequestUrl) -> Result<TcpStream, RestError> {
    let host = || target.host.clone();
    match lookup_host((target.host.as_str(), target.port)).await {
        Ok(addresses) => connect_to_one(addresses)
            .await
            .map_err(|source| RestError::Connect { host: host(), source }),
        Err(source) => Err(RestError::Resolve { host: host(), source }),
    }
}

/// Connects to the first address that answers. Each attempt has its own timeout.
async fn connect_to_one(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for address in addresses.take(REST_ADDRESSES_MAX) {
        match timeout(REST_CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

/// Does the TLS handshake on a connection.
pub async fn secure(
    connector: &TlsConnector,
    stream: TcpStream,
    host: &str,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, RestError> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| RestError::Request("its host is no name for TLS"))?;
    connector.connect(name, stream).await.map_err(|source| {
        let host = host.to_owned();
        match source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(why)) => RestError::Certificate { host, why: why.clone() },
            _ => RestError::Tls { host, source },
        }
    })
}

async fn exchange(
    stream: ClientStream,
    message: hyper::Request<RequestBody>,
    host: &str,
    bytes_max: usize,
) -> Result<hyper::Response<Bytes>, RestError> {
    let read = async |response: hyper::Response<Incoming>| {
        let (head, body) = response.into_parts();
        let body = collect(body, host, bytes_max).await?;
        Ok(hyper::Response::from_parts(head, body))
    };
    exchange_with(stream, message, host, read).await
}

/// Sends a request, and reads its response with `read`.
async fn exchange_with<T>(
    stream: ClientStream,
    message: hyper::Request<RequestBody>,
    host: &str,
    read: impl AsyncFnOnce(hyper::Response<Incoming>) -> Result<T, RestError>,
) -> Result<T, RestError> {
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(REST_HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(host, error))?;
    let answer = async {
        let response = sender.send_request(message).await;
        read(response.map_err(|error| broken(host, error))?).await
    };
    // The connection future moves the bytes. When it ends first, the response it has read is taken.
    let mut answer = pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => return answer,
        _ = connection => {}
    }
    answer.await
}

/// Collects the body of a response.
async fn collect(body: Incoming, host: &str, bytes_max: usize) -> Result<Bytes, RestError> {
    let body = Limited::new(body, bytes_max).collect().await;
    let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(source) => broken(host, *source),
        Err(_) => RestError::TooLong {
            host: host.to_owned(),
            bytes_max,
        },
    })?;
    Ok(body.to_bytes())
}

fn broken(host: &str, source: hyper::Error) -> RestError {
    match of_body(&source) {
        Some(error) => RestError::Body(error),
        None => RestError::Exchange {
            host: host.to_owned(),
            source,
        },
    }
}

/// Returns the error of reading the request body, if that caused the failure.
fn of_body(error: &hyper::Error) -> Option<io::Error> {
    let source = std::error::Error::source(error)?.downcast_ref::<io::Error>()?;
    error
        .is_user()
        .then(|| io::Error::new(source.kind(), source.to_string()))
}

/// Returns a TLS connector that trusts the system's root certificates.
pub async fn system_trust() -> Result<TlsConnector, RestError> {
    static TRUST: OnceLock<TlsConnector> = OnceLock::new();
    if let Some(connector) = TRUST.get() {
        return Ok(connector.clone());
    }
    // Some hundred kilobytes of files: not in the way of the media tasks.
    let found = tasks::blocking(|| trust_in(rustls_native_certs::load_native_certs()));
    let connector = found.await.unwrap_or_else(|panic| {
        let why = format!(" ({panic})");
        Err(RestError::NoCertificates { why })
    })?;
    Ok(TRUST.get_or_init(|| connector).clone())
}

fn trust_in(found: CertificateResult) -> Result<TlsConnector, RestError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})"));
        return Err(RestError::NoCertificates {
            why: why.unwrap_or_default(),
        });
    }
    Ok(connector(roots))
}

/// Returns a TLS connector that trusts these authorities.
pub(crate) fn connector(roots: RootCertStore) -> TlsConnector {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the cipher suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[cfg(test)]
mod tests;
