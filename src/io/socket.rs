//! What carries a session on a WebSocket: the socket, the proof of whose call it is, and the
//! hang-up at its provider.
//!
//! It begins when hyper has answered the upgrade. In: messages, room to write, the end of a
//! hang-up. Out: those of [`SocketSession`]. The bot starts when the session knows its caller, and
//! a permit was to be had.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Sink as _, Stream as _};
use tokio::io::AsyncRead as _;
use tokio::io::ReadBuf;
use tokio::time::sleep;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

use crate::bot::{self, Shutdown, WebSocketArguments, WebSocketConnection};
use crate::io::admission::SessionPermit;
use crate::io::rest;
use crate::io::session::{self, CloseOutcome, SessionIo, SessionTask};
use crate::io::sessions::{SessionStart, Sessions};
use crate::io::stream::MaybeTlsStream;
use crate::io::tasks;
use crate::limits::{
    HANG_UP_AT_SHUTDOWN, HTTP_DISCARD_BYTES_MAX, MESSAGE_BYTES_MAX, SOCKET_BUFFER_BYTES_MAX, SOCKET_IN_FRAMES_MAX,
    SOCKET_SEND_BUFFER_BYTES,
};
use crate::proto::counts::Count;
use crate::proto::server::admission::PendingKind;
use crate::proto::session::Session as _;
use crate::proto::sockets::socket::{Command, Message, ReadError, Refused, SocketSession};
use crate::proto::telephony::hangup;
use crate::proto::telephony::proof::{Proof, Unproven};
use edge_runner_http::common::Upgrade;

/// What a socket was let in with.
pub enum SocketPermit {
    /// The place of a session, whose bot starts at once.
    Session(SessionPermit),
    /// The place of a handshake, after which one of a session is to be had.
    Handshake(SessionPermit),
}

/// The endpoint that a socket came to.
pub enum SocketEndpoint {
    Client,
    /// A telephone's, with what shows whose call it is.
    Call(Proof),
}

/// Makes what an accepted upgrade becomes: a session of its own.
pub fn upgrade(sessions: Sessions, endpoint: SocketEndpoint, start: SessionStart, entry: SocketPermit) -> Upgrade {
    Box::new(move |stream, read| {
        let (id, client) = (start.session_id.clone(), start.log_client.clone());
        let task = run(sessions.clone(), stream, read, endpoint, start, entry);
        session::spawn(&sessions, id, client, task);
    })
}

async fn run(
    sessions: Sessions,
    stream: MaybeTlsStream,
    read: Bytes,
    endpoint: SocketEndpoint,
    mut start: SessionStart,
    entry: SocketPermit,
) {
    if let Err(error) = socket2::SockRef::from(stream.tcp()).set_send_buffer_size(SOCKET_SEND_BUFFER_BYTES) {
        log::debug!("the size of the send buffer: {error}");
    }
    let socket = WebSocketStream::from_partially_read(stream, read.into(), Role::Server, Some(config())).await;
    let now = tasks::now();
    let (session, path, proof) = match endpoint {
        SocketEndpoint::Client => (SocketSession::client(now), "/ws-client", Proof::Nothing),
        SocketEndpoint::Call(proof) => (SocketSession::call(now), "/ws", proof),
    };
    let (permit, is_handshake) = match entry {
        SocketPermit::Session(permit) => (permit, false),
        SocketPermit::Handshake(permit) => (permit, true),
    };
    let task = SessionTask::new(sessions, permit, start.lease.take());
    let carrier = WebSocketIo {
        socket,
        path,
        is_handshake,
        proof,
        unproven: None,
        start: Some(start),
        hang_up: None,
        is_writable: true,
        is_readable: true,
        discard: HTTP_DISCARD_BYTES_MAX,
    };
    session::run(Box::new(session), carrier, task).await;
}

/// What the library may hold: messages up to our cap, and nothing that need not be.
pub fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_write_buffer_size(SOCKET_BUFFER_BYTES_MAX)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
}

/// A hang-up on its way.
type HangUpFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The socket of one session.
struct WebSocketIo {
    socket: WebSocketStream<MaybeTlsStream>,
    path: &'static str,
    /// The permit is that of a handshake, after which one of a session is to be had.
    is_handshake: bool,
    /// What shows that a call is its provider's.
    proof: Proof,
    /// The call was refused for want of that.
    unproven: Option<Unproven>,
    /// What the bot starts from; gone once it has.
    start: Option<SessionStart>,
    /// The provider's answer to a hang-up is awaited.
    hang_up: Option<HangUpFuture>,
    /// The socket took all that it was given.
    is_writable: bool,
    /// The socket's messages can be read; after an error they cannot.
    is_readable: bool,
    /// Bytes that a peer may still send after it was told to stop.
    discard: usize,
}

