//! The subscriber's connection: whose audio is received, through all changes of a room.

use std::collections::BTreeMap;
use std::time::Instant;

use str0m::media::{Direction, Mid};

use str0m::rtp::Ssrc;

use super::super::*;
use super::rig::{Kind, Rig, Server, Talker, ms, ours, setup};
use crate::audio::tone::share;
use crate::limits::{
    ROOM_SDP_SECTIONS_MAX, ROOM_SECTION_SOURCES_MAX, ROOM_SOURCES_MAX, ROOM_TRACK_BYTES_MAX, ROOM_VOICES_MAX,
};
use crate::webrtc::connection::{PacketTrust, ReceivedPacket};

const ANN: &str = "PA_ann|TR_ann";
const BOB: &str = "PA_bob|TR_bob";

/// Returns the share of a tone in the end of a track.
fn tone(rig: &Rig, track: &str, hz: f64, frames: usize) -> f64 {
    let pcm = rig.received(track);
    share(&pcm[pcm.len().saturating_sub(frames * 320)..], hz, 16_000)
}

fn counts(rig: &Rig) -> Vec<(&str, usize)> {
    let tracks = rig.audio.iter();
    tracks.map(|(track, packets)| (track.as_str(), packets.len())).collect()
}

/// Returns the text without the lines that start with `start`.
fn without(text: &str, start: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with(start));
    lines.fold(String::new(), |text, line| text + line + "\r\n")
}

/// Returns the section with this mid.
fn section<'a>(text: &'a str, mid: &str) -> &'a str {
    let named = |section: &&str| section.lines().any(|line| line == format!("a=mid:{mid}"));
    text.split("m=").find(named).expect("a section")
}

#[test]
fn each_track_is_received_under_its_id() {
    for kind in [
        Kind::default(),
        Kind {
            lite: true,
            ..Kind::default()
        },
        Kind {
            nameless: true,
            ..Kind::default()
        },
        Kind {
            red: true,
            ..Kind::default()
        },
    ] {
        let (mut rig, mids) = Rig::subscribed(kind, &[ANN, BOB]);
        rig.connect();
        let mut talkers = [(mids[0], Talker::new(440.0)), (mids[1], Talker::new(1_000.0))];
        rig.talk(&mut talkers, 50);
        assert_eq!(counts(&rig), [("TR_ann", 50), ("TR_bob", 50)]);
        assert!(tone(&rig, "TR_ann", 440.0, 40) > 0.99);
        assert!(tone(&rig, "TR_bob", 1_000.0, 40) > 0.99);
        let packets = &rig.audio["TR_ann"];
        assert!(packets.windows(2).all(|two| two[1].sequence == two[0].sequence + 1));
        assert!(packets.windows(2).all(|two| two[1].timestamp == two[0].timestamp + 960));
        assert!(rig.gone.is_empty() && rig.failed == 0);
    }
}

/// The server writes the mid into packets but no `a=ssrc` into its offer.
#[test]
fn unannounced_sources_are_found_by_mid() {
    let now = Instant::now();
    let mut server = Server::new(Kind::default(), now);
    let (offer, mids) = server.offer(&[ANN, BOB]);
    let offer = without(&offer, "a=ssrc");
    let made = PeerConnection::subscriber(&setup(&[ours()]), &offer, &BTreeMap::new(), now);
    let (peer, answer) = made.expect("an offer that is answered");
    server.accept(&answer);
    let mut rig = Rig::new(peer, server, now);
    rig.connect();
    let mut talkers = [(mids[0], Talker::new(440.0)), (mids[1], Talker::new(1_000.0))];
    rig.talk(&mut talkers, 20);
    assert_eq!(counts(&rig), [("TR_ann", 20), ("TR_bob", 20)]);
    assert!(tone(&rig, "TR_bob", 1_000.0, 10) > 0.99);
    assert_eq!(rig.peer.sources.discovered, 2);
    let (offer, _) = rig.server.offer(&["PA_eve|TR_eve"]);
    rig.renegotiate(&without(&offer, "a=ssrc"), &[]);
    rig.talk(&mut talkers, 20);
    assert_eq!(counts(&rig), [("TR_ann", 40), ("TR_bob", 40)]);
    assert_eq!(rig.peer.sources.discovered, 2, "they need not be found again");
}

