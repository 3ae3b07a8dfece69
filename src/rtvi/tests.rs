//! Tests of RTVI from the transport's side: the messages to the client, their order, and the bot's
//! events.
//!
//! Futures are polled by hand, without a clock and without a runtime.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use serde_json::json;

use super::*;
use crate::bot::media::{MediaSlot, OutboundText, TransportSide, pair};
use crate::bot::{
    Kind, MediaroomArguments, ShutdownTrigger, WebRtcArguments, WebRtcConnection, WebSocketArguments,
    WebSocketConnection,
};
use crate::config::{Config, Secret, Transport};
use crate::limits::{AUDIO_IN_FRAMES_MAX, MESSAGES_OUT_MAX};

/// The transport side of a session.
pub(crate) struct Caller {
    pub transport_side: TransportSide,
    pub stop: ShutdownTrigger,
}

impl Caller {
    /// Creates a WebRTC session: the caller, and the arguments of its bot.
    pub fn new(embedded: bool, body: Value) -> (Caller, RunnerArguments) {
        let connection = WebRtcConnection::new("pc".to_owned(), embedded, true);
        Caller::on(|slot| Kind::WebRtc(WebRtcArguments::new(connection, slot)), body)
    }

    /// Creates a session whose offer has no data channel.
    pub fn without_channel() -> (Caller, RunnerArguments) {
        let connection = WebRtcConnection::new("pc".to_owned(), false, false);
        Caller::on(|slot| Kind::WebRtc(WebRtcArguments::new(connection, slot)), json!({}))
    }

    /// Creates a session on a socket: a plain client, or a telephone call with call data.
    pub fn on_socket(transport: Transport, call_data: Option<Value>, body: Value) -> (Caller, RunnerArguments) {
        let socket = WebSocketConnection::new("/ws");
        Caller::on(
            |slot| Kind::WebSocket(WebSocketArguments::new(socket, transport, call_data, slot)),
            body,
        )
    }

