//! Offers and answers before and after; offers also through str0m, device answers also through a
//! device's parser.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use str0m::change::SdpOffer;
use str0m::net::Protocol;
use str0m::{Candidate, Input, Output, Rtc};

use super::*;
use crate::audio::codec::Codec;
use crate::limits::*;
use crate::webrtc::crypto;

/// A certificate that only SHA-384 or SHA-512 names would fail its handshake, so the offer is
/// refused; beside SHA-256 they are no harm.
#[test]
fn fingerprints_by_other_digests_alone_are_refused() {
    let with = |algorithms: &[&str]| {
        let lines: Vec<String> = algorithms.iter().map(|name| format!("a=fingerprint:{name} ")).collect();
        let text = CHROME.replace("a=fingerprint:sha-256 ", &lines.join("AA:BB\r\n"));
        prepare_offer(&text).map(|_| ())
    };
    for known in ["sha-256", "SHA-256", "sha-1", "SHA-1"] {
        assert_eq!(with(&[known]), Ok(()));
        assert_eq!(with(&["sha-512", known]), Ok(()));
        assert_eq!(with(&[known, "sha-384"]), Ok(()));
    }
    for others in [&["sha-512"][..], &["sha-384", "sha-512"], &["sha-2567"]] {
        assert_eq!(with(others), Err(SdpError::OtherFingerprints), "{others:?}");
    }
    let reported = SdpError::OtherFingerprints.to_string();
    assert!(reported.contains("SHA-256"), "{reported}");
}

mod codecs;
mod marks;

const DEVICE: &str = include_str!("../../../../tests/data/sdp/device.offer.sdp");
const VARIANT: &str = include_str!("../../../../tests/data/sdp/device-variant.offer.sdp");
const CHROME: &str = include_str!("../../../../tests/data/sdp/chrome.offer.sdp");
const FIREFOX: &str = include_str!("../../../../tests/data/sdp/firefox.offer.sdp");
const DEVICE_PREPARED: &str = include_str!("../../../../tests/data/sdp/device.prepared.sdp");
const VARIANT_PREPARED: &str = include_str!("../../../../tests/data/sdp/device-variant.prepared.sdp");
const CHROME_PREPARED: &str = include_str!("../../../../tests/data/sdp/chrome.prepared.sdp");
const FIREFOX_PREPARED: &str = include_str!("../../../../tests/data/sdp/firefox.prepared.sdp");
const CHATTY: &str = include_str!("../../../../tests/data/sdp/chatty.answer.sdp");
const CHATTY_DEVICE: &str = include_str!("../../../../tests/data/sdp/chatty.device.sdp");
const CHATTY_BROWSER: &str = include_str!("../../../../tests/data/sdp/chatty.browser.sdp");
const STR0M: &str = include_str!("../../../../tests/data/sdp/str0m.answer.sdp");
const STR0M_DEVICE: &str = include_str!("../../../../tests/data/sdp/str0m.device.sdp");
const STR0M_BROWSER: &str = include_str!("../../../../tests/data/sdp/str0m.browser.sdp");

const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

fn crlf(text: &str) -> String {
    text.replace('\n', "\r\n")
}

/// Answers an offer with str0m on three addresses, the second of which is the host's.
fn answer(offer: &str) -> (Rtc, String) {
    let prepared = prepare_offer(offer).expect("the offer is fit");
    let read = SdpOffer::from_sdp_string(&prepared.sdp).expect("str0m reads a prepared offer");
    let sections = |sdp: &str| sdp.matches("\nm=").count();
    assert_eq!(
        sections(&read.to_sdp_string()),
        sections(&prepared.sdp),
        "str0m saw all"
    );
    let mut rtc = Rtc::builder()
        .set_crypto_provider(Arc::new(crypto::provider()))
        .set_dtls_cert(crypto::certificate().expect("a certificate").clone())
        .clear_codecs()
        .enable_opus(true, false)
        .enable_pcmu(true, false)
        .enable_pcma(true, false)
        .build(Instant::now());
    for address in ["[2001:db8::10]:7860", "192.0.2.10:7860", "192.0.2.100:7860"] {
        let address = address.parse().expect("an address");
        rtc.add_local_candidate(Candidate::host(address, Protocol::Udp).expect("a candidate"));
    }
    let answer = rtc.sdp_api().accept_offer(read).expect("str0m answers").to_sdp_string();
    assert_eq!(
        sections(&answer),
        sections(&prepared.sdp),
        "every section has its answer"
    );
    (rtc, answer)
}

/// What a device reads in an answer, by its own rules: substrings, the last one wins, no bounds.
#[derive(Debug, Default)]
struct DeviceView {
    fingerprint: String,
    ssrc: String,
    credentials: (String, String),
    candidates: Vec<String>,
}

