//! Generated offers: real ones, mutated by the grammar of SDP.
//!
//! In: the texts of real offers and a seed; equal seeds give equal offers. Out: text that is mostly
//! SDP, with lines and sections duplicated, dropped, moved and exchanged, and with keywords in the
//! wrong places. Source: RFC 8866.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::Instant;

use edge_runner_proto::limits;
use edge_runner_proto::session::Session as _;
use edge_runner_proto::webrtc::candidate::DeviceAddress;
use edge_runner_proto::webrtc::connection::{ConnectionContext, ConnectionSetup, IceSecret};
use edge_runner_proto::webrtc::gather::GatheredAddresses;
use edge_runner_proto::webrtc::session::WebRtcSession;

const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
/// An answer has a section for each of the offer, with candidates and codecs that the offer lacks.
const ANSWER_GROWTH: usize = 16;
/// Mutations of one offer. With more, no parser reads it to its end.
const CHANGES_MAX: u64 = 6;
/// Keywords of SDP.
const WORDS: [&str; 32] = [
    "0",
    "1",
    "9",
    "-1",
    "65535",
    "65536",
    "4294967296",
    "18446744073709551616",
    "audio",
    "video",
    "application",
    "opus/48000/2",
    "opus/48000",
    "PCMU/8000",
    "UDP/TLS/RTP/SAVPF",
    "UDP/DTLS/SCTP",
    "webrtc-datachannel",
    "BUNDLE",
    "LS",
    "actpass",
    "active",
    "passive",
    "holdconn",
    "sha-256",
    "sha-1",
    "typ",
    "host",
    "192.0.2.21",
    "::1",
    "",
    "%",
    "\u{fffd}",
];
/// Lines with a meaning in SDP.
const LINES: [&str; 24] = [
    "m=audio 9 UDP/TLS/RTP/SAVPF 111",
    "m=audio 0 UDP/TLS/RTP/SAVPF 0",
    "m=video 9 UDP/TLS/RTP/SAVPF 96",
    "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
    "m=text 9 RTP/AVP 98",
    "m=audio",
    "a=mid:0",
    "a=mid:",
    "a=group:BUNDLE 0 0 1",
    "a=group:BUNDLE",
    "a=ice-lite",
    "a=ice-ufrag:x",
    "a=ice-pwd:short",
    "a=setup:active",
    "a=fingerprint:sha-256 00",
    "a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid",
    "a=extmap:15/sendonly x",
    "a=rtpmap:111 opus/48000/2",
    "a=fmtp:111 stereo=1;maxptime=-1",
    "a=ssrc:0 cname:",
    "a=ssrc-group:FID 1 2",
    "a=sctp-port:0",
    "a=candidate:1 1 udp 4294967295 192.0.2.21 9 typ host",
    "a=end-of-candidates",
];

/// A deterministic random number generator (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end.max(1)
    }
}

/// Returns the offer of a seed.
pub fn make(real: &[String], seed: u64) -> String {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let pick = |random: &mut Random| -> Vec<String> {
        let text = &real[random.below(real.len())];
        text.lines().map(str::to_owned).collect()
    };
    let mut lines = pick(&mut random);
    let other = pick(&mut random);
    for _ in 0..1 + seed % CHANGES_MAX {
        change(&mut lines, &other, &mut random);
    }
    let end = ["\r\n", "\r\n", "\r\n", "\n", "\r"][random.below(5)];
    let mut text = lines.join(end);
    if random.below(8) > 0 {
        text.push_str(end);
    }
    text
}

fn change(lines: &mut Vec<String>, other: &[String], random: &mut Random) {
    let at = random.below(lines.len());
    let (from, to) = section(lines, at);
    match random.below(12) {
        0 if !lines.is_empty() => {
            lines.remove(at);
        }
        1 if !lines.is_empty() => lines.insert(at, lines[at].clone()),
        2 if !lines.is_empty() => {
            let with = random.below(lines.len());
            lines.swap(at, with);
        }
        3 => lines.insert(at, LINES[random.below(LINES.len())].to_owned()),
        4 => {
            let copy: Vec<String> = lines[from..to].to_vec();
            lines.splice(to..to, copy);
        }
        5 => {
            lines.drain(from..to);
        }
        6 => {
            let (from, to) = section(other, random.below(other.len()));
            lines.splice(at..at, other[from..to].iter().cloned());
        }
        7 => lines.insert(at, other[random.below(other.len())].clone()),
        8 if !lines.is_empty() => {
            let line = &mut lines[at];
            let cut = random.below(line.len() + 1);
            line.truncate(
                (0..=cut)
                    .rev()
                    .find(|cut| line.is_char_boundary(*cut))
                    .unwrap_or_default(),
            );
        }
        9 if !lines.is_empty() => lines[at] = lines[at].repeat(1 + random.below(40)),
        _ if !lines.is_empty() => {
            let word = WORDS[random.below(WORDS.len())];
            let line = &lines[at];
            let separators = [' ', ':', '=', '/', ';'];
            let words: Vec<&str> = line.split(separators).collect();
            let old = words[random.below(words.len())];
            lines[at] = line.replacen(old, word, 1);
        }
        _ => {}
    }
}

/// Returns the section of a line: from an `m=` to the next.
fn section(lines: &[String], at: usize) -> (usize, usize) {
    let begins = |line: &String| line.starts_with("m=");
    let from = lines[..at].iter().rposition(begins).unwrap_or_default();
    let after = lines.iter().skip(from + 1).position(begins);
    (from, after.map_or(lines.len(), |after| from + 1 + after))
}

/// The address for microcontrollers.
pub const DEVICE: DeviceAddress = DeviceAddress {
    address: HOST,
    is_guess: false,
};

/// Returns what a connection is created from, with a host candidate.
pub fn setup(embedded: Option<Ipv4Addr>, device: Option<DeviceAddress>) -> ConnectionSetup<'static> {
    static COMMON: LazyLock<ConnectionContext> = LazyLock::new(ConnectionContext::default);
    static NOTHING: GatheredAddresses = GatheredAddresses {
        reflexive: Vec::new(),
        relayed: Vec::new(),
    };
    const LOCAL: [SocketAddr; 1] = [SocketAddr::new(IpAddr::V4(HOST), 7860)];
    ConnectionSetup {
        context: &COMMON,
        local: &LOCAL,
        tcp: &[],
        gathered: &NOTHING,
        embedded,
        device,
        seed: 7,
        secret: IceSecret([7; 32]),
    }
}

/// Prepares an offer, answers it for a browser and a device, and checks that a second pass does not
/// change the output and that the output length is bounded by the offer. Returns whether it was
/// answered.
pub fn run(offer: &str) -> bool {
    super::sdp_offer(offer.as_bytes());
    let mut answered = false;
    for (embedded, device) in [(None, None), (None, Some(DEVICE)), (Some(HOST), Some(DEVICE))] {
        let setup = setup(embedded, device);
        let now = Instant::now();
        let Ok((mut session, answer)) = WebRtcSession::accept(offer, &setup, now) else {
            continue;
        };
        answered = true;
        assert!(answer.len() <= ANSWER_GROWTH * offer.len().max(1_000));
        if session.is_device() {
            assert!(answer.len() <= limits::DEVICE_BODY_BYTES_MAX);
            super::sdp_answer(answer.as_bytes());
        }
        // The same offer again must not invalidate anything.
        let _ = session.renegotiate(offer);
        session.handle_timeout(now);
    }
    answered
}
