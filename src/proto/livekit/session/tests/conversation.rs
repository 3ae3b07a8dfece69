//! Sessions that run normally, and how they end.

use prost::Message as _;

use super::super::*;
use super::simulation::{DialResult, FakeParticipant, Simulation, secs};
use super::*;
use crate::audio::tone::{Tone, share};
use crate::limits::ROOM_SUBSCRIBED_WITHIN;
use crate::livekit::wire::{
    DataPacket, DataValue, ServerMessage, SignalRequestKind, SipDtmf, TrackInfo, TrackPublishedResponse, TrackSource,
    UserPacket,
};
use crate::participant::Participant;
use crate::webrtc::connection::sfu::tests::rig::{RATE_HZ, Talker, ms};

fn participant(identity: &str, is_agent: bool) -> Participant {
    Participant {
        identity: identity.into(),
        name: format!("{identity}!"),
        is_agent,
        ..Participant::default()
    }
}

fn text(identity: &str, payload: &[u8], topic: Option<&str>) -> Vec<u8> {
    DataPacket {
        participant_identity: identity.into(),
        value: Some(DataValue::User(UserPacket {
            payload: payload.to_vec().into(),
            topic: topic.map(ToOwned::to_owned),
            id: None,
        })),
        ..DataPacket::default()
    }
    .encode_to_vec()
}

