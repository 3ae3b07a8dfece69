//! The frames of the control stream, of requests, and of responses.

use std::collections::VecDeque;

use bytes::Bytes;
use quinn_proto::{Connection, StreamId};

use super::capsule::CapsuleReader;
use super::code::{
    H3_EXCESSIVE_LOAD, H3_FRAME_ERROR, H3_FRAME_UNEXPECTED, H3_MESSAGE_ERROR, H3_MISSING_SETTINGS, H3_NO_ERROR,
    H3_SETTINGS_ERROR, QPACK_DECOMPRESSION_FAILED,
};
use super::connect::{RequestError, parse_request, parse_response, response_section};
use super::frame::{Http3Frame, Http3FrameReader, WEBTRANSPORT_STREAM, is_reserved_frame};
use super::settings::Http3Settings;
use super::{Http3Violation, SessionState, WebTransport, WebTransportRole, raw, violation};
use crate::moq::link::event::{LinkClosed, LinkEvent, LinkRequest, MOQ_PROTOCOL};

/// Requests other than the session's that are answered on one connection, before it is closed.
const ANSWERED_REQUESTS_MAX: u32 = 16;

/// What a stream of frames is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http3MessagePart {
    Control,
    /// A request before the end of its header.
    Request,
    /// The answer to CONNECT before the end of its header.
    Response,
    /// The stream of CONNECT after its header: capsules.
    Session,
}

/// A stream of frames of the remote end.
#[derive(Debug)]
pub(super) struct Http3Message {
    pub part: Http3MessagePart,
    frames: Http3FrameReader,
    capsules: CapsuleReader,
}

impl Http3Message {
    pub fn new(part: Http3MessagePart, frames: Http3FrameReader) -> Self {
        Self {
            part,
            frames,
            capsules: CapsuleReader::default(),
        }
    }
}