impl DeviceView {
    fn of(answer: &str) -> DeviceView {
        let mut view = DeviceView::default();
        let mut audio = false;
        // A last line without a line end is ignored.
        let (seen, _) = answer.rsplit_once("\r\n").expect("CRLF line ends");
        for line in seen.split("\r\n") {
            assert!(line.len() <= 200, "{line}");
            assert!(!line.contains('\n'), "{line}");
            audio = (audio || line.contains("m=audio")) && !line.contains("m=video");
            if line.contains("a=fingerprint:") {
                view.fingerprint = line[22..].to_owned();
            }
            if audio && let Some((_, value)) = line.split_once("a=ssrc:") {
                view.ssrc = value.split(' ').next().expect("a word").to_owned();
            }
            if let Some(ufrag) = line.strip_prefix("a=ice-ufrag:") {
                view.credentials.0 = ufrag.to_owned();
            }
            if let Some(password) = line.strip_prefix("a=ice-pwd:") {
                view.credentials.1 = password.to_owned();
            }
            if let Some(candidate) = line.strip_prefix("a=candidate:") {
                let words: Vec<&str> = candidate.split(' ').collect();
                assert!(words[0].len() < 32 && words[1] == "1" && words[2] == "udp" && words[6..8] == ["typ", "host"]);
                view.candidates.push(words[4].to_owned());
            }
        }
        view
    }

    fn check(answer: &str) {
        let view = DeviceView::of(answer);
        assert_eq!(view.candidates, [HOST.to_string()], "{answer}");
        assert!(view.ssrc.parse::<u32>().is_ok(), "{answer}");
        assert_eq!(view.fingerprint.len(), 32 * 3 - 1, "{answer}");
        assert_eq!(view.fingerprint, view.fingerprint.to_uppercase());
        assert!(!view.credentials.0.is_empty() && !view.credentials.1.is_empty());
        assert_eq!(
            answer.matches("a=fingerprint:sha-256 ").count(),
            answer.matches("a=fingerprint:").count()
        );
        assert_eq!(
            answer.matches("a=setup:active\r\n").count(),
            answer.matches("a=setup:").count()
        );
        assert!(!answer.contains("ice-lite") && !answer.contains("extmap"));
        let body = serde_json::json!({"sdp": answer, "type": "answer", "pc_id": "x".repeat(PC_ID_BYTES_MAX)});
        assert!(body.to_string().len() <= 4_000);
    }
}

// Offers

/// Golden files. Other line ends, or a missing last one, make no difference.
#[test]
fn offers_match_the_golden_files() {
    for (offer, prepared) in [
        (DEVICE, DEVICE_PREPARED),
        (VARIANT, VARIANT_PREPARED),
        (CHROME, CHROME_PREPARED),
        (FIREFOX, FIREFOX_PREPARED),
    ] {
        let expected = crlf(prepared);
        for text in [offer.to_owned(), crlf(offer), offer.trim_end().to_owned()] {
            assert_eq!(prepare_offer(&text).expect("fit").sdp, expected);
        }
        assert_eq!(
            prepare_offer(&expected).expect("fit").sdp,
            expected,
            "a tidy offer stays as it is"
        );
    }
}

#[test]
fn candidates_come_out_in_order_and_once() {
    let chrome = prepare_offer(CHROME).expect("fit").candidates;
    assert_eq!(chrome.len(), 5);
    assert!(chrome[0].starts_with("candidate:1510613869 1 udp 2122129151 192.0.2.21 54400 typ host"));
    assert!(chrome[4].contains(" 54402 "), "that of the second section is last");
    let variant = prepare_offer(VARIANT).expect("fit").candidates;
    assert_eq!(variant.len(), 2, "the one that both sections have counts once");
    let device = prepare_offer(DEVICE).expect("fit").candidates;
    assert_eq!(device, ["candidate:0 1 UDP 2125395455 192.0.2.57 51811 typ host"]);
}

#[test]
fn the_number_of_candidates_has_a_cap() {
    let line = |n: usize| format!("a=candidate:{n} 1 udp 1 192.0.2.1 {n} typ host\n");
    let lines = |n: usize| (1..=n).map(line).collect::<String>();
    let count = |n| {
        prepare_offer(&(DEVICE.replace("a=candidate:0", "a=x:0") + &lines(n)))
            .expect("fit")
            .candidates
            .len()
    };
    assert_eq!(count(OFFER_CANDIDATES_MAX), OFFER_CANDIDATES_MAX);
    assert_eq!(count(OFFER_CANDIDATES_MAX + 1), OFFER_CANDIDATES_MAX);
}

fn family(text: &str) -> ClientStack {
    prepare_offer(text).expect("fit").client_stack
}

/// devices are recognized by profile, semantic, or what they omit.
#[test]
fn devices_are_recognized() {
    let plain = DEVICE.replace("a=msid-semantic: iot\n", "");
    let silent = plain.replace("SAVP ", "SAVPF ");
    for device in [
        DEVICE,
        &plain,
        &plain.replace("UDP/TLS/RTP/SAVP", "RTP/SAVP"),
        &DEVICE.replace("SAVP ", "SAVPF "),
        &silent,
        // Offers with several codecs, or with video, have these lines too.
        &silent.replace(
            "a=sendrecv\n",
            "a=fmtp:111 minptime=10\na=rtcp-fb:111 nack\na=rtcp-rsize\na=sendrecv\n",
        ),
        VARIANT,
    ] {
        assert_eq!(family(device), ClientStack::Libpeer, "{device}");
    }
    for by in [
        DEVICE.replace("msid-semantic: iot", "msid-semantic: esp-webrtc"),
        silent.replace("o=- 2207613340918254 ", "o=- 7801614086411001801 "),
    ] {
        assert_ne!(by, DEVICE);
        let prepared = prepare_offer(&by.replace("a=setup:passive", "a=setup:actpass")).expect("fit");
        assert_eq!(
            (prepared.client_stack, prepared.dtls_role),
            (ClientStack::EspPeer, DtlsRole::Server),
            "{by}"
        );
    }
}

