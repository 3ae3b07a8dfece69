//! The participants' voices: a jitter buffer and a decoder for each, and one sound of all of them where that is asked for.
//!
//! In: Opus payloads by track, and `now`. Out: `i16` mono at the bot's rate, 20 ms at a time: of each participant by identity,
//! all of that one's tracks in one sound, or of everybody in one. How they are mixed, when a frame is due, and when none is,
//! stands in `mixer`. Nothing is decoded before the bot has said its rate. Ignored: tracks beyond [`ROOM_VOICES_MAX`].

mod mixer;

use std::sync::Arc;
use std::time::Instant;

use self::mixer::{Mixer, Track};
use crate::audio::listener::Tally;
use crate::audio::packet::AudioPacket;
use crate::limits::ROOM_VOICES_MAX;
use crate::session::Frame;

/// Those who are heard in one sound.
struct Voice {
    /// Nobody's when it is everybody's.
    identity: Option<Arc<str>>,
    mixer: Mixer,
}

/// The hearing half of a session in a room.
#[derive(Default)]
pub struct Ears {
    /// 0 until the bot has asked for audio.
    rate_hz: u32,
    is_mixed: bool,
    voices: Vec<Voice>,
    /// Whose frame is in `pcm`.
    ready: Option<usize>,
    pcm: Vec<i16>,
    /// Of the tracks that are gone.
    past: Sums,
    now: Option<Instant>,
}

/// What became of the audio of a stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mixed {
    /// Frames in which a voice was missing though it spoke.
    pub inserted: u64,
    /// Frames of a voice that were dropped, since it was ahead of the others.
    pub dropped: u64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    tally: Tally,
    mixed: Mixed,
}

impl Sums {
    fn add(&mut self, track: &Track) {
        self.tally = self.tally.with(&track.listener.tally());
        self.mixed.inserted += track.mixed.inserted;
        self.mixed.dropped += track.mixed.dropped;
    }
}

impl Ears {
    pub fn new() -> Self {
        Ears::default()
    }

    /// Takes the rate that the bot asks for, in Hz, and whether it hears everybody at once. What was not handed out is dropped
    /// when either changes.
    pub fn set(&mut self, rate_hz: u32, mixed: bool, now: Instant) {
        self.now = Some(now);
        if (rate_hz, mixed) == (self.rate_hz, self.is_mixed) {
            return;
        }
        (self.rate_hz, self.is_mixed) = (rate_hz, mixed);
        self.ready = None;
        let voices = std::mem::take(&mut self.voices);
        for mut track in voices.into_iter().flat_map(|voice| voice.mixer.tracks) {
            track.set_rate(rate_hz);
            self.voice(&track.identity.clone()).mixer.tracks.push(track);
        }
    }

    /// Returns the voice that a participant belongs to.
    fn voice(&mut self, identity: &Arc<str>) -> &mut Voice {
        let identity = Some(identity).filter(|_| !self.is_mixed);
        let at = self.voices.iter().position(|voice| voice.identity.as_ref() == identity);
        let at = at.unwrap_or_else(|| {
            self.voices.push(Voice {
                identity: identity.cloned(),
                mixer: Mixer::default(),
            });
            self.voices.len() - 1
        });
        &mut self.voices[at]
    }

    fn tracks(&self) -> impl Iterator<Item = &Track> {
        self.voices.iter().flat_map(|voice| &voice.mixer.tracks)
    }

    fn tracks_mut(&mut self) -> impl Iterator<Item = &mut Track> {
        self.voices.iter_mut().flat_map(|voice| &mut voice.mixer.tracks)
    }

    /// Takes a packet of a track that belongs to this participant.
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
            log::debug!("a track is not heard: {ROOM_VOICES_MAX} are");
            return;
        }
        let mut fresh = Track::new(track.clone(), identity.clone());
        fresh.set_rate(self.rate_hz);
        fresh.handle_packet(packet, now);
        self.voice(identity).mixer.tracks.push(fresh);
    }

    /// A track has ended; what it said is still heard.
    pub fn handle_gone(&mut self, track: &str) {
        if let Some(gone) = self.tracks_mut().find(|known| *known.sid == *track) {
            gone.is_gone = true;
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = Some(now);
        self.tracks_mut().for_each(|track| track.listener.handle_timeout(now));
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        let voices = self.voices.iter();
        voices.filter_map(|voice| voice.mixer.poll_timeout()).min()
    }

    /// Makes the next frame ready, if there is one; [`Ears::take_frame`] hands it out.
    pub fn poll_frame(&mut self) -> bool {
        let Some(now) = self.now else {
            return false;
        };
        if self.ready.is_some() {
            return true;
        }
        let samples = self.rate_hz as usize / 50;
        let mut voices = self.voices.iter_mut();
        self.ready = voices.position(|voice| voice.mixer.poll(samples, now, &mut self.pcm));
        if self.ready.is_none() {
            self.forget_gone();
        }
        self.ready.is_some()
    }

    fn forget_gone(&mut self) {
        if !self.tracks().any(Track::is_over) {
            return;
        }
        for voice in &mut self.voices {
            voice.mixer.tracks.retain(|track| {
                if track.is_over() {
                    self.past.add(track);
                }
                !track.is_over()
            });
        }
        self.voices.retain(|voice| !voice.mixer.tracks.is_empty());
    }

    /// Hands out the frame that [`Ears::poll_frame`] made.
    pub fn take_frame(&mut self) -> Frame<'_> {
        let whose = self.ready.take().and_then(|at| self.voices.get(at));
        Frame {
            identity: whose.and_then(|voice| voice.identity.as_ref()),
            pcm: &self.pcm,
            rate_hz: self.rate_hz,
        }
    }

    fn sums(&self) -> Sums {
        let mut sums = self.past;
        self.tracks().for_each(|track| sums.add(track));
        sums
    }

    /// Returns what became of the packets of all tracks; the jitter is the greatest of theirs.
    pub fn tally(&self) -> Tally {
        self.sums().tally
    }

    /// Returns what mixing did to the voices.
    pub fn mixed(&self) -> Mixed {
        self.sums().mixed
    }
}

#[cfg(test)]
mod tests;
