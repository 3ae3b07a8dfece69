//! What a connection tells: its outputs, and why an offer or an answer was refused.
//!
//! In: nothing. Out: values for the session, which hands datagrams to the network and sound to the
//! decoder.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::audio::packet::AudioPacket;

use super::packet::{IceProtocol, Transmit};

/// What a connection answers to an input.
pub enum ConnectionOutput {
    /// Nothing more; the connection wants [`PeerConnection::handle_timeout`] at this time.
    ///
    /// [`PeerConnection::handle_timeout`]: super::PeerConnection::handle_timeout
    Timeout(Instant),
    Transmit(Transmit),
    /// The peer has answered a check of this end, and so has what is sent to this address.
    PathValidated(ValidatedPath),
    /// ICE and DTLS are up: audio flows.
    Connected,
    Audio {
        /// The track in a media room, `TR_...`; a client has only one.
        track: Option<Arc<str>>,
        packet: AudioPacket,
    },
    /// A track of a media room is gone.
    TrackRemoved(Arc<str>),
    /// A key of the telephone was pressed.
    Dtmf(char),
    /// The channel for messages is open.
    ChannelOpen,
    /// A text message of a client.
    Message(String),
    /// The bytes of one binary message of a media room.
    Data(Vec<u8>),
    /// The peer left in good order.
    PeerClosed,
    /// The connection broke.
    Failed,
}

/// The addresses between which a peer answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidatedPath {
    pub over: IceProtocol,
    /// Where the answer came to.
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

/// Why an offer was not answered, or an answer not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum NegotiationError {
    /// The description's own fault, in words for its sender.
    BadDescription(String),
    /// No address of this machine can be offered to a device; names the address wanted and those
    /// that exist.
    NoCandidate(String),
    /// The answer does not fit what the device takes.
    TooLong(String),
    /// This end could make no description.
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