    fn on(kind: impl FnOnce(MediaSlot) -> Kind, body: Value) -> (Caller, RunnerArguments) {
        let config = Config::default();
        let (transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
        let kind = kind(slot);
        let mut args = RunnerArguments::new("test".into(), body, Arc::new(config), kind);
        let (stop, shutdown) = Shutdown::channel();
        args.shutdown = shutdown;
        (Caller { transport_side, stop }, args)
    }

    /// Sends an RTVI message of the client.
    pub fn send(&self, kind: &str, id: &str, data: Value) {
        let message = json!({"label": "rtvi-ai", "type": kind, "id": id, "data": data});
        self.transport_side.push(Event::Message(message.to_string()));
    }

    /// Takes all messages to the client.
    pub fn received(&self) -> Vec<Value> {
        let texts = std::iter::from_fn(|| self.transport_side.take_message());
        texts
            .map(|text| serde_json::from_str(&text).expect("JSON"))
            .inspect(|message: &Value| assert_eq!(message["label"], "rtvi-ai"))
            .collect()
    }

    /// Takes the types of all messages for the record of the call, of which the client gets none.
    pub fn reported(&self) -> Vec<String> {
        let texts = std::iter::from_fn(|| self.transport_side.take_text());
        let kind = |text: OutboundText| match text {
            OutboundText::Report(text) => {
                let report: Value = serde_json::from_str(&text).expect("JSON");
                report["type"].as_str().expect("a type").to_owned()
            }
            other => panic!("no report: {other:?}"),
        };
        texts.map(kind).collect()
    }

    /// Takes all messages to the client and returns their types.
    pub fn types(&self) -> Vec<String> {
        let kind = |message: Value| message["type"].as_str().expect("a type").to_owned();
        self.received().into_iter().map(kind).collect()
    }
}

fn rtvi(embedded: bool) -> (Caller, Rtvi) {
    let (caller, mut args) = Caller::new(embedded, json!({}));
    let rtvi = Rtvi::open(&mut args, Audio::at(16_000)).expect("a WebRTC session has media");
    (caller, rtvi)
}

/// Polls a future once and returns its value if it is ready.
fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Takes all queued events; the session must not have ended.
fn take_events(rtvi: &mut Rtvi) -> Vec<RtviEvent> {
    let mut events = Vec::new();
    while let Some(event) = ready(rtvi.recv()) {
        events.push(event.expect("the rtvi goes on"));
    }
    events
}

#[test]
fn client_ready_is_answered_by_bot_ready_with_its_id() {
    let (caller, mut rtvi) = rtvi(false);
    caller.transport_side.push(Event::Joined);
    assert!(matches!(take_events(&mut rtvi)[..], [RtviEvent::Joined]));
    assert_eq!(rtvi.client(), None);

    caller.send(
        "client-ready",
        "d2d923ea",
        json!({"version": "2.1.0", "about": {"library": "x"}}),
    );
    assert!(matches!(take_events(&mut rtvi)[..], [RtviEvent::Ready]));
    let received = caller.received();
    assert_eq!(received.len(), 1);
    assert_eq!(
        (&received[0]["type"], &received[0]["id"]),
        (&json!("bot-ready"), &json!("d2d923ea"))
    );
    assert_eq!(received[0]["data"]["version"], "2.1.0");
    assert_eq!(received[0]["data"]["about"]["library"], "edge-runner");
    let client = rtvi.client().expect("a client");
    assert_eq!(
        (client.version.as_deref(), &client.about),
        (Some("2.1.0"), &json!({"library": "x"}))
    );

    // A repeated `client-ready` is answered again, without a second `Ready` event.
    caller.send("client-ready", "2", json!({"version": "2.1.0"}));
    assert!(take_events(&mut rtvi).is_empty());
    assert_eq!(caller.types(), ["bot-ready"]);
}

/// A telephone in a room sends no `client-ready`: its bot is ready when it has joined, or when the
/// telephone comes later. Messages reach the others in the room nevertheless.
#[test]
fn a_telephone_in_a_room_makes_the_bot_ready() {
    let telephone = || {
        let mut who = Participant::default();
        who.is_telephone = true;
        who
    };
    let in_room = || {
        let room = |slot| {
            Kind::Mediaroom(MediaroomArguments::new(
                "r".into(),
                "ws://h".into(),
                Secret::new("t"),
                None,
                slot,
            ))
        };
        let (caller, mut args) = Caller::on(room, json!({}));
        // The call of a job's telephone is known before the media is opened.
        caller.transport_side.set_call_data(json!({"from": "+15550001111"}));
        let rtvi = Rtvi::open(&mut args, Audio::at(16_000)).expect("a room has media");
        assert_eq!(args.call_data().expect("a call")["from"], "+15550001111");
        (caller, rtvi)
    };
    let (caller, mut rtvi) = in_room();
    caller.transport_side.push(Event::ParticipantJoined(telephone()));
    caller.transport_side.push(Event::Joined);
    assert!(matches!(
        take_events(&mut rtvi)[..],
        [RtviEvent::ParticipantJoined(_), RtviEvent::Joined, RtviEvent::Ready]
    ));
    rtvi.show("hello");
    assert_eq!(caller.types(), ["bot-output"]);

    let (caller, mut rtvi) = in_room();
    caller
        .transport_side
        .push(Event::ParticipantJoined(Participant::default()));
    caller.transport_side.push(Event::Joined);
    assert!(matches!(
        take_events(&mut rtvi)[..],
        [RtviEvent::ParticipantJoined(_), RtviEvent::Joined]
    ));
    for event in [
        Event::ParticipantJoined(telephone()),
        Event::ParticipantChanged(telephone()),
        Event::Muted(true),
    ] {
        caller.transport_side.push(event);
    }
    assert!(matches!(
        take_events(&mut rtvi)[..],
        [
            RtviEvent::ParticipantJoined(_),
            RtviEvent::Ready,
            RtviEvent::ParticipantChanged(_),
            RtviEvent::Muted(true)
        ]
    ));
}

/// R-052: no version ends a session.
#[test]
fn an_unsupported_version_is_reported_and_served() {
    for (version, complaint, answer) in [
        (json!("3.0.0"), Some("not compatible"), "2.1.0"),
        (json!("x"), Some("Invalid client version format (x)"), "2.1.0"),
        (json!(null), Some("Client version unknown"), "2.1.0"),
        (json!("1.2.0"), None, "1.2.0"),
    ] {
        let (caller, mut rtvi) = rtvi(false);
        caller.send("client-ready", "9", json!({"version": version}));
        assert!(matches!(take_events(&mut rtvi)[..], [RtviEvent::Ready]));
        let mut received = caller.received().into_iter();
        if let Some(complaint) = complaint {
            let error = received.next().expect("a complaint");
            assert_eq!((&error["type"], &error["id"]), (&json!("error-response"), &json!("9")));
            assert!(
                error["data"]["error"].as_str().expect("text").contains(complaint),
                "{error}"
            );
        }
        let ready = received.next().expect("bot-ready");
        assert_eq!(
            (&ready["type"], &ready["data"]["version"]),
            (&json!("bot-ready"), &json!(answer))
        );
        assert_eq!(received.next(), None);
    }
}

#[test]
fn a_microcontroller_is_ready_when_it_joins() {
    let (caller, mut rtvi) = rtvi(true);
    caller.transport_side.push(Event::Joined);
    assert!(matches!(
        take_events(&mut rtvi)[..],
        [RtviEvent::Joined, RtviEvent::Ready]
    ));
    assert!(caller.received().is_empty());

    caller.transport_side.push(Event::Message(
        r#"{"label":"rtvi-ai","type":"client-ready","id":"0"}"#.to_owned(),
    ));
    assert!(take_events(&mut rtvi).is_empty(), "it was ready before");
    assert_eq!(caller.types(), ["error-response", "bot-ready"]);
}

#[test]
fn sentences_are_announced_when_speech_starts() {
    let (caller, mut rtvi) = rtvi(false);
    rtvi.say("Hello.");
    let mut sentence = rtvi.begin_sentence("How are you?");
    rtvi.progress(&mut sentence, 3);
    rtvi.say("");
    assert!(caller.received().is_empty());

    caller.transport_side.push(Event::SpeechStarted);
    assert!(matches!(take_events(&mut rtvi)[..], [RtviEvent::SpeechStarted]));
    let received = caller.received();
    let types: Vec<_> = received
        .iter()
        .map(|message| message["type"].as_str().expect("a type"))
        .collect();
    assert_eq!(
        types,
        ["bot-started-speaking", "bot-tts-text", "bot-output", "bot-output"]
    );
    assert_eq!(received[2]["data"]["spoken_status"], "completed");
    assert_eq!(received[2]["data"]["spoken_progress"]["accumulated_text"], "Hello.");
    assert_eq!(received[3]["data"]["spoken_status"], "new");
    assert_ne!(received[2]["data"]["segment_id"], received[3]["data"]["segment_id"]);

    for (at, words, status) in [
        (4, "How", "in-progress"),
        (9, " are", "in-progress"),
        (99, " you?", "completed"),
    ] {
        rtvi.progress(&mut sentence, at);
        let reported = caller.received();
        assert_eq!(reported[0]["data"], json!({"text": words}));
        assert_eq!(reported[1]["data"]["spoken_status"], status);
        assert_eq!(reported[1]["data"]["segment_id"], received[3]["data"]["segment_id"]);
        rtvi.progress(&mut sentence, at + 1);
        assert!(caller.received().is_empty(), "a word is told once it is whole");
    }
    rtvi.progress(&mut sentence, 99);
    rtvi.progress(&mut sentence, 2);
    assert!(caller.received().is_empty(), "what is spoken stays spoken");

    rtvi.say("Good.");
    assert_eq!(
        caller.types(),
        ["bot-tts-text", "bot-output"],
        "the voice is heard, so there is nothing to wait for"
    );
    caller.transport_side.push(Event::SpeechStopped);
    assert!(matches!(take_events(&mut rtvi)[..], [RtviEvent::SpeechStopped]));
    assert_eq!(caller.types(), ["bot-stopped-speaking"]);
    rtvi.say("Later.");
    assert!(caller.received().is_empty());
}

#[test]
fn pending_sentences_are_bounded() {
    let (caller, mut rtvi) = rtvi(false);
    for count in 0..=RTVI_SEGMENTS_MAX {
        rtvi.begin_sentence(&format!("{count}."));
    }
    caller.transport_side.push(Event::SpeechStarted);
    take_events(&mut rtvi);
    let received = caller.received();
    assert_eq!(received.len(), 1 + RTVI_SEGMENTS_MAX);
    assert_eq!(received[1]["data"]["text"], "1.", "the oldest was dropped");
}

#[test]
fn an_interruption_drops_speech_and_sentences_and_is_reported() {
    let (caller, mut rtvi) = rtvi(false);
    ready(rtvi.send_audio(&[1; 100]))
        .expect("there is room")
        .expect("the session goes on");
    rtvi.say("This is not played.");
    rtvi.interrupt();
    assert!(caller.transport_side.take_interruption());
    assert!(!caller.transport_side.has_audio());
    assert_eq!(caller.types(), ["bot-interrupted"]);

    caller.transport_side.push(Event::SpeechStarted);
    caller.transport_side.push(Event::SpeechStopped);
    take_events(&mut rtvi);
    assert_eq!(caller.types(), ["bot-started-speaking", "bot-stopped-speaking"]);
}

#[test]
fn a_client_of_protocol_1_gets_whole_sentences() {
    let (caller, mut rtvi) = rtvi(false);
    caller.send("client-ready", "1", json!({"version": "1.2.0"}));
    caller.transport_side.push(Event::SpeechStarted);
    take_events(&mut rtvi);
    caller.received();
    rtvi.say("Hello.");
    rtvi.show("(waves)");
    let received = caller.received();
    assert_eq!(
        received[1]["data"],
        json!({"text": "Hello.", "aggregated_by": "sentence", "spoken": true})
    );
    assert_eq!(
        received[2]["data"],
        json!({"text": "(waves)", "aggregated_by": "sentence", "spoken": false})
    );
}

#[test]
fn the_end_is_reported_once_and_no_event_follows() {
    type End = fn(&Caller);
    let ends: [(End, LeaveReason); 3] = [
        (
            |caller| caller.send("disconnect-bot", "1", json!({})),
            LeaveReason::Left,
        ),
        (
            |caller| caller.transport_side.push(Event::Left(LeaveReason::Vanished)),
            LeaveReason::Vanished,
        ),
        (|caller| caller.stop.set(), LeaveReason::Shutdown),
    ];
    for (end, expected) in ends {
        let (caller, mut rtvi) = rtvi(false);
        caller.transport_side.push(Event::Joined);
        end(&caller);
        assert!(matches!(ready(rtvi.recv()), Some(Some(RtviEvent::Joined))));
        match ready(rtvi.recv()) {
            Some(Some(RtviEvent::Left(reason))) => assert_eq!(reason, expected),
            other => panic!("{other:?}"),
        }
        caller.transport_side.push_audio(&[0; 320], 16_000);
        caller.send("client-message", "2", json!({"t": "late"}));
        assert!(matches!(ready(rtvi.recv()), Some(None)));
        assert!(matches!(ready(rtvi.recv()), Some(None)));
    }
}

#[test]
fn a_dropped_transport_side_ends_the_session() {
    let (caller, mut rtvi) = rtvi(false);
    drop(caller.transport_side);
    assert!(matches!(ready(rtvi.recv()), Some(None)));
    rtvi.show("hello");
    rtvi.interrupt();
    assert_eq!(ready(rtvi.send_audio(&[0; 10])), Some(Err(MediaError)));
}

#[test]
fn unsupported_messages_are_answered_without_the_bot() {
    let (caller, mut rtvi) = rtvi(false);
    caller.send("append-to-context", "7", json!({"role": "user", "content": "x"}));
    caller.send("dtmf", "8", json!({"buttons": []}));
    caller
        .transport_side
        .push(Event::Message(r#"{"label":"rtvi-ai","type":"dtmf"}"#.to_owned()));
    caller.transport_side.push(Event::Message("\u{7}ping".to_owned()));
    assert!(take_events(&mut rtvi).is_empty());
    let received = caller.received();
    assert_eq!(received[0]["id"], "7");
    assert_eq!(
        received[0]["data"],
        json!({"error": "Unsupported type append-to-context"})
    );
    assert_eq!(received[1]["id"], "8");
    assert_eq!(received[2]["type"], "error");
    assert_eq!(received[2]["data"]["fatal"], false);
    assert_eq!(received.len(), 3);
}

#[test]
fn the_application_gets_its_answers_by_id() {
    let (caller, mut rtvi) = rtvi(false);
    caller.send("client-message", "3ea807f7", json!({"t": "echo", "d": {"n": 7}}));
    caller.send("client-message", "1a1d0dbc", json!({"t": "fail"}));
    let events = take_events(&mut rtvi);
    let [RtviEvent::Message(echo), RtviEvent::Message(fail)] = &events[..] else {
        panic!("{events:?}");
    };
    rtvi.respond(echo, &echo.d);
    rtvi.reject(fail, "asked to fail");
    rtvi.message(&json!({"any": null}));
    rtvi.error("it broke", true);
    assert_eq!(
        caller.received(),
        [
            json!({"label": "rtvi-ai", "type": "server-response", "id": "3ea807f7", "data": {"t": "echo", "d": {"n": 7}}}),
            json!({"label": "rtvi-ai", "type": "error-response", "id": "1a1d0dbc", "data": {"error": "asked to fail"}}),
            json!({"label": "rtvi-ai", "type": "server-message", "data": {"any": null}}),
            json!({"label": "rtvi-ai", "type": "error", "data": {"error": "it broke", "fatal": true}}),
        ]
    );
}

#[test]
fn events_arrive_in_order() {
    let (caller, mut rtvi) = rtvi(false);
    caller.transport_side.push(Event::Joined);
    caller.transport_side.push_audio(&[5; 320], 16_000);
    caller.send("dtmf", "1", json!({"buttons": ["4", "2"]}));
    caller.transport_side.push(Event::Dtmf('A'));
    caller.send(
        "send-text",
        "2",
        json!({"content": "hi", "options": {"audio_response": false}}),
    );
    caller.send("ui-event", "3", json!({"event": "click"}));
    caller.transport_side.push(Event::Lost);
    caller.transport_side.push(Event::Restored);
    let events = take_events(&mut rtvi);
    let [
        RtviEvent::Joined,
        RtviEvent::Audio(frame),
        RtviEvent::Dtmf('4'),
        RtviEvent::Dtmf('2'),
        RtviEvent::Dtmf('A'),
        RtviEvent::Text { content, options },
        RtviEvent::Request(Request::UiEvent { event, .. }),
        RtviEvent::Lost,
        RtviEvent::Restored,
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((&frame[..], frame.rate_hz()), (&[5; 320][..], 16_000));
    assert_eq!((content.as_str(), event.as_str()), ("hi", "click"));
    assert!(options.run_immediately && !options.audio_response);
}

#[test]
fn transcripts_have_a_timestamp() {
    let (caller, rtvi) = rtvi(false);
    rtvi.user_started_speaking();
    rtvi.transcript("hel", false);
    rtvi.user_stopped_speaking();
    rtvi.transcript("hello", true);
    let received = caller.received();
    let kinds: Vec<_> = received
        .iter()
        .map(|message| message["type"].as_str().expect("a type"))
        .collect();
    assert_eq!(
        kinds,
        [
            "user-started-speaking",
            "user-transcription",
            "user-stopped-speaking",
            "user-transcription"
        ]
    );
    assert_eq!(
        (&received[1]["data"]["final"], &received[3]["data"]["final"]),
        (&json!(false), &json!(true))
    );
    let at = received[3]["data"]["timestamp"].as_str().expect("a time");
    assert!(at.len() == 29 && at.starts_with("20") && at.ends_with("+00:00"), "{at}");
}

#[test]
fn levels_are_clamped_and_rounded() {
    let (caller, rtvi) = rtvi(false);
    for (level, reported) in [
        (0.123_456, 0.123),
        (-1.0, 0.0),
        (7.0, 1.0),
        (f32::NAN, 0.0),
        (f32::INFINITY, 1.0),
    ] {
        rtvi.user_level(level);
        rtvi.bot_level(level);
        let received = caller.received();
        let levels: Vec<_> = (received.iter())
            .map(|message| (&message["type"], &message["data"]))
            .collect();
        let value = json!({"value": reported});
        assert_eq!(
            levels,
            [
                (&json!("user-audio-level"), &value),
                (&json!("bot-audio-level"), &value)
            ]
        );
    }
}

/// Sends every message that a microcontroller gets only on request.
fn details(rtvi: &mut Rtvi) {
    rtvi.metrics(&Metrics::default());
    rtvi.transcript("hel", false);
    rtvi.user_level(0.5);
    rtvi.bot_level(0.5);
    rtvi.send(&ToClient::BotLlmText { text: "a" });
    let mut sentence = rtvi.begin_sentence("One two.");
    rtvi.progress(&mut sentence, 3);
    rtvi.progress(&mut sentence, 8);
}

#[test]
fn a_microcontroller_gets_details_only_on_request() {
    let (caller, mut rtvi) = rtvi(true);
    caller.transport_side.push(Event::SpeechStarted);
    take_events(&mut rtvi);
    caller.received();

    details(&mut rtvi);
    let received = caller.received();
    assert_eq!(received.len(), 1, "{received:?}");
    assert_eq!(
        (&received[0]["type"], &received[0]["data"]["text"]),
        (&json!("bot-tts-text"), &json!("One two."))
    );
    rtvi.say("Three.");
    rtvi.transcript("hello", true);
    rtvi.error("oh", false);
    assert_eq!(caller.types(), ["bot-tts-text", "user-transcription", "error"]);

    rtvi.set_detailed(true);
    details(&mut rtvi);
    assert_eq!(
        caller.types(),
        [
            "metrics",
            "user-transcription",
            "user-audio-level",
            "bot-audio-level",
            "bot-llm-text",
            "bot-output",
            "bot-tts-text",
            "bot-output",
            "bot-tts-text",
            "bot-output",
        ]
    );
}

#[test]
fn no_message_to_a_microcontroller_is_longer_than_a_chunk() {
    let (caller, mut rtvi) = rtvi(true);
    caller.transport_side.push(Event::SpeechStarted);
    caller.send("client-message", &"\"".repeat(128), json!({"t": "a"}));
    let events = take_events(&mut rtvi);
    let [RtviEvent::SpeechStarted, RtviEvent::Message(asked)] = &events[..] else {
        panic!("{events:?}");
    };
    caller.received();
    let long = "Wort \"f\u{fc}r\" Wort, \u{1}".repeat(300);
    let mut reported = String::new();
    let mut longest = 0;
    rtvi.say(&long[..3_000]);
    rtvi.show(&long[..3_000]);
    rtvi.error(&long, false);
    rtvi.message(&json!(long));
    rtvi.respond(asked, &json!(long));
    let mut types = Vec::new();
    while let Some(text) = caller.transport_side.take_message() {
        longest = longest.max(text.len());
        let message: Value = serde_json::from_str(&text).expect("JSON");
        if message["type"] == "bot-tts-text" {
            reported.push_str(message["data"]["text"].as_str().expect("text"));
        }
        types.push(message["type"].as_str().expect("a type").to_owned());
    }
    types.dedup();
    assert_eq!(types, ["bot-tts-text", "bot-output", "error", "error-response"]);
    assert_eq!(reported, &long[..3_000], "the pieces are the text");
    assert!((900..=DEVICE_MESSAGE_BYTES_MAX).contains(&longest), "{longest}");
}

/// The queue holds 500 ms of speech; while the rest waits, the client is answered.
#[test]
fn the_client_is_answered_while_speech_is_queued() {
    let (caller, mut rtvi) = rtvi(false);
    let pcm = vec![1; 16_000];
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut sending = pin!(rtvi.send_audio(&pcm));
        assert!(sending.as_mut().poll(&mut context).is_pending());
        caller.transport_side.push(Event::SpeechStarted);
        caller.send("client-ready", "1", json!({"version": "2.1.0"}));
        for count in 0..AUDIO_IN_FRAMES_MAX as i16 + 10 {
            caller.transport_side.push_audio(&[count], 16_000);
            assert!(sending.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(caller.types(), ["bot-started-speaking", "bot-ready"]);
        let mut taken = Vec::new();
        let mut sent = Poll::Pending;
        caller.transport_side.audio();
        while caller.transport_side.take_audio(&mut taken, 320) > 0 {
            if sent.is_pending() {
                sent = sending.as_mut().poll(&mut context);
            }
        }
        assert_eq!(sent, Poll::Ready(Ok(())));
        assert_eq!(taken, pcm);
    }
    let events = take_events(&mut rtvi);
    assert!(
        matches!(events[..2], [RtviEvent::SpeechStarted, RtviEvent::Ready]),
        "{events:?}"
    );
    let first = |event: &RtviEvent| match event {
        RtviEvent::Audio(frame) => frame[0],
        other => panic!("{other:?}"),
    };
    let frames: Vec<i16> = events[2..].iter().map(first).collect();
    assert_eq!(
        frames,
        (10..AUDIO_IN_FRAMES_MAX as i16 + 10).collect::<Vec<_>>(),
        "the newest second is kept"
    );
}

/// A flood of messages to a bot that is sending speech fills the session's queue only.
#[test]
fn a_flood_of_messages_is_bounded_while_speech_is_queued() {
    let (caller, mut rtvi) = rtvi(false);
    {
        let mut sending = pin!(rtvi.send_audio(&[0; 16_000]));
        for _ in 0..1_000 {
            caller.send("send-text", "1", json!({"content": "flood"}));
        }
        assert!(
            sending
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    assert_eq!(rtvi.queue.len(), RTVI_EVENTS_WAITING_MAX);
    for _ in 0..1_000 {
        rtvi.message(&json!(0));
    }
    assert_eq!(caller.received().len(), MESSAGES_OUT_MAX);
}

#[test]
fn a_dropped_recv_future_loses_no_event() {
    let (caller, mut rtvi) = rtvi(false);
    assert!(ready(rtvi.recv()).is_none());
    caller.transport_side.push(Event::Joined);
    assert!(matches!(ready(rtvi.recv()), Some(Some(RtviEvent::Joined))));
    {
        let mut waiting = pin!(rtvi.recv());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        caller.transport_side.push(Event::Lost);
    }
    assert!(matches!(ready(rtvi.recv()), Some(Some(RtviEvent::Lost))));
}

#[test]
fn a_kind_without_media_cannot_be_opened() {
    let (_caller, args) = Caller::new(false, json!({}));
    let mut base = RunnerArguments::new("b".into(), json!({}), args.cli_args.clone(), Kind::Base);
    let missing = Rtvi::open(&mut base, Audio::default()).expect_err("no media");
    assert_eq!(missing.to_string(), "`media` is not part of base arguments");
}

/// What a microcontroller does not get is in the record of its call nevertheless, but for what no
/// record has.
#[test]
fn the_record_has_what_a_microcontroller_does_not_get() {
    let (caller, mut rtvi) = rtvi(true);
    caller.transport_side.push(Event::SpeechStarted);
    take_events(&mut rtvi);
    caller.received();
    details(&mut rtvi);
    let texts: Vec<OutboundText> = std::iter::from_fn(|| caller.transport_side.take_text()).collect();
    let kinds: Vec<(bool, Value)> = texts
        .iter()
        .map(|text| {
            let message: Value = serde_json::from_str(text.as_str()).expect("JSON");
            (matches!(text, OutboundText::Report(_)), message["type"].clone())
        })
        .collect();
    assert_eq!(
        kinds,
        [
            (true, json!("metrics")),
            (false, json!("bot-tts-text")),
            (true, json!("bot-output")),
            (true, json!("bot-output")),
            (true, json!("bot-output")),
        ]
    );
    rtvi.message(&json!("long".repeat(DEVICE_MESSAGE_BYTES_MAX)));
    assert_eq!(caller.reported(), ["server-message"]);
}

/// Without a data channel there is no `client-ready`: the session is ready when it joins, and
/// the record of the call alone has the messages.
#[test]
fn a_caller_without_a_data_channel_is_ready_when_it_joins() {
    let (caller, mut args) = Caller::without_channel();
    let mut rtvi = Rtvi::open(&mut args, Audio::at(16_000)).expect("it has media");
    caller.transport_side.push(Event::Joined);
    assert!(matches!(ready(rtvi.recv()), Some(Some(RtviEvent::Joined))));
    assert!(matches!(ready(rtvi.recv()), Some(Some(RtviEvent::Ready))));
    rtvi.show("Hello.");
    rtvi.user_started_speaking();
    rtvi.metrics(&Metrics::default());
    rtvi.user_level(0.5);
    assert_eq!(caller.reported(), ["bot-output", "user-started-speaking", "metrics"]);
}

/// A client that opens its channel by a later offer is answered from its first message on.
#[test]
fn a_data_channel_may_be_opened_later() {
    let (caller, mut args) = Caller::without_channel();
    let mut rtvi = Rtvi::open(&mut args, Audio::at(16_000)).expect("it has media");
    caller.transport_side.push(Event::Joined);
    caller.send(
        "client-ready",
        "r",
        json!({"version": "1.2.0", "about": {"library": "x"}}),
    );
    caller.transport_side.push(Event::Dtmf('1'));
    let mut next = || format!("{:?}", ready(rtvi.recv()).flatten().expect("an event"));
    assert_eq!([next(), next(), next()], ["Joined", "Ready", "Dtmf('1')"]);
    assert_eq!(caller.types(), ["bot-ready"]);
    rtvi.user_started_speaking();
    assert_eq!(caller.types(), ["user-started-speaking"]);
}

/// A telephone sends no `client-ready`: the session is ready when it joins, and the record of the
/// call alone has the messages.
#[test]
fn a_telephone_is_ready_when_it_joins() {
    let data = json!({"call_id": "CA1"});
    let (caller, mut args) = Caller::on_socket(
        Transport::Telephony(crate::proto::telephony::PROVIDERS[0]),
        Some(data),
        json!({}),
    );
    let mut rtvi = Rtvi::open(&mut args, Audio::at(8_000)).expect("a call has media");
    caller.transport_side.push(Event::Joined);
    caller.transport_side.push(Event::Dtmf('7'));
    caller.transport_side.push(Event::Mark {
        name: "m".into(),
        played: true,
    });
    let mut context = Context::from_waker(Waker::noop());
    let mut next = || match std::pin::pin!(rtvi.recv()).poll(&mut context) {
        Poll::Ready(event) => format!("{:?}", event.expect("the session goes on")),
        Poll::Pending => panic!("an event was due"),
    };
    assert_eq!(
        [next(), next(), next(), next()],
        ["Joined", "Ready", "Dtmf('7')", r#"Mark { name: "m", played: true }"#]
    );
    rtvi.show("not sent");
    rtvi.user_started_speaking();
    assert_eq!(caller.reported(), ["bot-output", "user-started-speaking"]);
}
