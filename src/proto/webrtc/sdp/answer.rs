//! Adapts answers to microcontrollers, and to browsers of a runner with `--embedded`.
//!
//! In: an answer and the one address to offer. Out: the answer with that address as its only
//! candidate. A device's answer also loses every line that its parser mishandles, and is checked.
//! The device copies lines into 256 bytes without a check, uses the last fingerprint and SSRC,
//! tries candidates in order, and reads 4096 bytes. An answer that breaks one of these rules
//! becomes an error reply, because the device would fail silently. Source: `docs/spec/devices.md`
//! 4.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::client_stack::DtlsRole;
use super::{payload_type, split_attribute, split_line};
use crate::audio::codec::Codec;
use crate::limits::{DEVICE_BODY_BYTES_MAX, DEVICE_LINE_BYTES_MAX, LOCAL_ADDRESSES_MAX, PC_ID_BYTES_MAX};

/// Why an answer must not be sent to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceAnswerError {
    /// No candidate has the address to offer; `available` lists the others.
    NoCandidate { host: Ipv4Addr, available: Vec<String> },
    /// The audio section has no supported codec.
    NoCodec,
    /// Not exactly one SHA-256 fingerprint of 32 bytes.
    Fingerprint,
    /// Not exactly one SSRC in an audio section that sends.
    Ssrc { count: usize },
    /// The answer has another DTLS role than the offer requires.
    Setup(DtlsRole),
    /// ICE-lite: the device needs the runner's checks to stay connected.
    IceLite,
    /// A line with a control character.
    ControlCharacter,
    /// A line exceeds the device's buffer.
    LineTooLong { bytes: usize },
    /// The JSON body exceeds the device's buffer.
    BodyTooLong { bytes: usize },
}

impl fmt::Display for DeviceAnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no answer for a microcontroller: ")?;
        match self {
            DeviceAnswerError::NoCandidate { host, available } if available.is_empty() => {
                write!(f, "no candidate has the address {host}, and there is no other")
            }
            DeviceAnswerError::NoCandidate { host, available } => {
                write!(f, "no candidate has the address {host}, only {}", available.join(", "))
            }
            DeviceAnswerError::NoCodec => write!(f, "audio without a codec that is spoken here"),
            DeviceAnswerError::Fingerprint => write!(f, "not exactly one SHA-256 fingerprint"),
            DeviceAnswerError::Ssrc { count } => write!(f, "{count} audio SSRCs, which are too many or too few"),
            DeviceAnswerError::Setup(role) => write!(
                f,
                "the sections of the offer have several DTLS roles; they ask for `a=setup:{}`",
                role.setup()
            ),
            DeviceAnswerError::IceLite => write!(f, "ICE-lite"),
            DeviceAnswerError::ControlCharacter => write!(f, "a control character in a line"),
            DeviceAnswerError::LineTooLong { bytes } => {
                write!(f, "a line of {bytes} bytes, {DEVICE_LINE_BYTES_MAX} are taken")
            }
            DeviceAnswerError::BodyTooLong { bytes } => {
                write!(f, "a body of {bytes} bytes, {DEVICE_BODY_BYTES_MAX} are taken")
            }
        }
    }
}

/// Keeps only candidates with the address `host`, for a browser of a runner with `--embedded`.
///
/// # Errors
/// [`DeviceAnswerError::NoCandidate`] if none is left.
pub fn keep_only_host_candidate(answer: &str, host: Ipv4Addr) -> Result<String, DeviceAnswerError> {
    let mut candidates = CandidateFilter::new(host);
    let mut text = String::with_capacity(answer.len());
    for line in answer.lines() {
        if line
            .strip_prefix("a=candidate:")
            .is_none_or(|value| candidates.matches_host(value))
        {
            text.push_str(line);
            text.push_str("\r\n");
        }
    }
    candidates.require_match()?;
    Ok(text)
}