/// Nothing is dialled before the bot takes its media. Then the room is joined with its token, and
/// the bot learns of the participants before it has joined.
#[test]
fn joins_the_room_once_the_bot_takes_its_media() {
    let mut sim = Simulation::new();
    sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
    sim.participants.push(FakeParticipant::agent("PA_bob1", "bob"));
    sim.run(secs(3600));
    assert!(sim.dials.is_empty() && sim.events.is_empty());
    sim.start_audio();
    sim.run(secs(1));
    let (_, dial) = &sim.dials[0];
    assert!(
        dial.url
            .starts_with("https://media.example.net/rtc?protocol=15&auto_subscribe=0&")
    );
    assert_eq!(dial.token.expose(), "first");
    let events: Vec<&SessionEvent> = sim.events.iter().map(|(_, event)| event).collect();
    assert_eq!(
        events,
        [
            &SessionEvent::ParticipantJoined(participant("ann", false)),
            &SessionEvent::ParticipantJoined(participant("bob", true)),
            &SessionEvent::Joined
        ]
    );
    let published: Vec<_> = (sim.requests.iter())
        .filter_map(|(_, request)| match request {
            SignalRequestKind::AddTrack(track) => Some((track.source, track.disable_red)),
            _ => None,
        })
        .collect();
    assert_eq!(published, [(TrackSource::Microphone as i32, true)]);
    let asked: Vec<_> = (sim.requests.iter())
        .filter_map(|(_, request)| match request {
            SignalRequestKind::Subscription(subscription) => Some(subscription.track_sids.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [["TR_ann1"]], "agents are not heard");
    sim.run(secs(120));
    assert_eq!((sim.dials.len(), sim.end_reason()), (1, None), "the session continues");
    let pings = (sim.requests.iter()).filter(|(_, request)| matches!(request, SignalRequestKind::Ping(_)));
    assert!((20..=26).contains(&pings.count()));
}

/// Speech from before a caller's subscription would be lost, so the bot joins with it, or without
/// one after a while.
#[test]
fn the_bot_joins_when_a_caller_hears_it() {
    for subscribes_after in [Some(ms(700)), None] {
        let mut sim = Simulation::new();
        sim.subscribes = false;
        sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
        sim.start_audio();
        sim.run(ms(600));
        assert!(sim.has(&SessionEvent::ParticipantJoined(participant("ann", false))));
        assert!(!sim.has(&SessionEvent::Joined) && !sim.accepts_speech());
        if let Some(after) = subscribes_after {
            sim.run(after - ms(600));
            sim.subscribe();
            assert!(sim.has(&SessionEvent::Joined) && sim.accepts_speech());
        } else {
            assert!(sim.run_until(ROOM_SUBSCRIBED_WITHIN, |sim| sim.has(&SessionEvent::Joined)));
            assert!(sim.time() >= ROOM_SUBSCRIBED_WITHIN && sim.accepts_speech());
        }
        sim.run(secs(5));
        assert_eq!(
            (sim.count(&SessionEvent::Joined), sim.count(&SessionEvent::Lost)),
            (1, 0)
        );
    }
}

/// An older server publishes the track before it takes the offer.
#[test]
fn offers_after_the_track_is_published_without_fast_publish() {
    for fast_publish in [true, false] {
        let mut sim = Simulation::new();
        sim.fast_publish = fast_publish;
        sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
        sim.start_audio();
        sim.run(secs(1));
        assert!(sim.has(&SessionEvent::Joined), "{fast_publish}");
        if !fast_publish {
            sim = Simulation::new();
            sim.fast_publish = false;
            sim.accepts_track = false;
            sim.start_audio();
            sim.run(secs(1));
            assert!(
                !sim.requests
                    .iter()
                    .any(|(_, request)| matches!(request, SignalRequestKind::Offer(_)))
            );
        }
    }
}

/// Both connections come up with a server that sends no checks and trickles its candidates late.
#[test]
fn connects_to_an_ice_lite_server_at_once() {
    let mut sim = Simulation::new();
    sim.lite = true;
    sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
    sim.start_audio();
    sim.run(ms(500));
    assert!(sim.has(&SessionEvent::Joined));
    let mut talkers = [("TR_ann1", Talker::new(440.0))];
    sim.play_speech(&mut talkers, 60);
    assert!(share(&sim.mixed()[5_000..], 440.0, RATE_HZ) > 0.8);
}

/// A caller whose media is not up neither hears nor reads: it is present, but the bot has not
/// joined. A participant that turns out to be an agent is not a caller.
#[test]
fn reports_joined_once_a_caller_is_active() {
    let mut sim = Simulation::new();
    sim.participants.push(FakeParticipant {
        state: 1,
        ..FakeParticipant::caller("PA_ann1", "ann")
    });
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(RATE_HZ as usize));
    sim.with(|session, _| session.handle_message("hello".into()));
    sim.start_audio();
    sim.run(secs(2));
    let ann = SessionEvent::ParticipantJoined(participant("ann", false));
    let reported: Vec<&SessionEvent> = sim.events.iter().map(|(_, event)| event).collect();
    assert_eq!(reported, [&ann]);
    assert_eq!((sim.speech.len(), sim.texts.len()), (RATE_HZ as usize, 0));
    sim.update_participant("ann", |participant| participant.state = 2);
    sim.run(secs(2));
    assert!(sim.has(&SessionEvent::Joined) && sim.speech.is_empty());
    assert_eq!(sim.texts, ["hello"]);

    sim.update_participant("ann", |participant| participant.kind = 4);
    assert_eq!(sim.count(&SessionEvent::Lost), 1);
    sim.data(&text("ann", b"from an agent", None));
    assert!(!sim.has(&SessionEvent::Message("from an agent".into())));
    assert_eq!(sim.count(&ann), 1, "announced once");
    sim.run(ROOM_LEAVE_AFTER);
    assert_eq!(sim.end_reason(), Some(LeaveReason::Left));
}

/// The publisher may be the second connection to come up. Messages of a caller from before wait for
/// the bot; its audio is dropped.
#[test]
fn delivers_early_messages_after_joined() {
    let mut sim = Simulation::new();
    sim.accepts_track = false;
    sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
    sim.start_audio();
    sim.run(secs(1));
    sim.data(&text("ann", b"client-ready", None));
    sim.play_speech(&mut [("TR_ann1", Talker::new(440.0))], 20);
    assert_eq!(sim.events.len(), 1, "{:?}", sim.events);
    assert!(sim.mixed().iter().all(|sample| *sample == 0));
    sim.send_and_drain(ServerMessage::TrackPublished(TrackPublishedResponse {
        cid: "bot-audio".into(),
        track: Some(TrackInfo {
            sid: "TR_own".into(),
            ..TrackInfo::default()
        }),
    }));
    sim.subscribe();
    let reported: Vec<&SessionEvent> = sim.events[1..].iter().map(|(_, event)| event).collect();
    assert_eq!(
        reported,
        [&SessionEvent::Joined, &SessionEvent::Message("client-ready".into())]
    );
}

/// A server announces a participant without a track up to 3 s after its data arrives.
#[test]
fn delivers_data_from_before_the_announcement() {
    let mut sim = Simulation::new();
    sim.start_audio();
    sim.participant_joins(FakeParticipant::caller("PA_ann1", "ann"));
    sim.run(secs(1));
    sim.data(&text("bob", b"one", None));
    sim.data(&text("bob", b"two", None));
    sim.data(&text("bot-2", b"from an agent", None));
    sim.run(secs(3));
    assert!(!sim.has(&SessionEvent::Message("one".into())));
    sim.participant_joins(FakeParticipant::caller("PA_bob1", "bob"));
    let mut agent = FakeParticipant::caller("PA_bot2", "bot-2");
    agent.kind = 4;
    sim.participant_joins(agent);
    let reported: Vec<&SessionEvent> = sim.events.iter().map(|(_, event)| event).collect();
    let [.., joined, one, two, agent] = reported[..] else {
        panic!("{reported:?}")
    };
    assert_eq!(joined, &SessionEvent::ParticipantJoined(participant("bob", false)));
    assert_eq!(
        [one, two],
        ["one", "two"].map(|text| SessionEvent::Message(text.into())).each_ref()
    );
    assert_eq!(agent, &SessionEvent::ParticipantJoined(participant("bot-2", true)));
}

/// A caller who reloads the page misses nothing: speech waits meanwhile, with its marks.
#[test]
fn holds_speech_while_no_caller_is_present() {
    let mut sim = Simulation::new();
    assert!(!sim.accepts_speech());
    sim.start_audio();
    sim.run(secs(1));
    assert!(!sim.accepts_speech());
    sim.participant_joins(FakeParticipant::caller("PA_ann1", "ann"));
    assert!(sim.accepts_speech());
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(5 * RATE_HZ as usize));
    sim.run(secs(1));
    sim.participant_leaves("ann");
    let waiting = sim.speech.len();
    sim.run(secs(5));
    assert_eq!((sim.speech.len(), sim.accepts_speech()), (waiting, false));
    assert_eq!(sim.count(&SessionEvent::SpeechStopped), 1);
    sim.participant_joins(FakeParticipant::caller("PA_ann2", "ann"));
    sim.run(secs(6));
    assert!(sim.speech.is_empty());
    assert_eq!(sim.count(&SessionEvent::SpeechStarted), 2);
    assert_eq!(sim.count(&SessionEvent::SpeechStopped), 2);
}

