//! Rooms that cannot be entered, and servers that are none.

use super::super::*;
use super::house::{Door, Guest, House, secs};
use super::*;
use crate::livekit::wire::{RequestResponse, ServerMessage, SessionDescription};
use crate::webrtc::connection::sfu::tests::world::ms;

/// A refusal that no second try will change is told at once, in words that name what to look at; one that passes is tried
/// three times.
#[test]
fn a_refusal_is_told_in_words_that_help() {
    for (status, tries, words) in [
        (401, 1, "MEDIAROOM_API_SECRET"),
        (400, 1, "MEDIAROOM_ROOM_NAME"),
        (404, 1, "MEDIAROOM_URL"),
        (200, 1, "no media-room server"),
        (302, 1, "302"),
        (429, 3, "429"),
        (500, 3, "500"),
        (503, 3, "503"),
    ] {
        let mut house = House::new();
        house.door = Door::Refuses(status);
        house.enter();
        house.run(secs(10));
        assert_eq!(house.dials.len(), tries, "{status}");
        let why = house.join_failed().expect("the bot is told");
        assert!(why.contains(words), "{status}: {why}");
        assert_eq!(house.left(), Some(LeaveReason::NeverConnected));
        assert_eq!(house.events.len(), 2);
        assert!(house.gone.is_some());
    }
}

/// Three tries, a while apart; one that succeeds is a join like any other.
#[test]
fn a_server_that_stumbles_is_tried_again() {
    let mut house = House::new();
    house.door = Door::Unreachable;
    house.enter();
    house.run(secs(10));
    let at: Vec<Duration> = house.dials.iter().map(|(at, _)| *at).collect();
    assert_eq!(
        at,
        [ms(0), ROOM_JOIN_PAUSES[0], ROOM_JOIN_PAUSES[0] + ROOM_JOIN_PAUSES[1]]
    );
    assert!(
        house
            .join_failed()
            .expect("the bot is told")
            .contains("connection refused")
    );

    let mut house = House::new();
    house.door = Door::Unreachable;
    house.guests.push(Guest::caller("PA_ann1", "ann"));
    house.enter();
    house.run(ms(600));
    house.door = Door::Open;
    house.run(secs(3));
    assert!(house.has(&SessionEvent::Joined) && house.join_failed().is_none());
    assert_eq!(house.dials.len(), 3);
}

/// A server that opens its door and says nothing is given up, and so is one whose media does not flow, or that does not take
/// the track.
#[test]
fn a_server_that_does_not_go_on_is_given_up() {
    let mut house = House::new();
    house.door = Door::Mute;
    house.enter();
    house.run(ROOM_PING_TIMEOUT * 3 + secs(5));
    assert_eq!(house.dials.len(), 3);
    assert!(house.join_failed().expect("the bot is told").contains("silent"));

    let mut house = House::new();
    house.network = false;
    house.enter();
    house.run(CONNECT_WITHIN + ms(1));
    assert_eq!(house.dials.len(), 1, "no try will help");
    assert!(house.has_left_politely(), "no ghost stays in the room");
    assert!(house.join_failed().expect("the bot is told").contains("UDP"));
    assert_eq!(house.left(), Some(LeaveReason::NeverConnected));

    let mut house = House::new();
    house.takes_track = false;
    house.enter();
    house.run(CONNECT_WITHIN * 3 + secs(5));
    assert!(house.join_failed().expect("the bot is told").contains("track"));
}

/// A bot that may not publish is told so, and so is one that is put out before it was in.
#[test]
fn a_bot_that_is_not_wanted_is_told() {
    let mut house = House::new();
    house.takes_track = false;
    house.enter();
    house.run(ms(100));
    house.say(ServerMessage::Request(RequestResponse {
        request_id: 0,
        reason: 2,
        message: "not allowed".into(),
        ..RequestResponse::default()
    }));
    assert!(house.join_failed().expect("the bot is told").contains("not allowed"));
    assert_eq!(house.left(), Some(LeaveReason::NeverConnected));
    house.run(ROOM_CLOSE_WITHIN);
    assert!(house.gone.is_some() && house.has_left_politely());

    let mut house = House::new();
    house.takes_track = false;
    house.enter();
    house.run(ms(10));
    house.leave(2, 0);
    house.run(secs(1));
    assert!(house.join_failed().expect("the bot is told").contains("same identity"));
    assert_eq!(house.left(), Some(LeaveReason::Replaced));
}

/// What is no description.
const BAD: [&str; 4] = ["", "v=0", "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n", "\u{0}\u{ff}"];

/// A server whose offer cannot be answered waits for the answer in vain: the stay is made anew at once, and given up when that
/// does not help, however long each stay lasts.
#[test]
fn an_offer_that_cannot_be_answered_ends_the_stay() {
    let mut house = House::with_caller();
    for (stay, sdp) in (1..).zip(BAD) {
        house.run(ROOM_SETTLED + secs(5));
        assert_eq!((house.dials.len(), house.left()), (stay, None));
        house.say(ServerMessage::Offer(SessionDescription {
            kind: "offer".into(),
            sdp: sdp.into(),
            id: 7,
            ..SessionDescription::default()
        }));
        assert!(!house.session.is_live());
    }
    assert_eq!(BAD.len(), ROOM_MISUNDERSTOOD_MAX as usize + 1);
    assert_eq!(house.left(), Some(LeaveReason::Failed));
    house.run(ROOM_CLOSE_WITHIN);
    assert!(house.gone.is_some() && house.has_left_politely());
}

/// A server closes rooms that only bots are in: nobody was there, so nobody left.
#[test]
fn a_room_that_is_closed_before_anybody_came_was_never_joined() {
    for reason in [4, 5, 10] {
        let mut house = House::new();
        house.guests.push(Guest::agent("PA_bot1", "bot"));
        house.enter();
        house.run(secs(2));
        house.leave(reason, 0);
        assert_eq!(house.left(), Some(LeaveReason::NeverConnected));
    }
}

/// Bytes that are no message do not end a talk, whatever they are, nor do answers to nothing.
#[test]
fn hostile_messages_do_no_harm() {
    let mut house = House::with_caller();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for length in 0..300_usize {
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            })
            .collect();
        house.tell_bytes(&bytes);
        house.with(|_, _| ());
    }
    for sdp in BAD {
        for id in [0, 2, u32::MAX] {
            house.say(ServerMessage::Answer(SessionDescription {
                kind: "answer".into(),
                sdp: sdp.into(),
                id,
                ..SessionDescription::default()
            }));
        }
    }
    house.run(secs(20));
    assert_eq!(house.left(), None);
    assert_eq!(house.dials.len(), 1);
}

/// Instead of a welcome, garbage: no room.
#[test]
fn garbage_at_the_door_is_no_welcome() {
    let mut house = House::new();
    house.door = Door::Mute;
    house.enter();
    house.tell_bytes(&[0xff; 30]);
    house.with(|_, _| ());
    assert!(house.join_failed().expect("the bot is told").contains("no message"));
    assert_eq!(house.left(), Some(LeaveReason::NeverConnected));
    assert!(house.has_left_politely(), "the server may have understood us");
}
