//! One QUIC connection as the streams of one MoQ session.
//!
//! As a server and as a client of WebTransport over HTTP/3 (RFC 9114, draft-ietf-webtrans-http3).
//!
//! In: events of the [`quinn_proto::Endpoint`] for this connection, the time, and calls for its
//! session and streams. Out: datagrams, events for the endpoint, and [`LinkEvent`]s. After each
//! input the owner drains `poll_event`, `poll_transmit` and `poll_endpoint_event`, and then asks
//! for `poll_timeout`.

mod config;
pub(super) mod event;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{Connection, ConnectionError, ConnectionEvent, EndpointEvent, Event, StreamEvent, Transmit};
pub use quinn_proto::{Dir, Side, StreamId};

use self::config::{BACKLOG_WINDOW, SEND_WINDOW};
pub use self::config::{LinkConfigError, client_config, endpoint_config, server_config, transport_config};
pub use self::event::{LinkClosed, LinkEvent, LinkRequest, MOQ_PROTOCOL};
use super::webtransport::raw::{self, RawRead};
use super::webtransport::{
    H3_NO_ERROR, WebTransport, WebTransportRole, application_code, code_from_http3, code_to_http3,
};

/// The streams of a MoQ session, for the state machine of `peer`.
///
/// Stream ids are those of QUIC. A stream of WebTransport begins after its type and session id.
pub trait MoqStreams {
    /// Opens a stream. Returns `None` while the remote end permits no more; then
    /// [`LinkEvent::Available`] follows.
    fn open(&mut self, dir: Dir) -> Option<StreamId>;

    /// Writes what fits, and returns the number of bytes taken. After fewer than all,
    /// [`LinkEvent::Writable`] follows. A stream that is gone takes all and drops them.
    fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize;

    /// Writes bytes that can wait, like [`Self::write`]: it takes them only while little of all
    /// streams is unacknowledged, so that the bytes of other streams have room.
    fn write_backlog(&mut self, id: StreamId, bytes: &[u8]) -> usize;

    /// Ends the sending half of a stream.
    fn finish(&mut self, id: StreamId);

    /// Aborts the sending half of a stream.
    fn reset(&mut self, id: StreamId, code: u32);

    /// Asks the remote end to abort its sending half.
    fn stop(&mut self, id: StreamId, code: u32);

    /// Sets the order in which streams are sent: higher first. 0 is the default.
    fn set_priority(&mut self, id: StreamId, priority: i32);

    /// Reads the next bytes of a stream.
    fn read(&mut self, id: StreamId) -> StreamRead;
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamRead {
    Bytes(Bytes),
    /// Nothing yet; [`LinkEvent::Readable`] follows.
    Blocked,
    Finished,
    /// The remote end aborted the stream, or it is gone.
    Reset(u32),
}

/// What a client asks the server for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTarget {
    /// `host:port` of the URL.
    pub authority: String,
    /// Path and query of the URL, from its slash on.
    pub path: String,
}

/// How long a closed session keeps its connection, so that the close and what was sent before it
/// arrive. An acknowledgement ends the wait earlier.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// Datagrams per transmit. The packets of a call leave one at a time, so batches save nothing.
const DATAGRAMS_PER_TRANSMIT: usize = 1;

/// One QUIC connection as the streams of one MoQ session.
pub struct MoqLink {
    connection: Connection,
    /// `None` at the ends of tests that write the bytes of HTTP/3 themselves.
    webtransport: Option<WebTransport>,
    state: LinkState,
    /// Whether the request of the client offers [`MOQ_PROTOCOL`].
    offers_moq: bool,
    events: VecDeque<LinkEvent>,
    /// When the connection of a closed session is closed.
    close_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Connecting,
    Connected,
    /// [`LinkEvent::Closed`] was given.
    Closed,
}

impl MoqLink {
    /// The server of a WebTransport session on a connection that its endpoint accepted.
    pub fn server(connection: Connection, now: Instant) -> Self {
        Self::new(connection, Some(WebTransportRole::Server), now)
    }

    /// The client of a session on a connection that its endpoint began.
    pub fn client(connection: Connection, target: LinkTarget, now: Instant) -> Self {
        let LinkTarget { authority, path } = target;
        Self::new(connection, Some(WebTransportRole::Client { authority, path }), now)
    }

    /// The bare streams of a connection.
    #[cfg(test)]
    pub fn bare(connection: Connection, now: Instant) -> Self {
        Self::new(connection, None, now)
    }

    fn new(connection: Connection, role: Option<WebTransportRole>, now: Instant) -> Self {
        let mut link = Self {
            connection,
            webtransport: role.map(WebTransport::new),
            state: LinkState::Connecting,
            offers_moq: false,
            events: VecDeque::new(),
            close_at: None,
        };
        link.advance(now);
        link
    }

