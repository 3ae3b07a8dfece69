//! Later offers: on the same connection, with new ICE credentials, and from a client that replaced
//! its connection.

use crate::webrtc::connection::NegotiationError;
use crate::webrtc::connection::ReceivedPacket;
use str0m::media::{Direction, MediaKind, Mid};

use super::super::*;
use super::pair::{Pair, Tone, ms, runner, secs, setup, share};
use crate::testing::client::TestClient;

/// Returns the values of an attribute, in order.
fn values<'a>(sdp: &'a str, name: &str) -> Vec<&'a str> {
    let prefix = format!("a={name}:");
    sdp.lines()
        .filter_map(|line| line.strip_prefix(prefix.as_str()))
        .collect()
}

/// A running call with audio, and its first answer.
fn call() -> (Pair, String) {
    call_of(TestClient::new("192.0.2.9:5000"))
}

/// The same with this client.
pub fn call_of(mut client: TestClient) -> (Pair, String) {
    let mut first = String::new();
    let offer = client.offer();
    let (mut session, answer) =
        WebRtcSession::accept(&offer, &setup(None, &[runner()]), client.start).expect("an answer");
    first.push_str(&answer);
    assert_eq!(values(&answer, "ice-ufrag")[0], session.local_ufrag());
    client.accept(&answer);
    let mut pair = Pair::joined(client, session);
    pair.connect();
    pair.open_audio(16_000, 16_000);
    pair.client.speak(440.0, pair.now);
    pair.run(secs(1));
    (pair, first)
}

/// Asserts that audio and messages pass both ways from now on.
pub fn assert_talks(pair: &mut Pair) {
    let (frames, received, from) = (pair.bot.frames, pair.client.received.len(), pair.time());
    let (down, up) = (pair.client.read.len(), pair.texts().len());
    pair.say(&Tone::new(1_000.0, 16_000).take(8_000));
    pair.send("to the client");
    pair.client.send("to the bot");
    pair.run(secs(1));
    assert!(pair.bot.frames - frames >= 48, "{} frames", pair.bot.frames - frames);
    assert!(
        pair.client.received.len() - received >= 48,
        "{} packets",
        pair.client.received.len() - received
    );
    let pcm = pair.client.pcm_since(from);
    assert!(share(&pcm[9_600..19_200], 1_000.0, 48_000) > 0.8);
    let tail = &pair.bot.pcm[pair.bot.pcm.len() - 8_000..];
    assert!(share(tail, 440.0, 16_000) > 0.9);
    assert_eq!((pair.client.read.len() - down, pair.texts().len() - up), (1, 1));
    assert_eq!((pair.times(&SessionEvent::Joined).len(), pair.left()), (1, None));
}

/// A channel that only a later offer brings carries what waited for it and all that follows, and
/// the call goes on as it was.
#[test]
fn a_channel_of_a_later_offer_carries_messages() {
    let mut pair = Pair::without_channel("from before the channel");
    pair.run(secs(20));
    let (received, frames) = (pair.client.received.len(), pair.bot.frames);
    let offer = pair.client.change(|api| {
        api.add_channel("chat".to_owned());
    });
    let answer = pair.act(|session, _| session.renegotiate(&offer)).expect("an answer");
    assert!(answer.contains("m=application"));
    pair.client.accept(&answer);
    assert!(pair.run_until(secs(5), |pair| pair.client.open_channel().is_some()));
    pair.run(secs(1));
    assert_eq!(pair.client.texts(), ["from before the channel"]);
    assert!(pair.bot.frames - frames >= 45 && pair.client.received.len() - received >= 45);
    assert_talks(&mut pair);
    // Like one that was there from the start, it stands for the client.
    let chat = pair.client.channel("chat");
    pair.client.rtc.direct_api().close_data_channel(chat);
    pair.run(ms(500));
    assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::Left));
}

