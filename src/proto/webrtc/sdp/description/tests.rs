//! Tests of sections and transport of descriptions.

use super::*;
use crate::webrtc::sdp::{AUDIO_LEVEL_URI, MID_URI};

fn section(lines: &str) -> String {
    format!("v=0\r\na=group:BUNDLE 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111 8 126\r\na=mid:0\r\n{lines}")
}

fn with<T>(lines: &str, get: impl Fn(&DescribedSection<'_>) -> T) -> T {
    let text = section(lines);
    get(&SdpDescription::parse(&text).sections[0])
}

fn all<T>(text: &str, get: impl Fn(&SdpDescription<'_>) -> T) -> T {
    get(&SdpDescription::parse(text))
}

#[test]
fn sections_have_a_kind_a_direction_and_a_state() {
    let text = "v=0\na=group:BUNDLE 0 1\nm=audio 9 P 0\na=mid:0\na=sendrecv\nm=video 0 P 0\na=mid:1\na=sendonly\n\
        m=audio 0 P 0\na=mid:2\na=recvonly\nm=application 9 P x\na=mid:3\n";
    let found = all(text, |description| {
        let sections = description.sections.iter();
        let found = sections.map(|it| (it.kind, it.is_stopped, it.sender_sends, it.sender_receives));
        found.collect::<Vec<_>>()
    });
    assert_eq!(
        found,
        [
            (SectionKind::Audio, false, true, true),
            (SectionKind::Video, false, true, false),
            (SectionKind::Audio, true, false, true),
            (SectionKind::Application, false, false, false),
        ]
    );
    assert!(all(text, |description| description.has_data() && !description.is_ice_lite()));
    assert!(all("v=0\na=ice-lite\n", |it| it.is_ice_lite() && !it.has_data()));
}

/// Half a pair in the session does not hide the whole one of a section.
#[test]
fn credentials_are_those_of_the_session_or_of_the_first_section_with_both() {
    let section = "m=audio 9 P 0\na=ice-ufrag:s\nm=audio 9 P 0\na=ice-ufrag:t\na=ice-pwd:u\n";
    let read = |head: &str| {
        let text = format!("v=0\n{head}{section}");
        all(&text, |it| it.credentials().map(|(name, key)| format!("{name} {key}")))
    };
    assert_eq!(read("a=ice-ufrag:a\na=ice-pwd:b\n").as_deref(), Some("a b"));
    assert_eq!(read("a=ice-ufrag:a\n").as_deref(), Some("t u"));
    assert!(all("v=0\na=ice-pwd:b\n", |it| it.credentials().is_none()));
}

#[test]
fn the_strongest_readable_fingerprint_of_the_first_level_counts() {
    let read = |text: &str| all(text, |it| it.fingerprint().map(|it| (it.algorithm, it.bytes)));
    let found = |algorithm: &str, byte| Some((algorithm.to_owned(), vec![byte, 0xcd]));
    let section = "m=audio 9 P 0\na=fingerprint:sha-256 0b:CD\n";
    assert_eq!(read(&format!("v=0\n{section}")), found("sha-256", 0x0b));
    let session = "v=0\na=fingerprint:sha-512 01:CD\na=fingerprint:SHA-1 02:CD\n";
    assert_eq!(read(&format!("{session}{section}")), found("SHA-1", 2));
    let both = session.replace("sha-512", "SHA-256");
    assert_eq!(read(&both), found("SHA-256", 1));
    for broken in [
        "sha-256",
        "sha-256 ",
        "sha-256 0",
        "sha-256 0bc",
        "sha-256 +b",
        "sha-256 0b:",
    ] {
        assert_eq!(read(&format!("v=0\na=fingerprint:{broken}\n")), None, "{broken}");
    }
}

#[test]
fn message_sizes_have_a_default_and_a_cap() {
    let read = |line: &str| {
        all(&format!("v=0\nm=application 9 P x\n{line}\n"), |it| {
            it.max_message_bytes()
        })
    };
    assert_eq!(read("a=x"), 65_536);
    assert_eq!(read("a=max-message-size:0"), 0);
    assert_eq!(read("a=max-message-size:262144"), 262_144);
    assert_eq!(read("a=max-message-size:4294967296"), u32::MAX);
    assert_eq!(read("a=max-message-size:-1"), 65_536);
    assert_eq!(all("v=0\n", |it| it.max_message_bytes()), 65_536);
}

#[test]
fn payload_types_follow_the_formats_and_the_maps() {
    let types = |lines: &str, codec| with(lines, |it| it.payload_types(codec).collect::<Vec<_>>());
    let [opus, mu_law, a_law] = Codec::ALL;
    assert_eq!(
        types("a=rtpmap:111 opus/48000/2\na=rtpmap:96 opus/48000/2\n", opus),
        [111]
    );
    assert_eq!(
        types("a=rtpmap:126 opus/48000/2\na=rtpmap:111 opus/48000/2\n", opus),
        [111, 126]
    );
    assert_eq!(types("", a_law), [8], "a static type needs no map");
    assert!(types("a=rtpmap:8 x/8000\n", a_law).is_empty(), "a map replaces it");
    assert!(types("", mu_law).is_empty());
    let first = |text: &str| all(text, |it| it.first_with(opus).map(|(_, it)| it.payload_type));
    let stopped = section("a=rtpmap:111 opus/48000/2\n")
        .replace("audio 9", "audio 0")
        .replace("BUNDLE 0", "BUNDLE");
    assert_eq!(first(&stopped), None);
    let open = "m=video 9 P 1\na=rtpmap:1 opus/48000/2\nm=audio 9 P 5\na=rtpmap:5 opus/48000/2\n";
    assert_eq!(first(&(stopped + open)), Some(5));
}

#[test]
fn key_presses_need_an_offered_format_and_a_range_from_zero() {
    let keys = |lines: &str| {
        with(&format!("a=rtpmap:126 telephone-event/8000\n{lines}"), |it| {
            it.telephone_event()
        })
    };
    assert_eq!(keys(""), Some((126, 16)));
    assert_eq!(keys("a=fmtp:111 0-3\na=fmtp:126 0-15\n"), Some((126, 15)));
    assert_eq!(keys("a=fmtp:126 0-255\n"), Some((126, 16)));
    assert_eq!(keys("a=fmtp:126 1-15\n"), None);
    assert_eq!(keys("a=fmtp:126 0-999\n"), None);
    assert_eq!(
        with("a=rtpmap:101 telephone-event/8000\n", |it| it.telephone_event()),
        None
    );
    assert_eq!(
        with("a=rtpmap:126 telephone-event/48000\n", |it| it.telephone_event()),
        None
    );
}

#[test]
fn feedback_belongs_to_one_payload_type() {
    let has = |line: &str| with(line, |it| it.has_transport_feedback(111));
    assert!(has("a=rtcp-fb:111 transport-cc\n"));
    assert!(!has("a=rtcp-fb:11 transport-cc\n") && !has("a=rtcp-fb:111 nack\n"));
}

#[test]
fn extension_ids_have_a_range() {
    let id = |line: &str| with(&format!("a=extmap:{line}\n"), |it| it.extension_id(MID_URI));
    assert_eq!(id(&format!("4 {MID_URI}")), Some(4));
    assert_eq!(id(&format!("16/sendonly {MID_URI} x")), Some(16));
    for other in [
        format!("0 {MID_URI}"),
        format!("17 {MID_URI}"),
        format!("4 {AUDIO_LEVEL_URI}"),
    ] {
        assert_eq!(id(&other), None, "{other}");
    }
}

#[test]
fn sources_are_counted_once_and_repairs_are_none() {
    let lines = "a=ssrc:0 cname:a\na=ssrc:7 cname:a\na=ssrc:7 msid:a b\na=ssrc:8 cname:a\na=ssrc:x cname:a\n";
    assert_eq!(with(lines, |it| it.sources()), [7, 8]);
    assert_eq!(with(lines, |it| it.media_sources()), [7, 8]);
    let repaired = format!("{lines}a=ssrc-group:FID 7 8\n");
    assert_eq!(with(&repaired, |it| it.sources()), [7, 8]);
    assert_eq!(with(&repaired, |it| it.media_sources()), [7]);
    let other = format!("{lines}a=ssrc-group:SIM 7 8\n");
    assert_eq!(with(&other, |it| it.media_sources()), [7, 8]);
}

#[test]
fn a_section_may_be_in_no_stream() {
    let msid = |line: &str| with(line, |it| it.msid().map(|(stream, track)| format!("{stream}+{track}")));
    assert_eq!(msid("a=msid:s t\n").as_deref(), Some("s+t"));
    assert_eq!(msid("a=msid:s\n"), None, "without a track");
    assert_eq!(msid("a=msid:- t\n"), None);
    assert_eq!(msid(""), None);
}

const TRANSPORT: &str = "v=0\na=ice-ufrag:u\na=ice-pwd:p\n";

/// Sections keep their place and their kind; only a free one may be replaced, and not by data.
#[test]
fn sections_stay() {
    let text = |sections: &[&str]| {
        let lines = sections.iter().map(|section| {
            let (kind, mid) = section.split_once(' ').expect("two words");
            format!("m={kind} 9 P 0\na=mid:{mid}\n")
        });
        TRANSPORT.to_owned() + &lines.collect::<String>()
    };
    let before = [
        ("0".to_owned(), SectionKind::Audio),
        ("1".to_owned(), SectionKind::Video),
        ("2".to_owned(), SectionKind::Application),
    ];
    let check = |sections: &[&str], free: &str| {
        let text = text(sections);
        all(&text, |it| {
            it.check(&before, |mid| free.contains(mid))
                .map_err(|why| why.chars().take(18).collect::<String>())
        })
    };
    let same = ["audio 0", "video 1", "application 2"];
    assert_eq!(check(&same, ""), Ok(()));
    assert_eq!(check(&[&same[..], &["audio 3"]].concat(), ""), Ok(()));
    assert_eq!(check(&same[..2], "012"), Err("it has 2 sections,".to_owned()));
    assert_eq!(
        check(&[&same[..], &["application 3"]].concat(), ""),
        Err("it has more than o".to_owned())
    );
    let replaced = |first: &str, free: &str| check(&[first, same[1], same[2]], free);
    let became = |nth: usize| Err(format!("section {nth}, `{nth}`, be"));
    assert_eq!(replaced("audio 3", "0"), Ok(()));
    assert_eq!(replaced("video 3", "0"), Ok(()));
    assert_eq!(replaced("audio 3", ""), became(0));
    assert_eq!(replaced("video 0", "0"), became(0));
    assert_eq!(check(&[same[0], same[1], "audio 3"], "2"), became(2), "data stays");
    let data = all(&text(&["application 3"]), |it| {
        it.check(&before[..1], |_| true).is_err()
    });
    assert!(data, "data is not where media were");
    assert_eq!(
        check(&[same[1], same[0], same[2]], "01"),
        Err("the section `1` ch".to_owned())
    );
    let moved = all(&text(&["audio 4", "audio 0"]), |it| it.check(&before[..1], |_| true));
    assert!(moved.is_err_and(|why| why.contains("changed its place")));
    let bare = all("v=0\nm=audio 9 P 0\n", |it| it.check(&[], |_| true));
    assert!(bare.is_err_and(|why| why.contains("a=ice-ufrag")));
    let layout = all(&text(&same), |it| it.layout());
    assert_eq!(layout, before);
}
