//! Telephones in a room: calls that ring, their data, keys, and who hangs up.

use prost::Message as _;
use serde_json::Value;

use super::super::*;
use super::simulation::{FakeParticipant, Simulation, secs};
use super::*;
use crate::audio::tone::Tone;
use crate::livekit::wire::{DataPacket, DataValue, SignalRequestKind, SipDtmf};
use crate::webrtc::connection::sfu::tests::rig::{RATE_HZ, ms};

/// A telephone whose call has been answered, alone with the bot.
fn with_telephone() -> Simulation {
    let mut sim = Simulation::new();
    sim.participants
        .push(FakeParticipant::telephone("PA_tel1", "sip_1", "active"));
    sim.start_audio();
    assert!(sim.run_until(secs(5), |sim| sim.has(&SessionEvent::Joined)));
    sim.run(ms(200));
    sim
}

/// Returns the body of the request that hangs up.
fn hung_up(sim: &Simulation) -> Option<Value> {
    let request = sim.session.hang_up_request(sim.now)?;
    assert_eq!(
        request.url,
        "https://media.example.net/twirp/livekit.RoomService/RemoveParticipant"
    );
    let body = request.body.expect("a body");
    Some(serde_json::from_slice(&body.bytes).expect("JSON"))
}

/// A ringing call is answered because our track is there. It is a caller, whom the bot waits for,
/// and speech starts when the call is active.
#[test]
fn speech_waits_until_a_ringing_call_is_answered() {
    let mut sim = Simulation::new();
    sim.participants
        .push(FakeParticipant::telephone("PA_tel1", "sip_1", "ringing"));
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(RATE_HZ as usize));
    sim.start_audio();
    sim.run(secs(2));
    let published = |request: &SignalRequestKind| matches!(request, SignalRequestKind::AddTrack(_));
    assert!(sim.requests.iter().any(|(_, request)| published(request)));
    let Some((_, SessionEvent::ParticipantJoined(who))) = sim.events.first() else {
        panic!("{:?}", sim.events)
    };
    assert!(who.is_telephone && who.is_ringing());
    assert_eq!(who.call_data().expect("a telephone")["from"], "+15550001111");
    sim.run(ROOM_FIRST_CALLER_WITHIN + secs(5));
    assert!(!sim.has(&SessionEvent::Joined) && !sim.accepts_speech());
    assert_eq!(
        (sim.end_reason(), sim.speech.len()),
        (None, RATE_HZ as usize),
        "it is a caller"
    );

    sim.update_participant("sip_1", |who| who.attributes[0].1 = "active");
    assert!(sim.has(&SessionEvent::Joined) && sim.accepts_speech());
    let changes: Vec<_> = (sim.events.iter())
        .filter_map(|(_, event)| match event {
            SessionEvent::ParticipantChanged(who) => who.call_status(),
            _ => None,
        })
        .collect();
    assert_eq!(changes, ["active"]);
    sim.run(secs(2));
    assert!(sim.speech.is_empty());
}

/// Another caller hears the bot while a telephone rings.
#[test]
fn a_ringing_call_holds_nothing_up_for_others() {
    let mut sim = Simulation::with_caller();
    sim.participant_joins(FakeParticipant::telephone("PA_tel1", "sip_1", "dialing"));
    sim.run(secs(1));
    assert!(sim.accepts_speech() && !sim.has(&SessionEvent::Lost));
    sim.participant_leaves("ann");
    assert!(!sim.accepts_speech() && sim.has(&SessionEvent::Lost));
    sim.update_participant("sip_1", |who| who.attributes[0].1 = "active");
    assert!(sim.has(&SessionEvent::Restored));
}

/// Keys go both ways.
#[test]
fn keys_go_both_ways() {
    let mut sim = with_telephone();
    let pressed = DataPacket {
        participant_identity: "sip_1".into(),
        value: Some(DataValue::Dtmf(SipDtmf {
            code: 11,
            digit: "#".into(),
        })),
        ..DataPacket::default()
    };
    sim.data(&pressed.encode_to_vec());
    assert!(sim.has(&SessionEvent::Dtmf('#')));
    sim.with(|session, _| session.handle_keys("1*"));
    sim.with(|session, _| session.handle_keys("D"));
    sim.run(secs(1));
    let sent: Vec<_> = (sim.packets.iter())
        .map(|packet| match &packet.value {
            Some(DataValue::Dtmf(dtmf)) => (dtmf.code, dtmf.digit.clone(), packet.sequence),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sent, [(1, "1".into(), 1), (10, "*".into(), 2), (15, "D".into(), 3)]);
}

/// A call that the bot or the operator ends is hung up by the server; one that ended by itself, or
/// was given away, is not.
#[test]
fn the_call_of_a_bot_that_ends_is_hung_up() {
    for (reason, is_hung_up) in [
        (LeaveReason::BotEnded, true),
        (LeaveReason::BotFailed, true),
        (LeaveReason::Shutdown, true),
        (LeaveReason::Operator, true),
        (LeaveReason::Left, false),
        (LeaveReason::Replaced, false),
    ] {
        let mut sim = with_telephone();
        sim.with(|session, now| session.handle_bot_end(reason, now));
        sim.run(FINISH_WITHIN + secs(1));
        assert_eq!(sim.end_reason(), Some(reason));
        let body = serde_json::json!({"room": "room-1", "identity": "sip_1"});
        assert_eq!(hung_up(&sim), is_hung_up.then_some(body), "{reason}");
    }
    let mut sim = with_telephone();
    sim.with(|session, _| session.handle_transferred());
    sim.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    sim.run(secs(1));
    assert_eq!(hung_up(&sim), None);
    let mut sim = with_telephone();
    sim.session.service = None;
    sim.with(|session, now| session.handle_end(LeaveReason::Shutdown, now));
    assert_eq!(hung_up(&sim), None, "no credential");
}

/// Others in the room go on without the bot, so their call is not ended.
#[test]
fn a_call_with_others_goes_on_without_the_bot() {
    for other in [
        FakeParticipant::caller("PA_bob1", "bob"),
        FakeParticipant::telephone("PA_tel2", "sip_2", "active"),
        FakeParticipant::agent("PA_bot2", "other bot"),
    ] {
        let is_agent = other.kind == 4;
        let mut sim = with_telephone();
        sim.participant_joins(other);
        sim.with(|session, now| session.handle_end(LeaveReason::BotEnded, now));
        assert_eq!(hung_up(&sim).is_some(), is_agent);
    }
}
