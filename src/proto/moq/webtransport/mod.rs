//! WebTransport over HTTP/3 (draft-ietf-webtrans-http3, RFC 9114, RFC 9220) on one QUIC connection:
//! a server and a client of exactly one session, and of nothing else that HTTP/3 has.
//!
//! In: stream events of quinn, and the calls of `link`. Out: [`LinkEvent`]s, and bytes on the
//! streams of the connection. A stream waits, unread, until its session exists; QUIC's limits of
//! streams and windows bound what waits.

mod capsule;
mod code;
mod connect;
mod frame;
mod huffman;
mod message;
#[cfg(feature = "testing")]
pub mod parsers;
mod qpack;
pub(super) mod raw;
mod settings;

use std::collections::{BTreeMap, VecDeque};

use quinn_proto::{Connection, Dir, StreamEvent, StreamId};

use self::capsule::put_close;
use self::code::{
    H3_CLOSED_CRITICAL_STREAM, H3_ID_ERROR, H3_REQUEST_INCOMPLETE, H3_REQUEST_REJECTED, H3_STREAM_CREATION_ERROR,
    WT_BUFFERED_STREAM_REJECTED,
};
pub use self::code::{H3_NO_ERROR, code_from_http3, code_to_http3};
use self::connect::{request_section, response_section};
use self::frame::{HEADERS, Http3FrameReader, VarintReader, WEBTRANSPORT_STREAM, put_frame, put_varint};
use self::message::{Http3Message, Http3MessagePart};
use self::raw::RawRead;
use self::settings::{Http3Settings, put_settings};
use super::link::event::{LinkClosed, LinkEvent};

/// Types of unidirectional streams (RFC 9114, section 6.2; RFC 9204, section 4.2).
const CONTROL_STREAM: u64 = 0x00;
const PUSH_STREAM: u64 = 0x01;
const QPACK_ENCODER_STREAM: u64 = 0x02;
const QPACK_DECODER_STREAM: u64 = 0x03;
const WEBTRANSPORT_UNI_STREAM: u64 = 0x54;

/// Requests of a client that may be incomplete at once; each holds up to
/// [`qpack::FIELD_SECTION_MAX`] bytes. Clients send one.
const OPEN_REQUESTS_MAX: usize = 4;

/// The end of a session, in both roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebTransportRole {
    Server,
    Client { authority: String, path: String },
}

/// An error that closes the connection (RFC 9114, section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http3Violation {
    pub code: u64,
    pub reason: &'static str,
}

const fn violation(code: u64, reason: &'static str) -> Http3Violation {
    Http3Violation { code, reason }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    /// Before the request of CONNECT, or before its response at a client.
    Connecting,
    /// A server has the request and has not answered.
    Requested,
    Established,
    /// Closed by either end, or rejected.
    Over,
}

/// A stream of the remote end that is not, or not yet, one of the session's data.
#[derive(Debug)]
enum Incoming {
    /// Before the end of its type and its session id.
    Prefix { kind: Option<u64>, reader: VarintReader },
    /// A stream of a session that does not exist yet.
    Waiting { session: u64 },
    /// The encoder or decoder stream of QPACK. Nothing on it has a meaning without a dynamic table.
    Qpack,
    /// The control stream, a request, or a response.
    Message(Http3Message),
}

/// Bytes of this layer that a stream has not taken yet.
#[derive(Debug, Default)]
struct Unsent {
    bytes: Vec<u8>,
    has_end: bool,
}

/// The HTTP/3 layer of a link.
#[derive(Debug)]
pub struct WebTransport {
    role: WebTransportRole,
    state: SessionState,
    control: Option<StreamId>,
    /// The stream of CONNECT, whose id is the session's.
    session: Option<StreamId>,
    /// Whether the remote end has all of this end's side of the stream of CONNECT.
    is_session_acknowledged: bool,
    settings: Option<Http3Settings>,
    /// Bits by type of the critical streams that the remote end opened.
    critical: u8,
    answered_requests: u32,
    incoming: BTreeMap<StreamId, Incoming>,
    /// Streams opened by this end on which nothing was written.
    fresh: Vec<StreamId>,
    /// The prefix that is being written; kept for its capacity.
    prefix: Vec<u8>,
    unsent: BTreeMap<StreamId, Unsent>,
}