/// Speech carries its level, silence is sent in between, and the first speech waits for the first
/// caller.
#[test]
fn sends_speech_with_audio_levels() {
    let mut sim = Simulation::new();
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(RATE_HZ as usize));
    sim.start_audio();
    sim.run(secs(3));
    assert!(sim.voice.len() > 100, "silence keeps the track alive");
    assert!(sim.bot_audio().iter().all(|sample| sample.unsigned_abs() < 100));
    assert!(sim.levels.iter().all(|level| *level == -127));
    sim.participant_joins(FakeParticipant::caller("PA_ann1", "ann"));
    sim.run(secs(2));
    let said = sim.bot_audio();
    let loud = said.iter().filter(|sample| sample.unsigned_abs() > 1_000).count();
    assert!(
        (12_000..17_000).contains(&loud),
        "a second of tone, of which {loud} samples are loud"
    );
    let from = said
        .iter()
        .position(|sample| sample.unsigned_abs() > 3_000)
        .expect("a tone");
    assert!(share(&said[from + 2_000..from + 10_000], 440.0, RATE_HZ) > 0.9);
    // A sine of a quarter of full scale is 15 dB below overload.
    assert!(sim.levels.iter().filter(|level| (-17..=-13).contains(*level)).count() > 40);
    assert!(sim.has(&SessionEvent::SpeechStarted) && sim.has(&SessionEvent::SpeechStopped));
}

