//! What the bot says, from PCM of any length to Opus packets that leave on time: the clock of `pacer`, the codec of
//! `encoder`, and `resample` between them where the codec does not know the bot's rate.
//!
//! In: `i16` mono PCM at the bot's rate, interruptions, and `now`. Out: one Opus packet per 20 ms with its RTP timestamp,
//! silence included, and the turns of speech as they leave. Nothing leaves before [`Speaker::start`].

use std::collections::VecDeque;
use std::time::Instant;

use crate::proto::audio::encoder::SpeechEncoder;
use crate::proto::audio::opus::{EncoderSettings, encoder_rate_hz};
use crate::proto::audio::pacer::{self, Pacer};
use crate::proto::audio::resample::Resampler;

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
    /// Whether the caller decodes at 16 kHz: what it cannot hear is not coded.
    device: bool,
    rate_hz: u32,
    /// Set where the bot's rate is not the codec's.
    resampler: Option<Resampler>,
    pacer: Pacer,
    encoder: Option<SpeechEncoder>,
    started: bool,
    /// Ticks that had passed when the rate was set.
    ticks_before: u64,
    ticks: u64,
    /// Speech on its way into the pacer, at the bot's rate and at the codec's; both are kept for their memory.
    taken: Vec<i16>,
    resampled: Vec<i16>,
    turns: VecDeque<Turn>,
}

impl Speaker {
    pub fn new(device: bool) -> Self {
        Speaker {
            device,
            rate_hz: RATE_HZ_BEFORE,
            resampler: None,
            pacer: Pacer::new(RATE_HZ_BEFORE),
            encoder: None,
            started: false,
            ticks_before: 0,
            ticks: 0,
            taken: Vec::new(),
            resampled: Vec::new(),
            turns: VecDeque::new(),
        }
    }

    /// Takes the rate of the bot's PCM, in Hz. The stream goes on with the next packet.
    pub fn set_rate(&mut self, rate_hz: u32, now: Instant) {
        if self.rate_hz == rate_hz {
            return;
        }
        let codec_hz = encoder_rate_hz(rate_hz);
        self.rate_hz = rate_hz;
        self.resampler = (codec_hz != rate_hz).then(|| Resampler::new(rate_hz, codec_hz));
        self.pacer = Pacer::new(codec_hz);
        self.encoder = None;
        self.ticks_before = self.ticks;
        if self.started {
            self.pacer.start(now);
        }
    }

    /// The caller is connected: from here on a packet leaves every 20 ms.
    pub fn start(&mut self, now: Instant) {
        self.started = true;
        self.pacer.start(now);
    }

    /// Drops all speech that has not left.
    pub fn handle_interruption(&mut self, now: Instant) {
        self.pacer.handle_interruption(now);
        if let Some(resampler) = &mut self.resampler {
            resampler.reset();
        }
    }

    /// Lets `take` append at most so many samples as there is room for, and tells whether any came.
    pub fn pull(&mut self, take: impl FnOnce(&mut Vec<i16>, usize) -> usize, now: Instant) -> bool {
        self.taken.clear();
        let room = self.pacer.room() as u64 * u64::from(self.rate_hz) / u64::from(encoder_rate_hz(self.rate_hz));
        let came = take(&mut self.taken, room as usize) > 0;
        let speech = match &mut self.resampler {
            Some(resampler) => {
                self.resampled.clear();
                resampler.process(&self.taken, &mut self.resampled);
                &self.resampled
            }
            None => &self.taken,
        };
        self.pacer.handle_audio(speech, now);
        came
    }

    /// Tells whether nothing is left to say.
    pub fn is_silent(&self) -> bool {
        self.pacer.queued().is_zero()
    }

    /// Returns the next packet that is due.
    pub fn poll_packet(&mut self, now: Instant) -> Option<Packet<'_>> {
        self.pacer.handle_timeout(now);
        let frame = loop {
            match self.pacer.poll_output()? {
                pacer::Output::SpeechStarted => self.turns.push_back(Turn::Started),
                pacer::Output::SpeechStopped => self.turns.push_back(Turn::Stopped),
                pacer::Output::Frame(frame) => break frame,
            }
        };
        let ticks = self.ticks_before + frame.rtp_ticks;
        self.ticks = ticks + pacer::PTIME_TICKS;
        if self.encoder.is_none() {
            self.encoder = encoder(encoder_rate_hz(self.rate_hz), self.device);
        }
        match self.encoder.as_mut()?.encode(frame.pcm, frame.is_silent) {
            Ok(payload) => Some(Packet { payload, ticks }),
            Err(error) => {
                log::debug!("encoding: {error}");
                None
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

fn encoder(rate_hz: u32, device: bool) -> Option<SpeechEncoder> {
    SpeechEncoder::new(rate_hz, EncoderSettings::default(), device)
        .inspect_err(|error| log::warn!("no audio at {rate_hz} Hz: {error}"))
        .ok()
}
