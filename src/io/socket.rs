//! The task of one session on a WebSocket: the socket, the bot's queues and the clock around `proto::socket`.
//!
//! It begins when hyper has answered the upgrade. It waits for whichever comes first, a message, room to write, something of
//! the bot, the deadline, the bot's end, the end of a hang-up or the runner's, hands it to the session, and does what the
//! session answers. It ends when nothing of the session is left, its bot and its hang-up included.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures_util::{Sink as _, Stream as _};
use tokio::io::AsyncRead as _;
use tokio::io::ReadBuf;
use tokio::time::{sleep, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

use crate::bot::media::{self, Link};
use crate::bot::{self, Shutdown, WebSocketArguments, WebSocketConnection};
use crate::config::Transport;
use crate::io::admission::Permit;
use crate::io::rest;
use crate::io::sessions::{BotTask, Outcome, Sessions, Start};
use crate::io::stream::Stream;
use crate::io::tasks;
use crate::limits::{
    HANG_UP_AT_SHUTDOWN, HTTP_DISCARD_BYTES_MAX, MESSAGE_BYTES_MAX, SOCKET_BUFFER_BYTES_MAX, SOCKET_IN_FRAMES_MAX,
    SOCKET_SEND_BUFFER_BYTES,
};
use crate::logging;
use crate::proto::admission::{Kind, Refused};
use crate::proto::event::{Event, LeaveReason};
use crate::proto::metrics::{Count, Counts, Share};
use crate::proto::socket::{GAVE_WAY, Message, Output, SocketSession};
use crate::proto::stall::Task;
use crate::proto::telephony::hangup;
use crate::proto::telephony::proof::{Proof, Unproven};
use edge_runner_http::common::Upgrade;

/// What a socket was let in with.
pub enum Entry {
    /// The place of a session, whose bot starts at once.
    Session(Permit),
    /// The place of a handshake, after which one of a session is to be had.
    Handshake(Permit),
}

/// The endpoint that a socket came to.
pub enum Endpoint {
    Client,
    /// A telephone's, with what shows whose call it is.
    Call(Proof),
}

/// Makes what an accepted upgrade becomes: a session of its own.
pub fn upgrade(sessions: Sessions, endpoint: Endpoint, start: Start, entry: Entry) -> Upgrade {
    Box::new(move |stream, read| {
        let id = start.session_id.clone();
        let watch = sessions.watch().clone();
        let task = logging::of_caller(start.caller.clone(), async move {
            if let Err(error) = socket2::SockRef::from(stream.tcp()).set_send_buffer_size(SOCKET_SEND_BUFFER_BYTES) {
                log::debug!("the size of the send buffer: {error}");
            }
            let socket = WebSocketStream::from_partially_read(stream, read.into(), Role::Server, Some(config())).await;
            run(socket, sessions, endpoint, start, entry).await;
        });
        let task = logging::in_session(id.clone(), task);
        tasks::spawn(watch.over(id, Task::Media, task));
    })
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
type HangUp = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Everything that one session owns.
struct Life {
    session: Box<SocketSession>,
    socket: WebSocketStream<Stream>,
    sessions: Sessions,
    path: &'static str,
    entry: Entry,
    /// What shows that a call is its provider's.
    proof: Proof,
    /// The call was refused for want of that.
    unproven: Option<Unproven>,
    /// What the bot starts from; gone once it has.
    start: Option<Start>,
    lease: Option<Box<dyn Send>>,
    link: Option<Link>,
    bot: Option<BotTask>,
    /// The provider's answer to a hang-up is awaited.
    hang_up: Option<HangUp>,
    /// The socket took all that it was given.
    writable: bool,
    /// The socket's messages can be read; after an error they cannot.
    readable: bool,
    /// Bytes that a peer may still send after it was told to stop.
    discard: usize,
    reason: Option<LeaveReason>,
    counts: Counts,
    /// There is one once the bot has started.
    share: Option<Share>,
}

impl Life {
    /// Takes over what others count.
    fn count(&mut self) {
        let (said, dropped) = (
            self.session.tally(),
            self.link.as_ref().map(Link::dropped).unwrap_or_default(),
        );
        self.counts.set(Count::FramesOut, said.chunks_out);
        self.counts.set(Count::FramesDropped, dropped.frames_in);
        let messages = said.messages_dropped + dropped.messages_out;
        self.counts.set(Count::MessagesDropped, messages);
    }
}

async fn run(socket: WebSocketStream<Stream>, sessions: Sessions, endpoint: Endpoint, start: Start, entry: Entry) {
    let began = tasks::now();
    let (session, path, proof) = match endpoint {
        Endpoint::Client => (SocketSession::client(began), "/ws-client", Proof::Nothing),
        Endpoint::Call(proof) => (SocketSession::call(began), "/ws", proof),
    };
    let mut life = Life {
        session: Box::new(session),
        socket,
        sessions,
        path,
        entry,
        proof,
        unproven: None,
        start: Some(start),
        lease: None,
        link: None,
        bot: None,
        hang_up: None,
        writable: true,
        readable: true,
        discard: HTTP_DISCARD_BYTES_MAX,
        reason: None,
        counts: Counts::default(),
        share: None,
    };
    let outcome = talk(&mut life).await;
    // Its bot has its own time to end, and its place until then.
    settle(&mut life.entry);
    life.count();
    let Life {
        session,
        socket,
        sessions,
        entry,
        unproven,
        start,
        lease,
        link,
        bot,
        hang_up,
        reason,
        counts,
        share,
        ..
    } = life;
    drop(socket);
    // The bot learns of the end by the link.
    drop(link);
    // A provider that does not answer keeps no caller out, unless many of them do not answer.
    let aside = hang_up.as_ref().and_then(|_| sessions.hang_ups().enter());
    let ended = async {
        let outcome = match (outcome, bot) {
            (Some(outcome), _) => Some(outcome),
            (None, Some(bot)) => Some(bot.finish(sessions.shutdown()).await),
            (None, None) => None,
        };
        let seconds = (tasks::now() - began).as_secs_f64();
        let reason = reason.unwrap_or(LeaveReason::Failed);
        if let Some(share) = share {
            share.end(&counts, reason);
        }
        match outcome {
            Some(outcome) => {
                let (frames, dropped) = (counts.get(Count::FramesIn), counts.get(Count::FramesDropped));
                let words = format!(
                    "{seconds:.1} s, {}, {frames} frames to the bot, {dropped} dropped",
                    session.tally()
                );
                outcome.log(reason, &words);
            }
            None => match (unproven, session.refused()) {
                (Some(unproven), _) => {
                    let advice = unproven.advice(sessions.config().proxy.as_deref());
                    log::warn!("no session on {path}: {advice}");
                }
                (None, Some(why)) => log::warn!("no session on {path}: {why}, after {seconds:.1} s"),
                (None, None) => log::info!("no session on {path}: the connection ended after {seconds:.1} s"),
            },
        }
        drop((start, lease));
        // Whoever waits for the last place finds nothing left.
        aside.is_none().then_some(entry)
    };
    let ((), _entry) = tokio::join!(hung_up(hang_up, sessions.shutdown()), ended);
}

/// Waits for the hang-up, if there is one, and at the runner's end not for long.
async fn hung_up(hang_up: Option<HangUp>, shutdown: &Shutdown) {
    let Some(hang_up) = hang_up else { return };
    let mut stopping = shutdown.clone();
    tokio::select! {
        () = hang_up => {}
        () = async {
            stopping.wait().await;
            sleep(HANG_UP_AT_SHUTDOWN).await;
        } => log::warn!("the call was perhaps not hung up: the runner stops, and its provider has not answered"),
    }
}

/// The loop. Returns how the bot ended, if it did before the session.
async fn talk(life: &mut Life) -> Option<Outcome> {
    let mut timer = pin!(sleep_until(tasks::now().into()));
    let mut shutdown = life.sessions.shutdown().clone();
    let mut stop = pin!(async move { shutdown.wait().await });
    let mut outcome = None;
    let mut stopping = false;
    while let Some(deadline) = drain(life).await {
        // A socket may be silent for long; what it counted before that is not kept back so long.
        let deadline = life.share.as_ref().map_or(deadline, |share| deadline.min(share.due()));
        let deadline = tokio::time::Instant::from_std(deadline);
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        let Life {
            socket,
            link,
            bot,
            hang_up,
            writable,
            readable,
            discard,
            entry,
            ..
        } = life;
        // In no order: a peer that floods, or a bot that never stops sending, must not keep the others waiting.
        tokio::select! {
            traffic = poll_fn(|cx| traffic(socket, *readable, *writable, discard, cx)) => handle_traffic(life, traffic),
            () = notified(link.as_ref()) => hear_bot(life),
            () = &mut timer => {
                let now = tasks::now();
                if let Some(share) = &mut life.share {
                    share.served(now.saturating_duration_since(deadline.into_std()));
                }
                life.session.handle_timeout(now);
            }
            ended = ended(bot.as_mut()), if outcome.is_none() => {
                hear_bot(life);
                // A bot may see the runner stop before its session does, and end for that reason.
                let reason = if life.sessions.shutdown().is_set() {
                    LeaveReason::Shutdown
                } else {
                    ended.reason()
                };
                life.session.handle_bot_end(reason, tasks::now());
                outcome = Some(ended);
            }
            () = done(hang_up.as_mut()) => {
                life.hang_up = None;
                life.session.handle_hung_up(tasks::now());
            }
            () = evicted(entry) => handle_eviction(life),
            () = &mut stop, if !stopping => {
                stopping = true;
                life.session.handle_end(LeaveReason::Shutdown, tasks::now());
            }
        }
    }
    outcome
}

/// What a socket has for its session.
enum Traffic {
    /// All that was written has left.
    Flushed(Result<(), Error>),
    Message(Option<Result<Frame, Error>>),
    /// The end of a stream whose messages cannot be read.
    Drained,
}

/// Moves bytes both ways until something comes of it.
fn traffic(
    socket: &mut WebSocketStream<Stream>,
    readable: bool,
    writable: bool,
    discard: &mut usize,
    cx: &mut Context<'_>,
) -> Poll<Traffic> {
    if !writable && let Poll::Ready(flushed) = Pin::new(&mut *socket).poll_flush(cx) {
        return Poll::Ready(Traffic::Flushed(flushed));
    }
    if readable {
        return Pin::new(socket).poll_next(cx).map(Traffic::Message);
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
    Poll::Ready(Traffic::Drained)
}

async fn notified(link: Option<&Link>) {
    match link {
        Some(link) => link.notified().await,
        None => std::future::pending().await,
    }
}

async fn ended(bot: Option<&mut BotTask>) -> Outcome {
    match bot {
        Some(bot) => bot.ended().await,
        None => std::future::pending().await,
    }
}

async fn done(hang_up: Option<&mut HangUp>) {
    match hang_up {
        Some(hang_up) => hang_up.await,
        None => std::future::pending().await,
    }
}

async fn evicted(entry: &Entry) {
    match entry {
        Entry::Session(permit) | Entry::Handshake(permit) => permit.evicted().await,
    }
}

/// Another has the place: of a socket that never said who calls, or of a client that never sent a
/// frame.
fn handle_eviction(life: &mut Life) {
    let now = tasks::now();
    match life.entry {
        Entry::Handshake(_) => life.session.handle_refused(1013, GAVE_WAY, now),
        Entry::Session(_) => life.session.handle_end(LeaveReason::NeverConnected, now),
    }
}

/// A frame has come, or the end: from here on a session is not evicted.
fn settle(entry: &mut Entry) {
    if let Entry::Session(permit) = entry {
        permit.settle();
    }
}

fn handle_traffic(life: &mut Life, traffic: Traffic) {
    let now = tasks::now();
    if let Traffic::Message(Some(Ok(frame))) = &traffic {
        life.counts.add(Count::PacketsIn, 1);
        life.counts.add(Count::BytesIn, frame.len() as u64);
    }
    let session = &mut life.session;
    match traffic {
        Traffic::Flushed(Ok(())) => life.writable = true,
        Traffic::Message(Some(Ok(frame))) => match frame {
            Frame::Text(text) => {
                settle(&mut life.entry);
                session.handle_text(&text, now);
            }
            Frame::Binary(bytes) => {
                settle(&mut life.entry);
                session.handle_binary(bytes, now);
            }
            Frame::Ping(_) | Frame::Pong(_) => session.handle_pong(now),
            Frame::Close(_) => session.handle_close(now),
            Frame::Frame(_) => {}
        },
        Traffic::Message(None) | Traffic::Drained => session.handle_gone(false),
        Traffic::Message(Some(Err(error))) | Traffic::Flushed(Err(error)) => handle_error(life, &error, now),
    }
}

fn handle_error(life: &mut Life, error: &Error, now: Instant) {
    log::debug!("socket: {error}");
    let (code, why) = match error {
        Error::ConnectionClosed | Error::AlreadyClosed => return life.session.handle_gone(false),
        // Nobody need say goodbye on a telephone.
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return life.session.handle_gone(false),
        Error::Capacity(CapacityError::MessageTooLong { .. }) => (1009, "the message is too long"),
        Error::Utf8(_) => (1007, "the text is not UTF-8"),
        Error::Protocol(_) => (1002, "the frame is malformed"),
        _ => return life.session.handle_gone(true),
    };
    life.readable = false;
    life.session.handle_unreadable(code, why, now);
}

/// Does what the session answers, up to its next deadline; `None` when nothing of it is left.
async fn drain(life: &mut Life) -> Option<Instant> {
    pull_speech(life);
    let now = tasks::now();
    if life.share.as_ref().is_some_and(|share| now >= share.due()) {
        life.count();
        let waiting = life.link.as_ref().map(Link::waiting).unwrap_or_default();
        if let Some(share) = &mut life.share {
            share.tell(&life.counts, waiting, now);
        }
    }
    loop {
        match life.session.poll_output(life.writable, now) {
            Output::Timeout(at) => return Some(at),
            Output::Gone => return None,
            Output::Send(message) => {
                let speech = matches!(message, Message::Binary(_) | Message::Text(_));
                send(life, message).await;
                if speech {
                    pull_speech(life);
                }
            }
            Output::Begin => begin(life, now),
            Output::Audio(pcm, rate_hz) => {
                if let Some(link) = &life.link {
                    life.counts.add(Count::FramesIn, 1);
                    link.push_audio(pcm, rate_hz);
                }
            }
            Output::Event(event) => {
                match event {
                    Event::Left(reason) => life.reason = Some(reason),
                    Event::Message(_) => life.counts.add(Count::MessagesIn, 1),
                    _ => {}
                }
                if let (Some(link), Some(event)) = (&life.link, translate(event)) {
                    link.push(event);
                }
            }
            Output::HangUp => hang_up(life, now),
        }
    }
}

/// Hands a message to the socket, and notes whether it took all of it.
async fn send(life: &mut Life, message: Message) {
    let frame = match message {
        Message::Text(text) => Frame::Text(text.into()),
        Message::Binary(bytes) => Frame::Binary(bytes.into()),
        Message::Ping => Frame::Ping(Bytes::new()),
        Message::Close(code, why) => Frame::Close(Some(CloseFrame {
            code: CloseCode::from(code),
            reason: why.into(),
        })),
    };
    life.counts.add(Count::PacketsOut, 1);
    life.counts.add(Count::BytesOut, frame.len() as u64);
    let mut socket = Pin::new(&mut life.socket);
    let sent = match socket.as_mut().start_send(frame) {
        Ok(()) => poll_fn(|cx| Poll::Ready(socket.as_mut().poll_flush(cx))).await,
        Err(error) => Poll::Ready(Err(error)),
    };
    match sent {
        Poll::Pending => life.writable = false,
        Poll::Ready(Ok(())) => {}
        Poll::Ready(Err(error)) => {
            log::debug!("socket: {error}");
            life.session.handle_gone(!matches!(error, Error::ConnectionClosed));
        }
    }
}

fn begin(life: &mut Life, now: Instant) {
    // Who a call claims to be is known only now, and nothing is done for it before that is shown.
    if let Some(call) = life.session.telephone()
        && let Err(unproven) = life.proof.admit(call, &life.sessions.config().telephony)
    {
        life.unproven = Some(unproven);
        return life.session.handle_refused(1008, unproven.reason(), now);
    }
    if let Entry::Handshake(permit) = &life.entry {
        if life.sessions.is_closed() {
            return life.session.handle_refused(1001, "the runner is stopping", now);
        }
        match life.sessions.admission().session(permit.requester(), Kind::Caller) {
            Ok(permit) => life.entry = Entry::Session(permit),
            Err(refused) => {
                let why = match refused {
                    Refused::Full => "all places are taken; try again later",
                    Refused::Share => "this address has its share of the places; try again later",
                };
                return life.session.handle_refused(1013, why, now);
            }
        }
    }
    let Some(start) = life.start.take() else { return };
    let (link, seat) = media::pair(SOCKET_IN_FRAMES_MAX);
    let call = life.session.telephone();
    let transport = call.map_or(Transport::WebSocket, |call| Transport::Telephony(call.provider));
    let data = call.map(|call| call.data.clone());
    let line_rate_hz = call
        .filter(|call| call.rx.rate_hz == call.tx.rate_hz)
        .map(|call| call.rx.rate_hz);
    // A telephone's body is what its provider was told to pass on.
    let body = data
        .as_ref()
        .and_then(|data| data.get("body").cloned())
        .unwrap_or(start.body);
    let kind = bot::Kind::WebSocket(WebSocketArguments::new(
        WebSocketConnection::new(life.path),
        transport,
        data,
        line_rate_hz,
        seat,
    ));
    log::info!("session started: {}", transport.name());
    let metrics = life.sessions.metrics().clone();
    life.share = Some(Share::begin(metrics, transport, tasks::now()));
    let config = life.sessions.config();
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
    life.bot = Some(life.sessions.begin(start.session_id, body, kind));
    life.link = Some(link);
    life.lease = start.lease;
}

fn translate(event: Event) -> Option<bot::Event> {
    Some(match event {
        Event::Joined => bot::Event::Joined,
        Event::Message(text) => bot::Event::Message(text),
        Event::Dtmf(key) => bot::Event::Dtmf(key),
        Event::Mark { name, played } => bot::Event::Mark { name, played },
        Event::SpeechStarted => bot::Event::SpeechStarted,
        Event::SpeechStopped => bot::Event::SpeechStopped,
        Event::Lost => bot::Event::Lost,
        Event::Resumed => bot::Event::Resumed,
        Event::Left(reason) => bot::Event::Left(reason),
    })
}

/// Asks the provider to end the call, where there is somebody to ask.
fn hang_up(life: &mut Life, now: Instant) {
    let settings = &life.sessions.config().telephony.settings;
    let request = life.session.telephone().and_then(|call| {
        let request = hangup::request(call.provider, &call.call_id, settings)?;
        Some((call.provider, request))
    });
    match request {
        Some((provider, request)) => life.hang_up = Some(Box::pin(rest::hang_up(provider, request))),
        None => life.session.handle_hung_up(now),
    }
}

/// Takes everything that the bot has for the session.
fn hear_bot(life: &mut Life) {
    let Some(link) = &life.link else { return };
    if let Some(audio) = link.audio() {
        life.session.set_rates(audio.in_rate_hz, audio.out_rate_hz);
    }
    if link.take_interruption() {
        life.counts.add(Count::Interruptions, 1);
        life.session.handle_interruption();
    }
    while let Some(text) = link.take_message() {
        life.counts.add(Count::MessagesOut, 1);
        life.session.handle_message(text);
    }
    pull_speech(life);
}

fn pull_speech(life: &mut Life) {
    let Some(link) = &life.link else { return };
    for name in link.take_unplayed() {
        link.push(bot::Event::Mark { name, played: false });
    }
    loop {
        life.session
            .pull_speech(|into, samples_max| link.take_audio(into, samples_max), tasks::now());
        let Some(name) = link.take_mark() else { break };
        life.session.handle_mark(name);
    }
}
