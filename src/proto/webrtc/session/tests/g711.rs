//! Callers without Opus: G.711 in both directions, one byte per sample (RFC 7874 section 3, RFC
//! 3551 section 4.5.14).

use super::super::*;
use super::device::{ADDRESS, HOST, as_device, rtp};
use super::offers::{CHROME, FIREFOX, answer};
use super::pair::{Pair, Tone, ms, secs, share};
use super::restart;
use crate::audio::codec::Codec;
use crate::audio::g711::Law;
use crate::testing::client::{self, TestClient};

const A4: f64 = 440.0;
const CALLER: &str = "192.0.2.9:5000";

/// Each law with its static payload type and a dynamic one.
const CASES: [(Law, u8); 4] = [(Law::Mu, 0), (Law::A, 8), (Law::Mu, 96), (Law::A, 127)];

fn caller(law: Law, payload_type: u8) -> TestClient {
    TestClient::g711(law, payload_type, CALLER, Instant::now())
}

/// The code of silence.
fn silence(law: Law) -> u8 {
    match law {
        Law::Mu => 0xff,
        Law::A => 0xd5,
    }
}

fn call(client: TestClient) -> Pair {
    let mut pair = Pair::with(client, |offer| offer);
    pair.connect();
    pair
}

/// Sends a second of a tone, and asserts that it is heard.
fn assert_received(pair: &mut Pair, rate_hz: u32) {
    let from = pair.time();
    pair.say(&Tone::new(1_000.0, rate_hz).take(rate_hz as usize));
    pair.run(ms(1_500));
    let pcm = pair.client.pcm_since(from);
    let middle = &pcm[48_000 / 4..48_000 * 3 / 4];
    let got = share(middle, 1_000.0, 48_000);
    assert!(got > 0.9, "{rate_hz} Hz: {got}");
}

/// Tones pass both ways at any rate of the bot, in 50 packets of 160 bytes per second with 8 kHz
/// timestamps. Around speech there is exact silence.
#[test]
fn a_caller_without_opus_is_served() {
    for (law, payload_type) in CASES {
        for rate_hz in [8_000, 16_000, 24_000] {
            let mut pair = call(caller(law, payload_type));
            assert_eq!(pair.session.codec(), Codec::G711(law));
            pair.keep_sent = true;
            pair.open_audio(rate_hz, rate_hz);
            pair.client.speak(A4, pair.now);
            pair.run(secs(2));
            assert!((98..=100).contains(&pair.bot.frames), "{} frames", pair.bot.frames);
            assert_eq!(pair.bot.rate_hz, rate_hz);
            let tail = &pair.bot.pcm[pair.bot.pcm.len() / 2..];
            let got = share(tail, A4, rate_hz);
            assert!(got > 0.95, "{law:?} at {rate_hz} Hz: {got}");
            let stats = pair.session.audio_receiver.stats();
            assert_eq!((stats.counters.lost, stats.unreadable), (0, 0));
            assert!(
                pair.client
                    .received
                    .iter()
                    .all(|packet| *packet.payload == [silence(law); 160])
            );
            assert_received(&mut pair, rate_hz);
            pair.run(secs(1));
            let steps = pair.client.received.windows(2);
            assert!(
                steps.into_iter().all(|two| {
                    two[1].sequence == two[0].sequence + 1 && two[1].timestamp == two[0].timestamp + 160
                })
            );
            let last = pair.client.received.iter().rev().take(40);
            assert!(last.into_iter().all(|packet| *packet.payload == [silence(law); 160]));
            let types = rtp(&pair).into_iter().map(|(_, packet)| packet[1] & 0x7f);
            assert!(types.into_iter().all(|sent| sent == payload_type));
            pair.client.send("up");
            pair.send("down");
            pair.run(ms(200));
            assert_eq!(
                (pair.texts(), pair.client.texts()),
                (vec!["up"], vec!["down".to_owned()])
            );
        }
    }
}

/// The bot hears all audio of a packet, whatever its duration.
#[test]
fn packets_may_have_any_duration() {
    for ptime in [10, 20, 30, 40, 60] {
        let mut client = caller(Law::A, 8);
        client.ptime = ms(ptime);
        let mut pair = call(client);
        pair.open_audio(16_000, 16_000);
        pair.client.speak(A4, pair.now);
        pair.run(secs(3));
        let received = pair.bot.pcm.len();
        assert!(
            received.abs_diff(48_000) <= 3 * 16 * ptime as usize,
            "{ptime} ms: {received} samples"
        );
        let got = share(&pair.bot.pcm[received / 2..], A4, 16_000);
        assert!(got > 0.95, "{ptime} ms: {got}");
        assert_eq!(pair.session.audio_receiver.stats().counters.lost, 0);
        assert!(pair.session.audio_receiver.stats().counters.jitter < ms(2));
    }
}

