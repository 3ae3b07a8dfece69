//! Offers of many kinds, and their answers.

use std::net::SocketAddr;

use crate::webrtc::connection::IceSecret;
use crate::webrtc::connection::{ConnectionSetup, NegotiationError};

use super::super::*;
use super::pair::{COMMON, Pair, ms, runner, secs, setup};
use crate::testing::client::{self, TestClient};

pub const CHROME: &str = include_str!("../../../../../tests/data/sdp/chrome.offer.sdp");
pub const FIREFOX: &str = include_str!("../../../../../tests/data/sdp/firefox.offer.sdp");

/// A media section of an answer.
struct Section<'a> {
    media: &'a str,
    port: &'a str,
    formats: Vec<&'a str>,
    lines: Vec<&'a str>,
}

impl Section<'_> {
    fn value(&self, name: &str) -> &str {
        let prefix = format!("a={name}:");
        self.lines
            .iter()
            .find_map(|line| line.strip_prefix(prefix.as_str()))
            .unwrap_or_default()
    }

    fn direction(&self) -> &str {
        let directions = ["a=sendrecv", "a=sendonly", "a=recvonly", "a=inactive"];
        let mut found = self.lines.iter().filter(|line| directions.contains(line));
        let direction = found.next().copied().unwrap_or_default();
        assert_eq!(found.next(), None, "one direction per section");
        direction
    }

    /// Returns whether a browser takes the section as rejected: port 0 outside the bundle, or
    /// `inactive`.
    fn is_off(&self, bundle: &[&str]) -> bool {
        let rejected = self.port == "0" && !bundle.contains(&self.value("mid"));
        rejected || (self.port != "0" && self.direction() == "a=inactive")
    }
}

fn sections(sdp: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for line in sdp.lines() {
        if let Some(media) = line.strip_prefix("m=") {
            let words: Vec<&str> = media.split(' ').collect();
            sections.push(Section {
                media: words[0],
                port: words[1],
                formats: words[3..].to_vec(),
                lines: Vec::new(),
            });
        } else if let Some(section) = sections.last_mut() {
            section.lines.push(line);
        }
    }
    sections
}

fn bundle(sdp: &str) -> Vec<&str> {
    let group = sdp.lines().find_map(|line| line.strip_prefix("a=group:BUNDLE "));
    group.map(|mids| mids.split(' ').collect()).unwrap_or_default()
}

pub fn answer(offer: &str) -> Result<String, NegotiationError> {
    WebRtcSession::accept(offer, &setup(None, &[runner()]), Instant::now()).map(|(_, answer)| answer)
}

/// This end has one transport: sections outside of its bundle are declined with port 0.
#[test]
fn sections_outside_of_the_one_transport_are_declined() {
    let group = CHROME
        .lines()
        .find(|line| line.starts_with("a=group:BUNDLE"))
        .expect("a group");
    let mids = bundle(CHROME);
    let (audio, channel) = (mids[0], *mids.last().expect("a channel"));
    for kept in [vec![audio, channel], vec![audio, mids[1]], vec![audio]] {
        let other = format!("a=group:BUNDLE {}", kept.join(" "));
        let answer = answer(&CHROME.replace(group, &other)).expect("an answer");
        let (offered, answered) = (sections(CHROME), sections(&answer));
        assert_eq!(answered.len(), offered.len());
        for (offered, answered) in offered.iter().zip(&answered) {
            let mid = answered.value("mid");
            assert_eq!((offered.media, offered.value("mid")), (answered.media, mid));
            let is_kept = kept.contains(&mid) || mid == audio;
            assert_eq!(answered.port != "0", is_kept, "{kept:?}: {mid}");
        }
        assert_eq!(bundle(&answer), kept);
    }
}

