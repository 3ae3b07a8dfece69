//! Connections of callers, from their first datagram until a session takes them.
//!
//! In: new connections of the port, the sessions that wait. Out: each connection to the oldest
//! session that waits for what its peer announces, or a log line with the reason why it reached
//! none. `proto::moq::accepted` decides what happens on a connection. Rejects: origins and tokens
//! as WebSockets do; connections beyond the caps, of one source or in all, and asks sources to
//! prove their address as soon as several connections are on their way.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use edge_runner_http::common::{self, lock, random};
use quinn_proto::{Connection, EndpointEvent};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep_until;

use super::port::{AcceptConnections, ConnectionInbox, ConnectionVerdict};
use crate::bot::SessionId;
use crate::io::admission::{PendingPermits, SessionPermit};
use crate::io::sessions::Sessions;
use crate::io::tasks;
use crate::logging::{self, LogClient};
use crate::proto::http::origin::{AllowedOrigins, CorsDecision};
use crate::proto::http::token::{SocketKind, SocketTokens, TokenError};
use crate::proto::moq::accepted::{AcceptedConnection, AcceptedOutput, ArrivalError, ArrivalRequest};
use crate::proto::moq::limits::{MOQ_RETRY_FROM, MOQ_UNBOUND_MAX, MOQ_UNBOUND_PER_SOURCE};
use crate::proto::moq::metrics::{MoqConnectionOutcome, MoqMetrics};
use crate::proto::moq::session::MoqArrival;
use crate::proto::moq::waiting::WaitingSessions;
use crate::proto::server::admission::{AdmissionError, Requester};
use crate::proto::server::log_limit::LogLimit;

/// Age at which a connection without a session may be evicted: a caller names its session within a
/// second on most networks.
const UNBOUND_YIELD_AFTER: Duration = Duration::from_secs(3);
/// Evicted connections that are still closing.
const UNBOUND_ENDING_MAX: usize = 64;

/// A connection that a session takes.
pub struct ArrivedConnection {
    pub arrival: MoqArrival,
    pub inbox: ConnectionInbox,
}

/// A session that waits for its caller.
pub struct WaitingSession {
    pub session_id: SessionId,
    pub arrived: oneshot::Sender<ArrivedConnection>,
}

/// The sessions that wait for their caller. Clones share them.
#[derive(Clone, Default)]
pub struct WaitingRegistry {
    sessions: Arc<Mutex<WaitingSessions<WaitingSession>>>,
    /// Notifies of each registration.
    registered: watch::Sender<()>,
    /// Tells every waiting session why a connection reached none.
    failures: watch::Sender<String>,
}

impl WaitingRegistry {
    pub fn lock(&self) -> MutexGuard<'_, WaitingSessions<WaitingSession>> {
        common::lock(&self.sessions)
    }

    /// Returns the reasons why connections reach no session, from now on.
    pub fn failures(&self) -> watch::Receiver<String> {
        self.failures.subscribe()
    }

    /// Registers a session until a caller arrives or the result is dropped.
    pub fn register(&self, path: &str, session: WaitingSession) -> WaitingEntry {
        let number = self.lock().insert(path, session);
        self.registered.send_replace(());
        WaitingEntry {
            registry: self.clone(),
            number,
        }
    }
}

/// The registration of a waiting session. Dropping it removes it.
pub struct WaitingEntry {
    registry: WaitingRegistry,
    number: u64,
}

impl Drop for WaitingEntry {
    fn drop(&mut self) {
        self.registry.lock().remove(self.number);
    }
}

/// The rules for connections, shared with the HTTP server.
#[derive(Clone)]
pub struct ConnectionRules {
    pub origins: AllowedOrigins,
    /// Whether each connection needs a token of `/start`.
    pub needs_token: bool,
    pub tokens: Arc<Mutex<SocketTokens>>,
    /// The log lines caused by clients.
    pub log_limit: Arc<Mutex<LogLimit>>,
}

