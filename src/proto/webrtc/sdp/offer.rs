//! Normalizes offers to what browsers write, so that [`super::SdpDescription`] can read them.
//!
//! In: an untrusted offer. Out: a [`PreparedOffer`]. Candidates are extracted, since each is
//! checked alone and an invalid one must not fail the offer. Harmless deviations are corrected:
//! line ends, blank lines, profiles, line order, missing directions, duplicate attributes, payload
//! types without a codec, and group lines that name missing sections. A client's sections of
//! unsupported media, and those outside of the one transport, are taken out and declined. Rejected:
//! ambiguous offers, and section names that cannot be repeated in packets.

use std::collections::HashSet;
use std::fmt;

use super::client_stack::{ClientStack, DtlsRole, StackDetector};
use super::declined::DeclinedSection;
use super::section::{MediaSection, MediaType, NegotiatedCodec, is_direction};
use super::{excerpt, push_line, split_attribute, split_line};
use crate::audio::codec::Codec;
use crate::limits::{
    CANDIDATE_BYTES_MAX, ICE_PWD_BYTES_MAX, ICE_UFRAG_BYTES_MAX, OFFER_CANDIDATES_MAX, OFFER_SDP_BYTES_MAX,
    ROOM_SDP_SECTIONS_MAX, SDP_LINES_MAX, SDP_MID_BYTES_MAX, SDP_SECTIONS_MAX,
};

/// Lines of such an offer: a section of a stock server has about 25.
const ROOM_SDP_LINES_MAX: usize = 40 * ROOM_SDP_SECTIONS_MAX;
/// Bytes of such an offer.
const ROOM_SDP_BYTES_MAX: usize = 2 * 1024 * ROOM_SDP_SECTIONS_MAX;

/// A normalized offer, and its properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedOffer {
    /// The offer without candidates; every line ends in CRLF.
    pub sdp: String,
    /// The `candidate:...` values in order, without duplicates and unchecked.
    pub candidates: Vec<String>,
    /// The codec to use: Opus if it is offered, otherwise the first supported one.
    pub audio_codec: Option<NegotiatedCodec>,
    /// The stack that made the offer.
    pub client_stack: ClientStack,
    /// The DTLS role of this end.
    pub dtls_role: DtlsRole,
    /// The offer has header extensions. Otherwise the client may expect the payload at byte 12.
    pub has_extensions: bool,
    /// The id of the header extension that names sections, if audio has it.
    pub mid_extension: Option<u8>,
    /// Nonstandard `rtpmap` spellings of Opus: that of RFC 7587, and that of the offer.
    pub opus_spellings: Vec<(String, String)>,
    /// The number of audio sections, stopped ones included.
    pub audio_sections: usize,
    /// The offer has a video section.
    pub has_video: bool,
    /// The offer has a data-channel section.
    pub has_application: bool,
    /// The sections that were taken out.
    pub declined: Vec<DeclinedSection>,
    /// The answer has a bundle. It must not have one if none is offered (RFC 9143 section 7.3),
    /// unless the client needs it.
    pub has_bundle: bool,
}

