//! The publisher's connection.

use std::time::Instant;

use prost::Message;

use super::super::*;
use super::rig::{Kind, Rig, Server, Talker, audio_level, decode, ms, ours, setup, theirs};
use crate::audio::tone::share;
use crate::limits::{ROOM_MEDIA_LOST_AFTER, ROOM_TCP_CANDIDATES_MAX};
use crate::livekit::wire::{DataPacket, DataValue, UserPacket};

/// Sends audio for `packets` times 20 ms.
fn talk(rig: &mut Rig, talker: &mut Talker, times: u64, level: u8) {
    for _ in 0..times {
        let payload = talker.packet();
        let ticks = talker.sequence * 960;
        talker.sequence += 1;
        let now = rig.now;
        rig.peer.send_audio(&payload, ticks, Some(audio_level(level)), now);
        rig.peer.handle_timeout(now);
        rig.drain();
        rig.run(ms(20));
    }
}

#[test]
fn the_offer_names_the_track_and_asks_for_what_a_room_needs() {
    let (_, offer) = PeerConnection::publisher(&setup(&[ours()]), "bot-audio", Instant::now()).expect("an offer");
    for line in [
        "a=sendonly",
        "a=msid:bot bot-audio",
        "a=rtpmap:111 opus/48000/2",
        "a=fmtp:111 minptime=10;useinbandfec=1",
        "a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level",
        "a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid",
        "a=setup:actpass",
    ] {
        assert!(offer.lines().any(|is| is == line), "{line} in {offer}");
    }
    assert_eq!(offer.matches("m=audio").count(), 1);
    assert_eq!(offer.matches("m=application").count(), 1);
    assert!(offer.contains("192.0.2.1 40000 typ host"));
}

#[test]
fn published_audio_carries_its_level() {
    for lite in [false, true] {
        let mut rig = Rig::publishing(Kind {
            lite,
            ..Kind::default()
        });
        rig.connect();
        let mut talker = Talker::new(440.0);
        talk(&mut rig, &mut talker, 50, 23);
        talk(&mut rig, &mut talker, 2, 127);
        let packets = &rig.server.packets;
        assert_eq!(packets.len(), 52);
        let pcm = decode(packets.iter().map(|packet| &packet.payload));
        assert!(share(&pcm[3_200..16_000], 440.0, 16_000) > 0.99);
        for (nth, packet) in packets.iter().enumerate() {
            let values = &packet.header.ext_vals;
            let (level, speech) = if nth < 50 { (-23, true) } else { (-127, false) };
            assert_eq!((values.audio_level, values.voice_activity), (Some(level), Some(speech)));
            assert_eq!(
                packet.header.sequence_number,
                packets[0].header.sequence_number + nth as u16
            );
            let since = packet.header.timestamp.wrapping_sub(packets[0].header.timestamp);
            assert_eq!(since, 960 * nth as u32);
        }
    }
}

#[test]
fn messages_go_both_ways_on_the_reliable_channel() {
    let mut rig = Rig::publishing(Kind::default());
    assert!(!rig.peer.send_message(b"early"));
    rig.connect();
    assert!(rig.channel_open);
    let channels = &rig.server.channels;
    let find = |label: &str| {
        channels
            .iter()
            .find(|(_, config)| config.label == label)
            .expect("a channel")
    };
    let (reliable, config) = find("_reliable");
    assert!(config.ordered && config.reliability == Reliability::Reliable);
    let (_, config) = find("_lossy");
    assert!(!config.ordered);
    assert_eq!(config.reliability, Reliability::MaxRetransmits { retransmits: 0 });

    let user = UserPacket {
        payload: "{\"a\":1}".into(),
        ..UserPacket::default()
    };
    let packet = DataPacket {
        value: Some(DataValue::User(user)),
        ..DataPacket::default()
    };
    let bytes = packet.encode_to_vec();
    let reliable = *reliable;
    assert!(rig.peer.send_message(&bytes));
    assert!(rig.peer.messages_in_flight() >= bytes.len());
    let now = rig.now;
    rig.peer.handle_timeout(now);
    rig.run(ms(500));
    assert_eq!(rig.server.data, [(reliable, bytes.clone())]);
    assert_eq!(rig.peer.messages_in_flight(), 0);

    let mut channel = rig.server.rtc.channel(reliable).expect("a channel");
    assert!(channel.write(true, &bytes).expect("a write"));
    assert!(channel.write(false, b"text is no packet").expect("a write"));
    rig.run(ms(500));
    assert_eq!(rig.data, [bytes]);
}