/// What has come.
enum SocketInput {
    Event(WebSocketEvent),
    HungUp,
}

impl SessionIo for WebSocketIo {
    type Session = SocketSession;
    type Input = SocketInput;

    async fn recv(&mut self) -> SocketInput {
        let WebSocketIo {
            socket,
            hang_up,
            is_writable,
            is_readable,
            discard,
            ..
        } = self;
        tokio::select! {
            traffic = poll_fn(|cx| traffic(socket, *is_readable, *is_writable, discard, cx)) => SocketInput::Event(traffic),
            () = done(hang_up.as_mut()) => SocketInput::HungUp,
        }
    }

    fn deliver(&mut self, input: SocketInput, session: &mut SocketSession, task: &mut SessionTask) {
        let now = tasks::now();
        match input {
            SocketInput::HungUp => {
                self.hang_up = None;
                session.handle_hung_up(now);
            }
            SocketInput::Event(WebSocketEvent::Flushed(Ok(()))) => {
                self.is_writable = true;
                session.handle_writable();
            }
            SocketInput::Event(WebSocketEvent::Message(Some(Ok(frame)))) => {
                task.counts.add(Count::PacketsIn, 1);
                task.counts.add(Count::BytesIn, frame.len() as u64);
                match frame {
                    Frame::Text(text) => session.handle_text(&text, now),
                    Frame::Binary(bytes) => session.handle_binary(bytes, now),
                    Frame::Ping(_) | Frame::Pong(_) => session.handle_pong(now),
                    Frame::Close(_) => session.handle_close(now),
                    Frame::Frame(_) => {}
                }
            }
            SocketInput::Event(WebSocketEvent::Message(None) | WebSocketEvent::Drained) => {
                session.handle_read_error(ReadError::Ended, now);
            }
            SocketInput::Event(WebSocketEvent::Message(Some(Err(error))) | WebSocketEvent::Flushed(Err(error))) => {
                self.is_readable = false;
                session.handle_read_error(read_error(&error), now);
            }
        }
    }

    fn perform(&mut self, command: Command, session: &mut SocketSession, task: &mut SessionTask, cx: &mut Context<'_>) {
        match command {
            Command::Send(message) => self.send(message, session, task, cx),
            Command::Begin => {
                if let Err(refused) = self.begin(session, task) {
                    session.handle_refused(refused, tasks::now());
                }
            }
            Command::HangUp => self.hang_up(session, task),
        }
    }

    fn close(self, session: &SocketSession, task: &SessionTask) -> CloseOutcome {
        if !task.has_bot() {
            let (path, seconds) = (self.path, (tasks::now() - task.began).as_secs_f64());
            match (self.unproven, session.refused()) {
                (Some(unproven), _) => {
                    let advice = unproven.advice(task.sessions.config().proxy.as_deref());
                    log::warn!("no session on {path}: {advice}");
                }
                (None, Some(why)) => log::warn!("no session on {path}: {why}, after {seconds:.1} s"),
                (None, None) => log::info!("no session on {path}: the connection ended after {seconds:.1} s"),
            }
        }
        let shutdown = task.sessions.shutdown().clone();
        CloseOutcome {
            hang_up: self
                .hang_up
                .map(|hang_up| Box::pin(hung_up(hang_up, shutdown)) as HangUpFuture),
            ..CloseOutcome::default()
        }
    }
}

/// Waits for a hang-up, and at the runner's end not for long.
async fn hung_up(hang_up: HangUpFuture, mut stopping: Shutdown) {
    tokio::select! {
        () = hang_up => {}
        () = async {
            stopping.wait().await;
            sleep(HANG_UP_AT_SHUTDOWN).await;
        } => log::warn!("the call was perhaps not hung up: the runner stops, and its provider has not answered"),
    }
}

async fn done(hang_up: Option<&mut HangUpFuture>) {
    match hang_up {
        Some(hang_up) => hang_up.await,
        None => std::future::pending().await,
    }
}

/// What a socket has for its session.
enum WebSocketEvent {
    /// All that was written has left.
    Flushed(Result<(), Error>),
    Message(Option<Result<Frame, Error>>),
    /// The end of a stream whose messages cannot be read.
    Drained,
}

/// Moves bytes both ways until something comes of it.
fn traffic(
    socket: &mut WebSocketStream<MaybeTlsStream>,
    readable: bool,
    writable: bool,
    discard: &mut usize,
    cx: &mut Context<'_>,
) -> Poll<WebSocketEvent> {
    if !writable && let Poll::Ready(flushed) = Pin::new(&mut *socket).poll_flush(cx) {
        return Poll::Ready(WebSocketEvent::Flushed(flushed));
    }
    if readable {
        return Pin::new(socket).poll_next(cx).map(WebSocketEvent::Message);
    }
    // Closing while the peer still sends would make its system throw our close away.
    let mut bytes = [0; 1024];
    while *discard > 0 {
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(socket.get_mut()).poll_read(cx, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                *discard = discard.saturating_sub(buffer.filled().len())
            }
            Poll::Ready(_) => break,
        }
    }
    Poll::Ready(WebSocketEvent::Drained)
}

