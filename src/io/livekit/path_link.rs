//! A path of a session in a room, as the task that holds it sees it.

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::io::tasks::{self, BoxedTask};
use crate::io::webrtc::udp::{Datagram, OutgoingPacket};
use crate::proto::livekit::session::{PathEvent, PathId};
use crate::proto::livekit::wire::SignalTarget;
use crate::proto::webrtc::connection::IceProtocol;
use crate::proto::webrtc::gather::server::GatherServer;

/// Runs a path through a relay; the module `relay` has it in a build with the feature `turn`.
pub(super) type RunRelay = fn(GatherServer, PathLink) -> BoxedTask;

/// An input of the session.
pub enum PathInput {
    Event(PathId, PathEvent),
    Datagram(SignalTarget, Datagram),
}

/// The task's end of a path.
pub(super) struct PathLink {
    id: PathId,
    target: SignalTarget,
    sender: mpsc::Sender<PathInput>,
    outgoing: mpsc::Receiver<OutgoingPacket>,
}

impl PathLink {
    pub(super) fn new(
        id: PathId,
        target: SignalTarget,
        sender: mpsc::Sender<PathInput>,
        outgoing: mpsc::Receiver<OutgoingPacket>,
    ) -> Self {
        PathLink {
            id,
            target,
            sender,
            outgoing,
        }
    }

    /// Waits for the next packet to send; `None` when the session has closed the path.
    pub(super) async fn next(&mut self) -> Option<OutgoingPacket> {
        self.outgoing.recv().await
    }

    pub(super) async fn report(&self, event: PathEvent) {
        // A session that has ended needs no report.
        let _ = self.sender.send(PathInput::Event(self.id, event)).await;
    }

    /// Delivers a packet, or drops it if the session has too many already.
    pub(super) fn deliver(&self, over: IceProtocol, source: SocketAddr, destination: SocketAddr, contents: Bytes) {
        let datagram = Datagram {
            over,
            source,
            destination,
            contents,
            arrived: tasks::now(),
        };
        let _ = self.sender.try_send(PathInput::Datagram(self.target, datagram));
    }
}
