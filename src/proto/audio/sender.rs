//! The outbound audio of an RTP session: from the bot's PCM to paced packets.
//!
//! In: `i16` mono PCM at the bot's rate, interruptions, and `now`. Out: one packet per 20 ms with
//! its RTP timestamp, silence included, and the start and end of speech. Combines
//! `rate_converter`, `pacer` and `encoder`. Nothing leaves before [`AudioSender::start`].

use std::collections::VecDeque;
use std::time::Instant;

use crate::audio::codec::Codec;
use crate::audio::encoder::SpeechEncoder;
use crate::audio::opus::{EncoderSettings, RTP_CLOCK_HZ};
use crate::audio::pacer::{self, Pacer};
use crate::audio::rate_converter::RateConverter;
use crate::event::SessionEvent;

/// The rate of the silence that is sent until the bot requests audio.
const DEFAULT_RATE_HZ: u32 = 16_000;

/// The start or end of the bot's speech, as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeechEvent {
    Started,
    Stopped,
}

impl From<SpeechEvent> for SessionEvent {
    fn from(event: SpeechEvent) -> Self {
        match event {
            SpeechEvent::Started => SessionEvent::SpeechStarted,
            SpeechEvent::Stopped => SessionEvent::SpeechStopped,
        }
    }
}

/// One packet to send.
pub struct EncodedPacket<'a> {
    pub payload: &'a [u8],
    /// RTP timestamp in ticks of the codec's clock, from zero at the start of the session.
    pub ticks: u64,
    /// The PCM of the payload, for the audio-level header extension.
    pub pcm: &'a [i16],
}

/// The sending half of a session's audio.
pub struct AudioSender {
    codec: Codec,
    /// Whether the peer plays at 16 kHz, so audio above 8 kHz is not encoded.
    device: bool,
    voice: EncoderSettings,
    /// From the bot's rate to that of the codec.
    converter: RateConverter,
    pacer: Pacer,
    encoder: Option<SpeechEncoder>,
    speech_events: VecDeque<SpeechEvent>,
    /// The start of speech was returned by [`AudioSender::poll_speech_event`], and not its end.
    is_speech_reported: bool,
}

impl AudioSender {
    pub fn new(codec: Codec, device: bool, voice: EncoderSettings) -> Self {
        let codec_hz = codec.encoder_rate_hz(DEFAULT_RATE_HZ);
        AudioSender {
            codec,
            device,
            voice,
            converter: RateConverter::new(DEFAULT_RATE_HZ, codec_hz),
            pacer: Pacer::new(codec_hz),
            encoder: None,
            speech_events: VecDeque::new(),
            is_speech_reported: false,
        }
    }

    /// Sets the rate of the bot's further PCM, in Hz. Queued speech is sent first, and the stream
    /// continues.
    pub fn set_rate(&mut self, rate_hz: u32) {
        if self.converter.from_hz() != rate_hz {
            self.convert_from(rate_hz);
        }
    }

    /// Sets the codec of a new connection. Speech queued for the old one is dropped.
    pub fn set_codec(&mut self, codec: Codec, now: Instant) {
        if self.codec != codec {
            self.codec = codec;
            self.handle_pause();
            self.pacer.handle_interruption(now);
            self.encoder = None;
            self.convert_from(self.converter.from_hz());
        }
    }

    /// Replaces the converter, and the encoder if its rate changes.
    fn convert_from(&mut self, rate_hz: u32) {
        let codec_hz = self.codec.encoder_rate_hz(rate_hz);
        self.converter = RateConverter::new(rate_hz, codec_hz);
        if self.pacer.rate_hz() != codec_hz {
            self.pacer.set_rate(codec_hz);
            self.encoder = None;
        }
    }

    /// Starts the stream once the caller is connected: a packet leaves every 20 ms.
    pub fn start(&mut self, now: Instant) {
        self.pacer.start(now);
    }

    /// Drops the queued speech.
    pub fn handle_interruption(&mut self, now: Instant) {
        self.pacer.handle_interruption(now);
        self.converter.reset();
    }

    /// Pauses sending. Current speech is reported as stopped; queued audio begins new speech at the
    /// next [`AudioSender::start`].
    pub fn handle_pause(&mut self) {
        if self.pacer.handle_pause() {
            self.speech_events.push_back(SpeechEvent::Stopped);
        }
    }

    /// Returns the free capacity of the queue, in samples at the bot's rate.
    pub fn free_capacity(&self) -> usize {
        self.converter.input_samples(self.pacer.free_capacity())
    }

    /// Queues speech at the bot's rate, at most [`AudioSender::free_capacity`] samples.
    pub fn handle_audio(&mut self, pcm: &[i16], now: Instant) {
        self.pacer.handle_audio(self.converter.convert(pcm), now);
    }

    /// Returns whether no speech is queued.
    pub fn is_silent(&self) -> bool {
        self.pacer.queued().is_zero()
    }

    /// Returns whether all queued speech was sent and its end was reported.
    pub fn is_finished(&self) -> bool {
        self.is_silent() && !self.is_speech_reported
    }

    /// Returns the next packet that is due.
    pub fn poll_packet(&mut self, now: Instant) -> Option<EncodedPacket<'_>> {
        self.pacer.handle_timeout(now);
        let frame = loop {
            match self.pacer.poll_output()? {
                pacer::PacerOutput::SpeechStarted => self.speech_events.push_back(SpeechEvent::Started),
                pacer::PacerOutput::SpeechStopped => self.speech_events.push_back(SpeechEvent::Stopped),
                pacer::PacerOutput::Frame(frame) => break frame,
            }
        };
        if self.encoder.is_none() {
            let rate_hz = self.codec.encoder_rate_hz(self.converter.from_hz());
            self.encoder = SpeechEncoder::new(self.codec, rate_hz, self.voice, self.device)
                .inspect_err(|error| log::warn!("no audio at {rate_hz} Hz: {error}"))
                .ok();
        }
        match self.encoder.as_mut()?.encode(frame.pcm, frame.is_silent) {
            Ok(payload) => Some(EncodedPacket {
                payload,
                ticks: frame.rtp_ticks / u64::from(RTP_CLOCK_HZ / self.codec.clock_hz()),
                pcm: self.pacer.last_frame(),
            }),
            Err(error) => {
                log::debug!("encoding: {error}");
                None
            }
        }
    }

    /// Returns the next start or end of speech.
    pub fn poll_speech_event(&mut self) -> Option<SpeechEvent> {
        let event = self.speech_events.pop_front()?;
        self.is_speech_reported = event == SpeechEvent::Started;
        Some(event)
    }

    /// Returns the counters since the session began.
    pub fn counters(&self) -> pacer::PacerStats {
        *self.pacer.counters()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pacer.poll_timeout().map(|(at, _why)| at)
    }
}

#[cfg(test)]
mod tests;
