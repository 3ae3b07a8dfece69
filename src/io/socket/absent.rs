//! The twin of `io::socket` in a build without `telephony` and `websocket`: no connection becomes a socket.

use bytes::Bytes;

use crate::io::admission::Permit;
use crate::io::sessions::{Sessions, Start};
use crate::io::stream::Stream;
use crate::proto::telephony::proof::Proof;

pub type Upgrade = Box<dyn FnOnce(Stream, Bytes) + Send>;

pub enum Entry {
    Session(Permit),
    Handshake(Permit),
}

pub enum Endpoint {
    Client,
    Call(Proof),
}

/// Makes what closes the connection.
pub fn upgrade(_sessions: Sessions, _endpoint: Endpoint, _start: Start, _entry: Entry) -> Upgrade {
    Box::new(|_stream, _read| {})
}
