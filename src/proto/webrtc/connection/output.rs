//! The outputs of a connection, and the errors of a negotiation.
//!
//! Out: datagrams for the network, audio for the decoder, and events for the session.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::audio::packet::AudioPacket;

use super::packet::{IceProtocol, Transmit};

/// An output of a connection.
pub enum ConnectionOutput {
    /// Nothing more to do until [`PeerConnection::handle_timeout`] at this time.
    ///
    /// [`PeerConnection::handle_timeout`]: super::PeerConnection::handle_timeout
    Timeout(Instant),
    Transmit(Transmit),
    /// The peer answered a check of this end on this path.
    PathValidated(ValidatedPath),
    /// ICE and DTLS are up, and audio may flow.
    Connected,
    Audio {
        /// The LiveKit track id, `TR_...`; `None` for clients.
        track: Option<Arc<str>>,
        packet: AudioPacket,
    },
    /// A LiveKit track ended.
    TrackRemoved(Arc<str>),
    /// A DTMF key press.
    Dtmf(char),
    /// The message channel is open.
    ChannelOpen,
    /// A text message of a client.
    Message(String),
    /// A binary message of an SFU.
    Data(Vec<u8>),
    /// An SFU accepts TCP connections at this address. Checks over one follow
    /// [`PeerConnection::add_tcp_path`].
    ///
    /// [`PeerConnection::add_tcp_path`]: super::PeerConnection::add_tcp_path
    TcpCandidate(SocketAddr),
    /// Nothing was received for the silence timeout. The connection continues, and an ICE restart
    /// may revive it.
    Silent,
    /// The peer closed the connection.
    PeerClosed,
    /// The connection failed.
    Failed,
}

/// The path on which a peer answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidatedPath {
    pub over: IceProtocol,
    /// The local address that received the answer.
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

/// Why an offer was not answered, or an answer not accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum NegotiationError {
    /// The description is invalid; the text is for its sender.
    BadDescription(String),
    /// No local address can be offered to a device. The text names the required and the available
    /// ones.
    NoCandidate(String),
    /// The answer exceeds the device's buffers.
    TooLong(String),
    /// This end failed to create a description.
    Internal(String),
    /// The session is ending.
    Ended,
}

impl fmt::Display for NegotiationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NegotiationError::BadDescription(why)
            | NegotiationError::NoCandidate(why)
            | NegotiationError::TooLong(why)
            | NegotiationError::Internal(why) => f.write_str(why),
            NegotiationError::Ended => f.write_str("the session is ending"),
        }
    }
}
