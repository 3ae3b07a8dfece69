//! Opens the WebSocket of a LiveKit server.
//!
//! In: URL and token. Out: the socket, the refusal with its text, or the reason for the failure,
//! within limits: `ROOM_DIAL_WITHIN` for a room. Source: `docs/spec/livekit.md` 2 and 6.1.

use crate::config::Secret;
use crate::io::websocket_client::{ClientSocket, SocketError, SocketLimits, SocketRequest, connect};
use crate::limits::{ROOM_MESSAGE_BYTES_MAX, ROOM_REFUSAL_BYTES_MAX};
use crate::proto::livekit::session::DialRequest;
use std::time::Duration;

/// Time from the URL of a room to an open WebSocket, including name resolution and TLS: a server
/// waits for the node of the room for up to 3, 6 and 9 s before it answers.
const ROOM_DIAL_WITHIN: Duration = Duration::from_secs(20);
/// Bytes queued for a LiveKit server: several offers, which are long in a full room.
const ROOM_SEND_BYTES_MAX: usize = 512 * 1024;

const LIMITS: SocketLimits = SocketLimits {
    within: ROOM_DIAL_WITHIN,
    message_bytes_max: ROOM_MESSAGE_BYTES_MAX,
    send_bytes_max: ROOM_SEND_BYTES_MAX,
    refusal_bytes_max: ROOM_REFUSAL_BYTES_MAX,
};

/// Why no WebSocket was opened.
#[derive(Debug, PartialEq, Eq)]
pub enum DialError {
    /// The server answered with another status and this text.
    Refused { status: u16, text: String },
    /// The server did not answer, or not as a WebSocket server: the reason.
    Unreachable(String),
}

impl From<SocketError> for DialError {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Refused { status, body } => DialError::Refused {
                status,
                text: first_line(&body),
            },
            error => DialError::Unreachable(error.to_string()),
        }
    }
}

/// Opens the socket of a room.
///
/// # Errors
/// [`DialError`] if the server refuses or cannot be reached.
pub async fn dial(request: DialRequest) -> Result<Box<ClientSocket>, DialError> {
    Ok(open(request, LIMITS).await?)
}

/// Opens a socket of the server within these limits.
///
/// # Errors
/// [`SocketError`] if the server refuses or cannot be reached.
pub async fn open(request: DialRequest, limits: SocketLimits) -> Result<Box<ClientSocket>, SocketError> {
    let bearer = Secret::new(format!("Bearer {}", request.token.expose()));
    connect(SocketRequest {
        url: &request.url,
        headers: &[("authorization", bearer)],
        limits,
    })
    .await
}

/// Returns the reason of a refusal: the first line of a short text.
fn first_line(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
