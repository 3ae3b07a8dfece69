//! Events of the peer connections: connection state, audio, messages, and the active speakers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use edge_runner_proto::livekit::wire::{
    DataPacket, ServerMessage, SignalTarget, SpeakerInfo, SpeakersChanged, TrackSubscribed,
};
use prost::Message as _;
use str0m::rtp::RtpPacket;

use super::super::transport::{LOSSY, PeerTransport, RELIABLE, TransportEvent};
use super::{ACTIVE, CONNECTION_TIMEOUT, GONE_AFTER, Hub, JOINED, RESUME, SIGNAL_CLOSE};

impl Hub {
    pub(super) fn event(&mut self, id: u64, target: SignalTarget, event: TransportEvent, now: Instant) {
        let Some(participant) = self.participants.get_mut(&id) else {
            return;
        };
        match event {
            TransportEvent::Connected => {
                let primary = if participant.subscriber.is_some() {
                    SignalTarget::Subscriber
                } else {
                    SignalTarget::Publisher
                };
                if target == primary && participant.state == JOINED {
                    participant.state = ACTIVE;
                    participant.until = None;
                    self.broadcast(id);
                    self.subscribe_to_all(id);
                    self.offer(id);
                }
            }
            TransportEvent::Lost => {
                participant.leave(CONNECTION_TIMEOUT, RESUME);
                participant.until = Some(now + GONE_AFTER);
            }
            TransportEvent::Closed => {
                if participant.sender.is_none() {
                    self.remove(id, SIGNAL_CLOSE, None, now);
                }
            }
            TransportEvent::Audio(mid, packet) => self.audio(id, &mid.to_string(), &packet, now),
            TransportEvent::Data(label, bytes) => self.data(id, &label, &bytes),
            TransportEvent::Open(label) => {
                if target == SignalTarget::Subscriber && label == RELIABLE {
                    for message in std::mem::take(&mut participant.queued) {
                        participant.deliver(RELIABLE, &message);
                    }
                }
            }
        }
    }

    pub(super) fn audio(&mut self, id: u64, mid: &str, packet: &RtpPacket, now: Instant) {
        let Some(participant) = self.participants.get_mut(&id) else {
            return;
        };
        let Some(track) = participant.tracks.iter_mut().find(|track| track.info.mid == mid) else {
            return;
        };
        participant.participant.packets_in += 1;
        let first = !std::mem::replace(&mut track.live, true);
        if let Some(level) = packet.header.ext_vals.audio_level.filter(|_| !track.info.muted) {
            participant.participant.levels += 1;
            participant.meter.handle_level(level.unsigned_abs(), now);
        }
        let (track, room) = (track.info.sid.clone(), participant.claims.room.clone());
        if first {
            self.broadcast(id);
            for (other, listener) in &mut self.participants {
                if *other != id && listener.claims.room == room && listener.state == ACTIVE && listener.auto_subscribe {
                    listener.subscribed.insert(track.clone());
                }
            }
            self.offer_others(id);
        }
        let mut is_received = false;
        for (other, listener) in &mut self.participants {
            let transport = listener
                .subscriber
                .as_mut()
                .filter(|_| *other != id && listener.claims.room == room);
            if transport.is_some_and(|transport| transport.forward(&track, packet, now)) {
                listener.participant.packets_out += 1;
                is_received = true;
            }
        }
        let publisher = self.participants.get_mut(&id).expect("it was just found");
        let sent = publisher.tracks.iter_mut().find(|sent| sent.info.sid == track);
        if let Some(sent) = sent.filter(|sent| is_received && !sent.was_received) {
            sent.was_received = true;
            publisher.send(ServerMessage::TrackSubscribed(TrackSubscribed { track_sid: track }));
        }
    }

