//! Calls of providers' REST APIs: one connection per request, over TLS or, for tests and gateways of one's own, plain.
//!
//! In: a [`Request`] as `proto` planned it, or a body that is read while it is sent. Out: status and body of the answer, at most
//! [`REST_BODY_BYTES_MAX`] within [`REST_TIMEOUT`], or what the caller asks for. Redirects are not followed, and neither
//! credentials nor URLs reach an error or the log.
//! The certificates that the system trusts are read when the first `https` request is made, and kept: a runner that calls
//! nobody has none in memory.
//! Refuses: other schemes, servers whose certificate does not hold, answers that are too long. Source: RFC 9112.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
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
use edge_runner_proto::server::rest::{Method, Request};

use crate::common::lock;

const USER_AGENT_NAME: &str = concat!("edge-runner/", env!("CARGO_PKG_VERSION"));

/// What a provider answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestResponse {
    pub status: u16,
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// The request cannot be sent at all: what of it is wrong.
    #[error("the request cannot be sent: {0}")]
    Request(&'static str),
    /// The system trusts nobody.
    #[error(
        "no certificates to trust were found on this system{why}; install the package `ca-certificates`, or name a \
         file of them in SSL_CERT_FILE"
    )]
    NoCertificates { why: String },
    #[error("looking up {host}: {source}")]
    Resolve { host: String, source: io::Error },
    #[error("connecting to {host}: {source}")]
    Connect { host: String, source: io::Error },
    /// The server's certificate does not hold.
    #[error("the certificate of {host} does not hold: {why}{}", hint(.why))]
    Certificate {
        host: String,
        why: rustls::CertificateError,
    },
    #[error("TLS with {host}: {source}")]
    Tls { host: String, source: io::Error },
    /// Closed early, or not HTTP.
    #[error("{host} gave no proper answer: {source}")]
    Exchange { host: String, source: hyper::Error },
    #[error("the answer of {host} is longer than {bytes_max} bytes")]
    TooLong { host: String, bytes_max: usize },
    #[error("{host} did not answer within {} s", .within.as_secs())]
    Timeout { host: String, within: Duration },
    /// What was to be sent could not be read.
    #[error("reading what is to be sent: {0}")]
    Body(#[source] io::Error),
}

/// Returns what a person can do about a certificate.
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
    /// Tells whether the same request may succeed a moment later.
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

/// How long an answer may take, and how long it may be.
#[derive(Clone, Copy, Debug)]
pub struct ResponseLimits {
    /// From looking the server's name up to the last byte of the answer; of an upload from the last piece that it took.
    pub timeout: Duration,
    pub body_bytes_max: usize,
}

/// What providers get.
const STANDARD: ResponseLimits = ResponseLimits {
    timeout: REST_TIMEOUT,
    body_bytes_max: REST_BODY_BYTES_MAX,
};

/// Sends one request and reads its answer, whatever its status.
///
/// # Errors
/// [`RestError`] when no whole answer came in time.
pub async fn send(request: &Request) -> Result<RestResponse, RestError> {
    send_trusting(None, request, STANDARD).await
}

/// The same, for servers whose answers are longer or take longer than those of providers.
///
/// # Errors
/// As [`send`].
pub async fn send_within(request: &Request, within: ResponseLimits) -> Result<RestResponse, RestError> {
    send_trusting(None, request, within).await
}

/// A body that is read while it is sent.
pub struct UploadBody {
    pub content_type: String,
    /// Bytes of all pieces.
    pub size: u64,
    /// Returns the next piece; one without bytes is a mistake. It may block for as long as a file does.
    pub next: Box<dyn FnMut() -> io::Result<Bytes> + Send>,
}

/// Posts a body to a URL that needs no credential. An answer may come before the body has been sent.
///
/// # Errors
/// [`RestError`] when nothing moved for as long as the caller waits, or no whole answer came.
pub async fn upload(url: &str, upload: UploadBody, within: ResponseLimits) -> Result<RestResponse, RestError> {
    let target = RequestUrl::of(url)?;
    let mut message = bare_message(hyper::Method::POST, &target)?;
    let content_type = HeaderValue::try_from(upload.content_type)
        .map_err(|_| RestError::Request("no header can hold the type of its body"))?;
    message.headers_mut().insert(CONTENT_TYPE, content_type);
    let moved = Arc::new(Mutex::new(Instant::now()));
    *message.body_mut() = RequestBody {
        left: upload.size,
        source: BodySource::Pieces {
            next: upload.next,
            moved: moved.clone(),
        },
    };
    let mut whole = pin!(async {
        let stream = open(&target, None).await?;
        exchange(stream, message, &target.host, within.body_bytes_max).await
    });
    loop {
        let deadline = *lock(&moved) + within.timeout;
        tokio::select! {
            biased;
            outcome = &mut whole => return outcome,
            () = sleep_until(deadline) => {}
        }
        if Instant::now() >= *lock(&moved) + within.timeout {
            return Err(RestError::Timeout {
                host: target.host.clone(),
                within: within.timeout,
            });
        }
    }
}

