//! Sessions on WebSockets: the socket, the permit of a call, and the hang-up at its provider.
//!
//! It starts when hyper has answered the upgrade. In: messages, writability, the end of a hang-up.
//! Out: the commands of [`SocketSession`], which are performed.

#[cfg(feature = "call")]
pub mod call;
pub mod dialled;
pub mod routes;

cfg_if::cfg_if! {
    if #[cfg(feature = "telephony")] {
        pub mod banner;
        pub mod dial;
        pub mod doctor;
        pub mod telephony;
        pub mod webhook;
    } else {
        #[path = "absent.rs"]
        pub mod telephony;
    }
}

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Sink as _, Stream as _};
use serde_json::json;
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
use crate::io::sessions::{CallAttempt, SessionStart, Sessions};
use crate::io::stream::MaybeTlsStream;
use crate::io::tasks::{self, Slot, request_time};
use crate::limits::{EVAL_MESSAGE_BYTES_MAX, HTTP_DISCARD_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::proto::answered_by::AnsweredBy;
use crate::proto::bots::UnknownBot;
use crate::proto::counts::Count;
use crate::proto::http::token::SocketTokens;
use crate::proto::http::traceparent::Traceparent;
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::admission::PendingKind;
use crate::proto::sockets::socket::{SocketBotStart, SocketCommand, SocketMessage, SocketReadError, SocketSession};
use crate::proto::telephony::proof::Proof;
use dialled::DialledSession;
use edge_runner_http::common::{Upgrade, lock};
use std::time::Duration;

/// Audio frames of a WebSocket caller queued for a slow bot: 10 s, while the bot loads its models.
/// The transport is reliable, so no frame is stale because of the network.
const SOCKET_IN_FRAMES_MAX: usize = 500;
/// Send buffer of a WebSocket in the kernel, in bytes. The default of 4 MiB holds minutes of
/// speech, so that a caller that stopped reading would be noticed too late.
const SOCKET_SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Time that a hang-up request has after its socket closed while the runner shuts down; then a
/// warning is logged.
const HANG_UP_AT_SHUTDOWN: Duration = Duration::from_millis(500);
/// Bytes that a WebSocket buffers for the network: four of the longest messages, and their framing.
const SOCKET_BUFFER_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX + 4 * 1024;

/// The endpoint of a WebSocket.
pub enum SocketEndpoint {
    Client,
    /// A telephony endpoint, with the proof of the call, and whether its URL names the bot. Else
    /// the call does, once it is known.
    Call {
        proof: Proof,
        names_bot: bool,
        /// Whether the URL announces an evaluation, which may send long messages.
        may_be_eval: bool,
    },
}

/// The start of the session of a socket.
pub struct SocketStart {
    pub start: SessionStart,
    /// `None` for a call that came in.
    pub dialled: Option<DialledSession>,
    /// The tokens of webhooks.
    pub tokens: Arc<Mutex<SocketTokens>>,
}

/// Returns the upgrade that turns a connection into a session. The permit is that of a session, or
/// for a telephony endpoint that of a handshake.
pub fn upgrade(sessions: Sessions, endpoint: SocketEndpoint, start: SocketStart, permit: SessionPermit) -> Upgrade {
    Box::new(move |stream, read| {
        let (id, client) = (start.start.session_id.clone(), start.start.log_client.clone());
        let task = run(sessions.clone(), stream, read, endpoint, start, permit);
        session::spawn(&sessions, id, client, task);
    })
}

async fn run(
    sessions: Sessions,
    stream: MaybeTlsStream,
    read: Bytes,
    endpoint: SocketEndpoint,
    SocketStart {
        mut start,
        dialled,
        tokens,
    }: SocketStart,
    permit: SessionPermit,
) {
    if let Err(error) = socket2::SockRef::from(stream.tcp()).set_send_buffer_size(SOCKET_SEND_BUFFER_BYTES) {
        log::debug!("the size of the send buffer: {error}");
    }
    let long_messages = match &endpoint {
        SocketEndpoint::Call { may_be_eval: true, .. } => sessions.long_evaluations().try_acquire(),
        _ => None,
    };
    let mut config = config();
    if long_messages.is_some() {
        // The session rejects a long message of a peer that is no evaluation.
        config = config
            .max_message_size(Some(EVAL_MESSAGE_BYTES_MAX))
            .max_frame_size(Some(EVAL_MESSAGE_BYTES_MAX));
    }
    // Both are boxed: the task would otherwise have the size of this step, 13 KiB, for good.
    let opening = Box::pin(WebSocketStream::from_partially_read(
        stream,
        read.into(),
        Role::Server,
        Some(config),
    ));
    let socket = Box::new(opening.await);
    let now = tasks::now();
    let (session, path, has_bot) = match endpoint {
        SocketEndpoint::Client => (SocketSession::client(now), "/ws-client", true),
        SocketEndpoint::Call { proof, names_bot, .. } => {
            let session = SocketSession::call(proof, sessions.config().clone(), now);
            (session, "/ws", names_bot)
        }
    };
    if has_bot {
        start.bot.mark_log();
    }
    let task = SessionTask::new(sessions, permit, start.lease.take());
    let io = WebSocketIo {
        socket,
        path,
        start: Some(start),
        dialled,
        tokens,
        has_bot,
        hang_up: None,
        long_messages,
        is_writable: true,
        is_readable: true,
        discard: HTTP_DISCARD_BYTES_MAX,
    };
    session::run(Box::new(session), io, task).await;
}

/// Returns the library's limits: messages up to the cap, and small buffers.
pub fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_write_buffer_size(SOCKET_BUFFER_BYTES_MAX)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
}