    pub(super) fn data(&mut self, id: u64, label: &str, bytes: &[u8]) {
        let Some(participant) = self
            .participants
            .get_mut(&id)
            .filter(|participant| participant.claims.can_publish_data)
        else {
            return;
        };
        let Ok(packet) = DataPacket::decode(bytes) else {
            log::warn!("{}: a message on {label} is no DataPacket", participant.claims.identity);
            return;
        };
        if label != RELIABLE && label != LOSSY {
            return;
        }
        participant.participant.messages_in += 1;
        // In protobuf the last value of a field counts, so unknown fields pass unchanged.
        let mut stamped = bytes.to_vec();
        let stamp = DataPacket {
            participant_identity: participant.claims.identity.clone(),
            participant_sid: participant.sid.clone(),
            ..Default::default()
        };
        stamped.extend(stamp.encode_to_vec());
        let room = participant.claims.room.clone();
        let named = &packet.destination_identities;
        for (other, listener) in &mut self.participants {
            let is_meant = named.is_empty() || named.contains(&listener.claims.identity);
            // Participants that are not active receive nothing.
            if *other != id && listener.claims.room == room && is_meant && listener.state == ACTIVE {
                listener.deliver(label, &stamped);
            }
        }
    }

    pub(super) fn send_speakers(&mut self, now: Instant) {
        let mut changed: BTreeMap<String, Vec<SpeakerInfo>> = BTreeMap::new();
        for participant in self.participants.values_mut() {
            let eighths = participant.meter.eighths(now);
            if eighths != std::mem::replace(&mut participant.meter.reported, eighths) {
                let speaker = speaker(&participant.sid, eighths);
                changed
                    .entry(participant.claims.room.clone())
                    .or_default()
                    .push(speaker);
            }
        }
        for (room, mut speakers) in changed {
            speakers.sort_by(|one, other| other.level.total_cmp(&one.level));
            for participant in self
                .participants
                .values()
                .filter(|participant| participant.claims.room == room)
            {
                let is_reported = |speaker: &&SpeakerInfo| {
                    speaker.sid == participant.sid || participant.received.contains(&speaker.sid)
                };
                let speakers: Vec<_> = speakers.iter().filter(is_reported).cloned().collect();
                if !speakers.is_empty() {
                    participant.send(ServerMessage::SpeakersChanged(SpeakersChanged { speakers }));
                }
            }
        }
    }

    /// Reports the speakers whom a participant has begun to hear, and silence of those whom it no
    /// longer hears.
    pub(super) fn send_speakers_of_received(&mut self, id: u64) {
        let speaking = self
            .participants
            .values()
            .filter(|participant| participant.meter.reported > 0);
        let speaking: BTreeMap<String, u8> = speaking
            .map(|participant| (participant.sid.clone(), participant.meter.reported))
            .collect();
        let Some(participant) = self.participants.get_mut(&id) else {
            return;
        };
        let now = participant
            .subscriber
            .as_ref()
            .map(PeerTransport::publishers)
            .unwrap_or_default();
        let begun = now
            .difference(&participant.received)
            .filter_map(|sid| Some((sid, *speaking.get(sid)?)));
        let ended = participant.received.difference(&now).map(|sid| (sid, 0));
        let speakers: Vec<_> = begun.chain(ended).map(|(sid, eighths)| speaker(sid, eighths)).collect();
        participant.received = now;
        if !speakers.is_empty() {
            participant.send(ServerMessage::SpeakersChanged(SpeakersChanged { speakers }));
        }
    }

    pub(super) fn datagram(
        &mut self,
        whose: Option<(u64, SignalTarget)>,
        source: SocketAddr,
        contents: &[u8],
        now: Instant,
    ) {
        if let Some((id, target)) = whose {
            if let Some(transport) = self
                .participants
                .get_mut(&id)
                .and_then(|participant| participant.transport(target))
            {
                transport.handle_datagram(source, contents, now);
            }
            return;
        }
        for participant in self.participants.values_mut() {
            if participant
                .transports()
                .any(|(_, transport)| transport.handle_datagram(source, contents, now))
            {
                return;
            }
        }
    }
}

fn speaker(sid: &str, eighths: u8) -> SpeakerInfo {
    SpeakerInfo {
        sid: sid.to_owned(),
        level: f32::from(eighths) / 8.0,
        active: eighths > 0,
    }
}
