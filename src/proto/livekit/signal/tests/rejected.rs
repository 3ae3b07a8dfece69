//! Messages that are unknown, invalid or too large.

use super::*;

/// Messages of other versions: a room move (24), an old pong (18), an unknown number, an empty
/// message, and one with an unknown field.
#[test]
fn ignores_unknown_messages() {
    let mut client = Client::joined_with([participant_info("PA_a", "ann")]);
    for text in [
        &b""[..],
        b"\xc2\x01\x02\x12\x00",
        b"\x90\x01\x05",
        b"\xfa\x7f\x01\x00",
        b"\x2a\x05\x9a\x06\x02hi",
    ] {
        assert_eq!(
            client.signal.handle_message(Bytes::copy_from_slice(text), client.now),
            Ok(())
        );
        assert_eq!(client.outputs(), []);
    }
    assert_eq!(client.signal.callers(), 1);
}

// ---- hostile servers

#[test]
fn rejects_invalid_bytes_and_continues() {
    let mut client = Client::joined_with([]);
    let whole = bytes(update([participant_info("PA_a", "ann")]));
    for text in [
        &b"\x2a"[..],
        b"\x2a\x05\x0a",
        b"\x2a\x02\x0a\x7f",
        b"\x2b\x2c",
        b"\x28\x01",
        b"\x00\x00",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x82\x01\x02\xff\xfe",
        &whole[..whole.len() - 1],
    ] {
        let words = client.receive_invalid(Bytes::copy_from_slice(text));
        assert_eq!(words, "bytes that are not a LiveKit message", "{text:?}");
    }
    assert_eq!(client.receive(update([participant_info("PA_a", "ann")])).len(), 2);
}

#[test]
fn rejects_a_message_above_the_cap() {
    let long = |bytes: usize| {
        ServerMessage::Offer(SessionDescription {
            sdp: "x".repeat(bytes),
            ..SessionDescription::default()
        })
    };
    // Two tags, and two lengths just below the cap.
    let around = bytes(long(ROOM_MESSAGE_BYTES_MAX - 16)).len() - (ROOM_MESSAGE_BYTES_MAX - 16);
    let mut client = Client::joined_with([]);
    let longest = bytes(long(ROOM_MESSAGE_BYTES_MAX - around));
    let past = bytes(long(ROOM_MESSAGE_BYTES_MAX - around + 1));
    assert_eq!(past.len(), longest.len() + 1);
    assert_eq!(client.signal.handle_message(longest, client.now), Ok(()));
    assert_eq!(client.outputs().len(), 1);
    let words = client.receive_invalid(past);
    assert!(words.contains("2097153 bytes"), "{words}");
}

/// Two bytes must not cost hundreds: empty participants, tracks, speakers, servers and map entries,
/// in every position.
#[test]
fn rejects_too_many_parts_before_decoding() {
    let many = ROOM_MESSAGE_PARTS_MAX;
    let infos = |count: usize| vec![ParticipantInfo::default(); count];
    let tracked = |count: usize| ParticipantInfo {
        tracks: vec![TrackInfo::default(); count],
        ..ParticipantInfo::default()
    };
    let servers = |count: usize| vec![RoomIceServer::default(); count];
    let joined = |participant: ParticipantInfo, others: Vec<ParticipantInfo>, ice_servers: Vec<RoomIceServer>| {
        let join = JoinResponse {
            participant: Some(participant),
            other_participants: others,
            ice_servers,
            ..JoinResponse::default()
        };
        bytes(ServerMessage::Join(Box::new(join)))
    };
    let entries = (0..many).map(|i| (i.to_string(), String::new())).collect();
    let urls = RoomIceServer {
        urls: vec![String::new(); many],
        ..RoomIceServer::default()
    };
    for hostile in [
        bytes(update(infos(many))),
        bytes(update([tracked(many)])),
        joined(tracked(many), vec![], vec![]),
        joined(ParticipantInfo::default(), infos(many), vec![]),
        joined(ParticipantInfo::default(), vec![tracked(many)], vec![]),
        joined(ParticipantInfo::default(), vec![], servers(many)),
        joined(ParticipantInfo::default(), vec![], vec![urls]),
        bytes(ServerMessage::Reconnect(wire::ReconnectResponse {
            ice_servers: servers(many),
            ..wire::ReconnectResponse::default()
        })),
        bytes(ServerMessage::SpeakersChanged(SpeakersChanged {
            speakers: vec![SpeakerInfo::default(); many],
        })),
        bytes(ServerMessage::Offer(SessionDescription {
            mid_to_track_id: entries,
            ..SessionDescription::default()
        })),
    ] {
        let mut client = Client::new();
        let words = client.receive_invalid(hostile);
        assert!(words.contains("more than 16384"), "{words}");
    }
    // At the cap, with the update itself as one part.
    let mut client = Client::joined_with([]);
    assert_eq!(client.receive(update(infos(many - 1))), []);
    // A repeated update in one message merges with the first.
    let half = bytes(update(infos(many / 2)));
    assert!(
        client
            .receive_invalid([half.clone(), half].concat())
            .contains("more than")
    );
}

#[test]
fn caps_participants_and_tracks() {
    let mut client = Client::joined_with([]);
    let numbered = |i: usize| participant_info(&format!("PA_{i}"), &format!("p{i}"));
    let crowd: Vec<ParticipantInfo> = (0..ROOM_PARTICIPANTS_MAX + 10).map(numbered).collect();
    client.receive(update(crowd));
    assert_eq!(client.signal.callers(), ROOM_PARTICIPANTS_MAX);
    // A freed entry is reused.
    client.receive(update([departed("PA_0", "p0")]));
    let late = numbered(ROOM_PARTICIPANTS_MAX + 1);
    assert_eq!(client.receive(update([late])).len(), 2);
    assert_eq!(client.signal.callers(), ROOM_PARTICIPANTS_MAX);

    let mut client = Client::joined_with([]);
    let tracks: Vec<TrackInfo> = (0..ROOM_TRACKS_MAX + 10)
        .map(|i| track(&format!("TR_{i}"), TrackType::Audio))
        .collect();
    let loud = ParticipantInfo {
        tracks,
        ..participant_info("PA_a", "ann")
    };
    client.receive(update([loud]));
    let last = ROOM_TRACKS_MAX - 1;
    assert!(client.signal.track_owner(&format!("TR_{last}")).is_some());
    assert!(client.signal.track_owner(&format!("TR_{}", last + 1)).is_none());
}

/// A server whose participants come and go for ever leaves no state behind.
#[test]
fn forgets_departed_participants() {
    let mut client = Client::joined_with([]);
    for i in 0..10_000 {
        let (sid, identity) = (format!("PA_{i}"), format!("p{i}"));
        client.receive(update([participant_info(&sid, &identity)]));
        client.receive(update([departed(&sid, &identity)]));
    }
    let SignalPhase::Joined(roster) = &client.signal.phase else {
        panic!("in the room")
    };
    assert_eq!(roster.known(), [0, 0, 0, crate::limits::ROOM_DEPARTED_MAX]);
}
