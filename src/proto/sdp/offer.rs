//! Offers: what clients send, made fit for a parser that knows only what browsers write.
//!
//! In: the text of an offer, untrusted. Out: [`PreparedOffer`], with the candidates taken out (each is judged alone later, so
//! that no bad one costs the connection) and every harmless oddity put right: line ends, blank lines, profile words, order of
//! lines, missing directions, doubled attributes, payload types without a codec, group lines that name what is not there.
//! Refused: what stays ambiguous, and section names that str0m would change in the answer.

use std::collections::HashSet;
use std::fmt;

use super::{payload_type, split_attribute, split_line};
use crate::limits::{
    CANDIDATE_BYTES_MAX, ICE_PWD_BYTES_MAX, ICE_UFRAG_BYTES_MAX, OFFER_CANDIDATES_MAX, OFFER_SDP_BYTES_MAX,
    SDP_LINES_MAX, SDP_MID_BYTES_MAX, SDP_SECTIONS_MAX,
};

/// An offer that str0m can read, and what it says that matters before that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedOffer {
    /// The whole offer without candidates; CRLF after every line.
    pub sdp: String,
    /// `candidate:...` values in the order of the text, each once; none is checked.
    pub candidates: Vec<String>,
    /// The offer bears a microcontroller's mark: the profile `SAVP`, or the stream semantic `iot`.
    pub is_device: bool,
    /// A video section is there.
    pub has_video: bool,
    /// A data-channel section is there.
    pub has_application: bool,
}

/// Why an offer was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SdpError {
    /// More bytes, lines or sections than are taken.
    TooMuch { what: &'static str, max: usize },
    /// A control character, counted from line 1.
    ControlCharacter { line: usize },
    /// The text does not start with `v=0`.
    NotSdp,
    /// No `m=` line.
    NoSections,
    /// No `m=audio` line.
    NoAudio,
    /// An `m=` line without its four parts.
    Section(String),
    /// A kind of media, or a transport profile, that this runner has no answer for.
    Unsupported { what: &'static str, word: String },
    /// No payload type of a section has a codec.
    NoCodec { mid: String },
    /// A section name that is doubled, too long, or made of other characters than letters, digits and `_`.
    Mid(String),
    /// ICE credentials that cannot be used in a connectivity check.
    Credentials { what: &'static str, max: usize },
}

impl fmt::Display for SdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SdpError::TooMuch { what, max } => write!(f, "the offer's SDP has more than {max} {what}"),
            SdpError::ControlCharacter { line } => write!(f, "line {line} of the offer's SDP has a control character"),
            SdpError::NotSdp => write!(f, "the offer's SDP does not start with the line `v=0`"),
            SdpError::NoSections => write!(f, "the offer's SDP has no `m=` line"),
            SdpError::NoAudio => write!(f, "the offer's SDP has no `m=audio` line; a talk needs one"),
            SdpError::Section(line) => {
                write!(f, "the line `m={line}` is not `m=<media> <port> <profile> <formats>`")
            }
            SdpError::Unsupported { what, word } => write!(
                f,
                "the {what} `{word}` is not supported; sections are audio, video (UDP/TLS/RTP/SAVPF) and application \
                 (UDP/DTLS/SCTP)"
            ),
            SdpError::NoCodec { mid } => write!(f, "no payload type of the section `{mid}` has a codec"),
            SdpError::Mid(mid) => write!(
                f,
                "the section name `{mid}` is doubled or not 1 to {SDP_MID_BYTES_MAX} letters, digits and `_`"
            ),
            SdpError::Credentials { what, max } => {
                write!(
                    f,
                    "`a={what}` of the offer is not 1 to {max} visible characters without `:`"
                )
            }
        }
    }
}