#[test]
fn room_messages_arrive_on_the_servers_channel() {
    let (mut rig, _) = Rig::subscribed(Kind::default(), &[]);
    rig.connect();
    rig.run(ms(500));
    let (reliable, _) = rig.server.channels[0];
    let mut channel = rig.server.rtc.channel(reliable).expect("a channel");
    assert!(channel.write(true, b"\x01\x02").expect("a write"));
    rig.run(ms(500));
    assert_eq!(rig.data, [b"\x01\x02"]);
    assert!(!rig.channel_open, "we send on the other connection");
    assert!(!rig.peer.send_message(b"no"));
}

#[test]
fn tracks_are_added_and_removed() {
    let (mut rig, mids) = Rig::subscribed(Kind::default(), &[ANN]);
    rig.connect();
    let mut talkers = vec![(mids[0], Talker::new(440.0))];
    rig.talk(&mut talkers, 20);
    let (offer, new) = rig.server.offer(&[BOB]);
    rig.renegotiate(&offer, &[]);
    talkers.push((new[0], Talker::new(1_000.0)));
    rig.talk(&mut talkers, 20);
    assert_eq!(counts(&rig), [("TR_ann", 40), ("TR_bob", 20)]);
    assert!(rig.gone.is_empty());

    let (offer, _) = rig.server.offer_changed(&[], &[(mids[0], Direction::Inactive)]);
    let answer = rig.renegotiate(&offer, &[]);
    assert!(section(&answer, &mids[0]).contains("a=inactive"));
    assert!(section(&answer, &new[0]).contains("a=recvonly"));
    assert_eq!(rig.gone, ["TR_ann"]);
    rig.talk(&mut talkers[1..], 20);
    assert_eq!(counts(&rig), [("TR_ann", 40), ("TR_bob", 40)]);
    assert!(tone(&rig, "TR_bob", 1_000.0, 30) > 0.99, "nothing broke in between");
}

/// A server reuses the section of a removed track: the mid is the same, but the track and the
/// source change.
#[test]
fn a_reused_section_carries_the_new_track() {
    for announced in [true, false] {
        let (mut rig, mids) = Rig::subscribed(Kind::default(), &[ANN]);
        rig.connect();
        let mut talkers = [(mids[0], Talker::new(440.0))];
        rig.talk(&mut talkers, 10);
        let fresh = Ssrc::from(0x7777_u32);
        let mut api = rig.server.rtc.direct_api();
        api.reset_stream_tx(mids[0], None, fresh, None).expect("a stream");
        let (offer, _) = rig.server.offer(&["PA_eve|TR_eve"]);
        let mut offer = offer.replace("PA_ann|TR_ann TR_ann", "PA_bob|camera TR_bob");
        if !announced {
            offer = without(&offer, "a=ssrc");
        }
        rig.renegotiate(&offer, &[]);
        assert_eq!(rig.gone, ["TR_ann"]);
        let mut talkers = [(mids[0], Talker::new(1_000.0))];
        rig.talk(&mut talkers, 20);
        assert_eq!(counts(&rig), [("TR_ann", 10), ("TR_bob", 20)], "announced: {announced}");
        assert!(tone(&rig, "TR_bob", 1_000.0, 10) > 0.99);
    }
}