/// Sorts the library's errors.
fn read_error(error: &Error) -> ReadError {
    log::debug!("socket: {error}");
    match error {
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => ReadError::Ended,
        Error::Capacity(CapacityError::MessageTooLong { .. }) => ReadError::TooLong,
        Error::Utf8(_) => ReadError::NotUtf8,
        Error::Protocol(_) => ReadError::Malformed,
        _ => ReadError::Broken,
    }
}

impl WebSocketIo {
    /// Hands a message to the socket, and tells the session whether it took all of it.
    fn send(&mut self, message: Message, session: &mut SocketSession, task: &mut SessionTask, cx: &mut Context<'_>) {
        let frame = match message {
            Message::Text(text) => Frame::Text(text.into()),
            Message::Binary(bytes) => Frame::Binary(bytes.into()),
            Message::Ping => Frame::Ping(Bytes::new()),
            Message::Close(code, why) => Frame::Close(Some(CloseFrame {
                code: CloseCode::from(code),
                reason: why.into(),
            })),
        };
        task.counts.add(Count::PacketsOut, 1);
        task.counts.add(Count::BytesOut, frame.len() as u64);
        let mut socket = Pin::new(&mut self.socket);
        let sent = match socket.as_mut().start_send(frame) {
            Ok(()) => socket.poll_flush(cx),
            Err(error) => Poll::Ready(Err(error)),
        };
        match sent {
            Poll::Pending => {
                self.is_writable = false;
                session.handle_blocked(tasks::now());
            }
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => {
                log::debug!("socket: {error}");
                let has_ended = matches!(error, Error::ConnectionClosed);
                let error = if has_ended { ReadError::Ended } else { ReadError::Broken };
                session.handle_read_error(error, tasks::now());
            }
        }
    }

    /// Starts the bot, if the call is whose it claims to be and a permit is to be had.
    fn begin(&mut self, session: &SocketSession, task: &mut SessionTask) -> Result<(), Refused> {
        let call = session.telephone();
        let config = task.sessions.config().clone();
        // Who a call claims to be is known only now, and nothing is done for it before that is
        // shown.
        if let Some(call) = call
            && let Err(unproven) = self.proof.admit(call, &config.telephony)
        {
            self.unproven = Some(unproven);
            return Err(Refused::Unproven(unproven));
        }
        if self.is_handshake {
            if task.sessions.is_closed() {
                return Err(Refused::Stopping);
            }
            let requester = task.permit.requester();
            let permit = task.sessions.admission().session(requester, PendingKind::Caller);
            task.permit = permit.map_err(Refused::Admission)?;
            self.is_handshake = false;
        }
        let Some(start) = self.start.take() else { return Ok(()) };
        let transport = session.transport();
        let data = call.map(|call| call.data.clone());
        let line_rate_hz = call
            .filter(|call| call.rx.rate_hz == call.tx.rate_hz)
            .map(|call| call.rx.rate_hz);
        // A telephone's body is what its provider was told to pass on.
        let body = data.as_ref().and_then(|data| data.get("body").cloned());
        log::info!("session started: {}", session.name());
        if let Some(expected) = config
            .transport
            .filter(|expected| transport.is_telephony() && expected.is_telephony() && *expected != transport)
        {
            log::warn!(
                "the call is {}'s, though the runner was started with -t {}",
                transport.name(),
                expected.name()
            );
        }
        let connection = WebSocketConnection::new(self.path);
        let body = body.unwrap_or(start.body);
        task.start_bot(start.session_id, body, transport, SOCKET_IN_FRAMES_MAX, |slot| {
            bot::Kind::WebSocket(WebSocketArguments::new(connection, transport, data, line_rate_hz, slot))
        });
        Ok(())
    }

    /// Asks the provider to end the call, where there is somebody to ask.
    fn hang_up(&mut self, session: &mut SocketSession, task: &SessionTask) {
        let settings = &task.sessions.config().telephony.settings;
        let request = session.telephone().and_then(|call| {
            let request = hangup::request(call.provider, &call.call_id, settings)?;
            Some((call.provider, request))
        });
        match request {
            Some((provider, request)) => self.hang_up = Some(Box::pin(rest::hang_up(provider, request))),
            None => session.handle_hung_up(tasks::now()),
        }
    }
}
