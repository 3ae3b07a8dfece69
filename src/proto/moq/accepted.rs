//! A connection in serve mode from its handshake to the announcement that names its session.
//!
//! In: events of the QUIC endpoint, the decision about the CONNECT request, deadlines. Out: what is
//! sent, the request, the announced paths, and the [`MoqArrival`] for the session that waits for
//! such a path; or why the connection never became one ([`ArrivalError`]). The peer is asked for
//! its announcements and told none, so it learns nothing of other sessions. A connection has
//! [`ARRIVAL_WITHIN`] to announce something, and then lives for [`UNCLAIMED_WITHIN`]: its session
//! may be registered later. Source; `docs/spec/moq.md`.

use std::fmt;
use std::time::{Duration, Instant};

use quinn_proto::{Connection, ConnectionEvent, EndpointEvent, Transmit};

use super::limits::MOQ_READY;
use super::link::{LinkClosed, LinkEvent, LinkRequest, MoqLink};
use super::peer::{MoqEvent, MoqPeer};
use super::relay_url::PATH;
use super::session::MoqArrival;
use crate::http::route::Query;
use crate::http::token::TokenError;

/// Time from the first datagram to the announcement: a browser needs three round trips, and asks
/// for the microphone later.
pub const ARRIVAL_WITHIN: Duration = Duration::from_secs(10);
/// Time from the first announcement until a connection without a session is closed: a program that
/// knows its namespace may connect before its `/start` is answered.
pub const UNCLAIMED_WITHIN: Duration = MOQ_READY;
/// Announcements before the connection is bound. A caller has one broadcast.
const ANNOUNCEMENTS_MAX: usize = 8;
/// The code of the session's close; Pipecat's client shows the reason.
const CLOSE_CODE: u32 = 0;

/// Why a connection never reached a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrivalError {
    /// The client does not trust the certificate.
    Certificate,
    /// The QUIC or TLS handshake failed.
    Handshake(String),
    /// No CONNECT request came in time.
    Silent,
    /// The CONNECT request has another path than `/moq`.
    Path,
    /// The page's origin is not allowed.
    Origin,
    /// A token is required, and the URL has none.
    TokenMissing,
    Token(TokenError),
    /// The client does not speak `moq-lite-04`.
    Version,
    /// It announced nothing.
    Unannounced,
    /// No session waits for what it announced.
    Unclaimed(String),
    /// It violated the protocol.
    Violation(String),
    /// It left, or was lost.
    Left,
    /// The runner is full of unbound connections.
    Evicted,
    /// The runner stops.
    Stopping,
}

impl ArrivalError {
    /// Every label of the metrics, each once.
    pub const LABELS: [&'static str; 10] = [
        "certificate",
        "handshake",
        "path",
        "origin",
        "token",
        "protocol",
        "unannounced",
        "unclaimed",
        "evicted",
        "left",
    ];

    /// Returns the label for the metrics.
    pub fn label(&self) -> &'static str {
        match self {
            ArrivalError::Certificate => "certificate",
            ArrivalError::Handshake(_) | ArrivalError::Silent => "handshake",
            ArrivalError::Path => "path",
            ArrivalError::Origin => "origin",
            ArrivalError::TokenMissing | ArrivalError::Token(_) => "token",
            ArrivalError::Version | ArrivalError::Violation(_) => "protocol",
            ArrivalError::Unannounced => "unannounced",
            ArrivalError::Unclaimed(_) => "unclaimed",
            ArrivalError::Evicted => "evicted",
            ArrivalError::Left | ArrivalError::Stopping => "left",
        }
    }

    /// Returns the HTTP status of a request that is rejected for this reason.
    fn status(&self) -> u16 {
        match self {
            ArrivalError::Path => 404,
            ArrivalError::Origin => 403,
            ArrivalError::TokenMissing | ArrivalError::Token(_) => 401,
            ArrivalError::Stopping => 503,
            _ => 400,
        }
    }

    /// Tells whether the cause is routine rather than a fault of someone's configuration.
    pub fn is_routine(&self) -> bool {
        matches!(self, ArrivalError::Left | ArrivalError::Stopping)
    }
}

impl fmt::Display for ArrivalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArrivalError::Certificate => f.write_str(
                "the client does not trust the certificate; a browser needs the `certHash` that `/start` returned last",
            ),
            ArrivalError::Handshake(why) => write!(f, "the QUIC handshake failed: {why}"),
            ArrivalError::Silent => f.write_str("the client sent no WebTransport request"),
            ArrivalError::Path => write!(f, "the path of the URL is not {PATH}"),
            ArrivalError::Origin => f.write_str("this origin is not allowed; see --allowed-origins"),
            ArrivalError::TokenMissing => {
                f.write_str("the URL has no token; use the `relayUrl` that `/start` returned")
            }
            ArrivalError::Token(why) => why.fmt(f),
            ArrivalError::Version => f.write_str("the client does not offer moq-lite-04"),
            ArrivalError::Unannounced => f.write_str("the client announced no broadcast"),
            ArrivalError::Unclaimed(path) => {
                write!(f, "no session waits for the announced broadcast `{}`", Printable(path))
            }
            ArrivalError::Violation(why) => write!(f, "the client violated the protocol: {why}"),
            ArrivalError::Left => f.write_str("the client left before it announced its broadcast"),
            ArrivalError::Evicted => f.write_str("too many connections have announced no broadcast yet"),
            ArrivalError::Stopping => f.write_str("the runner is stopping"),
        }
    }
}