/// Neither browsers nor libraries without header extensions are taken for devices, even with lines
/// missing.
#[test]
fn other_stacks_are_not_taken_for_devices() {
    let full = |text: &str| assert_eq!(family(text), ClientStack::Full, "{text}");
    // Browsers' offers with any one kind of line removed.
    for browser in [CHROME, FIREFOX] {
        for kind in [
            "a=extmap",
            "a=ice-options",
            "a=msid",
            "a=ssrc",
            "a=rtcp-fb",
            "a=fmtp",
            "a=group",
        ] {
            let lines = browser.lines().filter(|line| !line.starts_with(kind));
            full(&lines.flat_map(|line| [line, "\r\n"]).collect::<String>());
        }
    }
    let silent = DEVICE.replace("a=msid-semantic: iot\n", "").replace("SAVP ", "SAVPF ");
    for (library, session, section) in [
        (
            "libdatachannel",
            "a=group:LS audio\na=msid-semantic:WMS *\na=ice-options:ice2,trickle\n",
            "",
        ),
        (
            "FFmpeg",
            "a=extmap-allow-mixed\na=msid-semantic: WMS\n",
            "a=msid:FFmpeg audio\n",
        ),
        (
            "GStreamer",
            "a=ice-options:trickle\n",
            "a=ssrc:6 msid:user@host webrtctransceiver0\n",
        ),
        ("pion", "a=msid-semantic:WMS*\na=extmap-allow-mixed\n", ""),
        (
            "aiortc",
            "a=msid-semantic:WMS *\n",
            "a=extmap:1 urn:ietf:params:rtp-hdrext:sdes:mid\n",
        ),
        (
            "a calling service",
            "a=ice-lite\n",
            "a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level\n",
        ),
    ] {
        let offer = silent.replace("a=group:BUNDLE", &format!("{session}a=group:BUNDLE"));
        let offer = offer.replace("a=sendrecv\n", &format!("a=sendrecv\n{section}"));
        assert_ne!(offer, silent, "{library}");
        full(&offer);
        let has_extensions = prepare_offer(&offer).expect("fit").has_extensions;
        assert_eq!(has_extensions, section.contains("extmap:"), "{library}");
    }
}

/// The role is the one that the offer leaves; libpeer leaves none.
#[test]
fn the_dtls_role_follows_the_offer_and_the_stack() {
    let role = |text: &str, setup: &str| {
        let prepared = prepare_offer(&text.replace("a=setup:passive\n", setup)).expect("fit");
        let offered = Some(prepared.sdp.matches("a=setup:").collect::<Vec<_>>().len()).filter(|count| *count > 0);
        (prepared.dtls_role, offered.is_some())
    };
    let espressif = DEVICE.replace("msid-semantic: iot", "msid-semantic: esp-webrtc");
    let (client, server) = (DtlsRole::Client, DtlsRole::Server);
    for (setup, libpeer, esp_peer) in [
        ("a=setup:passive\n", client, client),
        ("a=setup:active\n", server, server),
        ("a=setup:actpass\n", client, server),
        ("", client, server),
    ] {
        assert_eq!(role(DEVICE, setup), (libpeer, true), "{setup}");
        assert_eq!(role(&espressif, setup), (esp_peer, !setup.is_empty()), "{setup}");
    }
}

/// Opus with another rate or channel count is accepted, and answered in the offer's spelling.
#[test]
fn opus_is_recognized_by_name() {
    for spelling in ["opus/16000/1", "opus/48000", "OPUS/48000/2", "opus/8000/1"] {
        let offer = DEVICE.replace("opus/48000/2", spelling);
        let prepared = prepare_offer(&offer).expect("fit");
        assert_eq!(prepared.sdp, crlf(DEVICE_PREPARED));
        let spellings = [("rtpmap:111 opus/48000/2".to_owned(), format!("rtpmap:111 {spelling}"))];
        assert_eq!(prepared.opus_spellings, spellings);
    }
    let other = DEVICE.replace("opus/48000/2", "opus/48000/2\na=rtpmap:112 multiopus/48000/6");
    assert!(prepare_offer(&other).expect("fit").opus_spellings.is_empty());
    assert!(prepare_offer(DEVICE).expect("fit").opus_spellings.is_empty());
}

/// The answer to a microphone names no source; one that sends audio does, in both DTLS roles.
#[test]
fn a_microphone_is_answered() {
    for (direction, ssrcs) in [("sendonly", 0), ("recvonly", 1), ("sendrecv", 1)] {
        for (setup, role) in [("passive", DtlsRole::Client), ("active", DtlsRole::Server)] {
            let offer = DEVICE.replace("a=sendrecv", &format!("a={direction}"));
            let (_, answer) = answer(&offer.replace("a=setup:passive", &format!("a=setup:{setup}")));
            let rewritten = rewrite_answer_for_device(&answer, HOST, role).expect("safe");
            let distinct: HashSet<&str> = rewritten.lines().filter(|line| line.starts_with("a=ssrc:")).collect();
            assert_eq!(distinct.len(), ssrcs, "{direction}");
            assert!(rewritten.contains(&format!("a=setup:{}\r\n", role.setup())));
        }
    }
}

