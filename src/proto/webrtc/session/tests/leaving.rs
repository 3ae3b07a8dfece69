//! How sessions end: who ends them, what is still sent, and how long it takes.

use super::super::*;
use super::pair::{Pair, Tone, ms, secs};
use crate::limits::{CLOSE_WITHIN, SPEECH_HANGOVER};
use crate::testing::client::TestClient;
use crate::webrtc::connection::ReceivedPacket;

type Leave = fn(&mut TestClient);
type Reach = fn() -> Pair;

const PEER_LEFT_TEXT: &str = r#"{"type":"signalling","message":{"type":"peerLeft"}}"#;

/// A client that sends nothing after the answer times out after 15 s, and not before.
#[test]
fn a_client_that_never_connects_times_out() {
    let mut pair = Pair::new();
    pair.up.cut = true;
    pair.run(ms(14_900));
    assert_eq!(pair.left(), None);
    pair.run(ms(200));
    assert_eq!(pair.left(), Some((LeaveReason::NeverConnected, secs(15))));
    pair.run(secs(1));
    assert!(pair.gone.expect("gone") <= secs(15) + CLOSE_WITHIN);
    assert!(!pair.saw(&SessionEvent::Joined));
}

/// The same if checks pass but DTLS does not.
#[test]
fn a_client_that_never_starts_dtls_times_out() {
    let mut pair = Pair::new();
    pair.pass = |_, contents| contents[0] < 20;
    pair.run(secs(17));
    assert_eq!(pair.left(), Some((LeaveReason::NeverConnected, secs(15))));
    assert!(pair.gone.is_some());
}

/// A client that vanishes is reported within 7 s and freed within 35 s.
#[test]
fn a_caller_who_vanishes_is_noticed_and_freed() {
    let mut pair = Pair::connected();
    pair.client.speak(440.0, pair.now);
    pair.run(secs(1));
    let vanished = pair.time();
    pair.up.cut = true;
    pair.down.cut = true;
    pair.run(secs(40));
    let lost = pair.times(&SessionEvent::Lost);
    assert_eq!(lost.len(), 1);
    assert!(
        (secs(5)..secs(7)).contains(&(lost[0] - vanished)),
        "{:?}",
        lost[0] - vanished
    );
    let (reason, at) = pair.left().expect("the end");
    assert_eq!(reason, LeaveReason::Vanished);
    assert!((secs(29)..secs(35)).contains(&(at - vanished)), "{:?}", at - vanished);
    assert!(
        pair.gone.expect("gone") - at <= CLOSE_WITHIN,
        "no client is left for a goodbye"
    );
}

/// A client that returns after 25 s is resumed: the bot is told, and audio and messages continue.
#[test]
fn a_caller_who_comes_back_is_resumed() {
    for away in [secs(8), secs(25)] {
        let mut pair = Pair::connected();
        pair.open_audio(16_000, 16_000);
        pair.client.speak(440.0, pair.now);
        pair.run(secs(1));
        pair.up.cut = true;
        pair.down.cut = true;
        pair.run(away);
        assert!(pair.saw(&SessionEvent::Lost));
        assert!(!pair.saw(&SessionEvent::Restored));
        pair.send("while away");
        pair.up.cut = false;
        pair.down.cut = false;
        pair.run(secs(5));
        assert_eq!(pair.times(&SessionEvent::Restored).len(), 1);
        let (frames, packets) = (pair.bot.frames, pair.client.received.len());
        pair.run(secs(12));
        assert!(pair.bot.frames - frames >= 590, "{} frames", pair.bot.frames - frames);
        assert!(pair.client.received.len() - packets >= 590);
        assert_eq!(pair.client.texts(), ["while away"]);
        assert_eq!((pair.times(&SessionEvent::Joined).len(), pair.left()), (1, None));
    }
}

