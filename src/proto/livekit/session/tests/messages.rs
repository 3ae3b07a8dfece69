//! Messages that concern the room: state, transcripts, typed text, calls, mutes and encryption.

use std::collections::BTreeMap;

use prost::Message as _;
use serde_json::{Value, json};

use super::super::*;
use super::simulation::{FakeParticipant, Simulation, secs};
use crate::audio::tone::Tone;
use crate::limits::{ROOM_STATE_INTERVAL, ROOM_TRANSCRIPT_PAUSE};
use crate::livekit::text_stream::CHAT_TOPIC;
use crate::livekit::wire::{
    DataPacket, DataValue, EncryptedPacket, MuteTrackRequest, RequestResponse, RpcRequest, RpcResult, ServerMessage,
    SignalRequestKind, StreamChunk, StreamHeader, StreamTrailer, SubscriptionPermissionUpdate, SubscriptionResponse,
    UserPacket,
};
use crate::rtvi::{Segment, ToClient};
use crate::webrtc::connection::sfu::tests::rig::{RATE_HZ, ms};

/// The states that the room was shown.
fn states(sim: &Simulation) -> Vec<&str> {
    let updates = sim.requests.iter().filter_map(|(_, request)| match request {
        SignalRequestKind::UpdateMetadata(update) => Some(update),
        _ => None,
    });
    updates
        .map(|update| {
            assert!(update.request_id > 0 && update.attributes["lk.agent.name"] == "bot");
            update.attributes["lk.agent.state"].as_str()
        })
        .collect()
}

fn say(sim: &mut Simulation, message: &ToClient<'_>) {
    let text = message.text();
    sim.with(|session, _| session.handle_message(text));
    sim.run(ms(50));
}

fn packet(identity: &str, value: DataValue) -> Vec<u8> {
    DataPacket {
        participant_identity: identity.into(),
        value: Some(value),
        ..DataPacket::default()
    }
    .encode_to_vec()
}

/// The state follows the bot's turns. A new connection is told again.
#[test]
fn shows_what_the_bot_does() {
    let mut sim = Simulation::with_caller();
    assert_eq!(states(&sim), ["listening"]);
    say(&mut sim, &ToClient::BotLlmStarted);
    sim.run(secs(1));
    say(&mut sim, &ToClient::BotLlmStopped);
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(RATE_HZ as usize));
    sim.run(secs(3));
    assert_eq!(states(&sim), ["listening", "thinking", "speaking", "listening"]);
    sim.kill_server();
    sim.dial_result = super::simulation::DialResult::Open;
    sim.run(secs(5));
    assert_eq!(states(&sim)[4..], ["listening"]);
    assert_eq!(sim.end_reason(), None);
}

/// A refused change of attributes is no refused track, also if the server does not repeat the
/// request. A token that does not allow it is not asked for it again.
#[test]
fn a_refused_state_leaves_the_session_alone() {
    for (reason, shown) in [(2, 1), (3, 2)] {
        let mut sim = Simulation::new();
        sim.update_reason = reason;
        sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
        sim.start_audio();
        sim.run(secs(2));
        assert!(sim.has(&SessionEvent::Joined));
        say(&mut sim, &ToClient::BotLlmStarted);
        sim.run(ROOM_STATE_INTERVAL);
        assert_eq!(states(&sim).len(), shown, "{reason}");
        sim.send_and_drain(ServerMessage::Request(RequestResponse {
            request_id: 2,
            reason: 2,
            ..RequestResponse::default()
        }));
        sim.run(secs(1));
        assert_eq!((sim.end_reason(), sim.dials.len()), (None, 1));
    }
}

/// Before the track is published, a refusal of the state does not count for it either.
#[test]
fn a_refused_state_is_no_refused_track() {
    let mut sim = Simulation::new();
    sim.accepts_track = false;
    sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
    sim.start_audio();
    sim.run(ms(500));
    sim.send_and_drain(ServerMessage::Request(RequestResponse {
        request_id: 1,
        reason: 2,
        update_metadata: Some(Default::default()),
        ..RequestResponse::default()
    }));
    sim.run(ms(500));
    assert_eq!((sim.dials.len(), sim.end_reason()), (1, None));
}