/// A field trial's attribute asks to skip the SCTP handshake.
#[test]
fn sctp_init_is_removed() {
    let offer = CHROME.replace("a=sctp-port:5000\n", "a=sctp-init:AQAAIA==\na=sctp-port:5000\n");
    assert_eq!(prepare_offer(&offer).expect("fit").sdp, crlf(CHROME_PREPARED));
}

#[test]
fn section_kinds_are_reported() {
    let chrome = prepare_offer(CHROME).expect("fit");
    assert!(chrome.has_video && chrome.has_application);
    let audio_only = DEVICE.split("m=application").next().expect("a part");
    let audio_only = prepare_offer(audio_only).expect("fit");
    assert!(!audio_only.has_video && !audio_only.has_application);
}

/// The profile word is changed in `m=` lines and nowhere else.
#[test]
fn the_profile_is_changed_in_media_lines_only() {
    let offer = DEVICE.replace("a=rtcp-mux\n", "a=rtcp-mux\na=note:UDP/TLS/RTP/SAVP 111\n");
    let prepared = prepare_offer(&offer).expect("fit").sdp;
    assert!(prepared.contains("m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n"));
    assert!(prepared.contains("a=note:UDP/TLS/RTP/SAVP 111\r\n"));
}

/// all known variants of devices get a safe answer.
#[test]
fn every_variant_of_a_device_gets_a_safe_answer() {
    let no_channel = DEVICE.split("m=application").next().expect("a part").to_owned();
    let numbers = DEVICE
        .replace("BUNDLE audio datachannel", "BUNDLE 0 1")
        .replace("mid:audio", "mid:0")
        .replace("mid:datachannel", "mid:1");
    let variants = [
        DEVICE.to_owned(),
        VARIANT.to_owned(),
        crlf(DEVICE),
        no_channel.replace("audio datachannel", "audio"),
        no_channel,
        DEVICE.replace("192.0.2.57", "0.0.0.0"),
        DEVICE.replace("51811", "0"),
        DEVICE.replace("192.0.2.57", "a5d1c3.local"),
        DEVICE.replace("192.0.2.57", "fe80::1"),
        DEVICE.replace("UDP 2125395455", "TCP 2125395455"),
        DEVICE.replace(
            "a=candidate:0 1 UDP 2125395455 192.0.2.57 51811 typ host",
            "a=candidate:nonsense",
        ),
        DEVICE.split("a=candidate").next().expect("a part").to_owned(),
        numbers,
        DEVICE.replace("SAVP ", "SAVPF "),
        DEVICE.trim_end().to_owned(),
        DEVICE.replace("a=setup:passive\n", ""),
        DEVICE.replace("setup:passive", "setup:actpass"),
        DEVICE.replace("5E:0C:91", "5e:0c:91").replace("sha-256", "SHA-256"),
        DEVICE.replace("a=ssrc:6 cname:webrtc-opus\n", "a=ssrc:6\na=ssrc:7 nothing\n"),
    ];
    for offer in &variants {
        let (_, answer) = answer(offer);
        let rewritten = rewrite_answer_for_device(&answer, HOST, DtlsRole::Client).expect("safe");
        DeviceView::check(&rewritten);
    }
    let (_, answer) = answer(&DEVICE.replace("111 opus/48000/2", "111 G722/8000"));
    assert_eq!(
        rewrite_answer_for_device(&answer, HOST, DtlsRole::Client),
        Err(DeviceAnswerError::NoCodec)
    );
}

/// mids are names, and the answer repeats valid ones.
#[test]
fn the_answer_names_the_sections_as_the_offer_does() {
    let (_, answer) = answer(DEVICE);
    assert!(answer.contains("a=group:BUNDLE audio datachannel\r\n"), "{answer}");
    assert!(answer.contains("a=mid:audio\r\n") && answer.contains("a=mid:datachannel\r\n"));
}

/// Browsers' offers with one change that other software makes; all sections are answered.
#[test]
fn harmless_deviations_are_answered() {
    for base in [CHROME, FIREFOX] {
        let with = |line: &str| base.replace("a=mid:0\n", &format!("a=mid:0\n{line}\n"));
        for offer in [
            base.to_owned(),
            base.replace("s=-\n", "s=\n"),
            base.replace("s=-\n", ""),
            base.replace("t=0 0\n", "t=3034423619 3042462419\nr=604800 3600 0 90000\nz=0 0\n"),
            base.replace("t=0 0\n", "c=IN IP4 192.0.2.1\nt=0 0\nk=clear:x\nb=AS:1\n"),
            base.replace("a=sendrecv\n", ""),
            base.replace("a=sendrecv\n", "a=sendrecv\na=sendrecv\n"),
            base.replace("a=setup:actpass\n", ""),
            base.replace("a=setup:actpass\n", "a=setup:actpass\na=setup:actpass\n"),
            base.replace("a=mid:0\n", "")
                .replace("a=group:BUNDLE 0 ", "a=group:LS 0 1\na=group:BUNDLE 0 "),
            base.replace("BUNDLE 0 1 2", "BUNDLE 2 1 0"),
            base.replace("SAVPF 1", "SAVPF 72 300 x 1"),
            base.replace(
                " opus/48000/2",
                " opus/48000/2\na=rtpmap:72 CN\na=rtpmap:111 again/8000",
            ),
            base.replace('\n', " \n\n"),
            with("a=candidate:1 1 udp 1 nowhere 1 typ host"),
            with("a=candidate:"),
            with("b=TIAS:64000\nc=IN IP6 ::\ni=words"),
            with("a="),
            with("a=\u{fc}nknown:\u{1f399}"),
            with("a=ssrc:1\na=ssrc:2 cname"),
            with("a=extmap:300 urn:x\na=rid:\na=simulcast:send"),
            base.replace("a=mid:0\n", "a=mid:\n"),
            with("X-unknown\na"),
            format!("\n{base}\n\n"),
        ] {
            answer(&offer);
        }
    }
}