/// The three ways in which a client leaves; each ends the session at once, without a goodbye.
#[test]
fn a_leaving_caller_ends_the_session_at_once() {
    let close_channel = |client: &mut TestClient| {
        let id = client.open_channel().expect("a channel");
        client.rtc.direct_api().close_data_channel(id);
    };
    let abort = |client: &mut TestClient| {
        client.wires.lock().expect("whole").abort = true;
        client.send("this becomes an ABORT");
    };
    let close_notify = |client: &mut TestClient| {
        client.wires.lock().expect("whole").close = true;
        client.rtc.direct_api().set_ice_lite(false);
    };
    let close = |client: &mut TestClient| client.rtc.close().expect("closing");
    let ways: [(&str, Leave); 4] = [
        ("channel", close_channel),
        ("abort", abort),
        ("close_notify", close_notify),
        ("all", close),
    ];
    for (name, leave) in ways {
        let mut pair = Pair::connected();
        pair.run(secs(1));
        let left = pair.time();
        leave(&mut pair.client);
        pair.run(secs(1));
        let (reason, at) = pair.left().unwrap_or_else(|| panic!("{name}: still there"));
        assert_eq!(reason, LeaveReason::Left, "{name}");
        assert!(at - left <= ms(50), "{name}: {:?}", at - left);
        assert!(pair.gone.expect("gone") - at <= CLOSE_WITHIN, "{name}");
        assert_eq!(pair.client.texts(), [""; 0], "{name}");
    }
}

/// A client that leaves during setup ends the session at once, or at the setup timeout at the
/// latest.
#[test]
fn a_caller_may_leave_during_setup() {
    let mut joined = 0;
    for after in (0..120).step_by(3) {
        let mut pair = Pair::new();
        pair.run(ms(after));
        let closed = pair.client.rtc.close().is_ok();
        pair.run(ms(100));
        pair.up.cut = true;
        pair.run(secs(50));
        let (reason, at) = pair.left().expect("the end");
        assert!(pair.gone.is_some());
        if pair.saw(&SessionEvent::Joined) && closed {
            assert_eq!(reason, LeaveReason::Left, "left after {after} ms, told at {at:?}");
            joined += 1;
        }
    }
    assert!(joined > 0, "no caller left while connected");
}

/// A page may be closed between the DTLS and SCTP handshakes.
#[test]
fn a_caller_may_leave_before_sctp_is_up() {
    const COOKIE_ECHO: u8 = 10;
    let mut pair = Pair::new();
    pair.client.wires.lock().expect("whole").hold = Some(COOKIE_ECHO);
    assert!(pair.run_until(secs(5), |pair| {
        !pair.client.wires.lock().expect("whole").from_session.is_empty()
    }));
    pair.run(ms(100));
    assert!(pair.saw(&SessionEvent::Joined));
    pair.client.wires.lock().expect("whole").close = true;
    let left = pair.time();
    pair.run(secs(1));
    let (reason, at) = pair.left().expect("the end");
    assert_eq!(reason, LeaveReason::Left);
    assert!(at - left < ms(50), "{:?}", at - left);
    assert!(pair.gone.is_some());
}

/// The runner may stop at that moment, too.
#[test]
fn a_shutdown_may_come_before_sctp_is_up() {
    const COOKIE_ECHO: u8 = 10;
    let mut pair = Pair::new();
    pair.client.wires.lock().expect("whole").hold = Some(COOKIE_ECHO);
    assert!(pair.run_until(secs(5), |pair| {
        !pair.client.wires.lock().expect("whole").from_session.is_empty()
    }));
    pair.act(|session, now| session.handle_end(LeaveReason::Shutdown, now));
    let stopped = pair.time();
    pair.run(secs(1));
    assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::Shutdown));
    assert!(pair.gone.expect("gone") - stopped <= CLOSE_WITHIN);
}

/// A bot that speaks and returns is heard to the end, with a pause for the client's playout; then
/// the client is told, before anything closes.
#[test]
fn a_bots_remaining_audio_is_sent_before_the_goodbye() {
    let mut pair = Pair::connected();
    pair.open_audio(16_000, 16_000);
    pair.run(ms(500));
    let began = pair.time();
    pair.bot.speech.extend(Tone::new(440.0, 16_000).take(9_600));
    pair.send("last message");
    pair.bot_ends();
    pair.run(ms(500));
    assert_eq!(pair.left(), None, "600 ms of speech are not out after 500");
    pair.run(secs(1));
    let (reason, at) = pair.left().expect("the end");
    assert_eq!(reason, LeaveReason::BotEnded);
    assert!(
        (ms(600) + SPEECH_HANGOVER..ms(720) + SPEECH_HANGOVER).contains(&(at - began)),
        "{:?}",
        at - began
    );
    assert_eq!(pair.times(&SessionEvent::SpeechStopped).len(), 1);
    assert_eq!(pair.client.texts(), ["last message", PEER_LEFT_TEXT]);
    let reported = pair.client.read.last().expect("a text").0;
    let closed = pair.client.closed.expect("a closed connection");
    assert!(reported <= closed, "reported at {reported:?}, closed at {closed:?}");
    // The client's SCTP may delay its acknowledgement by 200 ms; nothing else is waited for.
    assert!(pair.gone.expect("gone") - at <= ms(250));
    let pcm = pair.client.pcm_since(began);
    let loud = pcm.iter().filter(|sample| sample.unsigned_abs() > 1_000).count();
    assert!(loud as f64 > 0.9 * 0.6 * 48_000.0 * 0.9, "{loud} loud samples");
}

