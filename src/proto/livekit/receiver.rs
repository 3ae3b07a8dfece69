//! The audio of the participants: a jitter buffer and a decoder for each track, and mixing.
//!
//! In: Opus payloads by track, and `now`. Out: `i16` mono at the bot's rate, in frames of 20 ms,
//! either of each participant (all tracks of one identity mixed) or of all participants mixed.
//! `mixer` defines the mixing and the timing. Nothing is decoded before the bot sets its rate.
//! Tracks beyond [`ROOM_VOICES_MAX`] are ignored.

mod mixer;

use std::sync::Arc;
use std::time::Instant;

use self::mixer::{Mixer, Track};
use crate::audio::packet::AudioPacket;
use crate::audio::receiver::InboundStats;
use crate::limits::ROOM_VOICES_MAX;
use crate::session::CallerFrame;

/// The tracks that are mixed into one signal.
struct MixGroup {
    /// `None` if it is the mix of all participants.
    identity: Option<Arc<str>>,
    mixer: Mixer,
}

/// The receiving half of a session in a room.
#[derive(Default)]
pub struct RoomAudioReceiver {
    /// 0 until the bot has asked for audio.
    rate_hz: u32,
    is_mixed: bool,
    groups: Vec<MixGroup>,
    /// The group of the frame in `pcm`.
    ready: Option<usize>,
    pcm: Vec<i16>,
    /// The statistics of ended tracks.
    ended_tracks: ReceiverStats,
    now: Option<Instant>,
}

/// Statistics of mixing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MixStats {
    /// Frames that lacked a track in the middle of speech.
    pub inserted: u64,
    /// Frames of a track that were dropped because it was ahead of the others.
    pub dropped: u64,
}

#[derive(Clone, Copy, Default)]
struct ReceiverStats {
    stats: InboundStats,
    mix: MixStats,
}

impl ReceiverStats {
    fn add(&mut self, track: &Track) {
        self.stats = self.stats.with(&track.listener.stats());
        self.mix.inserted += track.mix_stats.inserted;
        self.mix.dropped += track.mix_stats.dropped;
    }
}

impl RoomAudioReceiver {
    pub fn new() -> Self {
        RoomAudioReceiver::default()
    }

    /// Sets the bot's rate in Hz, and whether it hears all participants mixed. A change of either
    /// drops pending audio.
    pub fn configure(&mut self, rate_hz: u32, mixed: bool, now: Instant) {
        self.now = Some(now);
        if (rate_hz, mixed) == (self.rate_hz, self.is_mixed) {
            return;
        }
        (self.rate_hz, self.is_mixed) = (rate_hz, mixed);
        self.ready = None;
        let groups = std::mem::take(&mut self.groups);
        for mut track in groups.into_iter().flat_map(|group| group.mixer.tracks) {
            track.set_rate(rate_hz);
            self.group_of(&track.identity.clone()).mixer.tracks.push(track);
        }
    }

    /// Returns the group of a participant.
    fn group_of(&mut self, identity: &Arc<str>) -> &mut MixGroup {
        let identity = Some(identity).filter(|_| !self.is_mixed);
        let at = self.groups.iter().position(|group| group.identity.as_ref() == identity);
        let at = at.unwrap_or_else(|| {
            self.groups.push(MixGroup {
                identity: identity.cloned(),
                mixer: Mixer::default(),
            });
            self.groups.len() - 1
        });
        &mut self.groups[at]
    }

    fn tracks(&self) -> impl Iterator<Item = &Track> {
        self.groups.iter().flat_map(|group| &group.mixer.tracks)
    }

    fn tracks_mut(&mut self) -> impl Iterator<Item = &mut Track> {
        self.groups.iter_mut().flat_map(|group| &mut group.mixer.tracks)
    }

    /// Handles a packet of a participant's track.
    pub fn handle_packet(&mut self, track: &Arc<str>, identity: &Arc<str>, packet: &AudioPacket, now: Instant) {
        self.now = Some(now);
        if self.rate_hz == 0 {
            return;
        }
        if let Some(known) = self.tracks_mut().find(|known| known.sid == *track) {
            known.handle_packet(packet, now);
            return;
        }
        if self.tracks().count() == ROOM_VOICES_MAX {
            log::debug!("a track is ignored: {ROOM_VOICES_MAX} are received already");
            return;
        }
        let mut fresh = Track::new(track.clone(), identity.clone());
        fresh.set_rate(self.rate_hz);
        fresh.handle_packet(packet, now);
        self.group_of(identity).mixer.tracks.push(fresh);
    }

    /// Handles the end of a track. Its buffered audio is still played.
    pub fn handle_track_ended(&mut self, track: &str) {
        if let Some(gone) = self.tracks_mut().find(|known| *known.sid == *track) {
            gone.is_ended = true;
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = Some(now);
        self.tracks_mut().for_each(|track| track.listener.handle_timeout(now));
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        let groups = self.groups.iter();
        groups.filter_map(|group| group.mixer.poll_timeout()).min()
    }

    /// Prepares the next frame. [`RoomAudioReceiver::take_frame`] returns it.
    pub fn poll_frame(&mut self) -> bool {
        let Some(now) = self.now else {
            return false;
        };
        if self.ready.is_some() {
            return true;
        }
        let samples = self.rate_hz as usize / 50;
        let mut groups = self.groups.iter_mut();
        self.ready = groups.position(|group| group.mixer.poll(samples, now, &mut self.pcm));
        if self.ready.is_none() {
            self.remove_ended_tracks();
        }
        self.ready.is_some()
    }

    fn remove_ended_tracks(&mut self) {
        if !self.tracks().any(Track::is_over) {
            return;
        }
        for group in &mut self.groups {
            group.mixer.tracks.retain(|track| {
                if track.is_over() {
                    self.ended_tracks.add(track);
                }
                !track.is_over()
            });
        }
        self.groups.retain(|group| !group.mixer.tracks.is_empty());
    }

    /// Returns the frame that [`RoomAudioReceiver::poll_frame`] prepared.
    pub fn take_frame(&mut self) -> CallerFrame<'_> {
        let whose = self.ready.take().and_then(|at| self.groups.get(at));
        CallerFrame {
            identity: whose.and_then(|group| group.identity.as_ref()),
            pcm: &self.pcm,
            rate_hz: self.rate_hz,
        }
    }

    fn receiver_stats(&self) -> ReceiverStats {
        let mut stats = self.ended_tracks;
        self.tracks().for_each(|track| stats.add(track));
        stats
    }

    /// Returns the packet statistics of all tracks. The jitter is the maximum.
    pub fn stats(&self) -> InboundStats {
        self.receiver_stats().stats
    }

    /// Returns the statistics of mixing.
    pub fn mix_stats(&self) -> MixStats {
        self.receiver_stats().mix
    }
}

#[cfg(test)]
mod tests;
