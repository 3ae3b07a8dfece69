//! [`Socket`]: a client of the runner's WebSockets.
//!
//! In: an address, a path and header lines; then messages. Out: messages of the runner, each with
//! its arrival time, up to the end of the connection. It answers pings. Two tasks of a small
//! runtime do the work, so messages are received while the test is busy. Waits time out after
//! [`PATIENCE`].

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use edge_runner_proto::sockets::frames;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::runner::PATIENCE;

/// A message and its arrival time.
#[derive(Debug)]
pub struct TimedEvent {
    pub at: Instant,
    pub event: SocketEvent,
}

#[derive(Debug, PartialEq)]
pub enum SocketEvent {
    Text(String),
    Binary(Bytes),
    /// A close with its code, 1005 when it had none, and its reason.
    Close(u16, String),
    /// The end of the connection.
    Gone(String),
}

/// A rejected handshake.
#[derive(Debug)]
pub struct HandshakeError {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

pub struct Socket {
    outbox: UnboundedSender<Message>,
    inbox: Receiver<TimedEvent>,
    tasks: Vec<AbortHandle>,
}

/// Options of a connection.
#[derive(Clone, Copy, Default)]
pub struct ConnectOptions<'a> {
    /// Further header lines of the request.
    pub headers: &'a [(&'static str, &'a str)],
    /// Reads nothing after the handshake, with the smallest receive buffer.
    pub reads_nothing: bool,
    /// The source address, if not the default.
    pub from: Option<Ipv4Addr>,
}

impl Socket {
    /// Connects to `target`, a path with its query.
    pub fn connect(addr: SocketAddr, target: &str) -> Self {
        Self::try_connect(addr, target, ConnectOptions::default())
            .unwrap_or_else(|refused| panic!("{target}: {refused:?}"))
    }

    pub fn try_connect(addr: SocketAddr, target: &str, options: ConnectOptions<'_>) -> Result<Self, HandshakeError> {
        let mut request = format!("ws://{addr}{target}").into_client_request().expect("a URL");
        for (name, value) in options.headers {
            let value = value.parse().expect("the value of a header");
            request.headers_mut().insert(*name, value);
        }
        let stream = open(addr, options.from, options.reads_nothing)
            .unwrap_or_else(|error| panic!("connecting to {addr}: {error}"));
        let (mut sink, stream) = runtime().block_on(handshake(request, stream))?.split();
        let (outbox, mut letters) = unbounded_channel::<Message>();
        let (received, inbox) = channel();
        let writer = runtime().spawn(async move {
            while let Some(message) = letters.recv().await {
                if sink.send(message).await.is_err() {
                    break;
                }
            }
            // The reader needs this half until its own end.
            std::future::pending::<()>().await;
        });
        let reader = if options.reads_nothing {
            runtime().spawn(async move {
                let _ignored = (stream, received);
                std::future::pending::<()>().await;
            })
        } else {
            runtime().spawn(listen(stream, received))
        };
        Ok(Self {
            outbox,
            inbox,
            tasks: vec![writer.abort_handle(), reader.abort_handle()],
        })
    }

    pub fn text(&self, text: impl Into<String>) {
        self.send(Message::Text(text.into().into()));
    }

    pub fn binary(&self, bytes: impl Into<Bytes>) {
        self.send(Message::Binary(bytes.into()));
    }

    /// Sends an audio frame of the protobuf schema.
    pub fn audio(&self, pcm: &[i16], rate_hz: u32) {
        self.binary(frames::audio(pcm, rate_hz));
    }

    /// Sends a message frame of the protobuf schema.
    pub fn message(&self, text: &str) {
        self.binary(frames::message(text));
    }

    pub fn close(&self, code: u16) {
        self.send(Message::Close(Some(CloseFrame {
            code: code.into(),
            reason: "".into(),
        })));
    }

    /// Sends any message. On a closed connection it is dropped; the reader reports the end.
    pub fn send(&self, message: Message) {
        let _ = self.outbox.send(message);
    }