/// Makes an offer fit for str0m.
///
/// # Errors
/// [`SdpError`] names what was refused and what is allowed.
pub fn prepare_offer(sdp: &str) -> Result<PreparedOffer, SdpError> {
    let lines = checked_lines(sdp)?;
    let mut candidates = Candidates::default();
    let mut session = Session::default();
    let mut sections: Vec<Section> = Vec::new();
    for line in lines {
        let Some((kind, value)) = split_line(line) else {
            continue;
        };
        let full = sections.len() == SDP_SECTIONS_MAX;
        match (kind, sections.last_mut()) {
            ('m', _) if full => {
                return Err(SdpError::TooMuch {
                    what: "sections",
                    max: SDP_SECTIONS_MAX,
                });
            }
            ('m', _) => sections.push(Section::new(value)?),
            ('a', _) if candidates.take(value) => {}
            ('a', Some(section)) => section.attributes.push(value),
            ('a', None) => session.attributes.push(value),
            ('o', None) => session.origin = session.origin.or(Some(value)),
            // Times, names, bandwidths and addresses say nothing that ICE does not replace, and out of order they end
            // str0m's reading without an error.
            _ => {}
        }
    }
    if sections.is_empty() {
        return Err(SdpError::NoSections);
    }
    if !sections.iter().any(|section| section.media == Media::Audio) {
        return Err(SdpError::NoAudio);
    }
    let is_device = session.is_iot() || sections.iter().any(|section| section.savp);
    let direction = session.attributes.iter().copied().find(|name| is_direction(name));
    let mut mids = HashSet::new();
    for (index, section) in sections.iter_mut().enumerate() {
        section.tidy(index, direction.unwrap_or("sendrecv"))?;
        if !mids.insert(section.mid.clone()) {
            return Err(SdpError::Mid(shown(&section.mid)));
        }
    }
    let answers_only = is_device.then(|| device_setup(&mut session, &mut sections)).flatten();
    let mut text = session.write(&sections, answers_only)?;
    for section in &sections {
        section.write(&mut text)?;
    }
    Ok(PreparedOffer {
        sdp: text,
        candidates: candidates.list,
        is_device,
        has_video: sections.iter().any(|section| section.media == Media::Video),
        has_application: sections.iter().any(|section| section.media == Media::Application),
    })
}

/// Splits the text into lines without their ends, blank ones left out.
fn checked_lines(sdp: &str) -> Result<Vec<&str>, SdpError> {
    if sdp.len() > OFFER_SDP_BYTES_MAX {
        return Err(SdpError::TooMuch {
            what: "bytes",
            max: OFFER_SDP_BYTES_MAX,
        });
    }
    let mut lines = Vec::new();
    for (index, line) in sdp.split('\n').enumerate() {
        let line = line.trim_end_matches(['\r', ' ', '\t']);
        if line.contains(|c: char| c.is_control() && c != '\t') {
            return Err(SdpError::ControlCharacter { line: index + 1 });
        }
        if !line.is_empty() {
            lines.push(line);
        }
        if lines.len() > SDP_LINES_MAX {
            return Err(SdpError::TooMuch {
                what: "lines",
                max: SDP_LINES_MAX,
            });
        }
    }
    match lines.first() {
        Some(&"v=0") => Ok(lines),
        _ => Err(SdpError::NotSdp),
    }
}

/// Candidates of all sections: browsers repeat them in each, microcontrollers put them in the last.
#[derive(Default)]
struct Candidates {
    list: Vec<String>,
    seen: HashSet<String>,
}

impl Candidates {
    /// Keeps a candidate; tells whether the attribute was about candidates at all.
    fn take(&mut self, attribute: &str) -> bool {
        let (name, _) = split_attribute(attribute);
        if name == "candidate"
            && attribute.len() <= CANDIDATE_BYTES_MAX
            && self.list.len() < OFFER_CANDIDATES_MAX
            && self.seen.insert(attribute.to_owned())
        {
            self.list.push(attribute.to_owned());
        }
        matches!(name, "candidate" | "end-of-candidates")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Media {
    Audio,
    Video,
    Application,
}

impl Media {
    fn word(self) -> &'static str {
        match self {
            Media::Audio => "audio",
            Media::Video => "video",
            Media::Application => "application",
        }
    }
}

/// What stands before the first `m=` line.
#[derive(Default)]
struct Session<'a> {
    origin: Option<&'a str>,
    attributes: Vec<&'a str>,
}