#[test]
fn unanswerable_offers_are_rejected_with_a_reason() {
    let refused = |text: &str| prepare_offer(text).expect_err("refused");
    let replaced = |from: &str, to: &str| refused(&DEVICE.replace(from, to));
    assert_eq!(refused(""), SdpError::NotSdp);
    assert_eq!(refused("hello"), SdpError::NotSdp);
    assert_eq!(replaced("v=0", "v=1"), SdpError::NotSdp);
    assert_eq!(refused("v=0\r\ns=-\r\n"), SdpError::NoSections);
    assert_eq!(
        refused(&DEVICE.replace("m=audio 9 UDP/TLS/RTP/SAVP", "m=video 9 RTP/SAVP")),
        SdpError::NoAudio
    );
    assert_eq!(
        replaced("m=audio 9 UDP/TLS/RTP/SAVP 111", "m=audio 9"),
        SdpError::MalformedSection("audio 9".into())
    );
    for (from, to, word) in [
        ("UDP/TLS/RTP/SAVP", "RTP/AVP", "`RTP/AVP`"),
        ("a=rtpmap:111", "a=rtpmap:112", "`audio`"),
        ("a=mid:datachannel", "a=mid:data channel", "`data channel`"),
        ("a=mid:datachannel", "a=mid:audi\u{f6}", "`audi\u{f6}`"),
        ("a=mid:datachannel", "a=mid:audio", "`audio`"),
        ("a=ice-ufrag:qW7e", "a=ice-ufrag:q:W", "`a=ice-ufrag`"),
        ("a=ice-ufrag:qW7e", "a=ice-ufrag:", "`a=ice-ufrag`"),
        ("a=ice-pwd:qW7", "a=ice-pwd:q W7", "`a=ice-pwd`"),
        ("a=setup:passive", "a=setup:\u{7f}", "line 10"),
        ("a=setup:passive", "a=setup:\rpassive", "line 10"),
    ] {
        let error = replaced(from, to);
        assert!(error.to_string().contains(word), "{error}");
    }
    let long = replaced(
        "m=audio 9 UDP/TLS/RTP/SAVP",
        &format!("m={} 9 RTP/SAVP", "x".repeat(1_000)),
    );
    assert!(long.to_string().len() < 300, "an error repeats no more than a part");
}

#[test]
fn an_offer_is_taken_up_to_its_caps() {
    let is_fit = |text: &str| prepare_offer(text).map(|_| ());
    let padded = |bytes: usize| format!("{DEVICE}a=x:{}", "y".repeat(bytes - DEVICE.len() - "a=x:".len()));
    assert_eq!(is_fit(&padded(OFFER_SDP_BYTES_MAX)), Ok(()));
    let too_much = |what, max| Err(SdpError::LimitExceeded { what, max });
    assert_eq!(
        is_fit(&padded(OFFER_SDP_BYTES_MAX + 1)),
        too_much("bytes", OFFER_SDP_BYTES_MAX)
    );

    let lines = |count: usize| DEVICE.to_owned() + &"a=x\n".repeat(count - DEVICE.lines().count());
    assert_eq!(is_fit(&lines(SDP_LINES_MAX)), Ok(()));
    assert_eq!(is_fit(&lines(SDP_LINES_MAX + 1)), too_much("lines", SDP_LINES_MAX));

    let section = |n: usize| format!("m=video 0 UDP/TLS/RTP/SAVPF 0\na=mid:{n}\na=inactive\n");
    let sections = |count: usize| DEVICE.to_owned() + &(2..count).map(section).collect::<String>();
    assert_eq!(is_fit(&sections(SDP_SECTIONS_MAX)), Ok(()));
    assert_eq!(
        is_fit(&sections(SDP_SECTIONS_MAX + 1)),
        too_much("sections", SDP_SECTIONS_MAX)
    );

    let mid = |bytes: usize| "m".repeat(bytes);
    let named = |bytes: usize| DEVICE.replace("datachannel", &mid(bytes));
    assert_eq!(is_fit(&named(SDP_MID_BYTES_MAX)), Ok(()));
    assert_eq!(
        is_fit(&named(SDP_MID_BYTES_MAX + 1)),
        Err(SdpError::InvalidMid(mid(40)))
    );

    let password = |bytes: usize| DEVICE.replace("qW7eR2tY9uI4oP6aS1dF8gHj", &"p".repeat(bytes));
    assert_eq!(is_fit(&password(ICE_PWD_BYTES_MAX)), Ok(()));
    assert!(is_fit(&password(ICE_PWD_BYTES_MAX + 1)).is_err());
    assert!(
        is_fit(&DEVICE.replace(
            "=ice-ufrag:qW7e",
            &format!("=ice-ufrag:{}", "u".repeat(ICE_UFRAG_BYTES_MAX + 1))
        ))
        .is_err()
    );
}

