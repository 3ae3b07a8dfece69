//! The twin of `io::socket` in a build without `telephony` and `websocket`: no connection becomes a socket.

use bytes::Bytes;

use crate::io::admission::Permit;
use crate::io::sessions::{Sessions, Start};
use crate::io::stream::Stream;
use crate::proto::token::Family;

pub type Upgrade = Box<dyn FnOnce(Stream, Bytes) + Send>;

pub enum Entry {
    Session(Permit),
    Handshake(Permit),
}

/// Makes what closes the connection.
pub fn upgrade(_sessions: Sessions, _family: Family, _start: Start, _entry: Entry) -> Upgrade {
    Box::new(|_stream, _read| {})
}