impl Session<'_> {
    fn is_iot(&self) -> bool {
        self.attributes.iter().any(|attribute| {
            let (name, value) = split_attribute(attribute);
            name == "msid-semantic" && value.trim() == "iot"
        })
    }

    fn write(&self, sections: &[Section<'_>], setup: Option<&str>) -> Result<String, SdpError> {
        let origin = self.origin.filter(|origin| is_origin(origin));
        let mut text = String::from("v=0\r\n");
        push_line(&mut text, &["o=", origin.unwrap_or("- 0 0 IN IP4 0.0.0.0")]);
        text.push_str("s=-\r\nt=0 0\r\n");
        push_line(&mut text, &["a=group:BUNDLE", &self.bundle(sections)]);
        for attribute in &self.attributes {
            if is_plain(attribute) && !attribute.starts_with("group:") {
                check_credentials(attribute)?;
                push_line(&mut text, &["a=", attribute]);
            }
        }
        if let Some(setup) = setup {
            push_line(&mut text, &["a=setup:", setup]);
        }
        Ok(text)
    }

    /// Returns the names of the bundled sections in the order of the sections, each after a space.
    ///
    /// Devices without a data channel still name it here, and str0m wants exactly what is there. Without a group line there is
    /// nothing to choose from: all media of this runner share one transport.
    fn bundle(&self, sections: &[Section<'_>]) -> String {
        let offered: Option<Vec<&str>> = self
            .attributes
            .iter()
            .find_map(|attribute| attribute.strip_prefix("group:BUNDLE "))
            .map(|mids| mids.split(' ').collect());
        sections
            .iter()
            .filter(|section| match &offered {
                Some(mids) => mids.contains(&section.mid.as_str()),
                None => section.port != "0",
            })
            .fold(String::new(), |text, section| text + " " + &section.mid)
    }
}

/// One `m=` line and the attributes below it.
struct Section<'a> {
    media: Media,
    port: &'a str,
    /// The profile was the one without feedback.
    savp: bool,
    formats: Vec<&'a str>,
    attributes: Vec<&'a str>,
    mid: String,
    /// Set when the offer gives no direction.
    direction: Option<&'a str>,
}

impl<'a> Section<'a> {
    fn new(line: &'a str) -> Result<Self, SdpError> {
        let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
        let (Some(media), Some(port), Some(profile)) = (words.next(), words.next(), words.next()) else {
            return Err(SdpError::Section(shown(line)));
        };
        let unsupported = |what, word: &str| SdpError::Unsupported {
            what,
            word: shown(word),
        };
        let media = [Media::Audio, Media::Video, Media::Application]
            .into_iter()
            .find(|kind| kind.word() == media)
            .ok_or_else(|| unsupported("media", media))?;
        let known: &[&str] = match media {
            Media::Audio | Media::Video => &["UDP/TLS/RTP/SAVPF", "RTP/SAVPF", "UDP/TLS/RTP/SAVP", "RTP/SAVP"],
            Media::Application => &["UDP/DTLS/SCTP", "DTLS/SCTP"],
        };
        if !known.contains(&profile) {
            return Err(unsupported("profile", profile));
        }
        Ok(Section {
            media,
            port,
            savp: profile.ends_with("/SAVP"),
            formats: words.collect(),
            attributes: Vec::new(),
            mid: String::new(),
            direction: None,
        })
    }

    /// Leaves each attribute at most as often as str0m takes it, and only for payload types that have a codec.
    fn tidy(&mut self, index: usize, default_direction: &'a str) -> Result<(), SdpError> {
        let mid = self
            .attributes
            .iter()
            .find_map(|attribute| attribute.strip_prefix("mid:"));
        self.mid = mid.map_or_else(|| index.to_string(), str::to_owned);
        let is_name = |mid: &str| mid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if self.mid.len() > SDP_MID_BYTES_MAX || !is_name(&self.mid) {
            return Err(SdpError::Mid(shown(&self.mid)));
        }
        if self.media == Media::Application {
            // Written by one browser in a trial; with it str0m skips the handshake that it otherwise does.
            self.attributes
                .retain(|attribute| is_plain(attribute) && !attribute.starts_with("sctp-init:"));
        } else {
            self.tidy_formats();
            if self.formats.is_empty() && self.port != "0" {
                return Err(SdpError::NoCodec { mid: self.mid.clone() });
            }
            if !self.attributes.iter().any(|attribute| is_direction(attribute)) {
                self.direction = Some(default_direction);
            }
        }
        let mut seen = HashSet::new();
        self.attributes.retain(|attribute| {
            let (name, value) = split_attribute(attribute);
            match name {
                "mid" => false,
                "setup" => seen.insert("setup".to_owned()),
                "rtpmap" => seen.insert(format!("rtpmap:{:?}", payload_type(value))),
                _ if is_direction(attribute) => seen.insert("direction".to_owned()),
                _ => true,
            }
        });
        Ok(())
    }