/// str0m panics on a user name over 128 bytes in a check, so the longest accepted one must fit.
#[test]
fn the_longest_user_name_fragment_fits_in_a_check() {
    let offer = DEVICE.replace(
        "=ice-ufrag:qW7e",
        &format!("=ice-ufrag:{}", "u".repeat(ICE_UFRAG_BYTES_MAX)),
    );
    let (mut rtc, _) = answer(&offer);
    let candidate = "candidate:1 1 udp 2125395455 192.0.2.57 51811 typ host";
    rtc.add_remote_candidate(Candidate::from_sdp_string(candidate).expect("a candidate"));
    let start = Instant::now();
    let mut checks = 0;
    for step in 0..10 {
        let now = start + Duration::from_millis(50 * step);
        rtc.handle_input(Input::Timeout(now)).expect("time passes");
        while let Output::Transmit(_) | Output::Event(_) = rtc.poll_output().expect("an output") {
            checks += 1;
        }
    }
    assert!(checks > 0, "no check was written");
}

// Answers

#[test]
fn answers_match_the_golden_files() {
    for (answer, device, browser) in [
        (CHATTY, CHATTY_DEVICE, CHATTY_BROWSER),
        (STR0M, STR0M_DEVICE, STR0M_BROWSER),
    ] {
        for answer in [answer.to_owned(), crlf(answer), answer.trim_end().to_owned()] {
            let rewritten = rewrite_answer_for_device(&answer, HOST, DtlsRole::Client).expect("safe");
            assert_eq!(rewritten, crlf(device));
            DeviceView::check(&rewritten);
            assert_eq!(
                rewrite_answer_for_device(&rewritten, HOST, DtlsRole::Client),
                Ok(rewritten),
                "what is safe stays as it is"
            );
            assert_eq!(keep_only_host_candidate(&answer, HOST), Ok(crlf(browser)));
        }
    }
}

/// addresses are compared as addresses; prefixes, foundations and priorities do not match.
#[test]
fn an_address_that_starts_like_the_hosts_is_another() {
    let answer = STR0M
        .replace("192.0.2.100 ", "10.0.0.1 ")
        .replace("192.0.2.10 ", "10.0.0.10 ")
        .replace("fffcff7e3ffe6057ca77fbd0", "10.0.0.2");
    for host in ["10.0.0.1", "10.0.0.10"] {
        let rewritten =
            rewrite_answer_for_device(&answer, host.parse().expect("an address"), DtlsRole::Client).expect("safe");
        assert_eq!(DeviceView::of(&rewritten).candidates, [host]);
    }
    let other: Ipv4Addr = "10.0.0.2".parse().expect("an address");
    let error = rewrite_answer_for_device(&answer, other, DtlsRole::Client).expect_err("refused");
    let available = ["10.0.0.10", "10.0.0.1", "2001:db8::10"].map(str::to_owned).to_vec();
    assert_eq!(error, DeviceAnswerError::NoCandidate { host: other, available });
    let text = error.to_string();
    assert!(
        text.contains("10.0.0.2,") && text.contains("10.0.0.10, 10.0.0.1, 2001:db8::10"),
        "{text}"
    );
    assert_eq!(keep_only_host_candidate(&answer, other), Err(error));
    let none = keep_only_host_candidate("v=0\r\n", other).expect_err("refused");
    assert!(none.to_string().contains("10.0.0.2"), "{none}");
}

/// with many interfaces, a device gets one candidate, and a browser all of the host's.
#[test]
fn one_candidate_is_left_of_many() {
    let line = |n: usize| format!("a=candidate:{n} 1 udp 1 192.0.2.{} 7860 typ host\r\n", n % 12);
    let many = (0..60).map(line).collect::<String>();
    let answer = CHATTY.replace("a=end-of-candidates\n", &many);
    let rewritten = rewrite_answer_for_device(&answer, HOST, DtlsRole::Client).expect("safe");
    assert_eq!(rewritten.matches("a=candidate:").count(), 1);
    assert!(rewritten.contains(" 47002 "), "the first");
    let kept = keep_only_host_candidate(&answer, HOST).expect("one of the host");
    assert_eq!(kept.matches("a=candidate:").count(), 2 + 5);
}

