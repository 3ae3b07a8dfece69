//! The transport of a session in a LiveKit room: the signalling WebSocket, two UDP ports, and TCP
//! connections and relays where UDP is blocked.
//!
//! In: messages of the server and datagrams. Out: the commands of [`RoomSession`]. Nothing is
//! opened before the bot takes its media. The ports stay open until the end.

pub mod banner;
#[cfg(feature = "call")]
pub mod call;
pub mod dial;
pub mod doctor;
pub mod job;
mod path_link;
mod paths;
#[cfg_attr(not(feature = "turn"), path = "absent.rs")]
mod relay;
pub mod routes;
pub mod worker;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use edge_runner_http::common::random;
use futures_util::{Sink as _, Stream as _};
use tokio::task::AbortHandle;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

pub use self::routes::MODULE;
use crate::bot::{Kind, MediaroomArguments};
use crate::config::{Config, Secret, Transport};
use crate::io::addresses::own_addresses;
use crate::io::admission::SessionPermit;
use crate::io::rest::{RestError, RestResponse};
use crate::io::seeding::seeding;
use crate::io::session::{self, BotRestart, CloseOutcome, SessionIo, SessionTask};
use crate::io::sessions::{SessionStart, Sessions};
use crate::io::webrtc::udp::{Datagram, SessionInbox, UdpPort};
use crate::io::websocket_client::ClientSocket;
use crate::io::{rest, tasks};
use crate::limits::AUDIO_IN_FRAMES_MAX;
use crate::proto::counts::Count;
use crate::proto::job::Job;
use crate::proto::livekit::connection_details::ConnectionDetails;
use crate::proto::livekit::room_service::{RoomHangUp, RoomService};
use crate::proto::livekit::roster::RoomRole;
use crate::proto::livekit::session::{DialRequest, JobRules, LocalAddresses, RoomCommand, RoomSession, RoomSetup};
use crate::proto::livekit::socket_base;
use crate::proto::livekit::wire::SignalTarget;
use crate::proto::webrtc::connection::{ConnectionContext, Transmit};
use crate::proto::webrtc::packet_router::RemotePath;
use dial::{DialError, dial};
use job::{JobLink, JobOrder};
use paths::{PathInput, RoomPaths};

/// Begins a session in a room. Its bot starts at once.
pub fn begin(
    sessions: Sessions,
    permit: SessionPermit,
    common: Arc<ConnectionContext>,
    start: SessionStart,
    details: ConnectionDetails,
) {
    let other_urls = sessions.config().mediaroom.other_urls.iter();
    let room = RoomEntry {
        room_name: details.room_name,
        url: details.url,
        other_urls: other_urls.map(|url| socket_base(url)).collect(),
        token: details.bot_token,
        agent_name: details.agent_name,
        service: details.service,
        job: None,
    };
    begin_in(sessions, permit, common, start, room);
}

/// What the bot of a session enters.
struct RoomEntry {
    room_name: String,
    url: String,
    other_urls: Vec<String>,
    token: Secret,
    /// The name of the agent that front-ends are shown.
    agent_name: String,
    /// The API of the server, where a credential allows its use.
    service: Option<RoomService>,
    /// The job, its rules, and the link to the worker that has it.
    job: Option<(Arc<Job>, JobRules, JobLink)>,
}

/// Begins a session in a room, with or without a job.
fn begin_in(
    sessions: Sessions,
    permit: SessionPermit,
    common: Arc<ConnectionContext>,
    start: SessionStart,
    room: RoomEntry,
) {
    let id = start.session_id.clone();
    let (job, rules, link) = match room.job {
        Some((job, rules, link)) => (Some(job), Some(rules), Some(link)),
        None => (None, None, None),
    };
    let setup = RoomSetup {
        role: RoomRole::Bot,
        common,
        url: room.url.clone(),
        other_urls: room.other_urls,
        token: room.token.clone(),
        agent_name: room.agent_name,
        service: room.service.clone(),
        unix: unix_time(),
        job: rules,
    };
    let session = Box::new(RoomSession::new(setup, tasks::now()));
    let io = RoomTransport::new(sessions.config().clone(), link);
    let mut task = SessionTask::new(sessions.clone(), permit, start.lease);
    let make_arguments = move |slot| {
        let arguments = MediaroomArguments::new(room.room_name, room.url, room.token, room.service, slot);
        Kind::Mediaroom(arguments.with_job(job))
    };
    if io.job.is_some() {
        task.allow_restart(BotRestart {
            session_id: id.clone(),
            body: start.body.clone(),
            frames_max: AUDIO_IN_FRAMES_MAX,
            make_arguments: Box::new(make_arguments.clone()),
        });
    }
    task.start_bot(
        start.bot,
        id.clone(),
        start.body,
        Transport::Mediaroom,
        AUDIO_IN_FRAMES_MAX,
        make_arguments,
    );
    session::spawn(
        &sessions,
        id,
        start.log_client,
        seeding(session::run(session, io, task)),
    );
}