impl WebTransport {
    /// Handles bytes of a stream. Returns whether more are expected.
    pub(super) fn message(
        &mut self,
        id: StreamId,
        message: &mut Http3Message,
        mut bytes: Bytes,
        connection: &mut Connection,
        events: &mut VecDeque<LinkEvent>,
    ) -> Result<bool, Http3Violation> {
        while let Some(frame) = message.frames.read(&mut bytes) {
            match message.part {
                Http3MessagePart::Control => self.control_frame(frame, connection)?,
                Http3MessagePart::Request => {
                    let goes_on = self.request_frame(id, message, frame, connection, events)?;
                    if !goes_on {
                        return Ok(false);
                    }
                }
                Http3MessagePart::Response => self.response_frame(message, frame, connection, events)?,
                Http3MessagePart::Session => self.session_frame(message, frame, connection, events)?,
            }
            if self.is_over() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn control_frame(&mut self, frame: Http3Frame, connection: &mut Connection) -> Result<(), Http3Violation> {
        match frame {
            Http3Frame::Settings(payload) if self.settings.is_none() => {
                let settings =
                    Http3Settings::parse(&payload).map_err(|_| violation(H3_SETTINGS_ERROR, "invalid SETTINGS"))?;
                let is_client = self.role != WebTransportRole::Server;
                if is_client && !settings.accepts_sessions() {
                    let reason = "the server does not offer WebTransport";
                    return Err(violation(H3_SETTINGS_ERROR, reason));
                }
                self.settings = Some(settings);
                self.advance(connection);
                Ok(())
            }
            Http3Frame::TooLong => Err(violation(H3_EXCESSIVE_LOAD, "frame too long")),
            _ if self.settings.is_none() => Err(violation(H3_MISSING_SETTINGS, "no SETTINGS at first")),
            // GOAWAY and identifiers of pushes have no meaning for one session.
            Http3Frame::Other(kind) => check_frame(kind),
            _ => Err(violation(H3_FRAME_UNEXPECTED, "frame on the control stream")),
        }
    }

    fn request_frame(
        &mut self,
        id: StreamId,
        message: &mut Http3Message,
        frame: Http3Frame,
        connection: &mut Connection,
        events: &mut VecDeque<LinkEvent>,
    ) -> Result<bool, Http3Violation> {
        let status = match frame {
            Http3Frame::Other(kind) => return check_frame(kind).map(|()| true),
            Http3Frame::Data(_) | Http3Frame::Settings(_) => {
                return Err(violation(H3_FRAME_UNEXPECTED, "no HEADERS at first"));
            }
            Http3Frame::TooLong => 431,
            Http3Frame::Headers(section) => match parse_request(&section) {
                // One session per connection (draft-ietf-webtrans-http3, section 5.2).
                Ok(_) if self.session.is_some() => 429,
                Ok(request) => {
                    message.part = Http3MessagePart::Session;
                    self.session = Some(id);
                    self.state = SessionState::Requested;
                    events.push_back(LinkEvent::Requested(LinkRequest {
                        authority: request.authority,
                        path: request.path,
                        origin: request.origin,
                        protocols: request.protocols,
                    }));
                    return Ok(true);
                }
                Err(RequestError::Status(status)) => status,
                Err(RequestError::Decompression) => {
                    return Err(violation(QPACK_DECOMPRESSION_FAILED, "invalid field section"));
                }
            },
        };
        self.answered_requests += 1;
        if self.answered_requests > ANSWERED_REQUESTS_MAX {
            return Err(violation(H3_EXCESSIVE_LOAD, "too many requests"));
        }
        self.send_headers(connection, id, &response_section(status), true);
        raw::stop(connection, id, H3_NO_ERROR);
        Ok(false)
    }

    fn response_frame(
        &mut self,
        message: &mut Http3Message,
        frame: Http3Frame,
        connection: &mut Connection,
        events: &mut VecDeque<LinkEvent>,
    ) -> Result<(), Http3Violation> {
        let section = match frame {
            Http3Frame::Other(kind) => return check_frame(kind),
            Http3Frame::TooLong => return Err(violation(H3_EXCESSIVE_LOAD, "response too long")),
            Http3Frame::Data(_) | Http3Frame::Settings(_) => {
                return Err(violation(H3_FRAME_UNEXPECTED, "no HEADERS at first"));
            }
            Http3Frame::Headers(section) => section,
        };
        let response = parse_response(&section)
            .map_err(|_| violation(QPACK_DECOMPRESSION_FAILED, "invalid field section"))?
            .ok_or(violation(H3_MESSAGE_ERROR, "response without a status"))?;
        match response.status {
            // Another response follows.
            100..200 => {}
            200 if response.protocol.as_deref() == Some(MOQ_PROTOCOL) => {
                message.part = Http3MessagePart::Session;
                self.establish(connection, events);
            }
            200 => {
                let reason = match response.protocol {
                    Some(protocol) => format!("the server chose the protocol {protocol:?}"),
                    None => format!("the server does not speak {MOQ_PROTOCOL}"),
                };
                self.over(connection, LinkClosed::Failed(reason), events);
            }
            status => self.over(connection, LinkClosed::Rejected(status), events),
        }
        Ok(())
    }

    fn session_frame(
        &mut self,
        message: &mut Http3Message,
        frame: Http3Frame,
        connection: &mut Connection,
        events: &mut VecDeque<LinkEvent>,
    ) -> Result<(), Http3Violation> {
        match frame {
            Http3Frame::Data(bytes) => {
                let close = message
                    .capsules
                    .read(&bytes)
                    .map_err(|_| violation(H3_MESSAGE_ERROR, "invalid capsule"))?;
                if let Some(close) = close {
                    let closed = LinkClosed::ByPeer {
                        code: u64::from(close.code),
                        reason: close.reason,
                    };
                    self.over(connection, closed, events);
                }
                Ok(())
            }
            Http3Frame::Other(kind) => check_frame(kind),
            // Trailers.
            Http3Frame::Headers(_) => Ok(()),
            Http3Frame::TooLong => Err(violation(H3_EXCESSIVE_LOAD, "trailers too long")),
            Http3Frame::Settings(_) => Err(violation(H3_FRAME_UNEXPECTED, "SETTINGS on a request")),
        }
    }
}

/// Unknown frames are skipped; some types are errors anywhere.
fn check_frame(kind: u64) -> Result<(), Http3Violation> {
    match kind {
        WEBTRANSPORT_STREAM => Err(violation(H3_FRAME_ERROR, "stream type within a stream")),
        kind if is_reserved_frame(kind) => Err(violation(H3_FRAME_UNEXPECTED, "frame of HTTP/2")),
        _ => Ok(()),
    }
}
