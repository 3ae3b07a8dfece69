//! Rooms that cannot be joined, and servers that misbehave.

use super::super::*;
use super::simulation::{DialResult, FakeParticipant, Simulation, secs};
use super::*;
use crate::livekit::wire::{RequestResponse, ServerMessage, SessionDescription};
use crate::webrtc::connection::sfu::tests::rig::ms;

/// A permanent refusal is reported at once, and names what to check. A transient one is tried three
/// times.
#[test]
fn explains_a_refused_join() {
    for (status, tries, words) in [
        (401, 1, "MEDIAROOM_API_SECRET"),
        (400, 1, "MEDIAROOM_ROOM_NAME"),
        (404, 1, "MEDIAROOM_URL"),
        (200, 1, "not a LiveKit server"),
        (302, 1, "302"),
        (429, 3, "429"),
        (500, 3, "500"),
        (503, 3, "503"),
    ] {
        let mut sim = Simulation::new();
        sim.dial_result = DialResult::Refused(status);
        sim.start_audio();
        sim.run(secs(10));
        assert_eq!(sim.dials.len(), tries, "{status}");
        let why = sim.join_failed().expect("the bot gets an error");
        assert!(why.contains(words), "{status}: {why}");
        assert_eq!(sim.end_reason(), Some(LeaveReason::NeverConnected));
        assert_eq!(sim.events.len(), 2);
        assert!(sim.gone.is_some());
    }
}

/// Three attempts with pauses. One that succeeds is a normal join.
#[test]
fn retries_a_failing_server() {
    let mut sim = Simulation::new();
    sim.dial_result = DialResult::Unreachable;
    sim.start_audio();
    sim.run(secs(10));
    let at: Vec<Duration> = sim.dials.iter().map(|(at, _)| *at).collect();
    assert_eq!(
        at,
        [ms(0), ROOM_JOIN_PAUSES[0], ROOM_JOIN_PAUSES[0] + ROOM_JOIN_PAUSES[1]]
    );
    assert!(
        sim.join_failed()
            .expect("the bot gets an error")
            .contains("connection refused")
    );

    let mut sim = Simulation::new();
    sim.dial_result = DialResult::Unreachable;
    sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
    sim.start_audio();
    sim.run(ms(600));
    sim.dial_result = DialResult::Open;
    sim.run(secs(3));
    assert!(sim.has(&SessionEvent::Joined) && sim.join_failed().is_none());
    assert_eq!(sim.dials.len(), 3);
}

/// A server that opens the socket and sends nothing is given up, and so is one without media, or
/// without the published track.
#[test]
fn gives_up_a_stalled_join() {
    let mut sim = Simulation::new();
    sim.dial_result = DialResult::Silent;
    sim.start_audio();
    sim.run(ROOM_PING_TIMEOUT * 3 + secs(5));
    assert_eq!(sim.dials.len(), 3);
    assert!(sim.join_failed().expect("the bot gets an error").contains("silent"));

    let mut sim = Simulation::new();
    sim.network = false;
    sim.start_audio();
    sim.run(CONNECT_WITHIN + ms(1));
    assert_eq!(sim.dials.len(), 1, "no try will help");
    assert!(sim.left_gracefully(), "the bot has left the room");
    assert!(sim.join_failed().expect("the bot gets an error").contains("UDP"));
    assert_eq!(sim.end_reason(), Some(LeaveReason::NeverConnected));

    // The same from a server that takes a while to let the bot in.
    let mut sim = Simulation::new();
    sim.network = false;
    sim.dial_result = DialResult::Silent;
    sim.start_audio();
    sim.run(ms(100));
    sim.send_late_join();
    sim.run(CONNECT_WITHIN + ms(1));
    assert_eq!(sim.dials.len(), 1, "no try will help");
    assert!(sim.join_failed().expect("the bot gets an error").contains("UDP"));

    let mut sim = Simulation::new();
    sim.accepts_track = false;
    sim.start_audio();
    sim.run(CONNECT_WITHIN * 3 + secs(5));
    assert!(sim.join_failed().expect("the bot gets an error").contains("track"));
}