fn unix_time() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// The sockets of one session.
struct RoomTransport {
    socket: SignalSocket,
    /// The ports of the publisher and the subscriber connection. The first dial opens them.
    ports: Option<[MediaPort; 2]>,
    /// The other ways to the server.
    paths: RoomPaths,
    config: Arc<Config>,
    /// The link to the worker, in the session of a job.
    job: Option<JobLink>,
    /// A request for the participants.
    looking: Option<LookFuture>,
}

type LookFuture = Pin<Box<dyn Future<Output = Result<RestResponse, RestError>> + Send>>;

impl RoomTransport {
    fn new(config: Arc<Config>, job: Option<JobLink>) -> Self {
        RoomTransport {
            socket: SignalSocket::Closed,
            ports: None,
            paths: RoomPaths::default(),
            config,
            job,
            looking: None,
        }
    }
}

/// The WebSocket of the signalling connection.
enum SignalSocket {
    Closed,
    Connecting(Pin<Box<dyn Future<Output = Result<Box<ClientSocket>, DialError>> + Send>>),
    Open {
        socket: Box<ClientSocket>,
        /// Whether everything written has been flushed.
        is_flushed: bool,
    },
}

/// A UDP port of the session, read until this is dropped.
struct MediaPort {
    inbox: SessionInbox,
    reader: AbortHandle,
}

impl MediaPort {
    fn open(config: &Config) -> io::Result<Self> {
        let port = UdpPort::bind(config.host, 0)?;
        let inbox = port.open();
        let reader = tasks::spawn(port.run()).abort_handle();
        Ok(MediaPort { inbox, reader })
    }

    /// Returns the number of datagrams from unknown peers and of those that overflowed the queue.
    fn dropped(&self) -> u64 {
        let dropped = self.inbox.port().dropped();
        dropped.unrouted.load(Relaxed) + dropped.inbox_full.load(Relaxed)
    }
}

impl Drop for MediaPort {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// An input of the session.
enum RoomInput {
    Socket(SocketEvent),
    Datagram(SignalTarget, Datagram),
    Path(PathInput),
    Job(JobOrder),
    Participants(Result<RestResponse, RestError>),
}

impl SessionIo for RoomTransport {
    type Session = RoomSession;
    type Input = RoomInput;

    async fn recv(&mut self) -> RoomInput {
        let RoomTransport {
            socket,
            ports,
            paths,
            job,
            looking,
            ..
        } = self;
        let [publisher, subscriber] = match ports {
            Some([publisher, subscriber]) => [Some(&mut publisher.inbox), Some(&mut subscriber.inbox)],
            None => [None, None],
        };
        tokio::select! {
            event = poll_fn(|cx| poll_socket(socket, cx)) => RoomInput::Socket(event),
            datagram = recv_from(publisher) => RoomInput::Datagram(SignalTarget::Publisher, datagram),
            datagram = recv_from(subscriber) => RoomInput::Datagram(SignalTarget::Subscriber, datagram),
            input = paths.recv() => RoomInput::Path(input),
            order = job::recv_from(job.as_mut()) => RoomInput::Job(order),
            answer = answered(looking.as_mut()) => RoomInput::Participants(answer),
        }
    }