/// Sections of other media and transports are declined in their places, and the call takes place.
#[test]
fn sections_of_other_kinds_are_declined() {
    let first = CHROME.find("m=").expect("a section");
    for section in [
        "m=text 9 UDP/TLS/RTP/SAVPF 98\r\nc=IN IP4 0.0.0.0\r\na=mid:9\r\na=rtpmap:98 t140/1000\r\na=sendrecv\r\n",
        "m=image 0 udptl t38\r\nc=IN IP4 0.0.0.0\r\na=mid:9\r\n",
        "m=message 9 TCP/TLS/MSRP *\r\na=mid:9\r\na=path:msrps://192.0.2.1:9/x;tcp\r\n",
        "m=application 9 UDP/TLS/BFCP *\r\na=mid:not-a-word\r\na=floorctrl:c-s\r\n",
        "m=audio 9 RTP/AVP 0\r\na=mid:9\r\n",
        "m=audio 9\tUDP/X 0\r\n",
    ] {
        for (at, index) in [(first, 0), (CHROME.len(), sections(CHROME).len())] {
            let mut offer = CHROME.to_owned();
            offer.insert_str(at, section);
            let answer = answer(&offer).expect("an answer");
            let (offered, answered) = (sections(&offer), sections(&answer));
            assert_eq!(answered.len(), offered.len(), "{answer}");
            let (other, wanted) = (&answered[index], sections(section));
            assert_eq!((other.media, other.port), (wanted[0].media, "0"), "{answer}");
            assert_eq!(other.value("mid"), wanted[0].value("mid"));
            let audio = answered
                .iter()
                .find(|section| section.media == "audio" && section.port != "0");
            assert_eq!(audio.expect("the call").direction(), "a=sendrecv");
        }
    }
}

/// A name is any token. str0m changes some in the header extension of packets, where the peer would
/// not know them, so that extension is declined.
#[test]
fn the_names_of_sections_are_any_tokens() {
    const MID_URI: &str = "urn:ietf:params:rtp-hdrext:sdes:mid";
    const UUID: &str = "{6f9619ff-8b86-d011-b42d-00cf4fc964ff}";
    let extension = format!("a=extmap:4 {MID_URI}\n");
    assert!(CHROME.contains(&extension));
    for (name, is_kept) in [
        ("0", true),
        ("mic_1", true),
        ("audio-1", false),
        ("a.b+c!", false),
        (UUID, false),
    ] {
        let offer = CHROME
            .replace("BUNDLE 0 ", &format!("BUNDLE {name} "))
            .replace("a=mid:0\n", &format!("a=mid:{name}\n"));
        let answer = answer(&offer).expect("an answer");
        assert!(answer.contains(&format!("\r\na=mid:{name}\r\n")), "{answer}");
        assert!(answer.contains(&format!("a=group:BUNDLE {name}")), "{answer}");
        assert_eq!(answer.contains(MID_URI), is_kept, "{answer}");
    }
    // str0m could not tell these two apart.
    let alike = CHROME.replace("BUNDLE 0 1", "BUNDLE a-1 a.1");
    let alike = alike
        .replace("a=mid:0\n", "a=mid:a-1\n")
        .replace("a=mid:1\n", "a=mid:a.1\n");
    let error = answer(&alike).expect_err("two names").to_string();
    assert!(error.contains("`a.1`"), "{error}");
}

/// Without a group, sections with credentials of their own have transports of their own, of which
/// one is used; no group is answered that was not offered (RFC 9143 section 7.3). Sections with the
/// same credentials have one, and get a group. So do GStreamer's listeners, which do not connect by
/// an answer that declines other sections.
#[test]
fn an_offer_without_a_group_is_answered_for_one_transport() {
    let alone = CHROME.replace("a=group:BUNDLE 0 1 2 3\n", "");
    assert_ne!(alone, CHROME);
    let own = |offer: &str| -> String {
        let mut number = 0;
        let lines = offer.lines().map(|line| match line.starts_with("a=ice-ufrag:") {
            true => {
                number += 1;
                format!("{line}{number}\r\n")
            }
            false => format!("{line}\r\n"),
        });
        lines.collect()
    };
    let ports = |answer: &str| -> Vec<String> {
        let media = answer.lines().filter(|line| line.starts_with("m="));
        media
            .filter_map(|line| line.split(' ').nth(1).map(str::to_owned))
            .collect()
    };
    let answered = answer(&own(&alone)).expect("an answer");
    assert_eq!(ports(&answered), ["9", "0", "0", "0"], "{answered}");
    assert!(!answered.contains("a=group"), "{answered}");
    let named = ["audio0", "video1", "video2", "application3"];
    let of_gstreamer = named.iter().enumerate().fold(own(&alone), |offer, (index, name)| {
        offer.replace(&format!("a=mid:{index}\r\n"), &format!("a=mid:{name}\r\n"))
    });
    for offer in [alone, of_gstreamer] {
        let answered = answer(&offer).expect("an answer");
        assert_eq!(bundle(&answered).len(), 4, "{answered}");
    }
}

