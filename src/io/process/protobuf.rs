//! Carries the media of one session to a program and back, over one WebSocket.
//!
//! To the program: the caller's `i16` mono PCM at 16 kHz, the caller's messages unchanged, and
//! keys, marks and room events as messages. From the program: PCM at any supported rate, messages,
//! interruptions, marks, prompts to speak, and requests to hang up or about its telephone call.
//! Each direction has a bounded queue, and neither waits for the other. A program that does not
//! read loses the caller's oldest speech. A program whose speech fills the queue is not read until
//! the session catches up. Text messages, bytes that are no frame, messages above the cap and
//! unsupported rates end the session.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use edge_runner_http::common::lock;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::MediaEnd;
use super::listener::{MediaListener, MediaSocket};
use super::services::{CallControl, Prompts, SpokenPrompt};
use crate::bot::media::{Audio, Event, Media, MediaError, MediaSlot, Output, PLAYED_MARK};
use crate::bot::{RunnerArguments, Shutdown};
use crate::limits::{PROCESS_CLOSE_WITHIN, PROCESS_MEDIA_EXPECTED, PROCESS_MESSAGE_BYTES_MAX, PROCESS_REST};
use crate::proto::audio::resample::Resampler;
use crate::proto::event::SessionEvent;
use crate::proto::process::inbound_queue::InboundQueue;
use crate::proto::process::playout_queue::{PlayoutQueue, PlayoutStep, UnsupportedRate};
use crate::proto::process::{self, CallRequest, ProgramRequest};
use crate::proto::rtvi::ToClient;
use crate::proto::silent_bot::BotReadiness;
use crate::proto::sockets::frames::{self, ProtobufError, ProtobufFrame};
use std::time::Duration;

/// Time from the connection of a program to the first frame to it: the client of Pipecat connects
/// before its pipeline runs.
const PROCESS_SETTLE: Duration = Duration::from_millis(250);

