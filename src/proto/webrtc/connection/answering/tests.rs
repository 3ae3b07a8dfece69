//! Answers, beside those that str0m makes from the text of the same offer.

use std::net::SocketAddr;
use std::time::Instant;

use str0m::change::SdpOffer;
use str0m::net::Protocol;
use str0m::rtp::ExtensionMap;

use super::super::config::{ConnectionConfig, ConnectionContext, ConnectionSetup};
use super::super::credentials::{IceCredentialGenerator, IceSecret};
use super::*;
use crate::audio::g711::Law;
use crate::webrtc::sdp::{PreparedOffer, prepare_offer};

const CHROME: &str = include_str!("../../../../../tests/data/sdp/chrome.offer.sdp");
const FIREFOX: &str = include_str!("../../../../../tests/data/sdp/firefox.offer.sdp");
const DEVICE: &str = include_str!("../../../../../tests/data/sdp/device.offer.sdp");
const DEVICE_VARIANT: &str = include_str!("../../../../../tests/data/sdp/device-variant.offer.sdp");

const SECRET: IceSecret = IceSecret([1; 32]);

fn address() -> SocketAddr {
    "192.0.2.1:7860".parse().expect("an address")
}

fn host() -> Candidate {
    Candidate::host(address(), Protocol::Udp).expect("a candidate")
}

fn connection(prepared: &PreparedOffer) -> PeerConnection {
    let common = ConnectionContext::default();
    let setup = ConnectionSetup {
        context: &common,
        local: &[address()],
        tcp: &[],
        gathered: &crate::webrtc::gather::NOTHING,
        embedded: None,
        device: None,
        seed: 1,
        secret: SECRET,
    };
    let spoken = prepared.audio_codec.expect("a codec");
    let config = ConnectionConfig::browser(&setup, prepared, spoken);
    let mut peer = PeerConnection::new(config, &[], Vec::new(), Instant::now()).expect("a connection");
    peer.add_local_candidate(host()).expect("a new candidate");
    peer
}

/// Answers a prepared offer, as text before it is adapted to a client.
fn ours(prepared: &PreparedOffer) -> String {
    answer(&mut connection(prepared), &prepared.sdp)
}

fn answer(peer: &mut PeerConnection, offer: &str) -> String {
    let prepared = prepare_offer(offer).expect("fit");
    let offer = SdpDescription::parse(&prepared.sdp);
    let answered = peer.answer_description(&offer, prepared.dtls_role, |_| {});
    answered.expect("an answer")
}

/// Lets str0m read the text of a prepared offer and answer it.
fn by_str0m(prepared: &PreparedOffer) -> String {
    let cert = crypto::certificate().expect("a certificate");
    let spoken = prepared.audio_codec.expect("a codec");
    let provider = ConnectionContext::default().provider();
    let mut extensions = ExtensionMap::empty();
    if prepared.has_extensions {
        extensions.set(4, Extension::RtpMid);
    }
    let mut config = base_config(provider, cert.clone())
        .set_extension_map(extensions)
        .set_local_ice_credentials(IceCredentialGenerator::new(SECRET).next());
    config = match spoken.codec {
        Codec::Opus => config.enable_opus(true, false),
        Codec::G711(Law::Mu) => config.enable_pcmu(true, false),
        Codec::G711(Law::A) => config.enable_pcma(true, false),
    };
    let mut rtc = config.build(Instant::now());
    rtc.add_local_candidate(host());
    let offer = SdpOffer::from_sdp_string(&prepared.sdp).expect("str0m reads it");
    rtc.sdp_api()
        .accept_offer(offer)
        .expect("str0m answers")
        .to_sdp_string()
}

/// Replaces what is random: the session id, sources, and the names that the offer does not give.
fn without_random(answer: &str, offer: &str) -> Vec<String> {
    let known = |name: &str| {
        if offer.contains(name) {
            name.to_owned()
        } else {
            "?".to_owned()
        }
    };
    let line = |line: &str| {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            _ if line.starts_with("o=") => "o=".to_owned(),
            "a=msid-semantic:" => {
                let streams: Vec<String> = value.split(' ').skip(1).map(known).collect();
                format!("{name} {}", streams.join(" "))
            }
            _ if line.starts_with("a=msid:") => {
                format!("a=msid:{} {}", known(&name["a=msid:".len()..]), known(value))
            }
            _ if line.starts_with("a=ssrc:") && value.starts_with("cname:") => "a=ssrc:? cname:?".to_owned(),
            _ if line.starts_with("a=ssrc:") => {
                let names: Vec<String> = value["msid:".len()..].split(' ').map(known).collect();
                format!("a=ssrc:? msid:{}", names.join(" "))
            }
            _ => line.to_owned(),
        }
    };
    answer.lines().map(line).collect()
}

