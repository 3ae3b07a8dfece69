//! Tests plain clients: frames in both directions, rates, interruption, timeouts and ends.

use super::*;
use crate::limits::SOCKET_CLOSE_WITHIN;
use crate::sockets::frames::ProtobufFrame;

/// The audio that was sent: time, and number of samples, at 24 kHz mono.
fn audio(rig: &Rig) -> Vec<(Duration, usize)> {
    let mut audio = Vec::new();
    for (at, message) in &rig.sent {
        let SocketMessage::Binary(bytes) = message else {
            continue;
        };
        if let Ok(ProtobufFrame::Audio { pcm, rate_hz, channels }) = frames::decode(Bytes::from(bytes.clone())) {
            assert_eq!((rate_hz, channels, pcm.len() % 2), (24_000, 1, 0));
            audio.push((*at, pcm.len() / 2));
        }
    }
    audio
}

fn frames_sent(rig: &Rig) -> Vec<ProtobufFrame> {
    let frame = |message: &SocketMessage| match message {
        SocketMessage::Binary(bytes) => frames::decode(Bytes::from(bytes.clone())).ok(),
        _ => None,
    };
    rig.sent.iter().filter_map(|(_, message)| frame(message)).collect()
}

/// R-051, R-066: the bot starts with the connection, and receives audio from before it listened.
#[test]
fn keeps_audio_from_before_the_bot_listens() {
    let mut rig = Rig::new(SocketSession::client);
    assert_eq!(
        (rig.permits, rig.begun.len(), &rig.events[..]),
        (0, 1, &[SessionEvent::Joined][..])
    );
    rig.binary(frames::message(r#"{"type":"client-ready"}"#));
    let said = tone(16_000, 16_000);
    for chunk in said.chunks(256) {
        rig.binary(frames::audio(chunk, 16_000));
    }
    assert!(rig.received.is_empty());
    rig.with(|session, now| session.set_audio(16_000, 24_000, true, now));
    assert_eq!((rig.received_hz, &rig.received), (16_000, &said));
    assert_eq!(
        rig.events[1],
        SessionEvent::Message(r#"{"type":"client-ready"}"#.into())
    );
}

/// The rate of a frame is used, and the bot receives the rate that it requested.
#[test]
fn uses_the_rate_of_each_frame() {
    let mut rig = Rig::client();
    rig.binary(frames::audio(&tone(48_000, 48_000), 48_000));
    assert!(
        rig.received.len().abs_diff(16_000) < 100,
        "{} samples",
        rig.received.len()
    );
    for _ in 0..=RATE_CHANGES_MAX / 2 {
        rig.binary(frames::audio(&[0; 160], 16_000));
        rig.binary(frames::audio(&[0; 160], 8_000));
    }
    assert_eq!(
        rig.left(),
        Some(LeaveReason::Protocol),
        "a client that changes it for ever is let go"
    );
}

/// A client that only listens, or only types, has no line that calls the bot deaf.
#[test]
fn a_client_without_audio_is_not_reported_as_deaf() {
    let mut rig = Rig::client();
    rig.binary(frames::message(r#"{"type":"send-text"}"#));
    assert_eq!((rig.session.deaf_at, rig.session.deaf_warning()), (None, None));
    rig.pass(CALL_DEAF_AFTER);
    assert_eq!((rig.session.deaf_at, rig.session.deaf_warning()), (None, None));
}

/// Speech leaves as frames of 20 ms at playing speed, with a short lead, since this client cannot
/// discard any.
#[test]
fn speech_is_paced() {
    let mut rig = Rig::client();
    rig.speech.extend(tone(24_000 * 3, 24_000));
    rig.drain();
    rig.pass(Duration::from_secs(5));
    let audio = audio(&rig);
    assert_eq!(audio.len(), 150);
    for (nth, (at, samples)) in audio.iter().enumerate() {
        assert_eq!(*samples, 480);
        let played = MS * 20 * u32::try_from(nth).expect("few");
        assert!(
            *at <= played && played <= *at + CLIENT_LEAD,
            "frame {nth} left at {at:?}"
        );
    }
    assert_eq!(
        rig.events[1..],
        [SessionEvent::SpeechStarted, SessionEvent::SpeechStopped]
    );
}

/// A message overtakes queued speech, and an interruption drops it and notifies the client.
#[test]
fn an_interruption_drops_queued_speech() {
    let mut rig = Rig::client();
    rig.speech.extend(tone(24_000, 24_000));
    rig.drain();
    rig.with(|session, _| session.handle_message(r#"{"a":1}"#.into()));
    rig.speech.clear();
    rig.with(|session, now| session.handle_interruption(now));
    let before = audio(&rig).len();
    rig.pass(Duration::from_secs(2));
    assert_eq!(audio(&rig).len(), before);
    let frames = frames_sent(&rig);
    assert!(frames.contains(&ProtobufFrame::Message(r#"{"a":1}"#.into())));
    assert_eq!(frames.last(), Some(&ProtobufFrame::Interruption));
    assert_eq!(rig.events.last(), Some(&SessionEvent::SpeechStopped));
}

/// A message of the bot at the limit is sent, and a longer one is not.
#[test]
fn messages_are_limited_in_length() {
    let mut rig = Rig::client();
    rig.with(|session, _| session.handle_message("m".repeat(MESSAGE_BYTES_MAX)));
    assert_eq!(frames_sent(&rig).len(), 1);
    rig.with(|session, _| session.handle_message("m".repeat(MESSAGE_BYTES_MAX + 1)));
    assert_eq!((frames_sent(&rig).len(), rig.session.stats().messages_dropped), (1, 1));
}

/// A client does not report playback, so a mark is passed when the speech before it has left.
#[test]
fn marks_return_when_their_speech_has_left() {
    let mut rig = Rig::client();
    rig.speech.extend(tone(480, 24_000));
    rig.drain();
    rig.with(|session, _| assert_eq!(session.handle_mark("one".into()), None));
    let mark = SessionEvent::Mark {
        name: "one".into(),
        played: true,
    };
    assert_eq!(rig.events.last(), Some(&mark));
}

/// An invalid frame ends the session with a code and a reason; an unknown one is skipped.
#[test]
fn rejects_invalid_frames() {
    for bad in [b"\xff\xff".to_vec(), frames::audio(&[0; 10], 4_000)] {
        let mut rig = Rig::client();
        rig.binary(bad);
        assert_eq!(rig.closed().map(|(code, _)| code), Some(1003));
        assert_eq!((rig.left(), rig.hang_ups), (Some(LeaveReason::Protocol), 0));
    }
    let mut rig = Rig::client();
    rig.text("{}");
    assert_eq!(rig.closed(), Some((1003, "send binary messages with protobuf frames")));
    let mut rig = Rig::client();
    rig.binary(Bytes::new());
    rig.binary(frames::interruption());
    assert_eq!((rig.closed(), rig.left()), (None, None));
}

/// A socket that answers no ping is closed; one that does stays open, however silent.
#[test]
fn frees_a_socket_that_answers_no_ping() {
    let mut rig = Rig::client();
    rig.pass(SOCKET_FREED_AFTER - MS);
    assert_eq!((rig.pings(), rig.left()), (2, None));
    rig.pass(MS);
    assert_eq!(rig.left(), Some(LeaveReason::Vanished));
    assert_eq!(rig.closed().map(|(code, _)| code), Some(1001));
    rig.pass(SOCKET_CLOSE_WITHIN);
    assert!(rig.gone);

    let mut rig = Rig::client();
    for _ in 0..10 {
        rig.pass(SOCKET_FREED_AFTER / 2);
        rig.with(|session, now| session.handle_pong(now));
    }
    assert_eq!(rig.left(), None);
}

/// While the socket accepts nothing, no audio is encoded; a client that does not read for too long
/// is closed.
#[test]
fn closes_a_client_that_does_not_read() {
    let mut rig = Rig::client();
    rig.writable = false;
    rig.speech.extend(tone(24_000 * 60, 24_000));
    rig.drain();
    for _ in 0..MESSAGES_OUT_MAX + 5 {
        rig.with(|session, _| session.handle_message("{}".into()));
    }
    rig.pass(SOCKET_STALL - MS);
    assert_eq!((rig.sent.len(), rig.left()), (0, None));
    assert!(rig.speech.len() > 24_000 * 59, "the bot waits");
    assert_eq!(rig.session.stats().messages_dropped, 5);
    rig.pass(MS);
    assert_eq!(rig.left(), Some(LeaveReason::Stalled));
    rig.pass(SOCKET_CLOSE_WITHIN);
    assert!(rig.gone);

    // A client that resumes reading in time only loses time.
    let mut rig = Rig::client();
    rig.writable = false;
    rig.speech.extend(tone(24_000, 24_000));
    rig.drain();
    rig.pass(SOCKET_STALL - MS);
    rig.writable = true;
    rig.drain();
    rig.pass(Duration::from_secs(3));
    assert_eq!((audio(&rig).len(), rig.left()), (50, None));
}

/// The bot's last speech is sent and played before the socket closes.
#[test]
fn plays_the_last_speech_before_the_close() {
    let mut rig = Rig::client();
    rig.speech.extend(tone(24_000, 24_000));
    rig.drain();
    rig.with(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    rig.pass(Duration::from_secs(3));
    assert_eq!(audio(&rig).len(), 50);
    let close = |(_, message): &&(Duration, SocketMessage)| matches!(message, SocketMessage::Close(1000, _));
    let (closed, _) = rig.sent.iter().find(close).expect("a close");
    assert!(
        *closed >= Duration::from_secs(1),
        "closed at {closed:?}, with a second of speech"
    );
    assert!(*closed < Duration::from_millis(1_200), "closed at {closed:?}");
    assert_eq!(rig.left(), Some(LeaveReason::BotEnded));
    assert!(rig.gone);
}

/// A bot that ends in silence ends its session at once, without waiting for another event.
#[test]
fn ends_at_once_after_a_silent_bot() {
    for make in [Rig::client, super::calls::call] {
        let mut rig = make();
        rig.pass(MS * 1_300);
        rig.session.handle_bot_end(LeaveReason::BotFailed, rig.now);
        rig.poll();
        rig.pass(Duration::ZERO);
        assert_eq!(rig.left(), Some(LeaveReason::BotFailed));
    }
}

/// Messages of the bot after the close are not sent, since they would interrupt the closing
/// handshake.
#[test]
fn sends_nothing_after_a_close() {
    let mut rig = Rig::client();
    rig.text("{}");
    for _ in 0..=MESSAGES_OUT_MAX {
        rig.with(|session, _| session.handle_message("{}".into()));
    }
    let closes = rig
        .sent
        .iter()
        .position(|(_, message)| matches!(message, SocketMessage::Close(..)));
    assert_eq!(closes, Some(rig.sent.len() - 1));

    let mut rig = Rig::client();
    rig.with(|session, now| session.handle_close(now));
    rig.with(|session, _| session.handle_message("{}".into()));
    assert_eq!(rig.sent, []);
}

/// A close, and a lost connection, end the session without a further message.
#[test]
fn handles_the_close_of_a_client() {
    let mut rig = Rig::client();
    rig.with(|session, now| session.handle_close(now));
    assert_eq!((rig.left(), rig.closed()), (Some(LeaveReason::Left), None));
    rig.with(|session, now| session.handle_read_error(SocketReadError::Ended, now));
    assert!(rig.gone);

    let mut rig = Rig::client();
    rig.with(|session, now| session.handle_read_error(SocketReadError::Broken, now));
    assert_eq!((rig.left(), rig.gone), (Some(LeaveReason::Failed), true));
}

/// Ends by the runner have distinct close codes.
#[test]
fn every_end_has_its_code() {
    for (reason, code) in [
        (LeaveReason::Shutdown, 1001),
        (LeaveReason::BotFailed, 1011),
        (LeaveReason::BotEnded, 1000),
    ] {
        let mut rig = Rig::client();
        rig.with(|session, now| session.handle_end(reason, now));
        assert_eq!(rig.closed().map(|(code, _)| code), Some(code));
        assert_eq!(rig.left(), Some(reason));
    }
    for (error, code, why) in [
        (SocketReadError::TooLong, 1009, "the message is too long"),
        (SocketReadError::NotUtf8, 1007, "the text is not UTF-8"),
        (SocketReadError::Malformed, 1002, "the frame is malformed"),
    ] {
        let mut rig = Rig::client();
        rig.with(|session, now| session.handle_read_error(error, now));
        assert_eq!(
            (rig.closed(), rig.left()),
            (Some((code, why)), Some(LeaveReason::Protocol))
        );
    }
}

/// A peer is pinged once per interval.
#[test]
fn pings_keep_their_interval() {
    let mut rig = Rig::client();
    rig.pass(SOCKET_PING_INTERVAL - MS);
    assert_eq!(rig.pings(), 0);
    rig.pass(MS);
    assert_eq!(rig.pings(), 1);
    rig.with(|session, now| session.handle_pong(now));
    rig.pass(SOCKET_PING_INTERVAL - MS);
    assert_eq!(rig.pings(), 1);
    rig.pass(MS);
    assert_eq!(rig.pings(), 2);
}

/// The answer to a ping tells the round trip. A pong that nothing asked for tells none.
#[test]
fn an_answered_ping_tells_the_round_trip() {
    let mut rig = Rig::client();
    rig.with(|session, now| session.handle_pong(now));
    assert_eq!(rig.session.network().round_trip, None);
    rig.pass(SOCKET_PING_INTERVAL);
    rig.pass(30 * MS);
    for _ in 0..2 {
        rig.with(|session, now| session.handle_pong(now));
        assert_eq!(rig.session.network().round_trip, Some(30 * MS));
        rig.pass(30 * MS);
    }
}