/// Losses and reordering are counted and concealed as with Opus, without redundant copies.
#[test]
fn lost_packets_are_concealed() {
    let mut pair = call(caller(Law::Mu, 0));
    pair.open_audio(16_000, 16_000);
    pair.client.speak(A4, pair.now);
    for direction in [&mut pair.up, &mut pair.down] {
        direction.loss_percent = 20;
        direction.spread = ms(25);
    }
    pair.run(secs(10));
    let counters = pair.session.audio_receiver.stats().counters;
    assert!((50..=150).contains(&counters.lost), "{counters:?}");
    assert!(counters.concealed > 0 && counters.recovered == 0, "{counters:?}");
    assert!(
        (450..=500).contains(&pair.bot.frames),
        "{} of 500 frames",
        pair.bot.frames
    );
    assert!(share(&pair.bot.pcm, A4, 16_000) > 0.5);
    assert_eq!(pair.left(), None);
}

/// Payloads of unusual lengths are decoded; those too long for a datagram are rejected.
#[test]
fn odd_payload_lengths_are_harmless() {
    let mut pair = call(caller(Law::Mu, 0));
    pair.open_audio(48_000, 16_000);
    pair.client.speak(A4, pair.now);
    pair.run(secs(1));
    let (mut sequence, mut ticks) = (10_000, 1 << 20);
    for bytes in [0, 1, 7, 159, 161, 1_000, 1_120] {
        let before = pair.bot.pcm.len();
        pair.client.mute();
        pair.client.write_audio(sequence, ticks, &vec![0x55; bytes], pair.now);
        pair.run(ms(200));
        let made = pair.bot.pcm.len() - before;
        // The rest in the filter is decoded as well.
        assert!(made.abs_diff(6 * bytes) <= 6 * 960 * 5, "{bytes} bytes: {made} samples");
        sequence += 1;
        ticks += bytes as u32;
    }
    assert_eq!((pair.left(), pair.session.audio_receiver.stats().unreadable), (None, 0));
}

/// Opus is preferred in any order, and is the only codec in the answer.
#[test]
fn opus_is_preferred() {
    for (offer, opus) in [(CHROME, "111"), (FIREFOX, "109")] {
        let line = |sdp: &str| {
            sdp.lines()
                .find(|line| line.starts_with("m=audio"))
                .expect("audio")
                .to_owned()
        };
        let first = line(offer);
        let plain = answer(offer).expect("an answer");
        let (head, formats) = first.split_once("SAVPF ").expect("formats");
        let mut formats: Vec<&str> = formats.split(' ').collect();
        formats.reverse();
        let turned = offer.replace(&first, &format!("{head}SAVPF {}", formats.join(" ")));
        let turned = answer(&turned).expect("an answer");
        for answer in [plain, turned] {
            assert!(line(&answer).ends_with(&format!("SAVPF {opus}")), "{answer}");
            assert!(!answer.contains("PCM"), "{answer}");
        }
    }
}

/// The caller's order decides between the two laws. The answer has one, with the offer's payload
/// type.
#[test]
fn the_first_law_of_an_offer_is_used() {
    let offer = |formats: &str| CHROME.replace("SAVPF 111 63 9 0 8 13 110 126", &format!("SAVPF {formats}"));
    let without_map = offer("0").replace("a=rtpmap:0 PCMU/8000\n", "");
    let mono = offer("8").replace("PCMA/8000", "PCMA/8000/1");
    let spelt = offer("8").replace("PCMA/8000", "pcma/8000");
    let dynamic = offer("100").replace("a=rtpmap:0 PCMU/8000", "a=rtpmap:100 PCMU/8000");
    let one_way = dynamic.replace("a=sendrecv", "a=sendonly");
    for (name, offer, payload_type, law) in [
        ("PCMU first", offer("9 0 8 13 110 126"), "0", "PCMU"),
        ("PCMA first", offer("13 8 0 126"), "8", "PCMA"),
        ("static", without_map, "0", "PCMU"),
        ("one channel", mono, "8", "PCMA"),
        ("small letters", spelt, "8", "PCMA"),
        ("dynamic", dynamic, "100", "PCMU"),
        ("dynamic, one way", one_way, "100", "PCMU"),
    ] {
        let answer = answer(&offer).unwrap_or_else(|error| panic!("{name}: {error}"));
        let audio = answer.lines().find(|line| line.starts_with("m=audio")).expect("audio");
        assert!(audio.ends_with(&format!("SAVPF {payload_type}")), "{name}: {audio}");
        let maps: Vec<&str> = answer.lines().filter(|line| line.starts_with("a=rtpmap")).collect();
        assert!(
            maps.contains(&format!("a=rtpmap:{payload_type} {law}/8000").as_str()),
            "{name}: {maps:?}"
        );
    }
}

