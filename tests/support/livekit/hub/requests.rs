//! Requests of a participant's WebSocket: tracks, descriptions, candidates, subscriptions.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use edge_runner_proto::livekit::wire::{
    AddTrackRequest, Pong, RequestResponse, ServerMessage, SessionDescription, SignalRequestKind, SignalTarget,
    TrackInfo, TrackPublishedResponse, TrickleRequest,
};
use serde_json::{Value, json};

use super::super::transport;
use super::participant::{Participant, Track};
use super::{CLIENT_INITIATED, DISCONNECT, Hub, sid};

/// Kinds of tracks.
const AUDIO: i32 = 0;
const VIDEO: i32 = 1;

impl Hub {
    pub(super) fn request(&mut self, id: u64, request: SignalRequestKind, now: Instant) {
        let Some(participant) = self.participants.get_mut(&id) else {
            return;
        };
        match request {
            SignalRequestKind::Ping(ping) => participant.send(ServerMessage::Pong(Pong {
                last_ping_timestamp: ping.timestamp,
                timestamp: unix_ms(),
            })),
            // Attributes are not kept. A published server answers in any case.
            SignalRequestKind::UpdateMetadata(update) => participant.send(ServerMessage::Request(RequestResponse {
                request_id: update.request_id,
                update_metadata: Some(update),
                ..RequestResponse::default()
            })),
            SignalRequestKind::AddTrack(subscribed) => self.add_track(id, subscribed),
            SignalRequestKind::Offer(offer) => {
                if participant.publisher.is_none() {
                    let transport = self.transport(id, SignalTarget::Publisher, now);
                    self.participants.get_mut(&id).expect("it was just there").publisher = transport;
                }
                self.publish(id, &offer);
            }
            SignalRequestKind::Answer(answer) => {
                if let Some(Err(error)) = participant
                    .subscriber
                    .as_mut()
                    .map(|transport| transport.handle_answer(&answer))
                {
                    log::warn!("{}: its answer: {error}\n{}", self.name(id), answer.sdp);
                }
                self.send_speakers_of_received(id);
                self.offer(id);
            }
            SignalRequestKind::Trickle(trickle) => {
                let init: Value = serde_json::from_str(&trickle.candidate_init).unwrap_or_default();
                let text = init["candidate"].as_str().unwrap_or_default();
                let target = SignalTarget::try_from(trickle.target).unwrap_or(SignalTarget::Publisher);
                if let Some(transport) = participant.transport(target).filter(|_| !text.is_empty())
                    && let Err(error) = transport.add_remote_candidate(text)
                {
                    log::warn!("{}: the candidate {text}: {error}", self.name(id));
                }
            }
            SignalRequestKind::Mute(mute) => {
                if let Some(track) = participant.tracks.iter_mut().find(|track| track.info.sid == mute.sid) {
                    track.info.muted = mute.muted;
                    self.broadcast(id);
                }
            }
            SignalRequestKind::Subscription(subscription) => {
                for track in subscription.track_sids {
                    if subscription.subscribe {
                        participant.subscribed.insert(track);
                    } else {
                        participant.subscribed.remove(&track);
                    }
                }
                self.offer(id);
            }
            // This server resumes no one.
            SignalRequestKind::SyncState(_) => {}
            SignalRequestKind::Leave(_) => self.remove(id, CLIENT_INITIATED, Some(DISCONNECT), now),
        }
    }

    pub(super) fn add_track(&mut self, id: u64, subscribed: AddTrackRequest) {
        let Some(participant) = self.participants.get_mut(&id) else {
            return;
        };
        if !participant.claims.can_publish {
            // 2 is "not allowed".
            participant.send(ServerMessage::Request(RequestResponse {
                reason: 2,
                ..Default::default()
            }));
            return;
        }
        let audio = subscribed.kind == AUDIO;
        let letter = |source| ['U', 'C', 'M', 'S', 's'].get(source as usize).copied().unwrap_or('U');
        let info = TrackInfo {
            sid: sid(&format!(
                "TR_{}{}",
                if audio { 'A' } else { 'V' },
                letter(subscribed.source)
            )),
            kind: subscribed.kind,
            name: subscribed.name,
            muted: subscribed.muted,
            source: subscribed.source,
            mime_type: if audio && subscribed.disable_red {
                "audio/opus"
            } else if audio {
                "audio/red"
            } else {
                ""
            }
            .into(),
            ..Default::default()
        };
        participant.send(ServerMessage::TrackPublished(TrackPublishedResponse {
            cid: subscribed.cid.clone(),
            track: Some(info.clone()),
        }));
        participant.tracks.push(Track {
            info,
            cid: subscribed.cid,
            live: false,
            was_received: false,
        });
    }