#[test]
fn tracks_are_found_by_map_then_by_msid() {
    let now = Instant::now();
    let tracks = ["PA_a|TR_a", "PA_b|camera", "PA_c|camera", "spare", "PA_e|TR_e"];
    let mut server = Server::new(Kind::default(), now);
    let (offer, mids) = server.offer(&tracks);
    let offer = offer
        .replace("PA_c|camera camera", "PA_c|camera TR_c")
        .replace("PA_e|TR_e TR_e", "PA_e|TR_e x");
    let map: BTreeMap<String, String> = [(mids[0].to_string(), "TR_map".to_owned())].into();
    let made = PeerConnection::subscriber(&setup(&[ours()]), &offer, &map, now);
    let (peer, answer) = made.expect("an offer that is answered");
    let received: Vec<(&Mid, &str)> = peer
        .sources
        .sections
        .iter()
        .map(|received| (&received.mid, received.track.as_deref().expect("a track")))
        .collect();
    assert_eq!(received, [(&mids[0], "TR_map"), (&mids[2], "TR_c"), (&mids[4], "TR_e")]);
    for (nth, direction) in [
        (0, "recvonly"),
        (1, "inactive"),
        (2, "recvonly"),
        (3, "inactive"),
        (4, "recvonly"),
    ] {
        let line = format!("a={direction}");
        assert!(
            section(&answer, &mids[nth]).lines().any(|is| is == line),
            "{nth}: {answer}"
        );
    }
}

#[test]
fn only_opus_is_accepted() {
    let now = Instant::now();
    let kind = Kind {
        red: true,
        video: true,
        ..Kind::default()
    };
    let mut server = Server::new(kind, now);
    server.rtc.sdp_api();
    let mut change = server.rtc.sdp_api();
    let stream = |name: &str| Some(name.to_owned());
    let video = change.add_media(
        MediaKind::Video,
        Direction::SendOnly,
        stream("PA_v|TR_v"),
        stream("TR_v"),
        None,
    );
    let audio = change.add_media(
        MediaKind::Audio,
        Direction::SendOnly,
        stream(ANN),
        stream("TR_ann"),
        None,
    );
    change.add_channel("_reliable".to_owned());
    let (offer, pending) = change.apply().expect("an offer");
    let offer = offer.to_sdp_string();
    assert!(offer.contains("red/48000/2") && offer.contains("VP8"));
    let map = [(video.to_string(), "TR_v".to_owned())].into();
    let made = PeerConnection::subscriber(&setup(&[ours()]), &offer, &map, now);
    let (peer, answer) = made.expect("an offer that is answered");
    let formats = |mid: &str| section(&answer, mid).lines().next().expect("a line").to_owned();
    assert_eq!(formats(&audio), "audio 9 UDP/TLS/RTP/SAVPF 111");
    assert!(formats(&video).starts_with("video 0 "));
    assert!(section(&answer, &video).contains("a=inactive"));
    server.pending = Some(pending);
    server.accept(&answer);
    let mut rig = Rig::new(peer, server, now);
    rig.connect();
    rig.talk(&mut [(audio, Talker::new(440.0))], 20);
    assert_eq!(counts(&rig), [("TR_ann", 20)]);
}

/// The subscriber receives, so the payload types of its answer apply, one for all sections.
#[test]
fn sections_may_use_different_payload_types_for_opus() {
    let now = Instant::now();
    let mut server = Server::new(Kind::default(), now);
    let (offer, mids) = server.offer(&[ANN, BOB]);
    let at = offer.rfind("m=audio").expect("a section");
    let last = offer[at..].replace(" 111", " 96").replace(":111 ", ":96 ");
    let offer = format!("{}{last}", &offer[..at]);
    let made = PeerConnection::subscriber(&setup(&[ours()]), &offer, &BTreeMap::new(), now);
    let (peer, answer) = made.expect("an offer that is answered");
    server.accept(&answer);
    let mut rig = Rig::new(peer, server, now);
    rig.connect();
    rig.talk(
        &mut [(mids[0], Talker::new(440.0)), (mids[1], Talker::new(1_000.0))],
        20,
    );
    assert_eq!(counts(&rig), [("TR_ann", 20), ("TR_bob", 20)]);
    assert!(tone(&rig, "TR_bob", 1_000.0, 10) > 0.99);
}

