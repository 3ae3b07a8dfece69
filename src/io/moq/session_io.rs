//! The I/O of a session of Media over QUIC: its connections at the port.
//!
//! In: the connection of a caller, or dialed ones; their events. Out: the commands of
//! [`MoqSession`]. A session has one connection at a time, and for a moment those before it, which
//! are being closed.

use std::future::{Future, pending, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{oneshot, watch};

use super::arrivals::{ArrivedConnection, WaitingEntry};
use super::dial::Dialer;
use super::port::{ConnectionInbox, MoqPort, ReceivedEvent};
use crate::io::session::{CloseOutcome, SessionIo, SessionTask};
use crate::io::tasks;
use crate::proto::counts::Count;
use crate::proto::event::LeaveReason;
use crate::proto::moq::link::MoqLink;
use crate::proto::moq::session::{MoqCommand, MoqSession};
use crate::proto::session::Session as _;

/// A dial in progress.
type Dialing = Pin<Box<dyn Future<Output = Result<(MoqLink, ConnectionInbox), String>> + Send>>;

/// Where the connections of a session come from.
pub enum ConnectionSource {
    Caller {
        arriving: oneshot::Receiver<ArrivedConnection>,
        /// The reason why the last connection reached no session.
        failures: watch::Receiver<String>,
        _entry: WaitingEntry,
    },
    Relay {
        dialer: Arc<Dialer>,
        dialing: Option<Dialing>,
        /// Dials since the relay last answered.
        attempt: usize,
        /// The address of the last dial.
        remote: Option<IpAddr>,
        /// Tells `/start` that the session is ready, or why it ended before that.
        ready: Option<oneshot::Sender<Result<(), String>>>,
    },
    /// The caller has arrived.
    Arrived,
}

/// The I/O of one session.
pub struct MoqIo {
    pub port: Arc<MoqPort>,
    pub source: ConnectionSource,
    pub inboxes: Vec<(u64, ConnectionInbox)>,
    /// The number of the last connection.
    pub last: u64,
}

/// An input of the session.
#[allow(
    clippy::large_enum_variant,
    reason = "the largest comes with every datagram, and is not to be allocated"
)]
pub enum MoqInput {
    Event(u64, ReceivedEvent),
    Arrived(Box<ArrivedConnection>),
    /// A connection reached no session, with the reason.
    Unbound(String),
    Dialed(Box<Result<(MoqLink, ConnectionInbox), String>>),
    /// The request to `/start` is gone.
    Abandoned,
}

impl SessionIo for MoqIo {
    type Session = MoqSession;
    type Input = MoqInput;

    async fn recv(&mut self) -> MoqInput {
        let MoqIo { source, inboxes, .. } = self;
        // Unbiased: a flood of datagrams must not starve the others.
        tokio::select! {
            (number, event) = poll_fn(|cx| poll_inboxes(inboxes, cx)) => MoqInput::Event(number, event),
            input = from_source(source) => input,
        }
    }

    fn deliver(&mut self, input: MoqInput, session: &mut MoqSession, task: &mut SessionTask) {
        let now = tasks::now();
        match input {
            MoqInput::Event(number, received) => {
                task.counts.add(Count::PacketsIn, 1);
                task.counts.add(Count::BytesIn, received.bytes as u64);
                session.handle_connection_event(number, received.event, received.arrived);
            }
            MoqInput::Arrived(arrived) => {
                let ArrivedConnection { arrival, inbox } = *arrived;
                self.source = ConnectionSource::Arrived;
                let number = self.open(inbox);
                session.handle_arrival(number, arrival, now);
            }
            MoqInput::Unbound(why) => session.handle_attempt(why),
            MoqInput::Dialed(dialed) => match *dialed {
                Ok((link, inbox)) => {
                    if let ConnectionSource::Relay { remote, .. } = &mut self.source {
                        *remote = Some(link.remote_address().ip());
                    }
                    let number = self.open(inbox);
                    session.handle_dialed(number, link, now);
                }
                Err(why) => session.handle_dial_error(why, now),
            },
            MoqInput::Abandoned => session.handle_end(LeaveReason::NeverConnected, now),
        }
    }