    fn deliver(&mut self, input: RoomInput, session: &mut RoomSession, task: &mut SessionTask) {
        match input {
            RoomInput::Socket(event) => self.handle_socket_event(event, session),
            RoomInput::Participants(answer) => {
                self.looking = None;
                let answer = answer.as_ref().ok().map(|answer| (answer.status, &answer.body[..]));
                session.handle_participants(answer, tasks::now());
            }
            RoomInput::Job(JobOrder::Terminate) => session.handle_job_terminated(tasks::now()),
            RoomInput::Job(JobOrder::Reported) => session.handle_job_reported(tasks::now()),
            RoomInput::Path(PathInput::Event(id, event)) => session.handle_path(id, event, tasks::now()),
            RoomInput::Datagram(target, datagram) | RoomInput::Path(PathInput::Datagram(target, datagram)) => {
                task.counts.add(Count::PacketsIn, 1);
                task.counts.add(Count::BytesIn, datagram.contents.len() as u64);
                session.handle_packet(target, &datagram.packet(), datagram.arrived);
            }
        }
    }

    fn perform(
        &mut self,
        command: RoomCommand,
        session: &mut RoomSession,
        task: &mut SessionTask,
        cx: &mut Context<'_>,
    ) {
        match command {
            RoomCommand::Dial(request) => self.dial(request, session, tasks::now()),
            RoomCommand::Send(bytes) => self.send(Frame::Binary(Bytes::from(bytes)), session, cx),
            RoomCommand::CloseSocket => {
                // It is read until the server has closed its side too.
                if let SignalSocket::Connecting(_) = self.socket {
                    self.socket = SignalSocket::Closed;
                }
                let code = CloseCode::Normal;
                let reason = "".into();
                self.send(Frame::Close(Some(CloseFrame { code, reason })), session, cx);
            }
            RoomCommand::Listen(target, ufrag, used) => {
                if let Some(ports) = &mut self.ports {
                    ports[target as usize].inbox.rename(ufrag, used.map(RemotePath::from));
                }
            }
            RoomCommand::OpenPath(target, id, request) => self.paths.open(target, id, request),
            RoomCommand::ClosePath(id) => self.paths.close(id),
            RoomCommand::ClosePaths => self.paths.close_all(),
            RoomCommand::Transmit(target, transmit) => self.transmit(target, transmit, task),
            RoomCommand::Look(request) => self.looking = Some(Box::pin(async move { rest::send(&request).await })),
            RoomCommand::Job(news) => {
                if let Some(job) = &mut self.job {
                    job.tell(news);
                }
            }
        }
    }

    fn close(self, session: &RoomSession, _task: &SessionTask) -> CloseOutcome {
        let unrouted = self.ports.iter().flatten().map(MediaPort::dropped).sum::<u64>();
        let request = session.hang_up_request(tasks::now());
        CloseOutcome {
            hang_up: request.map(|request| Box::pin(rest::hang_up(&RoomHangUp, request)) as _),
            log_suffix: format!(", {unrouted} datagrams of no connection"),
        }
    }
}

async fn answered(looking: Option<&mut LookFuture>) -> Result<RestResponse, RestError> {
    match looking {
        Some(looking) => looking.await,
        None => std::future::pending().await,
    }
}

async fn recv_from(inbox: Option<&mut SessionInbox>) -> Datagram {
    match inbox {
        Some(inbox) => inbox.recv().await,
        None => std::future::pending().await,
    }
}

/// An event of the WebSocket.
enum SocketEvent {
    Connected(Result<Box<ClientSocket>, DialError>),
    /// Everything written has been flushed.
    Flushed(Result<(), Error>),
    Message(Option<Result<Frame, Error>>),
}

/// Reads and writes the socket until something happens.
fn poll_socket(socket: &mut SignalSocket, cx: &mut Context<'_>) -> Poll<SocketEvent> {
    match socket {
        SignalSocket::Closed => Poll::Pending,
        SignalSocket::Connecting(connecting) => connecting.as_mut().poll(cx).map(SocketEvent::Connected),
        SignalSocket::Open { socket, is_flushed } => {
            if !*is_flushed && let Poll::Ready(flushed) = Pin::new(&mut **socket).poll_flush(cx) {
                return Poll::Ready(SocketEvent::Flushed(flushed));
            }
            Pin::new(&mut **socket).poll_next(cx).map(SocketEvent::Message)
        }
    }
}

impl RoomTransport {
    fn handle_socket_event(&mut self, event: SocketEvent, session: &mut RoomSession) {
        let now = tasks::now();
        match event {
            SocketEvent::Connected(Ok(socket)) => {
                self.socket = SignalSocket::Open {
                    socket,
                    is_flushed: true,
                };
                session.handle_open(self.local(), u64::from_be_bytes(random()), now);
            }
            SocketEvent::Connected(Err(failure)) => {
                self.socket = SignalSocket::Closed;
                match failure {
                    DialError::Refused { status, text } => session.handle_refused(status, &text, now),
                    DialError::Unreachable(words) => session.handle_unreachable(words, now),
                }
            }
            SocketEvent::Flushed(Ok(())) => {
                if let SignalSocket::Open { is_flushed, .. } = &mut self.socket {
                    *is_flushed = true;
                }
            }
            SocketEvent::Message(Some(Ok(Frame::Binary(bytes)))) => session.handle_binary(bytes, now),
            // The library answers pings, and a close with the next read.
            SocketEvent::Message(Some(Ok(_))) => {}
            SocketEvent::Message(None) => self.handle_socket_closed(session),
            SocketEvent::Message(Some(Err(error))) | SocketEvent::Flushed(Err(error)) => {
                log::debug!("signalling: {error}");
                self.handle_socket_closed(session);
            }
        }
    }