impl std::error::Error for ArrivalError {}

/// A peer's text for the log: visible, and not longer than a namespace.
struct Printable<'t>(&'t str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let visible = self.0.chars().take(160).map(|c| match c.is_ascii_graphic() {
            true => c,
            false => '?',
        });
        visible.collect::<String>().fmt(f)
    }
}

/// The CONNECT request, for the driver's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivalRequest {
    pub origin: Option<String>,
    /// The token in the path or the query.
    pub token: Option<String>,
}

impl ArrivalRequest {
    /// Reads a request. The path is `/moq` or `/moq/TOKEN`, with an optional query `token=TOKEN`.
    ///
    /// # Errors
    /// [`ArrivalError::Path`] for another path, [`ArrivalError::Version`] for a client of other
    /// versions alone.
    fn read(request: &LinkRequest) -> Result<ArrivalRequest, ArrivalError> {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let in_path = match path.strip_prefix(PATH).ok_or(ArrivalError::Path)? {
            "" | "/" => None,
            token => Some(token.strip_prefix('/').ok_or(ArrivalError::Path)?.to_owned()),
        };
        if !request.offers_moq() {
            return Err(ArrivalError::Version);
        }
        Ok(ArrivalRequest {
            origin: request.origin.clone(),
            token: in_path.or_else(|| Query::new(query).value("token")),
        })
    }
}

/// An output of a connection.
#[derive(Debug)]
pub enum AcceptedOutput {
    /// No output is left. Call [`AcceptedConnection::handle_timeout`] at this deadline.
    Timeout(Instant),
    /// A datagram, whose bytes are those of [`AcceptedConnection::datagram`].
    Send(Transmit),
    /// For the endpoint.
    Endpoint(EndpointEvent),
    /// Answer with [`AcceptedConnection::accept`] or [`AcceptedConnection::reject`].
    Requested(ArrivalRequest),
    /// The peer has announced this path. If a session waits for it, take
    /// [`AcceptedConnection::into_arrival`]. Otherwise, the path is returned again after
    /// [`AcceptedConnection::handle_session_registered`].
    Announced(String),
    /// It will reach no session. It goes on until the end has been sent.
    Failed(ArrivalError),
    /// The connection is over.
    Drained,
}

/// A connection without a session.
pub struct AcceptedConnection {
    link: MoqLink,
    peer: MoqPeer,
    phase: ArrivalPhase,
    deadline: Instant,
    announcements: usize,
    /// What the peer announces, at most [`ANNOUNCEMENTS_MAX`].
    paths: Vec<String>,
    /// How many of `paths` were returned since the last registration of a session.
    offered: usize,
    failure: Option<ArrivalError>,
    datagram: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrivalPhase {
    Handshake,
    /// The driver decides about the request.
    Requested,
    /// Waits for the announcement.
    Connected,
    Failed,
}

impl AcceptedConnection {
    /// `origin` is the random hop id of this end.
    pub fn new(connection: Connection, origin: u64, now: Instant) -> Self {
        AcceptedConnection {
            link: MoqLink::server(connection, now),
            peer: MoqPeer::new(origin),
            phase: ArrivalPhase::Handshake,
            deadline: now + ARRIVAL_WITHIN,
            announcements: 0,
            paths: Vec::new(),
            offered: 0,
            failure: None,
            datagram: Vec::new(),
        }
    }

    pub fn handle_connection_event(&mut self, event: ConnectionEvent, now: Instant) {
        self.link.handle_connection_event(event, now);
    }

    /// Handles the deadline of [`AcceptedOutput::Timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.link.handle_timeout(now);
        if now >= self.deadline && self.phase != ArrivalPhase::Failed {
            let error = match (&self.phase, self.paths.pop()) {
                (_, Some(path)) => ArrivalError::Unclaimed(path),
                (ArrivalPhase::Connected, None) => ArrivalError::Unannounced,
                (_, None) => ArrivalError::Silent,
            };
            self.end(error, now);
        }
    }

    /// Handles a new session, which may wait for a path that was announced before.
    pub fn handle_session_registered(&mut self) {
        self.offered = 0;
    }

    /// Accepts the CONNECT request.
    pub fn accept(&mut self, now: Instant) {
        if self.phase == ArrivalPhase::Requested {
            self.phase = ArrivalPhase::Connected;
            self.link.accept(now);
        }
    }

