//! The sections and the transport of a prepared description.
//!
//! In: text from [`super::prepare_offer`] or [`super::prepare_sfu_description`]. Out: what str0m is
//! set up with. Nothing is rejected here; what cannot be read is absent. Sources: RFC 8839 section
//! 5.4 (credentials), RFC 8122 section 5 (`fingerprint`), RFC 8285 section 8 (`extmap`), RFC 5576
//! (`ssrc`), RFC 8841 section 6 (`max-message-size`), RFC 9143 section 6 (bundled sections with
//! port 0).

use super::extensions::extension_id;
use super::section::{NegotiatedCodec, codec_of};
use super::{payload_type, split_attribute};
use crate::audio::codec::Codec;

/// The size of messages that a peer takes if it does not name one, RFC 8841 section 6.1.
const MESSAGE_BYTES_DEFAULT: u32 = 64 * 1024;
/// The last event of a key press that str0m sends and receives, RFC 4733 section 3.2.
const TELEPHONE_EVENT_MAX: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    Audio,
    Video,
    Application,
}

/// A certificate's digest and the name of its algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateDigest {
    pub algorithm: String,
    pub bytes: Vec<u8>,
}

/// One section and its lines, without line ends.
pub struct DescribedSection<'a> {
    pub kind: SectionKind,
    /// The word for the transport, such as `UDP/TLS/RTP/SAVPF`.
    pub profile: &'a str,
    pub mid: &'a str,
    /// Port 0 and not bundled.
    pub is_stopped: bool,
    /// The sender of the description sends media in this section.
    pub sender_sends: bool,
    /// The sender of the description receives media in this section.
    pub sender_receives: bool,
    pub lines: Vec<&'a str>,
}

impl<'a> DescribedSection<'a> {
    /// Returns the values of the attributes with this name; a flag has an empty value.
    pub fn attributes<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'a str> + 's {
        self.lines.iter().filter_map(move |line| attribute(line, name))
    }

    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes(name).next()
    }

    /// Returns the announced SSRCs (RFC 5576) without 0, each once.
    pub fn sources(&self) -> Vec<u32> {
        let mut sources = Vec::new();
        for value in self.attributes("ssrc") {
            let source = value.split(' ').next().and_then(|source| source.parse().ok());
            if let Some(source) = source.filter(|source| *source != 0 && !sources.contains(source)) {
                sources.push(source);
            }
        }
        sources
    }

    /// Returns the announced SSRCs of media, without those that repeat lost packets of another.
    pub fn media_sources(&self) -> Vec<u32> {
        let groups = self.attributes("ssrc-group");
        let repairs = groups.filter_map(|value| value.strip_prefix("FID ")?.split(' ').nth(1)?.parse().ok());
        let repairs: Vec<u32> = repairs.collect();
        let mut sources = self.sources();
        sources.retain(|source| !repairs.contains(source));
        sources
    }

    /// Returns the names of the media stream and of the track, if the section is in a stream.
    pub fn msid(&self) -> Option<(&'a str, &'a str)> {
        let named = self.attributes("msid").find_map(|value| value.split_once(' '));
        named.filter(|(stream, _)| *stream != "-")
    }

    fn formats(&self) -> impl Iterator<Item = u8> + '_ {
        let words = self.lines.first().into_iter().flat_map(|line| line.split(' ').skip(3));
        words.filter_map(payload_type)
    }

    /// Returns the offered payload types of a codec.
    pub fn payload_types(&self, codec: Codec) -> impl Iterator<Item = u8> + '_ {
        let maps = |wanted: u8| {
            let maps = self.attributes("rtpmap").filter_map(|map| map.split_once(' '));
            maps.filter(move |(number, _)| payload_type(number) == Some(wanted))
                .map(|(_, encoding)| encoding)
                .next()
        };
        self.formats()
            .filter(move |number| codec_of(*number, maps(*number)) == Some(codec))
    }

    /// Returns the payload type of key presses and their last event.
    pub fn telephone_event(&self) -> Option<(u8, u8)> {
        let mut maps = self.attributes("rtpmap").filter_map(|map| map.split_once(' '));
        let (number, _) = maps.find(|(number, encoding)| {
            let is_offered = payload_type(number).is_some_and(|number| self.formats().any(|it| it == number));
            is_offered && encoding.eq_ignore_ascii_case("telephone-event/8000")
        })?;
        let mut parameters = self.attributes("fmtp").filter_map(|line| line.split_once(' '));
        let events = match parameters.find(|(about, _)| *about == number) {
            None => TELEPHONE_EVENT_MAX,
            Some((_, range)) => range.trim().strip_prefix("0-")?.parse().ok()?,
        };
        Some((payload_type(number)?, events.min(TELEPHONE_EVENT_MAX)))
    }

    /// Returns whether transport-wide feedback is offered for a payload type.
    pub fn has_transport_feedback(&self, payload_type: u8) -> bool {
        let line = format!("{payload_type} transport-cc");
        self.attributes("rtcp-fb").any(|value| value == line)
    }

    /// Returns the id of a header extension.
    pub fn extension_id(&self, uri: &str) -> Option<u8> {
        let values = self.attributes("extmap").filter_map(|value| value.split_once(' '));
        values.filter_map(|(id, rest)| extension_id(id, rest, uri)).next()
    }
}