/// Takes the connections of callers.
pub struct Arrivals {
    sessions: Sessions,
    waiting: WaitingRegistry,
    rules: ConnectionRules,
    metrics: Arc<MoqMetrics>,
    /// Connections that have yet to name their session, which holds a permit of its own.
    unbound: PendingPermits,
}

impl Arrivals {
    pub fn new(
        sessions: Sessions,
        waiting: WaitingRegistry,
        rules: ConnectionRules,
        metrics: Arc<MoqMetrics>,
    ) -> Arc<Arrivals> {
        Arc::new(Arrivals {
            sessions,
            waiting,
            rules,
            metrics,
            unbound: PendingPermits::of_connections(
                MOQ_UNBOUND_MAX,
                MOQ_UNBOUND_PER_SOURCE,
                UNBOUND_ENDING_MAX,
                UNBOUND_YIELD_AFTER,
            ),
        })
    }

    /// Returns the number of connections without a session.
    #[cfg(test)]
    fn unbound(&self) -> usize {
        self.unbound.count()
    }

    fn log_client(&self, remote: SocketAddr) -> LogClient {
        LogClient::new(self.rules.log_limit.clone(), remote.ip().to_canonical(), false)
    }

    /// Checks the CONNECT request.
    fn check(&self, request: &ArrivalRequest) -> Result<(), ArrivalError> {
        let origin = request.origin.iter().map(String::as_bytes);
        if self.rules.origins.check(origin) == CorsDecision::Refused {
            return Err(ArrivalError::Origin);
        }
        let Some(token) = &request.token else {
            return match self.rules.needs_token {
                true => Err(ArrivalError::TokenMissing),
                false => Ok(()),
            };
        };
        match lock(&self.rules.tokens).verify(token, SocketKind::Moq, tasks::request_time()) {
            // Where tokens are not required, foreign ones are ignored.
            Err(TokenError::Unrecognized) if !self.rules.needs_token => Ok(()),
            Err(why) => Err(ArrivalError::Token(why)),
            Ok(_) => Ok(()),
        }
    }

    /// Returns the session that waits for this path. A token belongs to one session, and is
    /// redeemed with the connection that reaches it.
    fn claim(&self, path: &str, token: Option<&str>) -> Result<Option<WaitingSession>, ArrivalError> {
        let mut waiting = self.waiting.lock();
        let mut tokens = lock(&self.rules.tokens);
        let verified = token.map(|token| tokens.verify(token, SocketKind::Moq, tasks::request_time()));
        match verified {
            Some(Ok(token)) => {
                let session = waiting.take(path, |session| *session.session_id == *token.claims().id);
                if session.is_some() {
                    token.redeem();
                }
                Ok(session)
            }
            Some(Err(why)) if self.rules.needs_token => Err(ArrivalError::Token(why)),
            None if self.rules.needs_token => Err(ArrivalError::TokenMissing),
            _ => Ok(waiting.take(path, |_| true)),
        }
    }

