//! Admission, and the first messages to a participant.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use edge_runner_proto::livekit::wire::{JoinResponse, ParticipantInfo, RoomInfo, ServerMessage, SignalTarget};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, oneshot};

use super::super::ParticipantStats;
use super::super::http::{Join, JoinDecision, JoinRequest, Outgoing};
use super::super::speakers::Meter;
use super::super::token;
use super::super::transport::{PeerTransport, TransportSocket};
use super::participant::Participant;
use super::{DISCONNECT, DUPLICATE_IDENTITY, Hub, JOIN_WITHIN, JOINED, RECONNECT, STATE_MISMATCH, read, sid};

impl Hub {
    pub(super) fn decide(&self, request: &JoinRequest) -> JoinDecision {
        let refuse = |(status, words): (u16, String)| JoinDecision::Reply(status, words);
        match request.path.as_str() {
            "/rtc" if request.upgrade.is_none() => return refuse((404, String::new())),
            "/rtc" | "/rtc/validate" => {}
            "/" => return refuse((200, "OK".into())),
            _ => return refuse((404, "404 page not found\n".into())),
        }
        if let Some(refusal) = &self.refusal {
            return refuse(refusal.clone());
        }
        let bearer = request
            .authorization
            .as_deref()
            .map(|header| header.strip_prefix("Bearer "));
        let token = match bearer {
            Some(None) => return refuse((401, "invalid authorization header. Must start with Bearer ".into())),
            Some(Some(token)) => token,
            None => request.parameter("access_token").unwrap_or_default(),
        };
        if token.is_empty() {
            return refuse((401, "no permissions to access the room".into()));
        }
        let claims = match token::verify(token, &self.options.key, &self.options.secret) {
            Ok(claims) => claims,
            Err(refusal) => return refuse(refusal),
        };
        if !self.options.auto_create && !self.rooms.contains_key(&claims.room) {
            return refuse((404, "requested room does not exist".into()));
        }
        if request.path == "/rtc/validate" {
            return refuse((200, "success".into()));
        }
        JoinDecision::Admit(Box::new(Join {
            claims,
            protocol: request
                .parameter("protocol")
                .and_then(|version| version.parse().ok())
                .unwrap_or_default(),
            auto_subscribe: request.is_set("auto_subscribe").unwrap_or(true),
            resumes: request.is_set("reconnect") == Some(true),
        }))
    }

    pub(super) fn join(
        &mut self,
        join: Join,
        sender: mpsc::UnboundedSender<Outgoing>,
        number: oneshot::Sender<u64>,
        now: Instant,
    ) {
        self.next_id += 1;
        let id = self.next_id;
        let _ = number.send(id);
        let claims = join.claims;
        let mut participant = Participant {
            sid: sid("PA_"),
            state: JOINED,
            version: 1,
            auto_subscribe: join.auto_subscribe,
            sender: Some(sender),
            silent: false,
            publisher: None,
            subscriber: None,
            tracks: Vec::new(),
            subscribed: BTreeSet::new(),
            received: BTreeSet::new(),
            queued: Vec::new(),
            until: Some(now + JOIN_WITHIN),
            meter: Meter::default(),
            participant: ParticipantStats {
                protocol: join.protocol,
                ..Default::default()
            },
            claims,
        };
        if join.resumes {
            // This server keeps nothing to resume. The real one answers so when the state is lost.
            self.stats.resumes += 1;
            participant.leave(STATE_MISMATCH, RECONNECT);
            return;
        }
        self.stats.joins += 1;
        let room = participant.claims.room.clone();
        if let Some(first) = self.find(&room, &participant.claims.identity) {
            self.remove(first, DUPLICATE_IDENTITY, Some(DISCONNECT), now);
        }
        log::info!(
            "{} joins {room} as {}, protocol {}",
            participant.claims.identity,
            participant.sid,
            join.protocol
        );
        let room_sid = self.rooms.entry(room.clone()).or_insert_with(|| sid("RM_")).clone();
        let others: Vec<ParticipantInfo> = self
            .others(id, &room)
            .filter(|other| !other.claims.hidden)
            .map(Participant::info)
            .collect();
        participant.send(ServerMessage::Join(Box::new(JoinResponse {
            room: Some(RoomInfo {
                sid: room_sid,
                name: room.clone(),
                num_participants: others.len() as u32 + 1,
                ..Default::default()
            }),
            participant: Some(participant.info()),
            other_participants: others,
            server_version: "1.13.5".into(),
            subscriber_primary: participant.claims.can_subscribe,
            ping_timeout: self.options.ping_timeout_s,
            ping_interval: self.options.ping_interval_s,
            fast_publish: participant.claims.can_publish,
            ..Default::default()
        })));
        participant.send(ServerMessage::RefreshToken(token::renew(
            &participant.claims,
            &self.options.secret,
        )));
        if participant.claims.can_subscribe {
            participant.subscriber = self.transport(id, SignalTarget::Subscriber, now);
        }
        self.participants.insert(id, participant);
        self.broadcast(id);
        self.subscribe_to_all(id);
        self.offer(id);
    }

    /// Creates a connection on the shared socket or on one of its own.
    pub(super) fn transport(&self, id: u64, target: SignalTarget, now: Instant) -> Option<PeerTransport> {
        let wire = match &self.shared {
            Some(socket) => TransportSocket {
                local: socket.local_addr().ok()?,
                socket: socket.clone(),
                reader: None,
            },
            None => {
                let socket = std::net::UdpSocket::bind((self.options.address, 0)).ok()?;
                socket.set_nonblocking(true).ok()?;
                let socket = Arc::new(UdpSocket::from_std(socket).ok()?);
                let reader = tokio::spawn(read(socket.clone(), Some((id, target)), self.feed.clone()));
                TransportSocket {
                    local: socket.local_addr().ok()?,
                    socket,
                    reader: Some(reader.abort_handle()),
                }
            }
        };
        let subscriber = target == SignalTarget::Subscriber;
        Some(PeerTransport::new(
            wire,
            subscriber,
            subscriber && self.options.red,
            self.options.ice_lite,
            now,
        ))
    }
}
