//! Resumes on a new WebSocket.

use super::super::wire::{ClientConfiguration, ReconnectResponse};
use super::*;
use crate::limits::ROOM_HELD_REQUESTS_MAX;

fn reconnect() -> ServerMessage {
    ServerMessage::Reconnect(ReconnectResponse::default())
}

fn own() -> ParticipantInfo {
    ParticipantInfo {
        sid: "PA_own".into(),
        identity: "Agent-1".into(),
        ..ParticipantInfo::default()
    }
}

/// A client that has published and lost its socket.
fn lost() -> Client {
    let mut client = Client::joined_with([participant_info("PA_ann1", "ann")]);
    client.signal.add_track("bot-audio", "bot-audio");
    client.receive(ServerMessage::TrackPublished(TrackPublishedResponse {
        cid: "bot-audio".into(),
        track: Some(track("TR_own", TrackType::Audio)),
    }));
    client.signal.suspend();
    client.outputs();
    client
}

fn resuming() -> Client {
    let mut client = lost();
    assert!(client.signal.can_resume());
    client.signal.resume(client.now);
    client
}

fn request(output: &SignalOutput) -> Option<SignalRequestKind> {
    match output {
        SignalOutput::Send(bytes) => SignalRequest::decode(&bytes[..]).expect("a request").message,
        _ => None,
    }
}

/// Before the server has published the track, or has let the client in, there is nothing to resume.
#[test]
fn resumes_only_what_was_published() {
    let mut client = Client::joined_with([]);
    assert!(!client.signal.can_resume());
    client.signal.suspend();
    assert!(!client.signal.can_resume());
    let mut client = Client::new();
    client.signal.suspend();
    assert!(!client.signal.can_resume());
    assert_eq!(client.due_ms(), None);
}

/// Requests wait for the resume and follow the state; descriptions of the old socket do not.
#[test]
fn requests_wait_for_the_resume() {
    let mut client = lost();
    client.signal.answer("v=0".into(), 3);
    client.signal.trickle(SignalTarget::Publisher, "candidate:1");
    client.signal.add_track("more", "more");
    assert_eq!(client.outputs(), []);
    assert_eq!(client.at(3_600_000), [], "there is no socket that could fall silent");
    client.signal.resume(client.now);
    assert_eq!(client.receive(update([own()])), [], "nothing precedes the answer");
    let outputs = client.receive(reconnect());
    assert!(
        matches!(request(&outputs[0]), Some(SignalRequestKind::SyncState(_))),
        "{outputs:?}"
    );
    assert_eq!(outputs[1], SignalOutput::Resumed(ServerOffers::default()));
    assert!(matches!(request(&outputs[2]), Some(SignalRequestKind::AddTrack(_))));
    assert_eq!(outputs.len(), 3);
    let mut client = lost();
    for _ in 0..2 * ROOM_HELD_REQUESTS_MAX {
        client.signal.add_track("more", "more");
    }
    client.signal.resume(client.now);
    assert_eq!(client.receive(reconnect()).len(), 2 + ROOM_HELD_REQUESTS_MAX);
}

/// Pings continue with the resume, and a server that does not answer it times out.
#[test]
fn a_silent_server_ends_the_resume() {
    let mut client = resuming();
    assert_eq!(client.at(14_999), []);
    assert_eq!(client.at(15_000), [SignalOutput::PingTimeout]);
    assert!(client.signal.can_resume(), "again");
    let mut client = resuming();
    client.receive(reconnect());
    assert_eq!(client.at(5_000), [ping(5_000, 0)]);
}

/// A new join, or a leave, in answer to a resume.
#[test]
fn the_server_may_refuse() {
    let mut client = resuming();
    let outputs = client.receive(ServerMessage::Join(Box::new(join([]))));
    assert_eq!(outputs, [SignalOutput::NotResumed]);
    let mut client = resuming();
    let outputs = client.receive(ServerMessage::Leave(LeaveRequest {
        reason: 6,
        action: RECONNECT,
        ..LeaveRequest::default()
    }));
    let action = LeaveAction::Reconnect;
    assert_eq!(outputs, [SignalOutput::Leave { reason: 6, action }]);
    assert!(!client.signal.can_resume());
}

/// The list that includes ourselves is complete; an earlier one names those that left.
#[test]
fn participants_that_are_not_listed_have_left() {
    let mut client = Client::joined_with([participant_info("PA_ann1", "ann"), participant_info("PA_bob1", "bob")]);
    client.signal.own_track = Some("TR_own".into());
    client.receive(ServerMessage::SpeakersChanged(SpeakersChanged {
        speakers: vec![SpeakerInfo {
            sid: "PA_ann1".into(),
            active: true,
            ..SpeakerInfo::default()
        }],
    }));
    client.signal.resume(client.now);
    let outputs = client.receive(reconnect());
    assert!(outputs.contains(&speaking("ann", false)), "it is not known any more");
    assert_eq!(client.receive(update([])), []);
    assert_eq!(
        client.receive(update([own(), participant_info("PA_ann1", "ann")])),
        [left("bob")]
    );
    assert_eq!(client.receive(update([own()])), [], "later updates name changes alone");
    assert_eq!(client.signal.callers(), 1);
}

/// TURN servers with their credentials are taken from the join and from the answer to a resume.
#[test]
fn reads_turn_servers() {
    let servers = [
        ("turn:relay.example:3478?transport=udp", "user", "canary"),
        ("turns:relay.example:443?transport=tcp", "user", "canary"),
        ("stun:stun.example", "", ""),
        ("turn:open.example", "", ""),
        ("nonsense", "user", "canary"),
    ];
    let servers = servers.map(|(url, username, credential)| RoomIceServer {
        urls: vec![url.into()],
        username: username.into(),
        credential: credential.into(),
    });
    let force = |value| Some(ClientConfiguration { force_relay: value });
    let offers = ServerOffers::new(&servers, force(2));
    let urls: Vec<&str> = offers.relays.iter().map(|server| server.url.as_str()).collect();
    assert_eq!(
        urls,
        [
            "turn:relay.example:3478?transport=udp",
            "turns:relay.example:443?transport=tcp"
        ]
    );
    assert!(offers.force_relay && !format!("{offers:?}").contains("canary"));
    for none in [force(0), force(1), None] {
        assert!(!ServerOffers::new(&servers, none).force_relay);
    }
}