/// Endless audio of an ended bot is cut off.
#[test]
fn a_bot_that_never_stops_talking_is_cut_off() {
    let mut pair = Pair::connected();
    pair.open_audio(16_000, 16_000);
    pair.bot.endless = Some(Tone::new(440.0, 16_000));
    pair.run(secs(1));
    let ended = pair.time();
    pair.bot_ends();
    pair.run(FINISH_WITHIN - ms(100));
    assert_eq!(pair.left(), None);
    pair.run(secs(1));
    let (reason, at) = pair.left().expect("the end");
    assert_eq!((reason, at - ended), (LeaveReason::BotEnded, FINISH_WITHIN));
    assert_eq!(pair.client.texts(), [PEER_LEFT_TEXT]);
    assert!(pair.gone.is_some());
}

/// Without a channel there is no goodbye, and the connection closes at once.
#[test]
fn a_bot_leaves_a_client_without_a_channel() {
    let mut pair = Pair::with(TestClient::new("192.0.2.9:5000").labels(&[]), |offer| offer);
    assert!(pair.run_until(secs(5), |pair| pair.client.connected && pair.client.received.len() > 10));
    let ended = pair.time();
    pair.bot_ends();
    pair.run(secs(1));
    let (reason, at) = pair.left().expect("the end");
    assert_eq!(reason, LeaveReason::BotEnded);
    assert!(at - ended <= ms(40), "{:?}", at - ended);
    assert!(pair.client.closed.is_some());
    assert!(pair.gone.is_some());
}

/// A client whose bot ended while it was connecting is told why, as soon as its channel is open.
#[test]
fn a_client_that_connects_after_the_end_of_its_bot_learns_so() {
    let reported = r#"{"type":"signalling","message":{"type":"peerLeft","reason":"bot failed"}}"#;
    let without_channel = |pair: &Pair| pair.client.connected && pair.client.open_channel().is_none();
    for is_connected in [false, true] {
        let mut pair = Pair::new();
        assert!(!is_connected || pair.run_until(secs(5), without_channel));
        pair.act(|session, now| session.handle_bot_end(LeaveReason::BotFailed, now));
        assert_eq!(pair.left(), None, "{is_connected}");
        pair.run(secs(5));
        assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::BotFailed));
        assert_eq!(pair.client.texts(), [reported], "{is_connected}");
        assert!(pair.client.closed.is_some() && pair.gone.is_some());
    }
}

/// One without a channel sees the connection close.
#[test]
fn a_client_without_a_channel_connects_after_the_end_of_its_bot() {
    let mut pair = Pair::with(TestClient::new("192.0.2.9:5000").labels(&[]), |offer| offer);
    pair.bot_ends();
    pair.run(secs(5));
    assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::BotEnded));
    assert!(pair.client.connected && pair.client.closed.is_some());
    assert!(pair.gone.is_some());
}

/// One that never connects keeps the session no longer than it would with a bot.
#[test]
fn a_client_that_never_connects_does_not_keep_the_session_of_an_ended_bot() {
    let mut pair = Pair::new();
    pair.up.cut = true;
    pair.bot_ends();
    pair.act(|session, now| session.handle_bot_end(LeaveReason::BotFailed, now));
    pair.run(secs(17));
    assert_eq!(
        pair.left(),
        Some((LeaveReason::BotEnded, secs(15))),
        "the first end counts"
    );
    assert!(pair.gone.is_some());
}

