//! Parses an answer as a microcontroller does: substrings and fixed buffers.
//!
//! In: the HTTP reply and the address to offer. Out: what the device uses, and the violated rules,
//! many of which would silently corrupt its memory. Source: `docs/spec/devices.md` 4.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::support::http::Reply;

/// The device's buffer for the body, with a margin for other servers.
const BODY_BYTES_MAX: usize = 4_000;
/// The device's unchecked line buffer has 256 bytes; the rest is margin.
const LINE_BYTES_MAX: usize = 200;
/// The device's candidate table is unchecked as well. A second candidate costs up to 17 s when the
/// first is dead.
const CANDIDATES_MAX: usize = 1;
/// Where the device reads the fingerprint, regardless of the text before.
const FINGERPRINT_AT: usize = "a=fingerprint:sha-256 ".len();
const FINGERPRINT_CHARS: usize = 32 * 3 - 1;
const FOUNDATION_CHARS_MAX: usize = 32;
const CREDENTIAL_CHARS_MAX: usize = 255;

/// What a device keeps of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub ufrag: String,
    pub pwd: String,
    pub fingerprint: String,
    /// Audio with another SSRC is dropped; `None` drops all audio.
    pub ssrc: Option<u32>,
    pub remote: SocketAddr,
    /// The runner starts the DTLS handshake.
    pub is_active: bool,
}

/// Parses the reply. `None` if the device would restart or fail; the violations tell why.
pub fn read(reply: &Reply, host: IpAddr) -> (Option<Answer>, Vec<String>) {
    let mut violations = Vec::new();
    if reply.status != 200 {
        violations.push(format!("status {} in place of 200: {}", reply.status, reply.text()));
        return (None, violations);
    }
    if reply.header("transfer-encoding").is_some() {
        violations.push("a transfer encoding in the reply".into());
    }
    if reply.header("content-length") != Some(&reply.body.len().to_string()) {
        violations.push(format!(
            "content-length {:?} of {} bytes",
            reply.header("content-length"),
            reply.body.len()
        ));
    }
    if reply.body.len() > BODY_BYTES_MAX {
        violations.push(format!("a body of {} bytes, {BODY_BYTES_MAX} fit", reply.body.len()));
    }
    let json = serde_json::from_slice::<serde_json::Value>(&reply.body).unwrap_or_default();
    let Some(sdp) = json["sdp"].as_str() else {
        violations.push(format!("no string `sdp` at the top of {}", reply.text()));
        return (None, violations);
    };
    let answer = read_sdp(sdp, host, &mut violations);
    (answer, violations)
}

/// Parses the SDP alone.
pub fn read_sdp(sdp: &str, host: IpAddr, violations: &mut Vec<String>) -> Option<Answer> {
    let mut say = |text: String| violations.push(format!("answer: {text}"));
    let (mut ufrag, mut pwd, mut ssrc) = (None, None, None);
    let (mut fingerprints, mut ssrcs) = (Vec::new(), BTreeSet::new());
    let mut candidates: Vec<Option<SocketAddr>> = Vec::new();
    let mut foundations = BTreeSet::new();
    let mut section = "";

    if sdp.replace("\r\n", "").contains(['\r', '\n']) {
        say("a line end that is not CRLF".into());
    }
    if !sdp.ends_with("\r\n") {
        say("the last line has no end and is not read".into());
    }
    // Text after the last CRLF is ignored.
    let lines: Vec<&str> = sdp.split("\r\n").collect();
    for line in &lines[..lines.len() - 1] {
        if line.len() > LINE_BYTES_MAX {
            say(format!(
                "a line of {} bytes, {LINE_BYTES_MAX} are safe: {line}",
                line.len()
            ));
        }
        if line.contains("m=video") {
            section = "video";
        } else if line.contains("m=audio") {
            section = "audio";
        }
        if line.contains("a=fingerprint") {
            fingerprints.push(line.get(FINGERPRINT_AT..).unwrap_or_default());
            if !line.starts_with("a=fingerprint:sha-256 ") {
                say(format!("a fingerprint that is cut at the wrong place: {line}"));
            }
        }
        if let Some((_, rest)) = line.split_once("a=ssrc:")
            && section == "audio"
        {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            ssrc = digits.parse::<u32>().ok();
            ssrcs.insert(digits);
        }
        if let Some(text) = line.strip_prefix("a=ice-ufrag:") {
            ufrag = Some(text);
        } else if let Some(text) = line.strip_prefix("a=ice-pwd:") {
            pwd = Some(text);
        } else if let Some(text) = line.strip_prefix("a=candidate:")
            // A repeated foundation is skipped, even with another address.
            && text.split(' ').next().is_some_and(|foundation| foundations.insert(foundation.to_owned()))
        {
            candidates.push(candidate(text, host, &mut say));
        }
        for never in ["a=ice-lite", "a=setup:actpass", "a=extmap:"] {
            if line.starts_with(never) {
                say(never.to_owned());
            }
        }
    }
    fingerprints.dedup();
    if fingerprints.len() != 1 {
        say(format!(
            "one fingerprint is wanted, the last of these counts: {fingerprints:?}"
        ));
    }
    let fingerprint = *fingerprints.last()?;
    let upper = |c: char| c.is_ascii_digit() || ('A'..='F').contains(&c) || c == ':';
    if fingerprint.len() != FINGERPRINT_CHARS || !fingerprint.chars().all(upper) {
        say(format!("not an upper-case SHA-256 fingerprint: {fingerprint}"));
    }
    if ssrcs.len() != 1 {
        say(format!(
            "one SSRC of audio is wanted, the last of these counts: {ssrcs:?}"
        ));
    }
    if candidates.len() > CANDIDATES_MAX {
        say(format!("{} candidates, {CANDIDATES_MAX} is wanted", candidates.len()));
    }
    if [ufrag, pwd]
        .iter()
        .flatten()
        .any(|text| text.len() > CREDENTIAL_CHARS_MAX)
    {
        say("ICE credentials that overflow their buffers".into());
    }
    let usable = candidates.into_iter().flatten().next();
    if usable.is_none() {
        say("no usable candidate: the device stays where it is until it is reset".into());
    }
    Some(Answer {
        ufrag: ufrag?.to_owned(),
        pwd: pwd?.to_owned(),
        fingerprint: fingerprint.to_owned(),
        ssrc,
        remote: usable?,
        is_active: sdp.contains("\r\na=setup:active\r\n"),
    })
}

/// Parses `F C T P A N typ K ...`; `None` if the device would skip it or wait in vain.
fn candidate(text: &str, host: IpAddr, say: &mut impl FnMut(String)) -> Option<SocketAddr> {
    let words: Vec<&str> = text.split(' ').collect();
    let [foundation, component, transport, _priority, ip, port, "typ", kind, ..] = words[..] else {
        say(format!("a candidate the device cannot read: {text}"));
        return None;
    };
    if foundation.len() > FOUNDATION_CHARS_MAX {
        say(format!("a foundation that overflows its buffer: {foundation}"));
    }
    if component != "1" || !["udp", "UDP"].contains(&transport) || kind != "host" || text.contains("raddr") {
        say(format!("a candidate that is not UDP, component 1, typ host: {text}"));
        return None;
    }
    match (ip.parse::<IpAddr>(), port.parse::<u16>()) {
        (Ok(ip), Ok(port)) if ip == host && port != 0 => Some((ip, port).into()),
        _ => {
            say(format!("a candidate that is not {host}: {text}"));
            None
        }
    }
}