#[test]
fn harmful_answers_are_rejected() {
    let refused = |from: &str, to: &str| {
        let answer = STR0M.replace(from, to);
        assert_ne!(answer, STR0M, "{from}");
        rewrite_answer_for_device(&answer, HOST, DtlsRole::Client).expect_err("refused")
    };
    assert_eq!(refused("C3:18:7D", "C3:18:7"), DeviceAnswerError::Fingerprint);
    assert_eq!(refused("C3:18:7D:", "C3:18:"), DeviceAnswerError::Fingerprint);
    assert_eq!(refused("sha-256", "sha-512"), DeviceAnswerError::Fingerprint);
    assert_eq!(
        refused("a=setup:active\na=mid:audio", "a=fingerprint:sha-256 00:01"),
        DeviceAnswerError::Fingerprint
    );
    let other = STR0M.replacen("C3:18:7D", "C3:18:7E", 1);
    assert_eq!(
        rewrite_answer_for_device(&other, HOST, DtlsRole::Client),
        Err(DeviceAnswerError::Fingerprint),
        "two values"
    );
    assert_eq!(refused("cname", "label"), DeviceAnswerError::Ssrc { count: 0 });
    assert_eq!(
        refused("a=rtcp-mux\n", "a=ssrc:7 cname:x\n"),
        DeviceAnswerError::Ssrc { count: 2 }
    );
    assert_eq!(
        refused("setup:active", "setup:passive"),
        DeviceAnswerError::Setup(DtlsRole::Client)
    );
    assert_eq!(
        refused("setup:active", "setup:actpass"),
        DeviceAnswerError::Setup(DtlsRole::Client)
    );
    assert_eq!(
        refused("a=setup:active\n", ""),
        DeviceAnswerError::Setup(DtlsRole::Client)
    );
    assert_eq!(refused("t=0 0\n", "t=0 0\na=ice-lite\n"), DeviceAnswerError::IceLite);
    assert_eq!(refused("opus", "G722"), DeviceAnswerError::NoCodec);
    assert_eq!(refused("m=audio", "m=video"), DeviceAnswerError::NoCodec);
    assert_eq!(refused("s=-", "s=\t"), DeviceAnswerError::ControlCharacter);
    let foundation = |bytes: usize| STR0M.replace("fffeff7ea14b7dc8d908d0bf", &"f".repeat(bytes));
    assert!(rewrite_answer_for_device(&foundation(31), HOST, DtlsRole::Client).is_ok());
    assert!(
        rewrite_answer_for_device(&foundation(32), HOST, DtlsRole::Client).is_err(),
        "a device has room for 31"
    );
    for kind in [
        "prflx",
        "srflx raddr 192.0.2.10 rport 7860",
        "host raddr 192.0.2.10 rport 7860",
    ] {
        let refusal = refused(" 7860 typ host", &format!(" 7860 typ {kind}"));
        assert!(matches!(refusal, DeviceAnswerError::NoCandidate { .. }), "{kind}");
    }
}

/// The device uses the last SSRC after `m=audio`, even of another section.
#[test]
fn only_the_audio_section_has_an_ssrc() {
    let answer = STR0M.replace("a=sctp-port:5000\n", "a=sctp-port:5000\na=ssrc:9 cname:x\n");
    let rewritten = rewrite_answer_for_device(&answer, HOST, DtlsRole::Client).expect("safe");
    assert_eq!(DeviceView::of(&rewritten).ssrc, "1985229328");
}

#[test]
fn a_device_answer_is_taken_up_to_its_caps() {
    let named = |bytes: usize| STR0M.replace("s=-", &format!("s={}", "n".repeat(bytes - 2)));
    assert!(rewrite_answer_for_device(&named(DEVICE_LINE_BYTES_MAX), HOST, DtlsRole::Client).is_ok());
    assert_eq!(
        rewrite_answer_for_device(&named(DEVICE_LINE_BYTES_MAX + 1), HOST, DtlsRole::Client),
        Err(DeviceAnswerError::LineTooLong {
            bytes: DEVICE_LINE_BYTES_MAX + 1
        })
    );

    let body = |sdp: &str| {
        let body = serde_json::json!({"sdp": sdp, "type": "answer", "pc_id": "x".repeat(PC_ID_BYTES_MAX)});
        body.to_string().len()
    };
    let start = body(&rewrite_answer_for_device(STR0M, HOST, DtlsRole::Client).expect("safe"));
    // Quotes take two bytes in JSON, and each byte of a line end two.
    let padded = |bytes: usize| {
        let (lines, rest) = ((bytes - start) / 100, (bytes - start) % 100);
        assert!(rest >= 7, "room for a last line");
        let line = format!("a={}\"\"{}\n", "x".repeat(45), "x".repeat(45));
        let last = format!("a={}\n", "x".repeat(rest - 6));
        STR0M.replace("a=sctp-port", &(line.repeat(lines) + &last + "a=sctp-port"))
    };
    let full = rewrite_answer_for_device(&padded(DEVICE_BODY_BYTES_MAX), HOST, DtlsRole::Client).expect("safe");
    assert_eq!(body(&full), DEVICE_BODY_BYTES_MAX);
    let bytes = DEVICE_BODY_BYTES_MAX + 1;
    assert_eq!(
        rewrite_answer_for_device(&padded(bytes), HOST, DtlsRole::Client),
        Err(DeviceAnswerError::BodyTooLong { bytes })
    );
}

