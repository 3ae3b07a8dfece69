//! The media of one session on its way to a program and back, over one WebSocket.
//!
//! To the program: the caller's speech at 16 kHz, messages as they came, keys and marks as messages. From it: speech at any
//! rate, messages, interruptions, marks. Each direction has a queue that ends, and neither waits for the other: a program that
//! does not read loses the caller's oldest speech, one that speaks too far ahead is not read until the session has caught up.
//! Refuses, and ends with: text, bytes that are no frame, a message that is too long, a rate that cannot be played.

use std::fmt;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::door::{Door, Socket};
use crate::bot::media::{Audio, Event, Media, MediaError, Output};
use crate::limits::{PROCESS_CLOSE_WITHIN, PROCESS_MESSAGE_BYTES_MAX, PROCESS_REST, PROCESS_SETTLE};
use crate::proto::frames::{self, BadFrame, Frame};
use crate::proto::process;
use crate::proto::process::ahead::{Ahead, BadRate, Step};
use crate::proto::process::backlog::Backlog;

/// How a talk ended.
pub enum End {
    /// The session is over.
    Over(Farewell),
    /// The program closed its media, or is gone, and all that it said was handed over.
    HungUp,
    /// The program broke the protocol.
    Fault(Fault, Farewell),
}

/// What a program did wrong on its media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    Text,
    Frame(BadFrame),
    Rate(BadRate),
    TooLong,
    WebSocket(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("on its media it sent ")?;
        match self {
            Fault::Text => f.write_str("a text message; every message is a binary frame"),
            Fault::Frame(error) => write!(f, "a bad frame: {error}"),
            Fault::Rate(error) => error.fmt(f),
            Fault::TooLong => write!(f, "a message of more than {PROCESS_MESSAGE_BYTES_MAX} bytes"),
            Fault::WebSocket(error) => write!(f, "what is no WebSocket: {error}"),
        }
    }
}

impl std::error::Error for Fault {}

impl Fault {
    fn code(&self) -> CloseCode {
        match self {
            Fault::Text => CloseCode::Unsupported,
            Fault::Frame(_) => CloseCode::Invalid,
            Fault::Rate(_) => CloseCode::Policy,
            Fault::TooLong => CloseCode::Size,
            Fault::WebSocket(_) => CloseCode::Protocol,
        }
    }
}

/// The last word to a program: the socket, if it ever connected, and why it is closed.
pub struct Farewell(Option<(Box<Socket>, CloseFrame)>);

impl Farewell {
    fn new(line: Line, code: CloseCode, reason: String) -> Self {
        let reason = reason.into();
        Farewell(line.socket.map(|socket| (socket, CloseFrame { code, reason })))
    }

    /// Closes the socket, and waits a little for the program to close its side.
    pub async fn say(self) {
        let Some((mut socket, frame)) = self.0 else { return };
        let close = async {
            // Its end is what is wanted; how it comes about is not.
            if socket.close(Some(frame)).await.is_ok() {
                while let Some(Ok(_)) = socket.next().await {}
            }
        };
        let _ = timeout(PROCESS_CLOSE_WITHIN, close).await;
    }
}

/// Carries the media of one session until it ends. `exited` is told when the program has ended.
pub async fn run(media: Media, door: Door, exited: &Notify) -> End {
    let (mut events, output) = media.split();
    let mut backlog = Backlog::default();
    let mut admitted = pin!(door.admit());
    let mut line = loop {
        tokio::select! {
            event = events.recv() => if !hear(event, &mut backlog) {
                return End::Over(Farewell(None));
            },
            socket = &mut admitted => break Line::new(socket),
            () = exited.notified() => match timeout(PROCESS_REST, &mut admitted).await {
                // It connected, spoke and ended while nobody looked.
                Ok(socket) => break Line::new(socket),
                Err(_) => return End::HungUp,
            },
        }
    };
    let early = backlog.take_dropped();
    log::debug!(
        "the bot has opened its media; {} frames from before that were dropped",
        early.frames
    );
    let speech = Speech::default();
    let mut speaking = pin!(speech.hand_over(&output));
    let end = loop {
        if line.is_closed() && speech.ahead().is_done() {
            break End::HungUp;
        }
        let has_room = speech.ahead().has_room();
        tokio::select! {
            event = events.recv() => if !hear(event, &mut backlog) {
                break over(line);
            } else if !line.writable {
                backlog.clear();
            },
            message = poll_fn(|cx| line.exchange(&mut backlog, has_room, cx)) => {
                if let Err(fault) = take(message, &output, &speech, &mut backlog, &mut line) {
                    break End::Fault(fault.clone(), Farewell::new(line, fault.code(), fault.to_string()));
                }
            }
            MediaError = &mut speaking => break over(line),
            () = speech.caught_up.notified() => {}
        }
    };
    let dropped = backlog.take_dropped();
    if dropped != Default::default() {
        log::warn!(
            "the bot did not read in time: {} frames and {} messages to it were dropped",
            dropped.frames,
            dropped.messages
        );
    }
    end
}

fn over(line: Line) -> End {
    End::Over(Farewell::new(line, CloseCode::Normal, "the session is over".into()))
}

