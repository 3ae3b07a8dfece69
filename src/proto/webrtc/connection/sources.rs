//! Assigns RTP packets to audio sections by their SSRC.
//!
//! In: the SSRC that a packet claims, before and after its authentication. Out: whether str0m may
//! process the packet, and its section. str0m assigns a section to any SSRC that claims it, forged
//! or not. So a section is restored to its authenticated source, and discovered sources are
//! counted. A client may have many sources one after the other; the oldest are forgotten.
//! Sources: RFC 8829 section 5.2.1 (`a=ssrc` is optional), RFC 9143 section 9.2 (sections
//! and payload types).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use str0m::Rtc;
use str0m::media::Mid;
use str0m::rtp::Ssrc;

use crate::limits::{AUDIO_SOURCES_MAX, ROOM_SOURCES_MAX};

/// Sources of one client in a session, of which str0m keeps the sequence numbers, 50 bytes each.
/// A client that changes its source with each press of a button has as many in half a day at least.
const CLIENT_SOURCES_MAX: usize = 16_384;
/// Time since the last packet of a client's section after which another section takes its place:
/// longer than a microphone pauses while it is on.
const SECTION_SILENT_AFTER: Duration = Duration::from_secs(1);

/// How the peer's audio is divided into sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioLayout {
    /// One client, in any section.
    SingleClient,
    /// The participants of a room, one section each.
    Tracks,
}

/// An audio section that is received.
pub struct AudioSection {
    pub mid: Mid,
    /// The LiveKit track id.
    pub track: Option<Arc<str>>,
    /// The announced sources, or the one that was authenticated last. Before that, the one that a
    /// client's offer names.
    pub sources: Vec<Ssrc>,
    /// Only announced sources are accepted.
    pub is_announced: bool,
}

/// The audio sections of a connection.
pub struct AudioSources {
    layout: AudioLayout,
    pub sections: Vec<AudioSection>,
    /// How many authenticated sources were not announced.
    pub discovered: usize,
    /// A client's former sources, the newest last.
    former: VecDeque<Ssrc>,
    /// A source without announcement, until its packet is authenticated.
    tentative: Option<Ssrc>,
    /// The only audio section accepts any source.
    accepts_any: bool,
    /// The section of a client's last packet that was passed on, and its time.
    active: Option<(Option<Mid>, Instant)>,
}

impl AudioSources {
    pub fn new(talkers: AudioLayout, takes_any: bool) -> Self {
        AudioSources {
            layout: talkers,
            sections: Vec::new(),
            discovered: 0,
            former: VecDeque::new(),
            tentative: None,
            accepts_any: takes_any,
            active: None,
        }
    }

    /// Handles a negotiated section of a client; the first one stands for all.
    pub fn handle_media(&mut self, rtc: &mut Rtc, mid: Mid) {
        if self.sections.is_empty() {
            let mut api = rtc.direct_api();
            let named = api.stream_rx_by_mid(mid, None).map(|stream| stream.ssrc());
            self.sections.push(AudioSection {
                mid,
                track: None,
                sources: named.into_iter().collect(),
                is_announced: false,
            });
        }
    }