/// When the runner stops, the client is told, and the session ends within a second.
#[test]
fn a_shutdown_says_goodbye() {
    let mut pair = Pair::connected();
    pair.open_audio(16_000, 16_000);
    pair.bot.endless = Some(Tone::new(440.0, 16_000));
    pair.run(secs(1));
    let stopped = pair.time();
    pair.act(|session, now| session.handle_end(LeaveReason::Shutdown, now));
    pair.run(secs(2));
    assert_eq!(pair.left(), Some((LeaveReason::Shutdown, stopped)));
    assert_eq!(
        pair.client.texts(),
        [r#"{"type":"signalling","message":{"type":"peerLeft","reason":"the runner is stopping"}}"#]
    );
    assert!(pair.client.closed.is_some());
    assert!(pair.gone.expect("gone") - stopped <= ms(250));
}

/// The client is told why, where the bot did not end by itself.
#[test]
fn ends_before_the_bots_own_are_reported_as_reasons() {
    for (reason, reported) in [
        (LeaveReason::BotFailed, "bot failed"),
        (LeaveReason::Operator, "the operator ended the call"),
        (LeaveReason::Limit, "the call has lasted as long as the bot may talk"),
    ] {
        let mut pair = Pair::connected();
        pair.act(|session, now| session.handle_end(reason, now));
        pair.run(secs(2));
        assert_eq!(
            pair.client.texts(),
            [format!(
                r#"{{"type":"signalling","message":{{"type":"peerLeft","reason":"{reported}"}}}}"#
            )]
        );
    }
}

/// The same without a listening client, in every phase.
#[test]
fn a_shutdown_takes_less_than_a_second_in_every_phase() {
    let connecting = || {
        let mut pair = Pair::new();
        pair.run(ms(30));
        pair
    };
    let finishing = || {
        let mut pair = Pair::connected();
        pair.open_audio(16_000, 16_000);
        pair.bot.endless = Some(Tone::new(440.0, 16_000));
        pair.run(ms(200));
        pair.bot_ends();
        pair
    };
    let lost = || {
        let mut pair = Pair::connected();
        pair.up.cut = true;
        pair.run(secs(10));
        pair
    };
    let restarting = || {
        let mut pair = Pair::connected();
        let mut client = TestClient::at("192.0.2.9:5001", pair.start);
        let offer = client.offer();
        pair.restart(client, &offer);
        pair
    };
    let phases: [(&str, Reach); 5] = [
        ("connecting", connecting),
        ("live", Pair::connected),
        ("finishing", finishing),
        ("lost", lost),
        ("restarting", restarting),
    ];
    for (name, reach) in phases {
        let mut pair = reach();
        assert_eq!(pair.left(), None, "{name}");
        pair.up.cut = true;
        pair.down.cut = true;
        let stopped = pair.time();
        pair.act(|session, now| session.handle_end(LeaveReason::Shutdown, now));
        assert_eq!(pair.left(), Some((LeaveReason::Shutdown, stopped)), "{name}");
        pair.run(secs(2));
        let took = pair.gone.unwrap_or_else(|| panic!("{name}: not gone")) - stopped;
        assert!(took < secs(1), "{name}: {took:?}");
    }
}

/// Only the first end counts, and after the last phase no input has an effect.
#[test]
fn a_session_ends_once() {
    let mut pair = Pair::connected();
    pair.act(|session, now| session.handle_end(LeaveReason::Replaced, now));
    pair.act(|session, now| session.handle_end(LeaveReason::Shutdown, now));
    pair.act(|session, now| session.handle_bot_end(LeaveReason::BotEnded, now));
    pair.run(secs(2));
    assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::Replaced));
    assert!(pair.gone.is_some());
    let events = pair.bot.events.len();
    pair.send("after the end");
    pair.interrupt();
    pair.open_audio(16_000, 16_000);
    pair.say(&[1_000; 1_600]);
    pair.act(|session, now| session.handle_timeout(now + secs(100)));
    pair.act(|session, now| session.handle_end(LeaveReason::Shutdown, now));
    let source = pair.client.address;
    pair.act(|session, now| {
        session.handle_packet(
            &ReceivedPacket::from_datagram(source, super::pair::runner(), &[0, 1, 0, 0]),
            now,
        )
    });
    assert!(matches!(pair.session.poll_output(pair.now), SessionOutput::Closed));
    assert_eq!(pair.bot.events.len(), events);
}
