//! Rooms that cannot be entered, and servers that are none.

use super::super::*;
use super::house::{Door, Guest, House, secs};
use super::*;
use crate::proto::mediaroom::peer::tests::world::ms;
use crate::proto::mediaroom::wire::{RequestResponse, Response, SessionDescription};

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
    assert!(house.has(&Event::Joined) && house.join_failed().is_none());
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
    house.say(Response::Request(RequestResponse {
        request_id: 0,
        reason: 2,
        message: "not allowed".into(),
        ..RequestResponse::default()
    }));
    house.run(secs(1));
    // The server may also say nothing that names the request; then it is the time that tells.
    house.run(CONNECT_WITHIN * 3 + secs(5));
    assert!(house.join_failed().is_some());
    assert_eq!(house.left(), Some(LeaveReason::NeverConnected));

    let mut house = House::new();
    house.takes_track = false;
    house.enter();
    house.run(ms(10));
    house.leave(2, 0);
    house.run(secs(1));
    assert!(house.join_failed().expect("the bot is told").contains("same identity"));
    assert_eq!(house.left(), Some(LeaveReason::Replaced));
}

/// Bytes that are no message do not end a talk, whatever they are; descriptions that are none do not silence those who are
/// heard.
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
    for sdp in ["", "v=0", "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n", "\u{0}\u{ff}"] {
        for id in [0, 2, u32::MAX] {
            let description = |kind: &str| SessionDescription {
                kind: kind.into(),
                sdp: sdp.into(),
                id,
                ..SessionDescription::default()
            };
            house.say(Response::Offer(description("offer")));
            house.say(Response::Answer(description("answer")));
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
}