/// A renegotiation keeps credentials, mids, roles, channel and bot, and audio has no gap.
#[test]
fn a_renegotiation_keeps_everything() {
    let (mut pair, first) = call();
    let received = pair.client.received.len();
    let offer = pair.client.change(|api| {
        api.add_media(MediaKind::Audio, Direction::RecvOnly, None, None, None);
    });
    let answer = pair.act(|session, _| session.renegotiate(&offer)).expect("an answer");
    for name in ["ice-ufrag", "ice-pwd", "fingerprint", "setup"] {
        assert!(
            values(&answer, name)
                .iter()
                .all(|value| *value == values(&first, name)[0]),
            "{name}"
        );
    }
    assert_eq!(values(&answer, "mid")[..2], values(&first, "mid")[..]);
    assert_eq!(values(&answer, "mid").len(), 3);
    assert_eq!(values(&answer, "ssrc")[0], values(&first, "ssrc")[0]);
    pair.client.accept(&answer);
    assert_talks(&mut pair);
    assert!(
        pair.client
            .received
            .windows(2)
            .skip(received)
            .all(|two| two[1].sequence == two[0].sequence + 1)
    );
}

/// A bot is told when the caller holds the call, and when it is heard again. A caller that only
/// mutes its own microphone still hears it.
#[test]
fn a_bot_learns_of_hold() {
    let (mut pair, first) = call();
    let mid: Mid = values(&first, "mid")[0].into();
    let holds = |pair: &Pair| [SessionEvent::Held, SessionEvent::Resumed].map(|event| pair.times(&event).len());
    for (direction, expected) in [
        (Direction::RecvOnly, [0, 0]),
        (Direction::Inactive, [1, 0]),
        (Direction::SendOnly, [1, 0]),
        (Direction::SendRecv, [1, 1]),
    ] {
        let offer = pair.client.change(|api| api.set_direction(mid, direction));
        let answer = pair.act(|session, _| session.renegotiate(&offer)).expect("an answer");
        pair.client.accept(&answer);
        pair.run(secs(1));
        assert_eq!(holds(&pair), expected, "{direction}");
    }
    assert_talks(&mut pair);
}

/// An invalid offer is rejected, and the connection continues.
#[test]
fn a_bad_renegotiation_changes_nothing() {
    let (mut pair, first) = call();
    let offer = pair.client.change(|api| {
        api.add_media(MediaKind::Audio, Direction::RecvOnly, None, None, None);
    });
    let swapped = swap_sections(&offer);
    for bad in ["", "v=0\r\n", "rubbish", swapped.as_str()] {
        let refused = pair.act(|session, _| session.renegotiate(bad));
        assert!(
            matches!(refused, Err(NegotiationError::BadDescription(_))),
            "{refused:?}"
        );
    }
    assert_eq!(pair.session.local_ufrag(), values(&first, "ice-ufrag")[0]);
    assert_talks(&mut pair);
}

/// Swaps the first two media sections, which later offers must not do.
fn swap_sections(offer: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for line in offer.lines() {
        if line.starts_with("m=") || parts.is_empty() {
            parts.push(String::new());
        }
        let part = parts.last_mut().expect("pushed before");
        part.push_str(line);
        part.push_str("\r\n");
    }
    parts.swap(1, 2);
    parts.concat()
}

/// New credentials are answered with new ones. Audio continues meanwhile, and then on the new path.
#[test]
fn an_ice_restart_changes_the_ufrag_and_nothing_else() {
    let (mut pair, first) = call();
    let offer = pair.client.change(|api| {
        api.ice_restart(true);
    });
    let answer = pair.act(|session, _| session.renegotiate(&offer)).expect("an answer");
    let (old, new) = (values(&first, "ice-ufrag")[0], values(&answer, "ice-ufrag")[0]);
    assert_ne!(old, new);
    assert_eq!(pair.session.local_ufrag(), new);
    assert_eq!(values(&answer, "fingerprint")[0], values(&first, "fingerprint")[0]);
    pair.client.accept(&answer);
    assert_talks(&mut pair);
    pair.run(secs(40));
    assert_talks(&mut pair);
}

/// The old path carries the call until the new one is chosen (RFC 8445 section 9), also if no check
/// of the new one is ever answered.
#[test]
fn an_ice_restart_without_a_new_path_keeps_the_old_one() {
    let (mut pair, _) = call();
    let offer = pair.client.change(|api| {
        api.ice_restart(true);
    });
    let answer = pair.act(|session, _| session.renegotiate(&offer)).expect("an answer");
    pair.client.accept(&answer);
    pair.pass = |_, contents| contents[0] >= 4;
    assert_talks(&mut pair);
    pair.run(secs(3));
    assert_talks(&mut pair);
}

