//! Opens the WebSocket of a LiveKit server: one HTTP upgrade request, with or without TLS.
//!
//! In: URL and token. Out: the socket, the refusal with its text, or the reason for the failure,
//! within [`ROOM_DIAL_WITHIN`]. The token is sent in a header; neither it nor the URL reaches an
//! error or the log. `rest` chooses the trusted certificates. Rejects redirects and answers that
//! are not an upgrade. Source: RFC 6455 section 4; `docs/spec/livekit.md` 2.

use std::pin::pin;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::io::rest::{self, ClientStream, RequestUrl, RestError};
use crate::limits::{
    REST_HEAD_BYTES_MAX, ROOM_DIAL_WITHIN, ROOM_MESSAGE_BYTES_MAX, ROOM_REFUSAL_BYTES_MAX, ROOM_SEND_BYTES_MAX,
};
use crate::proto::livekit::session::DialRequest;

/// An open WebSocket.
pub type RoomSocket = WebSocketStream<ClientStream>;

/// Why no WebSocket was opened.
#[derive(Debug, PartialEq, Eq)]
pub enum DialError {
    /// The server answered with another status and this text.
    Refused { status: u16, text: String },
    /// The server did not answer, or not as a WebSocket server: the reason.
    Unreachable(String),
}

impl From<RestError> for DialError {
    fn from(error: RestError) -> Self {
        DialError::Unreachable(error.to_string())
    }
}

/// Opens the socket.
///
/// # Errors
/// [`DialError`] if the server refuses or cannot be reached.
pub async fn dial(request: DialRequest) -> Result<Box<RoomSocket>, DialError> {
    match timeout(ROOM_DIAL_WITHIN, open(&request)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(DialError::Unreachable(format!(
            "it did not answer within {} s",
            ROOM_DIAL_WITHIN.as_secs()
        ))),
    }
}

async fn open(request: &DialRequest) -> Result<Box<RoomSocket>, DialError> {
    let target = RequestUrl::of(&request.url)?;
    let stream = rest::open(&target, None).await?;
    upgrade(stream, &target, request).await
}

async fn upgrade(
    stream: ClientStream,
    target: &RequestUrl,
    request: &DialRequest,
) -> Result<Box<RoomSocket>, DialError> {
    let broken =
        |error: hyper::Error| DialError::Unreachable(format!("{} sent no valid response: {error}", target.host));
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
            return Err(read_refusal(answer).await);
        }
        let accepted = answer.headers().get(SEC_WEBSOCKET_ACCEPT);
        if accepted.map(HeaderValue::as_bytes) != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
            // It switches to another protocol.
            return Err(DialError::Refused {
                status: 101,
                text: String::new(),
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
        .map_err(|_| DialError::Unreachable("its connection is not the one that was made".into()))?;
    let read = parts.read_buf.into();
    let socket =
        WebSocketStream::from_partially_read(parts.io.into_inner(), read, Role::Client, Some(socket_config())).await;
    Ok(Box::new(socket))
}

fn upgrade_request(
    target: &RequestUrl,
    request: &DialRequest,
    key: &str,
) -> Result<hyper::Request<Full<Bytes>>, DialError> {
    let text = |text: &str, what: &str| {
        HeaderValue::try_from(text).map_err(|_| DialError::Unreachable(format!("no header can hold {what}")))
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
    let mut token = text(&format!("Bearer {}", request.token.expose()), "the token")?;
    token.set_sensitive(true);
    headers.insert(AUTHORIZATION, token);
    Ok(message)
}

/// Reads the reason of a refusal: the first line of a short text.
async fn read_refusal(answer: Response<Incoming>) -> DialError {
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), ROOM_REFUSAL_BYTES_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    DialError::Refused {
        status,
        text: text.lines().next().unwrap_or_default().to_owned(),
    }
}

/// The buffer sizes of the WebSocket library.
fn socket_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_write_buffer_size(ROOM_SEND_BYTES_MAX)
        .max_message_size(Some(ROOM_MESSAGE_BYTES_MAX))
        .max_frame_size(Some(ROOM_MESSAGE_BYTES_MAX))
}

#[cfg(test)]
mod tests;