/// Later offers, ICE restarts and new connections work as with Opus.
#[test]
fn a_g711_call_can_be_renegotiated() {
    let (mut pair, _) = restart::call_of(caller(Law::Mu, 0));
    let offer = pair.client.change(|api| {
        api.ice_restart(true);
    });
    let answer = pair.act(|session, _| session.renegotiate(&offer)).expect("an answer");
    pair.client.accept(&answer);
    restart::assert_talks(&mut pair);
    // A connection keeps its codec through later offers.
    assert_eq!(pair.session.codec(), Codec::G711(Law::Mu));
}

/// A client that restarts with another codec is served with that, by the same bot.
#[test]
fn a_restart_may_change_the_codec() {
    let (mut pair, _) = restart::call_of(caller(Law::Mu, 0));
    pair.bot.endless = Some(Tone::new(1_000.0, 16_000));
    pair.run(secs(1));
    pair.bot.endless = None;
    for (address, client_of) in [
        ("192.0.2.9:5001", None),
        ("192.0.2.9:5002", Some(Law::A)),
        ("192.0.2.9:5003", Some(Law::Mu)),
        ("192.0.2.9:5004", None),
    ] {
        let mut client = match client_of {
            None => TestClient::at(address, pair.start),
            Some(law) => TestClient::g711(law, 100, address, pair.start),
        };
        let offer = client.offer();
        pair.restart(client, &offer);
        pair.client.speak(A4, pair.now);
        pair.connect();
        assert_eq!(pair.session.codec(), client_of.map_or(Codec::Opus, Codec::G711));
        pair.run(ms(500));
        restart::assert_talks(&mut pair);
    }
    let (started, stopped) = (
        pair.times(&SessionEvent::SpeechStarted),
        pair.times(&SessionEvent::SpeechStopped),
    );
    assert_eq!(started.len(), stopped.len(), "{started:?} {stopped:?}");
}

/// A device with G.711 firmware gets bare headers, one codec in the answer, packets of 20 ms, and
/// exact silence.
#[test]
fn a_device_without_opus_is_served() {
    for (law, payload_type) in [(Law::Mu, 0), (Law::A, 8)] {
        let config = client::g711(client::bare(), law, payload_type).clear_extension_map();
        let mut client = TestClient::with(config, ADDRESS, Instant::now())
            .speaking(law)
            .labels(&["rtvi-ai"]);
        client.rtc.direct_api().start_sctp(true);
        let mut pair = Pair::embedded(client, Some(HOST), as_device);
        assert!(pair.session.is_device());
        pair.keep_sent = true;
        pair.connect();
        pair.open_audio(16_000, 24_000);
        pair.client.speak(A4, pair.now);
        pair.run(secs(1));
        assert_received(&mut pair, 24_000);
        pair.run(secs(1));
        let got = share(&pair.bot.pcm[pair.bot.pcm.len() / 2..], A4, 16_000);
        assert!(got > 0.95, "{got}");
        let packets = rtp(&pair);
        assert!(packets.len() >= 170);
        for (_, packet) in &packets {
            assert_eq!((packet[0], packet[1] & 0x7f), (0x80, payload_type));
            // A header, 20 ms, and the tag of either SRTP profile.
            assert!([10, 16].contains(&(packet.len() - 12 - 160)), "{} bytes", packet.len());
        }
        for three in packets.windows(3) {
            assert!(three[2].0 - three[0].0 >= ms(20), "three packets within 20 ms");
            assert!(three[1].0 - three[0].0 <= ms(60), "a gap");
        }
        let last = pair.client.received.iter().rev().take(35);
        assert!(last.into_iter().all(|packet| *packet.payload == [silence(law); 160]));
    }
}