/// A bot that may not publish learns of it, and so does one that is removed before it has joined.
#[test]
fn reports_a_refused_publication() {
    let mut sim = Simulation::new();
    sim.accepts_track = false;
    sim.start_audio();
    sim.run(ms(100));
    sim.send_and_drain(ServerMessage::Request(RequestResponse {
        request_id: 0,
        reason: 2,
        message: "not allowed".into(),
        ..RequestResponse::default()
    }));
    assert!(
        sim.join_failed()
            .expect("the bot gets an error")
            .contains("not allowed")
    );
    assert_eq!(sim.end_reason(), Some(LeaveReason::NeverConnected));
    sim.run(ROOM_CLOSE_WITHIN);
    assert!(sim.gone.is_some() && sim.left_gracefully());

    let mut sim = Simulation::new();
    sim.accepts_track = false;
    sim.start_audio();
    sim.run(ms(10));
    sim.send_leave(2, 0);
    sim.run(secs(1));
    assert!(
        sim.join_failed()
            .expect("the bot gets an error")
            .contains("same identity")
    );
    assert_eq!(sim.end_reason(), Some(LeaveReason::Replaced));
}

/// Not a session description.
const BAD: [&str; 4] = ["", "v=0", "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n", "\u{0}\u{ff}"];

/// A server with an unusable offer would wait for its answer. The session reconnects at once, and
/// gives up if that does not help, however long each connection lasts.
#[test]
fn reconnects_after_an_unusable_offer() {
    let mut sim = Simulation::with_caller();
    for (dials, sdp) in (1..).zip(BAD) {
        sim.run(ROOM_SETTLED + secs(5));
        assert_eq!((sim.dials.len(), sim.end_reason()), (dials, None));
        sim.send_and_drain(ServerMessage::Offer(SessionDescription {
            kind: "offer".into(),
            sdp: sdp.into(),
            id: 7,
            ..SessionDescription::default()
        }));
        assert!(!sim.session.is_live());
    }
    assert_eq!(BAD.len(), ROOM_BAD_DESCRIPTIONS_MAX as usize + 1);
    assert_eq!(sim.end_reason(), Some(LeaveReason::Failed));
    sim.run(ROOM_CLOSE_WITHIN);
    assert!(sim.gone.is_some() && sim.left_gracefully());
}

/// A server closes rooms that contain only bots. There was no caller, so none left.
#[test]
fn a_room_closed_before_any_caller_counts_as_never_connected() {
    for reason in [4, 5, 10] {
        let mut sim = Simulation::new();
        sim.participants.push(FakeParticipant::agent("PA_bot1", "bot"));
        sim.start_audio();
        sim.run(secs(2));
        sim.send_leave(reason, 0);
        assert_eq!(sim.end_reason(), Some(LeaveReason::NeverConnected));
    }
}

/// Invalid messages do not end a session, nor do answers without an offer.
#[test]
fn survives_invalid_messages() {
    let mut sim = Simulation::with_caller();
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
        sim.send_bytes(&bytes);
        sim.with(|_, _| ());
    }
    for sdp in BAD {
        for id in [0, 2, u32::MAX] {
            sim.send_and_drain(ServerMessage::Answer(SessionDescription {
                kind: "answer".into(),
                sdp: sdp.into(),
                id,
                ..SessionDescription::default()
            }));
        }
    }
    sim.run(secs(20));
    assert_eq!(sim.end_reason(), None);
    assert_eq!(sim.dials.len(), 1);
}

/// Invalid bytes in place of a join fail the join.
#[test]
fn invalid_data_instead_of_a_join_fails() {
    let mut sim = Simulation::new();
    sim.dial_result = DialResult::Silent;
    sim.start_audio();
    sim.send_bytes(&[0xff; 30]);
    sim.with(|_, _| ());
    assert!(
        sim.join_failed()
            .expect("the bot gets an error")
            .contains("invalid message")
    );
    assert_eq!(sim.end_reason(), Some(LeaveReason::NeverConnected));
    assert!(sim.left_gracefully(), "the server may have understood us");
}