/// Hold: a direction that does not let the runner send stops its RTP, and the next one starts it
/// again.
#[test]
fn a_held_call_is_sent_no_audio() {
    let (mut pair, _) = call();
    let mid = pair.client.mid.expect("audio");
    let turn = |pair: &mut Pair, direction| {
        let offer = pair.client.change(|api| api.set_direction(mid, direction));
        let answer = pair.act(|session, _| session.renegotiate(&offer)).expect("an answer");
        pair.client.accept(&answer);
        pair.run(ms(200));
    };
    for held in [Direction::Inactive, Direction::SendOnly] {
        turn(&mut pair, held);
        let sent = pair.client.received.len();
        pair.run(secs(1));
        assert_eq!(pair.client.received.len(), sent, "{held:?}");
        turn(&mut pair, Direction::SendRecv);
        assert_talks(&mut pair);
    }
}

/// The bot is heard in the section that listens, wherever it is, and hears the other one.
#[test]
fn the_microphone_and_the_speaker_may_have_sections_of_their_own() {
    for microphone_first in [true, false] {
        let mut client = TestClient::new("192.0.2.9:5000");
        let mut mid = None;
        let offer = client.change(|api| {
            let mut add = |direction| api.add_media(MediaKind::Audio, direction, None, None, None);
            if microphone_first {
                mid = Some(add(Direction::SendOnly));
                add(Direction::RecvOnly);
            } else {
                add(Direction::RecvOnly);
                mid = Some(add(Direction::SendOnly));
            }
            api.add_channel("chat".to_owned());
        });
        client.mid = mid;
        let (session, answer) =
            WebRtcSession::accept(&offer, &setup(None, &[runner()]), client.start).expect("an answer");
        client.accept(&answer);
        let mut pair = Pair::joined(client, session);
        pair.connect();
        pair.open_audio(16_000, 16_000);
        pair.client.speak(440.0, pair.now);
        pair.bot.endless = Some(Tone::new(440.0, 16_000));
        pair.run(secs(1));
        assert!(pair.bot.frames >= 40, "{} frames", pair.bot.frames);
        assert!(
            pair.client.received.len() >= 40,
            "{} packets",
            pair.client.received.len()
        );
    }
}

/// A client may send from two sections. The bot gets the sound of the one that began, and that of
/// the other one once it is silent.
#[test]
fn one_of_two_sections_that_send_is_used() {
    let mut client = TestClient::new("192.0.2.9:5000");
    let mut mids = Vec::new();
    let offer = client.change(|api| {
        for _ in 0..2 {
            mids.push(api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None));
        }
        api.add_channel("chat".to_owned());
    });
    client.mid = Some(mids[0]);
    let (session, answer) = WebRtcSession::accept(&offer, &setup(None, &[runner()]), client.start).expect("an answer");
    client.accept(&answer);
    let mut pair = Pair::joined(client, session);
    pair.connect();
    pair.open_audio(16_000, 16_000);
    pair.client.speak(440.0, pair.now);
    pair.run(ms(500));
    let mut nth = 0;
    // Two seconds in which the second section sends silence.
    let mut frames_of_two = |pair: &mut Pair| {
        let frames = pair.bot.frames;
        for _ in 0..100 {
            pair.client.mid = Some(mids[1]);
            let now = pair.now;
            pair.client
                .write_audio(30_000 + nth, 960 * nth as u32, &[0xf8, 0xff, 0xfe], now);
            pair.client.mid = Some(mids[0]);
            nth += 1;
            pair.run(ms(20));
        }
        pair.bot.frames - frames
    };
    let frames = frames_of_two(&mut pair);
    assert!((98..=102).contains(&frames), "{frames} frames");
    let tail = &pair.bot.pcm[pair.bot.pcm.len() - 8_000..];
    assert!(share(tail, 440.0, 16_000) > 0.9);
    pair.client.mute();
    let frames = frames_of_two(&mut pair);
    assert!((40..=60).contains(&frames), "{frames} frames");
    let tail = &pair.bot.pcm[pair.bot.pcm.len() - 8_000..];
    assert!(tail.iter().all(|sample| sample.unsigned_abs() < 100));
}

