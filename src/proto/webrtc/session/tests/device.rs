//! A microcontroller as the peer: its real offer, its roles in the handshakes, and its limits.
//! Source: `docs/spec/devices.md` 3, 7, 8.

use crate::webrtc::connection::NegotiationError;
use std::net::Ipv4Addr;

use super::super::*;
use super::pair::{Pair, Tone, ms, runner, secs};
use crate::limits::{DEVICE_MESSAGE_BYTES_MAX, DEVICE_MESSAGE_INTERVAL, DEVICE_SETUP_REPEAT};
use crate::testing::client::{self, TestClient};
pub use crate::testing::device::{as_device, device};
use crate::testing::tap::chunks;

pub const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const ADDRESS: &str = "192.0.2.57:49152";

const DATA: u8 = 0;
const INIT: u8 = 1;

/// A talking device on a runner with `--embedded`.
fn call() -> Pair {
    let mut pair = Pair::embedded(device(ADDRESS, Instant::now()), Some(HOST), as_device);
    pair.keep_sent = true;
    assert!(pair.session.is_device());
    pair.connect();
    pair
}

fn message(kind: &str, text: &str) -> String {
    format!(r#"{{"label":"rtvi-ai","type":"{kind}","data":{{"text":"{text}"}}}}"#)
}

/// Returns the RTP packets that the session sent, and when.
pub fn rtp(pair: &Pair) -> Vec<(std::time::Duration, &[u8])> {
    // RFC 7983 and RFC 5761: RTP starts with 128 to 191; a second byte of 192 to 223 means RTCP.
    let is_rtp = |datagram: &[u8]| (128..192).contains(&datagram[0]) && !(192..224).contains(&datagram[1]);
    let sent = pair.sent.iter().map(|(at, datagram)| (*at, datagram.as_slice()));
    sent.filter(|(_, datagram)| is_rtp(datagram)).collect()
}

/// Every packet has a 12-byte header, one SSRC and payload type 111, at a steady rate, through
/// speech and silence.
#[test]
fn packets_to_a_device_have_bare_headers_on_a_steady_clock() {
    let mut pair = call();
    pair.open_audio(16_000, 16_000);
    pair.client.speak(440.0, pair.now);
    pair.run(secs(1));
    pair.say(&Tone::new(440.0, 16_000).take(8_000));
    pair.run(secs(2));
    assert!(pair.bot.frames >= 140 && pair.client.received.len() >= 140);
    let packets = rtp(&pair);
    assert!(packets.len() >= 145, "{} packets", packets.len());
    for (_, packet) in &packets {
        assert_eq!(packet[0], 0x80, "no padding, no extension, no contributors");
        assert_eq!(packet[1] & 0x7f, 111);
        assert_eq!(packet[8..12], packets[0].1[8..12]);
        assert!(packet.len() <= 1_200);
    }
    for three in packets.windows(3) {
        assert!(three[2].0 - three[0].0 >= ms(20), "three packets within 20 ms");
        assert!(three[1].0 - three[0].0 <= ms(60), "a gap");
    }
    assert!(pair.sent.iter().all(|(_, datagram)| datagram.len() <= 1_200));
}

/// The device starts the association: the session sends no INIT, and the channel is open within
/// half a second.
#[test]
fn the_device_opens_the_association() {
    let pair = call();
    assert!(pair.time() < ms(500), "{:?}", pair.time());
    let wires = pair.client.wires.lock().expect("whole");
    assert!(wires.from_session.iter().all(|packet| !chunks(packet).contains(&INIT)));
}

/// A stack whose DTLS server waits for an INIT gets one, after most devices would have started.
#[test]
fn a_waiting_device_receives_an_init() {
    let config = client::config().clear_extension_map();
    let mut waits = TestClient::with(config, ADDRESS, Instant::now()).labels(&["rtvi-ai"]);
    waits.rtc.direct_api().start_sctp(false);
    let mut pair = Pair::embedded(waits, Some(HOST), as_device);
    pair.connect();
    assert!(pair.time() > DEVICE_SETUP_REPEAT && pair.time() < 2 * DEVICE_SETUP_REPEAT);
    pair.send(&message("bot-ready", "x"));
    pair.client.send("up");
    pair.run(secs(1));
    assert_eq!(pair.client.texts(), [message("bot-ready", "x")]);
    assert_eq!(pair.texts(), ["up"]);
}

/// Messages are sent one at a time, each in its own chunk and packet, urgent ones first, after the
/// settling time, at most five per second, and in a readable form.
#[test]
fn messages_to_a_device_are_paced() {
    let mut pair = Pair::embedded(device(ADDRESS, Instant::now()), Some(HOST), as_device);
    let longest = message(
        "bot-transcription",
        &"x".repeat(DEVICE_MESSAGE_BYTES_MAX - message("bot-transcription", "").len()),
    );
    let too_long = message("bot-transcription", &"x".repeat(DEVICE_MESSAGE_BYTES_MAX));
    for text in [
        &longest,
        &too_long,
        "[]",
        "no JSON",
        &message("metrics", "m"),
        &message("bot-transcription", "last"),
    ] {
        pair.send(text);
    }
    for kind in ["bot-ready", "bot-started-speaking", "bot-stopped-speaking"] {
        pair.send(&message(kind, "x"));
    }
    pair.connect();
    let opened = pair.time();
    pair.run(secs(5));
    let expected = [
        message("bot-ready", "x"),
        message("bot-started-speaking", "x"),
        message("bot-stopped-speaking", "x"),
        longest,
        message("bot-transcription", "last"),
    ];
    assert_eq!(pair.client.texts(), expected);
    assert!(
        pair.client.read[0].0 + ms(60) >= opened + ms(100),
        "{:?} {opened:?}",
        pair.client.read[0].0
    );
    for two in pair.client.read.windows(2) {
        assert!(two[1].0 - two[0].0 >= DEVICE_MESSAGE_INTERVAL - ms(1));
    }
    let wires = pair.client.wires.lock().expect("whole");
    let data = wires
        .from_session
        .iter()
        .map(|packet| chunks(packet).iter().filter(|kind| **kind == DATA).count());
    assert!(data.clone().all(|count| count <= 1), "two messages in one packet");
    // The channel's acknowledgement is a DATA chunk, too.
    assert_eq!(data.sum::<usize>(), 1 + expected.len());
}

/// While the device acknowledges nothing, the next message waits without using the CPU.
#[test]
fn an_unacknowledged_message_blocks_the_next() {
    let mut pair = call();
    pair.run(secs(1));
    pair.up.cut = true;
    for number in 0..10 {
        pair.send(&message("bot-transcription", &number.to_string()));
    }
    pair.run(secs(4));
    assert_eq!(pair.client.texts(), [message("bot-transcription", "0")]);
}

/// A device gets no goodbye message, only SCTP's shutdown.
#[test]
fn a_device_is_closed_without_a_goodbye() {
    let mut pair = call();
    pair.run(secs(1));
    pair.bot_ends();
    pair.run(secs(1));
    assert_eq!(pair.left().map(|(reason, _)| reason), Some(LeaveReason::BotEnded));
    assert_eq!(pair.client.texts(), [""; 0]);
    assert!(pair.gone.is_some());
}

/// A device that loses power is reported within 7 s and freed within 35 s.
#[test]
fn a_device_without_power_is_freed() {
    let mut pair = call();
    pair.client.speak(440.0, pair.now);
    pair.run(secs(1));
    let vanished = pair.time();
    pair.up.cut = true;
    pair.down.cut = true;
    pair.run(secs(40));
    assert!(pair.times(&SessionEvent::Lost)[0] - vanished < secs(7));
    let (reason, at) = pair.left().expect("the end");
    assert_eq!(reason, LeaveReason::Vanished);
    assert!(at - vanished < secs(35));
}

/// The session keeps checking, because the device does not check and may close 10 s after the last
/// check.
#[test]
fn a_device_is_checked_in_time() {
    let mut pair = call();
    pair.run(secs(1));
    let from = pair.time();
    pair.run(secs(60));
    let checks: Vec<_> = pair
        .sent
        .iter()
        .filter(|(at, datagram)| *at > from && datagram.starts_with(&[0, 1]))
        .collect();
    let mut last = from;
    for (at, check) in checks {
        assert!(*at - last < secs(9), "no check from {last:?} to {at:?}");
        assert!(check.len() < 256);
        last = *at;
    }
    assert!(last > from + secs(50));
}

/// A browser on the same runner is treated as usual, but gets one candidate.
#[test]
fn a_browser_on_a_runner_for_devices_is_a_browser() {
    let mut pair = Pair::embedded(TestClient::new("192.0.2.9:5000"), Some(HOST), |offer| offer);
    assert!(!pair.session.is_device());
    pair.connect();
    let long = message("bot-llm-text", &"x".repeat(5_000));
    pair.send(&long);
    pair.send(&message("metrics", "m"));
    pair.bot_ends();
    pair.run(secs(1));
    let texts = pair.client.texts();
    assert_eq!(texts[..2], [long, message("metrics", "m")]);
    assert!(texts[2].contains("peerLeft"));
}

/// A device is recognized without `--embedded`.
#[test]
fn a_device_needs_no_flag() {
    let mut pair = Pair::embedded(device(ADDRESS, Instant::now()), None, as_device);
    pair.keep_sent = true;
    assert!(pair.session.is_device());
    pair.connect();
    pair.run(secs(1));
    let packets = rtp(&pair);
    assert!(packets.len() >= 40);
    assert!(packets.iter().all(|(_, packet)| packet[0] == 0x80));
    pair.send(&message("bot-transcription", "in time"));
    pair.send(&message("bot-transcription", &"x".repeat(DEVICE_MESSAGE_BYTES_MAX)));
    pair.run(secs(1));
    assert_eq!(pair.client.texts(), [message("bot-transcription", "in time")]);
}

/// `a=ssrc` is optional and may be wrong: the bot hears any authenticated source, and no other.
#[test]
fn unannounced_sources_of_a_device_are_received() {
    let without = |line: &str| !line.starts_with("a=ssrc");
    type Change = fn(&str) -> Option<String>;
    let changes: [(&str, Change); 2] = [
        ("no source", |_| None),
        ("another source", |line| {
            let (_, about) = line.split_once(' ')?;
            Some(format!("a=ssrc:6 {about}"))
        }),
    ];
    for (name, change) in changes {
        let mut pair = Pair::embedded(device(ADDRESS, Instant::now()), Some(HOST), |offer| {
            let lines = as_device(offer);
            let lines = lines.lines().filter_map(|line| match without(line) {
                true => Some(line.to_owned()),
                false => change(line),
            });
            lines.flat_map(|line| [line, "\r\n".to_owned()]).collect()
        });
        pair.keep_launched = true;
        pair.connect();
        pair.open_audio(16_000, 24_000);
        pair.client.speak(440.0, pair.now);
        pair.run(secs(1));
        assert!(pair.bot.frames >= 45, "{name}: {} frames", pair.bot.frames);
        let is_rtp = |datagram: &&Vec<u8>| (128..192).contains(&datagram[0]) && !(192..224).contains(&datagram[1]);
        let mut forged = pair.launched.iter().find(is_rtp).expect("a packet of sound").clone();
        let source = pair.client.address;
        for number in 0..100u32 {
            forged[8..12].copy_from_slice(&(0xdead_0000 + number).to_be_bytes());
            pair.act(|session, now| {
                session.handle_packet(&ReceivedPacket::from_datagram(source, runner(), &forged), now)
            });
            pair.run(ms(20));
        }
        let before = pair.bot.frames;
        pair.run(secs(1));
        assert!(pair.bot.frames - before >= 45, "{name}");
    }
}

/// Without an IPv4 address a device is rejected with a message that names the available addresses
/// and the option.
#[test]
fn a_device_is_rejected_without_an_ipv4_address() {
    let offer = as_device(device(ADDRESS, Instant::now()).offer());
    let local = ["[2001:db8::1]:7860".parse().expect("an address")];
    let refused = WebRtcSession::accept(&offer, &super::pair::setup(None, &local), Instant::now()).map(|_| ());
    let Err(NegotiationError::NoCandidate(words)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        words.contains("2001:db8::1") && words.contains("--embedded --host"),
        "{words}"
    );
}

/// Unusable audio is logged once; usable audio is not.
#[test]
fn unusable_audio_is_logged_once() {
    let mut pair = call();
    pair.open_audio(16_000, 24_000);
    pair.client.speak(440.0, pair.now);
    pair.run(secs(5));
    assert!(pair.bot.frames > 200);
    assert!(!pair.session.reported_unusable_audio());
    // A second source with an invalid tag.
    let mut forged = vec![0x80, 111, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9];
    forged.extend([7; 60]);
    pair.client.mute();
    let source = pair.client.address;
    for _ in 0..200 {
        pair.act(|session, now| session.handle_packet(&ReceivedPacket::from_datagram(source, runner(), &forged), now));
        pair.run(ms(20));
    }
    assert!(pair.session.reported_unusable_audio());
}

/// A caller that has agreed to send and sends nothing is logged within 5 s; one that sends, that
/// only listens, or that holds the call is not.
#[test]
fn a_caller_without_audio_is_logged() {
    let mut pair = call();
    pair.open_audio(16_000, 24_000);
    pair.run(ms(4_900));
    assert!(!pair.session.reported_no_audio());
    pair.run(ms(200));
    assert!(pair.session.reported_no_audio());
    let mut audible = call();
    audible.open_audio(16_000, 24_000);
    audible.client.speak(440.0, audible.now);
    audible.run(ms(500));
    audible.client.mute();
    audible.run(secs(10));
    assert!(!audible.session.reported_no_audio());
    for direction in ["recvonly", "inactive"] {
        let change = |offer: String| offer.replace("a=sendrecv", &format!("a={direction}"));
        let mut listener = Pair::with(TestClient::new("192.0.2.9:5000"), change);
        listener.connect();
        listener.run(secs(10));
        assert!(!listener.session.reported_no_audio(), "{direction}");
    }
}

/// Every stack connects in the role that its offer leaves. The DTLS client starts SCTP where the
/// stack requires it.
#[test]
fn devices_connect_in_each_dtls_role() {
    let espressif = |offer: String| {
        as_device(offer)
            .replace("a=msid-semantic: iot", "a=msid-semantic: esp-webrtc")
            .replace("a=setup:passive", "a=setup:actpass")
    };
    let active = |offer: String| as_device(offer).replace("a=setup:passive", "a=setup:active");
    let microphone = |offer: String| as_device(offer).replace("a=sendrecv", "a=sendonly");
    let changes: [(&str, &dyn Fn(String) -> String); 4] = [
        ("esp_peer", &espressif),
        ("a client of the handshake", &active),
        ("a microphone", &microphone),
        ("the voice firmware", &as_device),
    ];
    for (name, change) in changes {
        let mut pair = Pair::embedded(device(ADDRESS, Instant::now()), None, change);
        assert!(pair.session.is_device(), "{name}");
        pair.connect();
        pair.open_audio(16_000, 24_000);
        pair.client.speak(440.0, pair.now);
        pair.client.send("hello");
        pair.run(secs(1));
        assert!(pair.bot.frames >= 45, "{name}: {} frames", pair.bot.frames);
        assert_eq!(pair.texts(), ["hello"], "{name}");
    }
}
