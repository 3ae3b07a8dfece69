//! What carries a session in a media room: the signalling WebSocket, and two UDP ports for the two
//! connections.
//!
//! In: messages of the server and datagrams. Out: those of [`RoomSession`]. Nothing is opened
//! before the bot takes its media; the ports are kept until the end.

pub mod dial;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use edge_runner_http::common::random;
use futures_util::{Sink as _, Stream as _};
use tokio::task::AbortHandle;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

use crate::bot::{Kind, MediaroomArguments};
use crate::config::{Config, Secret, Transport};
use crate::io::addresses::own_addresses;
use crate::io::admission::Permit;
use crate::io::session::{self, Carrier, Closed, SessionTask};
use crate::io::sessions::{Sessions, Start};
use crate::io::tasks;
use crate::io::udp::{Datagram, Inbox, Port};
use crate::io::webrtc::seeding;
use crate::limits::AUDIO_IN_FRAMES_MAX;
use crate::proto::counts::Count;
use crate::proto::livekit::session::{Command, Dial, Local, RoomSession, Setup};
use crate::proto::livekit::wire::Target;
use crate::proto::webrtc::connection::{ConnectionContext, Transmit};
use dial::{Failure, Socket, dial};

/// The room of a session.
pub struct Room {
    pub name: String,
    pub url: String,
    /// The bot's.
    pub token: Secret,
}

/// Begins a session in a room: its bot starts at once.
pub fn begin(sessions: Sessions, permit: Permit, common: Arc<ConnectionContext>, start: Start, room: Room) {
    let id = start.session_id.clone();
    let setup = Setup {
        common,
        url: room.url.clone(),
        token: room.token.clone(),
        unix: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default(),
    };
    let session = Box::new(RoomSession::new(setup, tasks::now()));
    let carrier = RoomCarrier {
        wire: Wire::None,
        ports: None,
        config: sessions.config().clone(),
    };
    let mut task = SessionTask::new(sessions.clone(), permit, start.lease);
    task.start_bot(
        id.clone(),
        start.body,
        Transport::Mediaroom,
        AUDIO_IN_FRAMES_MAX,
        |slot| Kind::Mediaroom(MediaroomArguments::new(room.name, room.url, room.token, slot)),
    );
    session::spawn(
        &sessions,
        id,
        start.caller,
        seeding(session::run(session, carrier, task)),
    );
}

