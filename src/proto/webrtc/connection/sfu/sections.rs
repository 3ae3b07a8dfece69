//! The media sections of SFU descriptions: which are received, and whose track each carries.
//!
//! In: descriptions from `sdp::prepare_sfu_description`, and the server's list of tracks. Out:
//! [`AudioSection`]s, and the offer that is answered, in which all other sections are inactive and
//! have no source. str0m never forgets sources and does not know tracks, so changes are decided
//! here. Sources: RFC 8830 (`msid`), RFC 5576 (`ssrc`), `docs/spec/livekit.md` 3.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use str0m::rtp::Ssrc;

use crate::audio::codec::Codec;
use crate::limits::{ROOM_SECTION_SOURCES_MAX, ROOM_TRACK_BYTES_MAX, ROOM_VOICES_MAX};
use crate::webrtc::connection::config::OPUS_PT;
use crate::webrtc::connection::sources::AudioSection;
use crate::webrtc::sdp::{DescribedSection, SdpDescription, SectionKind, attribute};

/// Returns the track that a section carries, if any.
fn track_of<'t>(section: &'t DescribedSection<'_>, mid_to_track: &'t BTreeMap<String, String>) -> Option<&'t str> {
    if section.kind != SectionKind::Audio || section.is_stopped || !section.sender_sends {
        return None;
    }
    let by_mid = mid_to_track.get(section.mid).map(String::as_str);
    let is_track = |word: &&str| word.starts_with("TR_");
    let by_msid = || {
        let mut words = section.attribute("msid")?.split_ascii_whitespace();
        let (stream, track) = (words.next()?, words.next());
        let in_stream = || stream.split_once('|').map(|(_, track)| track);
        track.filter(is_track).or_else(|| in_stream().filter(is_track))
    };
    by_mid
        .or_else(by_msid)
        .filter(|track| (1..=ROOM_TRACK_BYTES_MAX).contains(&track.len()))
}

impl SdpDescription<'_> {
    /// Returns whether an answer accepts what the publisher offered: Opus audio and data.
    pub fn takes_audio_and_data(&self) -> bool {
        let takes_opus =
            |section: &DescribedSection<'_>| section.payload_types(Codec::Opus).any(|number| number == OPUS_PT);
        self.sections.iter().all(|section| match section.kind {
            _ if section.is_stopped => false,
            SectionKind::Audio => section.sender_receives && takes_opus(section),
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
        let is_old = |section: &DescribedSection<'_>, track: &str| {
            let mut before = before.iter();
            before.any(|selected| *selected.mid == *section.mid && selected.track.as_deref() == Some(track))
        };
        let carried = self
            .sections
            .iter()
            .map(|section| (section, track_of(section, mid_to_track)));
        let carried: Vec<(&DescribedSection<'_>, Option<&str>)> = carried.collect();
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
                    log::debug!(
                        "section `{}` ignored: {ROOM_VOICES_MAX} tracks are received",
                        section.mid
                    );
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
            let mut known = before.iter().filter_map(|selected| selected.track.as_ref());
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

    /// Writes the offer that is answered, in which unselected sections are inactive.
    pub fn write(&self, choice: &[Option<AudioSection>]) -> String {
        let mut text = String::new();
        let mut push = |line: &str| {
            text.push_str(line);
            text.push_str("\r\n");
        };
        self.head.iter().for_each(|line| push(line));
        for (section, selected) in self.sections.iter().zip(choice) {
            for line in &section.lines {
                let source = attribute(line, "ssrc").map(|value| value.split(' ').next().unwrap_or_default());
                let is_selected = |source: &str| {
                    let mut sources = selected.iter().flat_map(|selected| &selected.sources);
                    source
                        .parse::<u32>()
                        .is_ok_and(|source| sources.any(|known| **known == source))
                };
                match *line {
                    "a=sendrecv" | "a=sendonly" | "a=recvonly" | "a=inactive"
                        if section.kind != SectionKind::Application =>
                    {
                        push(if selected.is_some() { "a=sendonly" } else { "a=inactive" });
                    }
                    line if attribute(line, "ssrc-group").is_some() => {}
                    _ if source.is_some_and(|source| !is_selected(source)) => {}
                    line => push(line),
                }
            }
        }
        text
    }
}
