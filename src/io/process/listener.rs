//! The loopback listener for a session's media, which accepts one WebSocket.
//!
//! In: TCP connections. Out: the WebSocket of the client that requests the secret path, after which
//! the listener closes. Another path gets 403 and does not count. A connection that sends no
//! request in time is dropped, and sooner when too many wait. A query with an invalid value gets
//! 400, and the program may retry. The path is 128 random bits and is never logged. Source: RFC
//! 6455 section 4.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use edge_runner_http::common::random;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

use crate::limits::{ACCEPT_PAUSE_MAX, EVAL_MESSAGE_BYTES_MAX, MESSAGES_IN_BYTES_MAX, PROCESS_MESSAGE_BYTES_MAX};
use crate::proto::process::media_query::MediaQuery;
use std::time::Duration;

/// Connections to one `media_url` in their handshake before the oldest is evicted: to keep the
/// program out, other connections have to arrive faster than it sends its request.
const PROCESS_HANDSHAKES_MAX: usize = 32;
/// Time of such a handshake.
const PROCESS_HANDSHAKE: Duration = Duration::from_secs(5);
/// Bytes per direction that the kernel buffers for the socket of a program: little, to keep the
/// audio recent.
const PROCESS_SOCKET_BUFFER_BYTES: u32 = 64 * 1024;

/// The program's WebSocket, from the runner's side.
pub type MediaSocket = WebSocketStream<TcpStream>;

/// The socket of a program, and what the program asks of it.
pub type AcceptedMedia = (MediaSocket, MediaQuery);

/// A listener that waits for one connection.
pub struct MediaListener {
    listener: TcpListener,
    address: SocketAddr,
    secret: Arc<SecretPath>,
}

struct SecretPath {
    path: String,
    /// Whether a handshake with the right path is running or done.
    taken: AtomicBool,
}

impl MediaListener {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// The system's error, for example when the process has no file descriptors left.
    pub fn bind() -> io::Result<MediaListener> {
        let socket = TcpSocket::new_v4()?;
        // Accepted sockets inherit these sizes. The system's defaults would buffer a minute of
        // speech.
        socket.set_recv_buffer_size(PROCESS_SOCKET_BUFFER_BYTES)?;
        socket.set_send_buffer_size(PROCESS_SOCKET_BUFFER_BYTES)?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(PROCESS_HANDSHAKES_MAX as u32)?;
        let address = listener.local_addr()?;
        Ok(MediaListener {
            listener,
            address,
            secret: Arc::new(SecretPath {
                path: format!("/{:032x}", u128::from_be_bytes(random())),
                taken: AtomicBool::new(false),
            }),
        })
    }

    pub fn url(&self) -> String {
        format!("ws://{}{}", self.address, self.secret.path)
    }

    /// Waits for the first valid handshake and closes the listener.
    pub async fn accept(self) -> AcceptedMedia {
        let mut handshakes = JoinSet::new();
        let mut pending = VecDeque::with_capacity(PROCESS_HANDSHAKES_MAX);
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        if self.make_room(&mut pending) {
                            pending.push_back(handshakes.spawn(handshake(stream, self.secret.clone())));
                        }
                    }
                    Err(error) => {
                        log::warn!("accepting the bot's media: {error}");
                        sleep(ACCEPT_PAUSE_MAX).await;
                    }
                },
                Some(finished) = handshakes.join_next() => match finished {
                    Ok(Ok(accepted)) => return accepted,
                    Ok(Err(why)) => log::debug!("a connection to the bot's media was refused: {why}"),
                    // The task panicked, and the panic was logged.
                    Err(_) => {}
                },
            }
        }
    }
}

impl MediaListener {
    /// Makes room for another handshake and returns whether there is room. The oldest handshake
    /// gives way, because a program sends its request right after it connects. Once the right path
    /// was requested there is no room: that handshake may be the oldest.
    fn make_room(&self, pending: &mut VecDeque<AbortHandle>) -> bool {
        pending.retain(|handshake| !handshake.is_finished());
        if pending.len() < PROCESS_HANDSHAKES_MAX {
            return true;
        }
        if self.secret.taken.load(Ordering::Relaxed) {
            return false;
        }
        if let Some(oldest) = pending.pop_front() {
            oldest.abort();
        }
        true
    }
}

/// Returns the buffer and message caps of the WebSocket library.
fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        // One frame beyond what the socket takes. The longest is of an evaluation.
        .max_write_buffer_size(2 * MESSAGES_IN_BYTES_MAX + EVAL_MESSAGE_BYTES_MAX)
        .max_message_size(Some(PROCESS_MESSAGE_BYTES_MAX))
        .max_frame_size(Some(PROCESS_MESSAGE_BYTES_MAX))
}

async fn handshake(stream: TcpStream, secret: Arc<SecretPath>) -> Result<AcceptedMedia, String> {
    // Small frames must not wait for the next one.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let (mut ours, mut asked) = (false, MediaQuery::default());
    #[allow(clippy::result_large_err, reason = "the library's own type")]
    let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        let refuse = |status, why| {
            let mut refusal = ErrorResponse::new(why);
            *refusal.status_mut() = status;
            Err(refusal)
        };
        if request.uri().path() != secret.path {
            return refuse(StatusCode::FORBIDDEN, None);
        }
        asked = match MediaQuery::parse(request.uri().query().unwrap_or_default()) {
            Ok(asked) => asked,
            Err(invalid) => return refuse(StatusCode::BAD_REQUEST, Some(invalid.to_string())),
        };
        if secret.taken.swap(true, Ordering::Relaxed) {
            return refuse(StatusCode::FORBIDDEN, None);
        }
        ours = true;
        Ok(response)
    };
    let handshake = timeout(
        PROCESS_HANDSHAKE,
        accept_hdr_async_with_config(stream, check, Some(config())),
    );
    let result = match handshake.await {
        Ok(Ok(socket)) => return Ok((socket, asked)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no request arrived in time".to_owned()),
    };
    if ours {
        // The program disconnected during the handshake and may retry.
        secret.taken.store(false, Ordering::Relaxed);
    }
    result
}

#[cfg(test)]
mod tests;