/// A parsed offer or answer.
pub struct SdpDescription<'a> {
    pub head: Vec<&'a str>,
    pub sections: Vec<DescribedSection<'a>>,
}

impl<'a> SdpDescription<'a> {
    pub fn parse(sdp: &'a str) -> Self {
        let mut head = Vec::new();
        let mut sections: Vec<DescribedSection<'a>> = Vec::new();
        for line in sdp.lines() {
            if let Some(media) = line.strip_prefix("m=") {
                let mut words = media.split(' ');
                let kind = match words.next() {
                    Some("audio") => SectionKind::Audio,
                    Some("video") => SectionKind::Video,
                    _ => SectionKind::Application,
                };
                let port = words.next();
                sections.push(DescribedSection {
                    kind,
                    profile: words.next().unwrap_or_default(),
                    mid: "",
                    is_stopped: port == Some("0"),
                    sender_sends: false,
                    sender_receives: false,
                    lines: vec![line],
                });
                continue;
            }
            match sections.last_mut() {
                Some(section) => section.lines.push(line),
                None => head.push(line),
            }
        }
        let bundle = head.iter().find_map(|line| line.strip_prefix("a=group:BUNDLE"));
        let bundled: Vec<&str> = bundle.unwrap_or_default().split(' ').collect();
        for section in &mut sections {
            section.mid = section.attribute("mid").unwrap_or_default();
            // A bundled section with port 0 shares the transport of another, RFC 9143 section 6.
            section.is_stopped &= !bundled.contains(&section.mid);
            let has = |word| section.lines.contains(&word);
            section.sender_sends = has("a=sendrecv") || has("a=sendonly");
            section.sender_receives = has("a=sendrecv") || has("a=recvonly");
        }
        SdpDescription { head, sections }
    }

    /// Returns the lines of the session, and those of each section.
    fn levels(&self) -> impl Iterator<Item = &[&'a str]> {
        let sections = self.sections.iter().map(|section| section.lines.as_slice());
        std::iter::once(self.head.as_slice()).chain(sections)
    }

