//! The media sections of SFU descriptions: which are received, and whose track each carries.
//!
//! In: descriptions from `sdp::prepare_sfu_description`, and the server's list of tracks. Out:
//! [`AudioSection`]s, and the offer for str0m, in which all other sections are inactive and have no
//! source. str0m never forgets sections and sources and does not know tracks, so changes are
//! decided here. Rejected before str0m sees them: offers that remove, move or retype a section, or
//! that lack ICE or DTLS attributes. Sources: RFC 8829 section 5.2.2, RFC 8830 (`msid`), RFC 5576
//! (`ssrc`), `docs/spec/livekit.md` 3.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use str0m::rtp::Ssrc;

use crate::limits::{ROOM_SECTION_SOURCES_MAX, ROOM_TRACK_BYTES_MAX, ROOM_VOICES_MAX};
use crate::webrtc::connection::sources::AudioSection;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    Audio,
    Video,
    Application,
}

/// One section and its lines, without line ends.
pub struct SfuSection<'a> {
    pub kind: SectionKind,
    pub mid: &'a str,
    /// Port 0 and not bundled.
    pub is_stopped: bool,
    /// The sender of the description sends media in this section.
    sender_sends: bool,
    /// The sender of the description receives media in this section.
    sender_receives: bool,
    msid: Option<&'a str>,
    lines: Vec<&'a str>,
}

impl<'a> SfuSection<'a> {
    fn attribute(&self, name: &str) -> Option<&'a str> {
        self.lines.iter().find_map(|line| attribute(line, name))
    }

    /// Returns the announced SSRCs (RFC 5576), without 0.
    fn sources(&self) -> impl Iterator<Item = u32> + '_ {
        self.lines
            .iter()
            .filter_map(|line| attribute(line, "ssrc"))
            .filter_map(|value| value.split(' ').next()?.parse().ok())
            .filter(|source| *source != 0)
    }

    /// Returns the track that the section carries, if any.
    fn track<'t>(&'t self, mid_to_track: &'t BTreeMap<String, String>) -> Option<&'t str> {
        if self.kind != SectionKind::Audio || self.is_stopped || !self.sender_sends {
            return None;
        }
        let by_mid = mid_to_track.get(self.mid).map(String::as_str);
        let is_track = |word: &&str| word.starts_with("TR_");
        let by_msid = || {
            let mut words = self.msid?.split_ascii_whitespace();
            let (stream, track) = (words.next()?, words.next());
            let in_stream = || stream.split_once('|').map(|(_, track)| track);
            track.filter(is_track).or_else(|| in_stream().filter(is_track))
        };
        by_mid
            .or_else(by_msid)
            .filter(|track| (1..=ROOM_TRACK_BYTES_MAX).contains(&track.len()))
    }
}

/// A parsed offer or answer.
pub struct SfuDescription<'a> {
    head: Vec<&'a str>,
    pub sections: Vec<SfuSection<'a>>,
}

