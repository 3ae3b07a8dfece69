//! The media of one session on its way to a program and back, over one WebSocket.
//!
//! To the program: the caller's speech at 16 kHz, messages as they came, keys, marks and news of a room as messages. From it: speech at any
//! rate, messages, interruptions, marks. Each direction has a queue that ends, and neither waits for the other: a program that
//! does not read loses the caller's oldest speech, one that speaks too far ahead is not read until the session has caught up.
//! Refuses, and ends with: text, bytes that are no frame, a message that is too long, a rate that cannot be played.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use edge_runner_http::common::lock;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::door::{Door, Socket};
use crate::bot::media::{Audio, Event, Media, MediaError, MediaSlot, Output};
use crate::bot::{Kind, RunnerArguments};
use crate::limits::{PROCESS_CLOSE_WITHIN, PROCESS_MESSAGE_BYTES_MAX, PROCESS_REST, PROCESS_SETTLE};
use crate::proto::process;
use crate::proto::process::ahead::{Ahead, BadRate, Step};
use crate::proto::process::backlog::Backlog;
use crate::proto::sockets::frames::{self, BadFrame, Frame};

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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("on its media it sent a text message; every message is a binary frame")]
    Text,
    #[error("on its media it sent a bad frame: {0}")]
    Frame(#[source] BadFrame),
    #[error("on its media it sent {0}")]
    Rate(#[source] BadRate),
    #[error("on its media it sent a message of more than {PROCESS_MESSAGE_BYTES_MAX} bytes")]
    TooLong,
    #[error("on its media it sent what is no WebSocket: {0}")]
    WebSocket(String),
}

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

/// The last words to a program, if it ever connected: messages that still wait, and why its socket is closed.
pub struct Farewell(Option<Parting>);

struct Parting {
    socket: Box<Socket>,
    settling: Pin<Box<Sleep>>,
    rest: Backlog,
    close: CloseFrame,
}

impl Farewell {
    /// The program never connected.
    fn nobody() -> Self {
        Farewell(None)
    }

    fn new(line: Line, rest: Backlog, code: CloseCode, reason: String) -> Self {
        let Line { socket, settling, .. } = line;
        let reason = reason.into();
        Farewell(socket.map(|socket| Parting {
            socket,
            settling,
            rest,
            close: CloseFrame { code, reason },
        }))
    }

    /// Hands over the messages that wait, as far as the program reads, and tells whether there were any.
    pub async fn tell(&mut self) -> bool {
        let Some(parting) = self.0.as_mut().filter(|parting| !parting.rest.is_empty()) else {
            return false;
        };
        parting.settling.as_mut().await;
        let rest = async {
            while let Some(frame) = parting.rest.pop() {
                if parting.socket.send(Message::Binary(frame.into())).await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(PROCESS_CLOSE_WITHIN, rest).await;
        true
    }

    /// Closes the socket, and waits a little for the program to close its side.
    pub async fn say(mut self) {
        self.tell().await;
        let Some(mut parting) = self.0 else { return };
        let close = async {
            // Its end is what is wanted; how it comes about is not.
            if parting.socket.close(Some(parting.close)).await.is_ok() {
                while let Some(Ok(_)) = parting.socket.next().await {}
            }
        };
        let _ = timeout(PROCESS_CLOSE_WITHIN, close).await;
    }
}

/// The media of a session until its program connects.
pub enum Waiting {
    /// It is open: what the caller says meanwhile is kept.
    Open(Media),
    /// To take it is to enter a room under the bot's name, and a program that enters by itself would be driven out.
    Closed(MediaSlot),
}

impl Waiting {
    /// Takes it from the arguments of a bot; nothing where the kind has none.
    pub fn of(args: &mut RunnerArguments) -> Option<Self> {
        match &mut args.kind {
            Kind::Mediaroom(room) => room.slot().map(Waiting::Closed),
            _ => args.media(Audio::default()).ok().map(Waiting::Open),
        }
    }

    async fn event(&mut self) -> Option<Event> {
        match self {
            Waiting::Open(media) => media.recv().await,
            Waiting::Closed(_) => std::future::pending().await,
        }
    }

    fn open(self) -> Media {
        match self {
            Waiting::Open(media) => media,
            Waiting::Closed(slot) => slot.open(Audio::default()),
        }
    }
}

/// Carries the media of one session until it ends. `exited` is told when the program has ended.
pub async fn run(mut media: Waiting, door: Door, exited: &Notify) -> End {
    let mut backlog = Backlog::default();
    let mut admitted = pin!(door.admit());
    let mut line = loop {
        tokio::select! {
            event = media.event() => if !hear(event, &mut backlog) {
                return End::Over(Farewell::nobody());
            },
            socket = &mut admitted => break Line::new(socket),
            () = exited.notified() => match timeout(PROCESS_REST, &mut admitted).await {
                // It connected, spoke and ended while nobody looked.
                Ok(socket) => break Line::new(socket),
                Err(_) => return End::HungUp,
            },
        }
    };
    let (mut events, output) = media.open().split();
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
                break over(line, &mut backlog);
            } else if !line.writable {
                backlog.clear();
            },
            message = poll_fn(|cx| line.exchange(&mut backlog, has_room, cx)) => {
                if let Err(fault) = take(message, &output, &speech, &mut backlog, &mut line) {
                    let farewell = Farewell::new(line, Backlog::default(), fault.code(), fault.to_string());
                    break End::Fault(fault, farewell);
                }
            }
            MediaError = &mut speaking => break over(line, &mut backlog),
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

/// Ends the talk. Messages that wait are still told: one of them may say why the session is over.
fn over(line: Line, backlog: &mut Backlog) -> End {
    let mut rest = std::mem::take(backlog);
    rest.drop_speech();
    if !line.writable {
        rest.clear();
    }
    End::Over(Farewell::new(
        line,
        rest,
        CloseCode::Normal,
        "the session is over".into(),
    ))
}

/// Queues what happened for the program; `false` once the session is over.
fn hear(event: Option<Event>, backlog: &mut Backlog) -> bool {
    match event {
        None | Some(Event::Left(_)) => return false,
        Some(Event::Audio(frame)) => backlog.push_speech(frames::audio(&frame, frame.rate_hz()), frame.len()),
        Some(Event::Message(text)) => tell(backlog, &text),
        Some(Event::Dtmf(digit)) => tell(backlog, &process::dtmf(digit)),
        Some(Event::Mark { name, played }) => tell(backlog, &process::mark(&name, played)),
        Some(Event::ParticipantJoined(who)) => tell(backlog, &process::participant(&who, true)),
        Some(Event::ParticipantLeft(who)) => tell(backlog, &process::participant(&who, false)),
        Some(Event::Speaking { identity, speaking }) => tell(backlog, &process::speaking(&identity, speaking)),
        Some(Event::JoinFailed(why)) => tell(backlog, &process::join_failed(&why)),
        Some(_) => {}
    }
    true
}

fn tell(backlog: &mut Backlog, json: &str) {
    backlog.push_message(frames::message(json));
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
        lock(&self.ahead)
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
