//! Rooms that the bot has not joined.

use serde_json::{Value, json};

use super::super::*;
use super::simulation::{Simulation, secs};
use super::*;
use crate::webrtc::connection::sfu::tests::rig::ms;

fn answer(sim: &mut Simulation, status: u16, body: &Value) {
    let before = sim.looks.len();
    sim.run(secs(2));
    assert_eq!(sim.looks.len(), before + 1, "it is asked for");
    let body = body.to_string();
    sim.with(|session, now| session.handle_participants(Some((status, body.as_bytes())), now));
}

fn list(sim: &mut Simulation, kinds: &[&str]) {
    let participants: Vec<Value> = kinds
        .iter()
        .map(|kind| json!({"identity": "x", "kind": kind}))
        .collect();
    answer(sim, 200, &json!({"participants": participants}));
}

/// Who leaves while the bot is loaded ends the session, and so does a room that is closed.
#[test]
fn callers_who_leave_before_the_bot_joins_end_the_session() {
    for is_closed in [false, true] {
        let mut sim = Simulation::new();
        list(&mut sim, &["STANDARD"]);
        match is_closed {
            false => list(&mut sim, &["EGRESS"]),
            true => answer(&mut sim, 404, &json!({"code": "not_found", "msg": "no such room"})),
        }
        sim.run(ROOM_LEAVE_AFTER - ms(1));
        assert_eq!(sim.end_reason(), None);
        sim.run(ms(1));
        assert_eq!(sim.end_reason(), Some(LeaveReason::Left));
        assert!(sim.gone.is_some() && sim.dials.is_empty());
        let request = &sim.looks[0];
        assert_eq!(
            request.url,
            "https://media.example.net/twirp/livekit.RoomService/ListParticipants"
        );
    }
}

/// A page that reloads, a telephone that comes, and a server that does not answer for a while.
#[test]
fn callers_who_return_in_time_keep_the_session() {
    let mut sim = Simulation::new();
    for _ in 0..5 {
        list(&mut sim, &["STANDARD"]);
        list(&mut sim, &[]);
        sim.run(ROOM_LEAVE_AFTER - secs(5));
        sim.with(|session, now| session.handle_participants(None, now));
        list(&mut sim, &["SIP"]);
    }
    assert_eq!(sim.end_reason(), None);
}

/// A bot that joins by itself leaves by itself, and a server without the API is not asked for ever.
#[test]
fn the_participants_are_asked_for_as_long_as_that_helps() {
    for (status, body) in [
        (200, json!({"participants": [{"kind": "STANDARD"}, {"kind": "AGENT"}]})),
        (404, json!({"code": "bad_route"})),
        (401, json!({"code": "unauthenticated"})),
        (200, json!("x")),
    ] {
        let mut sim = Simulation::new();
        list(&mut sim, &["STANDARD"]);
        answer(&mut sim, status, &body);
        sim.run(secs(3_600));
        assert_eq!((sim.looks.len(), sim.end_reason()), (2, None), "{status} {body}");
    }
    let mut joined = Simulation::new();
    joined.start_audio();
    joined.run(secs(3));
    assert!(joined.looks.is_empty());
}
