//! One media section of an offer, normalized.
//!
//! In: the lines of a section. Out: the section with a name, one direction, one DTLS role, a
//! feedback profile, and only payload types that have a codec. Unsupported media and transports are
//! kept as [`MediaType::Unsupported`]. Rejected: names that cannot be repeated in packets. Sources:
//! RFC 8866 section 5.14, RFC 9143.

use std::collections::HashSet;

use str0m::media::Mid;

use super::extensions::{MID_URI, extension_id};
use super::{SdpError, excerpt, payload_type, push_line, split_attribute};
use crate::audio::codec::Codec;
use crate::limits::SDP_MID_BYTES_MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MediaType {
    Audio,
    Video,
    Application,
    /// Another kind of media, or a transport that is not that of this end.
    Unsupported,
}

impl MediaType {
    pub fn word(self) -> &'static str {
        match self {
            MediaType::Audio => "audio",
            MediaType::Video => "video",
            MediaType::Application => "application",
            MediaType::Unsupported => "",
        }
    }
}

/// A supported codec of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedCodec {
    pub codec: Codec,
    /// The payload type in the offer.
    pub payload_type: u8,
}

/// One `m=` line and its attributes.
pub struct MediaSection<'a> {
    pub media: MediaType,
    /// The words for the media and the profile, as offered.
    offered: (&'a str, &'a str),
    pub port: &'a str,
    /// The offer used the profile without feedback.
    pub is_savp: bool,
    formats: Vec<&'a str>,
    pub attributes: Vec<&'a str>,
    pub mid: String,
}

impl<'a> MediaSection<'a> {
    pub fn new(line: &'a str) -> Result<Self, SdpError> {
        let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
        let (Some(media), Some(port), Some(profile)) = (words.next(), words.next(), words.next()) else {
            return Err(SdpError::MalformedSection(excerpt(line)));
        };
        let offered = (media, profile);
        let known: &[&str] = match media {
            "audio" | "video" => &["UDP/TLS/RTP/SAVPF", "RTP/SAVPF", "UDP/TLS/RTP/SAVP", "RTP/SAVP"],
            "application" => &["UDP/DTLS/SCTP", "DTLS/SCTP"],
            _ => &[],
        };
        let media = [MediaType::Audio, MediaType::Video, MediaType::Application]
            .into_iter()
            .find(|kind| kind.word() == media && known.contains(&profile))
            .unwrap_or(MediaType::Unsupported);
        Ok(MediaSection {
            media,
            offered,
            port,
            is_savp: profile.ends_with("/SAVP"),
            formats: words.collect(),
            attributes: Vec::new(),
            mid: String::new(),
        })
    }

    /// Returns whether this is audio over a transport that is not supported.
    pub fn is_unsupported_audio(&self) -> bool {
        self.media == MediaType::Unsupported && self.offered.0 == "audio"
    }

    /// Returns the error for a section that is unsupported where none may be declined.
    pub fn unsupported(&self) -> SdpError {
        let (media, profile) = self.offered;
        let (what, word) = match media {
            "audio" | "video" | "application" => ("profile", profile),
            _ => ("media", media),
        };
        SdpError::Unsupported {
            what,
            word: excerpt(word),
        }
    }

    /// Returns the lines that decline this section in an answer.
    pub fn decline(&self) -> String {
        let (media, profile) = self.offered;
        let format = self.formats.first().copied().unwrap_or("0");
        let mut text = String::new();
        push_line(&mut text, &["m=", media, " 0 ", profile, " ", format]);
        text.push_str("c=IN IP4 0.0.0.0\r\n");
        let map = format!("rtpmap:{format} ");
        let is_kept = |attribute: &&&str| attribute.starts_with("mid:") || attribute.starts_with(&map);
        if !self.mid.is_empty() {
            push_line(&mut text, &["a=mid:", &self.mid]);
        }
        for attribute in self.attributes.iter().filter(is_kept) {
            push_line(&mut text, &["a=", attribute]);
        }
        text.push_str("a=inactive\r\n");
        text
    }

