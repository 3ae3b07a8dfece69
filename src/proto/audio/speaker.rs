//! What the bot says, from PCM of any length to Opus packets that leave on time: the clock of `pacer`, the codec of `opus`.
//!
//! In: `i16` mono PCM at the bot's rate, interruptions, and `now`. Out: one Opus packet per 20 ms with its RTP timestamp,
//! silence included, and the turns of speech as they leave. Nothing leaves before [`Speaker::start`].

use std::collections::VecDeque;
use std::time::Instant;

use crate::limits::OPUS_PACKET_BYTES_MAX;
use crate::proto::audio::opus::{Encoder, EncoderSettings};
use crate::proto::audio::pacer::{self, Pacer};

/// The rate at which silence is sent to a caller whose bot has not asked for audio yet.
const RATE_HZ_BEFORE: u32 = 16_000;

/// What the caller hears of the bot's turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Started,
    Stopped,
}

/// One packet on its way.
pub struct Packet<'a> {
    pub payload: &'a [u8],
    /// RTP timestamp in ticks of 48 kHz, from zero at the session's start.
    pub ticks: u64,
}

/// The speaking half of a session's audio.
pub struct Speaker {
    pacer: Pacer,
    encoder: Option<Encoder>,
    rate_hz: u32,
    started: Option<Instant>,
    /// Ticks that had passed when the rate was set.
    ticks_before: u64,
    ticks: u64,
    pcm: Vec<i16>,
    packet: [u8; OPUS_PACKET_BYTES_MAX],
    turns: VecDeque<Turn>,
}

impl Speaker {
    pub fn new() -> Self {
        Speaker {
            pacer: Pacer::new(RATE_HZ_BEFORE),
            encoder: None,
            rate_hz: RATE_HZ_BEFORE,
            started: None,
            ticks_before: 0,
            ticks: 0,
            pcm: Vec::new(),
            packet: [0; OPUS_PACKET_BYTES_MAX],
            turns: VecDeque::new(),
        }
    }

    /// Takes the rate of the bot's PCM, in Hz. The stream goes on with the next packet.
    pub fn set_rate(&mut self, rate_hz: u32, now: Instant) {
        if self.rate_hz == rate_hz {
            return;
        }
        self.rate_hz = rate_hz;
        self.pacer = Pacer::new(rate_hz);
        self.encoder = None;
        self.ticks_before = self.ticks;
        if self.started.is_some() {
            self.pacer.start(now);
        }
    }

    /// The caller is connected: from here on a packet leaves every 20 ms.
    pub fn start(&mut self, now: Instant) {
        self.started = Some(now);
        self.pacer.start(now);
    }

    /// Drops all speech that has not left.
    pub fn handle_interruption(&mut self, now: Instant) {
        self.pacer.handle_interruption(now);
    }

    /// Lets `take` append at most so many samples as there is room for, and tells whether any came.
    pub fn pull(&mut self, take: impl FnOnce(&mut Vec<i16>, usize) -> usize, now: Instant) -> bool {
        self.pcm.clear();
        let taken = take(&mut self.pcm, self.pacer.room());
        self.pacer.handle_audio(&self.pcm, now);
        taken > 0
    }

    /// Tells whether nothing is left to say.
    pub fn is_silent(&self) -> bool {
        self.pacer.queued().is_zero()
    }

    /// Returns the next packet that is due.
    pub fn poll_packet(&mut self, now: Instant) -> Option<Packet<'_>> {
        self.started?;
        self.pacer.handle_timeout(now);
        loop {
            match self.pacer.poll_output()? {
                pacer::Output::SpeechStarted => self.turns.push_back(Turn::Started),
                pacer::Output::SpeechStopped => self.turns.push_back(Turn::Stopped),
                pacer::Output::Frame(frame) => {
                    let ticks = self.ticks_before + frame.rtp_ticks;
                    self.ticks = ticks + pacer::PTIME_TICKS;
                    if self.encoder.is_none() {
                        self.encoder = encoder(self.rate_hz);
                    }
                    let encoder = self.encoder.as_mut()?;
                    match encoder.encode(frame.pcm, &mut self.packet) {
                        Ok(bytes) => {
                            return Some(Packet {
                                payload: &self.packet[..bytes],
                                ticks,
                            });
                        }
                        Err(error) => log::debug!("encoding: {error}"),
                    }
                }
            }
        }
    }

    /// Returns the next turn of speech that the caller heard.
    pub fn poll_turn(&mut self) -> Option<Turn> {
        self.turns.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pacer.poll_timeout().map(|(at, _why)| at)
    }
}

impl Default for Speaker {
    fn default() -> Self {
        Speaker::new()
    }
}

fn encoder(rate_hz: u32) -> Option<Encoder> {
    Encoder::new(rate_hz, EncoderSettings::default())
        .inspect_err(|error| log::warn!("no audio at {rate_hz} Hz: {error}"))
        .ok()
}