    fn perform(&mut self, command: MoqCommand, session: &mut MoqSession, task: &mut SessionTask, cx: &mut Context<'_>) {
        match command {
            MoqCommand::Send(transmit) => {
                task.counts.add(Count::PacketsOut, 1);
                task.counts.add(Count::BytesOut, transmit.size as u64);
                self.port.send(&transmit, session.transmit_buffer());
            }
            MoqCommand::Endpoint { connection, event } => {
                let inbox = self.inboxes.iter_mut().find(|(number, _)| *number == connection);
                if let Some(event) = inbox.and_then(|(_, inbox)| inbox.handle_endpoint_event(event)) {
                    session.handle_connection_event(connection, event, tasks::now());
                }
            }
            MoqCommand::Dial => {
                if let ConnectionSource::Relay {
                    dialer,
                    dialing,
                    attempt,
                    ..
                } = &mut self.source
                {
                    *dialing = Some(Box::pin(dialer.clone().dial(*attempt)));
                    *attempt += 1;
                    cx.waker().wake_by_ref();
                }
            }
            MoqCommand::Drop { connection } => self.inboxes.retain(|(number, _)| *number != connection),
            MoqCommand::Ready => {
                if let ConnectionSource::Relay {
                    dialer,
                    attempt,
                    remote,
                    ready,
                    ..
                } = &mut self.source
                {
                    *attempt = 0;
                    remote.inspect(|remote| dialer.note_answer(*remote));
                    if let Some(ready) = ready.take() {
                        // The request may be gone.
                        let _ = ready.send(Ok(()));
                    }
                }
            }
        }
    }

    fn close(self, session: &MoqSession, _task: &SessionTask) -> CloseOutcome {
        if let ConnectionSource::Relay { ready: Some(ready), .. } = self.source {
            let why = session.dial_error().unwrap_or("the bot ended it");
            let _ = ready.send(Err(why.to_owned()));
        }
        CloseOutcome::default()
    }
}

impl MoqIo {
    fn open(&mut self, inbox: ConnectionInbox) -> u64 {
        self.last += 1;
        self.inboxes.push((self.last, inbox));
        self.last
    }
}

fn poll_inboxes(inboxes: &mut [(u64, ConnectionInbox)], cx: &mut Context<'_>) -> Poll<(u64, ReceivedEvent)> {
    for (number, inbox) in inboxes {
        if let Poll::Ready(event) = inbox.poll_recv(cx) {
            return Poll::Ready((*number, event));
        }
    }
    Poll::Pending
}

async fn from_source(source: &mut ConnectionSource) -> MoqInput {
    match source {
        ConnectionSource::Arrived => pending().await,
        ConnectionSource::Caller { arriving, failures, .. } => {
            tokio::select! {
                biased;
                // The registry holds the sender until the caller arrives.
                Ok(arrived) = arriving => MoqInput::Arrived(Box::new(arrived)),
                Ok(()) = failures.changed() => MoqInput::Unbound(failures.borrow_and_update().clone()),
                else => pending().await,
            }
        }
        ConnectionSource::Relay { dialing, ready, .. } => {
            tokio::select! {
                dialed = poll_fn(|cx| poll_dialing(dialing, cx)) => MoqInput::Dialed(Box::new(dialed)),
                () = abandoned(ready) => MoqInput::Abandoned,
            }
        }
    }
}

fn poll_dialing(
    dialing: &mut Option<Dialing>,
    cx: &mut Context<'_>,
) -> Poll<Result<(MoqLink, ConnectionInbox), String>> {
    let Some(future) = dialing else {
        return Poll::Pending;
    };
    let dialed = std::task::ready!(future.as_mut().poll(cx));
    *dialing = None;
    Poll::Ready(dialed)
}

/// Waits until the request to `/start` is gone, and then forgets it.
async fn abandoned(ready: &mut Option<oneshot::Sender<Result<(), String>>>) {
    match ready {
        Some(sender) => sender.closed().await,
        None => pending().await,
    }
    *ready = None;
}