/// str0m and this module answer real offers alike, also with one line changed.
#[test]
fn answers_are_those_of_str0m() {
    let changes = [
        ("", ""),
        ("a=sendrecv\n", "a=sendonly\n"),
        ("a=sendrecv\n", "a=recvonly\n"),
        ("a=sendrecv\n", "a=inactive\n"),
        (
            "a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid",
            "a=extmap:9 urn:ietf:params:rtp-hdrext:sdes:mid",
        ),
        (
            "a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid",
            "a=extmap:4/recvonly urn:ietf:params:rtp-hdrext:sdes:mid",
        ),
        ("urn:ietf:params:rtp-hdrext:sdes:mid", "urn:x"),
        ("opus/48000/2", "x/48000/2"),
        ("a=rtcp-fb:111 transport-cc\n", ""),
        ("a=setup:actpass", "a=setup:active"),
        ("a=msid:", "a=x:"),
        ("m=video 9", "m=video 0"),
        ("a=max-message-size:262144\n", ""),
    ];
    let mut compared = 0;
    for offer in [CHROME, FIREFOX, DEVICE, DEVICE_VARIANT] {
        for (from, to) in changes {
            let offer = offer.replace(from, to);
            let prepared = prepare_offer(&offer).expect("fit");
            if prepared.audio_codec.is_none() {
                continue;
            }
            let expected = without_random(&by_str0m(&prepared), &prepared.sdp);
            assert_eq!(
                without_random(&ours(&prepared), &prepared.sdp),
                expected,
                "{from:?} -> {to:?} in {offer}"
            );
            compared += 1;
        }
    }
    assert!(compared > 40, "only {compared} offers have a codec");
}

const HEAD: &str = "v=0\na=group:BUNDLE 0 1\na=ice-ufrag:user\na=ice-pwd:0123456789012345678901\na=ice-options:x\n\
    a=fingerprint:sha-256 00:01\na=setup:actpass\n";

fn audio(mid: &str, port: u16, lines: &str) -> String {
    format!("m=audio {port} UDP/TLS/RTP/SAVPF 111\na=mid:{mid}\na=rtpmap:111 opus/48000/2\n{lines}")
}

fn with(sections: &[String]) -> String {
    HEAD.to_owned() + &sections.concat()
}

fn media_lines(answer: &str) -> Vec<&str> {
    answer.lines().filter(|line| line.starts_with("m=")).collect()
}

const ACCEPTED: &str = "m=audio 9 UDP/TLS/RTP/SAVPF 111";
const DECLINED: &str = "m=audio 0 UDP/TLS/RTP/SAVPF 0";

/// A section that the peer stopped stays so, and another one may take its place.
#[test]
fn stopped_sections_stay_stopped_and_may_be_replaced() {
    let first = with(&[audio("0", 9, ""), audio("1", 9, "")]);
    let mut peer = connection(&prepare_offer(&first).expect("fit"));
    assert_eq!(media_lines(&answer(&mut peer, &first)), [ACCEPTED, ACCEPTED]);
    assert!(!peer.is_free("1"));
    let unbundled = |text: String| text.replace("BUNDLE 0 1", "BUNDLE 0");
    let stopped = unbundled(with(&[audio("0", 9, ""), audio("1", 0, "")]));
    let answered = answer(&mut peer, &stopped);
    assert_eq!(media_lines(&answered), [ACCEPTED, DECLINED]);
    assert!(answered.ends_with("a=inactive\r\na=rtcp-mux\r\n"));
    assert!(peer.is_free("1") && !peer.is_free("0"));
    assert_eq!(
        media_lines(&answer(&mut peer, &first)),
        [ACCEPTED, DECLINED],
        "not started again"
    );
    let replaced = with(&[audio("0", 9, ""), audio("2", 9, "")]).replace("BUNDLE 0 1", "BUNDLE 0 2");
    assert_eq!(media_lines(&answer(&mut peer, &replaced)), [ACCEPTED, ACCEPTED]);
    assert!(peer.rtc.media("1".into()).is_none() && peer.rtc.media("2".into()).is_some());
    assert!(peer.answered.stopped.is_empty(), "what has gone is forgotten");
}