/// Rewrites an answer for a microcontroller.
///
/// # Errors
/// [`DeviceAnswerError`] names the rule that the rewritten answer would break.
pub fn rewrite_answer_for_device(answer: &str, host: Ipv4Addr, role: DtlsRole) -> Result<String, DeviceAnswerError> {
    let payload_type = preferred_payload_type(answer).ok_or(DeviceAnswerError::NoCodec)?;
    let mut rewrite = AnswerRewriter {
        candidates: CandidateFilter::new(host),
        payload_type,
        role,
        in_audio: false,
        fingerprints: Vec::new(),
        ssrcs: Vec::new(),
        sends: false,
        has_role: false,
    };
    let mut text = String::with_capacity(answer.len());
    for line in answer.lines() {
        if let Some(line) = rewrite.rewrite_line(line)? {
            check_line(&line)?;
            text.push_str(&line);
            text.push_str("\r\n");
        }
    }
    rewrite.check()?;
    check_body(&text)?;
    Ok(text)
}

/// The state of a rewrite.
struct AnswerRewriter {
    candidates: CandidateFilter,
    /// The payload type of the remaining codec.
    payload_type: u8,
    role: DtlsRole,
    in_audio: bool,
    /// Distinct values in upper case.
    fingerprints: Vec<String>,
    /// Distinct SSRCs of the audio section.
    ssrcs: Vec<String>,
    /// The audio section sends; a microphone does not request audio.
    sends: bool,
    has_role: bool,
}

impl AnswerRewriter {
    /// Returns the line for the device, or `None` to omit it.
    fn rewrite_line(&mut self, line: &str) -> Result<Option<String>, DeviceAnswerError> {
        let Some((kind, value)) = split_line(line) else {
            return Ok(None);
        };
        Ok(match kind {
            'm' => {
                self.in_audio = value.starts_with("audio ");
                Some(if self.in_audio {
                    self.keep_one_format(line)
                } else {
                    line.to_owned()
                })
            }
            'a' => self.rewrite_attribute(value)?.map(|attribute| format!("a={attribute}")),
            _ => Some(line.to_owned()),
        })
    }

    fn rewrite_attribute(&mut self, attribute: &str) -> Result<Option<String>, DeviceAnswerError> {
        let (name, value) = split_attribute(attribute);
        let keep = match name {
            "fingerprint" => return self.rewrite_fingerprint(value),
            // Further candidates, even duplicates, only take up space.
            "candidate" => self.candidates.require_match().is_err() && self.candidates.matches_host(value),
            "ssrc" => self.in_audio && self.keeps_ssrc(value),
            "ice-lite" => return Err(DeviceAnswerError::IceLite),
            "setup" if value != self.role.setup() => return Err(DeviceAnswerError::Setup(self.role)),
            "setup" => {
                self.has_role = true;
                true
            }
            "sendrecv" | "sendonly" => {
                self.sends |= self.in_audio;
                true
            }
            "rtpmap" | "fmtp" if self.in_audio => payload_type(value) == Some(self.payload_type),
            "rtcp" | "rtcp-fb" | "rtcp-rsize" | "ice-options" | "end-of-candidates" | "ssrc-group" => false,
            _ => !name.starts_with("extmap") && !name.starts_with("msid"),
        };
        Ok(keep.then(|| attribute.to_owned()))
    }

    /// Handles a fingerprint. The device uses the last one, of whatever algorithm, and compares it
    /// as text.
    fn rewrite_fingerprint(&mut self, value: &str) -> Result<Option<String>, DeviceAnswerError> {
        let (algorithm, hex) = value.split_once(' ').ok_or(DeviceAnswerError::Fingerprint)?;
        if !algorithm.eq_ignore_ascii_case("sha-256") {
            return Ok(None);
        }
        let hex = hex.trim().to_ascii_uppercase();
        let is_byte = |pair: &str| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
        if hex.split(':').count() != 32 || !hex.split(':').all(is_byte) {
            return Err(DeviceAnswerError::Fingerprint);
        }
        let attribute = format!("fingerprint:sha-256 {hex}");
        if !self.fingerprints.contains(&hex) {
            self.fingerprints.push(hex);
        }
        Ok(Some(attribute))
    }

    /// Keeps the first `cname` line of each SSRC.
    fn keeps_ssrc(&mut self, value: &str) -> bool {
        let (ssrc, about) = value.split_once(' ').unwrap_or((value, ""));
        let new = !self.ssrcs.iter().any(|known| known == ssrc);
        let keep = new && about.starts_with("cname:");
        if keep {
            self.ssrcs.push(ssrc.to_owned());
        }
        keep
    }

