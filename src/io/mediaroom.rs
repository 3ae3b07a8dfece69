//! The task of one session in a media room: signalling, UDP, the bot's queues and the clock around `proto::mediaroom`.
//!
//! It waits for whichever comes first, a message of the server, a datagram to one of the two connections, something of the bot,
//! the deadline, the bot's end or the runner's, hands it to the session, and does what the session answers. Nothing is opened
//! before the bot takes its media. It ends when nothing of the session is left, its bot included.

pub mod dial;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use edge_runner_http::common::random;
use futures_util::{Sink as _, Stream as _};
use tokio::task::AbortHandle;
use tokio::time::sleep_until;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

use crate::bot::media::{self, Hearing, Link};
use crate::bot::{self, Kind, MediaroomArguments};
use crate::config::{Secret, Transport};
use crate::io::addresses::own_addresses;
use crate::io::admission::Permit;
use crate::io::sessions::{BotTask, Outcome, Sessions, Start};
use crate::io::tasks;
use crate::io::udp::{Datagram, Inbox, Port};
use crate::limits::AUDIO_IN_FRAMES_MAX;
use crate::logging;
use crate::proto::connection::{Common, Packet, Transmit};
use crate::proto::event::LeaveReason;
use crate::proto::mediaroom::session::{Dial, Event, Local, Output, RoomSession, Setup};
use crate::proto::mediaroom::wire::Target;
use crate::proto::metrics::{Count, Counts, Share};
use crate::proto::stall::Task;
use dial::{Failure, Socket, dial};

/// The room of a session.
pub struct Room {
    pub name: String,
    pub url: String,
    /// The bot's.
    pub token: Secret,
}

/// Begins a session in a room: its bot starts at once.
pub fn begin(sessions: Sessions, permit: Permit, common: Arc<Common>, start: Start, room: Room) {
    let id = start.session_id.clone();
    let (watch, caller) = (sessions.watch().clone(), start.caller.clone());
    let now = tasks::now();
    let session = RoomSession::new(
        Setup {
            common,
            url: room.url.clone(),
            token: room.token.clone(),
            unix: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        },
        now,
    );
    let (link, seat) = media::pair(AUDIO_IN_FRAMES_MAX);
    let kind = Kind::Mediaroom(MediaroomArguments::new(room.name, room.url, room.token, seat));
    let life = Life {
        session: Box::new(session),
        wire: Wire::None,
        ports: None,
        link,
        bot: sessions.begin(id.clone(), start.body, kind),
        share: Share::begin(sessions.metrics().clone(), Transport::Mediaroom, now),
        sessions,
        began: now,
        entered: None,
        reason: None,
        counts: Counts::default(),
        _lease: start.lease,
        permit,
    };
    let task = logging::in_session(
        id.clone(),
        logging::of_caller(caller, crate::io::webrtc::seeding(run(life))),
    );
    tasks::spawn(watch.over(id, Task::Media, task));
}

/// Everything that one session owns.
struct Life {
    session: Box<RoomSession>,
    wire: Wire,
    /// Those of the publisher and of the subscriber connection; opened with the first dial, kept until the end.
    ports: Option<[Opened; 2]>,
    link: Link,
    bot: BotTask,
    sessions: Sessions,
    share: Share,
    began: Instant,
    /// When the bot took its media.
    entered: Option<Instant>,
    reason: Option<LeaveReason>,
    counts: Counts,
    _lease: Option<Box<dyn Send>>,
    /// Let go of last, as fields are dropped in this order: whoever waits for the last one finds nothing left.
    permit: Permit,
}

/// The socket of the signalling connection.
enum Wire {
    None,
    Dialing(Pin<Box<dyn Future<Output = Result<Box<Socket>, Failure>> + Send>>),
    Open {
        socket: Box<Socket>,
        /// It took all that it was given.
        is_flushed: bool,
    },
}

/// A UDP port of the session's own, which is read until this is dropped.
struct Opened {
    inbox: Inbox,
    reader: AbortHandle,
}

impl Opened {
    fn open(life: &Life) -> io::Result<Self> {
        let port = Port::bind(life.sessions.config().host, 0)?;
        let inbox = port.open();
        let reader = tasks::spawn(port.run()).abort_handle();
        Ok(Opened { inbox, reader })
    }