#[test]
fn candidates_may_come_before_the_answer() {
    let now = Instant::now();
    let mut server = Server::new(Kind::default(), now);
    let (mut peer, offer) = PeerConnection::publisher(&setup(&[ours()]), "TRACK", now).expect("an offer");
    let answer = server.answer(&offer);
    let is_candidate = |line: &&str| line.starts_with("a=candidate");
    let candidate = answer.lines().find(is_candidate).expect("a candidate");
    assert!(candidate.contains(&theirs().port().to_string()));
    for _ in 0..100 {
        peer.add_remote_candidate("candidate:1 1 tcp 1 192.0.2.9 7881 typ host tcptype passive");
    }
    assert_eq!(
        peer.sfu.early_candidates.as_ref().map(Vec::len),
        Some(REMOTE_CANDIDATES_MAX)
    );
    peer.sfu.early_candidates = Some(Vec::new());
    peer.add_remote_candidate(candidate.trim_start_matches("a="));
    let without: Vec<&str> = answer.lines().filter(|line| !is_candidate(line)).collect();
    peer.handle_answer(&(without.join("\r\n") + "\r\n"), now)
        .expect("an answer that is taken");
    assert!(peer.sfu.early_candidates.is_none());
    Rig::new(peer, server, now).connect();
}

/// A server on the same machine shares an address but not the port.
#[test]
fn a_server_may_share_an_address_but_not_the_port_of_the_runner() {
    let now = Instant::now();
    let (mut peer, offer) = PeerConnection::publisher(&setup(&[ours()]), "TRACK", now).expect("an offer");
    let mut server = Server::new(Kind::default(), now);
    peer.handle_answer(&server.answer(&offer), now)
        .expect("an answer that is taken");
    let offered = |peer: &mut PeerConnection, text: &str| peer.paths.parse_candidate(text).is_ok();
    assert!(offered(&mut peer, "candidate:1 1 udp 1 192.0.2.1 7882 typ host"));
    assert!(offered(
        &mut peer,
        "candidate:1 1 udp 1 198.51.100.1 7882 typ srflx raddr 10.0.0.1 rport 7882"
    ));
    assert!(offered(
        &mut peer,
        "candidate:1 1 udp 1 198.51.100.2 7882 typ relay raddr 10.0.0.1 rport 7882"
    ));
    for text in [
        "candidate:1 1 udp 1 192.0.2.1 40000 typ host",
        "candidate:1 1 udp 1 127.0.0.1 7882 typ host",
        "candidate:1 1 tcp 1 192.0.2.9 7881 typ host tcptype passive",
        "",
        "nonsense",
    ] {
        assert!(!offered(&mut peer, text), "{text}");
    }
    let local = ["127.0.0.1:40000".parse().expect("an address")];
    let (mut peer, _) = PeerConnection::publisher(&setup(&local), "TRACK", now).expect("an offer");
    assert!(offered(&mut peer, "candidate:1 1 udp 1 127.0.0.1 7882 typ host"));
    assert!(!offered(&mut peer, "candidate:1 1 udp 1 127.0.0.2 40000 typ host"));
}

#[test]
fn a_correct_answer_may_follow_an_invalid_one() {
    let now = Instant::now();
    let (mut peer, offer) = PeerConnection::publisher(&setup(&[ours()]), "TRACK", now).expect("an offer");
    let mut server = Server::new(Kind::default(), now);
    let answer = server.answer(&offer);
    let section = |nth: usize| answer.match_indices("m=").nth(nth).map_or(answer.len(), |(at, _)| at);
    let without = |name: &str| {
        let lines = answer.lines().filter(|line| !line.starts_with(name));
        lines.fold(String::new(), |text, line| text + line + "\r\n")
    };
    let bad = [
        String::new(),
        "v=0".to_owned(),
        "\u{0}\u{1}".to_owned(),
        answer[..section(0)].to_owned(),
        answer[..section(1)].to_owned(),
        format!(
            "{}{}{}",
            &answer[..section(0)],
            &answer[section(1)..],
            &answer[section(0)..section(1)]
        ),
        format!("{answer}m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:zzz\r\na=rtpmap:111 opus/48000/2\r\n"),
        without("a=ice-pwd"),
        without("a=fingerprint"),
        without("a=rtpmap"),
        answer.replace("a=recvonly", "a=inactive"),
        answer.replace("m=audio 9", "m=audio 0").replace("BUNDLE ", "BUNDLE x"),
    ];
    for answer in bad {
        assert!(
            matches!(
                peer.handle_answer(&answer, now),
                Err(NegotiationError::BadDescription(_))
            ),
            "{answer}"
        );
        assert!(peer.is_alive());
    }
    peer.handle_answer(&answer, now).expect("an answer that is taken");
    peer.handle_answer(&answer, now).expect("a second one has no effect");
    Rig::new(peer, server, now).connect();
}

