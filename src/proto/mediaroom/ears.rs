//! The participants' voices: a jitter buffer and a decoder for each, and one sound of all of them where that is asked for.
//!
//! In: Opus payloads by track, and `now`. Out: `i16` mono at the bot's rate, 20 ms at a time: of each participant by identity,
//! or mixed, with one clock, whoever comes and goes.

use std::sync::Arc;
use std::time::Instant;

use crate::proto::audio::listener::Tally;
use crate::proto::rtc::AudioPacket;

/// One frame on its way to the bot.
pub struct Frame<'a> {
    /// Whose it is; nobody's when it is mixed.
    pub identity: Option<&'a Arc<str>>,
    pub pcm: &'a [i16],
    pub rate_hz: u32,
}

/// The hearing half of a session in a room.
pub struct Ears {}

impl Ears {
    pub fn new() -> Self {
        todo!("P")
    }

    /// Takes the rate that the bot asks for, in Hz, and whether it hears everybody at once.
    pub fn set(&mut self, _rate_hz: u32, _mixed: bool, _now: Instant) {
        todo!("P")
    }

    /// Takes a packet of a track that belongs to this participant.
    pub fn handle_packet(&mut self, _track: &Arc<str>, _identity: &Arc<str>, _packet: &AudioPacket, _now: Instant) {
        todo!("P")
    }

    /// A track has ended; what it said is still heard.
    pub fn handle_gone(&mut self, _track: &str) {
        todo!("P")
    }

    pub fn handle_timeout(&mut self, _now: Instant) {
        todo!("P")
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!("P")
    }

    /// Makes the next frame ready, if there is one; [`Ears::take_frame`] hands it out.
    pub fn poll_frame(&mut self) -> bool {
        todo!("P")
    }

    pub fn take_frame(&mut self) -> Frame<'_> {
        todo!("P")
    }

    /// Returns what became of the packets of all tracks.
    pub fn tally(&self) -> Tally {
        todo!("P")
    }
}

impl Default for Ears {
    fn default() -> Self {
        Ears::new()
    }
}