/// A browser's video sections are declined as inactive, in the bundle, with an offered format and
/// their mid. The rest does not change.
#[test]
fn a_browsers_video_is_declined_in_the_bundle() {
    let (_, answer) = answer(CHROME);
    let prepared = prepare_offer(CHROME).expect("the offer is fit");
    let named = rewrite_declined_sections(&answer, &prepared.sdp);
    let declined: Vec<&str> = named.lines().filter(|line| line.starts_with("m=video 9 ")).collect();
    assert_eq!(declined.len(), prepared.sdp.matches("\nm=video").count());
    assert!(!named.contains("m=video 0"));
    for media in &declined {
        let format = media.rsplit(' ').next().expect("a section has a format");
        assert_ne!(format, "0");
        assert!(
            named.contains(&format!("\r\na=rtpmap:{format} ")),
            "{format} has no name"
        );
    }
    for section in named.split("m=video").skip(1) {
        let section = section.split("\r\nm=").next().expect("a section");
        for wanted in [
            "a=inactive",
            "a=rtcp-mux",
            "a=ice-ufrag:",
            "a=fingerprint:sha-256 ",
            "a=setup:",
        ] {
            assert!(section.contains(wanted), "{wanted} is not in {section}");
        }
    }
    let group = |text: &str| -> Option<String> {
        let mut lines = text.lines();
        lines.find(|line| line.starts_with("a=group:BUNDLE")).map(str::to_owned)
    };
    assert_eq!(group(&named), group(CHROME));
    let other = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with("m=video"));
        lines
            .filter(|line| !line.starts_with("a=rtpmap") && !line.starts_with("a=group"))
            .filter(|line| !["a=inactive", "a=sendrecv", "a=recvonly", "a=rtcp-mux"].contains(line))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(other(&named), other(&answer));
    // A media-room server expects them outside.
    let outside = name_rejected_formats(&answer, &prepared.sdp);
    assert_eq!(outside.matches("m=video 0 ").count(), declined.len());
    assert_eq!(group(&outside), group(&answer));
}

/// Sections outside of the transport with audio, and those of other kinds, are taken out and
/// declined in their places.
#[test]
fn unusable_sections_are_taken_out_and_declined() {
    let declined = |offer: &str| -> (Vec<usize>, String) {
        let prepared = prepare_offer(offer).expect("fit");
        let sections = prepared.sdp.matches("\r\nm=").count();
        assert_eq!(sections + prepared.declined.len(), offer.matches("\nm=").count());
        (
            prepared.declined.iter().map(|section| section.index).collect(),
            prepared.declined.iter().map(|section| section.lines.as_str()).collect(),
        )
    };
    let grouped = |group: &str| CHROME.replace("a=group:BUNDLE 0 1 2 3", group);
    let places = |offer: &str| declined(offer).0;
    assert_eq!(places(CHROME), [0; 0]);
    assert_eq!(places(&grouped("a=group:BUNDLE 0 3")), [1, 2]);
    assert_eq!(places(&grouped("a=group:BUNDLE 0")), [1, 2, 3]);
    assert_eq!(places(&grouped("a=group:BUNDLE 3")), [0; 0], "audio is in no bundle");
    let stopped = CHROME.replace("m=audio 9 ", "m=audio 0 ");
    assert_eq!(places(&stopped.replace("BUNDLE 0 1 2 3", "BUNDLE 1 2 3")), [0; 0]);
    let stopped = CHROME.replace("m=video 9 ", "m=video 0 ");
    assert_eq!(places(&stopped.replace("BUNDLE 0 1 2 3", "BUNDLE 0 3")), [0; 0]);
    assert_eq!(places(&grouped("a=x-none")), [0; 0], "the credentials are the same");
    let lines = declined(&grouped("a=group:BUNDLE 0")).1;
    assert!(
        lines.starts_with(
            "m=video 0 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:1\r\na=rtpmap:96 VP8/90000\r\na=inactive\r\n"
        ),
        "{lines}"
    );
    assert_eq!(
        places(&DEVICE.replace("a=group:BUNDLE audio datachannel\n", "")),
        [0; 0]
    );

    let other = "m=message 9 TCP/TLS/MSRP *\na=mid:9\na=rtpmap:* x\n";
    let (places, lines) = declined(&format!("{CHROME}{other}m=text 9 RTP/AVP\n"));
    assert_eq!(places, [4, 5]);
    assert_eq!(
        lines,
        "m=message 0 TCP/TLS/MSRP *\r\nc=IN IP4 0.0.0.0\r\na=mid:9\r\na=rtpmap:* x\r\na=inactive\r\n\
         m=text 0 RTP/AVP 0\r\nc=IN IP4 0.0.0.0\r\na=inactive\r\n"
    );
    let channel_over_tcp = DEVICE.replace("UDP/DTLS/SCTP", "TCP/DTLS/SCTP");
    let prepared = prepare_offer(&channel_over_tcp).expect("fit");
    assert!(!prepared.has_application && prepared.declined.len() == 1);
    let texts = "v=0\nm=text 9 RTP/AVP 0\nm=video 9 RTP/AVP 0\n";
    assert_eq!(prepare_offer(texts), Err(SdpError::NoAudio));
    for (section, what, word) in [
        ("m=text 9 RTP/AVP 0\n", "media", "text"),
        ("m=video 9 RTP/AVP 0\n", "profile", "RTP/AVP"),
    ] {
        let refused = prepare_sfu_description(&format!("{CHROME}{section}"));
        let word = word.to_owned();
        assert_eq!(refused, Err(SdpError::Unsupported { what, word }));
    }
}
