//! The WebSocket to a speech-to-speech service: connects, reads, writes and pings.
//!
//! In: a request to connect, text frames, a close code. Out: [`ServiceEvent`]s. Reading never waits
//! for writing, since an interruption stands behind the audio in the same stream: what cannot be
//! written at once is buffered up to a cap. A connection that answers no ping is lost.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{Sink as _, Stream as _};
use log::debug;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message as Frame, Utf8Bytes};

use crate::config::Secret;
use crate::io::trace;
use crate::io::websocket_client::{ClientSocket, SocketError, SocketLimits, SocketRequest, connect};
use crate::limits::{ASSISTANT_MESSAGE_BYTES_MAX, ASSISTANT_REFUSAL_BYTES_MAX, ASSISTANT_SEND_BYTES_MAX};
use crate::proto::http::traceparent::TRACEPARENT;
use std::time::Duration;

/// Time from the name lookup to the open connection of a service.
const ASSISTANT_CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Interval of pings to a service that is silent.
const ASSISTANT_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time that a service has to answer a ping.
const ASSISTANT_PONG_WITHIN: Duration = Duration::from_secs(20);
/// Time of the closing handshake with a service.
const ASSISTANT_CLOSE_WITHIN: Duration = Duration::from_millis(400);

/// The limits of a connection to a service.
pub const LIMITS: SocketLimits = SocketLimits {
    within: ASSISTANT_CONNECT_WITHIN,
    message_bytes_max: ASSISTANT_MESSAGE_BYTES_MAX,
    send_bytes_max: ASSISTANT_SEND_BYTES_MAX,
    refusal_bytes_max: ASSISTANT_REFUSAL_BYTES_MAX,
};

type Connecting = Pin<Box<dyn Future<Output = Result<Box<ClientSocket>, SocketError>> + Send>>;

/// The connection of one session to its service.
#[derive(Default)]
pub enum ServiceSocket {
    #[default]
    Closed,
    Connecting(Connecting),
    Open(OpenSocket),
    /// One side has closed it; what still arrives is dropped.
    Closing(Box<ClientSocket>),
    /// It has failed, and the next event says so.
    Broken,
}

/// An open connection, with its keep-alive.
pub struct OpenSocket {
    socket: Box<ClientSocket>,
    /// Whether everything written has been flushed.
    is_flushed: bool,
    /// When to send the next ping, or, after a ping, when the connection counts as lost.
    deadline: Instant,
    is_pinged: bool,
}

/// Something that happened on the connection.
pub enum ServiceEvent {
    Connected(Result<(), SocketError>),
    Text(Utf8Bytes),
    /// The connection ended, with the code of the service if it closed it.
    Closed(Option<u16>),
}

/// A step of an open connection.
enum SocketStep {
    Connected(Result<Box<ClientSocket>, SocketError>),
    Flushed(Result<(), Error>),
    Read(Option<Result<Frame, Error>>),
}

