//! A session whose local participant is a caller: its callers are the agents.

use prost::Message as _;
use serde_json::json;

use super::super::*;
use super::simulation::{FakeParticipant, Simulation, secs};
use crate::audio::tone::{Tone, share};
use crate::livekit::wire::{
    DataPacket, DataValue, SignalRequestKind, StreamChunk, StreamHeader, StreamTrailer, UserPacket,
};
use crate::webrtc::connection::sfu::tests::rig::{RATE_HZ, Talker, ms};

/// A caller in a room with another caller and a recorder. Its track has subscribers, or none.
fn caller(subscribes: bool) -> Simulation {
    let mut sim = Simulation::with_role(RoomRole::Caller, None, &[]);
    sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
    let recorder = FakeParticipant {
        kind: 2,
        ..FakeParticipant::caller("PA_egress1", "recorder")
    };
    sim.participants.push(recorder);
    sim.subscribes = subscribes;
    sim.start_audio();
    sim
}

fn data(identity: &str, value: DataValue) -> Vec<u8> {
    let packet = DataPacket {
        participant_identity: identity.into(),
        value: Some(value),
        ..DataPacket::default()
    };
    packet.encode_to_vec()
}

fn text(text: &str) -> DataValue {
    DataValue::User(UserPacket {
        payload: text.to_owned().into(),
        ..UserPacket::default()
    })
}

/// Neither other callers nor a recorder are a bot: the caller waits for one, hears it alone, and
/// shows no state.
#[test]
fn a_caller_talks_with_the_bot_alone() {
    let mut sim = caller(true);
    sim.run(secs(5));
    assert!(!sim.has(&SessionEvent::Joined));
    sim.participant_joins(FakeParticipant::agent("PA_bob1", "bob"));
    assert!(
        sim.run_until(secs(5), |sim| sim.has(&SessionEvent::Joined)),
        "{:?}",
        sim.events
    );
    for identity in ["ann", "recorder", "bob"] {
        sim.data(&data(identity, text(identity)));
    }
    let messages = sim.events.iter().filter_map(|(_, event)| match event {
        SessionEvent::Message(text) => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(messages.collect::<Vec<_>>(), ["bob"]);
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(RATE_HZ as usize));
    sim.run(secs(3));
    for (_, request) in &sim.requests {
        match request {
            SignalRequestKind::UpdateMetadata(update) => panic!("{update:?}"),
            SignalRequestKind::Subscription(asked) => assert_eq!(asked.track_sids, ["TR_bob1"]),
            SignalRequestKind::AddTrack(track) => assert_eq!(track.name, "caller-audio"),
            _ => {}
        }
    }
    assert!(!sim.voice.is_empty(), "it speaks");
}

/// A bot greets once it has a track to hear, which the caller may not know yet.
#[test]
fn a_caller_hears_a_bot_that_greets_early() {
    let mut sim = caller(false);
    sim.participant_joins(FakeParticipant::agent("PA_bob1", "bob"));
    sim.run(ms(500));
    sim.play_speech(&mut [("TR_bob1", Talker::new(440.0))], 20);
    assert!(!sim.has(&SessionEvent::Joined));
    assert!(
        share(sim.mixed(), 440.0, RATE_HZ) > 0.5,
        "{} samples",
        sim.mixed().len()
    );
}

/// What the bot says arrives as text streams, too; those of other topics are not for a caller.
#[test]
fn a_caller_reads_transcripts_of_the_bot() {
    let mut sim = caller(true);
    sim.participant_joins(FakeParticipant::agent("PA_bob1", "bob"));
    assert!(sim.run_until(secs(5), |sim| sim.has(&SessionEvent::Joined)));
    sim.run(ms(100));
    for (identity, topic) in [
        ("bob", TRANSCRIPTION_TOPIC),
        ("bob", "lk.chat"),
        ("ann", TRANSCRIPTION_TOPIC),
    ] {
        let header = StreamHeader {
            stream_id: "s".into(),
            topic: topic.into(),
            ..StreamHeader::default()
        };
        let chunk = StreamChunk {
            stream_id: "s".into(),
            content: format!("{identity} {topic}").into(),
            ..StreamChunk::default()
        };
        let trailer = StreamTrailer {
            stream_id: "s".into(),
            ..StreamTrailer::default()
        };
        sim.data(&data(identity, DataValue::StreamHeader(header)));
        sim.data(&data(identity, DataValue::StreamChunk(chunk)));
        sim.data(&data(identity, DataValue::StreamTrailer(trailer)));
    }
    let messages = sim.events.iter().filter_map(|(_, event)| match event {
        SessionEvent::Message(text) => serde_json::from_str::<serde_json::Value>(text).ok(),
        _ => None,
    });
    let transcript = json!({"label": "lk.transcription", "data": {"text": "bob lk.transcription"}});
    assert_eq!(messages.collect::<Vec<_>>(), [transcript]);
}