/// An answer repeats the profile of the offer.
#[test]
fn the_profile_of_a_section_is_that_of_the_offer() {
    for profile in ["UDP/TLS/RTP/SAVPF", "RTP/SAVPF"] {
        let answer = answer(&CHROME.replace("UDP/TLS/RTP/SAVPF", profile)).expect("an answer");
        let lines = answer
            .lines()
            .filter(|line| line.starts_with("m=") && !line.starts_with("m=application"));
        let profiles: Vec<_> = lines.map(|line| line.split(' ').nth(2)).collect();
        assert_eq!(profiles, vec![Some(profile); 3], "{answer}");
    }
}

/// The page offers audio, two video sections and a channel. Each is answered in place and under its
/// mid: audio in both directions, video declined, and no section without a payload type, which
/// browsers reject.
#[test]
fn every_section_of_a_browser_is_answered_in_its_place() {
    for offer in [CHROME, FIREFOX] {
        let answer = answer(offer).expect("an answer");
        assert!(answer.ends_with("\r\n"));
        let (offered, answered) = (sections(offer), sections(&answer));
        assert_eq!(answered.len(), offered.len().max(3), "{answer}");
        let bundle = bundle(&answer);
        for (offered, answered) in offered.iter().zip(&answered) {
            assert_eq!(offered.media, answered.media);
            let mid = offered
                .lines
                .iter()
                .find_map(|line| line.trim_end().strip_prefix("a=mid:"));
            assert_eq!(mid, Some(answered.value("mid")));
            assert!(
                !answered.formats.is_empty() && answered.formats.iter().all(|format| !format.is_empty()),
                "{answer}"
            );
            match answered.media {
                "audio" => {
                    assert_ne!(answered.port, "0");
                    assert_eq!(answered.direction(), "a=sendrecv");
                    assert!(
                        answered.lines.iter().any(|line| line.contains("opus/48000/2")),
                        "{answer}"
                    );
                    assert!(bundle.contains(&answered.value("mid")));
                }
                "video" => assert!(answered.is_off(&bundle), "{answer}"),
                _ => {
                    assert_ne!(answered.port, "0");
                    assert_eq!(answered.value("sctp-port"), "5000");
                    assert_eq!(answered.value("max-message-size"), "262144");
                    assert!(bundle.contains(&answered.value("mid")));
                }
            }
        }
        let audio = &answered[0];
        assert!(["active", "passive"].contains(&audio.value("setup")));
        assert!(
            audio.value("candidate").contains(" 192.0.2.1 7860 typ host"),
            "{answer}"
        );
        assert!(audio.value("fingerprint").starts_with("sha-256 "));
    }
}

/// A client that also offers video is served.
#[test]
fn a_client_with_video_is_served() {
    let config = client::config().enable_vp8(true).enable_h264(true);
    let client = TestClient::with(config, "192.0.2.9:5000", Instant::now()).videos(2);
    let mut pair = Pair::with(client, |offer| offer);
    pair.connect();
    pair.open_audio(16_000, 16_000);
    pair.client.speak(440.0, pair.now);
    pair.client.send("hello");
    pair.run(secs(1));
    assert!(pair.bot.frames >= 48);
    assert!(pair.client.received.len() >= 48);
    assert_eq!(pair.texts(), ["hello"]);
}

/// A data channel is optional.
#[test]
fn an_offer_without_a_data_channel_is_served() {
    let mut pair = Pair::without_channel("without a channel");
    pair.run(secs(2));
    assert!(pair.bot.frames >= 95 && pair.client.received.len() >= 95);
    assert_eq!(pair.left(), None);
}