#[test]
fn sendrecv_sections_are_answered_with_recvonly() {
    let now = Instant::now();
    let mut server = Server::new(Kind::default(), now);
    let (offer, mids) = server.offer(&[ANN]);
    let offer = offer.replace("a=sendonly", "a=sendrecv");
    let (_, answer) = PeerConnection::subscriber(&setup(&[ours()]), &offer, &BTreeMap::new(), now).expect("an answer");
    assert!(section(&answer, &mids[0]).contains("a=recvonly"));
}

/// At the cap and one past it: received tracks keep their place, and a free place goes to the next
/// offer.
#[test]
fn tracks_beyond_the_cap_wait_for_a_free_place() {
    let now = Instant::now();
    let mut server = Server::new(Kind::default(), now);
    let names: Vec<String> = (0..=ROOM_VOICES_MAX).map(|nth| format!("PA_{nth}|TR_{nth}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (offer, mids) = server.offer(&names);
    let made = PeerConnection::subscriber(&setup(&[ours()]), &offer, &BTreeMap::new(), now);
    let (peer, answer) = made.expect("an offer that is answered");
    assert_eq!(peer.sources.sections.len(), ROOM_VOICES_MAX);
    assert!(section(&answer, &mids[ROOM_VOICES_MAX - 1]).contains("a=recvonly"));
    assert!(section(&answer, &mids[ROOM_VOICES_MAX]).contains("a=inactive"));
    server.accept(&answer);
    let mut rig = Rig::new(peer, server, now);
    rig.connect();
    let last = mids[ROOM_VOICES_MAX];
    let directions = [(mids[0], Direction::Inactive), (last, Direction::SendOnly)];
    let (offer, _) = rig.server.offer_changed(&[], &directions);
    let answer = rig.renegotiate(&offer, &[]);
    assert_eq!(rig.gone, ["TR_0"]);
    assert!(section(&answer, &mids[ROOM_VOICES_MAX]).contains("a=recvonly"));
    rig.talk(&mut [(mids[ROOM_VOICES_MAX], Talker::new(440.0))], 5);
    assert_eq!(counts(&rig), [("TR_32", 5)]);
}

#[test]
fn invalid_offers_change_nothing() {
    let (mut rig, mids) = Rig::subscribed(Kind::default(), &[ANN, BOB]);
    rig.connect();
    let mut talkers = [(mids[0], Talker::new(440.0)), (mids[1], Talker::new(1_000.0))];
    rig.talk(&mut talkers, 5);
    let (offer, new) = rig.server.offer(&["PA_eve|TR_eve"]);
    let starts: Vec<usize> = offer
        .match_indices("m=")
        .map(|(at, _)| at)
        .chain([offer.len()])
        .collect();
    let part = |nth: usize| &offer[starts[nth]..starts[nth + 1]];
    let head = &offer[..starts[0]];
    let last = part(3);
    let many = (0..ROOM_SDP_SECTIONS_MAX)
        .map(|nth| last.replace(&format!("a=mid:{new}", new = &*new[0]), &format!("a=mid:x{nth}")));
    let bad = [
        String::new(),
        "offer".to_owned(),
        "v=0\r\nm=".to_owned(),
        "\u{7f}".repeat(100),
        head.to_owned(),
        format!("{head}{}{}", part(0), part(1)),
        format!("{head}{}{}{}", part(1), part(0), part(2)),
        format!("{head}{}{}{}", part(0), part(2), part(1)),
        format!("{offer}{}", part(3)),
        format!("{offer}m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=mid:app2\r\na=sctp-port:5000\r\n"),
        offer.replace(&format!("a=mid:{}", &*mids[0]), "a=mid:other"),
        offer.replace("a=ice-ufrag", "a=x"),
        offer.replace("a=fingerprint", "a=x"),
        format!("{offer}{}", many.collect::<String>()),
        offer.replace("opus/48000/2\r\n", "opus/48000/2\r\na=fmtp:111 \u{1}\r\n"),
    ];
    for (nth, offer) in bad.iter().enumerate() {
        let answered = rig.peer.answer_server_offer(offer, &BTreeMap::new());
        assert!(
            matches!(answered, Err(NegotiationError::BadDescription(_))),
            "{nth}: {answered:?}"
        );
        rig.drain();
    }
    rig.talk(&mut talkers, 5);
    assert_eq!(counts(&rig), [("TR_ann", 10), ("TR_bob", 10)]);
    assert!(rig.gone.is_empty() && rig.failed == 0);
    rig.renegotiate(&offer, &[]);
    rig.talk(&mut [(new[0], Talker::new(600.0))], 5);
    assert_eq!(rig.audio["TR_eve"].len(), 5);
}

/// Truncates and flips an offer at every byte: the result is an answer or an error, never a panic.
#[test]
fn damaged_offers_never_panic() {
    let now = Instant::now();
    let mut server = Server::new(
        Kind {
            red: true,
            ..Kind::default()
        },
        now,
    );
    let (offer, _) = server.offer(&[ANN, BOB]);
    let local = [ours()];
    let attempt = |text: &str| drop(PeerConnection::subscriber(&setup(&local), text, &BTreeMap::new(), now));
    let lines: Vec<&str> = offer.lines().collect();
    for skip in 0..lines.len() {
        let rest = lines.iter().enumerate().filter(|(nth, _)| *nth != skip);
        attempt(&rest.fold(String::new(), |text, (_, line)| text + line + "\r\n"));
        let doubled = lines
            .iter()
            .enumerate()
            .flat_map(|(nth, line)| vec![*line; 1 + usize::from(nth == skip)]);
        attempt(&doubled.fold(String::new(), |text, line| text + line + "\r\n"));
        attempt(&(lines[..skip].join("\r\n") + "\r\n"));
        let cut: Vec<&str> = lines
            .iter()
            .enumerate()
            .map(|(nth, line)| if nth == skip { &line[..line.len() / 2] } else { line })
            .collect();
        attempt(&(cut.join("\r\n") + "\r\n"));
    }
}

#[test]
fn packets_of_other_senders_are_ignored() {
    let (mut rig, mids) = Rig::subscribed(Kind::default(), &[ANN]);
    rig.connect();
    let mut talkers = [(mids[0], Talker::new(440.0))];
    rig.talk(&mut talkers, 5);
    let source = *rig.server.source(mids[0]);
    let named = |source: u32| {
        let mut packet = vec![0x90, 111, 0, 9, 0, 0, 0, 0];
        packet.extend(source.to_be_bytes());
        // One header extension: the mid, with id 4 or, if the server chose so, 3.
        let mid = mids[0].as_bytes();
        packet.extend([0xbe, 0xde, 0, 1, 0x30 | (mid.len() as u8 - 1)]);
        packet.extend(mid);
        packet.resize(16 + 4 + 40, 0);
        packet
    };
    for nth in 0..200_u32 {
        rig.deliver(&named(0x1000 + nth));
        rig.deliver(&named(source));
        let size = nth as usize * 7;
        rig.deliver(&(0..size).map(|at| (at as u32 * nth) as u8).collect::<Vec<u8>>());
        rig.deliver(&[20, 254, 253, nth as u8]);
        rig.deliver(&[0x80, 200, 0, 1, nth as u8]);
        let outsider = "203.0.113.7:9".parse().expect("an address");
        let contents = named(nth);
        assert!(
            rig.peer
                .handle_packet(&ReceivedPacket::from_datagram(outsider, ours(), &contents), rig.now)
                == PacketTrust::Rejected
        );
        assert!(
            rig.peer
                .handle_packet(&ReceivedPacket::from_datagram(outsider, ours(), &[0, 1, 0, 0]), rig.now)
                == PacketTrust::Rejected
        );
        rig.talk(&mut talkers, usize::from(nth % 20 == 0));
    }
    assert_eq!(counts(&rig), [("TR_ann", 15)], "the section stays with its source");
    assert_eq!(rig.failed, 0);
    assert_eq!(rig.peer.sources.discovered, 0);
}

#[test]
fn audio_continues_through_an_ice_restart() {
    let (mut rig, mids) = Rig::subscribed(Kind::default(), &[ANN]);
    rig.connect();
    let mut talkers = [(mids[0], Talker::new(440.0))];
    rig.talk(&mut talkers, 5);
    let before = rig.peer.local_ufrag();
    let mut change = rig.server.rtc.sdp_api();
    change.ice_restart(true);
    let (offer, pending) = change.apply().expect("an offer");
    rig.server.pending = Some(pending);
    rig.renegotiate(&offer.to_sdp_string(), &[]);
    assert_ne!(rig.peer.local_ufrag(), before);
    rig.run(ms(1_000));
    rig.talk(&mut talkers, 5);
    assert_eq!(counts(&rig), [("TR_ann", 10)]);
    assert_eq!(rig.failed, 0);
}

#[test]
fn a_closed_connection_rejects_offers() {
    let (mut rig, _) = Rig::subscribed(Kind::default(), &[ANN]);
    rig.connect();
    let (offer, _) = rig.server.offer(&[BOB]);
    rig.peer.close();
    assert_eq!(
        rig.peer.answer_server_offer(&offer, &BTreeMap::new()),
        Err(NegotiationError::Ended)
    );
}

/// At each cap and one past it.
#[test]
fn track_ids_and_sources_of_a_section_are_capped() {
    let offer = |map: &BTreeMap<String, String>, lines: &str| {
        let now = Instant::now();
        let mut server = Server::new(Kind::default(), now);
        let (offer, mids) = server.offer(&[ANN]);
        let offer = without(&offer, "a=ssrc") + lines;
        let map = map.values().map(|track| (mids[0].to_string(), track.clone()));
        let made = PeerConnection::subscriber(&setup(&[ours()]), &offer, &map.collect(), now);
        made.expect("an offer that is answered").0
    };
    for (bytes, received) in [(ROOM_TRACK_BYTES_MAX, 1), (ROOM_TRACK_BYTES_MAX + 1, 0)] {
        let map = [(String::new(), format!("TR_{}", "x".repeat(bytes - 3)))].into();
        assert_eq!(offer(&map, "").sources.sections.len(), received);
    }
    // The last section of the offer is audio.
    let line = |source: usize| format!("a=ssrc:{source} cname:x\r\n");
    for count in [ROOM_SECTION_SOURCES_MAX, ROOM_SECTION_SOURCES_MAX + 1] {
        let lines: String = (0..=count).map(line).collect();
        let peer = offer(&BTreeMap::new(), &lines);
        let sources: Vec<u32> = peer.sources.sections[0].sources.iter().map(|source| **source).collect();
        assert_eq!(
            sources,
            (1..=ROOM_SECTION_SOURCES_MAX as u32).collect::<Vec<u32>>(),
            "0 is none"
        );
    }
}

#[test]
fn discovered_sources_are_capped() {
    let now = Instant::now();
    let mut server = Server::new(Kind::default(), now);
    let (offer, mids) = server.offer(&[ANN]);
    let made = PeerConnection::subscriber(&setup(&[ours()]), &without(&offer, "a=ssrc"), &BTreeMap::new(), now);
    let (mut peer, answer) = made.expect("an offer that is answered");
    server.accept(&answer);
    peer.sources.discovered = ROOM_SOURCES_MAX - 1;
    let mut rig = Rig::new(peer, server, now);
    rig.connect();
    for (source, received) in [(1_u32, 5), (2, 5)] {
        let mut api = rig.server.rtc.direct_api();
        api.reset_stream_tx(mids[0], None, source.into(), None)
            .expect("a stream");
        rig.talk(&mut [(mids[0], Talker::new(440.0))], 5);
        assert_eq!(counts(&rig), [("TR_ann", received)]);
    }
}