/// The sockets of one session.
struct RoomCarrier {
    wire: Wire,
    /// Those of the publisher and of the subscriber connection; opened with the first dial, kept
    /// until the end.
    ports: Option<[Opened; 2]>,
    config: Arc<Config>,
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
    fn open(config: &Config) -> io::Result<Self> {
        let port = Port::bind(config.host, 0)?;
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

/// What has come.
enum Input {
    Traffic(Traffic),
    Datagram(Target, Datagram),
}

impl Carrier for RoomCarrier {
    type Session = RoomSession;
    type Input = Input;

    async fn recv(&mut self) -> Input {
        let RoomCarrier { wire, ports, .. } = self;
        let [publisher, subscriber] = match ports {
            Some([publisher, subscriber]) => [Some(&mut publisher.inbox), Some(&mut subscriber.inbox)],
            None => [None, None],
        };
        tokio::select! {
            traffic = poll_fn(|cx| poll_wire(wire, cx)) => Input::Traffic(traffic),
            datagram = received(publisher) => Input::Datagram(Target::Publisher, datagram),
            datagram = received(subscriber) => Input::Datagram(Target::Subscriber, datagram),
        }
    }

    fn deliver(&mut self, input: Input, session: &mut RoomSession, task: &mut SessionTask) {
        match input {
            Input::Traffic(traffic) => self.handle_traffic(traffic, session),
            Input::Datagram(target, datagram) => {
                task.counts.add(Count::PacketsIn, 1);
                task.counts.add(Count::BytesIn, datagram.contents.len() as u64);
                session.handle_packet(target, &datagram.packet(), datagram.arrived);
            }
        }
    }

    fn perform(&mut self, command: Command, session: &mut RoomSession, task: &mut SessionTask, cx: &mut Context<'_>) {
        match command {
            Command::Dial(request) => self.dial(request, session, tasks::now()),
            Command::Send(bytes) => self.send(Frame::Binary(Bytes::from(bytes)), session, cx),
            Command::CloseSocket => {
                // It is read until the server has said goodbye as well.
                if let Wire::Dialing(_) = self.wire {
                    self.wire = Wire::None;
                }
                let code = CloseCode::Normal;
                let reason = "".into();
                self.send(Frame::Close(Some(CloseFrame { code, reason })), session, cx);
            }
            Command::Listen(target, ufrag) => {
                if let Some(ports) = &mut self.ports {
                    ports[target as usize].inbox.listen(ufrag);
                }
            }
            Command::Transmit(target, transmit) => self.transmit(target, transmit, task),
        }
    }

    fn close(self, _session: &RoomSession, _host: &SessionTask) -> Closed {
        let unrouted = self.ports.iter().flatten().map(Opened::dropped).sum::<u64>();
        Closed {
            words: format!(", {unrouted} datagrams of no connection"),
            ..Closed::default()
        }
    }
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

impl RoomCarrier {
    fn handle_traffic(&mut self, traffic: Traffic, session: &mut RoomSession) {
        let now = tasks::now();
        match traffic {
            Traffic::Dialled(Ok(socket)) => {
                self.wire = Wire::Open {
                    socket,
                    is_flushed: true,
                };
                session.handle_open(self.local(), u64::from_be_bytes(random()), now);
            }
            Traffic::Dialled(Err(failure)) => {
                self.wire = Wire::None;
                match failure {
                    Failure::Refused { status, text } => session.handle_refused(status, &text, now),
                    Failure::Unreachable(words) => session.handle_unreachable(words, now),
                }
            }
            Traffic::Flushed(Ok(())) => {
                if let Wire::Open { is_flushed, .. } = &mut self.wire {
                    *is_flushed = true;
                }
            }
            Traffic::Message(Some(Ok(Frame::Binary(bytes)))) => session.handle_binary(bytes, now),
            // The library answers pings, and a close with the next read.
            Traffic::Message(Some(Ok(_))) => {}
            Traffic::Message(None) => self.socket_gone(session),
            Traffic::Message(Some(Err(error))) | Traffic::Flushed(Err(error)) => {
                log::debug!("signalling: {error}");
                self.socket_gone(session);
            }
        }
    }

    fn socket_gone(&mut self, session: &mut RoomSession) {
        self.wire = Wire::None;
        session.handle_socket_gone();
    }

    /// Returns the addresses under which the two connections are reached at this moment.
    fn local(&self) -> Local {
        let Some([publisher, subscriber]) = &self.ports else {
            return Local::default();
        };
        let addresses = own_addresses(&self.config);
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

    /// Opens what a stay in the room needs.
    fn dial(&mut self, request: Dial, session: &mut RoomSession, now: Instant) {
        if self.ports.is_none() {
            let config = &self.config;
            match Opened::open(config).and_then(|publisher| Ok([publisher, Opened::open(config)?])) {
                Ok(ports) => self.ports = Some(ports),
                Err(error) => {
                    let words = format!("no UDP port of this machine's own can be opened: {error}");
                    return session.handle_unreachable(words, now);
                }
            }
        }
        self.wire = Wire::Dialing(Box::pin(dial(request)));
    }

    /// Hands a message to the socket, and notes whether it took all of it.
    fn send(&mut self, frame: Frame, session: &mut RoomSession, cx: &mut Context<'_>) {
        let Wire::Open { socket, is_flushed } = &mut self.wire else {
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
                self.socket_gone(session);
            }
        }
    }

    fn transmit(&self, target: Target, mut transmit: Transmit, task: &mut SessionTask) {
        task.counts.add(Count::PacketsOut, 1);
        let (over, source, destination) = (transmit.over, transmit.source, transmit.destination);
        let finds_peer = transmit.is_check() || transmit.is_answer();
        let contents = transmit.contents();
        task.counts.add(Count::BytesOut, contents.len() as u64);
        let Some(ports) = &self.ports else {
            return;
        };
        let inbox = &ports[target as usize].inbox;
        let path = inbox.port().path(over, source, destination);
        // No other session has this port, so what is expected there is all that there is.
        if finds_peer {
            inbox.expect(path);
        }
        inbox.port().send(over, source, destination, contents);
    }
}
