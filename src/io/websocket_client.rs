//! Opens a WebSocket to a server: one HTTP upgrade request, with or without TLS.
//!
//! In: the URL, secret headers and limits. Out: the socket, the refusal with the beginning of its
//! body, or the reason for the failure, within the time limit. Neither a header nor the URL reaches
//! an error or the log. Offers no extension, so messages are never compressed. Rejects redirects
//! and answers that are not an upgrade. Source: RFC 6455 section 4.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{
    CONNECTION, HOST, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::config::Secret;
use crate::io::rest::{self, ClientStream, RequestUrl, RestError};
use crate::limits::REST_HEAD_BYTES_MAX;

/// An open WebSocket.
pub type ClientSocket = WebSocketStream<ClientStream>;

/// A WebSocket to open.
pub struct SocketRequest<'r> {
    /// With the scheme `http`, `https`, `ws` or `wss`.
    pub url: &'r str,
    /// Headers of the upgrade request.
    pub headers: &'r [(&'static str, Secret)],
    pub limits: SocketLimits,
}

/// The limits of a WebSocket.
#[derive(Clone, Copy, Debug)]
pub struct SocketLimits {
    /// From the name lookup to the open socket.
    pub within: Duration,
    /// Bytes of one message of the server.
    pub message_bytes_max: usize,
    /// Bytes queued for the server.
    pub send_bytes_max: usize,
    /// Bytes of the body of a refusal that are kept.
    pub refusal_bytes_max: usize,
}

/// Why no WebSocket was opened.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketError {
    /// The server answered with another status and this body, if it is within the limit.
    #[error("it answered with status {status}")]
    Refused { status: u16, body: Bytes },
    /// The server did not answer, or not as a WebSocket server: the reason.
    #[error("{0}")]
    Unreachable(String),
    /// The server did not answer in time.
    #[error("it did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
}

impl From<RestError> for SocketError {
    fn from(error: RestError) -> Self {
        SocketError::Unreachable(error.to_string())
    }
}

/// Opens a WebSocket.
///
/// # Errors
/// [`SocketError`] if the server refuses or cannot be reached in time.
pub async fn connect(request: SocketRequest<'_>) -> Result<Box<ClientSocket>, SocketError> {
    match timeout(request.limits.within, open(&request)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(SocketError::TimedOut(request.limits.within)),
    }
}

async fn open(request: &SocketRequest<'_>) -> Result<Box<ClientSocket>, SocketError> {
    let target = match request.url.split_once("://") {
        Some(("ws", rest)) => RequestUrl::of(&format!("http://{rest}"))?,
        Some(("wss", rest)) => RequestUrl::of(&format!("https://{rest}"))?,
        _ => RequestUrl::of(request.url)?,
    };
    let stream = rest::open(&target, None).await?;
    upgrade(stream, &target, request).await
}

async fn upgrade(
    stream: ClientStream,
    target: &RequestUrl,
    request: &SocketRequest<'_>,
) -> Result<Box<ClientSocket>, SocketError> {
    let broken =
        |error: hyper::Error| SocketError::Unreachable(format!("{} sent no valid response: {error}", target.host));
    let key = generate_key();
    let message = upgrade_request(target, request, &key)?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(REST_HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let answer = async {
        let answer = sender.send_request(message).await.map_err(broken)?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(read_refusal(answer, request.limits.refusal_bytes_max).await);
        }
        let accepted = answer.headers().get(SEC_WEBSOCKET_ACCEPT);
        if accepted.map(HeaderValue::as_bytes) != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
            // It switches to another protocol.
            return Err(SocketError::Refused {
                status: 101,
                body: Bytes::new(),
            });
        }
        hyper::upgrade::on(answer).await.map_err(broken)
    };
    let (mut answer, mut connection) = (pin!(answer), pin!(connection.with_upgrades()));
    // The connection moves the bytes. When it ends first, what it has read is still returned.
    let upgraded = tokio::select! {
        biased;
        answer = &mut answer => answer?,
        _ = &mut connection => answer.await?,
    };
    let parts = upgraded
        .downcast::<TokioIo<ClientStream>>()
        .map_err(|_| SocketError::Unreachable("its connection is not the one that was made".into()))?;
    let read = parts.read_buf.into();
    let config = Some(socket_config(request.limits));
    let socket = WebSocketStream::from_partially_read(parts.io.into_inner(), read, Role::Client, config).await;
    Ok(Box::new(socket))
}

fn upgrade_request(
    target: &RequestUrl,
    request: &SocketRequest<'_>,
    key: &str,
) -> Result<hyper::Request<Full<Bytes>>, SocketError> {
    let text = |text: &str, what: &str| {
        HeaderValue::try_from(text).map_err(|_| SocketError::Unreachable(format!("no header can hold {what}")))
    };
    // An empty body of the type that `rest` sends.
    let mut message = hyper::Request::new(Full::default());
    *message.uri_mut() = target.path.clone();
    let headers = message.headers_mut();
    headers.insert(HOST, text(&target.authority, "its host")?);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    headers.insert(SEC_WEBSOCKET_KEY, text(key, "its key")?);
    for (name, secret) in request.headers {
        let mut value = text(secret.expose(), "the token")?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(message)
}

/// Reads the body of a refusal, if it is short.
async fn read_refusal(answer: Response<Incoming>, bytes_max: usize) -> SocketError {
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), bytes_max).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    SocketError::Refused { status, body }
}

/// The buffer sizes of the WebSocket library.
fn socket_config(limits: SocketLimits) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_write_buffer_size(limits.send_bytes_max)
        .max_message_size(Some(limits.message_bytes_max))
        .max_frame_size(Some(limits.message_bytes_max))
}