/// What is sent. One type for both kinds, so that HTTP is compiled for one.
struct RequestBody {
    /// Bytes that are still to come.
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

    fn next(&mut self) -> io::Result<Bytes> {
        let piece = match &mut self.source {
            BodySource::Whole(bytes) => std::mem::take(bytes),
            BodySource::Pieces { next, moved } => {
                let piece = next()?;
                *lock(moved) = Instant::now();
                piece
            }
        };
        // What was promised in the head is what has to come.
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

/// Where a URL leads.
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
        // A port that is none counts as absent here, and is refused.
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

/// What every request has.
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

fn message(request: &Request, target: &RequestUrl) -> Result<hyper::Request<RequestBody>, RestError> {
    let method = match request.method {
        Method::Get => hyper::Method::GET,
        Method::Post => hyper::Method::POST,
        Method::Delete => hyper::Method::DELETE,
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

/// `trust` replaces what the system trusts.
async fn send_trusting(
    trust: Option<TlsConnector>,
    request: &Request,
    within: ResponseLimits,
) -> Result<RestResponse, RestError> {
    let target = RequestUrl::of(&request.url)?;
    let message = message(request, &target)?;
    let whole = async {
        let stream = open(&target, trust).await?;
        exchange(stream, message, &target.host, within.body_bytes_max).await
    };
    match timeout(within.timeout, whole).await {
        Ok(outcome) => outcome,
        Err(_) => Err(RestError::Timeout {
            host: target.host,
            within: within.timeout,
        }),
    }
}

/// A connection to a server, with TLS around it or without. Behind one pointer, so that HTTP and WebSockets are compiled for
/// one kind of connection and not for two.
pub type ClientStream = Box<dyn ByteStream>;

pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Connects to the server of a URL, with the TLS that the URL asks for. `trust` replaces what the system trusts.
pub async fn open(target: &RequestUrl, trust: Option<TlsConnector>) -> Result<ClientStream, RestError> {
    let tcp = connect(target).await?;
    // What is sent is written whole; waiting for more would only delay it.
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

/// Connects to the first address that answers; a path that swallows packets leaves time for the next one.
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

/// Puts TLS around a connection.
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
) -> Result<RestResponse, RestError> {
    let broken = |source: hyper::Error| match of_body(&source) {
        Some(error) => RestError::Body(error),
        None => RestError::Exchange {
            host: host.to_owned(),
            source,
        },
    };
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(REST_HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let answer = async {
        let (head, body) = sender.send_request(message).await.map_err(broken)?.into_parts();
        let body = Limited::new(body, bytes_max).collect().await;
        let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(source) => broken(*source),
            Err(_) => RestError::TooLong {
                host: host.to_owned(),
                bytes_max,
            },
        })?;
        Ok(RestResponse {
            status: head.status.as_u16(),
            body: body.to_bytes(),
        })
    };
    // The connection moves the bytes. When it ends first, what it has read is still to be taken.
    let mut answer = pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => return answer,
        _ = connection => {}
    }
    answer.await
}

/// Returns why the body of a request could not be read, if that is what went wrong.
fn of_body(error: &hyper::Error) -> Option<io::Error> {
    let source = std::error::Error::source(error)?.downcast_ref::<io::Error>()?;
    error
        .is_user()
        .then(|| io::Error::new(source.kind(), source.to_string()))
}

/// Returns what checks a server's certificate against those that the system trusts.
pub async fn system_trust() -> Result<TlsConnector, RestError> {
    static TRUST: OnceLock<TlsConnector> = OnceLock::new();
    if let Some(connector) = TRUST.get() {
        return Ok(connector.clone());
    }
    // Some hundred kilobytes of files: not in the way of the media tasks.
    let found = tokio::task::spawn_blocking(|| trust_in(rustls_native_certs::load_native_certs()));
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

fn connector(roots: RootCertStore) -> TlsConnector {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the cipher suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[cfg(test)]
mod tests;
