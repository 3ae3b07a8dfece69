//! The bot's audio on a WebSocket, converted from its rate to that of the wire, and paced.
//!
//! In: `i16` mono PCM at the bot's rate, marks, interruptions, and `now`. Out: the outputs of
//! [`PlayoutPacer`] at the rate of the wire.

use std::time::{Duration, Instant};

use crate::audio::playout_pacer::{ChunkFormat, PlayoutOutput, PlayoutPacer};
use crate::audio::rate_converter::RateConverter;

/// The sending half of the audio.
pub struct SocketAudioSender {
    wire_hz: u32,
    converter: RateConverter,
    pacer: PlayoutPacer,
    /// Samples sent, at the rate of the wire.
    sent_samples: u64,
}

impl SocketAudioSender {
    pub fn new(format: ChunkFormat) -> Self {
        SocketAudioSender {
            wire_hz: format.rate_hz,
            converter: RateConverter::new(format.rate_hz, format.rate_hz),
            pacer: PlayoutPacer::new(format),
            sent_samples: 0,
        }
    }

    /// Sets the rate of the bot's PCM, in Hz.
    pub fn set_rate(&mut self, rate_hz: u32) {
        if self.converter.from_hz() != rate_hz {
            self.converter = RateConverter::new(rate_hz, self.wire_hz);
        }
    }

    /// Returns the free capacity of the queue, in samples at the bot's rate.
    pub fn free_capacity(&self) -> usize {
        self.converter.input_samples(self.pacer.free_capacity())
    }

    /// Queues speech at the bot's rate, at most [`SocketAudioSender::free_capacity`] samples.
    pub fn handle_audio(&mut self, pcm: &[i16], now: Instant) {
        self.pacer.handle_audio(self.converter.convert(pcm), now);
    }

    /// Adds a mark after all queued speech.
    pub fn handle_mark(&mut self, name: String) {
        self.pacer.handle_mark(name);
    }

    /// Drops the queued speech, and returns its marks.
    pub fn handle_interruption(&mut self) -> Vec<String> {
        self.converter.reset();
        self.pacer.handle_interruption()
    }

    /// Returns the next output that is due.
    pub fn poll_output(&mut self, now: Instant) -> Option<PlayoutOutput<'_>> {
        let output = self.pacer.poll_output(now);
        if let Some(PlayoutOutput::Chunk(pcm)) = &output {
            self.sent_samples += pcm.len() as u64;
        }
        output
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pacer.poll_timeout()
    }

    /// Returns whether all speech has left.
    pub fn is_sent(&self) -> bool {
        self.pacer.is_sent()
    }

    /// Returns the time at which the far end has played everything that was sent.
    pub fn played(&self) -> Option<Instant> {
        self.pacer.played()
    }

    /// Returns the duration of the audio sent.
    pub fn sent(&self) -> Duration {
        Duration::from_millis(self.sent_samples * 1_000 / u64::from(self.wire_hz))
    }

    /// Returns the number of chunks sent.
    pub fn chunks(&self) -> u64 {
        self.pacer.chunks()
    }
}