    /// Accepts the request: status 200 and the sub-protocol. Rejects one that does not offer it
    /// with status 400.
    pub fn accept(&mut self, now: Instant) {
        if self.state != LinkState::Connecting {
            return;
        }
        if !self.offers_moq {
            return self.reject(400, now);
        }
        if let Some(webtransport) = &mut self.webtransport {
            webtransport.accept(&mut self.connection, &mut self.events);
            self.note_events(0);
        }
        self.advance(now);
    }

    /// Answers the request with this HTTP status, and closes the connection when the answer has
    /// arrived. [`LinkClosed::Locally`] follows at once.
    pub fn reject(&mut self, status: u16, now: Instant) {
        if self.state == LinkState::Closed {
            return;
        }
        if let Some(webtransport) = &mut self.webtransport {
            webtransport.reject(&mut self.connection, status);
        }
        self.closed(LinkClosed::Locally);
        self.advance(now);
    }

    /// Closes the session with an application's code and a reason of up to 1024 bytes, and then
    /// the connection. [`LinkClosed::Locally`] follows at once; what was written before is still
    /// sent for up to a second.
    pub fn close(&mut self, code: u32, reason: &str, now: Instant) {
        if self.state == LinkState::Closed {
            return;
        }
        let is_connected = self.state == LinkState::Connected;
        self.closed(LinkClosed::Locally);
        match &mut self.webtransport {
            Some(webtransport) if is_connected => {
                webtransport.close(&mut self.connection, code, reason);
            }
            Some(_) => self.close_connection(code_to_http3(code), reason, now),
            None => self.close_connection(u64::from(code), reason, now),
        }
        self.advance(now);
    }

    /// Returns the round trip, as QUIC estimates it.
    pub fn round_trip(&self) -> Duration {
        self.connection.rtt()
    }

    /// Handles an event of the endpoint: a datagram, or new connection ids.
    pub fn handle_connection_event(&mut self, event: ConnectionEvent, now: Instant) {
        self.connection.handle_event(event);
        self.advance(now);
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
        self.advance(now);
    }

    /// When `handle_timeout` is due. It changes with every input and transmit.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        let timeout = self.connection.poll_timeout();
        [timeout, self.close_at].into_iter().flatten().min()
    }

    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// The next datagram to send. It replaces what `buffer` holds; only the first
    /// [`Transmit::size`] bytes are of it, and `segment_size` is always `None`.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        buffer.clear();
        self.connection.poll_transmit(now, DATAGRAMS_PER_TRANSMIT, buffer)
    }

    /// The next event for the endpoint.
    pub fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.connection.poll_endpoint_events()
    }

    pub fn remote_address(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// Whether the link can be dropped, after its events for the endpoint were delivered.
    pub fn is_drained(&self) -> bool {
        self.connection.is_drained()
    }

    /// Handles what the connection reports, until it is quiet.
    fn advance(&mut self, now: Instant) {
        if let Some(webtransport) = &mut self.webtransport {
            webtransport.advance(&mut self.connection);
        }
        while let Some(event) = self.connection.poll() {
            self.handle_event(event, now);
        }
        let Some(webtransport) = &self.webtransport else {
            return;
        };
        if self.state == LinkState::Closed && !self.connection.is_closed() {
            let close_at = *self.close_at.get_or_insert(now + CLOSE_WAIT);
            if webtransport.is_session_acknowledged() || now >= close_at {
                self.close_connection(H3_NO_ERROR, "", now);
            }
        }
    }

    fn handle_event(&mut self, event: Event, now: Instant) {
        match event {
            Event::HandshakeDataReady | Event::DatagramsUnblocked => {}
            Event::Connected => match &mut self.webtransport {
                Some(webtransport) => webtransport.advance(&mut self.connection),
                None if self.state == LinkState::Connecting => {
                    self.state = LinkState::Connected;
                    self.events.push_back(LinkEvent::Connected);
                }
                None => {}
            },
            // MoQ has no use for datagrams.
            Event::DatagramReceived => while self.connection.datagrams().recv().is_some() {},
            Event::ConnectionLost { reason } => {
                self.close_at = None;
                self.closed(closed_by(reason));
            }
            Event::Stream(event) => self.handle_stream_event(event, now),
        }
    }

    fn handle_stream_event(&mut self, event: StreamEvent, now: Instant) {
        let Some(webtransport) = &mut self.webtransport else {
            return self.handle_raw_stream_event(event);
        };
        let before = self.events.len();
        match webtransport.handle_event(event, &mut self.connection, &mut self.events) {
            Ok(()) => self.note_events(before),
            Err(violation) => {
                self.close_connection(violation.code, violation.reason, now);
                self.closed(LinkClosed::Failed(violation.reason.into()));
            }
        }
    }

    /// Follows the session by the events that the HTTP/3 layer added.
    fn note_events(&mut self, first: usize) {
        for event in self.events.iter().skip(first) {
            match event {
                LinkEvent::Requested(request) => self.offers_moq = request.offers_moq(),
                LinkEvent::Connected => self.state = LinkState::Connected,
                LinkEvent::Closed(_) => self.state = LinkState::Closed,
                _ => {}
            }
        }
    }

    fn handle_raw_stream_event(&mut self, event: StreamEvent) {
        if self.state == LinkState::Closed {
            return;
        }
        match event {
            StreamEvent::Opened { dir } => {
                while let Some(id) = self.connection.streams().accept(dir) {
                    self.events.push_back(LinkEvent::Opened(id));
                }
            }
            StreamEvent::Readable { id } => self.events.push_back(LinkEvent::Readable(id)),
            StreamEvent::Writable { id } => self.events.push_back(LinkEvent::Writable(id)),
            StreamEvent::Finished { id } => self.events.push_back(LinkEvent::Finished(id)),
            StreamEvent::Stopped { id, error_code } => {
                raw::reset(&mut self.connection, id, error_code.into_inner());
                let code = application_code(error_code.into_inner());
                self.events.push_back(LinkEvent::Stopped { id, code });
            }
            StreamEvent::Available { dir } => {
                self.events.push_back(LinkEvent::Available(dir));
            }
        }
    }

    fn closed(&mut self, closed: LinkClosed) {
        if self.state != LinkState::Closed {
            self.state = LinkState::Closed;
            self.events.push_back(LinkEvent::Closed(closed));
        }
    }

    fn close_connection(&mut self, code: u64, reason: &str, now: Instant) {
        self.close_at = None;
        let reason = Bytes::copy_from_slice(reason.as_bytes());
        self.connection.close(now, raw::code_of(code), reason);
    }

    /// The code of a reset or stop on the wire.
    fn wire_code(&self, code: u32) -> u64 {
        match self.webtransport {
            Some(_) => code_to_http3(code),
            None => u64::from(code),
        }
    }
}