impl<'a> SfuDescription<'a> {
    pub fn parse(sdp: &'a str) -> Self {
        let mut head = Vec::new();
        let mut sections: Vec<SfuSection<'a>> = Vec::new();
        for line in sdp.lines() {
            if let Some(media) = line.strip_prefix("m=") {
                let mut words = media.split(' ');
                let kind = match words.next() {
                    Some("audio") => SectionKind::Audio,
                    Some("video") => SectionKind::Video,
                    _ => SectionKind::Application,
                };
                sections.push(SfuSection {
                    kind,
                    mid: "",
                    is_stopped: words.next() == Some("0"),
                    sender_sends: false,
                    sender_receives: false,
                    msid: None,
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
            section.msid = section.attribute("msid");
            // A bundled section with port 0 shares the transport of another, RFC 9143 section 6.
            section.is_stopped &= !bundled.contains(&section.mid);
            let has = |word| section.lines.contains(&word);
            section.sender_sends = has("a=sendrecv") || has("a=sendonly");
            section.sender_receives = has("a=sendrecv") || has("a=recvonly");
        }
        SfuDescription { head, sections }
    }

    /// Checks that str0m can apply the description after one with the sections `before`. `is_free`
    /// returns whether another section may reuse the place of one.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn check(&self, before: &[(String, SectionKind)], is_free: impl Fn(&str) -> bool) -> Result<(), String> {
        let has = |lines: &[&str], name| lines.iter().any(|line| attribute(line, name).is_some());
        let everywhere = || {
            [&self.head]
                .into_iter()
                .chain(self.sections.iter().map(|section| &section.lines))
        };
        if !everywhere().any(|lines| has(lines, "ice-ufrag") && has(lines, "ice-pwd")) {
            return Err("it has no `a=ice-ufrag` with `a=ice-pwd`".to_owned());
        }
        if !everywhere().any(|lines| has(lines, "fingerprint")) {
            return Err("it has no `a=fingerprint`".to_owned());
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
                Some((old, _)) if old == mid || !is_free(old) || section.kind == SectionKind::Application => {
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

    /// Returns the sections in order, for the next [`SfuDescription::check`].
    pub fn layout(&self) -> Vec<(String, SectionKind)> {
        let sections = self.sections.iter();
        sections.map(|section| (section.mid.to_owned(), section.kind)).collect()
    }

    /// Returns whether an answer accepts what the publisher offered: Opus audio and data.
    pub fn takes_audio_and_data(&self) -> bool {
        let opus = |line: &&str| {
            let codec = attribute(line, "rtpmap").and_then(|map| map.split_once(' '));
            codec.is_some_and(|(_, codec)| codec.eq_ignore_ascii_case("opus/48000/2"))
        };
        self.sections.iter().all(|section| match section.kind {
            _ if section.is_stopped => false,
            SectionKind::Audio => section.sender_receives && section.lines.iter().any(opus),
            SectionKind::Video | SectionKind::Application => true,
        })
    }

    /// Selects the track of each section. At the cap, tracks that were received before have
    /// precedence.
    pub fn select_tracks(
        &self,
        mid_to_track: &BTreeMap<String, String>,
        before: &[AudioSection],
    ) -> Vec<Option<AudioSection>> {
        let mut tracks = HashSet::new();
        let mut taken = HashSet::new();
        let is_old = |section: &SfuSection<'_>, track: &str| {
            let mut before = before.iter();
            before.any(|heard| *heard.mid == *section.mid && heard.track.as_deref() == Some(track))
        };
        let carried = self
            .sections
            .iter()
            .map(|section| (section, section.track(mid_to_track)));
        let carried: Vec<(&SfuSection<'_>, Option<&str>)> = carried.collect();
        let old = carried.iter();
        let old = old.filter(|(section, track)| track.is_some_and(|track| is_old(section, track)));
        let mut room = ROOM_VOICES_MAX.saturating_sub(old.count());
        let choice = carried.iter().map(|(section, track)| {
            let track = (*track)?;
            if !tracks.insert(track) {
                log::debug!("section `{}` ignored: its track is in another one", section.mid);
                return None;
            }
            if !is_old(section, track) {
                if room == 0 {
                    log::debug!("section `{}` ignored: {ROOM_VOICES_MAX} tracks are heard", section.mid);
                    return None;
                }
                room -= 1;
            }
            let mut sources: Vec<u32> = Vec::new();
            for source in section.sources() {
                if sources.len() < ROOM_SECTION_SOURCES_MAX && taken.insert(source) {
                    sources.push(source);
                }
            }
            let mut known = before.iter().filter_map(|heard| heard.track.as_ref());
            let known = known.find(|known| ***known == *track);
            Some(AudioSection {
                mid: section.mid.into(),
                track: Some(known.map_or_else(|| Arc::from(track), Arc::clone)),
                is_announced: !sources.is_empty(),
                sources: sources.into_iter().map(Ssrc::from).collect(),
            })
        });
        choice.collect()
    }

    /// Writes the offer for str0m, in which unselected sections are inactive.
    pub fn write(&self, choice: &[Option<AudioSection>]) -> String {
        let mut text = String::new();
        let mut push = |line: &str| {
            text.push_str(line);
            text.push_str("\r\n");
        };
        self.head.iter().for_each(|line| push(line));
        for (section, heard) in self.sections.iter().zip(choice) {
            for line in &section.lines {
                let source = attribute(line, "ssrc").map(|value| value.split(' ').next().unwrap_or_default());
                let is_heard = |source: &str| {
                    let mut sources = heard.iter().flat_map(|heard| &heard.sources);
                    source
                        .parse::<u32>()
                        .is_ok_and(|source| sources.any(|known| **known == source))
                };
                match *line {
                    "a=sendrecv" | "a=sendonly" | "a=recvonly" | "a=inactive"
                        if section.kind != SectionKind::Application =>
                    {
                        push(if heard.is_some() { "a=sendonly" } else { "a=inactive" });
                    }
                    line if attribute(line, "ssrc-group").is_some() => {}
                    _ if source.is_some_and(|source| !is_heard(source)) => {}
                    line => push(line),
                }
            }
        }
        text
    }
}

/// Returns the value of an attribute line with this name; a flag has an empty value.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.strip_prefix("a=")?.strip_prefix(name)?;
    match rest.strip_prefix(':') {
        Some(value) => Some(value),
        None => rest.is_empty().then_some(""),
    }
}
