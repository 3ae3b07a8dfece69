//! Whose audio a packet is: the sections that are listened to, and the sources that speak in them.
//!
//! In: the source that an RTP packet claims, before str0m looks at its tag, and once the tag was
//! good. Out: whether str0m may look at it, and the section it belongs to. Anybody may claim a
//! source, and str0m gives a section to whatever claims it; so a section is given back to the
//! source that has proven itself in it, and sources that are found are counted. Sources: RFC 8829
//! section 5.2.1 (`a=ssrc` is optional), RFC 9143 section 9.2 (sections and payload types).

use std::sync::Arc;

use str0m::Rtc;
use str0m::media::Mid;
use str0m::rtp::Ssrc;

use crate::limits::{AUDIO_SOURCES_MAX, ROOM_SOURCES_MAX};

/// Who speaks at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioLayout {
    /// A client, in whichever section its packets come.
    SingleClient,
    /// The participants of a media room, one in each section.
    Tracks,
}

/// A section that is listened to.
pub struct AudioSection {
    pub mid: Mid,
    /// The track in a media room.
    pub track: Option<Arc<str>>,
    /// The sources that speak in it: those that are announced, or the one whose packet last had a
    /// good tag; before any had, the one that a client's offer names.
    pub sources: Vec<Ssrc>,
    /// No other source speaks in it.
    pub is_announced: bool,
}

/// The sections that are listened to.
pub struct AudioSources {
    layout: AudioLayout,
    pub sections: Vec<AudioSection>,
    /// How many sources were found without having been announced.
    pub discovered: usize,
    /// A source that no offer named, until the tag of its packet is judged.
    tentative: Option<Ssrc>,
    /// The one audio section takes packets of sources that it does not name.
    accepts_any: bool,
}

impl AudioSources {
    pub fn new(talkers: AudioLayout, takes_any: bool) -> Self {
        AudioSources {
            layout: talkers,
            sections: Vec::new(),
            discovered: 0,
            tentative: None,
            accepts_any: takes_any,
        }
    }

    /// Takes a section that was negotiated; tells whether it is the one of a client.
    pub fn handle_media(&mut self, rtc: &mut Rtc, mid: Mid) -> bool {
        let is_it = self.layout == AudioLayout::SingleClient && self.sections.is_empty();
        if is_it {
            let mut api = rtc.direct_api();
            let named = api.stream_rx_by_mid(mid, None).map(|stream| stream.ssrc());
            self.sections.push(AudioSection {
                mid,
                track: None,
                sources: named.into_iter().collect(),
                is_announced: false,
            });
        }
        is_it
    }

    /// Prepares str0m for a packet that claims a source, and tells whether it may look at the
    /// packet. `is_negotiated` says that the payload type is.
    pub fn admit(&mut self, rtc: &mut Rtc, source: Ssrc, is_negotiated: bool) -> bool {
        let mut sections = self.sections.iter();
        if let Some(section) = sections.find(|section| section.sources.contains(&source)) {
            section.restore_source(rtc, source);
            return true;
        }
        let found_max = match self.layout {
            AudioLayout::SingleClient => AUDIO_SOURCES_MAX,
            AudioLayout::Tracks => ROOM_SOURCES_MAX,
        };
        if self.discovered >= found_max {
            return false;
        }
        if self.accepts_any && is_negotiated {
            self.expect_source(rtc, source);
        }
        true
    }

    /// Lets str0m judge a packet of a source that neither the offer nor the packet assigns to a
    /// section: where one section of audio is, its payload type tells enough.
    ///
    /// Its stream stands beside the caller's, for this packet alone: it stays when the packet has a
    /// good tag, and is gone with the end of this turn when it has none.
    fn expect_source(&mut self, rtc: &mut Rtc, source: Ssrc) {
        let Some(mid) = self.sections.first().map(|section| section.mid) else {
            return;
        };
        if rtc.media(mid).is_none() {
            return;
        }
        let mut api = rtc.direct_api();
        if api.stream_rx(&source).is_none() {
            api.expect_stream_rx(source, None, mid, None).suppress_nack(true);
            self.tentative = Some(source);
        }
    }

    /// A packet of a source had a good tag.
    pub fn confirm(&mut self, source: Ssrc) {
        if self.tentative == Some(source) {
            self.tentative = None;
        }
    }

    /// Forgets a source whose packet had no good tag.
    pub fn drop_tentative(&mut self, rtc: &mut Rtc) {
        if let Some(source) = self.tentative.take() {
            rtc.direct_api().remove_stream_rx(source);
        }
    }

    /// Finds the section of a packet whose tag was good.
    pub fn section_of(&mut self, rtc: &mut Rtc, source: Ssrc) -> Option<&AudioSection> {
        let mut sections = self.sections.iter_mut();
        let section = match self.layout {
            AudioLayout::SingleClient => sections.next()?,
            AudioLayout::Tracks => {
                let mid = rtc.direct_api().stream_rx(&source)?.mid();
                sections.find(|section| section.mid == mid)?
            }
        };
        if !section.sources.contains(&source) {
            if section.is_announced {
                // One of another track, from before the section was used again.
                rtc.direct_api().remove_stream_rx(source);
                return None;
            }
            section.sources.clear();
            section.sources.push(source);
            self.discovered += 1;
        }
        Some(section)
    }

    /// Takes the sections of a further description, and returns the tracks that are gone.
    pub fn replace(&mut self, next: Vec<AudioSection>) -> Vec<Arc<str>> {
        let before = std::mem::replace(&mut self.sections, next);
        let gone = before.into_iter().filter_map(|old| {
            if !self.sections.iter().any(|new| new.track == old.track) {
                return old.track;
            }
            // A section that announces nothing goes on with the source that was found.
            let mut sections = self.sections.iter_mut();
            let same = sections.find(|new| new.mid == old.mid && new.track == old.track);
            if let Some(new) = same.filter(|new| !new.is_announced) {
                new.sources = old.sources;
            }
            None
        });
        gone.collect()
    }

    /// Takes sources away from sections that they no longer speak in: str0m would go on mapping
    /// them there.
    pub fn remove_stale(&self, rtc: &mut Rtc, next: &[AudioSection]) {
        let mut api = rtc.direct_api();
        for old in &self.sections {
            let stays = next.iter().find(|new| new.mid == old.mid);
            for source in &old.sources {
                let keeps = stays.is_some_and(|new| match new.is_announced {
                    true => new.sources.contains(source),
                    false => new.track == old.track,
                });
                if !keeps {
                    api.remove_stream_rx(*source);
                }
            }
        }
    }
}

impl AudioSection {
    /// Gives the section back to a source that belongs there.
    ///
    /// A packet that names the section and another source takes it over before str0m has looked at
    /// the packet's tag, and the true source need not name the section any more: one forged packet
    /// would silence the talker.
    fn restore_source(&self, rtc: &mut Rtc, source: Ssrc) {
        let mut api = rtc.direct_api();
        if api.stream_rx(&source).is_some() {
            return;
        }
        let thief = api.stream_rx_by_mid(self.mid, None).map(|stream| stream.ssrc());
        if let Some(thief) = thief.filter(|thief| !self.sources.contains(thief)) {
            api.remove_stream_rx(thief);
        }
        if rtc.media(self.mid).is_some() {
            let mut api = rtc.direct_api();
            api.expect_stream_rx(source, None, self.mid, None).suppress_nack(true);
        }
    }
}