/// A hang-up in progress.
type HangUpFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The I/O of one WebSocket session.
struct WebSocketIo {
    socket: Box<WebSocketStream<MaybeTlsStream>>,
    path: &'static str,
    /// The start of the bot; `None` once it has started.
    start: Option<SessionStart>,
    /// `None` for a call that came in.
    dialled: Option<DialledSession>,
    tokens: Arc<Mutex<SocketTokens>>,
    /// Whether it is known which bot that is.
    has_bot: bool,
    /// The hang-up in progress.
    hang_up: Option<HangUpFuture>,
    /// Held by a socket that takes long messages.
    long_messages: Option<Slot>,
    /// Whether the socket has taken everything so far.
    is_writable: bool,
    /// Whether messages can be read; false after an error.
    is_readable: bool,
    /// Bytes to read and discard after an error.
    discard: usize,
}

/// An input of the session.
enum SocketInput {
    Event(WebSocketEvent),
    HungUp,
    AnsweredBy(AnsweredBy),
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
            dialled,
            start,
            ..
        } = self;
        let dialled = dialled.as_ref().filter(|_| start.is_none());
        tokio::select! {
            traffic = poll_fn(|cx| traffic(socket, *is_readable, *is_writable, discard, cx)) => SocketInput::Event(traffic),
            () = done(hang_up.as_mut()) => SocketInput::HungUp,
            by = answered_by(dialled) => SocketInput::AnsweredBy(by),
        }
    }

    fn deliver(&mut self, input: SocketInput, session: &mut SocketSession, task: &mut SessionTask) {
        let now = tasks::now();
        match input {
            SocketInput::HungUp => {
                self.hang_up = None;
                session.handle_hung_up(now);
            }
            SocketInput::AnsweredBy(by) => session.handle_answered_by(by),
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
                    Frame::Ping(_) => session.handle_ping(now),
                    Frame::Pong(_) => session.handle_pong(now),
                    Frame::Close(_) => session.handle_close(now),
                    Frame::Frame(_) => {}
                }
            }
            SocketInput::Event(WebSocketEvent::Message(None) | WebSocketEvent::Drained) => {
                session.handle_read_error(SocketReadError::Ended, now);
            }
            SocketInput::Event(WebSocketEvent::Message(Some(Err(error))) | WebSocketEvent::Flushed(Err(error))) => {
                self.is_readable = false;
                session.handle_read_error(read_error(&error), now);
            }
        }
    }

    fn perform(
        &mut self,
        command: SocketCommand,
        session: &mut SocketSession,
        task: &mut SessionTask,
        cx: &mut Context<'_>,
    ) {
        match command {
            SocketCommand::Send(message) => self.send(message, session, task, cx),
            SocketCommand::Admit => {
                let admitted = self.choose_bot(session, task).and_then(|()| admit(task));
                if let Err(refusal) = admitted {
                    self.note_refused(session, task, &refusal);
                    session.handle_refused(&refusal, tasks::now());
                }
            }
            SocketCommand::StartBot(begun) => {
                let id = self.start.as_ref().map(|start| start.session_id.clone());
                let id = id.filter(|_| begun.is_simulated);
                self.start_bot(*begun, task);
                // The page of a simulated call asks for its session by this.
                if let Some(id) = id {
                    let message = json!({"event": "edge_runner", "session": *id}).to_string();
                    self.send(SocketMessage::Text(message), session, task, cx);
                }
            }
            SocketCommand::HangUp(provider, request) => {
                self.hang_up = Some(Box::pin(rest::hang_up(provider, *request)));
            }
        }
    }

    fn close(self, session: &SocketSession, task: &SessionTask) -> CloseOutcome {
        if !task.has_bot() {
            let (path, after) = (self.path, tasks::now() - task.began);
            match session.refusal(after) {
                Some(why) => log::warn!("no session on {path}: {why}"),
                None => log::info!(
                    "no session on {path}: the connection ended after {:.1} s",
                    after.as_secs_f64()
                ),
            }
        }
        if let Some(call) = session.transferred_call() {
            lock(&self.tokens).expect_return(call, request_time());
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

/// Waits for a hang-up, but only for a while after shutdown.
async fn hung_up(hang_up: HangUpFuture, mut stopping: Shutdown) {
    tokio::select! {
        () = hang_up => {}
        () = async {
            stopping.wait().await;
            sleep(HANG_UP_AT_SHUTDOWN).await;
        } => log::warn!("the call was perhaps not hung up: the runner stops, and its provider has not answered"),
    }
}

async fn answered_by(dialled: Option<&DialledSession>) -> AnsweredBy {
    match dialled {
        Some(dialled) => dialled.answered_by().await,
        None => std::future::pending().await,
    }
}

async fn done(hang_up: Option<&mut HangUpFuture>) {
    match hang_up {
        Some(hang_up) => hang_up.await,
        None => std::future::pending().await,
    }
}

/// An event of the socket.
enum WebSocketEvent {
    /// All written bytes have been sent.
    Flushed(Result<(), Error>),
    Message(Option<Result<Frame, Error>>),
    /// The stream has ended after a read error.
    Drained,
}

/// Polls the socket in both directions for the next event.
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
    // Closing while the peer still sends would reset the connection and lose the close frame.
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

/// Maps the library's errors.
fn read_error(error: &Error) -> SocketReadError {
    log::debug!("socket: {error}");
    match error {
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => SocketReadError::Ended,
        Error::Capacity(CapacityError::MessageTooLong { .. }) => SocketReadError::TooLong,
        Error::Utf8(_) => SocketReadError::NotUtf8,
        Error::Protocol(_) => SocketReadError::Malformed,
        _ => SocketReadError::Broken,
    }
}

impl WebSocketIo {
    /// Writes a message, and tells the session if the socket is blocked.
    fn send(
        &mut self,
        message: SocketMessage,
        session: &mut SocketSession,
        task: &mut SessionTask,
        cx: &mut Context<'_>,
    ) {
        let frame = match message {
            SocketMessage::Text(text) => Frame::Text(text.into()),
            SocketMessage::Binary(bytes) => Frame::Binary(bytes.into()),
            SocketMessage::Ping => Frame::Ping(Bytes::new()),
            SocketMessage::Close(code, why) => Frame::Close(Some(CloseFrame {
                code: CloseCode::from(code),
                reason: why.into(),
            })),
        };
        task.counts.add(Count::PacketsOut, 1);
        task.counts.add(Count::BytesOut, frame.len() as u64);
        let mut socket = Pin::new(&mut *self.socket);
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
                let error = if has_ended {
                    SocketReadError::Ended
                } else {
                    SocketReadError::Broken
                };
                session.handle_read_error(error, tasks::now());
            }
        }
    }

    /// Chooses the bot of a call, and takes its place.
    fn choose_bot(&mut self, session: &SocketSession, task: &SessionTask) -> Result<(), SessionRefusal> {
        let Some(start) = &mut self.start else { return Ok(()) };
        // The numbers of a dialled call choose no bot, and its caller is the runner.
        let came_in = self.dialled.is_none();
        if !self.has_bot {
            let bots = task.sessions.bots();
            let choice = match &self.dialled {
                Some(dialled) => dialled.bot_choice(),
                None => session.bot_choice(),
            };
            let chosen = bots.choose(choice);
            start.bot = chosen.unwrap_or_else(|UnknownBot| bots.default());
        }
        start.bot.mark_log();
        if let Some(from) = session.caller().filter(|_| came_in) {
            start.bot.check_caller(from)?;
        }
        start.bot.take_place()
    }

    /// Reports a call that is turned away, a dialled one as such.
    fn note_refused(&self, session: &SocketSession, task: &SessionTask, refusal: &SessionRefusal) {
        let Some(start) = &self.start else { return };
        let mut call_data = session.call_data().cloned().unwrap_or_default();
        if let Some(dialled) = &self.dialled {
            dialled.complete(&mut call_data);
        }
        let call = CallAttempt {
            id: start.session_id.clone(),
            transport: Some(session.transport()),
            source: task.permit.requester().source,
            call_data: &call_data,
            trace: Traceparent::of_body(&start.body),
        };
        let bot = start.bot.row().name().map(|name| &**name);
        task.sessions.note_refused(call, bot, refusal);
    }

    fn start_bot(&mut self, begun: SocketBotStart, task: &mut SessionTask) {
        let Some(start) = self.start.take() else { return };
        let SocketBotStart {
            transport,
            mut call_data,
            eval,
            line_rate_hz,
            line_laws,
            is_simulated,
        } = begun;
        if let (Some(dialled), Some(call_data)) = (&self.dialled, &mut call_data) {
            dialled.complete(call_data);
        }
        // The body of a call is what its provider passes on, or what it was dialled with.
        let body = call_data.as_ref().and_then(|data| data.get("body").cloned());
        let body = body.unwrap_or(start.body);
        let has_long_messages = eval.is_some() && self.long_messages.is_some();
        let connection = WebSocketConnection::new(self.path);
        task.start_bot(
            start.bot,
            start.session_id,
            body,
            transport,
            SOCKET_IN_FRAMES_MAX,
            |slot| {
                let arguments = WebSocketArguments::new(connection, transport, call_data, slot);
                let arguments = arguments.on_line(line_rate_hz, line_laws).simulated(is_simulated);
                bot::Kind::WebSocket(arguments.of_eval(eval).with_long_messages(has_long_messages))
            },
        );
    }
}

/// Exchanges the permit of a handshake for that of a session.
fn admit(task: &mut SessionTask) -> Result<(), SessionRefusal> {
    // A call whose socket was accepted before a drain belongs to those that it waits for.
    if task.sessions.shutdown().is_set() {
        return Err(SessionRefusal::Stopping);
    }
    let requester = task.permit.requester();
    task.permit = task.sessions.admission().session(requester, PendingKind::Caller)?;
    Ok(())
}