/// A client with a new connection gets a new answer in the same session: the bot sees no new
/// caller, keeps its rate, waiting messages use the new channel, and the old connection is ignored.
#[test]
fn a_restart_keeps_the_bot() {
    let (mut pair, first) = call();
    pair.run(secs(1));
    let received = pair.bot.frames;
    let mut client = TestClient::at("192.0.2.9:5001", pair.start);
    let offer = client.offer();
    let old_ufrag = pair.session.local_ufrag();
    let mut old = pair.restart(client, &offer);
    assert_ne!(pair.session.local_ufrag(), old_ufrag);
    assert_ne!(values(&first, "ice-ufrag")[0], pair.session.local_ufrag());
    pair.send("said in between");
    pair.client.speak(440.0, pair.now);
    pair.connect();
    assert_eq!(pair.client.texts(), ["said in between"]);
    assert_talks(&mut pair);
    assert_eq!(pair.bot.rate_hz, 16_000);
    assert!(pair.bot.frames > received);
    // The old connection keeps sending, and closes.
    old.send("from the past");
    old.rtc.close().expect("closing");
    let source = old.address;
    let texts = pair.texts().len();
    for (_, datagram) in old.drain(pair.now) {
        pair.act(|session, now| {
            session.handle_packet(&ReceivedPacket::from_datagram(source, runner(), &datagram), now)
        });
    }
    pair.run(secs(1));
    assert_eq!(pair.texts().len(), texts);
    assert_talks(&mut pair);
}

/// A client that restarts and never connects times out as vanished, because it was connected
/// before.
#[test]
fn a_restart_that_never_connects_ends() {
    let (mut pair, _) = call();
    let mut client = TestClient::at("192.0.2.9:5001", pair.start);
    let offer = client.offer();
    let restarted = pair.time();
    pair.restart(client, &offer);
    pair.up.cut = true;
    pair.run(ms(14_900));
    assert_eq!(pair.left(), None);
    pair.run(secs(1));
    assert_eq!(pair.left(), Some((LeaveReason::Vanished, restarted + secs(15))));
    assert!(pair.gone.is_some());
}

/// An invalid offer leaves the old connection unchanged.
#[test]
fn a_bad_restart_changes_nothing() {
    let (mut pair, first) = call();
    let now = pair.now;
    let refused = pair.act(|session, _| session.restart("v=0\r\n", &setup(None, &[runner()]), now));
    assert!(
        matches!(refused, Err(NegotiationError::BadDescription(_))),
        "{refused:?}"
    );
    assert_eq!(pair.session.local_ufrag(), values(&first, "ice-ufrag")[0]);
    assert_talks(&mut pair);
}

/// A lost client that restarts when its network returns is heard again.
#[test]
fn a_lost_client_restarts() {
    let (mut pair, _) = call();
    pair.up.cut = true;
    pair.down.cut = true;
    pair.run(secs(12));
    assert!(pair.saw(&SessionEvent::Lost) && !pair.saw(&SessionEvent::Restored));
    pair.up.cut = false;
    pair.down.cut = false;
    let mut client = TestClient::at("198.51.100.3:40000", pair.start);
    let offer = client.offer();
    pair.restart(client, &offer);
    pair.client.speak(440.0, pair.now);
    pair.connect();
    assert_eq!(pair.times(&SessionEvent::Restored).len(), 1);
    assert_talks(&mut pair);
    // The new connection is monitored like the old one.
    pair.up.cut = true;
    pair.run(secs(8));
    assert_eq!(pair.times(&SessionEvent::Lost).len(), 2);
}

/// After the goodbye a later offer is rejected, so that the client stops retrying.
#[test]
fn a_session_that_is_ending_takes_no_offers() {
    let (mut pair, _) = call();
    pair.up.cut = true;
    pair.act(|session, now| session.handle_end(LeaveReason::BotEnded, now));
    for _ in 0..3 {
        let mut client = TestClient::at("192.0.2.9:5001", pair.start);
        let offer = client.offer();
        let now = pair.now;
        let restart = pair.act(|session, _| session.restart(&offer, &setup(None, &[runner()]), now));
        assert_eq!(restart, Err(NegotiationError::Ended));
        let again = pair.act(|session, _| session.renegotiate(&offer));
        assert_eq!(again, Err(NegotiationError::Ended));
        pair.run(ms(350));
    }
    assert!(pair.gone.is_some());
}