impl ServiceSocket {
    /// Opens a new connection; the old one is dropped.
    pub fn connect(&mut self, url: String, mut headers: Vec<(&'static str, Secret)>) {
        headers.extend(trace::current().map(|trace| (TRACEPARENT, Secret::new(trace.as_str()))));
        *self = ServiceSocket::Connecting(Box::pin(async move {
            let request = SocketRequest {
                url: &url,
                headers: &headers,
                limits: LIMITS,
            };
            connect(request).await
        }));
    }

    /// Queues a text frame. Without an open connection it is dropped.
    pub fn send(&mut self, text: String) {
        self.write(Frame::Text(text.into()));
    }

    /// Begins to close the connection.
    pub fn close(&mut self, code: u16) {
        self.write(Frame::Close(Some(CloseFrame {
            code: code.into(),
            reason: Utf8Bytes::default(),
        })));
        *self = match std::mem::take(self) {
            ServiceSocket::Open(open) => ServiceSocket::Closing(open.socket),
            _ => ServiceSocket::Closed,
        };
    }

    /// Waits until a close is complete, for a short time.
    pub async fn finish(mut self) {
        if let ServiceSocket::Open(_) = self {
            self.close(1000);
        }
        if let ServiceSocket::Closing(socket) = &mut self {
            let ended = poll_fn(|cx| poll_end(socket, cx));
            let _ = timeout(ASSISTANT_CLOSE_WITHIN, ended).await;
        }
    }

    /// Waits for the next event.
    ///
    /// This method is cancel safe: dropping its future loses no event.
    pub async fn recv(&mut self) -> ServiceEvent {
        loop {
            let deadline = match self {
                ServiceSocket::Open(open) => Some(open.deadline),
                _ => None,
            };
            let step = tokio::select! {
                biased;
                step = poll_fn(|cx| self.poll_step(cx)) => step,
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    match self.handle_deadline() {
                        Some(event) => return event,
                        None => continue,
                    }
                }
            };
            if let Some(event) = self.handle_step(step) {
                return event;
            }
        }
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<SocketStep> {
        match self {
            ServiceSocket::Closed => Poll::Pending,
            ServiceSocket::Broken => Poll::Ready(SocketStep::Read(None)),
            ServiceSocket::Connecting(connecting) => connecting.as_mut().poll(cx).map(SocketStep::Connected),
            ServiceSocket::Open(open) => {
                if !open.is_flushed
                    && let Poll::Ready(flushed) = Pin::new(&mut *open.socket).poll_flush(cx)
                {
                    return Poll::Ready(SocketStep::Flushed(flushed));
                }
                Pin::new(&mut *open.socket).poll_next(cx).map(SocketStep::Read)
            }
            ServiceSocket::Closing(socket) => {
                if poll_end(socket, cx).is_ready() {
                    *self = ServiceSocket::Closed;
                }
                Poll::Pending
            }
        }
    }

    fn handle_step(&mut self, step: SocketStep) -> Option<ServiceEvent> {
        match step {
            SocketStep::Connected(Ok(socket)) => {
                *self = ServiceSocket::Open(OpenSocket {
                    socket,
                    is_flushed: true,
                    deadline: Instant::now() + ASSISTANT_PING_INTERVAL,
                    is_pinged: false,
                });
                Some(ServiceEvent::Connected(Ok(())))
            }
            SocketStep::Connected(Err(error)) => {
                *self = ServiceSocket::Closed;
                Some(ServiceEvent::Connected(Err(error)))
            }
            SocketStep::Flushed(Ok(())) => {
                if let ServiceSocket::Open(open) = self {
                    open.is_flushed = true;
                }
                None
            }
            SocketStep::Read(Some(Ok(Frame::Close(frame)))) => {
                // The library answers it with the next read.
                if let ServiceSocket::Open(open) = std::mem::take(self) {
                    *self = ServiceSocket::Closing(open.socket);
                }
                Some(ServiceEvent::Closed(frame.map(|frame| u16::from(frame.code))))
            }
            SocketStep::Read(Some(Ok(frame))) => {
                if let ServiceSocket::Open(open) = self {
                    open.deadline = Instant::now() + ASSISTANT_PING_INTERVAL;
                    open.is_pinged = false;
                }
                match frame {
                    Frame::Text(text) => Some(ServiceEvent::Text(text)),
                    // The library answers pings. The protocol has no binary frames.
                    _ => None,
                }
            }
            SocketStep::Read(None) => Some(self.lose()),
            SocketStep::Read(Some(Err(error))) | SocketStep::Flushed(Err(error)) => {
                debug!("the connection to the service: {error}");
                Some(self.lose())
            }
        }
    }

    /// Sends a ping, or gives up a connection that answered none.
    fn handle_deadline(&mut self) -> Option<ServiceEvent> {
        let ServiceSocket::Open(open) = self else { return None };
        if open.is_pinged {
            debug!("the service answered no ping");
            return Some(self.lose());
        }
        open.is_pinged = true;
        open.deadline = Instant::now() + ASSISTANT_PONG_WITHIN;
        self.write(Frame::Ping(Bytes::new()));
        None
    }

    fn lose(&mut self) -> ServiceEvent {
        *self = ServiceSocket::Closed;
        ServiceEvent::Closed(None)
    }

    /// Buffers a frame. [`ServiceSocket::recv`] writes it, and reports a failure.
    fn write(&mut self, frame: Frame) {
        let ServiceSocket::Open(open) = self else { return };
        open.is_flushed = false;
        if let Err(error) = Pin::new(&mut *open.socket).start_send(frame) {
            debug!("writing to the service: {error}");
            *self = ServiceSocket::Broken;
        }
    }
}

/// Flushes and reads until the connection ends.
fn poll_end(socket: &mut ClientSocket, cx: &mut Context<'_>) -> Poll<()> {
    let _ = Pin::new(&mut *socket).poll_flush(cx);
    loop {
        match Pin::new(&mut *socket).poll_next(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => return Poll::Ready(()),
        }
    }
}