/// Streams do nothing before [`LinkEvent::Connected`] and after [`LinkEvent::Closed`].
impl MoqStreams for MoqLink {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        if self.state != LinkState::Connected {
            return None;
        }
        match &mut self.webtransport {
            Some(webtransport) => webtransport.open(&mut self.connection, dir),
            None => self.connection.streams().open(dir),
        }
    }

    fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        if self.state != LinkState::Connected {
            return bytes.len();
        }
        match &mut self.webtransport {
            Some(webtransport) => webtransport.write(&mut self.connection, id, bytes),
            None => raw::write(&mut self.connection, id, bytes),
        }
    }

    fn write_backlog(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        self.connection.set_send_window(BACKLOG_WINDOW);
        let taken = self.write(id, bytes);
        self.connection.set_send_window(SEND_WINDOW);
        taken
    }

    fn finish(&mut self, id: StreamId) {
        if self.state != LinkState::Connected {
            return;
        }
        match &mut self.webtransport {
            Some(webtransport) => webtransport.finish(&mut self.connection, id),
            None => raw::finish(&mut self.connection, id),
        }
    }

    fn reset(&mut self, id: StreamId, code: u32) {
        if self.state != LinkState::Connected {
            return;
        }
        let code = self.wire_code(code);
        match &mut self.webtransport {
            Some(webtransport) => webtransport.reset(&mut self.connection, id, code),
            None => raw::reset(&mut self.connection, id, code),
        }
    }

    fn stop(&mut self, id: StreamId, code: u32) {
        if self.state == LinkState::Connected {
            let code = self.wire_code(code);
            raw::stop(&mut self.connection, id, code);
        }
    }

    fn set_priority(&mut self, id: StreamId, priority: i32) {
        if self.state == LinkState::Connected {
            raw::set_priority(&mut self.connection, id, priority);
        }
    }

    fn read(&mut self, id: StreamId) -> StreamRead {
        if self.state != LinkState::Connected {
            return StreamRead::Reset(0);
        }
        if let Some(webtransport) = &self.webtransport
            && !webtransport.is_data(id)
        {
            return StreamRead::Blocked;
        }
        match raw::read(&mut self.connection, id, usize::MAX) {
            RawRead::Bytes(bytes) => StreamRead::Bytes(bytes),
            RawRead::Blocked => StreamRead::Blocked,
            RawRead::Finished => StreamRead::Finished,
            RawRead::Reset(code) => StreamRead::Reset(application_code(code)),
        }
    }
}

fn closed_by(error: ConnectionError) -> LinkClosed {
    match error {
        ConnectionError::TimedOut => LinkClosed::TimedOut,
        ConnectionError::LocallyClosed => LinkClosed::Locally,
        ConnectionError::ApplicationClosed(close) => {
            let code = match close.error_code.into_inner() {
                H3_NO_ERROR => 0,
                code => code_from_http3(code).map_or(code, u64::from),
            };
            LinkClosed::ByPeer {
                code,
                reason: String::from_utf8_lossy(&close.reason).into_owned(),
            }
        }
        error => LinkClosed::Failed(error.to_string()),
    }
}

#[cfg(test)]
pub(crate) mod simulation;
#[cfg(test)]
mod tests;
