//! What in an offer is read, and what in an answer is kept, beside its codecs.

use super::*;

/// The offer of a device that nothing but what it omits tells apart.
fn silent() -> String {
    DEVICE.replace("a=msid-semantic: iot\n", "").replace("SAVP ", "SAVPF ")
}

/// A stack with several marks is the one that they name, as with one of them.
#[test]
fn marks_add_up() {
    let origin = silent().replace("o=- 2207613340918254 ", "o=- 7801614086411001801 ");
    let line = "o=- 7801614086411001801 2207613340918254 IN IP4 0.0.0.0\n";
    let twice = origin.replace(line, &line.repeat(2));
    let both = origin.replace("a=group:BUNDLE", "a=msid-semantic: esp-webrtc\na=group:BUNDLE");
    for espressif in [&origin, &twice, &both] {
        assert_eq!(family(espressif), ClientStack::EspPeer, "{espressif}");
    }
    // The profile and the semantic say the same, and outweigh a line that browsers write.
    let device = DEVICE.replace("a=group:BUNDLE", "a=ice-options:trickle\na=group:BUNDLE");
    assert_eq!(family(&device), ClientStack::Libpeer);
    assert!(family(&device).is_device() && family(&both).is_device());
    assert!(!family(CHROME).is_device());
}

/// An SSRC with the name of a stream is written by libraries and not by devices.
#[test]
fn an_ssrc_with_a_stream_is_of_a_library() {
    let with = |line: &str| family(&silent().replace("a=sendrecv\n", &format!("a=sendrecv\n{line}\n")));
    assert_eq!(with("a=ssrc:6 msid:user@host track"), ClientStack::Full);
    assert_eq!(with("a=ssrc:6 label:msid"), ClientStack::Libpeer);
    assert_eq!(with("a=ssrc:x msid:user@host track"), ClientStack::Libpeer);
}

/// The origin is a line of six words before the first section; str0m gets a plain one for any
/// other.
#[test]
fn only_a_valid_origin_is_read() {
    let espressif = "o=- 7801614086411001801 ";
    let whole = silent().replace("o=- 2207613340918254 ", espressif);
    let line = "o=- 7801614086411001801 2207613340918254 IN IP4 0.0.0.0";
    assert!(whole.contains(line));
    let prepared = |text: &str| prepare_offer(text).expect("fit");
    assert_eq!(prepared(&whole).client_stack, ClientStack::EspPeer);
    assert!(prepared(&whole).sdp.contains(&format!("\r\n{line}\r\n")));
    for other in [
        "o=- 7801614086411001801",
        "o=- 7801614086411001801 1 IN IP4",
        "o=- 7801614086411001801 1 IN IP4 0.0.0.0 x",
        "o=- 7801614086411001801 1  IP4 0.0.0.0",
    ] {
        let read = prepared(&whole.replace(line, other));
        assert_eq!(read.client_stack, ClientStack::Libpeer, "{other}");
        assert!(read.sdp.contains("\r\no=- 0 0 IN IP4 0.0.0.0\r\n"), "{other}");
    }
    let late = silent().replace("a=sendrecv\n", &format!("a=sendrecv\n{line}\n"));
    assert_eq!(family(&late), ClientStack::Libpeer, "a line of a section");
}

/// Without a group line, all sections share one transport, except those that the offer stops.
#[test]
fn sections_without_a_group_are_bundled() {
    let alone = DEVICE.replace("a=group:BUNDLE audio datachannel\n", "");
    let group = |text: &str| {
        let prepared = prepare_offer(text).expect("fit").sdp;
        let line = prepared.lines().find(|line| line.starts_with("a=group:"));
        line.expect("a group").to_owned()
    };
    assert_eq!(group(&alone), "a=group:BUNDLE audio datachannel");
    let stopped = alone.replace("m=application 50712", "m=application 0");
    assert_eq!(group(&stopped), "a=group:BUNDLE audio");
}

#[test]
fn audio_sections_are_counted() {
    let count = |text: &str| prepare_offer(text).expect("fit").audio_sections;
    assert_eq!((count(DEVICE), count(CHROME)), (1, 1));
    let second = "m=audio 0 UDP/TLS/RTP/SAVPF 0\na=mid:second\na=inactive\n";
    assert_eq!(count(&(CHROME.to_owned() + second)), 2, "a stopped one counts");
}

#[test]
fn a_candidate_is_taken_up_to_its_cap() {
    let count = |bytes: usize| {
        let start = "candidate:1 1 udp 1 192.0.2.1 1 typ host x ";
        let line = format!("a={start}{}\n", "y".repeat(bytes - start.len()));
        let alone = DEVICE.replace("a=candidate:0", "a=x:0") + &line;
        prepare_offer(&alone).expect("fit").candidates.len()
    };
    assert_eq!((count(CANDIDATE_BYTES_MAX), count(CANDIDATE_BYTES_MAX + 1)), (1, 0));
}

// Answers

/// An error lists each of the other addresses once, up to a limit, or says that there are none.
#[test]
fn an_error_lists_a_limited_number_of_addresses() {
    let line = |n: usize| format!("a=candidate:{n} 1 udp 1 198.51.100.{n} 7860 typ host\r\n");
    let lines: String = (0..2 * LOCAL_ADDRESSES_MAX).map(|n| line(n) + &line(n)).collect();
    let refused = keep_only_host_candidate(&lines, HOST).expect_err("none of the host");
    let listed: Vec<String> = (0..LOCAL_ADDRESSES_MAX).map(|n| format!("198.51.100.{n}")).collect();
    let text = refused.to_string();
    assert!(
        text.ends_with(&format!("192.0.2.10, only {}", listed.join(", "))),
        "{text}"
    );
    assert_eq!(
        refused,
        DeviceAnswerError::NoCandidate {
            host: HOST,
            available: listed
        }
    );
    let none = keep_only_host_candidate("v=0\r\n", HOST).expect_err("none at all");
    assert!(
        none.to_string().ends_with("192.0.2.10, and there is no other"),
        "{none}"
    );
}

/// A device's audio section has one codec; what other sections say of theirs is kept.
#[test]
fn other_sections_keep_their_codecs() {
    let video = "m=video 0 UDP/TLS/RTP/SAVPF 96\na=mid:2\na=rtpmap:96 VP8/90000\na=fmtp:96 x=1\n";
    let answer = STR0M.replace(
        "a=rtpmap:111 opus/48000/2\n",
        "a=rtpmap:111 opus/48000/2\na=rtpmap:0 PCMU/8000\n",
    ) + video;
    let rewritten = rewrite_answer_for_device(&answer, HOST, DtlsRole::Client).expect("safe");
    assert!(rewritten.ends_with(&crlf(video)), "{rewritten}");
    assert!(!rewritten.contains("PCMU") && rewritten.contains("a=rtpmap:111 opus/48000/2\r\n"));
}

/// A direction that is written twice is the same direction.
#[test]
fn a_repeated_direction_changes_nothing() {
    let answer = STR0M.replace("a=sendrecv\n", "a=sendrecv\na=sendrecv\n");
    let rewritten = rewrite_answer_for_device(&answer, HOST, DtlsRole::Client).expect("safe");
    DeviceView::check(&rewritten);
}