    fn tidy_formats(&mut self) {
        let mapped: HashSet<u8> = self
            .attributes
            .iter()
            .filter_map(|attribute| attribute.strip_prefix("rtpmap:"))
            .filter_map(mapped_payload_type)
            .collect();
        let mut kept = HashSet::new();
        self.formats.retain(|format| {
            payload_type(format)
                .filter(|number| mapped.contains(number) || STATIC_PAYLOAD_TYPES.contains(number))
                .is_some_and(|number| kept.insert(number))
        });
        self.attributes.retain(|attribute| {
            let (name, value) = split_attribute(attribute);
            let belongs = || payload_type(value).is_some_and(|number| kept.contains(&number));
            is_plain(attribute)
                && match name {
                    "rtpmap" => belongs() && mapped_payload_type(value).is_some(),
                    "fmtp" | "rtcp-fb" => belongs() || value.starts_with('*'),
                    _ => true,
                }
        });
    }

    fn write(&self, text: &mut String) -> Result<(), SdpError> {
        let profile = match self.media {
            Media::Audio | Media::Video => " UDP/TLS/RTP/SAVPF ",
            Media::Application => " UDP/DTLS/SCTP ",
        };
        push_line(
            text,
            &[
                "m=",
                self.media.word(),
                " ",
                self.port,
                profile,
                &self.formats.join(" "),
            ],
        );
        text.push_str("c=IN IP4 0.0.0.0\r\n");
        push_line(text, &["a=mid:", &self.mid]);
        if let Some(direction) = self.direction {
            push_line(text, &["a=", direction]);
        }
        for attribute in &self.attributes {
            check_credentials(attribute)?;
            push_line(text, &["a=", attribute]);
        }
        Ok(())
    }
}

/// Payload types that str0m knows without an `a=rtpmap` line: PCMU, PCMA, G722, CN (RFC 3551 section 6).
const STATIC_PAYLOAD_TYPES: [u8; 4] = [0, 8, 9, 13];

/// Returns the payload type of an `rtpmap` value, `None` when the rest of the value does not name a codec.
fn mapped_payload_type(value: &str) -> Option<u8> {
    let (_, codec) = value.split_once(' ')?;
    let mut parts = codec.split('/');
    let name = parts.next()?;
    let rate: u32 = parts.next()?.parse().ok()?;
    let channels_read = parts.next().is_none_or(|channels| channels.parse::<u8>().is_ok());
    (!name.is_empty() && rate > 0 && channels_read && parts.next().is_none()).then(|| payload_type(value))?
}

/// Takes the offers of DTLS roles out of a device's offer when they leave a choice, and returns the one to write instead.
///
/// A device is always the server of the handshake, whatever it offers; two servers would wait for each other.
fn device_setup(session: &mut Session<'_>, sections: &mut [Section<'_>]) -> Option<&'static str> {
    let all = || {
        session
            .attributes
            .iter()
            .chain(sections.iter().flat_map(|section| &section.attributes))
    };
    if all().any(|attribute| matches!(*attribute, "setup:active" | "setup:passive")) {
        return None;
    }
    let is_other = |attribute: &&str| !attribute.starts_with("setup:");
    session.attributes.retain(is_other);
    for section in sections {
        section.attributes.retain(is_other);
    }
    Some("passive")
}

/// Refuses credentials that str0m could not write into a connectivity check.
fn check_credentials(attribute: &str) -> Result<(), SdpError> {
    let (name, value) = split_attribute(attribute);
    let (what, max) = match name {
        "ice-ufrag" => ("ice-ufrag", ICE_UFRAG_BYTES_MAX),
        "ice-pwd" => ("ice-pwd", ICE_PWD_BYTES_MAX),
        _ => return Ok(()),
    };
    let is_visible = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    if value.is_empty() || value.len() > max || !value.bytes().all(is_visible) {
        return Err(SdpError::Credentials { what, max });
    }
    Ok(())
}

/// Returns the part of a peer's text that an error repeats.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

fn is_direction(attribute: &str) -> bool {
    matches!(attribute, "sendrecv" | "sendonly" | "recvonly" | "inactive")
}

/// An empty attribute would end str0m's reading.
fn is_plain(attribute: &str) -> bool {
    !attribute.is_empty()
}

/// Tells whether the value of an `o=` line has its six parts and an identifier that fits in 64 bits.
fn is_origin(origin: &str) -> bool {
    let words: Vec<&str> = origin.split(' ').collect();
    let [_, id, ..] = words[..] else {
        return false;
    };
    words.len() == 6 && words.iter().all(|word| !word.is_empty()) && is_u64(id)
}

fn is_u64(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit()) && word.parse::<u64>().is_ok()
}

fn push_line(text: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| text.push_str(part));
    text.push_str("\r\n");
}