impl WebTransport {
    pub fn new(role: WebTransportRole) -> Self {
        Self {
            role,
            state: SessionState::Connecting,
            control: None,
            session: None,
            is_session_acknowledged: false,
            settings: None,
            critical: 0,
            answered_requests: 0,
            incoming: BTreeMap::new(),
            fresh: Vec::new(),
            prefix: Vec::new(),
            unsent: BTreeMap::new(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.state == SessionState::Over
    }

    /// Whether the connection can be closed without losing the last words of this end.
    pub fn is_session_acknowledged(&self) -> bool {
        self.is_session_acknowledged
    }

    /// Sends SETTINGS as soon as streams can be opened, and the request of a client when the
    /// server's SETTINGS have arrived.
    pub fn advance(&mut self, connection: &mut Connection) {
        if self.control.is_none() {
            self.control = connection.streams().open(Dir::Uni);
            if let Some(control) = self.control {
                let mut bytes = Vec::new();
                put_varint(CONTROL_STREAM, &mut bytes);
                put_settings(&mut bytes);
                self.send(connection, control, &bytes, false);
            }
        }
        let WebTransportRole::Client { authority, path } = &self.role else {
            return;
        };
        if self.session.is_none() && self.settings.is_some() && !self.is_over() {
            let section = request_section(authority, path);
            self.session = connection.streams().open(Dir::Bi);
            if let Some(session) = self.session {
                self.send_headers(connection, session, &section, false);
                let message = Http3Message::new(Http3MessagePart::Response, Http3FrameReader::default());
                self.incoming.insert(session, Incoming::Message(message));
            }
        }
    }

    /// Accepts the request.
    pub fn accept(&mut self, connection: &mut Connection, events: &mut VecDeque<LinkEvent>) {
        let Some(session) = self.session.filter(|_| self.state == SessionState::Requested) else {
            return;
        };
        self.send_headers(connection, session, &response_section(200), false);
        self.establish(connection, events);
    }

    /// Rejects the request.
    pub fn reject(&mut self, connection: &mut Connection, status: u16) {
        if let Some(session) = self.session.filter(|_| self.state == SessionState::Requested) {
            self.send_headers(connection, session, &response_section(status), true);
            raw::stop(connection, session, H3_NO_ERROR);
        }
        self.state = SessionState::Over;
    }

    /// Closes the session: the capsule leaves after what the streams still have to send.
    pub fn close(&mut self, connection: &mut Connection, code: u32, reason: &str) {
        if let Some(session) = self.session.filter(|_| self.state == SessionState::Established) {
            let (mut capsule, mut bytes) = (Vec::new(), Vec::new());
            put_close(code, reason, &mut capsule);
            put_frame(frame::DATA, &capsule, &mut bytes);
            raw::set_priority(connection, session, i32::MIN);
            self.send(connection, session, &bytes, true);
        }
        self.state = SessionState::Over;
    }

    /// Handles an event of the connection.
    pub fn handle_event(
        &mut self,
        event: StreamEvent,
        connection: &mut Connection,
        events: &mut VecDeque<LinkEvent>,
    ) -> Result<(), Http3Violation> {
        match event {
            StreamEvent::Opened { dir } => {
                while let Some(id) = connection.streams().accept(dir) {
                    let incoming = Incoming::Prefix {
                        kind: None,
                        reader: VarintReader::default(),
                    };
                    self.incoming.insert(id, incoming);
                    self.receive(id, connection, events)?;
                }
            }
            StreamEvent::Readable { id } => self.receive(id, connection, events)?,
            StreamEvent::Writable { id } => {
                if self.flush(connection, id) && self.is_data(id) {
                    events.push_back(LinkEvent::Writable(id));
                }
            }
            StreamEvent::Finished { id } => {
                self.is_session_acknowledged |= Some(id) == self.session;
                if self.is_data(id) {
                    events.push_back(LinkEvent::Finished(id));
                }
            }
            StreamEvent::Stopped { id, error_code } => {
                let is_data = self.is_data(id);
                self.reset(connection, id, error_code.into_inner());
                if Some(id) == self.control {
                    return Err(violation(H3_CLOSED_CRITICAL_STREAM, "control stream stopped"));
                }
                self.is_session_acknowledged |= Some(id) == self.session;
                if is_data {
                    let code = application_code(error_code.into_inner());
                    events.push_back(LinkEvent::Stopped { id, code });
                }
            }
            StreamEvent::Available { dir } => {
                self.advance(connection);
                if self.state == SessionState::Established {
                    events.push_back(LinkEvent::Available(dir));
                }
            }
        }
        Ok(())
    }

    /// Whether this is a stream of data of the established session.
    pub fn is_data(&self, id: StreamId) -> bool {
        self.state == SessionState::Established
            && Some(id) != self.session
            && Some(id) != self.control
            && !self.incoming.contains_key(&id)
    }

    fn receive(
        &mut self,
        id: StreamId,
        connection: &mut Connection,
        events: &mut VecDeque<LinkEvent>,
    ) -> Result<(), Http3Violation> {
        let Some(mut incoming) = self.incoming.remove(&id) else {
            if self.is_data(id) {
                events.push_back(LinkEvent::Readable(id));
            }
            return Ok(());
        };
        while !self.is_over() {
            let length = match &incoming {
                Incoming::Waiting { .. } => break,
                Incoming::Prefix { .. } => 1,
                Incoming::Qpack | Incoming::Message(_) => usize::MAX,
            };
            let read = raw::read(connection, id, length);
            let next = match (incoming, read) {
                (incoming, RawRead::Blocked) => {
                    self.incoming.insert(id, incoming);
                    return Ok(());
                }
                (Incoming::Prefix { kind, mut reader }, RawRead::Bytes(bytes)) => {
                    match bytes.first().and_then(|byte| reader.push(*byte)) {
                        Some(value) => self.prefix(id, kind, value, connection, events)?,
                        None => Some(Incoming::Prefix { kind, reader }),
                    }
                }
                (Incoming::Message(mut message), RawRead::Bytes(bytes)) => {
                    let goes_on = self.message(id, &mut message, bytes, connection, events)?;
                    goes_on.then_some(Incoming::Message(message))
                }
                (incoming @ (Incoming::Qpack | Incoming::Waiting { .. }), RawRead::Bytes(_)) => Some(incoming),
                (incoming, RawRead::Finished | RawRead::Reset(_)) => {
                    return self.end(id, &incoming, connection, events);
                }
            };
            match next {
                Some(next) => incoming = next,
                None => return Ok(()),
            }
        }
        self.incoming.insert(id, incoming);
        Ok(())
    }

    /// The type or the session id of a stream is complete.
    fn prefix(
        &mut self,
        id: StreamId,
        kind: Option<u64>,
        value: u64,
        connection: &mut Connection,
        events: &mut VecDeque<LinkEvent>,
    ) -> Result<Option<Incoming>, Http3Violation> {
        if kind.is_some() {
            return self.session_id(id, value, connection, events);
        }
        let is_server = self.role == WebTransportRole::Server;
        Ok(match (id.dir(), value) {
            (Dir::Uni, WEBTRANSPORT_UNI_STREAM) | (Dir::Bi, WEBTRANSPORT_STREAM) => Some(Incoming::Prefix {
                kind: Some(value),
                reader: VarintReader::default(),
            }),
            (Dir::Uni, CONTROL_STREAM | QPACK_ENCODER_STREAM | QPACK_DECODER_STREAM) => {
                let bit = 1 << value;
                if self.critical & bit != 0 {
                    return Err(violation(H3_STREAM_CREATION_ERROR, "second critical stream"));
                }
                self.critical |= bit;
                Some(match value {
                    CONTROL_STREAM => Incoming::Message(Http3Message::new(
                        Http3MessagePart::Control,
                        Http3FrameReader::default(),
                    )),
                    _ => Incoming::Qpack,
                })
            }
            (Dir::Uni, PUSH_STREAM) if is_server => {
                return Err(violation(H3_STREAM_CREATION_ERROR, "push stream of a client"));
            }
            (Dir::Uni, PUSH_STREAM) => return Err(violation(H3_ID_ERROR, "push without consent")),
            (Dir::Uni, _) => {
                // Reserved types exist to be ignored (RFC 9114, section 6.2.3).
                raw::stop(connection, id, H3_STREAM_CREATION_ERROR);
                None
            }
            (Dir::Bi, _) if !is_server => {
                return Err(violation(H3_STREAM_CREATION_ERROR, "request of a server"));
            }
            (Dir::Bi, kind) => {
                let is_request = |incoming: &&Incoming| matches!(incoming, Incoming::Message(message) if message.part == Http3MessagePart::Request);
                if self.incoming.values().filter(is_request).count() >= OPEN_REQUESTS_MAX {
                    raw::stop(connection, id, H3_REQUEST_REJECTED);
                    raw::reset(connection, id, H3_REQUEST_REJECTED);
                    return Ok(None);
                }
                let frames = Http3FrameReader::after_type(kind);
                Some(Incoming::Message(Http3Message::new(Http3MessagePart::Request, frames)))
            }
        })
    }

    fn session_id(
        &mut self,
        id: StreamId,
        session: u64,
        connection: &mut Connection,
        events: &mut VecDeque<LinkEvent>,
    ) -> Result<Option<Incoming>, Http3Violation> {
        if session & 0b11 != 0 {
            return Err(violation(H3_ID_ERROR, "session id is no request"));
        }
        if self.state != SessionState::Established {
            return Ok(Some(Incoming::Waiting { session }));
        }
        self.resolve(id, session, connection, events);
        Ok(None)
    }

    /// Gives a stream to the established session, or refuses it.
    fn resolve(&mut self, id: StreamId, session: u64, connection: &mut Connection, events: &mut VecDeque<LinkEvent>) {
        if self.session.is_some_and(|own| u64::from(own) == session) {
            events.push_back(LinkEvent::Opened(id));
            return;
        }
        raw::stop(connection, id, WT_BUFFERED_STREAM_REJECTED);
        if id.dir() == Dir::Bi {
            raw::reset(connection, id, WT_BUFFERED_STREAM_REJECTED);
        }
    }

    fn establish(&mut self, connection: &mut Connection, events: &mut VecDeque<LinkEvent>) {
        self.state = SessionState::Established;
        events.push_back(LinkEvent::Connected);
        let waiting: Vec<_> = self
            .incoming
            .iter()
            .filter_map(|(id, incoming)| match incoming {
                Incoming::Waiting { session } => Some((*id, *session)),
                _ => None,
            })
            .collect();
        for (id, session) in waiting {
            self.incoming.remove(&id);
            self.resolve(id, session, connection, events);
        }
    }

    /// A stream of this layer was finished or reset by the remote end.
    fn end(
        &mut self,
        id: StreamId,
        incoming: &Incoming,
        connection: &mut Connection,
        events: &mut VecDeque<LinkEvent>,
    ) -> Result<(), Http3Violation> {
        match incoming {
            Incoming::Waiting { .. } => {}
            Incoming::Prefix { .. } => {
                if id.dir() == Dir::Bi {
                    raw::reset(connection, id, H3_REQUEST_INCOMPLETE);
                }
            }
            Incoming::Qpack => {
                return Err(violation(H3_CLOSED_CRITICAL_STREAM, "QPACK stream closed"));
            }
            Incoming::Message(message) => match message.part {
                Http3MessagePart::Control => {
                    return Err(violation(H3_CLOSED_CRITICAL_STREAM, "control stream closed"));
                }
                Http3MessagePart::Request => raw::reset(connection, id, H3_REQUEST_INCOMPLETE),
                Http3MessagePart::Response => {
                    let reason = "the server ended the CONNECT request without a response";
                    self.over(connection, LinkClosed::Failed(reason.into()), events);
                }
                Http3MessagePart::Session => {
                    let closed = LinkClosed::ByPeer {
                        code: 0,
                        reason: String::new(),
                    };
                    self.over(connection, closed, events);
                }
            },
        }
        Ok(())
    }

    /// The remote end closed or rejected the session.
    fn over(&mut self, connection: &mut Connection, closed: LinkClosed, events: &mut VecDeque<LinkEvent>) {
        self.state = SessionState::Over;
        if let Some(session) = self.session {
            self.send(connection, session, &[], true);
        }
        events.push_back(LinkEvent::Closed(closed));
    }

    fn send_headers(&mut self, connection: &mut Connection, id: StreamId, section: &[u8], has_end: bool) {
        let mut bytes = Vec::new();
        put_frame(HEADERS, section, &mut bytes);
        self.send(connection, id, &bytes, has_end);
    }

    /// Sends bytes of this layer on a stream, now or when it can be written.
    fn send(&mut self, connection: &mut Connection, id: StreamId, bytes: &[u8], has_end: bool) {
        let unsent = self.unsent.entry(id).or_default();
        unsent.bytes.extend_from_slice(bytes);
        unsent.has_end |= has_end;
        self.flush(connection, id);
    }

    /// Writes what a stream has not taken. Returns whether nothing of this layer is left.
    fn flush(&mut self, connection: &mut Connection, id: StreamId) -> bool {
        let Some(unsent) = self.unsent.get_mut(&id) else {
            return true;
        };
        let taken = raw::write(connection, id, &unsent.bytes);
        unsent.bytes.drain(..taken);
        if !unsent.bytes.is_empty() {
            return false;
        }
        if unsent.has_end {
            raw::finish(connection, id);
        }
        self.unsent.remove(&id);
        true
    }

    /// Opens a stream of the session.
    pub fn open(&mut self, connection: &mut Connection, dir: Dir) -> Option<StreamId> {
        let id = connection.streams().open(dir)?;
        self.fresh.push(id);
        Some(id)
    }

    /// Writes data on a stream of the session, after its prefix. Returns the bytes taken.
    pub fn write(&mut self, connection: &mut Connection, id: StreamId, bytes: &[u8]) -> usize {
        self.send_prefix(connection, id);
        match self.unsent.is_empty() || self.flush(connection, id) {
            true => raw::write(connection, id, bytes),
            false => 0,
        }
    }

    pub fn finish(&mut self, connection: &mut Connection, id: StreamId) {
        self.send_prefix(connection, id);
        match self.unsent.get_mut(&id) {
            Some(unsent) => unsent.has_end = true,
            None => raw::finish(connection, id),
        }
    }

    /// Resets a stream. `code` is the one on the wire.
    pub fn reset(&mut self, connection: &mut Connection, id: StreamId, code: u64) {
        self.fresh.retain(|fresh| *fresh != id);
        self.unsent.remove(&id);
        raw::reset(connection, id, code);
    }

    /// The prefix is written with the first data, so that a priority applies to it too.
    fn send_prefix(&mut self, connection: &mut Connection, id: StreamId) {
        let (Some(session), Some(at)) = (self.session, self.fresh.iter().position(|fresh| *fresh == id)) else {
            return;
        };
        self.fresh.swap_remove(at);
        let mut prefix = std::mem::take(&mut self.prefix);
        prefix.clear();
        let kind = match id.dir() {
            Dir::Uni => WEBTRANSPORT_UNI_STREAM,
            Dir::Bi => WEBTRANSPORT_STREAM,
        };
        put_varint(kind, &mut prefix);
        put_varint(u64::from(session), &mut prefix);
        let taken = raw::write(connection, id, &prefix);
        if taken < prefix.len() {
            self.send(connection, id, &prefix[taken..], false);
        }
        self.prefix = prefix;
    }
}

/// The application's code of a code on the wire. Codes of HTTP/3 itself keep their number.
pub fn application_code(code: u64) -> u32 {
    code_from_http3(code).unwrap_or_else(|| u32::try_from(code).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