/// An interruption drops the speech that has not been sent.
#[test]
fn an_interruption_drops_unsent_speech() {
    let mut sim = Simulation::with_caller();
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(10 * RATE_HZ as usize));
    sim.run(secs(1));
    sim.speech.clear();
    sim.with(|session, now| session.handle_interruption(now));
    let before = sim.voice.len();
    sim.run(secs(1));
    let after = &sim.bot_audio()[(before + 3) * RATE_HZ as usize / 50..];
    assert!(after.iter().all(|sample| sample.unsigned_abs() < 500));
    assert!(sim.has(&SessionEvent::SpeechStopped));
}

/// Callers are received mixed, or separately by identity.
#[test]
fn delivers_callers_mixed_or_separately() {
    for mixed in [true, false] {
        let mut sim = Simulation::new();
        sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
        sim.start_audio_as(mixed);
        sim.run(secs(1));
        sim.participant_joins(FakeParticipant::caller("PA_bob1", "bob"));
        sim.run(secs(1));
        let mut talkers = [("TR_ann1", Talker::new(440.0)), ("TR_bob1", Talker::new(1_000.0))];
        sim.play_speech(&mut talkers, 100);
        let middle = |pcm: &[i16]| pcm[pcm.len() - RATE_HZ as usize..].to_vec();
        if mixed {
            let both = middle(sim.mixed());
            for hz in [440.0, 1_000.0] {
                assert!(share(&both, hz, RATE_HZ) > 0.3, "{hz}");
            }
            continue;
        }
        for (who, hz) in [("ann", 440.0), ("bob", 1_000.0)] {
            let pcm = &sim.received[&Some(who.into())];
            assert!(share(&middle(pcm), hz, RATE_HZ) > 0.9, "{who}");
        }
        assert!(sim.mixed().is_empty());
    }
}

/// A second participant that sends nothing, or has muted its track, takes nothing from the sound of
/// the first: none is missing, late or quieter.
#[test]
fn a_silent_participant_changes_nothing_for_another() {
    for mixed in [true, false] {
        for muted in [true, false] {
            let mut sim = Simulation::new();
            sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
            sim.start_audio_as(mixed);
            sim.run(secs(1));
            let mut bob = FakeParticipant::caller("PA_bob1", "bob");
            bob.muted = muted;
            sim.participant_joins(bob);
            sim.run(secs(1));
            let mut ann = [("TR_ann1", Talker::new(440.0))];
            sim.play_speech(&mut ann, 50);
            let whose = (!mixed).then(|| "ann".into());
            let before = sim.received[&whose].len();
            sim.play_speech(&mut ann, 500);
            let pcm = &sim.received[&whose][before..];
            let seconds = pcm.len() as f64 / f64::from(RATE_HZ);
            assert!((seconds - 10.0).abs() <= 0.06, "{seconds} s of 10 s, {mixed}, {muted}");
            assert!(share(pcm, 440.0, RATE_HZ) > 0.95, "{mixed}, {muted}");
            let peak = pcm.iter().map(|sample| sample.unsigned_abs()).max();
            sim.participant_leaves("bob");
            sim.run(secs(1));
            let before = sim.received[&whose].len();
            sim.play_speech(&mut ann, 100);
            let alone = &sim.received[&whose][before..];
            let difference = peak.zip(alone.iter().map(|sample| sample.unsigned_abs()).max());
            assert!(
                difference.is_some_and(|(a, b)| a.abs_diff(b) < b / 10),
                "{difference:?}"
            );
            assert_eq!(sim.received.get(&Some("bob".into())).map_or(0, Vec::len), 0);
            assert_eq!(sim.end_reason(), None);
        }
    }
}