/// Why an offer was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SdpError {
    /// More bytes, lines or sections than allowed.
    LimitExceeded { what: &'static str, max: usize },
    /// A control character; lines count from 1.
    ControlCharacter { line: usize },
    /// The text does not start with `v=0`.
    NotSdp,
    /// No `m=` line.
    NoSections,
    /// No `m=audio` line.
    NoAudio,
    /// An `m=` line without its four parts.
    MalformedSection(String),
    /// An unsupported media type or transport profile.
    Unsupported { what: &'static str, word: String },
    /// No payload type of a section has a codec.
    NoCodec { mid: String },
    /// A section name that is a duplicate, too long, or not letters, digits and `_`.
    InvalidMid(String),
    /// ICE credentials that cannot be used in a check.
    InvalidCredentials { what: &'static str, max: usize },
    /// Certificates are named by digests that are not computed here alone.
    OtherFingerprints,
}

impl fmt::Display for SdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SdpError::LimitExceeded { what, max } => write!(f, "the SDP has more than {max} {what}"),
            SdpError::ControlCharacter { line } => write!(f, "line {line} of the SDP has a control character"),
            SdpError::NotSdp => write!(f, "the SDP does not start with the line `v=0`"),
            SdpError::NoSections => write!(f, "the SDP has no `m=` line"),
            SdpError::NoAudio => write!(f, "the SDP has no `m=audio` line; a talk needs one"),
            SdpError::MalformedSection(line) => {
                write!(f, "the line `m={line}` is not `m=<media> <port> <profile> <formats>`")
            }
            SdpError::Unsupported { what, word } => write!(
                f,
                "the {what} `{word}` is not supported; sections are audio, video (UDP/TLS/RTP/SAVPF) and application \
                 (UDP/DTLS/SCTP)"
            ),
            SdpError::NoCodec { mid } => write!(f, "no payload type of the section `{mid}` has a codec"),
            SdpError::InvalidMid(mid) => write!(
                f,
                "the section name `{mid}` is doubled, or like another one, or not 1 to {SDP_MID_BYTES_MAX} characters of a token"
            ),
            SdpError::InvalidCredentials { what, max } => {
                write!(
                    f,
                    "`a={what}` of the SDP is not 1 to {max} visible characters without `:`"
                )
            }
            SdpError::OtherFingerprints => f.write_str(
                "no `a=fingerprint` of the SDP is by SHA-256, which every client can compute; add one to the others",
            ),
        }
    }
}

/// Limits and requirements for a description.
struct SdpLimits {
    bytes: usize,
    lines: usize,
    sections: usize,
    needs_audio: bool,
    /// Sections that cannot be used are declined.
    declines: bool,
    /// The stack; `None` to detect it.
    family: Option<ClientStack>,
}

/// Limits for a client's offer.
const CALLER: SdpLimits = SdpLimits {
    bytes: OFFER_SDP_BYTES_MAX,
    lines: SDP_LINES_MAX,
    sections: SDP_SECTIONS_MAX,
    needs_audio: true,
    declines: true,
    family: None,
};

/// Limits for SFU descriptions, which keep a section for every former track and may start without
/// any.
const ROOM: SdpLimits = SdpLimits {
    bytes: ROOM_SDP_BYTES_MAX,
    lines: ROOM_SDP_LINES_MAX,
    sections: ROOM_SDP_SECTIONS_MAX,
    needs_audio: false,
    declines: false,
    family: Some(ClientStack::Full),
};

/// Prepares an offer of a client.
///
/// # Errors
/// [`SdpError`] names what was rejected and what is allowed.
pub fn prepare_offer(sdp: &str) -> Result<PreparedOffer, SdpError> {
    prepare(sdp, &CALLER)
}

/// Prepares an offer or answer of a media-room server.
///
/// # Errors
/// [`SdpError`] names what was rejected and what is allowed.
pub fn prepare_sfu_description(sdp: &str) -> Result<PreparedOffer, SdpError> {
    prepare(sdp, &ROOM)
}

/// Returns whether a description names certificates by digests that str0m does not compute alone,
/// such as SHA-512: every handshake would fail. RFC 8122, section 5, has SHA-256 as the preferred
/// one.
fn has_other_fingerprints(sdp: &str) -> bool {
    let named = sdp.lines().filter_map(|line| line.strip_prefix("a=fingerprint:"));
    let mut algorithms = named
        .map(|value| value.split(' ').next().unwrap_or_default())
        .peekable();
    let is_known = |name: &str| name.eq_ignore_ascii_case("sha-256") || name.eq_ignore_ascii_case("sha-1");
    algorithms.peek().is_some() && !algorithms.any(is_known)
}

