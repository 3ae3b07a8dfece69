//! What comes over the peer connections: that they are up or lost, audio, messages, and by it who speaks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use edge_runner_proto::livekit::wire::{DataPacket, ServerMessage, SignalTarget, SpeakerInfo, SpeakersChanged};
use prost::Message as _;
use str0m::rtp::RtpPacket;

use super::super::link::{Happened, LOSSY, Link, RELIABLE};
use super::{ACTIVE, CONNECTION_TIMEOUT, GONE_AFTER, Hub, JOINED, RESUME, SIGNAL_CLOSE};

impl Hub {
    pub(super) fn happened(&mut self, id: u64, target: SignalTarget, event: Happened, now: Instant) {
        let Some(person) = self.people.get_mut(&id) else {
            return;
        };
        match event {
            Happened::Connected => {
                let primary = if person.subscriber.is_some() {
                    SignalTarget::Subscriber
                } else {
                    SignalTarget::Publisher
                };
                if target == primary && person.state == JOINED {
                    person.state = ACTIVE;
                    person.until = None;
                    self.broadcast(id);
                    self.subscribe_to_all(id);
                    self.offer(id);
                }
            }
            Happened::Lost => {
                person.leave(CONNECTION_TIMEOUT, RESUME);
                person.until = Some(now + GONE_AFTER);
            }
            Happened::Closed => {
                if person.tell.is_none() {
                    self.remove(id, SIGNAL_CLOSE, None, now);
                }
            }
            Happened::Audio(mid, packet) => self.audio(id, &mid.to_string(), &packet, now),
            Happened::Data(label, bytes) => self.data(id, &label, &bytes),
            Happened::Open(label) => {
                if target == SignalTarget::Subscriber && label == RELIABLE {
                    for message in std::mem::take(&mut person.waiting) {
                        person.deliver(RELIABLE, &message);
                    }
                }
            }
        }
    }

    pub(super) fn audio(&mut self, id: u64, mid: &str, packet: &RtpPacket, now: Instant) {
        let Some(person) = self.people.get_mut(&id) else {
            return;
        };
        let Some(track) = person.tracks.iter_mut().find(|track| track.info.mid == mid) else {
            return;
        };
        person.person.packets_in += 1;
        let first = !std::mem::replace(&mut track.live, true);
        if let Some(level) = packet.header.ext_vals.audio_level.filter(|_| !track.info.muted) {
            person.person.levels += 1;
            person.meter.handle_level(level.unsigned_abs(), now);
        }
        let (track, room) = (track.info.sid.clone(), person.claims.room.clone());
        if first {
            self.broadcast(id);
            for (other, listener) in &mut self.people {
                if *other != id && listener.claims.room == room && listener.state == ACTIVE && listener.auto_subscribe {
                    listener.wanted.insert(track.clone());
                }
            }
            self.offer_others(id);
        }
        for (other, listener) in &mut self.people {
            let link = listener
                .subscriber
                .as_mut()
                .filter(|_| *other != id && listener.claims.room == room);
            if link.is_some_and(|link| link.forward(&track, packet, now)) {
                listener.person.packets_out += 1;
            }
        }
    }

    pub(super) fn data(&mut self, id: u64, label: &str, bytes: &[u8]) {
        let Some(person) = self.people.get_mut(&id).filter(|person| person.claims.can_publish_data) else {
            return;
        };
        let Ok(packet) = DataPacket::decode(bytes) else {
            log::warn!("{}: a message on {label} is no DataPacket", person.claims.identity);
            return;
        };
        if label != RELIABLE && label != LOSSY {
            return;
        }
        person.person.messages_in += 1;
        // In this encoding the last value of a field counts, so that what is not known here goes through untouched.
        let mut stamped = bytes.to_vec();
        let stamp = DataPacket {
            participant_identity: person.claims.identity.clone(),
            participant_sid: person.sid.clone(),
            ..Default::default()
        };
        stamped.extend(stamp.encode_to_vec());
        let room = person.claims.room.clone();
        let named = &packet.destination_identities;
        for (other, listener) in &mut self.people {
            let is_meant = named.is_empty() || named.contains(&listener.claims.identity);
            // Whoever is still on the way gets nothing, then or later.
            if *other != id && listener.claims.room == room && is_meant && listener.state == ACTIVE {
                listener.deliver(label, &stamped);
            }
        }
    }

    pub(super) fn tell_speakers(&mut self, now: Instant) {
        let mut changed: BTreeMap<String, Vec<SpeakerInfo>> = BTreeMap::new();
        for person in self.people.values_mut() {
            let eighths = person.meter.eighths(now);
            if eighths != std::mem::replace(&mut person.meter.told, eighths) {
                let speaker = speaker(&person.sid, eighths);
                changed.entry(person.claims.room.clone()).or_default().push(speaker);
            }
        }
        for (room, mut speakers) in changed {
            speakers.sort_by(|one, other| other.level.total_cmp(&one.level));
            for person in self.people.values().filter(|person| person.claims.room == room) {
                let is_told = |speaker: &&SpeakerInfo| speaker.sid == person.sid || person.heard.contains(&speaker.sid);
                let speakers: Vec<_> = speakers.iter().filter(is_told).cloned().collect();
                if !speakers.is_empty() {
                    person.send(ServerMessage::SpeakersChanged(SpeakersChanged { speakers }));
                }
            }
        }
    }

    /// Tells a participant of those whom it has begun to hear and who speak, and that those whom it hears no more do not.
    pub(super) fn tell_speakers_of_heard(&mut self, id: u64) {
        let speaking = self.people.values().filter(|person| person.meter.told > 0);
        let speaking: BTreeMap<String, u8> = speaking.map(|person| (person.sid.clone(), person.meter.told)).collect();
        let Some(person) = self.people.get_mut(&id) else {
            return;
        };
        let now = person.subscriber.as_ref().map(Link::publishers).unwrap_or_default();
        let begun = now
            .difference(&person.heard)
            .filter_map(|sid| Some((sid, *speaking.get(sid)?)));
        let ended = person.heard.difference(&now).map(|sid| (sid, 0));
        let speakers: Vec<_> = begun.chain(ended).map(|(sid, eighths)| speaker(sid, eighths)).collect();
        person.heard = now;
        if !speakers.is_empty() {
            person.send(ServerMessage::SpeakersChanged(SpeakersChanged { speakers }));
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
            if let Some(link) = self.people.get_mut(&id).and_then(|person| person.link(target)) {
                link.handle_datagram(source, contents, now);
            }
            return;
        }
        for person in self.people.values_mut() {
            if person
                .links()
                .any(|(_, link)| link.handle_datagram(source, contents, now))
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
