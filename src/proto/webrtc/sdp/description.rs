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
                sections.push(DescribedSection {
                    kind,
                    mid: "",
                    is_stopped: words.next() == Some("0"),
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
mod tests {
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
}