    /// Rejects the CONNECT request.
    pub fn reject(&mut self, why: ArrivalError, now: Instant) {
        self.link.reject(why.status(), now);
        self.fail(why);
    }

    /// Closes the connection for a reason that the peer is told.
    pub fn end(&mut self, why: ArrivalError, now: Instant) {
        self.link.close(CLOSE_CODE, &why.to_string(), now);
        self.fail(why);
    }

    fn fail(&mut self, why: ArrivalError) {
        if self.phase != ArrivalPhase::Failed {
            self.phase = ArrivalPhase::Failed;
            self.failure = Some(why);
        }
    }

    /// Returns the bytes of the last [`AcceptedOutput::Send`].
    pub fn datagram(&self) -> &[u8] {
        &self.datagram
    }

    /// Hands the connection over to the session that waits for the announced path.
    pub fn into_arrival(self) -> MoqArrival {
        MoqArrival {
            link: self.link,
            peer: self.peer,
        }
    }

    /// Returns the next output.
    pub fn poll_output(&mut self, now: Instant) -> AcceptedOutput {
        loop {
            if let Some(failure) = self.failure.take() {
                return AcceptedOutput::Failed(failure);
            }
            if let Some(event) = self.link.poll_endpoint_event() {
                return AcceptedOutput::Endpoint(event);
            }
            if let Some(event) = self.link.poll_event() {
                if let Some(output) = self.handle_link_event(event, now) {
                    return output;
                }
                continue;
            }
            if self.phase == ArrivalPhase::Connected {
                if let Some(path) = self.paths.get(self.offered) {
                    self.offered += 1;
                    return AcceptedOutput::Announced(path.clone());
                }
                if let Some(event) = self.peer.poll_event(&mut self.link) {
                    self.handle_peer_event(event, now);
                    continue;
                }
            }
            if let Some(transmit) = self.link.poll_transmit(now, &mut self.datagram) {
                return AcceptedOutput::Send(transmit);
            }
            if self.link.is_drained() {
                return AcceptedOutput::Drained;
            }
            let due = self.link.poll_timeout();
            let deadline = (self.phase != ArrivalPhase::Failed).then_some(self.deadline);
            return match due.into_iter().chain(deadline).min() {
                Some(at) => AcceptedOutput::Timeout(at),
                // A failed link that waits for nothing is over.
                None => AcceptedOutput::Drained,
            };
        }
    }

    fn handle_link_event(&mut self, event: LinkEvent, now: Instant) -> Option<AcceptedOutput> {
        match event {
            LinkEvent::Requested(request) if self.phase == ArrivalPhase::Handshake => {
                self.phase = ArrivalPhase::Requested;
                match ArrivalRequest::read(&request) {
                    Ok(request) => return Some(AcceptedOutput::Requested(request)),
                    Err(why) => self.reject(why, now),
                }
            }
            LinkEvent::Closed(closed) => self.fail(ArrivalError::of(closed)),
            event => {
                let is_connected = event == LinkEvent::Connected;
                self.peer.handle_event(event, &mut self.link);
                if is_connected {
                    self.peer.discover("", &mut self.link);
                }
            }
        }
        None
    }

    fn handle_peer_event(&mut self, event: MoqEvent, now: Instant) {
        match event {
            MoqEvent::Announced { path } => {
                if self.announcements == 0 {
                    self.deadline = now + UNCLAIMED_WITHIN;
                }
                self.announcements += 1;
                if self.announcements > ANNOUNCEMENTS_MAX {
                    return self.end(ArrivalError::Unclaimed(path), now);
                }
                self.paths.push(path);
            }
            MoqEvent::Retracted { path } => {
                if let Some(index) = self.paths.iter().position(|announced| *announced == path) {
                    self.paths.remove(index);
                    self.offered -= usize::from(index < self.offered);
                }
            }
            MoqEvent::Violation(why) => self.end(ArrivalError::Violation(why), now),
            _ => {}
        }
    }
}

impl ArrivalError {
    fn of(closed: LinkClosed) -> ArrivalError {
        match closed {
            LinkClosed::Failed(why) if is_certificate_alert(&why) => ArrivalError::Certificate,
            LinkClosed::Failed(why) => ArrivalError::Handshake(why),
            LinkClosed::TimedOut => ArrivalError::Silent,
            LinkClosed::ByPeer { .. } | LinkClosed::Locally | LinkClosed::Rejected(_) => ArrivalError::Left,
        }
    }
}

/// Tells whether the client ended the handshake with a TLS alert about the certificate (RFC 8446
/// section 6): 42 to 46, 48, or 51, with which some clients answer the certificate of another
/// authority of the same name.
fn is_certificate_alert(why: &str) -> bool {
    let alert = why
        .rsplit_once("cryptographic handshake failed: error ")
        .map(|(_, code)| code);
    let alert = alert.and_then(|code| code.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    matches!(alert, Some(42..=46 | 48 | 51))
}

#[cfg(test)]
mod tests;