    /// Waits for the next message; `wanted` is for the text of a failure.
    pub fn next(&mut self, wanted: &str) -> TimedEvent {
        self.next_within(PATIENCE, wanted)
            .unwrap_or_else(|| panic!("waited in vain for {wanted}"))
    }

    /// Waits for the next message for at most `time`.
    pub fn next_within(&mut self, time: Duration, wanted: &str) -> Option<TimedEvent> {
        match self.inbox.recv_timeout(time) {
            Ok(arrived) => Some(arrived),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("nothing follows the end: {wanted}"),
        }
    }

    /// Waits until `look` returns a value. The end of the connection fails the test.
    pub fn until<T>(&mut self, wanted: &str, mut look: impl FnMut(&TimedEvent) -> Option<T>) -> T {
        loop {
            let arrived = self.next(wanted);
            if let Some(found) = look(&arrived) {
                return found;
            }
            if let SocketEvent::Gone(why) = arrived.event {
                panic!("the connection ended ({why}) before {wanted}");
            }
        }
    }

    /// Waits for the end, and returns the close before it.
    pub fn end(&mut self) -> Option<(u16, String)> {
        let mut close = None;
        self.until("the end of the connection", |arrived| match &arrived.event {
            SocketEvent::Close(code, reason) => {
                close = Some((*code, reason.clone()));
                None
            }
            SocketEvent::Gone(_) => Some(()),
            _ => None,
        });
        close
    }

    /// Drops the TCP connection without a close.
    pub fn vanish(self) {}
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn handshake(
    request: Request,
    stream: TcpStream,
) -> Result<WebSocketStream<tokio::net::TcpStream>, HandshakeError> {
    let stream = tokio::net::TcpStream::from_std(stream).expect("a runtime is there");
    let shaken = tokio::time::timeout(PATIENCE, client_async(request, stream)).await;
    match shaken.expect("the runner answers an upgrade") {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => {
            let headers = response.headers().iter();
            Err(HandshakeError {
                status: response.status().as_u16(),
                headers: headers
                    .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
                    .collect(),
                body: String::from_utf8_lossy(response.body().as_deref().unwrap_or_default()).into_owned(),
            })
        }
        Err(error) => panic!("the upgrade failed: {error}"),
    }
}

async fn listen(
    mut stream: SplitStream<WebSocketStream<tokio::net::TcpStream>>,
    received: std::sync::mpsc::Sender<TimedEvent>,
) {
    loop {
        let next = stream.next().await;
        let at = Instant::now();
        let event = match next {
            Some(Ok(Message::Text(text))) => SocketEvent::Text(text.as_str().to_owned()),
            Some(Ok(Message::Binary(bytes))) => SocketEvent::Binary(bytes),
            Some(Ok(Message::Close(close))) => match close {
                Some(close) => SocketEvent::Close(close.code.into(), close.reason.as_str().to_owned()),
                None => SocketEvent::Close(1005, String::new()),
            },
            Some(Ok(_)) => continue,
            Some(Err(error)) => SocketEvent::Gone(error.to_string()),
            None => SocketEvent::Gone("at its end".to_owned()),
        };
        let gone = matches!(event, SocketEvent::Gone(_));
        if received.send(TimedEvent { at, event }).is_err() || gone {
            return;
        }
    }
}

fn open(addr: SocketAddr, from: Option<Ipv4Addr>, reads_nothing: bool) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(addr), socket2::Type::STREAM, None)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::from((from, 0)).into())?;
    }
    if reads_nothing {
        socket.set_recv_buffer_size(4096)?;
    }
    socket.connect_timeout(&addr.into(), PATIENCE)?;
    socket.set_nonblocking(true)?;
    // No delay before frames are sent.
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads and timers can be had")
    })
}

/// Opens a WebSocket by hand, for data that no client would send. The stream is after the response
/// head.
pub fn bare(addr: SocketAddr, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE).expect("the runner listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out is legal");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time-out is legal");
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: {addr}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("the runner reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the runner answers");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Returns the seconds from `from` to `at`, at least 0.
pub fn seconds(from: Instant, at: Instant) -> f64 {
    at.checked_duration_since(from).unwrap_or(Duration::ZERO).as_secs_f64()
}