    /// Returns the number of sources that are kept.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.former.len() + self.sections.iter().map(|section| section.sources.len()).sum::<usize>()
    }

    /// Counts all sources but one that a client may have.
    #[cfg(test)]
    pub fn skip(&mut self) {
        self.discovered = CLIENT_SOURCES_MAX - 1;
    }

    /// Prepares str0m for a packet of this source. Returns whether str0m may process the packet.
    /// `is_negotiated` describes its payload type.
    pub fn admit(&mut self, rtc: &mut Rtc, source: Ssrc, is_negotiated: bool) -> bool {
        let mut sections = self.sections.iter();
        if let Some(section) = sections.find(|section| section.sources.contains(&source)) {
            section.restore_source(rtc, source);
            return true;
        }
        let sources_max = match self.layout {
            AudioLayout::SingleClient => CLIENT_SOURCES_MAX,
            AudioLayout::Tracks => ROOM_SOURCES_MAX,
        };
        if self.discovered >= sources_max {
            self.report_too_many();
            return false;
        }
        if self.accepts_any && is_negotiated {
            self.expect_source(rtc, source);
        }
        true
    }

    /// Warns once that the bot receives nothing more of a client.
    fn report_too_many(&mut self) {
        if self.layout == AudioLayout::SingleClient && self.discovered == CLIENT_SOURCES_MAX {
            self.discovered += 1;
            log::warn!(
                "the bot is deaf: the client has sent from {CLIENT_SOURCES_MAX} sources (SSRC) in this session, and no more are \
                 admitted; a client changes its source with each press of a button at most, so call again"
            );
        }
    }

    /// Lets str0m authenticate a packet that no signalling assigns to a section. With a single
    /// audio section, the payload type is sufficient.
    ///
    /// A tentative stream is added beside the caller's. It stays if the packet is authentic and is
    /// removed at the end of the turn otherwise.
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

    /// Keeps the tentative source after its packet was authenticated.
    pub fn confirm(&mut self, source: Ssrc) {
        if self.tentative == Some(source) {
            self.tentative = None;
        }
    }

    /// Removes the tentative source.
    pub fn drop_tentative(&mut self, rtc: &mut Rtc) {
        if let Some(source) = self.tentative.take() {
            rtc.direct_api().remove_stream_rx(source);
        }
    }

    /// Returns the section of an authenticated packet, and whether its source is another one than
    /// before. `None` for a packet that is not passed on.
    pub fn section_of(&mut self, rtc: &mut Rtc, source: Ssrc, now: Instant) -> Option<(&AudioSection, bool)> {
        let mid = rtc.direct_api().stream_rx(&source).map(|stream| stream.mid());
        let mut sections = self.sections.iter_mut();
        let section = match self.layout {
            AudioLayout::SingleClient => {
                // A client may send from two sections, such as a microphone and the sound of a
                // page. Their packets by turns would be the sound of neither.
                let active = self.active.filter(|(_, at)| now < *at + SECTION_SILENT_AFTER);
                if active.is_some_and(|(active, _)| active != mid) {
                    return None;
                }
                self.active = Some((mid, now));
                sections.next()?
            }
            AudioLayout::Tracks => sections.find(|section| Some(section.mid) == mid)?,
        };
        let is_new_source = !section.sources.contains(&source);
        if is_new_source {
            if section.is_announced {
                // A source of the track that used this section before.
                rtc.direct_api().remove_stream_rx(source);
                return None;
            }
            if self.layout == AudioLayout::SingleClient {
                self.former.retain(|known| *known != source);
                self.former.extend(section.sources.drain(..));
                if self.former.len() >= AUDIO_SOURCES_MAX
                    && let Some(oldest) = self.former.pop_front()
                {
                    rtc.direct_api().remove_stream_rx(oldest);
                }
            }
            section.sources.clear();
            section.sources.push(source);
            self.discovered += 1;
        }
        Some((&*section, is_new_source))
    }

    /// Handles a later offer of a client: its microphone may be in another section now.
    pub fn handle_renegotiation(&mut self) {
        self.active = None;
    }

    /// Applies the sections of a later description. Returns the removed tracks.
    pub fn replace(&mut self, next: Vec<AudioSection>) -> Vec<Arc<str>> {
        let before = std::mem::replace(&mut self.sections, next);
        let gone = before.into_iter().filter_map(|old| {
            if !self.sections.iter().any(|new| new.track == old.track) {
                return old.track;
            }
            // A section without announcements keeps its discovered source.
            let mut sections = self.sections.iter_mut();
            let same = sections.find(|new| new.mid == old.mid && new.track == old.track);
            if let Some(new) = same.filter(|new| !new.is_announced) {
                new.sources = old.sources;
            }
            None
        });
        gone.collect()
    }

    /// Removes sources from sections that no longer announce them, because str0m would keep the
    /// mapping.
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
    /// Restores the section to one of its own sources.
    ///
    /// A packet with this section's mid and another SSRC takes the section over before its
    /// authentication. The true source may no longer send the mid, so one forged packet would
    /// silence it.
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