    /// Returns how many datagrams were a stranger's, or came faster than they were taken.
    fn dropped(&self) -> u64 {
        let dropped = self.inbox.port().dropped();
        dropped.strangers.load(Relaxed) + dropped.inbox_full.load(Relaxed)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Life {
    /// Takes over what others count.
    fn count(&mut self) {
        let (heard, spoken, dropped) = (self.session.heard(), self.session.spoken(), self.link.dropped());
        let counters = heard.counters;
        for (what, total) in [
            (Count::PacketsLost, counters.lost),
            (Count::PacketsLate, counters.late),
            (Count::PacketsUnreadable, heard.unreadable + counters.refused),
            (Count::FramesRecovered, counters.recovered),
            (Count::FramesConcealed, counters.concealed),
            (Count::FramesOut, spoken.frames),
            (Count::FramesSkipped, spoken.skipped),
            (Count::FramesDropped, dropped.frames_in),
            (
                Count::MessagesDropped,
                self.session.messages_dropped() + dropped.messages_out,
            ),
        ] {
            self.counts.set(what, total);
        }
    }
}

/// Runs a session to its end.
async fn run(mut life: Life) {
    log::info!("session started: mediaroom");
    let outcome = talk(&mut life).await;
    // Its bot has its own time to end, and its place until then.
    life.permit.settle();
    life.count();
    let Life {
        session,
        wire,
        ports,
        link,
        bot,
        sessions,
        share,
        began,
        reason,
        counts,
        _lease,
        permit,
        ..
    } = life;
    let unrouted = ports.iter().flatten().map(Opened::dropped).sum::<u64>();
    // The bot learns of the end by the link, and has its own time.
    drop((wire, ports, link));
    let outcome = match outcome {
        Some(outcome) => outcome,
        None => bot.finish(sessions.shutdown()).await,
    };
    let reason = reason.unwrap_or(LeaveReason::Failed);
    let words = format!(
        "{:.1} s, {} packets in, {} out, {}, {} frames to the bot, {} dropped, {unrouted} datagrams of no connection",
        (tasks::now() - began).as_secs_f64(),
        counts.get(Count::PacketsIn),
        counts.get(Count::PacketsOut),
        session.heard(),
        counts.get(Count::FramesIn),
        counts.get(Count::FramesDropped),
    );
    outcome.log(reason, &words);
    share.end(&counts, reason);
    drop((session, sessions, _lease));
    drop(permit);
}

/// The loop. Returns how the bot ended, if it did before the session.
async fn talk(life: &mut Life) -> Option<Outcome> {
    let mut timer = pin!(sleep_until(tasks::now().into()));
    let mut shutdown = life.sessions.shutdown().clone();
    let mut stop = pin!(async move { shutdown.wait().await });
    let mut outcome = None;
    let mut stopping = false;
    while let Some(deadline) = drain(life).await {
        // A bot may be by itself for long; what was counted before that is not kept back so long.
        let until = tokio::time::Instant::from_std(deadline.min(life.share.due()));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        let [publisher, subscriber] = match &mut life.ports {
            Some([publisher, subscriber]) => [Some(&mut publisher.inbox), Some(&mut subscriber.inbox)],
            None => [None, None],
        };
        // In no order: a peer that floods, or a bot that never stops sending, must not keep the others waiting.
        tokio::select! {
            traffic = poll_fn(|cx| poll_wire(&mut life.wire, cx)) => handle_traffic(life, traffic),
            datagram = received(publisher) => handle_datagram(life, Target::Publisher, &datagram),
            datagram = received(subscriber) => handle_datagram(life, Target::Subscriber, &datagram),
            () = life.link.notified() => hear_bot(life),
            () = &mut timer => {
                let now = tasks::now();
                if now >= deadline {
                    life.share.served(now.saturating_duration_since(deadline));
                }
                life.session.handle_timeout(now);
                pull_speech(life);
            }
            ended = life.bot.ended(), if outcome.is_none() => {
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
            () = life.permit.evicted() => {
                log::debug!("evicted: a newcomer has the place");
                life.session.handle_end(LeaveReason::NeverConnected, tasks::now());
            }
            () = &mut stop, if !stopping => {
                stopping = true;
                life.session.handle_end(LeaveReason::Shutdown, tasks::now());
            }
        }
    }
    outcome
}

async fn received(inbox: Option<&mut Inbox>) -> Datagram {
    match inbox {
        Some(inbox) => inbox.recv().await,
        None => std::future::pending().await,
    }
}

/// What the socket has for its session.
enum Traffic {
    Dialled(Result<Box<Socket>, Failure>),
    /// All that was written has left.
    Flushed(Result<(), Error>),
    Message(Option<Result<Frame, Error>>),
}

/// Moves bytes both ways until something comes of it.
fn poll_wire(wire: &mut Wire, cx: &mut Context<'_>) -> Poll<Traffic> {
    match wire {
        Wire::None => Poll::Pending,
        Wire::Dialing(dialing) => dialing.as_mut().poll(cx).map(Traffic::Dialled),
        Wire::Open { socket, is_flushed } => {
            if !*is_flushed && let Poll::Ready(flushed) = Pin::new(&mut **socket).poll_flush(cx) {
                return Poll::Ready(Traffic::Flushed(flushed));
            }
            Pin::new(&mut **socket).poll_next(cx).map(Traffic::Message)
        }
    }
}

fn handle_traffic(life: &mut Life, traffic: Traffic) {
    let now = tasks::now();
    match traffic {
        Traffic::Dialled(Ok(socket)) => {
            life.wire = Wire::Open {
                socket,
                is_flushed: true,
            };
            let local = local(life);
            life.session.handle_open(local, u64::from_be_bytes(random()), now);
        }
        Traffic::Dialled(Err(failure)) => {
            life.wire = Wire::None;
            match failure {
                Failure::Refused { status, text } => life.session.handle_refused(status, &text, now),
                Failure::Unreachable(words) => life.session.handle_unreachable(words, now),
            }
        }
        Traffic::Flushed(Ok(())) => {
            if let Wire::Open { is_flushed, .. } = &mut life.wire {
                *is_flushed = true;
            }
        }
        Traffic::Message(Some(Ok(Frame::Binary(bytes)))) => life.session.handle_binary(bytes, now),
        // The library answers pings, and a close with the next read.
        Traffic::Message(Some(Ok(_))) => {}
        Traffic::Message(None) => socket_gone(life),
        Traffic::Message(Some(Err(error))) | Traffic::Flushed(Err(error)) => {
            log::debug!("signalling: {error}");
            socket_gone(life);
        }
    }
}

fn socket_gone(life: &mut Life) {
    life.wire = Wire::None;
    life.session.handle_socket_gone();
}

/// Returns the addresses under which the two connections are reached at this moment.
fn local(life: &Life) -> Local {
    let Some([publisher, subscriber]) = &life.ports else {
        return Local::default();
    };
    let addresses = own_addresses(life.sessions.config());
    let of = |opened: &Opened| {
        let port = opened.inbox.port();
        let served = addresses.iter().filter(|address| port.serves(**address));
        served.map(|address| (*address, port.number()).into()).collect()
    };
    Local {
        publisher: of(publisher),
        subscriber: of(subscriber),
    }
}

fn handle_datagram(life: &mut Life, target: Target, datagram: &Datagram) {
    life.counts.add(Count::PacketsIn, 1);
    life.counts.add(Count::BytesIn, datagram.contents.len() as u64);
    let packet = Packet {
        over: datagram.over,
        source: datagram.source,
        destination: datagram.destination,
        contents: &datagram.contents,
    };
    life.session.handle_packet(target, &packet, datagram.arrived);
}

/// Does what the session answers, up to its next deadline; `None` when nothing of it is left.
async fn drain(life: &mut Life) -> Option<Instant> {
    let now = tasks::now();
    if now >= life.share.due() {
        life.count();
        life.share.tell(&life.counts, life.link.waiting(), now);
    }
    loop {
        match life.session.poll_output(now) {
            Output::Timeout(at) => return Some(at),
            Output::Gone => return None,
            Output::Dial(request) => call(life, request, now),
            Output::Send(bytes) => send(life, Frame::Binary(Bytes::from(bytes))).await,
            Output::CloseSocket => close(life).await,
            Output::Listen(target, ufrag) => {
                if let Some(inbox) = inbox(life, target) {
                    inbox.listen(ufrag);
                }
            }
            Output::Transmit(target, transmit) => launch(life, target, transmit),
            Output::Audio(frame) => {
                life.counts.add(Count::FramesIn, 1);
                match frame.identity {
                    Some(identity) => life.link.push_voice(frame.pcm, frame.rate_hz, identity),
                    None => life.link.push_audio(frame.pcm, frame.rate_hz),
                }
            }
            Output::Event(event) => {
                let event = translate(event, life);
                life.link.push(event);
            }
        }
    }
}

/// Opens what a stay needs.
fn call(life: &mut Life, request: Dial, now: Instant) {
    life.entered.get_or_insert(now);
    if life.ports.is_none() {
        match Opened::open(life).and_then(|publisher| Ok([publisher, Opened::open(life)?])) {
            Ok(ports) => life.ports = Some(ports),
            Err(error) => {
                let words = format!("no UDP port of this machine's own can be opened: {error}");
                return life.session.handle_unreachable(words, now);
            }
        }
    }
    life.wire = Wire::Dialing(Box::pin(dial(request)));
}

fn inbox(life: &mut Life, target: Target) -> Option<&mut Inbox> {
    let [publisher, subscriber] = life.ports.as_mut()?;
    Some(match target {
        Target::Publisher => &mut publisher.inbox,
        Target::Subscriber => &mut subscriber.inbox,
    })
}

/// Hands a message to the socket, and notes whether it took all of it.
async fn send(life: &mut Life, frame: Frame) {
    let Wire::Open { socket, is_flushed } = &mut life.wire else {
        return;
    };
    let mut socket = Pin::new(&mut **socket);
    let sent = match socket.as_mut().start_send(frame) {
        Ok(()) => poll_fn(|cx| Poll::Ready(socket.as_mut().poll_flush(cx))).await,
        Err(error) => Poll::Ready(Err(error)),
    };
    match sent {
        Poll::Pending => *is_flushed = false,
        Poll::Ready(Ok(())) => *is_flushed = true,
        Poll::Ready(Err(error)) => {
            log::debug!("signalling: {error}");
            socket_gone(life);
        }
    }
}

/// Says goodbye on the socket, which is read until the server has done the same.
async fn close(life: &mut Life) {
    if let Wire::Dialing(_) = life.wire {
        life.wire = Wire::None;
    }
    let code = CloseCode::Normal;
    let reason = "".into();
    send(life, Frame::Close(Some(CloseFrame { code, reason }))).await;
}

fn launch(life: &mut Life, target: Target, mut transmit: Transmit) {
    life.counts.add(Count::PacketsOut, 1);
    let (over, source, destination) = (transmit.over, transmit.source, transmit.destination);
    let finds_peer = transmit.is_check() || transmit.is_answer();
    let contents = transmit.contents();
    life.counts.add(Count::BytesOut, contents.len() as u64);
    let Some([publisher, subscriber]) = &life.ports else {
        return;
    };
    let inbox = match target {
        Target::Publisher => &publisher.inbox,
        Target::Subscriber => &subscriber.inbox,
    };
    let path = inbox.port().path(over, source, destination);
    // No other session has this port, so what is expected there is all that there is.
    if finds_peer {
        inbox.expect(path);
    }
    inbox.port().send(over, source, destination, contents);
}

fn translate(event: Event, life: &mut Life) -> bot::Event {
    match event {
        Event::Joined => {
            let after = life
                .entered
                .map_or(0.0, |entered| (tasks::now() - entered).as_secs_f64());
            log::info!("connected after {after:.1} s");
            bot::Event::Joined
        }
        Event::Message(text) => {
            life.counts.add(Count::MessagesIn, 1);
            bot::Event::Message(text)
        }
        Event::Dtmf(key) => bot::Event::Dtmf(key),
        Event::SpeechStarted => bot::Event::SpeechStarted,
        Event::SpeechStopped => bot::Event::SpeechStopped,
        Event::ParticipantJoined(who) => {
            life.permit.settle();
            log::debug!("`{}` is in the room", who.identity);
            bot::Event::ParticipantJoined(who)
        }
        Event::ParticipantLeft(who) => {
            log::debug!("`{}` left the room", who.identity);
            bot::Event::ParticipantLeft(who)
        }
        Event::Speaking { identity, speaking } => bot::Event::Speaking { identity, speaking },
        Event::JoinFailed(why) => {
            log::warn!("the room was not entered: {why}");
            bot::Event::JoinFailed(why)
        }
        Event::Lost => {
            log::info!("no caller is heard");
            bot::Event::Lost
        }
        Event::Resumed => {
            log::info!("a caller is heard again");
            bot::Event::Resumed
        }
        Event::Left(reason) => {
            life.reason = Some(reason);
            bot::Event::Left(reason)
        }
    }
}

/// Takes everything that the bot has for the session.
fn hear_bot(life: &mut Life) {
    let now = tasks::now();
    if let Some(audio) = life.link.audio() {
        let mixed = audio.hearing == Hearing::Mixed;
        life.session.set_audio(audio.in_rate_hz, audio.out_rate_hz, mixed, now);
    }
    if life.link.take_interruption() {
        life.counts.add(Count::Interruptions, 1);
        life.session.handle_interruption(now);
    }
    while let Some(text) = life.link.take_message() {
        life.counts.add(Count::MessagesOut, 1);
        life.session.handle_message(text);
    }
    pull_speech(life);
}

/// A mark is passed when the speech before it has been taken: a room does not say what it has played.
fn pull_speech(life: &mut Life) {
    let link = &life.link;
    for name in link.take_unplayed() {
        link.push(bot::Event::Mark { name, played: false });
    }
    loop {
        let takes = life
            .session
            .pull_speech(|into, samples_max| link.take_audio(into, samples_max), tasks::now());
        if !takes {
            // A mark waits with the speech around it.
            break;
        }
        let Some(name) = link.take_mark() else { break };
        link.push(bot::Event::Mark { name, played: true });
    }
}