/// A silent server is reported once per silence, and an ICE restart revives the connection with its
/// keys and channels.
#[test]
fn a_silent_server_is_reported_and_revived_by_a_restart() {
    let now = Instant::now();
    let (mut unanswered, _) = PeerConnection::publisher(&setup(&[ours()]), "TRACK", now).expect("an offer");
    assert_eq!(unanswered.restart_ice(), Err(NegotiationError::Ended));
    let mut rig = Rig::publishing(Kind::default());
    rig.connect();
    rig.run(ROOM_MEDIA_LOST_AFTER * 3);
    assert_eq!(rig.silences, 0, "an idle connection is checked");
    rig.server.is_mute = true;
    rig.run(ROOM_MEDIA_LOST_AFTER - ms(3_000));
    assert_eq!(rig.silences, 0);
    rig.run(ROOM_MEDIA_LOST_AFTER);
    assert_eq!(rig.silences, 1);
    rig.run(ROOM_MEDIA_LOST_AFTER * 3);
    assert_eq!((rig.silences, rig.failed), (1, 0));
    assert!(rig.peer.is_alive());
    rig.server.is_mute = false;
    let (offer, ufrag) = rig.peer.restart_ice().expect("an offer");
    assert!(offer.contains(&ufrag));
    let answer = rig.server.answer(&offer);
    let now = rig.now;
    rig.peer.handle_answer(&answer, now).expect("an answer that is taken");
    assert_eq!(rig.peer.local_ufrag(), ufrag);
    rig.run(ms(500));
    let mut talker = Talker::new(440.0);
    talk(&mut rig, &mut talker, 10, 23);
    assert_eq!(rig.server.packets.len(), 10);
    assert!(rig.peer.send_message(b"after"));
    let now = rig.now;
    rig.peer.handle_timeout(now);
    rig.run(ms(500));
    assert_eq!(rig.server.data.len(), 1);
}

/// TCP candidates are reported once each, and withdrawn by a restart.
#[test]
fn tcp_candidates_are_reported() {
    let mut rig = Rig::publishing(Kind::default());
    for text in [
        "candidate:1 1 tcp 1 192.0.2.9 7881 typ host tcptype passive",
        "candidate:2 1 tcp 1 192.0.2.9 7881 typ host tcptype passive generation 0",
        "candidate:3 1 TCP 1 192.0.2.9 9 typ host tcptype active",
        "candidate:4 1 tcp 1 192.0.2.10 7881 typ host",
        "candidate:5 1 ssltcp 1 192.0.2.10 443 typ host tcptype passive",
    ] {
        rig.peer.add_remote_candidate(text);
    }
    rig.drain();
    assert_eq!(rig.tcp_candidates, ["192.0.2.9:7881".parse().expect("an address")]);
    for number in 0..=ROOM_TCP_CANDIDATES_MAX {
        rig.peer.add_remote_candidate(&format!(
            "candidate:1 1 tcp 1 192.0.2.9 {} typ host tcptype passive",
            8_000 + number
        ));
    }
    rig.drain();
    assert_eq!(rig.tcp_candidates.len(), ROOM_TCP_CANDIDATES_MAX);
    assert!(rig.peer.add_tcp_path(ours(), rig.tcp_candidates[0]));
    assert!(!rig.peer.add_tcp_path(ours(), theirs()), "not a candidate");
}

#[test]
fn closing_works_from_both_ends() {
    let mut rig = Rig::publishing(Kind::default());
    rig.connect();
    rig.server.rtc.close().expect("an end");
    rig.run(ms(500));
    assert_eq!(rig.failed, 1);

    let mut rig = Rig::publishing(Kind::default());
    rig.connect();
    rig.peer.close();
    rig.run(ms(500));
    assert!(rig.server.closed);
    assert_eq!(rig.failed, 0, "our own end is no failure");
    assert!(!rig.peer.is_alive());
}

#[test]
fn audio_before_the_connection_is_dropped() {
    let mut rig = Rig::publishing(Kind::default());
    let mut talker = Talker::new(440.0);
    let now = rig.now;
    for _ in 0..1_000 {
        rig.peer.send_audio(&talker.packet(), 0, Some(audio_level(20)), now);
    }
    rig.connect();
    assert!(rig.server.packets.is_empty());
}
