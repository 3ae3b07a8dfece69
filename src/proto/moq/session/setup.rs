//! What a session is made of, and what it asks of its transport.

use quinn_proto::{EndpointEvent, Transmit};

use crate::audio::opus::EncoderSettings;
use crate::moq::link::MoqLink;
use crate::moq::peer::MoqPeer;

/// Who opens the connections of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoqSessionMode {
    /// The caller connects to the runner.
    Serve,
    /// The runner connects to a relay.
    Dial,
}

/// The parameters of a session.
#[derive(Clone, Debug)]
pub struct MoqSessionSetup {
    pub mode: MoqSessionMode,
    /// The first segments of both paths.
    pub namespace: String,
    /// The last segment of the path of the bot's broadcast.
    pub bot_id: String,
    /// The last segment of the path of the caller's broadcast.
    pub client_id: String,
    /// Random: the origins of the session's connections to a relay.
    pub origin: u64,
    /// Random: the epoch of the bot's records.
    pub epoch: u64,
    pub encoder_settings: EncoderSettings,
}

impl MoqSessionSetup {
    /// Returns the path of the bot's broadcast.
    pub fn bot_path(&self) -> String {
        format!("{}/{}", self.namespace, self.bot_id)
    }

    /// Returns the path of the caller's broadcast.
    pub fn caller_path(&self) -> String {
        format!("{}/{}", self.namespace, self.client_id)
    }
}

/// A connection in serve mode whose caller has announced the broadcast of this session.
pub struct MoqArrival {
    pub link: MoqLink,
    /// It has asked for announcements, and has published nothing.
    pub peer: MoqPeer,
}

/// A command for the transport.
#[derive(Debug)]
pub enum MoqCommand {
    /// Send a datagram: the first [`Transmit::size`] bytes of
    /// [`super::MoqSession::transmit_buffer`].
    Send(Transmit),
    /// Pass an event to the endpoint. If it answers,
    /// [`super::MoqSession::handle_connection_event`] takes the answer.
    Endpoint { connection: u64, event: EndpointEvent },
    /// Connect to the relay. [`super::MoqSession::handle_dialed`] or
    /// [`super::MoqSession::handle_dial_error`] follows.
    Dial,
    /// The session has no more use for a connection. If it was not drained, the endpoint has to be
    /// told.
    Drop { connection: u64 },
    /// The bot's broadcast is announced to the relay. Emitted in dial mode, for every connection.
    Ready,
}