    /// Answers an offer of the publisher, and matches its sections with tracks.
    pub(super) fn publish(&mut self, id: u64, offer: &SessionDescription) {
        let Some(participant) = self.participants.get_mut(&id) else {
            return;
        };
        let Some(transport) = &mut participant.publisher else {
            return;
        };
        let answer = match transport.handle_offer(offer) {
            Ok(answer) => answer,
            Err(error) => {
                log::warn!("{}: its offer: {error}\n{}", participant.claims.identity, offer.sdp);
                return;
            }
        };
        let candidates = transport.candidates();
        let mut sections = Vec::new();
        for (kind, name) in [(AUDIO, "audio"), (VIDEO, "video")] {
            let found = transport::tracks(&offer.sdp, name).into_iter();
            sections.extend(found.map(|(mid, cid)| (kind, mid, cid)));
        }
        // An audio track without a section is unpublished. Video is refused, so its section soon
        // disappears.
        let has_section = |mid: &str| sections.iter().any(|(_, other, _)| other == mid);
        let is_there =
            |track: &Track| track.info.kind == VIDEO || track.info.mid.is_empty() || has_section(&track.info.mid);
        let before = participant.tracks.len();
        participant.tracks.retain(is_there);
        let mut changed = participant.tracks.len() != before;
        for (kind, mid, cid) in sections {
            let tracks = &mut participant.tracks;
            let pending = |track: &Track| track.info.mid.is_empty() && track.info.kind == kind;
            if tracks.iter().any(|track| track.info.mid == mid) {
                continue;
            }
            let named = |track: &Track| pending(track) && Some(&track.cid) == cid.as_ref();
            let found = tracks.iter().position(named);
            if let Some(at) = found.or_else(|| tracks.iter().position(pending)) {
                tracks[at].info.mid = mid;
                // Video is refused in the answer and announced all the same, so that clients have
                // to choose.
                tracks[at].live = kind == VIDEO;
                changed |= kind == VIDEO;
            }
        }
        participant.send(ServerMessage::Answer(answer));
        trickle(participant, candidates, SignalTarget::Publisher);
        if changed {
            self.broadcast(id);
            self.offer_others(id);
        }
    }

    pub(super) fn subscribe_to_all(&mut self, id: u64) {
        let Some(participant) = self
            .participants
            .get(&id)
            .filter(|participant| participant.auto_subscribe)
        else {
            return;
        };
        let others = self
            .others(id, &participant.claims.room)
            .flat_map(|other| &other.tracks);
        let sids: Vec<String> = others
            .filter(|track| track.live)
            .map(|track| track.info.sid.clone())
            .collect();
        self.participants
            .get_mut(&id)
            .expect("it was just there")
            .subscribed
            .extend(sids);
    }

    /// Sends an offer to a subscriber if its tracks have changed.
    pub(super) fn offer(&mut self, id: u64) {
        let Some(participant) = self.participants.get(&id) else {
            return;
        };
        let mut subscribed = BTreeMap::new();
        for other in self.others(id, &participant.claims.room) {
            for track in other.tracks.iter().filter(|track| {
                track.live && track.info.kind == AUDIO && participant.subscribed.contains(&track.info.sid)
            }) {
                subscribed.insert(track.info.sid.clone(), other.sid.clone());
            }
        }
        let participant = self.participants.get_mut(&id).expect("it was just there");
        let Some(transport) = &mut participant.subscriber else {
            return;
        };
        let Some(offer) = transport.offer(&subscribed) else {
            return;
        };
        let candidates = transport.candidates();
        participant.send(ServerMessage::Offer(offer));
        trickle(participant, candidates, SignalTarget::Subscriber);
    }

    pub(super) fn offer_others(&mut self, id: u64) {
        for other in self
            .participants
            .keys()
            .copied()
            .filter(|other| *other != id)
            .collect::<Vec<_>>()
        {
            self.offer(other);
        }
    }
}

fn trickle(participant: &Participant, candidates: Vec<String>, target: SignalTarget) {
    let count = candidates.len();
    for (at, candidate) in candidates.into_iter().enumerate() {
        let init = json!({"candidate": candidate, "sdpMid": "", "sdpMLineIndex": 0, "usernameFragment": null});
        participant.send(ServerMessage::Trickle(TrickleRequest {
            candidate_init: init.to_string(),
            target: target.into(),
            last: at + 1 == count,
        }));
    }
}

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    since.as_millis() as i64
}