/// An offer without audio, with stopped audio, or without a supported codec is rejected with the
/// reason.
#[test]
fn an_offer_without_audio_is_rejected() {
    let without: String = {
        let from = CHROME.find("m=audio").expect("audio");
        let to = CHROME.find("m=video").expect("video");
        format!("{}{}", &CHROME[..from], &CHROME[to..])
    };
    let others = CHROME.replace("SAVPF 111 63 9 0 8 13 110 126", "SAVPF 9 13");
    let fast = others.replace("9 G722/8000", "9 PCMU/16000");
    let off = CHROME
        .replacen("m=audio 9 ", "m=audio 0 ", 1)
        .replacen("BUNDLE 0 1 2 3", "BUNDLE 1 2 3", 1);
    let spoken = "opus/48000/2, PCMU/8000, PCMA/8000";
    for (name, offer, word) in [
        ("none", without, "m=audio"),
        ("others", others, spoken),
        ("another rate", fast, spoken),
        ("off", off, spoken),
    ] {
        match answer(&offer) {
            Err(NegotiationError::BadDescription(why)) => assert!(why.contains(word), "{name}: {why}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// Candidates may be in the offer, later, or absent; malformed ones are harmless in any number.
#[test]
fn malformed_candidates_are_ignored() {
    let mut pair = Pair::new();
    let rubbish = [
        "",
        "candidate:",
        "candidate:1 1 udp 1 4f3e.local 5 typ host",
        "candidate:1 1 udp 1 127.0.0.1 5 typ host",
        "candidate:1 1 tcp 1 192.0.2.9 9 typ host tcptype active",
        "candidate:1 1 udp 99999999999999999999 192.0.2.9 5 typ host",
        "candidate:1 1 udp 1 192.0.2.9 70000 typ host",
        "candidate:1 1 udp 1 fe80::1%eth0 5 typ host",
        "candidate:1 1 udp 1 255.255.255.255 5 typ srflx raddr 0.0.0.0 rport 0",
        "\u{0}\u{ffff}",
        "candidate:1 1 udp 1 192.0.2.9 5 typ host ufrag",
    ];
    let long = "x".repeat(100_000);
    for _ in 0..20 {
        for text in rubbish.iter().chain([&long.as_str()]) {
            pair.act(|session, _| session.add_remote_candidate(text));
        }
    }
    for number in 0..5_000 {
        let text = format!(
            "candidate:{number} 1 udp {number} 198.51.100.7 {} typ host",
            1_024 + number
        );
        pair.act(|session, _| session.add_remote_candidate(&text));
    }
    pair.connect();
    pair.client.send("hello");
    pair.run(ms(200));
    assert_eq!(pair.texts(), ["hello"]);
}

/// A browser trickles candidates for every section, before it knows that they are bundled, and may
/// repeat an address. They leave places for the candidate that connects.
#[test]
fn candidates_without_use_take_no_place() {
    let relay = SocketAddr::from(([198, 51, 100, 200], 5_000));
    let candidate = |text: String, section: u16| RemoteCandidate {
        candidate: text,
        sdp_mid: Some(section.to_string()),
        sdp_mline_index: Some(section),
    };
    let bundled = (0..32).map(|nth: u16| {
        let text = format!("candidate:{nth} 1 udp 2122194687 198.51.100.{nth} 36127 typ host");
        candidate(text, 1 + nth % 3)
    });
    let repeated = (0..32).map(|nth: u16| {
        let text = format!("candidate:{nth} 1 udp 2122194687 198.51.100.1 36127 typ host");
        candidate(text, 0)
    });
    for useless in [bundled.collect::<Vec<_>>(), repeated.collect()] {
        let mut pair = Pair::new();
        pair.up.cut = true;
        let text = format!(
            "candidate:9 1 udp 16777215 {} {} typ relay raddr 0.0.0.0 rport 0",
            relay.ip(),
            relay.port()
        );
        for each in useless.iter().chain([&candidate(text, 0)]) {
            pair.act(|session, _| session.add_trickled_candidate(each));
        }
        pair.run(secs(5));
        let has_check = |to: SocketAddr| pair.destinations.iter().any(|(_, named, _)| *named == to);
        assert!(has_check(relay));
        let other = SocketAddr::from(([198, 51, 100, 1], 36_127));
        assert_eq!(has_check(other), useless[0].sdp_mline_index == Some(0));
    }
}

/// Each session has its own credentials and random starting values.
#[test]
fn sessions_do_not_share_credentials() {
    let mut ufrags: Vec<String> = (0..50)
        .map(|seed| {
            let setup = ConnectionSetup {
                context: &COMMON,
                local: &[runner()],
                tcp: &[],
                gathered: &crate::webrtc::gather::NOTHING,
                embedded: None,
                device: None,
                seed,
                secret: IceSecret([seed as u8; 32]),
            };
            let (mut session, _) = WebRtcSession::accept(CHROME, &setup, Instant::now()).expect("an answer");
            session.local_ufrag()
        })
        .collect();
    ufrags.sort();
    ufrags.dedup();
    assert_eq!(ufrags.len(), 50);
    assert!(ufrags.iter().all(|ufrag| ufrag.len() >= 4));
}