/// Queues what happened for the program; `false` once the session is over.
fn hear(event: Option<Event>, backlog: &mut Backlog) -> bool {
    match event {
        None | Some(Event::Left(_)) => return false,
        Some(Event::Audio(frame)) => backlog.push_speech(frames::audio(&frame, frame.rate_hz()), frame.len()),
        Some(Event::Message(text)) => backlog.push_message(frames::message(&text)),
        Some(Event::Dtmf(digit)) => backlog.push_message(frames::message(&process::dtmf(digit))),
        Some(Event::Mark { name, played }) => backlog.push_message(frames::message(&process::mark(&name, played))),
        Some(_) => {}
    }
    true
}

/// The socket of the program, as far as it still works.
struct Line {
    /// Gone once nothing more can be read: a program that closes waits until it is.
    socket: Option<Box<Socket>>,
    writable: bool,
    /// Before this is over, nothing is written: a pipeline that connects before it runs would choke on it.
    settling: Pin<Box<Sleep>>,
}

impl Line {
    fn new(socket: Socket) -> Self {
        Line {
            socket: Some(Box::new(socket)),
            writable: true,
            settling: Box::pin(sleep(PROCESS_SETTLE)),
        }
    }

    fn is_closed(&self) -> bool {
        self.socket.is_none()
    }

    /// Writes what waits, as far as the program reads, and reads the next message, if there is room for it.
    fn exchange(
        &mut self,
        backlog: &mut Backlog,
        has_room: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Message, Error>>> {
        let Some(socket) = &mut self.socket else {
            return Poll::Pending;
        };
        let settled = self.settling.is_elapsed() || self.settling.as_mut().poll(cx).is_ready();
        if self.writable && settled && write(socket, backlog, cx).is_err() {
            // What the program said before it went is still to be read.
            self.writable = false;
        }
        if has_room {
            return socket.poll_next_unpin(cx);
        }
        Poll::Pending
    }

    fn close(&mut self) {
        self.socket = None;
        self.writable = false;
    }
}

fn write(socket: &mut Socket, backlog: &mut Backlog, cx: &mut Context<'_>) -> Result<(), Error> {
    while socket.poll_ready_unpin(cx)?.is_ready() {
        match backlog.pop() {
            Some(frame) => socket.start_send_unpin(Message::Binary(frame.into()))?,
            None => {
                let _ = socket.poll_flush_unpin(cx)?;
                break;
            }
        }
    }
    Ok(())
}

/// Does what a message of the program asks for.
fn take(
    message: Option<Result<Message, Error>>,
    output: &Output,
    speech: &Speech,
    backlog: &mut Backlog,
    line: &mut Line,
) -> Result<(), Fault> {
    match message {
        Some(Ok(Message::Binary(bytes))) => take_frame(bytes, output, speech, backlog)?,
        Some(Ok(Message::Text(_))) => return Err(Fault::Text),
        // The library answers pings, and a close with the next read.
        Some(Ok(Message::Close(_))) => line.writable = false,
        Some(Ok(_)) => {}
        Some(Err(Error::Capacity(CapacityError::MessageTooLong { .. }))) => return Err(Fault::TooLong),
        // A program that ends without a word hangs up as well.
        None | Some(Err(Error::Io(_) | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => line.close(),
        Some(Err(error)) => return Err(Fault::WebSocket(error.to_string())),
    }
    Ok(())
}

fn take_frame(bytes: Bytes, output: &Output, speech: &Speech, backlog: &mut Backlog) -> Result<(), Fault> {
    let mut tell_unplayed = |name: &str| backlog.push_message(frames::message(&process::mark(name, false)));
    match frames::decode(bytes).map_err(Fault::Frame)? {
        Frame::Audio { pcm, rate_hz, channels } => {
            let mut samples = Vec::with_capacity(pcm.len() / 2);
            frames::samples(&pcm, channels, &mut samples).map_err(Fault::Frame)?;
            speech.ahead().push_speech(samples, rate_hz).map_err(Fault::Rate)?;
            speech.queued.notify_one();
        }
        Frame::Message(text) => match process::asked_mark(&text) {
            Some(name) => match speech.ahead().push_mark(name) {
                Ok(()) => speech.queued.notify_one(),
                Err(name) => tell_unplayed(&name),
            },
            // When the session is over, the next event says so.
            None => drop(output.send_message(text)),
        },
        Frame::Interruption => {
            let marks = speech.ahead().interrupt();
            output.interrupt();
            marks.iter().for_each(|name| tell_unplayed(name));
        }
        // What a pipeline says to itself.
        Frame::Text(_) | Frame::Transcription { .. } | Frame::Unset => {}
    }
    Ok(())
}

/// Speech on its way from the program to the session.
struct Speech {
    ahead: Mutex<Ahead>,
    /// Something was queued.
    queued: Notify,
    /// Something was handed over.
    caught_up: Notify,
}

impl Default for Speech {
    fn default() -> Self {
        Speech {
            ahead: Mutex::new(Ahead::new(Audio::default().out_rate_hz)),
            queued: Notify::new(),
            caught_up: Notify::new(),
        }
    }
}

impl Speech {
    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands speech over as fast as the session takes it, until the session is over.
    async fn hand_over(&self, output: &Output) -> MediaError {
        loop {
            let step = self.ahead().poll_step();
            self.caught_up.notify_one();
            let done = match step {
                None => {
                    self.queued.notified().await;
                    Ok(())
                }
                Some(Step::Rate(rate_hz)) => output.set_rate(rate_hz).await,
                Some(Step::Speech(pcm)) => output.send_audio(&pcm).await,
                Some(Step::Mark(name)) => output.mark(name),
            };
            if let Err(error) = done {
                return error;
            }
        }
    }
}

#[cfg(test)]
mod tests;
