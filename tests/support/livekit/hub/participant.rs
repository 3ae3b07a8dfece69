//! The server's state of a participant.

use std::collections::BTreeSet;
use std::time::Instant;

use edge_runner_proto::livekit::wire::{
    LeaveRequest, ParticipantInfo, ParticipantPermission, ServerMessage, SignalResponse, SignalTarget, TrackInfo,
};
use prost::Message as _;
use tokio::sync::mpsc;

use super::super::ParticipantStats;
use super::super::http::Outgoing;
use super::super::speakers::Meter;
use super::super::token::Claims;
use super::super::transport::{PeerTransport, RELIABLE};
use super::DISCONNECT;

/// Messages that wait for a subscriber's channel.
const QUEUED_MAX: usize = 1000;

pub struct Track {
    pub info: TrackInfo,
    pub cid: String,
    /// Whether its first packet has arrived.
    pub live: bool,
    /// Whether a packet of it was forwarded, of which its publisher is told once.
    pub was_received: bool,
}

pub struct Participant {
    pub claims: Claims,
    pub sid: String,
    pub state: i32,
    pub version: u32,
    pub auto_subscribe: bool,
    /// `None` once the WebSocket is closed.
    pub sender: Option<mpsc::UnboundedSender<Outgoing>>,
    /// Whether nothing more is sent, for tests of a hanging server.
    pub silent: bool,
    pub publisher: Option<PeerTransport>,
    pub subscriber: Option<PeerTransport>,
    pub tracks: Vec<Track>,
    /// The sids of subscribed tracks, present or not.
    pub subscribed: BTreeSet<String>,
    /// The sids of the participants that are heard. Only their speech is reported.
    pub received: BTreeSet<String>,
    /// Reliable messages from before the channel was open.
    pub queued: Vec<Vec<u8>>,
    /// When it is removed unless its media comes up.
    pub until: Option<Instant>,
    pub meter: Meter,
    pub participant: ParticipantStats,
}

impl Participant {
    pub fn send(&self, response: ServerMessage) {
        if let Some(sender) = self.sender.as_ref().filter(|_| !self.silent) {
            let message = Some(response);
            let _ = sender.send(Outgoing::Message(SignalResponse { message }.encode_to_vec()));
        }
    }

    pub fn info(&self) -> ParticipantInfo {
        let claims = &self.claims;
        ParticipantInfo {
            sid: self.sid.clone(),
            identity: claims.identity.clone(),
            state: self.state,
            tracks: self
                .tracks
                .iter()
                .filter(|track| track.live)
                .map(|track| track.info.clone())
                .collect(),
            metadata: claims.metadata.clone(),
            name: claims.name.clone(),
            version: self.version,
            permission: Some(ParticipantPermission {
                can_subscribe: claims.can_subscribe,
                can_publish: claims.can_publish,
                can_publish_data: claims.can_publish_data,
                hidden: claims.hidden,
                agent: claims.agent,
                ..ParticipantPermission::default()
            }),
            is_publisher: self.tracks.iter().any(|track| track.live),
            kind: claims.kind,
            attributes: claims.attributes.clone(),
            ..Default::default()
        }
    }

    pub fn transport(&mut self, target: SignalTarget) -> Option<&mut PeerTransport> {
        match target {
            SignalTarget::Publisher => self.publisher.as_mut(),
            SignalTarget::Subscriber => self.subscriber.as_mut(),
        }
    }

    pub fn transports(&mut self) -> impl Iterator<Item = (SignalTarget, &mut PeerTransport)> {
        let publisher = self
            .publisher
            .iter_mut()
            .map(|transport| (SignalTarget::Publisher, transport));
        publisher.chain(
            self.subscriber
                .iter_mut()
                .map(|transport| (SignalTarget::Subscriber, transport)),
        )
    }

    pub fn leave(&self, reason: i32, action: i32) {
        self.send(ServerMessage::Leave(LeaveRequest {
            can_reconnect: action != DISCONNECT,
            reason,
            action,
        }));
        if let Some(sender) = &self.sender {
            let _ = sender.send(Outgoing::Close);
        }
    }

    /// Sends a message, or keeps a reliable one until the channel is open.
    pub fn deliver(&mut self, label: &str, bytes: &[u8]) {
        let transport = self.subscriber.as_mut().or(self.publisher.as_mut());
        if transport.is_some_and(|transport| transport.send(label, bytes)) {
            self.participant.messages_out += 1;
        } else if label == RELIABLE && self.queued.len() < QUEUED_MAX {
            self.queued.push(bytes.to_vec());
        }
    }
}