/// A program's violation of the media protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaProtocolError {
    #[error("on its media it sent a text message; send binary messages, each one protobuf frame")]
    Text,
    #[error("on its media it sent a bad frame: {0}")]
    Frame(#[source] ProtobufError),
    #[error("on its media it sent {0}")]
    Rate(#[source] UnsupportedRate),
    #[error("on its media it sent a message of more than {PROCESS_MESSAGE_BYTES_MAX} bytes")]
    TooLong,
    #[error("on its media it sent what is no WebSocket: {0}")]
    WebSocket(String),
}

impl MediaProtocolError {
    fn code(&self) -> CloseCode {
        match self {
            MediaProtocolError::Text => CloseCode::Unsupported,
            MediaProtocolError::Frame(_) => CloseCode::Invalid,
            MediaProtocolError::Rate(_) => CloseCode::Policy,
            MediaProtocolError::TooLong => CloseCode::Size,
            MediaProtocolError::WebSocket(_) => CloseCode::Protocol,
        }
    }
}

/// The close of a program's socket, with the messages that still wait for it. Empty if the program
/// never connected.
pub struct ClosingMedia(Option<ClosingSocket>);

struct ClosingSocket {
    socket: Box<MediaSocket>,
    write_delay: Option<Pin<Box<Sleep>>>,
    rest: InboundQueue,
    close: CloseFrame,
}

impl ClosingMedia {
    pub fn unconnected() -> Self {
        ClosingMedia(None)
    }

    fn new(connection: MediaConnection, rest: InboundQueue, code: CloseCode, reason: String) -> Self {
        let MediaConnection {
            socket, write_delay, ..
        } = connection;
        let reason = reason.into();
        ClosingMedia(socket.map(|socket| ClosingSocket {
            socket,
            write_delay,
            rest,
            close: CloseFrame { code, reason },
        }))
    }

    /// Sends the messages that wait, up to `PROCESS_CLOSE_WITHIN`. Returns whether there were any.
    pub async fn flush(&mut self) -> bool {
        let Some(closing) = self.0.as_mut().filter(|closing| !closing.rest.is_empty()) else {
            return false;
        };
        if let Some(delay) = &mut closing.write_delay {
            delay.await;
        }
        let rest = async {
            while let Some(frame) = closing.rest.pop() {
                if closing.socket.send(Message::Binary(frame.into())).await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(PROCESS_CLOSE_WITHIN, rest).await;
        true
    }

    /// Closes the socket, and waits up to `PROCESS_CLOSE_WITHIN` for the program to close its side.
    pub async fn close(mut self) {
        self.flush().await;
        let Some(mut closing) = self.0 else { return };
        let close = async {
            // An error here ends the socket as well. With some features a box is a `Sink` too,
            // which has a `close` of its own.
            if MediaSocket::close(&mut closing.socket, Some(closing.close))
                .await
                .is_ok()
            {
                while let Some(Ok(_)) = closing.socket.next().await {}
            }
        };
        let _ = timeout(PROCESS_CLOSE_WITHIN, close).await;
    }
}

/// The media of a session before its program connects, with what waits for the program.
pub struct PendingMedia {
    media: UnclaimedMedia,
    backlog: InboundQueue,
    /// Queues speech at the session's own rate.
    hearing: InboundSpeech,
}

enum UnclaimedMedia {
    /// Open media, whose events are queued for the program.
    Open(Media),
    /// Unopened media of a LiveKit room. Opening it joins the room under the bot's name, which
    /// would remove a program that joins the room by itself. Until then the runner's session tells
    /// of its end alone.
    Slot(MediaSlot, Shutdown),
}

impl PendingMedia {
    /// Takes the media from the arguments of a bot. Returns `None` for a kind without media.
    pub fn of(args: &mut RunnerArguments) -> Option<Self> {
        if args.kind.joins_with_media() {
            let slot = args.kind.take_media()?;
            return Some(PendingMedia::new(UnclaimedMedia::Slot(slot, args.session_over.clone())));
        }
        let backlog = InboundQueue::new(args.kind.messages_in_bytes_max());
        args.media(Audio::default()).ok().map(|media| {
            media.output().set_readiness(BotReadiness::Starting);
            PendingMedia {
                backlog,
                ..PendingMedia::new(UnclaimedMedia::Open(media))
            }
        })
    }

    fn new(media: UnclaimedMedia) -> Self {
        PendingMedia {
            media,
            backlog: InboundQueue::default(),
            hearing: InboundSpeech::default(),
        }
    }

    /// Waits for the end of a session while its bot is loaded, and tells the client that it starts
    /// if that takes long. Cancel safe.
    pub async fn session_over(&mut self) {
        let mut late = pin!(sleep(PROCESS_MEDIA_EXPECTED));
        let mut is_late = false;
        loop {
            tokio::select! {
                event = self.event() => if !self.queue_event(event) {
                    return;
                },
                () = &mut late, if !is_late => {
                    is_late = true;
                    let seconds = PROCESS_MEDIA_EXPECTED.as_secs();
                    self.report(&format!("The bot is starting: it has not been loaded within {seconds} s."));
                }
            }
        }
    }

    async fn event(&mut self) -> Option<Event> {
        match &mut self.media {
            UnclaimedMedia::Open(media) => media.recv().await,
            UnclaimedMedia::Slot(_, session_over) => {
                session_over.wait().await;
                None
            }
        }
    }

    /// Queues an event for the program. Returns `false` once the session is over.
    fn queue_event(&mut self, event: Option<Event>) -> bool {
        queue_event(event, &mut self.backlog, &mut self.hearing)
    }

    /// Tells a client that takes messages of an error.
    fn report(&self, error: &str) {
        if let UnclaimedMedia::Open(media) = &self.media {
            let _ = media.send_message(ToClient::Error { error, fatal: false }.text());
        }
    }

    /// Tells the log and the client that the program does not connect. A program that joins its
    /// LiveKit room by itself needs no media.
    fn report_late(&self, signals: &ProgramSignals) {
        let UnclaimedMedia::Open(media) = &self.media else {
            return;
        };
        let seconds = PROCESS_MEDIA_EXPECTED.as_secs();
        if signals.is_python_bot {
            log::info!(
                "the bot is starting: after {seconds} s its file has not called for a caller yet; it still imports its modules, \
                 or waits for a service; `edge-runner doctor` with the file measures the imports"
            );
            self.report(&format!(
                "The bot is starting: it has not been ready within {seconds} s."
            ));
            return;
        }
        log::warn!(
            "the bot has not opened media_url after {seconds} s, so it gets no audio: it may still be starting; a program \
             connects to the media_url of RUNNER_ARGUMENTS (docs/bots.md){}; one that reads stdin needs `--bot-audio pcm`",
            if signals.may_have_runner { OWN_RUNNER } else { "" }
        );
        media.output().set_readiness(BotReadiness::StartReported);
        self.report(&format!(
            "The program of the bot runs, but has not opened its media after {seconds} s. It may still be starting{}.",
            if signals.may_have_runner { WAITS_ELSEWHERE } else { "" }
        ));
    }
}

impl UnclaimedMedia {
    fn open(self) -> Media {
        match self {
            UnclaimedMedia::Open(media) => media,
            UnclaimedMedia::Slot(slot, _) => slot.open(Audio::default()),
        }
    }
}

/// What a supervisor and the media of its program tell each other.
#[derive(Debug, Default)]
pub struct ProgramSignals {
    /// The program has exited.
    pub exited: Notify,
    /// The program and its group have ended. Only a process that left the group can still hold the
    /// media open.
    pub group_ended: Notify,
    /// Whether the program has connected to its media.
    pub is_connected: AtomicBool,
    /// Whether the program runs the file of a bot in Python, which connects after its imports.
    pub is_python_bot: bool,
    /// Whether it may be a bot for Pipecat's own runner, which waits for callers by itself.
    pub may_have_runner: bool,
}

/// How the log says what a file in Python is started by that has a runner of its own.
pub const OWN_RUNNER: &str =
    "; a bot for Pipecat's own runner is started by `edge-runner bot.py`, without `--` and `python`";
/// The same for a client.
const WAITS_ELSEWHERE: &str = ", or it may wait for callers at a web server of its own; a bot for Pipecat's runner is \
                               started by `edge-runner bot.py`";

/// Carries the media of one session until it ends.
pub async fn run(
    mut media: PendingMedia,
    listener: MediaListener,
    (control, prompts): (CallControl, Prompts),
    signals: &ProgramSignals,
) -> MediaEnd {
    let exited = &signals.exited;
    let mut late = pin!(sleep(PROCESS_MEDIA_EXPECTED));
    let mut is_late = false;
    let mut accepted_media = pin!(listener.accept());
    let (socket, asked) = loop {
        tokio::select! {
            event = media.event() => if !media.queue_event(event) {
                return MediaEnd::SessionOver(ClosingMedia::unconnected());
            },
            accepted = &mut accepted_media => break accepted,
            () = &mut late, if !is_late => {
                is_late = true;
                media.report_late(signals);
            }
            () = exited.notified() => match timeout(PROCESS_REST, &mut accepted_media).await {
                // The program may have connected, spoken and exited before this task ran.
                Ok(accepted) => break accepted,
                Err(_) => {
                    if let UnclaimedMedia::Open(_) = media.media {
                        log::warn!(
                            "the bot ended without opening media_url; a program that reads stdin needs `--bot-audio pcm`"
                        );
                    }
                    return MediaEnd::HungUp;
                }
            },
        }
    };
    signals.is_connected.store(true, Ordering::Relaxed);
    let PendingMedia {
        media,
        mut backlog,
        mut hearing,
    } = media;
    let mut connection = MediaConnection::new(socket, asked.is_live);
    if asked.is_live {
        backlog.drop_speech();
    }
    hearing.rate_hz = asked.rate_hz;
    let (mut events, output) = media.open().split();
    output.set_readiness(BotReadiness::Ready);
    let early = backlog.take_dropped();
    log::debug!("the bot connected; {} earlier audio frames were dropped", early.frames);
    let speech = SpeechQueue::default();
    let mut speaking = pin!(speech.forward(&output));
    let mut requests = CallRequests {
        control,
        prompts,
        running: None,
    };
    let mut is_abandoned = false;
    // Once the program has ended: the end of a pause without messages, while they are read.
    let mut pause = pin!(sleep(PROCESS_REST));
    let end = loop {
        // A transfer goes on, or the call would be hung up in place of it.
        if connection.is_closed() && speech.ahead().is_done() && requests.is_free() {
            break MediaEnd::HungUp;
        }
        // What follows a prompt on the socket follows it in the queue.
        let has_room = speech.ahead().has_capacity() && !requests.prompts.is_running();
        if is_abandoned && !has_room {
            pause.as_mut().reset(Instant::now() + PROCESS_REST);
        }
        tokio::select! {
            event = events.recv() => if !queue_event(event, &mut backlog, &mut hearing) {
                break session_over(connection, &mut backlog);
            } else if !connection.writable {
                backlog.clear();
            },
            message = poll_fn(|cx| connection.poll_exchange(&mut backlog, has_room, cx)) => {
                pause.as_mut().reset(Instant::now() + PROCESS_REST);
                if let Err(fault) = handle_message(message, &output, &speech, &mut backlog, &mut connection, &mut requests) {
                    let closing = ClosingMedia::new(connection, InboundQueue::default(), fault.code(), fault.to_string());
                    break MediaEnd::ProtocolError(fault, closing);
                }
            }
            MediaError = &mut speaking => break session_over(connection, &mut backlog),
            answer = answered(&mut requests.running) => {
                requests.running = None;
                queue_message(&mut backlog, &answer);
            }
            spoken = requests.prompts.spoken() => queue_message(&mut backlog, &speech.add_prompt(spoken, &output)),
            () = speech.progressed.notified() => {}
            () = signals.group_ended.notified() => {
                is_abandoned = true;
                pause.as_mut().reset(Instant::now() + PROCESS_REST);
            }
            () = &mut pause, if is_abandoned && has_room && !connection.is_closed() => {
                log::debug!("a process that the bot left behind holds its media open");
                connection.close();
            }
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

/// Ends the session's media. Queued messages are still sent, because one of them may contain the
/// reason for the end.
fn session_over(connection: MediaConnection, backlog: &mut InboundQueue) -> MediaEnd {
    let mut rest = std::mem::take(backlog);
    rest.drop_speech();
    if !connection.writable {
        rest.clear();
    }
    MediaEnd::SessionOver(ClosingMedia::new(
        connection,
        rest,
        CloseCode::Normal,
        "the session is over".into(),
    ))
}

/// Queues an event for the program. Returns `false` once the session is over.
fn queue_event(event: Option<Event>, backlog: &mut InboundQueue, hearing: &mut InboundSpeech) -> bool {
    match event.map(Event::without_audio) {
        None | Some(Ok(SessionEvent::Left(_))) => return false,
        Some(Err(frame)) => hearing.push(&frame, frame.rate_hz(), backlog),
        Some(Ok(event)) => {
            if let Some(message) = process::event_message(event) {
                queue_message(backlog, &message);
            }
        }
    }
    true
}

/// The caller's speech on its way to the program.
#[derive(Default)]
struct InboundSpeech {
    /// The rate that the program asked for; `None` means that of the session.
    rate_hz: Option<u32>,
    resampler: Option<Resampler>,
}

impl InboundSpeech {
    fn push(&mut self, pcm: &[i16], from_hz: u32, backlog: &mut InboundQueue) {
        match self.rate_hz.filter(|rate_hz| *rate_hz != from_hz) {
            None => backlog.push_speech(frames::audio(pcm, from_hz), pcm.len()),
            Some(rate_hz) => {
                let resampler = self.resampler.get_or_insert_with(|| Resampler::new(from_hz, rate_hz));
                let mut resampled = Vec::with_capacity(pcm.len() * rate_hz as usize / from_hz as usize + 1);
                resampler.process(pcm, &mut resampled);
                backlog.push_speech(frames::audio(&resampled, rate_hz), resampled.len());
            }
        }
    }
}

fn queue_message(backlog: &mut InboundQueue, json: &str) {
    backlog.push_message(frames::message(json));
}

/// The program's socket.
struct MediaConnection {
    /// `None` once nothing more can be read. The close handshake runs in `poll_exchange` until
    /// then.
    socket: Option<Box<MediaSocket>>,
    writable: bool,
    /// Nothing is written before this elapses: a pipeline that connects before it runs loses the
    /// connection on early frames. `None` for a live program, which reads at once: the shortest
    /// delay of a timer would be 1 to 2 ms of each call.
    write_delay: Option<Pin<Box<Sleep>>>,
}

impl MediaConnection {
    fn new(socket: MediaSocket, is_live: bool) -> Self {
        MediaConnection {
            socket: Some(Box::new(socket)),
            writable: true,
            write_delay: (!is_live).then(|| Box::pin(sleep(PROCESS_SETTLE))),
        }
    }

    fn is_closed(&self) -> bool {
        self.socket.is_none()
    }

    /// Writes what is queued as far as the program reads, and reads the next message if there is
    /// room for it.
    fn poll_exchange(
        &mut self,
        backlog: &mut InboundQueue,
        has_room: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Message, Error>>> {
        let Some(socket) = &mut self.socket else {
            return Poll::Pending;
        };
        if self
            .write_delay
            .as_mut()
            .is_some_and(|delay| delay.as_mut().poll(cx).is_ready())
        {
            self.write_delay = None;
        }
        if self.writable && self.write_delay.is_none() && write(socket, backlog, cx).is_err() {
            // Messages that the program sent before it disconnected can still be read.
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

fn write(socket: &mut MediaSocket, backlog: &mut InboundQueue, cx: &mut Context<'_>) -> Result<(), Error> {
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

/// Handles a message of the program.
fn handle_message(
    message: Option<Result<Message, Error>>,
    output: &Output,
    speech: &SpeechQueue,
    backlog: &mut InboundQueue,
    connection: &mut MediaConnection,
    requests: &mut CallRequests,
) -> Result<(), MediaProtocolError> {
    match message {
        Some(Ok(Message::Binary(bytes))) => handle_frame(bytes, output, speech, backlog, requests)?,
        Some(Ok(Message::Text(_))) => return Err(MediaProtocolError::Text),
        // The library answers pings, and answers a close on the next read.
        Some(Ok(Message::Close(_))) => connection.writable = false,
        Some(Ok(_)) => {}
        Some(Err(Error::Capacity(CapacityError::MessageTooLong { .. }))) => return Err(MediaProtocolError::TooLong),
        // A program that exits without a close frame has hung up.
        None | Some(Err(Error::Io(_) | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => {
            connection.close()
        }
        Some(Err(error)) => return Err(MediaProtocolError::WebSocket(error.to_string())),
    }
    Ok(())
}

fn handle_frame(
    bytes: Bytes,
    output: &Output,
    speech: &SpeechQueue,
    backlog: &mut InboundQueue,
    requests: &mut CallRequests,
) -> Result<(), MediaProtocolError> {
    match frames::decode(bytes).map_err(MediaProtocolError::Frame)? {
        ProtobufFrame::Audio { pcm, rate_hz, channels } => {
            let mut samples = Vec::with_capacity(pcm.len() / 2);
            frames::samples(&pcm, channels, &mut samples).map_err(MediaProtocolError::Frame)?;
            speech
                .ahead()
                .push_speech(samples, rate_hz)
                .map_err(MediaProtocolError::Rate)?;
            speech.queued.notify_one();
        }
        ProtobufFrame::Message(text) => match process::parse_request(&text) {
            Some(ProgramRequest::Call(request)) => {
                if requests.is_free() && request.cuts_speech() {
                    interrupt(output, speech, backlog);
                }
                if let Some(answer) = requests.start(request, output, speech) {
                    queue_message(backlog, &answer);
                }
            }
            Some(ProgramRequest::Speak(text)) => requests.prompts.start(text),
            Some(ProgramRequest::HangUp(reason)) => {
                speech.ahead().hang_up(reason);
                speech.queued.notify_one();
            }
            Some(ProgramRequest::Mark(name)) => match speech.ahead().push_mark(name) {
                Ok(()) => speech.queued.notify_one(),
                Err(name) => queue_message(backlog, &process::mark(&name, false)),
            },
            // After the end of the session, the next event says so.
            None => drop(output.send_message(text)),
        },
        ProtobufFrame::Interruption => interrupt(output, speech, backlog),
        // Frames of a pipeline's internal traffic.
        ProtobufFrame::Text(_) | ProtobufFrame::Transcription { .. } | ProtobufFrame::Unset => {}
    }
    Ok(())
}

/// Drops the speech that was not played, and tells the program of the marks behind it.
fn interrupt(output: &Output, speech: &SpeechQueue, backlog: &mut InboundQueue) {
    let marks = speech.ahead().interrupt();
    output.interrupt();
    for name in &marks {
        match &**name {
            PLAYED_MARK => output.set_played(),
            name => queue_message(backlog, &process::mark(name, false)),
        }
    }
}

/// A request that waits for the provider, with the answer to the program.
type CallFuture = Pin<Box<dyn Future<Output = String> + Send>>;

/// The requests of a program about its telephone call, and its prompts.
struct CallRequests {
    control: CallControl,
    prompts: Prompts,
    running: Option<CallFuture>,
}

impl CallRequests {
    /// Returns whether a request can begin.
    fn is_free(&self) -> bool {
        self.running.is_none()
    }

    /// Begins a request. Returns the answer if it is refused: only one runs at a time.
    fn start(&mut self, request: CallRequest, output: &Output, speech: &SpeechQueue) -> Option<String> {
        if !self.is_free() {
            let busy = Err("another request about this call waits for the provider".to_owned());
            return Some(process::call_answer(&request, &busy));
        }
        match request {
            CallRequest::Transfer { after_speech: true, .. } => {
                // The transfer waits for the speech that the program has sent before it.
                output.expect_played();
                let mut ahead = speech.ahead();
                let has_spoken = output.has_spoken() || !ahead.is_done();
                match has_spoken && ahead.push_mark(PLAYED_MARK.to_owned()).is_ok() {
                    true => speech.queued.notify_one(),
                    false => output.set_played(),
                }
            }
            CallRequest::Transfer { .. } => output.set_played(),
            CallRequest::Keys(_) => {}
        }
        let (control, output) = (self.control.clone(), output.clone());
        self.running = Some(Box::pin(async move {
            let result = control.perform(request.clone(), output).await;
            process::call_answer(&request, &result)
        }));
        None
    }
}

/// Waits for the answer; for ever without a request.
async fn answered(running: &mut Option<CallFuture>) -> String {
    match running {
        Some(running) => running.await,
        None => std::future::pending().await,
    }
}

/// The program's speech on its way to the session.
struct SpeechQueue {
    ahead: Mutex<PlayoutQueue>,
    /// Signals that something was queued.
    queued: Notify,
    /// Signals that something was taken from the queue.
    progressed: Notify,
}

impl Default for SpeechQueue {
    fn default() -> Self {
        SpeechQueue {
            ahead: Mutex::new(PlayoutQueue::new(Audio::default().out_rate_hz)),
            queued: Notify::new(),
            progressed: Notify::new(),
        }
    }
}

impl SpeechQueue {
    fn ahead(&self) -> MutexGuard<'_, PlayoutQueue> {
        lock(&self.ahead)
    }

    /// Queues the speech of a prompt, with its text for the record, and returns the answer to the
    /// program.
    fn add_prompt(&self, spoken: Result<SpokenPrompt, String>, output: &Output) -> String {
        let added = spoken.and_then(|SpokenPrompt { text, wav }| {
            let added = self.ahead().push_speech(wav.pcm.clone(), wav.rate_hz);
            added.map_err(|rate| rate.to_string())?;
            output.report_words(text);
            Ok(())
        });
        self.queued.notify_one();
        process::speak_answer(&added)
    }

    /// Passes speech on as fast as the session takes it, until the session is over.
    async fn forward(&self, output: &Output) -> MediaError {
        loop {
            let step = self.ahead().poll_step();
            self.progressed.notify_one();
            let done = match step {
                None => {
                    self.queued.notified().await;
                    Ok(())
                }
                Some(PlayoutStep::Rate(rate_hz)) => output.set_rate(rate_hz).await,
                Some(PlayoutStep::Speech(pcm)) => output.send_audio(&pcm).await,
                Some(PlayoutStep::Mark(name)) => output.mark(name),
                Some(PlayoutStep::HangUp(reason)) => {
                    output.hang_up(reason);
                    Ok(())
                }
            };
            if let Err(error) = done {
                return error;
            }
        }
    }
}

#[cfg(test)]
mod tests;