    fn keep_one_format(&self, line: &str) -> String {
        let kept: Vec<&str> = line
            .split(' ')
            .enumerate()
            .filter(|(index, word)| *index < 3 || payload_type(word) == Some(self.payload_type))
            .map(|(_, word)| word)
            .collect();
        kept.join(" ")
    }

    fn check(&self) -> Result<(), DeviceAnswerError> {
        self.candidates.require_match()?;
        if self.fingerprints.len() != 1 {
            return Err(DeviceAnswerError::Fingerprint);
        }
        if self.ssrcs.len() != usize::from(self.sends) {
            return Err(DeviceAnswerError::Ssrc {
                count: self.ssrcs.len(),
            });
        }
        if !self.has_role {
            return Err(DeviceAnswerError::Setup(self.role));
        }
        Ok(())
    }
}

/// Returns the preferred supported payload type of the audio section.
fn preferred_payload_type(answer: &str) -> Option<u8> {
    let mut audio = answer.lines().skip_while(|line| !line.starts_with("m=audio "));
    let formats = audio.next()?.split(' ').skip(3);
    let attributes = audio.take_while(|line| !line.starts_with("m="));
    let maps: Vec<(&str, u8)> = attributes
        .filter_map(|line| line.strip_prefix("a=rtpmap:"))
        .filter_map(|value| {
            let codec = value.split(' ').nth(1).and_then(|codec| codec.split('/').next());
            codec.zip(payload_type(value))
        })
        .collect();
    let formats = formats.filter_map(payload_type);
    Codec::ALL.iter().find_map(|codec| {
        let is_map = |map: &(&str, u8), format: u8| map.0.eq_ignore_ascii_case(codec.name()) && map.1 == format;
        formats
            .clone()
            .find(|format| maps.iter().any(|map| is_map(map, *format)))
    })
}

/// Selects candidates of one host, and collects the other addresses.
struct CandidateFilter {
    host: Ipv4Addr,
    has_match: bool,
    others: Vec<String>,
}

impl CandidateFilter {
    fn new(host: Ipv4Addr) -> Self {
        CandidateFilter {
            host,
            has_match: false,
            others: Vec::new(),
        }
    }

    /// Returns whether a candidate is a UDP host candidate with the host's address.
    fn matches_host(&mut self, value: &str) -> bool {
        let words: Vec<&str> = value.split_ascii_whitespace().collect();
        let [
            foundation,
            component,
            transport,
            _,
            address,
            _,
            typ,
            kind,
            ref rest @ ..,
        ] = words[..]
        else {
            return false;
        };
        let fits = address.parse() == Ok(IpAddr::V4(self.host))
            && component == "1"
            && transport.eq_ignore_ascii_case("udp")
            && (typ, kind) == ("typ", "host")
            && !rest.contains(&"raddr")
            // The device keeps 32 bytes of it.
            && foundation.len() < 32;
        self.has_match |= fits;
        if !fits && self.others.len() < LOCAL_ADDRESSES_MAX && !self.others.iter().any(|other| other == address) {
            self.others.push(address.to_owned());
        }
        fits
    }

    fn require_match(&self) -> Result<(), DeviceAnswerError> {
        if self.has_match {
            return Ok(());
        }
        Err(DeviceAnswerError::NoCandidate {
            host: self.host,
            available: self.others.clone(),
        })
    }
}

fn check_line(line: &str) -> Result<(), DeviceAnswerError> {
    if line.contains(char::is_control) {
        return Err(DeviceAnswerError::ControlCharacter);
    }
    if line.len() > DEVICE_LINE_BYTES_MAX {
        return Err(DeviceAnswerError::LineTooLong { bytes: line.len() });
    }
    Ok(())
}

/// Checks the length of the JSON body, in which each line end takes four bytes.
fn check_body(sdp: &str) -> Result<(), DeviceAnswerError> {
    let frame = r#"{"sdp":,"type":"answer","pc_id":""}"#.len() + PC_ID_BYTES_MAX;
    let bytes = frame + serde_json::Value::from(sdp).to_string().len();
    if bytes > DEVICE_BODY_BYTES_MAX {
        return Err(DeviceAnswerError::BodyTooLong { bytes });
    }
    Ok(())
}