    /// Removes duplicate attributes, and those of payload types without a codec.
    pub fn normalize(&mut self, index: usize, default_direction: &'a str) -> Result<(), SdpError> {
        let mid = self
            .attributes
            .iter()
            .find_map(|attribute| attribute.strip_prefix("mid:").filter(|mid| !mid.is_empty()));
        self.mid = mid.map_or_else(|| index.to_string(), str::to_owned);
        if self.mid.len() > SDP_MID_BYTES_MAX || !self.mid.bytes().all(is_token_byte) {
            return Err(SdpError::InvalidMid(excerpt(&self.mid)));
        }
        if self.media == MediaType::Application {
            // Written by a browser in a field trial, to skip the SCTP handshake. This end does not.
            self.attributes.retain(|attribute| !attribute.starts_with("sctp-init:"));
        } else {
            self.normalize_formats();
            // One channel is the default, so it is left out.
            for attribute in &mut self.attributes {
                let encoding = attribute.strip_prefix("rtpmap:").and_then(|map| map.split_once(' '));
                let codec = encoding.and_then(|(_, encoding)| parse_codec(encoding));
                if codec.is_some_and(|codec| codec != Codec::Opus) {
                    *attribute = attribute
                        .strip_suffix("/8000/1")
                        .map_or(*attribute, |_| &attribute[..attribute.len() - 2]);
                }
            }
            if self.formats.is_empty() && self.port != "0" {
                return Err(SdpError::NoCodec { mid: self.mid.clone() });
            }
            if !self.attributes.iter().any(|attribute| is_direction(attribute)) {
                self.attributes.insert(0, default_direction);
            }
        }
        let mut seen = HashSet::new();
        self.attributes.retain(|attribute| {
            let (name, value) = split_attribute(attribute);
            match name {
                "mid" => false,
                "setup" => seen.insert(("setup", None)),
                "rtpmap" => seen.insert(("rtpmap", payload_type(value))),
                "ssrc" => is_ssrc(value),
                _ if is_direction(attribute) => seen.insert(("direction", None)),
                _ => true,
            }
        });
        Ok(())
    }

    /// Returns the supported codecs in the offer's order. The section must be normalized.
    pub fn supported_codecs(&self) -> impl Iterator<Item = NegotiatedCodec> {
        let payload_types = self.formats.iter().filter_map(|format| payload_type(format));
        payload_types.filter_map(|payload_type| {
            let codec = self.codec(payload_type)?;
            Some(NegotiatedCodec { codec, payload_type })
        })
    }

    fn codec(&self, wanted: u8) -> Option<Codec> {
        let mut maps = self
            .attributes
            .iter()
            .filter_map(|attribute| attribute.strip_prefix("rtpmap:")?.split_once(' '));
        let map = maps.find(|(number, _)| payload_type(number) == Some(wanted));
        codec_of(wanted, map.map(|(_, encoding)| encoding))
    }

    /// Returns the name of the section in str0m, which has its own for some. They appear in header
    /// extensions alone.
    pub fn mid_in_str0m(&self) -> Mid {
        self.mid.as_str().into()
    }

    /// Removes the header extension that names sections.
    pub fn remove_mid_extension(&mut self) {
        self.attributes.retain(|attribute| {
            let extension = attribute.strip_prefix("extmap:").and_then(|map| map.split_once(' '));
            extension.is_none_or(|(id, uri)| extension_id(id, uri, MID_URI).is_none())
        });
    }

    /// Returns the id of the header extension that names sections.
    pub fn mid_extension(&self) -> Option<u8> {
        let mut ids = self.attributes.iter().filter_map(|attribute| {
            let (id, uri) = attribute.strip_prefix("extmap:")?.split_once(' ')?;
            extension_id(id, uri, MID_URI)
        });
        ids.next()
    }