fn prepare(sdp: &str, bounds: &SdpLimits) -> Result<PreparedOffer, SdpError> {
    let ParsedOffer {
        session_lines: mut session,
        mut sections,
        candidates,
        detector: mut marks,
    } = ParsedOffer::read(sdp, bounds)?;
    marks.handle_profile(sections.iter().any(|section| section.is_savp));
    let family = bounds.family.unwrap_or_else(|| marks.detect());
    let direction = session.attributes.iter().copied().find(|name| is_direction(name));
    let (mut mids, mut has_other_names) = (HashSet::new(), false);
    for (index, section) in sections.iter_mut().enumerate() {
        if section.media == MediaType::Unsupported {
            if bounds.declines {
                continue;
            }
            return Err(section.unsupported());
        }
        section.normalize(index, direction.unwrap_or("sendrecv"))?;
        let mid = section.mid_in_str0m();
        if !mids.insert(mid) {
            return Err(SdpError::InvalidMid(excerpt(&section.mid)));
        }
        has_other_names |= *mid != *section.mid;
    }
    if has_other_names {
        sections.iter_mut().for_each(MediaSection::remove_mid_extension);
    }
    let has_bundle = session.bundle().is_some() || family.is_device() || have_one_transport(&sections);
    let mut declined = Vec::new();
    if bounds.declines {
        let is_usable = session.usable_sections(&sections, has_bundle);
        let is_used = |index: usize| is_usable.get(index) == Some(&true);
        let unused = sections.iter().enumerate().filter(|(index, _)| !is_used(*index));
        declined.extend(unused.map(|(index, section)| DeclinedSection {
            index,
            lines: section.decline(),
        }));
        let mut index = 0..;
        sections.retain(|_| index.next().is_some_and(is_used));
    }
    let offered = offered_setup(&session, &sections);
    let role = family.answer_role(offered);
    let setup = match family {
        ClientStack::Libpeer => force_passive_setup(&mut session, &mut sections, offered),
        ClientStack::EspPeer | ClientStack::Full => None,
    };
    let mut text = session.write(&sections, setup);
    for section in &sections {
        // Microcontrollers are answered with the profile that they were tested with.
        section.write(&mut text, family == ClientStack::Full);
    }
    if has_other_fingerprints(&text) {
        return Err(SdpError::OtherFingerprints);
    }
    Ok(PreparedOffer {
        sdp: text,
        candidates: candidates.list,
        audio_codec: choose_codec(&sections),
        client_stack: family,
        dtls_role: role,
        has_extensions: marks.has_extensions,
        mid_extension: sections
            .iter()
            .filter(|section| section.media == MediaType::Audio)
            .find_map(MediaSection::mid_extension),
        opus_spellings: sections.iter().flat_map(MediaSection::opus_spellings).collect(),
        audio_sections: sections
            .iter()
            .filter(|section| section.media == MediaType::Audio)
            .count(),
        has_video: sections.iter().any(|section| section.media == MediaType::Video),
        has_application: sections.iter().any(|section| section.media == MediaType::Application),
        declined,
        has_bundle,
    })
}

/// The parsed lines of a description.
#[derive(Default)]
struct ParsedOffer<'a> {
    session_lines: SessionLines<'a>,
    sections: Vec<MediaSection<'a>>,
    candidates: CandidateCollector,
    detector: StackDetector,
}

impl<'a> ParsedOffer<'a> {
    fn read(sdp: &'a str, bounds: &SdpLimits) -> Result<Self, SdpError> {
        let mut description = ParsedOffer::default();
        for line in checked_lines(sdp, bounds)? {
            if let Some((kind, value)) = split_line(line) {
                description.handle_line(kind, value, bounds)?;
            }
        }
        let sections = &description.sections;
        if sections.is_empty() {
            return Err(SdpError::NoSections);
        }
        if bounds.needs_audio && !sections.iter().any(|section| section.media == MediaType::Audio) {
            let other = sections.iter().find(|section| section.is_unsupported_audio());
            return Err(other.map_or(SdpError::NoAudio, MediaSection::unsupported));
        }
        Ok(description)
    }