    fn handle_socket_closed(&mut self, session: &mut RoomSession) {
        self.socket = SignalSocket::Closed;
        session.handle_socket_closed();
    }

    /// Returns the current local addresses of the two connections.
    fn local(&self) -> LocalAddresses {
        let Some([publisher, subscriber]) = &self.ports else {
            return LocalAddresses::default();
        };
        let addresses = own_addresses(&self.config);
        let of = |opened: &MediaPort| {
            let port = opened.inbox.port();
            let served = addresses.iter().filter(|address| port.serves(**address));
            served.map(|address| (*address, port.number()).into()).collect()
        };
        LocalAddresses {
            publisher: of(publisher),
            subscriber: of(subscriber),
        }
    }

    /// Opens the ports and the WebSocket of a connection.
    fn dial(&mut self, request: DialRequest, session: &mut RoomSession, now: Instant) {
        if self.ports.is_none() {
            let config = &self.config;
            match MediaPort::open(config).and_then(|publisher| Ok([publisher, MediaPort::open(config)?])) {
                Ok(ports) => self.ports = Some(ports),
                Err(error) => {
                    let words = format!("no UDP port of this machine's own can be opened: {error}");
                    return session.handle_unreachable(words, now);
                }
            }
        }
        self.socket = SignalSocket::Connecting(Box::pin(dial(request)));
    }

    /// Writes a message, and records whether it is flushed.
    fn send(&mut self, frame: Frame, session: &mut RoomSession, cx: &mut Context<'_>) {
        let SignalSocket::Open { socket, is_flushed } = &mut self.socket else {
            return;
        };
        let mut socket = Pin::new(&mut **socket);
        let sent = match socket.as_mut().start_send(frame) {
            Ok(()) => socket.poll_flush(cx),
            Err(error) => Poll::Ready(Err(error)),
        };
        match sent {
            Poll::Pending => *is_flushed = false,
            Poll::Ready(Ok(())) => *is_flushed = true,
            Poll::Ready(Err(error)) => {
                log::debug!("signalling: {error}");
                self.handle_socket_closed(session);
            }
        }
    }

    fn transmit(&self, target: SignalTarget, mut transmit: Transmit, task: &mut SessionTask) {
        task.counts.add(Count::PacketsOut, 1);
        let (over, source, destination) = (transmit.over, transmit.source, transmit.destination);
        let finds_peer = transmit.is_check() || transmit.is_answer();
        task.counts.add(Count::BytesOut, transmit.contents().len() as u64);
        if self.paths.send(target, &mut transmit) {
            return;
        }
        let Some(ports) = &self.ports else {
            return;
        };
        let inbox = &ports[target as usize].inbox;
        let path = inbox.port().path(over, source, destination);
        // No other session uses this port, so every datagram from there belongs to this one.
        if finds_peer {
            inbox.expect(path);
        }
        inbox.port().send(over, source, destination, transmit.contents());
    }
}