/// Only the end that receives chooses the payload type.
#[test]
fn the_payload_type_of_a_later_section_may_differ_if_only_this_end_receives() {
    let other = |lines: &str| audio("1", 9, lines).replace("111", "96");
    for (lines, line) in [("a=sendonly\n", ACCEPTED), ("a=sendrecv\n", DECLINED)] {
        let offer = with(&[audio("0", 9, ""), other(lines)]);
        let prepared = prepare_offer(&offer).expect("fit");
        assert_eq!(media_lines(&ours(&prepared)), [ACCEPTED, line], "{lines}");
    }
}

/// The sources that the offer names are expected, without those that repeat packets.
#[test]
fn announced_sources_are_expected() {
    let lines = "a=ssrc:7 cname:x\na=ssrc:8 cname:x\na=ssrc-group:FID 7 8\n";
    let offer = with(&[audio("0", 9, lines)]);
    let mut peer = connection(&prepare_offer(&offer).expect("fit"));
    answer(&mut peer, &offer);
    let mut api = peer.rtc.direct_api();
    assert!(api.stream_rx(&7.into()).is_some() && api.stream_rx(&8.into()).is_none());
    let mut silent = connection(&prepare_offer(&offer).expect("fit"));
    answer(&mut silent, &offer.replace("a=rtpmap", "a=recvonly\na=rtpmap"));
    assert!(
        silent.rtc.direct_api().stream_rx(&7.into()).is_none(),
        "it sends nothing"
    );
}

/// The first offer sets the certificate and the roles.
#[test]
fn only_the_first_offer_needs_a_fingerprint() {
    let offer = with(&[audio("0", 9, "")]);
    let without = offer.replace("a=fingerprint:sha-256 00:01\n", "");
    let mut peer = connection(&prepare_offer(&offer).expect("fit"));
    let read = SdpDescription::parse(&without);
    let refused = peer.answer_description(&read, DtlsRole::Server, |_| {});
    assert!(matches!(refused, Err(NegotiationError::BadDescription(why)) if why.contains("a=fingerprint")));
    assert!(answer(&mut peer, &offer).contains("a=setup:passive"));
    let later = answer(&mut peer, &without.replace("a=setup:actpass", "a=setup:passive"));
    assert!(later.contains("a=setup:passive"), "the role stays");
}

/// A restart of ICE happens once per change of the credentials, and the candidates follow.
#[test]
fn other_credentials_restart_ice() {
    let offer = with(&[audio("0", 9, "")]);
    let mut peer = connection(&prepare_offer(&offer).expect("fit"));
    let restarts = |peer: &mut PeerConnection, text: &str| {
        let (mut restarts, prepared) = (0, prepare_offer(text).expect("fit"));
        let read = SdpDescription::parse(&prepared.sdp);
        let answer = peer.answer_description(&read, prepared.dtls_role, |_| restarts += 1);
        let answer = answer.expect("an answer");
        let ufrag = peer.local_ufrag();
        assert!(
            answer.contains(&format!("typ host ufrag {ufrag}\r\n")) && answer.contains(&format!("ice-ufrag:{ufrag}"))
        );
        restarts
    };
    assert_eq!(restarts(&mut peer, &offer), 0);
    assert_eq!(restarts(&mut peer, &offer), 0);
    for name in ["a", "b", "c"] {
        let again = offer.replace("ice-ufrag:user", &format!("ice-ufrag:{name}"));
        assert_eq!(restarts(&mut peer, &again), 1);
        assert_eq!(restarts(&mut peer, &again), 0);
    }
}

/// Withdrawn addresses are not in later answers.
#[test]
fn answers_have_the_addresses_of_the_moment() {
    let offer = with(&[audio("0", 9, "")]);
    let mut peer = connection(&prepare_offer(&offer).expect("fit"));
    assert_eq!(answer(&mut peer, &offer).matches("a=candidate:").count(), 1);
    peer.add_local_candidate(host());
    assert_eq!(answer(&mut peer, &offer).matches("a=candidate:").count(), 1, "once");
    peer.remove_local_candidate(&host());
    assert_eq!(answer(&mut peer, &offer).matches("a=candidate:").count(), 0);
}
