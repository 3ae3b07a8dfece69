//! The HTTP part of the test server: one request per connection, and the WebSocket of an admitted
//! one.
//!
//! `/rtc` is a WebSocket or 404. `/rtc/validate` answers `success` or the reason of a refusal.
//! `/rtc/v1`, for a single peer connection, is 404, so that clients use `/rtc`.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::hub::Input;
use super::token::Claims;

const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How often the real server pings on the WebSocket level.
const PING_EVERY: Duration = Duration::from_secs(10);
/// How long a client may take to answer a close.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// The parts of a request that matter.
#[derive(Debug, Default)]
pub struct JoinRequest {
    pub path: String,
    pub query: Vec<(String, String)>,
    pub authorization: Option<String>,
    /// The key of a WebSocket upgrade.
    pub upgrade: Option<String>,
}

impl JoinRequest {
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut found = self.query.iter().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// Booleans are `1` or `true`.
    pub fn is_set(&self, name: &str) -> Option<bool> {
        self.parameter(name).map(|value| value == "1" || value == "true")
    }
}

/// The hub's decision on a request.
pub enum JoinDecision {
    Reply(u16, String),
    Admit(Box<Join>),
}

/// The parameters of an admitted participant.
#[derive(Debug, Default)]
pub struct Join {
    pub claims: Claims,
    pub protocol: i32,
    pub auto_subscribe: bool,
    /// It asked to resume an earlier connection.
    pub resumes: bool,
}

/// A message to a participant's WebSocket.
pub enum Outgoing {
    Message(Vec<u8>),
    Close,
}

/// Accepts connections until it is aborted.
pub async fn run(listener: TcpListener, hub: mpsc::UnboundedSender<Input>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let hub = hub.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(stream, hub).await {
                log::debug!("a connection ended: {error}");
            }
        });
    }
}

async fn serve(mut stream: TcpStream, hub: mpsc::UnboundedSender<Input>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if read.len() > HEAD_BYTES_MAX || stream.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
    };
    let request = parse(&String::from_utf8_lossy(&read[..end]));
    let upgrade = request.upgrade.clone();
    let (verdict, judged) = oneshot::channel();
    // Without a hub, connections are closed.
    if hub.send(Input::JoinRequest(request, verdict)).is_err() {
        return Ok(());
    }
    match (judged.await, upgrade) {
        (Ok(JoinDecision::Admit(join)), Some(key)) => {
            let accept = derive_accept_key(key.as_bytes());
            let head = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            let rest = read.split_off(end);
            let socket = WebSocketStream::from_partially_read(stream, rest, Role::Server, None).await;
            run_socket(socket, *join, hub).await;
        }
        (Ok(JoinDecision::Reply(status, body)), _) => {
            let head = format!(
                "HTTP/1.1 {status} .\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            stream.shutdown().await?;
        }
        _ => {}
    }
    Ok(())
}

async fn run_socket(mut socket: WebSocketStream<TcpStream>, join: Join, hub: mpsc::UnboundedSender<Input>) {
    let (sender, mut reported) = mpsc::unbounded_channel();
    let (given, number) = oneshot::channel();
    if hub.send(Input::Joined(Box::new(join), sender, given)).is_err() {
        return;
    }
    let Ok(number) = number.await else {
        return;
    };
    let mut ping = interval_at(tokio::time::Instant::now() + PING_EVERY, PING_EVERY);
    loop {
        let sent = tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    let _ = hub.send(Input::Message(number, bytes));
                    Ok(())
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => Ok(()),
            },
            outgoing = reported.recv() => match outgoing {
                Some(Outgoing::Message(bytes)) => socket.send(Message::Binary(bytes.into())).await,
                Some(Outgoing::Close) => {
                    let _ = timeout(CLOSE_WITHIN, async {
                        let _ = socket.close(None).await;
                        while let Some(Ok(_)) = socket.next().await {}
                    })
                    .await;
                    break;
                }
                // Closes without a close frame, like a server that dies.
                None => return,
            },
            _ = ping.tick() => socket.send(Message::Ping(Vec::new().into())).await,
        };
        if sent.is_err() {
            break;
        }
    }
    let _ = hub.send(Input::Closed(number));
}

fn parse(head: &str) -> JoinRequest {
    let mut sections = head.split("\r\n");
    let target = sections
        .next()
        .and_then(|section| section.split(' ').nth(1))
        .unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = JoinRequest {
        path: path.replace("//", "/"),
        ..Default::default()
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        request.query.push((name.to_owned(), decoded(value)));
    }
    for section in sections {
        let Some((name, value)) = section.split_once(':') else {
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => request.authorization = Some(value.trim().to_owned()),
            "sec-websocket-key" => request.upgrade = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    request
}

fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|two| std::str::from_utf8(two).ok());
        let code = code.and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(code.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
