//! The signalling client against messages of a server, as bytes. Source: `docs/spec/livekit.md` 3
//! to 5.

use super::wire::{
    ParticipantInfo, ParticipantPermission, ParticipantUpdate, RoomIceServer, RoomInfo, RoomUpdate, SignalResponse,
    SpeakerInfo, SpeakersChanged, TrackInfo, TrackUnpublishedResponse,
};
use super::*;
use crate::limits::{
    ROOM_ATTRIBUTES_BYTES_MAX, ROOM_MESSAGE_BYTES_MAX, ROOM_MESSAGE_PARTS_MAX, ROOM_PARTICIPANTS_MAX, ROOM_TRACKS_MAX,
};
use crate::participant::Participant;

mod join;
mod leaving;
mod negotiation;
mod participants;
mod pings;
mod publishing;
mod rejected;
mod resume;

/// The time of the first ping, in Unix milliseconds.
const UNIX_MS: u64 = 1_795_252_753_000;

struct Client {
    signal: SignalClient,
    start: Instant,
    now: Instant,
}

fn bytes(message: ServerMessage) -> Bytes {
    SignalResponse { message: Some(message) }.encode_to_vec().into()
}

fn track(sid: &str, kind: TrackType) -> TrackInfo {
    TrackInfo {
        sid: sid.into(),
        kind: kind as i32,
        ..TrackInfo::default()
    }
}

/// A participant with one microphone, `TR_` and the identity.
fn participant_info(sid: &str, identity: &str) -> ParticipantInfo {
    ParticipantInfo {
        sid: sid.into(),
        identity: identity.into(),
        state: 2,
        tracks: vec![track(&format!("TR_{identity}"), TrackType::Audio)],
        name: format!("{identity}!"),
        version: 1,
        ..ParticipantInfo::default()
    }
}

fn departed(sid: &str, identity: &str) -> ParticipantInfo {
    ParticipantInfo {
        state: 3,
        version: 9,
        ..participant_info(sid, identity)
    }
}

fn update(participants: impl Into<Vec<ParticipantInfo>>) -> ServerMessage {
    let participants = participants.into();
    ServerMessage::Update(ParticipantUpdate { participants })
}

fn join(others: impl Into<Vec<ParticipantInfo>>) -> JoinResponse {
    JoinResponse {
        room: Some(RoomInfo {
            name: "room-1".into(),
            ..RoomInfo::default()
        }),
        participant: Some(ParticipantInfo {
            sid: "PA_own".into(),
            identity: "Agent-1".into(),
            ..ParticipantInfo::default()
        }),
        other_participants: others.into(),
        server_version: "1.13.5".into(),
        subscriber_primary: true,
        ping_timeout: 15,
        ping_interval: 5,
        fast_publish: true,
        ..JoinResponse::default()
    }
}

fn participant(identity: &str, is_agent: bool) -> Participant {
    Participant {
        identity: identity.into(),
        name: format!("{identity}!"),
        is_agent,
        ..Participant::default()
    }
}

fn joined(identity: &str) -> SignalOutput {
    SignalOutput::Change(RosterChange::Joined(participant(identity, false)))
}

fn left(identity: &str) -> SignalOutput {
    SignalOutput::Change(RosterChange::Left(participant(identity, false)))
}

fn speaking(identity: &str, speaking: bool) -> SignalOutput {
    SignalOutput::Change(RosterChange::Speaking {
        identity: identity.into(),
        speaking,
    })
}

fn sent(message: SignalRequestKind) -> SignalOutput {
    SignalOutput::Send(SignalRequest { message: Some(message) }.encode_to_vec())
}

fn subscribed(sids: &[&str]) -> SignalOutput {
    sent(SignalRequestKind::Subscription(UpdateSubscription {
        track_sids: sids.iter().map(|sid| (*sid).to_owned()).collect(),
        subscribe: true,
    }))
}

fn candidate(target: SignalTarget, candidate: &str) -> SignalOutput {
    SignalOutput::Candidate {
        target,
        candidate: candidate.into(),
    }
}

fn trickled(target: SignalTarget, init: &str) -> ServerMessage {
    ServerMessage::Trickle(TrickleRequest {
        candidate_init: init.into(),
        target: target as i32,
        last: false,
    })
}

fn offer(id: u32) -> ServerMessage {
    ServerMessage::Offer(SessionDescription {
        kind: "offer".into(),
        sdp: format!("v={id}"),
        id,
        mid_to_track_id: [("0".to_owned(), "TR_ann".to_owned())].into(),
    })
}

fn answer(id: u32) -> ServerMessage {
    ServerMessage::Answer(SessionDescription {
        kind: "answer".into(),
        sdp: format!("v={id}"),
        id,
        ..SessionDescription::default()
    })
}

impl Client {
    fn new() -> Client {
        let start = Instant::now();
        Client {
            signal: SignalClient::new(RoomRole::Bot, start),
            start,
            now: start,
        }
    }

    /// A client that has joined, without the outputs of the join.
    fn joined_with(others: impl Into<Vec<ParticipantInfo>>) -> Client {
        let mut client = Client::new();
        let outputs = client.receive(ServerMessage::Join(Box::new(join(others))));
        assert!(matches!(outputs[0], SignalOutput::Joined(_)));
        client
    }

    fn outputs(&mut self) -> Vec<SignalOutput> {
        std::iter::from_fn(|| self.signal.poll_output()).collect()
    }

    fn receive(&mut self, message: ServerMessage) -> Vec<SignalOutput> {
        self.signal.handle_message(bytes(message), self.now).expect("a message");
        self.outputs()
    }

    fn receive_invalid(&mut self, bytes: impl Into<Bytes>) -> String {
        let refused = self.signal.handle_message(bytes.into(), self.now).expect_err("refused");
        assert_eq!(self.outputs(), []);
        refused.to_string()
    }

    /// Advances the clock to this many milliseconds after the start.
    fn at(&mut self, ms: u64) -> Vec<SignalOutput> {
        self.now = self.start + Duration::from_millis(ms);
        self.signal.handle_timeout(self.now, UNIX_MS + ms);
        self.outputs()
    }

    fn due_ms(&self) -> Option<u128> {
        self.signal
            .poll_timeout()
            .map(|due| due.duration_since(self.start).as_millis())
    }
}

fn ping(ms: u64, rtt: i64) -> SignalOutput {
    sent(SignalRequestKind::Ping(Ping {
        timestamp: (UNIX_MS + ms) as i64,
        rtt,
    }))
}

fn pong(ms: u64) -> ServerMessage {
    ServerMessage::Pong(Pong {
        last_ping_timestamp: (UNIX_MS + ms) as i64,
        timestamp: 1,
    })
}

// ---- join
