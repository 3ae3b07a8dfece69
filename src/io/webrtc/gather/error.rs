//! Why a STUN or TURN server gave nothing, in words for the operator of the runner, without a
//! credential.

use std::io;

use crate::io::rest::RestError;
use crate::proto::webrtc::gather::server::{GatherServer, ServerUse, TurnTransport};
use crate::proto::webrtc::relay::AllocationEnd;

/// Why a server gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    #[error("cannot look up {host}: {source}")]
    Resolve { host: String, source: io::Error },
    #[error("cannot look up {host}: the resolver does not answer")]
    ResolverTimeout { host: String },
    #[error("{host} has no address")]
    NoAddress { host: String },
    #[error("connecting to {server}: {source}")]
    Connect { server: String, source: io::Error },
    #[error("no answer from {server} over TCP")]
    ConnectTimeout { server: String },
    #[error(transparent)]
    Tls(#[from] RestError),
    /// The connection has failed or ended.
    #[error(transparent)]
    Connection(#[from] io::Error),
    /// The server does not answer; the text says how another transport may help.
    #[error("{0}")]
    NoAnswer(&'static str),
    /// The server has refused the allocation, or dropped it.
    #[error("{0}")]
    Ended(AllocationEnd),
    #[error("the relayed port is the runner's own number")]
    OwnPort,
    /// The runner has no use for the server.
    #[error("{0}")]
    Unusable(&'static str),
    /// What the state of the server says.
    #[error("{0}")]
    State(String),
    #[error("binding a UDP port: {0}")]
    Bind(#[source] io::Error),
    #[error("the UDP port cannot be read")]
    PortClosed,
    #[error("it was not asked")]
    NotAsked,
    #[error("{source} ({server})")]
    At { server: String, source: Box<GatherError> },
}

impl GatherError {
    /// Creates the error of a server that does not answer.
    pub(in crate::io) fn no_answer(server: &GatherServer) -> GatherError {
        GatherError::NoAnswer(match server.usage {
            ServerUse::Turn {
                transport: TurnTransport::Udp,
                ..
            } => "no answer over UDP; is it blocked? ?transport=tcp or turns: may get through",
            _ => "no answer",
        })
    }

    /// Adds the server's authority.
    pub(super) fn at(self, server: &GatherServer) -> GatherError {
        GatherError::At {
            server: server.authority(),
            source: Box::new(self),
        }
    }
}