    /// Returns the user name fragment and the password: those of the session, otherwise those of
    /// the first section that has both. All sections of a bundle share them.
    pub fn credentials(&self) -> Option<(&'a str, &'a str)> {
        let value = |lines: &[&'a str], name| lines.iter().find_map(|line| attribute(line, name));
        let mut levels = self.levels();
        levels.find_map(|lines| Some((value(lines, "ice-ufrag")?, value(lines, "ice-pwd")?)))
    }

    /// Returns the digest of the certificate: of the session or of the first section that has one,
    /// the one by SHA-256, otherwise by SHA-1.
    pub fn fingerprint(&self) -> Option<CertificateDigest> {
        let rank = |digest: &CertificateDigest| {
            let known = ["sha-256", "sha-1"];
            known
                .iter()
                .position(|name| digest.algorithm.eq_ignore_ascii_case(name))
        };
        self.levels().find_map(|lines| {
            let values = lines.iter().filter_map(|line| attribute(line, "fingerprint"));
            let digests = values.filter_map(parse_digest);
            digests.min_by_key(|digest| rank(digest).unwrap_or(usize::MAX))
        })
    }

    /// Checks that the description can be applied after one with the sections `before`. `is_free`
    /// returns whether another section may reuse the place of one (RFC 8829 section 5.2.2).
    ///
    /// # Errors
    /// A description of the problem.
    pub fn check(&self, before: &[(String, SectionKind)], is_free: impl Fn(&str) -> bool) -> Result<(), String> {
        if self.credentials().is_none() {
            return Err("it has no `a=ice-ufrag` with `a=ice-pwd`".to_owned());
        }
        if self.sections.len() < before.len() {
            let (is, was) = (self.sections.len(), before.len());
            return Err(format!(
                "it has {is} sections, and the one before had {was}; sections stay"
            ));
        }
        let applications = self
            .sections
            .iter()
            .filter(|section| section.kind == SectionKind::Application);
        if applications.count() > 1 {
            return Err("it has more than one `m=application`".to_owned());
        }
        for (index, section) in self.sections.iter().enumerate() {
            let mid = section.mid;
            match before.get(index) {
                Some((old, kind)) if old == mid && *kind == section.kind => continue,
                Some((old, kind))
                    if old == mid || !is_free(old) || [*kind, section.kind].contains(&SectionKind::Application) =>
                {
                    return Err(format!(
                        "section {index}, `{old}`, became another one, `{mid}`; sections stay"
                    ));
                }
                _ if before.iter().any(|(old, _)| old == mid) => {
                    return Err(format!("the section `{mid}` changed its place; sections stay"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the sections in order, for the next [`SdpDescription::check`].
    pub fn layout(&self) -> Vec<(String, SectionKind)> {
        let sections = self.sections.iter();
        sections.map(|section| (section.mid.to_owned(), section.kind)).collect()
    }

    /// Returns whether the sender answers checks but makes none.
    pub fn is_ice_lite(&self) -> bool {
        self.head.contains(&"a=ice-lite")
    }

    pub fn has_data(&self) -> bool {
        self.data_section().is_some()
    }

    fn data_section(&self) -> Option<&DescribedSection<'a>> {
        let mut sections = self.sections.iter();
        sections.find(|section| section.kind == SectionKind::Application)
    }

    /// Returns the bytes of the longest message that the sender takes; 0 for any.
    pub fn max_message_bytes(&self) -> u32 {
        let bytes = self
            .data_section()
            .and_then(|section| section.attribute("max-message-size"));
        let bytes = bytes.and_then(|bytes| bytes.trim().parse::<u64>().ok());
        bytes.map_or(MESSAGE_BYTES_DEFAULT, |bytes| bytes.try_into().unwrap_or(u32::MAX))
    }

    /// Returns the first audio section that offers a codec, and its payload type there.
    pub fn first_with(&self, codec: Codec) -> Option<(&DescribedSection<'a>, NegotiatedCodec)> {
        let mut audio = self.sections.iter();
        audio.find_map(|section| {
            let is_open = section.kind == SectionKind::Audio && !section.is_stopped;
            let payload_type = section.payload_types(codec).next().filter(|_| is_open)?;
            Some((section, NegotiatedCodec { codec, payload_type }))
        })
    }
}

/// Parses `sha-256 AB:CD:...`.
fn parse_digest(value: &str) -> Option<CertificateDigest> {
    let (algorithm, hex) = value.split_once(' ')?;
    let byte = |pair: &str| {
        let is_pair = pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_pair.then(|| u8::from_str_radix(pair, 16).ok())?
    };
    let bytes = hex.split(':').map(byte).collect::<Option<Vec<u8>>>()?;
    let algorithm = algorithm.to_owned();
    Some(CertificateDigest { algorithm, bytes })
}

/// Returns the value of an attribute line with this name; a flag has an empty value.
pub fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (found, value) = split_attribute(line.strip_prefix("a=")?);
    (found == name).then_some(value)
}

#[cfg(test)]
mod tests;