/// Messages go to everybody once a caller is present, and are taken from callers only. DTMF arrives
/// as keys.
#[test]
fn passes_messages_and_dtmf() {
    let mut sim = Simulation::new();
    sim.with(|session, _| session.handle_message(r#"{"early":1}"#.into()));
    sim.start_audio();
    sim.run(secs(2));
    assert!(sim.texts.is_empty());
    sim.participant_joins(FakeParticipant::caller("PA_ann1", "ann"));
    sim.participant_joins(FakeParticipant::agent("PA_bob1", "bob"));
    sim.run(secs(1));
    sim.with(|session, _| session.handle_message("second".into()));
    sim.with(|session, _| session.handle_message("x".repeat(ROOM_TEXT_BYTES_MAX)));
    sim.with(|session, _| session.handle_message("y".repeat(ROOM_TEXT_BYTES_MAX + 1)));
    sim.run(secs(1));
    assert_eq!(sim.texts.len(), 3);
    assert_eq!(sim.texts[..2], [r#"{"early":1}"#, "second"]);
    assert_eq!(
        (sim.texts[2].len(), sim.session.oversized_messages),
        (ROOM_TEXT_BYTES_MAX, 1)
    );

    let before = sim.events.len();
    sim.data(&text("ann", b"hello", None));
    sim.data(&text("ann", "{\"t\":\"\u{e9}\"}".as_bytes(), Some("lk-chat")));
    sim.data(&text("ann", &[0xff, 0xfe], None));
    sim.data(&text("bob", b"from an agent", None));
    sim.data(&text("unknown", b"from an unknown identity", None));
    sim.data(&text("", b"without a name", None));
    sim.data(&[0xff; 40]);
    for (code, digit) in [(7, "7"), (10, ""), (99, "")] {
        let dtmf = DataPacket {
            participant_identity: "ann".into(),
            value: Some(DataValue::Dtmf(SipDtmf {
                code,
                digit: digit.into(),
            })),
            ..DataPacket::default()
        };
        sim.data(&dtmf.encode_to_vec());
    }
    let reported: Vec<&SessionEvent> = sim.events[before..].iter().map(|(_, event)| event).collect();
    assert_eq!(
        reported,
        [
            &SessionEvent::Message("hello".into()),
            &SessionEvent::Message("{\"t\":\"\u{e9}\"}".into()),
            &SessionEvent::Dtmf('7'),
            &SessionEvent::Dtmf('*'),
        ]
    );
}

/// Joins, departures and speakers are reported. A room without callers is left after a while, even
/// if agents remain.
#[test]
fn leaves_an_empty_room_after_a_timeout() {
    let mut sim = Simulation::with_caller();
    sim.participant_joins(FakeParticipant::agent("PA_bot1", "bot"));
    sim.participant_joins(FakeParticipant::caller("PA_bob1", "bob"));
    sim.set_speaking("PA_bob1", true);
    assert!(sim.has(&SessionEvent::Speaking {
        identity: "bob".into(),
        speaking: true
    }));
    sim.participant_leaves("bob");
    assert!(sim.has(&SessionEvent::Speaking {
        identity: "bob".into(),
        speaking: false
    }));
    assert!(sim.has(&SessionEvent::ParticipantLeft(participant("bob", false))));
    assert!(!sim.has(&SessionEvent::Lost), "ann is there");

    sim.participant_leaves("ann");
    assert_eq!(sim.count(&SessionEvent::Lost), 1);
    sim.run(ROOM_LEAVE_AFTER - ms(10));
    sim.participant_joins(FakeParticipant::caller("PA_ann2", "ann"));
    assert_eq!(sim.count(&SessionEvent::Restored), 1);
    sim.run(ROOM_LEAVE_AFTER * 2);
    sim.participant_leaves("ann");
    sim.run(ROOM_LEAVE_AFTER - ms(1));
    assert_eq!(sim.end_reason(), None);
    sim.run(ms(1));
    assert_eq!(sim.end_reason(), Some(LeaveReason::Left));
    sim.run(secs(1));
    assert!(sim.gone.is_some() && sim.left_gracefully());
    assert_eq!(sim.count(&SessionEvent::Joined), 1);
}

/// A room that no caller joins is left after five minutes.
#[test]
fn gives_up_a_room_that_no_caller_joins() {
    let mut sim = Simulation::new();
    sim.participants.push(FakeParticipant::agent("PA_bot1", "bot"));
    sim.start_audio();
    sim.run_until(secs(2), |sim| !sim.voice.is_empty());
    sim.run(ROOM_FIRST_CALLER_WITHIN - secs(2));
    assert_eq!(sim.end_reason(), None);
    sim.run(secs(3));
    assert_eq!(sim.end_reason(), Some(LeaveReason::NeverConnected));
    assert!(!sim.has(&SessionEvent::Joined) && sim.join_failed().is_none());
    sim.run(secs(1));
    assert!(sim.gone.is_some());
}

/// The last speech of a bot that has ended is sent completely.
#[test]
fn sends_the_remaining_speech_of_a_finished_bot() {
    let mut sim = Simulation::with_caller();
    sim.speech.extend(Tone::new(440.0, RATE_HZ).take(RATE_HZ as usize));
    sim.run(ms(100));
    sim.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    assert_eq!(sim.end_reason(), None);
    sim.run(FINISH_WITHIN);
    assert_eq!(sim.end_reason(), Some(LeaveReason::BotEnded));
    let loud = sim
        .bot_audio()
        .iter()
        .filter(|sample| sample.unsigned_abs() > 1_000)
        .count();
    assert!(loud > 12_000, "{loud}");
    sim.run(ROOM_CLOSE_WITHIN);
    assert!(sim.gone.is_some() && sim.left_gracefully());
}

/// A bot that ends in silence ends its session within two frames.
#[test]
fn the_end_of_a_silent_bot_is_noticed_within_two_frames() {
    for reason in [LeaveReason::BotEnded, LeaveReason::BotFailed] {
        let mut sim = Simulation::with_caller();
        sim.run(secs(1));
        sim.with(|session, now| session.handle_bot_end(reason, now));
        sim.run(ms(40));
        assert_eq!(sim.end_reason(), Some(reason));
        sim.run(ROOM_CLOSE_WITHIN);
        assert!(sim.gone.is_some() && sim.left_gracefully());
    }
}

/// Without a caller, a bot that has ended and a runner that stops leave at once, in every phase.
#[test]
fn leaves_at_once_without_listeners() {
    for wait in [ms(0), ms(1), ms(30), ms(100), secs(2)] {
        for bot in [true, false] {
            let mut sim = Simulation::new();
            sim.start_audio();
            sim.run(wait);
            sim.with(|session, now| match bot {
                true => session.handle_bot_end(LeaveReason::BotFailed, now),
                false => session.handle_end(LeaveReason::Shutdown, now),
            });
            let reason = if bot {
                LeaveReason::BotFailed
            } else {
                LeaveReason::Shutdown
            };
            assert_eq!(sim.end_reason(), Some(reason));
            sim.run(ROOM_CLOSE_WITHIN);
            assert!(sim.gone.is_some(), "{wait:?} {bot}");
            assert!(sim.left_gracefully());
            let events = sim.events.len();
            sim.with(|session, now| session.handle_end(LeaveReason::Shutdown, now));
            sim.with(|session, _| session.handle_message("late".into()));
            sim.run(secs(100));
            assert_eq!(sim.events.len(), events, "nothing follows");
        }
    }
    let mut sim = Simulation::new();
    sim.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    assert_eq!((sim.end_reason(), sim.dials.len()), (Some(LeaveReason::BotEnded), 0));
    assert!(sim.gone.is_some());

    let mut sim = Simulation::new();
    sim.dial_result = DialResult::NoAnswer;
    sim.start_audio();
    sim.with(|session, now| session.handle_end(LeaveReason::Shutdown, now));
    assert!(sim.gone.is_some() && sim.closes == 1, "the dial is given up");
}

/// A server that does not close costs no more than the time limit.
#[test]
fn limits_the_wait_for_the_server_to_close() {
    let mut sim = Simulation::with_caller();
    sim.network = false;
    sim.with(|session, now| session.handle_end(LeaveReason::Shutdown, now));
    sim.run(ROOM_CLOSE_WITHIN + ms(1));
    assert!(sim.gone.is_some());
}