    fn normalize_formats(&mut self) {
        let mapped: HashSet<u8> = self
            .attributes
            .iter()
            .filter_map(|attribute| attribute.strip_prefix("rtpmap:"))
            .filter_map(rtpmap_payload_type)
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
            match name {
                "rtpmap" => belongs() && rtpmap_payload_type(value).is_some(),
                "fmtp" | "rtcp-fb" => belongs() || value.starts_with('*'),
                _ => true,
            }
        });
    }

    /// Writes the section; audio and video with the profile that was offered, or the usual one.
    pub fn write(&self, text: &mut String, keeps_profile: bool) {
        let profile = match self.media {
            MediaType::Audio | MediaType::Video if keeps_profile => self.offered.1,
            MediaType::Audio | MediaType::Video => "UDP/TLS/RTP/SAVPF",
            MediaType::Application | MediaType::Unsupported => "UDP/DTLS/SCTP",
        };
        let formats = self.formats.join(" ");
        push_line(
            text,
            &["m=", self.media.word(), " ", self.port, " ", profile, " ", &formats],
        );
        text.push_str("c=IN IP4 0.0.0.0\r\n");
        push_line(text, &["a=mid:", &self.mid]);
        for attribute in &self.attributes {
            match self.normalized_opus(attribute) {
                Some(opus) => push_line(text, &["a=", &opus]),
                None => push_line(text, &["a=", attribute]),
            }
        }
    }

    /// Returns nonstandard `rtpmap` attributes of Opus, as normalized and as offered.
    pub fn opus_spellings(&self) -> impl Iterator<Item = (String, String)> {
        let attributes = self.attributes.iter();
        attributes.filter_map(|attribute| Some((self.normalized_opus(attribute)?, (*attribute).to_owned())))
    }

    /// Returns the standard `rtpmap` of Opus (RFC 7587 section 7) for a nonstandard one.
    ///
    /// Old firmware writes `opus/16000/1`. Its packets are ordinary Opus, which carry their own
    /// bandwidth and channel count, and its decoder accepts any.
    fn normalized_opus(&self, attribute: &str) -> Option<String> {
        let (payload_type, codec) = attribute.strip_prefix("rtpmap:")?.split_once(' ')?;
        let name = codec.split('/').next()?;
        let opus = Codec::Opus.encoding();
        let is_other = self.media == MediaType::Audio && name.eq_ignore_ascii_case("opus") && codec != opus;
        is_other.then(|| format!("rtpmap:{payload_type} {opus}"))
    }
}

/// Returns whether a byte may stand in a name, RFC 8866 section 9 (`token-char`).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]".contains(&byte)
}

/// Payload types that are known without `a=rtpmap`: PCMU, PCMA, G722, CN (RFC 3551 section 6).
const STATIC_PAYLOAD_TYPES: [u8; 4] = [0, 8, 9, 13];

/// Returns the codec of a payload type with this `rtpmap` encoding, if it is supported.
pub fn codec_of(payload_type: u8, encoding: Option<&str>) -> Option<Codec> {
    encoding.map_or_else(|| static_codec(payload_type), parse_codec)
}

/// Returns the codec of a payload type without `a=rtpmap`.
fn static_codec(payload_type: u8) -> Option<Codec> {
    let mut codecs = Codec::ALL.into_iter();
    codecs.find(|codec| codec.static_payload_type() == Some(payload_type))
}

/// Returns the codec of an `rtpmap`, if its rate and channels are supported. Opus is recognized by
/// name; see [`MediaSection::normalized_opus`].
fn parse_codec(encoding: &str) -> Option<Codec> {
    let mut parts = encoding.split('/');
    let (name, rate_hz) = (parts.next()?, parts.next()?.parse::<u32>().ok()?);
    let channels = parts.next().map_or(Some(1), |channels| channels.parse::<u8>().ok())?;
    let codec = Codec::ALL
        .into_iter()
        .find(|codec| codec.name().eq_ignore_ascii_case(name))?;
    (codec == Codec::Opus || (rate_hz, channels) == (codec.clock_hz(), 1)).then_some(codec)
}

/// Returns the payload type of an `rtpmap` value that names a codec.
fn rtpmap_payload_type(value: &str) -> Option<u8> {
    let (_, codec) = value.split_once(' ')?;
    let mut parts = codec.split('/');
    let name = parts.next()?;
    let rate: u32 = parts.next()?.parse().ok()?;
    let channels_read = parts.next().is_none_or(|channels| channels.parse::<u8>().is_ok());
    (!name.is_empty() && rate > 0 && channels_read && parts.next().is_none()).then(|| payload_type(value))?
}

/// Returns whether an `ssrc` value has a name and a value.
pub fn is_ssrc(value: &str) -> bool {
    let Some((ssrc, (name, value))) = value
        .split_once(' ')
        .and_then(|(ssrc, attribute)| Some((ssrc, attribute.split_once(':')?)))
    else {
        return false;
    };
    ssrc.parse::<u32>().is_ok() && !name.is_empty() && !value.is_empty()
}

pub fn is_direction(attribute: &str) -> bool {
    matches!(attribute, "sendrecv" | "sendonly" | "recvonly" | "inactive")
}
