//! Lives that go well, and how they end.

use prost::Message as _;

use super::super::*;
use super::house::{Door, Guest, House, secs};
use super::*;
use crate::audio::tone::{Tone, share};
use crate::livekit::wire::{
    ClientMessage, DataPacket, DataValue, ServerMessage, SipDtmf, TrackInfo, TrackPublishedResponse, TrackSource,
    UserPacket,
};
use crate::participant::Participant;
use crate::webrtc::connection::sfu::tests::world::{RATE_HZ, Talker, ms};

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

/// Nothing is dialled before the bot takes its media; then the room is joined with its token, and the bot is told of whoever is
/// there before it is told that it is heard.
#[test]
fn the_room_is_entered_when_the_bot_takes_its_media() {
    let mut house = House::new();
    house.guests.push(Guest::caller("PA_ann1", "ann"));
    house.guests.push(Guest::agent("PA_bob1", "bob"));
    house.run(secs(3600));
    assert!(house.dials.is_empty() && house.events.is_empty());
    house.enter();
    house.run(secs(1));
    let (_, dial) = &house.dials[0];
    assert!(
        dial.url
            .starts_with("https://media.example.net/rtc?protocol=15&auto_subscribe=0&")
    );
    assert_eq!(dial.token.expose(), "first");
    let events: Vec<&SessionEvent> = house.events.iter().map(|(_, event)| event).collect();
    assert_eq!(
        events,
        [
            &SessionEvent::ParticipantJoined(participant("ann", false)),
            &SessionEvent::ParticipantJoined(participant("bob", true)),
            &SessionEvent::Joined
        ]
    );
    let published: Vec<_> = (house.requests.iter())
        .filter_map(|(_, request)| match request {
            ClientMessage::AddTrack(track) => Some((track.source, track.disable_red)),
            _ => None,
        })
        .collect();
    assert_eq!(published, [(TrackSource::Microphone as i32, true)]);
    let asked: Vec<_> = (house.requests.iter())
        .filter_map(|(_, request)| match request {
            ClientMessage::Subscription(subscription) => Some(subscription.track_sids.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [["TR_ann1"]], "agents are not heard");
    house.run(secs(120));
    assert_eq!((house.dials.len(), house.left()), (1, None), "it stays");
    let pings = (house.requests.iter()).filter(|(_, request)| matches!(request, ClientMessage::Ping(_)));
    assert!((20..=26).contains(&pings.count()));
}

/// An older server wants to know the track before it is offered.
#[test]
fn the_offer_waits_for_the_track_where_the_server_wants_it_so() {
    for fast_publish in [true, false] {
        let mut house = House::new();
        house.fast_publish = fast_publish;
        house.guests.push(Guest::caller("PA_ann1", "ann"));
        house.enter();
        house.run(secs(1));
        assert!(house.has(&SessionEvent::Joined), "{fast_publish}");
        if !fast_publish {
            house = House::new();
            house.fast_publish = false;
            house.takes_track = false;
            house.enter();
            house.run(secs(1));
            assert!(
                !house
                    .requests
                    .iter()
                    .any(|(_, request)| matches!(request, ClientMessage::Offer(_)))
            );
        }
    }
}

/// A server that never checks by itself, and tells its candidates late, is met at once by both connections.
#[test]
fn a_server_that_waits_for_us_is_met_at_once() {
    let mut house = House::new();
    house.lite = true;
    house.guests.push(Guest::caller("PA_ann1", "ann"));
    house.enter();
    house.run(ms(500));
    assert!(house.has(&SessionEvent::Joined));
    let mut talkers = [("TR_ann1", Talker::new(440.0))];
    house.talks(&mut talkers, 60);
    assert!(share(&house.mixed()[5_000..], 440.0, RATE_HZ) > 0.8);
}

/// A caller whose media are not up hears no greeting and gets no text: it is there, but the bot has not joined yet. One that
/// turns out to be an agent is no caller.
#[test]
fn the_bot_has_joined_once_a_caller_is_within_reach() {
    let mut house = House::new();
    house.guests.push(Guest {
        state: 1,
        ..Guest::caller("PA_ann1", "ann")
    });
    house.speech.extend(Tone::new(440.0, RATE_HZ).take(RATE_HZ as usize));
    house.with(|session, _| session.handle_message("hello".into()));
    house.enter();
    house.run(secs(2));
    let ann = SessionEvent::ParticipantJoined(participant("ann", false));
    let told: Vec<&SessionEvent> = house.events.iter().map(|(_, event)| event).collect();
    assert_eq!(told, [&ann]);
    assert_eq!((house.speech.len(), house.texts.len()), (RATE_HZ as usize, 0));
    house.becomes("ann", |guest| guest.state = 2);
    house.run(secs(2));
    assert!(house.has(&SessionEvent::Joined) && house.speech.is_empty());
    assert_eq!(house.texts, ["hello"]);

    house.becomes("ann", |guest| guest.kind = 4);
    assert_eq!(house.count(&SessionEvent::Lost), 1);
    house.data(&text("ann", b"from an agent", None));
    assert!(!house.has(&SessionEvent::Message("from an agent".into())));
    assert_eq!(house.count(&ann), 1, "nobody is announced twice");
    house.run(ROOM_EMPTY);
    assert_eq!(house.left(), Some(LeaveReason::Left));
}

/// Ours may be the second connection to come up: what a caller writes before it waits for the bot, what it says is gone.
#[test]
fn what_comes_before_the_bot_has_joined_follows_it() {
    let mut house = House::new();
    house.takes_track = false;
    house.guests.push(Guest::caller("PA_ann1", "ann"));
    house.enter();
    house.run(secs(1));
    house.data(&text("ann", b"client-ready", None));
    house.talks(&mut [("TR_ann1", Talker::new(440.0))], 20);
    assert_eq!(house.events.len(), 1, "{:?}", house.events);
    assert!(house.mixed().iter().all(|sample| *sample == 0));
    house.say(ServerMessage::TrackPublished(TrackPublishedResponse {
        cid: "bot-audio".into(),
        track: Some(TrackInfo {
            sid: "TR_own".into(),
            ..TrackInfo::default()
        }),
    }));
    let told: Vec<&SessionEvent> = house.events[1..].iter().map(|(_, event)| event).collect();
    assert_eq!(
        told,
        [&SessionEvent::Joined, &SessionEvent::Message("client-ready".into())]
    );
}

/// A caller who reloads the page misses nothing: what the bot says meanwhile waits, with its marks.
#[test]
fn speech_waits_while_nobody_is_there() {
    let mut house = House::new();
    assert!(!house.accepts_speech());
    house.enter();
    house.run(secs(1));
    assert!(!house.accepts_speech());
    house.comes(Guest::caller("PA_ann1", "ann"));
    assert!(house.accepts_speech());
    house
        .speech
        .extend(Tone::new(440.0, RATE_HZ).take(5 * RATE_HZ as usize));
    house.run(secs(1));
    house.goes("ann");
    let waiting = house.speech.len();
    house.run(secs(5));
    assert_eq!((house.speech.len(), house.accepts_speech()), (waiting, false));
    assert_eq!(house.count(&SessionEvent::SpeechStopped), 1);
    house.comes(Guest::caller("PA_ann2", "ann"));
    house.run(secs(6));
    assert!(house.speech.is_empty());
    assert_eq!(house.count(&SessionEvent::SpeechStarted), 2);
    assert_eq!(house.count(&SessionEvent::SpeechStopped), 2);
}

/// The bot is heard with its level, and silence is sent while it says nothing; what it says first waits for the first caller.
#[test]
fn the_bot_is_heard() {
    let mut house = House::new();
    house.speech.extend(Tone::new(440.0, RATE_HZ).take(RATE_HZ as usize));
    house.enter();
    house.run(secs(3));
    assert!(house.voice.len() > 100, "silence keeps the track alive");
    assert!(house.bot_said().iter().all(|sample| sample.unsigned_abs() < 100));
    assert!(house.levels.iter().all(|level| *level == -127));
    house.comes(Guest::caller("PA_ann1", "ann"));
    house.run(secs(2));
    let said = house.bot_said();
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
    assert!(house.levels.iter().filter(|level| (-17..=-13).contains(*level)).count() > 40);
    assert!(house.has(&SessionEvent::SpeechStarted) && house.has(&SessionEvent::SpeechStopped));
}

/// What was not said when the bot was interrupted is not said.
#[test]
fn an_interruption_drops_what_has_not_left() {
    let mut house = House::with_caller();
    house
        .speech
        .extend(Tone::new(440.0, RATE_HZ).take(10 * RATE_HZ as usize));
    house.run(secs(1));
    house.speech.clear();
    house.with(|session, now| session.handle_interruption(now));
    let before = house.voice.len();
    house.run(secs(1));
    let after = &house.bot_said()[(before + 3) * RATE_HZ as usize / 50..];
    assert!(after.iter().all(|sample| sample.unsigned_abs() < 500));
    assert!(house.has(&SessionEvent::SpeechStopped));
}

/// Callers are heard as one, or each by name.
#[test]
fn callers_are_heard_as_one_or_each() {
    for mixed in [true, false] {
        let mut house = House::new();
        house.guests.push(Guest::caller("PA_ann1", "ann"));
        house.enter_hearing(mixed);
        house.run(secs(1));
        house.comes(Guest::caller("PA_bob1", "bob"));
        house.run(secs(1));
        let mut talkers = [("TR_ann1", Talker::new(440.0)), ("TR_bob1", Talker::new(1_000.0))];
        house.talks(&mut talkers, 100);
        let middle = |pcm: &[i16]| pcm[pcm.len() - RATE_HZ as usize..].to_vec();
        if mixed {
            let both = middle(house.mixed());
            for hz in [440.0, 1_000.0] {
                assert!(share(&both, hz, RATE_HZ) > 0.3, "{hz}");
            }
            continue;
        }
        for (who, hz) in [("ann", 440.0), ("bob", 1_000.0)] {
            let pcm = &house.heard[&Some(who.into())];
            assert!(share(&middle(pcm), hz, RATE_HZ) > 0.9, "{who}");
        }
        assert!(house.mixed().is_empty());
    }
}

/// Texts go to everybody once somebody is there, and come from callers alone; keys of the telephone come as keys.
#[test]
fn texts_and_keys_pass() {
    let mut house = House::new();
    house.with(|session, _| session.handle_message(r#"{"early":1}"#.into()));
    house.enter();
    house.run(secs(2));
    assert!(house.texts.is_empty());
    house.comes(Guest::caller("PA_ann1", "ann"));
    house.comes(Guest::agent("PA_bob1", "bob"));
    house.run(secs(1));
    house.with(|session, _| session.handle_message("second".into()));
    house.with(|session, _| session.handle_message("x".repeat(ROOM_TEXT_BYTES_MAX)));
    house.with(|session, _| session.handle_message("y".repeat(ROOM_TEXT_BYTES_MAX + 1)));
    house.run(secs(1));
    assert_eq!(house.texts.len(), 3);
    assert_eq!(house.texts[..2], [r#"{"early":1}"#, "second"]);
    assert_eq!(
        (house.texts[2].len(), house.session.oversized_messages),
        (ROOM_TEXT_BYTES_MAX, 1)
    );

    let before = house.events.len();
    house.data(&text("ann", b"hello", None));
    house.data(&text("ann", "{\"t\":\"\u{e9}\"}".as_bytes(), Some("lk-chat")));
    house.data(&text("ann", &[0xff, 0xfe], None));
    house.data(&text("bob", b"from an agent", None));
    house.data(&text("nobody", b"from nobody", None));
    house.data(&text("", b"without a name", None));
    house.data(&[0xff; 40]);
    for (code, digit) in [(7, "7"), (10, ""), (99, "")] {
        let dtmf = DataPacket {
            participant_identity: "ann".into(),
            value: Some(DataValue::Dtmf(SipDtmf {
                code,
                digit: digit.into(),
            })),
            ..DataPacket::default()
        };
        house.data(&dtmf.encode_to_vec());
    }
    let told: Vec<&SessionEvent> = house.events[before..].iter().map(|(_, event)| event).collect();
    assert_eq!(
        told,
        [
            &SessionEvent::Message("hello".into()),
            &SessionEvent::Message("{\"t\":\"\u{e9}\"}".into()),
            &SessionEvent::Dtmf('7'),
            &SessionEvent::Dtmf('*'),
        ]
    );
}

/// Who comes, goes and speaks is told; a room without callers is stayed in for a while, one with agents alone no longer.
#[test]
fn an_empty_room_is_left_after_a_while() {
    let mut house = House::with_caller();
    house.comes(Guest::agent("PA_bot1", "bot"));
    house.comes(Guest::caller("PA_bob1", "bob"));
    house.speaks("PA_bob1", true);
    assert!(house.has(&SessionEvent::Speaking {
        identity: "bob".into(),
        speaking: true
    }));
    house.goes("bob");
    assert!(house.has(&SessionEvent::Speaking {
        identity: "bob".into(),
        speaking: false
    }));
    assert!(house.has(&SessionEvent::ParticipantLeft(participant("bob", false))));
    assert!(!house.has(&SessionEvent::Lost), "ann is there");

    house.goes("ann");
    assert_eq!(house.count(&SessionEvent::Lost), 1);
    house.run(ROOM_EMPTY - ms(10));
    house.comes(Guest::caller("PA_ann2", "ann"));
    assert_eq!(house.count(&SessionEvent::Resumed), 1);
    house.run(ROOM_EMPTY * 2);
    house.goes("ann");
    house.run(ROOM_EMPTY - ms(1));
    assert_eq!(house.left(), None);
    house.run(ms(1));
    assert_eq!(house.left(), Some(LeaveReason::Left));
    house.run(secs(1));
    assert!(house.gone.is_some() && house.has_left_politely());
    assert_eq!(house.count(&SessionEvent::Joined), 1);
}

/// A room that nobody comes to is given up after five minutes.
#[test]
fn a_room_that_nobody_comes_to_is_given_up() {
    let mut house = House::new();
    house.guests.push(Guest::agent("PA_bot1", "bot"));
    house.enter();
    house.run_until(secs(2), |house| !house.voice.is_empty());
    house.run(ROOM_NOBODY - secs(2));
    assert_eq!(house.left(), None);
    house.run(secs(3));
    assert_eq!(house.left(), Some(LeaveReason::NeverConnected));
    assert!(!house.has(&SessionEvent::Joined) && house.join_failed().is_none());
    house.run(secs(1));
    assert!(house.gone.is_some());
}

/// A bot that has ended is heard to its last word.
#[test]
fn a_bot_that_ends_is_heard_out() {
    let mut house = House::with_caller();
    house.speech.extend(Tone::new(440.0, RATE_HZ).take(RATE_HZ as usize));
    house.run(ms(100));
    house.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    assert_eq!(house.left(), None);
    house.run(FINISH_WITHIN);
    assert_eq!(house.left(), Some(LeaveReason::BotEnded));
    let loud = house
        .bot_said()
        .iter()
        .filter(|sample| sample.unsigned_abs() > 1_000)
        .count();
    assert!(loud > 12_000, "{loud}");
    house.run(ROOM_CLOSE_WITHIN);
    assert!(house.gone.is_some() && house.has_left_politely());
}

/// Where nobody hears it, a bot that has ended, and a runner that stops anywhere, leave at once.
#[test]
fn leaving_takes_no_time() {
    for wait in [ms(0), ms(1), ms(30), ms(100), secs(2)] {
        for bot in [true, false] {
            let mut house = House::new();
            house.enter();
            house.run(wait);
            house.with(|session, now| match bot {
                true => session.handle_bot_end(LeaveReason::BotFailed, now),
                false => session.handle_end(LeaveReason::Shutdown, now),
            });
            let reason = if bot {
                LeaveReason::BotFailed
            } else {
                LeaveReason::Shutdown
            };
            assert_eq!(house.left(), Some(reason));
            house.run(ROOM_CLOSE_WITHIN);
            assert!(house.gone.is_some(), "{wait:?} {bot}");
            assert!(house.has_left_politely());
            let events = house.events.len();
            house.with(|session, now| session.handle_end(LeaveReason::Shutdown, now));
            house.with(|session, _| session.handle_message("late".into()));
            house.run(secs(100));
            assert_eq!(house.events.len(), events, "nothing follows");
        }
    }
    let mut house = House::new();
    house.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    assert_eq!((house.left(), house.dials.len()), (Some(LeaveReason::BotEnded), 0));
    assert!(house.gone.is_some());

    let mut house = House::new();
    house.door = Door::Dead;
    house.enter();
    house.with(|session, now| session.handle_end(LeaveReason::Shutdown, now));
    assert!(house.gone.is_some() && house.closes == 1, "the dial is given up");
}

/// A server that does not let go costs no more than its time.
#[test]
fn a_goodbye_that_is_not_heard_has_an_end() {
    let mut house = House::with_caller();
    house.network = false;
    house.with(|session, now| session.handle_end(LeaveReason::Shutdown, now));
    house.run(ROOM_CLOSE_WITHIN + ms(1));
    assert!(house.gone.is_some());
}
