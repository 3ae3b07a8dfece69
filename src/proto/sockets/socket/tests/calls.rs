//! Tests telephone calls: the handshake and its limits, marks, interruption, and hang-up.

use super::*;
use crate::allocations;
use crate::limits::{HANG_UP_BEFORE_CLOSE, SOCKET_CLOSE_WITHIN, TELEPHONY_UNREADABLE_MAX};
use crate::telephony::named::TWILIO;
use crate::telephony::proof::SIMULATED;
use crate::telephony::settings::{Settings, Telephony};

fn start_a() -> Value {
    json!({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": {
        "accountSid": "AC1", "streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        "customParameters": {"from_number": "+15550001111"}}})
}

/// A configuration with the credentials of [`TWILIO`], by which its calls are hung up and need
/// proof.
fn config() -> Config {
    Config {
        telephony: Telephony {
            settings: Settings::from([("TELCO_A_ACCOUNT_SID", "AC1"), ("TELCO_A_AUTH_TOKEN", "token")]),
            ..Telephony::default()
        },
        ..Config::default()
    }
}

/// A proven call whose provider is not recognised yet.
fn unrecognised(now: Instant) -> SocketSession {
    SocketSession::call(Proof::ApiKey, Arc::new(config()), now)
}

/// A Twilio call whose bot receives and sends at 16 kHz.
pub(super) fn call() -> Rig {
    let mut rig = Rig::new(unrecognised);
    rig.json(json!({"event": "connected", "protocol": "Call", "version": "1.0.0"}));
    rig.json(start_a());
    assert_eq!((rig.permits, rig.begun.len()), (1, 1));
    rig.session.set_audio(16_000, 16_000, true, rig.now);
    rig.drain();
    rig
}

fn media(payload: &[u8]) -> Value {
    let payload = data_encoding::BASE64.encode(payload);
    let media = json!({"track": "inbound", "chunk": "1", "timestamp": "1", "payload": payload});
    json!({"event": "media", "streamSid": "MZ1", "media": media})
}

fn events_sent(rig: &Rig) -> Vec<String> {
    let event = |message: &SocketMessage| match message {
        SocketMessage::Text(text) => {
            let value: Value = serde_json::from_str(text).expect("a provider is sent JSON");
            Some(value["event"].as_str().expect("an event").to_owned())
        }
        _ => None,
    };
    rig.sent.iter().filter_map(|(_, message)| event(message)).collect()
}

fn reported(name: &str, played: bool) -> SessionEvent {
    let name = name.into();
    SessionEvent::Mark { name, played }
}

/// R-049, R-050: nothing starts before the provider is recognised, and the bot starts with all call
/// data.
#[test]
fn the_bot_starts_with_a_complete_call() {
    let mut rig = Rig::new(unrecognised);
    rig.json(json!({"event": "connected"}));
    assert!(rig.begun.is_empty() && rig.permits == 0 && rig.session.telephone().is_none());
    rig.json(start_a());
    assert_eq!((rig.permits, rig.begun.len()), (1, 1));
    let call = rig.session.telephone().expect("a call");
    assert_eq!(call.provider, TWILIO);
    assert_eq!(call.data["call_id"], json!("CA1"));
    assert_eq!(rig.begun[0].call_data.as_ref(), Some(&call.data));
    assert_eq!(rig.begun[0].transport, Transport::Telephony(TWILIO));
    assert_eq!(
        (rig.begun[0].line_rate_hz, rig.begun[0].is_simulated),
        (Some(8_000), false)
    );
    assert_eq!(rig.events, [SessionEvent::Joined]);
}

/// After five messages or ten seconds, a socket without a recognised provider is closed; invalid
/// and binary messages count.
#[test]
fn limits_messages_and_time_of_a_handshake() {
    let refused = Some((1008, "unrecognised telephony handshake"));
    let mut rig = Rig::new(unrecognised);
    rig.text("no JSON");
    rig.binary(&b"binary"[..]);
    rig.json(json!([1]));
    rig.json(json!({"event": "media"}));
    assert_eq!(rig.closed(), None);
    rig.json(json!({"event": "connected"}));
    assert_eq!((rig.closed(), rig.begun.len()), (refused, 0));
    rig.json(start_a());
    assert!(rig.begun.is_empty(), "too late");

    let mut rig = Rig::new(unrecognised);
    rig.pass(HANDSHAKE_WITHIN - MS);
    assert_eq!(rig.closed(), None);
    rig.pass(MS);
    assert_eq!(
        (rig.closed(), rig.session.refused),
        (refused, refused.map(|(_, why)| why))
    );
    rig.pass(SOCKET_CLOSE_WITHIN);
    assert!(rig.gone && rig.events.is_empty(), "there is no bot to tell");
}

/// A call without a permit, or an evicted socket, is closed with a reason, before a bot starts.
#[test]
fn closes_a_rejected_call_before_its_bot_starts() {
    let mut rig = Rig::new(unrecognised);
    rig.refusal = Some(SessionRefusal::Full);
    rig.with(|session, now| {
        session.handle_text(&start_a().to_string(), now);
        session.handle_text(&media(&[0x10; 160]).to_string(), now);
    });
    let why = "all places are taken; try again later";
    assert_eq!((rig.closed(), rig.session.refused), (Some((1013, why)), Some(why)));
    rig.json(media(&[0x10; 160]));
    rig.pass(SOCKET_CLOSE_WITHIN);
    assert!(rig.gone && rig.events.is_empty() && rig.received.is_empty() && rig.hang_ups == 0);
    assert!(rig.begun.is_empty() && rig.permits == 1);

    let mut rig = Rig::new(unrecognised);
    rig.with(|session, now| session.handle_eviction(now));
    rig.json(start_a());
    assert_eq!((rig.closed(), rig.begun.len()), (Some((1013, EVICTED)), 0));
    // After the end, a rejection has no effect.
    rig.with(|session, now| session.handle_refused(&SessionRefusal::Full, now));
    assert_eq!(rig.sent.len(), 1);
}

/// A call without proof is closed before it asks for a permit, and the log says what helps.
#[test]
fn proof_comes_before_a_permit() {
    let mut rig = Rig::new(|now| SocketSession::call(Proof::Missing, Arc::new(config()), now));
    rig.json(start_a());
    rig.json(media(&[0x10; 160]));
    let (code, why) = rig.closed().expect("a close frame");
    assert!(
        code == 1008 && why.starts_with("no proof that the provider makes this call"),
        "{why}"
    );
    assert!(rig.permits == 0 && rig.begun.is_empty() && rig.hang_ups == 0);
    let advice = rig.session.refusal(MS).expect("advice");
    assert!(advice.contains("--unverified-calls"), "{advice}");
    rig.pass(SOCKET_CLOSE_WITHIN);
    assert!(rig.gone && rig.events.is_empty() && rig.received.is_empty());
}

/// A simulated call says so to its bot, and its provider is never asked to end it; nor is one
/// without credentials, which then closes at once.
#[test]
fn asks_no_provider_to_end_a_simulated_call() {
    let mut simulated = start_a();
    simulated["start"]["callSid"] = json!(format!("{SIMULATED}1"));
    let without = Config::default;
    for (config, start, is_simulated) in [(config(), simulated, true), (without(), start_a(), false)] {
        let mut rig = Rig::new(|now| SocketSession::call(Proof::ApiKey, Arc::new(config), now));
        rig.json(start);
        assert_eq!(rig.begun[0].is_simulated, is_simulated);
        rig.with(|session, now| session.handle_end(LeaveReason::Operator, now));
        assert_eq!(
            (rig.closed(), rig.hang_ups),
            (Some((1000, "the operator ended the call")), 0)
        );
    }
}

/// A message before the handshake is stored if it is short enough for audio.
#[test]
fn early_messages_are_limited_in_length() {
    let received = |bytes: usize| {
        let mut early = media(&[0x10; 160]);
        early["x"] = json!("");
        early["x"] = json!("x".repeat(bytes - early.to_string().len()));
        assert_eq!(early.to_string().len(), bytes);
        let mut rig = Rig::new(unrecognised);
        rig.json(early);
        rig.json(start_a());
        rig.with(|session, now| session.set_audio(8_000, 8_000, true, now));
        rig.received.len()
    };
    assert_eq!(received(EARLY_MESSAGE_BYTES_MAX), 160);
    assert_eq!(received(EARLY_MESSAGE_BYTES_MAX + 1), 0);
}

/// Speech before the bot listens is limited; the oldest is dropped.
#[test]
fn early_speech_is_limited() {
    let kept = |late: usize| {
        let mut rig = Rig::new(unrecognised);
        rig.json(start_a());
        for _ in 0..EARLY_AUDIO.as_secs() * 50 {
            rig.json(media(&[0x10; 160]));
        }
        rig.json(media(&vec![0x90; late]));
        rig.with(|session, now| session.set_audio(8_000, 8_000, true, now));
        (
            rig.received.len(),
            rig.received.iter().filter(|sample| **sample > 0).count(),
        )
    };
    let all = EARLY_AUDIO.as_secs() as usize * 8_000;
    assert_eq!(kept(0), (all, 0));
    assert_eq!(kept(1), (all, 1));
}

/// An unsupported encoding is rejected at once instead of being played as noise.
#[test]
fn rejects_an_unsupported_encoding() {
    let mut start = start_a();
    start["start"]["mediaFormat"]["encoding"] = json!("audio/opus");
    let mut rig = Rig::new(unrecognised);
    rig.json(start);
    assert_eq!(rig.closed().map(|(code, _)| code), Some(1003));
    assert!(rig.begun.is_empty());
}

/// A message that is no JSON object costs itself alone: keys and audio around it are heard. Many in
/// a row end the call, whether texts or binary.
#[test]
fn an_unreadable_message_costs_itself_alone_and_many_in_a_row_end_the_call() {
    let garbage = |rig: &mut Rig, index: u32| match index % 3 {
        0 => rig.text("{\"event\": \"media\""),
        1 => rig.binary(&b"binary"[..]),
        _ => rig.json(json!([1])),
    };
    for (reason, last) in [("send JSON objects", 2), ("send text messages", 1)] {
        let mut rig = call();
        for _ in 0..3 {
            for index in 1..TELEPHONY_UNREADABLE_MAX {
                garbage(&mut rig, index);
            }
            assert_eq!(rig.closed(), None);
            rig.json(media(&[0x10; 160]));
        }
        let stats = rig.session.stats();
        assert_eq!((stats.received, stats.malformed), (MS * 60, 27));
        for _ in 1..TELEPHONY_UNREADABLE_MAX {
            garbage(&mut rig, 0);
        }
        assert_eq!(rig.left(), None);
        garbage(&mut rig, last);
        assert_eq!(rig.left(), Some(LeaveReason::Protocol));
        rig.pass(HANG_UP_BEFORE_CLOSE);
        assert_eq!((rig.closed(), rig.hang_ups), (Some((1003, reason)), 1));
    }
}

/// Speech before the bot listens is buffered.
#[test]
fn buffers_the_first_words_of_a_caller() {
    let mut rig = Rig::new(unrecognised);
    rig.json(start_a());
    for _ in 0..50 {
        rig.json(media(&[0x10; 160]));
    }
    rig.with(|session, now| session.set_audio(8_000, 8_000, true, now));
    assert_eq!((rig.received_hz, rig.received.len()), (8_000, 8_000));
    assert!(
        rig.received
            .iter()
            .all(|sample| *sample == rig.received[0] && *sample != 0)
    );
}

/// Telnyx does not order its messages: audio that precedes `start` is heard as well.
#[test]
fn accepts_audio_before_the_handshake() {
    let mut rig = Rig::new(unrecognised);
    rig.json(json!({"event": "connected"}));
    rig.json(media(&[0x10; 160]));
    rig.json(start_a());
    rig.with(|session, now| session.set_audio(8_000, 8_000, true, now));
    assert_eq!(rig.received.len(), 160);
    assert_eq!(rig.events, [SessionEvent::Joined]);
}

/// Keys and marks are events; a stop ends the call without a hang-up request.
#[test]
fn messages_of_the_provider_become_events() {
    let mut rig = call();
    rig.json(json!({"event": "dtmf", "streamSid": "MZ1", "dtmf": {"track": "inbound_track", "digit": "5"}}));
    rig.json(json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": "other"}}));
    rig.json(json!({"event": "whatever"}));
    rig.json(json!({"event": "stop", "streamSid": "MZ1", "stop": {}}));
    assert_eq!(
        rig.events,
        [
            SessionEvent::Joined,
            SessionEvent::Dtmf('5'),
            reported("other", true),
            SessionEvent::Left(LeaveReason::Left)
        ]
    );
    assert_eq!((rig.closed(), rig.hang_ups), (Some((1000, "")), 0));
}

/// A transferred call goes on at its provider when the bot returns.
#[test]
fn does_not_hang_up_a_transferred_call() {
    for is_transferred in [false, true] {
        let mut rig = call();
        if is_transferred {
            rig.with(|session, _| session.handle_transferred());
        }
        rig.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
        rig.pass(HANG_UP_BEFORE_CLOSE + SOCKET_CLOSE_WITHIN);
        assert_eq!(rig.hang_ups, u32::from(!is_transferred));
        assert_eq!(rig.closed(), Some((1000, "")));
    }
}

/// A close without a stop ends the call too.
#[test]
fn does_not_hang_up_after_a_close_of_the_provider() {
    let mut rig = call();
    rig.with(|session, now| session.handle_close(now));
    rig.with(|session, now| session.handle_read_error(SocketReadError::Ended, now));
    assert_eq!((rig.left(), rig.hang_ups, rig.gone), (Some(LeaveReason::Left), 0, true));
}

/// Speech is cut into 20 ms, and sent at most the lead ahead of its playout.
#[test]
fn speech_keeps_its_lead() {
    let mut rig = call();
    rig.speech.extend(tone(16_000 * 2, 16_000));
    rig.drain();
    rig.pass(Duration::from_secs(4));
    let texts = rig
        .sent
        .iter()
        .filter(|(_, message)| matches!(message, SocketMessage::Text(_)));
    let times: Vec<Duration> = texts.map(|(at, _)| *at).collect();
    assert_eq!(times.len(), 100);
    for (nth, at) in times.iter().enumerate() {
        let played = MS * 20 * u32::try_from(nth).expect("few");
        assert!(
            *at <= played && played <= *at + CALL_LEAD,
            "message {nth} left at {at:?}"
        );
    }
}

/// An interruption clears the provider's buffer; the marks that it then returns were already
/// reported as not played.
#[test]
fn an_interruption_clears_the_provider() {
    let mut rig = call();
    rig.speech.extend(tone(16_000 / 5, 16_000));
    rig.drain();
    rig.pass(MS * 100);
    rig.with(|session, _| assert_eq!(session.handle_mark("said".into()), None));
    rig.pass(MS * 100);
    rig.with(|session, now| session.handle_interruption(now));
    let events = events_sent(&rig);
    assert_eq!(events[events.len() - 2..], ["mark", "clear"]);
    assert!(rig.events.contains(&reported("said", false)));
    rig.json(json!({"event": "mark", "mark": {"name": "said"}}));
    assert!(!rig.events.contains(&reported("said", true)), "it was reported before");
    // The name can be used again.
    rig.with(|session, _| assert_eq!(session.handle_mark("said".into()), None));
    rig.json(json!({"event": "mark", "mark": {"name": "said"}}));
    assert!(rig.events.contains(&reported("said", true)));
}

/// Plivo may not return marks that it clears: a later mark of the same name must not be taken for
/// them.
#[test]
fn a_cleared_mark_without_a_reply_does_not_hide_a_later_one() {
    let mut rig = Rig::new(unrecognised);
    rig.json(
        json!({"event": "start", "sequenceNumber": 1, "start": {"callId": "c1", "streamId": "s1",
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000}}}),
    );
    rig.with(|session, _| assert_eq!(session.handle_mark("end".into()), None));
    rig.with(|session, now| session.handle_interruption(now));
    rig.json(json!({"event": "clearedAudio", "sequenceNumber": 0, "streamId": "s1"}));
    assert!(rig.events.contains(&reported("end", false)));
    rig.with(|session, _| assert_eq!(session.handle_mark("end".into()), None));
    rig.json(json!({"event": "playedStream", "streamId": "s1", "name": "end"}));
    assert!(rig.events.contains(&reported("end", true)));
    let reported = rig.events.len();
    rig.json(json!({"event": "playedStream", "streamId": "s1", "name": "end"}));
    assert_eq!(rig.events.len(), reported, "the one that was cleared, after all");
}

/// The first mark that returns behind speech of an answer tells how late the provider plays it:
/// neither one that returns too early, nor one of the answer before.
#[test]
fn a_returned_mark_tells_how_late_an_answer_is_played() {
    let mut rig = call();
    rig.session.set_audio(8_000, 8_000, true, rig.now);
    let say = |rig: &mut Rig, name: &str| {
        rig.speech.extend(tone(8 * 100, 8_000));
        rig.drain();
        rig.with(|session, _| assert_eq!(session.handle_mark(name.into()), None));
    };
    let delay_after = |rig: &mut Rig, name: &str| {
        rig.json(json!({"event": "mark", "mark": {"name": name}}));
        assert!(rig.events.contains(&reported(name, true)));
        rig.session.network().playout_delay
    };
    rig.with(|session, _| assert_eq!(session.handle_mark("without speech".into()), None));
    assert_eq!(delay_after(&mut rig, "without speech"), None);
    for name in ["a", "b", "c", "d"] {
        say(&mut rig, name);
        rig.pass(MS * 50);
    }
    // 200 ms have passed: the speech before "b" ends now without any delay, that before "c" later.
    assert_eq!(delay_after(&mut rig, "c"), None);
    rig.pass(MS * 130);
    assert_eq!(delay_after(&mut rig, "b"), Some(MS * 130));
    rig.pass(MS * 300);
    assert_eq!(delay_after(&mut rig, "a"), Some(MS * 130));
    // Half of the round trip is that of the mark, once the trip is known.
    rig.pass(SOCKET_PING_INTERVAL);
    rig.pass(rig.next.saturating_duration_since(rig.now));
    let pinged = rig.session.pinged;
    rig.pass(MS * 60);
    let trip = rig.now - pinged;
    rig.with(SocketSession::handle_pong);
    assert_eq!(rig.session.network().round_trip, Some(trip));
    say(&mut rig, "e");
    assert_eq!(delay_after(&mut rig, "d"), None);
    rig.pass(MS * 400);
    assert_eq!(delay_after(&mut rig, "e"), Some(MS * 300 - trip / 2));
}

/// A provider receives JSON objects unchanged, and no RTVI messages.
#[test]
fn sends_a_provider_only_messages_that_it_can_read() {
    let mut rig = call();
    let own = r#"{"event":"sendDTMF","dtmf":"12#"}"#;
    for text in [r#"{"label":"rtvi-ai","type":"bot-ready"}"#, "no JSON", "[1]", own] {
        rig.with(|session, _| session.handle_message(text.into()));
    }
    let sent: Vec<&SocketMessage> = rig.sent.iter().map(|(_, message)| message).collect();
    assert_eq!(sent, [&SocketMessage::Text(own.into())]);
    assert_eq!(rig.session.stats().messages_dropped, 2);
}

/// R-038: every end by the runner hangs up once, before the socket closes; a response or the
/// timeout closes it.
#[test]
fn hangs_up_once_when_the_runner_ends_a_call() {
    type Act = fn(&mut SocketSession, Instant);
    let ends: [(Act, LeaveReason); 5] = [
        (
            |session, now| session.handle_end(LeaveReason::Shutdown, now),
            LeaveReason::Shutdown,
        ),
        (
            |session, now| session.handle_bot_end(LeaveReason::BotEnded, now),
            LeaveReason::BotEnded,
        ),
        (
            |session, now| session.handle_bot_end(LeaveReason::BotFailed, now),
            LeaveReason::BotFailed,
        ),
        (
            |session, now| {
                (0..TELEPHONY_UNREADABLE_MAX).for_each(|_| session.handle_binary(Bytes::from_static(b"x"), now));
            },
            LeaveReason::Protocol,
        ),
        (
            |session, now| (0..TELEPHONY_UNREADABLE_MAX).for_each(|_| session.handle_text("no JSON", now)),
            LeaveReason::Protocol,
        ),
    ];
    for (end, reason) in ends {
        let mut rig = call();
        rig.with(end);
        rig.pass(MS);
        assert_eq!((rig.hang_ups, rig.left(), rig.closed()), (1, Some(reason), None));
        rig.with(|session, now| session.handle_end(LeaveReason::Shutdown, now));
        rig.with(|session, now| session.handle_hung_up(now));
        assert!(rig.closed().is_some());
        rig.pass(Duration::from_secs(60));
        assert!(rig.gone && rig.hang_ups == 1);

        let mut rig = call();
        rig.with(end);
        rig.pass(HANG_UP_BEFORE_CLOSE + MS * 2);
        assert!(
            rig.closed().is_some(),
            "a provider that does not answer does not hold the socket"
        );
    }
}

/// A half-open call ends after the silence limit of all sockets, and is hung up.
#[test]
fn hangs_up_a_silent_call() {
    let mut rig = call();
    rig.pass(SOCKET_FREED_AFTER + MS);
    assert_eq!((rig.left(), rig.hang_ups), (Some(LeaveReason::Vanished), 1));
}

/// The last speech is played before the call is hung up: the provider reports it, however late it
/// plays, by a mark that is not reported to the bot.
#[test]
fn plays_the_last_speech_before_the_hang_up() {
    let end = || {
        let mut rig = call();
        rig.speech.extend(tone(16_000, 16_000));
        rig.drain();
        rig.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
        rig
    };
    let returned = json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": END_MARK}});
    let second = Duration::from_secs(1);
    for (reported_after, hung_up_after) in [
        (second + MS * 700, second + MS * 700 + CALL_PLAYOUT_MARGIN),
        // Before it can have been played.
        (second - MS * 100, second + CALL_PLAYOUT_MARGIN),
    ] {
        let mut rig = end();
        rig.pass(reported_after);
        let marks = rig
            .sent
            .iter()
            .filter(|(_, message)| format!("{message:?}").contains(END_MARK));
        assert_eq!((marks.count(), rig.hang_ups), (1, 0), "{reported_after:?}");
        rig.json(returned.clone());
        rig.pass(hung_up_after - reported_after - MS);
        assert_eq!(rig.hang_ups, 0, "{reported_after:?}");
        rig.pass(MS * 40);
        assert_eq!(rig.hang_ups, 1, "{reported_after:?}");
        let is_mark = |event: &SessionEvent| matches!(event, SessionEvent::Mark { .. });
        assert!(!rig.events.iter().any(is_mark));
    }
    let mut unreported = end();
    unreported.pass(FINISH_WITHIN - MS);
    assert_eq!(unreported.hang_ups, 0);
    unreported.pass(MS);
    assert_eq!(unreported.hang_ups, 1);
}

/// Allocations of 20 ms of audio in a running call. Inbound, from the provider's text to PCM at the
/// bot's rate: none. Outbound, from the bot's PCM to the provider's text: the text, and its base64.
#[test]
fn audio_of_a_running_call_allocates_little() {
    const PER_MESSAGE_HEARD: u64 = 0;
    const PER_MESSAGE_SAID: u64 = 2;
    let mut session = call().session;
    let text = media(&[0x35; 160]).to_string();
    let (mut now, mut sent) = (session.last_received, 0);
    for round in 0..600 {
        now += MS * 20;
        let (frames, received) = allocations::of(|| {
            session.handle_blocked(now);
            session.handle_text(&text, now);
            let mut frames = 0;
            loop {
                match session.poll_output(now) {
                    SessionOutput::Timeout(_) => return frames,
                    SessionOutput::Audio(_) => frames += 1,
                    _ => {}
                }
            }
        });
        let (texts, said) = allocations::of(|| {
            session.handle_writable();
            session.handle_timeout(now);
            let room = session.bot_audio_capacity().unwrap_or_default();
            session.handle_bot_audio(&[700; 320][..room.min(320)], now);
            let mut texts = 0;
            loop {
                match session.poll_output(now) {
                    SessionOutput::Timeout(_) => return texts,
                    SessionOutput::Command(SocketCommand::Send(SocketMessage::Text(_))) => texts += 1,
                    _ => {}
                }
            }
        });
        sent += texts;
        // Buffers reach their final sizes first.
        if round >= 100 {
            assert_eq!(frames, 1);
            assert_eq!(received, PER_MESSAGE_HEARD, "round {round}");
            assert!(said <= PER_MESSAGE_SAID * texts, "round {round}: {said} for {texts}");
        }
    }
    assert!((590..=620).contains(&sent), "{sent} sent");
}

/// A provider that sends none of the caller's audio has one line after 5 s. A call that was heard
/// once has none, whatever pause follows, nor has one that ended before.
#[test]
fn a_call_without_audio_of_the_caller_is_reported_once() {
    let mut deaf = call();
    deaf.pass(CALL_DEAF_AFTER - Duration::from_millis(1));
    assert!(deaf.session.deaf_at.is_some());
    let warning = deaf.session.deaf_warning().expect("it is deaf");
    assert!(warning.contains("sent no audio of the caller"), "{warning}");
    deaf.pass(Duration::from_millis(1));
    assert_eq!(deaf.session.deaf_at, None);
    deaf.pass(CALL_DEAF_AFTER);

    let mut audible = call();
    audible.pass(Duration::from_secs(4));
    audible.json(media(&[0xff; 160]));
    assert_eq!(audible.session.deaf_at, None);
    audible.pass(2 * CALL_DEAF_AFTER);
    assert_eq!(audible.session.deaf_at, None);
}

fn eval_connect() -> Value {
    json!({"id": "eval-connect", "label": "rtvi-ai", "type": "client-message",
        "data": {"t": "eval-connect", "d": {"skip_tts": true}}})
}

/// An evaluation needs no proof of a provider, and both ways carry texts and no audio.
#[test]
fn an_evaluation_exchanges_texts() {
    let mut rig = Rig::new(|now| SocketSession::call(Proof::Missing, Arc::new(config()), now));
    rig.json(eval_connect());
    assert_eq!((rig.permits, rig.begun.len(), rig.session.has_caller()), (1, 1, true));
    assert_eq!(rig.begun[0].eval, Some(json!({"skip_tts": true})));
    assert_eq!(
        (rig.begun[0].transport, &rig.begun[0].call_data),
        (Transport::WebSocket, &None)
    );
    rig.session.set_audio(16_000, 16_000, true, rig.now);
    rig.text(r#"{"label": "rtvi-ai", "type": "client-ready"}"#);
    rig.text("any text");
    let events: Vec<&SessionEvent> = rig.events[1..].iter().collect();
    let text = |text: &str| SessionEvent::Message(text.to_owned());
    assert_eq!(
        events,
        [
            &text(r#"{"label": "rtvi-ai", "type": "client-ready"}"#),
            &text("any text")
        ]
    );
    rig.speech.extend(tone(1_600, 16_000));
    rig.with(|session, _| session.handle_message(r#"{"label":"rtvi-ai","type":"bot-ready"}"#.into()));
    rig.pass(Duration::from_secs(2));
    rig.with(|session, now| session.handle_interruption(now));
    assert!(rig.speech.is_empty(), "the bot's audio is taken at its pace");
    let ready = SocketMessage::Text(r#"{"label":"rtvi-ai","type":"bot-ready"}"#.into());
    assert_eq!(rig.sent, [(Duration::ZERO, ready)]);
    rig.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    rig.pass(Duration::from_secs(1));
    assert_eq!((rig.closed(), rig.hang_ups), (Some((1000, "")), 0));
}

/// A picture is a long message. That of a peer who is no evaluation is rejected here too, since its
/// URL may have announced one.
#[test]
fn only_an_evaluation_has_long_messages() {
    let begin = || Rig::new(|now| SocketSession::call(Proof::Missing, Arc::new(config()), now));
    let mut eval = begin();
    eval.json(eval_connect());
    let picture = "x".repeat(EVAL_MESSAGE_BYTES_MAX);
    eval.text(&picture);
    assert!(eval.events.last() == Some(&SessionEvent::Message(picture)));
    assert_eq!(eval.closed(), None);
    eval.text("x".repeat(EVAL_MESSAGE_BYTES_MAX + 1));
    assert_eq!(eval.closed(), Some((1009, "the message is too long")));
    for is_text in [true, false] {
        let mut unknown = begin();
        let mut send = |length| match is_text {
            true => unknown.text("x".repeat(length)),
            false => unknown.binary(vec![0; length]),
        };
        send(MESSAGE_BYTES_MAX);
        send(MESSAGE_BYTES_MAX + 1);
        assert_eq!(unknown.closed(), Some((1009, "the message is too long")));
    }
}

/// A binary message ends an evaluation, and the message in the middle of a call begins none.
#[test]
fn an_evaluation_is_of_texts_from_its_first_message() {
    let mut rig = Rig::new(|now| SocketSession::call(Proof::Missing, Arc::new(config()), now));
    rig.json(eval_connect());
    rig.binary(vec![1]);
    assert_eq!(
        (rig.closed(), rig.left()),
        (Some((1003, "send text messages")), Some(LeaveReason::Protocol))
    );
    let mut rig = call();
    rig.json(eval_connect());
    assert_eq!((rig.begun.len(), rig.session.telephone().is_some()), (1, true));
}
