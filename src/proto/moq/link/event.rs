//! The events of a link, and the request of a client for a session.

use quinn_proto::{Dir, StreamId};

/// The version of MoQ that is spoken, as WebTransport sub-protocol.
pub const MOQ_PROTOCOL: &str = "moq-lite-04";

/// An event of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A server received a CONNECT request: answer with `accept` or `reject`.
    Requested(LinkRequest),
    /// Streams can be opened.
    Connected,
    /// The remote end opened a stream; it may be readable.
    Opened(StreamId),
    /// There may be bytes to read, or the end. The event may be older than the last read, so a
    /// stream that ended can have one more.
    Readable(StreamId),
    Writable(StreamId),
    /// The remote end asks to abort the sending half of a stream.
    Stopped {
        id: StreamId,
        code: u32,
    },
    /// The remote end acknowledged all bytes of a stream and its end.
    Finished(StreamId),
    /// Streams of this direction can be opened again.
    Available(Dir),
    /// The connection is over: the last event. The link goes on until it is drained.
    Closed(LinkClosed),
}

/// The CONNECT request of a WebTransport client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRequest {
    pub authority: String,
    /// Path and query.
    pub path: String,
    pub origin: Option<String>,
    /// `WT-Available-Protocols`, in the client's order.
    pub protocols: Vec<String>,
}

impl LinkRequest {
    /// Whether the client speaks [`MOQ_PROTOCOL`].
    /// [`MoqLink::accept`](super::MoqLink::accept) rejects all others.
    pub fn offers_moq(&self) -> bool {
        self.protocols.iter().any(|offer| offer == MOQ_PROTOCOL)
    }
}

/// Why a link closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkClosed {
    /// The remote end closed the session or the connection, with an application's code; 0 stands
    /// for a close without an error. Codes of HTTP/3 keep their number (from 0x100).
    ByPeer { code: u64, reason: String },
    /// This end closed it, or rejected the request.
    Locally,
    /// Nothing was received for the idle time.
    TimedOut,
    /// The server rejected the CONNECT request with this HTTP status.
    Rejected(u16),
    /// The TLS or QUIC handshake failed, or the remote end violated a protocol.
    Failed(String),
}