    /// Attends a connection until a session takes it or it ends.
    async fn drive_until_claimed(
        self: Arc<Self>,
        permit: SessionPermit,
        connection: Connection,
        mut inbox: ConnectionInbox,
    ) {
        let mut accepted = AcceptedConnection::new(connection, u64::from_be_bytes(random()), tasks::now());
        let mut token = None;
        let mut registered = self.waiting.registered.subscribe();
        let mut shutdown = self.sessions.shutdown().clone();
        let mut is_stopping = false;
        loop {
            let now = tasks::now();
            let due = match accepted.poll_output(now) {
                AcceptedOutput::Timeout(due) => due,
                AcceptedOutput::Drained => return,
                AcceptedOutput::Send(transmit) => {
                    inbox.port().send(&transmit, accepted.datagram());
                    continue;
                }
                AcceptedOutput::Endpoint(event) => {
                    if let Some(event) = inbox.handle_endpoint_event(event) {
                        accepted.handle_connection_event(event, now);
                    }
                    continue;
                }
                AcceptedOutput::Requested(request) => {
                    match self.check(&request) {
                        Ok(()) => accepted.accept(now),
                        Err(why) => accepted.reject(why, now),
                    }
                    token = request.token;
                    continue;
                }
                AcceptedOutput::Announced(path) => {
                    match self.claim(&path, token.as_deref()) {
                        Ok(Some(session)) => {
                            let arrival = accepted.into_arrival();
                            self.metrics.record(MoqConnectionOutcome::Accepted);
                            if let Err(late) = session.arrived.send(ArrivedConnection { arrival, inbox }) {
                                close_late(late);
                            }
                            return;
                        }
                        Ok(None) => log::debug!("a caller announced a broadcast for which no session waits yet"),
                        Err(why) => accepted.end(why, now),
                    }
                    continue;
                }
                AcceptedOutput::Failed(why) => {
                    let _ = self.waiting.failures.send(why.to_string());
                    self.metrics.record(MoqConnectionOutcome::Failed(why.label()));
                    match why.is_routine() {
                        true => log::debug!("a connection of Media over QUIC became no session: {why}"),
                        false => log::warn!("a connection of Media over QUIC became no session: {why}"),
                    }
                    continue;
                }
            };
            // Unbiased: a flood of datagrams must not starve the deadline.
            tokio::select! {
                received = inbox.recv() => accepted.handle_connection_event(received.event, received.arrived),
                () = sleep_until(due.into()) => accepted.handle_timeout(tasks::now()),
                Ok(()) = registered.changed() => accepted.handle_session_registered(),
                () = permit.evicted() => accepted.end(ArrivalError::Evicted, tasks::now()),
                () = shutdown.wait(), if !is_stopping => {
                    is_stopping = true;
                    accepted.end(ArrivalError::Stopping, tasks::now());
                }
            }
        }
    }
}

/// Closes a connection whose session has just ended.
fn close_late(late: ArrivedConnection) {
    let ArrivedConnection { mut arrival, inbox } = late;
    let now = tasks::now();
    arrival.link.close(0, "the session is over", now);
    let mut datagram = Vec::new();
    while let Some(transmit) = arrival.link.poll_transmit(now, &mut datagram) {
        inbox.port().send(&transmit, &datagram);
    }
}

impl AcceptConnections for Arrivals {
    type Permit = SessionPermit;

    fn admit(&self, remote: SocketAddr, is_validated: bool) -> ConnectionVerdict<SessionPermit> {
        if self.sessions.shutdown().is_set() {
            return ConnectionVerdict::Refuse;
        }
        if !is_validated && self.unbound.count() >= MOQ_RETRY_FROM {
            self.metrics.record(MoqConnectionOutcome::Retried);
            return ConnectionVerdict::Retry;
        }
        let requester = Requester {
            source: remote.ip().into(),
            is_authorised: false,
            local_address: None,
        };
        match self.unbound.admit(requester) {
            Ok(permit) => ConnectionVerdict::Accept(permit),
            Err(why) => {
                self.metrics.record(MoqConnectionOutcome::Refused);
                let whose = match why {
                    AdmissionError::SourceShare => "its source has",
                    AdmissionError::Full => "the runner has",
                };
                self.log_client(remote).attribute(|| {
                    log::warn!(
                        "a connection of Media over QUIC was refused: {whose} too many that announced nothing yet"
                    );
                });
                ConnectionVerdict::Refuse
            }
        }
    }

    fn accept(self: &Arc<Self>, permit: SessionPermit, connection: Connection, inbox: ConnectionInbox) {
        let client = self.log_client(connection.remote_address());
        tasks::spawn(logging::for_client(
            client,
            self.clone().drive_until_claimed(permit, connection, inbox),
        ));
    }
}

/// Refuses every connection: the port of dialed connections.
pub struct NoArrivals;

impl AcceptConnections for NoArrivals {
    type Permit = ();

    fn admit(&self, _: SocketAddr, _: bool) -> ConnectionVerdict<()> {
        ConnectionVerdict::Refuse
    }

    fn accept(self: &Arc<Self>, (): (), _: Connection, mut inbox: ConnectionInbox) {
        inbox.handle_endpoint_event(EndpointEvent::drained());
    }
}

#[cfg(test)]
mod tests;