/// Every reliable packet has the next number, from 1 again after a new join.
#[test]
fn numbers_reliable_packets_in_each_stay() {
    let mut sim = Simulation::with_caller();
    for text in ["a", "b"] {
        sim.with(|session, _| session.handle_message(text.into()));
    }
    sim.run(ms(100));
    sim.kill_server();
    sim.dial_result = super::simulation::DialResult::Open;
    sim.run(secs(5));
    sim.with(|session, _| session.handle_message("c".into()));
    sim.run(ms(100));
    let numbers: Vec<u32> = sim.packets.iter().map(|packet| packet.sequence).collect();
    assert_eq!((sim.texts.len(), numbers), (3, vec![1, 2, 1]));
}

#[test]
fn tells_the_bot_of_mutes() {
    let mut sim = Simulation::with_caller();
    for (sid, muted) in [("TR_ann1", true), ("TR_own", true), ("TR_own", true), ("TR_own", false)] {
        sim.send_and_drain(ServerMessage::Mute(MuteTrackRequest { sid: sid.into(), muted }));
    }
    assert_eq!(
        (
            sim.count(&SessionEvent::Muted(true)),
            sim.count(&SessionEvent::Muted(false))
        ),
        (1, 1)
    );
}

/// The audio of an encrypted track is noise, so the session does not subscribe to it. Others are
/// heard.
#[test]
fn does_not_subscribe_to_encrypted_tracks() {
    let mut sim = Simulation::new();
    sim.participants.push(FakeParticipant {
        encryption: 1,
        ..FakeParticipant::caller("PA_ann1", "ann")
    });
    sim.participants.push(FakeParticipant::caller("PA_bob1", "bob"));
    sim.start_audio();
    sim.run(secs(1));
    let subscribed: Vec<_> = (sim.requests.iter())
        .filter_map(|(_, request)| match request {
            SignalRequestKind::Subscription(subscription) => Some(subscription.track_sids.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(subscribed, [["TR_bob1"]]);
    assert!(sim.has(&SessionEvent::Joined));
    assert_eq!(sim.session.no_audio, [NoAudioCause::Encrypted]);
    sim.update_participant("ann", |ann| ann.encryption = 0);
    assert!(sim.requests.iter().any(|(_, request)| matches!(request,
        SignalRequestKind::Subscription(subscription) if subscription.track_sids == ["TR_ann1"])));

    let mut sim = Simulation::with_caller();
    assert!(sim.session.no_audio.is_empty());
    sim.data(&packet("ann", DataValue::Encrypted(EncryptedPacket { encryption: 1 })));
    assert_eq!(sim.session.no_audio, [NoAudioCause::Encrypted]);
}

/// A track that the server does not forward has one line per cause. What concerns no audio of a
/// caller has none.
#[test]
fn says_once_why_a_track_is_not_decoded() {
    let mut sim = Simulation::with_caller();
    let permission = |track_sid: &str, allowed| {
        let track_sid = track_sid.to_owned();
        ServerMessage::SubscriptionPermission(SubscriptionPermissionUpdate { track_sid, allowed })
    };
    let response = |track_sid: &str, err| {
        let track_sid = track_sid.to_owned();
        ServerMessage::Subscription(SubscriptionResponse { track_sid, err })
    };
    for harmless in [
        permission("TR_ann1", true),
        permission("TR_video", false),
        response("TR_ann1", 2),
        response("TR_video", 1),
    ] {
        sim.send_and_drain(harmless);
    }
    assert!(sim.session.no_audio.is_empty());
    for _ in 0..2 {
        sim.send_and_drain(permission("TR_ann1", false));
        sim.send_and_drain(response("TR_ann1", 1));
    }
    assert_eq!(sim.session.no_audio, [NoAudioCause::NotAllowed, NoAudioCause::Codec]);
}

/// A caller whose track is not muted and sends nothing is reported once, within 5 s. One that
/// sends, or that has muted its track, is not.
#[test]
fn says_once_that_no_audio_comes() {
    let mut sim = Simulation::with_caller();
    sim.run(ms(4_500));
    assert!(sim.session.no_audio.is_empty());
    sim.run(ms(1_500));
    assert_eq!(sim.session.no_audio, [NoAudioCause::NoPackets]);
    let mut sim = Simulation::with_caller();
    sim.talks();
    sim.run(secs(10));
    assert!(sim.session.no_audio.is_empty());
    let mut sim = Simulation::new();
    let mut ann = FakeParticipant::caller("PA_ann1", "ann");
    ann.muted = true;
    sim.participants.push(ann);
    sim.start_audio();
    sim.run(secs(10));
    assert!(sim.has(&SessionEvent::Joined) && sim.session.no_audio.is_empty());
    sim.update_participant("ann", |ann| ann.muted = false);
    sim.run(secs(6));
    assert_eq!(sim.session.no_audio, [NoAudioCause::NoPackets]);
}

/// Typed text reaches the bot as it does on other transports: once, whether a front-end sends it as
/// a stream, as a message, or as both.
#[test]
fn typed_text_is_a_message_of_rtvi() {
    let mut sim = Simulation::with_caller();
    let before = sim.events.len();
    let stream = |identity: &str, topic: &str, text: &str| {
        [
            DataValue::StreamHeader(StreamHeader {
                stream_id: "s".into(),
                topic: topic.into(),
                ..StreamHeader::default()
            }),
            DataValue::StreamChunk(StreamChunk {
                stream_id: "s".into(),
                chunk_index: 0,
                content: text.to_owned().into(),
            }),
            DataValue::StreamTrailer(StreamTrailer {
                stream_id: "s".into(),
                ..StreamTrailer::default()
            }),
        ]
        .map(|value| packet(identity, value))
    };
    let legacy = |chat: Value| {
        packet(
            "ann",
            DataValue::User(UserPacket {
                payload: chat.to_string().into(),
                topic: Some("lk-chat-topic".into()),
                id: None,
            }),
        )
    };
    let mut sent = stream("ann", CHAT_TOPIC, "hello").to_vec();
    sent.extend(stream("ann", "other", "not for the bot"));
    sent.extend(stream("eve", CHAT_TOPIC, "a stranger"));
    sent.push(legacy(json!({"id": "m", "message": "hello", "ignoreLegacy": true})));
    sent.push(legacy(json!({"id": "m", "message": "old", "timestamp": 1})));
    sent.push(legacy(json!({"id": "m"})));
    sent.iter().for_each(|bytes| sim.data(bytes));
    let texts: Vec<Value> = sim.events[before..]
        .iter()
        .map(|(_, event)| match event {
            SessionEvent::Message(text) => serde_json::from_str(text).expect("JSON"),
            other => panic!("{other:?}"),
        })
        .collect();
    let typed = |id, content| json!({"label": "rtvi-ai", "type": "send-text", "id": id, "data": {"content": content, "options": {}}});
    assert_eq!(texts, [typed("s", "hello"), typed("m", "old")]);
}

/// A call is acknowledged at once, passed to the bot, and answered by the bot to the caller alone.
#[test]
fn the_bot_answers_calls() {
    let mut sim = Simulation::with_caller();
    let call = |id: &str| {
        packet(
            "ann",
            DataValue::RpcRequest(RpcRequest {
                id: id.into(),
                method: "weather".into(),
                payload: r#"{"city":"Bonn"}"#.into(),
                response_timeout_ms: 8_000,
                version: 1,
            }),
        )
    };
    sim.data(&call("one"));
    let Some((_, SessionEvent::Message(request))) = sim.events.last() else {
        panic!("{:?}", sim.events)
    };
    let request: Value = serde_json::from_str(request).expect("JSON");
    assert_eq!(
        (&request["data"]["t"], &request["data"]["d"]["city"]),
        (&json!("weather"), &json!("Bonn"))
    );
    let id = request["id"].as_str().expect("an id").to_owned();
    let answer = ToClient::ServerResponse {
        t: "weather",
        d: &json!({"c": 7}),
    }
    .answer(&id);
    let other = ToClient::ServerResponse {
        t: "weather",
        d: &json!(1),
    }
    .answer("of the page");
    sim.with(|session, _| session.handle_message(answer));
    sim.with(|session, _| session.handle_message(other.clone()));
    sim.data(&call("two"));
    sim.run(secs(9));
    assert_eq!(sim.texts, [other], "answers to calls are for the caller alone");
    let results: Vec<String> = sim
        .packets
        .iter()
        .filter(|packet| packet.destination_identities == ["ann"])
        .map(|packet| match &packet.value {
            Some(DataValue::RpcAck(ack)) => format!("ack {}", ack.request_id),
            Some(DataValue::RpcResponse(response)) => match &response.result {
                Some(RpcResult::Payload(payload)) => format!("{} {payload}", response.request_id),
                Some(RpcResult::Error(error)) => format!("{} {}", response.request_id, error.code),
                None => panic!("{response:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(results, ["ack one", r#"one {"c":7}"#, "ack two", "two 1400"]);
}

/// Both transcripts are text streams beside the messages of RTVI: the bot's under its own name, the
/// caller's under the caller's.
#[test]
fn transcripts_are_text_streams() {
    let mut sim = Simulation::with_caller();
    let said = |text, is_final| ToClient::UserTranscription {
        text,
        user_id: "",
        timestamp: "2026-11-21T09:20:06.429+00:00",
        r#final: is_final,
    };
    say(&mut sim, &said("Hi", false));
    say(&mut sim, &said("Hi there.", true));
    let segment = Segment::new(1, "Hello!");
    say(
        &mut sim,
        &ToClient::BotOutput(segment.spoken_to(6, false).expect("progress")),
    );
    sim.run(ROOM_TRANSCRIPT_PAUSE);
    assert_eq!(sim.texts.len(), 3);
    type Stream = (String, BTreeMap<String, String>, String, bool);
    let mut streams: BTreeMap<String, Stream> = BTreeMap::new();
    let mut order = Vec::new();
    for packet in &sim.packets {
        let who = packet.participant_identity.clone();
        match packet.value.clone() {
            Some(DataValue::StreamHeader(header)) => {
                assert_eq!(header.topic, "lk.transcription");
                order.push(header.stream_id.clone());
                streams.insert(header.stream_id, (who, header.attributes, String::new(), false));
            }
            Some(DataValue::StreamChunk(chunk)) => {
                let stream = streams.get_mut(&chunk.stream_id).expect("a header");
                stream.2 += std::str::from_utf8(&chunk.content).expect("text");
            }
            Some(DataValue::StreamTrailer(trailer)) => {
                let stream = streams.get_mut(&trailer.stream_id).expect("a header");
                stream.1.extend(trailer.attributes);
                stream.3 = true;
            }
            _ => {}
        }
    }
    let seen: Vec<_> = order
        .iter()
        .map(|id| {
            let (who, attributes, text, is_complete) = &streams[id];
            let attribute = |name: &str| attributes[name].as_str();
            (
                who.as_str(),
                text.as_str(),
                attribute("lk.transcribed_track_id"),
                attribute("lk.transcription_final"),
                *is_complete,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("ann", "Hi", "TR_ann1", "false", true),
            ("ann", "Hi there.", "TR_ann1", "true", true),
            ("", "Hello!", "TR_own", "true", true),
        ]
    );
    assert!(
        order.iter().all(|id| id.starts_with("PA_own1-")),
        "unique in the room: {order:?}"
    );
}

/// The words are those of the caller whom the bot names, else of the one who spoke last.
#[test]
fn transcripts_name_the_caller_who_spoke() {
    let mut sim = Simulation::with_caller();
    sim.participant_joins(FakeParticipant::caller("PA_bob1", "bob"));
    sim.participant_joins(FakeParticipant::agent("PA_bot2", "other bot"));
    sim.set_speaking("PA_bob1", true);
    sim.set_speaking("PA_bot2", true);
    sim.set_speaking("PA_bob1", false);
    for user_id in ["", "ann", "a stranger"] {
        say(
            &mut sim,
            &ToClient::UserTranscription {
                text: "hi",
                user_id,
                timestamp: "",
                r#final: true,
            },
        );
    }
    let names: Vec<&str> = sim
        .packets
        .iter()
        .filter(|packet| matches!(packet.value, Some(DataValue::StreamHeader(_))))
        .map(|packet| packet.participant_identity.as_str())
        .collect();
    assert_eq!(names, ["bob", "ann", "bob"]);
}
