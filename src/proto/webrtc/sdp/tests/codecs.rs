//! Which codec of an offer is used, and which payload types and lines of a section are left.

use super::*;
use crate::audio::g711::Law;

/// An offer with one audio section of these formats and attributes.
fn offer(formats: &str, attributes: &[&str]) -> String {
    let lines: String = attributes.iter().map(|line| format!("a={line}\n")).collect();
    DEVICE
        .replace("SAVP 111\n", &format!("SAVP {formats}\n"))
        .replace("a=rtpmap:111 opus/48000/2\n", &lines)
}

fn chosen(formats: &str, attributes: &[&str]) -> Option<(Codec, u8)> {
    let prepared = prepare_offer(&offer(formats, attributes)).expect("fit");
    prepared.audio_codec.map(|spoken| (spoken.codec, spoken.payload_type))
}

/// The attributes of the audio section and its formats, as str0m gets them.
fn prepared(formats: &str, attributes: &[&str]) -> String {
    let whole = prepare_offer(&offer(formats, attributes)).expect("fit").sdp;
    let audio = whole.split("m=audio 9 UDP/TLS/RTP/SAVPF ").nth(1).expect("audio");
    audio.split("m=application").next().expect("a section").to_owned()
}

const MU: Codec = Codec::G711(Law::Mu);
const A: Codec = Codec::G711(Law::A);

/// Opus wins at any place, and the first of several; otherwise the first codec that is known.
#[test]
fn opus_is_used_before_the_others() {
    let (opus, other) = ("rtpmap:111 opus/48000/2", "rtpmap:112 opus/48000/2");
    assert_eq!(chosen("111", &[opus]), Some((Codec::Opus, 111)));
    assert_eq!(chosen("0 8 111", &[opus]), Some((Codec::Opus, 111)));
    assert_eq!(chosen("111 0", &[opus]), Some((Codec::Opus, 111)));
    assert_eq!(chosen("112 111", &[opus, other]), Some((Codec::Opus, 112)));
    assert_eq!(chosen("0 112 111", &[opus, other]), Some((Codec::Opus, 112)));
    assert_eq!(chosen("8 0", &[]), Some((A, 8)));
    assert_eq!(chosen("9 0 8", &[]), Some((MU, 0)));
    assert_eq!(chosen("9 13", &[]), None);
}

/// G.711 has 8000 Hz and one channel, with any payload type, and without a map only its own.
#[test]
fn g711_is_recognized_by_name_rate_and_channels() {
    for (map, codec) in [
        ("PCMU/8000", Some(MU)),
        ("pcma/8000", Some(A)),
        ("PCMU/8000/1", Some(MU)),
        ("PCMU/8000/2", None),
        ("PCMU/16000", None),
        ("PCMA/16000/1", None),
        ("G722/8000", None),
    ] {
        let found = chosen("96", &[&format!("rtpmap:96 {map}")]);
        assert_eq!(found, codec.map(|codec| (codec, 96)), "{map}");
    }
    assert_eq!(chosen("0", &["rtpmap:0 G722/8000"]), None, "the map wins");
    assert_eq!(chosen("0 96", &["rtpmap:96 PCMA/8000"]), Some((MU, 0)));
    let explicit = prepared("0 8", &["rtpmap:0 PCMU/8000/1", "rtpmap:8 PCMA/8000"]);
    assert!(explicit.contains("a=rtpmap:0 PCMU/8000\r\n"), "{explicit}");
    assert!(explicit.contains("a=rtpmap:8 PCMA/8000\r\n"), "{explicit}");
}

/// A payload type whose map cannot be read has no codec and is removed.
#[test]
fn payload_types_without_a_codec_are_removed() {
    for map in ["/8000", "x", "x/", "x/0", "x/y", "x/8000/y", "x/8000/1/2", "x/8000/300"] {
        let left = prepared("96 111", &["rtpmap:111 opus/48000/2", &format!("rtpmap:96 {map}")]);
        assert!(left.starts_with("111\r\n") && !left.contains(":96 "), "{map}: {left}");
    }
    let known = prepared("96 111", &["rtpmap:111 opus/48000/2", "rtpmap:96 x/1/2"]);
    assert!(known.starts_with("96 111\r\n") && known.contains("a=rtpmap:96 x/1/2\r\n"));
}

/// Lines of a payload type go with it, and those for all stay.
#[test]
fn lines_of_removed_payload_types_are_removed() {
    let left = prepared(
        "111 0",
        &[
            "rtpmap:111 opus/48000/2",
            "rtpmap:0 unreadable",
            "rtpmap:112 multiopus/48000/6",
            "fmtp:111 minptime=10",
            "fmtp:112 x=1",
            "rtcp-fb:111 transport-cc",
            "rtcp-fb:112 nack",
            "rtcp-fb:* ccm fir",
        ],
    );
    assert!(left.starts_with("111 0\r\n"), "{left}");
    for line in ["fmtp:111 minptime=10", "rtcp-fb:111 transport-cc", "rtcp-fb:* ccm fir"] {
        assert!(left.contains(&format!("a={line}\r\n")), "{line}: {left}");
    }
    assert!(!left.contains(":112 ") && !left.contains("unreadable"), "{left}");
}

/// str0m searches for the value of an SSRC beyond the line.
#[test]
fn ssrcs_have_a_number_a_name_and_a_value() {
    let lines = [
        "ssrc:7 cname:a",
        "ssrc:x cname:a",
        "ssrc:8 :a",
        "ssrc:9 cname:",
        "ssrc:10 cname",
    ];
    let left = prepared("0", &lines);
    let left: Vec<&str> = left.lines().filter_map(|line| line.strip_prefix("a=ssrc:")).collect();
    assert_eq!(left, ["7 cname:a", "6 cname:webrtc-opus"]);
}