    fn handle_line(&mut self, kind: char, value: &'a str, bounds: &SdpLimits) -> Result<(), SdpError> {
        match kind {
            'o' if self.sections.is_empty() && is_origin(value) => self.detector.handle_origin(value),
            'a' => self.detector.handle_attribute(value),
            _ => {}
        }
        let full = self.sections.len() == bounds.sections;
        match (kind, self.sections.last_mut()) {
            ('m', _) if full => {
                return Err(SdpError::LimitExceeded {
                    what: "sections",
                    max: bounds.sections,
                });
            }
            ('m', _) => self.sections.push(MediaSection::new(value)?),
            ('a', _) if value.is_empty() || self.candidates.push(value) => {}
            ('a', section) => {
                check_credentials(value)?;
                section
                    .map_or(&mut self.session_lines.attributes, |section| &mut section.attributes)
                    .push(value);
            }
            ('o', None) => self.session_lines.origin = self.session_lines.origin.or(Some(value)),
            // ICE replaces all other lines.
            _ => {}
        }
        Ok(())
    }
}

/// Chooses a codec among all audio sections.
fn choose_codec(sections: &[MediaSection<'_>]) -> Option<NegotiatedCodec> {
    let audio = sections.iter().filter(|section| section.media == MediaType::Audio);
    let mut offered = audio.flat_map(MediaSection::supported_codecs);
    let first = offered.next()?;
    let opus = offered.find(|spoken| spoken.codec == Codec::Opus);
    Some(opus.filter(|_| first.codec != Codec::Opus).unwrap_or(first))
}

/// Splits the text into lines, without line ends and blank lines.
fn checked_lines<'a>(sdp: &'a str, bounds: &SdpLimits) -> Result<Vec<&'a str>, SdpError> {
    if sdp.len() > bounds.bytes {
        return Err(SdpError::LimitExceeded {
            what: "bytes",
            max: bounds.bytes,
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
        if lines.len() > bounds.lines {
            return Err(SdpError::LimitExceeded {
                what: "lines",
                max: bounds.lines,
            });
        }
    }
    match lines.first() {
        Some(&"v=0") => Ok(lines),
        _ => Err(SdpError::NotSdp),
    }
}

/// The candidates of all sections: browsers repeat them in each, microcontrollers write them into
/// the last.
#[derive(Default)]
struct CandidateCollector {
    list: Vec<String>,
    seen: HashSet<String>,
}

impl CandidateCollector {
    /// Collects a candidate. Returns whether the attribute is about candidates.
    fn push(&mut self, attribute: &str) -> bool {
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

/// The lines before the first `m=` line.
#[derive(Default)]
struct SessionLines<'a> {
    origin: Option<&'a str>,
    attributes: Vec<&'a str>,
}

impl SessionLines<'_> {
    fn write(&self, sections: &[MediaSection<'_>], setup: Option<&str>) -> String {
        let origin = self.origin.filter(|origin| is_origin(origin));
        let mut text = String::from("v=0\r\n");
        push_line(&mut text, &["o=", origin.unwrap_or("- 0 0 IN IP4 0.0.0.0")]);
        text.push_str("s=-\r\nt=0 0\r\n");
        push_line(&mut text, &["a=group:BUNDLE", &self.bundled_mids(sections)]);
        for attribute in &self.attributes {
            if !attribute.starts_with("group:") {
                push_line(&mut text, &["a=", attribute]);
            }
        }
        if let Some(setup) = setup {
            push_line(&mut text, &["a=setup:", setup]);
        }
        text
    }

    /// Returns the section names of the offered bundle.
    fn bundle(&self) -> Option<Vec<&str>> {
        let mut attributes = self.attributes.iter();
        let mids = attributes.find_map(|attribute| attribute.strip_prefix("group:BUNDLE"))?;
        Some(mids.split(' ').collect())
    }

    /// Returns for each section whether it can be used: it is supported, and belongs to the one
    /// transport, which is that of the bundle with audio, or else of the first audio section.
    /// Stopped sections belong to any, and all do where the answer has a bundle without audio.
    fn usable_sections(&self, sections: &[MediaSection<'_>], has_bundle: bool) -> Vec<bool> {
        let is_audio = |section: &&MediaSection<'_>| section.media == MediaType::Audio && section.port != "0";
        let first = sections.iter().find(is_audio).map(|section| section.mid.as_str());
        let bundle = self.bundle().filter(|mids| {
            sections
                .iter()
                .filter(is_audio)
                .any(|section| mids.contains(&section.mid.as_str()))
        });
        let belongs = |section: &MediaSection<'_>| match (&bundle, first) {
            (Some(mids), _) => mids.contains(&section.mid.as_str()),
            (None, Some(first)) if !has_bundle => section.mid == first,
            _ => true,
        };
        let sections = sections.iter();
        sections
            .map(|section| section.media != MediaType::Unsupported && (section.port == "0" || belongs(section)))
            .collect()
    }

    /// Returns the names of the bundled sections in order, each after a space.
    ///
    /// Devices name a data channel that they do not have, and an answer has an exact list. Without
    /// a group line all sections are bundled, since they share one transport.
    fn bundled_mids(&self, sections: &[MediaSection<'_>]) -> String {
        let offered = self.bundle();
        sections
            .iter()
            .filter(|section| match &offered {
                Some(mids) => mids.contains(&section.mid.as_str()),
                None => section.port != "0",
            })
            .fold(String::new(), |text, section| text + " " + &section.mid)
    }
}

/// Returns whether the sections of an offer without a bundle have one transport: the same ICE
/// credentials. GStreamer's clients, which have a transport for each section and names of their own
/// for these, are counted among them: they do not connect by an answer that declines their data
/// channel, and take one with a bundle.
fn have_one_transport(sections: &[MediaSection<'_>]) -> bool {
    fn ufrag<'a>(section: &MediaSection<'a>) -> Option<&'a str> {
        let mut attributes = section.attributes.iter();
        attributes.find_map(|attribute| attribute.strip_prefix("ice-ufrag:"))
    }
    let is_of_gstreamer = |(index, section): (usize, &MediaSection<'_>)| {
        section.mid.strip_prefix(section.media.word()) == Some(index.to_string().as_str())
    };
    let used = || sections.iter().filter(|section| section.port != "0");
    let first = used().next().and_then(ufrag);
    used().all(|section| ufrag(section) == first) || sections.iter().enumerate().all(is_of_gstreamer)
}

/// Returns the first `a=setup` value of the offer.
fn offered_setup<'a>(session: &SessionLines<'a>, sections: &[MediaSection<'a>]) -> Option<&'a str> {
    let mut all = session
        .attributes
        .iter()
        .chain(sections.iter().flat_map(|section| &section.attributes));
    all.find_map(|attribute| attribute.strip_prefix("setup:"))
}

/// Removes ambiguous `a=setup` lines from a device's offer, and returns the value to write.
///
/// Such a device is the DTLS server; two servers would wait for each other.
fn force_passive_setup(
    session: &mut SessionLines<'_>,
    sections: &mut [MediaSection<'_>],
    offered: Option<&str>,
) -> Option<&'static str> {
    if matches!(offered, Some("active" | "passive")) {
        return None;
    }
    let is_other = |attribute: &&str| !attribute.starts_with("setup:");
    session.attributes.retain(is_other);
    for section in sections {
        section.attributes.retain(is_other);
    }
    Some("passive")
}

/// Rejects credentials that str0m cannot write into a check.
fn check_credentials(attribute: &str) -> Result<(), SdpError> {
    let (name, value) = split_attribute(attribute);
    let (what, max) = match name {
        "ice-ufrag" => ("ice-ufrag", ICE_UFRAG_BYTES_MAX),
        "ice-pwd" => ("ice-pwd", ICE_PWD_BYTES_MAX),
        _ => return Ok(()),
    };
    let is_visible = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    if value.is_empty() || value.len() > max || !value.bytes().all(is_visible) {
        return Err(SdpError::InvalidCredentials { what, max });
    }
    Ok(())
}

/// Returns whether an `o=` line has six parts and a 64-bit identifier.
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
